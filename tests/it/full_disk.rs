//! A disk that takes no more, under the built daemon: what is answered 503 is not in force, now and after a
//! kill, and what is asked for once there is room is.

use crate::support::daemon::Daemon;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::process::Command;

const SHOWN: [&str; 8] = [
    "/api/config",
    "/api/teams",
    "/api/schedules",
    "/api/memory/constraints",
    "/api/coordination",
    "/api/credentials",
    "/api/gateways",
    "/api/agents",
];

fn shown(daemon: &Daemon) -> Vec<Value> {
    SHOWN.iter().map(|path| daemon.get(path)).collect()
}

fn changes() -> Vec<(&'static str, &'static str, Value)> {
    let agent = json!({"role": "dev", "provider": "script", "prompt": "x"});
    vec![
        ("PATCH", "/api/config", json!({"maxAgents": 3})),
        ("POST", "/api/teams", json!({"name": "crew"})),
        ("POST", "/api/schedules", json!({"name": "tidy", "cron": "0 0 1 1 *", "agent": agent})),
        ("POST", "/api/memory/constraints", json!({"text": "Use tabs"})),
        (
            "POST",
            "/api/coordination/declare",
            json!({"agentId": "me", "operation": "o", "resources": ["db"]}),
        ),
        ("POST", "/api/credentials", json!({"provider": "codex", "key": "sk-0123456789abcdef"})),
        ("POST", "/api/gateways", json!({"type": "telegram"})),
        ("POST", "/api/agents", json!({"role": "dev", "provider": "script", "model": "hang"})),
    ]
}

#[test]
fn what_a_full_disk_refuses_is_not_in_force_now_and_after_a_kill() {
    if !Command::new("prlimit").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!(
            "skipped: prlimit (util-linux) is not installed; the tests of assembly/unwritten.rs show the same"
        );
        return;
    }
    let mut daemon = Daemon::start();
    // The default team is as old as the daemon until teams are stored for the first time.
    daemon.post("/api/teams", &json!({"name": "first"}));
    // The vault's key is made with the first secret.
    daemon.post("/api/credentials", &json!({"provider": "gemini", "key": "sk-0123456789abcdef"}));
    let limit = |daemon: &Daemon, size: &str| {
        let (pid, size) = (daemon.pid().to_string(), format!("--fsize={size}"));
        assert!(Command::new("prlimit").args(["--pid", &pid, &size]).status().unwrap().success());
    };
    for (method, path, body) in changes() {
        // Each finds a disk of which nothing is known yet.
        wait_for("a daemon that is well", || (daemon.get("/api/health")["status"] == "ok").then_some(()));
        let before = shown(&daemon);
        // No file may have a byte.
        limit(&daemon, "0:unlimited");
        let (status, answer) = daemon.send(method, path, &body);
        assert_eq!((status, &answer["code"]), (503, &json!("storage_unavailable")), "{path}: {answer}");
        assert_eq!(shown(&daemon), before, "{method} {path} is in force");
        limit(&daemon, "unlimited:unlimited");
    }
    wait_for("a daemon that is well", || (daemon.get("/api/health")["status"] == "ok").then_some(()));
    let before = shown(&daemon);
    limit(&daemon, "0:unlimited");
    for (method, path, body) in changes() {
        assert_eq!(daemon.send(method, path, &body).0, 503, "{path}");
    }
    daemon.kill();
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    assert_eq!(shown(&daemon), before, "after a kill");
    for (method, path, body) in changes() {
        let (status, answer) = daemon.send(method, path, &body);
        assert!(status < 300, "{path}: {answer}");
    }
    assert_ne!(shown(&daemon), before);
}
