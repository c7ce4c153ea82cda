//! The files of one lineage's log.

use super::index::{self, Mark};
use super::raw::{self, Raw, RawPlace};
use super::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, Page, Query, Since};
use crate::agents::report::{LogEntry, LogRecord};
use crate::core::ids::AgentId;
use crate::core::time::Time;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use svc_sys::files::missing_is_fine;

/// Bytes of one segment; a single larger entry has a segment of its own.
pub(super) const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// Segments per lineage: 1 GiB. Beyond that the oldest is dropped.
pub(super) const SEGMENTS_MAX: usize = 128;
/// Bytes between two marks of the index.
const INDEX_EVERY_BYTES: u64 = 64 * 1024;
/// Room for encoding that is kept from one append to the next.
pub(super) const KEPT_ROOM_BYTES: usize = 256 * 1024;

/// One lineage's log; its files are opened when they are first needed.
#[derive(Debug)]
pub(super) struct Lineage {
    dir: PathBuf,
    files: Option<Files>,
    raw: Option<Raw>,
}

#[derive(Debug)]
struct Files {
    /// The number of the first entry of each segment, in order; never empty.
    segments: Vec<u64>,
    /// The newest segment, open for appending.
    file: File,
    /// Its length in bytes, all of it whole lines.
    size: u64,
    /// Where its last mark stands; `None` when it has none.
    marked: Option<u64>,
    /// The next entry's number.
    next: u64,
    last_ts: Time,
    /// Room for lines that are being encoded.
    room: Vec<u8>,
}

/// What can be read of a log at one moment, without its lock.
pub(super) struct Outline {
    dir: PathBuf,
    segments: Vec<u64>,
    next: u64,
    /// How much of the newest segment is whole.
    size: u64,
}

/// Lines that are encoded and not yet written.
#[derive(Debug, Default)]
struct Unwritten {
    bytes: Vec<u8>,
    count: u64,
    marks: Vec<Mark>,
}

/// What a line's place in the order depends on; the rest is not parsed to find it.
#[derive(Deserialize)]
struct Place {
    n: u64,
    #[serde(with = "crate::core::time::rfc3339")]
    ts: Time,
}

/// Which deed of a run a line tells.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeedLine {
    agent_id: AgentId,
    #[serde(default)]
    deed: u64,
}

pub(super) fn segment_path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:012}.jsonl"))
}

/// Where the index of a segment's words stands.
pub(super) fn words_path(segment: &Path) -> PathBuf {
    segment.with_extension("words")
}

fn index_path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:012}.index"))
}

