//! Agents that work on another machine: who may start one there, where it is to run, and what becomes known
//! of the line to it.
//!
//! Its branch and worktree are here, as of any agent with a worktree; what it works on is a tree on the
//! runner's machine that begins with the same commit, and its work comes back as commits of that branch.

use super::moving::HERE;
use super::reason::Reason;
use super::record::{Agent, Isolation, Phase};
use super::worker::{Far, ORPHAN_LEAST};
use super::{LogEntry, Maker, Outcome, SpawnRequest, placement, say, spawn, touch};
use crate::api::{Problem, Validator};
use crate::core::ids::AgentId;
use crate::core::{Actor, Context, Durability, Effect, State as All};
use crate::credentials::SecretVariable;
use crate::providers::environment::Extra;
use crate::providers::{Info, LaunchRequest, Permission};
use crate::runners::{self, dialogue};
use crate::settings::{Cage, Enforcement};
use serde_json::json;
use std::sync::Arc;
use svc_base::folders::WORKTREES;
use svc_base::untrusted::untrusted_prose;

#[cfg(test)]
#[path = "elsewhere_tests.rs"]
pub(super) mod tests;

/// Characters of why a line is cut.
const WHY_CHARS: usize = 200;

/// Who may say that work is done elsewhere, now or by the clock and in a plan later: persons.
///
/// Errors: 403 `agent_may_not`.
pub fn check_sender(cx: &Context, request: &SpawnRequest) -> Result<(), Problem> {
    let is_person = matches!(cx.actor, Actor::Operator);
    if request.runner.is_none() || is_person { Ok(()) } else { Err(may_not(cx)) }
}

/// What an agent starts, or has started by the clock or in a plan, works here.
///
/// Errors: 403 `agent_may_not`.
pub(super) fn check_maker(cx: &Context, maker: &Maker, request: &SpawnRequest) -> Result<(), Problem> {
    if request.runner.is_none() || maker.lineage.is_none() { Ok(()) } else { Err(may_not(cx)) }
}

fn may_not(cx: &Context) -> Problem {
    let text = format!("{} may not start an agent on another machine; a person has to", cx.actor);
    Problem::new(403, "agent_may_not", text)
}

/// Gives the worktree of an agent a name that is started by the clock or in a plan: its run makes it.
pub(super) fn name_branch(cx: &mut Context, request: &mut SpawnRequest) {
    if request.runner.is_some() && request.worktree.is_none() {
        request.isolation = Isolation::Worktree;
        request.worktree = Some(format!("{WORKTREES}/{}-{:08x}", request.role, cx.random() >> 32));
    }
}

/// The branch of an agent that has one of its own.
pub fn branch_of(agent: &Agent) -> String {
    format!("svc/{}", agent.worktree.as_deref().unwrap_or_default().rsplit('/').next().unwrap_or_default())
}

/// What a runner has to be, and what cannot be had there.
pub(super) fn check(all: &All, info: &Info, request: &SpawnRequest, validator: &mut Validator) {
    let Some(name) = request.runner.as_deref() else { return };
    let config = all.settings.config();
    let mut refuse = |holds: bool, why: &str| {
        validator.check(!holds, "runner", || format!("runner {name} cannot be: {why}"));
    };
    if let Some(label) = placement::label_in(name) {
        let has_one = all.runners.iter().any(|runner| runner.labels.iter().any(|one| one == label));
        refuse(
            !has_one,
            "no runner has that label; svc runner add NAME KIND DESTINATION --label L gives one",
        );
    } else {
        match all.runners.find(name) {
            Err(problem) => refuse(true, &problem.error),
            Ok(runner) => {
                let facts = runner.checked.as_ref().and_then(|checked| checked.facts.as_ref());
                let is_known = facts.is_some();
                refuse(!is_known, &format!("nothing is known of it; svc runner check {name} looks"));
                refuse(facts.is_some_and(|facts| facts.git.is_none()), "there is no git on it");
            }
        }
    }
    refuse(
        !request.integrations.is_empty(),
        "integrations are called here, and agents there cannot reach them",
    );
    refuse(!request.skills.is_empty(), "skills are linked into folders here");
    refuse(request.account.is_some(), "folders and keys of accounts are here; log in there yourself");
    refuse(
        info.needs_fence && request.permission == Permission::Auto,
        "its program keeps no bounds by itself, and there is no fence of svc's there; --permission full lets it \
         do whatever you may do there",
    );
    refuse(config.enforcement == Enforcement::Kernel, "enforcement is kernel, and there is no fence there");
    refuse(
        config.isolation.cage == Cage::Require,
        "isolation.cage is require, and agents there have no room",
    );
}

