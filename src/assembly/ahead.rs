//! The log that is written ahead of documents which change often and are small: one line and one sync for all
//! changes of a round, instead of a new file, its name and the audit log, each with a sync of its own.
//!
//! A line holds a document as it is to be, and the lines of the journals that go with it. The document's own
//! file follows within a second, or when the log is full; then the log is emptied. A start that finds lines
//! here makes the files of them before it reads any ([`recover`]).
//!
//! **Invariant:** as long as there are lines, the last one holds the newest content of its document.
//! **Invariant:** the lines count only beside the file for which they were written: one that somebody else
//! has put in its place (another version, a backup) stands.

use crate::core::{Document, Journal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use svc_base::sorted::Gather;
use svc_sys::files::{if_there, replace, sync_folder};
use svc_sys::journal::{append_rotating, older_of};
use svc_sys::regular;
use svc_sys::reserve::{Lent, with_reserve};

/// Below `.svc/`.
const PATH: &str = "state/ahead.jsonl";
/// The one document that is written ahead. All of its audit lines are in one journal.
pub const DOCUMENT: Document = Document::Locks;
/// A larger document is written to its own file at once.
pub const MAX_DOCUMENT_BYTES: usize = 64 << 10;
/// From this size on the log is emptied with the next round.
const FULL_BYTES: u64 = 4 << 20;
/// Of the end of a journal so much is searched for lines that it may lack.
const SEARCHED_BYTES: u64 = FULL_BYTES;

/// One line of the log.
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    /// The digest of the file for which it was written.
    base: Cow<'a, str>,
    #[serde(borrow)]
    content: &'a RawValue,
    /// Lines of [`Journal::Audit`].
    audit: Vec<Cow<'a, str>>,
}

/// The log of a running daemon.
pub struct Ahead {
    folder: PathBuf,
    file: Option<Lent>,
    length: u64,
    /// The digest of the document's file.
    base: Option<String>,
    /// The disk has refused a line, and it may stand there all the same.
    is_broken: bool,
}

impl Ahead {
    /// The log below the state folder; nothing is touched before the first line.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), file: None, length: 0, base: None, is_broken: false }
    }

    /// Whether a further line may be written.
    pub fn is_open(&self) -> bool {
        !self.is_broken && self.length < FULL_BYTES
    }

    /// Whether there are lines.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Has the document, and lines of journals, on disk.
    ///
    /// Errors: those of the system; nothing of it stands in the log then.
    pub fn write(&mut self, content: &[u8], lines: &[(Journal, Arc<[u8]>)]) -> io::Result<()> {
        if self.base.is_none() {
            self.base = Some(digest_of(&self.folder.join(DOCUMENT.path()))?);
        }
        let content = std::str::from_utf8(content).map_err(io::Error::other)?;
        let entry = Entry {
            base: Cow::Borrowed(self.base.as_deref().unwrap_or_default()),
            content: serde_json::from_slice(content.as_bytes())?,
            audit: lines.iter().map(|(_, line)| String::from_utf8_lossy(line)).collect(),
        };
        let mut bytes = serde_json::to_vec(&entry)?;
        bytes.push(b'\n');
        let length = self.length;
        let file = self.open()?;
        let written = file.write_all(&bytes).and_then(|()| file.sync_data());
        if let Err(error) = written {
            self.is_broken = true;
            self.cut(length)?;
            self.is_broken = false;
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// The document's own file, with this content, and the journals are on disk: the lines are not needed.
    pub fn clear(&mut self, content: &[u8]) -> io::Result<()> {
        self.base = Some(digest(content));
        if self.file.is_some() {
            self.cut(0)?;
        }
        self.length = 0;
        self.is_broken = false;
        Ok(())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.open()?.set_len(length)
    }

    fn open(&mut self) -> io::Result<&mut Lent> {
        if self.file.is_none() {
            let path = self.folder.join(PATH);
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600);
            let file = with_reserve(|| regular::open(&path, &mut options))?;
            // What an earlier daemon has left was made into files, or counts no more.
            file.set_len(0)?;
            path.parent().map_or(Ok(()), sync_folder)?;
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::Error::other("the log is not open"))
    }
}

/// Makes the files of what a daemon that was cut off has written ahead.
///
/// Errors: those of the system; the daemon must not start then, or it would forget what it has promised.
pub fn recover(folder: &Path) -> io::Result<()> {
    let path = folder.join(PATH);
    let Some(log) = if_there(regular::read(&path))? else { return Ok(()) };
    // The last line may be cut off: nobody was told that it is there.
    let lines = log.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let entries: Vec<Entry> = lines.map_while(|line| serde_json::from_slice(line).ok()).collect();
    let Some(last) = entries.last() else { return Ok(()) };
    let document = folder.join(DOCUMENT.path());
    let found = digest_of(&document)?;
    let mut known: BTreeSet<String> = entries.iter().map(|entry| entry.base.to_string()).gather();
    known.extend(entries.iter().map(|entry| digest(entry.content.get().as_bytes())));
    if known.contains(&found) {
        log::info!("{} is made of what was written ahead of it", DOCUMENT.path());
        replace(&document, last.content.get().as_bytes())?;
        document.parent().map_or(Ok(()), sync_folder)?;
    } else {
        log::warn!("{} is not the one that was left: it stands as it is", DOCUMENT.path());
    }
    missing_lines(folder, &entries)?;
    File::options().write(true).open(&path)?.set_len(0)
}

