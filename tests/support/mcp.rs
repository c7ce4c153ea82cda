//! The integrations bridge as tests use it: the test server, and calls.

use super::daemon::Daemon;
use serde_json::{Value, json};
use std::path::Path;

/// The test server.
pub const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/mcp_server.py");

/// Adds the test server under this id, with these options.
pub fn add(daemon: &Daemon, id: &str, options: &[&str]) {
    let mut args = vec![SERVER];
    args.extend(options);
    let body = json!({
        "id": id, "command": "python3", "args": args, "env": [{"key": "TEST_TOKEN", "required": false}],
        "gatedTools": ["send"],
    });
    let (status, record) = daemon.send("POST", "/api/integrations", &body);
    assert_eq!(status, 201, "{record}");
    assert_eq!(record["installed"], true);
}

/// Calls a tool: status and body.
pub fn exec(daemon: &Daemon, id: &str, tool: &str, params: &Value) -> (u16, Value) {
    let body = json!({"tool": tool, "params": params});
    daemon.send("POST", &format!("/api/integrations/{id}/exec"), &body)
}

/// The text of a successful call.
pub fn text(daemon: &Daemon, id: &str, tool: &str, params: &Value) -> String {
    let (status, body) = exec(daemon, id, tool, params);
    assert_eq!(status, 200, "{tool}: {body}");
    body["result"]["content"][0]["text"].as_str().unwrap().to_owned()
}

/// An integration's record.
pub fn record(daemon: &Daemon, id: &str) -> Value {
    daemon.get(&format!("/api/integrations/{id}"))
}

/// Names of the tools, as listed.
pub fn tool_names(daemon: &Daemon, id: &str) -> Vec<String> {
    let tools = daemon.get(&format!("/api/integrations/{id}/tools"));
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools["tools"].as_array().unwrap().iter().map(name).collect()
}

/// Whether a process runs.
pub fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// The audit journal.
pub fn audit(project: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(project.join(".svc/audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
