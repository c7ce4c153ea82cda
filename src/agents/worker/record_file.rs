//! The record that some programs keep of a session beside their stream: found by its name, and read on from
//! where it was left, by the thread that reads the stream.
//!
//! What stands there is the agent's word, as its stream is. Beside a stream it tells how full a context is,
//! never what is counted; with a person at the program's screen there is no stream, and it tells all there
//! is. Everything is bounded, links are not followed, and what is missing is simply not told.

use crate::providers::RecordPlace;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use svc_base::sorted;

/// Of a file that is there already so many bytes at its end are read first.
const TAIL_BYTES: u64 = 1024 * 1024;
/// Bytes taken from it at one look; the rest comes with the next one.
pub(super) const LOOK_BYTES: usize = 4 * 1024 * 1024;
/// A longer line is passed over.
const LINE_BYTES: usize = 1024 * 1024;
/// Names looked at in one search.
const NAMES_MAX: usize = 20_000;
/// Between two searches for a file that is not there yet.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// A record, found or not yet.
pub(super) struct RecordFile {
    place: RecordPlace,
    searched: Option<Instant>,
    file: Option<File>,
    at: u64,
    /// The beginning of a line whose end is still to come.
    rest: Vec<u8>,
    /// The line that is read is passed over to its end.
    skips: bool,
    has_more: bool,
}

impl RecordFile {
    pub fn new(place: RecordPlace) -> Self {
        Self { place, searched: None, file: None, at: 0, rest: Vec::new(), skips: false, has_more: false }
    }

    /// One of which only what comes from now on is read.
    pub fn at_end(place: RecordPlace) -> Self {
        let mut record = Self::new(place);
        record.open();
        let end = record.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        (record.at, record.skips) = (end, false);
        record
    }

    /// What [`RecordFile::go_on`] wants: a line that has begun is read again.
    pub fn save(&self) -> (RecordPlace, u64) {
        (self.place.clone(), self.at - self.rest.len() as u64)
    }

    /// The same file, read on from there.
    pub fn go_on(place: RecordPlace, at: u64) -> Self {
        Self { at, ..Self::new(place) }
    }

    /// Leaves out what stands before, which was read by an earlier daemon.
    pub fn skip_to(&mut self, at: u64) {
        if at > self.at {
            (self.at, self.skips) = (at, false);
            self.rest.clear();
        }
    }

    /// The lines that are new since the last look, and where each ends. `last`: there is no further look, so
    /// search now.
    pub fn look(&mut self, last: bool) -> Vec<(String, u64)> {
        if self.file.is_none() {
            let now = Instant::now();
            let too_soon = self.searched.is_some_and(|then| now.duration_since(then) < SEARCH_EVERY);
            if too_soon && !last {
                return Vec::new();
            }
            self.searched = Some(now);
            self.open();
        }
        self.has_more = false;
        self.read().unwrap_or_default()
    }

    /// Whether the last look has taken as much as one may, so that there may be more.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    fn open(&mut self) {
        let mut names = NAMES_MAX;
        let Some(path) = find(&self.place.root, self.place.depth, &self.place.suffix, &mut names) else {
            return;
        };
        // A pipe would hold this thread, a link could lead anywhere.
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(path) else { return };
        let Some(meta) = file.metadata().ok().filter(fs::Metadata::is_file) else { return };
        if self.at == 0 {
            self.at = meta.len().saturating_sub(TAIL_BYTES);
            self.skips = self.at > 0;
        }
        self.file = Some(file);
    }

    fn read(&mut self) -> Option<Vec<(String, u64)>> {
        let file = self.file.as_mut()?;
        file.seek(SeekFrom::Start(self.at)).ok()?;
        let mut bytes = Vec::new();
        let count = file.take(LOOK_BYTES as u64).read_to_end(&mut bytes).ok()?;
        self.has_more = count == LOOK_BYTES;
        let mut end = self.at;
        self.at += u64::try_from(count).unwrap_or_default();
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (words, ended) = piece.strip_suffix(b"\n").map_or((piece, false), |words| (words, true));
            end += piece.len() as u64;
            if !self.skips && self.rest.len() + words.len() <= LINE_BYTES {
                self.rest.extend_from_slice(words);
            } else {
                self.skips = true;
                self.rest.clear();
            }
            if ended {
                let line = std::mem::take(&mut self.rest);
                if !std::mem::replace(&mut self.skips, false) && !line.is_empty() {
                    lines.push((String::from_utf8_lossy(&line).into_owned(), end));
                }
            }
        }
        Some(lines)
    }
}

