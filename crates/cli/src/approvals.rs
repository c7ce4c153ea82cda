//! `svc approvals`, `svc approve`, `svc reject`.

use super::client::{Client, encode};
use super::commands::{ANY, Command, Group};
use super::render::{Table, age_of};
use super::session::{Failure, Out, Outcome, Session, now};
use super::target::text;
use serde_json::{Value, json};
use svc_base::untrusted::untrusted_line;

/// The tool by which Claude Code asks a person: a question, though it comes as the wish to use a tool.
const ASKS: &str = "AskUserQuestion";

/// The commands that stand here, beside those in the table of trust.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "answer",
    group: Group::Trust,
    summary: "answer a question of an agent",
    usage: "answer ID WORDS.. | -",
    words: (2, ANY),
    details: "The beginning of an id is enough; 'svc approvals' lists the questions. Of what a question offers, which\n\
              'svc approvals ID' shows, the number is enough. A bare yes or no is as well said with 'svc approve' and\n\
              'svc reject'.",
    run: answer,
    ..Command::PLAIN
}];

/// `svc answer ID WORDS..`.
fn answer(session: &Session) -> Outcome {
    let out = &session.out;
    let words = super::agents::words_or_stdin(session, 1)?;
    let client = session.client()?;
    let id = whole_id(&client, &session.args.words[0])?;
    let record = client.get(&format!("/api/approvals/{}", encode(&id)))?;
    if !is_question(&record) {
        return Err(Failure::failed(format!(
            "{id} is not a question: {}; approve or reject it",
            wish(&record)
        )));
    }
    let words = answer_of(&record, &words);
    let record =
        client.post(&format!("/api/approvals/{}/approve", encode(&id)), &json!({"reason": words}))?;
    out.told(&record, &id, &format!("answered {id}: {} is told", name(&record)))
}

/// `svc approvals`.
pub fn list(session: &Session) -> Outcome {
    let out = &session.out;
    if let Some(given) = session.args.words.first() {
        return show(session, given);
    }
    let answer = session.client()?.get("/api/approvals")?;
    if out.json {
        return out.document(&answer);
    }
    let members = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
    let mut records = members("pending");
    if session.args.flag("all") {
        records.extend(members("resolved"));
    }
    if records.is_empty() && !out.quiet {
        return out.line("nothing waits for you");
    }
    told(out, &records)
}

