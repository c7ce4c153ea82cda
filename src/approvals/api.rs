//! `/api/approvals`, `/api/questions` and `/api/rules`.

use super::rules::{MAX_LIFETIME, MAX_NOTE_CHARS, MAX_USES};
use super::{About, Command, Decision, For, NewRule, Say};
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::core;
use crate::endpoint::{Access, Ask, Handler};
use serde_json::{Value, json};
use std::time::Duration;
use svc_base::choice::of_word;

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
        Route::new(Method::Get, "/api/rules", "Rules: what is decided once for what comes again", Read(rules))
            .replies(&[(
                200,
                "rules, newest first: id, say (allow, ask or never), deed, whose, description, madeAt, madeBy, \
                 expiresAt, uses, used, lastUsedAt, over and overAt where it is in force no more, note; floor: what \
                 no rule can allow, each with its reason",
            )]),
        Route::new(
            Method::Post,
            "/api/rules",
            "Make a rule: always allow exactly this, ask, or never",
            Write(OperatorOnly, |ask| Ok(core::Command::Approvals(ask.request.read(rule)?))),
        )
        .body(|| schema_of(rule))
        .replies(&[
            (201, "rule; approval: the one that it was made from, as it is now"),
            (400, "no_rule_possible"),
            (403, "the caller is an agent"),
            (404, "no such approval or agent"),
            (409, "rule_forbidden with floor: no rule can allow this; too_many_rules"),
        ]),
        Route::new(
            Method::Delete,
            "/api/rules/:id",
            "Revoke a rule",
            Write(OperatorOnly, |ask| {
                Ok(core::Command::Approvals(Command::RevokeRule { id: ask.params.get("id").to_owned() }))
            }),
        )
        .replies(&[(200, "the rule, over now"), (403, "the caller is an agent"), (404, "no such rule")]),
    ]
}

fn rules(ask: &Ask) -> Result<Reply, Problem> {
    let rules: Vec<Value> = ask.state.approvals.rules().map(|rule| rule.shown()).collect();
    let floor: Vec<Value> =
        super::floor::FLOOR.iter().map(|one| json!({"word": one.word, "reason": one.reason})).collect();
    Ok(Reply::ok(&json!({"rules": rules, "floor": floor})))
}

/// Characters of a file's path, a folder's, a name.
const MAX_PATH_CHARS: usize = 4_096;
/// What a rule may be about, by the field that says so.
const ABOUT: [&str; 3] = ["approval", "file", "command"];

fn rule(fields: &mut Fields) -> Command {
    let say = fields.required_choice("say", Say::WORDS).and_then(of_word).unwrap_or(Say::Ask);
    let about = about(fields);
    let whose = whose(fields);
    let uses = fields.integer("uses", 1, MAX_USES);
    fields.validator.check(uses.is_none() || say == Say::Allow, "uses", || {
        "uses is for rules that allow; leave it out".to_owned()
    });
    fields.tell("minutes", || json!({"description": "how long it is in force; 30 days where it allows"}));
    let minutes = fields.integer("minutes", 1, MAX_LIFETIME.as_secs() / 60);
    let lifetime = minutes.map(|minutes| Duration::from_secs(minutes * 60));
    let note = fields.text("note", MAX_NOTE_CHARS).filter(|text| !text.is_empty()).map(ToOwned::to_owned);
    Command::AddRule(Box::new(NewRule { say, about, whose, uses, lifetime, note }))
}

fn about(fields: &mut Fields) -> About {
    fields.tell("approval", || json!({"description": "the id of what was asked for"}));
    let approval = fields.text("approval", MAX_PATH_CHARS).map(ToOwned::to_owned);
    let exact = fields.choice("match", &["exactly", "command"]);
    fields.tell("file", || json!({"description": "relative to the project"}));
    let file = fields.text("file", MAX_PATH_CHARS).map(ToOwned::to_owned);
    // Not trimmed: it is compared as it is.
    let command = fields.string("command").map(ToOwned::to_owned);
    let folder = fields.text("folder", MAX_PATH_CHARS).unwrap_or_default().to_owned();
    let tool = fields.text("tool", MAX_PATH_CHARS).map(ToOwned::to_owned);
    let given = [approval.is_some(), file.is_some(), command.is_some()];
    let count = given.iter().filter(|given| **given).count();
    fields.validator.check(count == 1, "approval", || {
        format!("a rule is about one of {}; name exactly one", ABOUT.join(", "))
    });
    match (approval, file, command) {
        (Some(id), ..) => About::Approval { id, command: exact == Some("command") },
        (None, Some(file), _) => About::Write(file),
        (None, None, command) => {
            let command = command.unwrap_or_default();
            fields.validator.check(count != 1 || !command.trim().is_empty(), "command", || {
                "command must not be empty".to_owned()
            });
            fields.validator.check(command.chars().count() <= super::MAX_COMMAND_CHARS, "command", || {
                format!("command must have at most {} characters", super::MAX_COMMAND_CHARS)
            });
            fields.validator.check(count != 1 || tool.is_some(), "tool", || {
                "tool is required with command: the name that the agent's program gives it, such as Bash"
                    .to_owned()
            });
            About::Command { tool: tool.unwrap_or_default(), command, folder }
        }
    }
}

fn whose(fields: &mut Fields) -> For {
    let whose = fields.choice("for", &["agent", "role", "project"]).unwrap_or("agent");
    let agent = fields.text("agent", MAX_PATH_CHARS).filter(|text| !text.is_empty()).map(ToOwned::to_owned);
    let role = fields.text("role", MAX_PATH_CHARS).filter(|text| !text.is_empty()).map(ToOwned::to_owned);
    fields.validator.check(agent.is_none() || whose == "agent", "agent", || {
        format!("agent is named, and the rule is for the {whose}; leave one out")
    });
    fields.validator.check(role.is_none() || whose == "role", "role", || {
        format!("role is named, and the rule is for the {whose}; say \"for\":\"role\"")
    });
    match whose {
        "project" => For::Project,
        "role" => For::Role(role),
        _ => For::Agent(agent),
    }
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let approvals = &ask.state.approvals;
    let with_rules = |approval: &super::Approval| {
        let mut shown = approval.shown();
        shown["mayRule"] = super::rules::offered(&approval.action);
        shown
    };
    let pending: Vec<Value> = approvals.pending().map(|approval| with_rules(approval)).collect();
    let resolved: Vec<Value> = approvals.resolved().into_iter().map(|approval| approval.shown()).collect();
    Ok(Reply::ok(&json!({"pending": pending, "resolved": resolved})))
}

fn get(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&ask.state.approvals.find(ask.params.get("id"))?.shown()))
}

fn decide(ask: &Ask) -> Result<core::Command, Problem> {
    Ok(core::Command::Approvals(ask.request.read(decision)?))
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

fn decide_by_path(ask: &Ask, decision: Decision) -> Result<core::Command, Problem> {
    let reason = ask.request.read(reason)?;
    let id = ask.params.get("id").to_owned();
    Ok(core::Command::Approvals(Command::Decide { id, decision, reason }))
}

fn ask_human(ask: &Ask) -> Result<core::Command, Problem> {
    Ok(core::Command::Approvals(ask.request.read(question)?))
}

fn question(fields: &mut Fields) -> Command {
    let question = fields.required_text("question", MAX_QUESTION_CHARS);
    Command::Ask { agent: fields.string("agentId").map(ToOwned::to_owned), question }
}

fn reason(fields: &mut Fields) -> Option<String> {
    fields.text("reason", MAX_REASON_CHARS).filter(|text| !text.is_empty()).map(ToOwned::to_owned)
}
