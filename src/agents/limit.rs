//! What becomes of an agent whose provider answers nothing for now: it is no crash, but a state.
//!
//! ```text
//! Working ──its turn fails at a limit──▶ Limited ──the time has come, or a person says so──▶ due
//!    ▲                                     ▲  │ ask: nobody has said what then                │ on disk
//!    │                                     │  └──▶ waits for a person                         ▼
//!    └──────────────────── its process runs ◀──────────── Starting, its prompt issued again ◀─┘
//! ```
//! A limited agent has no process. It keeps its name, its scope, its locks, its place among `maxAgents`, and
//! the words it was working on, which its next life is given once.
//!
//! **Invariant:** nothing is issued again before the reset that the provider told, nor in quiet hours, nor
//! above a cap, nor at a usage limit whose `onLimit` does not say so, nor while no more is left of a window
//! than a person keeps (`limit/reserve.rs`); a person's own word goes before.
//! **Invariant:** what is to be issued is on disk, with the id of the life that gets it, before it is: after
//! a kill the next daemon finds the process of that life, or issues it itself.

use super::reason::Reason;
use super::record::{Agent, Attached, Phase, Status, Stop};
use super::{LogEntry, Outcome, limit_words, new_life, queue, rights, rotation, spawn, touch};
use crate::api::Problem;
use crate::core::ids::AgentId;
use crate::core::notice::Notice;
use crate::core::time::{Jump, Time};
use crate::core::{CallId, Context, Durability, Effect, Moment, State as All, Timer};
use crate::governor;
use crate::providers::SessionStart;
use crate::providers::limit::{self, Kind, Limit, Source};
use crate::settings::OnLimit;
use crate::usage;
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// So long after a reset it is asked again: clocks differ, and some tell it to the second.
pub const MARGIN: Duration = Duration::from_secs(5);
/// The same for a reset that stood in words, which tell minutes.
pub const WORDS_MARGIN: Duration = Duration::from_secs(65);
/// The longest delay where nobody tells when a limit opens.
pub const DELAY_MAX: Duration = Duration::from_secs(3_600);
/// The longest delay while an endpoint has too much to do or cannot be reached.
pub const BUSY_DELAY_MAX: Duration = Duration::from_secs(900);
/// Too many requests at once: a reset further away than this is one of a usage limit.
pub const SHORT: Duration = Duration::from_secs(900);
/// An agent that has come to a limit so often without one good turn in between has failed.
pub const MAX_TRIES: u32 = 200;
/// Words under way that are kept to be issued again; the oldest go first. Its session has them, too.
pub const MAX_UNDER_WAY: usize = 20;
/// While the disk refuses, it is tried again after this.
const DISK_DELAY: Duration = Duration::from_secs(30);

pub(super) mod handover;
#[cfg(test)]
pub(super) mod planted;
mod policy;
pub(super) mod reserve;

use handover::hand_over_to;
pub use policy::{policy, policy_changed};

/// Whether a test has planted this bug.
macro_rules! planted {
    ($bug:ident) => {{
        #[cfg(test)]
        let is = planted::is(planted::Bug::$bug);
        #[cfg(not(test))]
        let is = false;
        is
    }};
}

/// Why an agent is held, and until when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    pub kind: Kind,
    /// The provider's id.
    pub provider: String,
    /// Which of its accounts; `default` is the one that is not named.
    pub account: String,
    /// The provider's word for the window; empty where it told none.
    pub window: String,
    /// When the provider says that it opens.
    pub resets_at: Option<Time>,
    /// Where that was read.
    pub source: Source,
    /// What holds for this agent, and who said so: `agent`, `team`, `project`.
    pub on_limit: OnLimit,
    pub said_by: String,
    /// When it goes on by itself; `None` when a person has to say so.
    pub next_try: Option<Time>,
    /// The first words of the refusal.
    pub error: String,
    /// Percent of the window that a person keeps: it is held for that, and not at the limit itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<u8>,
    /// Its next life is on its way to the disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_due: bool,
}

