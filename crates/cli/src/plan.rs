//! `svc plan`: a planner at work, its recommendation, and the phases of the team it recommends.

use super::agents::words_or_stdin;
use super::client::{Client, encode};
use super::logs::{self, POLL, Start};
use super::render::one_line;
use super::session::{Failure, Outcome, Session};
use super::target::{find, state, text};
use super::teams::{configurations, launch_recommended};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// After the planner has ended, its file is looked at within moments; longer means that there is none.
const RECOMMENDATION_WAIT: Duration = Duration::from_secs(3);

/// `svc plan TASK..`.
pub fn plan(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let task = words_or_stdin(session, 0)?;
    if task.trim().is_empty() {
        return Err(Failure::usage("the task is empty"));
    }
    let client = session.client()?;
    let mut body = args.given(&["provider", "model", "permission"]);
    body.insert("role".into(), json!("planner"));
    body.insert("prompt".into(), json!(task));
    if let Some(team) = args.value("team") {
        body.insert("teamId".into(), json!(team));
    }
    let planner = client.post("/api/agents", &Value::Object(body))?;
    out.note(&format!("started {} ({})", text(&planner, "name"), text(&planner, "id")));
    if out.json {
        wait_for_end(&client, &planner)?;
    } else {
        logs::follow(&client, out, &planner, Start::Beginning, false)?;
    }
    let recommendation = recommended_by(&client, &planner)?;
    if !args.flag("launch") {
        return shown(session, &recommendation);
    }
    if !out.json {
        shown(session, &recommendation)?;
    }
    launch_recommended(session, &client, true)
}

fn wait_for_end(client: &Client, planner: &Value) -> Outcome {
    while super::target::is_live(&find(client, text(planner, "id"))?) {
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// What this planner has recommended.
///
/// Errors: it has not, or it crashed.
fn recommended_by(client: &Client, planner: &Value) -> Result<Value, Failure> {
    let deadline = Instant::now() + RECOMMENDATION_WAIT;
    loop {
        let found = client.get("/api/recommended-team")?;
        if found["exists"] == true && found["planner"] == planner["lineageId"] {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            let (problem, name) = (text(&found, "problem"), text(planner, "name"));
            let record = find(client, text(planner, "id"))?;
            return Err(Failure::failed(if problem.is_empty() {
                format!(
                    "{name} ({}) has recommended no team; ask it with 'svc instruct {name} ..', or see \
                     'svc logs {name}'",
                    state(&record)
                )
            } else {
                format!("the recommendation of {name} cannot be used: {}", one_line(problem))
            }));
        }
        std::thread::sleep(POLL);
    }
}

fn shown(session: &Session, recommendation: &Value) -> Outcome {
    let out = &session.out;
    if out.json {
        return out.document(recommendation);
    }
    let agents = recommendation["agents"].as_array().cloned().unwrap_or_default();
    out.line("")?;
    out.lines(&configurations(&agents).lines(out.width, out.colour))?;
    if !session.args.flag("launch") {
        out.note("'svc team launch --follow' starts this team");
    }
    Ok(())
}

/// Tells what becomes of the members of a plan until it is over.
///
/// Errors: exit code 1 when it is blocked.
pub fn follow(session: &Session, client: &Client, id: &str) -> Outcome {
    let out = &session.out;
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let plans = client.get("/api/plans")?;
        let found = plans["plans"].as_array().into_iter().flatten().find(|plan| text(plan, "id") == id);
        let Some(plan) = found else {
            return Err(Failure::failed(format!("plan {id} is gone; see 'svc agents'")));
        };
        for member in plan["agents"].as_array().into_iter().flatten() {
            let name = text(member, "name").to_owned();
            let word =
                if text(member, "outcome") == "working" { state(member) } else { text(member, "outcome") };
            if name.is_empty() || word == "pending" || told.get(&name).is_some_and(|before| before == word) {
                continue;
            }
            if !out.json && !out.quiet {
                let restarted = if member["restarts"].as_u64() > Some(0) { ", restarted" } else { "" };
                out.line(&format!("phase {}: {name} {}{restarted}", member["phase"], out.status(word)))?;
            }
            told.insert(name, word.to_owned());
        }
        match text(plan, "status") {
            "done" => return if out.json { out.document(plan) } else { Ok(()) },
            "blocked" => {
                let reason = one_line(text(plan, "reason"));
                return Err(Failure::failed(format!(
                    "phase {} is blocked: {reason}; 'svc team retry' tries again, 'svc team skip' goes on without",
                    plan["phase"]
                )));
            }
            _ => std::thread::sleep(POLL),
        }
    }
}

/// `svc team recommended`.
pub fn recommended(session: &Session) -> Outcome {
    let found = session.client()?.get("/api/recommended-team")?;
    if session.out.json || found["exists"] == true {
        return shown(session, &found);
    }
    session.out.line("no planner has recommended a team yet; 'svc plan TASK' starts one")
}

/// `svc team revise FILE`.
pub fn revise(session: &Session, file: &str) -> Outcome {
    let failed = |why: String| Failure::failed(format!("{file}: {why}"));
    let content = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
    let like = "it is to be like 'svc team recommended --json'";
    let body: Value = serde_json::from_slice(&content)
        .map_err(|error| failed(format!("it is no JSON: {error}; {like}")))?;
    if !body["agents"].is_array() {
        return Err(failed(format!("it has no list of agents; {like}")));
    }
    let mut wish = json!({"agents": body["agents"]});
    if let Some(folder) = body["projectDir"].as_str() {
        wish["projectDir"] = json!(folder);
    }
    let answer = session.client()?.call("PATCH", "/api/recommended-team", Some(&wish))?;
    shown(session, &answer)
}

/// `svc team retry` and `svc team skip`: of the plan with this id, or of the one that is blocked.
pub fn steer(session: &Session, deed: &str, id: Option<&str>) -> Outcome {
    let client = session.client()?;
    let plans = client.get("/api/plans")?;
    let mut all = plans["plans"].as_array().into_iter().flatten();
    let found = match id {
        Some(id) => all.find(|plan| text(plan, "id") == id),
        None => all.find(|plan| text(plan, "status") == "blocked"),
    };
    let plan = found.ok_or_else(|| match id {
        Some(id) => Failure::failed(format!("no plan has the id {id:?}")),
        None => Failure::failed("no plan is blocked".to_owned()),
    })?;
    let id = text(plan, "id");
    let answer =
        client.post(&format!("/api/plans/{}/{deed}", encode(id)), &json!({"phase": plan["phase"]}))?;
    let done = if deed == "retry" { "is tried again" } else { "is passed over" };
    let line =
        format!("phase {} of plan {id} {done}; the plan is {}", plan["phase"], text(&answer, "status"));
    session.out.told(&answer, id, &line)
}
