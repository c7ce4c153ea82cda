//! The journalist's notes as they stand on disk.

use super::State;
use super::book::Book;
use crate::core::State as All;
use crate::core::time::Time;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// `.svc/state/journalist.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stored {
    pub version: u32,
    book: Book,
    map: Arc<str>,
    decisions: Arc<str>,
    cycles: u64,
    last_cycle: Option<Time>,
    last_synthesis: Option<Arc<str>>,
}

impl State {
    /// To be written.
    pub fn stored(&self) -> Stored {
        Stored {
            version: STORED_VERSION,
            book: (*self.book).clone(),
            map: Arc::clone(&self.map),
            decisions: Arc::clone(&self.decisions),
            cycles: self.cycles,
            last_cycle: self.last_cycle,
            last_synthesis: self.last_synthesis.clone(),
        }
    }

    /// After a start.
    pub fn restore(stored: Stored) -> Self {
        Self {
            book: Arc::new(stored.book),
            map: stored.map,
            decisions: stored.decisions,
            cycles: stored.cycles,
            last_cycle: stored.last_cycle,
            last_synthesis: stored.last_synthesis,
            ..Self::default()
        }
    }
}

/// Takes over the notes of an earlier daemon; the next cycle is one interval away.
pub fn restore(all: &mut All, stored: Stored, now: Time) {
    all.journalist = Arc::new(State::restore(stored));
    super::arm(all, now);
}
