//! The journalist against its specification.

use super::{DECISIONS_FILE, MAP_FILE, Report};
use crate::agents::Job;
use crate::agents::JobReport;
use crate::assembly::documents::encode;
use crate::core::ids::AgentId;
use crate::core::{Document, Effect, Event};
use crate::providers::{Activity, Tokens};
use crate::testing::{Bench, parsed, write_ended, writes};
use serde_json::{Value, json};
use std::time::Duration;

fn says(text: &str) -> Activity {
    Activity::Text { text: text.into() }
}

/// Asks for a cycle; the documents that were ordered, and the answer.
fn cycle(bench: &mut Bench) -> (Vec<(&'static str, String)>, (u16, Value)) {
    if let Some(reply) = bench.wish("POST", "/api/journalist/cycle", &Value::Null) {
        return (Vec::new(), reply);
    }
    let files = ordered(bench).expect("documents to be written");
    let reply = bench.apply(Event::Journalist(Report::Written(Ok(()))));
    (files, parsed(&reply.expect("an answer after it finished")))
}

fn ordered(bench: &mut Bench) -> Option<Vec<(&'static str, String)>> {
    let at = bench.effects.iter().position(|effect| matches!(effect, Effect::Journalist(_)))?;
    match bench.effects.remove(at) {
        Effect::Journalist(order) => {
            Some(order.files.into_iter().map(|(name, text)| (name, text.to_string())).collect())
        }
        _ => None,
    }
}

fn text<'a>(files: &'a [(&'static str, String)], name: &str) -> &'a str {
    files.iter().find(|(file, _)| *file == name).map_or("", |(_, text)| text)
}

fn busy(bench: &mut Bench) -> AgentId {
    let id = bench.spawn(&json!({"role": "backend", "prompt": "Build the login"}));
    bench.does(id, writes("/project/src/login.rs"));
    bench.does(id, write_ended("/project/src/refused.rs", true));
    bench.does(
        id,
        vec![says(
            "Decision: sessions live in a table. We decided to keep argon2 instead of bcrypt.\n\
             Open question: which cookie name?\nShall I go on?",
        )],
    );
    let run = json!({"command": "cargo test"});
    let start = |id: &str| Activity::ToolStarted {
        id: id.into(),
        name: "Bash".into(),
        input: run.clone(),
        path: None,
        writes: false,
    };
    let end = |id: &str, error| Activity::ToolEnded { id: id.into(), error, output: "2 failed".into() };
    bench.does(id, vec![start("1"), end("1", true)]);
    id
}

#[test]
fn decisions_9_a_cycle_writes_what_agents_did_and_answers_after_it_finished() {
    let mut bench = Bench::in_project();
    busy(&mut bench);
    let (files, (status, body)) = cycle(&mut bench);
    assert_eq!((status, body), (200, json!({"ok": true, "cycle": 1, "changed": true})));
    let map = text(&files, MAP_FILE);
    for part in [
        "- backend-1 (backend), at work since 2026-01-01 00:00: Build the login",
        "- src/login.rs (writes: 1, last by backend-1, 2026-01-01 00:00)",
        "- Open question: which cookie name? (backend-1",
        "- Shall I go on? (backend-1",
        "- Bash cargo test: 2 failed (backend-1",
        "\n## Agents\n",
    ] {
        assert!(map.contains(part), "{part:?} is missing in\n{map}");
    }
    assert!(!map.contains("refused.rs (writes"), "a refused write is none:\n{map}");
    let decisions = text(&files, DECISIONS_FILE);
    assert!(decisions.contains("- sessions live in a table. (backend-1"), "{decisions}");
    assert!(decisions.contains("- We decided to keep argon2 instead of bcrypt. (backend-1"));
}

#[test]
fn decisions_9_a_cycle_with_nothing_new_writes_nothing() {
    let mut bench = Bench::in_project();
    let (files, (_, body)) = cycle(&mut bench);
    assert_eq!((files.len(), body), (0, json!({"ok": true, "cycle": 1, "changed": false})));
    let id = busy(&mut bench);
    cycle(&mut bench);
    let (files, (_, body)) = cycle(&mut bench);
    assert_eq!((files.len(), &body["changed"]), (0, &json!(false)));
    bench.does(id, writes("b.rs"));
    let (files, (_, body)) = cycle(&mut bench);
    assert_eq!((files.len(), &body["changed"]), (1, &json!(true)), "only the map has news");
}

#[test]
fn daemon_the_status_has_its_fields_and_the_event_too() {
    let mut bench = Bench::in_project();
    let before = bench.get("/api/journalist");
    assert_eq!(before["running"], true);
    assert_eq!((&before["lastCycle"], &before["interval"]), (&Value::Null, &json!(120)));
    assert_eq!((&before["documentsGenerated"], &before["cycleCount"]), (&json!([]), &json!(0)));
    busy(&mut bench);
    cycle(&mut bench);
    let told = bench.told();
    let event = told.iter().find(|message| message["type"] == "journalist:cycle").expect("an event");
    assert_eq!(event["data"]["cycleCount"], 1);
    assert_eq!(event["data"]["lastCycleTime"], "2026-01-01T00:00:00.000Z");
    assert!(event["data"]["lastSynthesis"].as_str().unwrap().contains("1 files changed"));
    let after = bench.get("/api/journalist");
    assert_eq!(after["lastCycle"], "2026-01-01T00:00:00.000Z");
    assert_eq!(after["documentsGenerated"], json!([MAP_FILE, DECISIONS_FILE]));
    assert_eq!(after["lastSynthesis"], event["data"]["lastSynthesis"]);
}

#[test]
fn daemon_the_map_is_sectioned_by_workspace_and_a_brief_carries_only_its_own() {
    let mut bench = Bench::in_project();
    for dir in ["web", "api"] {
        let body =
            json!({"role": "backend", "name": dir, "workingDir": dir, "prompt": format!("Build {dir}")});
        let id = bench.spawn(&body);
        bench.does(id, writes("main.rs"));
    }
    let (files, _) = cycle(&mut bench);
    let map = text(&files, MAP_FILE);
    assert!(map.contains("\n## api\n\n### Agents\n") && map.contains("\n## web\n"), "{map}");
    assert!(map.contains("- api/main.rs (writes: 1"));
    let section = bench.state.journalist.map_section("web/deep").unwrap();
    assert!(section.contains("web/main.rs") && !section.contains("api/main.rs"));
    assert_eq!(bench.state.journalist.map_section("docs"), None);
    let agent = bench.state.agents.find("web").unwrap().clone();
    let facts = crate::context::brief::Facts::of(&bench.state, &agent, "manual");
    assert!(facts.map.unwrap().contains("web/main.rs"));
}

#[test]
fn daemon_it_runs_by_its_interval_and_when_an_agent_completes() {
    let mut bench = Bench::in_project();
    super::arm(&mut bench.state, bench.now);
    bench.pass(Duration::from_secs(119));
    assert_eq!(bench.get("/api/journalist")["cycleCount"], 0);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.get("/api/journalist")["cycleCount"], 1);
    bench.ask("PATCH", "/api/config", &json!({"journalistInterval": 10}));
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.get("/api/journalist")["cycleCount"], 2, "a shorter interval counts at once");
    bench.ask("PATCH", "/api/config", &json!({"journalistInterval": 3600}));
    bench.pass(Duration::from_secs(10));
    let id = busy(&mut bench);
    bench.effects.clear();
    bench.exits(id, 0);
    bench.pass(Duration::from_secs(2));
    let files = ordered(&mut bench).expect("a cycle");
    assert!(text(&files, MAP_FILE).contains("completed since"));
}

#[test]
fn a_failure_that_was_overcome_is_not_told() {
    let mut bench = Bench::in_project();
    let id = busy(&mut bench);
    let input = json!({"command": "cargo test"});
    let start =
        Activity::ToolStarted { id: "2".into(), name: "Bash".into(), input, path: None, writes: false };
    bench.does(id, vec![start, Activity::ToolEnded { id: "2".into(), error: false, output: String::new() }]);
    let (files, _) = cycle(&mut bench);
    assert!(!text(&files, MAP_FILE).contains("cargo test"));
}

#[test]
fn what_cannot_be_written_is_told_and_tried_again() {
    let mut bench = Bench::in_project();
    busy(&mut bench);
    assert!(bench.wish("POST", "/api/journalist/cycle", &Value::Null).is_none());
    let reply = bench.apply(Event::Journalist(Report::Written(Err("disk full".into())))).unwrap();
    let (status, problem) = parsed(&reply);
    assert_eq!((status, &problem["code"]), (500, &json!("journalist_failed")));
    assert_eq!(bench.get("/api/journalist")["lastError"], "disk full");
    bench.effects.clear();
    let (files, (status, _)) = cycle(&mut bench);
    assert_eq!((files.len(), status), (2, 200));
}

#[test]
fn decisions_9_a_model_adds_a_summary_or_falls_back() {
    let mut bench = Bench::in_project();
    let body = json!({"journalist": {"mode": "model"}, "defaultProvider": "script"});
    assert_eq!(bench.ask("PATCH", "/api/config", &body).0, 200);
    let id = busy(&mut bench);
    let ask = |bench: &mut Bench, answer: Option<&str>| {
        bench.effects.clear();
        assert!(bench.wish("POST", "/api/journalist/cycle", &Value::Null).is_none());
        let asked = bench.effects.iter().find_map(|effect| match effect {
            Effect::Job(Job::Query { call, request, .. }) => Some((*call, request.prompt.clone())),
            _ => None,
        });
        let (call, prompt) = asked.expect("a question");
        assert!(prompt.contains("src/login.rs"));
        match answer {
            Some(words) => {
                let tokens = Tokens { input: 7, ..Tokens::default() };
                bench.apply(Event::Job(JobReport::Query(call, Ok((words.to_owned(), tokens)))));
            }
            None => bench.pass(Duration::from_secs(60)),
        }
        let files = ordered(bench).expect("documents");
        bench.apply(Event::Journalist(Report::Written(Ok(()))));
        text(&files, MAP_FILE).to_owned()
    };
    let map = ask(&mut bench, Some("All is well.\n# Not a headline"));
    assert!(map.contains("> All is well.\n> # Not a headline\n") && map.contains("src/login.rs"), "{map}");
    assert_eq!(bench.state.questions.tokens()["__journalist__"].total(), 7);
    let booked = bench.get("/api/tokens/summary");
    let component = &booked["internalOverhead"]["components"]["__journalist__"];
    assert_eq!(
        (&booked["totalUsed"], &component["tokens"], &component["sessions"]),
        (&json!(0), &json!(7), &json!(1))
    );
    let (files, (_, body)) = cycle(&mut bench);
    assert_eq!((files.len(), &body["changed"]), (0, &json!(false)), "nothing new asks no model");
    bench.does(id, writes("b.rs"));
    let map = ask(&mut bench, None);
    assert!(!map.contains("All is well") && map.contains("b.rs"));
}

#[test]
fn notes_survive_a_restart() {
    let mut bench = Bench::in_project();
    busy(&mut bench);
    cycle(&mut bench);
    let bytes = encode(Document::Journalist, &bench.state).unwrap().unwrap();
    let stored = serde_json::from_slice(&bytes).unwrap();
    bench.state.journalist = std::sync::Arc::new(super::State::restore(stored));
    let (files, (_, body)) = cycle(&mut bench);
    assert_eq!((files.len(), body), (0, json!({"ok": true, "cycle": 2, "changed": false})));
}
