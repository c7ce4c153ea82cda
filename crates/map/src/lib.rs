//! A map of a codebase: which files a task is about, what they define, how to build and test them.
//!
//! ```text
//! files ──refresh──▶ digests (words, names) ──ranked by task, scope, users──▶ text that fits a room
//! ```
//! A digest holds numbers alone; what is told of a file is read anew, so that it is never stale. No model is
//! asked, and nothing is guessed from what is not there.

mod commands;
mod digest;
mod order;
mod rank;
mod render;
mod symbols;
mod words;
mod worker_look;

pub use order::Order;
pub use rank::{Ranked, Wish};

use digest::Digest;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use svc_sys::beneath::Root;

/// Files that a map holds; a larger project is cut, and the map says so.
pub const MAX_FILES: usize = 50_000;
/// A larger file is generated, or data: it is known by its path.
pub const FILE_BYTES: u64 = 512 << 10;
/// Bytes of all digests together; files beyond are known by their paths.
pub const DIGEST_BYTES: usize = 40 << 20;
/// What is known of a project's files.
pub struct Map {
    root: PathBuf,
    files: BTreeMap<Box<str>, File>,
    /// Whether there are more files, or more in them, than it holds.
    pub is_cut: bool,
}

pub(crate) struct File {
    changed_ns: i64,
    bytes: u64,
    digest: Digest,
}

/// What a look at the project found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refreshed {
    pub files: usize,
    /// Read because they were new or had changed.
    pub read: usize,
}

impl Map {
    /// Of this folder; nothing is known yet.
    pub fn new(root: PathBuf) -> Self {
        Self { root, files: BTreeMap::new(), is_cut: false }
    }

    /// Looks at all files, and reads those that are new or have changed. `stop` makes it end soon, with what
    /// it had before.
    ///
    /// Errors: the folder cannot be opened.
    pub fn refresh(&mut self, stop: &AtomicBool) -> io::Result<Refreshed> {
        let seen = worker_look::look(&self.root, &self.files, stop)?;
        if stop.load(Ordering::Relaxed) {
            return Ok(Refreshed { files: self.files.len(), read: 0 });
        }
        let mut before = std::mem::take(&mut self.files);
        let mut done = Refreshed::default();
        let mut held = 0;
        self.is_cut = seen.is_cut;
        for (path, file) in seen.files {
            let mut file = match file {
                Some(file) => {
                    done.read += 1;
                    file
                }
                None => match before.remove(&path) {
                    Some(file) => file,
                    None => continue,
                },
            };
            held += file.digest.bytes();
            if held > DIGEST_BYTES {
                self.is_cut = true;
                file.digest = Digest::default();
            }
            self.files.insert(path, file);
        }
        done.files = self.files.len();
        Ok(done)
    }

    /// The text of one of its files.
    fn read(&self, path: &str) -> Option<String> {
        worker_look::read(&Root::open(&self.root).ok()?, path)
    }
}
