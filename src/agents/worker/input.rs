//! What goes to a program's standard input: a queue bounded in bytes, and the thread that empties it, so
//! that a program that does not read holds up nobody who writes to it.

use super::run::Run;
use crate::agents::report::{LogEntry, Other, RunReport};
use crate::providers::Activity;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use svc_sys::process::{Progress, Sink};

/// Bytes that may wait to be written.
const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Items that may wait.
const QUEUE_ITEMS_MAX: usize = 4096;
/// How long a write may make no progress before that is told.
const STUCK: Duration = Duration::from_secs(10);

/// An order to the input thread.
#[derive(Debug)]
pub(super) enum Item {
    Write(String),
    Close,
    /// A message for the agent, to be put into the protocol's words.
    Say {
        message_id: u64,
        text: String,
    },
    /// Everything of that message stands before this.
    Said {
        message_id: u64,
        text: String,
        lost_before: u64,
    },
    /// Let the program end.
    Finish,
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::Write(text) | Self::Say { text, .. } | Self::Said { text, .. } => text.len(),
            Self::Close | Self::Finish => 0,
        }
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Input {
    queue: Mutex<Queue>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    is_closed: bool,
}

impl Input {
    /// `false` when the run is over, or too much waits already.
    pub fn push(&self, item: Item) -> bool {
        let mut queue = self.lock();
        let is_full = queue.items.len() >= QUEUE_ITEMS_MAX || queue.bytes + item.bytes() > QUEUE_BYTES_MAX;
        if queue.is_closed || is_full {
            return false;
        }
        queue.push(item);
        self.bell.notify_one();
        true
    }

    /// For what takes the place of an item that has just been popped, and so had its room already.
    fn push_in_place(&self, item: Item) -> bool {
        let mut queue = self.lock();
        let is_open = !queue.is_closed;
        if is_open {
            queue.push(item);
        }
        is_open
    }

    /// Waits for the next; `None` when the run is over and nothing is left.
    fn pop(&self) -> Option<Item> {
        let queue = self.lock();
        let idle = |queue: &mut Queue| queue.items.is_empty() && !queue.is_closed;
        let mut queue = self.bell.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner);
        let item = queue.items.pop_front()?;
        queue.bytes -= item.bytes();
        Some(item)
    }

    /// The run is over: what still waits is answered, nothing more is taken.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.bell.notify_all();
    }

    /// Whether the run is over for what comes from outside.
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push(&mut self, item: Item) {
        self.bytes += item.bytes();
        self.items.push_back(item);
    }
}

/// The thread's own state.
struct Writer<'a> {
    run: &'a Run,
    sink: Option<Sink>,
    /// Writes that did not reach the program.
    lost: u64,
}

/// Empties the queue until the run is over. Without a `sink` nothing can be said.
pub(super) fn write_input(run: &Run, sink: Option<Sink>) {
    let mut writer = Writer { run, sink, lost: 0 };
    while let Some(item) = run.input.pop() {
        match item {
            Item::Write(text) => writer.write(&text),
            Item::Close => writer.sink = None,
            Item::Say { message_id, text } => writer.say(message_id, text),
            Item::Said { message_id, text, lost_before } => {
                let delivered = writer.lost == lost_before;
                if delivered {
                    run.output.log(&LogEntry::Other(Other::User { text }));
                }
                run.output.report(RunReport::Said { message_id, delivered });
            }
            Item::Finish => {
                let push = |item| run.input.push_in_place(item);
                run.converse_into(push, |conversation, steps| conversation.finish(steps));
                run.output.flush();
            }
        }
    }
}

impl Writer<'_> {
    fn say(&mut self, message_id: u64, text: String) {
        let mut is_taken = false;
        let push = |item| self.run.input.push_in_place(item);
        let accepted = self.run.converse_into(push, |conversation, steps| {
            is_taken = conversation.say(&text, steps);
        });
        self.run.output.flush();
        // Behind the writes that the conversation has just put into the queue.
        let said = Item::Said { message_id, text, lost_before: self.lost };
        if !(is_taken && accepted && push(said)) {
            self.run.output.report(RunReport::Said { message_id, delivered: false });
        }
    }

    fn write(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        let mut is_told = false;
        while !rest.is_empty() {
            let progress = self.sink.as_mut().map(|sink| sink.write_some(rest, STUCK));
            match progress {
                Some(Ok(Progress::Wrote(count))) => rest = &rest[count..],
                Some(Ok(Progress::Full)) => {
                    if !is_told {
                        let text = format!("it has not read its standard input for {} s", STUCK.as_secs());
                        self.run.output.push([Activity::Trouble { text }]);
                        self.run.output.flush();
                        is_told = true;
                    }
                }
                // Closed by us, by the program, or with the run.
                None | Some(Ok(Progress::Ended) | Err(_)) => {
                    self.sink = None;
                    self.lost += 1;
                    return;
                }
            }
        }
    }
}
