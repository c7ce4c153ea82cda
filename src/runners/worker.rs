//! Asking a runner's machine what it has.

use super::api::target;
use super::worker_host::{call, own_hash};
use super::{Command, Facts, Runner, worker_master, worker_place};
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use svc_base::untrusted::untrusted_prose;

/// Bytes of a path there.
const PATH_BYTES: usize = 1_000;
/// Characters of a word of a machine's answer.
const WORD_CHARS: usize = 300;

/// `POST /api/runners/:name/check`.
pub fn check(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let runner = ask.state.runners.find(&target(ask))?;
    let name = runner.name.clone();
    let began = Instant::now();
    let command = match look(host, runner) {
        Ok((facts, copied, took_ms)) => {
            Command::Checked { name, took_ms, copied, found: Ok(Box::new(facts)) }
        }
        Err(error) => {
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            Command::Checked { name, took_ms, copied: false, found: Err(error) }
        }
    };
    Ok(Answer::Command(crate::core::Command::Runners(command)))
}

fn look(host: &Host, runner: &Runner) -> Result<(Facts, bool, u64), String> {
    let spot = worker_place::have_soon(&host.processes, runner)?;
    let answer = call(&host.processes, &spot, "check")?;
    let facts: Facts = serde_json::from_str(&answer.said)
        .map_err(|error| format!("what that machine tells cannot be read: {error}"))?;
    let own = own_hash()?;
    if facts.program != own {
        return Err(format!(
            "the program there is another than its folder says: its SHA-256 is {}, and should be {own}; remove \
             ~/.cache/svc/bin there",
            shown(&facts.program)
        ));
    }
    let is_path = facts.home.starts_with('/') && !facts.home.chars().any(char::is_control);
    if !is_path || facts.home.len() > PATH_BYTES {
        return Err("HOME there is no path that can be used".to_owned());
    }
    let Facts { version, program, kernel, arch, no_room, git, .. } = &facts;
    let facts = Facts {
        version: shown(version),
        program: shown(program),
        kernel: shown(kernel),
        arch: shown(arch),
        no_room: no_room.as_deref().map(shown),
        git: git.as_deref().map(shown),
        ..facts
    };
    // For the lines to come.
    let _ = worker_master::standing(&host.processes, &host.project, runner, &spot, &facts.home);
    Ok((facts, answer.copied, answer.took_ms))
}

/// `DELETE /api/runners/:name`: once nobody works there, and the record is gone, so is its place.
pub fn remove(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let runner = Arc::clone(ask.state.runners.find(&target(ask))?);
    let processes = Arc::clone(&host.processes);
    let command = crate::core::Command::Runners(Command::Remove(runner.name.clone()));
    let end = move |reply: Reply| {
        let Err(left) = worker_place::end(&processes, &runner) else { return reply };
        log::warn!("runner {}: {left}", runner.name);
        let Ok(mut body) = serde_json::from_slice::<Value>(reply.body.bytes()) else { return reply };
        body["left"] = json!(left);
        Reply::json(reply.status, &body)
    };
    Ok(Answer::Followed(command, Box::new(end)))
}

/// Words of another machine, fit to be shown.
fn shown(text: &str) -> String {
    untrusted_prose(text).chars().take(WORD_CHARS).collect()
}
