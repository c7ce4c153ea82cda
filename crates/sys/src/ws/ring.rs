//! The last messages, for clients that come back.

use super::queue::Frames;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of messages kept.
pub const RING_BYTES: usize = 4 << 20;

/// Consecutive messages of one kind, as they were sent.
pub struct Entry {
    pub kind: &'static str,
    /// `seq` of the first.
    pub first: u64,
    /// Where each message's frame begins in the bytes.
    pub starts: Vec<usize>,
    pub frames: Frames,
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
    pub fn after(&self, seq: u64) -> Option<impl Iterator<Item = (&'static str, Frames)> + '_> {
        if seq < self.dropped_to {
            return None;
        }
        Some(self.entries.iter().filter_map(move |entry| tail(entry, seq).map(|frames| (entry.kind, frames))))
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
            kind: "x",
            first,
            starts: (0..messages).map(|n| n * each).collect(),
            frames: Frames { bytes: Arc::new(vec![0; messages * each]), messages },
        }
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
