//! `svc webhook`.

use super::client::encode;
use super::commands::{Command, Group, Words, switch, value};
use super::render::{Table, age_of, clean, one_line};
use super::session::{Failure, Outcome, Session, now};
use super::target::text;
use super::trust::read_key;
use serde_json::{Map, Value, json};

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "webhook",
    group: Group::Together,
    summary: "have events posted to an address, signed",
    usage: "webhook [list | events | add URL | set ID | show ID | test ID | resend ID [MESSAGE] | secret ID | remove ID | in ..]",
    words: (0, 3),
    complete: Words::OneOf(&[
        "list", "events", "add", "set", "show", "test", "resend", "secret", "remove", "in",
    ]),
    options: &[
        value("events", "NAMES", "which ones, with commas: agent:exit, agent:* for a kind, * for all"),
        value("name", "TEXT", "what it is called; its host if absent"),
        value("address", "URL", "set: another address"),
        switch("own-secret", "add, secret: read the secret (whsec_..) unseen or from standard input"),
        switch("enable", "set: post to it"),
        switch("disable", "set: post nothing to it"),
        value("role", "ROLE", "in add: what comes starts an agent of this role"),
        value("provider", "ID", "in add: its provider"),
        value("model", "MODEL", "in add: its model"),
        value("permission", "WORD", "in add: what it may do unasked"),
        value("scope", "GLOB", "in add: what it owns; may be repeated"),
        value("to", "AGENT", "in add: what comes is told to this agent"),
        value("say", "WORDS", "in add: what is said before what comes"),
    ],
    details: "Messages are signed as the Standard Webhooks specification says; the secret is shown once. What a\n\
              receiver does not take is sent again for sixteen hours, later each time; then 'show' lists it as dead,\n\
              and 'resend' sends it again. ID is an id or a name.\n\
              'in [list | add NAME | enable ID | disable ID | secret ID | remove ID]' is about signed posts that come in: each\n\
              starts an agent or is told to one, once.",
    run: webhook,
    ..Command::PLAIN
}];

fn webhook(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["list"] => list(session),
        ["events"] => events(session),
        ["in", rest @ ..] => super::inlets::inlets(session, rest),
        ["add", url] => add(session, url),
        ["set", id] => set(session, id),
        ["show", id] => show(session, id),
        ["test", id] => {
            let answer = session.client()?.post(&path(id, "/test"), &json!({}))?;
            let message = text(&answer, "message");
            session.out.told(
                &answer,
                message,
                &format!("{message} is sent; 'svc webhook show {id}' tells what came of it"),
            )
        }
        ["resend", id] => resend(session, id, &json!({})),
        ["resend", id, message] => resend(session, id, &json!({"message": message})),
        ["secret", id] => {
            let answer =
                session.client()?.post(&path(id, "/secret"), &Value::Object(own_secret(session)?))?;
            with_secret(session, &answer, "has a new secret; the one before signs, too, for a day")
        }
        ["remove", id] => {
            let answer = session.client()?.call("DELETE", &path(id, ""), None)?;
            session.out.told(&answer, text(&answer, "id"), &format!("removed {id}"))
        }
        _ => Err(Failure::usage("see 'svc help webhook'")),
    }
}

fn path(id: &str, rest: &str) -> String {
    format!("/api/webhooks/{}{rest}", encode(id))
}

pub(super) fn own_secret(session: &Session) -> Result<Map<String, Value>, Failure> {
    let mut body = Map::new();
    if session.args.flag("own-secret") {
        body.insert("secret".into(), json!(read_key("the webhook")?));
    }
    Ok(body)
}

/// What the options say that it is to be.
fn wish(session: &Session, body: &mut Map<String, Value>) {
    let args = &session.args;
    if let Some(names) = args.value("events") {
        let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        body.insert("events".into(), json!(names));
    }
    for (option, field) in [("name", "name"), ("address", "url")] {
        if let Some(value) = args.value(option) {
            body.insert(field.into(), json!(value));
        }
    }
    if args.flag("enable") || args.flag("disable") {
        body.insert("enabled".into(), json!(args.flag("enable")));
    }
}

