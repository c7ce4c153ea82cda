//! Finding words in all logs as they were typed, the newest first. The index of words ([`super::words`]) says
//! which blocks of a segment have all of them; these are looked through without being parsed, and only lines
//! that have all words are read as records.
//!
//! **Invariant:** a search reads at most [`READ_BYTES`], a stretch of [`CHUNK_BYTES`] at a time; what is not
//! looked at is counted.
//! **Invariant:** the hits are the newest ones of all that was looked at, whatever order it was looked at in.

use super::LogStore;
use super::exact::{Exact, Filed, Needle};
use super::search::{Found, Searched, Segment};
use super::words::Words;
use crate::agents::report::{LogEntry, LogRecord, Other};
use crate::core::ids::LineageId;
use crate::core::time::Time;
use crate::providers::Activity;
use memchr::{memchr, memmem, memrchr};
use serde_json::Value;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::UNIX_EPOCH;
use svc_base::sorted;

/// Bytes of logs that one search looks through.
const READ_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of them at a time; a longer line is read as a whole.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// Bytes of what a call was given that are looked at.
const INPUT_BYTES: usize = 1024 * 1024;

/// What entries are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What was said, by the agent and to it.
    Text,
    /// What tools were given, and what they answered.
    Tool,
}

/// Which entries count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Within {
    /// Only of this lineage.
    pub lineage: Option<LineageId>,
    /// Only of this time and later.
    pub since: Option<Time>,
    pub kind: Option<Kind>,
}

impl LogStore {
    /// The newest entries that have all words, newest first, at most so many.
    ///
    /// Errors: the system's words. A segment that is dropped meanwhile is no error.
    pub fn find(&self, exact: &Exact, within: Within, most: usize) -> io::Result<Searched> {
        let mut segments = self.segments(within.lineage)?;
        sorted::by_key(&mut segments, |segment| std::cmp::Reverse(segment.changed));
        let mut looking = Looking {
            exact,
            within,
            most,
            needles: exact.needles(),
            left: READ_BYTES,
            result: Searched::default(),
        };
        let filed = exact.filed();
        for segment in &segments {
            // Nothing in it is younger than its last change.
            let latest = segment.changed.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            let latest = Time(u64::try_from(latest).unwrap_or(u64::MAX));
            if within.since.is_some_and(|since| latest < since) {
                break;
            }
            looking.result.bytes += segment.length;
            if !looking.is_full_before(latest) {
                looking.segment(segment, &filed)?;
            }
        }
        Ok(looking.result)
    }
}

/// A search under way.
struct Looking<'a> {
    exact: &'a Exact,
    within: Within,
    most: usize,
    needles: Vec<Needle>,
    /// Bytes that may still be read.
    left: u64,
    result: Searched,
}

impl Looking<'_> {
    /// Whether there are as many hits as are wanted, none older than this.
    fn is_full_before(&self, latest: Time) -> bool {
        let found = &self.result.found;
        found.len() >= self.most && found.last().is_some_and(|last| latest < last.record.ts)
    }

    /// Looks through a segment from its end.
    fn segment(&mut self, segment: &Segment, filed: &[Filed]) -> io::Result<()> {
        let mut stretches = Vec::new();
        if let Some(words) = &segment.words {
            stretches = blocks(words, filed)?.into_iter().map(|block| words.block(block)).collect();
        }
        let covered = segment.words.as_ref().map_or(0, |words| words.covered);
        if segment.length > covered {
            stretches.push((covered, segment.length));
        }
        // Dropped as the oldest, or cleaned up, meanwhile.
        let Ok(file) = File::open(&segment.path) else { return Ok(()) };
        let mut found = Vec::new();
        for (from, to) in stretches.into_iter().rev() {
            if to - from > self.left {
                self.result.skipped += to - from;
                continue;
            }
            self.left -= to - from;
            if !self.stretch(&file, segment.lineage, (from, to), &mut found) {
                break;
            }
        }
        let all = &mut self.result.found;
        all.append(&mut found);
        sorted::by(all, |a, b| (b.record.ts, b.record.n).cmp(&(a.record.ts, a.record.n)));
        all.truncate(self.most);
        Ok(())
    }

    /// Looks through whole lines from the last to the first. `false`: what stands before cannot count.
    fn stretch(&self, file: &File, lineage: LineageId, place: (u64, u64), found: &mut Vec<Found>) -> bool {
        let (from, mut to) = place;
        let mut chunk = CHUNK_BYTES;
        let mut bytes = Vec::new();
        while to > from {
            let begin = to.saturating_sub(chunk).max(from);
            bytes.resize(usize::try_from(to - begin).unwrap_or(0), 0);
            if file.read_exact_at(&mut bytes, begin).is_err() {
                return false;
            }
            // The first line may have begun before; one that ends nowhere here is read with more.
            let whole = if begin == from { Some(0) } else { memchr(b'\n', &bytes).map(|at| at + 1) };
            let Some(whole) = whole.filter(|whole| *whole < bytes.len()) else {
                chunk *= 2;
                continue;
            };
            if !self.lines(&bytes[whole..], lineage, found) {
                return false;
            }
            (to, chunk) = (begin + whole as u64, CHUNK_BYTES);
        }
        true
    }

    /// The lines of some bytes that have all words, from the last. `false` as above.
    fn lines(&self, bytes: &[u8], lineage: LineageId, found: &mut Vec<Found>) -> bool {
        let low = bytes.to_ascii_lowercase();
        let Some((first, others)) = self.needles.split_first() else {
            let mut lines = bytes.rsplit(|byte| *byte == b'\n');
            return lines.all(|line| self.line(line, lineage, found));
        };
        // Forward, which is far quicker than backward; what is found is then read from its end.
        let first = Finder::new(first);
        let others: Vec<Finder> = others.iter().map(Finder::new).collect();
        let mut candidates = Vec::new();
        let mut from = 0;
        while let Some(at) = first.find(bytes, &low, (from, low.len())) {
            let begin = memrchr(b'\n', &low[..at]).map_or(0, |line| line + 1);
            let close = memchr(b'\n', &low[at..]).map_or(low.len(), |line| at + line);
            if others.iter().all(|other| other.find(bytes, &low, (begin, close)).is_some()) {
                candidates.push((begin, close));
            }
            from = close + 1;
        }
        candidates.into_iter().rev().all(|(begin, close)| self.line(&bytes[begin..close], lineage, found))
    }

    /// Takes a line when it is a record that counts. `false` as above.
    fn line(&self, line: &[u8], lineage: LineageId, found: &mut Vec<Found>) -> bool {
        let Ok(record) = serde_json::from_slice::<LogRecord>(line) else { return true };
        if self.within.since.is_some_and(|since| record.ts < since) || self.is_full_before(record.ts) {
            return false;
        }
        let Some((kind, text)) = said(&record.entry) else { return true };
        if self.within.kind.is_some_and(|wanted| wanted != kind) {
            return true;
        }
        let Some(place) = self.exact.find(&text) else { return true };
        let excerpt = Exact::excerpt(&text, place);
        found.push(Found { lineage, record, excerpt, score: 1.0 });
        found.len() < self.most
    }
}

