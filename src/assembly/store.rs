//! The store thread: writes documents so that a crash at any point leaves the old or the new one, groups
//! commits, and holds replies and orders back until what they rely on is on disk.
//!
//! A document is written to a temporary file, synced, renamed over the old one, and the folder synced; one
//! that changes often goes into a log ahead of that ([`super::ahead`]). When the disk refuses, the document
//! stays due and is tried again every second; callers get 503.

mod round;

use self::round::next_round;
use super::ahead::{self, Ahead};
use super::documents::encode;
use super::unwritten::{LEFT_OUT, to_be_stored};
use crate::agents::LogEntry;
use crate::agents::worker_log::LogStore;
use crate::api::Problem;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{CallId, Document, Journal, Response, SOON, State, Timer, remedy};
use crossbeam_channel::Sender;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use svc_sys::files::{missing_is_fine, replace, sync_folder};
use svc_sys::journal::{append_rotating, trim_lines};
use svc_sys::memory;
use svc_sys::reserve::Lent;
use svc_sys::threads::Thread;

/// Log lines that wait for the disk at most; further ones are dropped and counted.
const MAX_LOG_LINES: usize = 10_000;
/// Lines of journals that wait for a disk that refuses them at most; further ones are dropped with a warning.
const MAX_UNWRITTEN_LINES: usize = 10_000;
/// Documents removed in one round at most: thousands of them take seconds, and others wait for the disk.
const REMOVALS_AT_ONCE: usize = 32;
/// Those who come back after a round are waited for at most so long, and at most half as long as the round
/// took: one sync for all of them is quicker than two for halves that take turns.
const GATHERING: Duration = Duration::from_millis(1);
/// After a failed write, the next try comes this much later.
const RETRY: Duration = Duration::from_secs(1);
/// Free memory goes back to the system behind a round, at most so often: work of hours leaves holes between
/// what stays, and whoever does nothing is not woken for it.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(60);

/// Who waits for the disk.
enum Waiting {
    /// A caller: with its reply, or with 503 instead.
    Caller(Sender<Response>, Response),
    /// The core.
    Core(CallId, Box<dyn FnOnce(Result<(), String>) + Send>),
}

/// What the thread tells the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The disk refuses, in these words; `None` when it takes again.
    Trouble(Option<String>),
    /// Everything put before this was asked for is on disk.
    Stored(Timer),
}

type Answer = (Sender<Response>, Response);

/// Somebody who waits until everything that was put before is on disk.
struct Settling {
    /// What is not, and from which round on it counts.
    needs: BTreeMap<Document, u64>,
    then: Box<dyn FnOnce() + Send>,
}

type Line = (Journal, Arc<[u8]>);

struct LogLine {
    lineage: LineageId,
    agent: AgentId,
    at: Time,
    entry: LogEntry,
}

#[derive(Default)]
struct Inbox {
    state: Option<Arc<State>>,
    due: BTreeMap<Document, Instant>,
    /// What does not go along with others; never what is due too.
    later: BTreeMap<Document, Instant>,
    removals: BTreeSet<Document>,
    /// What the disk has refused: while it does, nothing else is said to be stored.
    refused: BTreeSet<Document>,
    waiting: Vec<Waiting>,
    /// What waits for the disk, and when it is tried. At most a few for each schedule.
    stored: Vec<(Instant, Timer)>,
    answers_after_lines: Vec<Answer>,
    logs: VecDeque<LogLine>,
    logs_dropped: u64,
    lines: Vec<Line>,
    /// When lines that the disk refused are tried again; until then they make no hurry.
    lines_again: Option<Instant>,
    trims: BTreeMap<Journal, usize>,
    /// The last round that was taken, and what it is writing.
    round: u64,
    writing: BTreeSet<Document>,
    /// At most one for each run.
    settling: Vec<Settling>,
    closing: bool,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: Condvar,
}

/// Where to hand over what is to be written. Dropping it writes what is due and joins the thread.
pub struct Store {
    shared: Arc<Shared>,
    _thread: Thread,
}

