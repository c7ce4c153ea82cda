//! A runner's machine that lies. Its `ssh` is a script that runs here what it is told, with a HOME of its
//! own, or answers what a test has put there.

use crate::runners::{
    add, agent, check, counted, executable, repository, said, spawn_there, wait_code, wait_finished,
};
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A machine that is none.
pub struct Pretended(pub Folder);

impl Pretended {
    pub fn new() -> Self {
        let folder = Folder::new("pretended");
        std::fs::create_dir_all(folder.path().join("home")).unwrap();
        let own = folder.path().display();
        // The last word is the script; the words that `open` is told in are the test's, if it has some.
        let text = format!(
            "#!/bin/sh\nfor word; do script=$word; done\n\
             case $script in\n\
             *'__far open'*) if [ -e {own}/lie ]; then . {own}/lie; fi;;\n\
             *'__far bring'*) if [ -e {own}/bundle ]; then exec cat {own}/bundle; fi;;\n\
             *'__far session'*) if [ -e {own}/session ]; then exec cat {own}/session; fi;;\n\
             esac\n\
             HOME={own}/home exec sh -c \"$script\"\n"
        );
        executable(&folder.path().join("ssh"), &text);
        Self(folder)
    }

    fn daemon(&self, project: Arc<Folder>) -> Daemon {
        self.daemon_with(project, &[])
    }

    /// One with these variables, too.
    pub fn daemon_with(&self, project: Arc<Folder>, variables: &[(&str, &str)]) -> Daemon {
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        let daemon = Daemon::start_in(project, &[&[("PATH", path.as_str())], variables].concat());
        add(&daemon, "box", "box");
        assert_eq!(check(&daemon, "box")["error"], Value::Null);
        daemon
    }

    /// The processes of `svc __far open` there.
    fn ends(&self) -> Vec<u32> {
        let home = format!("HOME={}/home\0", self.0.path().display());
        let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let environ = std::fs::read(entry.path().join("environ")).ok()?;
            let is_one =
                words.ends_with(b"/svc\0__far\0open\0") && String::from_utf8_lossy(&environ).contains(&home);
            is_one.then_some(pid)
        });
        all.collect()
    }

    /// The tree of the one agent that works there.
    fn tree(&self) -> PathBuf {
        let only = |folder: PathBuf, without: &str| {
            let inside = std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path());
            let found: Vec<_> = inside.filter(|path| path.is_dir() && !path.ends_with(without)).collect();
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].clone()
        };
        let place = only(self.0.path().join("home/.local/state/svc/runners"), "none");
        only(place, "repo.git").join("tree")
    }

    fn git(&self, args: &[&str]) -> String {
        let settings = ["-c", "user.name=t", "-c", "user.email=t@t.invalid"];
        let done = Command::new("git").args(settings).args(args).current_dir(self.tree()).output().unwrap();
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }
}

#[test]
fn a_far_end_that_says_nothing_is_given_up_and_a_program_that_says_nothing_is_not() {
    let host = Pretended::new();
    let daemon = host.daemon(repository(2, 26_000));
    let ends = || host.ends();
    let first_line = |id: &str| {
        wait_within(Duration::from_secs(30), "its first line", || {
            (!said(&daemon, id).is_empty()).then_some(())
        });
    };
    let stopped = spawn_there(&daemon, "stopped", "box");
    first_line(&stopped);
    let all = ends();
    assert_eq!(all.len(), 1, "{all:?}");
    let signal = |word: &str, pid: u32| Command::new("kill").args([word, &pid.to_string()]).status().unwrap();
    signal("-STOP", all[0]);
    let silent = spawn_there(&daemon, "silent", "box");
    first_line(&silent);
    let cut = wait_code(&daemon, &stopped, "unreachable");
    assert!(cut.to_string().contains("nothing was heard of it"), "{cut:#}");
    wait_within(Duration::from_secs(60), "the second line of both", || {
        [&stopped, &silent].iter().all(|id| said(&daemon, id) == counted(2)).then_some(())
    });
    assert!(!daemon.log_of(&silent).iter().any(|entry| entry.to_string().contains("is cut")));
    signal("-KILL", all[0]);
}

/// A frame of the keeper's, as printf has it.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
    frame.push(kind);
    frame.extend(payload);
    frame
}

fn welcome(first: u64, last_seq: u64) -> Vec<u8> {
    let told = json!({"welcome": {"version": 1, "pid": 1, "startTicks": 1, "first": first, "end": 0,
        "lastSeq": last_seq, "notes": []}});
    frame(5, told.to_string().as_bytes())
}

fn records(offset: u64, bytes: &[u8]) -> Vec<u8> {
    frame(4, &[&offset.to_le_bytes(), bytes].concat())
}

