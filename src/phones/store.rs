//! `.svc/state/phones.json`.

use super::{Phone, State, push};
use crate::core::State as All;
use crate::core::time::Time;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use svc_base::sorted::Gather;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    pub version: u32,
    /// By id.
    pub phones: Vec<Arc<Phone>>,
    #[serde(default)]
    pub listen: Option<String>,
}

impl State {
    /// To be written.
    pub fn stored(&self) -> Stored {
        let phones = self.phones.values().cloned().collect();
        Stored { version: STORED_VERSION, phones, listen: self.listen.clone() }
    }

    /// After a start.
    pub fn restore(stored: Stored) -> Self {
        let phones = stored.phones.into_iter().map(|phone| (phone.id, phone)).gather();
        Self { phones, listen: stored.listen }
    }
}

/// Takes over the phones of an earlier daemon: what they were to be told is looked at as soon as the core
/// runs.
pub fn restore(all: &mut All, stored: Stored, now: Time) {
    all.phones = Arc::new(State::restore(stored));
    push::resume(all, now);
}
