//! The built daemon with real children: starting, stopping, restarting, and what becomes of the agents.

use crate::support::daemon::{Daemon, next_message};
use crate::support::folder::Folder;
use crate::support::processes::{of_project, with_variable};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::sync::Arc;

#[test]
fn health_has_the_fields_of_the_specification() {
    let daemon = Daemon::start();
    let health = daemon.get("/api/health");
    assert_eq!(health["status"], "ok");
    assert_eq!(health["agents"], 0);
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    assert!(health["uptime"].is_number());
    let status = daemon.get("/api/status");
    assert_eq!(status["pid"], daemon.pid());
    assert_eq!(status["projectDir"], json!(daemon.project));
    let port = std::fs::read_to_string(daemon.project.join(".svc/daemon.port")).unwrap();
    assert_eq!(port.trim(), status["port"].to_string());
}

#[test]
fn decisions_1_one_daemon_per_project_and_the_second_says_who_has_it() {
    let daemon = Daemon::start();
    let second = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["start", "--port", "0", "--project"])
        .arg(&daemon.project)
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(0), "what was asked for is there");
    let words = String::from_utf8_lossy(&second.stdout);
    assert!(words.contains("already runs at") && words.contains(&format!("pid {}", daemon.pid())), "{words}");
    let elsewhere = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["start", "--port", "1", "--project"])
        .arg(&daemon.project)
        .output()
        .unwrap();
    assert_eq!(elsewhere.status.code(), Some(1), "not at the port that was named");
    let words = String::from_utf8_lossy(&elsewhere.stderr);
    assert!(words.contains(&format!("pid {}", daemon.pid())) && words.contains("svc stop"), "{words}");
    let project = daemon.project.clone();
    assert_eq!(daemon.stop(), Some(0));
    assert!(!project.join(".svc/daemon.port").exists(), "the port file is removed on stop");
}

#[test]
fn decisions_1_all_interfaces_are_refused_with_exit_code_2() {
    let folder = crate::support::folder::Folder::new("bind");
    for host in ["0.0.0.0", "::"] {
        let refused = Command::new(env!("CARGO_BIN_EXE_svc"))
            .args(["start", "--port", "0", "--host", host, "--project"])
            .arg(folder.path())
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(2), "{host}");
    }
}

#[test]
fn an_agent_starts_streams_and_completes() {
    let daemon = Daemon::start();
    let mut socket = daemon.connect("");
    assert_eq!(next_message(&mut socket)["type"], "state", "the first message is the full registry");
    let id = daemon.spawn("default");
    let mut subtypes = Vec::new();
    let exit = loop {
        let message = next_message(&mut socket);
        match message["type"].as_str().unwrap() {
            "agent:output" => {
                assert_eq!(message["agentId"], json!(id));
                assert_eq!(message["data"]["type"], "activity");
                subtypes.push(message["data"]["subtype"].as_str().unwrap().to_owned());
            }
            "agent:exit" => break message,
            _ => {}
        }
    };
    assert_eq!((&exit["status"], &exit["code"]), (&json!("completed"), &json!(0)));
    for subtype in ["assistant", "tool", "usage", "result"] {
        assert!(subtypes.iter().any(|s| s == subtype), "no {subtype} among {subtypes:?}");
    }
    let record = daemon.get(&format!("/api/agents/{id}"));
    assert_eq!(record["status"], "completed");
    assert!(record["tokensUsed"].as_u64().unwrap() > 0);
    let log = daemon.get(&format!("/api/agents/{id}/log?tail=1000"));
    assert_eq!(log["entries"][0]["n"], 1);
    assert!(with_variable(&format!("SVC_AGENT_ID={id}")).is_empty());
}

#[test]
fn a_stubborn_tree_is_gone_when_delete_answers() {
    let daemon = Daemon::start();
    let id = daemon.spawn("stubborn");
    let marker = format!("SVC_AGENT_ID={id}");
    wait_for("the grandchild", || (with_variable(&marker).len() >= 2).then_some(()));
    let (status, body) = daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null);
    assert_eq!((status, &body["status"]), (200, &json!("killed")), "{body}");
    assert!(with_variable(&marker).is_empty(), "descendants are left");
    assert_eq!(daemon.get("/api/health")["leaked"], 0);
}

#[test]
fn stopping_the_daemon_ends_every_agent_and_a_restart_shows_no_ghost() {
    let daemon = Daemon::start();
    let ids: Vec<String> = ["hang", "stubborn", "chatty"].iter().map(|name| daemon.spawn(name)).collect();
    for id in &ids {
        daemon.wait_state(id, &["running", "completed"]);
    }
    let folder = daemon.folder();
    assert_eq!(daemon.stop(), Some(0));
    assert!(of_project(folder.path()).is_empty(), "processes are left");
    let daemon = Daemon::start_in(folder, &[]);
    let agents = daemon.get("/api/agents");
    assert_eq!(agents.as_array().unwrap().len(), 3);
    for agent in agents.as_array().unwrap() {
        assert!(["interrupted", "completed"].contains(&agent["status"].as_str().unwrap()), "{agent}");
    }
    let resumed = daemon.post(&format!("/api/agents/{}/resume", ids[0]), &json!({}));
    assert_eq!(resumed["agent"]["predecessorId"], json!(ids[0]));
}

