//! Memory, briefings, handoff briefs, the journalist and reviews in the built daemon.

use crate::support::daemon::{Daemon, next_message};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::Duration;

fn svc(daemon: &Daemon, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(args)
        .arg("--project")
        .arg(&daemon.project)
        .env_remove("SVC_AGENT_ID")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn scenario(daemon: &Daemon, name: &str, steps: &Value) {
    let folder = daemon.project.join(".svc/rehearsals");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{name}.json")), json!({"steps": steps}).to_string()).unwrap();
}

#[test]
fn decisions_6_memory_is_durable_before_the_reply_and_a_person_can_read_it() {
    let mut daemon = Daemon::start();
    let hash = daemon.post("/api/memory/constraints", &json!({"text": "Use tabs"}))["hash"].clone();
    daemon.post("/api/memory/discoveries", &json!({"trigger": "npm hangs", "fix": "clear its cache"}));
    daemon.kill();
    let read = |name: &str| fs::read_to_string(daemon.project.join(".svc/memory").join(name)).unwrap();
    assert!(read("constraints.json").contains("Use tabs"));
    assert!(read("discoveries.json").contains("clear its cache"));
    let again = Daemon::start_in(daemon.folder(), &[]);
    assert_eq!(again.get("/api/memory/constraints")["constraints"][0]["hash"], hash);
    assert_eq!(again.get("/api/memory/discoveries")["discoveries"][0]["fix"], "clear its cache");
}

#[test]
fn a_broken_memory_file_is_set_aside_and_a_newer_one_refused() {
    let mut daemon = Daemon::start();
    daemon.post("/api/memory/constraints", &json!({"text": "Use tabs"}));
    daemon.kill();
    let path = daemon.project.join(".svc/memory/constraints.json");
    fs::write(&path, "{\"version\":1,\"constr").unwrap();
    let mut again = Daemon::start_in(daemon.folder(), &[]);
    assert_eq!(again.get("/api/memory/constraints"), json!({"constraints": []}));
    let aside = fs::read_dir(path.parent().unwrap()).unwrap();
    let names: Vec<_> = aside.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.contains("corrupt")), "{names:?}");
    again.kill();
    fs::write(&path, "{\"version\":99,\"constraints\":[]}").unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["start", "--port", "0", "--project"])
        .arg(&daemon.project)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("newer svc"));
}

#[test]
fn a_rotation_saves_its_brief_and_a_dry_run_shows_it_before() {
    let daemon = Daemon::start();
    scenario(
        &daemon,
        "worker",
        &json!([
            {"write": {"path": "hello.txt", "text": "Hello\n"}},
            {"run": {"command": "false"}},
            {"write": {"path": "ready", "text": "x"}},
            {"hang": true},
        ]),
    );
    let body =
        json!({"role": "backend", "provider": "script", "model": "worker", "prompt": "Greet the world"});
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    wait_for("the agent's work", || daemon.project.join("ready").exists().then_some(()));
    daemon.post("/api/memory/constraints", &json!({"text": "Greet politely"}));
    let shown = wait_for("the brief to have it all", || {
        let shown = daemon.get(&format!("/api/agents/{id}/brief"));
        // That it failed is told after that it was run.
        shown["brief"].as_str().unwrap().contains("Failed, do not").then_some(shown)
    });
    let brief = shown["brief"].as_str().unwrap();
    for part in ["Greet the world", "hello.txt (writes: 1)", "- [general] Greet politely", "`false`"] {
        assert!(brief.contains(part), "{part:?} is missing in\n{brief}");
    }
    assert_eq!((&shown["leftOut"], &shown["maxChars"]), (&json!([]), &json!(16_000)));
    let dry = svc(&daemon, &["rotate", "backend-1", "--dry-run"]);
    assert!(dry.status.success() && said(&dry).contains("hello.txt (writes: 1)"), "{dry:?}");
    assert_eq!(daemon.get(&format!("/api/agents/{id}"))["id"], json!(id), "a dry run changes nothing");
    daemon.post(&format!("/api/agents/{id}/rotate"), &json!({}));
    let chain = daemon.get("/api/memory/handoff-chain/backend");
    assert!(chain["entries"][0]["body"].as_str().unwrap().contains("hello.txt"));
    let listed = svc(&daemon, &["memory", "handoffs", "backend"]);
    assert!(said(&listed).contains("Greet the world"), "{listed:?}");
    let profile = daemon.get("/api/memory/specializations/backend-1");
    // The successor may have begun to play the scenario again.
    assert!(profile["fileTouches"]["hello.txt"].as_u64() >= Some(1), "{profile}");
}

