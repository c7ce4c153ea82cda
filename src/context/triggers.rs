//! When an agent is rotated without being asked, and what is learned from how its lives go.
//!
//! Checked on every usage, after every tool call and at every end of a turn, in this order: the token
//! ceiling, the cooldown of the lineage, the fullness of the context, the quality of the work. Each is acted
//! on only where nothing is lost: at a turn's end, and inside of a turn after a tool call when no other one
//! is under way and the model has not answered yet. There only programs that take live input are replaced
//! for their context or their quality: the others take one prompt a run and end by themselves.
//!
//! The ceiling is a safety limit. What it counts is [`weighed`]. It waits for the end of the turn; past
//! [`OVERDUE`] it is acted on after a tool call of every program, and past [`RUNAWAY`] at once. A lineage
//! that comes to it with a second life is stopped, and people are asked.
//!
//! The daily budget comes before all: nobody outruns it by more than a turn (`usage::budget`).
//!
//! An agent whose turn has ended well and for whom nothing waits has no work left to hand over: neither a
//! full context nor red tests on the way replace it. If somebody speaks to it later, it goes on through a
//! handoff (`agents::rotation`).
//!
//! Inside of a turn a full context is replaced only where that is expected to be cheaper than to go on
//! ([`pays`]), or where it is full to the [`BRIM`].
//!
//! `autoRotation: false` puts off all but the ceiling; a spent budget puts off all, and stops whoever comes
//! to the ceiling.

use super::adaptive::{self, MAX_PROFILES, Profile, Profiles};
use super::briefing;
use super::quality::{self, Window};
use crate::agents::{Agent, Status, history};
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{Context, Document, Durability, Effect, Moment, State as All};
use crate::memory;
use crate::providers::{self, Activity, Tokens, Usage};
use crate::settings::MidTurn;
use crate::usage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Between two rotations of a lineage, the ceiling's apart.
pub const COOLDOWN: Duration = Duration::from_secs(300);
/// So many lives of a lineage may come to the ceiling within [`CEILING_WINDOW`]; the last of them gets no
/// successor before a person says so.
pub const CEILING_LIVES: usize = 2;
/// See [`CEILING_LIVES`].
pub const CEILING_WINDOW: Duration = Duration::from_secs(86_400);
/// For a life that has used so many times its ceiling the end of its turn is not waited for.
pub const OVERDUE: f64 = 1.25;
/// A life that has used so many times its ceiling is ended wherever it is.
pub const RUNAWAY: f64 = 1.5;
/// What a token read from the provider's cache weighs at the ceiling: about what it costs beside a fresh one.
pub const CACHE_READ_WEIGHT: f64 = 0.1;
/// A context that is as much fuller than its threshold is replaced whatever it costs.
const BRIM: f64 = 0.1;
/// Tokens of a successor's handoff brief.
const BRIEF_TOKENS: f64 = 4_000.0;
/// What a successor reads again, as a share of its predecessor's context.
const RE_READ: f64 = 0.15;
/// A context that falls by this share of its peak was compacted.
const COMPACTION_DROP: f64 = 0.25;
/// A peak below this says nothing.
const COMPACTION_MIN_PEAK: f64 = 0.15;

/// The reason of rotations for a full context.
pub const FULL: &str = "context_threshold";
/// The reason of rotations at the token ceiling.
pub const CEILING: &str = "token_limit_exceeded";

/// What is known of the lives under way, and what was learned from earlier ones.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    lives: BTreeMap<LineageId, Arc<Life>>,
    profiles: Arc<Profiles>,
}

#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
struct Life {
    window: Window,
    /// The fullest its context has been since it was last empty or compacted.
    peak: f64,
    /// The fullest it has been at all.
    fullest: f64,
    /// Calls of the model since this turn began.
    calls: u32,
    /// The context window, as last told.
    context_window: u64,
    /// The score with which its last life ended.
    last_score: Option<f64>,
}

/// `.svc/state/adaptive.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    profiles: Profiles,
}

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

impl State {
    /// What was learned, to be written.
    pub fn stored(&self) -> Stored {
        Stored { version: STORED_VERSION, profiles: (*self.profiles).clone() }
    }

    /// What was learned by an earlier daemon.
    pub fn restore(stored: Stored) -> Self {
        Self { lives: BTreeMap::new(), profiles: Arc::new(stored.profiles) }
    }

