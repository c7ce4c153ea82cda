//! `/api/webhooks`.

use super::{Command, MAX_PATTERNS, Wish, events, is_pattern, worker_api};
use crate::api::{Fields, Method, Route, schema_of};
use crate::endpoint::{Access, Handler};
use serde_json::json;
use svc_base::outgoing;

/// Characters of an address.
const MAX_URL_CHARS: usize = 1_000;

const AGENT: (u16, &str) = (403, "the caller is an agent");
const UNKNOWN: (u16, &str) = (404, "no such webhook");

/// The routes of webhooks. Whoever names an address decides who hears of the project: persons alone.
pub fn routes() -> Vec<Route<Handler>> {
    let mut routes = records();
    routes.extend(messages());
    routes
}

fn records() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::{Work, Write};
    vec![
        Route::new(Method::Get, "/api/webhooks", "All webhooks", Work(OperatorOnly, worker_api::list))
            .replies(&[(200, "webhooks, and events: what there is to choose from"), AGENT]),
        Route::new(
            Method::Post,
            "/api/webhooks",
            "Have events posted to an address, signed",
            Work(OperatorOnly, worker_api::create),
        )
        .body(|| schema_of(new))
        .replies(&[
            (201, "the record, and its secret, which is shown once"),
            AGENT,
            (409, "the name is in use, or there are too many"),
        ]),
        Route::new(
            Method::Patch,
            "/api/webhooks/:id",
            "Change a webhook",
            Write(OperatorOnly, |ask| {
                let wish = ask.request.read(wish)?;
                Ok(Command::Change(ask.target(), Box::new(wish)).into())
            }),
        )
        .body(|| schema_of(wish))
        .replies(&[(200, "the record"), AGENT, UNKNOWN]),
        Route::new(
            Method::Delete,
            "/api/webhooks/:id",
            "Remove a webhook with its secret and its messages",
            Write(OperatorOnly, |ask| Ok(Command::Remove(ask.target()).into())),
        )
        .replies(&[(200, "it is gone"), AGENT, UNKNOWN]),
        Route::new(
            Method::Post,
            "/api/webhooks/:id/secret",
            "Give a webhook a new secret; the one before signs, too, for a day",
            Work(OperatorOnly, worker_api::new_secret),
        )
        .body(|| schema_of(worker_api::secret))
        .replies(&[(200, "the record, and its secret, which is shown once"), AGENT, UNKNOWN]),
    ]
}

fn messages() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::{Work, Write};
    vec![
        Route::new(
            Method::Get,
            "/api/webhooks/:id/messages",
            "What waits to be sent, and what was given up",
            Work(OperatorOnly, worker_api::messages),
        )
        .replies(&[
            (200, "waiting and dead: id, event, at, tries, nextAt, error, body of each"),
            AGENT,
            UNKNOWN,
        ]),
        Route::new(
            Method::Post,
            "/api/webhooks/:id/test",
            "Send a test message",
            Write(OperatorOnly, |ask| Ok(Command::Test(ask.target()).into())),
        )
        .replies(&[(202, "webhookId, message: its id"), AGENT, UNKNOWN, (409, "it is disabled")]),
        Route::new(
            Method::Post,
            "/api/webhooks/:id/resend",
            "Send messages again that were given up",
            Write(OperatorOnly, |ask| {
                let message = if ask.request.body.is_empty() { None } else { ask.request.read(which)? };
                Ok(Command::Resend(ask.target(), message).into())
            }),
        )
        .body(|| schema_of(which))
        .replies(&[
            (200, "sent: the ids, dead: how many are left"),
            AGENT,
            (404, "no such webhook or message"),
            (409, "too many wait"),
        ]),
    ]
}

fn which(fields: &mut Fields) -> Option<String> {
    fields.text("message", 100).map(str::to_owned)
}

/// Reads `POST /api/webhooks`.
pub(super) fn new(fields: &mut Fields) -> Wish {
    fields.required_string("url");
    fields.tell_required("events");
    let wish = wish(fields);
    fields.validator.check(wish.events.is_some(), "events", || "events is required, a list of names".into());
    wish
}

/// Reads `PATCH /api/webhooks/:id`.
pub(super) fn wish(fields: &mut Fields) -> Wish {
    let name = fields.has("name").then(|| fields.title("name"));
    fields.tell("url", || json!({"maxLength": MAX_URL_CHARS}));
    let url = fields.text("url", MAX_URL_CHARS).map(str::to_owned);
    if let Some(url) = &url {
        let is_guarded = outgoing::is_guarded(url);
        fields.validator.check(is_guarded, "url", || format!("url must be {}", outgoing::RULE));
    }
    Wish { name, url, events: patterns(fields), enabled: fields.boolean("enabled") }
}

fn patterns(fields: &mut Fields) -> Option<Vec<String>> {
    fields.tell("events", || json!({"minItems": 1, "maxItems": MAX_PATTERNS}));
    let list = fields.strings("events")?;
    fields.validator.check((1..=MAX_PATTERNS).contains(&list.len()), "events", || {
        format!("events must list 1 to {MAX_PATTERNS} names, it lists {}", list.len())
    });
    for pattern in &list {
        fields.validator.check(is_pattern(pattern), "events", || {
            let near = svc_base::nearest::nearest(pattern, events());
            let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            format!("events knows no {pattern:?}: * is all, agent:* all of a kind, GET /api/webhooks lists them{near}")
        });
    }
    Some(list.into_iter().map(str::to_owned).collect())
}