/// Nobody tells anybody: the log of the first shows it, and the second is told.
#[test]
fn what_an_agent_found_out_is_learned_from_its_log_and_told_to_the_next() {
    let daemon = Daemon::start();
    let ledger = "test -e .generated || { echo 'error: ledger.proto is not generated' >&2; exit 1; }";
    scenario(
        &daemon,
        "worker",
        &json!([
            {"run": {"command": ledger}},
            {"run": {"command": "touch .generated"}},
            {"run": {"command": ledger}},
            {"run": {"command": "test \"$PASSWORD\" = x"}},
            {"run": {"command": "touch other"}},
        ]),
    );
    let body =
        json!({"role": "backend", "provider": "script", "model": "worker", "prompt": "Build the ledger"});
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    daemon.wait_state(&id, &["completed"]);
    let found = wait_for("what its log shows", || {
        let found = daemon.get("/api/memory/discoveries")["discoveries"].clone();
        found[0].is_object().then_some(found)
    });
    assert_eq!(found.as_array().unwrap().len(), 1, "{found:#}");
    let (trigger, fix) = (found[0]["trigger"].as_str().unwrap(), found[0]["fix"].as_str().unwrap());
    assert!(trigger.starts_with(&format!("`{ledger}` failed: ")), "{trigger}");
    assert!(trigger.ends_with("error: ledger.proto is not generated"), "{trigger}");
    assert_eq!(fix, "`touch .generated` turned it green");
    assert_eq!((&found[0]["mined"], &found[0]["agentId"]), (&json!(true), &json!(id)));
    let told = daemon.get("/api/briefing?role=frontend&task=Show%20the%20ledger");
    assert!(told["briefing"].as_str().unwrap().contains(fix), "{told:#}");
    let told = daemon.get("/api/briefing?role=frontend&task=Paint%20the%20door");
    assert!(!told["briefing"].as_str().unwrap().contains(fix), "{told:#}");
    let listed = svc(&daemon, &["memory", "found"]);
    assert!(said(&listed).contains("touch .generated"), "{listed:?}");
    let told = svc(&daemon, &["recall", "ledger.proto"]);
    assert!(said(&told).contains("touch .generated"), "{told:?}");
}

#[test]
fn daemon_recent_briefs_come_as_markdown_unless_json_is_asked_for() {
    let daemon = Daemon::start();
    let mut stream = TcpStream::connect(daemon.url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let request = "GET /api/memory/handoff-chain/backend/recent HTTP/1.1\r\nHost: localhost\r\n\
                   Accept: */*\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 2 {
        head.push(std::mem::take(&mut line).to_lowercase());
    }
    let mut body = String::new();
    reader.read_to_string(&mut body).unwrap();
    assert!(head.iter().any(|line| line.starts_with("content-type: text/markdown")), "{head:?}");
    assert_eq!(body, "");
}

#[test]
fn daemon_the_journalist_writes_its_documents_when_an_agent_completes() {
    let daemon = Daemon::start();
    let mut socket = daemon.connect("?types=journalist:cycle");
    let id = daemon.spawn("default");
    daemon.wait_state(&id, &["completed"]);
    let mut event = next_message(&mut socket);
    while event["type"] == "state" {
        event = next_message(&mut socket);
    }
    assert_eq!((&event["type"], &event["data"]["cycleCount"]), (&json!("journalist:cycle"), &json!(1)));
    let map = fs::read_to_string(daemon.project.join("SVC_PROJECT_MAP.md")).unwrap();
    assert!(map.contains("tester-1") && map.contains("rehearsal.txt"), "{map}");
    let status = daemon.get("/api/journalist");
    assert_eq!(status["documentsGenerated"], json!(["SVC_PROJECT_MAP.md", "SVC_DECISIONS.md"]));
    let decisions = fs::read_to_string(daemon.project.join("SVC_DECISIONS.md")).unwrap();
    assert!(decisions.contains("No agent has told a decision yet."), "{decisions}");
    let cycle = daemon.post("/api/journalist/cycle", &json!({}));
    assert_eq!(cycle, json!({"ok": true, "cycle": 2, "changed": false}));
    let by_hand = svc(&daemon, &["journalist", "--cycle"]);
    assert!(said(&by_hand).contains("nothing is new"), "{by_hand:?}");
}

