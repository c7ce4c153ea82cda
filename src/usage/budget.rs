//! What a day may cost: `safety.dailyBudgetUsd`.
//!
//! Tokens of a model whose price nobody knows count as those of the dearest known one: a budget stops at
//! them, and is not passed by them.
//!
//! **Invariant:** of agents that tell each call as it ends, what is spent and what their calls under way are
//! expected to cost never comes to more than the budget and one turn: who would outrun it is stopped.

use crate::agents::Agent;
use crate::api::Problem;
use crate::core::notice::Notice;
use crate::core::time::Time;
use crate::core::{Context, State as All};
use crate::prices::{self, Price};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write as _;
use std::sync::Arc;

/// Milliseconds of a day; days begin at midnight UTC.
const DAY_MS: u64 = 86_400_000;
/// Shares of the budget in percent at which people are told, once a day each.
const WARNED: [u8; 2] = [80, 100];
/// What a turn is expected to cost of whose agent none has ended yet, in dollars.
pub const FIRST_TURN_USD: f64 = 1.0;
/// A turn is never expected to cost more than this part of the budget, whatever earlier ones did.
const TURN_PARTS: f64 = 4.0;
/// Output of a call that is under way.
const CALL_OUTPUT: f64 = 1_000.0;
/// Input of a first call, of which nothing is known yet.
const FIRST_INPUT: f64 = 10_000.0;

/// Dollars of one day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(default)]
pub struct Today {
    day: u64,
    usd: f64,
    /// What tokens without a price may have cost at most.
    unpriced_usd: f64,
    /// What output may have cost that nobody has counted, because its turn was cut off.
    estimated_usd: f64,
    /// The last share of the budget that was told.
    warned: u8,
}

impl Today {
    /// Adds dollars, and what tokens without a price may cost at most; corrections may be negative.
    pub fn add(&mut self, now: Time, usd: f64, unpriced_usd: f64) {
        let day = now.0 / DAY_MS;
        if day != self.day {
            *self = Self { day, ..Self::default() };
        }
        self.usd = (self.usd + usd).max(0.0);
        self.unpriced_usd = (self.unpriced_usd + unpriced_usd).max(0.0);
    }

    /// Adds what output may have cost that nobody has counted.
    pub fn add_estimate(&mut self, now: Time, usd: f64) {
        self.add(now, 0.0, 0.0);
        self.estimated_usd += usd;
    }

    /// The clock says `now`: what was counted for a later day counts for this one.
    pub fn not_after(&mut self, now: Time) {
        self.day = self.day.min(now.0 / DAY_MS);
    }

    /// Dollars of the day of `now`.
    pub fn on(&self, now: Time) -> f64 {
        if now.0 / DAY_MS == self.day { self.usd } else { 0.0 }
    }

    /// What tokens without a price may have cost at most on the day of `now`.
    pub fn unpriced_on(&self, now: Time) -> f64 {
        if now.0 / DAY_MS == self.day { self.unpriced_usd } else { 0.0 }
    }

    /// What output may have cost on the day of `now` that nobody has counted.
    pub fn estimated_on(&self, now: Time) -> f64 {
        if now.0 / DAY_MS == self.day { self.estimated_usd } else { 0.0 }
    }
}

/// The beginning of the day after `now`'s.
pub fn next_day(now: Time) -> Time {
    Time((now.0 / DAY_MS + 1) * DAY_MS)
}

/// Whether something new may be started.
///
/// Errors: 409 `budget` once today's cost has reached `safety.dailyBudgetUsd`, or that of all projects
/// `safety.dailyBudgetAllUsd`.
pub fn check(all: &All, now: Time) -> Result<(), Problem> {
    check_own(all, now)?;
    let refused = |text: String| Problem::new(409, "budget", text);
    let budget = all.fleet.budget().map_err(|why| {
        refused(format!(
            "whether the daily budget of all projects is spent is not known, so nothing new starts: {why}"
        ))
    })?;
    let Some(budget) = budget else { return Ok(()) };
    let (own, others) = (spent(all, now), all.fleet.spent_on(day(now)));
    if own + others < budget {
        return Ok(());
    }
    Err(refused(format!(
        "{}, and with ${others:.2} of your other projects the ${budget:.2} are spent that all projects may cost in a \
         day: nothing new starts before midnight UTC; raise safety.dailyBudgetAllUsd in your own \
         ~/.config/svc/config.json to go on",
        today(all, now).trim_end_matches(',')
    )))
}

