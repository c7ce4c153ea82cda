//! The reports: what was used and saved, by agent and by team.

use super::ledger::Account;
use super::{State, Sum, UNASSIGNED, gone, model_of, team_of};
use crate::agents::Agent;
use crate::core::State as All;
use crate::core::ids::LineageId;
use crate::prices;
use crate::providers::Tokens;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use svc_base::sorted::{self, Gather};

/// Models that are told one by one; what the others used stands together as [`OTHERS`].
pub const MAX_MODELS: usize = 50;
/// The id under which the models beyond [`MAX_MODELS`] are shown.
pub const OTHERS: &str = "__other__";
/// The id under which accounts are shown that were joined.
pub const EARLIER: &str = "__earlier__";

/// `GET /api/tokens/summary`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary<'a> {
    breakdown: Value,
    by_model: Vec<Value>,
    cache_hit_rate: f64,
    internal_overhead: Value,
    interrupted: Value,
    per_agent: Vec<Row<'a>>,
    prices: Value,
    savings: Value,
    tokens: Tokens,
    total_cost_usd: Option<f64>,
    total_saved: u64,
    total_tokens: u64,
    total_used: u64,
    unpriced_tokens: u64,
}

/// One agent of the summary.
#[derive(Serialize)]
#[serde(untagged)]
enum Row<'a> {
    Made(Value),
    Closed(&'a gone::Closed),
}

/// What was used and saved, by agent.
pub fn summary(all: &All) -> Summary<'_> {
    let usage = &all.usage;
    let total = usage.total();
    let used = total.tokens.total();
    let saved = usage.saved();
    Summary {
        breakdown: savings(all),
        by_model: by_model(all),
        cache_hit_rate: hit_rate(total.tokens),
        internal_overhead: overhead(usage),
        interrupted: interrupted(usage),
        per_agent: per_agent(all),
        prices: json!({
            "asOf": all.prices.in_force().as_of, "source": all.prices.in_force().source,
        }),
        savings: json!({
            "total": saved.total(),
            "fromRotation": saved.rotation(),
            "rotationRange": saved.range(usage.checks.len()),
            "percentage": percentage(saved.total(), used),
            "cacheReads": total.tokens.cache_read,
            "basis": basis(),
        }),
        tokens: total.tokens,
        total_cost_usd: prices::known(total.cost_usd, total.unpriced),
        total_saved: saved.total(),
        total_tokens: used,
        total_used: used,
        unpriced_tokens: total.unpriced,
    }
}

/// Tokens saved, by why, with the basis of each figure.
pub fn savings(all: &All) -> Value {
    let saved = all.usage.saved();
    json!({
        "rotation": saved.rotation(),
        "coldStart": saved.cold_start(),
        // Nobody knows what work a conflict would have cost that did not come about.
        "conflict": 0,
        "basis": basis(),
    })
}

fn basis() -> Value {
    json!({
        "rotation": "estimated", "coldStart": "estimated", "conflict": "measured", "cacheReads": "measured",
        "explained": "rotation: in tokens of fresh input, what the calls of successors would have read more \
                      of the old context from the cache, less what their start cost, as seen ten minutes \
                      later: the middle of savings.rotationRange; coldStart: context that the first call of \
                      a resumed session read from the cache, less what that cost; conflict: 0, as nothing \
                      counts what a prevented one would have cost; cacheReads: input that was read from \
                      the provider's cache",
    })
}

/// Output that no provider has counted, because its turn was cut off. Of all figures only the budget has it.
fn interrupted(usage: &State) -> Value {
    let cut = usage.interrupted();
    json!({
        "outputTokens": cut.tokens,
        "costUsd": cost(cut.cost_usd, cut.unpriced),
        "unpricedTokens": cut.unpriced,
        "basis": "estimated",
        "explained": "a token for four characters that a model had written when its turn was cut off before \
                      its provider counted them; in no other figure but the daily budget's",
    })
}

