//! Records that no daemon has taken in yet: the newest in memory, older ones in files without a name.
//!
//! ```text
//! first                                                    end
//!   │ file │ file │ ... │ memory (up to 256 KiB, then a file) │
//! ```
//!
//! Each part starts with a record and holds whole ones.

use super::limits::{Limits, READ_ROOM};
use super::protocol::{RECORD_HEAD_BYTES, Record, record_length};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a file that are looked at together.
const LOOK_BYTES: usize = 64 << 10;
/// Room that memory keeps while it is empty.
const KEPT_BYTES: usize = 64 << 10;
/// What a file is called for the moment in which it has a name.
const SPILL: &str = "spill";

/// The spool.
pub(crate) struct Spool {
    limits: Limits,
    folder: PathBuf,
    files: VecDeque<Spill>,
    memory: Vec<u8>,
    /// The offset of the first byte in memory.
    memory_at: u64,
    /// The offset of the first record that was not taken.
    first: u64,
    /// When the disk is tried again that has refused.
    retry: Option<Instant>,
}

struct Spill {
    file: File,
    start: u64,
    length: u64,
}

impl Spill {
    /// Errors: the disk refuses.
    fn create(folder: &Path, start: u64) -> io::Result<Self> {
        let path = folder.join(SPILL);
        // Of a keeper that was killed between the two.
        let _ = std::fs::remove_file(&path);
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self { file, start, length: 0 })
    }

    fn end(&self) -> u64 {
        self.start + self.length
    }
}

impl Spool {
    /// Its files are in this folder while they have a name.
    pub fn new(limits: Limits, folder: PathBuf) -> Self {
        Self {
            limits,
            folder,
            files: VecDeque::new(),
            memory: Vec::new(),
            memory_at: 0,
            first: 0,
            retry: None,
        }
    }

    /// The offset of the first record that is kept.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The offset behind the last record.
    pub fn end(&self) -> u64 {
        self.memory_at + length(&self.memory)
    }

    /// Whether nothing more that a program prints may be added.
    pub fn is_full(&self) -> bool {
        let oldest = self.files.front().map_or(self.first, |file| file.start);
        let kept = self.end() - oldest;
        kept + READ_ROOM as u64 > self.limits.spool_bytes_max
            || self.in_memory() + READ_ROOM > self.limits.memory_bytes_max
    }

    /// When the disk is to be tried again.
    pub fn retry(&self) -> Option<Instant> {
        self.retry
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record<'_>, time: u64, now: Instant) {
        if record.put(time, &mut self.memory).is_err() {
            // Nothing that is written down is longer than 32 bits can say.
            return;
        }
        self.make_room(now);
    }

    /// Moves what is too much for memory to a file, unless the disk has just refused.
    pub fn make_room(&mut self, now: Instant) {
        if self.in_memory() <= self.limits.memory_bytes {
            self.retry = None;
            return;
        }
        if self.retry.is_some_and(|retry| now < retry) {
            return;
        }
        self.retry = match self.spill() {
            Ok(()) => None,
            Err(error) => {
                if self.retry.is_none() {
                    eprintln!("svc: output cannot be kept on disk: {error}");
                }
                now.checked_add(self.limits.disk_pause)
            }
        };
    }

    /// Bytes in memory that were not taken.
    fn in_memory(&self) -> usize {
        self.memory.len() - self.taken_in_memory()
    }

    fn taken_in_memory(&self) -> usize {
        usize::try_from(self.first.saturating_sub(self.memory_at)).unwrap_or(usize::MAX)
    }

    fn spill(&mut self) -> io::Result<()> {
        let taken = self.taken_in_memory();
        let start = self.memory_at + length(&self.memory[..taken]);
        if self.files.back().is_none_or(|file| file.length >= self.limits.spill_bytes) {
            self.files.push_back(Spill::create(&self.folder, start)?);
        }
        let Some(file) = self.files.back_mut() else { return Ok(()) };
        let bytes = &self.memory[taken..];
        // What a refused write has left is written over by the next.
        if let Err(error) = file.file.write_all_at(bytes, file.length) {
            if file.length == 0 {
                self.files.pop_back();
            }
            return Err(error);
        }
        file.length += length(bytes);
        self.memory_at = self.end();
        self.memory = Vec::new();
        Ok(())
    }