fn check_own(all: &All, now: Time) -> Result<(), Problem> {
    let Some(budget) = all.settings.config().safety.daily_budget_usd else { return Ok(()) };
    if spent(all, now) < budget {
        return Ok(());
    }
    let text = format!(
        "{} and safety.dailyBudgetUsd is ${budget:.2}: nothing new starts before midnight UTC; raise \
         safety.dailyBudgetUsd to go on{}",
        today(all, now),
        if all.usage.today.unpriced_on(now) > 0.0 {
            ", or say what the model costs with the setting models or with svc prices update FILE"
        } else {
            ""
        }
    );
    Err(Problem::new(409, "budget", text))
}

fn day(now: Time) -> u64 {
    now.0 / DAY_MS
}

/// What the day has cost as far as a budget is concerned: nothing that was used counts for nothing.
pub fn spent(all: &All, now: Time) -> f64 {
    let today = &all.usage.today;
    today.on(now) + today.unpriced_on(now) + today.estimated_on(now)
}

fn today(all: &All, now: Time) -> String {
    let (usd, unpriced) = (all.usage.today.on(now), all.usage.today.unpriced_on(now));
    let estimated = all.usage.today.estimated_on(now);
    let mut text = format!("today's cost is ${usd:.2}");
    if estimated > 0.0 {
        let _ = write!(text, ", about ${estimated:.2} of turns that were cut off,");
    }
    if unpriced > 0.0 {
        let comma = if estimated > 0.0 { "" } else { "," };
        let _ = write!(text, "{comma} and at most ${unpriced:.2} of models whose price is not known,");
    }
    text
}

/// What is expected of an agent, in dollars.
struct Expected {
    /// Its call under way, with what it has said in this turn and its provider has not counted yet.
    under_way: f64,
    /// A whole turn.
    turn: f64,
}

impl Expected {
    #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    fn of(all: &All, agent: &Agent, budget: f64) -> Self {
        let price = super::price_of(all, agent).unwrap_or_else(|| prices::dearest(all));
        let context = agent.context_tokens as f64;
        // The first call of a life writes into the cache what later ones read from it.
        let input = if agent.instance_tokens.total() == 0 {
            context.max(FIRST_INPUT) * price.cache_creation
        } else {
            context * price.cache_read
        };
        let call = (input + CALL_OUTPUT * price.output) / 1_000_000.0;
        let account = all.usage.account(agent.lineage_id);
        let unsaid = account.map_or(0.0, |account| price.of_output(account.unsaid_tokens()));
        let mean = account.and_then(|account| account.mean_turn()).unwrap_or(FIRST_TURN_USD);
        let turn = if price == Price::NONE { 0.0 } else { mean.min(budget / TURN_PARTS).max(call) };
        Self { under_way: call + unsaid, turn }
    }
}

/// Why an agent is to be stopped inside of its turn whatever `budget.midTurn` says: with what is under way,
/// the budget would be outrun by more than a turn.
pub fn outrun(all: &All, now: Time) -> Option<String> {
    outrun_own(all, now).or_else(|| outrun_all(all, now))
}

/// What is expected of the calls under way together, and of the dearest turn, in dollars.
fn at_work(all: &All, budget: f64) -> (f64, f64) {
    let (mut under_way, mut turn) = (0.0, 0.0_f64);
    for agent in all.agents.live().filter(|agent| agent.may_spend()) {
        let expected = Expected::of(all, agent, budget);
        under_way += expected.under_way;
        turn = turn.max(expected.turn);
    }
    (under_way, turn)
}

