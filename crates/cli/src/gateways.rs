//! `svc gateways`.

use super::client::encode;
use super::commands::{Command, Group, Words, choice, switch, value};
use super::render::{Table, one_line};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use super::trust::read_key;
use serde_json::{Map, Value, json};

const PRESETS: &[&str] = &["critical", "lifecycle", "all"];
const PERMISSIONS: &[&str] = &["full", "read-only"];

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "gateways",
    alias: "gateway",
    group: Group::Together,
    summary: "notifications and commands on Telegram, Discord, Slack",
    usage: "gateways [list | add TYPE | show ID | set ID | token ID [KEY] | connect ID | disconnect ID | test ID | remove ID]",
    words: (0, 3),
    complete: Words::OneOf(&[
        "list",
        "add",
        "show",
        "set",
        "token",
        "connect",
        "disconnect",
        "test",
        "remove",
    ]),
    options: &[
        value("chat", "ID", "where notifications go"),
        value("users", "IDS", "who may give commands, with commas; '' lets everybody"),
        choice("preset", "WORD", PRESETS, "which events are sent: critical, lifecycle or all"),
        choice("permission", "WORD", PERMISSIONS, "what the chat may do: full or read-only"),
        value("name", "TEXT", "its display name"),
        value("api-base", "URL", "another server that speaks the platform's API; '' is the platform"),
        switch("enable", "let it connect"),
        switch("disable", "do not let it connect"),
    ],
    details: "svc gateways add telegram --chat 4711, svc gateways token ID, svc gateways connect ID.\n\
              A token is typed unseen or given on standard input. KEY is bot_token; Slack also has app_token.\n\
              A beginning of an id is enough.",
    run: gateways,
}];

fn gateways(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["list"] => list(session),
        ["add", kind] => add(session, kind),
        ["show", id] => show(session, id),
        ["set", id] => set(session, id),
        ["token", id] => token(session, id, "bot_token"),
        ["token", id, key] => token(session, id, key),
        ["connect", id] => connect(session, id),
        ["disconnect", id] => act(session, id, "disconnect", "is disconnected"),
        ["test", id] => act(session, id, "test", "has sent a test message"),
        ["remove", id] => remove(session, id),
        _ => Err(Failure::usage("see 'svc help gateways'")),
    }
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/gateways")?;
    let Some(list) = out.rows(&answer, &answer, "id")? else { return Ok(()) };
    let mut table =
        Table::new(&["ID", "STATE", "BOT", "CHAT", "TOLD", "MAY", "USERS", "TROUBLE"]).numeric(&[6]);
    for one in list {
        let or_dash = |word: &str| if word.is_empty() { "-".to_owned() } else { one_line(word) };
        table.row(&[
            text(one, "id").into(),
            state(one).into(),
            or_dash(text(one, "botUsername")),
            or_dash(text(one, "chatId")),
            text(&one["notifications"], "preset").into(),
            text(one, "commandPermission").into(),
            match one["allowedUsers"].as_u64() {
                Some(0) | None => "all".into(),
                Some(n) => n.to_string(),
            },
            one_line(text(one, "lastError")),
        ]);
    }
    out.table(&table, "there is no gateway; make one with 'svc gateways add telegram'")
}

fn state(record: &Value) -> &'static str {
    match (record["enabled"] == true, record["connected"] == true) {
        (_, true) => "connected",
        (true, false) => "not connected",
        (false, false) => "disabled",
    }
}

/// The whole id that `beginning` means.
fn find(session: &Session, beginning: &str) -> Result<String, Failure> {
    let answer = session.client()?.get("/api/gateways")?;
    let ids: Vec<&str> = answer.as_array().into_iter().flatten().map(|one| text(one, "id")).collect();
    if ids.contains(&beginning) {
        return Ok(beginning.to_owned());
    }
    let fitting: Vec<&&str> = ids.iter().filter(|id| id.starts_with(beginning)).collect();
    match fitting.as_slice() {
        [one] => Ok((**one).to_owned()),
        [] => Err(Failure::failed(format!("there is no gateway '{beginning}'; see 'svc gateways'"))),
        _ => Err(Failure::failed(format!("'{beginning}' fits several gateways; see 'svc gateways'"))),
    }
}

fn path(id: &str, what: &str) -> String {
    format!("/api/gateways/{}{what}", encode(id))
}

