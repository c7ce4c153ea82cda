//! The logs of the agents: per lineage a folder of numbered JSON lines, and the provider's raw lines beside
//! them.
//!
//! ```text
//! <dir>/<lineage>/000000000001.jsonl   LogRecord lines, named by the number of the first
//!                 000000000001.index   every 64 KiB: number, time and offset of a line
//!                 000000000001.words   which words stand in which block of it, made when it has grown
//!                 raw-000001.jsonl     what the program really printed, the oldest dropped first
//! ```
//!
//! **Invariant:** within a lineage numbers have no gaps and times never go back, so that a page is found by
//! number or by time through the index, without reading more than a stretch of one segment.
//!
//! **Invariant:** an append that fails leaves no half line behind and uses up no number.

mod exact;
mod find;
mod index;
mod lineage;
mod raw;
mod search;
mod words;

use super::report::{LogEntry, LogRecord, Other};
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crossbeam_channel::{Receiver, Sender, bounded};
pub use exact::{Exact, MAX_TOKENS};
pub use find::{Kind, Within, said};
use lineage::Lineage;
pub(super) use lineage::numbers;
pub use raw::{RawLines, RawPlace};
pub use search::{Found, Searched};
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Lineages whose files stay open; each takes two descriptors.
const OPEN_LINEAGES_MAX: usize = 64;
/// Entries after which a look at the indexes of words is worth it: fewer are read as they are.
pub const GROWN_ENTRIES: u64 = 1_000;
/// Entries of one page.
pub const PAGE_ENTRIES_MAX: usize = 1000;
/// Bytes of one page; a single larger entry is a page of its own.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// All logs of a project. Cheap to use from many threads: each lineage has its own lock.
#[derive(Debug)]
pub struct LogStore {
    dir: PathBuf,
    slots: Mutex<Slots>,
    health: Mutex<LogHealth>,
    /// Entries since the indexes of words were looked at last.
    grown: AtomicU64,
    bell: OnceLock<Sender<()>>,
}

#[derive(Debug, Default)]
struct Slots {
    by_lineage: HashMap<LineageId, Slot>,
    uses: u64,
}

#[derive(Debug)]
struct Slot {
    lineage: Arc<Mutex<Lineage>>,
    last_use: u64,
}

/// Whether the logs can be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogHealth {
    /// Lines that could not be written since the start.
    pub failed: u64,
    /// Why the last of them could not.
    pub last_error: Option<String>,
}

/// From where on a log is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// Entries with a larger number.
    Number(u64),
    /// Entries of this time and later.
    Time(Time),
}

impl Since {
    /// An entry number, or an RFC 3339 time.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().map(Self::Number).ok().or_else(|| Time::parse(text).map(Self::Time))
    }
}

/// Which entries are wanted. The default is the oldest page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Query {
    /// Only the last so many.
    pub tail: Option<u64>,
    /// Only those after this.
    pub since: Option<Since>,
    /// At most so many; never more than [`PAGE_ENTRIES_MAX`].
    pub limit: Option<usize>,
}

/// Some entries of a log, in order.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Page {
    /// The entries.
    pub entries: Vec<LogRecord>,
    /// What to give as [`Since::Number`] for the next page; absent when this one reaches the end.
    pub next: Option<u64>,
}

