//! What is written down of an agent as a life of it begins.

use super::open_tools::OpenTools;
use super::reason::Reason;
use super::record::{Agent, Opening, Phase, Status};
use super::spawn::SpawnRequest;
use super::touched::OpenFiles;
use crate::core::ids::{AgentId, LineageId};
use crate::core::{Context, State as All};
use crate::providers::Tokens;
use std::sync::Arc;
use svc_base::names;

fn default_name(all: &All, role: &str) -> String {
    names::numbered(|name| all.agents.has_name(name), |n| format!("{role}-{n}"))
}

/// The model of an agent that names none, where the settings name one for its provider.
fn default_model(all: &All, provider: &str) -> Option<String> {
    let config = all.settings.config();
    let is_default = provider == config.default_provider && config.default_model != "auto";
    is_default.then(|| config.default_model.clone())
}

/// Of a life, and of all its lives.
type Ids = (AgentId, LineageId);

/// The first life of a lineage, as it was asked for.
pub(super) fn first(all: &All, cx: &Context, (id, lineage_id): Ids, request: SpawnRequest) -> Agent {
    let asked = Agent {
        id,
        lineage_id,
        name: request.name.unwrap_or_else(|| default_name(all, &request.role)),
        role: request.role,
        model: request.model.or_else(|| default_model(all, request.provider.as_deref()?)),
        provider: request.provider.unwrap_or_default(),
        scope: Arc::new(request.scope),
        working_dir: request.working_dir,
        integrations: Arc::new(request.integrations),
        skills: Arc::new(request.skills),
        permission: request.permission,
        effort: request.effort,
        team_id: request.team_id,
        isolation: request.isolation,
        worktree: request.worktree,
        command: Arc::new(request.command),
        env: Arc::new(request.env),
        prompt: request.prompt.into(),
        session_counted: request.copies.as_ref().map(|copied| copied.counted).unwrap_or_default(),
        on_limit: request.on_limit,
        account: request.account,
        priority: request.priority,
        runner: request.runner,
        opening: Opening::copying(request.copies),
        ..Agent::default()
    };
    begins(asked, cx)
}

/// The next life of `old`: same lineage, name, settings and counters; nothing of its process.
pub(super) fn next(old: &Agent, id: AgentId, cx: &Context) -> Agent {
    let is_named = old.model.as_deref().is_some_and(|model| old.actual_model.as_deref() != Some(model));
    let next = Agent {
        id,
        predecessor_id: Some(old.id),
        // Its program runs what is named for it now; what it was set to itself has hardly changed.
        actual_model: if is_named { None } else { old.actual_model.clone() },
        context_window: if is_named { 0 } else { old.context_window },
        opening: None,
        ..old.clone()
    };
    begins(next, cx)
}

/// A life that begins now: nothing is known of its process yet.
fn begins(agent: Agent, cx: &Context) -> Agent {
    Agent {
        status: Status::Starting,
        status_since: cx.now,
        status_reason: Reason::Starting.into(),
        spawned_at: cx.now,
        last_activity: cx.now,
        current_activity: None,
        pid: None,
        start_ticks: 0,
        instance_tokens: Tokens::default(),
        exit: None,
        error: None,
        last_turn: None,
        turn_open: true,
        told: None,
        put_away: None,
        frozen: None,
        turn_presumed: false,
        open_tools: OpenTools::default(),
        limit: None,
        session_confirmed: false,
        heard: 0,
        open_files: OpenFiles::default(),
        near_ceiling: None,
        stalled: false,
        phase: Phase::Working,
        ..agent
    }
}
