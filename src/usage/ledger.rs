//! The accounts: who used which tokens, in which team, with which model, in which life.
//!
//! **Invariant:** the rows of an account add up to what its agent's record has counted over all its lives.

use super::Sum;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::prices::{self, Price};
use crate::providers::{Tokens, TokensDelta, Usage};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use svc_base::sorted::Gather;

/// Rows of one account; beyond that the oldest of a team are joined.
pub const MAX_ROWS: usize = 64;
/// The time over which velocity is measured.
pub const VELOCITY_WINDOW: Duration = Duration::from_secs(600);
/// Characters of a token, on average: output that was not counted is estimated by it.
const CHARS_PER_TOKEN: u64 = 4;
/// Use within one such slot is remembered as one figure.
const SLOT_MS: u64 = 5_000;

/// The account of a lineage.
#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// Its last life.
    pub agent: AgentId,
    /// Its name, kept beyond the record.
    pub name: String,
    /// Its role.
    pub role: String,
    /// Its provider.
    pub provider: String,
    /// When it was used last.
    pub last_used: Time,
    rows: Vec<Row>,
    /// What the rows come to, kept as they change.
    #[serde(skip)]
    sum: Sum,
    /// What the tokens without a price may have cost at most, in dollars.
    #[serde(skip)]
    unpriced_usd: f64,
    /// Turns that have ended.
    #[serde(default)]
    turns: u64,
    /// What it had cost when the last one ended, tokens without a price at the most.
    #[serde(default)]
    ended_usd: f64,
    /// Characters that its model has written since its provider counted output last.
    #[serde(default)]
    unsaid: u64,
    /// Tokens of output in turns that were cut off, estimated.
    #[serde(default)]
    interrupted: u64,
    /// What a token costs at most whose price is not known; `None` until something is used.
    #[serde(skip)]
    dearest: Option<Price>,
    /// Tokens by slot, within [`VELOCITY_WINDOW`].
    #[serde(skip)]
    recent: VecDeque<(u64, i64)>,
}

/// What one life used in one team with one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The life.
    pub agent: AgentId,
    /// The team at the time of use.
    pub team: Arc<str>,
    /// The model at the time of use.
    pub model: Arc<str>,
    /// What was used.
    pub tokens: Tokens,
    /// The part of it for which the provider has told no cost (yet): its price is looked up.
    unpriced: Tokens,
    /// Dollars as the provider told.
    reported_usd: f64,
    /// The model's price when it was used last; of earlier versions' rows the table's.
    #[serde(default)]
    price: Option<Price>,
    /// Tokens without a price of rows that were joined to this one.
    #[serde(default)]
    joined_unpriced: u64,
}

impl Row {
    /// Dollars: the provider's own figure, and the table's for what it does not cover.
    pub fn cost_usd(&self) -> f64 {
        self.reported_usd + self.price().map_or(0.0, |price| price.of(self.unpriced))
    }

    /// Tokens of which nobody knows what they cost.
    pub fn unpriced(&self) -> u64 {
        let own = if self.price().is_some() { 0 } else { self.unpriced.total() };
        own.saturating_add(self.joined_unpriced)
    }

    /// What those tokens may have cost at most, in dollars.
    fn unpriced_usd(&self, dearest: Price) -> f64 {
        let own = if self.price().is_some() { 0.0 } else { dearest.of(self.unpriced) };
        own + dearest.of(Tokens { input: self.joined_unpriced, ..Tokens::default() })
    }

    fn price(&self) -> Option<Price> {
        self.price.or_else(|| prices::of_model(&self.model))
    }
}

/// In whose name something is used.
#[derive(Debug, Clone)]
pub struct Place {
    /// The life.
    pub agent: AgentId,
    /// The team now.
    pub team: Arc<str>,
    /// The model now.
    pub model: Arc<str>,
    /// Its price, where one is known.
    pub price: Option<Price>,
}

