//! The tape, on which the state thread writes down what it takes in, and the thread that brings it to disk.

use super::entries::{begun, check, hash_of, told_event};
use super::{Begins, ENDING, FOLDER, Header};
use crate::core::time::Time;
use crate::core::{Event, State};
use serde_json::{Value, json};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use svc_base::sorted;
use svc_sys::files::{if_there, missing_is_fine};
use svc_sys::threads::Thread;

/// Bytes that wait for the disk at most; what comes then is left out, until a new segment can be begun.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// What was taken in is gathered so long before it is written: a daemon that is killed loses no more.
const GATHERING: Duration = Duration::from_millis(20);
/// The ring has this many segments, about.
const SEGMENTS: u64 = 8;
/// Between two hashes of the state lies this at least, and so many times what the last one took, so that a
/// large state is hashed less often.
const CHECK_EVERY: Duration = Duration::from_secs(1);
const CHECK_SHARE: u32 = 200;
/// After a disk that refuses, it is tried again.
const RETRY: Duration = Duration::from_secs(30);

enum Item {
    Bytes(Vec<u8>),
    Begin(Box<(Header, State)>),
    Check(u64, Box<State>),
}

#[derive(Default)]
struct Inbox {
    items: Vec<Item>,
    bytes: usize,
    /// Whether the thread waits to be told that something has come.
    is_asleep: bool,
    is_closing: bool,
}

/// What the tape and the thread both know, and `GET /api/record` tells.
#[derive(Default)]
pub struct Recorder {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    /// A segment with so many bytes of events is full.
    full_at: AtomicU64,
    /// Milliseconds between two hashes.
    check_ms: AtomicU64,
    /// Bytes of the ring, its segments, events of this daemon written, and left out.
    told: [AtomicU64; 4],
    /// Why nothing is written at the moment.
    trouble: Mutex<Option<String>>,
    is_on: bool,
    max_bytes: u64,
}

const BYTES: usize = 0;
const KEPT: usize = 1;
const EVENTS: usize = 2;
const LOST: usize = 3;

impl Recorder {
    /// As `GET /api/record` has it.
    pub fn shown(&self) -> Value {
        let trouble = self.trouble().clone();
        let [bytes, segments, events, lost] = self.told.each_ref().map(|one| one.load(Ordering::Relaxed));
        json!({
            "recording": self.is_on && trouble.is_none(),
            "bytes": bytes,
            "maxBytes": self.max_bytes,
            "segments": segments,
            "events": events,
            "lost": lost,
            "trouble": trouble,
        })
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, at: usize, count: u64) {
        self.told[at].fetch_add(count, Ordering::Relaxed);
    }
}

/// The state thread's end. Dropped, all that was taken in is written.
pub struct Tape {
    recorder: Arc<Recorder>,
    /// Events of the turn under way.
    bytes: Vec<u8>,
    /// Events of the turn under way, and of all so far.
    turn: u64,
    seq: u64,
    /// Bytes of the segment under way; `None`: one has to be begun.
    segment: Option<u64>,
    begins: Begins,
    checked: Instant,
    thread: Option<Thread>,
}

impl Tape {
    /// A tape that takes nothing.
    pub fn off() -> Self {
        Self::of(Arc::default(), None)
    }

    /// Begins to record below `folder` (`.svc`), in `max_bytes` at most.
    ///
    /// Errors: the folder cannot be made, or no thread be had.
    pub fn start(folder: &Path, max_bytes: u64) -> io::Result<(Self, Arc<Recorder>)> {
        let folder = folder.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let recorder = Arc::new(Recorder { is_on: true, max_bytes, ..Recorder::default() });
        recorder.full_at.store(max_bytes / SEGMENTS, Ordering::Relaxed);
        let theirs = Arc::clone(&recorder);
        let mut ring = Ring::open(folder, max_bytes)?;
        ring.tell(&recorder);
        let thread = Thread::spawn("recorder", move || write(&theirs, &mut ring))?;
        Ok((Self::of(Arc::clone(&recorder), Some(thread)), recorder))
    }

    fn of(recorder: Arc<Recorder>, thread: Option<Thread>) -> Self {
        Self {
            recorder,
            bytes: Vec::new(),
            turn: 0,
            seq: 0,
            segment: None,
            begins: Begins::Start,
            checked: Instant::now(),
            thread,
        }
    }

    /// Takes an event in, before it is applied to `state`.
    pub fn take(
        &mut self,
        state: &State,
        exit_sent: bool,
        now: Time,
        seed: u64,
        is_due: bool,
        event: &Event,
    ) {
        if self.thread.is_none() {
            return;
        }
        self.seq += 1;
        let full_at = self.recorder.full_at.load(Ordering::Relaxed);
        if self.segment.is_none_or(|bytes| bytes + self.bytes.len() as u64 >= full_at) {
            self.begin(state, exit_sent, now);
        }
        if self.segment.is_some() {
            told_event(&mut self.bytes, now, seed, is_due, event);
            self.turn += 1;
        } else {
            self.recorder.add(LOST, 1);
        }
    }

