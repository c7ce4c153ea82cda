//! A built-in agent with pipes, in a project folder of its own.

use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(30);

/// A project folder of one test, removed at its end.
pub struct Project(pub PathBuf);

impl Project {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("script-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(root.join(".svc/rehearsals")).unwrap();
        fs::create_dir(root.join("work")).unwrap();
        Self(root)
    }

    pub fn with(scenario: &Value) -> Self {
        let project = Self::new();
        project.save("test", &scenario.to_string());
        project
    }

    pub fn steps(steps: &Value) -> Self {
        Self::with(&json!({"steps": steps}))
    }

    pub fn save(&self, name: &str, text: &str) {
        fs::write(self.0.join(format!(".svc/rehearsals/{name}.json")), text).unwrap();
    }

    pub fn work(&self, path: &str) -> PathBuf {
        self.0.join("work").join(path)
    }

    /// The agent, which has got its prompt.
    pub fn play(&self, args: &[&str]) -> Agent {
        let mut agent = self.start(args);
        agent.write(&json!({"type": "prompt", "text": "build it"}));
        agent
    }

    pub fn start(&self, args: &[&str]) -> Agent {
        self.start_as("agent-script", args, &[])
    }

    /// Another built-in agent, with variables of its own.
    pub fn start_as(&self, sub_command: &str, args: &[&str], env: &[(&str, &str)]) -> Agent {
        let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
            .arg(sub_command)
            .args(args)
            .envs(env.iter().copied())
            .current_dir(self.work(""))
            .env("SVC_PROJECT_DIR", &self.0)
            .env("SVC_AGENT_NAME", "backend-1")
            .env("SVC_AGENT_ROLE", "backend")
            .env("SVC_AGENT_ID", "0000002a")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            let mut line = Vec::new();
            while stdout.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    break;
                }
            }
        });
        let mut stderr = child.stderr.take().unwrap();
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map(|_| text).unwrap_or_default()
        });
        let stdin = child.stdin.take();
        Agent { child, stdin, lines, stderr: Some(stderr) }
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running agent, killed at the end of its test.
pub struct Agent {
    pub child: Child,
    stdin: Option<ChildStdin>,
    pub lines: Receiver<Vec<u8>>,
    stderr: Option<JoinHandle<String>>,
}

impl Agent {
    pub fn write(&mut self, line: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn say(&mut self, text: &str) {
        self.write(&json!({"type": "say", "text": text}));
    }

    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// The next line; `None` when standard output is closed.
    pub fn raw(&self) -> Option<Vec<u8>> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line within {DEADLINE:?}"),
        }
    }

    /// The next activity.
    pub fn next(&self) -> Value {
        let line = self.raw().expect("one more line");
        serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&line)))
    }

    /// Everything up to the end of the turn, its end included; the session and the start left out.
    pub fn turn(&self) -> Vec<Value> {
        let mut found = Vec::new();
        loop {
            let activity = self.next();
            match activity["type"].as_str() {
                Some("session" | "turn-started") => {}
                Some("turn-ended") => {
                    found.push(activity);
                    return found;
                }
                _ => found.push(activity),
            }
        }
    }

    /// Waits for the end of standard output and of the process.
    pub fn end(mut self) -> (ExitStatus, String) {
        self.close();
        while self.raw().is_some() {}
        let stderr = self.stderr.take().unwrap().join().unwrap();
        (self.child.wait().unwrap(), stderr)
    }

    pub fn end_well(self) {
        let (status, stderr) = self.end();
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
