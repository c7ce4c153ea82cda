//! The walk over a project's files, by several threads.

use super::digest::Digest;
use super::{DIGEST_BYTES, FILE_BYTES, File, MAX_FILES, symbols};
use ignore::{DirEntry, WalkBuilder, WalkState};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use svc_base::folders::SKIPPED;
use svc_sys::beneath::{Root, changed_ns};

/// Threads that read.
const MAX_THREADS: usize = 4;

/// Files that are no source and yet what a task may be about.
const OTHERS: &[&str] = &[
    "md", "rst", "txt", "adoc", "toml", "yaml", "yml", "json", "html", "htm", "css", "scss", "sass", "less",
    "sql", "graphql", "proto", "xml", "gradle", "tf", "cmake", "mk", "ini", "cfg", "conf", "j2", "tmpl",
    "hbs", "ejs", "erb",
];
/// Files without an ending that are told by their names.
const NAMED: &[&str] =
    &["Makefile", "Dockerfile", "Rakefile", "Gemfile", "Jenkinsfile", "justfile", "Caddyfile"];
/// Names of files that others write.
const LOCKS: &[&str] =
    &["package-lock.json", "pnpm-lock.yaml", "composer.lock", "npm-shrinkwrap.json", "Cargo.lock", "go.sum"];

/// Looks at all files of a folder, and reads those of which `known` is not the same.
///
/// Errors: the folder cannot be opened.
pub fn look(folder: &Path, known: &BTreeMap<Box<str>, File>, stop: &AtomicBool) -> io::Result<Seen> {
    Look::at(folder, known, stop)
}

/// A walk over a project by several threads.
struct Look<'a> {
    root: Root,
    folder: &'a Path,
    known: &'a BTreeMap<Box<str>, File>,
    found: Mutex<Seen>,
    count: AtomicUsize,
    held: AtomicUsize,
    stop: &'a AtomicBool,
}

/// Files by path; `None` where nothing has changed.
#[derive(Default)]
pub struct Seen {
    pub files: BTreeMap<Box<str>, Option<File>>,
    pub is_cut: bool,
}

impl<'a> Look<'a> {
    fn at(folder: &'a Path, known: &'a BTreeMap<Box<str>, File>, stop: &'a AtomicBool) -> io::Result<Seen> {
        let root = Root::open(folder)?;
        let look = Look {
            root,
            folder,
            known,
            found: Mutex::default(),
            count: AtomicUsize::new(0),
            held: AtomicUsize::new(known.values().map(|file| file.digest.bytes()).sum()),
            stop,
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let mut walker = WalkBuilder::new(folder);
        walker.hidden(false).require_git(false).threads(threads);
        walker.filter_entry(|entry| {
            entry.depth() == 0 || !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped)
        });
        walker.build_parallel().run(|| {
            let look = &look;
            let mut part = Part { look, files: Vec::new() };
            Box::new(move |entry| {
                // What cannot be read is not there for the agents either.
                if let Ok(entry) = entry {
                    part.see(&entry);
                }
                let is_full = look.count.load(Ordering::Relaxed) > MAX_FILES;
                if is_full || look.stop.load(Ordering::Relaxed) {
                    WalkState::Quit
                } else {
                    WalkState::Continue
                }
            })
        });
        let mut seen = look.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        seen.is_cut = look.count.into_inner() > MAX_FILES;
        Ok(seen)
    }
}

/// What one thread has seen; given to the others when it is done.
struct Part<'a, 'b> {
    look: &'a Look<'b>,
    files: Vec<(Box<str>, Option<File>)>,
}

impl Part<'_, '_> {
    fn see(&mut self, entry: &DirEntry) {
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            return;
        }
        let Some(path) = entry.path().strip_prefix(self.look.folder).ok().and_then(Path::to_str) else {
            return;
        };
        let Some(meta) = entry.metadata().ok().filter(|_| is_wanted(path)) else { return };
        if self.look.count.fetch_add(1, Ordering::Relaxed) >= MAX_FILES {
            return;
        }
        let (changed_ns, bytes) = (changed_ns(&meta), meta.len());
        let known = self.look.known.get(path);
        let file = match known {
            Some(known) if (known.changed_ns, known.bytes) == (changed_ns, bytes) => None,
            _ => Some(File { changed_ns, bytes, digest: self.digest(path, bytes) }),
        };
        self.files.push((path.into(), file));
    }

    fn digest(&self, path: &str, bytes: u64) -> Digest {
        if bytes > FILE_BYTES || self.look.held.load(Ordering::Relaxed) > DIGEST_BYTES {
            return Digest::default();
        }
        let digest = read(&self.look.root, path).map(|text| Digest::of(path, &text)).unwrap_or_default();
        self.look.held.fetch_add(digest.bytes(), Ordering::Relaxed);
        digest
    }
}

impl Drop for Part<'_, '_> {
    fn drop(&mut self) {
        let mut found = self.look.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.files.extend(self.files.drain(..));
    }
}

/// The text of a file of the project, without following links; `None` for what is no text.
pub fn read(root: &Root, path: &str) -> Option<String> {
    let file = root.file(path).ok()?;
    let mut text = String::new();
    file.take(FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

fn is_wanted(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    let is_other = ending.map_or(NAMED.contains(&name), |ending| OTHERS.contains(&ending));
    (symbols::is_known(path) || is_other) && !LOCKS.contains(&name) && !name.contains(".min.")
}
