//! Who owns which files, and what happens when somebody else writes them.
//!
//! Ownership is advisory: it is told, watched and, where the provider asks beforehand, put to a person. A
//! write is judged twice: before, when a provider's hook or permission request asks, and after, when a tool
//! call that wrote has ended, or when a file has changed while a command ran (`commands`). A write into
//! another's scope sends `conflict:detected`; one outside of the agent's own scope asks for a
//! `scope_violation` approval. With `permission: full` nothing is blocked: a person is asked afterwards.
//!
//! **Invariant:** a write that a person has approved is not asked about again when it is seen afterwards.

pub mod api;
pub mod commands;
#[cfg(test)]
mod commands_tests;
#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod tests;
mod undo;
pub mod worker_look;

pub use commands::{Order, Report, looked as report};
pub use svc_base::scopes::{owns, within};

use crate::agents::{self, Agent, RunOrder};
use crate::api::{Problem, Reply};
use crate::approvals::{
    self, Action, Approval, ApprovalId, Asked, Certainty, Judged, NewApproval, RuleId, Verdict,
};
use crate::context::triggers;
use crate::core::ids::{AgentId, LineageId};
use crate::core::notice::{ConflictSeen, Notice};
use crate::core::time::{Time, rfc3339};
use crate::core::{CallId, Context, Effect, Moment, State as All};
use crate::providers::{Activity, Permission, Ruling};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use svc_base::bounded;

/// Conflicts kept and shown; the oldest goes first.
pub const MAX_CONFLICTS: usize = 200;
/// Open tool calls remembered per agent; of further ones only what the provider asks beforehand is judged.
const MAX_OPEN_WRITES: usize = 64;
/// Files per lineage that a person has let it write; the oldest goes first.
const MAX_ALLOWED: usize = 500;
/// Writes that a rule has let through and that are not seen yet; the oldest goes first.
const MAX_ONCE: usize = 500;

/// A write into a place that is not the agent's.
#[derive(Debug, Clone, Serialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    #[serde(with = "rfc3339")]
    pub ts: Time,
    /// Who wrote, or wanted to; `None` where several may have.
    pub agent_id: Option<AgentId>,
    /// Its name, or the names of those who may have.
    pub agent_name: String,
    /// Relative to the project; as the agent named it where it lies outside.
    pub file_path: String,
    /// Who owns the file, if an agent does.
    pub owner_id: Option<AgentId>,
    pub owner_name: Option<String>,
    /// `before`: it was asked for and not written yet. `after`: it is written.
    pub seen: &'static str,
    /// How sure it is that this agent wrote.
    pub certainty: Certainty,
    /// What a person is asked, if anybody is.
    pub approval_id: Option<String>,
    /// After a person has rejected it: `in place` while the file is as it was then, `changed` since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_rejection: Option<&'static str>,
}

impl Conflict {
    /// As clients are told of it: with all who may have written, where it is not known who did.
    fn notice(&self, suspects: Option<Vec<AgentId>>) -> Notice {
        let data = ConflictSeen {
            agent_name: self.agent_name.clone(),
            file_path: self.file_path.clone(),
            owner_name: self.owner_name.clone(),
            agent_id: self.agent_id,
            owner_id: self.owner_id,
            seen: self.seen,
            certainty: self.certainty,
            suspects,
        };
        Notice::ConflictDetected { data }
    }
}

/// What is remembered of writes.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    conflicts: VecDeque<Arc<Conflict>>,
    /// Tool calls under way that write: by agent and call.
    open: BTreeMap<AgentId, BTreeMap<String, String>>,
    allowed: BTreeMap<LineageId, VecDeque<String>>,
    /// Writes that a rule has let through, each for once, until they are seen afterwards.
    once: VecDeque<(LineageId, String)>,
    /// Commands under way and files that have changed.
    commands: Arc<commands::Commands>,
    /// Rejected writes that are to be undone.
    undo: VecDeque<undo::Undo>,
}

impl State {
    /// The last conflicts, newest first.
    pub fn conflicts(&self) -> impl Iterator<Item = &Arc<Conflict>> {
        self.conflicts.iter().rev()
    }

    fn allow(&mut self, lineage: LineageId, file: &str) {
        let files = self.allowed.entry(lineage).or_default();
        if !files.iter().any(|known| known == file) {
            bounded::push(files, file.to_owned(), MAX_ALLOWED);
        }
    }

