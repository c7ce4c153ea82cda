//! What somebody may do, and so what he may let another do: rights never grow on their way from a person over
//! an agent to the agents that it starts, by whichever door they are started.
//!
//! ```text
//! a person ── top ──▶ agent ── child() ──▶ agent ── child() ──▶ ..
//!                        └── child() ──▶ schedule, plan: it keeps them, and starts with them later
//! ```
//! **Invariant:** every agent is started with what [`Rights::child`] gives out of its maker's rights.

use super::Isolation;
use super::{Agent, Command, Patch, SpawnRequest};
use crate::api::Problem;
use crate::core::ids::{AgentId, LineageId, UNKNOWN_AGENT};
use crate::core::{Actor, Context, State as All};
use crate::providers::{self, Permission};
use crate::settings::Enforcement;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use svc_base::scopes;

/// What somebody may do. What is absent in a file of an earlier version was a person's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Rights {
    /// The globs it may write to unasked; `None` is the whole project.
    pub scope: Option<Vec<String>>,
    /// The folder that the kernel fences it into although it has no scope; empty for none.
    pub folder: String,
    /// Whether the kernel fences it into its project, and so everything it starts.
    pub fenced: bool,
    /// What its program may do unasked.
    pub permission: Permission,
    /// The integrations it may call; `None` is all.
    pub integrations: Option<Vec<String>>,
    /// Whether all it does stays in git worktrees, for a person to merge.
    pub isolated: bool,
    /// The one command it may have run as an agent (provider `acp`); `None` is any.
    pub command: Option<Vec<String>>,
}

impl Default for Rights {
    fn default() -> Self {
        Self {
            scope: None,
            folder: String::new(),
            fenced: false,
            permission: Permission::Full,
            integrations: None,
            isolated: false,
            command: None,
        }
    }
}

/// Which right is missing, in words that follow "may not".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Rights {
    /// Those of an agent.
    pub fn of(all: &All, agent: &Agent) -> Self {
        let is_bound = all.settings.config().enforcement == Enforcement::Kernel;
        let has_full = agent.permission == Permission::Full;
        Self {
            scope: (!agent.scope.is_empty()).then(|| agent.scope.to_vec()),
            folder: if is_bound && agent.scope.is_empty() {
                tidied(&agent.working_dir)
            } else {
                String::new()
            },
            fenced: self::is_fenced(all, agent),
            permission: agent.permission,
            integrations: Some(agent.integrations.to_vec()),
            isolated: agent.isolation == Isolation::Worktree,
            command: (!has_full).then(|| agent.command.to_vec()),
        }
    }

    /// What `asked` gets from somebody with these rights: what it asks for, or the maker's own where it
    /// leaves the scope open.
    ///
    /// Errors: it asks for more than there is to give.
    pub fn child(&self, asked: &SpawnRequest) -> Result<Self, Refusal> {
        let refuse = |text: String| Err(Refusal(text));
        if asked.permission == Permission::Full && self.permission != Permission::Full {
            return refuse("give the full permission, which it does not have itself".into());
        }
        if self.isolated && asked.isolation != Isolation::Worktree {
            let text = "start agents outside of git worktrees, for it works in one itself; ask for isolation \
                        worktree";
            return refuse(text.into());
        }
        let scope = self.child_scope(asked)?;
        let foreign = |id: &&String| self.integrations.as_ref().is_some_and(|own| !own.contains(id));
        if let Some(id) = asked.integrations.iter().find(foreign) {
            return refuse(format!("attach integration {id:?}, which is not attached to itself"));
        }
        if self.command.as_ref().is_some_and(|own| !asked.command.is_empty() && *own != asked.command) {
            return refuse("choose the command of an agent without the full permission".into());
        }
        Ok(Self {
            folder: if scope.is_none() { self.folder.clone() } else { String::new() },
            scope,
            fenced: self.fenced,
            permission: asked.permission,
            integrations: Some(asked.integrations.clone()),
            isolated: asked.isolation == Isolation::Worktree,
            command: (asked.permission != Permission::Full).then(|| asked.command.clone()),
        })
    }

    fn child_scope(&self, asked: &SpawnRequest) -> Result<Option<Vec<String>>, Refusal> {
        let Some(own) = &self.scope else {
            let stays = |place: &str| is_below(&self.folder, place);
            let outside = if asked.scope.is_empty() {
                !stays(&asked.working_dir)
            } else {
                !asked.scope.iter().all(|glob| stays(glob))
            };
            if outside {
                let text = format!("reach beyond its own folder {:?}; give a workingDir in it", self.folder);
                return Err(Refusal(text));
            }
            return Ok((!asked.scope.is_empty()).then(|| asked.scope.clone()));
        };
        if asked.scope.is_empty() {
            return Ok(Some(own.clone()));
        }
        match asked.scope.iter().find(|glob| !own.iter().any(|wide| scopes::covers(wide, glob))) {
            Some(glob) => {
                Err(Refusal(format!("give scope {glob:?}, which is not in its own: {}", own.join(" "))))
            }
            None => Ok(Some(asked.scope.clone())),
        }
    }

    /// Whether nothing in `other` is beyond these.
    pub fn cover(&self, other: &Self) -> bool {
        let asked = SpawnRequest {
            scope: other.scope.clone().unwrap_or_default(),
            working_dir: other.folder.clone(),
            permission: other.permission,
            integrations: other.integrations.clone().unwrap_or_default(),
            isolation: if other.isolated { Isolation::Worktree } else { Isolation::Shared },
            ..SpawnRequest::default()
        };
        // What is open in the other must be open here: there is nothing to inherit it from.
        let is_open = (!self.fenced || other.fenced)
            && (self.scope.is_none() || other.scope.is_some())
            && (self.integrations.is_none() || other.integrations.is_some());
        is_open && self.child(&asked).is_ok()
    }
}

