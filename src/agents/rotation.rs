//! Rotation: an agent is replaced by a fresh one that gets a handoff brief.
//!
//! ```text
//! begin ──▶ Asking ──answer, or its time is over──▶ Briefing
//! begin ──▶ Briefing ──brief──▶ Ending ──old is gone──▶ Starting ──it runs──▶ complete
//!              │                   │                        │
//!              └──── no brief, or the agent ended by itself, or no start ────▶ failed
//! ```
//! A session that is planned to end is asked for its last word first, where it can be (`last_word.rs`).
//!
//! The replacement is prepared first, then the old agent is ended, then the new one started with
//! everything the old one had.
//!
//! An agent that has ended with a full context is not replaced at once, for it has no work left. Its brief
//! is kept, and if somebody speaks to it, its next life begins at `Starting` instead of in the full
//! session.
//!
//! **Invariant:** a brief is on disk before the old agent is ended, and stays until a successor has ended a
//! turn well: whatever becomes of successors and daemons before that, the next fresh life begins with it.

use super::history::{self, Entry};
use super::last_word::{self, LastWord};
use super::limit::{handover, reserve};
use super::reason::{Awaited, Reason, Remark};
use super::record::{Agent, Attached, Opening, Status, Stop, Succession};
use super::{Job, Outcome, RunOrder, State, life, new_life, say, spawn, touch};
use crate::api::Problem;
use crate::context::triggers::{self, Due, FULL};
use crate::context::{brief, briefing};
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{CallId, Context, Document, Durability, Effect, Moment, Notice, State as All};
use crate::providers::{self, SessionStart};
use crate::usage;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Briefs that are kept; beyond that the one goes whose agent has ended first, and it goes on without.
const MAX_HANDOFFS: usize = 64;
/// A life that ended so soon and without the end of a turn may have left its program no session to go on in.
const EARLY: Duration = Duration::from_secs(60);

/// Why an agent is replaced that somebody wants replaced.
const MANUAL: &str = "manual";
/// Why an agent is replaced by a successor where only that it was to be is known of an earlier daemon.
const BEGUN_BEFORE: &str = "an earlier daemon had begun it";
/// Why it fails when its agent is not there any more.
const GONE: &str = "the agent was removed or resumed meanwhile";

/// One rotation under way, keyed by the agent whose report moves it on: the old one, then the new one.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Rotation {
    step: Step,
    old: AgentId,
    reason: String,
    /// Its turn was open when it began, and its program was asked to leave it.
    interrupted: bool,
    /// What its old life waits for, which is shown again when it gets no successor.
    pub(super) awaited: Option<Awaited>,
    calls: Vec<CallId>,
    last_word: Option<LastWord>,
}

impl Rotation {
    fn new(step: Step, old: AgentId, reason: String) -> Self {
        Self { step, old, reason, interrupted: false, awaited: None, calls: Vec::new(), last_word: None }
    }
}

#[derive(Debug, Clone, svc_base::recorded::Recorded)]
enum Step {
    /// The old session was asked for its last word.
    Asking {
        call: CallId,
        since: Time,
    },
    Briefing,
    Ending(String),
    Starting {
        old_context_tokens: u64,
    },
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
    if agent.has_no_run() {
        let (name, why) = (&agent.name, &agent.status_reason);
        let text =
            format!("agent {name} has no process to be replaced ({why}); svc resume {name} lets it go on");
        return cx.reply(call, Problem::new(409, "agent_limited", text));
    }
    if under_way(all, agent.id) {
        let text = format!("a rotation of {} is under way already", agent.name);
        return cx.reply(call, Problem::new(409, "rotation_under_way", text));
    }
    if agent.attached == Attached::Here {
        let text =
            format!("a person is at the screen of {}; it can be rotated when they have left", agent.name);
        return cx.reply(call, Problem::new(409, "attached", text));
    }
    if matches!(agent.phase, super::Phase::Stopping(..)) {
        let text = format!("agent {} is being stopped", agent.name);
        return cx.reply(call, Problem::new(409, "agent_ended", text));
    }
    // A successor reads its whole brief before it does anything: that is spending, too.
    if let Err(problem) = usage::check_budget(all, cx.now) {
        return cx.reply(call, problem);
    }
    if let Some(problem) = reserve::refusal(all, cx, &agent) {
        return cx.reply(call, problem);
    }
    begin(all, cx, agent.id, MANUAL, Some(call));
}

