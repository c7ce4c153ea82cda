//! The flight recorder of the built daemon: what one that was killed leaves is played, by the command line
//! and without a daemon, to the state that it had.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::mcp::add;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use svc_base::hex;

const PLANTED: &str = "planted-key-of-the-recorder-0123456789";

fn svc(project: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).arg("--project").arg(project).env_remove("SVC_AGENT_ID").current_dir(project);
    command.output().unwrap()
}

/// A recording of the project as it is now, as a file of this name.
fn export(project: &Path, name: &str) -> PathBuf {
    let file = project.join(name);
    let _ = std::fs::remove_file(&file);
    let done = svc(project, &["record", "export", file.to_str().unwrap()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    file
}

/// The events of a recording and what they come to; the exit code.
fn replay(project: &Path, file: &Path, more: &[&str]) -> (Vec<Value>, Value, i32) {
    let done = svc(project, &[&["replay", file.to_str().unwrap(), "--json"], more].concat());
    let text = String::from_utf8(done.stdout).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = lines.pop().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&done.stderr)));
    (lines, sum, done.status.code().unwrap())
}

/// Waits until the recording has this many hashes, and what it comes to.
fn hashed(project: &Path, least: u64) -> Value {
    wait_for("hashes of the state", || {
        let (_, sum, _) = replay(project, &export(project, "now.rec"), &["-q"]);
        (sum["hashes"]["compared"].as_u64()? >= least).then_some(sum)
    })
}

fn agent<'a>(agents: &'a Value, name: &str) -> &'a Value {
    agents.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{agents}"))
}

