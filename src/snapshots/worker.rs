//! Takes snapshots, on the threads of runs and of connections, and notes them.

use super::lines::{Kind, Line, Snap, turns};
use super::{PATIENCE, worker_undo};
use crate::agents::worker::Turns;
use crate::core::ids::{AgentId, LineageId};
use crate::isolation::worker_git::Git;
use crossbeam_channel::{Receiver, Sender, bounded};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use svc_snapshots::{Id, Place, Store, take};
use svc_sys::files::replace_soon;
use svc_sys::process::Processes;
use svc_sys::{clock, regular};

/// Below the project.
pub const FOLDER: &str = ".svc/snapshots";
/// What the journalist writes into a project's root is nobody's work.
const OWN_DOCUMENTS: &str = "/SVC_*.md\n";
/// After so many snapshots the store is tidied.
pub const TIDY_EVERY: u64 = 64;
/// Bytes of objects that git gives at once.
const MAX_READ_BYTES: usize = 256 << 20;
/// Bytes of an agent's lines at most; a larger file is none of ours.
const MAX_LINES_BYTES: u64 = 64 << 20;
/// Lines that wait for a disk that takes none, for each agent.
const MAX_WAITING: usize = 100;
/// What git is told of the store by `git config --list -z`.
const SETTINGS: &[u8] = b"core.repositoryformatversion\n1\0extensions.objectformat\nsha256\0";

/// All snapshots of a project.
pub struct Snapshots {
    pub(super) project: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) store: Store,
    pub(super) processes: Arc<Processes>,
    /// One at a time in each folder, and none while the store is packed as a whole.
    busy: Mutex<BTreeSet<String>>,
    freed: Condvar,
    /// One writer of lines.
    lines: Mutex<BTreeMap<LineageId, Vec<Line>>>,
    taken: AtomicU64,
    bell: (Sender<()>, Receiver<()>),
}

/// The turn of one who works in a folder; given back when dropped.
pub(super) struct Busy<'a>(&'a Snapshots, String);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
        self.0.freed.notify_all();
    }
}

/// Git on the store.
pub(super) fn git(processes: &Arc<Processes>, store: &Path) -> io::Result<Git> {
    Git::of_store(processes, store, SETTINGS)
}

impl Snapshots {
    /// Those of a project; an undo that an earlier daemon has begun is ended first.
    ///
    /// Errors: the store cannot be made.
    pub fn open(project: &Path, processes: &Arc<Processes>) -> io::Result<Self> {
        let folder = project.join(FOLDER);
        let place = folder.join("store");
        let (reading, runs) = (place.clone(), Arc::clone(processes));
        let packed = move |ids: &[Id]| read_packed(&runs, &reading, ids);
        let found = Self {
            project: project.to_path_buf(),
            store: Store::open(&place, Box::new(packed))?,
            folder,
            processes: Arc::clone(processes),
            busy: Mutex::default(),
            freed: Condvar::new(),
            lines: Mutex::default(),
            taken: AtomicU64::new(0),
            bell: bounded(1),
        };
        worker_undo::recover(&found);
        let _ = found.bell.0.try_send(());
        Ok(found)
    }

    /// Rings when the store is to be tidied.
    pub(super) fn bell(&self) -> &Receiver<()> {
        &self.bell.1
    }

    /// The turns of an agent, for its run; `folder` is below the project.
    pub fn turns_of(self: &Arc<Self>, agent: AgentId, lineage: LineageId, folder: &str) -> Box<dyn Turns> {
        Box::new(AgentTurns { all: Arc::clone(self), agent, lineage, folder: folder.to_owned() })
    }

    /// Waits until nobody else works in this folder, [`PATIENCE`] at most; the empty name is all folders.
    pub(super) fn enter(&self, folder: &str) -> Result<Busy<'_>, String> {
        const ALL: &str = "*";
        let name = if folder == ALL { ALL.to_owned() } else { format!("/{folder}") };
        let is_taken = |busy: &mut BTreeSet<String>| {
            if folder == ALL { !busy.is_empty() } else { busy.contains(&name) || busy.contains(ALL) }
        };
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.freed.wait_timeout_while(busy, PATIENCE, is_taken);
        let (mut busy, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        if timed_out.timed_out() {
            return Err(format!("another snapshot or undo was under way for {} s", PATIENCE.as_secs()));
        }
        busy.insert(name.clone());
        drop(busy);
        Ok(Busy(self, name))
    }

