//! File ownership with real processes: a fence that the kernel holds, and the hook that asks beforehand.

mod support;

use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use support::daemon::Daemon;
use support::folder::Folder;

fn supports_landlock() -> bool {
    // An empty fence around a harmless program: the sub-command says whether the kernel can.
    let tried = Command::new(env!("CARGO_BIN_EXE_svc")).args(["__confine", "/tmp", "--", "true"]).output();
    tried.is_ok_and(|output| output.status.success())
}

#[test]
fn decisions_10_kernel_enforcement_lets_a_child_write_below_its_scope_and_the_temporary_folder_only() {
    if !supports_landlock() {
        eprintln!("skipped: this kernel has no Landlock");
        return;
    }
    let folder = Arc::new(Folder::in_target("fence"));
    let outside = "printf x > outside.txt; printf x > src/inside.txt; \
                   (sh -c 'printf x > other/deep.txt'); mv src/inside.txt moved.txt; rm -f victim.txt; \
                   printf x > \"${TMPDIR:-/tmp}/svc-fence-$SVC_AGENT_ID\" && printf ok > src/temporary.txt; cat victim.txt";
    let scenario = json!({"steps": [
        {"write": {"path": "src/by-tool.txt", "text": "x"}},
        {"write": {"path": "by-tool.txt", "text": "x"}},
        {"run": {"command": outside, "timeoutMs": 20_000}},
        {"answer": "done"},
    ]});
    folder.write(".svc/rehearsals/tries.json", &scenario.to_string());
    folder.write(".svc/config.json", r#"{"enforcement": "kernel"}"#);
    folder.write("victim.txt", "still here");
    folder.write("other/a.txt", "");
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let body = json!({
        "role": "dev", "provider": "script", "model": "tries", "prompt": "p", "scope": ["src/**"],
    });
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    daemon.wait_state(&id, &["completed"]);
    let there = |path: &str| daemon.project.join(path).exists();
    assert!(there("src/by-tool.txt") && there("src/inside.txt"), "inside its scope it writes");
    assert!(there("src/temporary.txt"), "and in the temporary folder");
    for path in ["by-tool.txt", "outside.txt", "other/deep.txt", "moved.txt"] {
        assert!(!there(path), "{path} lies outside of its scope");
    }
    assert_eq!(fs::read_to_string(daemon.project.join("victim.txt")).unwrap(), "still here");
    let log = daemon.get(&format!("/api/agents/{id}/log?tail=1000")).to_string();
    assert!(log.contains("still here"), "reading stays free: {log}");
    let _ = fs::remove_file(std::env::temp_dir().join(format!("svc-fence-{id}")));
}

/// `svc hook` as Claude Code calls it.
fn hook(daemon: &Daemon, agent: &str, tool: &str, path: &str) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
        .arg("hook")
        .env("SVC_DAEMON_URL", &daemon.url)
        .env("SVC_AGENT_ID", agent)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let event = json!({
        "session_id": "s", "cwd": "/", "hook_event_name": "PreToolUse", "tool_name": tool,
        "tool_input": {"file_path": path, "content": "x"}, "tool_use_id": "t",
    });
    child.stdin.take().unwrap().write_all(event.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

#[test]
fn decisions_10_svc_hook_denies_until_a_person_has_approved() {
    let daemon = Daemon::start();
    let spawn = |name: &str, scope: &str| {
        let body = json!({
            "role": "dev", "name": name, "provider": "script", "model": "hang", "scope": [scope],
        });
        daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned()
    };
    let (web, _api) = (spawn("web", "web/**"), spawn("api", "api/**"));
    let mut socket = daemon.connect("?types=conflict:detected,approval:request");
    let inside = daemon.project.join("web/a.css").to_string_lossy().into_owned();
    let theirs = daemon.project.join("api/a.rs").to_string_lossy().into_owned();
    assert_eq!(hook(&daemon, &web, "Write", &inside), Value::Null, "its own file: nothing to say");
    let denied = hook(&daemon, &web, "Edit", &theirs);
    let output = &denied["hookSpecificOutput"];
    assert_eq!(output["hookEventName"], "PreToolUse");
    assert_eq!(output["permissionDecision"], "deny", "{denied}");
    let reason = output["permissionDecisionReason"].as_str().unwrap();
    assert!(reason.contains("api/a.rs") && reason.contains("agent api"), "{reason}");
    let mut conflict = support::daemon::next_message(&mut socket);
    while conflict["type"] != "conflict:detected" {
        conflict = support::daemon::next_message(&mut socket);
    }
    assert_eq!(conflict["data"]["filePath"], "api/a.rs");
    let pending = daemon.get("/api/approvals")["pending"][0].clone();
    assert_eq!(pending["action"]["type"], "scope_violation");
    let id = pending["id"].as_str().unwrap();
    daemon.post("/api/approvals", &json!({"id": id, "decision": "approve"}));
    assert_eq!(hook(&daemon, &web, "Edit", &theirs), Value::Null, "approved: it may, once");
    assert_eq!(hook(&daemon, &web, "Edit", &theirs)["hookSpecificOutput"]["permissionDecision"], "deny");
}

#[test]
fn a_hook_without_a_daemon_stops_agents_and_leaves_the_decision_about_others_to_the_program() {
    let run_as = |agent: Option<&str>, input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.env_remove("SVC_AGENT_ID");
        if let Some(agent) = agent {
            command.env("SVC_AGENT_ID", agent);
        }
        let mut child = command
            .arg("hook")
            .env("SVC_DAEMON_URL", "http://127.0.0.1:9")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let run = |input: &str| run_as(None, input);
    let write = r#"{"tool_name": "Write", "tool_input": {"file_path": "/x"}}"#;
    let denied: Value = serde_json::from_slice(&run_as(Some("0123abcd"), write).stdout).unwrap();
    assert_eq!(denied["hookSpecificOutput"]["permissionDecision"], "deny", "{denied}");
    let output = run(write);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"".as_slice()));
    assert_eq!(run("nonsense").status.code(), Some(2), "no hook's input is a wrong use");
}
