//! Inlets as they stand on disk.

use super::{Inlet, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use svc_base::sorted::Gather;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// `.svc/state/inlets.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    pub version: u32,
    /// By id.
    pub inlets: Vec<Arc<Inlet>>,
}

impl State {
    /// To be written.
    pub fn stored(&self) -> Stored {
        Stored { version: STORED_VERSION, inlets: self.inlets.values().cloned().collect() }
    }

    /// After a start.
    pub fn restore(stored: Stored) -> Self {
        Self { inlets: stored.inlets.into_iter().map(|inlet| (inlet.id, inlet)).gather() }
    }
}
