//! The built daemon against servers that speak the protocols of the chat platforms.

mod cards;
mod cli;
mod discord;
mod secrets;
mod slack;
mod telegram;
mod threads;

use crate::support::daemon::Daemon;
use crate::support::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::time::Duration;

/// Many processes in a row take their time on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// Makes a gateway with tokens and a chat; its id.
fn gateway(daemon: &Daemon, kind: &str, api: &str, chat: &str, tokens: &[(&str, &str)]) -> String {
    let body = json!({
        "type": kind, "apiBase": api, "chatId": chat, "notifications": {"preset": "lifecycle"},
    });
    let record = daemon.post("/api/gateways", &body);
    let id = record["id"].as_str().unwrap().to_owned();
    for (key, value) in tokens {
        let answer =
            daemon.post(&format!("/api/gateways/{id}/credentials"), &json!({"key": key, "value": value}));
        assert_eq!(answer, json!({"ok": true}));
    }
    id
}

fn connect(daemon: &Daemon, id: &str) -> Value {
    let record = daemon.post(&format!("/api/gateways/{id}/connect"), &json!({}));
    assert_eq!(record["connected"], true, "{record}\n{}", daemon.log());
    record
}

fn patch(daemon: &Daemon, id: &str, body: &Value) {
    let (status, answer) = daemon.send("PATCH", &format!("/api/gateways/{id}"), body);
    assert_eq!(status, 200, "{answer}");
}

fn record(daemon: &Daemon, id: &str) -> Value {
    daemon.get(&format!("/api/gateways/{id}"))
}

/// Lets the `script` agent be the one that `/spawn` starts.
fn rehearse(daemon: &Daemon) {
    let (status, answer) = daemon.send("PATCH", "/api/config", &json!({"defaultProvider": "script"}));
    assert_eq!(status, 200, "{answer}");
    wait_for("the script agent to be known", || {
        let list = daemon.get("/api/providers");
        list.as_array()
            .unwrap()
            .iter()
            .any(|one| one["id"] == "script" && one["installed"] == true)
            .then_some(())
    });
}

/// An agent of this name that owns `web/` and works on.
fn worker(daemon: &Daemon, name: &str) -> String {
    let body =
        json!({"role": "dev", "name": name, "provider": "script", "model": "hang", "scope": ["web/**"]});
    daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned()
}

/// The agent wants to write where it may not: the id of the approval that waits.
fn approval(daemon: &Daemon, agent: &str, path: &str) -> String {
    let answer = daemon.post("/api/hooks/write", &json!({"agentId": agent, "tool": "Edit", "path": path}));
    assert_eq!(answer["decision"], "deny", "{answer}");
    answer["approvalId"].as_str().unwrap().to_owned()
}

/// What the agents were started with, sorted.
fn prompts(daemon: &Daemon) -> Vec<String> {
    let list = daemon.get("/api/agents");
    let prompts = list.as_array().unwrap().iter().filter_map(|one| one["prompt"].as_str());
    let mut prompts: Vec<String> = prompts.map(ToOwned::to_owned).collect();
    prompts.sort();
    prompts
}

/// A command that nobody has, of so many letters: its answer names it.
fn unknown(letters: usize) -> String {
    format!("/{}", "n".repeat(letters))
}

fn status_of(daemon: &Daemon, approval: &str) -> String {
    daemon.get(&format!("/api/approvals/{approval}"))["status"].as_str().unwrap().to_owned()
}

fn audited(daemon: &Daemon, event: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(daemon.project.join(".svc/audit.jsonl")).unwrap_or_default();
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries.filter(|entry| entry["event"] == event).collect()
}