/// Whether an agent that was started for another machine, or this one, can go on on that runner.
///
/// Errors: 400 with every fault.
pub(super) fn check_agent(all: &All, agent: &Agent, runner: &str) -> Result<(), Problem> {
    let Ok(provider) = spawn::provider_of(agent) else { return Ok(()) };
    let mut validator = Validator::default();
    let wish = SpawnRequest {
        runner: Some(runner.to_owned()),
        permission: agent.permission,
        integrations: agent.integrations.to_vec(),
        skills: agent.skills.to_vec(),
        account: agent.account.clone(),
        ..SpawnRequest::default()
    };
    check(all, provider.info(), &wish, &mut validator);
    validator.finish()
}

/// Continues an ended agent, on the machine that is named from now on.
///
/// Its session, and what it has not committed or nobody has fetched, are on the machine where it was: it goes
/// on with its task, at its branch as that stands here.
///
/// Errors: as [`say::resume`]; 403 `agent_may_not`, 409 `agent_alive`, 409 `no_worktree`.
pub(super) fn resume(
    all: &mut All,
    cx: &mut Context,
    target: &str,
    message: Option<String>,
    runner: Option<&str>,
) -> Result<Outcome, Problem> {
    if let Some(to) = runner {
        settle_elsewhere(all, cx, target, Some(to).filter(|to| *to != HERE))?;
    }
    say::resume(all, cx, target, message)
}

fn settle_elsewhere(all: &mut All, cx: &mut Context, target: &str, to: Option<&str>) -> Result<(), Problem> {
    let agent = Arc::clone(all.agents.find(target)?);
    if agent.runner.as_deref() == to {
        return Ok(());
    }
    if !matches!(cx.actor, Actor::Operator) {
        let text = format!("{} may not send an agent to another machine; a person has to", cx.actor);
        return Err(Problem::new(403, "agent_may_not", text));
    }
    let name = &agent.name;
    if agent.status.is_live() {
        let text = format!("agent {name} is alive ({}); svc kill {name} ends it first", agent.status_reason);
        return Err(Problem::new(409, "agent_alive", text));
    }
    if agent.worktree.is_none() {
        let text = format!("{name} has no branch of its own, so its work cannot go anywhere");
        return Err(Problem::new(409, "no_worktree", text));
    }
    to.map_or(Ok(()), |to| check_agent(all, &agent, to))?;
    let told = json!({"agentId": agent.id, "name": name, "from": agent.runner, "to": to});
    cx.audit("agent.move", &told);
    let words = format!("moved to {}; its session stays where it was", to.unwrap_or("this machine"));
    cx.push(Effect::Log(agent.lineage_id, agent.id, LogEntry::life(words)));
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(agent.id) {
        agent.runner = to.map(str::to_owned);
        agent.leave_session();
    }
    touch(all, cx, Durability::BeforeReply);
    Ok(())
}

/// What a provider is asked to run for an agent that works elsewhere, and where that is: the folders of that
/// machine, and nothing that is made here.
pub(super) fn settle(
    all: &All,
    agent: &Agent,
    request: LaunchRequest,
) -> (LaunchRequest, Option<Result<Far, String>>) {
    match agent.runner.as_ref().map(|name| far(all, agent, name)) {
        Some(Ok(far)) => (moved(&far, agent, request), Some(Ok(far))),
        other => (request, other),
    }
}

