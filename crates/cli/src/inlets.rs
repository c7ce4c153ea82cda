//! `svc webhook in`.

use super::client::encode;
use super::render::{Table, age_of, clean, one_line};
use super::session::{Failure, Outcome, Session, now};
use super::target::text;
use super::webhooks::{own_secret, with_secret};
use serde_json::{Value, json};

/// `svc webhook in WORDS`.
pub(super) fn inlets(session: &Session, words: &[&str]) -> Outcome {
    match words {
        [] | ["list"] => list(session),
        ["add", name] => add(session, name),
        [action @ ("enable" | "disable"), id] => {
            let body = json!({"enabled": *action == "enable"});
            let answer = session.client()?.call("PATCH", &path(id, ""), Some(&body))?;
            session.out.told(&answer, text(&answer, "id"), &format!("{action}d {id}"))
        }
        ["secret", id] => {
            let answer =
                session.client()?.post(&path(id, "/secret"), &Value::Object(own_secret(session)?))?;
            with_secret(session, &answer, "has a new secret; the one before opens nothing any more")
        }
        ["remove", id] => {
            let answer = session.client()?.call("DELETE", &path(id, ""), None)?;
            session.out.told(&answer, text(&answer, "id"), &format!("removed {id}"))
        }
        _ => Err(Failure::usage("see 'svc help webhook'")),
    }
}

fn path(id: &str, rest: &str) -> String {
    format!("/api/inlets/{}{rest}", encode(id))
}

fn add(session: &Session, name: &str) -> Outcome {
    let args = &session.args;
    let mut body = own_secret(session)?;
    body.insert("name".into(), json!(name));
    if let Some(words) = args.value("say") {
        body.insert("words".into(), json!(words));
    }
    match (args.value("role"), args.value("to")) {
        (Some(_), None) => {
            let mut agent = args.given(&["role", "provider", "model", "permission"]);
            if !args.values("scope").is_empty() {
                agent.insert("scope".into(), json!(args.values("scope")));
            }
            body.insert("agent".into(), Value::Object(agent));
        }
        (None, Some(to)) => drop(body.insert("to".into(), json!(to))),
        _ => {
            return Err(Failure::usage(
                "say what a message does: --role ROLE starts an agent, --to AGENT tells one",
            ));
        }
    }
    let answer = session.client()?.post("/api/inlets", &Value::Object(body))?;
    let what = format!(
        "takes signed posts at {}; give its sender this secret, which is not shown again",
        text(&answer, "path")
    );
    with_secret(session, &answer, &what)
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/inlets")?;
    let Some(list) = out.rows(&answer, &answer["inlets"], "id")? else { return Ok(()) };
    let mut table = Table::new(&["ID", "NAME", "DOES", "TAKEN", "WRONG", "LAST", "PATH"]).numeric(&[3, 4, 5]);
    for one in list {
        let last = text(one, "lastTaken");
        let does = match (one["enabled"] == false, one["to"].as_str()) {
            (true, _) => "disabled".to_owned(),
            (false, Some(to)) => format!("tells {}", clean(to)),
            (false, None) => format!("starts a {}", clean(text(&one["agent"], "role"))),
        };
        table.row(&[
            text(one, "id").into(),
            one_line(text(one, "name")),
            does,
            one["taken"].to_string(),
            one["wrong"].to_string(),
            if last.is_empty() { "-".into() } else { age_of(last, now()) },
            text(one, "path").into(),
        ]);
    }
    out.table(&table, "nothing comes in; 'svc webhook in add NAME --role ROLE' makes a way")
}