/// One line of a segment: number, time and agent, which deed of its run it tells (0: none), then the fields
/// of the entry.
fn encode(bytes: &mut Vec<u8>, n: u64, head: &str, deed: u64, entry: &impl Serialize) -> io::Result<()> {
    write!(bytes, r#"{{"n":{n}{head}"#)?;
    if deed > 0 {
        write!(bytes, r#","deed":{deed}"#)?;
    }
    let start = bytes.len();
    serde_json::to_writer(&mut *bytes, entry)?;
    // Its fields go on where ours end.
    debug_assert_eq!(bytes.get(start), Some(&b'{'), "an entry is an object");
    bytes[start] = b',';
    bytes.push(b'\n');
    Ok(())
}

/// The numbers in the names of files like `<prefix>000001<suffix>`, in order.
pub(in crate::agents) fn numbers(dir: &Path, prefix: &str, suffix: &str) -> io::Result<Vec<u64>> {
    let number = |name: &str| name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse::<u64>().ok();
    let mut found: Vec<u64> =
        std::fs::read_dir(dir)?.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect();
    found.sort_unstable();
    Ok(found)
}

impl Lineage {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, files: None, raw: None }
    }

    /// Forgets what is known of the files: they are looked at again when next needed.
    pub fn close(&mut self) {
        self.files = None;
        self.raw = None;
    }

    /// Adds entries with as few writes as there are segments to write to. `deed` is which deed of its run the
    /// first of them tells, 0 where they tell none. Returns how many stand there, which are the first of them
    /// where not all could be written.
    pub fn append(
        &mut self,
        agent: AgentId,
        ts: Time,
        deed: u64,
        entries: &[impl Serialize],
    ) -> (usize, io::Result<()>) {
        let files = match &mut self.files {
            Some(files) => files,
            None => match Files::open(&self.dir) {
                Ok(files) => self.files.insert(files),
                Err(error) => return (0, Err(error)),
            },
        };
        let before = files.next;
        let result = files.append(&self.dir, agent, ts, deed, entries);
        let done = usize::try_from(files.next - before).unwrap_or(entries.len());
        if result.is_err() && files.undo().is_err() {
            self.files = None;
        }
        (done, result)
    }

    /// The number of the last entry; 0 when there is none, or nothing is known of the files.
    pub fn last(&self) -> u64 {
        self.files.as_ref().map_or(0, |files| files.next - 1)
    }

    /// How much was printed so far.
    pub fn raw_place(&mut self) -> io::Result<RawPlace> {
        Ok(self.raw()?.place())
    }

    /// Takes back what was added behind this place.
    pub fn rewind_raw(&mut self, place: RawPlace) -> io::Result<()> {
        self.raw = None;
        Raw::rewind(&self.dir, place)
    }

    fn raw(&mut self) -> io::Result<&mut Raw> {
        match &mut self.raw {
            Some(raw) => Ok(raw),
            raw => {
                std::fs::create_dir_all(&self.dir)?;
                Ok(raw.insert(Raw::open(&self.dir)?))
            }
        }
    }

    /// Adds encoded lines with one write.
    pub fn append_raw(&mut self, lines: &[u8]) -> io::Result<()> {
        let dir = self.dir.clone();
        self.raw()?.append(&dir, lines)
    }

    /// `None` when nothing was ever logged.
    pub fn outline(&mut self) -> io::Result<Option<Outline>> {
        if self.files.is_none() {
            if !self.dir.is_dir() {
                return Ok(None);
            }
            self.files = Some(Files::open(&self.dir)?);
        }
        let outline = |files: &Files| Outline {
            dir: self.dir.clone(),
            segments: files.segments.clone(),
            next: files.next,
            size: files.size,
        };
        Ok(self.files.as_ref().map(outline))
    }

    /// Deletes the folder with everything in it.
    pub fn remove(&mut self) -> io::Result<()> {
        self.close();
        std::fs::remove_dir_all(&self.dir).or_else(missing_is_fine)
    }

    /// Deletes segments that were last written before this moment; how many.
    pub fn cleanup(&mut self, older_than: Time) -> io::Result<usize> {
        self.close();
        let limit = UNIX_EPOCH + Duration::from_millis(older_than.0);
        let is_old =
            |path: &Path| path.metadata().and_then(|meta| meta.modified()).is_ok_and(|at| at < limit);
        let mut segments: Vec<PathBuf> =
            raw::numbers(&self.dir)?.into_iter().map(|number| raw::path(&self.dir, number)).collect();
        let firsts = numbers(&self.dir, "", ".jsonl")?;
        segments.extend(firsts.iter().map(|first| segment_path(&self.dir, *first)));
        if segments.iter().all(|path| is_old(path)) {
            std::fs::remove_dir_all(&self.dir)?;
            return Ok(segments.len());
        }
        // The newest segment stays: it knows the next number.
        let newest = firsts.last().map(|first| segment_path(&self.dir, *first));
        segments.retain(|path| is_old(path) && Some(path) != newest.as_ref());
        for path in &segments {
            std::fs::remove_file(path)?;
            let _ = std::fs::remove_file(path.with_extension("index"));
            let _ = std::fs::remove_file(words_path(path));
        }
        Ok(segments.len())
    }
}

impl Files {
    /// Opens the newest segment, drops a torn last line, and finds the next number.
    fn open(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut segments = numbers(dir, "", ".jsonl")?;
        if segments.is_empty() {
            segments.push(1);
        }
        let first = segments[segments.len() - 1];
        let path = segment_path(dir, first);
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let length = file.metadata()?.len();
        let mut marks = index::load(&index_path(dir, first));
        let known = marks.len();
        marks.retain(|mark| mark.offset < length && mark.n >= first);
        let start = Mark { n: first, ts: Time(0), offset: 0 };
        let from = marks.last().copied().unwrap_or(start);
        let mut files =
            Self { segments, file, size: 0, marked: None, next: 0, last_ts: Time(0), room: Vec::new() };
        if !files.check_lines(&path, from)? {
            // The index lies: the segment itself is asked, from its start.
            marks.clear();
            files.check_lines(&path, start)?;
        }
        marks.retain(|mark| mark.offset < files.size);
        if marks.len() != known {
            index::replace(&index_path(dir, first), &marks)?;
        }
        files.marked = marks.last().map(|mark| mark.offset);
        if files.size < length {
            files.undo()?;
        }
        Ok(files)
    }

