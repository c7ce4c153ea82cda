//! The command line against the built daemon: what a person types on the first day.

use crate::support::folder::Folder;
use crate::support::processes::of_project;
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

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
fn a_named_port_is_taken_or_refused_and_the_usual_one_gives_way_aloud() {
    let (first, second) = (Project::new(), Project::new());
    let words = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().port();
    for args in [&["start", "--port"][..], &["start", "--background", "--port"]] {
        let refused = first.svc(&[args, &[&taken.to_string()]].concat());
        let told = words(&refused);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains(&format!("port {taken} is in use (")), "{told}");
        if cfg!(target_os = "linux") {
            assert!(told.contains(&format!("pid {}", std::process::id())), "it names who has it: {told}");
        }
    }
    first.ok(&["start", "--background", "--port", "0"]);
    let again = first.ok(&["start", "--background"]);
    assert!(again.contains("already runs at http://127.0.0.1:"), "{again}");
    let port = std::fs::read_to_string(first.0.path().join(".svc/daemon.port")).unwrap();
    let port = port.trim();
    second.0.write(".svc/config.json", &format!("{{\"port\": {port}}}"));
    let began = Instant::now();
    let started = second.svc(&["start", "--background"]);
    let told = words(&started);
    assert!(started.status.success() && began.elapsed() < Duration::from_secs(5), "{told}");
    let project = first.0.path().display();
    assert!(told.contains(&format!("port {port} is in use (project {project}, pid ")), "{told}");
    let chosen = std::fs::read_to_string(second.0.path().join(".svc/daemon.port")).unwrap();
    assert!(told.contains(&format!("using {}", chosen.trim())), "{told}");
}

#[test]
fn a_daemon_at_the_loopback_address_of_ipv6_is_found() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("SKIPPED: this machine has no ::1");
        return;
    }
    let project = Project::new();
    let started = project.ok(&["start", "--background", "--host", "::1", "--port", "0"]);
    assert!(started.contains("listening on http://[::1]:"), "{started}");
    assert!(project.ok(&["status"]).contains("http://[::1]:"));
    assert!(project.ok(&["start"]).contains("already runs at http://[::1]:"));
}

#[test]
fn the_home_folder_becomes_a_project_only_when_it_is_named() {
    let project = Project::new();
    let home = project.0.path();
    let start = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(["start", "--background", "--port", "0"]).args(args).current_dir(home).env("HOME", home);
        command.env_remove("SVC_DAEMON_URL").env("XDG_CONFIG_HOME", home.join(".config")).output().unwrap()
    };
    let refused = start(&[]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && told.contains("--project"), "{told}");
    assert!(!home.join(".svc").exists(), "nothing is left behind");
    assert!(start(&["--project", "."]).status.success());
    project.ok(&["stop"]);
    let inside = home.join("shop");
    std::fs::create_dir(&inside).unwrap();
    let mut below = Command::new(env!("CARGO_BIN_EXE_svc"));
    let below =
        below.args(["start", "--background"]).current_dir(&inside).env("HOME", home).output().unwrap();
    let told = String::from_utf8_lossy(&below.stderr).into_owned();
    assert!(below.status.code() == Some(1) && told.contains("--project ."), "{told}");
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
    assert!(told.contains("rm -r demo"), "a folder that was made for it is told\n{told}");
    assert!(project.0.path().join("demo/hello.txt").exists());
    assert!(!project.0.path().join("demo/.svc/daemon.port").exists(), "its daemon has stopped");
}
