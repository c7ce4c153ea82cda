//! Walking the project for the index: in parallel at first, and after that only where names have changed.
//!
//! A folder whose time of change is what it was holds the same names as before, so that a rescan looks at
//! folders and not at files. Ignore files and manifests are looked at by themselves.

use super::Command;
use super::index::{
    Folder, Folders, IGNORE_BITS, IGNORE_FILES, Index, MARKED, VERSION, below, detect, key_files, stats,
};
use crate::api::Problem;
use crate::assembly::host::Host;
use crate::core::time::Time;
use crate::endpoint::{Answer, Ask};
use ignore::{DirEntry, WalkBuilder, WalkState};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;
use svc_base::folders::SKIPPED;
use svc_sys::beneath::{Dir, Root, changed_ns};
use svc_sys::files::replace_soon;

/// Folders that an index holds; a larger project is cut, and the index says so.
const MAX_FOLDERS: usize = 300_000;
/// Bytes of a manifest that is read.
const MANIFEST_BYTES: u64 = 1 << 20;
/// A folder changed this shortly before the scan may change again without another time: it is looked at
/// next time.
const RACY_NS: i64 = 100_000_000;
/// With more changed folders than this, a whole walk is cheaper than folder by folder.
const MAX_RELISTED: usize = 256;
/// Folders whose times a thread asks for before it takes the next ones.
const COMPARED_AT_ONCE: usize = 256;
/// Threads of a walk at most.
const MAX_THREADS: usize = 8;

/// Scans the project, one scan at a time.
pub struct Indexer {
    project: PathBuf,
    cache: Mutex<Option<Cache>>,
    stopping: AtomicBool,
}

/// What the last scan saw.
struct Cache {
    folders: Folders,
    /// Ignore files by path, with what tells a changed one.
    ignores: HashMap<String, (i64, u64)>,
    truncated: bool,
}

impl Indexer {
    /// Nothing is scanned yet. `project` is absolute.
    pub fn new(project: PathBuf) -> Self {
        Self { project, cache: Mutex::new(None), stopping: AtomicBool::new(false) }
    }