    /// Reads on from a mark; what stands after the last whole line is not counted. `false` when the mark is
    /// not true.
    fn check_lines(&mut self, path: &Path, from: Mark) -> io::Result<bool> {
        (self.size, self.next, self.last_ts) = (from.offset, from.n, from.ts);
        let mut reader = BufReader::new(File::open(path)?);
        reader.seek(SeekFrom::Start(from.offset))?;
        let (mut line, mut end) = (Vec::new(), from.offset);
        loop {
            line.clear();
            let count = reader.read_until(b'\n', &mut line)?;
            if count == 0 || line.last() != Some(&b'\n') {
                return Ok(true);
            }
            let place = serde_json::from_slice::<Place>(&line).ok();
            if end == from.offset && from.offset > 0 && place.as_ref().is_none_or(|place| place.n != from.n) {
                return Ok(false);
            }
            end += count as u64;
            if let Some(place) = place {
                self.size = end;
                self.next = place.n + 1;
                self.last_ts = self.last_ts.max(place.ts);
            }
        }
    }

    fn append(
        &mut self,
        dir: &Path,
        agent: AgentId,
        ts: Time,
        deed: u64,
        entries: &[impl Serialize],
    ) -> io::Result<()> {
        let ts = ts.max(self.last_ts);
        let head = format!(r#","ts":"{ts}","agentId":"{agent}""#);
        let mut lines = Unwritten { bytes: std::mem::take(&mut self.room), ..Unwritten::default() };
        lines.bytes.clear();
        let mut marked = self.marked;
        for (entry, at) in entries.iter().zip(0..) {
            let start = lines.bytes.len();
            let n = self.next + lines.count;
            let deed = if deed == 0 { 0 } else { deed + at };
            encode(&mut lines.bytes, n, &head, deed, entry)?;
            if self.size + start as u64 > 0 && self.size + lines.bytes.len() as u64 > SEGMENT_BYTES {
                let line = lines.bytes.split_off(start);
                self.write(dir, ts, &mut lines)?;
                self.begin_segment(dir)?;
                (lines.bytes, marked) = (line, None);
            }
            let offset = self.size + if lines.count == 0 { 0 } else { start as u64 };
            if marked.is_none_or(|marked| offset - marked >= INDEX_EVERY_BYTES) {
                lines.marks.push(Mark { n, ts, offset });
                marked = Some(offset);
            }
            lines.count += 1;
        }
        self.write(dir, ts, &mut lines)?;
        if lines.bytes.capacity() <= KEPT_ROOM_BYTES {
            self.room = lines.bytes;
        }
        Ok(())
    }

    /// Writes what is encoded, and has nothing unwritten then.
    fn write(&mut self, dir: &Path, ts: Time, lines: &mut Unwritten) -> io::Result<()> {
        if lines.count == 0 {
            return Ok(());
        }
        self.file.write_all(&lines.bytes)?;
        self.size += lines.bytes.len() as u64;
        self.next += lines.count;
        self.last_ts = ts;
        let first = self.segments[self.segments.len() - 1];
        for mark in &lines.marks {
            // The line stands; a missing mark only makes reading slower, and a later line tries again.
            if index::add(&index_path(dir, first), *mark).is_ok() {
                self.marked = Some(mark.offset);
            }
        }
        lines.bytes.clear();
        lines.marks.clear();
        lines.count = 0;
        Ok(())
    }

    fn begin_segment(&mut self, dir: &Path) -> io::Result<()> {
        self.file = OpenOptions::new().create(true).append(true).open(segment_path(dir, self.next))?;
        self.segments.push(self.next);
        self.size = 0;
        self.marked = None;
        while self.segments.len() > SEGMENTS_MAX {
            let oldest = self.segments.remove(0);
            std::fs::remove_file(segment_path(dir, oldest))?;
            let _ = std::fs::remove_file(index_path(dir, oldest));
            let _ = std::fs::remove_file(words_path(&segment_path(dir, oldest)));
        }
        Ok(())
    }

    /// Cuts off what is not a whole line.
    fn undo(&self) -> io::Result<()> {
        self.file.set_len(self.size)
    }
}

impl Outline {
    /// The entries that are asked for, at most a page, and where the next page begins.
    pub fn read(&self, query: Query) -> io::Result<Page> {
        let mut from = match query.since {
            None => 1,
            Some(Since::Number(n)) => n.saturating_add(1),
            Some(Since::Time(ts)) => self.first_at(ts)?,
        };
        from = from.max(self.segments[0]);
        if let Some(tail) = query.tail {
            from = from.max(self.next.saturating_sub(tail));
        }
        let limit = query.limit.unwrap_or(PAGE_ENTRIES_MAX).min(PAGE_ENTRIES_MAX);
        let mut page = Page::default();
        let mut bytes = 0;
        let begin = self.segments.partition_point(|first| *first <= from).saturating_sub(1);
        for at in begin..self.segments.len() {
            let go_on = self.each_line(
                at,
                |mark| mark.n <= from,
                |line| {
                    let Ok(record) = serde_json::from_slice::<LogRecord>(line) else { return true };
                    if record.n < from {
                        return true;
                    }
                    bytes += line.len();
                    if page.entries.len() >= limit || (bytes > PAGE_BYTES_MAX && !page.entries.is_empty()) {
                        page.next = Some(page.entries.last().map_or(from.saturating_sub(1), |last| last.n));
                        return false;
                    }
                    page.entries.push(record);
                    true
                },
            )?;
            if !go_on {
                break;
            }
        }
        Ok(page)
    }

