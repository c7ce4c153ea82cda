//! Agents and their integrations: what is attached when they are spawned, the `.mcp.json` of Claude Code,
//! and `svc mcp`.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::mcp::{SERVER, add};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

/// A stand-in for the program of Claude Code: it does what that does with a `.mcp.json`, calls a tool of
/// each server in it, writes down what came, and ends its turn.
const CLAUDE: &str = r#"#!/usr/bin/env python3
import json, os, subprocess, sys
if "--version" in sys.argv:
    print("2.1.329 (Claude Code)")
    sys.exit(0)
prompt = json.loads(sys.stdin.readline())["message"]["content"]
text = prompt if isinstance(prompt, str) else prompt[0]["text"]
with open(".mcp.json") as file:
    config = file.read()
seen = {"config": config, "argv": sys.argv[1:], "prompt": text, "results": {}}
for name, server in json.loads(config)["mcpServers"].items():
    if name != "svc":
        continue
    child = subprocess.Popen([server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    def ask(id, method, params):
        line = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\n"
        child.stdin.write(line.encode())
        child.stdin.flush()
        return json.loads(child.stdout.readline())
    ask(1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}})
    child.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    arguments = {"integration": "hub", "tool": "echo", "params": {"text": "from the agent"}}
    seen["results"][name] = ask(2, "tools/call", {"name": "integration_exec", "arguments": arguments})
    child.stdin.close()
    child.wait()
with open("seen.tmp", "w") as file:
    json.dump(seen, file)
os.rename("seen.tmp", "seen.json")
print(json.dumps({"type": "system", "subtype": "init", "session_id": "s1", "model": "m", "tools": []}), flush=True)
print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": "s1",
                  "num_turns": 1, "duration_ms": 1, "total_cost_usd": 0, "usage": {}}), flush=True)
sys.stdin.read()
"#;

fn daemon_with_claude() -> Daemon {
    Daemon::with_claude(Arc::new(Folder::new("project")), CLAUDE)
}

fn spawn(daemon: &Daemon, provider: &str, integrations: &[&str]) -> (u16, Value) {
    let body = json!({
        "role": "dev", "provider": provider, "integrations": integrations, "prompt": "do it",
    });
    daemon.send("POST", "/api/agents", &body)
}

#[test]
fn decisions_2_each_attached_integration_must_be_installed() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    let (status, body) = spawn(&daemon, "script", &["hub", "github", "nonsense"]);
    assert_eq!((status, body["errors"].as_array().map(Vec::len)), (400, Some(2)), "{body}");
    let (status, body) = spawn(&daemon, "script", &["hub"]);
    assert_eq!((status, &body["integrations"]), (201, &json!(["hub"])), "{body}");
}

#[test]
fn spec_agents_with_native_support_get_a_mcp_json_for_as_long_as_they_run() {
    let daemon = daemon_with_claude();
    add(&daemon, "hub", &[]);
    let secret = json!({"key": "TEST_TOKEN", "value": "planted-token-0123456789"});
    daemon.post("/api/integrations/hub/credentials", &secret);
    let file = daemon.project.join(".mcp.json");
    let users = "{\n  \"mcpServers\": {\n\t\"mine\": {\"command\": \"x\"}\n  }\n}\n";
    fs::write(&file, users).unwrap();
    let (status, agent) = spawn(&daemon, "claude-code", &["hub"]);
    assert_eq!(status, 201, "{agent}");
    daemon.wait_state(agent["id"].as_str().unwrap(), &["completed"]);
    let seen: Value =
        serde_json::from_str(&fs::read_to_string(daemon.project.join("seen.json")).unwrap()).unwrap();
    let config: Value = serde_json::from_str(seen["config"].as_str().unwrap()).unwrap();
    assert_eq!(config["mcpServers"]["svc"]["args"], json!(["mcp"]));
    assert_eq!(config["mcpServers"]["mine"], json!({"command": "x"}));
    assert!(!seen["config"].as_str().unwrap().contains("planted"), "no secret in it");
    let result = &seen["results"]["svc"]["result"];
    assert_eq!(result["content"][0]["text"], "from the agent", "{seen}");
    assert!(seen["argv"].as_array().unwrap().contains(&json!("mcp__svc")), "{seen}");
    assert!(seen["prompt"].as_str().unwrap().contains("hub"), "{seen}");
    assert_eq!(fs::read_to_string(&file).unwrap(), users, "the user's file is as it was");
    let calls = fs::read_to_string(daemon.project.join(".svc/audit.jsonl")).unwrap();
    let call = calls.lines().find(|line| line.contains("\"integration.exec\"")).unwrap();
    assert!(call.contains(agent["id"].as_str().unwrap()), "audited with the agent: {call}");

    fs::remove_file(&file).unwrap();
    let (_, agent) = spawn(&daemon, "claude-code", &["hub"]);
    daemon.wait_state(agent["id"].as_str().unwrap(), &["completed"]);
    assert!(!file.exists(), "a file of ours alone goes again");
}