    /// Makes a running scan end soon, without a result.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Scans, waits for its turn if another scan runs, and writes `.svc/codebase-index.json`.
    ///
    /// Errors: it was stopped.
    pub fn scan(&self, now: Time) -> Result<Index, String> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let racy_ns =
            i64::try_from(now.0).unwrap_or(i64::MAX).saturating_mul(1_000_000).saturating_sub(RACY_NS);
        let scanned = match cache.take() {
            Some(known) => self.update(known, racy_ns),
            None => None,
        };
        let scanned = scanned.unwrap_or_else(|| self.walk_all(racy_ns));
        if self.stopping.load(Ordering::Relaxed) {
            return Err("the scan was stopped".into());
        }
        let mut read = |path: &str| self.read(path);
        let index = Index {
            version: VERSION,
            project_name: self.project.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            last_index_time: now.0,
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            stats: stats(&scanned.folders),
            workspaces: detect(&scanned.folders, &mut read),
            key_files: key_files(&scanned.folders),
            truncated: scanned.truncated,
        };
        *cache = Some(scanned);
        self.write(&index);
        Ok(index)
    }

    fn write(&self, index: &Index) {
        let path = self.project.join(".svc/codebase-index.json");
        // Every start scans anew, so nothing is lost with a file that a power cut took.
        let written =
            serde_json::to_vec_pretty(index).map_err(Into::into).and_then(|text| replace_soon(&path, &text));
        if let Err(error) = written {
            log::warn!("the index could not be written: {error}");
        }
    }

    fn read(&self, path: &str) -> Option<String> {
        let file = File::open(self.project.join(path)).ok()?;
        let mut text = String::new();
        file.take(MANIFEST_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn walk_all(&self, racy_ns: i64) -> Cache {
        let (folders, truncated) = self.walk(&["".into()], racy_ns);
        let ignores = self.ignore_files(&folders);
        Cache { folders, ignores, truncated }
    }

    /// The ignore files of these folders, with their times.
    fn ignore_files(&self, folders: &Folders) -> HashMap<String, (i64, u64)> {
        let mut found = HashMap::new();
        for (path, folder) in folders.iter().filter(|(_, folder)| folder.marks & IGNORE_BITS != 0) {
            for name in IGNORE_FILES.filter(|bit| folder.marks & (1 << bit) != 0).map(|bit| MARKED[bit]) {
                let file = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
                if let Some(state) = self.ignore_file(&file) {
                    found.insert(file, state);
                }
            }
        }
        found
    }

    /// What tells a changed ignore file.
    fn ignore_file(&self, path: &str) -> Option<(i64, u64)> {
        let meta = fs::symlink_metadata(self.project.join(path)).ok()?;
        Some((changed_ns(&meta), meta.len()))
    }

    /// Brings what is known up to date; `None` when a whole walk is due.
    fn update(&self, mut known: Cache, racy_ns: i64) -> Option<Cache> {
        let as_before = |(path, state): (&String, &_)| self.ignore_file(path).as_ref() == Some(state);
        if known.truncated || !known.ignores.iter().all(as_before) {
            return None;
        }
        let Compared { changed, gone, listed } = self.compare(&known.folders, racy_ns);
        if changed.len() > MAX_RELISTED {
            return None;
        }
        for path in gone {
            remove(&mut known.folders, &path);
        }
        let changed: Vec<Box<str>> =
            changed.into_iter().filter(|path| known.folders.contains_key(path)).collect();
        for path in &changed {
            let now = listed.get(path)?;
            let before = known.folders.get(path).map_or(0, |folder| folder.marks);
            if (now.marks ^ before) & IGNORE_BITS != 0 {
                return None;
            }
            self.take_over(&mut known.folders, path, &listed, racy_ns)?;
        }
        (known.folders.len() <= MAX_FOLDERS).then_some(known)
    }

    /// Asks all folders for their times and lists those that have changed.
    fn compare(&self, folders: &Folders, racy_ns: i64) -> Compared {
        let known: Vec<(&str, i64)> =
            folders.iter().map(|(path, folder)| (&**path, folder.changed_ns)).collect();
        let Ok(root) = Root::open(&self.project).and_then(|root| root.dir("")) else {
            let gone = known.iter().map(|(path, _)| (*path).into()).collect();
            return Compared { gone, ..Compared::default() };
        };
        let parts = Mutex::new(known.chunks(COMPARED_AT_ONCE));
        let whole = Mutex::new(Compared::default());
        let work = || {
            let mut mine = Compared::default();
            let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some(part) = next() {
                mine.ask(&root, part);
            }
            if mine.changed.len() <= MAX_RELISTED {
                mine.listed = self.list(&mine.changed, folders, racy_ns);
            }
            whole.lock().unwrap_or_else(PoisonError::into_inner).add(mine);
        };
        // The scheduler moves new threads to idle processors when this one sleeps.
        std::thread::scope(|scope| {
            for _ in 0..known.len().div_ceil(COMPARED_AT_ONCE).min(threads()) {
                scope.spawn(work);
            }
        });
        whole.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what one folder was just seen to hold: its files, and folders that are new. Folders that
    /// are no more were found when times were compared.
    fn take_over(&self, folders: &mut Folders, path: &str, listed: &Folders, racy_ns: i64) -> Option<()> {
        let new: Vec<Box<str>> =
            children(listed, path).filter(|inner| !folders.contains_key(*inner)).map(Into::into).collect();
        folders.insert(path.into(), listed.get(path)?.clone());
        if new.is_empty() {
            return Some(());
        }
        let (new, truncated) = self.walk(&new, racy_ns);
        folders.extend(new);
        (!truncated).then_some(())
    }

    /// How all walks look at the project.
    fn walker(&self, from: &[Box<str>]) -> Option<WalkBuilder> {
        let (first, more) = from.split_first()?;
        let mut builder = WalkBuilder::new(self.project.join(&**first));
        for folder in more {
            builder.add(self.project.join(&**folder));
        }
        builder.hidden(false).require_git(false);
        Some(builder)
    }

    /// Lists folders without looking into those in them, of which only new ones are named.
    fn list(&self, from: &[Box<str>], known: &Folders, racy_ns: i64) -> Folders {
        let Some(mut builder) = self.walker(from) else { return Folders::new() };
        // The walker opens every folder that it names.
        let inner = from.iter().flat_map(|path| children(known, path));
        let inner: HashSet<PathBuf> = inner.map(|path| self.project.join(path)).collect();
        let skipped =
            move |entry: &DirEntry| is_skipped(entry) || is_folder(entry) && inner.contains(entry.path());
        builder.max_depth(Some(1)).filter_entry(move |entry| entry.depth() == 0 || !skipped(entry));
        let sink = Mutex::new(Folders::new());
        let mut part = Part::new(&sink, &self.project, racy_ns);
        for entry in builder.build().flatten() {
            part.see(&entry);
        }
        drop(part);
        sink.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Walks from folders of the project. Also tells whether there were too many of them.
    fn walk(&self, from: &[Box<str>], racy_ns: i64) -> (Folders, bool) {
        let Some(mut builder) = self.walker(from) else { return (Folders::new(), false) };
        builder.threads(threads()).filter_entry(|entry| entry.depth() == 0 || !is_skipped(entry));
        let sink = Mutex::new(Folders::new());
        let count = AtomicUsize::new(0);
        let truncated = AtomicBool::new(false);
        builder.build_parallel().run(|| {
            let mut part = Part::new(&sink, &self.project, racy_ns);
            let (count, truncated, stopping) = (&count, &truncated, &self.stopping);
            Box::new(move |entry| {
                // What cannot be read is not there for the agents either.
                let Ok(entry) = entry else { return WalkState::Continue };
                if part.see(&entry) && count.fetch_add(1, Ordering::Relaxed) >= MAX_FOLDERS {
                    truncated.store(true, Ordering::Relaxed);
                }
                if truncated.load(Ordering::Relaxed) || stopping.load(Ordering::Relaxed) {
                    return WalkState::Quit;
                }
                WalkState::Continue
            })
        });
        let folders = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
        (folders, truncated.into_inner())
    }
}

/// The known folders right below one.
fn children<'a>(folders: &'a Folders, path: &str) -> impl Iterator<Item = &'a str> {
    let depth = if path.is_empty() { 0 } else { path.len() + 1 };
    below(folders, path).map(|(inner, _)| inner).filter(move |inner| !inner[depth..].contains('/'))
}

/// What a look at the times of folders found.
#[derive(Default)]
struct Compared {
    /// Folders whose names have changed.
    changed: Vec<Box<str>>,
    /// Folders that are no more.
    gone: Vec<Box<str>>,
    /// What the changed folders hold now.
    listed: Folders,
}

impl Compared {
    /// Looks at the times of some folders.
    fn ask(&mut self, root: &Dir, known: &[(&str, i64)]) {
        for (path, known_ns) in known {
            match root.folder_changed_ns(path) {
                Ok(Some(ns)) if *known_ns != 0 && ns == *known_ns => {}
                Ok(Some(_)) => self.changed.push((*path).into()),
                Ok(None) | Err(_) => self.gone.push((*path).into()),
            }
        }
    }

    fn add(&mut self, more: Self) {
        self.changed.extend(more.changed);
        self.gone.extend(more.gone);
        self.listed.extend(more.listed);
    }
}

fn threads() -> usize {
    // Asking reads a number of files.
    static PROCESSORS: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    (*PROCESSORS).min(MAX_THREADS)
}

fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
}

