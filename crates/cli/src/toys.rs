//! `svc toys`.

use super::client::encode;
use super::render::{Table, one_line};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use super::trust::read_key;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// `svc toys`.
pub fn toys(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["list"] => list(session),
        ["show", id] => show(session, id),
        ["launch", id, ..] => launch(session, id),
        _ => Err(Failure::usage("usage: svc toys list | show ID | launch ID [IDEA..]; see 'svc help toys'")),
    }
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    let query = session.args.value("category").map(|word| format!("?category={}", encode(word)));
    let answer = session.client()?.get(&format!("/api/toys{}", query.unwrap_or_default()))?;
    let Some(toys) = out.rows(&answer, &answer, "id")? else { return Ok(()) };
    let mut table = Table::new(&["ID", "CATEGORY", "KEY", "DIFFICULTY", "WHAT IT GIVES"]);
    for toy in toys {
        let key = if text(toy, "auth") == "none" { "free" } else { "needs one" };
        table.row(&[
            text(toy, "id").into(),
            text(toy, "category").into(),
            key.into(),
            text(toy, "difficulty").into(),
            one_line(text(toy, "description")),
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

fn show(session: &Session, id: &str) -> Outcome {
    let out = &session.out;
    let toy = session.client()?.get(&format!("/api/toys/{}", encode(id)))?;
    let [name, what, docs] = ["name", "description", "docsUrl"].map(|member| text(&toy, member));
    let mut words = format!("{name}: {what}\n{docs}");
    for starter in toy["starters"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let _ = write!(words, "\n- {starter}");
    }
    out.said(&toy, &words)
}

fn launch(session: &Session, id: &str) -> Outcome {
    let args = &session.args;
    let mut body = Value::Object(args.given(&["provider", "model"]));
    let idea = args.text_from(2);
    if !idea.is_empty() {
        body["starterPrompt"] = json!(idea);
    }
    let client = session.client()?;
    if args.flag("key") {
        body["apiKey"] = json!(read_key(id)?);
    }
    let answer = client.post(&format!("/api/toys/{}/launch", encode(id)), &body)?;
    let (team, agent) = (text(&answer["team"], "name"), text(&answer["agent"], "name"));
    let line = format!(
        "made the team {team} and started {agent}; follow it with 'svc logs -f {agent}', then 'svc team launch'"
    );
    session.out.told(&answer, text(&answer["agent"], "id"), &line)
}
