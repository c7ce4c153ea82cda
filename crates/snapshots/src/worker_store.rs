//! A git object store: objects are written here, loose and as they are, and read back from there; what was
//! packed since is read by whoever may run git.
//!
//! No filter, no driver and no setting has a part in it: an object is a few bytes before those of a file.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use svc_sys::files::{missing_is_fine, replace_soon};

/// What git has to know of the store. Objects are named by SHA-256; nothing in it names a program.
pub const SETTINGS: &str =
    "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n";
/// Bytes of one piece of a stream that is not compressed.
const PIECE_BYTES: usize = 65_535;
/// What such a stream begins with.
const STREAM: [u8; 2] = [0x78, 0x01];
/// Bytes written at once.
const BUFFER_BYTES: usize = 128 << 10;
/// How the names of files begin that are not objects yet; git removes old ones.
const TEMPORARY: &str = "tmp_obj_";
/// Where names of objects are.
const NAMES: &str = "refs/svc";

/// The name of an object: the SHA-256 of what it holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub [u8; 32]);

impl Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Id {
    /// Of its hexadecimal text.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        let mut id = [0; 32];
        if text.len() != 64 {
            return None;
        }
        for (byte, pair) in id.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(id))
    }
}

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("no name of an object"))
    }
}

/// Reads objects that are in no file of their own any more; in the order asked, without their heads.
pub type Packed = dyn Fn(&[Id]) -> io::Result<Vec<Vec<u8>>> + Send + Sync;

/// The store.
pub struct Store {
    folder: PathBuf,
    packed: Box<Packed>,
    next: AtomicU64,
}

impl Store {
    /// Opens the store in `folder`, and makes one where there is none.
    ///
    /// Errors: the system's words.
    pub fn open(folder: &Path, packed: Box<Packed>) -> io::Result<Self> {
        for part in ["objects/pack", NAMES] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder.join(part))?;
        }
        if !folder.join("HEAD").exists() {
            replace_soon(&folder.join("config"), SETTINGS.as_bytes())?;
            replace_soon(&folder.join("HEAD"), b"ref: refs/heads/none\n")?;
        }
        Ok(Self { folder: folder.to_path_buf(), packed, next: AtomicU64::new(0) })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps an object; it is written unless it is there.
    ///
    /// Errors: the system's words.
    pub fn put(&self, kind: &str, bytes: &[u8]) -> io::Result<Id> {
        let head = format!("{kind} {}\0", bytes.len());
        let id = name_of(&head, bytes);
        let path = self.place(id);
        if let Ok(file) = File::open(&path) {
            // As if it were written now: what removes old ones spares it.
            let _ = file.set_modified(SystemTime::now());
            return Ok(id);
        }
        self.write(&path, head.as_bytes(), bytes)?;
        Ok(id)
    }

    fn write(&self, path: &Path, head: &[u8], bytes: &[u8]) -> io::Result<()> {
        let folder = path.parent().unwrap_or(&self.folder);
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!("{TEMPORARY}{}_{n}", std::process::id()));
        let create =
            || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary);
        let file = create().or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            create()
        })?;
        let written = stream(file, head, bytes).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // Half of one would keep the very space that is short.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// The bytes of an object.
    ///
    /// Errors: it is not there, or is not what its name says.
    pub fn get(&self, id: Id) -> io::Result<Vec<u8>> {
        let mut found = self.get_all(&[id])?;
        found.pop().ok_or_else(|| lost(id))
    }

    /// The bytes of several, in the order asked.
    ///
    /// Errors: as [`Store::get`].
    pub fn get_all(&self, ids: &[Id]) -> io::Result<Vec<Vec<u8>>> {
        let mut found = Vec::with_capacity(ids.len());
        let mut missing = Vec::new();
        for id in ids {
            match fs::read(self.place(*id)) {
                Ok(bytes) => found.push(content(*id, &bytes)?),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing.push((found.len(), *id));
                    found.push(Vec::new());
                }
                Err(error) => return Err(error),
            }
        }
        if !missing.is_empty() {
            let asked: Vec<Id> = missing.iter().map(|(_, id)| *id).collect();
            for ((at, _), bytes) in missing.into_iter().zip((self.packed)(&asked)?) {
                found[at] = bytes;
            }
        }
        Ok(found)
    }

    /// Keeps an object, and what it leads to, under a name below `refs/svc/`.
    ///
    /// Errors: the system's words.
    pub fn name(&self, name: &str, id: Id) -> io::Result<()> {
        let path = self.folder.join(NAMES).join(name);
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        // Not beside it, where git would take it for a name, too; here `git prune` takes what is left of one.
        let temporary = self.folder.join(format!("objects/{TEMPORARY}{}_{n}", std::process::id()));
        let written = fs::write(&temporary, format!("{id}\n")).and_then(|()| {
            fs::rename(&temporary, &path).or_else(|error| {
                let folder =
                    path.parent().filter(|_| error.kind() == io::ErrorKind::NotFound).ok_or(error)?;
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                fs::rename(&temporary, &path)
            })
        });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Takes away names that lead nowhere: what a power cut has left of one that was being written. With such
    /// a name git does nothing for the whole store. How many there were.
    ///
    /// Errors: the system's words.
    pub fn mend_names(&self) -> io::Result<usize> {
        let mut open = vec![self.folder.join(NAMES)];
        let mut mended = 0;
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    open.push(entry.path());
                } else if !fs::read_to_string(entry.path()).is_ok_and(|id| Id::parse(id.trim_end()).is_some())
                {
                    fs::remove_file(entry.path()).or_else(missing_is_fine)?;
                    mended += 1;
                }
            }
        }
        Ok(mended)
    }

    /// Takes a name away, or all below it.
    ///
    /// Errors: the system's words.
    pub fn forget(&self, name: &str) -> io::Result<()> {
        let path = self.folder.join(NAMES).join(name);
        if path.is_dir() {
            return fs::remove_dir_all(&path).or_else(missing_is_fine);
        }
        fs::remove_file(&path).or_else(missing_is_fine)
    }

    /// Bytes on disk, and how many objects are in files of their own.
    pub fn size(&self) -> (u64, u64) {
        let (mut bytes, mut loose) = (0, 0);
        let Ok(folders) = fs::read_dir(self.folder.join("objects")) else { return (0, 0) };
        for folder in folders.flatten() {
            let is_loose = folder.file_name().len() == 2;
            let Ok(files) = fs::read_dir(folder.path()) else { continue };
            for meta in files.flatten().filter_map(|file| file.metadata().ok()) {
                // What it takes there, not what is in it.
                bytes += std::os::unix::fs::MetadataExt::blocks(&meta) * 512;
                loose += u64::from(is_loose);
            }
        }
        (bytes, loose)
    }

    fn place(&self, id: Id) -> PathBuf {
        let mut name = String::with_capacity(80);
        // Writing to a string cannot fail.
        let _ = write!(name, "objects/{id}");
        name.insert(10, '/');
        self.folder.join(name)
    }
}