fn add(session: &Session, url: &str) -> Outcome {
    if session.args.value("events").is_none() {
        return Err(Failure::usage(
            "--events says what it is told: --events agent:exit,approval:request; 'svc webhook events' lists them",
        ));
    }
    let mut body = own_secret(session)?;
    wish(session, &mut body);
    body.insert("url".into(), json!(url));
    let answer = session.client()?.post("/api/webhooks", &Value::Object(body))?;
    with_secret(session, &answer, "is told; give its receiver this secret, which is not shown again")
}

pub(super) fn with_secret(session: &Session, answer: &Value, what: &str) -> Outcome {
    let secret = text(answer, "secret");
    let line = format!("{} ({}) {what}\n{secret}", clean(text(answer, "name")), text(answer, "id"));
    session.out.told(answer, secret, &line)
}

fn set(session: &Session, id: &str) -> Outcome {
    let mut body = Map::new();
    wish(session, &mut body);
    if body.is_empty() {
        return Err(Failure::usage(
            "say what is to change: --events, --name, --address, --enable or --disable",
        ));
    }
    let answer = session.client()?.call("PATCH", &path(id, ""), Some(&Value::Object(body)))?;
    session.out.told(&answer, text(&answer, "id"), &format!("changed {}", clean(text(&answer, "name"))))
}

fn resend(session: &Session, id: &str, body: &Value) -> Outcome {
    let answer = session.client()?.post(&path(id, "/resend"), body)?;
    let count = answer["sent"].as_array().map_or(0, Vec::len);
    let rest = answer["dead"].as_u64().unwrap_or_default();
    let line = format!("{count} sent again, {rest} left");
    let line =
        if answer["enabled"] == false { line + "; it is disabled: 'svc webhook set --enable'" } else { line };
    session.out.told(&answer, &count.to_string(), &line)
}

fn events(session: &Session) -> Outcome {
    let answer = session.client()?.get("/api/webhooks")?;
    if session.out.json {
        return session.out.document(&answer["events"]);
    }
    let names = answer["events"].as_array().into_iter().flatten();
    session.out.lines(&names.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/webhooks")?;
    let Some(list) = out.rows(&answer, &answer["webhooks"], "id")? else { return Ok(()) };
    let mut table = Table::new(&["ID", "NAME", "EVENTS", "TAKEN", "WAIT", "DEAD", "LAST", "TROUBLE"])
        .numeric(&[3, 4, 5, 6]);
    for one in list {
        let names: Vec<&str> =
            one["events"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let last = text(one, "lastTaken");
        let trouble = if one["enabled"] == false { "disabled" } else { text(one, "lastError") };
        table.row(&[
            text(one, "id").into(),
            one_line(text(one, "name")),
            one_line(&names.join(",")),
            one["taken"].to_string(),
            one["waiting"].to_string(),
            one["dead"].to_string(),
            if last.is_empty() { "-".into() } else { age_of(last, now()) },
            one_line(trouble),
        ]);
    }
    out.table(&table, "no webhooks; 'svc webhook add URL --events agent:exit' makes one")
}

fn show(session: &Session, id: &str) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get(&path(id, "/messages"))?;
    if out.json {
        return out.document(&answer);
    }
    let mut table =
        Table::new(&["MESSAGE", "STATE", "EVENT", "AGE", "TRIES", "NEXT", "TROUBLE"]).numeric(&[3, 4]);
    for (state, name) in [("waits", "waiting"), ("dead", "dead")] {
        for one in answer[name].as_array().into_iter().flatten() {
            let state = if one["underWay"] == true { "is sent" } else { state };
            table.row(&[
                text(one, "id").into(),
                state.into(),
                text(one, "event").into(),
                age_of(text(one, "at"), now()),
                one["tries"].to_string(),
                if state == "waits" { text(one, "nextAt").into() } else { "-".into() },
                one_line(text(one, "error")),
            ]);
        }
    }
    out.table(&table, "nothing waits, and nothing is dead")?;
    let dropped = answer["dropped"].as_u64().unwrap_or_default();
    if dropped > 0 {
        return out.line(&format!("{dropped} dead messages were dropped: there was no room for them"));
    }
    Ok(())
}
