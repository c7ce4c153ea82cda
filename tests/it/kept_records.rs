//! What a daemon had heard of an agent when it was killed, and what the next one hears beside that.

use crate::support::daemon::{Daemon, OPEN};
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

/// A program that speaks as Codex does, and writes into its own record between two lines when it is let to.
fn program() -> String {
    let event = |line: Value| format!("echo '{line}'");
    let item = |kind: &str, id: &str| {
        let item = json!({"id": id, "type": "command_execution", "command": id, "exit_code": 0,
            "aggregated_output": id, "status": "completed"});
        event(json!({"type": kind, "item": item}))
    };
    let context = |tokens: u64| {
        let info = json!({"last_token_usage": {"input_tokens": tokens}, "model_context_window": 1000});
        let line = json!({"type": "event_msg", "payload": {"type": "token_count", "info": info}});
        format!("echo '{line}' >>\"$days/rollout-x-thread-1.jsonl\"")
    };
    [
        "#!/bin/sh",
        "[ \"$1\" != --version ] || { echo codex-cli 0.169.0; exit; }",
        "days=\"$CODEX_HOME/sessions/2026/11/23\"; mkdir -p \"$days\"; cat >/dev/null",
        &event(json!({"type": "thread.started", "thread_id": "thread-1"})),
        &event(json!({"type": "turn.started"})),
        &item("item.started", "one"),
        &item("item.completed", "one"),
        "until [ -e first ]; do sleep 0.01; done",
        &context(100),
        &context(200),
        "touch written; until [ -e second ]; do sleep 0.01; done",
        &item("item.completed", "two"),
        "until [ -e third ]; do sleep 0.01; done",
        &context(300),
        &event(json!({"type": "turn.completed", "usage": {"input_tokens": 50, "output_tokens": 5}})),
    ]
    .join("\n")
}

/// Its own record of the session may have grown by the time the next daemon reads: what the first one has
/// heard keeps its numbers all the same.
#[test]
fn lines_that_one_daemon_has_heard_come_once_although_the_next_reads_more_beside_them() {
    let folder = Folder::new("records");
    folder.write(".svc/config.json", OPEN);
    let script = program();
    folder.write("bin/codex", &script);
    fs::set_permissions(folder.path().join("bin/codex"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
    let home = folder.path().join("codex-home").to_str().unwrap().to_owned();
    let env = [("PATH", path.as_str()), ("CODEX_HOME", home.as_str()), ("OPENAI_API_KEY", "none")];
    let folder = Arc::new(folder);
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &env);
    let body = json!({"role": "dev", "provider": "codex", "model": "gpt-5.5", "prompt": "go"});
    let id = wait_for("codex to be found", || {
        let (status, record) = daemon.send("POST", "/api/agents", &body);
        (status == 201).then(|| record["id"].as_str().unwrap().to_owned())
    });
    let kinds = |daemon: &Daemon| -> Vec<String> {
        let log = daemon.get(&format!("/api/agents/{id}/log"));
        let entries = log["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["type"].as_str().unwrap().to_owned()).collect()
    };
    let count = |daemon: &Daemon, kind: &str| kinds(daemon).iter().filter(|one| *one == kind).count();
    let next = |daemon: &mut Daemon, file: &str| {
        daemon.kill();
        folder.write(file, "");
    };
    wait_for("the first call", || (count(&daemon, "tool-ended") == 1).then_some(()));
    next(&mut daemon, "first");
    wait_for("more in its record", || folder.path().join("written").exists().then_some(()));
    daemon = Daemon::start_in(Arc::clone(&folder), &env);
    folder.write("second", "");
    wait_for("the second call", || (count(&daemon, "tool-ended") == 2).then_some(()));
    next(&mut daemon, "third");
    daemon = Daemon::start_in(Arc::clone(&folder), &env);
    let record = daemon.wait_state(&id, &["completed", "crashed", "killed", "interrupted"]);
    assert_eq!((&record["state"], &record["turns"]), (&json!("completed"), &json!(1)), "{record}");
    let told = kinds(&daemon);
    for (kind, times) in [
        ("session", 1),
        ("turn-started", 1),
        ("tool-started", 2),
        ("tool-ended", 2),
        ("turn-ended", 1),
        ("usage", 4),
    ] {
        assert_eq!(count(&daemon, kind), times, "{kind} in {told:?}\n{}", daemon.log());
    }
    assert_eq!(record["tokens"]["input"], 50, "{record}");
    daemon.stop();
}
