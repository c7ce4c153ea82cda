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
pub mod outcomes;
#[cfg(test)]
mod outcomes_tests;
pub mod quota;
pub mod report;
pub mod routing;
pub mod saving;
#[cfg(test)]
mod saving_tests;
mod store;
#[cfg(test)]
mod tests;
pub mod tiers;

pub use budget::check as check_budget;
pub use store::{Stored, VERSION as STORED_VERSION, restore};

use crate::agents::Agent;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{Context, Document, Durability, Effect, Moment, State as All};
use crate::prices::{self, Price};
use crate::providers::{self, Activity, Tokens, Usage};
use gone::Gone;
use ledger::{Account, Place};
use saving::Saved;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use svc_base::chunked::ChunkedMap;

/// Ids under which the daemon's own use is booked.
pub const RESERVED: [&str; 6] =
    ["__journalist__", "__pm__", "__negotiator__", "__planner__", "__gateway__", "__agent_qa__"];
/// The team of agents without one.
pub const UNASSIGNED: &str = "__unassigned__";

/// All accounts, and what is known of the agents' work.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    /// Of agents that have a record.
    accounts: ChunkedMap<LineageId, Arc<Account>>,
    /// Of those whose record is gone.
    gone: Arc<Gone>,
    internal: Arc<BTreeMap<String, Sum>>,
    today: budget::Today,
    saved: Saved,
    /// Lives of which it is seen later what they have saved.
    checks: Arc<BTreeMap<LineageId, saving::Check>>,
    interrupted: Interrupted,
    works: ChunkedMap<LineageId, Arc<classifier::Work>>,
    routes: ChunkedMap<LineageId, Arc<routing::Route>>,
    routed: routing::Totals,
    windows: Arc<quota::Windows>,
}

/// What several uses come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
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

/// Output of turns that were cut off before their provider had counted it: estimated by its characters. In no
/// other figure but the daily budget's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Interrupted {
    /// Tokens.
    pub tokens: u64,
    /// Dollars; without those of `unpriced`.
    pub cost_usd: f64,
    /// Tokens of models whose price is not known.
    pub unpriced: u64,
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

    /// Output that was never counted.
    pub fn interrupted(&self) -> Interrupted {
        self.interrupted
    }

    /// Dollars used on the day of `now`, the daemon's own use included.
    pub fn today_usd(&self, now: Time) -> f64 {
        self.today.on(now)
    }

    /// What output may have cost on the day of `now` that nobody has counted.
    pub fn today_estimated_usd(&self, now: Time) -> f64 {
        self.today.estimated_on(now)
    }

    /// What tokens without a price may have cost at most on the day of `now`.
    pub fn today_unpriced_usd(&self, now: Time) -> f64 {
        self.today.unpriced_on(now)
    }

    /// What agents have used, the daemon's own use apart.
    pub fn total(&self) -> Sum {
        let mut sum = self.gone.total();
        for account in self.accounts.values() {
            sum.add(account.tokens(), account.cost_usd(), account.unpriced());
        }
        sum
    }

    /// A record is gone; routing had saved it so many dollars. Whether anything was known of its lineage.
    fn close(&mut self, lineage: LineageId, saved_usd: f64) -> bool {
        let had = self.works.remove(&lineage).is_some() | self.forget_route(lineage, saved_usd);
        if self.checks.contains_key(&lineage) {
            Arc::make_mut(&mut self.checks).remove(&lineage);
        }
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
    let model = model_of(all, &agent);
    let price = priced(all, &agent, &model);
    let mut place = Place { agent: id, team: team_of(&agent), price, model };
    let mut wrote = 0_u64;
    for activity in activities {
        match activity {
            Activity::Session { model: Some(model), .. } => {
                place.model = model.as_str().into();
                place.price = priced(all, &agent, model);
            }
            Activity::Usage(usage) => {
                written(all, cx.now, &agent, &mut wrote);
                let other = usage.model.as_deref().filter(|model| **model != *place.model);
                let other = other.map(|model| Place {
                    price: priced(all, &agent, model),
                    model: model.into(),
                    ..place.clone()
                });
                add(all, cx, &agent, other.as_ref().unwrap_or(&place), usage);
            }
            Activity::Text { text } | Activity::Thinking { text } => wrote += chars(text.len()),
            Activity::ToolStarted { input, .. } => wrote += said_in(input),
            Activity::TurnEnded(_) => {
                wrote = 0;
                if let Some(account) = Arc::make_mut(&mut all.usage).accounts.get_mut(&agent.lineage_id) {
                    Arc::make_mut(account).turn_ended();
                }
            }
            Activity::Limit(limit) => {
                let usage = Arc::make_mut(&mut all.usage);
                quota::heard(usage, cx, &agent.provider, agent.account_name(), limit);
            }
            _ => {}
        }
    }
    written(all, cx.now, &agent, &mut wrote);
    budget::watch(all, cx);
    classifier::heard(all, cx, &agent, activities);
}

