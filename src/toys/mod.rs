//! Toys: public APIs to play with. Launching one makes a team and starts a planner for it.
//!
//! **Invariant:** the key of a toy is in the vault and in the environment of its team's agents, never in a
//! prompt.

pub mod api;
#[cfg(test)]
mod tests;
pub mod worker_api;

pub use svc_base::toys::{CATEGORIES, Toy, all};

use crate::agents::{self, Maker, SpawnRequest};
use crate::api::{Problem, Reply};
use crate::core::{CallId, Context, State as All};
use crate::credentials::{self, Sealed};
use crate::teams;
use serde_json::json;
use std::fmt::Write as _;

/// The toy of this id.
///
/// Errors: 404.
pub fn find(id: &str) -> Result<&'static Toy, Problem> {
    svc_base::toys::find(id)
        .ok_or_else(|| Problem::not_found(format!("no toy has the id {id:?}; GET /api/toys lists them")))
}

/// A wish about toys.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Make a team for a toy and start its planner.
    Launch(Box<Launch>),
}

/// What `POST /api/toys/:id/launch` asks for.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Launch {
    pub toy: &'static Toy,
    /// Its key, sealed for [`Toy::credential`]; absent when none was given.
    pub key: Option<Sealed>,
    /// What to build; without it the planner chooses.
    pub starter: Option<String>,
    /// Who runs the planner; the configured default when absent.
    pub provider: Option<String>,
    pub model: Option<String>,
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let Command::Launch(wish) = command;
    let result = all.health.writable().and_then(|()| launch(all, cx, *wish));
    cx.answer(call, result);
}

fn launch(all: &mut All, cx: &mut Context, wish: Launch) -> Result<Reply, Problem> {
    let toy = wish.toy;
    let has_key = wish.key.is_some() || all.credentials.has(&toy.credential());
    if toy.needs_key() && !has_key {
        let message =
            format!("apiKey is required: {} answers only with a key; get one at {}", toy.name, toy.docs_url);
        return Err(Problem::invalid("apiKey", message));
    }
    let mut request = SpawnRequest {
        role: teams::plan::PLANNER.into(),
        provider: wish.provider,
        model: wish.model,
        prompt: prompt(toy, wish.starter.as_deref(), has_key),
        ..SpawnRequest::default()
    };
    // Nothing is left behind of a launch that is refused.
    let maker = Maker::of(all, &cx.actor)?;
    agents::check_pattern(all, &maker, &mut request)?;
    agents::check_share(all, maker.lineage.is_some())?;
    let name = teams::fresh_name(all, &toy.name);
    let team = teams::create(all, cx, &name, Some(&toy.id))?;
    if let Some(key) = wish.key {
        credentials::put(all, cx, &toy.credential(), key)?;
    }
    request.team_id = Some(team.to_string());
    let id = agents::spawn_agent(all, cx, &maker, request)?;
    cx.audit("toy.launch", &json!({"toyId": toy.id, "teamId": team, "agentId": id}));
    let Some(agent) = all.agents.get(id) else { return Err(Problem::not_found("the agent is gone")) };
    let record = json!(agent.rest());
    Ok(Reply::ok(&json!({"team": {"id": team, "name": name}, "agent": record, "toyId": toy.id})))
}

/// The task of the planner. It names the variable of the key, never the key.
fn prompt(toy: &Toy, starter: Option<&str>, has_key: bool) -> String {
    let mut text = format!(
        "Plan a small program that plays with a public API.\n\nThe API is {}: {}\nIt answers at {}; its \
         documentation is at {}.\n",
        toy.name, toy.description, toy.base_url, toy.docs_url
    );
    if has_key {
        let place = toy.key_header.as_deref().unwrap_or("the way its documentation says");
        let _ = writeln!(
            text,
            "It needs a key, sent as {place}. Every agent of this team has the key in the environment variable \
             {}: read it from there; never print it or write it to a file.",
            toy.variable()
        );
    } else {
        text.push_str("It needs no key.\n");
    }
    if let Some(starter) = starter {
        let _ = write!(text, "\nBuild this: {starter}\n");
        return text;
    }
    text.push_str("\nFirst choose what to build: something small that is a joy to use. Some ideas:\n");
    for starter in &toy.starters {
        let _ = writeln!(text, "- {starter}");
    }
    text
}
