//! Which model an agent runs that names none: the cheapest of the tier that fits its work.

use super::classifier;
use super::outcomes::{self, Verdict};
use super::{State, UNKNOWN_MODEL};
use crate::agents::Agent;
use crate::core::ids::LineageId;
use crate::core::{Context, Document, Durability, Effect, State as All};
use crate::prices;
use crate::providers::{self, Info, Model, Tier, windows};
use crate::settings::Routing;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use svc_base::sorted::Gather;

/// Roles whose work is never given to a light model because of a word in the task: a wrong plan or a missed
/// hole costs more than it saves.
const FLOOR_ROLES: [&str; 3] = ["planner", "analyst", "security"];

/// A decision, kept for the lineage's whole life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The model, unless the provider's default stays.
    pub model: Option<String>,
    /// The tier of the work.
    pub tier: Tier,
    /// `auto`, or `auto-floor` when the role forbade a lighter one; `suggest` when nothing was picked.
    pub mode: String,
    /// Why, for people.
    pub reason: String,
}

/// What routing has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    pub decisions: u64,
    /// Dollars saved by agents whose records are gone.
    pub saved_usd: f64,
}

/// Whether a choice may go to the command line: a test measures forty held-out tasks, of which at least 28
/// are to get the right tier and at most two a weaker one than they need. They do not, so it is only told.
pub const CHOOSES: bool = false;

/// The mode of a decision that only tells what would be picked.
const SUGGESTED: &str = "suggest";

/// Decides the model of an agent that names none, or changes to naming none. To be called before its process
/// is ordered. Whoever names `auto` is judged whatever the setting says; of the others the setting decides.
pub fn decide(all: &mut All, cx: &mut Context, agent: &Agent) {
    let is_named = agent.model.as_deref().is_some_and(|model| model != UNKNOWN_MODEL);
    let wished = if agent.model.is_some() { Routing::On } else { all.settings.config().routing };
    let setting = if CHOOSES || wished == Routing::Off { wished } else { Routing::Suggest };
    if is_named || setting == Routing::Off {
        let saved_usd = saved_by(all, agent.lineage_id);
        if Arc::make_mut(&mut all.usage).forget_route(agent.lineage_id, saved_usd) {
            cx.push(Effect::Put(Document::Usage, Durability::Soon));
        }
        return;
    }
    let earlier = all.usage.routes.get(&agent.lineage_id);
    if earlier.is_some_and(|route| (route.mode == SUGGESTED) == (setting == Routing::Suggest)) {
        return;
    }
    let Some(provider) = providers::by_id(&agent.provider) else { return };
    let verdict = outcomes::judge(all.outcomes.known().iter(), &agent.prompt, &outcomes::places_of(agent));
    let (tier, mode, model, reason) = chosen(all, provider.info(), &agent.role, &verdict);
    let (model, mode, reason) = match (model, setting) {
        (Some(_), Routing::Suggest) => (None, SUGGESTED, format!("its program's own; {reason}")),
        _ => (model, mode, reason),
    };
    let route = Route { model: model.map(|model| model.id.to_owned()), tier, mode: mode.into(), reason };
    let state = Arc::make_mut(&mut all.usage);
    state.routed.decisions += 1;
    state.routes.insert(agent.lineage_id, Arc::new(route));
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
}

/// The model of a provider for what was judged, and why.
fn chosen(
    all: &All,
    info: &'static Info,
    role: &str,
    verdict: &Verdict,
) -> (Tier, &'static str, Option<&'static Model>, String) {
    let floored = verdict.tier == Tier::Light && FLOOR_ROLES.contains(&role);
    let (tier, mode) = if floored { (Tier::Medium, "auto-floor") } else { (verdict.tier, "auto") };
    let word = classifier::word(tier);
    let model = cheapest(all, info, tier);
    let reason = match (model, floored) {
        (None, _) => format!("{} decides itself which model it runs", info.name),
        (Some(model), true) => {
            format!("{} is the cheapest {word} model, the least for role {role}", model.name)
        }
        (Some(model), false) => {
            format!("{} is the cheapest model for {word} work by price; {}", model.name, verdict.reason)
        }
    };
    (tier, mode, model, reason)
}

/// `GET /api/routing/suggestion`: which tier and which model a task would get, and why.
pub fn suggested(all: &All, provider: &'static Info, role: &str, task: &str, places: &[String]) -> Value {
    let verdict = outcomes::judge(all.outcomes.known().iter(), task, places);
    let (tier, _, model, reason) = chosen(all, provider, role, &verdict);
    let mut shown = outcomes::shown_verdict(&verdict);
    shown["suggestedTier"] = json!(tier);
    shown["suggestedModel"] = json!(model.map(shown_model));
    shown["reason"] = json!(if model.is_some() { reason } else { verdict.reason });
    shown
}

/// It goes on with another provider: what was chosen for it holds no more.
pub fn decide_anew(all: &mut All, cx: &mut Context, agent: &Agent) {
    let saved_usd = saved_by(all, agent.lineage_id);
    Arc::make_mut(&mut all.usage).forget_route(agent.lineage_id, saved_usd);
    decide(all, cx, agent);
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
}

/// The model routing has chosen for a lineage.
pub fn model_for(all: &All, lineage: LineageId) -> Option<&str> {
    all.usage.routes.get(&lineage)?.model.as_deref()
}

