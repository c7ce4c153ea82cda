//! What rotations and resumes have saved: what was really cheaper, looked at when ten minutes are over or the
//! life is, and told as an estimate with its range. The unit is a token of fresh input: one that is read from
//! the cache or written to it counts by its price beside that.
//!
//! Of a rotation: each call of the successor would have read so much more of the old context from the cache,
//! less what its own start has cost. Whether what it read in these minutes was new or had been read before
//! nobody knows: the range goes from all of it to nothing.

use super::price_of;
use crate::core::ids::{AgentId, LineageId};
use crate::core::{Context, Document, Durability, Effect, State as All};
use crate::prices::{self, Price};
use crate::providers::{Tokens, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was not used, as far as it was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Saved {
    /// By rotations, in tokens of fresh input; below zero they have cost more than they saved.
    low: f64,
    high: f64,
    low_usd: f64,
    high_usd: f64,
    /// Rotations that were looked at.
    checked: u64,
    /// Of these, those of models without a price: they are not in the dollars.
    unpriced: u64,
    /// By resumes: context of the first call that came from the cache, less what that cost.
    resumed: f64,
}

/// A life whose saving is looked at later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    life: AgentId,
    /// The context that its predecessor held; 0 where it goes on in that one's session.
    old_context: u64,
    calls: u64,
    /// What the question to its predecessor has used.
    #[serde(default)]
    asked: Tokens,
    /// Its own context with its first call, and with its last one.
    first: u64,
    last: u64,
}

#[allow(clippy::cast_possible_truncation, reason = "below 2^52")]
fn signed(tokens: f64) -> i64 {
    tokens.round() as i64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative, below 2^52")]
fn whole(tokens: f64) -> u64 {
    tokens.max(0.0).round() as u64
}

impl Saved {
    /// By rotations: the middle of the range, and nothing where they have cost more.
    pub fn rotation(self) -> u64 {
        whole(f64::midpoint(self.low, self.high))
    }

    /// By going on in sessions that the provider had in its cache.
    pub fn cold_start(self) -> u64 {
        whole(self.resumed)
    }

    /// All together.
    pub fn total(self) -> u64 {
        self.rotation().saturating_add(self.cold_start())
    }

    /// The range of what rotations have saved; `open` of them were not looked at yet.
    pub fn range(self, open: usize) -> Value {
        let usd = |usd| (self.checked > self.unpriced).then(|| prices::rounded(usd));
        json!({
            "low": signed(self.low), "high": signed(self.high), "lowUsd": usd(self.low_usd),
            "highUsd": usd(self.high_usd), "checked": self.checked, "unpriced": self.unpriced, "open": open,
        })
    }
}

/// A life of `lineage` begins with a fresh context, where its predecessor held `old_context` tokens.
/// `asked` is what its last word has used: a part of what the rotation has cost.
pub(super) fn rotated(
    all: &mut All,
    cx: &mut Context,
    lineage: LineageId,
    life: AgentId,
    (old_context, asked): (u64, Tokens),
) {
    close(all, cx, lineage);
    if old_context > 0 {
        checks(all).insert(lineage, Check { life, old_context, asked, ..Check::default() });
    }
}

/// A life of `lineage` goes on in the session of its predecessor, or without.
pub(super) fn resumed(all: &mut All, cx: &mut Context, lineage: LineageId, life: AgentId, has_session: bool) {
    close(all, cx, lineage);
    if has_session {
        checks(all).insert(lineage, Check { life, ..Check::default() });
    }
}

fn checks(all: &mut All) -> &mut BTreeMap<LineageId, Check> {
    Arc::make_mut(&mut Arc::make_mut(&mut all.usage).checks)
}

/// A call of the model was told.
#[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
pub(super) fn heard(all: &mut All, lineage: LineageId, usage: &Usage, price: Option<Price>) {
    let Some(context) = usage.context_tokens.filter(|_| all.usage.checks.contains_key(&lineage)) else {
        return;
    };
    let cached = relations(all, price).0;
    let map = checks(all);
    let Some(check) = map.get_mut(&lineage) else { return };
    if check.old_context == 0 {
        map.remove(&lineage);
        let read = u64::try_from(usage.delta.cache_read).unwrap_or_default() as f64;
        Arc::make_mut(&mut all.usage).saved.resumed += read * (1.0 - cached);
        return;
    }
    if check.calls == 0 {
        check.first = context;
    }
    check.calls += 1;
    check.last = context;
}

/// What a token costs that is read from the cache, and one that is written to it, beside a fresh one.
fn relations(all: &All, price: Option<Price>) -> (f64, f64) {
    let price = price.filter(|price| price.input > 0.0).unwrap_or_else(|| prices::dearest(all));
    (price.cache_read / price.input, price.cache_creation / price.input)
}

/// The time is over in which it is seen what the rotation to this life has saved.
pub fn due(all: &mut All, cx: &mut Context, lineage: LineageId, life: AgentId) {
    if all.usage.checks.get(&lineage).is_some_and(|check| check.life == life) {
        close(all, cx, lineage);
    }
}

/// Nothing more is seen of what a lineage's last rotation or resume has saved.
#[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn close(all: &mut All, cx: &mut Context, lineage: LineageId) {
    if !all.usage.checks.contains_key(&lineage) {
        return;
    }
    let price = all.agents.by_lineage(lineage).cloned().and_then(|agent| price_of(all, &agent));
    let Some(check) = checks(all).remove(&lineage) else { return };
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
    if check.calls == 0 {
        return;
    }
    let (cached, created) = relations(all, price);
    let (calls, first) = (check.calls as f64, check.first as f64);
    let grown = check.last.saturating_sub(check.first) as f64;
    let related = price.filter(|price| price.input > 0.0).unwrap_or_else(|| prices::dearest(all));
    let asked = related.of(check.asked) * 1_000_000.0 / related.input;
    let high = calls * (check.old_context as f64 - first) * cached - first * created - asked;
    let low = high - grown * (created + calls / 2.0 * cached);
    let saved = &mut Arc::make_mut(&mut all.usage).saved;
    saved.low += low;
    saved.high += high;
    saved.checked += 1;
    match price {
        Some(price) => {
            saved.low_usd += low * price.input / 1_000_000.0;
            saved.high_usd += high * price.input / 1_000_000.0;
        }
        None => saved.unpriced += 1,
    }
}