/// Looks for one word in many lines.
struct Finder<'a> {
    needle: &'a Needle,
    bytes: memmem::Finder<'a>,
}

impl<'a> Finder<'a> {
    fn new(needle: &'a Needle) -> Self {
        Self { needle, bytes: memmem::Finder::new(&needle.bytes) }
    }

    /// The first place where the word may stand within a part of some lines, given also in small letters.
    fn find(&self, lines: &[u8], low: &[u8], (mut from, to): (usize, usize)) -> Option<usize> {
        loop {
            let at = from + self.bytes.find(low.get(from..to)?)?;
            if self.needle.may_stand(lines, at) {
                return Some(at);
            }
            from = at + 1;
        }
    }
}

/// The blocks of a segment that have all words, in their order.
fn blocks(words: &Words, filed: &[Filed]) -> io::Result<Vec<usize>> {
    let mut fits = vec![true; words.starts.len()];
    for lists in filed {
        let mut any = vec![false; fits.len()];
        for keys in lists {
            let mut all = vec![true; fits.len()];
            for key in keys {
                let mut has = vec![false; fits.len()];
                for block in words.blocks_with(*key)? {
                    has[usize::from(block)] = true;
                }
                all.iter_mut().zip(has).for_each(|(all, has)| *all &= has);
            }
            any.iter_mut().zip(all).for_each(|(any, all)| *any |= all);
        }
        fits.iter_mut().zip(any).for_each(|(fits, any)| *fits &= any);
    }
    Ok(fits.into_iter().enumerate().filter(|(_, fits)| *fits).map(|(at, _)| at).collect())
}

/// What an entry says or does, in words. The end of a turn repeats what was said last.
pub fn said(entry: &LogEntry) -> Option<(Kind, String)> {
    match entry {
        LogEntry::Other(Other::User { text } | Other::Life { text }) => Some((Kind::Text, text.clone())),
        LogEntry::Activity(activity) => match activity {
            Activity::Text { text } | Activity::Thinking { text } | Activity::Trouble { text } => {
                Some((Kind::Text, text.clone()))
            }
            Activity::ToolStarted { name, input, .. } | Activity::PermissionAsked { name, input, .. } => {
                let mut text = name.clone();
                leaves(input, &mut text);
                Some((Kind::Tool, text))
            }
            Activity::ToolEnded { output, .. } => Some((Kind::Tool, output.clone())),
            Activity::TurnEnded(end) if end.is_error => Some((Kind::Text, end.error.clone())),
            _ => None,
        },
    }
}

/// The words of a value, each on a line of its own.
fn leaves(value: &Value, text: &mut String) {
    let add = |words: &str, text: &mut String| {
        if text.len() + words.len() <= INPUT_BYTES {
            text.push('\n');
            text.push_str(words);
        }
    };
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => add(&number.to_string(), text),
        Value::String(words) => add(words, text),
        Value::Array(list) => list.iter().for_each(|one| leaves(one, text)),
        Value::Object(fields) => fields.values().for_each(|one| leaves(one, text)),
    }
}