/// The file below `folder` whose name ends with `suffix`, the newest folders first where they are days.
fn find(folder: &Path, depth: usize, suffix: &str, names: &mut usize) -> Option<PathBuf> {
    let mut entries: Vec<(PathBuf, bool)> = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        *names = names.checked_sub(1)?;
        let Ok(kind) = entry.file_type() else { continue };
        let path = entry.path();
        if depth == 0 && kind.is_file() && path.to_string_lossy().ends_with(suffix) {
            return Some(path);
        }
        entries.push((path, kind.is_dir()));
    }
    if depth == 0 {
        return None;
    }
    sorted::by(&mut entries, |one, other| other.cmp(one));
    let folders = entries.into_iter().filter(|(_, is_folder)| *is_folder);
    folders.map(|(path, _)| path).find_map(|path| find(&path, depth - 1, suffix, names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("svc-record-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("2026/11/22")).unwrap();
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("2026/11/22/rollout-x-abc.jsonl")
        }

        /// The lines alone.
        fn looked(record: &mut RecordFile, last: bool) -> Vec<String> {
            record.look(last).into_iter().map(|(line, _)| line).collect()
        }

        fn record(&self) -> RecordFile {
            RecordFile::new(RecordPlace { root: self.0.clone(), depth: 3, suffix: "-abc.jsonl".into() })
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// An act that comes again after a crash tells where its line ended: it is not read a second time.
    #[test]
    fn a_record_is_read_from_its_end_of_then_and_no_line_that_was_read_before_comes_again() {
        let place = Place::new("end");
        let mut file = File::create(place.file()).unwrap();
        file.write_all(b"old\nolder\n").unwrap();
        let RecordFile { place: of, .. } = place.record();
        let mut record = RecordFile::at_end(of.clone());
        let (_, at) = record.save();
        file.write_all(b"one\ntwo\nthr").unwrap();
        let read = record.look(false);
        assert_eq!(read, [("one".to_owned(), 14), ("two".to_owned(), 18)]);
        let mut again = RecordFile::go_on(of, at);
        again.skip_to(14);
        file.write_all(b"ee\n").unwrap();
        assert_eq!(Place::looked(&mut again, true), ["two", "three"]);
        again.skip_to(14);
        assert!(again.look(true).is_empty(), "it never goes back");
    }

    #[test]
    fn a_record_is_found_when_it_comes_and_read_on_line_by_line() {
        let place = Place::new("reads");
        let mut record = place.record();
        assert!(record.look(false).is_empty(), "it is not there yet");
        let mut file = File::create(place.file()).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(record.look(true), [("one".to_owned(), 4)]);
        file.write_all(b"o\n\nthree\n").unwrap();
        assert_eq!(record.look(false), [("two".to_owned(), 8), ("three".to_owned(), 15)]);
        assert!(record.look(false).is_empty());
        let mut next = place.record();
        next.skip_to(8);
        assert_eq!(Place::looked(&mut next, true), ["three"], "what an earlier daemon has read is left out");
    }

    #[test]
    fn only_the_end_of_a_long_record_is_read_and_a_line_without_end_is_passed_over() {
        let place = Place::new("bounds");
        let mut file = File::create(place.file()).unwrap();
        let tail = usize::try_from(TAIL_BYTES).unwrap();
        file.write_all(&vec![b'x'; 2 * tail]).unwrap();
        file.write_all(b"\nlast\n").unwrap();
        let mut record = place.record();
        assert_eq!(Place::looked(&mut record, true), ["last"]);
        file.write_all(&vec![b'y'; LINE_BYTES + 1]).unwrap();
        assert!(record.look(false).is_empty());
        file.write_all(b"\nafter\n").unwrap();
        assert_eq!(Place::looked(&mut record, false), ["after"]);
        assert!(record.rest.is_empty());
    }

    /// Nobody looked while a person worked at the screen: no daemon was there.
    #[test]
    fn a_look_takes_so_much_and_says_that_there_may_be_more() {
        let place = Place::new("more");
        let mut file = File::create(place.file()).unwrap();
        let mut record = RecordFile::at_end(place.record().place);
        let line = [&vec![b'z'; 511 * 1024][..], b"\n"].concat();
        for _ in 0..10 {
            file.write_all(&line).unwrap();
        }
        file.write_all(b"end\n").unwrap();
        assert_eq!((Place::looked(&mut record, true).len(), record.has_more()), (8, true), "4 MiB");
        let rest = Place::looked(&mut record, true);
        assert_eq!((rest.len(), rest[2].as_str(), record.has_more()), (3, "end", false));
    }

    #[test]
    fn a_link_or_a_pipe_in_its_place_is_not_opened() {
        let place = Place::new("links");
        let secret = place.0.join("secret");
        fs::write(&secret, "not for anybody\n").unwrap();
        std::os::unix::fs::symlink(&secret, place.file()).unwrap();
        assert!(place.record().look(true).is_empty());
        fs::remove_file(place.file()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(place.file()).status().unwrap();
        assert!(made.success());
        assert!(place.record().look(true).is_empty());
    }
}
