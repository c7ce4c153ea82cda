//! The reports: what was used and saved, by agent and by team.

use super::{State, Sum, UNASSIGNED, gone, model_of, prices, team_of};
use crate::agents::Agent;
use crate::core::State as All;
use crate::core::ids::LineageId;
use crate::providers::Tokens;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The id under which accounts are shown that were joined.
pub const EARLIER: &str = "__earlier__";

/// `GET /api/tokens/summary`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary<'a> {
    breakdown: Value,
    cache_hit_rate: f64,
    internal_overhead: Value,
    per_agent: Vec<Row<'a>>,
    prices: Value,
    savings: Value,
    tokens: Tokens,
    total_cost_usd: f64,
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
        cache_hit_rate: hit_rate(total.tokens),
        internal_overhead: overhead(usage),
        per_agent: per_agent(all),
        prices: json!({"asOf": prices::table().as_of, "source": prices::table().source}),
        savings: json!({
            "total": saved.total(),
            "fromRotation": saved.rotation,
            "percentage": percentage(saved.total(), used),
            "cacheReads": total.tokens.cache_read,
            "basis": basis(),
        }),
        tokens: total.tokens,
        total_cost_usd: prices::rounded(total.cost_usd),
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
        "rotation": saved.rotation,
        "coldStart": saved.cold_start,
        "conflict": saved.conflict,
        "basis": basis(),
    })
}

fn basis() -> Value {
    json!({
        "rotation": "measured", "coldStart": "measured", "conflict": "measured", "cacheReads": "measured",
        "explained": "rotation: context held by agents when a successor began without it; coldStart: context \
                      still there when a session was resumed; conflict: counted by the feature that \
                      prevented it; cacheReads: input that was read from the provider's cache",
    })
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

fn rounded(fraction: f64) -> f64 {
    (fraction * 10_000.0).round() / 10_000.0
}

fn overhead(usage: &State) -> Value {
    let mut sum = Sum::default();
    let mut components = Map::new();
    for (id, part) in usage.internal.iter() {
        sum.tokens = sum.tokens + part.tokens;
        sum.cost_usd += part.cost_usd;
        let shown = json!({
            "tokens": part.tokens.total(), "costUsd": prices::rounded(part.cost_usd), "sessions": part.sessions,
        });
        components.insert(id.clone(), shown);
    }
    json!({
        "tokens": sum.tokens.total(), "costUsd": prices::rounded(sum.cost_usd), "components": components,
    })
}

/// Every agent that used something or stands in the registry, the thirstiest first.
fn per_agent(all: &All) -> Vec<Row<'_>> {
    let mut rows: Vec<(u64, Row)> = Vec::new();
    let records: BTreeMap<LineageId, &Arc<Agent>> =
        all.agents.iter().map(|agent| (agent.lineage_id, agent)).collect();
    for (lineage, account) in all.usage.accounts() {
        let record = records.get(&lineage);
        let last = account.rows().last();
        let model =
            record.map(|agent| model_of(all, agent)).or_else(|| last.map(|row| Arc::clone(&row.model)));
        let team = record.map(|agent| team_of(agent)).or_else(|| last.map(|row| Arc::clone(&row.team)));
        let tokens = account.tokens();
        let shown = json!({
            "id": record.map_or(account.agent, |agent| agent.id),
            "used": tokens.total(),
            "model": model,
            "name": account.name,
            "role": account.role,
            "provider": account.provider,
            "lineageId": lineage,
            "teamId": team,
            "tokens": tokens,
            "costUsd": cost(account.cost_usd(), account.unpriced()),
            "unpricedTokens": account.unpriced(),
            "lives": account.lives(),
            "removed": record.is_none(),
        });
        rows.push((tokens.total(), Row::Made(shown)));
    }
    let gone = all.usage.gone();
    rows.extend(gone.last().map(|closed| (closed.account.tokens().total(), Row::Closed(closed))));
    for agent in all.agents.iter().filter(|agent| all.usage.account(agent.lineage_id).is_none()) {
        let shown = json!({
            "id": agent.id, "used": 0, "model": model_of(all, agent), "name": agent.name, "role": agent.role,
            "provider": agent.provider, "lineageId": agent.lineage_id, "teamId": team_of(agent),
            "tokens": Tokens::default(), "costUsd": 0.0, "unpricedTokens": 0, "lives": 0,
            "removed": false,
        });
        rows.push((0, Row::Made(shown)));
    }
    rows.extend(gone::shown_earlier(gone).map(|(used, shown)| (used, Row::Made(shown))));
    rows.sort_by_key(|(used, _)| std::cmp::Reverse(*used));
    rows.into_iter().map(|(_, shown)| shown).collect()
}

/// Dollars, `null` where nobody knows what any of it cost.
pub(super) fn cost(usd: f64, unpriced: u64) -> Value {
    if unpriced > 0 && usd <= 0.0 { Value::Null } else { json!(prices::rounded(usd)) }
}

/// What one team used.
#[derive(Default)]
struct Team {
    lineages: BTreeSet<LineageId>,
    tokens: Tokens,
    cost_usd: f64,
    unpriced: u64,
    joined: u64,
}

/// `GET /api/tokens/by-team`: ranked by tokens.
pub fn by_team(all: &All) -> Value {
    let mut teams: BTreeMap<Arc<str>, Team> = BTreeMap::new();
    for (lineage, account) in all.usage.accounts() {
        for row in account.rows() {
            let team = teams.entry(Arc::clone(&row.team)).or_default();
            team.lineages.insert(lineage);
            team.tokens = team.tokens + row.tokens;
            team.cost_usd += row.cost_usd();
            team.unpriced = team.unpriced.saturating_add(row.unpriced());
        }
    }
    for closed in all.usage.gone().last() {
        for (id, part) in &closed.teams {
            let team = teams.entry(Arc::clone(id)).or_default();
            team.lineages.insert(closed.lineage);
            team.tokens = team.tokens + part.tokens;
            team.cost_usd += part.cost_usd;
            team.unpriced = team.unpriced.saturating_add(part.unpriced);
        }
    }
    for agent in all.agents.iter() {
        teams.entry(team_of(agent)).or_default().lineages.insert(agent.lineage_id);
    }
    for (id, part) in all.usage.gone().earlier() {
        let team = teams.entry(Arc::clone(id)).or_default();
        team.tokens = team.tokens + part.tokens;
        team.cost_usd += part.cost_usd;
        team.unpriced = team.unpriced.saturating_add(part.unpriced);
        team.joined += part.sessions;
    }
    let mut ranked: Vec<(Arc<str>, Team)> = teams.into_iter().collect();
    ranked.sort_by_key(|(_, team)| std::cmp::Reverse(team.tokens.total()));
    let shown: Vec<Value> = ranked.iter().map(|(id, team)| shown_team(all, id, team)).collect();
    json!({ "teams": shown })
}

fn shown_team(all: &All, id: &str, team: &Team) -> Value {
    let agents = u64::try_from(team.lineages.len()).unwrap_or(u64::MAX).saturating_add(team.joined);
    let (name, is_default) = team_name(all, id);
    let total = team.tokens.total();
    json!({
        "teamId": id,
        "teamName": name,
        "isDefault": is_default,
        "agentCount": agents,
        "totalTokens": total,
        "totalCostUsd": prices::rounded(team.cost_usd),
        "unpricedTokens": team.unpriced,
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
