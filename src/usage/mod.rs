//! What agents use: the ledger of tokens and dollars, what was saved, the weight of each agent's work, and
//! the models that follow from it.
//!
//! **Invariant:** the agents' tokens, the teams' tokens and the total are sums over the same rows, so they
//! agree under rotation, resume, repeated usage and the removal of records.
//! **Invariant:** the daemon's own use stands apart, under the reserved ids.

pub mod api;
pub mod budget;
pub mod classifier;
pub mod gone;
#[cfg(test)]
mod gone_tests;
pub mod ledger;
pub mod prices;
pub mod report;
pub mod routing;
mod store;
#[cfg(test)]
mod tests;

pub use budget::check as check_budget;
pub use store::{Stored, VERSION as STORED_VERSION, restore};

use crate::agents::Agent;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{Context, Document, Durability, Effect, Moment, State as All};
use crate::providers::{self, Activity, Tokens, Usage};
use gone::Gone;
use ledger::{Account, Place};
use prices::Price;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use svc_base::chunked::ChunkedMap;

/// Ids under which the daemon's own use is booked.
pub const RESERVED: [&str; 6] =
    ["__journalist__", "__pm__", "__negotiator__", "__planner__", "__gateway__", "__agent_qa__"];
/// The team of agents without one.
pub const UNASSIGNED: &str = "__unassigned__";

/// All accounts, and what is known of the agents' work.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Of agents that have a record.
    accounts: ChunkedMap<LineageId, Arc<Account>>,
    /// Of those whose record is gone.
    gone: Arc<Gone>,
    internal: Arc<BTreeMap<String, Sum>>,
    today: budget::Today,
    saved: Saved,
    works: ChunkedMap<LineageId, Arc<classifier::Work>>,
    routes: ChunkedMap<LineageId, Arc<routing::Route>>,
    routed: routing::Totals,
}

/// What several uses come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sum {
    /// Tokens.
    pub tokens: Tokens,
    /// Dollars; without those of `unpriced`.
    pub cost_usd: f64,
    /// Tokens of models whose price is not known and for which no provider told a cost.
    pub unpriced: u64,
    /// Of reserved ids: bookings. Of joined accounts: how many.
    pub sessions: u64,
}

impl Sum {
    /// Adds tokens, what they cost, and how many of them have no price.
    pub fn add(&mut self, tokens: Tokens, cost_usd: f64, unpriced: u64) {
        self.tokens = self.tokens + tokens;
        self.cost_usd += cost_usd;
        self.unpriced = self.unpriced.saturating_add(unpriced);
    }
}

/// Tokens that were not used, by why; each is counted, none is guessed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Saved {
    /// Context that agents held when a successor began without it.
    pub rotation: u64,
    /// Context that was still there when an ended agent went on in its session.
    pub cold_start: u64,
    /// What other features booked with [`save_conflict`].
    pub conflict: u64,
}

impl Saved {
    /// All together.
    pub fn total(self) -> u64 {
        self.rotation.saturating_add(self.cold_start).saturating_add(self.conflict)
    }
}

/// The clock says `now`, after it was set: what was counted for a later day counts for this one.
pub fn clock_set(all: &mut All, now: Time) {
    Arc::make_mut(&mut all.usage).today.not_after(now);
}

impl State {
    /// The account of a lineage.
    pub fn account(&self, lineage: LineageId) -> Option<&Arc<Account>> {
        self.accounts.get(&lineage).or_else(|| self.gone.account(lineage))
    }

    /// The accounts of all agents that have a record.
    pub fn accounts(&self) -> impl Iterator<Item = (LineageId, &Arc<Account>)> {
        self.accounts.iter().map(|(lineage, account)| (*lineage, account))
    }

    /// The accounts of agents whose records are gone.
    pub fn gone(&self) -> &Gone {
        &self.gone
    }

    /// Tokens a lineage has used over all its lives.
    pub fn tokens_of(&self, lineage: LineageId) -> u64 {
        self.account(lineage).map_or(0, |account| account.tokens().total())
    }

    /// What was saved.
    pub fn saved(&self) -> Saved {
        self.saved
    }

    /// Dollars used on the day of `now`, the daemon's own use included.
    pub fn today_usd(&self, now: Time) -> f64 {
        self.today.on(now)
    }

    /// What agents have used, the daemon's own use apart.
    pub fn total(&self) -> Sum {
        let mut sum = self.gone.total();
        for account in self.accounts.values() {
            sum.add(account.tokens(), account.cost_usd(), account.unpriced());
        }
        sum
    }

    /// A record is gone. Whether anything was known of its lineage.
    fn close(&mut self, lineage: LineageId) -> bool {
        let had = self.works.remove(&lineage).is_some() | self.forget_route(lineage);
        let Some(account) = self.accounts.remove(&lineage) else { return had };
        Arc::make_mut(&mut self.gone).close(lineage, account);
        true
    }
}

/// What stands for a model that nobody has told.
pub const UNKNOWN_MODEL: &str = "auto";

/// The model an agent runs, as far as is known: what the provider says, what was named, what was routed. What
/// its program is set to is not known before it tells: [`UNKNOWN_MODEL`], never a guess.
pub fn model_of(all: &All, agent: &Agent) -> Arc<str> {
    model_of_record(&all.usage, agent)
}