impl Account {
    /// An account without use.
    pub fn new(agent: AgentId, name: &str, role: &str, provider: &str, now: Time) -> Self {
        Self {
            agent,
            name: name.to_owned(),
            role: role.to_owned(),
            provider: provider.to_owned(),
            last_used: now,
            rows: Vec::new(),
            sum: Sum::default(),
            unpriced_usd: 0.0,
            turns: 0,
            ended_usd: 0.0,
            unsaid: 0,
            interrupted: 0,
            dearest: None,
            recent: VecDeque::new(),
        }
    }

    /// The rows, oldest first.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// All tokens.
    pub fn tokens(&self) -> Tokens {
        self.sum.tokens
    }

    /// All dollars.
    pub fn cost_usd(&self) -> f64 {
        self.sum.cost_usd
    }

    /// Tokens of which nobody knows what they cost.
    pub fn unpriced(&self) -> u64 {
        self.sum.unpriced
    }

    /// What those may have cost at most, in dollars.
    pub fn unpriced_usd(&self) -> f64 {
        self.unpriced_usd
    }

    /// What a turn has cost so far, in the mean of those that have ended.
    #[allow(clippy::cast_precision_loss, reason = "a count of turns")]
    pub fn mean_turn(&self) -> Option<f64> {
        (self.turns > 0).then(|| self.ended_usd / self.turns as f64)
    }

    /// Tokens that its model has written and its provider has not counted, estimated by their characters.
    pub fn unsaid_tokens(&self) -> u64 {
        self.unsaid / CHARS_PER_TOKEN
    }

    /// Tokens of output in turns that were cut off before their provider counted them, estimated.
    pub fn interrupted(&self) -> u64 {
        self.interrupted
    }

    /// Its turn was cut off: takes what its provider has not counted for its output.
    pub fn cut_off(&mut self) -> u64 {
        let tokens = self.unsaid_tokens();
        self.unsaid = 0;
        self.interrupted = self.interrupted.saturating_add(tokens);
        tokens
    }

    /// Another price is the dearest: what has none may have cost that.
    pub fn at_most(&mut self, dearest: Price) {
        if self.dearest != Some(dearest) {
            self.dearest = Some(dearest);
            self.add_up();
        }
    }

    /// Its model has written something.
    pub fn wrote(&mut self, chars: u64) {
        self.unsaid = self.unsaid.saturating_add(chars);
    }

    /// A turn has ended, and what it came to was told.
    pub fn turn_ended(&mut self) {
        self.turns += 1;
        self.ended_usd = self.sum.cost_usd + self.unpriced_usd;
        self.unsaid = 0;
    }

    /// The account as it was read, summed up.
    #[must_use]
    pub fn restored(mut self) -> Self {
        self.add_up();
        self
    }

    fn add_up(&mut self) {
        (self.sum, self.unpriced_usd) = (Sum::default(), 0.0);
        let dearest = self.dearest.unwrap_or_else(prices::dearest_built_in);
        for row in &self.rows {
            self.sum.add(row.tokens, row.cost_usd(), row.unpriced());
            self.unpriced_usd += row.unpriced_usd(dearest);
        }
    }

    /// How many lives have used something.
    pub fn lives(&self) -> usize {
        self.rows.iter().map(|row| row.agent).gather::<BTreeSet<_>>().len()
    }

    /// Takes in a change that a provider reports. A correction below what its row holds is taken from the
    /// lineage's other rows, as the record of the agent takes it from its one counter.
    pub fn add(&mut self, place: &Place, usage: &Usage, now: Time) {
        let before = self.tokens().total();
        if usage.delta.output > 0 {
            self.unsaid = 0;
        }
        let at = self.row(place);
        self.rows[at].price = place.price;
        let mut parts =
            [usage.delta.input, usage.delta.output, usage.delta.cache_read, usage.delta.cache_creation];
        self.rows[at].take_in(&mut parts);
        for row in self.rows.iter_mut().rev() {
            if parts.iter().all(|part| *part >= 0) {
                break;
            }
            row.take_in(&mut parts);
        }
        if let Some(cost) = usage.cost_usd {
            self.rows[at].reported_usd += cost;
            // What a provider tells at the end of a turn covers all that this life has used until then; what
            // it tells of one further model, what that one has.
            let is_covered = |row: &Row| usage.model.is_none() || row.model == place.model;
            for row in self.rows.iter_mut().filter(|row| row.agent == place.agent && is_covered(row)) {
                row.unpriced = Tokens::default();
                row.joined_unpriced = 0;
            }
        }
        self.last_used = now;
        self.join_rows();
        self.add_up();
        self.remember(before, now);
    }