/// The cheapest model of this tier; of the next heavier one when there is none.
fn cheapest(all: &All, info: &'static Info, tier: Tier) -> Option<&'static Model> {
    if !info.routed {
        return None;
    }
    let tiers: &[Tier] = match tier {
        Tier::Light => &[Tier::Light, Tier::Medium, Tier::Heavy],
        Tier::Medium => &[Tier::Medium, Tier::Heavy],
        Tier::Heavy => &[Tier::Heavy],
    };
    tiers.iter().find_map(|tier| cheapest_of(all, info, *tier))
}

fn cheapest_of(all: &All, info: &'static Info, tier: Tier) -> Option<&'static Model> {
    let priced = info.models.iter().filter(|model| model.tier == tier);
    let priced = priced.filter_map(|model| Some((model, prices::for_model(all, model.id)?.weight())));
    priced.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(model, _)| model)
}

impl State {
    /// Forgets the decision of a lineage; what it saved, in dollars, stays counted. Whether there was one.
    pub(super) fn forget_route(&mut self, lineage: LineageId, saved_usd: f64) -> bool {
        let known = self.routes.remove(&lineage).is_some();
        if known {
            self.routed.saved_usd += saved_usd;
        }
        known
    }
}

/// What a lineage's tokens would have cost with its provider's default model, less what they cost with the
/// routed one. Negative where the work asked for a heavier model.
pub(super) fn saved_by(all: &All, lineage: LineageId) -> f64 {
    let saved = || {
        let account = all.usage.account(lineage)?;
        let default = providers::by_id(&account.provider)?.info().models.first()?;
        let routed = all.usage.routes.get(&lineage)?.model.as_deref()?;
        let (routed, default) = prices::for_model(all, routed).zip(prices::for_model(all, default.id))?;
        let tokens = account.tokens();
        Some(default.of(tokens) - routed.of(tokens))
    };
    saved().unwrap_or_default()
}

/// `GET /api/routing`.
pub fn shown(all: &All) -> Value {
    let usage = &all.usage;
    let living: f64 = usage.routes.iter().map(|(lineage, _)| saved_by(all, *lineage)).sum();
    let mappings: BTreeMap<String, Value> = all
        .agents
        .iter()
        .map(|agent| {
            let model = super::model_of(all, agent);
            let named = agent.model.as_deref().filter(|model| *model != UNKNOWN_MODEL);
            let route = usage.routes.get(&agent.lineage_id).filter(|_| named.is_none());
            let (mode, tier, reason) = match (route, named) {
                (Some(route), _) => (route.mode.as_str(), Some(route.tier), route.reason.clone()),
                (None, Some(model)) => ("fixed", None, format!("{model} was named for this agent")),
                (None, None) => ("program", None, "its program runs the model it is set to".to_owned()),
            };
            let mut shown = json!({"model": model, "reason": reason, "mode": mode, "tier": tier});
            if mode == SUGGESTED {
                shown["suggestedTier"] = json!(tier);
            }
            (agent.id.to_string(), shown)
        })
        .gather();
    let config = all.settings.config();
    let mode = match config.routing {
        _ if config.default_model != UNKNOWN_MODEL => "fixed",
        Routing::Off => "off",
        Routing::On if CHOOSES => "auto",
        Routing::Suggest | Routing::On => SUGGESTED,
    };
    json!({
        "mode": mode,
        "catalogue": {"asOf": all.prices.in_force().as_of},
        "decisions": usage.routed.decisions,
        "costSaved": prices::rounded(living + usage.routed.saved_usd),
        "basis": "estimated",
        "formula": "tokens of routed agents at the price of their provider's default model, less at that of \
                    the routed one",
        "currentMappings": mappings,
        "outcomes": outcomes::counted(all),
    })
}

/// `GET /api/agents/:id/routing/suggestion`: a lighter model that fits, or `None`.
pub fn suggestion(all: &All, agent: &Agent) -> Option<Value> {
    let info = providers::by_id(&agent.provider)?.info();
    let running = super::model_of(all, agent);
    let same = |model: &&Model| windows::plain_name(model.id) == windows::plain_name(&running);
    let current = info.models.iter().find(same)?;
    let work = all.usage.works.get(&agent.lineage_id)?;
    let tier = work.tier();
    if !work.is_certain() || classifier::rank(tier) >= classifier::rank(current.tier) {
        return None;
    }
    let suggested = cheapest(all, info, tier).filter(|model| {
        let prices = prices::for_model(all, model.id).zip(prices::for_model(all, current.id));
        let cheaper = prices.is_some_and(|(suggested, current)| suggested.weight() < current.weight());
        cheaper && classifier::rank(model.tier) < classifier::rank(current.tier)
    })?;
    let reason = format!(
        "the last {} events are {} work ({}); {} costs less than {}",
        work.len(),
        classifier::word(tier),
        work.summary(),
        suggested.name,
        current.name
    );
    Some(json!({
        "agentId": agent.id,
        "currentModel": shown_model(current),
        "suggestedModel": shown_model(suggested),
        "classifiedTier": tier,
        "eventCount": work.count(),
        "reason": reason,
    }))
}

fn shown_model(model: &Model) -> Value {
    json!({"id": model.id, "name": model.name, "tier": model.tier})
}
