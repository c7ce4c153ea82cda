//! What other features do to a living agent: show that it waits for a person, and tell it the outcome.

use super::reason::{Awaited, Reason};
use super::record::{Agent, Deliver, Instruction, Phase, Status};
use super::{life, put_away, rotation, say, touch};
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Context, Durability, Effect, State as All};
use crate::providers;
use std::sync::Arc;

/// Shows a running agent as `waiting` for this, or lets a waiting one run on. One that has completed
/// stays so, for it has no process, but its reason says what it waits for.
pub fn set_waiting(all: &mut All, cx: &mut Context, id: AgentId, awaited: Option<Awaited>) {
    if show(all, cx.now, id, awaited) {
        touch(all, cx, Durability::Soon);
    }
}

/// As [`set_waiting`], at a start: nobody is to be told. Whether the record is another now.
pub fn show(all: &mut All, now: Time, id: AgentId, awaited: Option<Awaited>) -> bool {
    let Some(agent) = all.agents.get(id) else { return false };
    let ended_but_waits = matches!(agent.status_reason.why(), Reason::FinishedAwaitsDecision(_));
    let (next, reason) = match (agent.status, awaited) {
        (Status::Waiting, awaited) if agent.is_put_away() => {
            (Status::Waiting, put_away::waits_on(agent, awaited))
        }
        (Status::Running | Status::Waiting, Some(awaited)) => {
            (Status::Waiting, Reason::AwaitsDecision(awaited))
        }
        (Status::Waiting, None) => (Status::Running, Reason::Decided),
        (Status::Completed, Some(awaited)) => (Status::Completed, Reason::FinishedAwaitsDecision(awaited)),
        (Status::Completed, None) if ended_but_waits => (Status::Completed, Reason::Finished),
        (Status::Rotating, awaited) => {
            if let Some(rotation) = Arc::make_mut(&mut all.agents).pending_rotations.get_mut(&id) {
                rotation.awaited = awaited;
            }
            return false;
        }
        _ => return false,
    };
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
        agent.set_status(now, next, reason);
    }
    true
}

/// Tells an agent something that concerns its work now: at once where it takes input, else when its run ends.
/// One that has completed goes on with it if `may_resume`; every other ended one hears it in its next life.
pub fn tell(all: &mut All, cx: &mut Context, id: AgentId, text: String, may_resume: bool) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let resumes = may_resume && agent.status == Status::Completed && !all.health.stopping;
    if agent.status.is_live() || resumes {
        let deliver = if takes_input(&agent.provider) { Deliver::Now } else { Deliver::Idle };
        match say::instruct(all, cx, &id.to_string(), text.clone(), deliver) {
            Ok(_) => return,
            Err(problem) => cx.push(Effect::Warn(format!("agent {id} could not be told at once: {problem}"))),
        }
    }
    keep(all, id, text, Deliver::Idle, false);
    life::let_go_if_idle(all, cx, id);
    touch(all, cx, Durability::BeforeReply);
}

/// Its program is told by its provider what a person decided. Where its turn has ended all the same, nothing
/// else comes: what waits to be said is said now, and without any it is let go.
pub fn decided(all: &mut All, cx: &mut Context, id: AgentId) {
    let may_go_on = |agent: &Arc<Agent>| {
        let is_told = agent.queue.iter().any(|message| message.sent);
        agent.phase == Phase::Working && !agent.turn_open && !is_told && !agent.is_at_limit()
    };
    if all.agents.get(id).is_some_and(may_go_on) && !rotation::under_way(all, id) {
        life::between_turns(all, cx, id);
        return touch(all, cx, Durability::Soon);
    }
    life::let_go_if_idle(all, cx, id);
}

/// Leaves a note for an agent's next handoff. A full queue keeps what it has: a note is worth less than a
/// message.
pub fn note(all: &mut All, cx: &mut Context, id: AgentId, text: String) {
    keep(all, id, text, Deliver::Rotation, true);
    touch(all, cx, Durability::Soon);
}

/// Puts a message into the queue of an agent, unless that is full.
fn keep(all: &mut All, id: AgentId, text: String, deliver: Deliver, is_note: bool) {
    let agents = Arc::make_mut(&mut all.agents);
    let message = agents.number_message();
    if let Some(agent) = agents.edit(id).filter(|agent| agent.queue.len() < say::MAX_QUEUED) {
        agent.queue.push(Instruction { is_note, ..Instruction::new(message, text.into(), deliver) });
    }
}

/// Whether a message can be given to a running process of this provider.
pub(super) fn takes_input(provider: &str) -> bool {
    providers::by_id(provider).is_some_and(|provider| provider.info().capabilities.live_input)
}
