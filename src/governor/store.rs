//! What agents have used, as it stands on disk.

use super::{Kind, MAX_KINDS, MAX_RUNS, Runs, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use svc_base::sorted::Gather;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// `.svc/state/governor.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    /// Provider, role, and what their runs have used.
    kinds: Vec<(Arc<str>, Arc<str>, Runs)>,
}

impl State {
    /// What is to be written.
    pub fn stored(&self) -> Stored {
        let kind = |((provider, role), runs): (&Kind, &Runs)| (provider.clone(), role.clone(), runs.clone());
        Stored { version: STORED_VERSION, kinds: self.kinds.iter().map(kind).collect() }
    }

    /// What is known after a start.
    pub fn restore(stored: Stored) -> Self {
        let kind = |(provider, role, mut runs): (Arc<str>, Arc<str>, Runs)| {
            let surplus = runs.peaks.len().saturating_sub(MAX_RUNS);
            runs.peaks.drain(..surplus);
            ((provider, role), runs)
        };
        let kinds = stored.kinds.into_iter().take(MAX_KINDS).map(kind).gather();
        Self { kinds: Arc::new(kinds), ..Self::default() }
    }
}
