//! One WebSocket client: the upgrade, its reader and its writer.

use super::hub::{Client, HubHandle, HubMessage};
use super::queue::{Frames, Queue, Work};
use super::{Listener, MAX_CLIENTS, close_frame, text_frame};
use crate::http::Head;
use crate::threads::Thread;
use serde_json::Value;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_base::api::{Method, Problem};
use tungstenite::error::{CapacityError, ProtocolError};
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

/// Bytes of a message from a client.
const MAX_INCOMING_BYTES: usize = 64 << 10;
/// A client that sends nothing, not even a pong, for this long is dead.
const DEAD_AFTER: Duration = Duration::from_secs(75);
/// A client that is being closed gets this long to take what it was sent and the close.
const CLOSE_GRACE: Duration = Duration::from_secs(10);
/// One look at whether a blocked write is still wanted.
const WRITE_TICK: Duration = Duration::from_millis(500);
const WRITER_STACK_BYTES: usize = 128 << 10;
/// Messages a client may subscribe to by name.
const MAX_TYPES: usize = 64;

/// Whether a request asks for an upgrade to WebSocket.
pub fn wants_upgrade(head: &Head) -> bool {
    head.has_token("upgrade", "websocket") && head.has_token("connection", "upgrade")
}

/// Checks an upgrade request (RFC 6455, 4.2.1); the value of `Sec-WebSocket-Accept`.
///
/// Errors: 400, 405, and 426 for another version.
pub fn check_upgrade(head: &Head) -> Result<String, Problem> {
    let bad = |text: &str| Problem::bad_request("bad_upgrade", text);
    if head.method != Method::Get {
        return Err(Problem::new(405, "method_not_allowed", "a WebSocket upgrade is a GET")
            .with_header("Allow", "GET"));
    }
    if head.old {
        return Err(bad("a WebSocket upgrade needs HTTP/1.1"));
    }
    if head.header("sec-websocket-version") != Some("13") {
        let problem = Problem::new(426, "websocket_version", "this server speaks WebSocket version 13");
        return Err(problem.with_header("Sec-WebSocket-Version", "13").with_header("Upgrade", "websocket"));
    }
    let key = head.header("sec-websocket-key").unwrap_or_default();
    // 16 bytes in base64: 22 characters and two equals signs.
    let plain = key.len() == 24
        && key.ends_with("==")
        && key[..22].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/');
    if !plain || head.count("sec-websocket-key") != 1 {
        return Err(bad("Sec-WebSocket-Key must be 16 bytes in base64"));
    }
    Ok(tungstenite::handshake::derive_accept_key(key.as_bytes()))
}

/// What a client asked for with its query, and where it will get it.
pub struct Subscription {
    hub: HubHandle,
    listener: Arc<dyn Listener>,
    types: Vec<String>,
    since: Option<u64>,
    delta: bool,
}

impl Subscription {
    /// Reads `types`, `since` and `delta`.
    ///
    /// Errors: 400 for a `since` that is no number, or too many types.
    pub fn from_query(
        hub: HubHandle,
        listener: Arc<dyn Listener>,
        query: &[(String, String)],
    ) -> Result<Self, Problem> {
        let get = |name: &str| query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let since = get("since").map(str::parse::<u64>).transpose().map_err(|_| {
            Problem::bad_request("validation_failed", "since must be the seq of a message, a whole number")
        })?;
        let types: Vec<String> = get("types")
            .map(|list| {
                list.split(',').map(str::trim).filter(|t| !t.is_empty()).map(ToOwned::to_owned).collect()
            })
            .unwrap_or_default();
        if types.len() > MAX_TYPES {
            let text = format!("types must name at most {MAX_TYPES} message types");
            return Err(Problem::bad_request("validation_failed", text));
        }
        let delta = get("delta").is_some_and(|value| value == "1" || value == "true");
        Ok(Self { hub, listener, types, since, delta })
    }

    /// Takes a place for the client.
    ///
    /// Errors: 503 when all are taken.
    pub fn open(self, stream: TcpStream) -> Result<Session, Problem> {
        let Some(id) = self.hub.reserve() else {
            let text = format!("{MAX_CLIENTS} WebSocket clients are connected already");
            return Err(Problem::new(503, "too_many_clients", text).with_header("Retry-After", "5"));
        };
        Ok(Session { id, stream, queue: Arc::default(), subscription: self })
    }
}

/// A client that has been let in.
pub struct Session {
    id: u64,
    stream: TcpStream,
    queue: Arc<Queue>,
    subscription: Subscription,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.queue.set_gone();
        self.subscription.listener.gone(self.id);
        self.subscription.hub.release(self.id);
    }
}

/// What tungstenite reads from and writes to: the socket, and the writer's queue, so that its pongs and
/// closes never split a frame.
struct Pipe<'a> {
    stream: &'a TcpStream,
    queue: &'a Queue,
}