/// Whether the kernel keeps an agent's writing in its project, whatever `enforcement` says of scopes.
pub fn is_fenced(all: &All, agent: &Agent) -> bool {
    let needs = || providers::info_of(&agent.provider).needs_fence;
    all.project.can_fence && agent.permission == Permission::Auto && (agent.fenced || needs())
}

fn tidied(folder: &str) -> String {
    folder.split('/').filter(|part| !matches!(*part, "" | ".")).collect::<Vec<_>>().join("/")
}

/// Whether a folder or glob stays below a folder; everything is below the project itself.
fn is_below(folder: &str, place: &str) -> bool {
    let place = tidied(place);
    folder.is_empty()
        || place == folder
        || place.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Who starts agents, now or by a schedule or plan later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Maker {
    /// The agent, over all its lives; `None` for a person and the daemon.
    pub lineage: Option<LineageId>,
    /// What it may give.
    pub rights: Rights,
}

impl Maker {
    /// A person, or the daemon for one: the top.
    pub fn person() -> Self {
        Self::default()
    }

    /// Who stands behind an event.
    ///
    /// Errors: 403 `agent_may_not` for a process whose agent nobody knows (any more): it has no rights.
    pub fn of(all: &All, actor: &Actor) -> Result<Self, Problem> {
        let Some(caller) = actor.agent() else { return Ok(Self::person()) };
        let agent = known(all, caller).ok_or_else(|| refusal(caller, "start agents"))?;
        Ok(Self { lineage: Some(agent.lineage_id), rights: Rights::of(all, agent) })
    }

    /// Whether what it starts with this program is fenced in: it is itself, or the program would do unasked
    /// what it may not.
    pub fn fences(&self, program: &providers::Info) -> bool {
        let is_unasked = self.rights.permission != Permission::Full && program.scripted;
        self.rights.fenced || (self.lineage.is_some() && is_unasked)
    }

    /// Cuts a request down to what this maker may give.
    ///
    /// Errors: 403 `agent_may_not` when it asks for more.
    pub fn meet(&self, all: &All, request: &mut SpawnRequest) -> Result<(), Problem> {
        let own = self.lineage.and_then(|lineage| all.agents.by_lineage(lineage));
        let who = || own.map_or_else(|| "unknown".into(), |agent| agent.id.to_string());
        let may_not = |what: &str| refused(&format!("agent {} may not {what}", who()));
        let given = self.rights.child(request).map_err(|Refusal(what)| may_not(&what))?;
        request.scope = given.scope.unwrap_or_default();
        let own_team = own.and_then(|agent| agent.team_id.as_deref());
        match request.team_id.as_deref() {
            // Its agents get the key of a toy.
            Some(team) if self.lineage.is_some() && Some(team) != own_team && holds_key(all, team) => {
                Err(may_not("put an agent into the team of a toy, which it is not in itself"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the agent behind an event made this, itself or through agents that it started; a person always
    /// counts.
    pub fn is_or_serves(&self, all: &All, actor: &Actor) -> bool {
        let Some(caller) = actor.agent() else { return true };
        known(all, caller).is_some_and(|agent| descends(all, self.lineage, agent.lineage_id))
    }
}

/// Whether the agents of a team get a key.
pub fn holds_key(all: &All, team: &str) -> bool {
    let Ok(id) = team.parse() else { return false };
    all.teams.get(id).is_some_and(|team| team.toy_id.is_some())
}

/// Whether somebody may decide about an agent: a person, the agent itself, whoever started it, or an agent
/// whose rights hold all of its own.
///
/// Errors: 403 `agent_may_not`.
pub fn may_act(all: &All, actor: &Actor, target: &Agent, deed: &str) -> Result<(), Problem> {
    let Some(caller) = actor.agent() else { return Ok(()) };
    let Some(own) = known(all, caller) else { return Err(refusal(caller, deed)) };
    let is_its = own.lineage_id == target.lineage_id || descends(all, target.started_by, own.lineage_id);
    if is_its || Rights::of(all, own).cover(&Rights::of(all, target)) {
        return Ok(());
    }
    let name = &target.name;
    Err(refusal(caller, &format!("{deed} {name}: it has not started it, and {name} may do more than itself")))
}

/// Whether `made` is `maker`, or was started by it over any number of generations. A generation without a
/// record ends the search.
fn descends(all: &All, made: Option<LineageId>, maker: LineageId) -> bool {
    let mut at = made;
    for _ in 0..=all.agents.iter().count() {
        match at {
            Some(lineage) if lineage == maker => return true,
            Some(lineage) => at = all.agents.by_lineage(lineage).and_then(|agent| agent.started_by),
            None => return false,
        }
    }
    false
}

/// The record of a caller, under whichever id of its lives its process knows itself.
pub fn known(all: &All, caller: AgentId) -> Option<&Arc<Agent>> {
    if caller == UNKNOWN_AGENT {
        return None;
    }
    all.agents.find(&caller.to_string()).ok().filter(|agent| {
        // A name that looks like an id is nobody's id.
        agent.id == caller || agent.name != caller.to_string()
    })
}

/// 403 for an agent, with what it may not do.
pub fn refusal(caller: AgentId, what: &str) -> Problem {
    if caller == UNKNOWN_AGENT {
        return refused(&format!("a process that has left its agent may not {what}"));
    }
    refused(&format!("agent {caller} may not {what}"))
}

fn refused(words: &str) -> Problem {
    Problem::new(403, "agent_may_not", format!("{words}; a person has to, outside of an agent"))
}

/// What an agent may not do to itself or another: give more freedom than it has, or decide about agents
/// that may do more than itself and that it has not started. What it starts is looked at by
/// [`super::spawn_agent`].
///
/// Errors: 403 `agent_may_not`.
pub(super) fn may(all: &All, cx: &Context, command: &Command) -> Result<(), Problem> {
    let Some(caller) = cx.actor.agent() else { return Ok(()) };
    let (target, deed) = match command {
        Command::Spawn(_) => return Ok(()),
        Command::Patch(target, _) => (target, "change"),
        Command::Delete(target) => (target, "end"),
        Command::Instruct { target, .. } => (target, "instruct"),
        Command::Query { target, .. } => (target, "question"),
        Command::Rotate(target) => (target, "rotate"),
        Command::Resume { target, .. } => (target, "resume"),
        Command::Attach(target, _) | Command::GiveBack(target) => (target, "take over"),
        Command::Move(..) => return Err(refusal(caller, "move an agent to another machine")),
    };
    // Nobody of that name: the command itself says so.
    let Ok(agent) = all.agents.find(target) else { return Ok(()) };
    let own = known(all, caller);
    let has_full = own.is_some_and(|own| own.permission == Permission::Full);
    match command {
        // An answer is no deed: another scope may be asked, another permission not.
        Command::Query { .. } if own.is_some() && (has_full || agent.permission != Permission::Full) => {
            Ok(())
        }
        Command::Patch(_, patch) if patch.permission == Some(Permission::Full) && !has_full => {
            Err(refusal(caller, "give the full permission, which it does not have itself"))
        }
        Command::Patch(_, patch) if patch.on_limit.is_some() => {
            Err(refusal(caller, "say what an agent does at a limit"))
        }
        Command::Patch(_, patch) if patch.scope.is_some() => {
            Err(refusal(caller, "change which files an agent owns"))
        }
        Command::Patch(_, patch) if patch.team_id.is_some() && joins_key(all, own, patch) => {
            Err(refusal(caller, "put an agent into the team of a toy, which it is not in itself"))
        }
        _ => may_act(all, &cx.actor, agent, deed),
    }
}

/// Whether a change gives an agent the key of a team that its own maker has not.
fn joins_key(all: &All, own: Option<&Arc<Agent>>, patch: &Patch) -> bool {
    let Some(Ok(team)) = patch.team_id.as_deref().map(|team| all.teams.find(team)) else { return false };
    let id = team.id.to_string();
    holds_key(all, &id) && own.and_then(|own| own.team_id.as_deref()) != Some(id.as_str())
}
