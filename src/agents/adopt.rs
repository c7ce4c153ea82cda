//! A session that a person had with a program becomes an agent: one that waits without a process, and goes on
//! in that session with the next thing it is told.
//!
//! **Invariant:** a session belongs to one agent at most.

use super::put_away::PutAway;
use super::reason::Reason;
use super::record::{Agent, FileTouch, Phase, Status};
use super::{SpawnRequest, new_life, spawn, touch};
use crate::api::{Problem, Reply};
use crate::core::ids::{AgentId, LineageId};
use crate::core::{Context, Document, Durability, Effect, Moment, State as All};
use crate::providers::Tokens;
use crate::usage;
use serde_json::json;
use std::sync::Arc;
use svc_base::sorted::Gather;

/// What was read of the session. Its history stands in the log already.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Adopted {
    /// Nobody's so far, as is `lineage`.
    pub id: AgentId,
    pub lineage: LineageId,
    /// Name, role, scope and permission that a person gives it, and its provider, folder and account.
    pub request: SpawnRequest,
    pub session: String,
    pub model: Option<String>,
    /// All that its program has counted for it.
    pub tokens: Tokens,
    /// What its program goes on counting from.
    pub counted: Tokens,
    pub context_tokens: u64,
    pub context_window: u64,
    pub turns: u64,
    pub files: Vec<(String, FileTouch)>,
}

/// Whose session it is, or was.
pub fn owner<'a>(all: &'a All, provider: &str, session: &str) -> Option<&'a Arc<Agent>> {
    all.agents.iter().find(|agent| agent.has_session(provider, session))
}

/// Whether a session may become an agent of this name, if one is given.
///
/// Errors: 409 `session_owned`, `capacity`, 400 for a name in use.
pub fn check(all: &All, provider: &str, session: &str, name: Option<&str>) -> Result<(), Problem> {
    if let Some(agent) = owner(all, provider, session) {
        let text = format!("the session is that of {} already; talk to it: svc instruct {0}", agent.name);
        return Err(Problem::new(409, "session_owned", text));
    }
    if let Some(name) = name.filter(|name| all.agents.has_name(name)) {
        let text = format!("name {name:?} is in use by another agent, choose another");
        return Err(Problem::new(409, "name_in_use", text));
    }
    spawn::check_capacity(all)
}

/// Makes the agent.
///
/// Errors: as [`check`], and 409 `id_in_use` where chance has drawn an id twice.
pub fn adopt(all: &mut All, cx: &mut Context, adopted: Adopted) -> Result<Reply, Problem> {
    let Adopted { id, lineage, request, session, .. } = adopted;
    let provider = request.provider.clone().unwrap_or_default();
    check(all, &provider, &session, request.name.as_deref())?;
    if all.agents.knows_id(id.0) || all.agents.knows_id(lineage.0) || id.0 == lineage.0 {
        return Err(Problem::new(409, "id_in_use", "the id that was drawn is in use; try again"));
    }
    let mut agent = new_life::first(all, cx, (id, lineage), request);
    agent.actual_model = adopted.model;
    agent.session_id = Some(session);
    agent.session_confirmed = true;
    (agent.tokens, agent.session_counted) = (adopted.tokens, adopted.counted);
    (agent.context_tokens, agent.context_window) = (adopted.context_tokens, adopted.context_window);
    agent.turns = adopted.turns;
    agent.files = Arc::new(adopted.files.into_iter().gather());
    agent.turn_open = false;
    agent.phase = Phase::Ended;
    agent.put_away = Some(Box::new(PutAway { at: cx.now, is_gone: true }));
    let text =
        format!("a session of yours: it goes on there with the next word (svc instruct {})", agent.name);
    let reason = Reason::Adopted { text };
    agent.set_status(cx.now, Status::Waiting, reason);
    cx.audit(
        "agent.adopt",
        &json!({
            "agentId": id, "name": agent.name, "role": agent.role, "provider": provider,
            "account": agent.account_name(), "session": agent.session_id,
        }),
    );
    let (cost, unpriced) = usage::adopted(all, cx, &agent);
    (agent.cost_usd, agent.unpriced_tokens) = (cost, unpriced);
    cx.push(Effect::Put(Document::Prompt(lineage), Durability::BeforeReply));
    let reply = Reply::json(201, &json!(agent.rest()));
    Arc::make_mut(&mut all.agents).insert(agent);
    touch(all, cx, Durability::BeforeReply);
    cx.moment(Moment::Spawned(id));
    cx.moment(Moment::PutAway(id));
    Ok(reply)
}