    fn allow_once(&mut self, lineage: LineageId, file: &str) {
        bounded::push(&mut self.once, (lineage, file.to_owned()), MAX_ONCE);
    }

    /// Whether a rule has let this write through; once.
    fn take_once(&mut self, lineage: LineageId, file: &str) -> bool {
        let is_it = |(who, what): &(LineageId, String)| *who == lineage && what == file;
        let at = self.once.iter().position(is_it);
        at.is_some_and(|at| self.once.remove(at).is_some())
    }

    fn is_allowed(&self, lineage: LineageId, file: &str) -> bool {
        self.allowed.get(&lineage).is_some_and(|files| files.iter().any(|known| known == file))
    }
}

/// A wish about writes.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// A provider asks before a tool writes.
    MayWrite {
        /// Which agent: id, earlier id or name.
        agent: String,
        /// The tool, for people.
        tool: String,
        /// The file it is about to write.
        path: String,
    },
}

/// What is wrong with a write.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trespass {
    file: String,
    owner: Option<(AgentId, String)>,
}

/// Whether `agent` trespasses by writing `path`. An agent without a scope may write what nobody owns.
fn trespass(all: &All, agent: &Agent, path: &str) -> Option<Trespass> {
    if let Some(worktree) = &agent.worktree {
        let file = within(&all.project.dir, &format!("{worktree}/{}", agent.working_dir), path)?;
        // It writes its own copy; what it did meets the others when it is merged. The project itself is not
        // its to write, whatever its scope says.
        let is_own = file.strip_prefix(worktree.as_str()).is_some_and(|rest| rest.starts_with('/'));
        return (!is_own).then_some(Trespass { file, owner: None });
    }
    let Some(file) = within(&all.project.dir, &agent.working_dir, path) else {
        let outside = !agent.scope.is_empty();
        return outside.then(|| Trespass { file: path.to_owned(), owner: None });
    };
    if owns(&agent.scope, &file) {
        return None;
    }
    let owner = all.agents.live().find(|other| other.worktree.is_none() && owns(&other.scope, &file));
    let owner = owner.map(|other| (other.id, other.name.clone()));
    (owner.is_some() || !agent.scope.is_empty()).then_some(Trespass { file, owner })
}

/// A file that a person's rule is about, wherever it lies: `never` and `ask` hold in an agent's own scope,
/// too.
fn ruled(all: &All, now: Time, agent: &Agent, path: &str) -> Option<Trespass> {
    all.approvals.rules().next()?;
    let file = match &agent.worktree {
        Some(worktree) => {
            let file = within(&all.project.dir, &format!("{worktree}/{}", agent.working_dir), path)?;
            // What it writes in its own copy is the file of that name, once it is merged.
            let own = file.strip_prefix(worktree.as_str()).and_then(|rest| rest.strip_prefix('/'));
            own.map(str::to_owned).unwrap_or(file)
        }
        None => within(&all.project.dir, &agent.working_dir, path)?,
    };
    let judged = approvals::judge(all, now, Some(agent.id), &Action::scope_violation(&file, None, false));
    matches!(judged, Judged::Never(_) | Judged::Person(Some(_))).then_some(Trespass { file, owner: None })
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let Command::MayWrite { agent, tool, path } = command;
    let result = may_write(all, cx, &agent, &tool, &path);
    cx.answer(call, result);
}

