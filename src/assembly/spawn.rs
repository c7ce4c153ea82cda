//! `POST /api/agents`: a new agent, with its worktree and its schedule. It stands here because these
//! features know the agents, and the agents none of them.

use super::fleet;
use super::host::Host;
use crate::accounts;
use crate::agents::{self, SpawnRequest};
use crate::api::{Fields, Problem, Request};
use crate::core::Command;
use crate::endpoint::{Answer, Ask};
use crate::governor;
use crate::isolation::worker_worktree::{prepare, unmake};
use crate::providers;
use crate::schedules::{self, Timing};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// What the body asks for: an agent, and when to start more like it.
///
/// Errors: 400 with every fault.
pub fn parse(request: &Request) -> Result<(SpawnRequest, Option<Timing>), Problem> {
    let body = request.object()?;
    let mut fields = Fields::new(&body);
    let timing = schedules::api::timing_field(&mut fields);
    Ok((agents::api::spawn_request(fields)?, timing))
}

/// The wish for it.
pub fn command(request: SpawnRequest, timing: Option<Timing>) -> Command {
    match timing {
        Some(timing) => Command::Schedules(schedules::Command::Spawn(timing, Box::new(request))),
        None => Command::Agents(agents::Command::Spawn(Box::new(request))),
    }
}

/// The handler.
pub fn spawn(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let (request, timing) = parse(ask.request)?;
    begin(host, ask, request, timing, |_| Ok(None))
}

/// Has the agent started; `fill` makes its worktree ready, where it gets one, and names a file that it has
/// made elsewhere. Nothing of either is left where the agent is refused.
///
/// Errors: 400, and those of `fill`.
pub(super) fn begin(
    host: &Host,
    ask: &Ask,
    mut request: SpawnRequest,
    timing: Option<Timing>,
    fill: impl FnOnce(&str) -> Result<Option<PathBuf>, Problem>,
) -> Result<Answer, Problem> {
    let account = request.account.as_deref();
    if request.provider.is_none() {
        request.provider =
            account.and_then(|name| ask.state.accounts.get(name)).map(|known| known.provider.clone());
    }
    let provider = request.provider.as_deref().unwrap_or(&ask.state.settings.config().default_provider);
    if !ask.state.providers.is_installed(provider) {
        // It may have been installed since; what is found goes before the wish.
        host.programs.look();
    }
    if request.account.as_deref() == Some(accounts::AUTO) {
        accounts::worker::look(host, ask.state, Some(providers::info_of(provider)));
    }
    fleet::hear_now(host, ask);
    governor::worker::look_before(&host.core, ask.state, ask.now);
    prepare(host, ask, &mut request)?;
    let worktree = request.worktree.clone();
    let command = command(request, timing);
    let Some(path) = worktree else { return Ok(Answer::Command(command)) };
    let made = match fill(&path) {
        Ok(made) => made,
        Err(problem) => {
            unmake(&host.processes, &host.project, &path);
            return Err(problem);
        }
    };
    let (processes, project) = (Arc::clone(&host.processes), host.project.clone());
    let undo = move || {
        unmake(&processes, &project, &path);
        // One that stays is a session more in its program's list.
        let _ = made.map(fs::remove_file);
    };
    Ok(Answer::Undoable(command, Box::new(undo)))
}
