//! What `docs/chat.md` says a person does, done.

use super::*;
use crate::support::chat::telegram::{TOKEN, Telegram};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs `svc gateways ..` with something on standard input.
fn run(daemon: &Daemon, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.arg("gateways").args(args).args(["--url", &daemon.url]).current_dir(&daemon.project);
    command.env_remove("SVC_AGENT_ID").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that reads nothing may have ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn ok(daemon: &Daemon, args: &[&str], input: &str) -> String {
    let output = run(daemon, args, input);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "svc gateways {args:?}: {words}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn issue_6_a_person_connects_a_bot_in_five_lines() {
    let (web, telegram) = Telegram::start();
    let daemon = Daemon::start();
    let base = format!("http://127.0.0.1:{}", web.port);
    assert!(ok(&daemon, &[], "").contains("svc gateways add telegram"));
    let said = ok(&daemon, &["add", "telegram", "--api-base", &base], "");
    assert!(said.starts_with("made gateway telegram-"), "{said}");
    let output = run(&daemon, &["connect", "telegram"], "");
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && words.contains("has no bot_token"), "{words}");
    let said = ok(&daemon, &["token", "telegram"], &format!("{TOKEN}\n"));
    assert!(said.starts_with("stored the bot_token of telegram-"), "{said}");
    let said = ok(&daemon, &["connect", "telegram"], "");
    for part in ["is connected as svc_bot", "send /help to the bot", "everybody who can write to it"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    telegram.says(4711, 77, "/help");
    wait_for("the help", || {
        telegram.with(|state| {
            let help = state.messages.iter().find(|one| one.2.starts_with("Commands"));
            help.map(|one| assert!(one.2.ends_with("This chat's id is 77, yours is 4711"), "{}", one.2))
        })
    });
    ok(&daemon, &["set", "telegram", "--chat", "77", "--users", "4711", "--preset", "all"], "");
    assert!(ok(&daemon, &["test", "telegram"], "").contains("has sent a test message"));
    let said = ok(&daemon, &["list"], "");
    for part in ["connected", "svc_bot", "77", "all", "full", "1"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let said = ok(&daemon, &["connect", "telegram"], "");
    assert_eq!(said.lines().count(), 1, "nothing is left to be said: {said}");
    assert!(ok(&daemon, &["disconnect", "telegram"], "").contains("is disconnected"));
    assert!(ok(&daemon, &["remove", "telegram"], "").contains("and its tokens"));
    assert_eq!(daemon.get("/api/credentials"), json!([]));
    let output = run(&daemon, &["show", "telegram"], "");
    assert_eq!(output.status.code(), Some(1));
}