    /// Tokens used within [`VELOCITY_WINDOW`] before `now`.
    pub fn velocity(&self, now: Time) -> u64 {
        let since = now.0.saturating_sub(millis(VELOCITY_WINDOW));
        let sum: i64 = self.recent.iter().filter(|(at, _)| *at >= since / SLOT_MS).map(|(_, n)| *n).sum();
        u64::try_from(sum).unwrap_or_default()
    }

    fn row(&mut self, place: &Place) -> usize {
        // What was used at one price does not become dearer by the next.
        let priced = |row: &Row| row.price.is_none() || row.price == place.price;
        let fits = |row: &Row| {
            row.agent == place.agent && row.team == place.team && row.model == place.model && priced(row)
        };
        self.rows.iter().position(fits).unwrap_or_else(|| {
            self.rows.push(Row {
                agent: place.agent,
                team: Arc::clone(&place.team),
                model: Arc::clone(&place.model),
                tokens: Tokens::default(),
                unpriced: Tokens::default(),
                reported_usd: 0.0,
                price: place.price,
                joined_unpriced: 0,
            });
            self.rows.len() - 1
        })
    }

    fn remember(&mut self, before: u64, now: Time) {
        let change = i64::try_from(self.tokens().total()).unwrap_or(i64::MAX)
            - i64::try_from(before).unwrap_or(i64::MAX);
        let slot = now.0 / SLOT_MS;
        match self.recent.back_mut().filter(|(at, _)| *at == slot) {
            Some((_, sum)) => *sum = sum.saturating_add(change),
            None => self.recent.push_back((slot, change)),
        }
        let oldest = slot.saturating_sub(millis(VELOCITY_WINDOW) / SLOT_MS);
        while self.recent.front().is_some_and(|(at, _)| *at < oldest) {
            self.recent.pop_front();
        }
    }

    /// Keeps the rows few: the oldest one is added to the next of its team, its cost as it stands. To one of
    /// its model, so that no model has the tokens of another; to another's only at need.
    fn join_rows(&mut self) {
        if self.rows.len() <= MAX_ROWS {
            return;
        }
        let joins =
            |old: &Row, row: &Row, same: bool| row.team == old.team && (!same || row.model == old.model);
        let next = |at: usize, same: bool| {
            let to = self.rows[at + 1..].iter().position(|row| joins(&self.rows[at], row, same))?;
            Some((at, at + to))
        };
        let find = |same: bool| (0..self.rows.len() - 1).find_map(|at| next(at, same));
        let Some((at, to)) = find(true).or_else(|| find(false)) else { return };
        let old = self.rows.remove(at);
        if let Some(row) = self.rows.get_mut(to) {
            row.tokens = row.tokens + old.tokens;
            row.reported_usd += old.cost_usd();
            row.joined_unpriced = row.joined_unpriced.saturating_add(old.unpriced());
        }
    }
}

impl Row {
    /// Takes in the four parts of a change; what is left below zero stays in `parts`.
    fn take_in(&mut self, parts: &mut [i64; 4]) {
        let tokens = &mut self.tokens;
        let counts =
            [&mut tokens.input, &mut tokens.output, &mut tokens.cache_read, &mut tokens.cache_creation];
        let mut taken = [0; 4];
        for ((count, part), taken) in counts.into_iter().zip(parts).zip(&mut taken) {
            let floor = i64::try_from(*count).unwrap_or(i64::MAX).saturating_neg();
            *taken = (*part).max(floor);
            *count = count.saturating_add_signed(*taken);
            *part -= *taken;
        }
        let [input, output, cache_read, cache_creation] = taken;
        self.unpriced += TokensDelta { input, output, cache_read, cache_creation };
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
