//! `/api/tokens/*`, `/api/routing`, `/api/agents/:id/routing/suggestion`.

use super::{quota, report, routing};
use crate::api::{Method, Problem, Reply, Route};
use crate::endpoint::{Ask, Handler};

/// The routes of the ledger and of routing.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/tokens/summary",
            "Tokens and dollars used and saved, by agent",
            Handler::Read(|ask| Ok(Reply::ok(&report::summary(ask.state)))),
        ),
        Route::new(
            Method::Get,
            "/api/tokens/by-team",
            "Tokens and dollars used, by team, ranked",
            Handler::Read(|ask| Ok(Reply::ok(&report::by_team(ask.state)))),
        ),
        Route::new(
            Method::Get,
            "/api/quota",
            "The providers' windows: what is used, what is left, when they open, and who waits",
            Handler::Read(|ask| Ok(Reply::ok(&quota::shown(ask.state, ask.now)))),
        ),
        Route::new(
            Method::Get,
            "/api/routing",
            "Which models agents run, and why",
            Handler::Read(|ask| Ok(Reply::ok(&routing::shown(ask.state)))),
        ),
        Route::new(
            Method::Get,
            "/api/agents/:id/routing/suggestion",
            "A lighter model that fits the agent's work",
            Handler::Read(suggestion),
        )
        .replies(&[(200, "the suggestion"), (204, "there is none"), (404, "no such agent")]),
    ]
}

fn suggestion(ask: &Ask) -> Result<Reply, Problem> {
    let agent = ask.state.agents.find(ask.params.get("id"))?;
    let found = routing::suggestion(ask.state, agent);
    Ok(found.map_or_else(Reply::no_content, |body| Reply::ok(&body)))
}