impl Held {
    /// As records show it: times as RFC 3339.
    pub fn shown(&self) -> Value {
        json!({
            "kind": self.kind, "provider": self.provider, "account": self.account, "window": self.window,
            "resetsAt": self.resets_at.map(|at| at.to_string()), "source": self.source,
            "onLimit": self.on_limit, "saidBy": self.said_by,
            "goesOnAt": self.next_try.map(|at| at.to_string()), "reserve": self.reserve,
        })
    }

    fn reason(&self, name: &str) -> Reason {
        let (error, next) = (self.error.clone(), self.next_try);
        if self.kind == Kind::Window {
            let (resets, is_kept) = (self.resets_at, self.reserve.is_some());
            Reason::Limited { error, resets, next, name: name.to_owned(), is_kept }
        } else {
            Reason::ProviderBusy { error, next }
        }
    }
}

impl Agent {
    /// Whether it is held at a limit, waits for room, is put away, on its way to another machine, or about to
    /// go on: alive, and no process.
    pub fn has_no_run(&self) -> bool {
        let waits = self.held.is_some() || self.queued.is_some() || self.is_put_away() || self.is_carried();
        waits && self.phase == Phase::Ended && self.status.is_live()
    }

    /// Takes in what a provider told; relative times are settled by `now`.
    pub(super) fn told_limit(&mut self, limit: &Limit, now: Time) {
        let knows_more = self.told.as_ref().is_some_and(|told| told.tells_reset() && !limit.tells_reset());
        if !limit.closed || knows_more {
            return;
        }
        let mut limit = limit.clone();
        limit.resets_at_ms =
            limit.resets_at_ms.or(limit.resets_in_ms.map(|delay| now.0.saturating_add(delay)));
        self.told = Some(Box::new(limit));
    }

    /// Words that it works on from now.
    pub(super) fn work_on(&mut self, words: &str) {
        if self.under_way.len() >= MAX_UNDER_WAY {
            self.under_way.remove(0);
        }
        self.under_way.push(words.into());
    }

    /// A turn has ended well: what it worked on is done.
    pub(super) fn turn_was_good(&mut self) {
        self.told = None;
        self.tries = 0;
        self.under_way.clear();
    }

    /// Whether the turn that failed last did so at a limit: then nothing more is said to this life.
    pub(super) fn is_at_limit(&self) -> bool {
        self.last_turn.as_ref().is_some_and(|turn| turn.is_error) && self.limit_of_end("").is_some()
    }

    /// Why its provider refuses, if its end says so: what it told, else the words of its failure.
    fn limit_of_end(&self, complaints: &str) -> Option<Limit> {
        if let Some(told) = &self.told {
            return Some((**told).clone());
        }
        let turn = self.last_turn.as_ref().filter(|turn| turn.is_error);
        limit::of_failure(None, turn.map_or(complaints, |turn| &turn.text))
    }
}

/// A run has failed: whether it is held instead of ended, and how.
pub(super) fn of_end(all: &All, now: Time, agent: &Agent, complaints: &str) -> Option<Held> {
    let limit = agent.limit_of_end(complaints).filter(|_| !planted!(Crash))?;
    let error = agent.last_turn.as_ref().filter(|turn| turn.is_error).map(|turn| turn.text.clone());
    let error = error.unwrap_or_else(|| complaints.lines().last().unwrap_or_default().to_owned());
    let words = if limit.words.is_empty() { &error } else { &limit.words };
    let near = |at: &Time| *at > now && at.0 - now.0 <= limit_words::FAR_MS;
    let told = limit.resets_at_ms.map(Time).filter(near);
    let read = told.is_none().then(|| limit_words::reset(words, now, &zone(all))).flatten();
    let is_far = told.or(read).is_some_and(|at| at.since(now) > SHORT);
    let kind = if limit.kind == Kind::Rate && is_far { Kind::Window } else { limit.kind };
    let (on_limit, said_by) = policy(all, agent);
    if agent.tries >= MAX_TRIES || (kind == Kind::Window && on_limit == OnLimit::Stop) {
        return None;
    }
    let mut held = Held {
        kind,
        provider: agent.provider.clone(),
        account: agent.account_name().to_owned(),
        window: limit.window,
        resets_at: told.or(read),
        source: if read.is_some() { Source::Text } else { limit.source },
        on_limit,
        said_by: said_by.to_owned(),
        next_try: None,
        error,
        reserve: None,
        is_due: false,
    };
    held.next_try = next_try(all, now, agent, &held);
    Some(held)
}

