//! `PATCH /api/agents/:id`: what may change while an agent lives. Model, effort and permission take
//! effect with its next life.

use super::Isolation;
use super::touch;
use crate::api::{Problem, Reply, Validator};
use crate::core::ids::AgentId;
use crate::core::{Context, Durability, State as All};
use crate::providers::{Effort, Permission};
use crate::settings::OnLimit;
use crate::usage;
use serde_json::{Value, json};
use std::sync::Arc;
use svc_base::names;

/// The changes; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Patch {
    pub name: Option<String>,
    pub scope: Option<Vec<String>>,
    /// A new model; `Some(None)` routes.
    pub model: Option<Option<String>>,
    pub effort: Option<Effort>,
    pub permission: Option<Permission>,
    /// Another team, by id or name; `__unassigned__` for none.
    pub team_id: Option<String>,
    /// What it does at its provider's limit.
    pub on_limit: Option<OnLimit>,
}

/// Applies the changes: 200 with the record.
///
/// Errors: 404, 400 for a name in use or an unknown team.
pub fn apply(all: &mut All, cx: &mut Context, target: &str, patch: Patch) -> Result<Reply, Problem> {
    let id = all.agents.find(target)?.id;
    let mut validator = Validator::default();
    let team = patch.team_id.as_deref().map(|team| all.teams.member_of(team, &mut validator));
    if let Some(name) = &patch.name {
        let taken = all.agents.iter().any(|other| other.id != id && other.name == *name);
        validator
            .check(!taken, "name", || format!("name {name:?} is in use by another agent, choose another"));
    }
    validator.finish()?;
    let told = told(&patch);
    let is_model = patch.model.is_some();
    let agents = Arc::make_mut(&mut all.agents);
    if let Some(agent) = agents.edit(id) {
        if let Some(name) = patch.name {
            agent.name = name;
        }
        if let Some(scope) = patch.scope {
            agent.scope = Arc::new(scope);
        }
        if let Some(model) = patch.model.filter(|model| *model != agent.model) {
            agent.model = model;
            // Of the running program's model it is told again with the next figures.
            agent.context_window = 0;
        }
        agent.on_limit = patch.on_limit.or(agent.on_limit);
        agent.effort = patch.effort.unwrap_or(agent.effort);
        agent.permission = patch.permission.unwrap_or(agent.permission);
        if let Some(team) = team {
            agent.team_id = team;
        }
    }
    if let Some(agent) = all.agents.get(id).cloned().filter(|_| is_model) {
        usage::routing::decide(all, cx, &agent);
    }
    let name = all.agents.get(id).map(|agent| agent.name.clone());
    cx.audit("agent.patch", &json!({"agentId": id, "name": name, "changes": told}));
    touch(all, cx, Durability::BeforeReply);
    let agent = all.agents.find(&id.to_string())?;
    let mut body = json!(agent.rest());
    body["overlaps"] = super::scope::overlaps_with(all, agent).into();
    Ok(Reply::ok(&body))
}

/// What the audit log has of a change: each field that was given, with its new value.
fn told(patch: &Patch) -> Value {
    let model = patch.model.as_ref().map(|model| model.as_deref().unwrap_or("auto"));
    let mut told = json!({
        "name": patch.name, "scope": patch.scope, "model": model, "effort": patch.effort,
        "permission": patch.permission, "teamId": patch.team_id, "onLimit": patch.on_limit,
    });
    if let Some(fields) = told.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    told
}

/// Moves every agent of one team to another.
pub fn change_team(all: &mut All, cx: &mut Context, from: &str, to: &str) {
    let members: Vec<_> = all.agents.iter().filter(|agent| agent.team_id.as_deref() == Some(from)).collect();
    let ids: Vec<_> = members.into_iter().map(|agent| agent.id).collect();
    join_team(all, cx, &ids, to);
}

/// Makes agents members of a team.
pub fn join_team(all: &mut All, cx: &mut Context, ids: &[AgentId], team: &str) {
    if ids.is_empty() {
        return;
    }
    let agents = Arc::make_mut(&mut all.agents);
    for id in ids {
        if let Some(agent) = agents.edit(*id) {
            agent.team_id = Some(team.to_owned());
        }
    }
    touch(all, cx, Durability::BeforeReply);
}

/// Lets a successor in name have the name of an agent that has ended: its record gets a number behind a
/// dot. The caller starts the successor in the same event, which writes the registry.
pub fn give_up_name(all: &mut All, name: &str) {
    let holder = all.agents.iter().find(|agent| agent.name == name && !agent.status.is_live());
    let Some(id) = holder.map(|agent| agent.id) else { return };
    let free = names::numbered(|name| all.agents.has_name(name), |n| format!("{name}.{n}"));
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
        agent.name = free;
    }
}

/// An ended agent has no worktree any more: its next life works in the project's folder, and in a session of
/// its own, for a provider finds its sessions by their folder.
pub fn leave_worktree(all: &mut All, cx: &mut Context, id: AgentId) {
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
        agent.worktree = None;
        agent.isolation = Isolation::Shared;
        agent.change_session(None);
    }
    touch(all, cx, Durability::BeforeReply);
}