/// What each model used and what it costs now, the most used first: as many as are told one by one, and the
/// others together. What was joined of agents that are long gone stands with its model, or as [`EARLIER`].
fn by_model(all: &All) -> Vec<Value> {
    let usage = &all.usage;
    let mut models: BTreeMap<&str, Sum> = BTreeMap::new();
    let accounts = usage.accounts().map(|(_, account)| account);
    let accounts = accounts.chain(usage.gone().last().map(|closed| &closed.account));
    for row in accounts.flat_map(|account| account.rows()) {
        models.entry(&row.model).or_default().add(row.tokens, row.cost_usd(), row.unpriced());
    }
    for (model, sum) in usage.gone().earlier_models() {
        models.entry(model).or_default().add(sum.tokens, sum.cost_usd, sum.unpriced);
    }
    let mut ranked: Vec<(&str, Sum)> = models.into_iter().collect();
    sorted::by_key(&mut ranked, |(_, sum)| std::cmp::Reverse(sum.tokens.total()));
    if ranked.len() > MAX_MODELS {
        let mut others = Sum::default();
        for (_, sum) in ranked.drain(MAX_MODELS - 1..) {
            others.add(sum.tokens, sum.cost_usd, sum.unpriced);
        }
        ranked.push((OTHERS, others));
    }
    let shown = ranked.into_iter().map(|(model, sum)| {
        json!({
            "model": model, "used": sum.tokens.total(), "tokens": sum.tokens,
            "costUsd": cost(sum.cost_usd, sum.unpriced), "unpricedTokens": sum.unpriced,
            "price": prices::shown_of(all, model),
        })
    });
    shown.collect()
}

/// Cache reads among all cached input, 0 when there is none.
#[allow(clippy::cast_precision_loss, reason = "a fraction; token counts are far below 2^52")]
fn hit_rate(tokens: Tokens) -> f64 {
    let cached = tokens.cache_read.saturating_add(tokens.cache_creation);
    if cached == 0 { 0.0 } else { rounded(tokens.cache_read as f64 / cached as f64) }
}

/// What was saved among what would have been used, in percent.
#[allow(clippy::cast_precision_loss, reason = "a percentage; token counts are far below 2^52")]
fn percentage(saved: u64, used: u64) -> f64 {
    let whole = saved.saturating_add(used);
    if whole == 0 { 0.0 } else { (saved as f64 / whole as f64 * 1_000.0).round() / 10.0 }
}

/// A fraction as it is shown, to four decimals.
pub fn rounded(fraction: f64) -> f64 {
    (fraction * 10_000.0).round() / 10_000.0
}

fn overhead(usage: &State) -> Value {
    let mut sum = Sum::default();
    let mut components = Map::new();
    for (id, part) in usage.internal.iter() {
        sum.add(part.tokens, part.cost_usd, part.unpriced);
        let mut shown = json!({
            "tokens": part.tokens.total(), "costUsd": cost(part.cost_usd, part.unpriced),
            "sessions": part.sessions,
        });
        if part.unpriced > 0 {
            shown["unpricedTokens"] = json!(part.unpriced);
        }
        components.insert(id.clone(), shown);
    }
    json!({
        "tokens": sum.tokens.total(), "costUsd": cost(sum.cost_usd, sum.unpriced),
        "unpricedTokens": sum.unpriced, "components": components,
    })
}

/// Every agent that used something or stands in the registry, the thirstiest first.
fn per_agent(all: &All) -> Vec<Row<'_>> {
    let mut rows: Vec<(u64, Row)> = Vec::new();
    let records: BTreeMap<LineageId, &Arc<Agent>> =
        all.agents.iter().map(|agent| (agent.lineage_id, agent)).gather();
    for (lineage, account) in all.usage.accounts() {
        let record = records.get(&lineage);
        let last = account.rows().last();
        let model =
            record.map(|agent| model_of(all, agent)).or_else(|| last.map(|row| Arc::clone(&row.model)));
        let team = record.map(|agent| team_of(agent)).or_else(|| last.map(|row| Arc::clone(&row.team)));
        let mut shown = shown_account(lineage, account, model.as_deref(), team.as_deref());
        shown["id"] = json!(record.map_or(account.agent, |agent| agent.id));
        shown["removed"] = json!(record.is_none());
        rows.push((account.tokens().total(), Row::Made(shown)));
    }
    let gone = all.usage.gone();
    rows.extend(gone.last().map(|closed| (closed.account.tokens().total(), Row::Closed(closed))));
    for agent in all.agents.iter().filter(|agent| all.usage.account(agent.lineage_id).is_none()) {
        let shown = json!({
            "id": agent.id, "used": 0, "model": model_of(all, agent), "name": agent.name, "role": agent.role,
            "provider": agent.provider, "lineageId": agent.lineage_id, "teamId": team_of(agent),
            "tokens": Tokens::default(), "costUsd": 0.0, "unpricedTokens": 0, "interruptedOutput": 0,
            "lives": 0,
            "removed": false,
        });
        rows.push((0, Row::Made(shown)));
    }
    rows.extend(gone::shown_earlier(gone).map(|(used, shown)| (used, Row::Made(shown))));
    sorted::by_key(&mut rows, |(used, _)| std::cmp::Reverse(*used));
    rows.into_iter().map(|(_, shown)| shown).collect()
}