/// When a held agent goes on by itself; `None` when that is for a person to say.
fn next_try(all: &All, now: Time, agent: &Agent, held: &Held) -> Option<Time> {
    let config = all.settings.config();
    if hand_over_to(all, now, agent, held).is_some() && !above_cap(all, agent) {
        return Some(unquiet(all, now));
    }
    if held.reserve.is_some() {
        return reserve::goes_on(all, agent, held);
    }
    let consents = held.on_limit == OnLimit::Wait || planted!(Consent);
    if (held.kind == Kind::Window && !consents) || above_cap(all, agent) {
        return None;
    }
    let first = Duration::from_secs(config.limits.retry_seconds);
    let most = if matches!(held.kind, Kind::Window | Kind::Rate) { DELAY_MAX } else { BUSY_DELAY_MAX };
    let delay = first.saturating_mul(1 << agent.tries.min(12)).min(most.max(first));
    let at = match held.resets_at {
        Some(at) if planted!(Early) => Time(at.0.saturating_sub(90_000)).max(now + delay),
        // Refused again right after it: whatever it tells, not faster and faster.
        Some(at) if agent.tries > 0 => (at + margin(held.source)).max(now + delay),
        Some(at) => at + margin(held.source),
        None => now + delay,
    };
    Some(unquiet(all, at))
}

fn margin(source: Source) -> Duration {
    if source == Source::Text { WORDS_MARGIN } else { MARGIN }
}

fn zone(all: &All) -> TimeZone {
    TimeZoneDatabase::bundled().get(&all.project.zone).unwrap_or(TimeZone::UTC)
}

/// The first moment from `at` that is not quiet.
fn unquiet(all: &All, at: Time) -> Time {
    let quiet = all.settings.config().limits.quiet_hours.filter(|_| !planted!(Quiet));
    let Some(quiet) = quiet else { return at };
    let zone = zone(all);
    let mut at = at;
    // Hours that the clock skips or repeats included, no quiet time is longer than two days of minutes.
    for _ in 0..2 * 24 * 60 + 120 {
        let Ok(stamp) = Timestamp::from_millisecond(i64::try_from(at.0).unwrap_or(i64::MAX)) else { break };
        let wall = zone.to_datetime(stamp);
        let minute =
            u16::try_from(60 * i32::from(wall.hour()) + i32::from(wall.minute())).unwrap_or_default();
        if !quiet.has(minute) {
            break;
        }
        at = Time(at.0 - at.0 % 60_000) + Duration::from_secs(60);
    }
    at
}

/// Whether it has used so much that only a person lets it go on.
fn above_cap(all: &All, agent: &Agent) -> bool {
    let limits = &all.settings.config().limits;
    limits.cap_tokens.is_some_and(|cap| agent.tokens.total() >= cap)
        || limits.cap_usd.is_some_and(|cap| agent.cost_usd >= cap)
}

/// The record holds `held`: sets its deadline and tells whom it concerns.
pub(super) fn arrange(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let Some(held) = &agent.held else { return };
    let agents = Arc::make_mut(&mut all.agents);
    agents.limited.insert(id);
    set_deadline(all, id, held.next_try);
    let mut told = held.shown();
    told["agentId"] = json!(id);
    told["name"] = json!(agent.name);
    cx.audit("limit.reached", &told);
    let reason = agent.status_reason.to_string();
    cx.push(Effect::Log(agent.lineage_id, id, LogEntry::life(format!("limited: {reason}"))));
    let agent_name = agent.name.clone();
    cx.notice(Notice::AgentLimited { agent_id: id, agent_name, reason, limit: held.shown() });
}