/// The fields that the options name.
fn wishes(session: &Session) -> Result<Map<String, Value>, Failure> {
    let args = &session.args;
    let mut body = Map::new();
    let mut add = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(field.to_owned(), value);
        }
    };
    add("chatId", args.value("chat").map(|id| json!(id)));
    add("displayName", args.value("name").map(|name| json!(name)));
    add("commandPermission", args.value("permission").map(|word| json!(word)));
    add("notifications", args.value("preset").map(|word| json!({"preset": word})));
    add("apiBase", args.value("api-base").map(|url| if url.is_empty() { Value::Null } else { json!(url) }));
    add(
        "allowedUsers",
        args.value("users").map(|users| {
            json!(users.split(',').map(str::trim).filter(|user| !user.is_empty()).collect::<Vec<_>>())
        }),
    );
    match (args.flag("enable"), args.flag("disable")) {
        (true, true) => return Err(Failure::usage("--enable and --disable exclude each other")),
        (true, false) => add("enabled", Some(json!(true))),
        (false, true) => add("enabled", Some(json!(false))),
        (false, false) => {}
    }
    Ok(body)
}

fn add(session: &Session, kind: &str) -> Outcome {
    let mut body = wishes(session)?;
    body.insert("type".into(), json!(kind));
    let answer = session.client()?.post("/api/gateways", &Value::Object(body))?;
    let id = text(&answer, "id");
    let words = format!("made gateway {id}; store its token with 'svc gateways token {id}'");
    session.out.told(&answer, id, &words)
}

fn show(session: &Session, id: &str) -> Outcome {
    let record = session.client()?.get(&path(&find(session, id)?, ""))?;
    session.out.document(&record)
}

fn set(session: &Session, id: &str) -> Outcome {
    let body = wishes(session)?;
    if body.is_empty() {
        return Err(Failure::usage("nothing to set; see 'svc help gateways' for the options"));
    }
    let id = find(session, id)?;
    let answer = session.client()?.call("PATCH", &path(&id, ""), Some(&Value::Object(body)))?;
    session.out.told(&answer, "", &format!("changed gateway {id}"))
}

fn token(session: &Session, id: &str, key: &str) -> Outcome {
    let id = find(session, id)?;
    let value = read_key(&format!("{id} ({key})"))?;
    let body = json!({"key": key, "value": value});
    let answer = session.client()?.post(&path(&id, "/credentials"), &body)?;
    session.out.told(&answer, "", &format!("stored the {key} of {id}"))
}

fn connect(session: &Session, id: &str) -> Outcome {
    let id = find(session, id)?;
    let record = session.client()?.post(&path(&id, "/connect"), &json!({}))?;
    if record["connected"] != true {
        if session.out.json {
            session.out.document(&record)?;
            return Err(Failure::Told(1));
        }
        let why = record["lastError"].as_str().unwrap_or("the platform has not answered yet");
        return Err(Failure::failed(format!("gateway {id} is not connected: {why}")));
    }
    session.out.told(
        &record,
        "",
        &format!("gateway {id} is connected as {}", text(&record, "botUsername")),
    )?;
    advise(session, &id, &record)
}

/// What a person should know of a gateway that has just connected.
fn advise(session: &Session, id: &str, record: &Value) -> Outcome {
    let out = &session.out;
    if out.json || out.quiet {
        return Ok(());
    }
    if text(record, "chatId").is_empty() {
        out.line(&format!(
            "it has no chat to write to: send /help to the bot, then 'svc gateways set {id} --chat CHAT'"
        ))?;
    }
    let open = record["allowedUsers"].as_array().is_none_or(Vec::is_empty);
    if open && record["commandPermission"] == "full" {
        out.line(&format!(
            "everybody who can write to it may give commands; 'svc gateways set {id} --users IDS' limits it"
        ))?;
    }
    Ok(())
}

fn act(session: &Session, id: &str, what: &str, done: &str) -> Outcome {
    let id = find(session, id)?;
    let answer = session.client()?.post(&path(&id, &format!("/{what}")), &json!({}))?;
    session.out.told(&answer, "", &format!("gateway {id} {done}"))
}

fn remove(session: &Session, id: &str) -> Outcome {
    let id = find(session, id)?;
    let answer = session.client()?.call("DELETE", &path(&id, ""), None)?;
    session.out.told(&answer, "", &format!("removed gateway {id} and its tokens"))
}
