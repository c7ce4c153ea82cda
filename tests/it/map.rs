//! The map of the code as agents and people get it.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::json;
use std::fs;
use std::sync::Arc;

/// Writes down what it is told first.
const CLAUDE: &str = r#"#!/usr/bin/env python3
import json, os, sys
if "--version" in sys.argv:
    print("2.1.329 (Claude Code)")
    sys.exit(0)
prompt = json.loads(sys.stdin.readline())["message"]["content"]
text = prompt if isinstance(prompt, str) else prompt[0]["text"]
with open("told.tmp", "w") as file:
    file.write(text)
os.rename("told.tmp", "told.txt")
print(json.dumps({"type": "system", "subtype": "init", "session_id": "s1", "model": "m", "tools": []}), flush=True)
print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": "s1",
                  "num_turns": 1, "duration_ms": 1, "total_cost_usd": 0, "usage": {}}), flush=True)
sys.stdin.read()
"#;

fn daemon() -> Daemon {
    let folder = Arc::new(Folder::new("map"));
    folder.write("Makefile", "test:\n\ttrue\n");
    folder.write("src/session.rs", "pub fn expire_session() {}\n");
    folder.write("src/invoice.rs", "pub fn round_amount() {}\n");
    Daemon::with_claude(folder, CLAUDE)
}

#[test]
fn an_agent_is_told_which_files_its_task_is_about_as_they_are_when_it_starts() {
    let daemon = daemon();
    let told = |name: &str, task: &str| {
        let body = json!({"role": "dev", "name": name, "provider": "claude-code", "prompt": task});
        let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
        let text = wait_for("it to be told", || fs::read_to_string(daemon.project.join("told.txt")).ok());
        fs::remove_file(daemon.project.join("told.txt")).unwrap();
        daemon.send("DELETE", &format!("/api/agents/{id}"), &json!(null));
        text
    };
    let text = told("one", "sessions expire too early");
    let (briefing, task) = text.split_once("\n# Task\n").unwrap();
    assert!(briefing.contains("- src/session.rs: fn expire_session 1\n"), "{briefing}");
    assert!(briefing.contains("- The root: make test\n"), "{briefing}");
    assert!(!briefing.contains("invoice.rs"), "{briefing}");
    assert_eq!(task.trim(), "sessions expire too early");
    fs::write(daemon.project.join("src/refund.rs"), "pub fn refund_order() {}\n").unwrap();
    let text = told("two", "a refund of an order fails");
    assert!(text.contains("- src/refund.rs: fn refund_order 1\n"), "{text}");
}

#[test]
fn the_map_is_asked_over_rest() {
    let daemon = daemon();
    let answer = daemon.get("/api/map?task=round%20the%20amount");
    assert_eq!(answer["truncated"], false);
    let text = answer["text"].as_str().unwrap();
    assert!(text.contains("- src/invoice.rs: fn round_amount 1\n"), "{text}");
    let short = daemon.get("/api/map?task=round&chars=20");
    assert!(short["text"].as_str().unwrap().chars().count() <= 20, "{short}");
    for (query, field) in [("", "task"), ("?task=a&chars=0", "chars"), ("?task=a&chars=x", "chars")] {
        let (status, problem) = daemon.send("GET", &format!("/api/map{query}"), &json!(null));
        assert_eq!((status, &problem["errors"][0]["field"]), (400, &json!(field)), "{query}: {problem}");
    }
    let long = "a".repeat(2_001);
    assert_eq!(daemon.send("GET", &format!("/api/map?task={long}"), &json!(null)).0, 400);
}
