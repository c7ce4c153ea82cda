//! Rotation: an agent is replaced by a fresh one that gets a handoff brief.
//!
//! ```text
//! begin ──▶ Briefing ──brief──▶ Ending ──old is gone──▶ Starting ──it runs──▶ complete
//!              │                   │                        │
//!              └──── no brief, or the agent ended by itself, or no start ────▶ failed
//! ```
//! The replacement is prepared first, then the old agent is ended, then the new one started with
//! everything the old one had.
//!
//! An agent that has ended with a full context is not replaced at once, for it has no work left. Its brief
//! is kept, and if somebody speaks to it, its next life begins at `Starting` instead of in the full
//! session.

use super::history::{self, Entry};
use super::reason::Reason;
use super::record::{Agent, Status, Stop};
use super::{Job, Outcome, RunOrder, life, say, spawn, touch};
use crate::api::Problem;
use crate::context::triggers::{self, Due, FULL};
use crate::context::{brief, briefing};
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{CallId, Context, Durability, Effect, Moment, Notice, State as All};
use crate::providers::{SessionStart, Tokens};
use crate::usage;
use serde_json::json;
use std::sync::Arc;

/// One rotation under way, keyed by the agent whose report moves it on: the old one, then the new one.
#[derive(Debug, Clone)]
pub struct Rotation {
    step: Step,
    old: AgentId,
    reason: String,
    /// Its turn was open when it began, and its program was asked to leave it.
    interrupted: bool,
    calls: Vec<CallId>,
}

#[derive(Debug, Clone)]
enum Step {
    Briefing,
    Ending(String),
    Starting { old_context_tokens: u64, delivered: Vec<u64> },
}

/// `POST /api/agents/:id/rotate`; answered when the successor runs.
pub fn rotate(all: &mut All, cx: &mut Context, call: CallId, target: &str) {
    let agent = match all.agents.find(target) {
        Ok(agent) => Arc::clone(agent),
        Err(problem) => return cx.reply(call, problem),
    };
    if !agent.status.is_live() {
        let (name, why) = (&agent.name, &agent.status_reason);
        let text = format!("agent {name} has ended ({why}); svc resume {name} starts its next life");
        return cx.reply(call, Problem::new(409, "agent_ended", text));
    }
    if under_way(all, agent.id) {
        let text = format!("a rotation of {} is under way already", agent.name);
        return cx.reply(call, Problem::new(409, "rotation_under_way", text));
    }
    if matches!(agent.phase, super::Phase::Stopping(..)) {
        let text = format!("agent {} is being stopped", agent.name);
        return cx.reply(call, Problem::new(409, "agent_ended", text));
    }
    // A successor reads its whole brief before it does anything: that is spending, too.
    if let Err(problem) = usage::check_budget(all, cx.now) {
        return cx.reply(call, problem);
    }
    begin(all, cx, agent.id, "manual", Some(call));
}

/// Begins a rotation if one is due without anybody asking. To be called when usage was reported and when a
/// turn has ended. Whether one is under way now.
pub fn begin_if_due(all: &mut All, cx: &mut Context, id: AgentId) -> bool {
    if under_way(all, id) {
        return true;
    }
    match triggers::due(all, cx.now, id) {
        Some(Due::Rotate(reason)) => {
            // Nothing is under way in its turn; nothing more is to begin while its brief is made.
            let in_turn = all.agents.get(id).is_some_and(|agent| agent.turn_open);
            begin(all, cx, id, reason, None);
            if in_turn && let Some(rotation) = Arc::make_mut(&mut all.agents).pending_rotations.get_mut(&id) {
                rotation.interrupted = true;
                cx.push(Effect::Run(id, RunOrder::Interrupt));
            }
        }
        Some(Due::Stop(why)) => {
            stop_at_limit(all, cx, id, why);
            return true;
        }
        None => {}
    }
    under_way(all, id)
}

/// Ends an agent that gets no successor, and tells people why.
fn stop_at_limit(all: &mut All, cx: &mut Context, id: AgentId, why: String) {
    cx.audit("agent.limit", &json!({"agentId": id, "reason": why}));
    cx.notice(Notice::RotationFailed { agent_id: id, error: why.clone() });
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
        agent.limit = Some(why.into());
    }
    life::stop(all, cx, id, Stop::Limit, None);
}

/// Whether a rotation of this agent is under way.
pub fn under_way(all: &All, id: AgentId) -> bool {
    all.agents.pending_rotations.contains_key(&id)
}

