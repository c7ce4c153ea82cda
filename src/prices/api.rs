//! `/api/prices`.

use super::{Command, Table, shown};
use crate::api::{Method, Problem, Reply, Route};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::json;

/// The routes of prices. Anybody may look; what a budget is counted in, people decide.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/prices",
            "What models cost: every price in force, its day, and where it comes from",
            Handler::Read(|ask| Ok(Reply::ok(&shown(ask.state, ask.now)))),
        ),
        Route::new(
            Method::Post,
            "/api/prices",
            "Put a table of prices before the built-in one",
            Handler::Write(Access::OperatorOnly, update),
        )
        .body(|| {
            json!({
                "type": "object",
                "required": ["asOf", "source", "models"],
                "properties": {
                    "asOf": {"type": "string"}, "source": {"type": "string"}, "unit": {"type": "string"},
                    "aliases": {"type": "object"}, "models": {"type": "array"},
                },
            })
        })
        .replies(&[
            (200, "as GET"),
            (400, "each fault with its field, such as models[3].cacheRead"),
            (403, "the caller is an agent"),
        ]),
        Route::new(
            Method::Delete,
            "/api/prices",
            "Use the built-in prices alone again",
            Handler::Write(Access::OperatorOnly, |_| Ok(Command::Reset.into())),
        )
        .replies(&[(200, "as GET"), (403, "the caller is an agent")]),
    ]
}

fn update(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let table = Table::read(&ask.request.object()?, Some(ask.now))?;
    Ok(Command::Update(table).into())
}