    fn profile(&self, provider: &str, role: &str) -> Option<&Profile> {
        self.profiles.get(provider)?.get(role)
    }

    fn life(&mut self, lineage: LineageId) -> &mut Life {
        Arc::make_mut(self.lives.entry(lineage).or_default())
    }

    /// The quality score of a lineage's life under way, or of its last one; `None` below 30 events.
    pub fn score(&self, lineage: LineageId) -> Option<f64> {
        let life = self.lives.get(&lineage)?;
        life.window.score().or(life.last_score)
    }
}

/// The fullness at which agents of this provider and role are rotated.
pub fn threshold(all: &All, provider: &str, role: &str) -> f64 {
    let base = all.settings.config().rotation_threshold;
    all.triggers.profile(provider, role).map_or(base, |profile| profile.threshold(base))
}

/// Tokens one life of this role may use.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub fn ceiling(all: &All, role: &str) -> u64 {
    let safety = &all.settings.config().safety;
    let multiplier = safety.role_multipliers.get(role).copied().unwrap_or(1.0);
    // At most 10^12 times 1000: exact in a double, and never negative.
    (safety.token_ceiling_per_agent as f64 * multiplier) as u64
}

/// What is due for an agent without anybody asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Replace it, for this reason.
    Rotate(&'static str),
    /// End it without a successor, and tell people why.
    Stop(String),
}

/// The tokens of a life as the ceiling counts them: those read from a cache by [`CACHE_READ_WEIGHT`].
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn weighed(tokens: Tokens) -> u64 {
    // Exact below 2^52, and never negative.
    let read = (tokens.cache_read as f64 * CACHE_READ_WEIGHT) as u64;
    Tokens { cache_read: read, ..tokens }.total()
}

/// What is to be done with `id` now, if anything.
pub fn due(all: &All, now: Time, id: AgentId) -> Option<Due> {
    let agent = all.agents.get(id)?;
    let is_live = matches!(agent.status, Status::Running | Status::Waiting);
    if !is_live || all.health.writable().is_err() {
        return None;
    }
    if agent.may_spend()
        && let Some(why) = over_budget(all, now, agent)
    {
        return Some(Due::Stop(why));
    }
    if !agent.is_working() {
        return None;
    }
    let (used, ceiling) = (weighed(agent.instance_tokens), ceiling(all, &agent.role));
    if used > ceiling {
        return at_ceiling(all, now, agent, used, ceiling);
    }
    let takes_input = providers::by_id(&agent.provider).is_some_and(|p| p.info().capabilities.live_input);
    let safe = !agent.turn_open || (takes_input && agent.open_tools.is_between());
    if !safe || agent.status == Status::Waiting || !may_rotate(all, now, agent) {
        return None;
    }
    if has_finished(agent) {
        return None;
    }
    if is_full(all, agent) && (!agent.turn_open || is_brimful(all, agent) || pays(all, agent)) {
        return Some(Due::Rotate(FULL));
    }
    has_degraded(all, agent).then_some(Due::Rotate("quality_degradation"))
}

fn is_brimful(all: &All, agent: &Agent) -> bool {
    let brim = threshold(all, &agent.provider, &agent.role) + BRIM;
    agent.context_usage() >= brim.min(adaptive::RANGE.1)
}

/// Whether it is expected to be cheaper to go on in a fresh context: for the calls to come, reading the
/// present one from the cache again and again, against briefing, brief and what is read again, written to a
/// cold cache once and read from it then.
#[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn pays(all: &All, agent: &Agent) -> bool {
    // In relation to each other prices hardly differ, and that is all that counts here.
    let known = usage::price_of(all, agent).filter(|price| price.cache_creation > 0.0);
    let price = known.unwrap_or_else(|| crate::prices::dearest(all));
    let life = all.triggers.lives.get(&agent.lineage_id);
    // A turn is expected to go on for as long as it has gone on.
    let calls = f64::from(life.map_or(0, |life| life.calls).max(1));
    let context = agent.context_tokens as f64;
    let briefing = briefing::budget_tokens(&agent.provider, agent.model.as_deref()) as f64;
    let fresh = briefing + BRIEF_TOKENS + RE_READ * context;
    context * price.cache_read * calls > fresh * (price.cache_creation + price.cache_read * calls)
}

