//! Starts that wait until there is room on this machine: whether there is, the governor says.
//!
//! ```text
//! start wished ──room, and nobody waits before it──▶ its process is started
//!      │ none                                                ▲ on disk
//!      ▼                            there is room now        │
//!   Queued ──first of its priority, or a person says so──▶ due
//! ```
//! A queued agent has no process. It keeps its name, its scope and its place among `maxAgents`, which is the
//! limit of the queue; `svc kill` ends it, and a restart of the daemon leaves it where it is.
//!
//! **Invariant:** of one priority they go on in the order in which they came, and nobody is let in past them.
//! **Invariant:** that one goes on is on disk before its process is started: a restart finds the process, or
//! starts it itself where none was.

use super::limit::reserve;
use super::reason::Reason;
use super::record::{Agent, Phase, Status};
use super::{LogEntry, Maker, Outcome, rights, spawn, touch};
use crate::api::Problem;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Context, Durability, Effect, Moment, State as All, Timer};
use crate::governor;
use crate::providers::{Provider, SessionStart};
use crate::settings::Admit;
use crate::usage;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::cmp::Reverse;
use std::sync::Arc;
use svc_base::recorded::Recorded;

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;

/// Who goes on first when there is room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Low,
    #[default]
    Normal,
    /// Given by persons alone.
    High,
}

impl Priority {
    /// The words of all.
    pub const WORDS: &[&str] = &["low", "normal", "high"];

    /// For fields that are left out when they say nothing.
    pub fn is_normal(&self) -> bool {
        *self == Self::Normal
    }
}

/// What is kept of a start that waits, beside what it is to be started with ([`Agent::opening`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Queued {
    /// Its place: lower ones came before.
    n: u64,
    /// It is on its way to the disk, and then to its process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_due: bool,
    /// A person has asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_asked: bool,
}

impl Agent {
    /// Whether it waits for room on this machine.
    pub fn is_queued(&self) -> bool {
        self.place_in_queue().is_some()
    }

    /// Its place among those that wait for room; the lowest goes on first.
    pub fn place_in_queue(&self) -> Option<(Reverse<Priority>, u64)> {
        let queued = self.queued.as_ref().filter(|queued| !queued.is_due && self.has_no_run())?;
        Some((Reverse(self.priority), queued.n))
    }

    /// Whether a process of it is there, or is about to be.
    pub fn has_process(&self) -> bool {
        let is_due = self.queued.as_ref().is_some_and(|queued| queued.is_due)
            || self.held.as_ref().is_some_and(|held| held.is_due);
        self.status.is_live() && (self.phase != Phase::Ended || is_due)
    }
}

/// Whether an agent of this kind may be started now; if not, why, for people.
fn turn(all: &All, now: Time, provider: &str, role: &str, priority: Priority) -> Result<(), String> {
    if all.settings.config().governor.admit == Admit::Off {
        return Ok(());
    }
    let before =
        all.agents.live().filter(|agent| agent.place_in_queue().is_some_and(|(at, _)| at.0 >= priority));
    match before.count() {
        0 => governor::room(all, now, provider, role),
        1 => Err("another agent waits for room before it".to_owned()),
        count => Err(format!("{count} agents wait for room before it")),
    }
}

/// For who does not want to wait where there is no room.
///
/// Errors: 409 `no_room`.
pub(super) fn check(
    all: &All,
    now: Time,
    provider: &str,
    role: &str,
    priority: Priority,
) -> Result<(), Problem> {
    if all.settings.config().governor.admit != Admit::Refuse {
        return Ok(());
    }
    turn(all, now, provider, role, priority).map_err(|why| {
        let text = format!(
            "there is no room on this machine for one more agent: {why}; end one, see svc capacity, or let it \
             wait (svc config set governor.admit queue)"
        );
        Problem::new(409, "no_room", text).with_header("Retry-After", "30")
    })
}

/// An agent puts nobody before what a person has started.
///
/// Errors: 403 `agent_may_not`.
pub(super) fn check_priority(maker: &Maker, cx: &Context, priority: Priority) -> Result<(), Problem> {
    match cx.actor.agent() {
        Some(caller) if maker.lineage.is_some() && priority == Priority::High => {
            Err(rights::refusal(caller, "give the high priority; a person has to"))
        }
        _ => Ok(()),
    }
}

/// Starts the process of a new life, or lets it wait for room.
pub(super) fn start(
    all: &mut All,
    cx: &mut Context,
    provider: &dyn Provider,
    agent: Agent,
    prompt: String,
    session: SessionStart,
) {
    if let Some(scarce) = reserve::keeps(all, cx, &agent) {
        return reserve::hold(all, cx, agent, scarce);
    }
    // What works elsewhere needs no room here.
    let turn = match &agent.runner {
        Some(_) => Ok(()),
        None => turn(all, cx.now, &agent.provider, &agent.role, agent.priority),
    };
    match turn {
        Ok(()) => spawn::start(all, cx, provider, agent, prompt, session),
        Err(why) => hold(all, cx, agent, prompt, &why),
    }
}

