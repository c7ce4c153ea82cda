//! Which of several runners an agent is to work on: `--runner label:WORD`, for whoever does not care which.
//!
//! A runner fits that has the label, was looked at, has no agent of which nothing is heard, and has room by
//! what its check told of its memory. Of those that fit it is the one with the fewest agents.

use super::{LogEntry, SpawnRequest, choice, elsewhere};
use crate::api::{Problem, Validator};
use crate::core::ids::AgentId;
use crate::core::{Context, Effect, State as All};
use crate::governor;
use crate::providers::Info;
use crate::runners::Runner;
use serde_json::json;
use std::cmp::Reverse;

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;

/// Before a label, where a runner may be named; no runner's name has a colon.
const LABEL: &str = "label:";
const MIB: u64 = 1 << 20;

/// What a runner has for one more agent.
struct Room {
    agents: usize,
    /// Megabytes.
    left: u64,
    need: u64,
}

/// The label, where one is named and no runner.
pub(super) fn label_in(word: &str) -> Option<&str> {
    word.strip_prefix(LABEL)
}

/// Makes a label the name of a runner that has it; why it is that one.
///
/// Errors: 409 `no_runner_fits`, with what is against each.
pub(super) fn place(all: &All, cx: &Context, request: &mut SpawnRequest) -> Result<Option<String>, Problem> {
    let label = request.runner.as_deref().and_then(label_in).map(str::to_owned);
    let Some(label) = label else { return Ok(None) };
    let info = choice::provider(all, request)?.info();
    let (mut fits, mut against) = (Vec::new(), Vec::new());
    for runner in all.runners.iter().filter(|runner| runner.labels.contains(&label)) {
        match room(all, cx, runner, info, request) {
            Ok(room) => fits.push((room.agents, Reverse(room.left), room.need, runner.name.clone())),
            Err(why) => against.push(format!("{}: {why}", runner.name)),
        }
    }
    let others = fits.len().saturating_sub(1) + against.len();
    let Some((agents, Reverse(left), need, name)) = fits.into_iter().min() else {
        let text = if against.is_empty() {
            format!(
                "no runner has the label {label:?}; svc runner add NAME KIND DESTINATION --label {label} gives one"
            )
        } else {
            format!("no runner with the label {label} fits; {}", against.join("; "))
        };
        return Err(Problem::new(409, "no_runner_fits", text).with("against", against));
    };
    let mut words = format!(
        "placed on {name}, of {} with the label {label}: {agents} agents are there, and {left} MB of memory are left \
         of which one may need {need}",
        others + 1
    );
    if !against.is_empty() {
        words = format!("{words}; {}", against.join("; "));
    }
    request.runner = Some(name);
    Ok(Some(words))
}

/// Errors: why it does not fit.
fn room(
    all: &All,
    cx: &Context,
    runner: &Runner,
    info: &Info,
    request: &SpawnRequest,
) -> Result<Room, String> {
    let checked = runner.checked.as_ref();
    let checked = checked.ok_or_else(|| format!("svc runner check {} has not looked at it", runner.name))?;
    if let Some(error) = &checked.error {
        return Err(format!("its last check has failed ({error})"));
    }
    let there = || all.agents.live().filter(|agent| agent.runner.as_ref() == Some(&runner.name));
    let silent = there().filter(|agent| agent.status_reason.code() == "unreachable").count();
    if silent > 0 {
        return Err(format!("nothing is heard of {silent} agents there"));
    }
    let mut validator = Validator::default();
    let wish = SpawnRequest { runner: Some(runner.name.clone()), ..request.clone() };
    elsewhere::check(all, info, &wish, &mut validator);
    validator.finish().map_err(|problem| problem.error)?;
    let expected = |provider: &str, role: &str| governor::expected(all, cx.now, provider, role).bytes / MIB;
    let need = expected(info.id, &request.role);
    // Those that were there when it told its memory are in what it told.
    let newer = there().filter(|agent| agent.spawned_at > checked.at);
    let taken: u64 = newer.map(|agent| expected(&agent.provider, &agent.role)).sum();
    let available = checked.facts.as_ref().map_or(0, |facts| facts.available);
    let left = available.saturating_sub(taken);
    if left < need {
        return Err(format!(
            "one more may need {need} MB of memory, and {left} of the {available} MB are left that were free at its \
             check"
        ));
    }
    Ok(Room { agents: there().count(), left, need })
}

/// Has it stand in its log, and in the audit log, why it is where it is.
pub(super) fn told(all: &All, cx: &mut Context, id: AgentId, words: Option<&str>) {
    let (Some(agent), Some(words)) = (all.agents.get(id), words) else { return };
    let (lineage, name, runner) = (agent.lineage_id, &agent.name, &agent.runner);
    cx.audit("agent.placed", &json!({"agentId": id, "name": name, "runner": runner, "why": words}));
    cx.push(Effect::Log(lineage, id, LogEntry::life(words)));
}