/// A project whose agent `talk` goes on for a minute in one turn.
fn project() -> Arc<Folder> {
    let folder = Folder::new("record");
    let steps = json!([{"loop": {"times": 1200, "steps": [
        {"say": "Decision: I use tabs instead of blanks."},
        {"usage": {"input": 100, "output": 10, "cacheRead": 5, "cacheCreation": 1}},
        {"sleepMs": 50},
    ]}}]);
    folder.write(".svc/rehearsals/talk.json", &json!({"steps": steps}).to_string());
    folder.write(".svc/config.json", r#"{"keeper": {"orphanMinutes": 0}, "isolation": {"cage": "off"}}"#);
    Arc::new(folder)
}

fn spawn(daemon: &Daemon, name: &str, scenario: &str) -> String {
    let wish =
        json!({"role": "dev", "name": name, "provider": "script", "model": scenario, "prompt": "go on"});
    daemon.post("/api/agents", &wish)["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_session_that_was_killed_inside_a_turn_is_played_to_the_same_hashes() {
    let folder = project();
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    spawn(&daemon, "talk", "talk");
    let hangs = spawn(&daemon, "hang", "hang");
    let crashes = spawn(&daemon, "crash", "crash");
    daemon.wait_state(&crashes, &["crashed"]);
    daemon.wait_state(&hangs, &["running"]);
    let operation = json!({"agentId": hangs, "operation": "build", "resources": ["db"], "ttlMs": 600_000});
    daemon.post("/api/coordination/declare", &operation);
    let schedule = json!({"name": "s", "cron": "0 9 * * 1", "agent": {"role": "dev", "provider": "script"}});
    daemon.post("/api/schedules", &schedule);
    daemon.post("/api/memory/constraints", &json!({"text": "Use tabs"}));
    assert_eq!(daemon.send("PATCH", "/api/config", &json!({"maxAgents": 17})).0, 200);
    assert_eq!(daemon.send("POST", "/api/agents", &json!({"role": "?!"})).0, 400);
    let known = hashed(&daemon.project, 2)["hashes"]["compared"].as_u64().unwrap();
    let before = daemon.get("/api/agents");
    // What was told is on its way to the disk; the kill cuts off what came later.
    hashed(&daemon.project, known + 1);
    daemon.kill();
    let file = export(folder.path(), "crash.rec");
    let (events, sum, code) = replay(folder.path(), &file, &[]);
    // In people's words, not in those of the code.
    let is_plain = |event: &Value| event["event"].as_str().is_some_and(|name| !name.contains("::"));
    assert!(events.iter().all(is_plain), "{events:#?}");
    assert_eq!(code, 0, "{sum}");
    let hashes = &sum["hashes"];
    assert!(hashes["compared"].as_u64().unwrap() >= 2, "{hashes}");
    assert_eq!(hashes["equal"], hashes["compared"], "every hash that the daemon has left is met");
    assert_eq!((&sum["parts"], &sum["unread"]), (&Value::Null, &Value::Null));
    // The state is the one that the daemon had told, the agent inside its turn among them.
    let state = &sum["state"];
    for name in ["talk", "hang", "crash"] {
        let (told, played) = (agent(&before, name), agent(&state["agents"], name));
        for field in ["id", "state", "statusReason", "statusCode", "statusSince", "pid", "provider"] {
            assert_eq!(told[field], played[field], "{name}: {field}");
        }
    }
    assert!(
        agent(&state["agents"], "talk")["tokensUsed"].as_u64()
            >= agent(&before, "talk")["tokensUsed"].as_u64()
    );
    assert_eq!(state["documents"]["config.json"]["maxAgents"], 17);
    assert_eq!(state["documents"]["state/schedules.json"]["schedules"].as_array().map(Vec::len), Some(1));
    // Why it crashed is told where it did.
    let began = |event: &&Value| {
        event["agents"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["id"] == crashes.as_str() && one["status"] == "crashed")
    };
    let ended = events.iter().find(began).expect("the event with which it crashed");
    let n = ended["n"].as_u64().unwrap();
    let (part, at, _) = replay(folder.path(), &file, &["--from", &n.to_string(), "--until", &n.to_string()]);
    assert_eq!((part.len(), &part[0]["n"]), (1, &json!(n)));
    assert_eq!(agent(&at["state"]["agents"], "crash")["state"], "crashed", "the state at that instant");
    assert!(events.iter().all(|event| event["effects"].is_array() && event["at"].is_string()));
    goes_on(&folder);
}

/// The next daemon of the project records on, and both lives stand in one file.
fn goes_on(folder: &Arc<Folder>) {
    let daemon = Daemon::start_in(Arc::clone(folder), &[]);
    let id = spawn(&daemon, "later", "quick");
    daemon.wait_state(&id, &["completed"]);
    assert_eq!(daemon.get("/api/record")["lost"], 0);
    let told = daemon.get("/api/record/replay?limit=5");
    assert_eq!(told["timeline"].as_array().unwrap().len(), 5);
    assert!(
        daemon
            .send("GET", "/api/record/replay?limit=0", &Value::Null)
            .1
            .to_string()
            .contains("limit must be")
    );
    assert_eq!(daemon.stop(), Some(0));
    let (events, sum, code) = replay(folder.path(), &export(folder.path(), "both.rec"), &[]);
    let starts =
        events.iter().filter(|event| event["note"].as_str().is_some_and(|note| note.contains("starts")));
    assert_eq!((starts.count(), code), (2, 0), "{}", sum["hashes"]);
    assert_eq!(sum["state"]["stopping"], true, "the last event is the end of the second life");
}

#[test]
fn no_secret_stands_in_a_recording_and_words_can_be_left_out() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    daemon.post("/api/integrations/hub/credentials", &json!({"key": "TEST_TOKEN", "value": PLANTED}));
    daemon.post("/api/credentials", &json!({"provider": "anthropic", "key": PLANTED}));
    let gateway = daemon.post("/api/gateways", &json!({"type": "telegram", "displayName": "t"}));
    let path = format!("/api/gateways/{}/credentials", gateway["id"].as_str().unwrap());
    daemon.post(&path, &json!({"key": "bot_token", "value": format!("123456:{PLANTED}")}));
    let wish =
        json!({"role": "dev", "provider": "script", "model": "quick", "prompt": "mend the secret door"});
    let id = daemon.post("/api/agents", &wish)["id"].as_str().unwrap().to_owned();
    daemon.wait_state(&id, &["completed"]);
    hashed(&daemon.project, 1);
    let bytes = std::fs::read(export(&daemon.project, "all.rec")).unwrap();
    let holds = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|part| part == what);
    assert!(holds(&bytes, b"mend the secret door"), "the test can fail");
    assert!(!holds(&bytes, PLANTED.as_bytes()) && !holds(&bytes, &PLANTED.as_bytes()[..8]));
    let stored: Value =
        serde_json::from_slice(&std::fs::read(daemon.project.join(".svc/credentials.json")).unwrap())
            .unwrap();
    for entry in stored["entries"].as_object().unwrap().values() {
        let sealed = hex::decode(entry["sealed"].as_str().unwrap()).unwrap();
        assert!(!holds(&bytes, &sealed[..16]), "what is sealed is not there either");
    }
    let token = std::fs::read_to_string(daemon.project.join(".svc/token")).unwrap_or_default();
    assert!(token.trim().is_empty() || !holds(&bytes, token.trim().as_bytes()));
    let done = svc(&daemon.project, &["record", "export", "--without-text", "names.rec"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let file = daemon.project.join("names.rec");
    assert!(!holds(&std::fs::read(&file).unwrap(), b"secret door"));
    let (_, sum, code) = replay(&daemon.project, &file, &["-q"]);
    assert_eq!((code, &sum["parts"]), (0, &Value::Null));
    assert_eq!(agent(&sum["state"]["agents"], "dev-1")["state"], "completed");
}

#[test]
fn a_flood_of_output_keeps_the_ring_in_its_size() {
    let folder = Folder::new("record-flood");
    folder.write(".svc/config.json", r#"{"record": {"maxMegabytes": 8}, "isolation": {"cage": "off"}}"#);
    let text = "word ".repeat(400);
    let steps = json!([{"loop": {"times": 10_000, "steps": [{"say": text}]}}]);
    folder.write(".svc/rehearsals/much.json", &json!({"steps": steps}).to_string());
    let daemon = Daemon::start_in(Arc::new(folder), &[]);
    let id = spawn(&daemon, "much", "much");
    daemon.wait_state(&id, &["completed"]);
    let told = wait_for("the ring to be full", || {
        let told = daemon.get("/api/record");
        (told["segments"].as_u64()? >= 6).then_some(told)
    });
    assert!(told["bytes"].as_u64().unwrap() <= 8 << 20, "{told}");
    let on_disk: u64 = std::fs::read_dir(daemon.project.join(".svc/record"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(on_disk <= 8 << 20, "{on_disk}");
    // What the disk did not follow is left out; with the next event it goes on from the state as it is then.
    wait_for("the end of the flood to be in the recording", || {
        assert_eq!(daemon.send("PATCH", "/api/config", &json!({"maxAgents": 11})).0, 200);
        let (_, sum, code) = replay(&daemon.project, &export(&daemon.project, "flood.rec"), &["-q"]);
        assert_eq!((code, &sum["parts"]), (0, &Value::Null), "{}", sum["hashes"]);
        (agent(&sum["state"]["agents"], "much")["state"] == "completed").then_some(())
    });
}

#[test]
fn switched_off_it_writes_nothing() {
    let folder = Folder::new("record-off");
    folder.write(".svc/config.json", r#"{"record": {"enabled": false}}"#);
    let daemon = Daemon::start_in(Arc::new(folder), &[]);
    assert_eq!(daemon.get("/api/record")["recording"], false);
    assert!(!daemon.project.join(".svc/record").exists());
    let done = svc(&daemon.project, &["record", "export"]);
    assert!(String::from_utf8_lossy(&done.stderr).contains("record.enabled"), "{done:?}");
}
