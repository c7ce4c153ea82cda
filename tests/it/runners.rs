//! Other machines: a real sshd in a network namespace of its own, reached by the real ssh.
//!
//! `tests/real/setup-runners` installs sshd; without it, or without root, these tests say that they were
//! skipped, and fail where `SVC_REAL_CLIS=require`.

use crate::support::daemon::{Daemon, is_root};
use crate::support::folder::Folder;
use crate::support::real::absent;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A machine with sshd; it is gone on drop.
pub struct Host {
    folder: Folder,
}

impl Host {
    /// `None` where there is none to be had.
    ///
    /// Panics where `SVC_REAL_CLIS=require`.
    pub fn start() -> Option<Self> {
        let host = Self { folder: Folder::new("runner") };
        // Namespaces are root's.
        if is_root() && host.setup("--status").is_ok() {
            host.do_("start");
            return Some(host);
        }
        absent("sshd, or root's rights,", "setup-runners");
        None
    }

    fn setup(&self, word: &str) -> Result<(), String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/setup-runners");
        let mut command = Command::new(script);
        command.arg(word);
        if word != "--status" {
            command.arg(self.folder.path());
        }
        let said = command.output().map_err(|error| error.to_string())?;
        if said.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said.stderr).into_owned()) }
    }

    /// `cut`, `mend`, `die`: see the script.
    pub fn do_(&self, word: &str) {
        self.setup(word).unwrap_or_else(|error| panic!("setup-runners {word}: {error}"));
    }

    /// The HOME of whoever logs in there.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// A daemon whose `ssh` knows this machine as `box`.
    pub fn daemon(&self, project: Arc<Folder>) -> Daemon {
        let path = format!("{}/bin:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        Daemon::start_in(project, &[("PATH", &path)])
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if is_root() {
            // A host that was not started leaves nothing to stop.
            let _ = self.setup("stop");
        }
    }
}

/// Gives the machine at this destination a name.
pub fn add(daemon: &Daemon, name: &str, destination: &str) {
    daemon.post("/api/runners", &json!({"name": name, "kind": "ssh", "destination": destination}));
}

fn check(daemon: &Daemon, name: &str) -> Value {
    daemon.post(&format!("/api/runners/{name}/check"), &Value::Null)["checked"].clone()
}

#[test]
fn a_runner_is_checked_and_gets_this_very_program_once() {
    let Some(host) = Host::start() else { return };
    let daemon = host.daemon(Arc::new(Folder::new("runners")));
    add(&daemon, "box", "box");
    let first = check(&daemon, "box");
    assert_eq!((&first["error"], &first["copied"]), (&Value::Null, &json!(true)), "{first:#}");
    let facts = &first["facts"];
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(facts["kernel"], kernel.trim());
    assert!(facts["memory"].as_u64() > Some(0) && facts["processors"].as_u64() > Some(0), "{facts}");
    let hash = facts["program"].as_str().unwrap();
    let there = host.home().join(".cache/svc/bin").join(hash).join("svc");
    let own = Path::new(env!("CARGO_BIN_EXE_svc"));
    assert!(std::fs::read(&there).unwrap() == std::fs::read(own).unwrap(), "it is this very program");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&there).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let again = check(&daemon, "box");
    assert_eq!((&again["error"], &again["copied"]), (&Value::Null, &json!(false)), "{again:#}");
    // Somebody has put another program there.
    std::fs::write(&there, "#!/bin/sh\necho 'svc-far {\"version\":\"1\"}'\n").unwrap();
    let other = check(&daemon, "box");
    assert!(other["error"].as_str().unwrap().contains("cannot be read"), "{other:#}");
    // One that lacks its loader is a program that the shell cannot run.
    std::fs::write(&there, "#!/nowhere/loader\n").unwrap();
    let unable = check(&daemon, "box");
    assert!(unable["error"].as_str().unwrap().contains("make static"), "{unable:#}");
}

#[test]
fn a_host_that_is_not_known_or_not_there_is_told_and_gets_nothing() {
    let Some(host) = Host::start() else { return };
    let daemon = host.daemon(Arc::new(Folder::new("runners")));
    add(&daemon, "stranger", "stranger");
    let told = check(&daemon, "stranger");
    let error = told["error"].as_str().unwrap();
    assert!(error.contains("Host key verification failed") && error.contains("ssh stranger"), "{error}");
    assert!(!host.home().join(".cache").exists(), "nothing was sent to a host that is not known");
    add(&daemon, "box", "box");
    host.do_("die");
    let told = check(&daemon, "box");
    assert!(told["error"].as_str().unwrap().contains("ssh cannot reach box"), "{told:#}");
    assert_eq!(daemon.get("/api/runners")["runners"][0]["checked"], told, "it stands in the record");
}