/// Begins a rotation unless one is under way.
pub fn begin(all: &mut All, cx: &mut Context, id: AgentId, reason: &str, call: Option<CallId>) {
    if under_way(all, id) {
        return;
    }
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let rotation = Rotation {
        step: Step::Briefing,
        old: id,
        reason: reason.to_owned(),
        interrupted: false,
        calls: call.into_iter().collect(),
    };
    let agents = Arc::make_mut(&mut all.agents);
    agents.pending_rotations.insert(id, rotation);
    if let Some(record) = agents.edit(id) {
        record.set_status(cx.now, Status::Rotating, Reason::Rotating { rotation: reason.to_owned() });
    }
    cx.audit("agent.rotate", &json!({"agentId": id, "name": agent.name, "reason": reason}));
    let (agent_name, reason_told) = (agent.name.clone(), reason.to_owned());
    cx.notice(Notice::RotationStart { agent_id: id, agent_name, reason: reason_told });
    let facts = Box::new(brief::Facts::of(all, &agent, reason));
    cx.push(Effect::Job(Job::Brief { agent: id, lineage: agent.lineage_id, facts }));
    touch(all, cx, Durability::Soon);
}

/// An agent has ended: if its context is full, has a brief made in case that it goes on. Whether one comes.
pub fn prepare_handoff(all: &mut All, cx: &mut Context, id: AgentId) -> bool {
    let Some(agent) = all.agents.get(id).cloned() else { return false };
    let resumable = agent.status == Status::Completed && agent.session_id.is_some();
    let awaited = resumable && !under_way(all, id) && triggers::is_full(all, &agent);
    if awaited {
        let facts = Box::new(brief::Facts::of(all, &agent, FULL));
        cx.push(Effect::Job(Job::Brief { agent: id, lineage: agent.lineage_id, facts }));
    }
    awaited
}

/// The brief with which an ended agent is to go on, if one was made and a rotation is allowed now.
pub fn take_handoff(all: &mut All, now: Time, agent: &Agent) -> Option<Arc<str>> {
    if !all.agents.handoffs.contains_key(&agent.id) {
        return None;
    }
    let brief = Arc::make_mut(&mut all.agents).handoffs.remove(&agent.id)?;
    triggers::may_rotate(all, now, agent).then_some(brief)
}

/// An ended agent goes on with its brief: that is a rotation whose old process has ended already.
pub fn hand_over(all: &mut All, cx: &mut Context, old: &Agent, new: AgentId) {
    let step = Step::Starting { old_context_tokens: old.context_tokens, delivered: Vec::new() };
    let rotation =
        Rotation { step, old: old.id, reason: FULL.to_owned(), interrupted: false, calls: Vec::new() };
    Arc::make_mut(&mut all.agents).pending_rotations.insert(new, rotation);
    cx.audit("agent.rotate", &json!({"agentId": old.id, "name": old.name, "reason": FULL}));
    let (agent_name, reason) = (old.name.clone(), FULL.to_owned());
    cx.notice(Notice::RotationStart { agent_id: old.id, agent_name, reason });
}

/// The brief is there: end the old agent. If it has ended and is not replaced, keep the brief.
pub fn brief_ready(all: &mut All, cx: &mut Context, id: AgentId, brief: Result<String, String>) {
    let ended = all.agents.get(id).is_some_and(|agent| !agent.status.is_live());
    let agents = Arc::make_mut(&mut all.agents);
    let Some(rotation) = agents.pending_rotations.get_mut(&id) else {
        if ended {
            if let Ok(brief) = brief {
                agents.handoffs.insert(id, brief.into());
            }
            // What was said to it while it ended waits for this.
            say::resume_if_spoken_to(all, cx, id);
        }
        return;
    };
    let interrupted = rotation.interrupted;
    match brief {
        Ok(brief) => {
            rotation.step = Step::Ending(brief);
            let alive = all.agents.get(id).is_some_and(|agent| agent.status.is_live());
            if alive {
                life::stop(all, cx, id, Stop::Rotate, None);
            } else {
                // It ended by itself in between; its work goes on in the successor all the same.
                predecessor_ended(all, cx, id);
            }
        }
        Err(error) => {
            if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id).filter(|a| a.status.is_live()) {
                let reason = Reason::RotationFailed { error: error.clone() };
                agent.set_status(cx.now, Status::Running, reason);
            }
            fail(all, cx, id, id, &error);
            // It was interrupted for nothing.
            if interrupted && all.agents.get(id).is_some_and(|agent| agent.status.is_live()) {
                cx.push(Effect::Run(id, RunOrder::Say { message_id: 0, text: briefing::GO_ON.to_owned() }));
                return;
            }
            // Its turn may have ended meanwhile: what was put off for its successor falls to itself.
            let between_turns = all.agents.get(id).is_some_and(|a| a.status.is_live() && !a.turn_open);
            if between_turns && !say::deliver_idle(all, cx, id) {
                life::let_go_if_idle(all, cx, id);
            }
        }
    }
}

