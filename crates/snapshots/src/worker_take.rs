//! Taking a snapshot: one walk, one commit.

use crate::diff::View;
use crate::meta::{self, Meta};
use crate::worker_store::{Id, Node, Store, What, add_node};
use crate::worker_walk::{self, Walk};
use crate::{index, rules};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use svc_sys::beneath::Root;
use svc_sys::files::replace_soon;
use svc_sys::regular;

/// Bytes of an `info/exclude`; a longer one is none.
const MAX_EXCLUDE_BYTES: u64 = 1 << 20;

/// A working folder.
#[derive(Debug, Clone)]
pub struct Place {
    /// The folder itself.
    pub root: PathBuf,
    /// Where it is kept what was seen there last.
    pub index: PathBuf,
    /// The repository's own patterns, if there are any.
    pub exclude: PathBuf,
    /// Patterns beside these.
    pub also: &'static str,
}

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub commit: Id,
    /// The tree of the folder's files.
    pub files_tree: Id,
    /// What git's tree cannot say.
    pub meta: Id,
    pub files: u64,
    /// What was left out, and why: [`crate::MAX_NAMED`] at most are named.
    pub left: Vec<(String, &'static str)>,
    pub left_count: u64,
    pub took: Duration,
}

/// Takes a snapshot; `message` is the commit's.
///
/// Errors: `TimedOut` when it is not done within `limit`; what it has kept by then makes the next one faster.
/// And the system's words.
pub fn take(store: &Store, place: &Place, message: &str, limit: Duration) -> io::Result<Taken> {
    let began = Instant::now();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let root = Root::open(&place.root)?;
    let excluded = format!("{}\n{}", exclude(&place.exclude), place.also);
    let file = fs::read(&place.index).unwrap_or_default();
    let old = index::read(&file);
    let mask = old.map_or_else(umask, |(_, mask, _)| mask);
    let mut walk = Walk {
        store,
        rules: rules::Rules::new(&root, &excluded),
        reliable_ns: worker_walk::reliable(old.map_or(0, |(began, ..)| began)),
        deadline: began + limit,
        mask,
        out: Vec::with_capacity(file.len() + 1024),
        modes: String::new(),
        left: Vec::new(),
        left_count: 0,
        files: 0,
        has_racy: false,
    };
    index::begin(&mut walk.out, began_ns, mask);
    let number = worker_walk::first_number(&excluded);
    let files_tree = walk.root(&root, old.map(|(.., root)| root), number)?;
    let Walk { out, modes, left, left_count, files, has_racy, .. } = walk;
    let meta = store.put("blob", meta::text(mask, &modes, &left).as_bytes())?;
    let mut tree = Vec::new();
    add_node(&mut tree, "files", Node { what: What::Folder, id: files_tree });
    add_node(&mut tree, "meta", Node { what: What::File, id: meta });
    let tree = store.put("tree", &tree)?;
    let who = format!("svc <svc@localhost> {} +0000", now.as_secs());
    let commit = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\n{message}\n");
    let commit = store.put("commit", commit.as_bytes())?;
    let head = index::MAGIC.len() + 8;
    if has_racy || out.get(head..) != file.get(head..) {
        replace_soon(&place.index, &out)?;
    }
    Ok(Taken { commit, files_tree, meta, files, left, left_count, took: began.elapsed() })
}

/// A snapshot to be asked, of its two halves.
///
/// Errors: the store cannot be read.
pub fn view(store: &Store, files_tree: Id, meta: Id) -> io::Result<View<'_>> {
    let text = store.get(meta)?;
    let read = std::str::from_utf8(&text).ok().and_then(Meta::read);
    let meta = read.ok_or_else(|| io::Error::other("what belongs to a snapshot cannot be read"))?;
    Ok(View::new(store, files_tree, meta))
}

fn exclude(path: &Path) -> String {
    let is_small = fs::symlink_metadata(path).is_ok_and(|meta| meta.len() <= MAX_EXCLUDE_BYTES);
    is_small
        .then(|| regular::read(path).ok())
        .flatten()
        .map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The permission bits that new files of this process do not get; the usual ones where that is not told.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022)
}
