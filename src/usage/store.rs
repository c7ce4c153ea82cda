//! The ledger as it stands on disk.

use super::ledger::{Account, Place};
use super::{Saved, State, Sum, budget, model_of, routing, team_of};
use crate::core::State as All;
use crate::core::ids::LineageId;
use crate::core::time::Time;
use crate::providers::Usage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `.svc/state/usage.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stored {
    /// Format version.
    pub version: u32,
    accounts: Vec<(LineageId, Account)>,
    earlier: BTreeMap<Arc<str>, Sum>,
    internal: BTreeMap<String, Sum>,
    today: budget::Today,
    saved: Saved,
    routes: Vec<(LineageId, routing::Route)>,
    routed: routing::Totals,
}

/// The version this code writes.
pub const VERSION: u32 = 1;

impl State {
    /// The ledger to be written.
    pub fn stored(&self) -> Stored {
        Stored {
            version: VERSION,
            accounts: self.accounts.iter().map(|(id, account)| (*id, (**account).clone())).collect(),
            earlier: self.earlier.clone(),
            internal: self.internal.clone(),
            today: self.today,
            saved: self.saved,
            routes: self.routes.iter().map(|(id, route)| (*id, (**route).clone())).collect(),
            routed: self.routed,
        }
    }
}

/// Takes over the ledger of an earlier daemon. The registry is written by itself, so after a power cut one of
/// the two may be a second behind: the records decide, and the accounts are brought in line with them.
pub fn restore(all: &mut All, stored: Stored, now: Time) {
    let mut state = State {
        accounts: stored.accounts.into_iter().map(|(id, account)| (id, Arc::new(account))).collect(),
        earlier: stored.earlier,
        internal: stored.internal,
        today: stored.today,
        saved: stored.saved,
        works: BTreeMap::new(),
        routes: stored.routes.into_iter().map(|(id, route)| (id, Arc::new(route))).collect(),
        routed: stored.routed,
    };
    for agent in all.agents.iter() {
        let fresh = || Arc::new(Account::new(agent.id, &agent.name, &agent.role, &agent.provider, now));
        let known = state.accounts.get(&agent.lineage_id).map(|account| account.tokens()).unwrap_or_default();
        let delta = agent.tokens.minus(known);
        if delta.is_zero() {
            continue;
        }
        let account = state.accounts.entry(agent.lineage_id).or_insert_with(fresh);
        let model = model_of(all, agent);
        let price = super::prices::for_model(all.settings.config(), &model);
        let place = Place { agent: agent.id, team: team_of(agent), price, model };
        Arc::make_mut(account).add(&place, &Usage { delta, ..Usage::default() }, now);
    }
    all.usage = Arc::new(state);
}
