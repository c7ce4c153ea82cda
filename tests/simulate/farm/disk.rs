//! The disk, and the thread that writes to it, as `src/assembly/store.rs` does: rounds that take what is due,
//! answers that wait for them, a disk that refuses, and a power cut between any two files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use svc::assembly::ahead::{self, Ahead};
use svc::assembly::documents::encode;
use svc::assembly::unwritten::to_be_stored;
use svc::core::ids::AgentId;
use svc::core::time::{Jump, Time};
use svc::core::{CallId, Document, Response, SOON, State, Timer};

/// Who waits for the disk.
pub enum Waiting {
    /// A caller, with its answer.
    Caller(CallId, Response),
    /// The core, with a change that is not in force yet.
    Core(CallId),
}

/// What is being written.
struct Round {
    /// As they were when it began; `None`: there is nothing to write of it.
    files: Vec<(Document, Option<Vec<u8>>)>,
    removals: BTreeSet<Document>,
    waiting: Vec<Waiting>,
    stored: Vec<Timer>,
    left_out: BTreeSet<CallId>,
    number: u64,
    /// Whether a document is in it that was not to go along with others.
    is_late: bool,
}

/// A run that waits until what was put before its checkpoint is there.
struct Settling {
    /// What is not, and from which round on it counts.
    needs: BTreeMap<Document, u64>,
    agent: AgentId,
    n: u64,
}

/// What a round came to.
pub struct Done {
    /// Why the disk has refused it.
    pub refused: Option<String>,
    /// Who waited for it.
    pub waiting: Vec<Waiting>,
    /// What was to be told once it is there.
    pub stored: Vec<Timer>,
    /// Calls whose changes are not in it.
    pub left_out: BTreeSet<CallId>,
    /// Whether the disk takes again what it had refused.
    pub healed: bool,
}

/// What is on the disk, and on its way there.
#[derive(Default)]
pub struct Disk {
    /// The files.
    pub files: BTreeMap<Document, Vec<u8>>,
    /// Those that differ from what stands in the folder of [`Disk::folder`].
    touched: BTreeSet<Document>,
    due: BTreeMap<Document, Time>,
    later: BTreeMap<Document, Time>,
    removals: BTreeSet<Document>,
    waiting: Vec<Waiting>,
    stored: Vec<Timer>,
    round: Option<Round>,
    /// The last round that was begun.
    number: u64,
    settling: Vec<Settling>,
    /// Lines that are written ahead of the locks, and the file for which they were written.
    ahead: Vec<Vec<u8>>,
    ahead_of: Vec<u8>,
    /// Whether the last round was refused.
    pub fails: bool,
    /// Whether that was so when the last daemon went: what it had to take back may be there.
    pub failed_last: bool,
    /// A planted fault: this document is said to be written, and is not.
    pub loses: Option<Document>,
}

impl Disk {
    /// Has a document written within a time.
    pub fn put(&mut self, document: Document, now: Time, within: Duration) {
        self.removals.remove(&document);
        self.later.remove(&document);
        let by = now + within;
        let due = self.due.entry(document).or_insert(by);
        *due = by.min(*due);
    }

    /// Has a document written, but not along with others.
    pub fn put_later(&mut self, document: Document, now: Time) {
        self.removals.remove(&document);
        if !self.due.contains_key(&document) {
            self.later.entry(document).or_insert(now + SOON);
        }
    }

    /// Has a document removed.
    pub fn remove(&mut self, document: Document) {
        self.due.remove(&document);
        self.later.remove(&document);
        self.removals.insert(document);
        for settling in &mut self.settling {
            settling.needs.remove(&document);
        }
    }

    /// The wall clock is set: what is due goes by a clock that nobody sets.
    pub fn clock_set(&mut self, jump: Jump) {
        for due in self.due.values_mut().chain(self.later.values_mut()) {
            *due = due.moved(jump);
        }
    }

    /// Somebody waits for all that was put so far.
    pub fn wait(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }

