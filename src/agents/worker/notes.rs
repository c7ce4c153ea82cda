//! The acts of a run, and how much of them its keeper holds until they are settled. A keeper that has no room
//! for a note loses the write, and the next daemon could not do what led to it again: what does not fit is
//! not done.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use svc_keeper::protocol::Note;

/// What was done with a conversation beside reading its program's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "lowercase")]
pub(super) enum Act {
    /// The program was started.
    Open,
    /// It was given a message.
    Say { message: u64, text: String },
    /// A question of its was answered.
    Decide { question: String, allow: bool, reason: String },
    /// It was asked to leave its turn.
    Interrupt,
    /// It was let go.
    Finish,
    /// A line of its record of the session was read, which ends there.
    Record {
        line: String,
        #[serde(default)]
        at: u64,
    },
}

/// Bytes of notes that are not settled. A keeper takes 8 MiB; the rest is for what cannot wait: answers, the
/// end of a turn, a checkpoint's wait for a slow disk.
const NOTES_BYTES_MAX: usize = 7 << 20;
/// What a note weighs beside its act.
const HEAD_BYTES: usize = 128;

/// The notes that a keeper holds.
#[derive(Default)]
pub(super) struct Notes {
    held: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Notes {
    /// Whether one of so many bytes may follow.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes + HEAD_BYTES <= NOTES_BYTES_MAX
    }

    /// One was written.
    pub fn add(&mut self, seq: u64, bytes: usize) {
        self.held.push_back((seq, bytes + HEAD_BYTES));
        self.bytes += bytes + HEAD_BYTES;
    }

    /// The keeper was told that it needs none up to this write any more.
    pub fn settled(&mut self, seq: u64) {
        while let Some((_, bytes)) = self.held.front().filter(|(held, _)| *held <= seq) {
            self.bytes -= bytes;
            self.held.pop_front();
        }
    }
}

/// The message that was said with this act, if it has a number of its own.
pub(super) fn message_of(note: &Note) -> Option<u64> {
    match serde_json::from_value(note.what.clone()) {
        Ok(Act::Say { message, .. }) if message > 0 => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_what_a_keeper_could_not_hold_waits_until_it_has_settled_some() {
        let mut notes = Notes::default();
        let mib = 1 << 20;
        let mut seq = 0;
        while notes.has_room(mib) {
            seq += 1;
            notes.add(seq, mib);
        }
        assert_eq!(seq, 6, "7 MiB with their heads");
        assert!(notes.has_room(1000), "what is small still goes");
        notes.settled(0);
        assert!(!notes.has_room(mib));
        notes.settled(2);
        assert!(notes.has_room(2 * mib) && !notes.has_room(3 * mib));
        notes.settled(100);
        assert_eq!((notes.bytes, notes.held.len()), (0, 0));
    }
}
