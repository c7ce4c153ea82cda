//! What `svc __line` is told: its standard input, held until the keeper there has it, and the word to end.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use svc_keeper::client::{Waker, Writer};
use svc_keeper::protocol::{Note, ToKeeper};
use svc_sys::threads::lock;

/// So often the other end hears of this one, whatever else goes on.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Bytes of input that wait for the line; then the daemon's writes wait.
const INPUT_BYTES: usize = 1 << 20;
/// Bytes of input in one write.
const CHUNK_BYTES: usize = 16 << 10;

/// What the threads share.
#[derive(Default)]
pub(super) struct Shared {
    input: Mutex<Input>,
    news: Condvar,
}

#[derive(Default)]
struct Input {
    /// What the keeper there is not known to have.
    writes: VecDeque<Item>,
    bytes: usize,
    seq: u64,
    /// What was passed on: the offset behind it, and the last write that the program there has.
    taken: (u64, u64),
    /// Of the connection that stands.
    link: Option<(Waker, Arc<Writer>)>,
    /// This process was told to end.
    stops: bool,
}

struct Item {
    seq: u64,
    bytes: Vec<u8>,
    close: bool,
}

impl Shared {
    fn tell(&self, input: &Input) {
        self.news.notify_all();
        if let Some((waker, _)) = &input.link {
            waker.wake();
        }
    }

    /// The connection that stands, or that none does.
    pub fn stands(&self, link: Option<(Waker, Arc<Writer>)>) {
        lock(&self.input).link = link;
    }

    /// The keeper there has all up to this one.
    pub fn arrived(&self, seq: u64) {
        let mut input = lock(&self.input);
        while input.writes.front().is_some_and(|item| item.seq <= seq) {
            let gone = input.writes.pop_front().map_or(0, |item| item.bytes.len());
            input.bytes -= gone;
        }
        self.news.notify_all();
    }

    /// What was passed on so far.
    pub fn passed_on(&self, offset: u64, seq: u64) {
        lock(&self.input).taken = (offset, seq);
    }

    /// The last write that there was.
    pub fn last_seq(&self) -> u64 {
        lock(&self.input).seq
    }

    /// What is held behind this write, as frames for the keeper, with the number of the last; and whether all
    /// is to end.
    pub fn behind(&self, sent: u64) -> (Vec<ToKeeper>, u64, bool) {
        let input = lock(&self.input);
        let after = input.taken.0;
        let new = input.writes.iter().filter(|item| item.seq > sent);
        let frames = new.map(|item| ToKeeper::Write {
            seq: item.seq,
            // With a note its arrival is told.
            note: Some(Note { after, what: serde_json::Value::Null }),
            bytes: item.bytes.clone(),
            close: item.close,
        });
        (frames.collect(), input.writes.back().map_or(sent, |item| item.seq.max(sent)), input.stops)
    }

    /// Reads standard input to its end.
    pub fn read_input(&self) {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let count = match io::stdin().lock().read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.unwrap_or(0),
            };
            let mut input = lock(&self.input);
            while input.bytes > INPUT_BYTES {
                input = self.news.wait(input).unwrap_or_else(PoisonError::into_inner);
            }
            input.seq += 1;
            input.bytes += count;
            let seq = input.seq;
            input.writes.push_back(Item { seq, bytes: chunk[..count].to_vec(), close: count == 0 });
            self.tell(&input);
            if count == 0 {
                return;
            }
        }
    }

    /// This process is to end, and what it has begun there.
    pub fn stop(&self) {
        let mut input = lock(&self.input);
        input.stops = true;
        self.tell(&input);
    }

    /// Waits for a first write, for so long at most.
    pub fn await_input(&self, limit: Duration) {
        let waits = |input: &mut Input| input.writes.is_empty() && !input.stops;
        let _ = self.news.wait_timeout_while(lock(&self.input), limit, waits);
    }

    /// Waits; `false` when this process is to end.
    pub fn pause(&self, pause: Duration) -> bool {
        let waits = |input: &mut Input| !input.stops;
        let waited = self.news.wait_timeout_while(lock(&self.input), pause, waits);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stops
    }

    /// Has the other end hear of this one, also while what it says is not passed on because nobody takes it.
    pub fn beat(&self) {
        loop {
            let waited = self.news.wait_timeout_while(lock(&self.input), HEARTBEAT, |_| true);
            let input = waited.unwrap_or_else(PoisonError::into_inner).0;
            let (offset, seq) = input.taken;
            let writer = input.link.as_ref().map(|(_, writer)| Arc::clone(writer));
            drop(input);
            if let Some(writer) = writer {
                // Whoever follows the connection hears of its end.
                let _ = writer.send(&ToKeeper::Taken { offset, seq });
            }
        }
    }
}