/// As [`model_of`], for a record that is being changed.
pub fn model_of_record(usage: &State, agent: &Agent) -> Arc<str> {
    let named = agent.model.as_deref().filter(|model| *model != UNKNOWN_MODEL);
    let routed = || usage.routes.get(&agent.lineage_id)?.model.as_deref();
    let known = agent.actual_model.as_deref().or(named).or_else(routed);
    known.unwrap_or(UNKNOWN_MODEL).into()
}

/// The team an agent is in now.
pub fn team_of(agent: &Agent) -> Arc<str> {
    agent.team_id.as_deref().unwrap_or(UNASSIGNED).into()
}

/// An agent did something: books what it used, and weighs its work.
pub fn heard(all: &mut All, cx: &mut Context, id: AgentId, activities: &[Activity]) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let settings = Arc::clone(&all.settings);
    let is_rehearsal = providers::info_of(&agent.provider).scripted;
    let price = |model: &str| {
        let known = prices::for_model(settings.config(), model);
        known.or_else(|| is_rehearsal.then_some(Price::NONE))
    };
    let model = model_of(all, &agent);
    let mut place = Place { agent: id, team: team_of(&agent), price: price(&model), model };
    for activity in activities {
        match activity {
            Activity::Session { model: Some(model), .. } => {
                place.model = model.as_str().into();
                place.price = price(model);
            }
            Activity::Usage(usage) => add(all, cx, &agent, &place, usage),
            _ => {}
        }
    }
    classifier::heard(all, cx, &agent, activities);
}

fn add(all: &mut All, cx: &mut Context, agent: &Agent, place: &Place, usage: &Usage) {
    if usage.delta.is_zero() && usage.cost_usd.is_none() {
        return;
    }
    let state = Arc::make_mut(&mut all.usage);
    let fresh = || Arc::new(Account::new(agent.id, &agent.name, &agent.role, &agent.provider, cx.now));
    let account = Arc::make_mut(state.accounts.get_or_insert_with(agent.lineage_id, fresh));
    let before = account.cost_usd();
    account.agent = agent.id;
    account.name.clone_from(&agent.name);
    account.add(place, usage, cx.now);
    let cost = account.cost_usd() - before;
    state.today.add(cx.now, cost);
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
}

/// Books what the daemon itself used, under one of [`RESERVED`]. Without a `cost_usd` of the provider's own
/// the price of `model` is looked up.
pub fn book(
    all: &mut All,
    cx: &mut Context,
    reserved_id: &'static str,
    model: &str,
    tokens: Tokens,
    cost_usd: Option<f64>,
) {
    debug_assert!(RESERVED.contains(&reserved_id), "{reserved_id} is not a reserved id");
    let price = prices::for_model(all.settings.config(), model);
    let looked_up = || price.map_or(0.0, |price| price.of(tokens));
    let is_known = cost_usd.is_some() || price.is_some();
    let cost_usd = cost_usd.unwrap_or_else(looked_up);
    let state = Arc::make_mut(&mut all.usage);
    let sum = Arc::make_mut(&mut state.internal).entry(reserved_id.to_owned()).or_default();
    sum.tokens = sum.tokens + tokens;
    sum.cost_usd += cost_usd;
    if !is_known {
        sum.unpriced = sum.unpriced.saturating_add(tokens.total());
    }
    sum.sessions += 1;
    state.today.add(cx.now, cost_usd);
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
}

/// Counts tokens that a prevented conflict has saved, as its feature has counted them.
pub fn save_conflict(all: &mut All, cx: &mut Context, tokens: u64) {
    let saved = &mut Arc::make_mut(&mut all.usage).saved;
    saved.conflict = saved.conflict.saturating_add(tokens);
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
}

/// Something happened to an agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::Rotated { new, .. } => {
            let last = all.agents.rotations().entries.iter().rev().find(|entry| entry.new == new);
            let context = last.map_or(0, |entry| entry.tokens_saved);
            follow(all, cx, new, |saved| saved.rotation = saved.rotation.saturating_add(context));
        }
        Moment::Resumed { new, .. } => {
            let kept = all.agents.get(new).filter(|agent| agent.session_id.is_some());
            let context = kept.map_or(0, |agent| agent.context_tokens);
            follow(all, cx, new, |saved| saved.cold_start = saved.cold_start.saturating_add(context));
        }
        Moment::Removed(_, lineage) => removed(all, cx, lineage),
        _ => {}
    }
}

/// A record is gone: no record will tell after a kill what its account is short of.
fn removed(all: &mut All, cx: &mut Context, lineage: LineageId) {
    if Arc::make_mut(&mut all.usage).close(lineage) {
        cx.push(Effect::Put(Document::Usage, Durability::BeforeReply));
    }
}

/// A lineage goes on under a new id.
fn follow(all: &mut All, cx: &mut Context, new: AgentId, save: impl FnOnce(&mut Saved)) {
    let Some(lineage) = all.agents.get(new).map(|agent| agent.lineage_id) else { return };
    let state = Arc::make_mut(&mut all.usage);
    let before = state.saved;
    save(&mut state.saved);
    let saved = state.saved != before;
    let account = state.accounts.get_mut(&lineage);
    if let Some(account) = account {
        Arc::make_mut(account).agent = new;
    } else if !saved {
        return;
    }
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
}