fn is_skipped(entry: &DirEntry) -> bool {
    entry.file_name().to_str().is_some_and(|name| SKIPPED.contains(&name)) && is_folder(entry)
}

/// Removes a folder and all below it.
fn remove(folders: &mut Folders, path: &str) {
    folders.remove(path);
    let inner: Vec<Box<str>> = below(folders, path).map(|(inner, _)| inner.into()).collect();
    for path in inner {
        folders.remove(&path);
    }
}

/// What one thread of a walk has seen; added to the whole when it ends.
struct Part<'a> {
    sink: &'a Mutex<Folders>,
    /// Bytes of the project's path and the slash after it.
    prefix: usize,
    racy_ns: i64,
    seen: HashMap<Box<str>, Folder>,
    /// Files come folder by folder, mostly: the folder of the last one is not looked up again.
    last: (Box<str>, Folder),
}

impl<'a> Part<'a> {
    fn new(sink: &'a Mutex<Folders>, project: &Path, racy_ns: i64) -> Self {
        let prefix = project.as_os_str().len() + 1;
        Self { sink, prefix, racy_ns, seen: HashMap::new(), last: (Box::from(""), Folder::default()) }
    }

    /// Counts an entry; whether it is a folder.
    fn see(&mut self, entry: &DirEntry) -> bool {
        // A name that is not UTF-8 cannot be told to anybody.
        let Some(path) = entry.path().to_str() else { return false };
        let path = path.get(self.prefix..).unwrap_or_default();
        let path = path.trim_end_matches('/');
        if is_folder(entry) {
            let ns = entry.metadata().map_or(0, |meta| changed_ns(&meta));
            let folder = self.seen.entry(path.into()).or_default();
            folder.changed_ns = if ns < self.racy_ns { ns } else { 0 };
            return true;
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if *parent != *self.last.0 {
            self.flush();
            self.last.0 = parent.into();
        }
        self.last.1.files += 1;
        if let Some(bit) = MARKED.iter().position(|marked| *marked == name) {
            self.last.1.marks |= 1 << bit;
        }
        false
    }

    fn flush(&mut self) {
        let (path, found) = std::mem::take(&mut self.last);
        if found != Folder::default() {
            add(self.seen.entry(path).or_default(), &found);
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.flush();
        let mut whole = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        for (path, folder) in self.seen.drain() {
            add(whole.entry(path).or_default(), &folder);
        }
    }
}

/// Two threads may have seen parts of one folder.
fn add(folder: &mut Folder, more: &Folder) {
    folder.files += more.files;
    folder.marks |= more.marks;
    folder.changed_ns = folder.changed_ns.max(more.changed_ns);
}

/// `POST /api/indexer/rescan`.
pub fn rescan(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let index = host.indexer.scan(ask.now).map_err(|error| Problem::new(503, "stopping", error))?;
    Ok(Answer::Command(Command::Indexed(Arc::new(index)).into()))
}
