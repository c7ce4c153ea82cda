//! The comments as they stand on disk.

use super::{Comment, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// `.svc/state/comments.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    /// How many there have been.
    given: u64,
    comments: Vec<Arc<Comment>>,
}

impl State {
    /// To be written.
    pub fn stored(&self) -> Stored {
        Stored { version: STORED_VERSION, given: self.given, comments: self.all.clone() }
    }

    /// After a start.
    pub fn restore(stored: Stored) -> Self {
        let last = stored.comments.iter().map(|comment| comment.id).max().unwrap_or_default();
        Self { all: stored.comments, given: stored.given.max(last) }
    }
}