/// 200 with `decision` `allow` or `deny`, `reason`, and `approvalId` when a person is asked.
///
/// Errors: 404, 403 `agent_may_not` when one agent asks for another.
fn may_write(all: &mut All, cx: &mut Context, agent: &str, tool: &str, path: &str) -> Result<Reply, Problem> {
    let agent = Arc::clone(all.agents.find(agent)?);
    if cx.actor.agent().is_some_and(|caller| caller != agent.id) {
        return Err(Problem::new(403, "agent_may_not", "an agent may ask only for itself"));
    }
    let allow = |reason: &str| Reply::ok(&json!({"decision": "allow", "reason": reason}));
    let ruled = ruled(all, cx.now, &agent, path);
    let is_ruled = ruled.is_some();
    let Some(found) = ruled.or_else(|| trespass(all, &agent, path)) else {
        return Ok(allow("it may write this file"));
    };
    if agent.permission == Permission::Full && !is_ruled {
        record(all, cx, &agent, &found, "before", Certainty::Sure, None);
        return Ok(allow("permission full: not blocked; a person is asked when it is written"));
    }
    let action = action(&found, false, Certainty::Sure);
    let is_never = matches!(approvals::judge(all, cx.now, Some(agent.id), &action), Judged::Never(_));
    let open = approvals::find_open(all, cx.now, Some(agent.id), &action).map(|id| id.to_string());
    if let Some(id) = open.filter(|_| !is_never)
        && approvals::claim(all, cx, &id, Some(agent.id), &action) == Verdict::Approved
    {
        let is_for_once = all.approvals.find(&id).is_ok_and(|approval| approval.is_for_once());
        let state = Arc::make_mut(&mut all.ownership);
        if is_for_once {
            state.allow_once(agent.lineage_id, &found.file);
        } else {
            state.allow(agent.lineage_id, &found.file);
        }
        return Ok(allow("a person approved it"));
    }
    let new = NewApproval { agent: Some(agent.id), action };
    let (id, is_new) = match approvals::ask_now(all, cx, new)? {
        Asked::Granted(_) => {
            Arc::make_mut(&mut all.ownership).allow_once(agent.lineage_id, &found.file);
            return Ok(allow("a rule of a person allows it"));
        }
        Asked::Never(rule) => {
            let reason = format!("{tool} may not write {}: {}", found.file, never(rule));
            return Ok(Reply::ok(&json!({"decision": "deny", "reason": reason, "rule": rule})));
        }
        Asked::Person(id, is_new) => (id, is_new),
        Asked::Soon(id) => (id, false),
    };
    if is_new {
        record(all, cx, &agent, &found, "before", Certainty::Sure, Some(id.to_string()));
    }
    let whose = found.owner.map_or_else(
        || "it is outside of your scope".to_owned(),
        |(_, name)| format!("it belongs to agent {name}"),
    );
    let reason = format!(
        "{tool} may not write {}: {whose}. A person was asked (approval {id}). Go on with other work or end your \
         turn; you will be told the decision, then try again.",
        found.file
    );
    Ok(Reply::ok(&json!({"decision": "deny", "reason": reason, "approvalId": id})))
}

/// What an agent is told of a rule that says never.
fn never(rule: RuleId) -> String {
    format!("a rule of a person says never ({rule}). Do not try it again; find another way.")
}

fn action(found: &Trespass, written: bool, certainty: Certainty) -> Action {
    let owner = found.owner.as_ref().map(|(id, name)| (*id, name.as_str()));
    Action::scope_violation(&found.file, owner, written).with_certainty(certainty)
}

/// Notes a trespass, and tells everybody when the file is somebody's.
fn record(
    all: &mut All,
    cx: &mut Context,
    agent: &Agent,
    found: &Trespass,
    seen: &'static str,
    certainty: Certainty,
    approval_id: Option<String>,
) {
    let (owner_id, owner_name) = found.owner.clone().unzip();
    let conflict = Conflict {
        ts: cx.now,
        agent_id: Some(agent.id),
        agent_name: agent.name.clone(),
        file_path: found.file.clone(),
        owner_id,
        owner_name,
        seen,
        certainty,
        approval_id,
        after_rejection: None,
    };
    if found.owner.is_some() {
        cx.notice(conflict.notice(None));
    }
    cx.audit(
        "ownership.trespass",
        &json!({
            "agentId": agent.id, "filePath": found.file, "ownerId": owner_id, "seen": seen,
            "certainty": certainty,
        }),
    );
    // A write that was seen before and after it happened is one.
    let again = |last: &Arc<Conflict>| last.agent_id == Some(agent.id) && last.file_path == found.file;
    if !all.ownership.conflicts.back().is_some_and(again) {
        triggers::scope_violation(all, agent.id);
    }
    keep(all, conflict);
}

fn keep(all: &mut All, conflict: Conflict) {
    bounded::push(&mut Arc::make_mut(&mut all.ownership).conflicts, Arc::new(conflict), MAX_CONFLICTS);
}