/// Prints approvals, in a row each.
pub(super) fn told(out: &Out, records: &[Value]) -> Outcome {
    let answer = json!({"pending": records});
    let Some(records) = out.rows(&answer, &answer["pending"], "id")? else { return Ok(()) };
    let mut table = Table::new(&["ID", "AGENT", "STATUS", "AGE", "WANTS TO"]).numeric(&[3]).status_column(2);
    for record in records {
        table.row(&[
            text(record, "id").into(),
            text(record, "agentName").into(),
            text(record, "status").into(),
            age_of(text(record, "requestedAt"), now()),
            wish(record),
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

/// `svc approvals ID`: all that it takes to decide it.
fn show(session: &Session, given: &str) -> Outcome {
    let out = &session.out;
    let client = session.client()?;
    let id = whole_id(&client, given)?;
    let mut record = client.get(&format!("/api/approvals/{}", encode(&id)))?;
    let card = card_of(&client, &id)?;
    if out.json {
        record["card"] = card;
        return out.document(&record);
    }
    out.lines(&super::card::lines(&record, &card))
}

/// What is known of a decision, beside its record.
pub(super) fn card_of(client: &Client, id: &str) -> Result<Value, Failure> {
    client.get(&format!("/api/approvals/{}/card", encode(id)))
}

/// The questions that a program's own tool for them asks; a call of an integration that is named so is none,
/// nor what runs a command.
fn asked(record: &Value) -> impl Iterator<Item = &Value> {
    let action = Some(&record["action"]).filter(|action| {
        text(action, "type") == "tool_permission"
            && text(action, "tool") == ASKS
            && action["command"].is_null()
    });
    action.and_then(|action| action["params"]["questions"].as_array()).into_iter().flatten()
}

/// Whether an agent wants an answer, and no permission.
pub(super) fn is_question(record: &Value) -> bool {
    text(&record["action"], "type") == "question" || asked(record).next().is_some()
}

/// What a question offers to choose from, each with what is said of it. Of several questions at once nothing:
/// one answer is for all of them.
pub(super) fn offered(record: &Value) -> Vec<(&str, &str)> {
    let mut asked = asked(record);
    let only = asked.next().filter(|_| asked.next().is_none());
    let options = only.and_then(|one| one["options"].as_array()).into_iter().flatten();
    options.map(|option| (text(option, "label"), text(option, "description"))).collect()
}

/// What these words answer: the number of what is offered stands for it.
pub(super) fn answer_of(record: &Value, words: &str) -> String {
    let number = words.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let chosen = number.and_then(|at| offered(record).get(at).map(|(label, _)| (*label).to_owned()));
    chosen.unwrap_or_else(|| words.to_owned())
}

/// What the agent wants, with the parameters of a tool.
pub(super) fn wish(record: &Value) -> String {
    let action = &record["action"];
    let questions: Vec<&str> = asked(record).map(|one| text(one, "question")).collect();
    if !questions.is_empty() {
        return untrusted_line(&format!("know: {}", questions.join(" ")));
    }
    let params = action.get("params").map(|params| format!(" {params}")).unwrap_or_default();
    // Each line end is seen here: what is decided must not look like something else.
    untrusted_line(&format!("{}{params}", text(action, "description")))
}

/// `svc approve ID`.
pub fn approve(session: &Session) -> Outcome {
    decide(session, "approve", "approved")
}

/// `svc reject ID`.
pub fn reject(session: &Session) -> Outcome {
    decide(session, "reject", "rejected")
}

fn decide(session: &Session, verb: &str, done: &str) -> Outcome {
    let out = &session.out;
    let client = session.client()?;
    let id = whole_id(&client, &session.args.words[0])?;
    let body = session.args.value("reason").map_or_else(|| json!({}), |reason| json!({"reason": reason}));
    // Read before, for the decision is of what was there then. It is shown to people, not needed to decide.
    let card = if out.json || out.quiet { None } else { card_of(&client, &id).ok() };
    let record = client.post(&format!("/api/approvals/{}/{verb}", encode(&id)), &body)?;
    if out.json {
        return out.document(&record);
    }
    if let Some(card) = card {
        out.lines(&super::card::lines(&record, &card))?;
    }
    out.line(&if out.quiet {
        id
    } else if text(&record["action"], "type") == "question" {
        format!("{done} {id}: {} is told {}", name(&record), if verb == "approve" { "yes" } else { "no" })
    } else {
        format!(
            "{done} {id}: {} may{} {}",
            name(&record),
            if verb == "approve" { "" } else { " not" },
            wish(&record)
        )
    })
}

fn name(record: &Value) -> String {
    untrusted_line(text(record, "agentName"))
}

/// The id that `given` begins, with or without `apr-`, if only one pending approval does.
///
/// Errors: several begin so.
pub(super) fn whole_id(client: &Client, given: &str) -> Result<String, Failure> {
    let answer = client.get("/api/approvals")?;
    let begins =
        |id: &str| id.starts_with(given) || id.strip_prefix("apr-").is_some_and(|hex| hex.starts_with(given));
    let pending = answer["pending"].as_array().into_iter().flatten().map(|record| text(record, "id"));
    let fitting: Vec<&str> = pending.filter(|id| !given.is_empty() && begins(id)).collect();
    match fitting.as_slice() {
        [one] => Ok((*one).to_owned()),
        // The daemon knows the resolved ones, and says what is wrong with the others.
        [] => Ok(given.to_owned()),
        several => {
            Err(Failure::failed(format!("'{given}' fits {}; give more of the id", several.join(", "))))
        }
    }
}