/// Begins a rotation if one is due without anybody asking. To be called when usage was reported and when a
/// turn has ended. Whether one is under way now.
pub fn begin_if_due(all: &mut All, cx: &mut Context, id: AgentId) -> bool {
    if under_way(all, id) {
        return true;
    }
    // What a person does at its screen is the person's own affair.
    if all.agents.get(id).is_some_and(|agent| agent.attached == Attached::Here) {
        return false;
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

/// Why this agent is being replaced, if it is.
pub fn why_rotated(agents: &State, id: AgentId) -> Option<&str> {
    agents.pending_rotations.get(&id).map(|rotation| rotation.reason.as_str())
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
    let awaited = agent.status_reason.why().awaited().cloned();
    let asked = last_word::ask(all, cx, &agent, reason, call.is_some());
    let step = asked.map_or(Step::Briefing, |call| Step::Asking { call, since: cx.now });
    let calls = call.into_iter().collect();
    let rotation = Rotation { awaited, calls, ..Rotation::new(step, id, reason.to_owned()) };
    let agents = Arc::make_mut(&mut all.agents);
    agents.pending_rotations.insert(id, rotation);
    if let Some(record) = agents.edit(id) {
        record.set_status(cx.now, Status::Rotating, Reason::Rotating { rotation: reason.to_owned() });
    }
    cx.audit("agent.rotate", &json!({"agentId": id, "name": agent.name, "reason": reason}));
    let (agent_name, reason_told) = (agent.name.clone(), reason.to_owned());
    cx.notice(Notice::RotationStart { agent_id: id, agent_name, reason: reason_told });
    if asked.is_none() {
        order_brief(all, cx, &agent, reason, None);
    }
    touch(all, cx, Durability::Soon);
}

/// Has the brief of an agent made: why its life ends, and what its session has said last where it was asked.
pub(super) fn order_brief(
    all: &All,
    cx: &mut Context,
    agent: &Agent,
    reason: &str,
    last_word: Option<String>,
) {
    let facts = Box::new(brief::Facts { last_word, ..brief::Facts::of(all, agent, reason) });
    cx.push(Effect::Job(Job::Brief { agent: agent.id, lineage: agent.lineage_id, facts }));
}

/// Rotations that wait for the last word of an old session.
pub(super) fn asking(agents: &State) -> usize {
    agents.pending_rotations.values().filter(|rotation| matches!(rotation.step, Step::Asking { .. })).count()
}

/// Since when the rotation of this agent waits for this answer, if it does.
pub(super) fn asked_since(all: &All, id: AgentId, call: CallId) -> Option<Time> {
    match all.agents.pending_rotations.get(&id)?.step {
        Step::Asking { call: asked, since } if asked == call => Some(since),
        _ => None,
    }
}

/// The old session has had its last word, or has none: has the brief made.
pub(super) fn write_brief(
    all: &mut All,
    cx: &mut Context,
    id: AgentId,
    answer: Option<String>,
    told: Option<LastWord>,
) {
    let Some(agent) = all.agents.get(id).cloned() else { return fail(all, cx, id, id, GONE) };
    let Some(rotation) = Arc::make_mut(&mut all.agents).pending_rotations.get_mut(&id) else { return };
    (rotation.step, rotation.last_word) = (Step::Briefing, told);
    let reason = rotation.reason.clone();
    order_brief(all, cx, &agent, &reason, answer);
}

/// An agent has ended: if it is hardly to go on in its session, has a brief made in case that it goes on.
/// Whether one comes.
pub fn prepare_handoff(all: &mut All, cx: &mut Context, id: AgentId) -> bool {
    let Some(agent) = all.agents.get(id).cloned() else { return false };
    let has_done = agent.status == Status::Completed;
    let is_wanted = if has_done && has_session(&agent) {
        triggers::is_full(all, &agent)
    } else if has_done {
        // Its program knows nothing of what it did.
        !providers::info_of(&agent.provider).capabilities.resume
    } else {
        // What it was handed over is brought up to its end; of one whose session is gone, the log knows it.
        all.agents.handoffs.contains_key(&agent.lineage_id)
            || (agent.session_id.is_none() && agent.predecessor_id.is_some())
    };
    let awaited = is_wanted && !under_way(all, id);
    if awaited {
        order_brief(all, cx, &agent, FULL, None);
    }
    awaited
}

fn has_session(agent: &Agent) -> bool {
    agent.session_id.is_some() && providers::info_of(&agent.provider).capabilities.resume
}

/// The brief with which an ended agent is to go on instead of in its session, and whether that is a rotation:
/// then its session is full, and one is allowed now.
pub fn handoff_of(all: &All, now: Time, agent: &Agent) -> Option<(Arc<str>, bool)> {
    let brief = Arc::clone(all.agents.handoffs.get(&agent.lineage_id)?);
    let lived = agent.exit.map_or(Duration::MAX, |exit| exit.at.since(agent.spawned_at));
    let has_done = agent.status == Status::Completed;
    if !has_session(agent) || (!has_done && agent.last_turn.is_none() && lived < EARLY) {
        return Some((brief, false));
    }
    let is_full = has_done && triggers::is_full(all, agent) && triggers::may_rotate(all, now, agent);
    is_full.then_some((brief, true))
}

/// The brief that a life without a session is to begin with.
pub fn kept_handoff(all: &All, agent: &Agent) -> Option<Arc<str>> {
    all.agents.handoffs.get(&agent.lineage_id).cloned()
}

/// Keeps a brief for the next fresh life of a lineage.
pub(super) fn keep_handoff(all: &mut All, cx: &mut Context, lineage: LineageId, brief: &str) {
    let agents = Arc::make_mut(&mut all.agents);
    agents.handoffs.insert(lineage, brief.into());
    cx.push(Effect::Put(Document::Handoff(lineage), Durability::BeforeReply));
    if agents.handoffs.len() > MAX_HANDOFFS {
        let kept = agents.iter().filter(|agent| agents.handoffs.contains_key(&agent.lineage_id));
        let ended = kept.filter(|agent| !agent.status.is_live());
        let oldest = ended.min_by_key(|agent| agent.status_since).map(|agent| agent.lineage_id);
        if let Some(oldest) = oldest {
            forget_handoff(all, cx, oldest);
        }
    }
}

/// Its work goes on without it, or nobody can ask for it any more.
pub fn forget_handoff(all: &mut All, cx: &mut Context, lineage: LineageId) {
    if all.agents.handoffs.contains_key(&lineage) {
        Arc::make_mut(&mut all.agents).handoffs.remove(&lineage);
        cx.push(Effect::Remove(Document::Handoff(lineage)));
    }
}

/// A turn of an agent is over: after a good one its session holds what it was handed over.
pub fn turn_ended(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    if !under_way(all, id) && agent.last_turn.as_ref().is_some_and(|turn| !turn.is_error) {
        forget_handoff(all, cx, agent.lineage_id);
    }
}

/// An ended agent goes on with its brief: that is a rotation whose old process has ended already.
pub fn hand_over(all: &mut All, cx: &mut Context, old: &Agent, new: AgentId) {
    let step = Step::Starting { old_context_tokens: old.context_tokens };
    let rotation = Rotation::new(step, old.id, FULL.to_owned());
    let agents = Arc::make_mut(&mut all.agents);
    agents.pending_rotations.insert(new, rotation);
    if let Some(opening) = agents.edit(new).and_then(|agent| agent.opening.as_mut()) {
        Arc::make_mut(opening).succession =
            Some(Succession { old: old.id, reason: FULL.to_owned(), old_context_tokens: old.context_tokens });
    }
    cx.audit("agent.rotate", &json!({"agentId": old.id, "name": old.name, "reason": FULL}));
    let (agent_name, reason) = (old.name.clone(), FULL.to_owned());
    cx.notice(Notice::RotationStart { agent_id: old.id, agent_name, reason });
}

/// The brief is there: end the old agent. If it has ended and is not replaced, keep the brief.
pub fn brief_ready(all: &mut All, cx: &mut Context, id: AgentId, brief: Result<String, String>) {
    let Some(agent) = all.agents.get(id).cloned() else { return fail(all, cx, id, id, GONE) };
    if super::moving::briefed(all, cx, id, &brief) {
        return;
    }
    if agent.has_no_run() {
        return handover::briefed(all, cx, id, brief);
    }
    let ended = !agent.status.is_live();
    if let Ok(brief) = &brief
        && (ended || under_way(all, id))
    {
        keep_handoff(all, cx, agent.lineage_id, brief);
    }
    let agents = Arc::make_mut(&mut all.agents);
    let Some(rotation) = agents.pending_rotations.get_mut(&id) else {
        if ended {
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
            let awaited = rotation.awaited.take();
            if let Some(agent) = agents.edit(id).filter(|agent| agent.status.is_live()) {
                let (status, reason) = match awaited {
                    Some(awaited) => (Status::Waiting, Reason::AwaitsDecision(awaited)),
                    None => (Status::Running, Reason::RotationFailed { error: error.clone() }),
                };
                agent.set_status(cx.now, status, reason);
            }
            fail(all, cx, id, id, &error);
            // It was interrupted for nothing.
            let agents = Arc::make_mut(&mut all.agents);
            if interrupted && let Some(agent) = agents.edit(id).filter(|agent| agent.status.is_live()) {
                if !agent.turn_open {
                    (agent.turn_open, agent.turn_presumed) = (true, true);
                }
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
        return fail(all, cx, old_id, old_id, GONE);
    };
    let provider = match spawn::provider_of(&old) {
        Ok(provider) => provider,
        Err(problem) => return fail(all, cx, old_id, old_id, &problem.error),
    };
    // Its place is free unless it had ended by itself and somebody else has taken it since.
    let may_start = spawn::check_capacity(all).and_then(|()| usage::check_budget(all, cx.now));
    if let Err(problem) = may_start {
        if let Some(agent) = Arc::make_mut(&mut all.agents).edit(old_id) {
            let reason = Reason::RotationFailed { error: problem.error.clone() };
            agent.set_status(cx.now, Status::Crashed, reason);
        }
        return fail(all, cx, old_id, old_id, &problem.error);
    }
    // From here the successor's reports move it on, so that it is filed under the successor's id below.
    let Some(rotation) = Arc::make_mut(&mut all.agents).pending_rotations.remove(&old_id) else { return };
    let Step::Ending(brief) = rotation.step else { return };
    let id = AgentId(cx.fresh_id(|id| all.agents.knows_id(id)));
    let mut agent = new_life::next(&old, id, cx);
    let old_context_tokens = agent.context_tokens;
    // In the old session the successor would be as full as its predecessor.
    agent.leave_session();
    let reason = Reason::Succeeding { old: old_id, rotation: rotation.reason.clone() };
    agent.set_status(cx.now, Status::Starting, reason);
    let prompt = briefing::after_rotation(all, &agent, &brief);
    agent.begins_with_queue();
    let agents = Arc::make_mut(&mut all.agents);
    agents.retire(old_id);
    let succession = Succession { old: old_id, reason: rotation.reason.clone(), old_context_tokens };
    agent.opening = Some(Arc::new(Opening { succession: Some(succession), ..Opening::default() }));
    let step = Step::Starting { old_context_tokens };
    let is_asked = rotation.reason == MANUAL;
    agents.pending_rotations.insert(id, Rotation { step, ..rotation });
    match reserve::keeps(all, cx, &agent).filter(|_| !is_asked) {
        // It begins with its brief when the window opens.
        Some(scarce) => reserve::hold(all, cx, agent, scarce),
        None => spawn::start(all, cx, provider, agent, prompt, SessionStart::Fresh),
    }
    touch(all, cx, Durability::BeforeReply);
}

/// After a start of the daemon: rotations that an earlier one had begun, of agents that live, whose end is
/// still to be heard, or that ended by themselves meanwhile. Briefs are made anew, see [`go_on`]; a successor
/// that lives has only to be heard of.
pub fn restored(agents: &mut State) {
    let is_rotated = |agent: &&Arc<Agent>| agent.status.is_live() || agent.status_reason.rotation().is_some();
    let rotated: Vec<Arc<Agent>> = agents.iter().filter(is_rotated).cloned().collect();
    for agent in rotated {
        succession_restored(agents, &agent);
        let begun_before = (agent.status == Status::Rotating).then_some(BEGUN_BEFORE);
        if let Some(reason) = agent.status_reason.rotation().or(begun_before) {
            let rotation = Rotation::new(Step::Briefing, agent.id, reason.to_owned());
            agents.pending_rotations.insert(agent.id, rotation);
        }
    }
}

/// What a rotation still has to do once this successor runs.
pub fn succession_restored(agents: &mut State, agent: &Agent) {
    let succession = agent.opening.as_ref().and_then(|opening| opening.succession.clone());
    let Some(Succession { old, reason, old_context_tokens }) = succession else { return };
    let step = Step::Starting { old_context_tokens };
    let rotation = Rotation::new(step, old, reason);
    agents.pending_rotations.insert(agent.id, rotation);
}

/// Has the briefs of [`restored`] rotations made.
pub fn go_on(all: &All, cx: &mut Context) {
    let pending = all.agents.pending_rotations.iter();
    for (id, rotation) in pending.filter(|(_, rotation)| matches!(rotation.step, Step::Briefing)) {
        if let Some(agent) = all.agents.get(*id) {
            order_brief(all, cx, agent, &rotation.reason, None);
        }
    }
}

/// The new agent runs: done.
pub fn successor_started(all: &mut All, cx: &mut Context, id: AgentId) {
    let step = all.agents.pending_rotations.get(&id).map(|rotation| &rotation.step);
    let Some(&Step::Starting { old_context_tokens }) = step else { return };
    let agents = Arc::make_mut(&mut all.agents);
    let Some(rotation) = agents.pending_rotations.remove(&id) else { return };
    let successor = agents.get(id).cloned();
    let name = successor.as_ref().map(|agent| agent.name.clone()).unwrap_or_default();
    let entry = Entry {
        old: rotation.old,
        new: id,
        agent_name: name.clone(),
        reason: rotation.reason.clone(),
        timestamp: cx.now,
        lineage_id: successor.as_ref().map(|agent| agent.lineage_id),
        tokens_saved: old_context_tokens,
        last_word: rotation.last_word.clone(),
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
    // An earlier daemon had its brief and ended it, or was about to.
    let is_replaced = matches!(agent.status_reason.why(), Reason::Replaced);
    let by_itself = is_replaced || agent.status == Status::Completed || agent.status == Status::Crashed;
    match rotation.step {
        // The brief is still being written; the successor carries on even if the old one is done. Its record
        // says so, for a daemon that is killed before that.
        Step::Asking { .. } | Step::Briefing if by_itself => {
            let remark = Remark::Rotating { rotation: rotation.reason.clone() };
            if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
                agent.status_reason.remark(remark);
            }
        }
        _ => {
            let reason = agent.status_reason.to_string();
            let old = rotation.old;
            fail(all, cx, id, old, &reason);
        }
    }
}

/// The record of an agent that has ended by itself is removed: no successor comes.
pub fn removed(all: &mut All, cx: &mut Context, id: AgentId) {
    fail(all, cx, id, id, GONE);
}

/// The daemon is told to stop: who has ended by itself gets no successor, now or from the next daemon.
pub fn stop_all(all: &mut All, cx: &mut Context) {
    let is_over = |id: &AgentId| all.agents.get(*id).is_none_or(|agent| !agent.status.is_live());
    let over: Vec<AgentId> = all.agents.pending_rotations.keys().copied().filter(is_over).collect();
    for id in over {
        fail(all, cx, id, id, "the daemon is stopping");
    }
}

fn fail(all: &mut All, cx: &mut Context, key: AgentId, old: AgentId, error: &str) {
    let Some(rotation) = Arc::make_mut(&mut all.agents).pending_rotations.remove(&key) else { return };
    if let Step::Asking { call, .. } = rotation.step {
        last_word::cancel(all, cx, call);
    }
    cx.notice(Notice::RotationFailed { agent_id: old, error: error.to_owned() });
    if all.agents.get(key).is_some_and(|agent| !agent.status.is_live()) {
        // It has ended, and no successor comes.
        if let Some(agent) = Arc::make_mut(&mut all.agents).edit(key) {
            agent.status_reason.forget_rotation();
        }
        cx.moment(Moment::Ended(key));
    }
    for call in rotation.calls {
        cx.reply(call, Problem::new(500, "rotation_failed", format!("the rotation failed: {error}")));
    }
    touch(all, cx, Durability::Soon);
}