/// Somebody's file was changed while commands of other agents ran, and it cannot be told whose did it, or
/// whether it was one of them: it is told, and nobody is accused.
fn unknown_writer(all: &mut All, cx: &mut Context, file: &str, suspects: &[Arc<Agent>]) {
    let owner = all.agents.live().find(|other| other.worktree.is_none() && owns(&other.scope, file)).cloned();
    let names = suspects.iter().map(|agent| agent.name.as_str()).collect::<Vec<_>>().join(" or ");
    let (owner_id, owner_name) = (owner.as_ref().map(|one| one.id), owner.map(|one| one.name.clone()));
    let certainty = Certainty::Unknown;
    let suspects: Vec<AgentId> = suspects.iter().map(|agent| agent.id).collect();
    let conflict = Conflict {
        ts: cx.now,
        agent_id: None,
        agent_name: names,
        file_path: file.to_owned(),
        owner_id,
        owner_name,
        seen: "after",
        certainty,
        approval_id: None,
        after_rejection: None,
    };
    cx.notice(conflict.notice(Some(suspects.clone())));
    cx.audit(
        "ownership.trespass",
        &json!({
            "agentId": null, "suspects": suspects, "filePath": file, "ownerId": owner_id, "seen": "after",
            "certainty": certainty,
        }),
    );
    keep(all, conflict);
}

/// A provider asks whether a tool may be used: a person answers. At the limit of open approvals the answer
/// is no.
fn permission_asked(
    all: &mut All,
    cx: &mut Context,
    id: AgentId,
    question: &str,
    tool: &str,
    input: &serde_json::Value,
) {
    let folder = all.agents.get(id).and_then(|agent| folder_of(all, agent));
    let action = Action::tool_permission(tool, input, question).with_command(input, folder.as_deref());
    let reason = match approvals::ask_stored(all, cx, NewApproval { agent: Some(id), action }) {
        Ok(Asked::Never(rule)) => never(rule),
        Ok(_) => return,
        Err(_) => String::new(),
    };
    let ruling = Ruling { allow: false, reason };
    cx.push(Effect::Run(id, RunOrder::Decide { question: question.to_owned(), ruling }));
}

/// Where an agent's program works, relative to the project; `None` outside of it.
fn folder_of(all: &All, agent: &Agent) -> Option<String> {
    let folder = agent
        .worktree
        .as_ref()
        .map_or_else(|| agent.working_dir.clone(), |worktree| format!("{worktree}/{}", agent.working_dir));
    if folder.split('/').all(|part| matches!(part, "" | ".")) {
        return Some(String::new());
    }
    within(&all.project.dir, "", folder.trim_end_matches('/'))
}

/// An approval was decided.
fn decided(all: &mut All, cx: &mut Context, approval: ApprovalId, approved: bool) {
    let Ok(found) = all.approvals.find(&approval.to_string()).cloned() else { return };
    let Some(agent) = found.agent_id.and_then(|id| all.agents.get(id)).cloned() else { return };
    match &found.action {
        Action::ToolPermission { question, .. } => {
            answer(cx, agent.id, &found, question.clone());
        }
        // What a rule allows it allows once; the next write is its next use.
        Action::ScopeViolation { written: true, .. } if approved && found.is_for_once() => {}
        Action::ScopeViolation { written: true, file_path, .. } if approved => {
            Arc::make_mut(&mut all.ownership).allow(agent.lineage_id, file_path);
        }
        Action::ScopeViolation { written: true, file_path, .. } => {
            return undo::rejected(all, cx, approval, &agent, file_path);
        }
        _ => return,
    }
    if approved {
        // Its one attempt is this answer.
        approvals::claim(all, cx, &approval.to_string(), Some(agent.id), &found.action);
    }
}

/// The daemon that was told what people think may have died before the program was: it is told again. Where
/// it knows, nothing comes of it.
fn decided_before(all: &All, cx: &mut Context, id: AgentId) {
    let its = all.approvals.iter().filter(|approval| approval.agent_id == Some(id));
    for approval in its.filter(|approval| approval.resolved_at.is_some()) {
        if let Action::ToolPermission { question, .. } = &approval.action {
            answer(cx, id, approval, question.clone());
        }
    }
}

fn answer(cx: &mut Context, id: AgentId, approval: &Approval, question: String) {
    let allow = approval.status == approvals::Status::Approved;
    let ruling = Ruling { allow, reason: approval.reason.clone().unwrap_or_default() };
    cx.push(Effect::Run(id, RunOrder::Decide { question, ruling }));
}