    /// The last deed of this run that stands in the log; 0 where none does in the newest two segments.
    pub fn last_deed(&self, agent: AgentId) -> io::Result<u64> {
        let newest = self.segments.len() - 1;
        let mut last = 0;
        // Behind the last mark, where it nearly always stands; else wherever.
        let places = [(newest, true), (newest, false), (newest.saturating_sub(1), false)];
        for (segment, at_its_end) in places {
            self.each_line(
                segment,
                |_| at_its_end,
                |line| {
                    let found = serde_json::from_slice::<DeedLine>(line).ok();
                    let found = found.filter(|found| found.agent_id == agent);
                    last = last.max(found.map_or(0, |found| found.deed));
                    true
                },
            )?;
            if last > 0 {
                break;
            }
        }
        Ok(last)
    }

    /// The last entry of this life for which `is_wanted` holds, in the newest two segments; `at_its_end`:
    /// only behind the last mark.
    pub fn last_of(
        &self,
        agent: AgentId,
        at_its_end: bool,
        is_wanted: impl Fn(&LogEntry) -> bool,
    ) -> io::Result<Option<LogEntry>> {
        let newest = self.segments.len() - 1;
        let mut last = None;
        for segment in newest.saturating_sub(usize::from(!at_its_end))..=newest {
            self.each_line(
                segment,
                |_| at_its_end,
                |line| {
                    let found = serde_json::from_slice::<LogRecord>(line).ok();
                    let found = found.filter(|found| found.agent_id == agent && is_wanted(&found.entry));
                    last = found.map(|found| found.entry).or_else(|| last.take());
                    true
                },
            )?;
        }
        Ok(last)
    }

    /// The number of the first entry at or after a time.
    fn first_at(&self, ts: Time) -> io::Result<u64> {
        // The segment before the first that begins late enough holds the border.
        let begins = |first: &u64| index::load(&index_path(&self.dir, *first)).first().map(|mark| mark.ts);
        let at = self.segments.partition_point(|first| begins(first).is_some_and(|begin| begin < ts));
        let at = at.saturating_sub(1);
        let mut found = None;
        self.each_line(
            at,
            |mark| mark.ts < ts,
            |line| {
                let place = serde_json::from_slice::<Place>(line).ok().filter(|place| place.ts >= ts);
                found = place.map(|place| place.n);
                found.is_none()
            },
        )?;
        Ok(found.or_else(|| self.segments.get(at + 1).copied()).unwrap_or(self.next))
    }

    /// Gives the lines of a segment to `take` until it says `false`, beginning at the last mark for which
    /// `skip_to` holds. Returns whether all were taken.
    fn each_line(
        &self,
        at: usize,
        skip_to: impl Fn(&Mark) -> bool,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<bool> {
        let first = self.segments[at];
        let file = match File::open(segment_path(&self.dir, first)) {
            // Dropped as the oldest, or cleaned up, since the outline was taken.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            file => file?,
        };
        let end = if at + 1 == self.segments.len() { self.size } else { u64::MAX };
        let marks = index::load(&index_path(&self.dir, first));
        let offset = marks.iter().take_while(|mark| skip_to(mark)).last().map_or(0, |mark| mark.offset);
        let mut reader = BufReader::new(file);
        reader.seek(SeekFrom::Start(offset))?;
        let mut reader = reader.take(end.saturating_sub(offset));
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            if !take(&line) {
                return Ok(false);
            }
            line.clear();
        }
        Ok(true)
    }
}
