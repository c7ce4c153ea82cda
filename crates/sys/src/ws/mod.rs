//! Pushing messages to WebSocket clients.
//!
//! One hub thread numbers every message, frames it once, and puts the same bytes into the queue of each
//! client that wants it. Each client has a writer thread, and a reader on its connection's thread.
//!
//! **Invariant:** the hub waits only for clients that read; one that does not keep up is cut off alone,
//! with 1013.

mod hub;
mod pace;
mod queue;
mod ring;
mod session;

pub use hub::{Hub, HubHandle, HubMessage};
pub use session::{Session, Subscription, check_upgrade, wants_upgrade};

use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame, FrameHeader, coding::CloseCode};

/// Takes what clients say, beyond the pings that the connection itself answers.
pub trait Listener: Send + Sync {
    /// A message of a client; the answer for it alone, if there is one.
    fn heard(&self, client: u64, message: &serde_json::Value) -> Option<serde_json::Value>;
    /// The client is gone.
    fn gone(&self, client: u64);
}

/// Clients at once; a further one gets 503.
pub const MAX_CLIENTS: usize = 128;

/// Adds a text message of these parts as the bytes that go over the wire.
fn text_frame(parts: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let head = FrameHeader { opcode: OpCode::Data(Data::Text), ..FrameHeader::default() };
    // Writing to a vector does not fail.
    let _ = head.format(length as u64, out);
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn ping_frame() -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(Frame::ping(Vec::new()), &mut out);
    out
}

fn close_frame(code: u16, reason: &'static str) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(
        Frame::close(Some(CloseFrame { code: CloseCode::from(code), reason: reason.into() })),
        &mut out,
    );
    out
}

fn write_frame(frame: Frame, out: &mut Vec<u8>) {
    // Writing to a vector does not fail.
    let _ = frame.format(out);
}