#[test]
fn a_rotation_starts_a_successor_with_a_brief_and_keeps_the_counters() {
    let daemon = Daemon::start();
    let mut socket = daemon.connect("?types=rotation:start,rotation:complete,rotation:failed");
    let id = daemon.spawn("ask");
    wait_for("usage and a question", || {
        let entries = daemon.get(&format!("/api/agents/{id}/log"))["entries"].clone();
        entries.as_array().unwrap().iter().any(|entry| entry["type"] == "text").then_some(())
    });
    daemon.post(&format!("/api/agents/{id}/instruct"), &json!({"message": "use tabs"}));
    let before = daemon.get(&format!("/api/agents/{id}"));
    let done = daemon.post(&format!("/api/agents/{id}/rotate"), &json!({}));
    assert_eq!(
        (&done["old"], &done["reason"], &done["handoffBrief"]),
        (&json!(id), &json!("manual"), &json!(true))
    );
    let new = daemon.get(&format!("/api/agents/{id}"));
    assert_eq!(new["id"], done["new"], "a predecessor's id answers with the living successor");
    assert_eq!(new["lineageId"], before["lineageId"]);
    assert_eq!(new["pendingInstructions"], 0);
    assert!(new["tokensUsed"].as_u64() >= before["tokensUsed"].as_u64());
    let log = daemon.get(&format!("/api/agents/{id}/log"));
    let brief = log["entries"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .find(|entry| entry["type"] == "user")
        .unwrap()
        .clone();
    assert!(brief["text"].as_str().unwrap().contains("use tabs"), "{brief}");
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "rotation:complete") {
        let message = next_message(&mut socket);
        let kind = message["type"].as_str().unwrap().to_owned();
        if kind != "state" {
            kinds.push(kind);
        }
    }
    assert_eq!(kinds, ["rotation:start", "rotation:complete"]);
}

#[test]
fn a_question_is_answered_without_disturbing_the_agent() {
    let daemon = Daemon::start();
    let id = daemon.spawn("hang");
    daemon.wait_state(&id, &["running"]);
    let answer = daemon.post(&format!("/api/agents/{id}/query"), &json!({"question": "how far are you?"}));
    assert!(answer["answer"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
    assert_eq!(answer["agentId"], json!(id));
    assert_eq!(daemon.get(&format!("/api/agents/{id}"))["state"], "running");
}

#[test]
fn an_instruction_for_the_next_rotation_is_said_when_the_turn_ends() {
    let folder = Arc::new(Folder::new("project"));
    let steps = json!([{"waitForFile": {"path": "go"}}, {"answer": "done"}]);
    folder.write(".svc/rehearsals/waits.json", &json!({"steps": steps}).to_string());
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("waits");
    daemon.wait_state(&id, &["running"]);
    let queued = daemon.post(&format!("/api/agents/{id}/instruct"), &json!({"message": "use tabs"}));
    assert_eq!((&queued["deliverOn"], &queued["status"]), (&json!("rotation"), &json!("queued")));
    folder.write("go", "");
    let record = daemon.wait_state(&id, &["completed"]);
    assert_eq!(record["pendingInstructions"], 0, "{record}");
    let log = daemon.get(&format!("/api/agents/{id}/log?tail=100")).to_string();
    assert!(log.contains("noted: use tabs"), "{log}");
}

#[test]
fn an_instruction_reaches_a_running_agent_at_once() {
    let daemon = Daemon::start();
    let id = daemon.spawn("ask");
    daemon.wait_state(&id, &["running"]);
    let reply =
        daemon.post(&format!("/api/agents/{id}/instruct"), &json!({"message": "blue", "deliver": "now"}));
    assert_eq!((&reply["status"], &reply["deliverOn"]), (&json!("queued"), &json!("now")));
    daemon.wait_state(&id, &["completed"]);
    let log = daemon.get(&format!("/api/agents/{id}/log?tail=1000"));
    let said = log["entries"]
        .as_array()
        .unwrap()
        .iter()
        .any(|entry| entry["type"] == "user" && entry["text"] == "blue");
    assert!(said, "the log has the message");
}

#[test]
fn exits_are_told_apart() {
    let daemon = Daemon::start();
    for (scenario, status) in [("quick", "completed"), ("crash", "crashed"), ("segfault", "killed")] {
        let id = daemon.spawn(scenario);
        let record = daemon.wait_state(&id, &["completed", "crashed", "killed", "interrupted"]);
        assert_eq!(record["status"], status, "{scenario}: {record}");
        assert!(!record["statusReason"].as_str().unwrap().is_empty());
    }
    // It has not ended: it is held until its provider lets it go on.
    let id = daemon.spawn("limit");
    assert_eq!(daemon.wait_state(&id, &["limited"])["status"], "active");
}

#[test]
fn odd_output_is_kept() {
    let daemon = Daemon::start();
    for scenario in ["halfline", "badutf8", "hugeline", "repeat-usage"] {
        let id = daemon.spawn(scenario);
        let record = daemon.wait_state(&id, &["completed", "crashed", "killed"]);
        assert_eq!(record["status"], "completed", "{scenario}: {record}");
    }
}

#[test]
fn a_broken_state_file_is_set_aside_and_the_daemon_starts() {
    let daemon = Daemon::start();
    let folder = daemon.folder();
    daemon.spawn("quick");
    daemon.stop();
    folder.write(".svc/state/agents.json", "{ torn");
    let daemon = Daemon::start_in(folder, &[]);
    assert_eq!(daemon.get("/api/agents"), json!([]));
    let names = std::fs::read_dir(daemon.project.join(".svc/state")).unwrap().flatten();
    let aside = names.filter(|entry| entry.file_name().to_string_lossy().contains("corrupt-")).count();
    assert_eq!(aside, 1);
    let health = daemon.get("/api/health");
    assert_eq!(health["status"], "degraded");
    let told = health["setAside"][0].as_str().unwrap();
    assert!(told.contains("state/agents.json") && told.contains("corrupt-"), "{told}");
    let folder = daemon.folder();
    daemon.stop();
    let daemon = Daemon::start_in(folder, &[]);
    assert_eq!(daemon.get("/api/health")["status"], "ok", "the next start finds all in order");
}

/// Starts a daemon that is expected to give up: its exit code and its words.
fn start_in_vain(folder: &crate::support::folder::Folder) -> (Option<i32>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["start", "--port", "0", "--project"])
        .arg(folder.path())
        .env("XDG_CONFIG_HOME", folder.path().join(".config"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let end = KillOnDrop(child.id());
    let code = wait_for("the daemon to give up", || child.try_wait().unwrap()).code();
    std::mem::forget(end);
    let mut words = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut words).unwrap();
    (code, words)
}

/// Ends a daemon that a failed test has left.
struct KillOnDrop(u32);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.0.to_string()]).status();
    }
}

