//! `svc acp` on the wire: what an editor says and hears, line by line, with rehearsals behind the door.

use crate::support::daemon::{Daemon, OPEN};
use crate::support::folder::Folder;
use crate::support::mcp::add;
use crate::support::wait::{SOON, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// A project with the rehearsals of these tests.
pub fn project(name: &str) -> Arc<Folder> {
    let folder = Folder::new(name);
    let gate = json!({"waitForFile": {"path": "go", "timeoutMs": 60_000}});
    let on_say = json!([{"say": "at it"}, {"answer": "heard {{message}}"}]);
    let scenarios = [
        (
            "works",
            json!({"steps": [
                {"think": "what is it?"},
                {"say": "begun: {{prompt}}"},
                {"write": {"path": "out/a.txt", "text": "x"}},
                {"read": "missing.txt"},
                {"answer": "done"},
            ], "onSay": on_say}),
        ),
        ("waits", json!({"steps": [{"say": "waiting"}, gate, {"answer": "done"}], "onSay": on_say})),
        ("fails", json!({"steps": [{"fail": "out of credit"}]})),
    ];
    for (name, scenario) in scenarios {
        folder.write(&format!(".svc/rehearsals/{name}.json"), &scenario.to_string());
    }
    Arc::new(folder)
}

/// An editor with `svc acp` behind it.
struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    last_id: u64,
    /// What came beside the answers.
    updates: Vec<Value>,
    asked: Vec<Value>,
    project: String,
}

