//! The built marketplace service, on a port and a database of its own, and raw requests to it.

use super::folder::Folder;
use super::wait::wait_for;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The shared key of every market here, unless a test says otherwise.
pub const KEY: &str = "shared-key";
/// The operator's key.
pub const ADMIN: &str = "admin-key";
const LIMIT: Duration = Duration::from_secs(30);

/// A running service; killed on drop.
pub struct Market {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    folder: Arc<Folder>,
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The head, as it came.
    pub head: String,
    /// The body as text.
    pub text: String,
}

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (given, value) = line.split_once(':')?;
            given.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    /// The body as JSON; null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

/// The built program. To its own tests Cargo names it; for those of the daemon it lies beside `svc`.
pub fn program() -> PathBuf {
    let named = option_env!("CARGO_BIN_EXE_svc-skills").map(PathBuf::from);
    let beside = || Some(PathBuf::from(option_env!("CARGO_BIN_EXE_svc")?).with_file_name("svc-skills"));
    let path = named.or_else(beside).expect("Cargo names one of the programs");
    assert!(path.exists(), "{} is not built: cargo build -p svc-skills", path.display());
    path
}

/// What a service is started with.
pub fn command(folder: &Folder, env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program());
    for name in ["SKILLS_BASE_URL", "SKILLS_SITE_ORIGINS", "SKILLS_TRUSTED_PROXIES", "DATABASE_URL"] {
        command.env_remove(name);
    }
    command.env("SKILLS_API_KEY", KEY).env("SKILLS_ADMIN_KEY", ADMIN).env("SKILLS_PUBLIC_RPM", "0");
    command.envs(env.iter().copied()).arg("--db").arg(folder.path().join("skills.db"));
    command
}

impl Market {
    /// Starts one without a public limit.
    pub fn start(env: &[(&str, &str)]) -> Self {
        Self::start_in(Arc::new(Folder::new("market")), env)
    }

    /// Starts one on a folder that may hold a database already.
    pub fn start_in(folder: Arc<Folder>, env: &[(&str, &str)]) -> Self {
        let mut command = command(&folder, env);
        command.args(["serve", "--addr", "127.0.0.1:0"]);
        Self::from_command(command, folder)
    }

    /// Starts one by a command of the test's own.
    pub fn from_command(mut command: Command, folder: Arc<Folder>) -> Self {
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").and_then(|rest| rest.parse().ok());
        let address = address.unwrap_or_else(|| {
            let _ = child.kill();
            let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            panic!("the service did not start: {line:?}\n{log}")
        });
        Self { address, child, folder }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its folder, to start another one in.
    pub fn folder(&self) -> Arc<Folder> {
        Arc::clone(&self.folder)
    }

    /// Its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// A sub-command on the same database, while it is served.
    pub fn run(&self, words: &[&str]) -> Output {
        command(&self.folder, &[]).args(words).output().unwrap()
    }

    /// A sub-command that must succeed; what it said.
    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sends bytes and reads the whole answer; `None` when the connection broke.
    pub fn raw(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        // A refusal may come while the rest is still being sent.
        let _ = stream.write_all(bytes);
        let mut all = Vec::new();
        // What came before a break still counts.
        let _ = stream.read_to_end(&mut all);
        let end = all.windows(4).position(|part| part == b"\r\n\r\n")?;
        let head = String::from_utf8(all[..end].to_vec()).ok()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head, text: String::from_utf8_lossy(&all[end + 4..]).into_owned() })
    }

    /// Sends a request that may go unanswered.
    pub fn try_send(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Option<Answer> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: market\r\nConnection: close\r\n");
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        if !body.is_empty() {
            if !headers.iter().any(|header| header.to_ascii_lowercase().starts_with("content-type")) {
                head.push_str("Content-Type: application/json\r\n");
            }
            let _ = write!(head, "Content-Length: {}\r\n", body.len());
        }
        head.push_str("\r\n");
        head.push_str(body);
        self.raw(head.as_bytes())
    }

    /// Sends a request.
    pub fn send(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
        self.try_send(method, path, headers, body).unwrap_or_else(|| panic!("{method} {path}: no answer"))
    }

    /// A public GET.
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "")
    }

    /// A public GET as another client's, which leaves the limit of this one alone.
    pub fn get_elsewhere(&self, path: &str) -> Value {
        self.send("GET", path, &["X-Forwarded-For: 192.0.2.200"], "").json()
    }

    /// A write with the shared key.
    pub fn write(&self, method: &str, path: &str, body: &Value) -> Answer {
        let header = format!("Authorization: Bearer {KEY}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, &[&header], &body)
    }

    /// Creates and publishes a free skill; its id.
    pub fn publish(&self, name: &str) -> String {
        let body = serde_json::json!({
            "name": name, "description": "Made for a test.", "category": "quality", "content": "# Text\n",
        });
        let made = self.write("POST", "/api/v1/skills", &body);
        assert_eq!(made.status, 201, "{}", made.text);
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let done = self.write("POST", &format!("/api/v1/skills/{id}/publish"), &Value::Null);
        assert_eq!(done.status, 200, "{}", done.text);
        id
    }

    /// Writes a mirror of so many published skills, `skill-0` and so on, with contents of so many bytes; its
    /// folder.
    pub fn mirror(&self, count: usize, bytes: usize) -> PathBuf {
        let folder = self.path("mirror");
        std::fs::create_dir_all(folder.join("skills/content")).unwrap();
        let records: Vec<Value> = (0..count)
            .map(|n| {
                let text = format!("# Skill {n}\n\n{}\n", "x".repeat(bytes));
                std::fs::write(folder.join(format!("skills/content/skill-{n}.md")), text).unwrap();
                serde_json::json!({
                    "id": format!("skill-{n}"), "name": format!("Skill {n}"), "category": "quality",
                    "description": format!("Made for a test, number {n}."), "downloads": count - n,
                })
            })
            .collect();
        std::fs::write(folder.join("skills/registry.json"), Value::from(records).to_string()).unwrap();
        folder
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM; its exit code.
    pub fn terminate(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        wait_for("the service to end", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Market {
    fn drop(&mut self) {
        self.kill();
    }
}