    /// Appends whole records from `offset` on to `out`: as many as `most` bytes have room for, one at least.
    /// Returns their bytes; 0 when there are none.
    ///
    /// Errors: a file cannot be read.
    pub fn read(&self, offset: u64, most: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        if let Some(file) = self.files.iter().find(|file| (file.start..file.end()).contains(&offset)) {
            let before = out.len();
            let (at, left) = (offset - file.start, usize::try_from(file.end() - offset).unwrap_or(most));
            out.resize(before + most.max(RECORD_HEAD_BYTES).min(left), 0);
            file.file.read_exact_at(&mut out[before..], at)?;
            let mut whole = whole_records(&out[before..]);
            if whole == 0 {
                whole = record_length(&out[before..]).unwrap_or(0).min(left);
                out.resize(before + whole, 0);
                file.file.read_exact_at(&mut out[before..], at)?;
            }
            out.truncate(before + whole);
            return Ok(whole);
        }
        let rest = offset.checked_sub(self.memory_at).and_then(|at| usize::try_from(at).ok());
        let rest = rest.and_then(|at| self.memory.get(at..)).unwrap_or_default();
        let mut whole = whole_records(&rest[..rest.len().min(most)]);
        if whole == 0 {
            whole = record_length(rest).unwrap_or(0).min(rest.len());
        }
        out.extend_from_slice(&rest[..whole]);
        Ok(whole)
    }

    /// Whether a record starts at `offset`, or would as the next one.
    pub fn is_start(&self, offset: u64) -> bool {
        offset >= self.first && self.last_start(offset).is_ok_and(|start| start == offset)
    }

    /// Lets go of records that end at or before `offset`.
    pub fn taken(&mut self, offset: u64) {
        // A file that cannot be read keeps what it has.
        let Ok(start) = self.last_start(offset) else { return };
        self.first = self.first.max(start);
        while self.files.front().is_some_and(|file| file.end() <= self.first) {
            self.files.pop_front();
        }
        let taken = self.taken_in_memory();
        if taken > 0 && (taken == self.memory.len() || taken >= self.limits.memory_bytes / 2) {
            self.memory.drain(..taken);
            self.memory_at = self.first;
        }
        if self.memory.is_empty() && self.memory.capacity() > KEPT_BYTES {
            self.memory = Vec::new();
        }
    }

    /// The last start of a record at or before `offset`, which is one that was not taken.
    fn last_start(&self, offset: u64) -> io::Result<u64> {
        let mut at = self.first;
        for file in &self.files {
            let to = offset.min(file.end());
            let mut part = Vec::new();
            while at < to {
                let left = usize::try_from(file.end() - at).unwrap_or(LOOK_BYTES);
                part.resize(left.min(LOOK_BYTES.max(READ_ROOM)), 0);
                file.file.read_exact_at(&mut part, at - file.start)?;
                let most = usize::try_from(to - at).unwrap_or(usize::MAX);
                let mut whole = whole_records(&part[..part.len().min(most)]);
                if whole == 0 {
                    // One that goes beyond what was asked for, or one longer than any look.
                    whole = record_length(&part).unwrap_or(0);
                    if whole == 0 || whole > most {
                        return Ok(at);
                    }
                }
                at += whole as u64;
            }
        }
        if offset < self.memory_at || at < self.memory_at {
            return Ok(at);
        }
        let from = usize::try_from(at - self.memory_at).unwrap_or(usize::MAX);
        let to = usize::try_from(offset - self.memory_at).unwrap_or(usize::MAX).min(self.memory.len());
        Ok(at + self.memory.get(from..to).map_or(0, whole_records) as u64)
    }
}

/// Bytes of the whole records at the start of `bytes`.
fn whole_records(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(length) = record_length(&bytes[at..]).filter(|length| *length <= bytes.len() - at) {
        at += length;
    }
    at
}

fn length(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

#[cfg(test)]
mod tests;
