//! What was acknowledged, begun or asked when the daemon was killed, and what the next one makes of it.

use crate::support::daemon::{Daemon, OPEN};
use crate::support::dice::Dice;
use crate::support::folder::Folder;
use crate::support::mcp;
use crate::support::processes::{keepers_of, of_project};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As `client.rs` of the keeper has it, for one keeper or many.
const FIND_LIMIT: Duration = Duration::from_secs(10);

fn until(fate: Instant) {
    wait_for("the moment", || (Instant::now() >= fate).then_some(()));
}

fn in_micros(micros: u64) -> Instant {
    Instant::now() + Duration::from_micros(micros)
}

/// A start that was acknowledged is an order, not a hope.
#[test]
fn an_agent_whose_start_was_acknowledged_runs_whenever_the_daemon_dies() {
    let folder = Arc::new(Folder::new("acknowledged"));
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let mut dice = Dice::seeded(3);
    let mut agents = Vec::new();
    for _ in 0..10 {
        agents.push(daemon.spawn("hang"));
        until(in_micros(dice.below(25_000)));
        daemon.kill();
        daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    }
    for id in &agents {
        wait_for("it to run, under the id that was told", || {
            let record = daemon.get(&format!("/api/agents/{id}"));
            (record["state"] == "running" && record["id"] == json!(id)).then_some(())
        });
    }
    // Each once.
    assert_eq!(keepers_of(folder.path()).len(), agents.len());
    let prompts = |id: &String| {
        let log = daemon.get(&format!("/api/agents/{id}/log"));
        log["entries"].as_array().unwrap().iter().filter(|entry| entry["type"] == "user").count()
    };
    assert!(agents.iter().all(|id| prompts(id) == 1));
    assert_eq!(daemon.stop(), Some(0));
    assert!(of_project(folder.path()).is_empty());
}

/// The record of a start is on disk before its prompt is in the log, which a daemon that is killed in between
/// does not come to: as if it had not.
#[test]
fn a_prompt_that_the_killed_daemon_did_not_come_to_log_is_logged_by_the_next() {
    let folder = Arc::new(Folder::new("unlogged"));
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let mut unlogged = Vec::new();
    // Its program may be known to run already by then, which takes a second to be written.
    while unlogged.len() < 2 {
        let id = daemon.spawn("hang");
        daemon.kill();
        let stored = fs::read_to_string(folder.path().join(".svc/state/agents.json")).unwrap();
        let stored: Value = serde_json::from_str(&stored).unwrap();
        let mut records = stored["agents"].as_array().unwrap().iter();
        let lineage = records.find(|agent| agent["id"] == json!(id) && agent["opening"].is_object());
        if let Some(lineage) = lineage.map(|agent| agent["lineageId"].as_str().unwrap().to_owned()) {
            let log = folder.path().join(".svc/logs").join(lineage);
            assert!(!log.exists() || fs::remove_dir_all(&log).is_ok());
            unlogged.push(id);
        }
        daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    }
    for id in &unlogged {
        daemon.wait_state(id, &["running"]);
        let log = daemon.get(&format!("/api/agents/{id}/log"));
        let entries = log["entries"].as_array().unwrap();
        let prompts = entries.iter().filter(|entry| entry["type"] == "user").count();
        assert_eq!(prompts, 1, "{log}");
    }
    assert_eq!(daemon.stop(), Some(0));
}

/// Wherever in its course the rotation was: its brief, the end of the old life, the start of the new one.
#[test]
fn a_rotation_that_was_under_way_when_the_daemon_died_ends_well() {
    let folder = Arc::new(Folder::new("rotates-on"));
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("hang");
    daemon.wait_state(&id, &["running"]);
    let name = daemon.get(&format!("/api/agents/{id}"))["name"].as_str().unwrap().to_owned();
    let mut dice = Dice::seeded(9);
    for round in 0..10 {
        let fate = in_micros(dice.below(120_000));
        std::thread::scope(|scope| {
            let path = format!("/api/agents/{name}/rotate");
            let daemon = &daemon;
            // Its answer may be lost with the daemon.
            scope.spawn(move || drop(daemon.try_send("POST", &path, &json!({}))));
            until(fate);
            let kill = Command::new("kill").args(["-9", &daemon.pid().to_string()]).status();
            assert!(kill.unwrap().success());
        });
        daemon.kill();
        daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        let record = wait_for("the lineage to work on", || {
            let record = daemon.get(&format!("/api/agents/{name}"));
            let is_over = ["crashed", "killed"].contains(&record["state"].as_str().unwrap());
            assert!(
                !is_over || record["statusCode"] == "replaced",
                "round {round}: {record}\n{}",
                daemon.log()
            );
            (record["state"] == "running").then_some(record)
        });
        assert_eq!(record["pendingInstructions"], 0, "{record}");
        wait_for("one process of it", || (keepers_of(folder.path()).len() == 1).then_some(()));
    }
    assert_eq!(daemon.stop(), Some(0));
    assert!(of_project(folder.path()).is_empty());
}

