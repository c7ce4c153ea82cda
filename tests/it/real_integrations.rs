//! Real agent programs, driven by a scripted model, that call a tool of an integration: Codex by curl as its
//! instructions tell it, Claude Code by the MCP server of its `.mcp.json`.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::mcp::{add, audit};
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// A turn of the slowest program takes 4 s on an idle machine.
const LIMIT: Duration = Duration::from_secs(90);

/// A daemon whose agents find the program, and one agent of it that has done this task; its record.
fn completed(cli: Cli, task: &str) -> Option<(Daemon, Value)> {
    if !cli.is_here() {
        return None;
    }
    let project = Arc::new(Folder::new("real"));
    let aimock = Aimock::start(project.path());
    let home = Home::new(&aimock.url);
    let variables = home.variables(cli, &aimock.url);
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let daemon = Daemon::start_in(project, &variables);
    add(&daemon, "hub", &[]);
    wait_within(LIMIT, "the provider to be detected", || {
        let providers = daemon.get("/api/providers");
        let mine = providers.as_array()?.iter().find(|p| p["id"] == cli.provider())?;
        (mine["installed"] == true).then_some(())
    });
    let mut body = json!({
        "role": "builder", "provider": cli.provider(), "permission": "full", "integrations": ["hub"],
        "prompt": format!("Please do {task} now."),
    });
    if let Some(model) = cli.model() {
        body["model"] = json!(model);
    }
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    let record = wait_within(LIMIT, "the agent to end", || {
        let record = daemon.get(&format!("/api/agents/{id}"));
        (record["status"] != "active").then_some(record)
    });
    let (_, log) = daemon.send("GET", &format!("/api/agents/{id}/log"), &Value::Null);
    assert_eq!(record["state"], "completed", "{record:#}\n{log:#}");
    Some((daemon, record))
}

/// The audit log has the call, with the agent.
fn audited(daemon: &Daemon, record: &Value) {
    let entries = audit(&daemon.project);
    let call = entries.iter().find(|entry| entry["event"] == "integration.exec");
    let (_, log) =
        daemon.send("GET", &format!("/api/agents/{}/log", record["id"].as_str().unwrap()), &Value::Null);
    let call = call.unwrap_or_else(|| panic!("no call: {log:#}"));
    assert_eq!((&call["agentId"], &call["tool"]), (&record["id"], &json!("echo")));
    assert_eq!(
        call["actor"],
        format!("agent:{}", record["id"].as_str().unwrap()),
        "the kernel tells who calls"
    );
}

#[test]
fn issue_4_codex_calls_the_exec_and_declare_endpoints_by_curl() {
    let Some((daemon, record)) = completed(Cli::Codex, "REAL-EXEC") else { return };
    audited(&daemon, &record);
    let answer = fs::read_to_string(daemon.project.join("answer.json")).unwrap();
    assert!(answer.contains("from the real agent"), "{answer}");
    let declared = fs::read_to_string(daemon.project.join("declared.json")).unwrap();
    assert!(declared.contains("\"declared\":true"), "{declared}");
}

#[test]
fn issue_4_claude_calls_the_tool_by_its_mcp_json() {
    let Some((daemon, record)) = completed(Cli::Claude, "REAL-EXEC") else { return };
    audited(&daemon, &record);
    assert!(!daemon.project.join(".mcp.json").exists(), "gone with the agent");
}

#[test]
fn claude_calls_a_tool_of_an_integration_by_its_own_name() {
    let Some((daemon, record)) = completed(Cli::Claude, "REAL-NAMED") else { return };
    audited(&daemon, &record);
}