#[test]
fn issue_4_what_a_killed_daemon_left_in_a_mcp_json_is_taken_out_by_the_next() {
    let mut daemon = daemon_with_claude();
    daemon.tie_agents();
    add(&daemon, "hub", &[]);
    let file = daemon.project.join(".mcp.json");
    let users = "{\"mcpServers\": {\"mine\": {\"command\": \"x\"}}}";
    fs::write(&file, users).unwrap();
    // It waits for the end of its turn, which never comes.
    fs::write(
        daemon.project.join("bin/claude"),
        CLAUDE.replace("prompt = json", "sys.stdin.read()\nprompt = json"),
    )
    .unwrap();
    let (_, agent) = spawn(&daemon, "claude-code", &["hub"]);
    daemon.wait_state(agent["id"].as_str().unwrap(), &["running"]);
    wait_for("our entry", || fs::read_to_string(&file).unwrap().contains("\"svc\"").then_some(()));
    daemon.kill();
    let _next = Daemon::start_in(daemon.folder(), &[]);
    assert_eq!(fs::read_to_string(&file).unwrap(), users);
}

/// `svc mcp` as a client sees it.
struct Mcp {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
    /// Methods of the notifications that came.
    told: Vec<String>,
}

impl Mcp {
    fn start(daemon: &Daemon) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
            .args(["mcp", "--url", &daemon.url])
            .env_remove("SVC_AGENT_ID")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output, last_id: 0, told: Vec::new() }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        writeln!(self.input, "{message}").unwrap();
        loop {
            let answer = self.read();
            if answer.get("id").is_some() {
                assert_eq!(answer["id"], self.last_id);
                return answer;
            }
            self.told.push(answer["method"].as_str().unwrap().to_owned());
        }
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until it was told that there are other tools.
    fn list_changed(&mut self) {
        while self.told.is_empty() {
            let told = self.read();
            self.told.push(told["method"].as_str().unwrap().to_owned());
        }
        assert_eq!(self.told.remove(0), "notifications/tools/list_changed");
    }

    /// The tool of this name, as listed.
    fn tool(&mut self, name: &str) -> Value {
        let mut tools = self.ask("tools/list", &json!({}))["result"]["tools"].take();
        let found = tools.as_array_mut().unwrap().iter_mut().find(|tool| tool["name"] == name);
        found.map(Value::take).unwrap_or_default()
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))["result"].take()
    }
}

#[test]
fn issue_4_svc_mcp_offers_the_bridge_and_locks_as_tools() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    let mut mcp = Mcp::start(&daemon);
    let hello = mcp.ask("initialize", &json!({"protocolVersion": "2024-11-05", "capabilities": {}}));
    assert_eq!(hello["result"]["protocolVersion"], "2024-11-05");
    writeln!(mcp.input, "no message\n[]\n17\n{}", json!({"method": "notifications/initialized"})).unwrap();
    assert_eq!(mcp.ask("ping", &json!({}))["result"], json!({}));
    let tools = mcp.ask("tools/list", &json!({}))["result"]["tools"].take();
    for tool in tools.as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object");
    }
    let listed = mcp.call("integration_tools", &json!({}));
    assert!(listed["content"][0]["text"].as_str().unwrap().contains("\"hub\""), "{listed}");
    let listed = mcp.call("integration_tools", &json!({"integration": "hub"}));
    assert!(listed["content"][0]["text"].as_str().unwrap().contains("\"echo\""), "{listed}");
    let exec = |tool: &str, params: Value| json!({"integration": "hub", "tool": tool, "params": params});
    let said = mcp.call("integration_exec", &exec("echo", json!({"text": "x"})));
    assert_eq!(said["structuredContent"], json!({"text": "x"}), "the server's own result");
    let gated = mcp.call("integration_exec", &exec("send", json!({})));
    assert!(gated["content"][0]["text"].as_str().unwrap().contains("approvalId"), "{gated}");
    let failed = mcp.call("integration_exec", &exec("refuse", json!({})));
    assert_eq!(failed["isError"], true);
    assert_eq!(mcp.call("nonsense", &json!({}))["isError"], true);
    assert_eq!(mcp.ask("resources/list", &json!({}))["error"]["code"], -32601);
    let declared = mcp.call("coordination_declare", &json!({"operation": "x", "resources": ["r"]}));
    assert_eq!(declared["isError"], true, "who is no agent holds nothing: {declared}");
    let asked = mcp.call("ask_human", &json!({"question": "Which port?"}));
    assert!(asked["content"][0]["text"].as_str().unwrap().contains("\"questionId\":\"apr-"), "{asked}");
    assert_eq!(mcp.call("ask_human", &json!({}))["isError"], true);
    let pending = daemon.get("/api/approvals")["pending"].clone();
    assert!(pending.to_string().contains("Which port?"), "{pending}");
    mcp.call("memory_discovery", &json!({"trigger": "port 80 is taken", "fix": "use --port 0"}));
    let known = mcp.call("recall", &json!({"words": "ports"}));
    assert!(known["content"][0]["text"].as_str().unwrap().contains("use --port 0"), "{known}");
    assert_eq!(mcp.call("recall", &json!({}))["isError"], true);
    drop(mcp.input);
    assert_eq!(mcp.child.wait().unwrap().code(), Some(0), "it ends with its input");
}

