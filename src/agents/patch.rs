//! `PATCH /api/agents/:id`: what may change while an agent lives. Model, effort and permission take
//! effect with its next life.

use super::touch;
use crate::api::{Problem, Reply, Validator};
use crate::core::{Context, Durability, State as All};
use crate::providers::{Effort, Permission};
use serde_json::json;
use std::sync::Arc;

/// The changes; `None` leaves a field as it is.
#[derive(Debug, Clone, Default)]
pub struct Patch {
    /// A new name.
    pub name: Option<String>,
    /// A new scope.
    pub scope: Option<Vec<String>>,
    /// A new model; `Some(None)` routes.
    pub model: Option<Option<String>>,
    /// Another effort.
    pub effort: Option<Effort>,
    /// Another permission.
    pub permission: Option<Permission>,
    /// Another team.
    pub team_id: Option<String>,
}

/// Applies the changes: 200 with the record.
///
/// Errors: 404, 400 for a name in use.
pub fn apply(all: &mut All, cx: &mut Context, target: &str, patch: Patch) -> Result<Reply, Problem> {
    let id = all.agents.find(target)?.id;
    if let Some(name) = &patch.name {
        let mut validator = Validator::default();
        let taken = all.agents.iter().any(|other| other.id != id && other.name == *name);
        validator
            .check(!taken, "name", || format!("name {name:?} is in use by another agent, choose another"));
        validator.finish()?;
    }
    let agents = Arc::make_mut(&mut all.agents);
    if let Some(agent) = agents.edit(id) {
        if let Some(name) = patch.name {
            agent.name = name;
        }
        if let Some(scope) = patch.scope {
            agent.scope = Arc::new(scope);
        }
        if let Some(model) = patch.model {
            agent.model = model;
        }
        agent.effort = patch.effort.unwrap_or(agent.effort);
        agent.permission = patch.permission.unwrap_or(agent.permission);
        if patch.team_id.is_some() {
            agent.team_id = patch.team_id;
        }
    }
    touch(all, cx, Durability::BeforeReply);
    let agent = all.agents.find(&id.to_string())?;
    let mut body = json!(agent.rest());
    body["overlaps"] = super::spawn::overlaps_with(all, agent).into();
    Ok(Reply::ok(&body))
}
