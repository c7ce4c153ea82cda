//! The built daemon, on a port of its own, with a project of its own.

use super::conformance::{hold_message, hold_reply};
use super::folder::Folder;
use super::wait::wait_for;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// The settings of a project whose agents see the whole machine.
pub const OPEN: &str = r#"{"isolation": {"cage": "off"}}"#;
/// A request gets this long.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A running daemon; killed on drop.
pub struct Daemon {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    /// The project's root.
    pub project: PathBuf,
    child: Child,
    agent: ureq::Agent,
    /// What proves that a person asks, where that cannot be seen.
    token: Option<String>,
    /// Kept so that the folder outlives the daemon; shared over restarts.
    folder: Arc<Folder>,
}

impl Daemon {
    /// Starts one in a new, empty project.
    pub fn start() -> Self {
        Self::start_in(Arc::new(Folder::new("project")), &[])
    }

    /// Starts one in a new project, whose agents have no room of their own: what they are held back by then.
    pub fn start_open() -> Self {
        let folder = Folder::new("project");
        folder.write(".svc/config.json", OPEN);
        Self::start_in(Arc::new(folder), &[])
    }

    /// Starts one in a project, with further variables.
    pub fn start_in(folder: Arc<Folder>, env: &[(&str, &str)]) -> Self {
        Self::start_with(folder, &["--port", "0"], env)
    }

    /// Starts one in a project, with these options and variables.
    pub fn start_with(folder: Arc<Folder>, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_svc")), folder, args, env)
    }

    /// Starts one as an ordinary user: `user` where root runs the tests, or else who runs them.
    pub fn start_as(user: u32, folder: Arc<Folder>, env: &[(&str, &str)]) -> Self {
        // Where the tests are built, that user may not be let in.
        let program = folder.path().join("bin/svc");
        std::fs::create_dir_all(folder.path().join("bin")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_svc"), &program).unwrap();
        let mut command = as_user(user, &program);
        if is_root() {
            folder.give_to(user);
        }
        command.env("HOME", folder.path());
        Self::start_by(command, folder, &["--port", "0"], env)
    }

    fn start_by(mut command: Command, folder: Arc<Folder>, args: &[&str], env: &[(&str, &str)]) -> Self {
        command.arg("start").args(args).arg("--project").arg(folder.path());
        command.env_remove("SVC_AGENT_ID").env("XDG_CONFIG_HOME", folder.path().join(".svc/user"));
        command.envs(env.iter().copied());
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| {
            let _ = child.kill();
            panic!("the daemon did not start: {line:?}\n{}", log_of(&folder))
        });
        let config = svc_sys::http::client::strict().timeout_global(Some(REQUEST_TIMEOUT)).build();
        let project = folder.path().to_path_buf();
        Self { url: url.to_owned(), project, child, agent: config.into(), token: None, folder }
    }

