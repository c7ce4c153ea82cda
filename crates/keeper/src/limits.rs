//! What a keeper holds at most, and how long it waits.

use super::protocol::CHUNK_BYTES_MAX;
use std::time::Duration;

/// The bounds of a keeper. Tests have smaller ones.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of records that are kept in memory; more goes to files.
    pub memory_bytes: usize,
    /// Bytes in memory while the disk takes nothing.
    pub memory_bytes_max: usize,
    /// Bytes of one file.
    pub spill_bytes: u64,
    /// Bytes of records in all; then the program waits.
    pub spool_bytes_max: u64,
    /// How long a disk that has refused is left alone.
    pub disk_pause: Duration,
    /// Bytes that may wait for the program to read its input.
    pub input_bytes_max: usize,
    /// Writes that may wait for it.
    pub input_writes_max: usize,
    /// Bytes of notes that are not taken.
    pub note_bytes_max: usize,
    /// How long the program may leave its input unread before that is told.
    pub stuck: Duration,
    /// How long a connection may take for its first word.
    pub hello: Duration,
    /// Connections that have not said it.
    pub strangers_max: usize,
    /// How long the pipes may stay open once every process is gone.
    pub drain: Duration,
    /// Bytes that are read of each meanwhile, however much waits already; no pipe holds more.
    pub drain_bytes: usize,
    /// How long what happened is kept for a daemon to fetch.
    pub stay: Duration,
    /// How long a daemon may take for the last records when the keeper was told to go.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 10,
            memory_bytes_max: 1 << 20,
            spill_bytes: 8 << 20,
            spool_bytes_max: 64 << 20,
            disk_pause: Duration::from_secs(1),
            input_bytes_max: 16 << 20,
            input_writes_max: 4096,
            note_bytes_max: 8 << 20,
            stuck: Duration::from_secs(10),
            hello: Duration::from_secs(5),
            strangers_max: 4,
            drain: Duration::from_secs(2),
            drain_bytes: 1 << 20,
            stay: Duration::from_secs(7 * 24 * 60 * 60),
            farewell: Duration::from_secs(5),
        }
    }
}

/// Bytes that one more read may add to the spool.
pub(crate) const READ_ROOM: usize = CHUNK_BYTES_MAX + super::protocol::RECORD_HEAD_BYTES;
