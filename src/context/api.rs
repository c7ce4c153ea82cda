//! `/api/briefing` and `/api/agents/:id/brief`.

use super::briefing::{self, Subject};
use super::worker_brief;
use crate::api::{Method, Problem, Reply, Route, Validator};
use crate::endpoint::{Access, Ask, Handler};
use crate::memory::api::{MAX_ROLE_CHARS, is_role};
use serde_json::json;

/// The routes of briefings.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/briefing",
            "What a new agent of a role would be told above its task",
            Handler::Read(preview),
        )
        .query(&[
            ("role", "required"),
            ("task", "what it is to do: memory is chosen by its words"),
            ("provider", "sets the budget; the configured default when absent"),
            ("model", "sets the budget"),
            ("workingDir", "chooses the part of the project map"),
            ("scope", "a glob it owns; may be repeated"),
        ])
        .replies(&[(200, "briefing, chars, budgetChars, sections"), (400, "role is missing")]),
        Route::new(
            Method::Get,
            "/api/agents/:id/brief",
            "The handoff brief an agent would leave now, and what would not fit",
            Handler::Work(Access::Anyone, worker_brief::preview),
        )
        .replies(&[(200, "brief, chars, leftOut"), (404, "no such agent")]),
    ]
}

fn preview(ask: &Ask) -> Result<Reply, Problem> {
    let query = |name: &str| ask.request.query(name).filter(|text| !text.is_empty());
    let role = query("role").unwrap_or_default();
    let provider = query("provider").unwrap_or(&ask.state.settings.config().default_provider);
    let mut validator = Validator::default();
    validator.check(is_role(role), "role", || {
        format!("role must be 1 to {MAX_ROLE_CHARS} of the characters A-Z a-z 0-9 _-, it is {role:?}")
    });
    validator.check(crate::providers::by_id(provider).is_some(), "provider", || {
        format!("provider {provider:?} is unknown; GET /api/providers lists them")
    });
    validator.finish()?;
    let named = ask.request.query.iter().filter(|(name, _)| name == "scope");
    let scope: Vec<String> = named.map(|(_, glob)| glob.clone()).collect();
    let subject = Subject {
        id: None,
        name: role,
        role,
        provider,
        model: query("model"),
        working_dir: query("workingDir").unwrap_or_default(),
        scope: &scope,
        team: None,
        task: query("task").unwrap_or_default(),
        skills: &[],
        integrations: &[],
        lineage: None,
    };
    let made = briefing::brief(ask.state, &subject);
    let chars = made.text.chars().count();
    Ok(Reply::ok(&json!({
        "role": role,
        "provider": provider,
        "briefing": made.text,
        "chars": chars,
        "tokens": chars.div_ceil(briefing::CHARS_PER_TOKEN),
        "budgetChars": made.budget_chars,
        "sections": made.sections,
    })))
}