fn chars(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Characters of what a model has put into a call of a tool.
fn said_in(input: &Value) -> u64 {
    match input {
        Value::String(text) => chars(text.len()),
        Value::Array(parts) => parts.iter().map(said_in).sum(),
        Value::Object(parts) => parts.iter().map(|(name, part)| chars(name.len()) + said_in(part)).sum(),
        _ => 1,
    }
}

/// Notes what a model has written since its provider has counted last. Over `acp` most programs tell no
/// tokens at all, and nothing is estimated beside what nobody counts.
fn written(all: &mut All, now: Time, agent: &Agent, wrote: &mut u64) {
    let chars = std::mem::take(wrote);
    if chars == 0 {
        return;
    }
    let is_counted = agent.provider != "acp" && !providers::info_of(&agent.provider).scripted;
    let state = Arc::make_mut(&mut all.usage);
    if is_counted {
        state.accounts.get_or_insert_with(agent.lineage_id, || fresh(agent, now));
    }
    if let Some(account) = state.accounts.get_mut(&agent.lineage_id) {
        Arc::make_mut(account).wrote(chars);
    }
}

/// What the model of an agent costs, where anybody knows; a rehearsal costs nothing.
pub fn price_of(all: &All, agent: &Agent) -> Option<Price> {
    priced(all, agent, &model_of(all, agent))
}

fn priced(all: &All, agent: &Agent, model: &str) -> Option<Price> {
    let known = prices::for_model(all, model);
    known.or_else(|| providers::info_of(&agent.provider).scripted.then_some(Price::NONE))
}

fn fresh(agent: &Agent, now: Time) -> Arc<Account> {
    Arc::new(Account::new(agent.id, &agent.name, &agent.role, &agent.provider, now))
}

/// Books what the session of an agent has used before it was one: in the ledger and not in today's budget,
/// for it was used on other days, and outside. Gives what that has cost, and the tokens without a price.
pub fn adopted(all: &mut All, cx: &mut Context, agent: &Agent) -> (f64, u64) {
    let delta = agent.tokens.minus(Tokens::default());
    if delta.is_zero() {
        return (0.0, 0);
    }
    let model = model_of(all, agent);
    let price = priced(all, agent, &model);
    let place = Place { agent: agent.id, team: team_of(agent), price, model };
    let dearest = prices::dearest(all);
    let state = Arc::make_mut(&mut all.usage);
    let account = state.accounts.get_or_insert_with(agent.lineage_id, || fresh(agent, cx.now));
    let account = Arc::make_mut(account);
    account.at_most(dearest);
    account.add(&place, &Usage { delta, ..Usage::default() }, cx.now);
    let booked = (account.cost_usd(), account.unpriced());
    cx.push(Effect::Put(Document::Usage, Durability::BeforeReply));
    booked
}

fn add(all: &mut All, cx: &mut Context, agent: &Agent, place: &Place, usage: &Usage) {
    if usage.delta.is_zero() && usage.cost_usd.is_none() {
        return;
    }
    let dearest = prices::dearest(all);
    let state = Arc::make_mut(&mut all.usage);
    let account = state.accounts.get_or_insert_with(agent.lineage_id, || fresh(agent, cx.now));
    let account = Arc::make_mut(account);
    account.at_most(dearest);
    let (before, unpriced_before) = (account.cost_usd(), account.unpriced_usd());
    account.agent = agent.id;
    account.name.clone_from(&agent.name);
    account.add(place, usage, cx.now);
    let (cost, unpriced) = (account.cost_usd() - before, account.unpriced_usd() - unpriced_before);
    state.today.add(cx.now, cost, unpriced);
    saving::heard(all, agent.lineage_id, usage, place.price);
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
    let price = prices::for_model(all, model);
    let dearest = prices::dearest(all);
    let looked_up = || price.map_or(0.0, |price| price.of(tokens));
    let is_known = cost_usd.is_some() || price.is_some();
    let cost_usd = cost_usd.unwrap_or_else(looked_up);
    let state = Arc::make_mut(&mut all.usage);
    let sum = Arc::make_mut(&mut state.internal).entry(reserved_id.to_owned()).or_default();
    let (unpriced, at_most) = if is_known { (0, 0.0) } else { (tokens.total(), dearest.of(tokens)) };
    sum.add(tokens, cost_usd, unpriced);
    sum.sessions += 1;
    state.today.add(cx.now, cost_usd, at_most);
    budget::watch(all, cx);
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
}

/// Something happened to an agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::Rotated { new, .. } => {
            let last = all.agents.rotations().entries.iter().rev().find(|entry| entry.new == new);
            let context = last.map_or(0, |entry| entry.tokens_saved);
            let asked = last.and_then(|entry| entry.last_word.as_ref()).map(|word| word.tokens);
            if let Some(lineage) = follow(all, cx, new) {
                interrupted(all, cx, lineage);
                saving::rotated(all, cx, lineage, new, (context, asked.unwrap_or_default()));
            }
        }
        Moment::Resumed { new, .. } => {
            let has_session = all.agents.get(new).is_some_and(|agent| agent.session_id.is_some());
            if let Some(lineage) = follow(all, cx, new) {
                // Its last life may have ended with an earlier daemon.
                interrupted(all, cx, lineage);
                saving::resumed(all, cx, lineage, new, has_session);
            }
        }
        Moment::Ended(id) => {
            if let Some(lineage) = all.agents.get(id).map(|agent| agent.lineage_id) {
                interrupted(all, cx, lineage);
            }
        }
        Moment::Removed(_, lineage) => removed(all, cx, lineage),
        Moment::OthersTold => quota::others_told(all, cx),
        Moment::AccountRemoved { ref provider, ref name } => {
            quota::forget(Arc::make_mut(&mut all.usage), cx, provider, name);
        }
        _ => {}
    }
}

