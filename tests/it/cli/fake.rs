//! A daemon that is none: the documented shapes over a real socket, with a registry in memory.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// No call of the command line in these tests takes longer, unless it hangs.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// A folder that goes with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("svc-cli-test-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(std::fs::canonicalize(dir).unwrap())
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One call of the built program, without what this environment would tell it.
pub fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).current_dir(dir).stdin(Stdio::null());
    for name in ["SVC_DAEMON_URL", "SVC_AGENT_ID", "COLUMNS", "NO_COLOR"] {
        command.env_remove(name);
    }
    command
}

/// How a call ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().expect("svc exits by itself");
        Self { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Runs to the end; one that hangs is ended and fails the test.
pub fn finish(child: Child) -> Ended {
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(CALL_LIMIT) else {
        let _ = Command::new("kill").arg("-9").arg(pid.to_string()).status();
        panic!("svc (pid {pid}) hangs");
    };
    output.unwrap().into()
}

pub fn svc(dir: &Path, args: &[&str]) -> Ended {
    let mut command = command(dir, args);
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// What the fake knows.
#[derive(Default)]
pub struct State {
    pub agents: Vec<Value>,
    pub log: Vec<Value>,
    pub config: Value,
    pub approvals: Vec<Value>,
    pub requests: Vec<(String, String, Value)>,
    pub headers: Vec<String>,
    /// After so many looks at the registry, every live agent ends with this status.
    pub end_after: Option<(usize, &'static str)>,
    /// What stands for the daemon's process and its lock.
    pub process: Option<(Child, std::fs::File)>,
}

/// A project with a daemon that answers.
pub struct Fake {
    pub folder: Folder,
    pub url: String,
    pub state: Arc<Mutex<State>>,
}

pub fn agent(id: &str, name: &str, state: &str) -> Value {
    let live = matches!(state, "starting" | "running" | "waiting" | "rotating");
    json!({
        "id": id, "name": name, "role": name.split('-').next(), "status": if live { "active" } else { state },
        "state": state, "statusReason": if state == "crashed" { "exit code 3" } else { "" },
        "statusSince": "2026-01-01T00:01:00.000Z", "provider": "script", "model": "builder", "scope": [],
        "tokensUsed": 12_400, "contextUsage": 0.42, "spawnedAt": "2026-01-01T00:00:00.000Z",
        "workingDir": "", "integrations": [], "teamId": "__unassigned__", "lineageId": format!("f{}", &id[1..]),
        "currentActivity": "Write src/a.rs", "turns": 2,
    })
}

impl Fake {
    pub fn new(agents: Vec<Value>) -> Self {
        let folder = Folder::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        folder.write(".svc/daemon.port", &format!("{port}\n"));
        let config = json!({"port": 31415, "defaultModel": "auto", "safety": {"dailyBudgetUsd": null}});
        let state = Arc::new(Mutex::new(State { agents, config, ..State::default() }));
        let (shared, dir) = (Arc::clone(&state), folder.0.clone());
        // The thread lives until the test process ends: nextest runs each test in one of its own.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, dir) = (Arc::clone(&shared), dir.clone());
                std::thread::spawn(move || serve(&stream.unwrap(), &shared, &dir, port));
            }
        });
        Self { folder, url: format!("http://127.0.0.1:{port}"), state }
    }

    pub fn svc(&self, args: &[&str]) -> Ended {
        svc(&self.folder.0, args)
    }

    /// Runs a call that must succeed and print nothing on standard error.
    pub fn ok(&self, args: &[&str]) -> Ended {
        let ended = self.svc(args);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{args:?}: {ended:?}");
        ended
    }

    /// The body of the last request of this method and path.
    pub fn sent(&self, method: &str, path: &str) -> Value {
        let state = self.state.lock().unwrap();
        let found = state.requests.iter().rev().find(|(m, p, _)| m == method && p == path);
        found.unwrap_or_else(|| panic!("no {method} {path} among {:?}", state.requests)).2.clone()
    }
}