impl Drop for Store {
    fn drop(&mut self) {
        self.with(|inbox| inbox.closing = true);
    }
}

impl Store {
    /// Starts the thread over the state folder (`.svc`). `tell` is the way to the core.
    pub fn start(
        folder: PathBuf,
        logs: Arc<LogStore>,
        tell: impl Fn(Told) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { inbox: Mutex::default(), wake: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let mut writer = Writer {
            ahead: Ahead::new(&folder),
            folder,
            logs,
            tell: Box::new(tell),
            failing: false,
            unsynced: BTreeMap::new(),
            journals_are_named: false,
            gave_back: Instant::now(),
        };
        let thread = Thread::spawn("store", move || writer.run(&theirs))?;
        Ok(Self { shared, _thread: thread })
    }

    fn with(&self, change: impl FnOnce(&mut Inbox)) {
        self.wake_if(|inbox| {
            change(inbox);
            true
        });
    }

    /// Wakes the thread only if `change` says that it has to know: it sleeps until the earliest deadline.
    fn wake_if(&self, change: impl FnOnce(&mut Inbox) -> bool) {
        if change(&mut self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.shared.wake.notify_one();
        }
    }

    /// Has `document` written as `state` has it, within `within`.
    pub fn put(&self, document: Document, state: &Arc<State>, within: Duration) {
        let by = Instant::now() + within;
        self.wake_if(|inbox| {
            inbox.state = Some(Arc::clone(state));
            inbox.put(document, by)
        });
    }

    /// Has `document` written as `state` has it within [`SOON`], but not along with others.
    pub fn put_later(&self, document: Document, state: &Arc<State>) {
        let by = Instant::now() + SOON;
        self.wake_if(|inbox| {
            inbox.state = Some(Arc::clone(state));
            inbox.put_later(document, by)
        });
    }

    /// Has a document removed with one of the next commits. What is left when the daemon ends before is
    /// removed after its next start.
    pub fn remove(&self, document: Document) {
        self.with(|inbox| {
            inbox.due.remove(&document);
            inbox.later.remove(&document);
            inbox.removals.insert(document);
            for settling in &mut inbox.settling {
                settling.needs.remove(&document);
            }
        });
    }

    /// Sends the answers once everything put so far as due at once is on disk.
    pub fn commit(&self, state: &Arc<State>, answers: Vec<(Sender<Response>, Response)>) {
        self.with(|inbox| {
            inbox.state = Some(Arc::clone(state));
            inbox.waiting.extend(answers.into_iter().map(|(answer, reply)| Waiting::Caller(answer, reply)));
        });
    }

    /// Tells `then`, from the thread of this store, once everything put so far as due at once is on disk with
    /// what `call` changes, or why it is not.
    pub fn tell(
        &self,
        state: &Arc<State>,
        call: CallId,
        then: impl FnOnce(Result<(), String>) + Send + 'static,
    ) {
        self.with(|inbox| {
            inbox.state = Some(Arc::clone(state));
            inbox.waiting.push(Waiting::Core(call, Box::new(then)));
        });
    }

    /// Tells the core of `timer` once everything put so far as due at once is on disk.
    pub fn tell_when_stored(&self, timer: Timer) {
        self.with(|inbox| inbox.stored.push((Instant::now(), timer)));
    }

    /// Does `then`, on the thread of this store, once everything put so far is on disk, however late it is
    /// due.
    pub fn when_settled(&self, then: impl FnOnce() + Send + 'static) {
        self.with(|inbox| {
            let needs = inbox.needs();
            inbox.settling.push(Settling { needs, then: Box::new(then) });
        });
    }

    /// Sends the answers once every journal's line so far is in its file: who was answered reads the line.
    pub fn answer_after_lines(&self, answers: Vec<Answer>) {
        self.with(|inbox| inbox.answers_after_lines.extend(answers));
    }

    /// Appends a line to a journal. The state thread gives at most a few with each event it applies, and this
    /// thread takes all at once, so what waits here is bounded by the core's own lanes.
    pub fn append(&self, journal: Journal, line: Arc<[u8]>) {
        self.with(|inbox| inbox.lines.push((journal, line)));
    }

    /// Has a journal cut to its last `entries`.
    pub fn trim(&self, journal: Journal, entries: usize) {
        self.with(|inbox| {
            inbox.trims.insert(journal, entries);
        });
    }

    /// Appends a line to an agent's log.
    pub fn log(&self, lineage: LineageId, agent: AgentId, at: Time, entry: LogEntry) {
        self.with(|inbox| {
            if inbox.logs.len() < MAX_LOG_LINES {
                inbox.logs.push_back(LogLine { lineage, agent, at, entry });
            } else {
                inbox.logs_dropped += 1;
            }
        });
    }
}

/// What the thread took out of the inbox for one round.
struct Round {
    state: Option<Arc<State>>,
    documents: Vec<Document>,
    removals: BTreeSet<Document>,
    waiting: Vec<Waiting>,
    stored: Vec<(Instant, Timer)>,
    answers_after_lines: Vec<Answer>,
    logs: VecDeque<LogLine>,
    lines: Vec<Line>,
    trims: BTreeMap<Journal, usize>,
    /// Whether a document is in it that was not to go along with others.
    is_late: bool,
    closing: bool,
}

/// What came of a round's documents.
#[derive(Default)]
struct Written {
    /// The calls whose changes are not in them.
    left_out: BTreeSet<CallId>,
    /// Whether they, and the round's lines, are in the log.
    is_ahead: bool,
    /// What the own file of the log's document holds now.
    beside: Option<Vec<u8>>,
}

/// Takes out those who wait for nothing any more.
fn settled(shared: &Shared) -> Vec<Box<dyn FnOnce() + Send>> {
    let mut inbox = shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
    inbox.writing.clear();
    inbox.settling.extract_if(.., |one| one.needs.is_empty()).map(|one| one.then).collect()
}

struct Writer {
    ahead: Ahead,
    folder: PathBuf,
    logs: Arc<LogStore>,
    tell: Box<dyn Fn(Told) + Send>,
    failing: bool,
    /// Journals with lines that were not waited for yet.
    unsynced: BTreeMap<Journal, Lent>,
    /// Whether the folder was synced since a journal may have been made.
    journals_are_named: bool,
    /// When free memory was last given back to the system.
    gave_back: Instant,
}

impl Writer {
    fn run(&mut self, shared: &Shared) {
        let mut gathering = None;
        loop {
            let round = next_round(shared, gathering);
            let closing = round.closing;
            let (began, callers) = (Instant::now(), round.waiting.len());
            self.write(round, shared);
            for settled in settled(shared) {
                settled();
            }
            if closing {
                return;
            }
            if self.gave_back.elapsed() >= GIVE_BACK_EVERY {
                memory::give_back();
                self.gave_back = Instant::now();
            }
            let inbox = shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            let until = Instant::now() + (began.elapsed() / 2).min(GATHERING);
            gathering = (callers > 0).then(|| (callers + inbox.waiting.len(), until));
        }
    }