/// A record is gone: no record will tell after a kill what its account is short of.
fn removed(all: &mut All, cx: &mut Context, lineage: LineageId) {
    let saved_usd = routing::saved_by(all, lineage);
    if Arc::make_mut(&mut all.usage).close(lineage, saved_usd) {
        cx.push(Effect::Put(Document::Usage, Durability::BeforeReply));
    }
}

/// A lineage goes on under a new id.
fn follow(all: &mut All, cx: &mut Context, new: AgentId) -> Option<LineageId> {
    let lineage = all.agents.get(new)?.lineage_id;
    if let Some(account) = Arc::make_mut(&mut all.usage).accounts.get_mut(&lineage) {
        Arc::make_mut(account).agent = new;
        cx.push(Effect::Put(Document::Usage, Durability::Soon));
    }
    Some(lineage)
}

/// A life is over: what its model had written in a turn that was cut off is estimated, for nobody tells it.
fn interrupted(all: &mut All, cx: &mut Context, lineage: LineageId) {
    let unsaid = |account: &Arc<Account>| account.unsaid_tokens() > 0;
    if !all.usage.accounts.get(&lineage).is_some_and(unsaid) {
        return;
    }
    let Some(agent) = all.agents.by_lineage(lineage).cloned() else { return };
    let price = price_of(all, &agent);
    let at_most = price.unwrap_or_else(|| prices::dearest(all));
    let state = Arc::make_mut(&mut all.usage);
    let Some(account) = state.accounts.get_mut(&lineage) else { return };
    let tokens = Arc::make_mut(account).cut_off();
    let sum = &mut state.interrupted;
    sum.tokens = sum.tokens.saturating_add(tokens);
    let usd = at_most.of_output(tokens);
    if price.is_some() {
        sum.cost_usd += usd;
        state.today.add_estimate(cx.now, usd);
    } else {
        sum.unpriced = sum.unpriced.saturating_add(tokens);
        state.today.add(cx.now, 0.0, usd);
    }
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
}
