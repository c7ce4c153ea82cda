//! The REST API as the specification has it: fields, types, statuses, refusals, against the built daemon.

use crate::support::daemon::Daemon;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;

/// Asserts that `value` has exactly this JSON type.
fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64(),
        "boolean" => value.is_boolean(),
        "strings" => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
        "time" => value.as_str().is_some_and(|text| text.len() == 24 && text.ends_with('Z')),
        "object or null" => value.is_object() || value.is_null(),
        "string or null" => value.is_string() || value.is_null(),
        "integer or null" => value.is_u64() || value.is_null(),
        other => panic!("no such type {other}"),
    }
}

const RECORD: [(&str, &str); 35] = [
    ("id", "string"),
    ("name", "string"),
    ("role", "string"),
    ("status", "string"),
    ("state", "string"),
    ("provider", "string"),
    ("model", "string"),
    ("scope", "strings"),
    ("tokensUsed", "integer"),
    ("contextUsage", "number"),
    ("spawnedAt", "time"),
    ("workingDir", "string"),
    ("integrations", "strings"),
    ("teamId", "string"),
    ("skills", "strings"),
    ("permission", "string"),
    ("effort", "string"),
    ("prompt", "string"),
    ("pid", "integer or null"),
    ("sessionId", "string or null"),
    ("lineageId", "string"),
    ("predecessorId", "string or null"),
    ("lastActivity", "time"),
    ("statusSince", "time"),
    ("statusReason", "string"),
    ("statusCode", "string"),
    ("currentActivity", "string or null"),
    ("costUsd", "number"),
    ("turns", "integer"),
    ("exit", "object or null"),
    ("pendingInstructions", "integer"),
    ("isolation", "string"),
    ("worktree", "string or null"),
    ("error", "string or null"),
    ("actualModel", "string or null"),
];

fn assert_record(record: &Value, seen: &str) {
    for (field, kind) in RECORD {
        assert!(is(&record[field], kind), "{seen}: {field} must be {kind}: {record}");
    }
}

