//! A person at an agent's own screen: `svc attach`.
//!
//! ```text
//! working ──wished──▶ let go when its turn ends, or stopped at once ──gone──▶ its next life, a screen
//! ended ───────────────────────────────────────────────────────────────────▶      │ the person leaves
//! ended, or its next life without a person if something is left to do ◀── gone ───┘
//! ```
//! **Invariant:** a session has one writer: each of these lives is ordered to begin when the one before it
//! was seen to be gone, and the next daemon finds the one that lives by its keeper.

use super::reason::Reason;
use super::record::{Agent, Attached, Phase, Status, Stop};
use super::{Outcome, RunOrder, life, new_life, rotation, say, spawn, touch};
use crate::api::Problem;
use crate::core::ids::AgentId;
use crate::core::{CallId, Context, Durability, Effect, Moment, State as All};
use crate::providers::{self, Ruling, SessionStart, terminal};
use crate::usage;
use serde_json::json;
use std::sync::Arc;

/// What a person wishes.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Wish {
    /// Not at the end of the turn, but at once.
    pub now: bool,
    /// The kind of the person's terminal, `TERM`.
    pub term: String,
}

/// `POST /api/agents/:id/attach`: 200, with a token once the screen is there. To be asked again until then.
///
/// Errors: 404, 409 where the agent cannot have a person at its screen, and why.
pub fn attach(all: &mut All, cx: &mut Context, call: CallId, target: &str, wish: Wish) {
    let result = lead_to_screen(all, cx, target, wish);
    cx.answer(call, result);
}

fn lead_to_screen(all: &mut All, cx: &mut Context, target: &str, wish: Wish) -> Result<Outcome, Problem> {
    let agent = Arc::clone(all.agents.find(target)?);
    check(&agent)?;
    let (id, name) = (agent.id, agent.name.clone());
    if agent.attached == Attached::Here && agent.status.is_live() {
        if agent.phase != Phase::Attached {
            let text = format!("{name} is being ended; try again when it is");
            return Err(Problem::new(409, "agent_ended", text));
        }
        // For this person alone, and once: see `crates/keeper/src/terminal.rs`.
        let token = format!("{:016x}{:016x}", cx.random(), cx.random());
        let ruling = Ruling { allow: true, reason: token.clone() };
        cx.push(Effect::Run(id, RunOrder::Decide { question: terminal::PERSON.to_owned(), ruling }));
        return Ok(Outcome::Attached { id, name, token: Some(token) });
    }
    if !agent.status.is_live() || agent.is_put_away() {
        usage::check_budget(all, cx.now)?;
        told(cx, "agent.attach", &agent);
        let id = begin(all, cx, &agent, &wish.term, false)?;
        return Ok(Outcome::Attached { id, name, token: None });
    }
    if wish.now && agent.session_id.is_none() {
        // Its turn would be cut off, and there would be nothing to go on with.
        let text = format!("{name} has no session yet; try again when it has begun to work, or without now");
        return Err(Problem::new(409, "no_session", text));
    }
    match &agent.phase {
        Phase::Stopping(Stop::Attach, _) | Phase::Finishing if is_wished(&agent) => {}
        Phase::Working | Phase::Finishing if !rotation::under_way(all, id) => {
            wished(all, cx, &agent, wish)?;
        }
        _ => {
            let text = format!("{name} cannot be had now: {}; try again", agent.status_reason);
            return Err(Problem::new(409, "agent_busy", text));
        }
    }
    Ok(Outcome::Attached { id, name, token: None })
}

fn wished(all: &mut All, cx: &mut Context, agent: &Agent, wish: Wish) -> Result<(), Problem> {
    if !is_wished(agent) {
        usage::check_budget(all, cx.now)?;
        told(cx, "agent.attach", agent);
    }
    if let Some(record) = Arc::make_mut(&mut all.agents).edit(agent.id) {
        record.attached = Attached::Wanted { term: wish.term };
    }
    if wish.now {
        life::stop(all, cx, agent.id, Stop::Attach, None);
    } else if !agent.turn_open {
        life::let_go_if_idle(all, cx, agent.id);
    }
    // A wish is kept over a crash of the daemon, as the person's command asks on.
    touch(all, cx, Durability::BeforeReply);
    Ok(())
}

/// `DELETE /api/agents/:id/attach`: the wish is withdrawn, or the person at the screen leaves.
///
/// Errors: 404, 409 `not_attached`.
pub fn give_back(all: &mut All, cx: &mut Context, call: CallId, target: &str) {
    let result = lead_from_screen(all, cx, target);
    cx.answer(call, result);
}

fn lead_from_screen(all: &mut All, cx: &mut Context, target: &str) -> Result<Outcome, Problem> {
    let agent = Arc::clone(all.agents.find(target)?);
    match agent.attached {
        Attached::Here if agent.status.is_live() => cx.push(Effect::Run(agent.id, RunOrder::Finish)),
        Attached::Wanted { .. } => {
            if let Some(record) = Arc::make_mut(&mut all.agents).edit(agent.id) {
                record.attached = Attached::No;
            }
            touch(all, cx, Durability::BeforeReply);
        }
        _ => {
            let text = format!("nobody is at the screen of {}, or waits for it", agent.name);
            return Err(Problem::new(409, "not_attached", text));
        }
    }
    told(cx, "agent.giveBack", &agent);
    Ok(Outcome::Attached { id: agent.id, name: agent.name.clone(), token: None })
}

