//! Webhooks and what waits, as they stand on disk.

use super::{State, Webhook};
use crate::core::time::Time;
use crate::core::{State as All, Timer};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use svc_base::sorted::Gather;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// `.svc/state/webhooks.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    pub version: u32,
    /// By id.
    pub webhooks: Vec<Arc<Webhook>>,
}

impl State {
    /// To be written.
    pub fn stored(&self) -> Stored {
        Stored { version: STORED_VERSION, webhooks: self.webhooks.values().cloned().collect() }
    }

    /// After a start.
    pub fn restore(stored: Stored) -> Self {
        Self { webhooks: stored.webhooks.into_iter().map(|webhook| (webhook.id, webhook)).gather() }
    }
}

/// Takes over the webhooks of an earlier daemon: what it had waiting is looked at as soon as the core runs.
pub fn restore(all: &mut All, stored: Stored, now: Time) {
    all.webhooks = Arc::new(State::restore(stored));
    for webhook in all.webhooks.iter() {
        Arc::make_mut(&mut all.timers).set(Timer::WebhookDue(webhook.id), now);
    }
}