#[test]
fn the_journalist_says_when_it_cannot_write_and_the_daemon_stays_well() {
    let daemon = Daemon::start();
    fs::create_dir(daemon.project.join("SVC_PROJECT_MAP.md")).unwrap();
    let id = daemon.spawn("quick");
    daemon.wait_state(&id, &["completed"]);
    let (status, body) = daemon.send("POST", "/api/journalist/cycle", &json!({}));
    assert_eq!((status, &body["code"]), (500, &json!("journalist_failed")), "{body}");
    assert_eq!(daemon.get("/api/health")["status"], "ok");
}

#[test]
fn daemon_the_architecture_document_is_in_the_briefing_and_follows_its_file() {
    let folder = std::sync::Arc::new(crate::support::folder::Folder::new("architecture"));
    fs::create_dir(folder.path().join("docs")).unwrap();
    fs::write(folder.path().join("docs/architecture.md"), "One core, many threads.").unwrap();
    let daemon = Daemon::start_in(folder, &[]);
    let told =
        |daemon: &Daemon| daemon.get("/api/briefing?role=backend")["briefing"].as_str().unwrap().to_owned();
    assert!(told(&daemon).contains("One core, many threads."));
    fs::write(daemon.project.join("ARCHITECTURE.md"), "Two cores.").unwrap();
    wait_for("the new document", || told(&daemon).contains("Two cores.").then_some(()));
    assert!(!told(&daemon).contains("many threads"), "the first existing file alone is told");
    // A folder that goes and comes, and what a link leads to.
    fs::remove_file(daemon.project.join("ARCHITECTURE.md")).unwrap();
    fs::remove_dir_all(daemon.project.join("docs")).unwrap();
    wait_for("no document", || (!told(&daemon).contains("Two cores.")).then_some(()));
    fs::create_dir(daemon.project.join("docs")).unwrap();
    fs::write(daemon.project.join("docs/architecture.md"), "Three cores.").unwrap();
    wait_for("the document in the new folder", || told(&daemon).contains("Three cores.").then_some(()));
    fs::create_dir(daemon.project.join("notes")).unwrap();
    fs::write(daemon.project.join("notes/all.md"), "Four cores.").unwrap();
    std::os::unix::fs::symlink("notes/all.md", daemon.project.join("ARCHITECTURE.md")).unwrap();
    wait_for("the document behind the link", || told(&daemon).contains("Four cores.").then_some(()));
    fs::write(daemon.project.join("notes/all.md"), "Five cores.").unwrap();
    wait_for("its change", || told(&daemon).contains("Five cores.").then_some(()));
}

#[test]
fn the_command_line_sets_finds_and_lifts() {
    let daemon = Daemon::start();
    let hash =
        said(&svc(&daemon, &["memory", "rule", "Never", "push", "to", "main", "--category", "git", "-q"]));
    assert_eq!(hash.trim().len(), 12);
    assert!(said(&svc(&daemon, &["memory", "rules"])).contains("Never push to main"));
    assert!(svc(&daemon, &["memory", "discover", "login loops", "clear cookies"]).status.success());
    assert!(said(&svc(&daemon, &["memory", "found"])).contains("clear cookies"));
    let brief = said(&svc(&daemon, &["brief", "qa", "test", "the", "login"]));
    assert!(brief.contains("Never push to main") && brief.contains("clear cookies"), "{brief}");
    let stranger = said(&svc(&daemon, &["brief", "qa", "paint", "icons"]));
    assert!(stranger.contains("clear cookies"), "it reaches each new agent: {stranger}");
    assert!(svc(&daemon, &["memory", "lift", hash.trim()]).status.success());
    assert_eq!(svc(&daemon, &["memory", "lift", hash.trim()]).status.code(), Some(1));
    assert_eq!(svc(&daemon, &["memory", "nonsense"]).status.code(), Some(2));
    let id = daemon.spawn("quick");
    daemon.wait_state(&id, &["completed"]);
    assert!(said(&svc(&daemon, &["review", "tester-1"])).starts_with("approved: all checks pass"));
    let refused = svc(&daemon, &["review", "tester-1", "--file", ".git/config"]);
    assert!(refused.status.code() == Some(1) && said(&refused).contains("protected"), "{refused:?}");
    assert!(said(&svc(&daemon, &["review", "--history"])).contains("rejected"));
}

