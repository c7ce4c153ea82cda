//! What a program really printed, for the days when its parser is wrong. Bounded: the oldest is dropped.

use super::Stream;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Bytes of one raw segment.
const RAW_SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// Raw segments per lineage.
const RAW_SEGMENTS_MAX: usize = 4;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RawLine<'a> {
    #[serde(with = "crate::core::time::rfc3339")]
    ts: Time,
    agent_id: AgentId,
    stream: Stream,
    line: &'a str,
}

/// The newest raw segment, open for appending.
#[derive(Debug)]
pub(super) struct Raw {
    number: u64,
    file: File,
    size: u64,
}

impl Raw {
    pub fn open(dir: &Path) -> io::Result<Self> {
        let newest = numbers(dir)?.last().copied().unwrap_or(1);
        Self::open_number(dir, newest)
    }

    fn open_number(dir: &Path, number: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path(dir, number))?;
        let size = file.metadata()?.len();
        Ok(Self { number, file, size })
    }

    pub fn append(
        &mut self,
        dir: &Path,
        agent_id: AgentId,
        ts: Time,
        stream: Stream,
        line: &str,
    ) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(&RawLine { ts, agent_id, stream, line })?;
        bytes.push(b'\n');
        let length = bytes.len() as u64;
        if self.size > 0 && self.size + length > RAW_SEGMENT_BYTES {
            *self = Self::open_number(dir, self.number + 1)?;
            let all = numbers(dir)?;
            for old in &all[..all.len().saturating_sub(RAW_SEGMENTS_MAX)] {
                std::fs::remove_file(path(dir, *old))?;
            }
        }
        if let Err(error) = self.file.write_all(&bytes) {
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
