//! The command line against the built daemon: what a person types on the first day.

mod support;

use std::process::{Command, Output};
use support::folder::Folder;
use support::processes::of_project;

/// A project whose daemon is started and stopped by the command line itself.
struct Project(Folder);

impl Project {
    fn new() -> Self {
        Self(Folder::new("command-line"))
    }

    fn svc(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(args).current_dir(self.0.path());
        command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL");
        command.env("XDG_CONFIG_HOME", self.0.path().join(".config")).output().unwrap()
    }

    /// Must succeed; its standard output.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.svc(args);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "svc {args:?}: {:?}\n{words}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        self.svc(&["stop"]);
    }
}

#[test]
fn a_first_day() {
    let project = Project::new();
    let started = project.ok(&["start", "--background", "--port", "0"]);
    assert!(started.contains("listening on http://127.0.0.1:"), "{started}");
    assert!(project.ok(&["status"]).contains("pid"));
    let id =
        project.ok(&["spawn", "backend", "say hello", "--provider", "script", "--model", "quick", "--quiet"]);
    let id = id.trim();
    assert_eq!(id.len(), 8, "--quiet prints the id alone: {id:?}");
    project.ok(&["wait", "backend-1", "--timeout", "30s"]);
    assert!(project.ok(&["agents"]).contains("backend-1"));
    assert!(project.ok(&["logs", &id[..4]]).contains("completed"), "an id prefix is enough");
    let agents: serde_json::Value = serde_json::from_str(&project.ok(&["ls", "--json"])).unwrap();
    assert_eq!(agents[0]["id"], id);
    assert!(project.ok(&["providers"]).contains("script"));
    project.ok(&["config", "set", "maxAgents", "3"]);
    assert_eq!(project.ok(&["config", "get", "maxAgents"]).trim(), "3");
    project.ok(&["doctor"]);
    project.ok(&["stop"]);
    assert!(!project.0.path().join(".svc/daemon.port").exists());
    assert_eq!(project.svc(&["agents"]).status.code(), Some(1), "no daemon: a failure, not a usage error");
}

#[test]
fn talking_to_an_agent() {
    let project = Project::new();
    project.ok(&["start", "--background", "--port", "0"]);
    project.ok(&["spawn", "painter", "--provider", "script", "--model", "ask"]);
    assert!(!project.ok(&["query", "painter-1", "how far?"]).trim().is_empty());
    project.ok(&["rotate", "painter"]);
    project.ok(&["instruct", "painter-1", "--now", "blue"]);
    project.ok(&["wait", "--timeout", "30s"]);
    let log = project.ok(&["logs", "painter-1", "--tail", "200"]);
    assert!(log.contains("blue"), "{log}");
    let resumed = project.ok(&["resume", "painter-1", "and now green", "--quiet"]);
    assert_eq!(resumed.trim().len(), 8);
    project.ok(&["kill", "painter-1"]);
    assert!(of_project(project.0.path()).is_empty());
    let crashed = project.ok(&["spawn", "ops", "--provider", "script", "--model", "crash", "--quiet"]);
    assert_eq!(project.svc(&["wait", crashed.trim()]).status.code(), Some(1), "some agent crashed");
    assert_eq!(project.svc(&["spawn"]).status.code(), Some(2), "wrong usage");
}

#[test]
fn a_rehearsal_starts_streams_ends_and_stops_its_daemon() {
    let project = Project::new();
    let told = project.ok(&["rehearse", "--project", "demo"]);
    for words in ["planner-1", "builder-1", "reviewer-1", "completed", "Look further"] {
        assert!(told.contains(words), "{words:?} is missing in\n{told}");
    }
    assert!(project.0.path().join("demo/hello.txt").exists());
    assert!(!project.0.path().join("demo/.svc/daemon.port").exists(), "its daemon has stopped");
}