    /// The core is to be told of this timer once all that was put so far is there.
    pub fn tell_when_stored(&mut self, timer: Timer) {
        self.stored.push(timer);
    }

    /// A run is to be told once everything put so far is there.
    pub fn settle(&mut self, agent: AgentId, n: u64) {
        let files =
            self.round.iter().flat_map(|round| round.files.iter().map(|(one, _)| (*one, round.number)));
        let due = self.due.keys().chain(self.later.keys()).map(|one| (*one, self.number + 1));
        let needs = files.chain(due).collect();
        self.settling.push(Settling { needs, agent, n });
    }

    /// The runs that wait for nothing any more.
    pub fn settled(&mut self) -> Vec<(AgentId, u64)> {
        let (over, waiting) =
            std::mem::take(&mut self.settling).into_iter().partition(|one| one.needs.is_empty());
        self.settling = waiting;
        let over: Vec<Settling> = over;
        over.into_iter().map(|one| (one.agent, one.n)).collect()
    }

    /// Whether a round is under way.
    pub fn is_busy(&self) -> bool {
        self.round.is_some()
    }

    /// Whether somebody waits for a round that has not begun.
    pub fn is_awaited(&self) -> bool {
        !self.waiting.is_empty() || !self.stored.is_empty()
    }

    /// Begins a round, if anything is due: what is written is the state of this moment.
    pub fn begin(&mut self, state: &State, now: Time) {
        if self.round.is_some() {
            return;
        }
        let all = self.is_awaited();
        let goes = |document: &Document, due: &Time| *due <= now || (all && !document.is_counted());
        let has_records = self.due.get(&Document::Agents).is_some_and(|due| goes(&Document::Agents, due))
            || self.later.get(&Document::Agents).is_some_and(|due| *due <= now);
        let goes = |document: &Document, due: &Time| {
            goes(document, due) || has_records && document.goes_before_records()
        };
        let mut documents: Vec<Document> =
            self.due.iter().filter(|(document, due)| goes(document, due)).map(|(one, _)| *one).collect();
        let on_time = documents.len();
        documents.extend(self.later.iter().filter(|(_, due)| **due <= now).map(|(one, _)| *one));
        let is_late = documents.len() > on_time;
        if documents.is_empty() && !all && self.removals.is_empty() {
            return;
        }
        for document in &documents {
            self.due.remove(document);
            self.later.remove(document);
        }
        let (stored, left_out) = to_be_stored(state);
        let encoded = |document: Document| (document, encode(document, &stored).map(Result::unwrap));
        self.number += 1;
        self.round = Some(Round {
            number: self.number,
            is_late,
            files: documents.into_iter().map(encoded).collect(),
            removals: std::mem::take(&mut self.removals),
            waiting: std::mem::take(&mut self.waiting),
            stored: std::mem::take(&mut self.stored),
            left_out,
        });
    }

    /// Ends the round: all of it is there, or the first `refused_at` files of it and no more.
    pub fn end(&mut self, now: Time, refused_at: Option<usize>) -> Option<Done> {
        let round = self.round.take()?;
        let count = refused_at.unwrap_or(round.files.len()).min(round.files.len());
        let goes_ahead = self.goes_ahead(&round);
        self.write(&round.files[..count], goes_ahead);
        let (mut stored, mut refused) = (round.stored, None);
        if refused_at.is_some() {
            refused = Some("No space left on device (os error 28)".to_owned());
            for (document, _) in &round.files {
                self.due.entry(*document).or_insert(now + SOON);
            }
            self.removals.extend(round.removals);
            self.stored.append(&mut stored);
        } else {
            for (document, _) in &round.files {
                for settling in &mut self.settling {
                    settling.needs.retain(|needed, from| needed != document || *from > round.number);
                }
                if *document == ahead::DOCUMENT && !goes_ahead {
                    self.ahead.clear();
                }
            }
            for document in round.removals {
                self.files.remove(&document);
                self.touched.insert(document);
            }
        }
        let healed = std::mem::replace(&mut self.fails, refused.is_some()) && refused.is_none();
        Some(Done { refused, waiting: round.waiting, stored, left_out: round.left_out, healed })
    }

