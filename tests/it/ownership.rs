//! File ownership with real processes: a fence that the kernel holds, and the hook that asks beforehand.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

fn supports_landlock() -> bool {
    // An empty fence around a harmless program: the sub-command says whether the kernel can.
    let tried = Command::new(env!("CARGO_BIN_EXE_svc")).args(["__confine", "/tmp", "--", "true"]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// One project beside the build, and one below the folder of temporary files of everybody.
#[test]
fn decisions_10_kernel_enforcement_lets_a_child_write_below_its_scope_and_its_temporary_folder_only() {
    if !supports_landlock() {
        eprintln!("skipped: this kernel has no Landlock");
        return;
    }
    for cage in ["off", "auto"] {
        for folder in [Folder::in_target("fence"), Folder::new("fence")] {
            is_fenced_in(&Arc::new(folder), cage);
        }
    }
}

fn is_fenced_in(folder: &Arc<Folder>, cage: &str) {
    let home = Folder::new("fence-home");
    for place in [".config/autostart", ".local/bin", ".claude", ".codex"] {
        fs::create_dir_all(home.path().join(place)).unwrap();
    }
    let outside = "printf x > outside.txt; printf x > src/inside.txt; \
                   (sh -c 'printf x > other/deep.txt'); mv src/inside.txt moved.txt; rm -f victim.txt; \
                   printf x > \"$TMPDIR/mine\" && printf %s \"$TMPDIR\" > src/temporary.txt; \
                   printf x > \"/tmp/svc-fence-$SVC_AGENT_ID\"; printf x > \"/dev/svc-fence-$SVC_AGENT_ID\"; \
                   printf x > ~/.config/autostart/a; printf x > ~/.local/bin/svc; printf x > ~/.claude/settings.json; \
                   printf x > /dev/null && printf x > src/null.txt; cat victim.txt";
    let scenario = json!({"steps": [
        {"write": {"path": "src/by-tool.txt", "text": "x"}},
        {"write": {"path": "by-tool.txt", "text": "x"}},
        {"run": {"command": outside, "timeoutMs": 20_000}},
        {"answer": "done"},
    ]});
    folder.write(".svc/rehearsals/tries.json", &scenario.to_string());
    let settings = json!({"enforcement": "kernel", "isolation": {"cage": cage}});
    folder.write(".svc/config.json", &settings.to_string());
    folder.write("victim.txt", "still here");
    folder.write("other/a.txt", "");
    let daemon = Daemon::start_in(Arc::clone(folder), &[("HOME", home.path().to_str().unwrap())]);
    let body = json!({
        "role": "dev", "provider": "script", "model": "tries", "prompt": "p", "scope": ["src/**"],
    });
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    daemon.wait_state(&id, &["completed"]);
    let there = |path: &str| daemon.project.join(path).exists();
    assert!(there("src/by-tool.txt") && there("src/inside.txt"), "inside its scope it writes");
    let temporary = fs::read_to_string(daemon.project.join("src/temporary.txt")).unwrap();
    // In a room it has the usual name, and is its own all the same.
    let is_room = temporary == "/tmp";
    assert!(is_room || temporary.contains("svc-agent-"), "and in a temporary folder of its own: {temporary}");
    let own = Path::new(&temporary).join("mine");
    wait_for("what it wrote there to be gone", || (!own.exists()).then_some(()));
    assert!(there("src/null.txt"), "devices without content are open");
    for shared in ["/tmp", "/dev"] {
        let path = Path::new(shared).join(format!("svc-fence-{id}"));
        assert!(!path.exists(), "{shared} is everybody's");
    }
    for path in [".config/autostart/a", ".local/bin/svc", ".claude/settings.json"] {
        assert!(!home.path().join(path).exists(), "{path} of the home folder is not its program's own");
    }
    for path in ["by-tool.txt", "outside.txt", "other/deep.txt", "moved.txt"] {
        assert!(!there(path), "{path} lies outside of its scope");
    }
    assert_eq!(fs::read_to_string(daemon.project.join("victim.txt")).unwrap(), "still here");
    let log = daemon.get(&format!("/api/agents/{id}/log?tail=1000")).to_string();
    assert!(log.contains("still here"), "reading stays free: {log}");
}

/// `svc hook` as Claude Code calls it.
fn hook(daemon: &Daemon, agent: &str, tool: &str, path: &str) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
        .arg("hook")
        .env("SVC_DAEMON_URL", &daemon.url)
        .env("SVC_AGENT_ID", agent)
        .env("SVC_PROJECT_DIR", &daemon.project)
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
    let mut conflict = crate::support::daemon::next_message(&mut socket);
    while conflict["type"] != "conflict:detected" {
        conflict = crate::support::daemon::next_message(&mut socket);
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

/// The conflict about this file, once there is one.
fn conflict(daemon: &Daemon, file: &str) -> Value {
    wait_for(&format!("a conflict about {file}"), || {
        let list = daemon.get("/api/conflicts");
        list["conflicts"].as_array().unwrap().iter().find(|one| one["filePath"] == file).cloned()
    })
}

fn spawn(daemon: &Daemon, name: &str, provider: &str, model: &str, scope: &[&str]) -> String {
    let body = json!({
        "role": "dev", "name": name, "provider": provider, "model": model, "scope": scope, "prompt": "go on",
    });
    let (status, agent) = daemon.send("POST", "/api/agents", &body);
    assert_eq!(status, 201, "{agent}");
    agent["id"].as_str().unwrap().to_owned()
}

#[test]
fn decisions_10_a_shell_commands_write_into_anothers_scope_is_seen_and_a_persons_is_not() {
    let folder = Arc::new(Folder::new("shell"));
    for (name, command) in [
        // What a command removes at its very begin was seen before its program had started.
        ("writes", "rm api/old.txt; echo hi > api/shell.txt; echo out > api/target/ignored.txt"),
        ("again", "echo hi > api/last.txt"),
        ("hides", "echo '*' > api/.gitignore; echo hidden > api/person.txt"),
    ] {
        let scenario = json!({"steps": [{"run": {"command": command}}, {"answer": "done"}]});
        folder.write(&format!(".svc/rehearsals/{name}.json"), &scenario.to_string());
    }
    folder.write(".gitignore", "target/\n");
    for file in ["api/old.txt", "api/person.txt", "api/target/x.txt"] {
        folder.write(file, "x");
    }
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    spawn(&daemon, "api", "script", "hang", &["api/**"]);
    let web = spawn(&daemon, "web", "script", "writes", &["web/**"]);
    let seen = conflict(&daemon, "api/shell.txt");
    assert_eq!((&seen["agentId"], &seen["ownerName"]), (&json!(web), &json!("api")), "{seen}");
    assert_eq!((&seen["seen"], &seen["certainty"]), (&json!("after"), &json!("likely")), "{seen}");
    assert_eq!(conflict(&daemon, "api/old.txt")["agentName"], "web", "a removed file was somebody's too");
    let pending = daemon.get("/api/approvals")["pending"].as_array().unwrap().clone();
    let asked = pending.iter().find(|one| one["action"]["filePath"] == "api/shell.txt").expect("a question");
    assert_eq!((&asked["agentName"], &asked["action"]["certainty"]), (&json!("web"), &json!("likely")));

    daemon.wait_state(&web, &["completed"]);
    let person = daemon.project.join("api/person.txt");
    fs::write(&person, "a person's words").unwrap();
    wait_for("the edit to be a thing of the past", || {
        let age = fs::metadata(&person).unwrap().modified().unwrap().elapsed().unwrap_or_default();
        (age > std::time::Duration::from_millis(1_500)).then_some(())
    });
    spawn(&daemon, "other", "script", "again", &["web/**"]);
    assert_eq!(conflict(&daemon, "api/last.txt")["agentName"], "other");
    let all = daemon.get("/api/conflicts").to_string();
    assert!(!all.contains("person.txt") && !all.contains("ignored.txt"), "{all}");
    spawn(&daemon, "sly", "script", "hides", &["web/**"]);
    for file in ["api/.gitignore", "api/person.txt"] {
        assert_eq!(conflict(&daemon, file)["agentName"], "sly", "nothing hides behind an ignore file");
    }
}

/// A stand-in for Claude Code: one write is refused, then a command really changes a file.
const CLAUDE: &str = r#"#!/usr/bin/env python3
import json, subprocess, sys
if "--version" in sys.argv:
    print("2.1.330 (Claude Code)")
    sys.exit(0)
def say(**line):
    print(json.dumps({"session_id": "s1", **line}), flush=True)
def call(id, name, input, run):
    content = [{"type": "tool_use", "id": id, "name": name, "input": input}]
    say(type="assistant", message={"id": "m" + id, "role": "assistant", "content": content})
    failed, output = run()
    result = {"type": "tool_result", "tool_use_id": id, "is_error": failed, "content": output}
    say(type="user", message={"role": "user", "content": [result]})
sys.stdin.readline()
say(type="system", subtype="init", model="m", tools=[])
call("1", "Write", {"file_path": "api/refused.rs", "content": "x"}, lambda: (True, "permission denied"))
command = "sed -i s/1/2/ api/main.rs"
call("2", "Bash", {"command": command}, lambda: (subprocess.call(command, shell=True) != 0, ""))
say(type="result", subtype="success", is_error=False, result="done", num_turns=1, duration_ms=1,
    total_cost_usd=0, usage={})
sys.stdin.read()
"#;

#[test]
fn decisions_10_a_bash_command_of_claude_code_is_seen_and_a_refused_write_is_none() {
    let folder = Arc::new(Folder::new("bash"));
    folder.write("api/main.rs", "1\n");
    let daemon = Daemon::with_claude(folder, CLAUDE);
    spawn(&daemon, "api", "script", "hang", &["api/**"]);
    let web = spawn(&daemon, "web", "claude-code", "m", &["web/**"]);
    let seen = conflict(&daemon, "api/main.rs");
    assert_eq!((&seen["agentName"], &seen["certainty"]), (&json!("web"), &json!("likely")), "{seen}");
    assert_eq!(fs::read_to_string(daemon.project.join("api/main.rs")).unwrap(), "2\n");
    let all = daemon.get("/api/conflicts").to_string();
    assert!(!all.contains("refused.rs"), "{all}");
    let files = daemon.get(&format!("/api/agents/{web}/files")).to_string();
    assert!(!files.contains("refused.rs"), "a refused write is none: {files}");
    let profile = daemon.get(&format!("/api/memory/specializations/{web}"));
    assert_eq!(profile["fileTouches"], json!({}), "{profile}");
}