#[test]
fn daemon_the_index_summary_is_in_the_briefing() {
    let folder = std::sync::Arc::new(crate::support::folder::Folder::new("indexed"));
    fs::write(folder.path().join("package.json"), "{\"workspaces\":[\"web\"]}").unwrap();
    fs::create_dir(folder.path().join("web")).unwrap();
    fs::write(folder.path().join("web/package.json"), "{\"name\":\"the-web-shop\"}").unwrap();
    let daemon = Daemon::start_in(folder, &[]);
    let text = wait_for("the first scan", || {
        let shown = daemon.get("/api/briefing?role=backend");
        let text = shown["briefing"].as_str().unwrap().to_owned();
        text.contains("## The project's index").then_some(text)
    });
    assert!(text.contains("the-web-shop") || text.contains("web"), "{text}");
}

#[test]
fn decisions_8_held_locks_are_in_the_brief() {
    let daemon = Daemon::start();
    let id = daemon.spawn("hang");
    daemon.wait_state(&id, &["running"]);
    let body = json!({"agentId": id, "operation": "install", "resources": ["node_modules"]});
    daemon.post("/api/coordination/declare", &body);
    let shown = daemon.get(&format!("/api/agents/{id}/brief"));
    let brief = shown["brief"].as_str().unwrap();
    assert!(brief.contains("## Locks you hold\n\n- install: node_modules (until "), "{brief}");
}

#[test]
fn a_message_older_than_a_thousand_records_is_still_in_the_brief() {
    let daemon = Daemon::start();
    scenario(
        &daemon,
        "talker",
        &json!([
            {"ask": "Which colour?"},
            {"loop": {"times": 1300, "steps": [{"say": "line"}]}},
            {"write": {"path": "ready", "text": "x"}},
            {"hang": true},
        ]),
    );
    let body = json!({"role": "backend", "provider": "script", "model": "talker", "prompt": "Talk much"});
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    daemon.wait_state(&id, &["running"]);
    let message = json!({"message": "blue, as the sea is\nand no other", "deliver": "now"});
    daemon.post(&format!("/api/agents/{id}/instruct"), &message);
    wait_for("much talk", || daemon.project.join("ready").exists().then_some(()));
    let brief = wait_for("the whole log", || {
        let shown = daemon.get(&format!("/api/agents/{id}/brief"));
        let brief = shown["brief"].as_str().unwrap().to_owned();
        brief.contains("ready (writes: 1)").then_some(brief)
    });
    assert!(brief.contains("> blue, as the sea is\n> and no other\n"), "{brief}");
}

#[test]
fn what_an_agent_said_is_recalled_after_it_has_ended() {
    let daemon = Daemon::start();
    scenario(&daemon, "talk", &json!([{"say": "The ferry is called Nordstern"}]));
    let id = daemon.spawn("talk");
    daemon.wait_state(&id, &["completed"]);
    let text = said(&svc(&daemon, &["recall", "name", "of", "the", "ferry"]));
    assert!(text.contains("The ferry is called Nordstern"), "{text}");
    let n = daemon.get("/api/recall?q=ferry&limit=1")["hits"][0]["n"].as_u64().expect("a record");
    let name = daemon.get(&format!("/api/agents/{id}"))["name"].as_str().unwrap().to_owned();
    assert!(text.contains(&format!("{name} {n}  ")), "{text}");
    let after = said(&svc(&daemon, &["logs", &name, "--since", &(n - 1).to_string()]));
    assert!(after.starts_with("The ferry"), "{after}");
    assert!(said(&svc(&daemon, &["recall", "zeppelin"])).starts_with("nothing is known of it"));
    for wrong in ["?q=", "?q=a&limit=0", "?q=a&limit=x", ""] {
        let (status, problem) = daemon.send("GET", &format!("/api/recall{wrong}"), &Value::Null);
        assert_eq!(status, 400, "{wrong}: {problem}");
    }
    assert_eq!(daemon.send("GET", "/api/recall?q=a&agent=nobody", &Value::Null).0, 404);
}