fn script(extra: &Value) -> Value {
    let mut body = json!({"role": "backend", "provider": "script", "prompt": "p"});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

#[test]
fn the_list_has_a_tag_and_gives_only_the_fields_that_are_asked_for() {
    let daemon = Daemon::start();
    let id = daemon.spawn("quick");
    daemon.wait_state(&id, &["completed"]);
    let url = format!("{}/api/agents", daemon.url);
    let first = ureq::get(&url).call().unwrap();
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    let again = ureq::get(&url).header("If-None-Match", &tag).call().unwrap();
    assert_eq!(again.status(), 304);
    daemon.send("PATCH", &format!("/api/agents/{id}"), &json!({"name": "renamed-1"}));
    let mut changed = ureq::get(&url).header("If-None-Match", &tag).call().unwrap();
    assert_eq!(changed.status(), 200);
    let list: Value = serde_json::from_str(&changed.body_mut().read_to_string().unwrap()).unwrap();
    assert_eq!(list[0]["name"], "renamed-1");

    let few = daemon.get("/api/agents?fields=name,%20id");
    assert_eq!(few, json!([{"id": id, "name": "renamed-1"}]));
    let (status, problem) = daemon.send("GET", "/api/agents?fields=id,colour", &Value::Null);
    assert_eq!((status, &problem["errors"][0]["field"]), (400, &json!("fields")));
    assert!(
        problem["error"].as_str().unwrap().contains("there is no field \"colour\"; there are"),
        "{problem}"
    );
}

#[test]
fn spec_agent_the_record_has_every_field_in_rest_and_websocket() {
    let daemon = Daemon::start();
    let mut socket = daemon.connect("");
    let (status, spawned) = daemon.send("POST", "/api/agents", &script(&json!({"model": "hang"})));
    assert_eq!(status, 201, "{spawned}");
    assert_record(&spawned, "POST");
    let id = spawned["id"].as_str().unwrap();
    assert!(id.len() == 8 && id.bytes().all(|b| b.is_ascii_hexdigit()), "decisions 1: 8 hex: {id}");
    assert_eq!(spawned["name"], "backend-1");
    daemon.wait_state(id, &["running"]);
    let listed = daemon.get("/api/agents");
    assert_record(&listed[0], "GET list");
    assert_eq!(listed[0]["status"], "active", "decisions 2: REST shows a live agent as active");
    let message = loop {
        let message = crate::support::daemon::next_message(&mut socket);
        if message["type"] == "state" && message["data"][0]["status"] == "running" {
            break message;
        }
    };
    assert_record(&message["data"][0], "WebSocket");
    for target in [id, "backend-1"] {
        assert_eq!(daemon.get(&format!("/api/agents/{target}"))["id"], id, "decisions 1: {target}");
    }
    let (status, ended) = daemon.send("DELETE", "/api/agents/backend-1", &Value::Null);
    assert_eq!((status, &ended["ok"], &ended["status"]), (200, &json!(true), &json!("killed")), "{ended}");
    let record = daemon.get(&format!("/api/agents/{id}"));
    assert_eq!(record["status"], "killed");
    assert!(record["exit"]["at"].is_string() && record["pid"].is_null(), "{record}");
    let (status, _) = daemon.send("DELETE", "/api/agents/backend-1", &Value::Null);
    assert_eq!(status, 200, "deleting an ended agent removes the record");
    assert_eq!(daemon.send("GET", "/api/agents/backend-1", &Value::Null).0, 404);
    assert_eq!(daemon.send("DELETE", "/api/agents/backend-1", &Value::Null).0, 404);
}

/// Bodies of `POST /api/agents` that break one rule each: what to add to a good one, and the field named.
fn bad_spawns() -> Vec<(Value, &'static str)> {
    let long = |n: usize| "x".repeat(n);
    vec![
        (json!({"role": null}), "role"),
        (json!({"role": ""}), "role"),
        (json!({"role": 5}), "role"),
        (json!({"role": "two words"}), "role"),
        (json!({"role": long(51)}), "role"),
        (json!({"name": "a b"}), "name"),
        (json!({"name": long(65)}), "name"),
        (json!({"name": 1}), "name"),
        (json!({"name": "taken"}), "name"),
        (json!({"scope": 1}), "scope"),
        (json!({"scope": [1]}), "scope"),
        (json!({"scope": ["/etc/**"]}), "scope"),
        (json!({"scope": ["../x"]}), "scope"),
        (json!({"scope": ["a/../../x"]}), "scope"),
        (json!({"scope": ["a\u{0}b"]}), "scope"),
        (json!({"scope": [long(201)]}), "scope"),
        (json!({"scope": vec!["a"; 21]}), "scope"),
        (json!({"provider": "nobody"}), "provider"),
        (json!({"provider": 1}), "provider"),
        (json!({"model": "no-such-scenario"}), "model"),
        (json!({"model": {}}), "model"),
        (json!({"workingDir": "missing"}), "workingDir"),
        (json!({"workingDir": "/tmp"}), "workingDir"),
        (json!({"workingDir": ".."}), "workingDir"),
        (json!({"workingDir": "file.txt"}), "workingDir"),
        (json!({"workingDir": "way-out"}), "workingDir"),
        (json!({"prompt": 1}), "prompt"),
        (json!({"prompt": long(200_001)}), "prompt"),
        (json!({"integrations": ["nope"]}), "integrations"),
        (json!({"integrations": "x"}), "integrations"),
        (json!({"skills": ["nope"]}), "skills"),
        (json!({"permission": "root"}), "permission"),
        (json!({"effort": "extreme"}), "effort"),
        (json!({"isolation": "vm"}), "isolation"),
        (json!({"teamId": 5}), "teamId"),
    ]
}

#[test]
fn decisions_2_every_rule_of_a_spawn_refuses_by_name() {
    let daemon = Daemon::start();
    fs::write(daemon.project.join("file.txt"), "x").unwrap();
    std::os::unix::fs::symlink("/", daemon.project.join("way-out")).unwrap();
    daemon.post("/api/agents", &script(&json!({"name": "taken", "model": "hang"})));
    for (change, field) in bad_spawns() {
        let (status, problem) = daemon.send("POST", "/api/agents", &script(&change));
        assert_eq!(status, 400, "{field}: {problem}");
        assert_eq!(problem["code"], "validation_failed", "{field}: {problem}");
        let named = problem["errors"]
            .as_array()
            .unwrap()
            .iter()
            .any(|error| error["field"] == field && error["message"].as_str().unwrap().contains(field));
        assert!(named, "{field} is not named: {problem}");
        assert!(problem["error"].is_string() && problem["status"] == 400 && problem["title"].is_string());
    }
    let (_, problem) = daemon.send("POST", "/api/agents", &json!({"role": 1, "scope": 2, "effort": 3}));
    assert_eq!(problem["errors"].as_array().map(Vec::len), Some(3), "decisions 1: all at once: {problem}");
    assert_eq!(daemon.get("/api/agents").as_array().map(Vec::len), Some(1), "nothing was started");
}

#[test]
fn decisions_2_what_a_spawn_accepts_and_its_capacity() {
    let daemon = Daemon::start();
    fs::create_dir_all(daemon.project.join("sub/dir")).unwrap();
    let (status, first) = daemon.send(
        "POST",
        "/api/agents",
        &script(&json!({
            "model": "hang", "name": "A.b_c-1", "scope": "src/**", "workingDir": "sub/dir",
            "permission": "full", "effort": "max", "unknownField": 1,
        })),
    );
    assert_eq!(status, 201, "unknown body fields are ignored: {first}");
    assert_eq!(first["scope"], json!(["src/**"]), "a single string is one glob");
    assert_eq!((&first["permission"], &first["effort"]), (&json!("full"), &json!("max")));
    let second = daemon.post("/api/agents", &script(&json!({"model": "hang", "scope": ["src/api/*.rs"]})));
    assert_eq!(second["overlaps"][0]["agentName"], "A.b_c-1", "{second}");
    for model in [json!(null), json!(""), json!("auto")] {
        let record = daemon.post("/api/agents", &script(&json!({"model": model})));
        assert_eq!(record["model"], "auto");
    }
    let (status, _) = daemon.send("PATCH", "/api/config", &json!({"maxAgents": 2}));
    assert_eq!(status, 200);
    wait_for("the quick ones to end", || {
        let agents = daemon.get("/api/agents");
        (agents.as_array().unwrap().iter().filter(|a| a["status"] == "active").count() == 2).then_some(())
    });
    let (status, problem) = daemon.send("POST", "/api/agents", &script(&json!({})));
    assert_eq!((status, &problem["code"]), (409, &json!("capacity")), "{problem}");
}

#[test]
fn decisions_13_config_changes_all_or_nothing_and_survives_a_restart() {
    let daemon = Daemon::start();
    let before = daemon.get("/api/config");
    for key in [
        "port",
        "host",
        "maxAgents",
        "rotationThreshold",
        "autoRotation",
        "qcThreshold",
        "journalistInterval",
        "journalist",
        "defaultProvider",
        "defaultModel",
        "safety",
        "skills",
        "enforcement",
    ] {
        assert!(!before[key].is_null(), "{key}: {before}");
    }
    let bad = [
        (json!({"maxAgents": 7, "rotationThreshold": 2}), "rotationThreshold"),
        (json!({"maxAgents": 7, "nonsense": 1}), "nonsense"),
        (json!({"maxAgents": "7"}), "maxAgents"),
        (json!({"safety": {"tokenCeilingPerAgent": 0}}), "safety.tokenCeilingPerAgent"),
        (json!({"safety": {"roleMultipliers": {"planner": -1}}}), "safety.roleMultipliers"),
        (json!({"host": "0.0.0.0"}), "host"),
        (json!({"defaultProvider": "nobody"}), "defaultProvider"),
    ];
    for (change, field) in bad {
        let (status, problem) = daemon.send("PATCH", "/api/config", &change);
        assert_eq!(status, 400, "{problem}");
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
        assert_eq!(daemon.get("/api/config"), before, "nothing of a refused change is kept");
    }
    let change = json!({"maxAgents": 3, "safety": {"roleMultipliers": {"planner": 12.5}}});
    let (status, whole) = daemon.send("PATCH", "/api/config", &change);
    assert_eq!((status, &whole["maxAgents"]), (200, &json!(3)));
    assert_eq!(whole["safety"]["roleMultipliers"]["planner"], 12.5);
    assert_eq!(whole["safety"]["roleMultipliers"]["analyst"], 5.0, "objects are merged");
    let folder = daemon.folder();
    drop(daemon);
    let again = Daemon::start_in(folder, &[]);
    assert_eq!(again.get("/api/config"), whole);
}

#[test]
fn decisions_2_the_log_is_read_by_tail_and_since() {
    let daemon = Daemon::start();
    let id = daemon.post("/api/agents", &script(&json!({})))["id"].as_str().unwrap().to_owned();
    daemon.wait_state(&id, &["completed"]);
    // The state is told before the log's last line of it is there.
    let all = wait_for("the line of its end", || {
        let all = daemon.get(&format!("/api/agents/{id}/log?tail=100000"));
        let is_whole = all["entries"].as_array().unwrap().last().is_some_and(|last| last["type"] == "life");
        is_whole.then_some(all)
    });
    let entries = all["entries"].as_array().unwrap();
    assert!(entries.len() >= 3, "{all}");
    let numbers: Vec<u64> = entries.iter().map(|entry| entry["n"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "numbers have no gaps: {numbers:?}");
    let tail = daemon.get(&format!("/api/agents/{id}/log?tail=2"));
    assert_eq!(tail["entries"].as_array().unwrap()[..], entries[entries.len() - 2..]);
    let since = daemon.get(&format!("/api/agents/{id}/log?since={}", numbers[0]));
    assert_eq!(since["entries"].as_array().unwrap()[..], entries[1..], "since a number: what follows it");
    for bad in ["tail=x", "tail=-1", "since=yesterday"] {
        let (status, problem) = daemon.send("GET", &format!("/api/agents/{id}/log?{bad}"), &Value::Null);
        assert_eq!(status, 400, "{bad}: {problem}");
    }
}

#[test]
fn decisions_1_openapi_describes_every_route_and_each_answers() {
    let daemon = Daemon::start();
    let document = daemon.get("/api/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    let documented: usize = paths.values().map(|methods| methods.as_object().unwrap().len()).sum();
    assert_eq!(documented, svc::assembly::routes::table().routes().len());
    for (path, methods) in paths {
        let target = path.replace("{id}", "00000000").replace(['{', '}'], "");
        for (method, operation) in methods.as_object().unwrap() {
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path}");
            if path == "/api/shutdown" || method != "get" {
                continue;
            }
            let (status, answer) = daemon.send("GET", &target, &Value::Null);
            assert_ne!(status, 405, "{method} {path}: {answer}");
            let told = operation["responses"][status.to_string()].is_object();
            assert!(status < 500 || told, "{method} {path}: {status} {answer}");
            let unknown = answer["code"] == "unknown_route";
            assert!(!unknown, "{method} {path} is documented and unknown: {answer}");
        }
    }
    let codes = document["components"]["schemas"]["StatusCode"]["enum"].as_array().unwrap();
    assert_eq!(codes, svc::agents::Reason::CODES);
    let (status, problem) = daemon.send("GET", "/api/nowhere", &Value::Null);
    assert_eq!(status, 404, "{problem}");
}
