//! `POST /api/agents/:id/fork`: a new agent that goes on from where another one was before a turn, in a
//! worktree of its own. It stands here because it takes snapshots, logs, briefs and worktrees together.
//!
//! It begins with the brief of the log up to there, and with a copy of the session as well, where its program
//! lets one go on in another folder: from behind the last turn the program makes it, up to an earlier one
//! `fork_session.rs`.

use super::fork_session::{self, cut};
use super::host::Host;
use super::spawn::begin;
use crate::agents::api::MAX_PROMPT_CHARS;
use crate::agents::{Agent, Isolation, SpawnRequest};
use crate::api::{Fields, Method, Problem, Route, schema_of};
use crate::context::{brief, worker_brief};
use crate::endpoint::{Access, Answer, Ask, Handler};
use crate::snapshots::Beginning;
use serde_json::json;

/// The highest number of a turn.
const MAX_TURN: u64 = 1 << 40;
/// What a fork is told that is told nothing else.
const GO_ON: &str = "Go on with the task from here.";
/// What it is told of the session that it may have got: where its first start is put off it begins without.
const COPY: &str = "If you remember the work above yourself, this session is a copy of the one in which it was done. \
                    Your folder is another one now, the one that you were started in, and has the same files: \
                    read and write there, by paths relative to it, and not where you worked before.";

/// What a fork is asked for with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wish {
    turn: Option<u64>,
    name: Option<String>,
    prompt: Option<String>,
    is_fresh: bool,
}

/// The route.
pub(super) fn route() -> Route<Handler> {
    Route::new(
        Method::Post,
        "/api/agents/:id/fork",
        "Start a new agent from where one was before a turn, in a worktree of its own",
        Handler::Work(Access::OperatorOnly, fork),
    )
    .body(|| schema_of(wish))
    .replies(&[
        (201, "the new agent"),
        (400, "a field is wrong, the name is in use, or git made no worktree"),
        (404, "no snapshot of that turn is kept"),
        (409, "no_snapshot, capacity"),
    ])
}

/// Reads the body.
pub(super) fn wish(fields: &mut Fields) -> Wish {
    let turn = fields.integer("turn", 1, MAX_TURN);
    fields.tell("name", || json!({"type": "string"}));
    let name = fields.string("name").map(ToOwned::to_owned);
    fields.tell("prompt", || json!({"maxLength": MAX_PROMPT_CHARS - brief::MAX_CHARS}));
    let prompt = fields.string("prompt").map(str::trim).filter(|text| !text.is_empty());
    let chars = prompt.map_or(0, |text| text.chars().count());
    let most = MAX_PROMPT_CHARS - brief::MAX_CHARS;
    fields.validator.check(chars <= most, "prompt", || {
        format!("prompt must have at most {most} characters, it has {chars}; the brief goes before it")
    });
    let is_fresh = fields.boolean("fresh").unwrap_or(false);
    Wish { turn, name, prompt: prompt.map(ToOwned::to_owned), is_fresh }
}

fn fork(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    ask.state.health.writable()?;
    let wish = ask.request.read(wish)?;
    let agent = ask.state.agents.find(&ask.target())?;
    let from = host.snapshots.beginning(agent, wish.turn)?;
    let told = told(host, ask, agent, &from)?;
    let words = wish.prompt.as_deref().unwrap_or(GO_ON);
    let part = from.from.filter(|_| !wish.is_fresh).and_then(|at| cut(host, ask.state, agent, at));
    let whole = agent.copied().filter(|_| from.until.is_none() && !wish.is_fresh);
    let copies = part.as_ref().map(fork_session::Beginning::copied).or(whole);
    let note = if copies.is_some() { format!("{COPY}\n\n") } else { String::new() };
    let prompt = format!("{told}\n\n{note}{words}");
    let request = SpawnRequest { name: wish.name, prompt, copies, ..like(agent) };
    begin(host, ask, request, None, |folder| {
        host.snapshots.fill(folder, agent, &from)?;
        let worktree = host.project.join(folder);
        part.map(|part| fork_session::place(host, ask.state, agent, &part, &worktree)).transpose()
    })
}

/// The brief of what was on record then.
fn told(host: &Host, ask: &Ask, agent: &Agent, from: &Beginning) -> Result<String, Problem> {
    let facts = brief::Facts::of_fork(ask.state, agent, from.turn);
    let built = match from.until {
        Some(until) => worker_brief::build_until(&host.logs, agent.lineage_id, &facts, until),
        None => worker_brief::build(&host.logs, agent.lineage_id, &facts).map(|(built, _)| built),
    };
    let lost = |error: std::io::Error| {
        Problem::new(500, "log_unreadable", format!("the log of {} cannot be read: {error}", agent.name))
    };
    Ok(built.map_err(lost)?.text)
}

/// One that may do what this agent may, in a worktree of its own.
fn like(agent: &Agent) -> SpawnRequest {
    SpawnRequest {
        role: agent.role.clone(),
        scope: agent.scope.to_vec(),
        provider: Some(agent.provider.clone()),
        model: agent.model.clone(),
        working_dir: agent.working_dir.clone(),
        integrations: agent.integrations.to_vec(),
        skills: agent.skills.to_vec(),
        permission: agent.permission,
        effort: agent.effort,
        team_id: agent.team_id.clone(),
        isolation: Isolation::Worktree,
        command: agent.command.to_vec(),
        env: agent.env.as_ref().clone(),
        on_limit: agent.on_limit,
        account: agent.account.clone(),
        priority: agent.priority,
        ..SpawnRequest::default()
    }
}