/// An account whose record is gone, as `GET /api/tokens/summary` shows it.
pub(super) fn shown_account(
    lineage: LineageId,
    account: &Account,
    model: Option<&str>,
    team: Option<&str>,
) -> Value {
    json!({
        "id": account.agent,
        "used": account.tokens().total(),
        "model": model,
        "name": account.name,
        "role": account.role,
        "provider": account.provider,
        "lineageId": lineage,
        "teamId": team,
        "tokens": account.tokens(),
        "costUsd": cost(account.cost_usd(), account.unpriced()),
        "unpricedTokens": account.unpriced(),
        "interruptedOutput": account.interrupted(),
        "lives": account.lives(),
        "removed": true,
    })
}

/// Dollars, `null` where nobody knows what any of it cost.
pub(super) fn cost(usd: f64, unpriced: u64) -> Value {
    json!(prices::known(usd, unpriced))
}

/// What one team used.
#[derive(Default)]
struct Team {
    lineages: BTreeSet<LineageId>,
    used: Sum,
    joined: u64,
}

/// `GET /api/tokens/by-team`: ranked by tokens.
pub fn by_team(all: &All) -> Value {
    let mut teams: BTreeMap<Arc<str>, Team> = BTreeMap::new();
    for (lineage, account) in all.usage.accounts() {
        for row in account.rows() {
            let team = teams.entry(Arc::clone(&row.team)).or_default();
            team.lineages.insert(lineage);
            team.used.add(row.tokens, row.cost_usd(), row.unpriced());
        }
    }
    for closed in all.usage.gone().last() {
        for (id, part) in &closed.teams {
            let team = teams.entry(Arc::clone(id)).or_default();
            team.lineages.insert(closed.lineage);
            team.used.add(part.tokens, part.cost_usd, part.unpriced);
        }
    }
    for agent in all.agents.iter() {
        teams.entry(team_of(agent)).or_default().lineages.insert(agent.lineage_id);
    }
    for (id, part) in all.usage.gone().earlier() {
        let team = teams.entry(Arc::clone(id)).or_default();
        team.used.add(part.tokens, part.cost_usd, part.unpriced);
        team.joined += part.sessions;
    }
    let mut ranked: Vec<(Arc<str>, Team)> = teams.into_iter().collect();
    sorted::by_key(&mut ranked, |(_, team)| std::cmp::Reverse(team.used.tokens.total()));
    let shown: Vec<Value> = ranked.iter().map(|(id, team)| shown_team(all, id, team)).collect();
    json!({ "teams": shown })
}

fn shown_team(all: &All, id: &str, team: &Team) -> Value {
    let agents = u64::try_from(team.lineages.len()).unwrap_or(u64::MAX).saturating_add(team.joined);
    let (name, is_default) = team_name(all, id);
    let total = team.used.tokens.total();
    json!({
        "teamId": id,
        "teamName": name,
        "isDefault": is_default,
        "agentCount": agents,
        "totalTokens": total,
        "totalCostUsd": cost(team.used.cost_usd, team.used.unpriced),
        "unpricedTokens": team.used.unpriced,
        "avgTokensPerAgent": total.checked_div(agents).unwrap_or_default(),
    })
}

/// The name of a team, and whether it is the default one. A team that is gone keeps its id as its name.
fn team_name(all: &All, id: &str) -> (String, bool) {
    if id == UNASSIGNED {
        return ("Unassigned".to_owned(), false);
    }
    let team = id.parse().ok().and_then(|id| all.teams.get(id));
    // A team that was deleted keeps what its agents used while it was there.
    team.map_or_else(|| (id.to_owned(), false), |team| (team.name.clone(), team.is_default()))
}
