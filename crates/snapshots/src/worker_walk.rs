//! The walk over a working folder: what has changed since the last one is read and kept, all else is only
//! looked at.

use crate::index::{self, Folder, Seen};
use crate::rules::{FILE, NEVER, Rules, TEMPORARY, mix, number};
use crate::worker_store::{Id, Node, Store, What, add_node};
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::iter::{from_fn, once};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;
use svc_sys::beneath::{Dir, Kind, Root, Stat};

/// A larger file is left out, and that is told.
pub const MAX_FILE_BYTES: u64 = 32 << 20;
/// Folders in folders; deeper ones are left out, and that is told.
pub const MAX_DEPTH: usize = 128;
/// What changed so shortly before a look may change again without another time of change.
const RACY_NS: i64 = 40_000_000;
/// What was left out and is named; more is only counted.
pub const MAX_NAMED: usize = 200;

/// What is to be walked.
pub(crate) struct Walk<'a> {
    pub store: &'a Store,
    pub rules: Rules<'a>,
    /// Nanoseconds since 1970 before which the last look can be relied on.
    pub reliable_ns: i64,
    pub deadline: Instant,
    /// Permission bits that files usually do not have.
    pub mask: u32,
    pub out: Vec<u8>,
    /// Paths with other permissions than usual, as [`crate::meta`] has them.
    pub modes: String,
    /// What was left out and why.
    pub left: Vec<(String, &'static str)>,
    pub left_count: u64,
    pub files: u64,
    /// Whether something was looked at anew that the last look cannot vouch for.
    pub has_racy: bool,
}

/// What became of a folder.
enum Became {
    Tree(Option<Id>),
    Foreign,
}

fn as_folder(name: &str) -> impl Iterator<Item = u8> + '_ {
    name.bytes().chain(once(b'/'))
}

