//! What a program really printed, for the days when its parser is wrong. Bounded: the oldest is dropped.

use super::Stream;
use super::lineage::KEPT_ROOM_BYTES;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use svc_base::json_text::push_json_text;

/// Bytes of one raw segment.
const RAW_SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// Raw segments per lineage.
const RAW_SEGMENTS_MAX: usize = 4;

/// Lines that wait to be written together, encoded.
#[derive(Debug)]
pub struct RawLines {
    agent: AgentId,
    stream: Stream,
    bytes: Vec<u8>,
    ts: Time,
    /// What a line begins with at that time.
    head: String,
}

impl RawLines {
    /// None yet, of this output of an agent.
    pub fn new(agent: AgentId, stream: Stream) -> Self {
        let mut lines = Self { agent, stream, bytes: Vec::new(), ts: Time(0), head: String::new() };
        lines.at(Time(0));
        lines
    }

    /// The time of the lines to come.
    pub fn at(&mut self, ts: Time) {
        if ts == self.ts && !self.head.is_empty() {
            return;
        }
        let stream = match self.stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        self.ts = ts;
        self.head = format!(r#"{{"ts":"{ts}","agentId":"{}","stream":"{stream}","line":"#, self.agent);
    }

    /// Adds a line as the program printed it.
    pub fn push(&mut self, line: &str) {
        self.bytes.extend_from_slice(self.head.as_bytes());
        push_json_text(&mut self.bytes, line);
        self.bytes.extend_from_slice(b"}\n");
    }

    /// The encoded lines.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets them.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        // One long line is no reason to keep its room.
        self.bytes.shrink_to(KEPT_ROOM_BYTES);
    }
}

/// How much was printed: in which segment it stands last, and how far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawPlace {
    segment: u64,
    bytes: u64,
}

/// The newest raw segment, open for appending.
#[derive(Debug)]
pub(super) struct Raw {
    number: u64,
    file: File,
    size: u64,
}

impl Raw {
    /// Goes on in the newest segment, or begins the first.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let newest = numbers(dir)?.last().copied().unwrap_or(1);
        Self::open_number(dir, newest)
    }

    fn open_number(dir: &Path, number: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path(dir, number))?;
        let size = file.metadata()?.len();
        Ok(Self { number, file, size })
    }

    /// Where the next line will stand.
    pub fn place(&self) -> RawPlace {
        RawPlace { segment: self.number, bytes: self.size }
    }

    /// Takes back what was added behind this place.
    pub fn rewind(dir: &Path, place: RawPlace) -> io::Result<()> {
        for number in numbers(dir)?.into_iter().filter(|number| *number > place.segment) {
            std::fs::remove_file(path(dir, number))?;
        }
        let file = match OpenOptions::new().write(true).open(path(dir, place.segment)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        if file.metadata()?.len() > place.bytes {
            file.set_len(place.bytes)?;
        }
        Ok(())
    }

    /// Adds encoded lines with one write; nothing of them when it fails.
    pub fn append(&mut self, dir: &Path, lines: &[u8]) -> io::Result<()> {
        let length = lines.len() as u64;
        if self.size > 0 && self.size + length > RAW_SEGMENT_BYTES {
            *self = Self::open_number(dir, self.number + 1)?;
            let all = numbers(dir)?;
            for old in &all[..all.len().saturating_sub(RAW_SEGMENTS_MAX)] {
                std::fs::remove_file(path(dir, *old))?;
            }
        }
        if let Err(error) = self.file.write_all(lines) {
            // A half line would swallow the next one.
            let _ = self.file.set_len(self.size);
            return Err(error);
        }
        self.size += length;
        Ok(())
    }
}

pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("raw-{number:06}.jsonl"))
}

/// The numbers of the segments that exist, in order.
pub(super) fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    super::lineage::numbers(dir, "raw-", ".jsonl")
}