/// Why an agent is to be stopped inside of its turn for the sake of the daily budget.
fn over_budget(all: &All, now: Time, agent: &Agent) -> Option<String> {
    let stops = all.settings.config().budget.mid_turn == MidTurn::Stop;
    if stops && agent.open_tools.is_between() && usage::check_budget(all, now).is_err() {
        return Some("the daily budget is spent, and budget.midTurn is stop".to_owned());
    }
    usage::budget::outrun(all, now)
}

/// The ceiling is passed: its successor, or its end.
#[allow(clippy::cast_precision_loss, reason = "a bound; token counts are far below 2^52")]
fn at_ceiling(all: &All, now: Time, agent: &Agent, used: u64, ceiling: u64) -> Option<Due> {
    let times = used as f64 / ceiling as f64;
    let waits = if agent.turn_open {
        let is_overdue = times > OVERDUE && agent.open_tools.is_between();
        times <= RUNAWAY && !is_overdue
    } else {
        // Its program ends by itself, and its next life begins anew.
        has_finished(agent)
    };
    if waits {
        return None;
    }
    if usage::check_budget(all, now).is_err() {
        let why = "it has passed its token ceiling, and the daily budget is spent";
        return Some(Due::Stop(why.to_owned()));
    }
    let earlier = all.agents.rotations().since(agent.lineage_id, CEILING, now, CEILING_WINDOW).len();
    if earlier + 1 >= CEILING_LIVES {
        let hours = CEILING_WINDOW.as_secs() / 3_600;
        return Some(Due::Stop(format!(
            "{} of its lives have passed their token ceiling of {ceiling} tokens in {hours} hours; look at what \
             it does before it goes on",
            earlier + 1
        )));
    }
    Some(Due::Rotate(CEILING))
}

/// Whether an agent may be rotated unasked: the setting, the budget and the cooldown of its lineage.
pub fn may_rotate(all: &All, now: Time, agent: &Agent) -> bool {
    let last = all.agents.rotations().last_of(agent.lineage_id);
    all.settings.config().auto_rotation
        && usage::check_budget(all, now).is_ok()
        && last.is_none_or(|last| now.since(last) >= COOLDOWN)
}

/// Whether the context of an agent has reached its threshold.
pub fn is_full(all: &All, agent: &Agent) -> bool {
    agent.context_window > 0 && agent.context_usage() >= threshold(all, &agent.provider, &agent.role)
}

/// Whether an agent between two turns has no work left, as far as it says.
fn has_finished(agent: &Agent) -> bool {
    !agent.turn_open && agent.queue.is_empty() && agent.last_turn.as_ref().is_some_and(|turn| !turn.is_error)
}

fn has_degraded(all: &All, agent: &Agent) -> bool {
    let Some(life) = all.triggers.lives.get(&agent.lineage_id) else { return false };
    life.window.judged().is_some_and(|score| score < quality_threshold(all, agent))
}

fn quality_threshold(all: &All, agent: &Agent) -> f64 {
    let profile = all.triggers.profile(&agent.provider, &agent.role);
    let relief = profile.filter(|profile| profile.is_converged()).map_or(0.0, |_| quality::CONVERGED_RELIEF);
    quality::THRESHOLD - relief
}

/// An agent did something.
pub fn heard(all: &mut All, cx: &mut Context, id: AgentId, activities: &[Activity]) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let life = Arc::make_mut(&mut all.triggers).life(agent.lineage_id);
    life.context_window = life.context_window.max(agent.context_window);
    let mut compactions = 0;
    for activity in activities {
        life.window.take(activity);
        let compacted = match activity {
            Activity::Compacted => {
                life.peak = 0.0;
                true
            }
            Activity::Usage(usage) => {
                life.calls = life.calls.saturating_add(u32::from(usage.context_tokens.is_some()));
                life.has_dropped(usage)
            }
            Activity::TurnStarted | Activity::TurnEnded(_) => {
                life.calls = 0;
                false
            }
            _ => false,
        };
        compactions += u32::from(compacted);
    }
    for _ in 0..compactions {
        history::compacted(all, cx, id);
    }
}