    /// Whether the round's one document goes into the log, and nothing else needs a sync.
    fn goes_ahead(&self, round: &Round) -> bool {
        let is_alone = round.answers_after_lines.is_empty()
            && round.stored.is_empty()
            && round.trims.is_empty()
            && !round.is_late
            && !round.closing;
        let is_ready = self.ahead.is_open() && self.journals_are_named && !self.failing;
        is_alone && is_ready && !round.waiting.is_empty() && round.documents == [ahead::DOCUMENT]
    }

    fn write(&mut self, mut round: Round, shared: &Shared) {
        if !round.trims.is_empty() && !self.ahead.is_empty() && !round.documents.contains(&ahead::DOCUMENT) {
            // Lines that the journal has no more must not come back into it.
            round.documents.push(ahead::DOCUMENT);
        }
        let ahead = self.goes_ahead(&round).then(|| round.lines.clone());
        for line in round.logs {
            if let Err(error) = self.logs.append(line.lineage, line.agent, line.at, &line.entry) {
                log::warn!("a log line of agent {} could not be written: {error}", line.agent);
            }
        }
        let appended = self.append(round.lines);
        let ahead = ahead.filter(|_| appended.1.is_ok());
        let mut written = Written::default();
        let documents = match &round.state {
            Some(state) => self.documents(state, &round.documents, ahead.as_deref()).map(|all| written = all),
            None => Ok(()),
        };
        self.remove(&round.removals);
        let is_awaited = !round.waiting.is_empty() || !round.answers_after_lines.is_empty();
        let follows = written.beside.is_some() && !self.ahead.is_empty();
        // After the documents: their sync has brought most of the journals along.
        let journals = self.settle(appended, !written.is_ahead && (is_awaited || follows), shared);
        self.follow(written.beside);
        // Else the lines that are cut off would come back from the log.
        for (journal, entries) in round.trims.iter().filter(|_| self.ahead.is_empty()) {
            if let Err(error) = trim_lines(&self.folder.join(journal.path()), *entries) {
                log::warn!("{} could not be trimmed: {error}", journal.path());
            }
        }
        for (answer, reply) in round.answers_after_lines {
            // The caller may have given up; its answer is then nobody's.
            let _ = answer.send(reply);
        }
        match documents.and(journals) {
            Ok(()) => {
                shared.inbox.lock().unwrap_or_else(PoisonError::into_inner).written(&round.documents);
                if std::mem::take(&mut self.failing) {
                    (self.tell)(Told::Trouble(None));
                }
                for (_, timer) in round.stored {
                    (self.tell)(Told::Stored(timer));
                }
                for waiting in round.waiting {
                    match waiting {
                        // The caller may have given up; its answer is then nobody's.
                        Waiting::Caller(answer, reply) => drop(answer.send(reply)),
                        Waiting::Core(call, then) if written.left_out.contains(&call) => {
                            then(Err(LEFT_OUT.into()));
                        }
                        Waiting::Core(_, then) => then(Ok(())),
                    }
                }
            }
            Err(error) => self.failed(&round.documents, (round.waiting, round.stored), &error, shared),
        }
    }

