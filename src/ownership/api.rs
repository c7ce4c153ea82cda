//! `/api/conflicts` and the question that hooks ask.

use super::Command;
use crate::api::{Fields, Method, Problem, Reply, Route};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::{Value, json};

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
        .body(schema)
        .replies(&[(200, "decision allow or deny, reason, approvalId"), (404, "no such agent")]),
    ]
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let conflicts: Vec<_> = ask.state.ownership.conflicts().collect();
    Ok(Reply::ok(&json!({"conflicts": conflicts})))
}

fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["path"],
        "properties": {
            "agentId": {"type": "string", "description": "filled in when an agent's own process asks"},
            "tool": {"type": "string"},
            "path": {"type": "string", "description": "absolute, or relative to the agent's working directory"},
        },
    })
}

fn may_write(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let object = ask.request.object()?;
    let mut fields = Fields::new(&object);
    let caller = ask.caller().map(|id| id.to_string());
    let agent = fields.string("agentId").map(str::to_owned).or(caller);
    let tool = fields.string("tool").unwrap_or("a tool").to_owned();
    let path = fields.required_string("path").unwrap_or_default().to_owned();
    for (name, text) in [("tool", &tool), ("path", &path)] {
        fields.validator.check(text.chars().count() <= MAX_CHARS, name, || {
            format!("{name} must have at most {MAX_CHARS} characters")
        });
    }
    fields.validator.check(agent.is_some(), "agentId", || {
        "agentId is required unless an agent's own process asks".to_owned()
    });
    fields.validator.finish()?;
    let agent = agent.unwrap_or_default();
    Ok(crate::core::Command::Ownership(Command::MayWrite { agent, tool, path }))
}