/// Appends what the audit log lacks.
fn missing_lines(folder: &Path, entries: &[Entry]) -> io::Result<()> {
    let path = folder.join(Journal::Audit.path());
    let end = |path: &Path| if_there(regular::read_end(path, SEARCHED_BYTES)).map(Option::unwrap_or_default);
    let (older, newer) = (end(&older_of(&path))?, end(&path)?);
    let mut there: HashMap<&[u8], usize> = HashMap::new();
    for line in older.split(|byte| *byte == b'\n').chain(newer.split(|byte| *byte == b'\n')) {
        *there.entry(line).or_default() += 1;
    }
    let mut missing = Vec::new();
    for line in entries.iter().flat_map(|entry| &entry.audit) {
        match there.get_mut(line.as_bytes()).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => missing.extend(line.bytes().chain([b'\n'])),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    append_rotating(&path, &missing, Journal::Audit.max_bytes())?.sync_data()
}

fn digest_of(path: &Path) -> io::Result<String> {
    Ok(digest(&if_there(regular::read(path))?.unwrap_or_default()))
}

fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().take(16).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("svc-ahead-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("state")).unwrap();
        folder
    }

    fn line(text: &str) -> (Journal, Arc<[u8]>) {
        (Journal::Audit, text.as_bytes().into())
    }

    fn read(folder: &Path, path: &str) -> String {
        fs::read_to_string(folder.join(path)).unwrap_or_default()
    }

    #[test]
    fn a_start_makes_the_newest_content_and_the_missing_audit_lines_and_empties_the_log() {
        let folder = folder("newest");
        let locks = DOCUMENT.path();
        fs::write(folder.join(&locks), r#"{"n":0}"#).unwrap();
        let mut ahead = Ahead::new(&folder);
        ahead.write(br#"{"n":1}"#, &[line("one"), line("same")]).unwrap();
        ahead.write(br#"{"n":2}"#, &[line("same"), line("two")]).unwrap();
        fs::write(folder.join("audit.jsonl"), "before\none\nsame\n").unwrap();
        // The power went in the middle of a third line.
        let mut log = fs::read(folder.join(PATH)).unwrap();
        log.extend_from_slice(br#"{"base":"x","content":{"n":3},"#);
        fs::write(folder.join(PATH), log).unwrap();
        recover(&folder).unwrap();
        assert_eq!(read(&folder, &locks), r#"{"n":2}"#);
        assert_eq!(read(&folder, "audit.jsonl"), "before\none\nsame\nsame\ntwo\n");
        assert_eq!(read(&folder, PATH), "");
        recover(&folder).unwrap();
        assert_eq!(read(&folder, &locks), r#"{"n":2}"#);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_somebody_else_has_put_there_stands() {
        let folder = folder("other");
        let locks = DOCUMENT.path();
        Ahead::new(&folder).write(br#"{"n":1}"#, &[line("one")]).unwrap();
        fs::write(folder.join(&locks), r#"{"n":"a backup"}"#).unwrap();
        recover(&folder).unwrap();
        assert_eq!(read(&folder, &locks), r#"{"n":"a backup"}"#);
        assert_eq!(read(&folder, "audit.jsonl"), "one\n", "what was done was done");
        fs::remove_dir_all(folder).unwrap();
    }

    /// Between the document's own file and the emptying of the log a daemon may be killed, too.
    #[test]
    fn lines_that_are_in_the_file_already_change_nothing_and_new_ones_follow_the_new_file() {
        let folder = folder("follow");
        let locks = DOCUMENT.path();
        let mut ahead = Ahead::new(&folder);
        ahead.write(br#"{"n":1}"#, &[]).unwrap();
        fs::write(folder.join(&locks), r#"{"n":1}"#).unwrap();
        recover(&folder).unwrap();
        assert_eq!(read(&folder, &locks), r#"{"n":1}"#);
        ahead.clear(br#"{"n":1}"#).unwrap();
        assert!(ahead.is_empty() && ahead.is_open());
        ahead.write(br#"{"n":2}"#, &[]).unwrap();
        recover(&folder).unwrap();
        assert_eq!(read(&folder, &locks), r#"{"n":2}"#);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_full_log_takes_no_more_before_it_is_cleared() {
        let folder = folder("full");
        let mut ahead = Ahead::new(&folder);
        let content = format!("{{\"n\":{:?}}}", "x".repeat(1 << 20));
        for _ in 0..4 {
            assert!(ahead.is_open());
            ahead.write(content.as_bytes(), &[]).unwrap();
        }
        assert!(!ahead.is_open());
        ahead.clear(content.as_bytes()).unwrap();
        assert!(ahead.is_open());
        assert_eq!(read(&folder, PATH), "");
        fs::remove_dir_all(folder).unwrap();
    }
}