/// An agent did something: a tool call that wrote is judged when it has ended well.
pub fn heard(all: &mut All, cx: &mut Context, id: AgentId, activities: &[Activity]) {
    commands::heard(all, cx, id, activities);
    for activity in activities {
        approvals::heard_one(all, id, activity);
        match activity {
            Activity::ToolStarted { id: tool, path: Some(path), writes: true, .. } => {
                let open = Arc::make_mut(&mut all.ownership).open.entry(id).or_default();
                if open.len() < MAX_OPEN_WRITES {
                    open.insert(tool.clone(), path.clone());
                }
            }
            Activity::PermissionAsked { question, name, input } => {
                permission_asked(all, cx, id, question, name, input);
            }
            Activity::ToolEnded { id: tool, error, .. } => {
                let is_open = all.ownership.open.get(&id).is_some_and(|open| open.contains_key(tool));
                if !is_open {
                    continue;
                }
                let open = Arc::make_mut(&mut all.ownership).open.entry(id).or_default();
                match open.remove(tool) {
                    Some(path) if *error => not_written(all, id, &path),
                    Some(path) => written(all, cx, id, &path),
                    None => {}
                }
            }
            _ => {}
        }
    }
}

/// What a rule has let through did not happen.
fn not_written(all: &mut All, id: AgentId, path: &str) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    if let Some(found) = trespass(all, &agent, path) {
        Arc::make_mut(&mut all.ownership).take_once(agent.lineage_id, &found.file);
    }
}

fn written(all: &mut All, cx: &mut Context, id: AgentId, path: &str) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    if agent.worktree.is_none()
        && let Some(file) = within(&all.project.dir, &agent.working_dir, path)
    {
        commands::explained(all, cx.now, &file);
    }
    if let Some(found) = trespass(all, &agent, path).or_else(|| ruled(all, cx.now, &agent, path)) {
        judged(all, cx, &agent, &found, Certainty::Sure);
    }
}

/// A trespass is done: a person is asked whether it stays, whatever the agent's permission.
fn judged(all: &mut All, cx: &mut Context, agent: &Agent, found: &Trespass, certainty: Certainty) {
    if all.ownership.is_allowed(agent.lineage_id, &found.file) {
        return;
    }
    if Arc::make_mut(&mut all.ownership).take_once(agent.lineage_id, &found.file) {
        return;
    }
    let new = NewApproval { agent: Some(agent.id), action: action(found, true, certainty) };
    let is_allowed = matches!(approvals::judge(all, cx.now, new.agent, &new.action), Judged::Allow(_));
    let approval = match approvals::ask_stored(all, cx, new) {
        // One question per file is enough; it is pending already. What a rule allows is no trespass.
        Ok(Asked::Person(_, false)) => return,
        Ok(Asked::Soon(_)) if is_allowed => return,
        Ok(Asked::Person(id, true) | Asked::Soon(id) | Asked::Granted(id)) => Some(id.to_string()),
        // At the limit of open approvals the trespass is still recorded.
        Ok(Asked::Never(_)) | Err(_) => None,
    };
    record(all, cx, agent, found, "after", certainty, approval);
}

/// Something has happened to an agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::Decided { approval, approved } => decided(all, cx, approval, approved),
        Moment::Spawned(id) => tell_neighbours(all, cx, id),
        Moment::CaughtUp(id) => decided_before(all, cx, id),
        Moment::TurnEnded(id) => undo::pause(all, cx, id),
        Moment::Ended(id)
        | Moment::PutAway(id)
        | Moment::Rotated { old: id, .. }
        | Moment::Resumed { old: id, .. } => {
            Arc::make_mut(&mut all.ownership).open.remove(&id);
            commands::agent_ended(all, cx.now, id);
            undo::pause(all, cx, id);
        }
        Moment::Removed(_, lineage) => {
            let state = Arc::make_mut(&mut all.ownership);
            state.allowed.remove(&lineage);
            state.once.retain(|(who, _)| *who != lineage);
            state.undo.retain(|undo| undo.lineage != lineage);
        }
        Moment::Started(_)
        | Moment::Measured
        | Moment::OthersTold
        | Moment::ModelAnswered(..)
        | Moment::AccountRemoved { .. }
        | Moment::TeamDeleted { .. }
        | Moment::SettingsChanged => {}
    }
}

/// A newcomer's scope meets others': each owner hears of it with its next handoff. (The newcomer reads it
/// in its first message; to wake the others for it would cost a turn each.)
fn tell_neighbours(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    for other in agents::overlapping(all, &agent) {
        let text = format!(
            "Agent {} ({}) now works in files that you own too: {}. Agree on who changes what.",
            agent.name,
            agent.role,
            agent.scope.join(", ")
        );
        agents::note(all, cx, other, text);
    }
}
