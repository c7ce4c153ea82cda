//! `/api/tokens/*`, `/api/routing`, `/api/agents/:id/routing/suggestion`.

use super::{quota, report, routing};
use crate::api::{Method, Problem, Reply, Route, Validator};
use crate::endpoint::{Ask, Handler};
use crate::providers;

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
            "/api/routing/suggestion",
            "Which tier and model a task would get, and why",
            Handler::Read(for_task),
        )
        .query(&[
            ("task", "what is to be done; required"),
            ("provider", "whose models; the default provider when absent"),
            ("role", "the role of who does it"),
            ("files", "the folders that it is about, with commas"),
        ])
        .replies(&[
            (200, "suggestedTier, suggestedModel, reason, similar (task, tier, came, likeness)"),
            (400, "task is missing or too long, or there is no such provider"),
        ]),
        Route::new(
            Method::Get,
            "/api/agents/:id/routing/suggestion",
            "A lighter model that fits the agent's work",
            Handler::Read(suggestion),
        )
        .replies(&[(200, "the suggestion"), (204, "there is none"), (404, "no such agent")]),
    ]
}

/// Characters of a task that is asked about.
const MAX_TASK_CHARS: usize = 4_000;

fn for_task(ask: &Ask) -> Result<Reply, Problem> {
    let given = |name: &str| ask.request.query(name).unwrap_or_default().trim().to_owned();
    let (task, named, role) = (given("task"), given("provider"), given("role"));
    let default = &ask.state.settings.config().default_provider;
    let id = if named.is_empty() { default.as_str() } else { &named };
    let provider = providers::by_id(id);
    let chars = task.chars().count();
    let mut validator = Validator::default();
    validator.check((1..=MAX_TASK_CHARS).contains(&chars), "task", || {
        format!("task must have 1 to {MAX_TASK_CHARS} characters, it has {chars}; say what is to be done")
    });
    validator.check(provider.is_some(), "provider", || {
        format!("there is no provider {id:?}; svc providers lists them")
    });
    validator.finish()?;
    let Some(provider) = provider else { return Err(Problem::not_found("no such provider")) };
    let folders = given("files");
    let places: Vec<String> = folders
        .split(',')
        .map(|place| place.trim().trim_matches('/').to_owned())
        .filter(|p| !p.is_empty())
        .collect();
    Ok(Reply::ok(&routing::suggested(ask.state, provider.info(), &role, &task, &places)))
}

fn suggestion(ask: &Ask) -> Result<Reply, Problem> {
    let agent = ask.state.agents.find(ask.params.get("id"))?;
    let found = routing::suggestion(ask.state, agent);
    Ok(found.map_or_else(Reply::no_content, |body| Reply::ok(&body)))
}
