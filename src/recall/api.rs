//! `/api/recall`.

use super::{DEFAULT_HITS, MAX_HITS, MAX_QUESTION_CHARS, Question, worker};
use crate::api::{Method, Problem, Route, Validator};
use crate::endpoint::{Access, Ask, Handler};

/// The routes of this feature.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/recall",
            "What is known of a subject: all logs, briefs, discoveries, decisions and rules are asked",
            Handler::Work(Access::Anyone, worker::answer),
        )
        .query(&[
            ("q", "the words; required"),
            ("agent", "only the log of this agent, by name or id"),
            ("limit", "how many answers, 1 to 50; 10 when absent"),
        ])
        .replies(&[
            (200, "query, hits (source, agentName, n, ts, text), searchedBytes, notSearchedBytes"),
            (400, "q is missing or too long"),
            (404, "no such agent"),
        ]),
    ]
}

/// Reads a question.
///
/// Errors: 400, 404.
pub fn question(ask: &Ask) -> Result<Question, Problem> {
    let words = ask.request.query("q").unwrap_or_default().trim().to_owned();
    let limit = ask.request.query("limit").filter(|text| !text.is_empty());
    let most =
        limit.map_or(Some(DEFAULT_HITS), |text| text.parse().ok().filter(|n| (1..=MAX_HITS).contains(n)));
    let mut validator = Validator::default();
    let chars = words.chars().count();
    validator.check((1..=MAX_QUESTION_CHARS).contains(&chars), "q", || {
        format!(
            "q must have 1 to {MAX_QUESTION_CHARS} characters, it has {chars}; give the words to look for"
        )
    });
    validator.check(most.is_some(), "limit", || {
        format!("limit must be a whole number from 1 to {MAX_HITS}, it is {:?}", limit.unwrap_or_default())
    });
    validator.finish()?;
    let agent = ask.request.query("agent").filter(|text| !text.is_empty());
    let lineage =
        agent.map(|target| ask.state.agents.find(target).map(|agent| agent.lineage_id)).transpose()?;
    Ok(Question { words, lineage, most: most.unwrap_or(DEFAULT_HITS) })
}