fn serve(stream: &TcpStream, state: &Mutex<State>, dir: &Path, port: u16) {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        lines.iter().skip(1).find_map(|line| line.to_lowercase().strip_prefix(name).map(ToOwned::to_owned))
    };
    let length = header("content-length: ").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    let mut words = lines[0].split(' ');
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let mut state = state.lock().unwrap();
    state.headers.extend(lines.iter().skip(1).cloned());
    state.requests.push((method.clone(), target.clone(), body.clone()));
    let (status, answer) = state.answer(&method, &target, &body, dir, port);
    let text = answer.to_string();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    let mut stream = stream;
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes()));
    if target == "/api/shutdown"
        && let Some((mut child, lock)) = state.process.take()
    {
        // Closes its standard input, which is its sign to end.
        child.wait().unwrap();
        drop(lock);
    }
}

fn not_found(what: &str) -> (u16, Value) {
    (404, json!({"error": format!("no agent {what}"), "code": "not_found", "status": 404}))
}

impl State {
    fn answer(&mut self, method: &str, target: &str, body: &Value, dir: &Path, port: u16) -> (u16, Value) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let parts: Vec<&str> = path.trim_start_matches("/api/").split('/').collect();
        match (method, parts.as_slice()) {
            ("GET", ["health"]) => {
                (200, json!({"status": "ok", "uptime": 5, "agents": 1, "version": VERSION}))
            }
            ("GET", ["status"]) => {
                let pid = self.process.as_ref().map_or(1, |(child, _)| child.id());
                let status = json!({"pid": pid, "host": "127.0.0.1", "port": port, "version": VERSION,
                    "projectDir": dir, "uptime": 185.5, "agents": 1, "running": 1});
                (200, status)
            }
            ("POST", ["shutdown"]) => {
                let pid = self.process.as_ref().map_or(0, |(child, _)| child.id());
                (202, json!({"ok": true, "pid": pid}))
            }
            ("GET", ["config"]) => (200, self.config.clone()),
            ("PATCH", ["config"]) if body.get("nonsense").is_some() => {
                (400, json!({"error": "there is no setting nonsense", "code": "validation_failed"}))
            }
            ("PATCH", ["config"]) => (200, json!({"port": 1, "safety": body["safety"]})),
            ("GET", ["providers"]) => (
                200,
                json!([
                    {"id": "script", "name": "Script", "installed": true, "version": VERSION, "envKey": "",
                     "hasKey": false, "models": [{"id": "planner"}, {"id": "builder"}], "installCommand": ""},
                    {"id": "codex", "name": "Codex", "installed": false, "version": null, "envKey": "X_KEY",
                     "hasKey": false, "models": [], "installCommand": "get codex"},
                ]),
            ),
            ("GET", ["tokens" | "dashboard" | "rotation", ..]) => usage_reports(path),
            ("GET", ["approvals"]) => (200, json!({"pending": self.approvals, "resolved": []})),
            ("POST", ["approvals", id, decision]) => match self.approvals.iter().find(|one| one["id"] == *id)
            {
                Some(one) => {
                    let mut one = one.clone();
                    one["status"] = json!(format!("{decision}ed").replace("ee", "e"));
                    (200, one)
                }
                None => {
                    (404, json!({"error": format!("no approval has the id \"{id}\""), "code": "not_found"}))
                }
            },
            ("GET", ["teams"]) => (200, json!({"teams": [{"id": "0000beef", "name": "web"}]})),
            ("GET", ["agents"]) => {
                self.look();
                (200, Value::Array(self.agents.clone()))
            }
            ("POST", ["agents"]) => self.spawn(body),
            (method, ["agents", id, rest @ ..]) => self.agent(method, id, rest, body, query),
            _ => (404, json!({"error": format!("no route {method} {path}"), "code": "not_found"})),
        }
    }

    fn spawn(&mut self, body: &Value) -> (u16, Value) {
        let role = body["role"].as_str().unwrap();
        if role == "full" {
            return (409, json!({"error": "10 agents live already", "code": "capacity", "status": 409}));
        }
        let id = format!("{:08x}", 0xa0_0000 + self.agents.len());
        let mut agent = agent(&id, &format!("{role}-1"), "running");
        agent["model"] = body["model"].clone();
        self.agents.push(agent.clone());
        (201, agent)
    }

    fn agent(&mut self, method: &str, id: &str, rest: &[&str], body: &Value, query: &str) -> (u16, Value) {
        let Some(at) = self.agents.iter().position(|agent| agent["id"] == id) else { return not_found(id) };
        let agent = self.agents[at].clone();
        match (method, rest) {
            ("GET", []) => {
                self.look();
                (200, self.agents[at].clone())
            }
            ("DELETE", []) => (200, json!({"ok": true, "id": id, "status": "killed"})),
            ("POST", ["instruct"]) => {
                (200, json!({"id": id, "status": "queued", "deliverOn": body["deliver"], "queued": 2}))
            }
            ("POST", ["query"]) => (200, json!({"answer": "All \u{1b}[31mgood", "agentId": id, "tokens": 5})),
            ("POST", ["rotate"]) if agent["status"] != "active" => {
                (409, json!({"error": "it has ended; resume it", "code": "conflict", "status": 409}))
            }
            ("POST", ["rotate"]) => {
                (200, json!({"old": id, "new": "0000abcd", "handoffBrief": true, "reason": "manual"}))
            }
            ("POST", ["resume"]) => (200, agent),
            ("GET", ["log"]) => {
                let number = |name: &str| query.strip_prefix(name).and_then(|n| n.parse::<u64>().ok());
                let after = number("since=").unwrap_or(0);
                let mut entries: Vec<Value> =
                    self.log.iter().filter(|entry| entry["n"].as_u64().unwrap() > after).cloned().collect();
                if let Some(tail) = number("tail=") {
                    let cut = entries.len().saturating_sub(usize::try_from(tail).unwrap());
                    entries.drain(..cut);
                }
                // Two at a time, so that a reader has to page.
                entries.truncate(2);
                (200, json!({"entries": entries, "next": 0}))
            }
            _ => not_found(id),
        }
    }

    /// Lets time pass: one look at the registry.
    fn look(&mut self) {
        let Some((left, status)) = self.end_after else { return };
        if left > 0 {
            self.end_after = Some((left - 1, status));
            return;
        }
        for agent in self.agents.iter_mut().filter(|agent| agent["status"] == "active") {
            agent["status"] = json!(status);
            agent["state"] = json!(status);
            agent["statusReason"] = json!(if status == "crashed" { "exit code 3" } else { "" });
        }
    }
}