fn lost(id: Id) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("object {id} is lost"))
}

fn name_of(head: &str, bytes: &[u8]) -> Id {
    let mut hash = Sha256::new();
    hash.update(head.as_bytes());
    hash.update(bytes);
    Id(hash.finalize().into())
}

/// The name that a file of these bytes has.
pub(crate) fn blob(bytes: &[u8]) -> Id {
    name_of(&format!("blob {}\0", bytes.len()), bytes)
}

/// Writes a stream of pieces that are not compressed: `git repack` does that later, off everybody's way.
fn stream(file: File, head: &[u8], bytes: &[u8]) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES.min(bytes.len() + 256), file);
    out.write_all(&STREAM)?;
    let mut piece = |is_last: bool, piece: &[u8]| {
        let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
        out.write_all(&[u8::from(is_last)])?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&(!length).to_le_bytes())?;
        out.write_all(piece)
    };
    piece(bytes.is_empty(), head)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, then) = rest.split_at(rest.len().min(PIECE_BYTES));
        piece(then.is_empty(), now)?;
        rest = then;
    }
    let sum = adler(adler(1, head), bytes);
    out.write_all(&sum.to_be_bytes())?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(())
}

/// Adler-32, from where it was.
fn adler(sum: u32, bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut low, mut high) = (sum & 0xFFFF, sum >> 16);
    // So many bytes fit into 32 bits before the remainder must be taken.
    for part in bytes.chunks(5552) {
        for byte in part {
            low += u32::from(*byte);
            high += low;
        }
        low %= MODULUS;
        high %= MODULUS;
    }
    high << 16 | low
}

/// The bytes of an object out of its file.
fn content(id: Id, file: &[u8]) -> io::Result<Vec<u8>> {
    unpacked(file)
        .filter(|all| Id(Sha256::digest(all).into()) == id)
        .and_then(without_head)
        .ok_or_else(|| lost(id))
}

fn unpacked(file: &[u8]) -> Option<Vec<u8>> {
    let mut rest = file.strip_prefix(&STREAM)?;
    let mut all = Vec::with_capacity(file.len());
    loop {
        let (head, then) = rest.split_at_checked(5)?;
        let length = usize::from(u16::from_le_bytes([head[1], head[2]]));
        let (piece, then) = then.split_at_checked(length)?;
        all.extend_from_slice(piece);
        rest = then;
        match head[0] {
            0 => {}
            1 => return Some(all),
            _ => return None,
        }
    }
}

fn without_head(mut all: Vec<u8>) -> Option<Vec<u8>> {
    let end = all.iter().position(|byte| *byte == 0)?;
    all.drain(..=end);
    Some(all)
}

/// What a folder holds, in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    pub what: What,
    pub id: Id,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    File,
    /// A file that may be run.
    Program,
    Link,
    Folder,
}

impl What {
    fn mode(self) -> &'static str {
        match self {
            Self::File => "100644",
            Self::Program => "100755",
            Self::Link => "120000",
            Self::Folder => "40000",
        }
    }
}

/// The bytes of a tree; names come in git's order: a folder as if a slash followed.
pub(crate) fn add_node(tree: &mut Vec<u8>, name: &str, node: Node) {
    tree.extend_from_slice(node.what.mode().as_bytes());
    tree.push(b' ');
    tree.extend_from_slice(name.as_bytes());
    tree.push(0);
    tree.extend_from_slice(&node.id.0);
}

/// What is in a tree, by name.
pub(crate) fn nodes(tree: &[u8]) -> io::Result<BTreeMap<String, Node>> {
    let mut found = BTreeMap::new();
    let mut rest = tree;
    while !rest.is_empty() {
        let (name, node, then) = node(rest).ok_or_else(|| io::Error::other("a tree cannot be read"))?;
        found.insert(name, node);
        rest = then;
    }
    Ok(found)
}

fn node(tree: &[u8]) -> Option<(String, Node, &[u8])> {
    let end = tree.iter().position(|byte| *byte == 0)?;
    let (mode, name) = std::str::from_utf8(&tree[..end]).ok()?.split_once(' ')?;
    let (id, rest) = tree[end + 1..].split_first_chunk::<32>()?;
    let all = [What::File, What::Program, What::Link, What::Folder];
    let what = all.into_iter().find(|what| what.mode() == mode)?;
    Some((name.to_owned(), Node { what, id: Id(*id) }, rest))
}
