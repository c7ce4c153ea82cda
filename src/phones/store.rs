//! `.svc/state/phones.json`.

use super::{Phone, State};
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