fn hold(all: &mut All, cx: &mut Context, mut agent: Agent, prompt: String, why: &str) {
    let last = all.agents.iter().filter_map(|agent| Some(agent.queued.as_ref()?.n)).max();
    agent.queued = Some(Box::new(Queued {
        n: last.unwrap_or(0) + 1,
        is_due: false,
        is_asked: reserve::is_asked(cx, &agent),
    }));
    agent.opens_with(prompt);
    agent.held = None;
    agent.phase = Phase::Ended;
    agent.turn_open = false;
    cx.audit("agent.queued", &json!({"agentId": agent.id, "name": agent.name, "why": why}));
    let entry = LogEntry::life(format!("queued: {why}"));
    cx.push(Effect::Log(agent.lineage_id, agent.id, entry));
    let text = format!("it waits for room on this machine, and starts by itself: {why}");
    agent.set_status(cx.now, Status::Queued, Reason::Queued { text });
    Arc::make_mut(&mut all.agents).insert(agent);
    // What is known may be old.
    cx.push(Effect::Governor(governor::Order::Look));
}

/// It is known anew what the machine has left: who has room now goes on.
pub(super) fn measured(all: &mut All, cx: &mut Context) {
    let is_held_up = all.health.writable().is_err() || usage::check_budget(all, cx.now).is_err();
    while let Some(agent) = first(all).filter(|_| !is_held_up) {
        if governor::room(all, cx.now, &agent.provider, &agent.role).is_err() {
            return;
        }
        due(all, cx, agent.id);
    }
}

fn first(all: &All) -> Option<Arc<Agent>> {
    let waiting = all.agents.live().filter_map(|agent| Some((agent.place_in_queue()?, agent)));
    waiting.min_by_key(|(place, _)| *place).map(|(_, agent)| Arc::clone(agent))
}

fn due(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    let is_asked = reserve::is_asked(cx, agent);
    if let Some(queued) = &mut agent.queued {
        queued.is_due = true;
        queued.is_asked |= is_asked;
    }
    agent.spawned_at = cx.now;
    agent.set_status(cx.now, Status::Starting, Reason::Starting);
    touch(all, cx, Durability::BeforeReply);
    cx.push(Effect::WhenStored(Timer::QueueGoesOn(id)));
}

/// That it goes on is on disk: its process is started.
pub fn go_on(all: &mut All, cx: &mut Context, id: AgentId) {
    let is_due =
        |agent: &Arc<Agent>| agent.has_no_run() && agent.queued.as_ref().is_some_and(|queued| queued.is_due);
    let Some(agent) = all.agents.get(id).filter(|agent| is_due(agent)).map(|agent| (**agent).clone()) else {
        return;
    };
    if all.health.stopping {
        // The next daemon finds it so, and goes on.
        return;
    }
    let is_asked = agent.queued.as_ref().is_some_and(|queued| queued.is_asked);
    if let Some(scarce) = reserve::keeps(all, cx, &agent).filter(|_| !is_asked) {
        reserve::hold(all, cx, agent, scarce);
        return touch(all, cx, Durability::BeforeReply);
    }
    let provider = match spawn::provider_of(&agent) {
        Ok(provider) => provider,
        Err(problem) => return failed(all, cx, id, problem.error),
    };
    let session = agent.session_start(provider);
    let prompt = agent.opening.as_ref().map(|opening| opening.prompt.clone()).unwrap_or_default();
    spawn::start(all, cx, provider, agent, prompt, session);
    touch(all, cx, Durability::Soon);
}

/// A person says that a queued agent goes on now, room or none.
///
/// Errors: 403 `agent_may_not` for an agent, 409 `budget`.
pub(super) fn resume(
    all: &mut All,
    cx: &mut Context,
    agent: &Agent,
    message: Option<String>,
) -> Result<Outcome, Problem> {
    if let Some(caller) = cx.actor.agent() {
        return Err(rights::refusal(caller, "let an agent go on for which there is no room"));
    }
    usage::check_budget(all, cx.now)?;
    if let Some(message) = message {
        super::wait::tell(all, cx, agent.id, message, false);
    }
    cx.audit("agent.unqueued", &json!({"agentId": agent.id, "name": agent.name}));
    due(all, cx, agent.id);
    let next = all.agents.get(agent.id).cloned().ok_or_else(|| Problem::not_found("the agent is gone"))?;
    Ok(Outcome::Resumed { old: agent.id, agent: next, instructed: false })
}

fn failed(all: &mut All, cx: &mut Context, id: AgentId, error: String) {
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
        agent.set_status(cx.now, Status::Crashed, Reason::StartFailed { error });
        (agent.queued, agent.opening) = (None, None);
    }
    cx.moment(Moment::Ended(id));
    touch(all, cx, Durability::BeforeReply);
}
