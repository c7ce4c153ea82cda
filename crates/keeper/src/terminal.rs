//! A person at an agent's own screen.
//!
//! ```text
//! svc attach ──hello, typed, size, leave──▶ svc __terminal ──terminal──▶ the agent's program
//!            ◀──────────screen, over──────  (run/terminal)
//! ```
//! The keeper keeps `svc __terminal` as it keeps any program; that one holds the terminal, starts the agent's
//! program on it when a person has come, and ends it when the person has left. The daemon tells it over its
//! standard input which person to expect, and hears what became of it from its standard output.
//!
//! A frame is as in [`crate::protocol`], of kinds of its own.

mod hold;

pub use hold::{Limits, main, main_within};

use super::frames::Frames;
use super::place::Folder;
use super::protocol::Malformed;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use svc_sys::process::Size;
use svc_sys::sockets::{own_uid, peer};

/// The hidden sub-command: `RUN_DIR N WORD.. [WORD..]`, the N words being the program's command line, the
/// others that of a program whose output is told behind its end.
pub const SUB_COMMAND: &str = "__terminal";
/// The socket, in the folder of the run.
pub const SOCKET: &str = "terminal";
/// A line to its standard input that names a person who may come: this word, a space, and the token.
pub const EXPECT: &str = "expect";
/// A line to its standard input that ends the program as the person's leaving does.
pub const LEAVE: &str = "leave";
/// The key of the lines of its own on standard output; all others are the last program's.
pub const TOLD: &str = "terminal";

/// The version of the frames.
const VERSION: u32 = 1;
/// Bytes of one frame's payload.
const FRAME_MAX: usize = 64 << 10;
/// Bytes read at once.
const CHUNK: usize = 16 << 10;

const HELLO: u8 = 1;
const TYPED: u8 = 2;
const SIZE: u8 = 3;
const LEFT: u8 = 4;
const SCREEN: u8 = 5;
const OVER: u8 = 6;

#[derive(Serialize, Deserialize)]
struct Hello {
    version: u32,
    token: String,
    columns: u16,
    lines: u16,
}

/// Adds a frame; what is too long for one goes into several.
fn put(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    let pieces = if payload.is_empty() { vec![payload] } else { payload.chunks(FRAME_MAX).collect() };
    for piece in pieces {
        out.extend_from_slice(&u32::try_from(piece.len()).unwrap_or_default().to_le_bytes());
        out.push(kind);
        out.extend_from_slice(piece);
    }
}

fn size_of(payload: &[u8]) -> Option<Size> {
    let [a, b, c, d] = payload.try_into().ok()?;
    Some(Size { columns: u16::from_le_bytes([a, b]), lines: u16::from_le_bytes([c, d]) })
}

fn bytes_of(size: Size) -> [u8; 4] {
    let ([a, b], [c, d]) = (size.columns.to_le_bytes(), size.lines.to_le_bytes());
    [a, b, c, d]
}

/// What the screen has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Bytes for the person's terminal.
    Screen(Vec<u8>),
    /// It is over, and why: empty where the person has wished it so.
    Over(String),
}

/// The person's side. Nothing here waits.
pub struct Viewer {
    socket: UnixStream,
    frames: Frames,
    /// What the socket has not taken yet.
    out: Vec<u8>,
}

impl Viewer {
    /// Comes to the terminal of this run.
    ///
    /// Errors: nobody listens there, or not this user.
    pub fn come(run_dir: &Path, token: &str, size: Size) -> io::Result<Self> {
        let folder = Folder::open(run_dir)?.ok_or(ErrorKind::NotFound)?;
        let socket = folder.connect_to(SOCKET)?;
        if peer(&socket)?.uid != own_uid() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        socket.set_nonblocking(true)?;
        let Size { columns, lines } = size;
        let hello = Hello { version: VERSION, token: token.to_owned(), columns, lines };
        let mut viewer = Self { socket, frames: Frames::new(CHUNK), out: Vec::new() };
        viewer.send(HELLO, &serde_json::to_vec(&hello)?)?;
        Ok(viewer)
    }

    /// To wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the other end is to take something before more is typed.
    pub fn has_more(&self) -> bool {
        !self.out.is_empty()
    }

    /// What was typed.
    ///
    /// Errors: the other end is gone.
    pub fn typed(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() { Ok(()) } else { self.send(TYPED, bytes) }
    }

    /// The person's terminal has another size.
    ///
    /// Errors: as [`Viewer::typed`].
    pub fn resized(&mut self, size: Size) -> io::Result<()> {
        self.send(SIZE, &bytes_of(size))
    }

    /// The person leaves.
    ///
    /// Errors: as [`Viewer::typed`].
    pub fn leave(&mut self) -> io::Result<()> {
        self.send(LEFT, &[])
    }

    fn send(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        put(&mut self.out, kind, payload);
        self.flush()
    }

    /// Sends as much as the socket takes.
    ///
    /// Errors: as [`Viewer::typed`].
    pub fn flush(&mut self) -> io::Result<()> {
        write_some(&self.socket, &mut self.out)
    }

    /// Reads once; what has come with that. An end without a word is an error.
    ///
    /// Errors: the other end is gone, or speaks otherwise.
    pub fn hear(&mut self) -> io::Result<Vec<Said>> {
        let mut said = Vec::new();
        match self.frames.fill(&mut self.socket) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if !is_for_now(&error) => return Err(error),
            _ => {}
        }
        while let Some((kind, place)) = self.frames.next(FRAME_MAX)? {
            let payload = self.frames.payload(place);
            said.push(match kind {
                SCREEN => Said::Screen(payload.to_vec()),
                OVER => Said::Over(String::from_utf8_lossy(payload).into_owned()),
                _ => return Err(Malformed("no such frame of a terminal").into()),
            });
        }
        Ok(said)
    }
}

/// Whether another try may go better.
fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Writes as much as is taken, which goes from `bytes`.
fn write_some(mut to: impl Write, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut done = 0;
    let over = loop {
        if done == bytes.len() {
            break Ok(());
        }
        match to.write(&bytes[done..]) {
            Ok(0) => break Err(ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if is_for_now(&error) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    bytes.drain(..done);
    over
}
