//! `svc schedule`.

use super::agents::words_or_stdin;
use super::client::encode;
use super::render::{Table, one_line};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use serde_json::{Value, json};

/// `svc schedule`.
pub fn schedule(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["list"] => list(session),
        ["show", target] => show(session, target),
        ["add", cron, role, ..] => add(session, cron, role),
        ["run", target] => {
            let answer = session.client()?.post(&path(target, "/run"), &json!({}))?;
            let (name, id) = (text(&answer["agent"], "name"), text(&answer, "agentId"));
            session.out.told(&answer, id, &format!("started {name} ({id})"))
        }
        [action @ ("enable" | "disable"), target] => {
            let answer = session.client()?.post(&path(target, &format!("/{action}")), &json!({}))?;
            session.out.told(&answer, text(&answer, "id"), &format!("{action}d {target}{}", next(&answer)))
        }
        ["delete", target] => {
            let answer = session.client()?.call("DELETE", &path(target, ""), None)?;
            session.out.told(&answer, text(&answer, "id"), &format!("deleted {target}"))
        }
        _ => Err(Failure::usage(
            "usage: svc schedule list | show | add CRON ROLE PROMPT.. | run | enable | disable | delete; \
             see 'svc help schedule'",
        )),
    }
}

fn path(target: &str, rest: &str) -> String {
    format!("/api/schedules/{}{rest}", encode(target))
}

fn next(schedule: &Value) -> String {
    schedule["nextRun"].as_str().map(|time| format!("; next at {time}")).unwrap_or_default()
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/schedules")?;
    let Some(schedules) = out.rows(&answer, &answer, "id")? else { return Ok(()) };
    let mut table = Table::new(&["NAME", "ID", "CRON", "ZONE", "NEXT", "LAST", "ROLE"]);
    for one in schedules {
        let or =
            |value: &str, other: &str| if value.is_empty() { other.to_owned() } else { value.to_owned() };
        table.row(&[
            one_line(text(one, "name")),
            text(one, "id").into(),
            text(one, "cron").into(),
            text(one, "timezone").into(),
            or(text(one, "nextRun"), "disabled"),
            or(text(one, "lastRun"), "-"),
            text(&one["agent"], "role").into(),
        ]);
    }
    out.table(&table, "no schedules; add one with 'svc schedule add CRON ROLE PROMPT'")
}

fn show(session: &Session, target: &str) -> Outcome {
    let out = &session.out;
    let schedule = session.client()?.get(&path(target, ""))?;
    if out.json {
        return out.document(&schedule);
    }
    let (name, cron, zone) = (text(&schedule, "name"), text(&schedule, "cron"), text(&schedule, "timezone"));
    let runner = schedule["agent"]["runner"].as_str().map(|runner| format!(", on {}", one_line(runner)));
    out.line(&format!("{name}: {cron} in {zone}{}{}", runner.unwrap_or_default(), next(&schedule)))?;
    let history = schedule["history"].as_array().cloned().unwrap_or_default();
    if history.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["AT", "FOR", "OUTCOME", "AGENT", "REASON"]);
    for run in &history {
        table.row(&[
            text(run, "at").into(),
            text(run, "scheduledFor").into(),
            text(run, "outcome").into(),
            text(run, "agentId").into(),
            one_line(text(run, "reason")),
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

fn add(session: &Session, cron: &str, role: &str) -> Outcome {
    let args = &session.args;
    let prompt = words_or_stdin(session, 3)?;
    let mut agent = args.given(&["provider", "model", "permission", "runner"]);
    agent.insert("role".into(), json!(role));
    agent.insert("prompt".into(), json!(prompt));
    if let Some(team) = args.value("team") {
        agent.insert("teamId".into(), json!(team));
    }
    if !args.values("scope").is_empty() {
        agent.insert("scope".into(), json!(args.values("scope")));
    }
    let mut body = json!({"cron": cron, "agent": agent, "timezone": timezone(args.value("timezone"))});
    for (field, value) in args.given(&["name", "catch-up"]) {
        body[field] = value;
    }
    if let Some(number) = args.value("max-concurrent") {
        let wrong = || Failure::usage(format!("--max-concurrent is a number, not '{number}'"));
        body["maxConcurrent"] = json!(number.parse::<u64>().map_err(|_| wrong())?);
    }
    let schedule = session.client()?.post("/api/schedules", &body)?;
    let line = format!("added {}{}", text(&schedule, "name"), next(&schedule));
    session.out.told(&schedule, text(&schedule, "id"), &line)
}

/// The zone that was asked for, else this machine's: people mean the clock on their wall.
pub fn timezone(given: Option<&str>) -> String {
    let own = || jiff::tz::TimeZone::system().iana_name().map(ToOwned::to_owned);
    given.map(ToOwned::to_owned).or_else(own).unwrap_or_else(|| "UTC".into())
}
