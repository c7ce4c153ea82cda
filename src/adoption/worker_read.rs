//! Finding and reading the programs' records. No link is followed, and nothing but plain files is opened.

use crate::core::time::Time;
use crate::providers::outside::{Files, Reader, Session};
use crate::providers::{Provider, Step};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use svc_base::sorted;

/// Names looked at in one folder of records.
pub const NAMES_MAX: usize = 20_000;
/// Of one record a list reads no more: beyond it is not counted.
pub const LISTED_BYTES: u64 = 32 << 20;
/// The longest record that is adopted.
pub const ADOPTED_BYTES: u64 = 256 << 20;
/// A line that is longer is passed over.
const LINE_BYTES: usize = 8 << 20;
/// A record in whose first bytes no folder stands is none.
const HEAD_BYTES: u64 = 1 << 20;
/// Bytes of the file that names a folder.
const NOTE_BYTES: u64 = 4096;
/// How a record's name ends.
const ENDING: &str = ".jsonl";

/// The records of a program, those changed last first.
pub fn records(files: &Files) -> Vec<PathBuf> {
    changed_records(files).into_iter().map(|(_, path)| path).collect()
}

/// The same, each with the time of its last change.
pub fn changed_records(files: &Files) -> Vec<(Time, PathBuf)> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    let mut left = NAMES_MAX;
    collect(&files.root, files.depth, &files.begins, &mut left, &mut found);
    sorted::by(&mut found, |one, other| other.cmp(one));
    let time = |at: SystemTime| {
        let millis = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Time(u64::try_from(millis).unwrap_or(u64::MAX))
    };
    found.into_iter().map(|(changed, path)| (time(changed), path)).collect()
}

fn collect(
    folder: &Path,
    depth: usize,
    begins: &str,
    left: &mut usize,
    found: &mut Vec<(SystemTime, PathBuf)>,
) {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        *left = left.saturating_sub(1);
        let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else { continue };
        let Some(name) = name.to_str().filter(|_| *left > 0) else { continue };
        if depth > 0 && kind.is_dir() && name.starts_with(begins) {
            folders.push(entry.path());
        } else if depth == 0 && kind.is_file() && name.ends_with(ENDING) {
            let changed = entry.metadata().and_then(|data| data.modified());
            found.extend(changed.ok().map(|changed| (changed, entry.path())));
        }
    }
    // Where folders are days, the newest come first.
    sorted::by(&mut folders, |one, other| other.cmp(one));
    for folder in folders {
        collect(&folder, depth - 1, "", left, found);
    }
}

/// What a look at a record came to.
pub struct Seen {
    pub session: Session,
    /// Not all of it was read: turns and tokens are not known.
    pub is_cut: bool,
}

/// Reads a record, of this project's sessions to the end; `None` for another's, or where it is none.
pub fn read(
    provider: &dyn Provider,
    files: &Files,
    path: &Path,
    project: &Path,
    most: u64,
    mut told: impl FnMut(&Reader, &mut Vec<Step>),
) -> Option<Seen> {
    let until = |_: &Reader| true;
    read_until(provider, files, path, project, most, until, &mut told)
}

/// As [`read`], only as long as is wished.
pub fn read_until(
    provider: &dyn Provider,
    files: &Files,
    path: &Path,
    project: &Path,
    most: u64,
    goes_on: impl Fn(&Reader) -> bool,
    told: &mut dyn FnMut(&Reader, &mut Vec<Step>),
) -> Option<Seen> {
    let mut reader = provider.session_reader()?;
    let noted = files.note.map(|(up, name)| noted(path, up, name)).map(Option::unwrap_or_default);
    if noted.as_ref().is_some_and(|folder| !folder.starts_with(project)) {
        return None;
    }
    let file = plain(path)?;
    let length = file.metadata().ok()?.len();
    let mut lines = BufReader::new(file).take(most);
    let (mut at, mut steps, mut is_cut) = (0_u64, Vec::new(), length > most);
    while let Some((line, count)) = next_line(&mut lines) {
        at += count;
        reader.line(&line, &mut steps);
        told(&reader, &mut steps);
        steps.clear();
        let folder = &reader.session().folder;
        let is_elsewhere = !folder.is_empty() && !Path::new(folder).starts_with(project);
        if reader.session().is_part
            || noted.is_none() && (is_elsewhere || folder.is_empty() && at > HEAD_BYTES)
        {
            return None;
        }
        if !goes_on(&reader) {
            is_cut = true;
            break;
        }
    }
    reader.end(&mut steps);
    told(&reader, &mut steps);
    let mut session = reader.session().clone();
    if let Some(folder) = noted.filter(|_| session.folder.is_empty()) {
        folder.to_str()?.clone_into(&mut session.folder);
    }
    let is_one = !session.id.is_empty() && !session.folder.is_empty();
    is_one.then_some(Seen { session, is_cut })
}

/// Until when a list is put together.
pub fn in_time(deadline: Instant) -> impl Fn(&Reader) -> bool {
    move |_| Instant::now() < deadline
}

fn next_line(lines: &mut impl BufRead) -> Option<(String, u64)> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(LINE_BYTES).unwrap_or(u64::MAX);
    let mut count =
        lines.by_ref().take(limit).read_until(b'\n', &mut bytes).ok().filter(|count| *count > 0)?;
    if bytes.last() != Some(&b'\n') && count == LINE_BYTES {
        bytes.clear();
        count += lines.skip_until(b'\n').ok()?;
    }
    Some((String::from_utf8_lossy(&bytes).into_owned(), count as u64))
}

fn plain(path: &Path) -> Option<File> {
    // A pipe would hold this thread, a link could lead anywhere.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().ok().filter(fs::Metadata::is_file).map(|_| file)
}

/// The folder that a file beside a record names.
fn noted(record: &Path, up: usize, name: &str) -> Option<PathBuf> {
    let mut text = String::new();
    plain(&record.ancestors().nth(up)?.join(name))?.take(NOTE_BYTES).read_to_string(&mut text).ok()?;
    Some(PathBuf::from(text.trim())).filter(|folder| folder.is_absolute())
}
