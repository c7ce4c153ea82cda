//! The last messages, for clients that come back.

use super::queue::Frames;
use crate::{files, regular};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes of messages kept.
pub const RING_BYTES: usize = 4 << 20;

/// Consecutive messages of one kind, as they were sent.
pub struct Entry {
    pub kind: Cow<'static, str>,
    /// `seq` of the first.
    pub first: u64,
    /// Where each message's frame begins in the bytes.
    pub starts: Vec<usize>,
    pub frames: Frames,
}

/// The head of a ring on disk; the bytes of its entries follow its line.
#[derive(Serialize, Deserialize)]
struct Head {
    seq: u64,
    dropped_to: u64,
    entries: Vec<HeadEntry>,
}

#[derive(Serialize, Deserialize)]
struct HeadEntry {
    kind: Cow<'static, str>,
    first: u64,
    starts: Vec<usize>,
    bytes: usize,
}

/// The replay ring. Grows on demand up to [`RING_BYTES`].
#[derive(Default)]
pub struct Ring {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// `seq` of the last message that was dropped.
    dropped_to: u64,
}

impl Ring {
    /// An empty ring after message `seq`.
    pub fn new(seq: u64) -> Self {
        Self { dropped_to: seq, ..Self::default() }
    }

    /// Writes the ring, whose last message was `seq`, for the next daemon.
    pub fn save(&self, seq: u64, path: &Path) -> io::Result<()> {
        let entries = self.entries.iter().map(|entry| HeadEntry {
            kind: entry.kind.clone(),
            first: entry.first,
            starts: entry.starts.clone(),
            bytes: entry.frames.bytes.len(),
        });
        let head = Head { seq, dropped_to: self.dropped_to, entries: entries.collect() };
        let mut bytes = serde_json::to_vec(&head)?;
        bytes.push(b'\n');
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.frames.bytes);
        }
        files::replace_soon(path, &bytes)
    }

    /// Takes over a ring that was written so, with its last number; it is taken over once.
    pub fn take_over(path: &Path) -> Option<(u64, Self)> {
        let bytes = regular::read(path).ok()?;
        // Whatever it holds: it is not true any more once another message is sent.
        fs::remove_file(path).ok()?;
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
        let mut ring = Self::new(head.dropped_to);
        let mut rest = &bytes[end + 1..];
        for HeadEntry { kind, first, starts, bytes } in head.entries {
            let (own, others) = rest.split_at_checked(bytes)?;
            rest = others;
            let is_whole = starts.first() == Some(&0) && starts.is_sorted() && starts.last()? < &bytes;
            if !is_whole {
                return None;
            }
            let frames = Frames { bytes: Arc::new(own.to_vec()), messages: starts.len() };
            ring.push(Entry { kind, first, starts, frames });
        }
        Some((head.seq, ring))
    }

    /// Keeps messages; the oldest go.
    pub fn push(&mut self, entry: Entry) {
        self.bytes += entry.frames.bytes.len();
        self.entries.push_back(entry);
        while self.bytes > RING_BYTES {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.bytes -= oldest.frames.bytes.len();
            self.dropped_to = oldest.first + oldest.starts.len() as u64 - 1;
        }
    }

    /// The messages after `seq`, or `None` when some of them are gone.
    pub fn after(&self, seq: u64) -> Option<impl Iterator<Item = (&str, Frames)> + '_> {
        if seq < self.dropped_to {
            return None;
        }
        Some(
            self.entries
                .iter()
                .filter_map(move |entry| tail(entry, seq).map(|frames| (&*entry.kind, frames))),
        )
    }
}

/// The messages of an entry after `seq`.
fn tail(entry: &Entry, seq: u64) -> Option<Frames> {
    let skipped = usize::try_from((seq + 1).saturating_sub(entry.first)).ok()?;
    if skipped == 0 {
        return Some(entry.frames.clone());
    }
    let start = *entry.starts.get(skipped)?;
    Some(Frames {
        bytes: Arc::new(entry.frames.bytes[start..].to_vec()),
        messages: entry.starts.len() - skipped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(first: u64, messages: usize, each: usize) -> Entry {
        Entry {
            kind: "x".into(),
            first,
            starts: (0..messages).map(|n| n * each).collect(),
            frames: Frames { bytes: Arc::new(vec![0; messages * each]), messages },
        }
    }

    #[test]
    fn the_next_daemon_takes_the_ring_over_once_and_none_that_is_torn() {
        let folder = std::env::temp_dir().join(format!("svc-ring-{}", std::process::id()));
        let path = folder.join("frames");
        let mut ring = Ring::new(10);
        ring.push(entry(11, 3, 5));
        ring.push(entry(14, 1, 7));
        ring.save(20, &path).unwrap();
        let (seq, again) = Ring::take_over(&path).unwrap();
        assert_eq!(seq, 20);
        let all = |ring: &Ring| -> Vec<_> {
            ring.after(11).unwrap().map(|(kind, f)| (kind.to_owned(), f.bytes.to_vec(), f.messages)).collect()
        };
        assert_eq!(all(&again), all(&ring));
        assert!(again.after(9).is_none(), "what was gone stays gone");
        assert!(Ring::take_over(&path).is_none(), "a second time it is not true any more");
        ring.save(20, &path).unwrap();
        let bytes = fs::read(&path).unwrap();
        for cut in [0, 10, bytes.len() - 1] {
            fs::write(&path, &bytes[..cut]).unwrap();
            assert!(Ring::take_over(&path).is_none(), "{cut}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn decisions_3_missed_messages_come_whole_or_not_at_all() {
        let mut ring = Ring::new(10);
        ring.push(entry(11, 3, 5));
        ring.push(entry(14, 1, 5));
        let counts =
            |seq| ring.after(seq).map(|entries| entries.map(|(_, f)| f.messages).collect::<Vec<_>>());
        assert_eq!(counts(9), None, "message 10 is gone");
        assert_eq!(counts(10), Some(vec![3, 1]));
        assert_eq!(counts(12), Some(vec![1, 1]));
        assert_eq!(counts(14), Some(vec![]));
        ring.push(entry(15, 1, RING_BYTES));
        assert!(ring.after(10).is_none());
        assert!(ring.after(14).is_some());
    }
}
