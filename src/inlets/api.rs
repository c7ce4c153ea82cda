//! `/api/inlets`.

use super::{Command, Does, MAX_BODY_BYTES, MAX_WORDS_CHARS, Wish, worker};
use crate::agents;
use crate::api::{Fields, Method, Route, schema_of};
use crate::endpoint::{Access, Handler};
use crate::providers::Permission;
use crate::webhooks::worker_api::secret;
use serde_json::{Value, json};

const AGENT: (u16, &str) = (403, "the caller is an agent");
const UNKNOWN: (u16, &str) = (404, "no such inlet");

/// Whether messages come in by this path. Their signature says who sends: no operator token is asked for.
pub fn is_door(path: &str) -> bool {
    let id = path.strip_prefix("/api/inlets/").and_then(|rest| rest.strip_suffix("/post"));
    id.is_some_and(|id| id.parse::<crate::core::ids::WebhookId>().is_ok())
}

/// The routes of inlets. Who sets one up decides what others may have done here: persons alone.
pub fn routes() -> Vec<Route<Handler>> {
    use Access::{Anyone, OperatorOnly};
    use Handler::{Work, Write};
    vec![
        Route::new(Method::Get, "/api/inlets", "All webhooks in", Work(OperatorOnly, worker::list))
            .replies(&[(200, "inlets"), AGENT]),
        Route::new(
            Method::Post,
            "/api/inlets",
            "Let signed messages start an agent, or say something to one",
            Work(OperatorOnly, worker::create),
        )
        .body(|| schema_of(new))
        .replies(&[
            (201, "the record, and its secret, which is shown once"),
            AGENT,
            (409, "the name is in use, or there are too many"),
        ]),
        Route::new(
            Method::Patch,
            "/api/inlets/:id",
            "Change a webhook in",
            Write(OperatorOnly, |ask| {
                let wish = ask.request.read(wish)?;
                Ok(Command::Change(ask.target(), Box::new(wish)).into())
            }),
        )
        .body(|| schema_of(wish))
        .replies(&[(200, "the record"), AGENT, UNKNOWN]),
        Route::new(
            Method::Delete,
            "/api/inlets/:id",
            "Remove a webhook in, with its secret",
            Write(OperatorOnly, |ask| Ok(Command::Remove(ask.target()).into())),
        )
        .replies(&[(200, "it is gone"), AGENT, UNKNOWN]),
        Route::new(
            Method::Post,
            "/api/inlets/:id/secret",
            "Give a webhook in a new secret; the one before opens nothing any more",
            Work(OperatorOnly, worker::new_secret),
        )
        .body(|| schema_of(secret))
        .replies(&[(200, "the record, and its secret, which is shown once"), AGENT, UNKNOWN]),
        Route::new(
            Method::Post,
            "/api/inlets/:id/post",
            "For others: a signed message",
            Work(Anyone, worker::post),
        )
        .body(|| json!({"description": "text or JSON; it is signed as it stands"}))
        .body_limit(MAX_BODY_BYTES)
        .replies(&[
            (202, "taken, agentId, agentName"),
            (200, "a message with this id was taken before"),
            (401, "signature or time is wrong, or there is no such inlet"),
            (409, "it is disabled, or no agent can be started or told"),
            (429, "too many within a minute, or too many wrong ones from there"),
        ]),
    ]
}

/// Reads `POST /api/inlets`.
pub(super) fn new(fields: &mut Fields) -> Wish {
    fields.required_string("name");
    let wish = wish(fields);
    fields.validator.check(wish.does.is_some() || fields.has("agent") || fields.has("to"), "agent", || {
        "agent or to is required: what a message starts, or whom it is told".into()
    });
    wish
}

/// Reads `PATCH /api/inlets/:id`.
fn wish(fields: &mut Fields) -> Wish {
    fields.tell("name", || json!({"type": "string"}));
    let name = fields.has("name").then(|| fields.title("name"));
    let agent = agent(fields);
    let to = fields.text("to", 100).filter(|to| !to.is_empty()).map(str::to_owned);
    let is_one = agent.is_none() || to.is_none();
    fields.validator.check(is_one, "to", || "a message starts an agent or is told to one, not both".into());
    let does = agent.map(|agent| Does::Task(Box::new(agent))).or(to.map(Does::Message));
    let words = fields.text("words", MAX_WORDS_CHARS).map(str::to_owned);
    Wish { name, does, words, enabled: fields.boolean("enabled") }
}

fn agent(fields: &mut Fields) -> Option<agents::SpawnRequest> {
    fields.tell("agent", || json!({"type": "object"}));
    let Some(object) = fields.value("agent").and_then(Value::as_object) else {
        let is_absent = fields.value("agent").is_none();
        fields.validator.check(is_absent, "agent", || {
            "agent must be an object with the fields of POST /api/agents".into()
        });
        return None;
    };
    match agents::api::spawn_fields(Fields::new(object)) {
        Ok(agent) => {
            fields.validator.check(agent.runner.is_none(), "agent.runner", || {
                "runner must be absent: what a stranger's message starts works here".into()
            });
            let is_shared = agent.isolation == agents::Isolation::Shared || agent.runner.is_some();
            fields.validator.check(is_shared, "agent.isolation", || {
                "isolation must be shared for agents that a webhook starts".into()
            });
            let is_bounded = agent.permission != Permission::Full;
            fields.validator.check(is_bounded, "agent.permission", || {
                "permission must not be full: what the agent is told comes from a stranger".into()
            });
            fields.validator.check(agent.name.is_none(), "agent.name", || {
                "name must be absent: each message starts another agent".into()
            });
            Some(agent)
        }
        Err(problem) => {
            for error in problem.placed("agent") {
                fields.validator.fail(&error.field, error.message);
            }
            None
        }
    }
}
