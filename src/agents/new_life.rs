//! What is written down of an agent as a life of it begins.

use super::open_tools::OpenTools;
use super::reason::Reason;
use super::record::{Agent, Attached, Opening, Phase, Status};
use super::spawn::SpawnRequest;
use super::touched::OpenFiles;
use crate::core::ids::{AgentId, LineageId};
use crate::core::{Context, State as All};
use crate::providers::Tokens;
use std::collections::BTreeMap;
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
#[allow(clippy::too_many_lines, reason = "a line for each thing that is written down")]
pub(super) fn first(all: &All, cx: &Context, (id, lineage_id): Ids, request: SpawnRequest) -> Agent {
    Agent {
        id,
        lineage_id,
        predecessor_id: None,
        name: request.name.unwrap_or_else(|| default_name(all, &request.role)),
        role: request.role,
        model: request.model.or_else(|| default_model(all, request.provider.as_deref()?)),
        provider: request.provider.unwrap_or_default(),
        actual_model: None,
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
        started_by: None,
        fenced: false,
        env: Arc::new(request.env),
        prompt: request.prompt.into(),
        status: Status::Starting,
        status_since: cx.now,
        status_reason: Reason::Starting.into(),
        spawned_at: cx.now,
        last_activity: cx.now,
        current_activity: None,
        pid: None,
        start_ticks: 0,
        session_id: None,
        left_sessions: Arc::default(),
        session_counted: request.copies.as_ref().map(|copied| copied.counted).unwrap_or_default(),
        tokens: Tokens::default(),
        instance_tokens: Tokens::default(),
        context_tokens: 0,
        context_window: 0,
        cost_usd: 0.0,
        unpriced_tokens: 0,
        turns: 0,
        exit: None,
        error: None,
        queue: Vec::new(),
        files: Arc::new(BTreeMap::new()),
        last_turn: None,
        turn_open: true,
        held: None,
        on_limit: request.on_limit,
        account: request.account,
        priority: request.priority,
        runner: request.runner,
        moving: None,
        queued: None,
        put_away: None,
        frozen: None,
        told: None,
        tries: 0,
        under_way: Vec::new(),
        turn_presumed: false,
        open_tools: OpenTools::default(),
        limit: None,
        session_confirmed: false,
        attached: Attached::No,
        heard: 0,
        opening: Opening::copying(request.copies),
        open_files: OpenFiles::default(),
        near_ceiling: None,
        stalled: false,
        phase: Phase::Working,
    }
}

/// The next life of `old`: same lineage, name, settings and counters; nothing of its process.
pub(super) fn next(old: &Agent, id: AgentId, cx: &Context) -> Agent {
    let is_named = old.model.as_deref().is_some_and(|model| old.actual_model.as_deref() != Some(model));
    Agent {
        id,
        predecessor_id: Some(old.id),
        // Its program runs what is named for it now; what it was set to itself has hardly changed.
        actual_model: if is_named { None } else { old.actual_model.clone() },
        context_window: if is_named { 0 } else { old.context_window },
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
        opening: None,
        open_files: OpenFiles::default(),
        near_ceiling: None,
        stalled: false,
        phase: Phase::Working,
        ..old.clone()
    }
}
