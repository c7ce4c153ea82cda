//! The record that some programs keep of a session beside their stream: found by its name, and read on from
//! where it was left, by the thread that reads the stream.
//!
//! What stands there is the agent's word, as its stream is: it tells how full a context is, never what is
//! counted. Everything is bounded, links are not followed, and what is missing is simply not told.

use crate::providers::RecordPlace;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Of a file that is there already so many bytes at its end are read first.
const TAIL_BYTES: u64 = 1024 * 1024;
/// Bytes taken from it at one look; the rest comes with the next one.
const LOOK_BYTES: u64 = 4 * 1024 * 1024;
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
}

impl RecordFile {
    pub fn new(place: RecordPlace) -> Self {
        Self { place, searched: None, file: None, at: 0, rest: Vec::new(), skips: false }
    }

    /// What [`RecordFile::go_on`] wants: a line that has begun is read again.
    pub fn save(&self) -> (RecordPlace, u64) {
        (self.place.clone(), self.at - self.rest.len() as u64)
    }

    /// The same file, read on from there.
    pub fn go_on(place: RecordPlace, at: u64) -> Self {
        Self { at, ..Self::new(place) }
    }

    /// The lines that are new since the last look. `last`: there is no further look, so search now.
    pub fn look(&mut self, last: bool) -> Vec<String> {
        if self.file.is_none() {
            let now = Instant::now();
            let too_soon = self.searched.is_some_and(|then| now.duration_since(then) < SEARCH_EVERY);
            if too_soon && !last {
                return Vec::new();
            }
            self.searched = Some(now);
            self.open();
        }
        self.read().unwrap_or_default()
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

    fn read(&mut self) -> Option<Vec<String>> {
        let file = self.file.as_mut()?;
        file.seek(SeekFrom::Start(self.at)).ok()?;
        let mut bytes = Vec::new();
        let count = file.take(LOOK_BYTES).read_to_end(&mut bytes).ok()?;
        self.at += u64::try_from(count).unwrap_or_default();
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (words, ended) = piece.strip_suffix(b"\n").map_or((piece, false), |words| (words, true));
            if !self.skips && self.rest.len() + words.len() <= LINE_BYTES {
                self.rest.extend_from_slice(words);
            } else {
                self.skips = true;
                self.rest.clear();
            }
            if ended {
                let line = std::mem::take(&mut self.rest);
                if !std::mem::replace(&mut self.skips, false) && !line.is_empty() {
                    lines.push(String::from_utf8_lossy(&line).into_owned());
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
    entries.sort_unstable_by(|one, other| other.cmp(one));
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

        fn record(&self) -> RecordFile {
            RecordFile::new(RecordPlace { root: self.0.clone(), depth: 3, suffix: "-abc.jsonl".into() })
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_record_is_found_when_it_comes_and_read_on_line_by_line() {
        let place = Place::new("reads");
        let mut record = place.record();
        assert!(record.look(false).is_empty(), "it is not there yet");
        let mut file = File::create(place.file()).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(record.look(true), ["one"]);
        file.write_all(b"o\n\nthree\n").unwrap();
        assert_eq!(record.look(false), ["two", "three"]);
        assert!(record.look(false).is_empty());
    }

    #[test]
    fn only_the_end_of_a_long_record_is_read_and_a_line_without_end_is_passed_over() {
        let place = Place::new("bounds");
        let mut file = File::create(place.file()).unwrap();
        let tail = usize::try_from(TAIL_BYTES).unwrap();
        file.write_all(&vec![b'x'; 2 * tail]).unwrap();
        file.write_all(b"\nlast\n").unwrap();
        let mut record = place.record();
        assert_eq!(record.look(true), ["last"]);
        file.write_all(&vec![b'y'; LINE_BYTES + 1]).unwrap();
        assert!(record.look(false).is_empty());
        file.write_all(b"\nafter\n").unwrap();
        assert_eq!(record.look(false), ["after"]);
        assert!(record.rest.is_empty());
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
