//! `svc account`.

use super::client::encode;
use super::commands::{Command, Group, Words, value};
use super::render::{Table, clean};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use serde_json::{Value, json};

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "account",
    group: Group::Look,
    summary: "list, add, change and remove further logins of your own to a provider",
    usage: "account [list | add NAME --provider ID [--home DIR] | change NAME [--label TEXT] [--home DIR] | enable NAME \
            | disable NAME | remove NAME]",
    words: (0, 2),
    complete: Words::OneOf(&["list", "add", "change", "enable", "disable", "remove"]),
    options: &[
        value("provider", "ID", "for add: whose program it is"),
        value("home", "DIR", "for add and change: its folder (~/.config/svc/accounts/NAME/ID)"),
        value("label", "TEXT", "for change: what you call it; '' for nothing"),
    ],
    details: "An account is a folder that the provider's program takes for its own, with a login of yours in it, or a\n\
              key of its own ('svc credentials set account/NAME'). Agents name one ('svc spawn --account NAME'),\n\
              or take the one with the most room (auto). add says how to log in. With one that is disabled nobody begins;\n\
              who runs goes on. remove leaves the folder.",
    run: account,
    ..Command::PLAIN
}];

fn account(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["list"] => list(session),
        ["add", name] => add(session, name),
        ["remove", name] => remove(session, name),
        ["change", name] => change(session, name, &changes(session)?),
        ["enable", name] => change(session, name, &json!({"enabled": true})),
        ["disable", name] => change(session, name, &json!({"enabled": false})),
        _ => Err(Failure::usage(
            "usage: svc account [list | add | change | enable | disable | remove] [NAME]; see 'svc help account'",
        )),
    }
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    // The programs are asked who is logged in.
    let answer = session.client()?.get("/api/accounts?login=true")?;
    let Some(accounts) = out.rows(&answer, &answer["accounts"], "name")? else { return Ok(()) };
    if accounts.is_empty() {
        return out.line("no accounts but the usual logins; 'svc account add NAME --provider ID' adds one");
    }
    let mut table =
        Table::new(&["ACCOUNT", "PROVIDER", "LOGIN", "KEY", "AGENTS", "HOME", "LABEL"]).numeric(&[4]);
    for one in accounts {
        table.row(&[
            clean(text(one, "name")),
            clean(text(one, "provider")),
            if one["enabled"] == false {
                "disabled".to_owned()
            } else {
                clean(one["login"]["told"].as_str().unwrap_or("-"))
            },
            if one["hasKey"] == true { "stored" } else { "-" }.to_owned(),
            one["agents"].as_array().map_or(0, Vec::len).to_string(),
            clean(one["home"].as_str().unwrap_or("-")),
            clean(one["label"].as_str().unwrap_or("")),
        ]);
    }
    let mut lines = table.lines(out.width, out.colour);
    lines.extend(accounts.iter().filter(|one| one["ready"] != true && one["enabled"] != false).map(how));
    out.lines(&lines)
}

/// How a person logs in to an account.
fn how(account: &Value) -> String {
    let key = format!("store a key: svc credentials set {}", clean(text(account, "keyName")));
    let name = clean(text(account, "name"));
    match account["loginCommand"].as_str() {
        Some(command) => format!("{name}: log in: {}\n  or {key}", clean(command)),
        None => format!("{name}: {key}"),
    }
}

fn add(session: &Session, name: &str) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let Some(provider) = args.value("provider") else {
        return Err(Failure::usage(
            "--provider says whose program it is, for example --provider claude-code",
        ));
    };
    let mut body = json!({"name": name, "provider": provider});
    if let Some(home) = home(session)? {
        body["home"] = json!(home);
    }
    let answer = session.client()?.post("/api/accounts", &body)?;
    let name = clean(text(&answer, "name"));
    let home = answer["home"].as_str().map_or_else(String::new, |home| format!(" in {}", clean(home)));
    out.told(&answer, &name, &format!("added {name}{home}\n{}", how(&answer)))
}

/// The folder that was named; the daemon stands elsewhere.
fn home(session: &Session) -> Result<Option<String>, Failure> {
    let Some(home) = session.args.value("home") else { return Ok(None) };
    let absolute = std::path::absolute(home).map_err(|error| Failure::failed(format!("{home}: {error}")))?;
    Ok(Some(absolute.to_string_lossy().into_owned()))
}

/// What `svc account change` is to change.
fn changes(session: &Session) -> Result<Value, Failure> {
    let mut body = json!({});
    if let Some(label) = session.args.value("label") {
        body["label"] = json!(label);
    }
    if let Some(home) = home(session)? {
        body["home"] = json!(home);
    }
    if body == json!({}) {
        return Err(Failure::usage(
            "--label or --home says what is to be changed; a key: svc credentials set",
        ));
    }
    Ok(body)
}

fn change(session: &Session, name: &str, body: &Value) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.call("PATCH", &format!("/api/accounts/{}", encode(name)), Some(body))?;
    let is_on = if answer["enabled"] == false { "disabled" } else { "enabled" };
    let home = answer["home"].as_str().map(|home| format!(", in {}", clean(home))).unwrap_or_default();
    out.said(&answer, &format!("{} is {is_on}{home}", clean(name)))
}

fn remove(session: &Session, name: &str) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.call("DELETE", &format!("/api/accounts/{}", encode(name)), None)?;
    let kept = answer["keptHome"].as_str().map(|home| format!("; its folder stays: {}", clean(home)));
    out.said(&answer, &format!("removed {}{}", clean(name), kept.unwrap_or_default()))
}
