//! `/api/approvals`.

use super::{Command, Decision};
use crate::api::{Fields, Method, Problem, Reply, Route};
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
            .body(decide_schema)
            .replies(REPLIES),
        Route::new(
            Method::Post,
            "/api/questions",
            "Ask the human; the answer is the reason of the decision",
            Write(Access::Anyone, ask_human),
        )
        .body(question_schema)
        .replies(&[
            (202, "questionId, status"),
            (403, "for another agent"),
            (409, "too many are open"),
        ]),
        Route::new(
            Method::Post,
            "/api/approvals/:id/approve",
            "Approve; the agent goes on by itself",
            Write(OperatorOnly, |ask| decide_by_path(ask, Decision::Approve)),
        )
        .body(reason_schema)
        .replies(REPLIES),
        Route::new(
            Method::Post,
            "/api/approvals/:id/reject",
            "Reject; the agent is told",
            Write(OperatorOnly, |ask| decide_by_path(ask, Decision::Reject)),
        )
        .body(reason_schema)
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
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let id = fields.required_string("id").unwrap_or_default().to_owned();
    let decision = match fields.required_string("decision") {
        Some(_) => fields.choice("decision", &["approve", "reject"]),
        None => None,
    };
    let reason = reason(&mut fields);
    fields.validator.finish()?;
    let decision = if decision == Some("approve") { Decision::Approve } else { Decision::Reject };
    Ok(crate::core::Command::Approvals(Command::Decide { id, decision, reason }))
}

fn decide_by_path(ask: &Ask, decision: Decision) -> Result<crate::core::Command, Problem> {
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let reason = reason(&mut fields);
    fields.validator.finish()?;
    let id = ask.params.get("id").to_owned();
    Ok(crate::core::Command::Approvals(Command::Decide { id, decision, reason }))
}

fn ask_human(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let question = fields.required_string("question").unwrap_or_default().trim().to_owned();
    let agent = fields.string("agentId").map(ToOwned::to_owned);
    let chars = question.chars().count();
    fields.validator.check(chars <= MAX_QUESTION_CHARS && !question.contains('\0'), "question", || {
        format!("question must have at most {MAX_QUESTION_CHARS} characters and no NUL, it has {chars}")
    });
    fields.validator.finish()?;
    Ok(crate::core::Command::Approvals(Command::Ask { agent, question }))
}

fn question_schema() -> Value {
    json!({
        "type": "object",
        "required": ["question"],
        "properties": {
            "question": {"type": "string", "maxLength": MAX_QUESTION_CHARS},
            "agentId": {"type": "string"},
        },
    })
}

fn reason(fields: &mut Fields) -> Option<String> {
    let text = fields.string("reason")?;
    let chars = text.chars().count();
    fields.validator.check(chars <= MAX_REASON_CHARS && !text.contains('\0'), "reason", || {
        format!("reason must have at most {MAX_REASON_CHARS} characters and no NUL, it has {chars}")
    });
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn reason_schema() -> Value {
    json!({"type": "object", "properties": {"reason": {"type": "string", "maxLength": MAX_REASON_CHARS}}})
}

fn decide_schema() -> Value {
    json!({
        "type": "object",
        "required": ["id", "decision"],
        "properties": {
            "id": {"type": "string", "pattern": "^apr-[0-9a-f]{8}$"},
            "decision": {"enum": ["approve", "reject"]},
            "reason": {"type": "string", "maxLength": MAX_REASON_CHARS},
        },
    })
}