    /// Begins a segment with this state, if the disk follows.
    fn begin(&mut self, state: &State, exit_sent: bool, now: Time) {
        self.hand_over();
        let mut inbox = self.recorder.inbox();
        // Half of the room is free: what is begun is not broken off at once.
        if self.segment.is_none()
            && (inbox.bytes > MAX_WAITING_BYTES / 2 || self.recorder.trouble().is_some())
        {
            return;
        }
        let header = Header::new(self.begins, self.seq, now, exit_sent);
        inbox.items.push(Item::Begin(Box::new((header, state.clone()))));
        drop(inbox);
        (self.segment, self.begins) = (Some(0), Begins::Goes);
    }

    /// A turn is over, and this is the state.
    pub fn turn_over(&mut self, state: &State) {
        if self.turn == 0 {
            return;
        }
        self.hand_over();
        let every = Duration::from_millis(self.recorder.check_ms.load(Ordering::Relaxed)).max(CHECK_EVERY);
        if self.segment.is_some() && self.checked.elapsed() >= every {
            self.checked = Instant::now();
            self.recorder.inbox().items.push(Item::Check(self.seq, Box::new(state.clone())));
        }
    }

    /// Gives the thread what was taken in, or leaves it out.
    fn hand_over(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        let mut inbox = self.recorder.inbox();
        let is_refused = self.recorder.trouble().is_some();
        if is_refused || inbox.bytes + self.bytes.len() > MAX_WAITING_BYTES {
            self.recorder.add(LOST, self.turn);
            (self.segment, self.begins) = (None, Begins::Gap);
            self.bytes.clear();
        } else {
            self.recorder.add(EVENTS, self.turn);
            inbox.bytes += self.bytes.len();
            self.segment = self.segment.map(|bytes| bytes + self.bytes.len() as u64);
            match inbox.items.last_mut() {
                Some(Item::Bytes(bytes)) => {
                    bytes.extend_from_slice(&self.bytes);
                    self.bytes.clear();
                }
                _ => inbox.items.push(Item::Bytes(std::mem::take(&mut self.bytes))),
            }
            if std::mem::take(&mut inbox.is_asleep) {
                self.recorder.arrived.notify_one();
            }
        }
        self.turn = 0;
    }

    /// The daemon ends with this state.
    pub fn end(mut self, state: &State) {
        self.hand_over();
        if self.segment.is_some() {
            self.recorder.inbox().items.push(Item::Check(self.seq, Box::new(state.clone())));
        }
    }
}

#[cfg(test)]
impl Tape {
    /// A tape of which nobody takes anything off.
    pub fn stuck() -> (Self, Arc<Recorder>) {
        let recorder = Arc::new(Recorder { is_on: true, max_bytes: 64 << 20, ..Recorder::default() });
        recorder.full_at.store(64 << 20, Ordering::Relaxed);
        let thread = Thread::spawn("nobody", || ()).unwrap();
        (Self::of(Arc::clone(&recorder), Some(thread)), recorder)
    }
}

#[cfg(test)]
impl Recorder {
    /// Takes off what waits; which segments begin in it.
    pub fn taken(&self) -> Vec<(Begins, u64)> {
        let mut inbox = self.inbox();
        inbox.bytes = 0;
        let begins = |item| match item {
            Item::Begin(begin) => Some((begin.0.begins, begin.0.seq)),
            _ => None,
        };
        inbox.items.drain(..).filter_map(begins).collect()
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        self.recorder.inbox().is_closing = true;
        self.recorder.arrived.notify_one();
        // Joined here: what is left is written.
        drop(self.thread.take());
    }
}

