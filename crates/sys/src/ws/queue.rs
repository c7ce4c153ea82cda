//! What waits for one client, bounded in messages and in bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Messages that may wait for a client.
pub const MAX_MESSAGES: usize = 1_024;
/// Bytes that may wait for a client.
pub const MAX_BYTES: usize = 4 << 20;
/// Above this the hub waits for a client that reads.
const PACED_MESSAGES: usize = 512;
/// Bytes handed to the system in one write.
const WRITE_BYTES: usize = 128 << 10;

/// Bytes of one or more whole frames.
#[derive(Clone)]
pub struct Frames {
    /// Shared by all clients; as they were made, without a further copy.
    pub bytes: Arc<Vec<u8>>,
    /// How many messages they are.
    pub messages: usize,
}

/// The queue is over its limit: the client is being cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Frames>,
    /// Waiting, and taken but not yet written.
    messages: usize,
    bytes: usize,
    /// Bytes the system has taken so far.
    taken: u64,
    /// The last frame to send; nothing is taken after it.
    closing: Option<Vec<u8>>,
    closing_since: Option<Instant>,
    reader_ended: bool,
    gone: bool,
}

/// The queue of one client.
#[derive(Default)]
pub struct Queue {
    inner: Mutex<Inner>,
    changed: Condvar,
}

/// What the writer is to do.
pub enum Work {
    /// Write these bytes; they are this many messages.
    Write(Vec<u8>, usize),
    /// Write this frame and end.
    Close(Vec<u8>),
    Gone,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds frames. What is over the limit, or after a close, is not taken.
    pub fn push(&self, frames: Frames) -> Result<(), Full> {
        let mut inner = self.lock();
        if inner.gone || inner.closing.is_some() {
            return Ok(());
        }
        let (messages, bytes) = (inner.messages + frames.messages, inner.bytes + frames.bytes.len());
        // A single message above the byte limit may pass when nothing else waits.
        if messages > MAX_MESSAGES || (bytes > MAX_BYTES && inner.messages > 0) {
            return Err(Full);
        }
        inner.messages = messages;
        inner.bytes = bytes;
        inner.waiting.push_back(frames);
        self.changed.notify_all();
        Ok(())
    }

    /// Ends the connection with this frame. With `drop_waiting`, what waits is not sent any more.
    pub fn close(&self, frame: Vec<u8>, drop_waiting: bool) {
        let mut inner = self.lock();
        if inner.closing.is_none() {
            inner.closing = Some(frame);
            inner.closing_since = Some(Instant::now());
        }
        if drop_waiting {
            inner.waiting.clear();
        }
        self.changed.notify_all();
    }

    /// The connection has ended.
    pub fn set_gone(&self) {
        self.lock().gone = true;
        self.changed.notify_all();
    }

    /// The reader has ended: what waits is still written, then the connection ends.
    pub fn close_silently(&self) {
        self.close(Vec::new(), false);
    }

    /// The reader is through: a writer that waits for it after a close need not wait longer.
    pub fn reader_ended(&self) {
        self.lock().reader_ended = true;
        self.changed.notify_all();
    }

    /// Waits until the reader has ended, `limit` at most.
    pub fn wait_reader(&self, limit: Duration) {
        self.wait_while(Instant::now() + limit, |inner| !inner.reader_ended && !inner.gone);
    }

    /// Since when the connection is being closed.
    pub fn closing_since(&self) -> Option<Instant> {
        self.lock().closing_since
    }

    /// Waits for something to write.
    pub fn next(&self) -> Work {
        let mut inner = self.lock();
        loop {
            if inner.gone {
                return Work::Gone;
            }
            if !inner.waiting.is_empty() {
                return take(&mut inner);
            }
            if let Some(frame) = inner.closing.clone() {
                return Work::Close(frame);
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The system has taken this many bytes from the writer.
    pub fn progress(&self, bytes: usize) {
        self.lock().taken += bytes as u64;
    }

    /// The writer has written this much.
    pub fn written(&self, messages: usize, bytes: usize) {
        let mut inner = self.lock();
        inner.messages = inner.messages.saturating_sub(messages);
        inner.bytes = inner.bytes.saturating_sub(bytes);
        self.changed.notify_all();
    }

    /// Bytes the system has taken so far.
    pub fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// Whether so few messages wait that nobody needs to wait for the client, or it is going anyway.
    pub fn keeps_up(&self) -> bool {
        keeps_up(&self.lock())
    }

    /// Waits until the client keeps up, at most until `deadline`.
    pub fn wait_until_it_keeps_up(&self, deadline: Instant) {
        self.wait_while(deadline, |inner| !keeps_up(inner));
    }

    fn wait_while(&self, deadline: Instant, waits: impl Fn(&Inner) -> bool) {
        let mut inner = self.lock();
        while waits(&inner) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            inner =
                self.changed.wait_timeout(inner, left).map_or_else(|e| e.into_inner().0, |(inner, _)| inner);
        }
    }
}

fn keeps_up(inner: &Inner) -> bool {
    inner.messages <= PACED_MESSAGES || inner.gone || inner.closing.is_some()
}

fn take(inner: &mut Inner) -> Work {
    let mut bytes = Vec::new();
    let mut messages = 0;
    while let Some(frames) = inner.waiting.pop_front() {
        bytes.extend_from_slice(&frames.bytes);
        messages += frames.messages;
        if bytes.len() >= WRITE_BYTES {
            break;
        }
    }
    Work::Write(bytes, messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(messages: usize, bytes: usize) -> Frames {
        Frames { bytes: Arc::new(vec![0; bytes]), messages }
    }

    #[test]
    fn decisions_3_a_queue_holds_1024_messages_or_4_mib() {
        let queue = Queue::default();
        assert_eq!(queue.push(frames(MAX_MESSAGES, 10)), Ok(()));
        assert_eq!(queue.push(frames(1, 1)), Err(Full));
        let queue = Queue::default();
        assert_eq!(queue.push(frames(1, MAX_BYTES)), Ok(()));
        assert_eq!(queue.push(frames(1, 1)), Err(Full));
    }

    #[test]
    fn what_is_taken_but_not_written_still_counts() {
        let queue = Queue::default();
        queue.push(frames(MAX_MESSAGES, 10)).unwrap();
        let Work::Write(bytes, messages) = queue.next() else { panic!("nothing to write") };
        assert_eq!(queue.push(frames(1, 1)), Err(Full));
        queue.written(messages, bytes.len());
        assert_eq!(queue.push(frames(1, 1)), Ok(()));
    }
}