/// Where an agent is, or would be, on a runner's machine.
///
/// Errors: a sentence.
pub(super) fn far(all: &All, agent: &Agent, name: &str) -> Result<Far, String> {
    let found = all.runners.find(name).map_err(|problem| problem.error);
    found.and_then(|runner| {
        let facts = runner.checked.as_ref().and_then(|checked| checked.facts.as_ref());
        let facts =
            facts.ok_or_else(|| format!("runner {name} cannot be used: svc runner check {name} says why"))?;
        let work = agent.lineage_id.to_string();
        Ok(Far {
            runner: Arc::clone(runner),
            program: facts.program.clone(),
            tree: dialogue::tree(facts.home.as_ref(), &runner.folder, &work),
            folder: agent.working_dir.clone(),
            branch: branch_of(agent),
            is_new: agent.turns == 0 && agent.session_id.is_none(),
            lent: names_of(&runners::lent(all, runner, &agent.provider)),
            work,
        })
    })
}

/// The variables that these may set.
fn names_of(lent: &[SecretVariable]) -> Vec<String> {
    lent.iter().flat_map(SecretVariable::names).map(str::to_owned).collect()
}

/// What its processes get of the vault where it works: what its runner is granted, and else nothing.
pub(super) fn secrets(all: &All, agent: &Agent) -> Vec<SecretVariable> {
    let Some(name) = &agent.runner else { return spawn::secrets(all, agent) };
    all.runners.find(name).map(|runner| runners::lent(all, runner, &agent.provider)).unwrap_or_default()
}

/// Variables that are set for all agents stay here: what goes there a person has named for this one.
fn moved(far: &Far, agent: &Agent, request: LaunchRequest) -> LaunchRequest {
    let working_dir = if far.folder.is_empty() { far.tree.clone() } else { far.tree.join(&far.folder) };
    let extra_env = Extra::clone(&agent.env);
    LaunchRequest { working_dir, hook_program: None, fence: None, room: None, extra_env, ..request }
}

/// Its program there was not seen to end: whatever runs there still is ended when that machine is reached.
pub(super) fn left_there(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let Some(runner) = &agent.runner else { return };
    let runs_for = all.settings.config().keeper.orphan().max(ORPHAN_LEAST);
    runners::left_there(all, cx, runner, (agent.lineage_id, id), runs_for);
    let words = format!("what may run on {runner} still is ended there when that machine is reached");
    cx.push(Effect::Log(agent.lineage_id, id, LogEntry::life(words)));
}

/// This program was put where it is to work: its place was made anew.
pub(super) fn copied(all: &All, cx: &mut Context, id: AgentId, program: &str) {
    let Some(agent) = all.agents.get(id) else { return };
    cx.audit("runner.copy", &json!({"name": agent.runner, "program": program, "agentId": id}));
}

/// The line to it is cut, and why; or it stands again.
pub(super) fn line(all: &mut All, cx: &mut Context, id: AgentId, cut: Option<&str>) {
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    let runner = agent.runner.clone().unwrap_or_default();
    if !agent.status.is_live() || matches!(agent.phase, Phase::Stopping(..) | Phase::Ended) {
        return;
    }
    let words = match (cut, agent.status_reason.why()) {
        (Some(_), Reason::Unreachable { .. }) => return,
        (Some(why), reason) => {
            let why: String = untrusted_prose(why).chars().take(WHY_CHARS).collect();
            let words = format!("the line to {runner} is cut: {why}");
            let before = serde_json::to_string(reason).ok();
            agent.set_status(cx.now, agent.status, Reason::Unreachable { runner, why, before });
            words
        }
        (None, Reason::Unreachable { before, .. }) => {
            let before = before.as_deref().and_then(|text| serde_json::from_str(text).ok());
            let usual = if agent.turn_open { Reason::Working } else { Reason::TurnEnded };
            agent.set_status(cx.now, agent.status, before.unwrap_or(usual));
            format!("the line to {runner} stands again")
        }
        (None, _) => return,
    };
    let lineage = agent.lineage_id;
    if cut.is_none() {
        let runner = agent.runner.clone().unwrap_or_default();
        runners::set_off(all, cx, &runner);
    }
    cx.push(Effect::Log(lineage, id, LogEntry::life(words)));
    touch(all, cx, Durability::Soon);
}
