//! The agent endpoints that do I/O: looking at a working directory, at a log, at git. They run on their
//! connection's thread and never touch the core while they wait.

use super::api::{parse_spawn, target};
use super::worker_log::{Query, Since};
use super::{Command, SpawnRequest};
use crate::api::{Problem, Reply, Validator};
use crate::routes::{Answer, Ask};
use crate::runtime::host::Host;
use crate::runtime::process::{Captured, Processes, Spec};
use serde_json::json;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

/// `git` gets this long.
const GIT_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a diff shown; a longer one is cut and says so.
const MAX_DIFF_BYTES: usize = 1 << 20;
const DEFAULT_TAIL: u64 = 100;

/// `POST /api/agents`.
pub fn spawn(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let mut request = parse_spawn(ask.request)?;
    prepare(host, ask, &mut request)?;
    let worktree = request.worktree.clone();
    let command = crate::core::Command::Agents(Command::Spawn(Box::new(request)));
    let Some(path) = worktree else { return Ok(Answer::Command(command)) };
    let (processes, project) = (Arc::clone(&host.processes), host.project.clone());
    Ok(Answer::Undoable(command, Box::new(move || remove_worktree(&processes, &project, &path))))
}

/// Looks at the folder of an agent that is to be started, and makes its worktree where it wants one.
///
/// Errors: 400.
pub fn prepare(host: &Host, ask: &Ask, request: &mut SpawnRequest) -> Result<(), Problem> {
    let mut validator = Validator::default();
    if let Err(fault) = look_at_folder(&host.project, &request.working_dir) {
        validator.fail("workingDir", format!("workingDir {:?} {fault}", request.working_dir));
    }
    if let Some(fault) = look_at_scenario(host, ask, request) {
        validator.fail("model", fault);
    }
    validator.finish()?;
    if request.isolation == "worktree" {
        request.worktree = Some(make_worktree(host, request)?);
    }
    Ok(())
}

/// What is wrong with the scenario that the built-in `script` agent is asked to play, if anything.
fn look_at_scenario(host: &Host, ask: &Ask, request: &SpawnRequest) -> Option<String> {
    let provider = request.provider.as_deref().unwrap_or(&ask.state.settings.config().default_provider);
    let model = request.model.as_deref().filter(|model| provider == "script" && *model != "auto")?;
    let fault = crate::rehearsal::find_scenario(model, Some(&host.project)).err()?;
    Some(format!("model {model:?} is no scenario of provider script: {fault}"))
}

/// Removes a worktree that was made for an agent that then was refused.
fn remove_worktree(processes: &Processes, project: &Path, path: &str) {
    let spec = Spec::tool("git", &["worktree", "remove", "--force", path], project);
    if let Err(error) = processes.capture(&spec, b"", GIT_TIMEOUT, MAX_DIFF_BYTES) {
        log::warn!("the worktree {path} could not be removed: {error}");
    }
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
            return Err("is no folder, or leads out of the project through a link".into());
        }
    }
    Ok(())
}

/// Makes a git worktree for an agent of its own; answers its path below the project.
fn make_worktree(host: &Host, request: &SpawnRequest) -> Result<String, Problem> {
    let name = format!("{}-{:08x}", request.role, crate::runtime::clock::random() >> 32);
    let path = format!(".svc/worktrees/{name}");
    let branch = format!("svc/{name}");
    let made = git(host, &host.project, &["worktree", "add", "--quiet", "-b", &branch, &path])?;
    if made.is_success() {
        return Ok(path);
    }
    let words = String::from_utf8_lossy(&made.stderr).trim().to_owned();
    Err(Problem::bad_request("worktree_failed", format!("isolation worktree needs git to make one: {words}")))
}

fn git(host: &Host, folder: &Path, args: &[&str]) -> Result<Captured, Problem> {
    let mut all = vec!["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"];
    all.extend(args);
    let spec = Spec::tool("git", &all, folder);
    host.processes
        .capture(&spec, b"", GIT_TIMEOUT, MAX_DIFF_BYTES)
        .map_err(|error| Problem::new(502, "git_failed", error))
}

/// `GET /api/agents/:id/log`.
pub fn log(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let agent = ask.state.agents.find(&target(ask))?;
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

/// `GET /api/agents/:id/diff`.
pub fn diff(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let agent = ask.state.agents.find(&target(ask))?;
    let base = agent.worktree.as_ref().map_or_else(|| host.project.clone(), |path| host.project.join(path));
    let folder = base.join(&agent.working_dir);
    let changed =
        git(host, &folder, &["diff", "--no-ext-diff", "--no-color", "--relative", "HEAD", "--", "."])?;
    if !changed.is_success() {
        let words = String::from_utf8_lossy(&changed.stderr).trim().to_owned();
        return Err(Problem::new(409, "not_a_repository", format!("git has no diff to show here: {words}")));
    }
    let status = git(host, &folder, &["status", "--porcelain", "--untracked-files=all", "--", "."])?;
    let files: Vec<_> = String::from_utf8_lossy(&status.stdout)
        .lines()
        .filter_map(|line| Some(json!({"status": line.get(..2)?.trim(), "path": line.get(3..)?})))
        .collect();
    Ok(Answer::Reply(Reply::ok(&json!({
        "agentId": agent.id,
        "diff": String::from_utf8_lossy(&changed.stdout),
        "files": files,
        "truncated": changed.truncated,
    }))))
}