/// What the ledger and the history of rotations tell.
fn usage_reports(path: &str) -> (u16, Value) {
    let body = match path {
        "/api/tokens/summary" => json!({
            "totalUsed": 12_400, "totalSaved": 900, "totalCostUsd": 1.25, "cacheHitRate": 0.75,
            "breakdown": {"rotation": 700, "coldStart": 200, "conflict": 0},
            "savings": {"rotationRange": {"low": -300, "high": 1_700, "checked": 2, "open": 1}},
            "interrupted": {"outputTokens": 500, "costUsd": null, "unpricedTokens": 500},
            "byModel": [{"model": "m-1", "used": 12_000, "costUsd": 1.25, "unpricedTokens": 0},
                {"model": "m-2", "used": 400, "costUsd": null, "unpricedTokens": 400}],
            "internalOverhead": {"tokens": 84, "costUsd": 0.001},
            "perAgent": [{"id": "3fa90001", "used": 12_400, "model": "m-1", "name": "backend-1",
                "costUsd": 1.25}],
        }),
        "/api/tokens/by-team" => json!({
            "teams": [{"teamId": "0000beef", "teamName": "web", "isDefault": false, "agentCount": 2,
                "totalTokens": 12_400, "totalCostUsd": 1.25, "avgTokensPerAgent": 6200}],
        }),
        "/api/dashboard" => json!({
            "cost": {"todayUsd": 1.25, "dailyBudgetUsd": 1.0, "todayEstimatedUsd": 0.25, "message": "nothing new starts"},
        }),
        _ => json!({
            "totalRotations": 1,
            "history": [{"old": "3fa90001", "new": "3fa90009", "agentName": "backend-1",
                "reason": "context_threshold", "tokensSaved": 150_000,
                "timestamp": "2026-01-01T00:00:00.000Z", "preRotationVelocity": 9000,
                "postRotationVelocity": null, "velocityDelta": null}],
        }),
    };
    (200, body)
}
