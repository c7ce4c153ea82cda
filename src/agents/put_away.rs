//! Idle agents while memory is short: their processes go, and come back on the next word.
//!
//! ```text
//! waits between two turns ──memory is short──▶ let go ──its process is gone──▶ put away, and waits on
//!        ▲                                                                          │ a message, a decision,
//!        └──────────────── its next life, in its session ◀──────────────────────────┘ svc resume
//! ```
//! Who is put away is alive in all but its process: it keeps its name, its scope, its locks, its place among
//! `maxAgents` and what it waits for.
//!
//! **Invariant:** nobody is put away inside of a turn, with a message on its way, with a question that its
//! process waits for, or without a session that its program goes on with.
//! **Invariant:** what is said to it, or decided, while its process ends begins its next life.

use super::reason::{Awaited, Reason};
use super::record::{Agent, Attached, Phase, Status};
use super::{LogEntry, life, rotation, say, touch};
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Context, Durability, Effect, Moment, State as All};
use crate::governor;
use crate::providers;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use svc_base::sorted;

#[cfg(test)]
#[path = "put_away_tests.rs"]
mod tests;

/// Who has been idle for less is left alone: a person may be about to decide.
pub const IDLE_LEAST: Duration = Duration::from_secs(5);

/// Why an agent that waits has no process, or soon none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct PutAway {
    /// When it was let go.
    pub at: Time,
    /// Its process is gone.
    pub is_gone: bool,
}

impl Agent {
    /// Whether it waits without a process, because memory was short.
    pub fn is_put_away(&self) -> bool {
        self.put_away.as_ref().is_some_and(|away| away.is_gone)
    }

    /// Whether its process does nothing but wait for a person, who finds it again without that process, too.
    pub fn may_be_put_away(&self) -> bool {
        let waits = self.status_reason.why().awaited().is_some_and(|awaited| !awaited.in_process);
        // What it holds elsewhere is of no use here.
        self.runner.is_none()
            && self.status == Status::Waiting
            && waits
            && self.phase == Phase::Working
            && !self.turn_open
            && self.attached == Attached::No
            && self.put_away.is_none()
            && self.session_id.is_some()
            && self.session_confirmed
            && self.queue.iter().all(|message| message.is_note)
            && providers::info_of(&self.provider).capabilities.resume
    }

    /// Since when nothing has happened to it.
    fn idle_since(&self) -> Time {
        self.last_activity.max(self.status_since)
    }
}

/// It is known anew what the machine has left: those that have been idle longest give back what is missing.
pub(super) fn measured(all: &mut All, cx: &mut Context) {
    spoken_to(all, cx);
    if all.health.stopping || !all.settings.config().governor.put_away {
        return;
    }
    let mut lacking = governor::lacking(all, cx.now);
    let may = |agent: &&Arc<Agent>| {
        agent.may_be_put_away()
            && cx.now.since(agent.idle_since()) >= IDLE_LEAST
            && !rotation::under_way(all, agent.id)
    };
    let mut idle: Vec<(Time, AgentId)> =
        all.agents.live().filter(may).map(|agent| (agent.idle_since(), agent.id)).collect();
    sorted::up(&mut idle);
    for (_, id) in idle {
        if lacking == 0 {
            return;
        }
        let held = all.governor.use_of(id).map_or(0, |own| own.now);
        lacking = lacking.saturating_sub(held.max(1));
        begin(all, cx, id);
    }
}

fn begin(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    agent.put_away = Some(Box::new(PutAway { at: cx.now, is_gone: false }));
    cx.audit("agent.putAway", &json!({"agentId": id, "name": agent.name}));
    life::let_go_if_idle(all, cx, id);
    touch(all, cx, Durability::Soon);
}

/// A run has ended, with `status` if nothing else is to be said of it: whether it is put away instead.
pub(super) fn holds(agent: &mut Agent, now: Time, status: Status, is_well: bool) -> bool {
    let Some(away) = agent.put_away.take() else { return false };
    let is_spoken_to = agent.queue.iter().any(|message| !message.is_note);
    let waits = agent.status == Status::Waiting || is_spoken_to;
    if !is_well || !waits || status != Status::Completed || agent.turn_open || agent.attached != Attached::No
    {
        return false;
    }
    let awaited = agent.status_reason.why().awaited().cloned();
    agent.put_away = Some(Box::new(PutAway { is_gone: true, ..*away }));
    agent.pid = None;
    agent.error = None;
    let reason = waits_on(agent, awaited);
    agent.set_status(now, Status::Waiting, reason);
    true
}

/// Why it is in its status while it is put away.
pub(super) fn waits_on(agent: &Agent, awaited: Option<Awaited>) -> Reason {
    Reason::PutAway { awaited, name: agent.name.clone() }
}

/// Its process is gone.
pub(super) fn gone(all: &mut All, cx: &mut Context, id: AgentId) {
    if let Some(agent) = all.agents.get(id) {
        let text = format!("put away: {}", agent.status_reason);
        cx.push(Effect::Log(agent.lineage_id, id, LogEntry::life(text)));
    }
    cx.moment(Moment::PutAway(id));
    spoken_to(all, cx);
    touch(all, cx, Durability::BeforeReply);
}

/// Those that somebody spoke to while their process ended, or while nothing could be begun, go on with that.
fn spoken_to(all: &mut All, cx: &mut Context) {
    if all.health.running().and_then(|()| all.health.writable()).is_err() {
        return;
    }
    let is_spoken_to =
        |agent: &&Arc<Agent>| agent.is_put_away() && agent.queue.iter().any(|message| !message.is_note);
    let agents: Vec<Arc<Agent>> = all.agents.live().filter(is_spoken_to).cloned().collect();
    for agent in agents {
        // Where it is refused, as for a budget that is spent, it waits for the next look or the next word.
        let _ = say::go_on(all, cx, &agent);
    }
}
