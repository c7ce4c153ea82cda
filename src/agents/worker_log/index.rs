//! The sparse index of a segment: text lines of number, time (milliseconds) and offset.

use crate::core::time::Time;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// An index of a full segment has about 130 lines; a larger file is no index of ours.
const INDEX_LIMIT_BYTES: u64 = 256 * 1024;

/// Where one line stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub n: u64,
    pub ts: Time,
    /// Bytes from the start of the segment.
    pub offset: u64,
}

/// The marks of a segment, in order. A missing, cut or damaged index is a shorter one: it only makes reading
/// slower.
pub(super) fn load(path: &Path) -> Vec<Mark> {
    let mut text = String::new();
    let Ok(file) = File::open(path) else { return Vec::new() };
    if file.take(INDEX_LIMIT_BYTES).read_to_string(&mut text).is_err() {
        return Vec::new();
    }
    let mut marks: Vec<Mark> = Vec::new();
    for line in text.split_inclusive('\n') {
        let Some(mark) = line.strip_suffix('\n').and_then(parse) else { break };
        if marks
            .last()
            .is_some_and(|last| mark.n <= last.n || mark.offset <= last.offset || mark.ts < last.ts)
        {
            break;
        }
        marks.push(mark);
    }
    marks
}

fn parse(line: &str) -> Option<Mark> {
    let mut numbers = line.split(' ').map(|word| word.parse().ok());
    let mark = Mark { n: numbers.next()??, ts: Time(numbers.next()??), offset: numbers.next()?? };
    numbers.next().is_none().then_some(mark)
}

/// Adds a mark.
pub(super) fn add(path: &Path, mark: Mark) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format_mark(mark).as_bytes())
}

/// Replaces all marks.
pub(super) fn replace(path: &Path, marks: &[Mark]) -> io::Result<()> {
    std::fs::write(path, marks.iter().copied().map(format_mark).collect::<String>())
}

fn format_mark(mark: Mark) -> String {
    format!("{} {} {}\n", mark.n, mark.ts.0, mark.offset)
}
