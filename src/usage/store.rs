//! The ledger as it stands on disk.

use super::gone::{Closed, Gone};
use super::ledger::{Account, Place};
use super::saving::{Check, Saved};
use super::{Interrupted, State, Sum, budget, model_of, quota, routing, team_of};
use crate::core::State as All;
use crate::core::ids::LineageId;
use crate::core::time::Time;
use crate::providers::Usage;
use serde::ser::{Error, Serializer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use svc_base::chunked::ChunkedMap;
use svc_base::sorted::{self, Gather};

/// `.svc/state/usage.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stored {
    pub version: u32,
    accounts: Vec<(LineageId, Account)>,
    earlier: BTreeMap<Arc<str>, Sum>,
    earlier_models: BTreeMap<Arc<str>, Sum>,
    internal: BTreeMap<String, Sum>,
    today: budget::Today,
    saved: Saved,
    checks: Vec<(LineageId, Check)>,
    interrupted: Interrupted,
    routes: Vec<(LineageId, routing::Route)>,
    routed: routing::Totals,
    windows: Vec<quota::Stored>,
}

/// The same, as it is written: what never changes again is encoded already.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Written<'a> {
    version: u32,
    accounts: Vec<Entry<'a>>,
    earlier: &'a BTreeMap<Arc<str>, Sum>,
    earlier_models: &'a BTreeMap<Arc<str>, Sum>,
    internal: &'a BTreeMap<String, Sum>,
    today: budget::Today,
    saved: Saved,
    checks: Vec<(LineageId, Check)>,
    interrupted: Interrupted,
    routes: Vec<(LineageId, &'a routing::Route)>,
    routed: routing::Totals,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    windows: Vec<quota::Stored>,
}

/// An account with its lineage.
#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Open(LineageId, &'a Account),
    Closed(Encoded<'a>),
}

/// An account that was encoded once.
struct Encoded<'a>(&'a Closed);

impl Serialize for Encoded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.stored().map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// The version this code writes.
pub const VERSION: u32 = 1;

impl State {
    /// The ledger to be written.
    pub fn stored(&self) -> Written<'_> {
        let open = self.accounts.iter().map(|(id, account)| Entry::Open(*id, account));
        let closed = self.gone.last().map(|closed| Entry::Closed(Encoded(closed)));
        Written {
            version: VERSION,
            accounts: open.chain(closed).collect(),
            earlier: self.gone.earlier(),
            earlier_models: self.gone.earlier_models(),
            internal: &self.internal,
            today: self.today,
            saved: self.saved,
            checks: self.checks.iter().map(|(id, check)| (*id, *check)).gather(),
            interrupted: self.interrupted,
            routes: self.routes.iter().map(|(id, route)| (*id, &**route)).gather(),
            routed: self.routed,
            windows: self.windows.stored(),
        }
    }
}

/// Takes over the ledger of an earlier daemon. The registry is written by itself, so after a power cut one of
/// the two may be a second behind: the records decide, and the accounts are brought in line with them.
pub fn restore(all: &mut All, stored: Stored, now: Time) {
    let known: BTreeSet<LineageId> = all.agents.iter().map(|agent| agent.lineage_id).gather();
    let accounts = stored.accounts.into_iter().map(|(id, account)| (id, Arc::new(account.restored())));
    let (open, mut gone): (Vec<_>, Vec<_>) = accounts.partition(|(id, _)| known.contains(id));
    sorted::by_key(&mut gone, |(_, account)| account.last_used);
    let mut state = State {
        accounts: open.into_iter().collect(),
        gone: Arc::new(Gone::restore(stored.earlier, stored.earlier_models, gone)),
        internal: Arc::new(stored.internal),
        today: stored.today,
        saved: stored.saved,
        checks: Arc::new(stored.checks.into_iter().gather()),
        interrupted: stored.interrupted,
        works: ChunkedMap::default(),
        routes: stored.routes.into_iter().map(|(id, route)| (id, Arc::new(route))).collect(),
        routed: stored.routed,
        windows: Arc::new(quota::Windows::restore(stored.windows, now)),
    };
    for agent in all.agents.iter() {
        let fresh = || Arc::new(Account::new(agent.id, &agent.name, &agent.role, &agent.provider, now));
        let known = state.accounts.get(&agent.lineage_id).map(|account| account.tokens()).unwrap_or_default();
        let delta = agent.tokens.minus(known);
        if delta.is_zero() {
            continue;
        }
        let account = state.accounts.get_or_insert_with(agent.lineage_id, fresh);
        let model = model_of(all, agent);
        let price = crate::prices::for_model(all, &model);
        let place = Place { agent: agent.id, team: team_of(agent), price, model };
        Arc::make_mut(account).add(&place, &Usage { delta, ..Usage::default() }, now);
    }
    all.usage = Arc::new(state);
}
