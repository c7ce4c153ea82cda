//! `/api/toys`.

use super::{CATEGORIES, all, find, worker_api};
use crate::agents::api::MAX_PROMPT_CHARS;
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::credentials::{self, Secret};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::json;

/// The routes of the toys.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(Method::Get, "/api/toys", "Public APIs to play with", Handler::Read(list))
            .query(&[("category", "only those of space, weather, finance, fun, maps or data")]),
        Route::new(Method::Get, "/api/toys/:id", "One toy", Handler::Read(get))
            .replies(&[(200, "the record"), (404, "no such toy")]),
        Route::new(
            Method::Post,
            "/api/toys/:id/launch",
            "Make a team and start a planner for a toy",
            // It stores a credential, which agents may not.
            Handler::Work(Access::OperatorOnly, worker_api::launch),
        )
        .body(|| schema_of(wanted))
        .replies(&[
            (200, "team, agent, toyId"),
            (400, "for example a key is required but absent"),
            (404, "no such toy"),
        ]),
    ]
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let category = ask.request.query("category").filter(|category| !category.is_empty());
    if let Some(category) = category.filter(|category| !CATEGORIES.contains(category)) {
        let message = format!("category must be one of {}, it is {category:?}", CATEGORIES.join(", "));
        return Err(Problem::invalid("category", message));
    }
    let found: Vec<_> =
        all().iter().filter(|toy| category.is_none_or(|wanted| toy.category == wanted)).collect();
    Ok(Reply::ok(&found))
}

fn get(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(find(ask.params.get("id"))?))
}

/// The fields of a launch.
pub struct Wanted {
    pub key: Option<Secret>,
    pub starter: Option<String>,
    /// Who runs the planner.
    pub provider: Option<String>,
    pub model: Option<String>,
}

/// Reads `POST /api/toys/:id/launch`.
pub fn wanted(fields: &mut Fields) -> Wanted {
    // A form sends an empty text for a key that nobody has typed.
    let given = fields.string("apiKey").is_some_and(|key| !key.trim().is_empty());
    fields.tell("apiKey", || json!({"writeOnly": true}));
    let key = given.then(|| credentials::api::secret(fields, "apiKey"));
    let text = |text: Option<&str>| text.filter(|text| !text.trim().is_empty()).map(ToOwned::to_owned);
    let starter = text(fields.string("starterPrompt"));
    let chars = starter.as_ref().map_or(0, |starter| starter.chars().count());
    fields.tell("starterPrompt", || json!({"maxLength": MAX_PROMPT_CHARS}));
    fields.validator.check(chars <= MAX_PROMPT_CHARS, "starterPrompt", || {
        format!("starterPrompt must have at most {MAX_PROMPT_CHARS} characters, it has {chars}")
    });
    Wanted { key, starter, provider: text(fields.string("provider")), model: text(fields.string("model")) }
}