#[test]
fn svc_mcp_lists_tools_of_integrations_by_their_names_and_tells_of_others() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    let mut mcp = Mcp::start(&daemon);
    let hello = mcp.ask("initialize", &json!({"protocolVersion": "2025-06-18", "capabilities": {}}));
    assert_eq!(hello["result"]["capabilities"]["tools"], json!({"listChanged": true}));
    let own = daemon.get("/api/integrations/hub/tools");
    let own = own["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "echo").unwrap();
    assert_eq!(mcp.tool("hub__echo")["inputSchema"], own["inputSchema"], "the server's own schema");
    let said = mcp.call("hub__echo", &json!({"text": "x"}));
    assert_eq!(said["structuredContent"], json!({"text": "x"}), "the server's own result");

    // A gated tool runs once a person has approved exactly this call.
    assert_eq!(mcp.tool("hub__send")["inputSchema"]["properties"]["approvalId"]["type"], "string");
    let file = daemon.project.join("sent");
    let gated = mcp.call("hub__send", &json!({"file": file}));
    let answer: Value = serde_json::from_str(gated["content"][0]["text"].as_str().unwrap()).unwrap();
    let approval = answer["approvalId"].as_str().unwrap();
    let pending = daemon.get("/api/approvals")["pending"].clone();
    assert!(pending.to_string().contains("send") && !pending.to_string().contains("approvalId"), "{pending}");
    daemon.post(&format!("/api/approvals/{approval}/approve"), &json!({}));
    let other = mcp.call("hub__send", &json!({"file": "elsewhere", "approvalId": approval}));
    assert_eq!(other["isError"], true, "another call than the one a person saw: {other}");
    let sent = mcp.call("hub__send", &json!({"file": file, "approvalId": approval}));
    assert_eq!(sent["content"][0]["text"], "sent", "{sent}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "sent\n", "once");

    add(&daemon, "lab", &[]);
    assert_eq!(mcp.tool("lab__echo"), Value::Null);
    mcp.call("integration_tools", &json!({}));
    mcp.list_changed();
    assert_eq!(mcp.tool("lab__echo")["name"], "lab__echo");
    assert_eq!(daemon.send("DELETE", "/api/integrations/hub", &json!({})).0, 200);
    mcp.call("integration_tools", &json!({}));
    mcp.list_changed();
    assert_eq!(mcp.tool("hub__echo"), Value::Null);
    assert_eq!(mcp.call("hub__echo", &json!({}))["isError"], true);
    drop(mcp.input);
    assert_eq!(mcp.child.wait().unwrap().code(), Some(0), "it ends with its input");
}

#[test]
fn svc_mcp_lists_an_agents_own_integrations_alone() {
    let daemon = daemon_with_claude();
    add(&daemon, "hub", &[]);
    add(&daemon, "lab", &[]);
    let listing = CLAUDE
        .replace(
            "\"tools/call\", {\"name\": \"integration_exec\", \"arguments\": arguments}",
            "\"tools/list\", {}",
        )
        .replace("\"tool\": \"echo\"", "\"tool\": \"none\"");
    assert!(listing.contains("tools/list"), "the stand-in lists");
    fs::write(daemon.project.join("bin/claude"), listing).unwrap();
    let (_, agent) = spawn(&daemon, "claude-code", &["lab"]);
    daemon.wait_state(agent["id"].as_str().unwrap(), &["completed"]);
    let seen = fs::read_to_string(daemon.project.join("seen.json")).unwrap();
    assert!(seen.contains("\"lab__echo\"") && !seen.contains("hub__"), "{seen}");
}

#[test]
fn issue_4_svc_mcp_serves_the_daemons_own_bridge() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    // The daemon as a client of the daemon's server.
    let url = daemon.url.as_str();
    let body = json!({"id": "own", "command": env!("CARGO_BIN_EXE_svc"), "args": ["mcp", "--url", url]});
    assert_eq!(daemon.send("POST", "/api/integrations", &body).0, 201);
    let inner = json!({"integration": "hub", "tool": "echo", "params": {"text": "twice around"}});
    let said = crate::support::mcp::text(&daemon, "own", "integration_exec", &inner);
    // A server is nobody's agent: it calls no other integration, whose keys were not given to it.
    assert!(said.contains("may not call tools of integrations"), "{said}");
    assert!(fs::metadata(SERVER).is_ok());
}