    /// The log is not needed for what its document's own file and the journals have.
    fn follow(&mut self, beside: Option<Vec<u8>>) {
        let Some(content) = beside.filter(|_| self.ahead.is_empty() || self.unsynced.is_empty()) else {
            return;
        };
        if let Err(error) = self.ahead.clear(&content) {
            log::warn!("what was written ahead stays there: {error}");
        }
    }

    fn remove(&self, documents: &BTreeSet<Document>) {
        for document in documents {
            let removed = fs::remove_file(self.folder.join(document.path()));
            if let Err(error) = removed.or_else(missing_is_fine) {
                log::warn!("{} could not be removed: {error}", document.path());
            }
        }
    }

    /// Appends what came for the journals: what could not be, and why not.
    fn append(&mut self, mut lines: Vec<Line>) -> (Vec<Line>, io::Result<()>) {
        while let Some((journal, _)) = lines.first() {
            let journal = *journal;
            let same = lines.iter().take_while(|(other, _)| *other == journal);
            let bytes: Vec<u8> =
                same.clone().flat_map(|(_, line)| line.iter().copied().chain([b'\n'])).collect();
            let count = same.count();
            match append_rotating(&self.folder.join(journal.path()), &bytes, journal.max_bytes()) {
                Ok(file) => drop(self.unsynced.insert(journal, file)),
                Err(error) => {
                    let text = format!("{}: {error}", journal.path());
                    return (lines, Err(io::Error::new(error.kind(), text)));
                }
            }
            lines.drain(..count);
        }
        (lines, Ok(()))
    }

