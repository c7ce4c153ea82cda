//! Rotation without being asked, and the ledger across lives, with the built daemon and real children.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::sync::Arc;

/// A daemon whose project has this scenario.
fn with_scenario(name: &str, scenario: &Value) -> Daemon {
    let folder = Folder::new("rotation");
    let rehearsals = folder.path().join(".svc/rehearsals");
    std::fs::create_dir_all(&rehearsals).unwrap();
    std::fs::write(rehearsals.join(format!("{name}.json")), scenario.to_string()).unwrap();
    Daemon::start_in(Arc::new(folder), &[])
}

fn write(daemon: &Daemon, path: &str) {
    std::fs::write(daemon.project.join(path), "x").unwrap();
}

/// Waits until the record says so many tokens.
fn wait_tokens(daemon: &Daemon, name: &str, tokens: u64) {
    wait_for(&format!("{name} to have used {tokens} tokens"), || {
        (daemon.get(&format!("/api/agents/{name}"))["tokensUsed"] == tokens).then_some(())
    });
}

/// All words that were said to an agent, over its lives.
fn said_to(daemon: &Daemon, name: &str) -> Vec<String> {
    let log = daemon.get(&format!("/api/agents/{name}/log?tail=1000"));
    let entries = log["entries"].as_array().unwrap();
    let users = entries.iter().filter(|entry| entry["type"] == "user");
    users.map(|entry| entry["text"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn decisions_8_quality_rotates_at_the_documented_score_and_the_successor_ends_the_task() {
    // 12 words, 3 writes of one file, 6 failures: 30 events. Only the predecessor lacks the file.
    let scenario = json!({"description": "degrades and waits inside of its turn", "steps": [
        {"loop": {"times": 12, "steps": [{"say": "again"}]}},
        {"loop": {"times": 3, "steps": [{"write": {"path": "a.txt", "text": "a"}}]}},
        {"loop": {"times": 6, "steps": [{"run": {"command": "test -e go", "timeoutMs": 20000}}]}},
        {"waitForFile": {"path": "go", "timeoutMs": 60000}},
        {"answer": "delivered"}
    ]});
    let daemon = with_scenario("degrades", &scenario);
    // Its score is looked at first.
    daemon.send("PATCH", "/api/config", &json!({"autoRotation": false}));
    let id = daemon.spawn("degrades");
    let name = daemon.get(&format!("/api/agents/{id}"))["name"].as_str().unwrap().to_owned();
    let quality = wait_for("30 events of the agent", || {
        let quality = daemon.get("/api/adaptive")["quality"][&id].clone();
        (quality["events"] == 30).then_some(quality)
    });
    // 70 - 6 x 5 - 2 x 6 - 6 (failures rise) + 20 x (3/9 - 0.8) + 2.
    assert_eq!(quality["score"], 14.67);
    assert_eq!(quality["threshold"], 55.0);
    daemon.post(&format!("/api/agents/{id}/instruct"), &json!({"message": "use tabs, not spaces"}));
    assert_eq!(daemon.get(&format!("/api/agents/{id}"))["state"], "running", "its turn is open");
    assert_eq!(daemon.get("/api/rotation")["totalRotations"], 0);

    daemon.send("PATCH", "/api/config", &json!({"autoRotation": true}));
    write(&daemon, "go");
    let entry = wait_for("the rotation", || {
        let history = daemon.get("/api/rotation")["history"].clone();
        history.get(0).cloned()
    });
    assert_eq!((&entry["old"], &entry["reason"]), (&json!(id), &json!("quality_degradation")));
    let successor = entry["new"].as_str().unwrap();
    let record = daemon.wait_state(successor, &["completed"]);
    assert_eq!(record["predecessorId"], json!(id));
    assert_eq!(record["name"], json!(name));
    let words = said_to(&daemon, &name);
    assert_eq!(words.len(), 2, "its task, and the brief: {words:#?}");
    assert!(words[1].contains("rehearse"), "the original task is in the brief");
    assert!(words[1].contains("use tabs, not spaces"), "the old one's instructions are in the brief");
    assert_eq!(record["pendingInstructions"], 0);
    assert_eq!(daemon.get("/api/rotation")["totalRotations"], 1);
}

#[test]
fn poor_work_is_handed_over_in_the_middle_of_a_long_turn() {
    let scenario = json!({"description": "degrades, and would go on for a minute", "steps": [
        {"loop": {"times": 20, "steps": [{"say": "again"}]}},
        {"loop": {"times": 6, "steps": [{"run": {"command": "test -e go", "timeoutMs": 20000}}]}},
        {"waitForFile": {"path": "go", "timeoutMs": 60000}},
        {"answer": "delivered"}
    ]});
    let daemon = with_scenario("strays", &scenario);
    let id = daemon.spawn("strays");
    let entry = wait_for("the rotation", || daemon.get("/api/rotation")["history"].get(0).cloned());
    assert_eq!((&entry["old"], &entry["reason"]), (&json!(id), &json!("quality_degradation")));
    write(&daemon, "go");
    let record = daemon.wait_state(&id, &["completed"]);
    assert_eq!(
        (&record["predecessorId"], &record["turns"]),
        (&json!(id), &json!(1)),
        "the first turn never ended"
    );
}

#[test]
fn the_degrading_rehearsal_is_rotated_once_and_ends() {
    let daemon = Daemon::start();
    let id = daemon.spawn("degrading");
    let entry = wait_for("the rotation", || daemon.get("/api/rotation")["history"].get(0).cloned());
    assert_eq!(entry["reason"], "quality_degradation");
    daemon.wait_state(&id, &["completed"]);
    assert_eq!(daemon.get("/api/rotation")["totalRotations"], 1);
}

#[test]
fn decisions_8_the_ceiling_rotates_inside_of_an_open_turn() {
    let scenario = |tokens: u64| {
        json!({"description": "uses its tokens in the middle of a turn", "steps": [
            {"say": "begun"},
            {"waitForFile": {"path": "use", "timeoutMs": 60000}},
            {"usage": {"input": tokens, "output": 1}},
            {"run": {"command": "true", "timeoutMs": 20000}},
            {"waitForFile": {"path": "go", "timeoutMs": 60000}},
            {"answer": "delivered"}
        ]})
    };
    let daemon = with_scenario("thirsty", &scenario(1300));
    daemon.send("PATCH", "/api/config", &json!({"safety": {"tokenCeilingPerAgent": 1000}}));
    let id = daemon.spawn("thirsty");
    wait_for("its first words", || {
        let log = daemon.get(&format!("/api/agents/{id}/log?tail=10"));
        log["entries"].as_array()?.iter().any(|entry| entry["text"] == "begun").then_some(())
    });
    // The successor stays below the ceiling, or it would be replaced in its turn before anybody can look.
    let cheaper = scenario(300).to_string();
    std::fs::write(daemon.project.join(".svc/rehearsals/thirsty.json"), cheaper).unwrap();
    write(&daemon, "use");
    let entry = wait_for("the rotation", || daemon.get("/api/rotation")["history"].get(0).cloned());
    assert_eq!((&entry["old"], &entry["reason"]), (&json!(id), &json!("token_limit_exceeded")));
    write(&daemon, "go");
    let record = daemon.wait_state(&id, &["completed"]);
    assert_eq!(record["tokensUsed"], 1301 + 301);
    assert_eq!(daemon.get("/api/rotation")["totalRotations"], 1);
}

/// Σ agents = Σ teams = total, to the token.
fn balances(daemon: &Daemon, total: u64) {
    let sum = |rows: &Value, field: &str| -> u64 {
        rows.as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).sum()
    };
    let summary = daemon.get("/api/tokens/summary");
    assert_eq!((&summary["totalUsed"], &summary["totalTokens"]), (&json!(total), &json!(total)));
    assert_eq!(sum(&summary["perAgent"], "used"), total);
    assert_eq!(sum(&daemon.get("/api/tokens/by-team")["teams"], "totalTokens"), total);
    assert_eq!(summary["cacheHitRate"], 0.75, "300 of 400");
}

#[test]
fn decisions_8_the_ledger_equals_the_known_totals_over_duplicates_rotations_resume_and_removal() {
    let scenario = json!({"description": "1000 tokens, told four times", "steps": [
        {"usage": {"input": 500, "output": 100, "cacheRead": 300, "cacheCreation": 100}},
        {"repeatUsage": 3},
        {"waitForFile": {"path": "go", "timeoutMs": 60000}},
        {"answer": "counted once"}
    ]});
    let daemon = with_scenario("counted", &scenario);
    let id = daemon.spawn("counted");
    let name = daemon.get(&format!("/api/agents/{id}"))["name"].as_str().unwrap().to_owned();
    for life in 1..=3 {
        wait_tokens(&daemon, &name, life * 1000);
        daemon.post(&format!("/api/agents/{name}/rotate"), &json!({}));
    }
    wait_tokens(&daemon, &name, 4000);
    balances(&daemon, 4000);
    write(&daemon, "go");
    daemon.wait_state(&name, &["completed"]);
    daemon.post(&format!("/api/agents/{name}/resume"), &json!({}));
    wait_tokens(&daemon, &name, 5000);
    let record = daemon.wait_state(&name, &["completed"]);
    assert_eq!(record["tokensUsed"], 5000);
    balances(&daemon, 5000);
    let (status, _) = daemon.send("DELETE", &format!("/api/agents/{name}"), &Value::Null);
    assert_eq!(status, 200);
    balances(&daemon, 5000);

    let folder = daemon.folder();
    assert_eq!(daemon.stop(), Some(0));
    let daemon = Daemon::start_in(folder, &[]);
    balances(&daemon, 5000);
    let timeline = daemon.get("/api/timeline");
    let kinds: Vec<&str> =
        timeline["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    let wanted = ["spawned", "rotated", "rotated", "rotated", "completed", "resumed", "completed", "removed"];
    assert_eq!(kinds, wanted);
}

/// The kind of a value in JSON.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Every field of the specification, where it stands and what it is: `a.b` in objects, `#` any entry.
#[test]
fn issue_5_dashboard_tokens_routing_adaptive_and_rotation_bodies_field_by_field() {
    let daemon = Daemon::start();
    let id = daemon.spawn("hang");
    daemon.wait_state(&id, &["running"]);
    let rotated = daemon.post(&format!("/api/agents/{id}/rotate"), &json!({}));
    assert_eq!((&rotated["old"], &rotated["handoffBrief"]), (&json!(id), &json!(true)));
    assert_eq!(rotated["reason"], "manual");
    let quick = daemon.spawn("repeat-usage");
    daemon.wait_state(&quick, &["completed"]);
    let bodies = [
        ("/api/dashboard", "agents.active:integer agents.total:integer agents.rotations:integer"),
        ("/api/dashboard", "tokens.used:integer tokens.saved:integer tokens.budget:null uptime:number"),
        ("/api/dashboard", "savings.rotation:integer savings.coldStart:integer savings.conflict:integer"),
        (
            "/api/tokens/summary",
            "totalUsed:integer totalSaved:integer totalTokens:integer cacheHitRate:number",
        ),
        (
            "/api/tokens/summary",
            "breakdown.rotation:integer breakdown.coldStart:integer breakdown.conflict:integer",
        ),
        ("/api/tokens/summary", "perAgent.#.id:string perAgent.#.used:integer perAgent.#.model:string"),
        (
            "/api/tokens/summary",
            "savings.total:integer savings.fromRotation:integer savings.percentage:number",
        ),
        ("/api/tokens/summary", "internalOverhead.tokens:integer internalOverhead.costUsd:number"),
        ("/api/tokens/summary", "internalOverhead.components:object"),
        ("/api/tokens/by-team", "teams.#.teamId:string teams.#.teamName:string teams.#.isDefault:boolean"),
        ("/api/tokens/by-team", "teams.#.agentCount:integer teams.#.totalTokens:integer"),
        ("/api/tokens/by-team", "teams.#.totalCostUsd:number teams.#.avgTokensPerAgent:integer"),
        ("/api/routing", "mode:string decisions:integer costSaved:number"),
        ("/api/routing", "currentMappings.#.model:string currentMappings.#.reason:string"),
        ("/api/rotation", "totalRotations:integer history.#.old:string history.#.new:string"),
        (
            "/api/rotation",
            "history.#.reason:string history.#.timestamp:string history.#.preRotationVelocity:integer",
        ),
        ("/api/adaptive", "thresholds.#.#:number convergence.#:boolean"),
    ];
    for (path, fields) in bodies {
        let body = daemon.get(path);
        for (field, wanted) in fields.split_whitespace().map(|field| field.split_once(':').unwrap()) {
            let mut found = vec![&body];
            for name in field.split('.') {
                found = match name {
                    "#" => found.iter().flat_map(|value| entries(value)).collect(),
                    name => found.iter().map(|value| &value[name]).collect(),
                };
            }
            assert!(!found.is_empty(), "{path}: {field} has no entry in {body}");
            for value in found {
                let fits = kind(value) == wanted || (wanted == "number" && kind(value) == "integer");
                assert!(fits, "{path}: {field} is {value}, not {wanted}");
            }
        }
    }
    let mappings = daemon.get("/api/routing")["currentMappings"].clone();
    assert!(mappings[rotated["new"].as_str().unwrap()].is_object(), "keyed by agent id: {mappings}");
}

/// What stands in an array or an object.
fn entries(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

#[test]
fn decisions_8_the_ledger_survives_kill_nine_within_a_second() {
    let daemon = Daemon::start();
    let id = daemon.spawn("repeat-usage");
    daemon.wait_state(&id, &["completed"]);
    let path = daemon.project.join(".svc/state/usage.json");
    wait_for("the ledger on disk", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.contains("\"cacheRead\":300").then_some(())
    });
    let (folder, mut daemon) = (daemon.folder(), daemon);
    daemon.kill();
    let daemon = Daemon::start_in(folder, &[]);
    balances(&daemon, 1000);
}
