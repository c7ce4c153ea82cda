//! Asking all logs at once. Closed segments have an index of their words ([`super::words`]), which says where
//! a look is worth it; what no index knows yet is read as it is.
//!
//! **Invariant:** a question reads at most [`BLOCKS_READ`] blocks and [`SCAN_BYTES`] without an index; what
//! is not looked at is counted.

use super::LogStore;
use super::lineage::{numbers, segment_path, words_path};
use super::words::{self, Words};
use crate::agents::report::{LogEntry, LogRecord, Other};
use crate::core::ids::LineageId;
use crate::providers::Activity;
use memchr::memmem;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use svc_base::matching::Matcher;
use svc_base::sorted;

/// Blocks that a question reads, those that promise most.
const BLOCKS_READ: usize = 96;
/// Bytes without an index that a question reads, the latest first.
const SCAN_BYTES: u64 = 24 * 1024 * 1024;
/// What grows without an index before the newest segment gets another one.
const UNCOVERED_BYTES: u64 = 512 * 1024;
/// Characters that are shown of a record.
const EXCERPT_CHARS: usize = 320;
/// Lines that are remembered while more are read.
const KEPT_LINES: usize = 2_000;
/// Lines that are remembered for each that is shown: repetitions fall out.
const SPARE: usize = 6;

/// A record that answers a question.
#[derive(Debug, Clone)]
pub struct Found {
    pub lineage: LineageId,
    pub record: LogRecord,
    /// What of it answers, on one line.
    pub excerpt: String,
    pub score: f32,
}

/// What a search came to.
#[derive(Debug, Default)]
pub struct Searched {
    /// Best first.
    pub found: Vec<Found>,
    /// Bytes of the logs that were asked, by their index or as they are.
    pub bytes: u64,
    /// Bytes that have no index yet and were too much to read.
    pub skipped: u64,
}

/// A segment of a log, and its index.
pub(super) struct Segment {
    pub lineage: LineageId,
    pub path: PathBuf,
    pub length: u64,
    pub changed: std::time::SystemTime,
    pub words: Option<Words>,
}

/// A stretch of a segment that is to be read.
struct Stretch {
    segment: usize,
    from: u64,
    to: u64,
    score: f32,
}

/// A line that has words of the question.
struct Line {
    lineage: LineageId,
    bytes: Vec<u8>,
    score: f32,
}

impl LogStore {
    /// The records of all logs, or of one, that answer the question best. `matcher` learns from them which of
    /// its words are rare.
    ///
    /// Errors: the system's words. A segment that is dropped meanwhile is no error.
    pub fn search(
        &self,
        matcher: &mut Matcher,
        only: Option<LineageId>,
        most: usize,
    ) -> io::Result<Searched> {
        let segments = self.segments(only)?;
        let mut searched =
            Searched { bytes: segments.iter().map(|segment| segment.length).sum(), ..Searched::default() };
        let mut stretches = promising(&segments, matcher)?;
        let has_index = !stretches.is_empty();
        stretches.extend(unindexed(&segments, &mut searched.skipped));
        let mut lines = Vec::new();
        let mut holders = vec![0; matcher.wanted().len()];
        let mut all = 0;
        for stretch in stretches {
            let segment = &segments[stretch.segment];
            let mut bytes = vec![0; usize::try_from(stretch.to - stretch.from).unwrap_or(0)];
            if File::open(&segment.path)
                .and_then(|file| file.read_exact_at(&mut bytes, stretch.from))
                .is_err()
            {
                continue;
            }
            for line in bytes.split(|byte| *byte == b'\n') {
                all += 1;
                let Some(best) = matcher.best(line) else { continue };
                holders
                    .iter_mut()
                    .enumerate()
                    .for_each(|(at, count)| *count += usize::from(best.words >> at & 1 == 1));
                let score = best.score * weight_of(line);
                lines.push(Line { lineage: segment.lineage, bytes: line.to_vec(), score });
            }
            if lines.len() > KEPT_LINES * 2 {
                keep_best(&mut lines, KEPT_LINES);
            }
        }
        if !has_index {
            // Which words are rare is known only now.
            matcher.weigh(holders.into_iter().map(|with| rarity(with, all)).collect());
            for line in &mut lines {
                line.score =
                    matcher.best(&line.bytes).map_or(0.0, |best| best.score * weight_of(&line.bytes));
            }
        }
        keep_best(&mut lines, most * SPARE);
        searched.found = shown(lines, matcher, most);
        Ok(searched)
    }