fn is_wished(agent: &Agent) -> bool {
    matches!(agent.attached, Attached::Wanted { .. })
}

fn told(cx: &mut Context, event: &str, agent: &Agent) {
    cx.audit(event, &json!({"agentId": agent.id, "name": agent.name}));
}

/// Errors: 409 `attach_unsupported`, 409 `no_session`, 409 `agent_limited`.
fn check(agent: &Agent) -> Result<(), Problem> {
    let (name, provider) = (&agent.name, &agent.provider);
    if !providers::info_of(provider).has_screen {
        let able = providers::all().iter().map(|provider| provider.info()).filter(|info| info.has_screen);
        let able: Vec<_> = able.map(|info| info.id).collect();
        let text = format!(
            "the program of {name} ({provider}) has no screen on which its session goes on; those of {} \
             have, and 'svc instruct' talks to every agent",
            able.join(", ")
        );
        return Err(Problem::new(409, "attach_unsupported", text));
    }
    if let Some(runner) = &agent.runner {
        let text =
            format!("{name} works on {runner}, and its screen is not shown here; 'svc instruct' talks to it");
        return Err(Problem::new(409, "attach_unsupported", text));
    }
    if agent.moving.is_some() && agent.status.is_live() {
        let text = format!("{name} is to go on elsewhere ({}); try again when it does", agent.status_reason);
        return Err(Problem::new(409, "agent_busy", text));
    }
    if agent.session_id.is_none() && !agent.status.is_live() {
        let text = format!("{name} has no session to go on with; 'svc resume {name}' begins one");
        return Err(Problem::new(409, "no_session", text));
    }
    if agent.has_no_run() && !agent.is_put_away() {
        let text = format!(
            "{name} has no process to be taken over ({}); 'svc resume {name}' lets it go on, and then \
             'svc attach --now {name}' takes it",
            agent.status_reason
        );
        return Err(Problem::new(409, "agent_limited", text));
    }
    Ok(())
}

/// Begins the life in which a person is at the screen. The one before is over.
fn begin(
    all: &mut All,
    cx: &mut Context,
    old: &Agent,
    term: &str,
    is_open: bool,
) -> Result<AgentId, Problem> {
    let provider = spawn::provider_of(old)?;
    if !old.is_put_away() {
        spawn::check_capacity(all)?;
    }
    let Some(session) = old.session_id.clone() else {
        let text = format!("{} has no session to go on with", old.name);
        return Err(Problem::new(409, "no_session", text));
    };
    let id = AgentId(cx.fresh_id(|id| all.agents.knows_id(id)));
    let mut agent = new_life::next(old, id, cx);
    agent.attached = Attached::Here;
    let session = SessionStart::Resume { id: session, counted: agent.session_counted };
    Arc::make_mut(&mut all.agents).retire(old.id);
    spawn::start_at_screen(all, cx, provider, agent, session, (term, is_open));
    cx.moment(Moment::Resumed { old: old.id, new: id });
    touch(all, cx, Durability::BeforeReply);
    Ok(id)
}

/// A turn is over: whether a person is at the screen, or is to come there now.
pub fn at_turn_end(all: &mut All, cx: &mut Context, id: AgentId) -> bool {
    let Some(agent) = all.agents.get(id) else { return false };
    let is_wished = is_wished(agent);
    if is_wished {
        life::let_go_if_idle(all, cx, id);
    }
    is_wished || all.agents.get(id).is_some_and(|agent| agent.attached == Attached::Here)
}

/// A life is over, `stop` if it was ordered to be: goes on with a person, or without one, as is wished.
/// Whether it goes on. `is_open`: its turn was; `is_told`: its keeper has told the end, nobody has lost it.
pub fn go_on(
    all: &mut All,
    cx: &mut Context,
    id: AgentId,
    stop: Option<Stop>,
    (is_open, is_told): (bool, bool),
) -> bool {
    let Some(agent) = all.agents.get(id).cloned() else { return false };
    let was = agent.attached.clone();
    if was == Attached::No && stop != Some(Stop::Attach) {
        return false;
    }
    if let Some(record) = Arc::make_mut(&mut all.agents).edit(id) {
        record.attached = Attached::No;
    }
    if all.health.stopping || !is_told || !matches!(stop, None | Some(Stop::Attach)) {
        return false;
    }
    let Some(agent) = all.agents.get(id).cloned() else { return false };
    let begun = match was {
        Attached::Wanted { term } => begin(all, cx, &agent, &term, is_open).map(drop),
        // Somebody has killed it: that is as of any other.
        Attached::Here if agent.status != Status::Completed => return false,
        // A turn was left, the person's or its own: it goes on by itself.
        _ if is_open => say::go_on(all, cx, &agent),
        _ => return false,
    };
    if let Err(problem) = &begun {
        cx.push(Effect::Warn(format!("agent {id} could not go on: {problem}")));
    }
    begun.is_ok()
}

/// Why a life ends with which a person has been at the screen; `None` where it came to no screen, or the
/// process that held it was killed.
pub fn left(agent: &Agent, code: Option<i32>) -> Option<Reason> {
    let is_so = agent.attached == Attached::Here && (agent.session_confirmed || code == Some(0));
    (is_so && code.is_some()).then_some(Reason::GivenBack)
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;