fn set_deadline(all: &mut All, id: AgentId, at: Option<Time>) {
    Arc::make_mut(&mut all.timers).put(Timer::LimitOpens(id), at);
}

/// The daemon has started: what an earlier one held goes on being held.
pub fn started(all: &mut All) {
    let mut held: Vec<(AgentId, Option<Time>)> = Vec::new();
    for agent in all.agents.iter().filter(|agent| agent.has_no_run() && !planted!(Lost)) {
        let Some(hold) = &agent.held else { continue };
        // Who is held by other words than those that hold is looked at right away.
        let at = if policy::is_other(all, agent, hold) { Some(Time(0)) } else { hold.next_try };
        held.push((agent.id, at));
    }
    for (id, at) in held {
        Arc::make_mut(&mut all.agents).limited.insert(id);
        set_deadline(all, id, at);
    }
}

/// The wall clock was set back: what waits for no moment of the wall waits no longer than it was to.
pub(super) fn clock_set(all: &mut All, jump: Jump) {
    let held: Vec<AgentId> = all.agents.limited.iter().copied().collect();
    for id in held.into_iter().filter(|_| jump.is_back) {
        let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { continue };
        let waits = |held: &&mut Box<Held>| held.resets_at.is_none() && !held.is_due;
        let Some(held) = agent.held.as_mut().filter(waits) else { continue };
        held.next_try = held.next_try.map(|at| at.moved(jump));
        let at = held.next_try;
        set_deadline(all, id, at);
    }
}

/// Somebody's provider told of a window: that it opens later than was told before, or what is left of it.
pub fn window_told(all: &mut All, cx: &mut Context, provider: &str, account: &str, limit: &Limit) {
    let at = limit.resets_at_ms.map(Time).filter(|_| !limit.window.is_empty());
    let ids: Vec<AgentId> = all.agents.limited.iter().copied().collect();
    for id in ids {
        let Some(agent) = all.agents.get(id).cloned() else { continue };
        let Some(held) = agent.held.as_ref().filter(|held| !held.is_due) else { continue };
        if held.provider != provider || held.account != account {
            continue;
        }
        if held.reserve.is_some() {
            reserve::judge(all, cx, &agent, held);
            continue;
        }
        let same = held.kind == Kind::Window && held.window == limit.window;
        let Some(at) = at else { continue };
        let is_later = held.resets_at.is_some_and(|known| at > known) && at.since(cx.now).as_millis() > 0;
        if same && is_later && at.0 - cx.now.0 <= limit_words::FAR_MS {
            hold_until(all, cx, id, at);
        }
    }
}

fn hold_until(all: &mut All, cx: &mut Context, id: AgentId, at: Time) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let Some(held) = &agent.held else { return };
    let mut held = Held { resets_at: Some(at), source: Source::Event, ..(**held).clone() };
    held.next_try = next_try(all, cx.now, &agent, &held);
    renew(all, cx, id, held);
}

/// Another hold in the place of the one that there is.
fn renew(all: &mut All, cx: &mut Context, id: AgentId, held: Held) {
    set_deadline(all, id, held.next_try);
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
        let reason = held.reason(&agent.name);
        agent.set_status(cx.now, Status::Limited, reason);
        agent.held = Some(Box::new(held));
    }
    touch(all, cx, Durability::BeforeReply);
}

/// The time of a held agent has come.
pub fn opens(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned().filter(|agent| agent.status == Status::Limited) else {
        return;
    };
    let Some(held) = agent.held.as_ref() else { return };
    if policy::is_other(all, &agent, held) {
        return policy::follow(all, cx, &agent, held);
    }
    let Some(at) = held.next_try.filter(|_| !all.health.stopping) else { return };
    if at > cx.now {
        return set_deadline(all, id, Some(at));
    }
    if all.health.writable().is_err() {
        return set_deadline(all, id, Some(cx.now + DISK_DELAY));
    }
    if governor::asks_others(all, cx) {
        return set_deadline(all, id, Some(cx.now + governor::ASKED));
    }
    // What a person has set may have changed since.
    let next_try = if above_cap(all, &agent) {
        None
    } else if usage::check_budget(all, cx.now).is_err() {
        Some(usage::budget::next_day(cx.now))
    } else {
        Some(handover::when_usable(all, &agent, held, unquiet(all, cx.now)))
    };
    if next_try != Some(cx.now) {
        return renew(all, cx, id, Held { next_try, ..(**held).clone() });
    }
    if !reserve::holds_again(all, cx, &agent, held) && !handover::asks_brief(all, cx, &agent, held) {
        begins(all, cx, &agent, held);
    }
}