    /// Whether a round is one line of the log that is written ahead of the locks.
    fn goes_ahead(&self, round: &Round) -> bool {
        let is_alone = matches!(&round.files[..], [(ahead::DOCUMENT, Some(_))]);
        is_alone && !round.waiting.is_empty() && round.stored.is_empty() && !round.is_late && !self.fails
    }

    fn write(&mut self, files: &[(Document, Option<Vec<u8>>)], goes_ahead: bool) {
        for (document, bytes) in files {
            let Some(bytes) = bytes.as_ref().filter(|_| self.loses != Some(*document)) else { continue };
            if *document == ahead::DOCUMENT && (goes_ahead || !self.ahead.is_empty()) {
                if self.ahead.is_empty() {
                    self.ahead_of = self.files.get(document).cloned().unwrap_or_default();
                }
                self.ahead.push(bytes.clone());
                if goes_ahead {
                    continue;
                }
            }
            self.files.insert(*document, bytes.clone());
            self.touched.insert(*document);
        }
    }

    /// The power goes: of the round under way the first `count` files are there, of the rest nothing.
    pub fn cut(&mut self, count: usize) {
        if let Some(round) = self.round.take() {
            let goes_ahead = self.goes_ahead(&round);
            self.write(&round.files[..count.min(round.files.len())], goes_ahead);
        }
        *self = Self {
            files: std::mem::take(&mut self.files),
            touched: std::mem::take(&mut self.touched),
            ahead: std::mem::take(&mut self.ahead),
            ahead_of: std::mem::take(&mut self.ahead_of),
            loses: self.loses,
            failed_last: self.fails,
            ..Self::default()
        };
    }

    /// Files in the round under way.
    pub fn round_len(&self) -> usize {
        self.round.as_ref().map_or(0, |round| round.files.len())
    }

    /// What was written ahead is in its file now.
    pub fn recovered(&mut self, folder: &Path) {
        self.ahead.clear();
        if let Ok(bytes) = std::fs::read(folder.join(ahead::DOCUMENT.path())) {
            self.files.insert(ahead::DOCUMENT, bytes);
        }
    }

    /// Makes a real folder like this disk, so that the daemon's own code reads it.
    pub fn make(&mut self, folder: &Path) {
        self.make_ahead(folder).unwrap_or_else(|error| panic!("the log ahead of the locks: {error}"));
        for document in std::mem::take(&mut self.touched) {
            let path = folder.join(document.path());
            let made = match self.files.get(&document) {
                Some(bytes) => std::fs::create_dir_all(path.parent().unwrap())
                    .and_then(|()| std::fs::write(&path, bytes)),
                None => std::fs::remove_file(&path).or_else(|error| match error.kind() {
                    std::io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                }),
            };
            made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

impl Disk {
    /// The log that is written ahead, by the daemon's own code, beside the file for which it was written.
    fn make_ahead(&mut self, folder: &Path) -> std::io::Result<()> {
        if self.ahead.is_empty() {
            return Ok(());
        }
        let path = folder.join(ahead::DOCUMENT.path());
        match &self.ahead_of[..] {
            [] => drop(std::fs::remove_file(&path)),
            bytes => std::fs::write(&path, bytes)?,
        }
        let mut log = Ahead::new(folder);
        self.ahead.iter().try_for_each(|line| log.write(line, &[]))?;
        self.touched.insert(ahead::DOCUMENT);
        Ok(())
    }
}

/// A folder of its own, in memory where there is such a place; gone when it is dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// A new one.
    pub fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = base.join(format!("svc-simulate-{pid}-{number}"));
        std::fs::create_dir_all(path.join("state/prompts")).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