    /// Shows the operator's token with every request from now on.
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(format!("Bearer {token}"));
        self
    }

    /// Starts one in a folder with this program as Claude Code's, which it has found.
    pub fn with_claude(folder: Arc<Folder>, program: &str) -> Self {
        folder.write("bin/claude", program);
        let bin = folder.path().join("bin");
        std::fs::set_permissions(bin.join("claude"), Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let daemon = Self::start_in(folder, &[("PATH", &path)]);
        wait_for("the stand-in to be found", || {
            let providers = daemon.get("/api/providers");
            let found = |one: &Value| one["id"] == "claude-code" && one["installed"] == true;
            providers.as_array().unwrap().iter().any(found).then_some(())
        });
        daemon
    }

    /// The whole log of an agent.
    pub fn log_of(&self, id: &str) -> Vec<Value> {
        let mut entries: Vec<Value> = Vec::new();
        loop {
            let since = entries.last().map_or(0, |last| last["n"].as_u64().unwrap());
            let page = self.get(&format!("/api/agents/{id}/log?since={since}"));
            let more = page["entries"].as_array().unwrap();
            if more.is_empty() {
                return entries;
            }
            entries.extend(more.iter().cloned());
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The project's folder, to start another daemon in.
    pub fn folder(&self) -> Arc<Folder> {
        Arc::clone(&self.folder)
    }

    /// Sends a request; status and body.
    pub fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.try_send(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Sends a request that may fail because the daemon is gone.
    pub fn try_send(&self, method: &str, path: &str, body: &Value) -> Result<(u16, Value), ureq::Error> {
        let url = format!("{}{path}", self.url);
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", token);
        }
        let mut response = if matches!(method, "GET" | "DELETE") {
            self.agent.run(request.body(()).unwrap())?
        } else {
            let request = request.header("Content-Type", "application/json");
            self.agent.run(request.body(body.to_string()).unwrap())?
        };
        let mut text = String::new();
        response.body_mut().as_reader().read_to_string(&mut text).map_err(ureq::Error::Io)?;
        let media = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        let body = if text.is_empty() { Value::Null } else { body_of(&text) };
        hold_reply(method, path, response.status().as_u16(), media.unwrap_or_default(), &body);
        Ok((response.status().as_u16(), body_of(&text)))
    }

    /// GET that must answer 200.
    pub fn get(&self, path: &str) -> Value {
        let (status, body) = self.send("GET", path, &Value::Null);
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    /// POST that must succeed.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send("POST", path, body);
        assert!((200..300).contains(&status), "POST {path}: {status} {answer}");
        answer
    }

    /// Spawns a `script` agent with this scenario; its id.
    pub fn spawn(&self, scenario: &str) -> String {
        let body = serde_json::json!({
            "role": "tester", "provider": "script", "model": scenario, "prompt": "rehearse",
        });
        self.post("/api/agents", &body)["id"].as_str().unwrap().to_owned()
    }

    /// Waits until the agent's fine status is one of `words`; its record.
    pub fn wait_state(&self, id: &str, words: &[&str]) -> Value {
        wait_for(&format!("{id} to be one of {words:?}"), || {
            let record = self.get(&format!("/api/agents/{id}"));
            words.contains(&record["state"].as_str().unwrap_or_default()).then_some(record)
        })
    }

    /// A WebSocket client; `query` such as `?types=state`.
    pub fn connect(&self, query: &str) -> WebSocket<MaybeTlsStream<TcpStream>> {
        self.try_connect(query).unwrap()
    }

    /// As [`Daemon::connect`]; `None` when it listens no more.
    pub fn try_connect(&self, query: &str) -> Option<WebSocket<MaybeTlsStream<TcpStream>>> {
        let url = format!("{}/ws{query}", self.url.replacen("http", "ws", 1));
        let socket = tungstenite::connect(url).ok()?.0;
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(REQUEST_TIMEOUT)).unwrap();
        }
        Some(socket)
    }

    /// From now on agents that are started end with the daemon, however that ends.
    pub fn tie_agents(&self) {
        let patch = serde_json::json!({"keeper": {"orphanMinutes": 0}});
        assert_eq!(self.send("PATCH", "/api/config", &patch).0, 200);
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end and waits; its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.post("/api/shutdown", &serde_json::json!({}));
        self.exit_code()
    }

    /// Waits for its end; its exit code.
    pub fn exit_code(&mut self) -> Option<i32> {
        wait_for("the daemon to end", || self.child.try_wait().unwrap()).code()
    }

    /// Its own log, for messages of failed tests.
    pub fn log(&self) -> String {
        log_of(&self.folder)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // What it leaves is the next one's; where there is none, its folder ends it.
        self.kill();
    }
}

/// Whether root runs the tests.
pub fn is_root() -> bool {
    let own = std::fs::metadata("/proc/self").unwrap();
    own.uid() == 0
}

/// A program that runs as this user where root runs the tests, or else as who runs them.
pub fn as_user(user: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(user).gid(user);
    }
    command
}

/// An ordinary user whom no other test has: agents that hide have an effect on all daemons of their user, and
/// a limit of threads counts all of its programs.
pub fn new_user() -> u32 {
    static USERS: AtomicU32 = AtomicU32::new(0);
    let n = USERS.fetch_add(1, Ordering::Relaxed);
    30_000 + (std::process::id() * 8 + n) % 20_000
}

fn log_of(folder: &Folder) -> String {
    std::fs::read_to_string(folder.path().join(".svc/daemon.log")).unwrap_or_default()
}

fn body_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The next text message as JSON; panics when the connection ends.
pub fn next_message(socket: &mut WebSocket<MaybeTlsStream<TcpStream>>) -> Value {
    loop {
        match socket.read().unwrap() {
            Message::Text(text) => {
                let message = serde_json::from_str(&text).unwrap();
                hold_message(&message);
                return message;
            }
            Message::Close(frame) => panic!("closed: {frame:?}"),
            _ => {}
        }
    }
}