#[test]
fn what_a_host_cannot_have_said_ends_the_agent_with_a_reason() {
    let host = Pretended::new();
    let daemon = host.daemon(repository(1, 1));
    let there = b"svc-far {\"is\":\"there\"}\n".to_vec();
    let printed = |frames: &[Vec<u8>]| {
        let all = [there.clone(), frames.concat()].concat();
        let path = host.0.path().join("frames");
        std::fs::write(&path, all).unwrap();
        format!("exec sh -c 'cat {}; exec cat >/dev/null'", path.display())
    };
    let wants = r#"echo 'svc-far {"is":"wants","have":["--all","x;y"]}'"#;
    let lies: [(&str, &dyn Fn() -> String, &str); 9] = [
        ("garbage", &|| "exec head -c 300000 /dev/zero".into(), "65536 bytes before it answers"),
        ("endless", &|| "yes | tr -d '\\n'; exit".into(), "65536 bytes before it answers"),
        ("words", &|| "echo 'svc-far {\"is\":\"king\"}'; exit".into(), "cannot be read"),
        ("twice", &|| format!("{wants}; {wants}; exec cat >/dev/null"), "wants the repository twice"),
        ("refused", &|| "echo 'svc-far {\"is\":\"refused\",\"why\":\"no\"}'; exit".into(), "no"),
        ("heard", &|| printed(&[welcome(0, 99)]), "more than it was given"),
        ("kept", &|| printed(&[welcome(7, 0)]), "less than it was to keep"),
        (
            "gap",
            &|| printed(&[welcome(0, 0), records(5, &[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, b'x'])]),
            "is missing",
        ),
        ("record", &|| printed(&[welcome(0, 0), records(0, b"xxxxxxxxxxxxxxxxxxxxxxx")]), "says cannot be"),
    ];
    for (name, lie, reason) in lies {
        std::fs::write(host.0.path().join("lie"), lie()).unwrap();
        let id = spawn_there(&daemon, name, "box");
        let ended = wait_within(Duration::from_secs(60), name, || {
            let agent = agent(&daemon, &id);
            (agent["status"] != "active").then_some(agent)
        });
        assert_eq!(ended["status"], "crashed", "{name}: {ended:#}");
        assert!(ended["error"].as_str().unwrap_or_default().contains(reason), "{name}: {ended:#}");
    }
    std::fs::remove_file(host.0.path().join("lie")).unwrap();
    let id = spawn_there(&daemon, "honest", "box");
    wait_finished(&daemon, &id);
    assert_eq!(said(&daemon, &id), counted(1));
}

#[test]
fn what_comes_back_moves_the_agents_own_branch_forward_and_nothing_else() {
    let host = Pretended::new();
    let folder = repository(1, 1);
    let daemon = host.daemon(Arc::clone(&folder));
    let id = spawn_there(&daemon, "one", "box");
    wait_finished(&daemon, &id);
    let fetch = || daemon.send("POST", &format!("/api/agents/{id}/fetch"), &Value::Null);
    let refs = || {
        let done = Command::new("git").args(["show-ref"]).current_dir(folder.path()).output().unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let (status, told) = fetch();
    assert_eq!((status, &told["commits"]), (200, &json!(1)), "{told}");
    let before = refs();
    assert!(before.contains(told["to"].as_str().unwrap()), "{before}");
    // Its history there is another one now.
    host.git(&["commit", "--quiet", "--amend", "-m", "another"]);
    let (status, told) = fetch();
    assert_eq!((status, &told["code"]), (409, &json!("diverged")), "{told}");
    assert_eq!(refs(), before);
    // A bundle with another branch in it, one that names what it does not hold, and none.
    let tip = host.git(&["rev-parse", "HEAD"]);
    let bundle = host.0.path().join("made");
    let lies = |head: &str, bundle: &[u8]| {
        let head =
            format!("svc-far {{\"tip\":\"{head}\",\"bytes\":{},\"uncommitted\":false}}\n", bundle.len());
        std::fs::write(host.0.path().join("bundle"), [head.as_bytes(), bundle].concat()).unwrap();
    };
    let made = bundle.display().to_string();
    host.git(&["branch", "main2"]);
    host.git(&["bundle", "create", "--quiet", &made, "HEAD", "main2"]);
    lies(&tip, &std::fs::read(&bundle).unwrap());
    let (status, told) = fetch();
    assert!(status == 502 && told.to_string().contains("more than the agent's branch"), "{told}");
    host.git(&["bundle", "create", "--quiet", &made, "HEAD"]);
    let other = "0123456789012345678901234567890123456789";
    let text = std::fs::read(&bundle).unwrap();
    let start = text.windows(tip.len()).position(|bytes| bytes == tip.as_bytes()).unwrap();
    let mut renamed = text.clone();
    renamed[start..start + other.len()].copy_from_slice(other.as_bytes());
    lies(other, &renamed);
    let (status, told) = fetch();
    assert!(status == 502 && told.to_string().contains("does not hold the commit"), "{told}");
    lies(&tip, b"PACK");
    let (status, told) = fetch();
    assert!(status == 502 && told.to_string().contains("no bundle"), "{told}");
    lies("--all", b"");
    let (status, told) = fetch();
    assert!(status == 502 && told.to_string().contains("not whole"), "{told}");
    assert_eq!(refs(), before);
}
