//! `svc top` on a real terminal (a pseudo-terminal made by `script` of util-linux), and without one.

use crate::support::daemon::Daemon;
use crate::support::wait::wait_for;
use serde_json::json;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A shell on a terminal of 80 columns and 24 lines.
struct Terminal {
    child: Child,
    seen: Arc<Mutex<String>>,
}

impl Terminal {
    /// `None`, said aloud, where there is no `script`.
    fn open(daemon: &Daemon) -> Option<Self> {
        let (svc, url) = (env!("CARGO_BIN_EXE_svc"), &daemon.url);
        let line = format!(
            "stty cols 80 rows 24; sh -c 'echo pid $$; exec {svc} top --url {url}'; echo \"left with $?\"; stty -a"
        );
        let mut child = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .inspect_err(|error| eprintln!("skipped: 'script' of util-linux cannot be run: {error}"))
            .ok()?;
        let seen = Arc::new(Mutex::new(String::new()));
        let (mut output, filled) = (child.stdout.take().unwrap(), seen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut bytes) {
                filled.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Some(Self { child, seen })
    }

    fn seen(&self) -> String {
        self.seen.lock().unwrap().clone()
    }

    fn shows(&self, words: &str) {
        wait_for(&format!("{words:?} on the terminal"), || self.seen().contains(words).then_some(()));
    }

    fn types(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// It must have left with this code, and the terminal must be as it was.
    fn is_given_back(&self, code: i32) {
        self.shows("echoctl ");
        let seen = self.seen();
        let (before, after) = seen.rsplit_once("\u{1b}[?1049l").expect("the usual screen comes back");
        assert!(before.contains("\u{1b}[?1049h") && before.contains("\u{1b}[?25h"));
        assert!(after.contains(&format!("left with {code}")), "{after}");
        for mode in [" icanon", " echo ", "isig ", " icrnl"] {
            assert!(after.contains(mode), "{mode} is off: {after}");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[test]
fn issue_7_top_opens_a_log_kills_after_a_y_and_gives_the_terminal_back() {
    let daemon = Daemon::start();
    daemon.spawn("hang");
    let Some(mut terminal) = Terminal::open(&daemon) else { return };
    terminal.shows("> tester-1");
    terminal.types("\r");
    terminal.shows("q back");
    terminal.shows("> rehearse");
    terminal.types("qK");
    terminal.shows("end tester-1? y");
    terminal.types("y");
    terminal.shows("tester-1: done");
    let agents = daemon.get("/api/agents");
    assert_eq!(agents[0]["state"], "killed", "{agents}");
    daemon.spawn("quick");
    terminal.shows("tester-2");
    terminal.types("q");
    terminal.is_given_back(0);
}

#[test]
fn issue_7_top_gives_the_terminal_back_after_a_signal() {
    let daemon = Daemon::start();
    for signal in ["INT", "TERM", "HUP"] {
        let Some(terminal) = Terminal::open(&daemon) else { return };
        terminal.shows("q quit");
        let seen = terminal.seen();
        let pid = seen.split("pid ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        assert!(Command::new("kill").args([&format!("-{signal}"), pid]).status().unwrap().success());
        terminal.is_given_back(0);
    }
}

#[test]
fn issue_7_top_prints_one_look_where_there_is_no_terminal() {
    let daemon = Daemon::start();
    let top = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        let output = command.arg("top").args(args).args(["--url", &daemon.url]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(top(&[]).contains("no agents; start one with"));
    let id = daemon.spawn("hang");
    let look = top(&["--once"]);
    assert!(look.contains("1 live of 1") && look.contains("tester-1") && !look.contains('\u{1b}'), "{look}");
    let document: serde_json::Value = serde_json::from_str(&top(&["--json"])).unwrap();
    assert_eq!((&document["agents"][0]["id"], &document["totals"]["live"]), (&json!(id), &json!(1)));
    assert_eq!(top(&["--quiet"]).trim(), id);
}
