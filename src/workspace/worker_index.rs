//! Walking the project for the index: in parallel at first, and after that only where names have changed.
//!
//! A folder whose time of change is what it was holds the same names as before, so that a rescan looks at
//! folders and not at files. Ignore files and manifests are looked at by themselves.

use super::Command;
use super::index::{
    Folder, Folders, IGNORE_FILES, Index, MARKED, SKIPPED, VERSION, below, detect, key_files, stats,
};
use crate::api::Problem;
use crate::core;
use crate::core::time::Time;
use crate::routes::{Answer, Ask};
use crate::runtime::host::Host;
use crate::runtime::store::replace_soon;
use ignore::{DirEntry, WalkBuilder, WalkState};
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Folders that an index holds; a larger project is cut, and the index says so.
const MAX_FOLDERS: usize = 300_000;
/// Bytes of a manifest that is read.
const MANIFEST_BYTES: u64 = 1 << 20;
/// A folder changed this shortly before the scan may change again without another time: it is looked at
/// next time.
const RACY_NS: i64 = 100_000_000;
/// With more changed folders than this, a whole walk is cheaper than folder by folder.
const MAX_RELISTED: usize = 256;
/// Folders that are worth a thread of their own.
const MIN_COMPARED: usize = 512;
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
        let (folders, truncated) = self.walk(&["".into()], None, racy_ns);
        let ignores = self.ignore_files(&folders);
        Cache { folders, ignores, truncated }
    }

    /// The ignore files of these folders, with their times.
    fn ignore_files(&self, folders: &Folders) -> HashMap<String, (i64, u64)> {
        let bits = IGNORE_FILES.fold(0, |bits, bit| bits | 1 << bit);
        let mut found = HashMap::new();
        for (path, folder) in folders.iter().filter(|(_, folder)| folder.marks & bits != 0) {
            for name in IGNORE_FILES.filter(|bit| folder.marks & (1 << bit) != 0).map(|bit| MARKED[bit]) {
                let file = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
                if let Ok(meta) = fs::symlink_metadata(self.project.join(&file)) {
                    found.insert(file, (changed_ns(&meta), meta.len()));
                }
            }
        }
        found
    }

    /// Brings what is known up to date; `None` when a whole walk is due.
    fn update(&self, mut known: Cache, racy_ns: i64) -> Option<Cache> {
        if known.truncated || self.ignore_files(&known.folders) != known.ignores {
            return None;
        }
        let (changed, gone) = self.compare(&known.folders);
        if changed.len() > MAX_RELISTED {
            return None;
        }
        for path in gone {
            remove(&mut known.folders, &path);
        }
        let ignore_bits: u32 = IGNORE_FILES.fold(0, |bits, bit| bits | 1 << bit);
        let changed: Vec<Box<str>> =
            changed.into_iter().filter(|path| known.folders.contains_key(path)).collect();
        let (listed, _) = self.walk(&changed, Some(1), racy_ns);
        for path in &changed {
            let now = listed.get(path)?;
            let before = known.folders.get(path).map_or(0, |folder| folder.marks & ignore_bits);
            if now.marks & ignore_bits != before {
                return None;
            }
            self.take_over(&mut known.folders, path, &listed, racy_ns)?;
        }
        (known.folders.len() <= MAX_FOLDERS).then_some(known)
    }

    /// Folders whose names have changed, and folders that are no more.
    fn compare(&self, folders: &Folders) -> (Vec<Box<str>>, Vec<Box<str>>) {
        let known: Vec<(&str, i64)> =
            folders.iter().map(|(path, folder)| (&**path, folder.changed_ns)).collect();
        let part = known.len().div_ceil(threads()).max(MIN_COMPARED);
        std::thread::scope(|scope| {
            let parts: Vec<_> =
                known.chunks(part).map(|part| scope.spawn(|| compare_part(&self.project, part))).collect();
            let (mut changed, mut gone) = (Vec::new(), Vec::new());
            for part in parts {
                // A part that panicked is looked at again as a whole.
                let (more_changed, more_gone) = part
                    .join()
                    .unwrap_or_else(|_| (known.iter().map(|(path, _)| (*path).into()).collect(), Vec::new()));
                changed.extend(more_changed);
                gone.extend(more_gone);
            }
            (changed, gone)
        })
    }

    /// Takes over what one folder was just seen to hold: its files, folders that are new, folders that are
    /// no more.
    fn take_over(&self, folders: &mut Folders, path: &str, listed: &Folders, racy_ns: i64) -> Option<()> {
        // It may have gone together with a folder above it.
        if !folders.contains_key(path) {
            return Some(());
        }
        let depth = if path.is_empty() { 0 } else { path.len() + 1 };
        let is_child = |inner: &&str| !inner[depth..].contains('/');
        let children = |of| below(of, path).map(|(inner, _)| inner).filter(is_child);
        let lost: Vec<Box<str>> =
            children(folders).filter(|inner| !listed.contains_key(*inner)).map(Into::into).collect();
        let new: Vec<Box<str>> =
            children(listed).filter(|inner| !folders.contains_key(*inner)).map(Into::into).collect();
        folders.insert(path.into(), listed.get(path)?.clone());
        for inner in lost {
            remove(folders, &inner);
        }
        if new.is_empty() {
            return Some(());
        }
        let (new, truncated) = self.walk(&new, None, racy_ns);
        folders.extend(new);
        (!truncated).then_some(())
    }

    /// Walks from folders of the project. With a depth of 1, the folders in them are named but not looked
    /// into.
    fn walk(&self, from: &[Box<str>], max_depth: Option<usize>, racy_ns: i64) -> (Folders, bool) {
        let Some((first, more)) = from.split_first() else { return (Folders::new(), false) };
        let mut builder = WalkBuilder::new(self.project.join(&**first));
        for folder in more {
            builder.add(self.project.join(&**folder));
        }
        builder
            .hidden(false)
            .require_git(false)
            .max_depth(max_depth)
            .threads(if max_depth.is_some() { 1 } else { threads() })
            .filter_entry(|entry| entry.depth() == 0 || !is_skipped(entry));
        let sink = Mutex::new(Folders::new());
        let count = AtomicUsize::new(0);
        let truncated = AtomicBool::new(false);
        if max_depth.is_some() {
            let mut part = Part::new(&sink, &self.project, racy_ns);
            for entry in builder.build().flatten() {
                part.see(&entry);
            }
        } else {
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
        }
        let folders = sink.into_inner().unwrap_or_else(PoisonError::into_inner);
        (folders, truncated.into_inner())
    }
}

/// Looks at the times of some folders: those that changed, and those that are gone.
fn compare_part(project: &Path, known: &[(&str, i64)]) -> (Vec<Box<str>>, Vec<Box<str>>) {
    let (mut changed, mut gone) = (Vec::new(), Vec::new());
    for (path, known_ns) in known {
        let at = if path.is_empty() { project.to_path_buf() } else { project.join(path) };
        match fs::symlink_metadata(&at) {
            Ok(meta) if !meta.is_dir() => gone.push((*path).into()),
            Ok(meta) if *known_ns != 0 && changed_ns(&meta) == *known_ns => {}
            Ok(_) => changed.push((*path).into()),
            Err(_) => gone.push((*path).into()),
        }
    }
    (changed, gone)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

fn is_skipped(entry: &DirEntry) -> bool {
    entry.file_name().to_str().is_some_and(|name| SKIPPED.contains(&name))
        && entry.file_type().is_some_and(|kind| kind.is_dir())
}

fn changed_ns(meta: &Metadata) -> i64 {
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
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
        if entry.file_type().is_some_and(|kind| kind.is_dir()) {
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
    Ok(Answer::Command(core::Command::Workspace(Command::Indexed(Arc::new(index)))))
}
