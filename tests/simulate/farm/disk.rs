//! The disk, and the thread that writes to it, as `src/assembly/store.rs` does: rounds that take what is due,
//! answers that wait for them, a disk that refuses, and a power cut between any two files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use svc::assembly::documents::encode;
use svc::assembly::unwritten::to_be_stored;
use svc::core::time::Time;
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
    /// Whether the last round was refused.
    pub fails: bool,
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
    }

    /// Somebody waits for all that was put so far.
    pub fn wait(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }

    /// The core is to be told of this timer once all that was put so far is there.
    pub fn tell_when_stored(&mut self, timer: Timer) {
        self.stored.push(timer);
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
        let mut documents: Vec<Document> =
            self.due.iter().filter(|(document, due)| goes(document, due)).map(|(one, _)| *one).collect();
        documents.extend(self.later.iter().filter(|(_, due)| **due <= now).map(|(one, _)| *one));
        if documents.is_empty() && !all && self.removals.is_empty() {
            return;
        }
        for document in &documents {
            self.due.remove(document);
            self.later.remove(document);
        }
        let (stored, left_out) = to_be_stored(state);
        let encoded = |document: Document| (document, encode(document, &stored).map(Result::unwrap));
        self.round = Some(Round {
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
        self.write(&round.files[..count]);
        let (mut stored, mut refused) = (round.stored, None);
        if refused_at.is_some() {
            refused = Some("No space left on device (os error 28)".to_owned());
            for (document, _) in &round.files {
                self.due.entry(*document).or_insert(now + SOON);
            }
            self.removals.extend(round.removals);
            self.stored.append(&mut stored);
        } else {
            for document in round.removals {
                self.files.remove(&document);
                self.touched.insert(document);
            }
        }
        let healed = std::mem::replace(&mut self.fails, refused.is_some()) && refused.is_none();
        Some(Done { refused, waiting: round.waiting, stored, left_out: round.left_out, healed })
    }

    fn write(&mut self, files: &[(Document, Option<Vec<u8>>)]) {
        for (document, bytes) in files {
            let Some(bytes) = bytes.as_ref().filter(|_| self.loses != Some(*document)) else { continue };
            self.files.insert(*document, bytes.clone());
            self.touched.insert(*document);
        }
    }

    /// The power goes: of the round under way the first `count` files are there, of the rest nothing.
    pub fn cut(&mut self, count: usize) {
        if let Some(round) = self.round.take() {
            self.write(&round.files[..count.min(round.files.len())]);
        }
        *self = Self {
            files: std::mem::take(&mut self.files),
            touched: std::mem::take(&mut self.touched),
            loses: self.loses,
            ..Self::default()
        };
    }

    /// Files in the round under way.
    pub fn round_len(&self) -> usize {
        self.round.as_ref().map_or(0, |round| round.files.len())
    }

    /// Makes a real folder like this disk, so that the daemon's own code reads it.
    pub fn make(&mut self, folder: &Path) {
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