/// The old agent is gone: start the new one.
pub fn predecessor_ended(all: &mut All, cx: &mut Context, old_id: AgentId) {
    let Some(old) = all.agents.get(old_id).cloned() else {
        return fail(all, cx, old_id, old_id, "the agent was removed or resumed meanwhile");
    };
    let provider = match spawn::provider_of(&old) {
        Ok(provider) => provider,
        Err(problem) => return fail(all, cx, old_id, old_id, &problem.error),
    };
    // Its place is free unless it had ended by itself and somebody else has taken it since.
    if let Err(problem) = spawn::check_capacity(all) {
        return fail(all, cx, old_id, old_id, &problem.error);
    }
    // From here the successor's reports move it on, so that it is filed under the successor's id below.
    let Some(rotation) = Arc::make_mut(&mut all.agents).pending_rotations.remove(&old_id) else { return };
    let Step::Ending(brief) = rotation.step else { return };
    let id = AgentId(cx.fresh_id(|id| all.agents.knows_id(id)));
    let mut agent = spawn::next_life(&old, id, cx);
    let old_context_tokens = agent.context_tokens;
    // In the old session the successor would be as full as its predecessor.
    agent.session_id = None;
    agent.session_counted = Tokens::default();
    agent.context_tokens = 0;
    let reason = Reason::Succeeding { old: old_id, rotation: rotation.reason.clone() };
    agent.set_status(cx.now, Status::Starting, reason);
    // They stand in its prompt, and leave the queue only when it runs: a failed start loses none.
    let delivered = agent.queue.iter().map(|message| message.id).collect();
    let prompt = briefing::after_rotation(all, &agent, &brief);
    let agents = Arc::make_mut(&mut all.agents);
    agents.retire(old_id);
    let step = Step::Starting { old_context_tokens, delivered };
    agents.pending_rotations.insert(id, Rotation { step, ..rotation });
    spawn::start(all, cx, provider, agent, prompt, SessionStart::Fresh);
    touch(all, cx, Durability::BeforeReply);
}

/// The new agent runs: done.
pub fn successor_started(all: &mut All, cx: &mut Context, id: AgentId) {
    let starting =
        all.agents.pending_rotations.get(&id).is_some_and(|r| matches!(r.step, Step::Starting { .. }));
    if !starting {
        return;
    }
    let agents = Arc::make_mut(&mut all.agents);
    let Some(rotation) = agents.pending_rotations.remove(&id) else { return };
    let Step::Starting { old_context_tokens, delivered } = rotation.step else { return };
    let mut name = String::new();
    let mut lineage = None;
    if let Some(agent) = agents.edit(id) {
        agent.queue.retain(|message| !delivered.contains(&message.id));
        name.clone_from(&agent.name);
        lineage = Some(agent.lineage_id);
    }
    let successor = agents.get(id).cloned();
    let entry = Entry {
        old: rotation.old,
        new: id,
        agent_name: name.clone(),
        reason: rotation.reason.clone(),
        timestamp: cx.now,
        lineage_id: lineage,
        tokens_saved: old_context_tokens,
        ..Entry::default()
    };
    history::record(all, cx.now, entry);
    cx.notice(Notice::RotationComplete {
        agent_id: id,
        agent_name: name,
        old_agent_id: rotation.old,
        // Measured: context the old agent held and the new one does not start with.
        tokens_saved: old_context_tokens,
        reason: rotation.reason.clone(),
    });
    cx.push(Effect::Put(crate::core::Document::Agents, Durability::BeforeReply));
    cx.moment(Moment::Rotated { old: rotation.old, new: id });
    let Some(agent) = successor else { return };
    for call in rotation.calls {
        let (reason, agent) = (rotation.reason.clone(), Arc::clone(&agent));
        cx.reply(call, Outcome::Rotated { old: rotation.old, reason, agent });
    }
}

/// The new agent could not be started: the lineage is `crashed` and can be resumed.
pub fn successor_failed(all: &mut All, cx: &mut Context, id: AgentId, error: &str) {
    if let Some(rotation) = all.agents.pending_rotations.get(&id) {
        let old = rotation.old;
        fail(all, cx, id, old, error);
    }
}

/// The agent ended for another reason than its rotation.
pub fn given_up(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(rotation) = all.agents.pending_rotations.get(&id) else { return };
    let Some(agent) = all.agents.get(id) else { return };
    let by_itself = agent.status == Status::Completed || agent.status == Status::Crashed;
    match rotation.step {
        // The brief is still being written; the successor carries on even if the old one is done.
        Step::Briefing if by_itself => {}
        _ => {
            let reason = agent.status_reason.to_string();
            let old = rotation.old;
            fail(all, cx, id, old, &reason);
        }
    }
}

fn fail(all: &mut All, cx: &mut Context, key: AgentId, old: AgentId, error: &str) {
    let Some(rotation) = Arc::make_mut(&mut all.agents).pending_rotations.remove(&key) else { return };
    cx.notice(Notice::RotationFailed { agent_id: old, error: error.to_owned() });
    if all.agents.get(key).is_some_and(|agent| !agent.status.is_live()) {
        // It has ended, and no successor comes.
        cx.moment(Moment::Ended(key));
    }
    for call in rotation.calls {
        cx.reply(call, Problem::new(500, "rotation_failed", format!("the rotation failed: {error}")));
    }
    touch(all, cx, Durability::Soon);
}
