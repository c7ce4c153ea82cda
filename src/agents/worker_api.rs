//! The agent endpoints that do I/O: looking at a working directory, at a log. They run on their
//! connection's thread and never touch the core while they wait.

use super::SpawnRequest;
use super::worker_log::{Query, Since};
use crate::api::{Problem, Reply, Validator};
use crate::assembly::host::Host;
use crate::core::{is_out_of_files, remedy};
use crate::endpoint::{Answer, Ask};
use serde_json::json;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path};

const DEFAULT_TAIL: u64 = 100;

/// Looks at the folder of an agent that is to be started, and at its scenario.
///
/// Errors: 400.
pub fn look_at(host: &Host, ask: &Ask, request: &SpawnRequest) -> Result<(), Problem> {
    let mut validator = Validator::default();
    if let Err(fault) = look_at_folder(&host.project, &request.working_dir) {
        validator.fail("workingDir", format!("workingDir {:?} {fault}", request.working_dir));
    }
    if let Some(fault) = look_at_scenario(host, ask, request) {
        refuse_when_short(&fault)?;
        validator.fail("model", fault);
    }
    validator.finish()
}

/// A file that cannot be opened because too many are open is not the caller's fault.
///
/// Errors: 503 `out_of_files`.
fn refuse_when_short(fault: &str) -> Result<(), Problem> {
    if !is_out_of_files(fault) {
        return Ok(());
    }
    let text = format!("nothing can be started now: {fault}; {} then retry", remedy(fault));
    Err(Problem::new(503, "out_of_files", text).with_header("Retry-After", "5"))
}

/// What is wrong with the scenario that the built-in `script` agent is asked to play, if anything.
fn look_at_scenario(host: &Host, ask: &Ask, request: &SpawnRequest) -> Option<String> {
    let provider = request.provider.as_deref().unwrap_or(&ask.state.settings.config().default_provider);
    let model = request
        .model
        .as_deref()
        .filter(|model| crate::providers::info_of(provider).scripted && *model != "auto")?;
    let fault = crate::rehearsal::find_scenario(model, Some(&host.project)).err()?;
    Some(format!("model {model:?} is not a scenario of provider script: {fault}"))
}

/// Checks that `relative` is a folder inside the project, wherever links lead.
fn look_at_folder(project: &Path, relative: &str) -> Result<(), String> {
    let path = Path::new(relative);
    if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err("must be relative, without ..".into());
    }
    let Ok(real) = fs::canonicalize(project.join(path)) else {
        return Err("does not exist; create the folder first".into());
    };
    if !real.starts_with(project) {
        return Err("leads out of the project through a link".into());
    }
    if real.is_dir() { Ok(()) } else { Err("is not a folder".into()) }
}

/// Makes a folder inside the project, and those it stands in, unless it is there. No part of it may be a
/// link that leads out.
pub fn make_folder(project: &Path, relative: &str) -> Result<(), String> {
    let path = Path::new(relative);
    if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err("must be relative, without ..".into());
    }
    let mut place = project.to_path_buf();
    for part in path.components() {
        place.push(part);
        match fs::create_dir(&place) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(format!("cannot be made: {error}"));
            }
            _ => {}
        }
        let inside = fs::canonicalize(&place).is_ok_and(|real| real.starts_with(project) && real.is_dir());
        if !inside {
            return Err("is not a folder, or leads out of the project through a link".into());
        }
    }
    Ok(())
}

/// `GET /api/agents/:id/log`.
pub fn log(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let agent = ask.state.agents.find(&ask.target())?;
    let mut validator = Validator::default();
    let tail = ask.request.query("tail").map(str::parse::<u64>);
    validator.check(!matches!(tail, Some(Err(_))), "tail", || "tail must be a whole number".to_owned());
    let since = ask.request.query("since").map(Since::parse);
    validator.check(since != Some(None), "since", || {
        "since must be an entry number or an RFC 3339 time".to_owned()
    });
    validator.finish()?;
    let since = since.flatten();
    let tail = tail.and_then(Result::ok).or(if since.is_none() { Some(DEFAULT_TAIL) } else { None });
    let page = host
        .logs
        .read(agent.lineage_id, Query { tail, since, limit: None })
        .map_err(|error| Problem::new(500, "log_unreadable", format!("the log cannot be read: {error}")))?;
    Ok(Answer::Reply(Reply::ok(&json!({
        "agentId": agent.id, "lineageId": agent.lineage_id, "entries": page.entries, "next": page.next,
    }))))
}
