//! `/api/conflicts` and the question that hooks ask.

use super::Command;
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::core::ids::AgentId;
use crate::endpoint::{Access, Ask, Handler};
use serde_json::json;

/// Characters of a path or tool name.
const MAX_CHARS: usize = 4096;

/// The routes of file ownership.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/conflicts",
            "Writes outside of an agent's scope, newest first",
            Handler::Read(list),
        )
        .replies(&[(
            200,
            "conflicts: ts, agentId, agentName, filePath, ownerId, ownerName, seen, certainty, approvalId, \
             afterRejection",
        )]),
        Route::new(
            Method::Post,
            "/api/hooks/write",
            "Ask whether an agent may write a file (used by svc hook)",
            Handler::Write(Access::Anyone, may_write),
        )
        .body(|| schema_of(|fields| wish(fields, &|| None)))
        .replies(&[(200, "decision allow or deny, reason, approvalId"), (404, "no such agent")]),
    ]
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let conflicts: Vec<_> = ask.state.ownership.conflicts().collect();
    Ok(Reply::ok(&json!({"conflicts": conflicts})))
}

fn may_write(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(ask.request.read(|fields| wish(fields, ask.find_caller))?.into())
}

fn wish(fields: &mut Fields, caller: &dyn Fn() -> Option<AgentId>) -> Command {
    let caller = caller().map(|id| id.to_string());
    fields.tell("agentId", || json!({"description": "filled in when an agent's own process asks"}));
    let agent = fields.string("agentId").map(str::to_owned).or(caller);
    let tool = fields.string("tool").unwrap_or("a tool").to_owned();
    fields.tell("path", || json!({"description": "absolute, or relative to the agent's working directory"}));
    let path = fields.required_string("path").unwrap_or_default().to_owned();
    for (name, text) in [("tool", &tool), ("path", &path)] {
        fields.validator.check(text.chars().count() <= MAX_CHARS, name, || {
            format!("{name} must have at most {MAX_CHARS} characters")
        });
    }
    fields.validator.check(agent.is_some(), "agentId", || {
        "agentId is required unless an agent's own process asks".to_owned()
    });
    Command::MayWrite { agent: agent.unwrap_or_default(), tool, path }
}
