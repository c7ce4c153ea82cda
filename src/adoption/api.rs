//! `/api/sessions`. What stands there is a person's, as what is made of it.

use super::{worker, worker_search};
use crate::agents::{self, SpawnRequest};
use crate::api::{Fields, Method, Problem, Request, Route, schema_of};
use crate::endpoint::{Access, Handler};
use serde_json::{Map, Value, json};
use svc_base::sorted::Gather;

/// The role of one for which nobody names another.
const DEFAULT_ROLE: &str = "adopted";

/// The routes of this feature.
pub fn routes() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::Work;
    vec![
        Route::new(
            Method::Get,
            "/api/sessions",
            "Sessions that people had in this project, by the programs' own records",
            Work(OperatorOnly, worker::list),
        )
        .query(&[("provider", "only of this one")])
        .replies(&[(
            200,
            "sessions, the newest first: id, provider, account, folder, began, changed, turns, words, tokens, \
             model, agentId and agentName of whose it is, pid of who may have it open; notes of what was not \
             looked at",
        )]),
        Route::new(
            Method::Get,
            "/api/sessions/search",
            "Words in sessions that people had in this project, as they were typed, newest first",
            Work(OperatorOnly, worker_search::search),
        )
        .query(&[
            ("q", "the words, all of which stand in an entry, and phrases in double quotes; required"),
            ("provider", "only sessions of this one"),
            ("since", "only entries of this RFC 3339 time and later"),
            ("in", "text: what was said; tool: what tools were given and have answered; both when absent"),
            ("limit", "how many hits, 1 to 50; 10 when absent"),
        ])
        .replies(&[
            (
                200,
                "query, hits (sessionId, provider, account, folder, ts, type, tool, text), more, notes of what was \
                 not looked at; sessions of agents are left out: /api/search is for them",
            ),
            (400, "q has no word or is too long, or another value is not as above"),
        ]),
        Route::new(
            Method::Post,
            "/api/sessions/:id/adopt",
            "Make a session an agent that waits, and goes on there with the next message",
            Work(OperatorOnly, worker::adopt),
        )
        .body(|| schema_of(wish))
        .replies(&[
            (201, "the agent's record"),
            (403, "the caller is an agent"),
            (404, "no such session in this project"),
            (409, "it is an agent's already, its program runs, or maxAgents are alive"),
        ]),
    ]
}

/// What the agent is to be called, and may do.
fn wish(fields: &mut Fields) -> Map<String, Value> {
    let mut asked = Map::new();
    for name in ["role", "name", "permission"] {
        if let Some(text) = fields.string(name) {
            asked.insert(name.into(), text.into());
        }
    }
    if let Some(scope) = fields.strings("scope") {
        asked.insert("scope".into(), json!(scope));
    }
    asked
}

/// Reads `POST /api/sessions/:id/adopt`; provider, folder and account are those of the session.
///
/// Errors: 400 with every fault.
pub(super) fn request(request: &Request) -> Result<SpawnRequest, Problem> {
    let asked = if request.body.is_empty() { Map::new() } else { request.read(wish)? };
    let usual = [("role".to_owned(), json!(DEFAULT_ROLE))].into_iter();
    agents::api::spawn_body(&usual.chain(asked).gather())
}
