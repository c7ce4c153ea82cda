//! `svc locks`, `svc credentials`, `svc audit`.

use super::client::encode;
use super::render::{Table, age, age_of, one_line};
use super::session::{Failure, Outcome, Session, now};
use super::target::text;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Read};
use std::time::Duration;
use svc_sys::terminal;

/// Bytes of a key that are read from standard input.
const KEY_LIMIT_BYTES: u64 = 64 << 10;

/// `svc locks`.
pub fn locks(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/coordination")?;
    if out.json {
        return out.document(&answer);
    }
    let holders = answer["operations"].as_object().cloned().unwrap_or_default();
    if out.quiet {
        return out.lines(&holders.keys().cloned().collect::<Vec<_>>());
    }
    let mut table = Table::new(&["AGENT", "OPERATION", "LEFT", "RESOURCES"]).numeric(&[2]);
    for (id, record) in &holders {
        let several = record["all"].as_array().cloned().unwrap_or_else(|| vec![record.clone()]);
        for operation in &several {
            let name = text(record, "agentName");
            let until = operation["expiresAt"].as_u64().unwrap_or_default();
            let resources = operation["resources"].as_array().into_iter().flatten().filter_map(Value::as_str);
            table.row(&[
                if name.is_empty() { id.clone() } else { name.to_owned() },
                one_line(text(operation, "name")),
                age(Duration::from_millis(until.saturating_sub(now().0))),
                one_line(&resources.collect::<Vec<_>>().join(" ")),
            ]);
        }
    }
    out.table(&table, "nobody holds a resource")
}

/// `svc credentials list | set PROVIDER | remove PROVIDER`.
pub fn credentials(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["list"] => list_credentials(session),
        ["set", provider] => set_credential(session, provider),
        ["remove", provider] => remove_credential(session, provider),
        _ => Err(Failure::usage(
            "usage: svc credentials [list | set PROVIDER | remove PROVIDER]; see 'svc help credentials'",
        )),
    }
}

fn list_credentials(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/credentials")?;
    let Some(list) = out.rows(&answer, &answer, "provider")? else { return Ok(()) };
    let mut table = Table::new(&["PROVIDER", "KEY", "AGE", "TROUBLE"]).numeric(&[2]);
    for one in list {
        table.row(&[
            text(one, "provider").into(),
            text(one, "masked").into(),
            age_of(text(one, "setAt"), now()),
            text(one, "error").into(),
        ]);
    }
    out.table(&table, "no key is stored; store one with 'svc credentials set PROVIDER'")
}

fn set_credential(session: &Session, provider: &str) -> Outcome {
    let out = &session.out;
    let client = session.client()?;
    let key = read_key(provider)?;
    let answer = client.post("/api/credentials", &json!({"provider": provider, "key": key}))?;
    out.told(&answer, "", &format!("stored the key of {provider}: {}", text(&answer, "masked")))
}

fn remove_credential(session: &Session, provider: &str) -> Outcome {
    let out = &session.out;
    let path = format!("/api/credentials/{}", encode(provider));
    let answer = session.client()?.call("DELETE", &path, None)?;
    out.told(&answer, "", &format!("forgot the key of {provider}"))
}

/// The key, asked for without an echo on a terminal, else the whole of standard input.
pub(super) fn read_key(provider: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("the key cannot be read: {error}"));
    let text = if std::io::stdin().is_terminal() {
        terminal::ask_hidden(&format!("key of {provider}: ")).map_err(failed)?
    } else {
        let mut text = String::new();
        std::io::stdin().take(KEY_LIMIT_BYTES).read_to_string(&mut text).map_err(failed)?;
        text
    };
    let key = text.trim();
    if key.is_empty() {
        return Err(Failure::usage("the key is empty; type it, or give it on standard input"));
    }
    Ok(key.to_owned())
}

/// `svc audit`.
pub fn audit(session: &Session) -> Outcome {
    let out = &session.out;
    let options = session.args.query(&["limit", "before", "event"]);
    let answer = session.client()?.get(&format!("/api/audit?{}", options.trim_start_matches('&')))?;
    if out.json {
        return out.document(&answer);
    }
    let mut table = Table::new(&["TIME", "ACTOR", "EVENT", "DETAILS"]);
    for entry in answer["entries"].as_array().into_iter().flatten() {
        table.row(&[
            text(entry, "ts").into(),
            one_line(text(entry, "actor")),
            one_line(text(entry, "event")),
            details(entry.as_object()),
        ]);
    }
    out.table(&table, "no entry fits")
}

/// The members that have no column of their own.
fn details(entry: Option<&Map<String, Value>>) -> String {
    let members =
        entry.into_iter().flatten().filter(|(name, _)| !["ts", "actor", "event"].contains(&name.as_str()));
    let words = members.map(|(name, value)| match value {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    });
    one_line(&words.collect::<Vec<_>>().join(" "))
}