    /// Has the lines so far on disk if somebody waits for them, and keeps those that the disk has refused
    /// for the next try.
    fn settle(
        &mut self,
        (unwritten, appended): (Vec<Line>, io::Result<()>),
        is_awaited: bool,
        shared: &Shared,
    ) -> io::Result<()> {
        if !unwritten.is_empty() {
            let mut inbox = shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            let newer = std::mem::replace(&mut inbox.lines, unwritten);
            inbox.lines.extend(newer);
            let kept = if inbox.closing { 0 } else { MAX_UNWRITTEN_LINES };
            let lost = inbox.lines.len().saturating_sub(kept);
            inbox.lines.truncate(kept);
            inbox.lines_again = Some(Instant::now() + RETRY);
            if lost > 0 {
                log::error!("{lost} lines of journals were lost: the disk takes none");
            }
        }
        appended?;
        if !is_awaited || self.unsynced.is_empty() {
            return Ok(());
        }
        for file in self.unsynced.values() {
            file.sync_data()?;
        }
        self.unsynced.clear();
        if std::mem::replace(&mut self.journals_are_named, true) {
            return Ok(());
        }
        // The first line has made the file.
        sync_folder(&self.folder).inspect_err(|_| self.journals_are_named = false)
    }

    fn failed(
        &mut self,
        documents: &[Document],
        (waiting, stored): (Vec<Waiting>, Vec<(Instant, Timer)>),
        error: &io::Error,
        shared: &Shared,
    ) {
        self.failing = true;
        (self.tell)(Told::Trouble(Some(error.to_string())));
        let mut inbox = shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        for document in documents {
            inbox.due.entry(*document).or_insert_with(|| Instant::now() + RETRY);
        }
        inbox.refused.extend(documents);
        inbox.stored.extend(stored.into_iter().map(|(_, timer)| (Instant::now() + RETRY, timer)));
        drop(inbox);
        let error = error.to_string();
        let what_to_do = remedy(&error);
        for waiting in waiting {
            match waiting {
                Waiting::Caller(answer, _) => drop(answer.send(unwritten(&error).into())),
                Waiting::Core(_, then) => then(Err(format!(
                    "the change could not be written and is not in force ({error}); {what_to_do} and retry"
                ))),
            }
        }
    }

    /// Writes documents, or the one that goes ahead with these lines.
    fn documents(
        &mut self,
        state: &State,
        documents: &[Document],
        ahead: Option<&[Line]>,
    ) -> io::Result<Written> {
        let mut folders = BTreeSet::new();
        if documents.is_empty() {
            return Ok(Written::default());
        }
        // A bug in a change that waits costs that write, not this thread.
        let (state, left_out) = catch_unwind(AssertUnwindSafe(|| to_be_stored(state)))
            .map_err(|_| io::Error::other("a change that waits for the disk met a bug in svc"))?;
        let mut beside = None;
        for document in documents {
            let Some(encoded) = encode(*document, &state) else { continue };
            let bytes = encoded.map_err(|error| io::Error::other(error.to_string()))?;
            if let Some(lines) = ahead.filter(|_| bytes.len() <= ahead::MAX_DOCUMENT_BYTES) {
                self.ahead.write(&bytes, lines)?;
                return Ok(Written { left_out, is_ahead: true, beside: None });
            }
            let path = self.folder.join(document.path());
            if *document == ahead::DOCUMENT && !self.ahead.is_empty() {
                // Its last line must not be older than the file.
                self.ahead.write(&bytes, &[])?;
            }
            replace(&path, &bytes)?;
            folders.extend(path.parent().map(Path::to_path_buf));
            if *document == ahead::DOCUMENT {
                beside = Some(bytes);
            }
        }
        folders.iter().try_for_each(|folder| sync_folder(folder))?;
        Ok(Written { left_out, is_ahead: false, beside })
    }
}

/// What a caller hears who waited for a deed that is done, such as the end of an agent: the state is told of
/// it and it is written as soon as the disk takes it.
fn unwritten(error: &str) -> Problem {
    let text = format!(
        "this is done, but could not be written ({error}) and may be forgotten by the next start; {} then look",
        remedy(error)
    );
    Problem::new(503, "storage_unavailable", text).with("inForce", true).with_header("Retry-After", "5")
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
