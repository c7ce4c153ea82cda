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
    if out.json {
        return out.document(&answer);
    }
    let name = text(&agent, "name");
    let resumed = &answer["agent"];
    if resumed.is_object() {
        let id = text(resumed, "id");
        return out.line(&if out.quiet {
            id.into()
        } else {
            format!("resumed {name} ({id}) with the message")
        });
    }
    if out.quiet {
        return out.line(text(&agent, "id"));
    }
    let when = match text(&answer, "deliverOn") {
        "now" => "now",
        "idle" => "when its turn ends",
        _ => "with its next rotation or when its turn ends ('svc rotate' brings it now)",
    };
    let queued = answer["queued"].as_u64().filter(|n| *n > 1).map(|n| format!("; {n} are queued"));
    out.line(&format!("{name} gets the message {when}{}", queued.unwrap_or_default()))
}

/// `svc query TARGET QUESTION..`.
pub fn query(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let question = said(session, "question")?;
    let client = session.client_doing("asking")?;
    let agent = find(&client, &args.words[0])?;
    let answer = client.post(&path(&agent, "/query"), &json!({"question": question}))?;
    if out.json { out.document(&answer) } else { out.line(clean(text(&answer, "answer")).trim_end()) }
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
    if out.json {
        return out.document(&answer);
    }
    let (old, new) = (text(&answer, "old"), text(&answer, "new"));
    out.line(&if out.quiet {
        new.into()
    } else {
        format!("rotated {}: {old} is now {new}", text(&agent, "name"))
    })
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
    if out.json {
        return out.document(&answer);
    }
    let name = clean(text(&agent, "name"));
    let place = if runner == "here" { "here".to_owned() } else { format!("on {}", clean(runner)) };
    if out.quiet {
        return out.line(text(&answer["agent"], "id"));
    }
    if answer["waits"] == true {
        return out
            .line(&format!("{name} goes on {place} when its turn has ended; --now does not wait for that"));
    }
    let state = clean(text(&answer["agent"], "statusReason"));
    out.line(&format!("moved {name}: {place} now ({state})"))?;
    if let Some(why) = answer["why"].as_str() {
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
    if out.json {
        return out.document(&answer);
    }
    // The record, or a record inside of an answer, as instruct gives it.
    let record: &Value = if answer["agent"].is_object() { &answer["agent"] } else { &answer };
    let (id, name) = (text(record, "id"), text(&agent, "name"));
    out.line(&if out.quiet {
        id.into()
    } else {
        format!("resumed {name} ({id}); follow it with 'svc logs -f {name}'")
    })
}