/// It goes on, by what a person has said before.
fn begins(all: &mut All, cx: &mut Context, agent: &Agent, held: &Held) {
    let told = json!({
        "agentId": agent.id, "name": agent.name, "provider": held.provider, "window": held.window,
        "onLimit": held.on_limit, "saidBy": held.said_by, "reserve": held.reserve,
        "resetsAt": held.resets_at.map(|at| at.to_string()),
        "account": held.account, "handoverTo": hand_over_to(all, cx.now, agent, held).map(|to| to.name().to_owned()),
    });
    cx.audit("limit.goesOn", &told);
    prepare(all, cx, agent);
}

/// A person says that a held agent goes on now.
///
/// Errors: 403 `agent_may_not` for an agent, 409 `budget`.
pub(super) fn resume(
    all: &mut All,
    cx: &mut Context,
    agent: &Agent,
    message: Option<String>,
) -> Result<Outcome, Problem> {
    if let Some(caller) = cx.actor.agent() {
        return Err(rights::refusal(caller, &format!("let {} go on at a limit", agent.name)));
    }
    usage::check_budget(all, cx.now)?;
    let mut agent = agent.clone();
    message.map(|message| super::say::enqueue(all, &mut agent, message)).transpose()?;
    if let Some(held) = &mut agent.held {
        // Whatever holds otherwise: with its own provider, and now.
        held.on_limit = OnLimit::Wait;
        reserve::PERSON.clone_into(&mut held.said_by);
    }
    cx.audit("limit.consent", &json!({"agentId": agent.id, "name": agent.name, "goesOn": "now"}));
    let id = prepare(all, cx, &agent);
    let next = all.agents.get(id).cloned().ok_or_else(|| Problem::not_found("the agent is gone"))?;
    Ok(Outcome::Resumed { old: agent.id, agent: next, instructed: false })
}

/// Makes the next life of a held agent, which is started once the disk has it.
fn prepare(all: &mut All, cx: &mut Context, old: &Agent) -> AgentId {
    let id = AgentId(cx.fresh_id(|id| all.agents.knows_id(id)));
    let mut agent = new_life::next(old, id, cx);
    agent.phase = Phase::Ended;
    agent.turn_open = false;
    // What is said from now on waits until it runs.
    agent.begins_with_queue();
    if let Some(held) = &mut agent.held {
        held.is_due = true;
        held.next_try = Some(cx.now);
    }
    let timers = Arc::make_mut(&mut all.timers);
    timers.clear(Timer::LimitOpens(old.id));
    let agents = Arc::make_mut(&mut all.agents);
    agents.limited.remove(&old.id);
    agents.retire(old.id);
    agents.insert(agent);
    agents.limited.insert(id);
    // A successor that was held before it began.
    if let Some(rotation) = agents.pending_rotations.remove(&old.id) {
        agents.pending_rotations.insert(id, rotation);
    }
    cx.moment(Moment::Resumed { old: old.id, new: id });
    touch(all, cx, Durability::BeforeReply);
    cx.push(Effect::WhenStored(Timer::LimitGoesOn(id)));
    id
}