impl Life {
    /// Whether this usage shows that the provider has compacted the context.
    #[allow(clippy::cast_precision_loss, reason = "a fraction; token counts are far below 2^52")]
    fn has_dropped(&mut self, usage: &Usage) -> bool {
        self.context_window = usage.context_window.unwrap_or(self.context_window);
        let Some(tokens) = usage.context_tokens.filter(|_| self.context_window > 0) else { return false };
        let now = tokens as f64 / self.context_window as f64;
        self.fullest = self.fullest.max(now);
        let dropped = self.peak >= COMPACTION_MIN_PEAK && now <= self.peak * (1.0 - COMPACTION_DROP);
        self.peak = if dropped { now } else { self.peak.max(now) };
        dropped
    }
}

/// An agent has written outside of its scope. To be called by the feature that finds it.
pub fn scope_violation(all: &mut All, agent: AgentId) {
    let Some(lineage) = all.agents.get(agent).map(|agent| agent.lineage_id) else { return };
    Arc::make_mut(&mut all.triggers).life(lineage).window.violation();
}

/// Something happened to an agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::Rotated { new: id, .. } | Moment::Ended(id) => life_over(all, cx, id),
        Moment::Removed(_, lineage) if all.triggers.lives.contains_key(&lineage) => {
            Arc::make_mut(&mut all.triggers).lives.remove(&lineage);
        }
        _ => {}
    }
}

/// A life is over: learns from its score, and begins a new window.
fn life_over(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let triggers = Arc::make_mut(&mut all.triggers);
    let life = triggers.life(agent.lineage_id);
    let (score, judged, fullest) = (life.window.score(), life.window.judged(), life.fullest);
    *life = Life { last_score: score.or(life.last_score), ..Life::default() };
    let Some(score) = score else { return };
    let threshold = threshold(all, &agent.provider, &agent.role);
    if fullest >= threshold - adaptive::NEAR {
        learn(all, cx, &agent, judged.unwrap_or(score));
    }
    let threshold = self::threshold(all, &agent.provider, &agent.role);
    memory::session_scored(all, cx, id, score, Some(threshold));
}

/// Moves the threshold of the agent's provider and role by the score of a life.
fn learn(all: &mut All, cx: &mut Context, agent: &Agent, score: f64) {
    let base = all.settings.config().rotation_threshold;
    let triggers = Arc::make_mut(&mut all.triggers);
    let full = triggers.profiles.values().map(BTreeMap::len).sum::<usize>() >= MAX_PROFILES;
    if full && triggers.profile(&agent.provider, &agent.role).is_none() {
        return;
    }
    let roles = Arc::make_mut(&mut triggers.profiles).entry(agent.provider.clone()).or_default();
    roles.entry(agent.role.clone()).or_default().session(base, score);
    cx.push(Effect::Put(Document::Adaptive, Durability::Soon));
}

/// `GET /api/rotation`.
pub fn shown_rotations(all: &All) -> Value {
    let history = all.agents.rotations();
    json!({"totalRotations": history.total, "history": history.entries})
}

/// `GET /api/adaptive`: what was learned, and the setting for living agents of whom nothing is known yet.
pub fn shown_adaptive(all: &All) -> Value {
    let base = all.settings.config().rotation_threshold;
    let mut thresholds: BTreeMap<&str, BTreeMap<&str, f64>> = BTreeMap::new();
    let mut convergence: BTreeMap<&str, bool> = BTreeMap::new();
    for (provider, roles) in all.triggers.profiles.iter() {
        convergence.insert(provider, !roles.is_empty() && roles.values().all(Profile::is_converged));
        for (role, profile) in roles {
            thresholds.entry(provider).or_default().insert(role, profile.threshold(base));
        }
    }
    let mut scores: BTreeMap<String, Value> = BTreeMap::new();
    for agent in all.agents.live() {
        thresholds.entry(&agent.provider).or_default().entry(&agent.role).or_insert(base);
        convergence.entry(&agent.provider).or_insert(false);
        let window = all.triggers.lives.get(&agent.lineage_id).map(|life| &life.window);
        let shown = json!({
            "score": window.and_then(Window::score),
            "judged": window.and_then(Window::judged),
            "events": window.map_or(0, Window::count),
            "threshold": quality_threshold(all, agent),
        });
        scores.insert(agent.id.to_string(), shown);
    }
    json!({"thresholds": thresholds, "convergence": convergence, "quality": scores})
}
