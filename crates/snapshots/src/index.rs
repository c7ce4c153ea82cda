//! What was seen of a working folder last, so that only what has changed since is read. A file:
//!
//! ```text
//! magic, when the look began, folder
//! folder = bytes of the rest, times, rules, tree, flags, files, folders
//! ```
//! It is read in place, in the order in which the folder is walked, and written in one piece.

use crate::worker_store::Id;
use svc_sys::beneath::{Kind, Stat};

/// What the file begins with; another version is as none.
pub(crate) const MAGIC: &[u8; 8] = b"svcsnap2";

/// What is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub stat: Stat,
    /// Its content; none for what was left out.
    pub id: Option<Id>,
}

/// A folder as it was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Folder<'a> {
    pub changed_ns: i64,
    /// Which rules held there, as a number.
    pub rules: u64,
    pub tree: Option<Id>,
    /// Whether it has rules of its own.
    pub has_rules: bool,
    /// Whether it was left out as another repository.
    pub is_foreign: bool,
    files: &'a [u8],
    folders: &'a [u8],
}

/// Reads numbers and names one behind the other; what is cut is none.
#[derive(Debug, Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.u32()?).ok()?;
        self.bytes(count)
    }

    fn name(&mut self) -> Option<&'a str> {
        let count = usize::from(u16::from_le_bytes(self.array()?));
        std::str::from_utf8(self.bytes(count)?).ok()
    }
}

/// The name of an object; 32 zeros are none.
fn named(id: [u8; 32]) -> Option<Id> {
    (id != [0; 32]).then_some(Id(id))
}

/// When the look began, the permissions that go without saying, and the root.
pub(crate) fn read(file: &[u8]) -> Option<(i64, u32, Folder<'_>)> {
    let mut reader = Reader(file.strip_prefix(MAGIC)?);
    let (began_ns, mask) = (reader.i64()?, reader.u32()?);
    Some((began_ns, mask, folder(reader.block()?)?))
}

fn folder(bytes: &[u8]) -> Option<Folder<'_>> {
    let mut reader = Reader(bytes);
    let (changed_ns, rules, tree) = (reader.i64()?, reader.u64()?, named(reader.array()?));
    let [flags] = reader.array()?;
    let (files, folders) = (reader.block()?, reader.0);
    Some(Folder {
        changed_ns,
        rules,
        tree,
        has_rules: flags & 1 > 0,
        is_foreign: flags & 2 > 0,
        files,
        folders,
    })
}

impl<'a> Folder<'a> {
    /// Its files, by name.
    pub fn files(&self) -> impl Iterator<Item = (&'a str, Seen)> + use<'a> {
        let mut reader = Reader(self.files);
        std::iter::from_fn(move || {
            let name = reader.name()?;
            let [kind] = reader.array()?;
            let kind = match kind {
                0 => Kind::File,
                1 => Kind::Link,
                2 => Kind::Folder,
                _ => Kind::Other,
            };
            let (mode, bytes, changed_ns) = (reader.u32()?, reader.u64()?, reader.i64()?);
            let (touched_ns, inode) = (reader.i64()?, reader.u64()?);
            let stat = Stat { kind, mode, bytes, changed_ns, touched_ns, inode };
            Some((name, Seen { stat, id: named(reader.array()?) }))
        })
    }

    /// The folders in it, by name.
    pub fn folders(&self) -> impl Iterator<Item = (&'a str, Folder<'a>)> + use<'a> {
        let mut reader = Reader(self.folders);
        std::iter::from_fn(move || {
            let name = reader.name()?;
            Some((name, folder(reader.block()?)?))
        })
    }
}

/// Writes the head of the file.
pub(crate) fn begin(out: &mut Vec<u8>, began_ns: i64, mask: u32) {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&began_ns.to_le_bytes());
    out.extend_from_slice(&mask.to_le_bytes());
}

/// Leaves room for the length of what comes; gives it to [`close`].
pub(crate) fn open(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len()
}

/// Ends what was opened there.
pub(crate) fn close(out: &mut [u8], at: usize) {
    let length = u32::try_from(out.len() - at).unwrap_or(u32::MAX);
    out[at - 4..at].copy_from_slice(&length.to_le_bytes());
}

/// What a folder's record begins with. Its tree and its flags are known at its end.
pub(crate) fn add_head(out: &mut Vec<u8>, changed_ns: i64, rules: u64) -> usize {
    out.extend_from_slice(&changed_ns.to_le_bytes());
    out.extend_from_slice(&rules.to_le_bytes());
    out.extend_from_slice(&[0; 33]);
    out.len() - 33
}

/// See [`add_head`].
pub(crate) fn set_head(out: &mut [u8], at: usize, tree: Option<Id>, has_rules: bool, is_foreign: bool) {
    out[at..at + 32].copy_from_slice(&tree.map_or([0; 32], |id| id.0));
    out[at + 32] = u8::from(has_rules) | u8::from(is_foreign) << 1;
}

/// A folder that is another repository: nothing in it is known.
pub(crate) fn add_foreign(out: &mut Vec<u8>, changed_ns: i64) {
    let head = add_head(out, changed_ns, 0);
    set_head(out, head, None, false, true);
    let no_files = open(out);
    close(out, no_files);
}

/// A name.
pub(crate) fn add_name(out: &mut Vec<u8>, name: &str) {
    let length = u16::try_from(name.len()).unwrap_or_default();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&name.as_bytes()[..usize::from(length)]);
}

/// A file.
pub(crate) fn add_file(out: &mut Vec<u8>, name: &str, seen: &Seen) {
    add_name(out, name);
    let Stat { kind, mode, bytes, changed_ns, touched_ns, inode } = seen.stat;
    out.push(match kind {
        Kind::File => 0,
        Kind::Link => 1,
        Kind::Folder => 2,
        Kind::Other => 3,
    });
    out.extend_from_slice(&mode.to_le_bytes());
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(&changed_ns.to_le_bytes());
    out.extend_from_slice(&touched_ns.to_le_bytes());
    out.extend_from_slice(&inode.to_le_bytes());
    out.extend_from_slice(&seen.id.map_or([0; 32], |id| id.0));
}