/// The next life is on disk: its process is started, with what it was working on.
pub fn go_on(all: &mut All, cx: &mut Context, id: AgentId) {
    let due = |agent: &Arc<Agent>| agent.has_no_run() && agent.held.as_ref().is_some_and(|held| held.is_due);
    let Some(mut agent) = all.agents.get(id).filter(|agent| due(agent)).map(|agent| (**agent).clone()) else {
        return;
    };
    if all.health.stopping {
        // The next daemon finds it so, and goes on.
        return;
    }
    let Some(held) = agent.held.clone() else { return };
    let hands_over = hand_over_to(all, cx.now, &agent, &held);
    if held.kind == Kind::Window && held.on_limit == OnLimit::Handover && hands_over.is_none() {
        // The other provider is gone meanwhile: its own one is not asked before a person says so.
        if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
            agent.nothing_on_its_way();
        }
        return renew(all, cx, id, Held { is_due: false, next_try: None, ..*held });
    }
    if let Some(other) = hands_over {
        handover::moves(all, cx, &mut agent, other);
    }
    let provider = match spawn::provider_of(&agent) {
        Ok(provider) => provider,
        Err(problem) => return failed(all, cx, id, problem.error),
    };
    let session = agent.session_start(provider);
    if session == SessionStart::Fresh {
        agent.leave_session();
    }
    let prompt = handover::issued_again(all, &agent, &session);
    Arc::make_mut(&mut all.agents).limited.remove(&id);
    if planted!(Twice) {
        spawn::start(all, cx, provider, agent.clone(), prompt.clone(), session.clone());
    }
    queue::start(all, cx, provider, agent, prompt, session);
    touch(all, cx, Durability::Soon);
}

fn failed(all: &mut All, cx: &mut Context, id: AgentId, error: String) {
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
        agent.set_status(cx.now, Status::Crashed, Reason::StartFailed { error });
        agent.held = None;
        agent.nothing_on_its_way();
    }
    Arc::make_mut(&mut all.agents).limited.remove(&id);
    cx.moment(Moment::Ended(id));
    touch(all, cx, Durability::BeforeReply);
}

/// Ends an agent that has no process. A shutdown leaves it as it is: the next daemon goes on holding it.
pub(super) fn ended(all: &mut All, cx: &mut Context, id: AgentId, why: Stop, call: Option<CallId>) {
    if why == Stop::Shutdown {
        return;
    }
    set_deadline(all, id, None);
    let agents = Arc::make_mut(&mut all.agents);
    agents.limited.remove(&id);
    if let Some(agent) = agents.edit(id) {
        agent.nothing_on_its_way();
        (agent.queued, agent.opening, agent.put_away) = (None, None, None);
        // A later life is not what the person has waited for.
        agent.attached = Attached::No;
        let reason = match agent.held.take() {
            Some(held) if why == Stop::Limit => {
                let limit = format!("its provider's usage limit is reached ({})", held.error);
                Reason::LimitReached { limit, name: agent.name.clone() }
            }
            _ => Reason::Stopped,
        };
        agent.set_status(cx.now, Status::Killed, reason);
    }
    super::moving::given_up(all, cx, id);
    super::life::announce_exit(all, cx, id);
    super::life::answer_stops(all, cx, id, call.into_iter().collect());
    if rotation::under_way(all, id) {
        rotation::given_up(all, cx, id);
    } else {
        cx.moment(Moment::Ended(id));
    }
    touch(all, cx, Durability::BeforeReply);
}

/// A run has ended as a crash: instead, it is held where its provider's limit is why. `true` where it is.
pub(super) fn holds(agent: &mut Agent, now: Time, held: Option<Held>) -> bool {
    let Some(held) = held else { return false };
    agent.tries = agent.tries.saturating_add(1);
    agent.pid = None;
    agent.error = None;
    agent.told = None;
    let reason = held.reason(&agent.name);
    agent.set_status(now, Status::Limited, reason);
    agent.held = Some(Box::new(held));
    true
}

/// The end of an agent whose `onLimit` is `stop`.
pub(super) fn stops(all: &All, agent: &Agent, complaints: &str) -> Option<Reason> {
    let limit = agent.limit_of_end(complaints)?;
    let is_window = limit.kind == Kind::Window;
    (is_window && policy(all, agent).0 == OnLimit::Stop).then(|| {
        let error = agent.last_turn.as_ref().map_or(complaints, |turn| &turn.text);
        let limit = format!("its provider's usage limit is reached ({error})");
        Reason::LimitReached { limit, name: agent.name.clone() }
    })
}
