//! The journalist against its specification.

use super::{DECISIONS_FILE, MAP_FILE, Report};
use crate::agents::Job;
use crate::agents::JobReport;
use crate::assembly::documents::encode;
use crate::context::testing::{Core, parsed, write_ended, writes};
use crate::core::ids::AgentId;
use crate::core::{Document, Effect, Event};
use crate::providers::{Activity, Tokens};
use serde_json::{Value, json};

fn says(text: &str) -> Activity {
    Activity::Text { text: text.into() }
}

/// Asks for a cycle; the documents that were ordered, and the answer.
fn cycle(core: &mut Core) -> (Vec<(&'static str, String)>, (u16, Value)) {
    let reply = core.ask("POST", "/api/journalist/cycle", &Value::Null);
    let call = core.last_call();
    if let Some(reply) = reply {
        return (Vec::new(), (reply.status, parsed(&reply)));
    }
    let files = ordered(core).expect("documents to be written");
    core.apply(Event::Journalist(Report::Written(Ok(()))));
    let reply = core.replied(call).expect("an answer after it finished");
    (files, (reply.status, parsed(&reply)))
}

fn ordered(core: &mut Core) -> Option<Vec<(&'static str, String)>> {
    let at = core.effects.iter().position(|effect| matches!(effect, Effect::Journalist(_)))?;
    match core.effects.remove(at) {
        Effect::Journalist(order) => {
            Some(order.files.into_iter().map(|(name, text)| (name, text.to_string())).collect())
        }
        _ => None,
    }
}

fn text<'a>(files: &'a [(&'static str, String)], name: &str) -> &'a str {
    files.iter().find(|(file, _)| *file == name).map_or("", |(_, text)| text)
}

fn busy(core: &mut Core) -> AgentId {
    let id = core.spawn(&json!({"role": "backend", "prompt": "Build the login"}));
    core.hear(id, writes("/project/src/login.rs"));
    core.hear(id, write_ended("/project/src/refused.rs", true));
    core.hear(
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
    core.hear(id, vec![start("1"), end("1", true)]);
    id
}

#[test]
fn decisions_9_a_cycle_writes_what_agents_did_and_answers_after_it_finished() {
    let mut core = Core::new();
    busy(&mut core);
    let (files, (status, body)) = cycle(&mut core);
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
    let mut core = Core::new();
    let (files, (_, body)) = cycle(&mut core);
    assert_eq!((files.len(), body), (0, json!({"ok": true, "cycle": 1, "changed": false})));
    let id = busy(&mut core);
    cycle(&mut core);
    let (files, (_, body)) = cycle(&mut core);
    assert_eq!((files.len(), &body["changed"]), (0, &json!(false)));
    core.hear(id, writes("b.rs"));
    let (files, (_, body)) = cycle(&mut core);
    assert_eq!((files.len(), &body["changed"]), (1, &json!(true)), "only the map has news");
}

#[test]
fn daemon_the_status_has_its_fields_and_the_event_too() {
    let mut core = Core::new();
    let before = core.get("/api/journalist");
    assert_eq!(before["running"], true);
    assert_eq!((&before["lastCycle"], &before["interval"]), (&Value::Null, &json!(120)));
    assert_eq!((&before["documentsGenerated"], &before["cycleCount"]), (&json!([]), &json!(0)));
    busy(&mut core);
    cycle(&mut core);
    let told = core.notices();
    let event = told.iter().find(|message| message["type"] == "journalist:cycle").expect("an event");
    assert_eq!(event["data"]["cycleCount"], 1);
    assert_eq!(event["data"]["lastCycleTime"], "2026-01-01T00:00:00.000Z");
    assert!(event["data"]["lastSynthesis"].as_str().unwrap().contains("1 files changed"));
    let after = core.get("/api/journalist");
    assert_eq!(after["lastCycle"], "2026-01-01T00:00:00.000Z");
    assert_eq!(after["documentsGenerated"], json!([MAP_FILE, DECISIONS_FILE]));
    assert_eq!(after["lastSynthesis"], event["data"]["lastSynthesis"]);
}

#[test]
fn daemon_the_map_is_sectioned_by_workspace_and_a_brief_carries_only_its_own() {
    let mut core = Core::new();
    for dir in ["web", "api"] {
        let body =
            json!({"role": "backend", "name": dir, "workingDir": dir, "prompt": format!("Build {dir}")});
        let id = core.spawn(&body);
        core.hear(id, writes("main.rs"));
    }
    let (files, _) = cycle(&mut core);
    let map = text(&files, MAP_FILE);
    assert!(map.contains("\n## api\n\n### Agents\n") && map.contains("\n## web\n"), "{map}");
    assert!(map.contains("- api/main.rs (writes: 1"));
    let section = core.state.journalist.map_section("web/deep").unwrap();
    assert!(section.contains("web/main.rs") && !section.contains("api/main.rs"));
    assert_eq!(core.state.journalist.map_section("docs"), None);
    let agent = core.state.agents.find("web").unwrap().clone();
    let facts = crate::context::brief::Facts::of(&core.state, &agent, "manual");
    assert!(facts.map.unwrap().contains("web/main.rs"));
}

#[test]
fn daemon_it_runs_by_its_interval_and_when_an_agent_completes() {
    let mut core = Core::new();
    super::arm(&mut core.state, core.now);
    core.pass(119);
    assert_eq!(core.get("/api/journalist")["cycleCount"], 0);
    core.pass(1);
    assert_eq!(core.get("/api/journalist")["cycleCount"], 1);
    core.send("PATCH", "/api/config", &json!({"journalistInterval": 10}));
    core.pass(10);
    assert_eq!(core.get("/api/journalist")["cycleCount"], 2, "a shorter interval counts at once");
    core.send("PATCH", "/api/config", &json!({"journalistInterval": 3600}));
    core.pass(10);
    let id = busy(&mut core);
    core.effects.clear();
    core.exit(id, 0);
    core.pass(2);
    let files = ordered(&mut core).expect("a cycle");
    assert!(text(&files, MAP_FILE).contains("completed since"));
}

#[test]
fn a_failure_that_was_overcome_is_not_told() {
    let mut core = Core::new();
    let id = busy(&mut core);
    let input = json!({"command": "cargo test"});
    let start =
        Activity::ToolStarted { id: "2".into(), name: "Bash".into(), input, path: None, writes: false };
    core.hear(id, vec![start, Activity::ToolEnded { id: "2".into(), error: false, output: String::new() }]);
    let (files, _) = cycle(&mut core);
    assert!(!text(&files, MAP_FILE).contains("cargo test"));
}

#[test]
fn what_cannot_be_written_is_told_and_tried_again() {
    let mut core = Core::new();
    busy(&mut core);
    assert!(core.ask("POST", "/api/journalist/cycle", &Value::Null).is_none());
    let call = core.last_call();
    core.apply(Event::Journalist(Report::Written(Err("disk full".into()))));
    let reply = core.replied(call).unwrap();
    assert_eq!((reply.status, &parsed(&reply)["code"]), (500, &json!("journalist_failed")));
    assert_eq!(core.get("/api/journalist")["lastError"], "disk full");
    core.effects.clear();
    let (files, (status, _)) = cycle(&mut core);
    assert_eq!((files.len(), status), (2, 200));
}

#[test]
fn decisions_9_a_model_adds_a_summary_or_falls_back() {
    let mut core = Core::new();
    let body = json!({"journalist": {"mode": "model"}, "defaultProvider": "script"});
    assert_eq!(core.send("PATCH", "/api/config", &body).0, 200);
    let id = busy(&mut core);
    let ask = |core: &mut Core, answer: Option<&str>| {
        core.effects.clear();
        assert!(core.ask("POST", "/api/journalist/cycle", &Value::Null).is_none());
        let asked = core.effects.iter().find_map(|effect| match effect {
            Effect::Job(Job::Query { call, request, .. }) => Some((*call, request.prompt.clone())),
            _ => None,
        });
        let (call, prompt) = asked.expect("a question");
        assert!(prompt.contains("src/login.rs"));
        match answer {
            Some(words) => {
                let tokens = Tokens { input: 7, ..Tokens::default() };
                core.apply(Event::Job(JobReport::Query(call, Ok((words.to_owned(), tokens)))));
            }
            None => core.pass(60),
        }
        let files = ordered(core).expect("documents");
        core.apply(Event::Journalist(Report::Written(Ok(()))));
        text(&files, MAP_FILE).to_owned()
    };
    let map = ask(&mut core, Some("All is well.\n# Not a headline"));
    assert!(map.contains("> All is well.\n> # Not a headline\n") && map.contains("src/login.rs"), "{map}");
    assert_eq!(core.state.questions.tokens()["__journalist__"].total(), 7);
    let booked = core.get("/api/tokens/summary");
    let component = &booked["internalOverhead"]["components"]["__journalist__"];
    assert_eq!(
        (&booked["totalUsed"], &component["tokens"], &component["sessions"]),
        (&json!(0), &json!(7), &json!(1))
    );
    let (files, (_, body)) = cycle(&mut core);
    assert_eq!((files.len(), &body["changed"]), (0, &json!(false)), "nothing new asks no model");
    core.hear(id, writes("b.rs"));
    let map = ask(&mut core, None);
    assert!(!map.contains("All is well") && map.contains("b.rs"));
}

#[test]
fn notes_survive_a_restart() {
    let mut core = Core::new();
    busy(&mut core);
    cycle(&mut core);
    let bytes = encode(Document::Journalist, &core.state).unwrap().unwrap();
    let stored = serde_json::from_slice(&bytes).unwrap();
    core.state.journalist = std::sync::Arc::new(super::State::restore(stored));
    let (files, (_, body)) = cycle(&mut core);
    assert_eq!((files.len(), body), (0, json!({"ok": true, "cycle": 2, "changed": false})));
}