    /// Makes the missing indexes of all logs: of closed segments, and of the newest where much has come
    /// since. Asks before each whether to go on. Returns how many were made.
    ///
    /// Errors: the system's words, of the first that cannot be made.
    pub fn index_words(&self, mut go_on: impl FnMut() -> bool) -> io::Result<usize> {
        let mut made = 0;
        for segment in self.segments(None)? {
            let covered = segment.words.as_ref().map_or(0, |words| words.covered);
            if segment.length - covered < UNCOVERED_BYTES {
                continue;
            }
            if !go_on() {
                break;
            }
            let upto = whole_lines(&segment.path, segment.length)?;
            match words::build(&segment.path, &words_path(&segment.path), upto) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(()) => made += 1,
            }
        }
        Ok(made)
    }

    /// The segments of all logs, or of one, oldest lineage first.
    pub(super) fn segments(&self, only: Option<LineageId>) -> io::Result<Vec<Segment>> {
        let mut segments = Vec::new();
        for entry in std::fs::read_dir(&self.dir)?.flatten() {
            let lineage: Option<LineageId> = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(lineage) = lineage.filter(|lineage| only.is_none_or(|only| only == *lineage)) else {
                continue;
            };
            let Ok(firsts) = numbers(&entry.path(), "", ".jsonl") else { continue };
            for first in firsts {
                let path = segment_path(&entry.path(), first);
                let Ok(meta) = path.metadata() else { continue };
                let changed = meta.modified().unwrap_or(std::time::UNIX_EPOCH);
                let words = Words::open(&words_path(&path), meta.len());
                segments.push(Segment { lineage, path, length: meta.len(), changed, words });
            }
        }
        Ok(segments)
    }
}

/// How much of a segment is whole lines.
fn whole_lines(path: &std::path::Path, length: u64) -> io::Result<u64> {
    const BACK: u64 = 1 << 20;
    let from = length.saturating_sub(BACK);
    let mut bytes = vec![0; usize::try_from(length - from).unwrap_or(0)];
    File::open(path)?.read_exact_at(&mut bytes, from)?;
    let end = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at as u64 + 1);
    Ok(if end == 0 && from > 0 { length } else { from + end })
}

/// The blocks that promise most, by the rarity of the words they have.
fn promising(segments: &[Segment], matcher: &mut Matcher) -> io::Result<Vec<Stretch>> {
    let mut places: Vec<(usize, usize, bool, Vec<u8>)> = Vec::new();
    let mut blocks_of = vec![0_usize; matcher.wanted().len()];
    let mut all = 0;
    for (at, segment) in segments.iter().enumerate() {
        let Some(words) = &segment.words else { continue };
        all += words.starts.len();
        for (word, wanted) in matcher.wanted().iter().enumerate() {
            let own = std::iter::once((wanted.key, true));
            for (key, is_own) in own.chain(wanted.near.iter().map(|(key, _)| (*key, false))) {
                let blocks = words.blocks_with(key)?;
                if is_own {
                    blocks_of[word] += blocks.len();
                }
                if !blocks.is_empty() {
                    places.push((at, word, is_own, blocks));
                }
            }
        }
    }
    if all > 0 {
        matcher.weigh(blocks_of.iter().map(|with| rarity(*with, all)).collect());
    }
    let mut stretches = Vec::new();
    for of_segment in places.chunk_by(|a, b| a.0 == b.0) {
        let at = of_segment[0].0;
        let Some(words) = &segments[at].words else { continue };
        let mut scores = vec![0.0_f32; words.starts.len()];
        for of_word in of_segment.chunk_by(|a, b| a.1 == b.1) {
            let mut of_block = vec![0.0_f32; words.starts.len()];
            for (_, word, is_own, blocks) in of_word {
                for block in blocks {
                    let known = &mut of_block[usize::from(*block)];
                    *known = known.max(matcher.weight(*word, *is_own));
                }
            }
            scores.iter_mut().zip(of_block).for_each(|(sum, score)| *sum += score);
        }
        let found = scores.into_iter().enumerate().filter(|(_, score)| *score > 0.0);
        stretches.extend(found.map(|(block, score)| {
            let (from, to) = words.block(block);
            Stretch { segment: at, from, to, score }
        }));
    }
    // Of equals the later: stable, from the end.
    stretches.reverse();
    sorted::by(&mut stretches, |a, b| b.score.total_cmp(&a.score));
    stretches.truncate(BLOCKS_READ);
    Ok(stretches)
}