    /// Keeps all folders to itself.
    pub(super) fn enter_all(&self) -> Result<Busy<'_>, String> {
        self.enter("*")
    }

    /// A snapshot of a folder, which is this one's turn; kept under the agent's name and number.
    pub(super) fn keep(&self, lineage: LineageId, line: &mut Line, who: AgentId) -> Result<(), String> {
        let commit = self.look(line, who)?;
        self.store.name(&format!("{lineage}/{}", line.n), commit).map_err(|error| error.to_string())?;
        if self.taken.fetch_add(1, Ordering::Relaxed) % TIDY_EVERY == TIDY_EVERY - 1 {
            // It rings already, or it will.
            let _ = self.bell.0.try_send(());
        }
        Ok(())
    }

    /// A snapshot of a folder, kept as what was seen of it last; its commit.
    pub(super) fn look(&self, line: &mut Line, who: AgentId) -> Result<Id, String> {
        let Line { kind, turn, at, ref folder, .. } = *line;
        let key = if folder.is_empty() { "project".to_owned() } else { folder.replace('/', "_") };
        let place = Place {
            root: if folder.is_empty() { self.project.clone() } else { self.project.join(folder) },
            index: self.folder.join("seen").join(&key),
            exclude: self.project.join(".git/info/exclude"),
            also: OWN_DOCUMENTS,
        };
        let message =
            json!({"agent": who, "turn": turn, "kind": kind, "at": at, "folder": folder}).to_string();
        let told = |error: io::Error| {
            if error.kind() == io::ErrorKind::TimedOut {
                format!("it was not done within {} s", PATIENCE.as_secs())
            } else {
                error.to_string()
            }
        };
        let taken = take(&self.store, &place, &message, PATIENCE).map_err(told)?;
        // What was seen of the folder last names objects that have to stay.
        self.store.name(&format!("seen/{key}"), taken.commit).map_err(told)?;
        line.snap = Some(Snap { commit: taken.commit, files: taken.files_tree, meta: taken.meta });
        (line.files, line.left) = (taken.files, taken.left_count);
        line.ms = u64::try_from(taken.took.as_millis()).unwrap_or(u64::MAX);
        Ok(taken.commit)
    }

    /// Takes a snapshot and notes it; that there is none is noted, too.
    fn note(&self, lineage: LineageId, who: AgentId, kind: Kind, folder: &str, late: bool) {
        let busy = self.enter(folder);
        let known = self.lines(lineage);
        let last = known.iter().rfind(|line| matches!(line.kind, Kind::Begin | Kind::End));
        let turn = match (kind, last) {
            // An earlier daemon has told of it, and this one hears of it again.
            (Kind::Begin, Some(last)) if late && last.kind == Kind::Begin => return,
            (Kind::Begin, last) => last.map_or(0, |last| last.turn) + 1,
            (Kind::End, Some(last)) if last.kind == Kind::Begin => last.turn,
            // One that was never told to begin has no end.
            (Kind::End, _) => return,
            (_, last) => last.map_or(0, |last| last.turn),
        };
        let mut line = line(known.last().map_or(0, |last| last.n) + 1, kind, turn, folder);
        line.late = late;
        // What stood there when the turn before was over.
        let before = last.filter(|last| late && last.kind == Kind::End).and_then(|last| last.snap);
        let kept = match (&busy, before) {
            (Err(why), _) => Err(why.clone()),
            (Ok(_), Some(before)) => {
                line.snap = Some(before);
                let named = self.store.name(&format!("{lineage}/{}", line.n), before.commit);
                named.map_err(|error| error.to_string())
            }
            (Ok(_), None) => self.keep(lineage, &mut line, who),
        };
        if let Err(why) = kept {
            log::warn!("agent {who}: no snapshot of turn {turn}, so that it cannot be undone: {why}");
            line.missed = Some(why);
        }
        if kind == Kind::End {
            // What has changed while it was looked at counts as before.
            line.at = clock::now().0;
        }
        self.append(lineage, line);
    }

    /// Keeps the project's folder before something of an agent's is merged into it.
    pub fn before_merge(&self, lineage: LineageId, who: AgentId) {
        self.note(lineage, who, Kind::Merge, "", false);
    }

    /// What is noted of an agent, oldest first.
    pub(super) fn lines(&self, lineage: LineageId) -> Vec<Line> {
        let waiting = self.waiting();
        let mut found = read_lines(&self.path_of(lineage));
        found.extend(waiting.get(&lineage).into_iter().flatten().cloned());
        found
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<LineageId, Vec<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line; one that the disk does not take waits for the next.
    pub(super) fn append(&self, lineage: LineageId, line: Line) {
        let mut waiting = self.waiting();
        let lines = waiting.entry(lineage).or_default();
        lines.push(line);
        match append(&self.path_of(lineage), lines) {
            Ok(()) => drop(waiting.remove(&lineage)),
            Err(error) => {
                log::warn!("a snapshot cannot be noted: {error}");
                let surplus = lines.len().saturating_sub(MAX_WAITING);
                lines.drain(..surplus);
            }
        }
    }

    /// Replaces what is noted of an agent.
    pub(super) fn rewrite(
        &self,
        lineage: LineageId,
        change: impl FnOnce(Vec<Line>) -> Vec<Line>,
    ) -> io::Result<()> {
        let _waiting = self.waiting();
        let path = self.path_of(lineage);
        let lines = change(read_lines(&path));
        replace_soon(&path, &encoded(&lines))
    }

    /// Whose snapshots there are.
    pub(super) fn lineages(&self) -> Vec<LineageId> {
        let Ok(files) = fs::read_dir(self.folder.join("turns")) else { return Vec::new() };
        let lineage = |file: fs::DirEntry| file.file_name().to_str()?.strip_suffix(".jsonl")?.parse().ok();
        files.flatten().filter_map(lineage).collect()
    }

    pub(super) fn path_of(&self, lineage: LineageId) -> PathBuf {
        self.folder.join("turns").join(format!("{lineage}.jsonl"))
    }

    /// The turns of all others.
    pub(super) fn turns_of_others(&self, lineage: LineageId) -> Vec<super::Turn> {
        let others = self.lineages().into_iter().filter(|other| *other != lineage);
        others.flat_map(|other| turns(&self.lines(other))).collect()
    }
}

