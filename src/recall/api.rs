//! `/api/recall` and `/api/search`.

use super::{DEFAULT_HITS, MAX_HITS, MAX_QUESTION_CHARS, Question, Search, kind, worker};
use crate::agents::worker_log::{Exact, MAX_TOKENS, Within};
use crate::api::{Method, Problem, Route, Validator};
use crate::core::ids::LineageId;
use crate::core::time::Time;
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
        Route::new(
            Method::Get,
            "/api/search",
            "Words in all logs as they were typed, newest first: what agents said, did and wrote",
            Handler::Work(Access::Anyone, worker::find),
        )
        .query(&[
            ("q", "the words, all of which stand in an entry, and phrases in double quotes; required"),
            ("agent", "only the log of this agent, by name or id"),
            ("since", "only entries of this RFC 3339 time and later"),
            ("in", "text: what was said; tool: what tools were given and have answered; both when absent"),
            ("limit", "how many hits, 1 to 50; 10 when absent"),
        ])
        .replies(&[
            (200, "query, hits (agentId, agentName, n, ts, type, tool, text), more, searchedBytes, notSearchedBytes"),
            (400, "q has no word or is too long, or another value is not as above"),
            (404, "no such agent"),
        ]),
    ]
}

/// Reads a question.
///
/// Errors: 400, 404.
pub fn question(ask: &Ask) -> Result<Question, Problem> {
    let mut validator = Validator::default();
    let (words, most) = words_and_limit(ask, &mut validator);
    validator.finish()?;
    Ok(Question { words, lineage: lineage(ask)?, most })
}

/// Reads a search.
///
/// Errors: 400, 404.
pub fn search(ask: &Ask) -> Result<Search, Problem> {
    let mut validator = Validator::default();
    let (words, most) = words_and_limit(ask, &mut validator);
    let exact = Exact::parse(&words);
    validator.check(exact.is_some() || words.is_empty(), "q", || {
        format!("q must have a letter or a digit, and up to {MAX_TOKENS} words count; it is {words:?}")
    });
    let since = ask.request.query("since").filter(|text| !text.is_empty());
    let time = since.map(Time::parse);
    validator.check(time != Some(None), "since", || {
        format!("since must be an RFC 3339 time, it is {:?}", since.unwrap_or_default())
    });
    let name = ask.request.query("in").filter(|text| !text.is_empty());
    let wanted = name.map(kind);
    validator.check(wanted != Some(None), "in", || {
        format!("in must be text or tool, it is {:?}", name.unwrap_or_default())
    });
    validator.finish()?;
    // Without words it was refused above.
    let Some(exact) = exact else { return Err(Problem::bad_request("no_words", "q must have a word")) };
    let within = Within { lineage: lineage(ask)?, since: time.flatten(), kind: wanted.flatten() };
    Ok(Search { words, exact, within, most })
}

fn words_and_limit(ask: &Ask, validator: &mut Validator) -> (String, usize) {
    let words = ask.request.query("q").unwrap_or_default().trim().to_owned();
    let limit = ask.request.query("limit").filter(|text| !text.is_empty());
    let chars = words.chars().count();
    validator.check((1..=MAX_QUESTION_CHARS).contains(&chars), "q", || {
        format!(
            "q must have 1 to {MAX_QUESTION_CHARS} characters, it has {chars}; give the words to look for"
        )
    });
    let most = validator.whole_number("limit", limit, DEFAULT_HITS, MAX_HITS);
    (words, most)
}

fn lineage(ask: &Ask) -> Result<Option<LineageId>, Problem> {
    let agent = ask.request.query("agent").filter(|text| !text.is_empty());
    agent.map(|target| ask.state.agents.find(target).map(|agent| agent.lineage_id)).transpose()
}
