//! The keeper's side of its connections: at most one daemon, and a few that have not said who they are.

use super::frames::Frames;
use super::limits::Limits;
use super::protocol::{
    FRAME_BYTES_MAX, FromKeeper, Malformed, Order, RECORDS_BYTES_MAX, ToKeeper, VERSION, records_head,
};
use super::spool::Spool;
use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use svc_sys::sockets::{Poll, own_uid, peer};

/// How long the daemon that starts a keeper may take for its order.
const ORDER_LIMIT: Duration = Duration::from_secs(15);
/// Bytes read at once.
const CHUNK_BYTES: usize = 16 << 10;
/// Bytes of a stranger's first word.
const HELLO_BYTES_MAX: usize = 4 << 10;
/// Frames of records written one after the other before others have their turn.
const FRAMES_AT_ONCE: usize = 4;

/// A connection. It is closed on drop.
pub(crate) struct Peer {
    socket: UnixStream,
    frames: Frames,
    /// What is on its way, and how much of it is gone.
    out: Vec<u8>,
    written: usize,
    /// The offset up to which records are in `out` or gone.
    sent: u64,
    /// When its first word must have been said.
    until: Option<Instant>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The first connection is also this process's standard input, which stays open.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Peer {
    /// Errors: the other end belongs to another user.
    pub fn new(socket: UnixStream, until: Option<Instant>) -> io::Result<Self> {
        if !is_welcome(peer(&socket)?.uid, own_uid()) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        socket.set_nonblocking(true)?;
        Ok(Self { socket, frames: Frames::new(CHUNK_BYTES), out: Vec::new(), written: 0, sent: 0, until })
    }

