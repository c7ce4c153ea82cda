//! All projects of one user: the list of their daemons, and the one door.

mod door;
mod fleet;

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

/// A user with a home of its own, and projects in there.
struct User {
    home: Folder,
}

impl User {
    fn new() -> Self {
        Self { home: Folder::new("user") }
    }

    fn config(&self) -> PathBuf {
        self.home.path().join(".config")
    }

    fn registry(&self) -> PathBuf {
        self.config().join("svc/daemons")
    }

    /// A new project's daemon.
    fn start(&self, name: &str) -> Daemon {
        self.start_in(Arc::new(Folder::new(name)))
    }

    fn start_in(&self, folder: Arc<Folder>) -> Daemon {
        Daemon::start_in(folder, &[("XDG_CONFIG_HOME", self.config().to_str().unwrap())])
    }

    fn svc(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(args).current_dir(self.home.path()).env("XDG_CONFIG_HOME", self.config());
        command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL").output().unwrap()
    }

    fn listed(&self) -> Vec<Value> {
        let output = self.svc(&["ps", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The state of the project of this folder.
    fn state_of(&self, project: &std::path::Path) -> String {
        let listed = self.listed();
        let found = listed.iter().find(|one| one["project"] == project.to_str().unwrap());
        found.map(|one| one["state"].as_str().unwrap().to_owned()).unwrap_or_default()
    }
}

/// Stops a process, and lets it go on when dropped.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Self {
        assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
        let stopped = Self(pid);
        // One thread takes the signal and tells the others: until it has had its turn, they go on.
        wait_for("every thread to be stopped", || stopped.is_so().then_some(()));
        stopped
    }

    fn is_so(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0)).unwrap();
        let is_stopped = |task: std::fs::DirEntry| {
            // One that has ended meanwhile does nothing any more.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        tasks.flatten().all(is_stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-CONT", &self.0.to_string()]).status();
    }
}

#[test]
fn every_project_is_listed_and_none_that_is_gone_counts_as_running() {
    let user = User::new();
    let words = String::from_utf8(user.svc(&["ps"]).stdout).unwrap();
    assert!(words.contains("no daemon was ever started"), "{words}");
    let folder = Folder::new("shop");
    let steps = r#"{"steps": [{"write": {"path": "web/a.js", "text": "one"}}, {"ask": "Well?"}]}"#;
    folder.write(".svc/rehearsals/writes.json", steps);
    let (shop, mut blog) = (user.start_in(Arc::new(folder)), user.start("blog"));
    let listed = user.listed();
    assert_eq!(listed.len(), 2, "{listed:?}");
    for (one, daemon) in listed.iter().zip([&blog, &shop]) {
        assert_eq!(one["project"], daemon.project.to_str().unwrap());
        assert_eq!((&one["state"], &one["url"]), (&"running".into(), &daemon.url.as_str().into()));
        assert_eq!(one["pid"], daemon.pid());
        assert_eq!((&one["running"], &one["waiting"]), (&0.into(), &0.into()));
        assert_eq!(one["name"], daemon.get("/api/status")["name"]);
    }
    let body = serde_json::json!({
        "role": "dev", "provider": "script", "model": "writes", "prompt": "go", "scope": ["api/**"],
    });
    shop.post("/api/agents", &body);
    wait_for("the question to be listed", || {
        user.listed().iter().any(|one| one["waiting"] == 1).then_some(())
    });
    {
        let _stopped = Stopped::new(shop.pid());
        assert_eq!(user.state_of(&shop.project), "silent");
    }
    let (project, folder) = (blog.project.clone(), blog.folder());
    blog.kill();
    wait_for("a killed daemon to be listed as stopped", || {
        (user.state_of(&project) == "stopped").then_some(())
    });
    let again = user.start_in(folder);
    assert_eq!(user.state_of(&project), "running");
    assert_eq!(again.stop(), Some(0));
    assert_eq!(user.state_of(&project), "stopped");
    let name = user.listed()[0]["name"].as_str().unwrap().to_owned();
    let running = shop.get("/api/status")["name"].as_str().unwrap().to_owned();
    assert!(!user.svc(&["ps", "--forget", &running]).status.success(), "one that runs is not forgotten");
    assert!(user.svc(&["ps", "--forget", &name]).status.success());
    assert_eq!(user.listed().len(), 1);
    assert!(!user.svc(&["ps", "--forget", "../daemons"]).status.success());
}

#[test]
fn what_others_may_write_lists_nobody_and_a_daemon_runs_all_the_same() {
    let user = User::new();
    let shop = user.start("shop");
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&user.registry()), 0o700);
    for entry in fs::read_dir(user.registry()).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    let planted = user.registry().join("evil.json");
    fs::write(&planted, r#"{"project": "/evil", "url": "http://127.0.0.1:1", "pid": 1, "since": 0}"#)
        .unwrap();
    fs::set_permissions(&planted, PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(user.listed().len(), 1, "a file that others may have written is not read");
    fs::set_permissions(user.registry(), PermissionsExt::from_mode(0o777)).unwrap();
    let refused = user.svc(&["ps"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not yours alone"));
    let blog = user.start("blog");
    assert_eq!(blog.get("/api/status")["name"], "");
    assert!(blog.log().contains("'svc ps' does not list this project"));
    assert_eq!(shop.get("/api/health")["status"], "ok");
}