/// Which output a raw line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogStore {
    /// Opens the logs under `dir`, for example `.svc/logs`, which is made when it is missing.
    ///
    /// Errors: the folder cannot be made.
    pub fn open(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        Ok(Self {
            bell: OnceLock::new(),
            dir: dir.to_path_buf(),
            slots: Mutex::default(),
            health: Mutex::default(),
            grown: AtomicU64::new(0),
        })
    }

    /// Adds an entry and returns its number. A time before the last entry's is replaced by that.
    ///
    /// Errors: the system's words, for example that the disk is full. Nothing was written then, the next
    /// append tries again, and [`LogStore::health`] counts it.
    pub fn append(&self, lineage: LineageId, agent: AgentId, ts: Time, entry: &LogEntry) -> io::Result<u64> {
        let slot = self.slot(lineage);
        if matches!(entry, LogEntry::Other(Other::Life { .. })) {
            // A daemon that was killed may have told it already: the next one hears of the same end.
            let outline = lock(&slot).outline()?;
            let last = outline.map(|outline| outline.last_of(agent, true, |_| true)).transpose()?.flatten();
            if last.as_ref() == Some(entry) {
                return Ok(lock(&slot).last());
            }
        }
        let mut files = lock(&slot);
        let (_, result) = files.append(agent, ts, 0, std::slice::from_ref(entry));
        self.note(lineage, result.map(|()| files.last()))
    }

    /// Adds what a run did at one time, one deed after the other; the first of them is its deed number
    /// `deed`, from 1. One that cannot be written is counted by [`LogStore::health`] and not told.
    pub fn append_deeds(
        &self,
        lineage: LineageId,
        agent: AgentId,
        ts: Time,
        deed: u64,
        entries: &[impl Serialize],
    ) {
        let slot = self.slot(lineage);
        let mut files = lock(&slot);
        let (done, result) = files.append(agent, ts, deed, entries);
        self.grows(entries.len() as u64);
        if result.is_ok() {
            return;
        }
        // Together they did not fit: those that do, alone.
        for (entry, deed) in entries.iter().zip(deed..).skip(done) {
            let (_, result) = files.append(agent, ts, deed, std::slice::from_ref(entry));
            let _ = self.note(lineage, result);
        }
    }

    /// The last deed of a run that stands in the log; 0 where none does.
    ///
    /// Errors: the system's words.
    pub fn last_deed(&self, lineage: LineageId, agent: AgentId) -> io::Result<u64> {
        let slot = self.slot(lineage);
        let outline = lock(&slot).outline()?;
        outline.map_or(Ok(0), |outline| outline.last_deed(agent))
    }

    /// Adds what a life was started with, unless it stands there: a daemon that was killed has written its
    /// record, and may not have come to this.
    ///
    /// Errors: the system's words.
    pub fn append_prompt(&self, lineage: LineageId, agent: AgentId, ts: Time, text: &str) -> io::Result<()> {
        let is_message = |entry: &LogEntry| matches!(entry, LogEntry::Other(Other::User { .. }));
        let outline = lock(&self.slot(lineage)).outline()?;
        let found = outline.map(|outline| outline.last_of(agent, false, is_message)).transpose()?.flatten();
        if found.is_none() {
            self.append(lineage, agent, ts, &LogEntry::user(text))?;
        }
        Ok(())
    }

    /// How much the programs of a lineage have printed so far.
    ///
    /// Errors: the system's words.
    pub fn raw_place(&self, lineage: LineageId) -> io::Result<RawPlace> {
        lock(&self.slot(lineage)).raw_place()
    }

    /// Takes back what stands behind this place among what a lineage's programs have printed: it is about to
    /// be written anew.
    ///
    /// Errors: the system's words.
    pub fn rewind_raw(&self, lineage: LineageId, place: RawPlace) -> io::Result<()> {
        lock(&self.slot(lineage)).rewind_raw(place)
    }

    /// Adds lines as the program printed them and takes them out of `lines`. The oldest are dropped beyond
    /// 32 MiB per lineage. One that cannot be written is counted by [`LogStore::health`] and not told.
    pub fn append_raw(&self, lineage: LineageId, lines: &mut RawLines) {
        if lines.bytes().is_empty() {
            return;
        }
        let slot = self.slot(lineage);
        let mut files = lock(&slot);
        if files.append_raw(lines.bytes()).is_err() {
            for line in lines.bytes().split_inclusive(|byte| *byte == b'\n') {
                let _ = self.note(lineage, files.append_raw(line));
            }
        }
        lines.clear();
    }

    /// Reads a page. An unknown lineage has an empty log.
    ///
    /// Errors: the system's words.
    pub fn read(&self, lineage: LineageId, query: Query) -> io::Result<Page> {
        let slot = self.slot(lineage);
        // Only the outline is taken under the lock: a slow reader holds up no agent.
        let outline = lock(&slot).outline()?;
        outline.map_or_else(|| Ok(Page::default()), |outline| outline.read(query))
    }

    /// Deletes the log of a lineage. Fine when there is none.
    ///
    /// Errors: the system's words.
    pub fn remove(&self, lineage: LineageId) -> io::Result<()> {
        let slot = self.slot(lineage);
        lock(&slot).remove()
    }

    /// Deletes segments that were last written before `older_than`, and lineages of which nothing younger is
    /// left (a later entry of such a lineage has number 1 again). Returns how many files went.
    ///
    /// Errors: the system's words; what could be deleted is.
    pub fn cleanup(&self, older_than: Time) -> io::Result<usize> {
        let mut removed = 0;
        let mut result = Ok(());
        for entry in std::fs::read_dir(&self.dir)?.flatten() {
            let Some(lineage) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let slot = self.slot(lineage);
            match lock(&slot).cleanup(older_than) {
                Ok(count) => removed += count,
                Err(error) => result = Err(error),
            }
        }
        result.map(|()| removed)
    }

    /// Rings when the logs have grown by [`GROWN_ENTRIES`] since it rang last. Who asks first hears it.
    pub fn growth(&self) -> Receiver<()> {
        let (bell, heard) = bounded(1);
        // Set once; a second listener's bell never rings.
        let _ = self.bell.set(bell);
        heard
    }

    fn grows(&self, entries: u64) {
        if self.grown.fetch_add(entries, Ordering::Relaxed) + entries < GROWN_ENTRIES {
            return;
        }
        self.grown.store(0, Ordering::Relaxed);
        if let Some(bell) = self.bell.get() {
            // One that rings already is enough.
            let _ = bell.try_send(());
        }
    }

    /// Whether appends have failed.
    pub fn health(&self) -> LogHealth {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note<T>(&self, lineage: LineageId, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
            health.failed += 1;
            health.last_error = Some(format!("cannot write the log of {lineage}: {error}"));
        }
        result
    }

    /// The one value for a lineage's files. Whoever holds a clone keeps it from being closed, so there are
    /// never two.
    fn slot(&self, lineage: LineageId) -> Arc<Mutex<Lineage>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.uses += 1;
        let last_use = slots.uses;
        if !slots.by_lineage.contains_key(&lineage) && slots.by_lineage.len() >= OPEN_LINEAGES_MAX {
            slots.close_longest_unused();
        }
        let slot = slots.by_lineage.entry(lineage).or_insert_with(|| {
            let files = Lineage::new(self.dir.join(lineage.to_string()));
            Slot { lineage: Arc::new(Mutex::new(files)), last_use }
        });
        slot.last_use = last_use;
        Arc::clone(&slot.lineage)
    }
}

impl Slots {
    /// When all are in use, one more is opened: there are not more than threads.
    fn close_longest_unused(&mut self) {
        let unused = self.by_lineage.iter().filter(|(_, slot)| Arc::strong_count(&slot.lineage) == 1);
        let longest = unused.min_by_key(|(_, slot)| slot.last_use).map(|(lineage, _)| *lineage);
        if let Some(lineage) = longest {
            self.by_lineage.remove(&lineage);
        }
    }
}

/// A panic under the lock leaves files that are re-checked when they are opened next, not a broken log.
fn lock(slot: &Mutex<Lineage>) -> MutexGuard<'_, Lineage> {
    slot.lock().unwrap_or_else(|poisoned| {
        let mut lineage = poisoned.into_inner();
        lineage.close();
        lineage
    })
}

#[cfg(test)]
mod tests;