#[test]
fn limits_keepers_that_do_not_answer_delay_a_start_no_longer_than_one_of_them() {
    let folder = Arc::new(Folder::new("stuck"));
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let agents: Vec<String> = (0..4).map(|_| daemon.spawn("hang")).collect();
    for id in &agents {
        daemon.wait_state(id, &["running"]);
    }
    daemon.kill();
    let keepers = keepers_of(folder.path());
    for keeper in &keepers[..3] {
        assert!(Command::new("kill").args(["-STOP", &keeper.to_string()]).status().unwrap().success());
    }
    let began = Instant::now();
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    assert!(began.elapsed() < FIND_LIMIT * 2, "{:?}", began.elapsed());
    // One that was killed before its first line was on disk is shown as starting until its record is read on.
    wait_for("one agent that goes on and three that were cut", || {
        let states: Vec<Value> =
            agents.iter().map(|id| daemon.get(&format!("/api/agents/{id}"))["state"].clone()).collect();
        let count = |wanted: &str| states.iter().filter(|state| *state == wanted).count();
        (count("running") == 1 && count("interrupted") == 3).then_some(())
    });
    for keeper in &keepers[..3] {
        wait_for("it to be gone", || (!mcp::is_alive(&keeper.to_string())).then_some(()));
    }
    assert_eq!(daemon.stop(), Some(0));
    assert!(of_project(folder.path()).is_empty());
}

/// They answer a daemon and nobody else: the kernel ends them with it, before anybody starts another.
#[test]
fn questions_and_tool_servers_end_with_a_daemon_that_is_killed() {
    let folder = Folder::new("children");
    let script = "#!/bin/sh\n[ \"$1\" != --version ] || { echo codex-cli 0.169.0; exit; }\n\
        case \"$*\" in *read-only*) echo $$ >asked; exec sleep 1000 ;; esac\n\
        echo '{\"type\":\"thread.started\",\"thread_id\":\"t\"}'; exec sleep 1000\n";
    folder.write("bin/codex", script);
    fs::set_permissions(folder.path().join("bin/codex"), fs::Permissions::from_mode(0o755)).unwrap();
    folder.write(".svc/config.json", OPEN);
    let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
    let folder = Arc::new(folder);
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[("PATH", &path), ("OPENAI_API_KEY", "none")]);
    let body = json!({"role": "dev", "provider": "codex", "model": "gpt-5.5", "prompt": "go"});
    let id = wait_for("codex to be found", || {
        let (status, record) = daemon.send("POST", "/api/agents", &body);
        (status == 201).then(|| record["id"].as_str().unwrap().to_owned())
    });
    mcp::add(&daemon, "hub", &["--stubborn"]);
    let server = mcp::text(&daemon, "hub", "pid", &json!({}));
    wait_for("its session", || {
        let record = daemon.get(&format!("/api/agents/{id}"));
        record["sessionId"].is_string().then_some(())
    });
    let asked = std::thread::scope(|scope| {
        let path = format!("/api/agents/{id}/query");
        let asks = &daemon;
        scope.spawn(move || drop(asks.try_send("POST", &path, &json!({"question": "what?"}))));
        let asked = wait_for("the question", || {
            let pid = fs::read_to_string(folder.path().join("asked")).ok()?;
            pid.ends_with('\n').then(|| pid.trim().to_owned())
        });
        assert!(mcp::is_alive(&asked) && mcp::is_alive(&server));
        assert!(Command::new("kill").args(["-9", &daemon.pid().to_string()]).status().unwrap().success());
        asked
    });
    daemon.kill();
    for pid in [asked, server] {
        wait_for("it to end", || (!mcp::is_alive(&pid)).then_some(()));
    }
    let daemon = Daemon::start_in(Arc::clone(&folder), &[("PATH", &path)]);
    // What it had said since the last write to the disk is read again.
    daemon.wait_state(&id, &["running"]);
    assert_eq!(daemon.stop(), Some(0));
}