    /// To wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads once; `false` when the connection is over.
    pub fn fill(&mut self) -> bool {
        match self.frames.fill(&mut self.socket) {
            Ok(count) => count > 0,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Waits for what is to be started.
    ///
    /// Errors: something else comes, nothing in time, or from a daemon that is gone.
    pub fn first_order(&mut self) -> io::Result<Order> {
        let until = Instant::now() + ORDER_LIMIT;
        loop {
            match self.next_order()? {
                // A daemon that is gone by now leaves the start to the next one, which may be there already.
                Some(ToKeeper::Start(_)) if self.is_over() => return Err(Self::too_late()),
                Some(ToKeeper::Start(order)) => return Ok(order),
                Some(_) => return Err(io::Error::new(ErrorKind::InvalidData, "the first word is Start")),
                None => {}
            }
            let mut poll = Poll::default();
            poll.add(self.fd(), true, false);
            poll.wait(Some(until.saturating_duration_since(Instant::now())))?;
            if Instant::now() >= until {
                return Err(io::Error::new(ErrorKind::TimedOut, "no order came"));
            }
            if !self.fill() {
                return Err(Self::too_late());
            }
        }
    }

    /// Its daemon is gone, and another may be there already.
    pub fn too_late() -> io::Error {
        io::Error::new(ErrorKind::UnexpectedEof, "the daemon went before its order was begun")
    }

    /// Whether the other end is gone. What it has said before stays.
    pub fn is_over(&mut self) -> bool {
        while self.frames.bytes() < FRAME_BYTES_MAX {
            match self.frames.fill(&mut self.socket) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
        false
    }

    /// The next order that has arrived.
    ///
    /// Errors: what has arrived is none.
    pub fn next(&mut self, limit: usize) -> Result<Option<ToKeeper>, Malformed> {
        let Some((kind, place)) = self.frames.next(limit)? else { return Ok(None) };
        ToKeeper::decode(kind, self.frames.payload(place)).map(Some)
    }

    /// The next order of a daemon.
    pub fn next_order(&mut self) -> Result<Option<ToKeeper>, Malformed> {
        self.next(FRAME_BYTES_MAX)
    }

    /// Puts an answer behind what is on its way.
    pub fn answer(&mut self, answer: &FromKeeper) {
        if let Ok(frame) = answer.encode() {
            self.out.extend_from_slice(&frame);
        }
    }

    /// From now on it gets records, from this offset.
    pub fn greeted(&mut self, from: u64) {
        self.sent = from;
        self.until = None;
    }

    /// Whether there is something that the socket has not taken yet.
    pub fn has_more(&self, spool: &Spool) -> bool {
        !self.out.is_empty() || self.sent < spool.end()
    }

    /// Bytes of records that it was not sent yet.
    pub fn behind(&self, spool: &Spool) -> u64 {
        spool.end() - self.sent.clamp(spool.first(), spool.end())
    }

    /// Sends answers and records as far as the socket takes them. `Ok(true)` when some records went.
    ///
    /// Errors: the connection is over, or the spool cannot be read.
    pub fn send(&mut self, spool: &Spool) -> io::Result<bool> {
        let before = self.sent;
        for _ in 0..FRAMES_AT_ONCE {
            if self.out.is_empty() {
                self.load(spool)?;
            }
            if self.out.is_empty() || !self.flush()? {
                break;
            }
        }
        Ok(self.sent > before)
    }

    /// `false` when the socket takes no more.
    pub fn flush(&mut self) -> io::Result<bool> {
        while self.written < self.out.len() {
            match self.socket.write(&self.out[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        if self.out.capacity() > CHUNK_BYTES {
            self.out = Vec::new();
        } else {
            self.out.clear();
        }
        Ok(true)
    }

    /// Makes one frame of records.
    fn load(&mut self, spool: &Spool) -> io::Result<()> {
        self.sent = self.sent.max(spool.first());
        if self.sent >= spool.end() {
            return Ok(());
        }
        // The head is known once the records are there.
        let head = records_head(self.sent, 0)?.len();
        self.out.resize(head, 0);
        let length =
            spool.read(self.sent, RECORDS_BYTES_MAX, &mut self.out).inspect_err(|_| self.out.clear())?;
        if length == 0 {
            self.out.clear();
            return Err(io::Error::new(ErrorKind::InvalidData, "no record is where one was"));
        }
        self.out[..head].copy_from_slice(&records_head(self.sent, length)?);
        self.sent += length as u64;
        Ok(())
    }
}

/// Connections that wait for their first word.
pub(crate) struct Strangers {
    limits: Limits,
    list: Vec<Peer>,
}

/// What a stranger has said that is welcome.
pub(crate) struct Greeting {
    pub peer: Peer,
    pub from: u64,
}

impl Strangers {
    pub fn new(limits: Limits) -> Self {
        Self { limits, list: Vec::new() }
    }

    /// To wait for.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().map(Peer::fd)
    }

    /// Whether one more would be taken.
    pub fn have_room(&self) -> bool {
        self.list.len() < self.limits.strangers_max
    }

    /// When the first of them has waited for too long.
    pub fn due(&self) -> Option<Instant> {
        self.list.iter().filter_map(|peer| peer.until).min()
    }

    /// Takes those that wait at the door, as far as there is room; none of another user.
    pub fn accept(&mut self, listener: &UnixListener, now: Instant) {
        while self.have_room() {
            let Ok((socket, _)) = listener.accept() else { return };
            if let Ok(peer) = Peer::new(socket, now.checked_add(self.limits.hello)) {
                self.list.push(peer);
            }
        }
    }

    /// Hears those that have something to say. Returns the last one that has greeted well; all others that
    /// have spoken, and those that were silent for too long, are gone.
    pub fn hear(&mut self, token: &str, spool: &Spool, now: Instant) -> Option<Greeting> {
        let mut found = None;
        for mut peer in std::mem::take(&mut self.list) {
            let is_open = peer.fill();
            match peer.next(HELLO_BYTES_MAX) {
                Ok(None) if is_open && peer.until.is_none_or(|until| now < until) => self.list.push(peer),
                Ok(None) | Err(_) => {}
                Ok(Some(order)) => match judge(order, token, spool) {
                    Ok(from) => found = Some(Greeting { peer, from }),
                    Err(why) => {
                        peer.answer(&FromKeeper::Refused { why });
                        // It has room for one small frame, or does not read.
                        let _ = peer.flush();
                    }
                },
            }
        }
        found
    }
}

/// The offset from which on a daemon wants records, or why it is no welcome one.
fn judge(order: ToKeeper, token: &str, spool: &Spool) -> Result<u64, String> {
    let ToKeeper::Hello { version, token: shown, from } = order else {
        return Err("the first word is Hello".into());
    };
    if version != VERSION {
        return Err(format!("it speaks version {VERSION}, not {version}"));
    }
    if !is_same(shown.as_bytes(), token.as_bytes()) {
        return Err("the token is not that of this run".into());
    }
    // Before the first there is nothing left to cut.
    if from >= spool.first() && !spool.is_start(from) {
        return Err(format!(
            "no record ends at {from}; those kept are from {} to {}",
            spool.first(),
            spool.end()
        ));
    }
    Ok(from)
}

/// Whether a peer's user may speak at all.
fn is_welcome(peer: u32, own: u32) -> bool {
    peer == own
}

/// Compares without telling by its time where the difference is.
pub(crate) fn is_same(shown: &[u8], token: &[u8]) -> bool {
    let differences = shown.iter().zip(token).fold(0, |sum, (left, right)| sum | (left ^ right));
    shown.len() == token.len() && !token.is_empty() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_user_and_the_whole_token_are_welcome() {
        assert!(is_welcome(1000, 1000));
        assert!(!is_welcome(1001, 1000) && !is_welcome(0, 1000));
        assert!(is_same(b"abc", b"abc"));
        for other in [&b""[..], b"ab", b"abd", b"abcd"] {
            assert!(!is_same(other, b"abc"));
        }
        assert!(!is_same(b"", b""));
    }
}
