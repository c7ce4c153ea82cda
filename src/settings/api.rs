//! `/api/config`.

use super::Command;
use crate::api::{Method, Problem, Reply, Route};
use crate::endpoint::{Access, Ask, Handler};

/// The routes of the configuration.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(Method::Get, "/api/config", "The effective configuration", Handler::Read(get)),
        Route::new(
            Method::Patch,
            "/api/config",
            "Change settings, all or nothing",
            Handler::Write(Access::OperatorOnly, patch),
        )
        .body(|| serde_json::json!({"type": "object"}))
        .replies(&[
            (200, "the whole configuration"),
            (400, "an unknown key, a wrong type or a value out of range"),
        ]),
    ]
}

fn get(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&ask.state.settings.shown()))
}

fn patch(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let changes = ask.request.object()?;
    Ok(Command::Patch(changes).into())
}