/// The same for other projects to know.
pub fn under_way(all: &All) -> (f64, f64) {
    let over_all = all.fleet.budget().ok().flatten();
    at_work(all, over_all.or(all.settings.config().safety.daily_budget_usd).unwrap_or(f64::MAX))
}

fn outrun_all(all: &All, now: Time) -> Option<String> {
    let budget = all.fleet.budget().ok().flatten()?;
    let ((own, turn), others) = (at_work(all, budget), all.fleet.needs());
    let (under_way, turn) = (own + others.under_way_usd, turn.max(others.turn_usd));
    let spent = spent(all, now) + all.fleet.spent_on(day(now));
    (own > 0.0 && spent + under_way > budget + turn).then(|| {
        format!(
            "the daily budget of all projects, ${budget:.2}, would be outrun by more than a turn (${turn:.2}): \
             ${spent:.2} are spent, and ${under_way:.2} under way"
        )
    })
}

fn outrun_own(all: &All, now: Time) -> Option<String> {
    let budget = all.settings.config().safety.daily_budget_usd?;
    let spent = spent(all, now);
    let (under_way, turn) = at_work(all, budget);
    (under_way > 0.0 && spent + under_way > budget + turn).then(|| {
        format!(
            "the daily budget of ${budget:.2} would be outrun by more than a turn (${turn:.2}): ${spent:.2} are \
             spent, and ${under_way:.2} under way"
        )
    })
}

/// The highest of [`WARNED`] that is reached.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a percentage, cut at 100")]
fn reached(spent: f64, budget: f64) -> u8 {
    let percent = (spent / budget * 100.0).min(100.0) as u8;
    WARNED.into_iter().rev().find(|share| percent >= *share).unwrap_or_default()
}

/// Something was used: tells people once a day when most of the budget is spent, and when all is.
pub(super) fn watch(all: &mut All, cx: &mut Context) {
    watch_own(all, cx);
    watch_all(all, cx);
}

/// The same of the budget of all projects, which the one tells that sees it first.
fn watch_all(all: &mut All, cx: &mut Context) {
    let (Ok(Some(budget_usd)), day) = (all.fleet.budget(), day(cx.now)) else { return };
    let (own, others) = (spent(all, cx.now), all.fleet.spent_on(day));
    let percent = reached(own + others, budget_usd);
    let (before, own_before) = (all.fleet.warned_on(day), all.fleet.own_warned_on(day));
    if percent > before || percent < own_before {
        Arc::make_mut(&mut all.fleet).warn(day, percent);
    }
    if percent > before {
        let text = format!(
            "{}, with your other projects ${:.2}, of a daily budget of ${budget_usd:.2} for all of them",
            today(all, cx.now).trim_end_matches(','),
            own + others
        );
        cx.audit("budget.warning", &json!({"percent": percent, "text": text}));
        cx.notice(Notice::BudgetWarning { percent, usd: prices::rounded(own + others), budget_usd, text });
    }
}

fn watch_own(all: &mut All, cx: &mut Context) {
    let Some(budget) = all.settings.config().safety.daily_budget_usd else { return };
    let spent = spent(all, cx.now);
    let reached = reached(spent, budget);
    let before = all.usage.today.warned;
    if reached == before {
        return;
    }
    Arc::make_mut(&mut all.usage).today.warned = reached;
    // Below what was told: the budget was raised, or it is another day.
    if reached > before {
        let at_work = all.agents.live().filter(|agent| agent.may_spend()).count();
        let text = format!(
            "{} of a daily budget of ${budget:.2}; agents at work: {at_work}",
            today(all, cx.now).trim_end_matches(',')
        );
        cx.audit("budget.warning", &json!({"percent": reached, "text": text}));
        let (usd, budget_usd) = (prices::rounded(spent), budget);
        cx.notice(Notice::BudgetWarning { percent: reached, usd, budget_usd, text });
    }
}
