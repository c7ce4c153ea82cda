//! `svc skills`.

use super::client::{Client, encode};
use super::commands::{ANY, Command, Group, Words};
use super::render::{Table, clean};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use serde_json::{Value, json};

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "skills",
    group: Group::Look,
    summary: "list, read, install, rate and remove skills",
    usage: "skills [search [WORD..] | show ID | install ID.. | remove ID.. | rate ID STARS | update [ID..]]",
    words: (0, ANY),
    complete: Words::OneOf(&["search", "show", "install", "remove", "rate", "update"]),
    details: "Without a word: those that are installed. An agent gets them with 'svc spawn --skill ID'.\n\
              Without a marketplace (setting skills.baseUrl) the 21 built-in ones can be installed.",
    run: skills,
    ..Command::PLAIN
}];

fn skills(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => installed(session),
        ["search", rest @ ..] => search(session, &rest.join(" ")),
        ["show", id] => show(session, id),
        ["install", ids @ ..] if !ids.is_empty() => each(session, ids, "POST", "/install", "installed"),
        ["remove", ids @ ..] if !ids.is_empty() => each(session, ids, "DELETE", "", "removed"),
        ["update"] => update_all(session),
        ["update", ids @ ..] => each(session, ids, "POST", "/update", "up to date"),
        ["rate", id, stars] => rate(session, id, stars),
        _ => Err(Failure::usage(
            "svc skills takes nothing, or search, show ID, install ID, remove ID, rate ID STARS or update; see 'svc help skills'",
        )),
    }
}

fn installed(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/skills/installed")?;
    let Some(list) = out.rows(&answer, &answer["skills"], "id")? else { return Ok(()) };
    let mut table = Table::new(&["ID", "VERSION", "SOURCE", "FILE", "USED BY"]);
    for skill in list {
        let users = skill["usedBy"].as_array().map(Vec::as_slice).unwrap_or_default();
        let users: Vec<String> = users.iter().filter_map(Value::as_str).map(clean).collect();
        table.row(&[
            clean(text(skill, "id")),
            clean(text(skill, "version")),
            text(skill, "source").into(),
            if skill["intact"] == true { "ok".into() } else { "changed".into() },
            if users.is_empty() { "-".into() } else { users.join(", ") },
        ]);
    }
    out.table(&table, "no skill is installed; 'svc skills search' lists what there is")
}

fn search(session: &Session, words: &str) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get(&format!("/api/skills?search={}", encode(words)))?;
    let Some(list) = out.rows(&answer, &answer["skills"], "id")? else { return Ok(()) };
    if let Some(why) = answer["why"].as_str() {
        out.note(&format!("the built-in skills: {}", clean(why)));
    }
    let mut table = Table::new(&["ID", "RATING", "INSTALLS", "HERE", "DESCRIPTION"]).numeric(&[1, 2]);
    for skill in list {
        let here = match (skill["installed"] == true, skill["updateAvailable"] == true) {
            (true, true) => "update",
            (true, false) => "yes",
            (false, _) => "-",
        };
        table.row(&[
            clean(text(skill, "id")),
            skill["rating"].as_f64().map_or_else(|| "-".into(), |rating| format!("{rating:.1}")),
            skill["downloads"].as_u64().map_or_else(|| "-".into(), |count| count.to_string()),
            here.into(),
            clean(text(skill, "description")),
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

/// The text that agents get, or would get, for whoever decides.
fn show(session: &Session, id: &str) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get(&format!("/api/skills/{}/content", encode(id)))?;
    out.said(&answer, clean(text(&answer, "content")).trim_end())
}

/// One call for each id; the first that fails ends the command. As JSON: the answer to one id, or a list.
fn each(session: &Session, ids: &[&str], method: &str, call: &str, done: &str) -> Outcome {
    let client = session.client_doing(if method == "DELETE" { "removing" } else { "installing" })?;
    let mut answers = Vec::new();
    for id in ids {
        answers.push(one(session, &client, id, method, call, done)?);
    }
    match answers.as_slice() {
        _ if !session.out.json => Ok(()),
        [answer] => session.out.document(answer),
        _ => session.out.document(&Value::Array(answers)),
    }
}

/// The answer, told unless it is wanted as JSON.
fn one(
    session: &Session,
    client: &Client,
    id: &str,
    method: &str,
    call: &str,
    done: &str,
) -> Result<Value, Failure> {
    let out = &session.out;
    let body = (method == "POST").then(|| json!({}));
    let answer = client.call(method, &format!("/api/skills/{}{call}", encode(id)), body.as_ref())?;
    if out.json {
        return Ok(answer);
    }
    if out.quiet {
        out.line(id)?;
        return Ok(answer);
    }
    let done = if answer["updated"] == true { "updated" } else { done };
    let version = answer["version"].as_str().filter(|version| !version.is_empty());
    out.line(&version.map_or_else(
        || format!("{id} is {done}"),
        |version| format!("{id} {} ({}) is {done}", clean(version), text(&answer, "source")),
    ))?;
    Ok(answer)
}

fn update_all(session: &Session) -> Outcome {
    let answer = session.client()?.get("/api/skills/installed")?;
    let list = answer["skills"].as_array().cloned().unwrap_or_default();
    let ids: Vec<&str> = list.iter().map(|skill| text(skill, "id")).collect();
    if ids.is_empty() && !session.out.json {
        session.out.note("no skill is installed; 'svc skills search' lists what there is");
    }
    each(session, &ids, "POST", "/update", "up to date")
}

fn rate(session: &Session, id: &str, stars: &str) -> Outcome {
    let rating: u64 = stars
        .parse()
        .map_err(|_| Failure::usage(format!("STARS is a whole number from 1 to 5, not '{stars}'")))?;
    let path = format!("/api/skills/{}/rate", encode(id));
    let answer = session.client()?.post(&path, &json!({"rating": rating}))?;
    session
        .out
        .said(&answer, &format!("{id} has {} stars from {} people", answer["rating"], answer["rating_count"]))
}
