//! What is left out of a snapshot: what `.gitignore` files say, the repository's own `info/exclude`, and what
//! is never taken.

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::io::Read;
use svc_sys::beneath::{Root, Stat};

/// Never part of a snapshot, wherever it is: git's own, and the daemon's.
pub const NEVER: [&str; 2] = [".git", ".svc"];
/// How the names of files begin that an undo is about to put in place.
pub(crate) const TEMPORARY: &str = ".svc-undo-";
/// The rules of a folder, and of those below.
pub(crate) const FILE: &str = ".gitignore";
/// Bytes of such a file; what is behind is not read.
const MAX_BYTES: u64 = 1 << 20;

/// The rules of one file.
struct Level {
    folder: String,
    /// Made when somebody asks.
    matcher: Option<Gitignore>,
}

/// The rules on the way from the root to where the walk is.
pub(crate) struct Rules<'a> {
    root: &'a Root,
    excluded: Gitignore,
    levels: Vec<Level>,
}

impl<'a> Rules<'a> {
    /// Of the root; `excluded` is the text of `info/exclude`.
    pub fn new(root: &'a Root, excluded: &str) -> Self {
        Self { root, excluded: matcher("", excluded), levels: Vec::new() }
    }

    /// From here on the rules in this folder hold, too.
    pub fn enter(&mut self, folder: &str) {
        self.levels.push(Level { folder: folder.to_owned(), matcher: None });
    }

    /// They hold no longer.
    pub fn leave(&mut self) {
        self.levels.pop();
    }

    /// Whether this is left out. Closer rules come before those further up.
    pub fn ignores(&mut self, path: &str, is_folder: bool) -> bool {
        let root = self.root;
        for level in self.levels.iter_mut().rev() {
            let rules =
                level.matcher.get_or_insert_with(|| matcher(&level.folder, &text(root, &level.folder)));
            let verdict = rules.matched(path, is_folder);
            if !verdict.is_none() {
                return verdict.is_ignore();
            }
        }
        self.excluded.matched(path, is_folder).is_ignore()
    }
}

fn text(root: &Root, folder: &str) -> String {
    let path = if folder.is_empty() { FILE.to_owned() } else { format!("{folder}/{FILE}") };
    let mut bytes = Vec::new();
    if let Ok(file) = root.file(&path) {
        // What cannot be read has no rules.
        let _ = file.take(MAX_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn matcher(folder: &str, text: &str) -> Gitignore {
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.lines() {
        // A line that is no rule is none for git either.
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// A number for the rules that hold in a folder: those above it, and its own file as it is.
pub(crate) fn number(above: u64, own: Option<&Stat>) -> u64 {
    let Some(own) = own else { return above };
    let parts = [own.bytes, own.inode, own.changed_ns.unsigned_abs(), own.touched_ns.unsigned_abs()];
    parts.into_iter().fold(above, mix)
}

/// FNV over numbers.
pub(crate) fn mix(sum: u64, part: u64) -> u64 {
    part.to_le_bytes().iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
