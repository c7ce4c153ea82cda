//! `/api/approvals`.

use super::{Command, Decision};
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::{Value, json};

/// Characters of a reason.
pub const MAX_REASON_CHARS: usize = 2_000;
/// Characters of a question to a person.
const MAX_QUESTION_CHARS: usize = 2_000;

const REPLIES: &[(u16, &str)] = &[
    (200, "the record; the same decision again changes nothing"),
    (403, "the caller is an agent"),
    (404, "no such approval"),
    (409, "it was resolved otherwise"),
];

/// The routes of the approvals.
pub fn routes() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::{Read, Write};
    vec![
        Route::new(Method::Get, "/api/approvals", "Pending approvals, and the last 50 resolved", Read(list)),
        Route::new(Method::Get, "/api/approvals/:id", "One approval", Read(get))
            .replies(&[(200, "the record"), (404, "no such approval")]),
        Route::new(Method::Post, "/api/approvals", "Decide an approval", Write(OperatorOnly, decide))
            .body(|| schema_of(decision))
            .replies(REPLIES),
        Route::new(
            Method::Post,
            "/api/questions",
            "Ask the human; the answer is the reason of the decision",
            Write(Access::Anyone, ask_human),
        )
        .body(|| schema_of(question))
        .replies(&[
            (202, "questionId, status"),
            (403, "for another agent"),
            (409, "too many are open"),
        ]),
        Route::new(
            Method::Post,
            "/api/approvals/:id/approve",
            "Approve; the agent continues on its own",
            Write(OperatorOnly, |ask| decide_by_path(ask, Decision::Approve)),
        )
        .body(|| schema_of(reason))
        .replies(REPLIES),
        Route::new(
            Method::Post,
            "/api/approvals/:id/reject",
            "Reject; the agent is told",
            Write(OperatorOnly, |ask| decide_by_path(ask, Decision::Reject)),
        )
        .body(|| schema_of(reason))
        .replies(REPLIES),
    ]
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let approvals = &ask.state.approvals;
    let pending: Vec<Value> = approvals.pending().map(|approval| approval.shown()).collect();
    let resolved: Vec<Value> = approvals.resolved().into_iter().map(|approval| approval.shown()).collect();
    Ok(Reply::ok(&json!({"pending": pending, "resolved": resolved})))
}

fn get(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&ask.state.approvals.find(ask.params.get("id"))?.shown()))
}

fn decide(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(crate::core::Command::Approvals(ask.request.read(decision)?))
}

fn decision(fields: &mut Fields) -> Command {
    fields.tell("id", || json!({"pattern": "^apr-[0-9a-f]{8}$"}));
    let id = fields.required_string("id").unwrap_or_default().to_owned();
    let decision = match fields.required_choice("decision", &["approve", "reject"]) {
        Some("approve") => Decision::Approve,
        _ => Decision::Reject,
    };
    Command::Decide { id, decision, reason: reason(fields) }
}

fn decide_by_path(ask: &Ask, decision: Decision) -> Result<crate::core::Command, Problem> {
    let reason = ask.request.read(reason)?;
    let id = ask.params.get("id").to_owned();
    Ok(crate::core::Command::Approvals(Command::Decide { id, decision, reason }))
}

fn ask_human(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(crate::core::Command::Approvals(ask.request.read(question)?))
}

fn question(fields: &mut Fields) -> Command {
    let question = fields.required_text("question", MAX_QUESTION_CHARS);
    Command::Ask { agent: fields.string("agentId").map(ToOwned::to_owned), question }
}

fn reason(fields: &mut Fields) -> Option<String> {
    fields.text("reason", MAX_REASON_CHARS).filter(|text| !text.is_empty()).map(ToOwned::to_owned)
}
