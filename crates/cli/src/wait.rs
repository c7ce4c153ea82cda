//! `svc wait`: until agents have ended.

use super::approvals;
use super::client::Client;
use super::progress::Line;
use super::render::{age, count, parse_duration};
use super::session::{Failure, Outcome, Session};
use super::target::{agents, find, is_live, latest, lineage, state, text};
use serde_json::Value;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use svc_base::time::Time;

/// Between two looks at the registry.
const POLL: Duration = Duration::from_millis(250);

/// `svc wait [TARGET..]`.
pub fn wait(session: &Session) -> Outcome {
    let args = &session.args;
    let timeout = args.value("timeout").map(|text| {
        parse_duration(text)
            .ok_or_else(|| Failure::usage(format!("--timeout is like 30s, 10m or 2h, not '{text}'")))
    });
    let timeout = timeout.transpose()?;
    let client = session.client()?;
    let mut targets = Vec::new();
    for word in &args.words {
        targets.push(find(&client, word)?);
    }
    until_ended(session, &client, &targets, timeout)
}

/// Waits until these agents have ended (all that live, if none are named) and prints how each did.
///
/// Errors: exit code 1 when one did not complete, when none lives and one has crashed, or when the time is
/// up.
pub fn until_ended(
    session: &Session,
    client: &Client,
    targets: &[Value],
    timeout: Option<Duration>,
) -> Outcome {
    let started = Instant::now();
    let is_asked = session.args.flag("asked");
    let mut line = Line::new(&session.out, "waiting");
    let mut watched: Vec<Value> = targets.to_vec();
    let mut ended: Vec<Value> = Vec::new();
    loop {
        let all = agents(client)?;
        if targets.is_empty() {
            adopt(&mut watched, &ended, &all);
            if watched.is_empty() && ended.is_empty() {
                ended = crashed(&all);
                for agent in &ended {
                    told(session, agent)?;
                }
            }
        }
        let mut living = Vec::new();
        for agent in watched {
            let last = latest(&all, lineage(&agent)).cloned().unwrap_or_else(|| removed(agent));
            if is_live(&last) {
                living.push(last);
            } else {
                line.wipe();
                told(session, &last)?;
                ended.push(last);
            }
        }
        watched = living;
        if watched.is_empty() {
            line.wipe();
            return verdict(session, ended);
        }
        let asked = if is_asked { asked_by(client, &watched)? } else { Vec::new() };
        if !asked.is_empty() {
            line.wipe();
            return approvals::told(&session.out, &asked);
        }
        if let Some(timeout) = timeout.filter(|timeout| started.elapsed() >= *timeout) {
            let names: Vec<&str> = watched.iter().map(|agent| text(agent, "name")).collect();
            let asked = match asked_by(client, &watched)?.len() {
                0 => "see 'svc agents'".to_owned(),
                n => format!("{n} of their wishes wait for your decision, see 'svc approvals'"),
            };
            return Err(Failure::failed(format!(
                "after {} still running: {}; {asked}",
                age(timeout),
                names.join(", ")
            )));
        }
        line.draw(&doing(&watched), None);
        std::thread::sleep(POLL);
    }
}

/// What these agents wait for a person's decision of.
fn asked_by(client: &Client, watched: &[Value]) -> Result<Vec<Value>, Failure> {
    let mut answer = client.get("/api/approvals")?;
    let pending = answer["pending"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let is_theirs = |one: &Value| watched.iter().any(|agent| text(agent, "name") == text(one, "agentName"));
    Ok(pending.into_iter().filter(is_theirs).collect())
}

/// `backend-1 (Write src/a.rs), docs-1`.
fn doing(watched: &[Value]) -> String {
    let one = |agent: &Value| match super::render::one_line(text(agent, "currentActivity")) {
        activity if activity.is_empty() => text(agent, "name").to_owned(),
        activity => format!("{} ({activity})", text(agent, "name")),
    };
    watched.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Takes up agents that have been started meanwhile, for example by a planner or a schedule.
fn adopt(watched: &mut Vec<Value>, ended: &[Value], all: &[Value]) {
    for agent in all.iter().filter(|agent| is_live(agent)) {
        let known = |list: &[Value]| list.iter().any(|other| lineage(other) == lineage(agent));
        if !known(watched) && !known(ended) {
            watched.push(agent.clone());
        }
    }
}

/// Those that have crashed and did not go on: who starts one and then waits for all is told, however quick
/// the end was.
fn crashed(all: &[Value]) -> Vec<Value> {
    let is_last = |agent: &&Value| {
        latest(all, lineage(agent)).is_some_and(|last| text(last, "id") == text(agent, "id"))
    };
    all.iter().filter(|agent| state(agent) == "crashed").filter(is_last).cloned().collect()
}

/// The last record of an agent that is no longer in the registry: only ended ones are removed from it.
fn removed(mut agent: Value) -> Value {
    if is_live(&agent) {
        agent["state"] = "killed".into();
        agent["status"] = "killed".into();
        agent["statusReason"] = "its record was removed".into();
        agent["statusCode"] = "removed".into();
    }
    agent
}

fn told(session: &Session, agent: &Value) -> Outcome {
    let out = &session.out;
    if out.json {
        return Ok(());
    }
    if out.quiet {
        return out.line(text(agent, "id"));
    }
    let mut line = format!("{} {}", text(agent, "name"), out.status(state(agent)));
    let (from, to) = (Time::parse(text(agent, "spawnedAt")), Time::parse(text(agent, "statusSince")));
    if let (Some(from), Some(to)) = (from, to) {
        let _ = write!(line, " after {}", age(to.since(from)));
    }
    let _ = write!(line, ", {} tokens", count(agent["tokensUsed"].as_u64().unwrap_or(0)));
    let reason = super::render::one_line(text(agent, "statusReason"));
    if state(agent) != "completed" && !reason.is_empty() {
        let _ = write!(line, ": {reason}");
    }
    out.line(&line)
}

fn verdict(session: &Session, ended: Vec<Value>) -> Outcome {
    let all_completed = ended.iter().all(|agent| state(agent) == "completed");
    if session.out.json {
        session.out.document(&Value::Array(ended))?;
    } else if ended.is_empty() {
        session.out.note("no agent is running");
    }
    if all_completed { Ok(()) } else { Err(Failure::Told(1)) }
}
