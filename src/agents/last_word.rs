//! The predecessor's last word: at a planned rotation the old session is asked once more, in a copy of it and
//! while its cache is warm, for what no log knows. The brief has the answer beside its own facts, with marks
//! where those say otherwise (`context::brief`).
//!
//! **Invariant:** a rotation waits [`TIMEOUT`] for its question at most, and goes on without an answer
//! whatever became of it.

use super::limit::reserve;
use super::record::Agent;
use super::{Job, MAX_QUERIES, rotation, spawn};
use crate::context::triggers::FULL;
use crate::core::ids::{AgentId, UNKNOWN_AGENT};
use crate::core::time::Time;
use crate::core::{CallId, Context, Effect, State as All, Timer};
use crate::prices;
use crate::providers::{self, Purpose, SessionStart, Tokens};
use crate::usage;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// What is asked.
pub const QUESTION: &str = "Your session ends here: a fresh one goes on with your work. It gets your task, the user's \
    words, the files, commands and failures from the log. Tell it in at most 20 lines what the log does not: \
    decisions and why, constraints, open questions, and the next step. One short line each and nothing else. \
    Use no tool.";
/// An answer that takes longer is given up; the rotation goes on without.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// A session that has been silent for longer is not asked: its provider's cache has forgotten it, and reading
/// all of it again would cost more than the answer is worth.
const WARM: Duration = Duration::from_secs(300);
/// Call numbers with this bit are such questions; what else they have is the agent's id.
const LAST: u64 = 1 << 62;

/// What became of the question, as the history of rotations tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct LastWord {
    /// `answered`, `failed` or `late`.
    pub outcome: String,
    /// Its tokens, booked to `__agent_qa__`.
    pub tokens: Tokens,
    /// Dollars; `None` where nobody knows the price, or what was used.
    pub cost_usd: Option<f64>,
    /// Milliseconds that the rotation waited for it.
    pub waited_ms: u64,
}

/// Asks an agent that is about to be replaced, if that is planned and its program can be asked.
pub(super) fn ask(
    all: &mut All,
    cx: &mut Context,
    agent: &Agent,
    reason: &str,
    was_asked: bool,
) -> Option<CallId> {
    let provider = providers::by_id(&agent.provider)?;
    // What runs elsewhere is asked nothing aside.
    let session = agent.session_id.clone().filter(|_| agent.runner.is_none())?;
    // Who is to be told something at once is not asked before, nor one that has come to its ceiling.
    let is_planned = matches!(reason, FULL | "quality_degradation") || (reason == "manual" && was_asked);
    let capabilities = provider.info().capabilities;
    let can_tell = capabilities.headless && capabilities.resume && provider.forks();
    let is_warm = agent.context_tokens > 0 && cx.now.since(agent.last_activity) < WARM;
    let is_wanted = all.settings.config().ask_before_rotation && !all.health.stopping;
    let has_room = all.agents.queries.len() + rotation::asking(&all.agents) < MAX_QUERIES;
    if !(is_planned && can_tell && is_warm && is_wanted && has_room)
        || usage::check_budget(all, cx.now).is_err()
        // It would be asked in what a person keeps.
        || reserve::is_kept(all, cx.now, agent.id)
    {
        return None;
    }
    let call = CallId(LAST | u64::from(agent.id.0));
    let start = SessionStart::Fork { id: session, counted: agent.session_counted };
    let request = spawn::launch_request(all, agent, Purpose::Query, QUESTION.to_owned(), start);
    Arc::make_mut(&mut all.timers).set(Timer::Query(call), cx.now + TIMEOUT);
    cx.push(Effect::Job(Job::Query {
        call,
        // Not as one of its processes: those are ended with it, and it may end before it is answered.
        agent: UNKNOWN_AGENT,
        provider: provider.info().id,
        request: Box::new(request),
        env: spawn::environment(all, agent),
        secrets: spawn::secrets(all, agent),
    }));
    Some(call)
}

/// Whether a question is one of these.
pub(super) fn is_one(call: CallId) -> bool {
    call.0 & LAST != 0
}

fn agent_of(call: CallId) -> Option<AgentId> {
    u32::try_from(call.0 & !LAST).ok().map(AgentId)
}

/// The question was answered, or failed. What it has used is booked even when nobody waits any more.
pub(super) fn answered(
    all: &mut All,
    cx: &mut Context,
    call: CallId,
    result: Result<(String, Tokens), String>,
) {
    Arc::make_mut(&mut all.timers).clear(Timer::Query(call));
    let Some(id) = agent_of(call) else { return };
    let (answer, outcome, tokens) = match result {
        Ok((answer, tokens)) => (Some(answer), "answered", tokens),
        Err(error) => {
            cx.push(Effect::Warn(format!("agent {id} was not asked before its rotation: {error}")));
            (None, "failed", Tokens::default())
        }
    };
    let mut cost_usd = None;
    if let Some(agent) = all.agents.get(id).cloned().filter(|_| tokens != Tokens::default()) {
        let agents = Arc::make_mut(&mut all.agents);
        agents.qa_tokens = agents.qa_tokens + tokens;
        let model = usage::model_of(all, &agent);
        cost_usd = usage::price_of(all, &agent).map(|price| prices::rounded(price.of(tokens)));
        usage::book(all, cx, "__agent_qa__", &model, tokens, cost_usd);
    }
    let told = |since: Time| LastWord {
        outcome: outcome.to_owned(),
        tokens,
        cost_usd,
        waited_ms: u64::try_from(cx.now.since(since).as_millis()).unwrap_or(u64::MAX),
    };
    if let Some(since) = rotation::asked_since(all, id, call) {
        let told = told(since);
        rotation::write_brief(all, cx, id, answer, Some(told));
    }
}

/// It has taken too long.
pub(super) fn timeout(all: &mut All, cx: &mut Context, call: CallId) {
    let Some(id) = agent_of(call) else { return };
    cx.push(Effect::Job(Job::CancelQuery(call)));
    if let Some(since) = rotation::asked_since(all, id, call) {
        let waited_ms = u64::try_from(cx.now.since(since).as_millis()).unwrap_or(u64::MAX);
        let told = LastWord { outcome: "late".into(), tokens: Tokens::default(), cost_usd: None, waited_ms };
        rotation::write_brief(all, cx, id, None, Some(told));
    }
}

/// Nobody waits for it any more.
pub(super) fn cancel(all: &mut All, cx: &mut Context, call: CallId) {
    Arc::make_mut(&mut all.timers).clear(Timer::Query(call));
    cx.push(Effect::Job(Job::CancelQuery(call)));
}