/// A line of now.
pub(super) fn line(n: u64, kind: Kind, turn: u64, folder: &str) -> Line {
    let (at, folder) = (clock::now().0, folder.to_owned());
    let (snap, missed) = (None, None);
    Line { n, kind, turn, at, folder, snap, missed, late: false, of: 0, files: 0, left: 0, ms: 0 }
}

fn read_lines(path: &Path) -> Vec<Line> {
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.len() <= MAX_LINES_BYTES) {
        return Vec::new();
    }
    let text = regular::read(path).unwrap_or_default();
    // One that was cut by a kill is none.
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn encoded(lines: &[Line]) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut text, line);
        text.push(b'\n');
    }
    text
}

fn append(path: &Path, lines: &[Line]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    let mut file = regular::open(path, options.append(true).create(true).mode(0o600))?;
    let before = file.metadata()?.len();
    let written = file.write_all(&encoded(lines));
    if written.is_err() {
        // Half a line would make the next one unreadable, too.
        let _ = file.set_len(before);
    }
    written
}

/// Reads objects that were packed.
fn read_packed(processes: &Arc<Processes>, store: &Path, ids: &[Id]) -> io::Result<Vec<Vec<u8>>> {
    let mut asked = String::new();
    for id in ids {
        // Writing to a string cannot fail.
        let _ = writeln!(asked, "{id}");
    }
    let said = git(processes, store)?.feed(&["cat-file", "--batch"], asked.as_bytes(), MAX_READ_BYTES);
    let said = said.map_err(|problem| io::Error::other(problem.error))?;
    let mut rest = said.as_slice();
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let lost = || io::Error::new(io::ErrorKind::InvalidData, format!("object {id} is lost"));
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(lost)?;
        let head = std::str::from_utf8(&rest[..end]).map_err(|_| lost())?;
        let length = head.rsplit_once(' ').and_then(|(_, length)| length.parse().ok());
        let (bytes, then) =
            length.and_then(|length| rest[end + 1..].split_at_checked(length)).ok_or_else(lost)?;
        found.push(bytes.to_vec());
        rest = then.get(1..).unwrap_or_default();
    }
    Ok(found)
}

/// The turns of one agent.
struct AgentTurns {
    all: Arc<Snapshots>,
    agent: AgentId,
    lineage: LineageId,
    folder: String,
}

impl Turns for AgentTurns {
    fn begin(&self, late: bool) {
        self.all.note(self.lineage, self.agent, Kind::Begin, &self.folder, late);
    }

    fn end(&self) {
        self.all.note(self.lineage, self.agent, Kind::End, &self.folder, false);
    }
}
