//! `/api/runners`. What changes them, and what reaches out to one, is a person's.

use super::{Command, Kind, MAX_LABELS, MAX_NAME_CHARS, kind, list, worker};
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::json;
use svc_base::choice::of_word;

/// What a name and a label are.
const WORD: &str = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$";

const AGENT: (u16, &str) = (403, "the caller is an agent");
const UNKNOWN: (u16, &str) = (404, "no such runner");

/// The routes of the runners.
pub fn routes() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::{Read, Work, Write};
    vec![
        Route::new(Method::Get, "/api/runners", "Other machines, and what was found there", Read(all))
            .replies(&[(200, "name, kind, destination, labels, addedBy, addedAt, checked of each")]),
        Route::new(Method::Post, "/api/runners", "Give another machine a name", Write(OperatorOnly, add))
            .body(|| schema_of(wish))
            .replies(&[
                (201, "the runner"),
                AGENT,
                (409, "there is one of this name, or there are too many"),
            ]),
        Route::new(
            Method::Delete,
            "/api/runners/:name",
            "Forget a runner, and end its container, job or pod; what stands on a machine that ssh reaches stays there",
            Work(OperatorOnly, worker::remove),
        )
        .replies(&[(200, "it is gone"), AGENT, UNKNOWN, (409, "agents work on it")]),
        Route::new(
            Method::Post,
            "/api/runners/:name/grants",
            "Let the agents of a provider on a runner have its key from the vault, or that of an account",
            Write(OperatorOnly, grant),
        )
        .body(|| schema_of(lending))
        .replies(&[
            (200, "the runner"),
            (400, "not_lendable: its program takes no key"),
            AGENT,
            UNKNOWN,
            (409, "no_key: the vault has none"),
        ]),
        Route::new(
            Method::Delete,
            "/api/runners/:name/grants/:provider",
            "Lend that key no more; what runs there keeps it to its end",
            Write(OperatorOnly, |ask| {
                Ok(Command::Revoke {
                    name: target(ask),
                    provider: ask.params.get("provider").to_owned(),
                }.into())
            }),
        )
        .replies(&[(200, "the runner"), AGENT, UNKNOWN]),
        Route::new(
            Method::Post,
            "/api/runners/:name/check",
            "Connect with a runner, copy this program there where it is not, and see what it has",
            Work(OperatorOnly, worker::check),
        )
        .replies(&[
            (200, "the runner; checked.error says why where it cannot be used"),
            AGENT,
            UNKNOWN,
        ]),
    ]
}

/// The `:name` of the path.
pub(super) fn target(ask: &Ask) -> String {
    ask.params.get("name").to_owned()
}

fn all(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&list(ask.state)))
}

fn add(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(ask.request.read(wish)?.into())
}

fn grant(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let (provider, account) = ask.request.read(lending)?;
    Ok(Command::Grant { name: target(ask), provider, account }.into())
}

fn lending(fields: &mut Fields) -> (String, Option<String>) {
    let provider = fields.required_string("provider").unwrap_or_default().to_owned();
    (provider, fields.string("account").filter(|name| !name.is_empty()).map(str::to_owned))
}

/// Reads `POST /api/runners`.
pub(super) fn wish(fields: &mut Fields) -> Command {
    fields.tell("name", || json!({"pattern": WORD}));
    let name = fields.required_string("name").unwrap_or_default().to_owned();
    check_word(fields, "name", &name);
    fields.validator.check(name != "here", "name", || "name: here is this machine".to_owned());
    let word = fields.required_choice("kind", &Kind::WORDS);
    let kind = word.and_then(of_word).unwrap_or(Kind::Ssh);
    fields.tell("destination", || json!({"maxLength": kind::MAX_DESTINATION_BYTES}));
    let destination = fields.string("destination").unwrap_or_default().to_owned();
    if let Some(fault) = (kind::engine(kind).fault)(&destination) {
        fields.validator.fail("destination", format!("destination {fault}"));
    }
    fields.tell("labels", || json!({"maxItems": MAX_LABELS, "items": {"type": "string", "pattern": WORD}}));
    let labels: Vec<String> =
        fields.strings("labels").unwrap_or_default().into_iter().map(str::to_owned).collect();
    fields.validator.check(labels.len() <= MAX_LABELS, "labels", || {
        format!("labels must be at most {MAX_LABELS}, there are {}", labels.len())
    });
    for label in &labels {
        check_word(fields, "labels", label);
    }
    Command::Add { name, kind, destination, labels }
}

fn check_word(fields: &mut Fields, field: &str, word: &str) {
    let fits = word.len() <= MAX_NAME_CHARS
        && word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    // What is missing has been said.
    let is_missing = field == "name" && word.is_empty();
    fields.validator.check(fits || is_missing, field, || {
        format!(
            "{field} must have 1 to {MAX_NAME_CHARS} of A-Z a-z 0-9 _ . - and begin with a letter or digit"
        )
    });
}