impl Editor {
    fn start(folder: &Folder, words: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
            .arg("acp")
            .args(words)
            .current_dir(folder.path())
            .env_remove("SVC_AGENT_ID")
            .env_remove("SVC_DAEMON_URL")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap_or(Value::String(line)));
            }
        });
        let input = child.stdin.take();
        let project = folder.path().to_str().unwrap().to_owned();
        Self { child, input, lines, last_id: 0, updates: Vec::new(), asked: Vec::new(), project }
    }

    fn writes(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn sends(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.writes(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    fn next(&mut self) -> Value {
        let message = self.lines.recv_timeout(SOON).expect("another message");
        assert_eq!(message["jsonrpc"], "2.0", "standard output carries messages only: {message}");
        match message["method"].as_str() {
            Some("session/update") => self.updates.push(message["params"]["update"].clone()),
            Some("session/request_permission") => self.asked.push(message.clone()),
            _ => {}
        }
        message
    }

    /// The answer to a request, with all that comes before it noted.
    fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next();
            if message["method"].is_null() {
                assert_eq!(message["id"], id, "{message}");
                return message;
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.sends(method, params);
        self.answer(id)
    }

    fn cwd(&self) -> Value {
        json!({"cwd": self.project, "mcpServers": []})
    }

    /// A new session.
    fn opens(&mut self) -> String {
        let cwd = self.cwd();
        let answer = self.ask("session/new", &cwd);
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    fn prompts(&mut self, session: &str, words: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": words}]);
        self.sends("session/prompt", &json!({"sessionId": session, "prompt": prompt}))
    }

    /// A whole turn: why it ended.
    fn says(&mut self, session: &str, words: &str) -> Value {
        self.updates.clear();
        let id = self.prompts(session, words);
        self.answer(id)["result"]["stopReason"].take()
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            let last = self.next();
            assert!(last["method"].is_string(), "{what}: {last}");
        }
    }

    /// The words of one kind of update, joined as an editor joins them.
    fn words(&self, kind: &str) -> String {
        let of_kind = self.updates.iter().filter(|one| one["sessionUpdate"] == kind);
        of_kind.map(|one| one["content"]["text"].as_str().unwrap()).collect()
    }

    fn of_kind(&self, kind: &str) -> Vec<&Value> {
        self.updates.iter().filter(|one| one["sessionUpdate"] == kind).collect()
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_session_is_an_agent_that_is_started_by_its_first_prompt() {
    let folder = project("acp-turn");
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let mut editor = Editor::start(&folder, &["--provider", "script", "--model", "works", "--role", "pair"]);
    let hello = editor.ask("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
    let hello = &hello["result"];
    assert_eq!((&hello["protocolVersion"], &hello["agentInfo"]["name"]), (&json!(1), &json!("svc")));
    assert_eq!(
        (&hello["authMethods"], &hello["agentCapabilities"]["loadSession"]),
        (&json!([]), &json!(true))
    );
    let session = editor.opens();
    assert_eq!(daemon.get("/api/agents"), json!([]), "a panel that was only opened costs nothing");
    assert_eq!(editor.says(&session, "paint"), "end_turn");
    assert_eq!(editor.words("agent_thought_chunk"), "what is it?");
    assert_eq!(editor.words("agent_message_chunk"), "begun: paintdone");
    assert_eq!(editor.words("user_message_chunk"), "", "the editor knows what it has sent");
    let calls = editor.of_kind("tool_call");
    assert_eq!((calls.len(), &calls[0]["kind"], &calls[1]["kind"]), (2, &json!("edit"), &json!("read")));
    let path = folder.path().join("out/a.txt");
    assert_eq!(calls[0]["locations"][0]["path"], path.to_str().unwrap());
    let ends = editor.of_kind("tool_call_update");
    let ends: Vec<_> = ends.iter().map(|one| (&one["toolCallId"], one["status"].as_str().unwrap())).collect();
    assert_eq!(ends, [(&calls[0]["toolCallId"], "completed"), (&calls[1]["toolCallId"], "failed")]);
    let agent = daemon.get(&format!("/api/agents/{session}"));
    assert_eq!((&agent["name"], &agent["role"]), (&json!(session), &json!("pair")));
    assert_eq!(editor.says(&session, "and now?"), "end_turn");
    assert_eq!(editor.words("agent_message_chunk"), "begun: and now?done", "a rehearsal begins anew");
    // Another door, as after a restart of the editor.
    editor.input = None;
    wait_for("the door to close", || editor.child.try_wait().unwrap());
    let mut editor = Editor::start(&folder, &[]);
    let mut params = editor.cwd();
    params["sessionId"] = json!(session);
    assert_eq!(editor.ask("session/load", &params)["result"], json!({}));
    assert_eq!(editor.words("user_message_chunk"), "paintand now?");
    assert_eq!(editor.words("agent_message_chunk"), "begun: paintdonebegun: and now?done");
    assert_eq!(editor.says(&session, "once more"), "end_turn");
    assert_eq!(editor.words("agent_message_chunk"), "begun: once moredone");
    assert_eq!(daemon.get("/api/agents").as_array().unwrap().len(), 1);
}

#[test]
fn what_waits_for_a_person_is_asked_in_the_editor() {
    let folder = project("acp-asks");
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    add(&daemon, "hub", &[]);
    let body = json!({"role": "dev", "name": "worker", "provider": "script", "model": "quick",
        "integrations": ["hub"]});
    daemon.post("/api/agents", &body);
    daemon.wait_state("worker", &["completed"]);
    let mut editor = Editor::start(&folder, &["--agent", "worker"]);
    let session = editor.opens();
    let other = daemon.spawn("quick");
    let mut params = editor.cwd();
    params["sessionId"] = json!(other);
    let refused = editor.ask("session/load", &params);
    assert!(refused["error"]["message"].as_str().unwrap().contains("--agent"), "{refused}");
    for (option, status, end) in [("allow", "approved", "completed"), ("reject", "rejected", "failed")] {
        editor.updates.clear();
        editor.asked.clear();
        let params = json!({"file": folder.path().join(option).to_str().unwrap()});
        let body = json!({"tool": "send", "params": params, "agent": "worker"});
        let (code, gated) = daemon.send("POST", "/api/integrations/hub/exec", &body);
        assert_eq!(code, 202, "{gated}");
        let approval = gated["approvalId"].as_str().unwrap().to_owned();
        let id = editor.prompts(&session, "go on");
        editor.until("the request", |editor| !editor.asked.is_empty());
        let request = editor.asked[0].clone();
        let kinds: Vec<&str> = request["params"]["options"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["allow_once", "reject_once"]);
        assert_eq!(request["params"]["toolCall"]["toolCallId"], approval);
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
        editor.writes(&json!({"jsonrpc": "2.0", "id": request["id"], "result": outcome}).to_string());
        assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
        let record = daemon.get(&format!("/api/approvals/{approval}"));
        assert_eq!(record["status"], status, "{record}");
        let told = editor.of_kind("tool_call_update");
        assert_eq!((&told[0]["toolCallId"], &told[0]["status"]), (&json!(approval), &json!(end)));
    }
}

#[test]
fn a_question_is_answered_by_the_next_prompt_and_what_is_decided_elsewhere_is_withdrawn() {
    let folder = project("acp-question");
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    add(&daemon, "hub", &[]);
    let mut editor = Editor::start(&folder, &["--provider", "script", "--model", "waits"]);
    let session = editor.opens();
    let id = editor.prompts(&session, "begin");
    editor.until("its first words", |editor| !editor.words("agent_message_chunk").is_empty());
    let agent = daemon.get(&format!("/api/agents/{session}"))["id"].clone();
    let body = json!({"tool": "send", "params": {"file": "x"}, "agent": session});
    let (code, gated) = daemon.send("POST", "/api/integrations/hub/exec", &body);
    assert_eq!(code, 202, "{gated}");
    editor.until("the request", |editor| !editor.asked.is_empty());
    let approval = gated["approvalId"].as_str().unwrap();
    daemon.post(&format!("/api/approvals/{approval}/reject"), &json!({}));
    let request = editor.asked[0]["id"].clone();
    loop {
        let message = editor.next();
        if message["method"] == "$/cancel_request" {
            assert_eq!(message["params"]["requestId"], request);
            break;
        }
    }
    let question = daemon.post("/api/questions", &json!({"agentId": agent, "question": "Which colour?"}));
    editor.until("the question", |editor| editor.words("agent_message_chunk").contains("Which colour?"));
    folder.write("go", "");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn", "{:?}", editor.updates);
    assert_eq!(editor.says(&session, "blue"), "end_turn");
    let words = editor.words("agent_message_chunk");
    assert!(words.contains("heard") && words.contains("blue"), "{words}");
    let record = daemon.get(&format!("/api/approvals/{}", question["questionId"].as_str().unwrap()));
    assert_eq!((&record["status"], &record["reason"]), (&json!("approved"), &json!("blue")));
}

#[test]
fn a_turn_that_is_cancelled_ends_and_the_next_prompt_goes_on() {
    let folder = project("acp-cancel");
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let mut editor = Editor::start(&folder, &["--provider", "script", "--model", "waits"]);
    let session = editor.opens();
    let id = editor.prompts(&session, "begin");
    editor.until("its first words", |editor| !editor.words("agent_message_chunk").is_empty());
    let second = editor.prompts(&session, "too early");
    let refused = editor.answer(second);
    assert!(refused["error"]["message"].as_str().unwrap().contains("under way"), "{refused}");
    editor.writes(
        &json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}).to_string(),
    );
    assert_eq!(editor.answer(id)["result"]["stopReason"], "cancelled");
    let record = daemon.get(&format!("/api/agents/{session}"));
    assert_eq!(record["state"], "killed", "the run is over, and the record is there");
    folder.write("go", "");
    assert_eq!(editor.says(&session, "go on"), "end_turn");
    assert_eq!(editor.words("agent_message_chunk"), "waiting\n\ndone");
    let agents = daemon.get("/api/agents");
    assert_eq!(agents.as_array().unwrap().len(), 1, "the same agent: {agents}");
}

#[test]
fn a_daemon_that_is_killed_within_a_turn_and_started_again_costs_no_word() {
    let folder = project("acp-killed");
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let mut editor = Editor::start(&folder, &["--provider", "script", "--model", "waits"]);
    let session = editor.opens();
    let id = editor.prompts(&session, "begin");
    editor.until("its first words", |editor| !editor.words("agent_message_chunk").is_empty());
    daemon.kill();
    folder.write("go", "");
    let cwd = editor.cwd();
    let refused = editor.ask("session/new", &cwd);
    let words = refused["error"]["message"].as_str().unwrap();
    assert!(words.contains("svc start"), "what is asked meanwhile is refused with a remedy: {words}");
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.words("agent_message_chunk"), "waiting\n\ndone");
    assert_eq!(editor.says(&session, "more"), "end_turn");
    drop(daemon);
}

#[test]
fn what_is_wrong_is_refused_and_the_next_line_is_read() {
    let folder = project("acp-wrong");
    std::fs::create_dir_all(folder.path().join("sub")).unwrap();
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let mut editor = Editor::start(&folder, &["--provider", "script", "--model", "fails"]);
    for (line, code) in [
        ("{\"jsonrpc\"", -32_700),
        ("[]", -32_600),
        ("17", -32_600),
        ("{\"jsonrpc\": \"2.0\"}", -32_600),
        (&"x".repeat(9 << 20), -32_700),
    ] {
        editor.writes(line);
        let refused = editor.next();
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(code)), "{refused}");
    }
    let mut refused = |method: &str, params: Value, code: i64, word: &str| {
        let answer = editor.ask(method, &params);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(answer["error"]["code"] == code && message.contains(word), "{method} {params}: {answer}");
    };
    refused("session/set_mode", json!({}), -32_601, "session/set_mode");
    refused("initialize", json!({}), -32_602, "protocolVersion");
    refused("session/new", json!({"cwd": "sub"}), -32_602, "cwd: must be an absolute path");
    refused("session/new", json!({"cwd": "/"}), -32_602, "svc start");
    let sub = folder.path().join("sub");
    refused("session/load", json!({"cwd": sub, "sessionId": "nobody"}), -32_002, "sessionId");
    refused("session/prompt", json!({"sessionId": "nobody", "prompt": []}), -32_002, "session/new");
    let servers = json!([{"name": "files", "command": "x", "args": [], "env": []}]);
    let answer = editor.ask("session/new", &json!({"cwd": sub, "mcpServers": servers}));
    assert_eq!(answer["result"]["_meta"]["svc"]["mcpServersNotTaken"], json!(["files"]));
    let session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    let params = json!({"sessionId": session, "prompt": [{"type": "image", "data": ""}]});
    let image = editor.ask("session/prompt", &params);
    assert!(image["error"]["message"].as_str().unwrap().starts_with("prompt[0].type"), "{image}");
    let id = editor.prompts(&session, "fail");
    let failed = editor.answer(id);
    assert_eq!(failed["error"]["message"], "out of credit");
    let record = daemon.get(&format!("/api/agents/{session}"));
    assert!(record["workingDir"].as_str().unwrap().ends_with("sub"), "{record}");
    editor.writes(&json!({"jsonrpc": "2.0", "method": "$/unknown"}).to_string());
    for n in 1..256 {
        assert!(editor.opens() != session, "{n}");
    }
    let cwd = editor.cwd();
    let full = editor.ask("session/new", &cwd);
    assert!(full["error"]["message"].as_str().unwrap().contains("256 sessions"), "{full}");
}

#[test]
fn the_daemons_own_client_of_the_protocol_takes_the_door_for_an_agent() {
    let folder = project("acp-own");
    folder.write(".svc/config.json", OPEN);
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let command = [env!("CARGO_BIN_EXE_svc"), "acp", "--provider", "script", "--model", "works"];
    let body = json!({"role": "outer", "provider": "acp", "command": command, "prompt": "paint"});
    let outer = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    daemon.wait_state(&outer, &["completed"]);
    let log = daemon.log_of(&outer);
    let of_kind = |kind: &str| log.iter().filter(|one| one["type"] == kind).collect::<Vec<_>>();
    let said = of_kind("text");
    assert!(said.iter().any(|one| one["text"].as_str().unwrap().starts_with("begun: ")), "{log:?}");
    assert_eq!((of_kind("tool-started").len(), of_kind("tool-ended").len()), (2, 2), "{log:?}");
    assert!(folder.path().join("out/a.txt").is_file());
    let agents = daemon.get("/api/agents");
    let inner = agents.as_array().unwrap().iter().find(|one| one["role"] == "editor").unwrap();
    assert_eq!(inner["state"], "completed");
}