impl Read for Pipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                // A read with a time-out ends so when the program was suspended and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let frames = Frames { bytes: Arc::new(bytes.to_vec()), messages: 1 };
        self.queue.push(frames).map_err(|_| io::Error::other("the client's queue is full"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Session {
    /// Speaks with the client until it goes. The 101 has been written; `left` was read ahead.
    pub fn run(self, left: Vec<u8>) {
        let Ok(stream) = self.stream.try_clone() else { return };
        let queue = Arc::clone(&self.queue);
        let writer = Thread::with_stack("ws-writer", WRITER_STACK_BYTES, move || write_all(&stream, &queue));
        let Ok(_writer) = writer else { return };
        // After the writer runs, for the hub fills the queue with the whole registry at once.
        self.subscription.hub.send(HubMessage::Join(Client {
            id: self.id,
            queue: Arc::clone(&self.queue),
            types: self.subscription.types.clone(),
            since: self.subscription.since,
            delta: self.subscription.delta,
        }));
        self.read(left);
        self.queue.close_silently();
        self.queue.reader_ended();
        // The writer ends by itself: the close was sent, or its grace is over.
    }

    fn read(&self, left: Vec<u8>) {
        let config = WebSocketConfig::default()
            .read_buffer_size(4 << 10)
            // What it writes goes to a queue; a second buffer before that would hold back pongs.
            .write_buffer_size(0)
            .max_message_size(Some(MAX_INCOMING_BYTES))
            .max_frame_size(Some(MAX_INCOMING_BYTES));
        // The hub pings more often than that, so that a living client is never silent for so long.
        if self.stream.set_read_timeout(Some(DEAD_AFTER)).is_err() {
            return;
        }
        let pipe = Pipe { stream: &self.stream, queue: &self.queue };
        let mut socket = WebSocket::from_partially_read(pipe, left, Role::Server, Some(config));
        loop {
            match socket.read() {
                Ok(Message::Text(text)) => self.heard(&text),
                // Tungstenite answers a ping only with the next call, so it is made to at once.
                Ok(Message::Ping(_)) if socket.flush().is_err() => return,
                Ok(_) => {}
                Err(error) => return self.failed(&error),
            }
        }
    }

    fn heard(&self, text: &str) {
        // What is no JSON is no message we know, and is ignored like one.
        let message: Value = serde_json::from_slice(text.as_bytes()).unwrap_or_default();
        let answer = if message["type"] == "ping" {
            Some(r#"{"type":"pong"}"#.to_owned())
        } else {
            self.subscription.listener.heard(self.id, &message).map(|answer| answer.to_string())
        };
        let Some(answer) = answer else { return };
        let mut bytes = Vec::new();
        text_frame(&[answer.as_bytes()], &mut bytes);
        // A client that floods pings and reads no pongs is cut off like any other that does not keep up.
        if self.queue.push(Frames { bytes: Arc::new(bytes), messages: 1 }).is_err() {
            self.queue.close(close_frame(1013, "you do not read your pongs"), true);
        }
    }

    fn failed(&self, error: &Error) {
        let (code, reason) = match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => (1009, "a message is above 64 KiB"),
            Error::Utf8(_) => (1007, "a text message is not UTF-8"),
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) | Error::ConnectionClosed => {
                // Nobody is left to read a close frame.
                return self.queue.close_silently();
            }
            Error::Protocol(_) => (1002, "a frame breaks the protocol"),
            Error::Io(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                (1001, "no sign of life")
            }
            _ => return self.queue.close_silently(),
        };
        self.queue.close(close_frame(code, reason), false);
    }
}

/// The writer thread.
fn write_all(stream: &TcpStream, queue: &Queue) {
    // Without a time-out a blocked write could not look whether it is still wanted.
    if stream.set_write_timeout(Some(WRITE_TICK)).is_ok() {
        loop {
            match queue.next() {
                Work::Write(bytes, messages) => {
                    if !write_one(stream, queue, &bytes) {
                        break;
                    }
                    queue.written(messages, bytes.len());
                }
                Work::Close(frame) => {
                    write_one(stream, queue, &frame);
                    // Half closed first: a client that still sends would lose our close frame to a reset.
                    let _ = stream.shutdown(Shutdown::Write);
                    queue.wait_reader(CLOSE_GRACE);
                    break;
                }
                Work::Gone => break,
            }
        }
    }
    // Also ends the reader.
    let _ = stream.shutdown(Shutdown::Both);
}

/// Writes all bytes; `false` when the client is gone or its grace is over.
fn write_one(mut stream: &TcpStream, queue: &Queue, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return false,
            Ok(n) => {
                queue.progress(n);
                bytes = &bytes[n..];
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let over = |since: Instant| since.elapsed() > CLOSE_GRACE;
                if queue.closing_since().is_some_and(over) {
                    return false;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}
