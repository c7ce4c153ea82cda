//! `svc instruct`, `svc query`, `svc rotate`, `svc move`, `svc resume`.

use super::agents::words_or_stdin;
use super::render::clean;
use super::session::{Failure, Outcome, Session};
use super::target::{find, path, text};
use serde_json::{Value, json};
use std::time::Duration;

/// Longer than a branch and a session may take.
const MOVE_LIMIT: Duration = Duration::from_secs(1_200);

/// `svc instruct TARGET MESSAGE..`.
pub fn instruct(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let given: Vec<&str> = ["now", "idle", "rotation"].into_iter().filter(|name| args.flag(name)).collect();
    let deliver = match given[..] {
        [] => "auto",
        [one] => one,
        _ => return Err(Failure::usage("give one of --now, --idle and --rotation")),
    };
    let message = said(session, "message")?;
    let client = session.client()?;
    let agent = find(&client, &args.words[0])?;
    let body = json!({"message": message, "deliver": deliver});
    let answer = client.post(&path(&agent, "/instruct"), &body)?;
    let name = text(&agent, "name");
    let resumed = &answer["agent"];
    if resumed.is_object() {
        let id = text(resumed, "id");
        return out.told(&answer, id, &format!("resumed {name} ({id}) with the message"));
    }
    let when = match text(&answer, "deliverOn") {
        "now" => "now",
        "idle" => "when its turn ends",
        _ => "with its next rotation or when its turn ends ('svc rotate' brings it now)",
    };
    let queued = answer["queued"].as_u64().filter(|n| *n > 1).map(|n| format!("; {n} are queued"));
    let words = format!("{name} gets the message {when}{}", queued.unwrap_or_default());
    out.told(&answer, text(&agent, "id"), &words)
}

/// `svc query TARGET QUESTION..`.
pub fn query(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let question = said(session, "question")?;
    let client = session.client_doing("asking")?;
    let agent = find(&client, &args.words[0])?;
    let answer = client.post(&path(&agent, "/query"), &json!({"question": question}))?;
    out.said(&answer, clean(text(&answer, "answer")).trim_end())
}

fn said(session: &Session, what: &str) -> Result<String, Failure> {
    let words = words_or_stdin(session, 1)?;
    if words.trim().is_empty() {
        return Err(Failure::usage(format!("the {what} is empty")));
    }
    Ok(words)
}

/// `svc rotate TARGET`.
pub fn rotate(session: &Session) -> Outcome {
    let out = &session.out;
    let client = session.client_doing("rotating")?;
    let agent = find(&client, &session.args.words[0])?;
    if session.args.flag("dry-run") {
        return super::memory::dry_run(session, &agent);
    }
    let answer = client.post(&path(&agent, "/rotate"), &json!({}))?;
    let (old, new) = (text(&answer, "old"), text(&answer, "new"));
    out.told(&answer, new, &format!("rotated {}: {old} is now {new}", text(&agent, "name")))
}

/// `svc move TARGET RUNNER|here [MESSAGE..]`.
pub fn moves(session: &Session) -> Outcome {
    let out = &session.out;
    let message = words_or_stdin(session, 2)?;
    let client = session.client_doing("moving")?.within(MOVE_LIMIT);
    let agent = find(&client, &session.args.words[0])?;
    let runner = &session.args.words[1];
    let mut body = json!({"runner": runner, "now": session.args.flag("now")});
    if !message.is_empty() {
        body["message"] = json!(message);
    }
    let answer = client.post(&path(&agent, "/move"), &body)?;
    let name = clean(text(&agent, "name"));
    let place = if runner == "here" { "here".to_owned() } else { format!("on {}", clean(runner)) };
    let waits = answer["waits"] == true;
    let words = if waits {
        format!("{name} goes on {place} when its turn has ended; --now does not wait for that")
    } else {
        format!("moved {name}: {place} now ({})", clean(text(&answer["agent"], "statusReason")))
    };
    out.told(&answer, text(&answer["agent"], "id"), &words)?;
    if let Some(why) = answer["why"].as_str().filter(|_| !waits && !out.json) {
        out.note(&format!("it begins a new session there, with a brief: {}", clean(why)));
    }
    Ok(())
}

/// `svc resume TARGET [MESSAGE..]`.
pub fn resume(session: &Session) -> Outcome {
    let out = &session.out;
    let message = words_or_stdin(session, 1)?;
    let client = session.client()?;
    let agent = find(&client, &session.args.words[0])?;
    let mut body = if message.is_empty() { json!({}) } else { json!({"message": message}) };
    if let Some(runner) = session.args.value("runner") {
        body["runner"] = json!(runner);
    }
    let answer = client.post(&path(&agent, "/resume"), &body)?;
    // The record, or a record inside of an answer, as instruct gives it.
    let record: &Value = if answer["agent"].is_object() { &answer["agent"] } else { &answer };
    let (id, name) = (text(record, "id"), text(&agent, "name"));
    out.told(&answer, id, &format!("resumed {name} ({id}); follow it with 'svc logs -f {name}'"))
}