#[test]
fn a_start_that_fails_late_says_why_and_leaves_the_project_to_the_next() {
    let folder = Arc::new(crate::support::folder::Folder::new("late"));
    let in_the_way = folder.path().join(".svc/daemon.port");
    std::fs::create_dir_all(&in_the_way).unwrap();
    let (code, words) = start_in_vain(&folder);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("daemon.port") && words.contains("move away"), "{words}");
    std::fs::remove_dir(&in_the_way).unwrap();
    let daemon = Daemon::start_in(folder, &[]);
    assert_eq!(daemon.get("/api/health")["status"], "ok");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn a_pipe_in_the_place_of_a_state_file_is_refused_with_words() {
    for name in ["state/agents.json", "config.json", "credentials.key"] {
        let folder = crate::support::folder::Folder::new("pipe");
        let path = folder.path().join(".svc").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (code, words) = start_in_vain(&folder);
        assert_eq!(code, Some(1), "{words}");
        assert!(words.contains(name) && words.contains("no regular file"), "{words}");
    }
}

#[test]
fn a_signal_that_means_nothing_is_ignored_and_quit_is_an_orderly_end() {
    let mut daemon = Daemon::start();
    let id = daemon.spawn("hang");
    daemon.wait_state(&id, &["running"]);
    let send = |daemon: &Daemon, signal: &str| {
        let sent = Command::new("kill").args([signal, &daemon.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    };
    for name in ["USR1", "USR2", "ALRM", "VTALRM", "PROF", "IO", "XFSZ", "PWR"] {
        send(&daemon, &format!("-{name}"));
        wait_for(&format!("a line about {name}"), || {
            daemon.log().contains(&format!("SIG{name} ")).then_some(())
        });
    }
    assert_eq!(daemon.get(&format!("/api/agents/{id}"))["state"], "running");
    send(&daemon, "-QUIT");
    assert_eq!(daemon.exit_code(), Some(0));
    assert!(of_project(&daemon.project).is_empty(), "no agent is left");
    assert!(!daemon.project.join(".svc/daemon.port").exists());
}

#[test]
fn an_agent_may_not_stop_its_own_daemon() {
    let daemon = Daemon::start();
    let folder = daemon.folder();
    folder.write(
        ".svc/rehearsals/rebel.json",
        &json!({"description": "tries to stop the daemon", "steps": [
            {"run": {"command": format!("{} stop --project . ; echo code $?", env!("CARGO_BIN_EXE_svc"))}},
            {"run": {"command": format!(
                "env -u SVC_AGENT_ID {} stop --project . ; echo code $?", env!("CARGO_BIN_EXE_svc")
            )}},
            {"answer": "tried"},
        ]})
        .to_string(),
    );
    let id = daemon.spawn("rebel");
    daemon.wait_state(&id, &["completed"]);
    assert_eq!(daemon.get("/api/health")["status"], "ok");
    let log = daemon.get(&format!("/api/agents/{id}/log?tail=1000")).to_string();
    assert_eq!(log.matches("code 1").count(), 2, "{log}");
}
