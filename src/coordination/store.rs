//! The locks as they stand on disk.

use super::{Operation, Owner, State};
use crate::agents;
use crate::core::time::Time;
use crate::core::{State as All, Timer, Timers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use svc_base::sorted::Gather;

/// The version this code writes.
pub const VERSION: u32 = 1;

/// `.svc/state/locks.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    /// What each owner holds.
    pub held: Vec<(Owner, Vec<Operation>)>,
}

impl State {
    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        let held = self.held.iter().map(|(owner, operations)| (owner.clone(), operations.clone())).gather();
        Stored { version: VERSION, held }
    }

    /// What an earlier daemon has left. Locks of agents that had ended, or are gone, were about to be
    /// released: their release was lost with the daemon.
    pub fn restore(stored: Stored, agents: &agents::State, timers: &mut Timers) -> Self {
        let keeps = |owner: &Owner| match owner {
            Owner::Named(_) => true,
            Owner::Agent(lineage) => agents
                .iter()
                .filter(|agent| agent.lineage_id == *lineage)
                .any(|agent| agent.status == agents::Status::Interrupted || agent.status.is_live()),
        };
        let held = stored.held.into_iter().filter(|(owner, _)| keeps(owner)).gather();
        let state = Self { held };
        if let Some(at) = state.next_expiry() {
            timers.set(Timer::Locks, at);
        }
        state
    }
}

/// Takes over the locks of an earlier daemon.
pub fn restore(all: &mut All, stored: Stored, _now: Time) {
    let state = State::restore(stored, &all.agents, Arc::make_mut(&mut all.timers));
    all.coordination = Arc::new(state);
}