/// The recorder's thread.
fn write(recorder: &Recorder, ring: &mut Ring) {
    loop {
        let mut inbox = recorder.inbox();
        while inbox.items.is_empty() && !inbox.is_closing {
            inbox.is_asleep = true;
            if recorder.trouble().is_none() {
                // Only what comes is worth waking for.
                inbox = recorder.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let wait = recorder.arrived.wait_timeout(inbox, RETRY);
            let (next, waited) = wait.unwrap_or_else(PoisonError::into_inner);
            inbox = next;
            if waited.timed_out() {
                recorder.trouble().take();
            }
        }
        inbox.is_asleep = false;
        if !inbox.is_closing {
            let wait = recorder.arrived.wait_timeout_while(inbox, GATHERING, |inbox| !inbox.is_closing);
            (inbox, _) = wait.unwrap_or_else(PoisonError::into_inner);
        }
        let (items, is_closing) = (std::mem::take(&mut inbox.items), inbox.is_closing);
        drop(inbox);
        let bytes = items
            .iter()
            .map(|item| if let Item::Bytes(bytes) = item { bytes.len() } else { 0 })
            .sum::<usize>();
        for item in items {
            if let Err(error) = ring.take(recorder, item) {
                ring.refused(recorder, error.to_string());
            }
        }
        ring.tell(recorder);
        recorder.inbox().bytes -= bytes;
        if is_closing {
            return;
        }
    }
}

/// The segments on disk.
struct Ring {
    folder: PathBuf,
    /// Path and bytes, the oldest first; the last one is being written, if there is a file.
    segments: Vec<(PathBuf, u64)>,
    file: Option<File>,
    max_bytes: u64,
    /// What was warned of last.
    warned: String,
}

impl Ring {
    fn open(folder: PathBuf, max_bytes: u64) -> io::Result<Self> {
        let segments = listed(&folder)?;
        Ok(Self { folder, segments, file: None, max_bytes, warned: String::new() })
    }

    /// Nothing is written for a while: the same trouble is told once.
    fn refused(&mut self, recorder: &Recorder, why: String) {
        if why != self.warned {
            log::warn!("the flight recorder leaves out what happens now: {why}");
            self.warned.clone_from(&why);
        }
        self.file = None;
        *recorder.trouble() = Some(why);
    }

    fn tell(&self, recorder: &Recorder) {
        let bytes = self.segments.iter().map(|(_, bytes)| bytes).sum();
        recorder.told[BYTES].store(bytes, Ordering::Relaxed);
        recorder.told[KEPT].store(self.segments.len() as u64, Ordering::Relaxed);
    }

    fn take(&mut self, recorder: &Recorder, item: Item) -> io::Result<()> {
        match item {
            Item::Begin(begin) => {
                let (header, state) = *begin;
                self.begin(recorder, &header, &state)
            }
            // Of a segment that could not be begun.
            Item::Bytes(_) | Item::Check(..) if self.file.is_none() => Ok(()),
            Item::Bytes(bytes) => self.add(&bytes),
            Item::Check(seq, state) => {
                let began = Instant::now();
                let (_, hash) = hash_of(&state);
                let every = (began.elapsed() * CHECK_SHARE).as_millis();
                recorder.check_ms.store(u64::try_from(every).unwrap_or(u64::MAX), Ordering::Relaxed);
                let mut bytes = Vec::new();
                check(&mut bytes, seq, &hash);
                self.add(&bytes)
            }
        }
    }

    fn begin(&mut self, recorder: &Recorder, header: &Header, state: &State) -> io::Result<()> {
        self.file = None;
        let (state, _) = hash_of(state);
        let size = state.len() as u64;
        // A state takes no more of a segment than the events in it, so that the ring holds some time.
        let full_at = (self.max_bytes / SEGMENTS).max(size);
        if size + full_at > self.max_bytes / 2 {
            let text =
                format!("the state has {} MiB: give record.maxMegabytes four times as many", size >> 20);
            return Err(io::Error::other(text));
        }
        recorder.full_at.store(full_at, Ordering::Relaxed);
        let name = format!("{:014}-{:012}.{ENDING}", header.at, header.seq);
        let path = self.folder.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        self.segments.push((path, 0));
        self.file = Some(file);
        self.add(&begun(header, &state))
    }

    /// Writes, and lets the oldest segments go for it.
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut all: u64 = self.segments.iter().map(|(_, bytes)| bytes).sum::<u64>() + bytes.len() as u64;
        while all > self.max_bytes && self.segments.len() > 1 {
            let (path, bytes) = self.segments.remove(0);
            all -= bytes;
            fs::remove_file(path).or_else(missing_is_fine)?;
        }
        let (Some(file), Some((_, size))) = (&mut self.file, self.segments.last_mut()) else { return Ok(()) };
        file.write_all(bytes)?;
        *size += bytes.len() as u64;
        Ok(())
    }
}

/// The segments in a folder, the oldest first, with their bytes.
fn listed(folder: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|ending| ending == ENDING) {
            found.push((entry.path(), entry.metadata()?.len()));
        }
    }
    sorted::up(&mut found);
    Ok(found)
}

/// All segments of a project's state folder as one file, the oldest first.
///
/// Errors: they cannot be read. One that goes meanwhile is left out.
pub fn export(folder: &Path) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    for (path, _) in listed(&folder.join(FOLDER))? {
        all.extend(if_there(fs::read(&path))?);
    }
    Ok(super::whole(all.iter().map(Vec::as_slice)))
}
