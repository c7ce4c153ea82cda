//! What waits to be read by the program from its standard input.

use super::limits::Limits;
use super::protocol::Record;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// Bytes written at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A write, as a daemon has ordered it.
pub(crate) struct Item {
    pub seq: u64,
    /// Whether it is told when the program's pipe has all of it.
    pub is_noted: bool,
    pub bytes: Vec<u8>,
    /// Whether the input is closed behind it.
    pub close: bool,
}

/// The queue, and the program's end of it.
pub(crate) struct Input {
    limits: Limits,
    /// `None` once it is closed, by whomever.
    pipe: Option<File>,
    queue: VecDeque<Item>,
    bytes: usize,
    /// Bytes of the first that are in the pipe.
    done: usize,
    /// Since when something waits without progress.
    waiting: Option<Instant>,
    is_told: bool,
    /// What is to be written down.
    news: Vec<Record<'static>>,
}

impl Input {
    pub fn new(limits: Limits, pipe: Option<File>) -> Self {
        Self {
            limits,
            pipe,
            queue: VecDeque::new(),
            bytes: 0,
            done: 0,
            waiting: None,
            is_told: false,
            news: Vec::new(),
        }
    }

    /// Takes an order, or tells that it is lost.
    pub fn push(&mut self, item: Item, now: Instant) {
        let is_full = self.queue.len() >= self.limits.input_writes_max
            || self.bytes + item.bytes.len() > self.limits.input_bytes_max;
        if is_full {
            self.news.push(Record::Lost { seq: item.seq });
            return;
        }
        self.bytes += item.bytes.len();
        self.queue.push_back(item);
        self.waiting.get_or_insert(now);
        self.pump(now);
    }

    /// Writes as much as the pipe takes.
    pub fn pump(&mut self, now: Instant) {
        while let Some(item) = self.queue.front() {
            let rest = &item.bytes[self.done..];
            if rest.is_empty() {
                self.finish_first(false);
                continue;
            }
            let Some(pipe) = &mut self.pipe else {
                self.finish_first(true);
                continue;
            };
            match pipe.write(&rest[..rest.len().min(CHUNK_BYTES)]) {
                Ok(count) if count > 0 => {
                    self.done += count;
                    self.waiting = Some(now);
                    self.is_told = false;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The program has closed it, or is gone.
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
        if self.queue.is_empty() {
            self.waiting = None;
            self.is_told = false;
            // A queue that was long once is given back.
            self.queue.shrink_to(16);
        }
    }

    fn finish_first(&mut self, lost: bool) {
        let Some(item) = self.queue.pop_front() else { return };
        self.bytes -= item.bytes.len();
        self.done = 0;
        if lost {
            self.news.push(Record::Lost { seq: item.seq });
        } else if item.is_noted {
            self.news.push(Record::Written { seq: item.seq });
        }
        if item.close {
            self.pipe = None;
        }
    }

    /// The program is gone: what waits is lost.
    pub fn end(&mut self, now: Instant) {
        self.pipe = None;
        self.pump(now);
    }

    /// What to wait for while something waits to be written.
    pub fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| !self.queue.is_empty()).map(AsFd::as_fd)
    }

    /// When it is to be told that the program does not read.
    pub fn stuck_at(&self) -> Option<Instant> {
        self.waiting.filter(|_| !self.is_told)?.checked_add(self.limits.stuck)
    }

    /// The program could not read until now.
    pub fn begin_again(&mut self, now: Instant) {
        self.waiting = self.waiting.map(|_| now);
    }

    /// Tells it, if that time has come.
    pub fn look(&mut self, now: Instant) {
        if self.stuck_at().is_some_and(|stuck| stuck <= now) {
            self.is_told = true;
            self.news.push(Record::Stuck { seconds: self.limits.stuck.as_secs() });
        }
    }

    /// What has happened since the last time.
    pub fn news(&mut self) -> Vec<Record<'static>> {
        std::mem::take(&mut self.news)
    }
}
