//! The real Claude Code, driven by a scripted model, and a person's yes or no: a write outside of its scope
//! is stopped by `svc hook`, a command beyond its permission is asked about over its stream.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// A turn takes 4 s on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A daemon whose agents find Claude Code. Fields are dropped in this order.
struct Stage {
    daemon: Daemon,
    _aimock: Aimock,
    _home: Home,
}

impl Stage {
    /// `None` when the program is absent.
    fn new() -> Option<Self> {
        if !Cli::Claude.is_here() {
            return None;
        }
        let project = Arc::new(Folder::in_target("claude"));
        let aimock = Aimock::start(project.path());
        let home = Home::new(&aimock.url);
        let variables = home.variables(Cli::Claude, &aimock.url);
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        fs::create_dir_all(project.path().join("src")).unwrap();
        let daemon = Daemon::start_in(project, &variables);
        wait_within(LIMIT, "the provider to be detected", || {
            let providers = daemon.get("/api/providers");
            let mine = providers.as_array()?.iter().find(|provider| provider["id"] == "claude-code")?;
            (mine["installed"] == true).then_some(())
        });
        Some(Self { daemon, _aimock: aimock, _home: home })
    }

    fn spawn(&self, word: &str) -> String {
        let body = json!({
            "role": "builder", "name": "claude", "provider": "claude-code", "model": Cli::Claude.model(),
            "scope": ["src/**"], "prompt": format!("Please do {word} now."),
        });
        self.daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned()
    }

    /// The first pending approval; the agent is shown as waiting for it.
    fn asked(&self) -> Value {
        wait_within(LIMIT, &format!("a question\n{}", self.told()), || {
            let pending = self.daemon.get("/api/approvals")["pending"][0].clone();
            pending.is_object().then_some(pending)
        })
    }

    fn decide(&self, approval: &Value, decision: &str) {
        let body = json!({"id": approval["id"], "decision": decision});
        self.daemon.post("/api/approvals", &body);
    }

    /// Waits until the agent, under whichever id, has ended well.
    fn completed(&self) -> Value {
        let ended = wait_within(LIMIT, "the agent to end", || {
            let record = self.daemon.get("/api/agents/claude");
            (record["status"] != "active").then_some(record)
        });
        assert_eq!(ended["state"], "completed", "{}", self.told());
        ended
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.daemon.project.join(name)).ok()
    }

    fn told(&self) -> String {
        let (_, record) = self.daemon.send("GET", "/api/agents/claude", &Value::Null);
        let (_, log) = self.daemon.send("GET", "/api/agents/claude/log", &Value::Null);
        format!("{record:#}\n{log:#}")
    }

    /// `event actor` of the approvals' entries in the audit log, oldest first.
    fn audited(&self) -> Vec<String> {
        let audit = self.daemon.get("/api/audit?event=approval");
        let entries = audit["entries"].as_array().unwrap().iter().rev();
        let word = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        entries.map(|entry| format!("{} {}", word(entry, "event"), word(entry, "actor"))).collect()
    }
}

#[test]
fn issue_4_a_denied_write_of_the_real_claude_becomes_an_approval_and_succeeds_after_it() {
    let Some(stage) = Stage::new() else { return };
    let id = stage.spawn("REAL-SCOPE");
    let approval = stage.asked();
    assert_eq!(approval["action"]["type"], "scope_violation", "{approval}");
    assert_eq!(approval["action"]["filePath"], "outside.txt");
    assert_eq!(approval["agentId"], json!(id));
    wait_within(LIMIT, "the turn to end without the file", || {
        (stage.daemon.get("/api/agents/claude")["turns"] == 1).then_some(())
    });
    assert_eq!(stage.read("outside.txt"), None, "{}", stage.told());
    assert_eq!(stage.daemon.get("/api/agents/claude")["state"], "waiting", "{}", stage.told());
    stage.decide(&approval, "approve");
    stage.completed();
    assert_eq!(
        stage.read("outside.txt").as_deref(),
        Some("written after a person said yes\n"),
        "{}",
        stage.told()
    );
    let agent = format!("agent:{id}");
    assert_eq!(
        stage.audited(),
        [
            format!("approval.request {agent}"),
            "approval.approve operator".into(),
            format!("approval.use {agent}")
        ],
        "who did what"
    );
}

#[test]
fn issue_4_a_rejected_write_of_the_real_claude_is_not_done() {
    let Some(stage) = Stage::new() else { return };
    stage.spawn("REAL-SCOPE");
    let approval = stage.asked();
    stage.decide(&approval, "reject");
    stage.completed();
    assert_eq!(stage.read("outside.txt"), None, "{}", stage.told());
    assert!(stage.told().contains("I leave it alone."), "it was told: {}", stage.told());
}

#[test]
fn issue_4_a_command_of_the_real_claude_waits_in_its_turn_for_a_person() {
    for (decision, written) in [("approve", Some("asked")), ("reject", None)] {
        let Some(stage) = Stage::new() else { return };
        stage.spawn("REAL-ASK");
        let approval = stage.asked();
        assert_eq!(approval["action"]["type"], "tool_permission", "{approval}");
        assert_eq!(approval["action"]["tool"], "Bash", "{approval}");
        assert_eq!(stage.daemon.get("/api/agents/claude")["state"], "waiting", "{}", stage.told());
        assert_eq!(stage.read("asked.txt"), None);
        stage.decide(&approval, decision);
        stage.completed();
        assert_eq!(stage.read("asked.txt").as_deref(), written, "{decision}: {}", stage.told());
    }
}