/// Git's order of folders.
fn order(one: &str, other: &str) -> Ordering {
    as_folder(one).cmp(as_folder(other))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// The names that are listed, in this order, each with what the last look has of it; without a list, all that
/// the last look has.
fn with_before<'a, T>(
    listed: Option<&'a [String]>,
    before: impl Iterator<Item = (&'a str, T)>,
    order: fn(&str, &str) -> Ordering,
) -> impl Iterator<Item = (&'a str, Option<T>)> {
    let mut before = before.peekable();
    let mut listed = listed.map(<[String]>::iter);
    from_fn(move || {
        let Some(listed) = &mut listed else { return before.next().map(|(name, was)| (name, Some(was))) };
        let name = listed.next()?.as_str();
        while before.next_if(|(old, _)| order(old, name).is_lt()).is_some() {}
        Some((name, before.next_if(|(old, _)| *old == name).map(|(_, was)| was)))
    })
}

impl Walk<'_> {
    /// Walks the root; its tree.
    pub fn root(&mut self, root: &Root, old: Option<Folder<'_>>, rules: u64) -> io::Result<Id> {
        let dir = root.dir("")?;
        match self.folder("", &dir, old, rules, 0)? {
            Became::Tree(Some(id)) => Ok(id),
            _ => self.store.put("tree", b""),
        }
    }

    fn leave(&mut self, path: &str, why: &'static str) {
        self.left_count += 1;
        if self.left.len() < MAX_NAMED {
            self.left.push((path.to_owned(), why));
        }
    }

    fn check_time(&self) -> io::Result<()> {
        if Instant::now() < self.deadline { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    fn folder(
        &mut self,
        path: &str,
        dir: &Dir,
        old: Option<Folder<'_>>,
        above: u64,
        depth: usize,
    ) -> io::Result<Became> {
        self.check_time()?;
        let own = dir.stat("")?;
        let old = old.filter(|old| !old.is_foreign);
        let at = index::open(&mut self.out);
        // Names come and go only with its time of change.
        let same_names =
            old.filter(|old| old.changed_ns == own.changed_ns && own.changed_ns < self.reliable_ns);
        let is_foreign = !path.is_empty() && same_names.is_none() && dir.stat(NEVER[0]).is_ok();
        if is_foreign {
            self.leave(path, "a repository of its own");
            index::add_foreign(&mut self.out, own.changed_ns);
            index::close(&mut self.out, at);
            return Ok(Became::Foreign);
        }
        let asks = same_names.is_none_or(|old| old.has_rules);
        let own_rules = if asks { dir.stat(FILE).ok().filter(|stat| stat.kind == Kind::File) } else { None };
        let rules = number(above, own_rules.as_ref());
        if own_rules.is_some() {
            self.rules.enter(path);
        }
        let known = same_names.filter(|old| old.rules == rules);
        self.has_racy |= known.is_none();
        let names = if known.is_none() { Some(self.list(path, dir)?) } else { None };
        let relies = names.as_ref().is_none_or(|names| names.is_told);
        let head = index::add_head(&mut self.out, if relies { own.changed_ns } else { 0 }, rules);
        let mut is_same = known.is_some();
        let files = self.files(path, dir, old, names.as_ref(), &mut is_same)?;
        let folders = self.folders(path, dir, old, names.as_ref(), rules, depth, &mut is_same)?;
        let tree = match old {
            Some(old) if is_same => old.tree,
            _ => self.tree(&files, &folders)?,
        };
        index::set_head(&mut self.out, head, tree, own_rules.is_some(), false);
        index::close(&mut self.out, at);
        if own_rules.is_some() {
            self.rules.leave();
        }
        Ok(Became::Tree(tree))
    }

    fn tree(&self, files: &[(String, Node)], folders: &[(String, Node)]) -> io::Result<Option<Id>> {
        let mut bytes = Vec::with_capacity((files.len() + folders.len()) * 64);
        let (mut files, mut folders) = (files.iter().peekable(), folders.iter().peekable());
        loop {
            let is_file = match (files.peek(), folders.peek()) {
                (Some((file, _)), Some((folder, _))) => file.bytes().lt(as_folder(folder)),
                (file, _) => file.is_some(),
            };
            let Some((name, node)) = (if is_file { files.next() } else { folders.next() }) else { break };
            add_node(&mut bytes, name, *node);
        }
        if bytes.is_empty() { Ok(None) } else { self.store.put("tree", &bytes).map(Some) }
    }

    /// The files, which are read where they may have changed.
    fn files(
        &mut self,
        path: &str,
        dir: &Dir,
        old: Option<Folder<'_>>,
        names: Option<&Names>,
        is_same: &mut bool,
    ) -> io::Result<Vec<(String, Node)>> {
        let at = index::open(&mut self.out);
        let mut found = Vec::new();
        let before = old.into_iter().flat_map(|old| old.files());
        let listed = names.map(|names| names.files.as_slice());
        for (name, was) in with_before(listed, before, str::cmp) {
            let Some(seen) = self.file(path, dir, name, was)? else {
                *is_same = false;
                continue;
            };
            *is_same &= was.is_some_and(|was| was.id == seen.id && was.stat.mode == seen.stat.mode);
            index::add_file(&mut self.out, name, &seen);
            if let Some(id) = seen.id {
                found.push((name.to_owned(), Node { what: what(&seen.stat), id }));
            }
        }
        index::close(&mut self.out, at);
        Ok(found)
    }

    /// What is known of a file now; none when it is gone, or has become a folder.
    fn file(&mut self, path: &str, dir: &Dir, name: &str, was: Option<Seen>) -> io::Result<Option<Seen>> {
        let stat = match dir.stat(name) {
            Ok(stat) if stat.kind == Kind::Folder => return Ok(None),
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(_) => {
                self.leave(&join(path, name), "it cannot be looked at");
                return Ok(None);
            }
        };
        let is_old = stat.changed_ns.max(stat.touched_ns) < self.reliable_ns;
        let known = was.filter(|was| was.stat == stat && is_old).and_then(|was| was.id);
        let id = match known {
            Some(id) => Some(id),
            None => self.read(path, dir, name, &stat)?,
        };
        if id.is_some() {
            self.files += 1;
            let usual = if stat.mode & 0o100 > 0 { 0o777 } else { 0o666 } & !self.mask;
            if stat.kind == Kind::File && stat.mode != usual {
                // Writing to a string cannot fail.
                let _ = write!(self.modes, "m{:o} {}\0", stat.mode, join(path, name));
            }
        }
        Ok(Some(Seen { stat, id }))
    }

    /// Reads what may have changed, and keeps it.
    fn read(&mut self, path: &str, dir: &Dir, name: &str, stat: &Stat) -> io::Result<Option<Id>> {
        self.has_racy = true;
        let why = match stat.kind {
            Kind::File if stat.bytes > MAX_FILE_BYTES => "it is larger than 32 MiB",
            Kind::Other | Kind::Folder => "it is a socket, a pipe or a device",
            Kind::Link => match dir.link_target(name) {
                Ok(target) => return self.store.put("blob", target.as_os_str().as_bytes()).map(Some),
                Err(_) => "it cannot be read",
            },
            Kind::File => match content(dir, name) {
                Ok(Some(bytes)) => {
                    self.check_time()?;
                    return self.store.put("blob", &bytes).map(Some);
                }
                Ok(None) => "it is larger than 32 MiB",
                Err(_) => "it cannot be read",
            },
        };
        self.leave(&join(path, name), why);
        Ok(None)
    }

    #[expect(clippy::too_many_arguments, reason = "one walk, in two halves")]
    fn folders(
        &mut self,
        path: &str,
        dir: &Dir,
        old: Option<Folder<'_>>,
        names: Option<&Names>,
        rules: u64,
        depth: usize,
        is_same: &mut bool,
    ) -> io::Result<Vec<(String, Node)>> {
        let mut found = Vec::new();
        let before = old.into_iter().flat_map(|old| old.folders());
        let listed = names.map(|names| names.folders.as_slice());
        for (name, was) in with_before(listed, before, order) {
            let below = join(path, name);
            if depth == MAX_DEPTH {
                self.leave(&below, "it is too deep");
                *is_same = false;
                continue;
            }
            let inner = match dir.dir(name) {
                Ok(inner) => inner,
                Err(error) => {
                    // Gone, or a file or a link by now. Of all else it is not known what it holds.
                    if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                        self.leave(&below, "it cannot be read");
                    }
                    *is_same = false;
                    continue;
                }
            };
            index::add_name(&mut self.out, name);
            let became = self.folder(&below, &inner, was, rules, depth + 1)?;
            let Became::Tree(tree) = became else {
                *is_same &= was.is_some_and(|was| was.is_foreign);
                continue;
            };
            *is_same &= was.is_some_and(|was| !was.is_foreign && was.tree == tree);
            if let Some(id) = tree {
                found.push((name.to_owned(), Node { what: What::Folder, id }));
            }
        }
        Ok(found)
    }

    fn list(&mut self, path: &str, dir: &Dir) -> io::Result<Names> {
        let mut names = Names { is_told: true, ..Names::default() };
        for entry in dir.entries()? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                self.leave(&join(path, &entry.file_name().to_string_lossy()), "its name is not UTF-8");
                // It is told again every time.
                names.is_told = false;
                continue;
            };
            let Ok(kind) = entry.file_type() else { continue };
            let is_own = NEVER.contains(&name.as_str()) || name.starts_with(TEMPORARY);
            if is_own || self.rules.ignores(&join(path, &name), kind.is_dir()) {
                continue;
            }
            if kind.is_dir() { names.folders.push(name) } else { names.files.push(name) }
        }
        names.files.sort_unstable();
        // With the slash that git's order has behind them.
        names.folders.iter_mut().for_each(|name| name.push('/'));
        names.folders.sort_unstable();
        names.folders.iter_mut().for_each(|name| name.truncate(name.len() - 1));
        Ok(names)
    }
}

#[derive(Default)]
struct Names {
    files: Vec<String>,
    folders: Vec<String>,
    /// Whether all of its names are here.
    is_told: bool,
}

/// What a file or a link is in a tree.
pub(crate) fn what(stat: &Stat) -> What {
    match stat.kind {
        Kind::Link => What::Link,
        _ if stat.mode & 0o100 > 0 => What::Program,
        _ => What::File,
    }
}

/// The bytes of a file; none when it is too large.
pub(crate) fn content(dir: &Dir, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut file = dir.file(name)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes =
        Vec::with_capacity(usize::try_from(meta.len().min(MAX_FILE_BYTES)).unwrap_or_default() + 1);
    file.by_ref().take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= MAX_FILE_BYTES).then_some(bytes))
}

/// The moment before which a look that began then can be relied on.
pub(crate) fn reliable(began_ns: i64) -> i64 {
    began_ns - RACY_NS
}

/// The number of the rules above the root.
pub(crate) fn first_number(excluded: &str) -> u64 {
    excluded.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| mix(sum, u64::from(byte)))
}
