//! What of the gateways is written to disk.

use super::State;
use super::inbox::Entry;
use super::notify::Card;
use super::record::Gateway;
use crate::core::time::Time;
use crate::core::{State as All, Timer, Timers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use svc_base::sorted::Gather;

/// The version this code writes.
pub const VERSION: u32 = 1;

/// `.svc/state/gateways.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    pub version: u32,
    /// By id.
    pub gateways: Vec<Arc<Gateway>>,
    /// Commands taken and not yet done with.
    pub inbox: Vec<Arc<Entry>>,
    /// Approvals that were sent and wait.
    pub cards: Vec<Card>,
    /// The number of the next command.
    pub next_entry: u64,
}

impl State {
    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        Stored {
            version: VERSION,
            gateways: self.gateways.values().cloned().collect(),
            inbox: self.inbox.clone(),
            cards: self.cards.clone(),
            next_entry: self.next_entry,
        }
    }

    /// What an earlier daemon has left. Those that were connected connect again as soon as the core runs.
    pub fn restore(stored: Stored, now: Time, timers: &mut Timers) -> Self {
        if !stored.gateways.is_empty() {
            timers.set(Timer::GatewaysBoot, now);
        }
        Self {
            gateways: stored.gateways.into_iter().map(|gateway| (gateway.id, gateway)).gather(),
            inbox: stored.inbox,
            cards: stored.cards,
            next_entry: stored.next_entry,
            ..Self::default()
        }
    }
}

/// Takes over the gateways of an earlier daemon.
pub fn restore(all: &mut All, stored: Stored, now: Time) {
    all.gateways = Arc::new(State::restore(stored, now, Arc::make_mut(&mut all.timers)));
}