/// What no index knows, the latest first, as much as may be read.
fn unindexed(segments: &[Segment], skipped: &mut u64) -> Vec<Stretch> {
    let mut rest: Vec<(usize, u64)> = segments
        .iter()
        .map(|segment| segment.words.as_ref().map_or(0, |words| words.covered))
        .enumerate()
        .filter(|(at, covered)| segments[*at].length > *covered)
        .collect();
    sorted::by_key(&mut rest, |(at, _)| std::cmp::Reverse(segments[*at].changed));
    let mut left = SCAN_BYTES;
    let mut stretches = Vec::new();
    for (at, covered) in rest {
        let length = segments[at].length - covered;
        if length > left {
            *skipped += length;
            continue;
        }
        left -= length;
        stretches.push(Stretch { segment: at, from: covered, to: segments[at].length, score: 0.0 });
    }
    stretches
}

/// What a word counts that so many of all blocks have.
#[allow(clippy::cast_precision_loss, reason = "counts of blocks are far below 2^23, and it is a weight")]
fn rarity(with: usize, all: usize) -> f32 {
    let (with, all) = (with.min(all) as f32, all as f32);
    ((all - with + 0.5) / (with + 0.5)).ln_1p().max(0.05)
}

/// What was said counts more than what was read, and what we said ourselves hardly anything.
fn weight_of(line: &[u8]) -> f32 {
    let head = &line[..line.len().min(300)];
    let is = |kind: &[u8]| memmem::find(head, kind).is_some();
    let ours = || {
        let begins = &line[..line.len().min(4_000)];
        [&b"# Handoff from your predecessor"[..], b"# Briefing for "]
            .iter()
            .any(|mark| memmem::find(begins, mark).is_some())
    };
    if is(br#""type":"user""#) {
        return if ours() { 0.2 } else { 1.35 };
    }
    match () {
        () if is(br#""type":"text""#) => 1.25,
        () if is(br#""type":"usage""#) || is(br#""type":"session""#) => 0.1,
        () if is(br#""type":"tool-started""#) => 0.95,
        () => 1.0,
    }
}

fn keep_best(lines: &mut Vec<Line>, most: usize) {
    sorted::by(lines, |a, b| b.score.total_cmp(&a.score));
    lines.truncate(most);
}

/// The best lines as records, each text once.
fn shown(lines: Vec<Line>, matcher: &Matcher, most: usize) -> Vec<Found> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for line in lines {
        let Ok(record) = serde_json::from_slice::<LogRecord>(&line.bytes) else { continue };
        let excerpt = matcher.excerpt(&text_of(&record.entry), EXCERPT_CHARS);
        if excerpt.is_empty() || !seen.insert(excerpt.clone()) {
            continue;
        }
        found.push(Found { lineage: line.lineage, record, excerpt, score: line.score });
        if found.len() >= most {
            break;
        }
    }
    found
}

/// What a record says.
fn text_of(entry: &LogEntry) -> String {
    match entry {
        LogEntry::Other(Other::User { text } | Other::Life { text }) => text.clone(),
        LogEntry::Activity(activity) => match activity {
            Activity::Text { text }
            | Activity::Thinking { text }
            | Activity::Trouble { text }
            | Activity::Noise { text } => text.clone(),
            Activity::ToolStarted { name, input, .. } => format!("{name} {input}").replace("\\n", "\n"),
            Activity::ToolEnded { output, .. } => output.clone(),
            Activity::TurnEnded(end) if end.is_error => end.error.clone(),
            Activity::TurnEnded(end) => end.text.clone(),
            _ => String::new(),
        },
    }
}
