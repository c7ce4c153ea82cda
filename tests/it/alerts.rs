//! `notify.command`: a program of the person's own hears what waits.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::receiver::{Answers, Receiver};
use crate::support::wait::wait_for;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A program that writes down what it was told, a line for each call.
fn listener(folder: &Folder) -> String {
    let heard = folder.path().join("heard");
    let program = folder.path().join("tell");
    let script = format!(
        "#!/bin/sh\nprintf '%s|%s|%s|%s|%s\\n' \"$#\" \"$1\" \"$2\" \"$SVC_NOTIFY_KIND\" \"${{SVC_TOKEN:-none}}\" >> '{}'\n",
        heard.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program.to_string_lossy().into_owned()
}

#[test]
fn a_crash_and_a_question_are_told_to_the_program_of_the_persons_own_settings() {
    let folder = Folder::new("alerts");
    let program = listener(&folder);
    let settings = json!({"notify": {"command": [program, "{title}", "{text}"]}});
    folder.write(".svc/user/svc/config.json", &settings.to_string());
    folder.write(".svc/rehearsals/dies.json", &json!({"steps": [{"exit": 3}]}).to_string());
    let asks = json!({"steps": [{"write": {"path": "elsewhere/a.txt", "text": "x"}}, {"answer": "done"}]});
    folder.write(".svc/rehearsals/asks.json", &asks.to_string());
    let daemon = Daemon::start_in(Arc::new(folder), &[("SVC_TOKEN", "hidden")]);
    let dies = daemon.spawn("dies");
    daemon.wait_state(&dies, &["crashed"]);
    let name = daemon.get(&format!("/api/agents/{dies}"))["name"].as_str().unwrap().to_owned();
    let heard = || std::fs::read_to_string(daemon.project.join("heard")).unwrap_or_default();
    let line = wait_for("what the program heard", || {
        let said = heard();
        said.ends_with('\n').then_some(said)
    });
    assert!(line.starts_with(&format!("2|{name} crashed|")), "{line}");
    assert!(line.ends_with("|crashed|none\n"), "the daemon's own variables are not its business: {line}");
    let body = json!({"role": "writer", "provider": "script", "model": "asks", "prompt": "Write", "scope": ["src/**"]});
    daemon.post("/api/agents", &body);
    let said = wait_for("the question", || {
        let said = heard();
        said.contains("|approval|").then_some(said)
    });
    assert!(said.contains("writer-1 asks|"), "{said}");
    daemon.stop();
}

/// As docs/phone.md has it: a plain POST to a topic, whose address stands in a file.
#[test]
fn a_notifier_is_told_by_curl_and_reads_no_file_that_a_question_names() {
    let receiver = Receiver::start(Answers::Always(200));
    let folder = Folder::new("alerts-ntfy");
    let topic = format!(
        "url = \"{}\"\nheader = \"Click: https://192.168.1.5:31450/phone\"\n",
        receiver.url("/topic")
    );
    folder.write(".svc/user/svc/ntfy", &topic);
    let file = folder.path().join(".svc/user/svc/ntfy");
    let command = json!(["curl", "-fsS", "-K", file, "-H", "Title: {title}", "--data-raw", "{text}"]);
    folder.write(".svc/user/svc/config.json", &json!({"notify": {"command": command}}).to_string());
    let daemon = Daemon::start_in(Arc::new(folder), &[]);
    for (n, words) in ["@/etc/hostname", "-o stolen"].iter().enumerate() {
        daemon.post("/api/questions", &json!({"question": words}));
        let got = wait_for("the notice", || receiver.all().into_iter().nth(n));
        assert_eq!(got.path, "/topic");
        let said = String::from_utf8(got.body.clone()).unwrap();
        assert!(said.ends_with(words), "{said}");
        assert!(got.header("title").ends_with("asks"), "{:?}", got.header("title"));
        assert_eq!(got.header("click"), "https://192.168.1.5:31450/phone");
    }
    daemon.stop();
}

#[test]
fn a_daemon_does_not_start_with_a_command_of_the_project() {
    let folder = Folder::new("alerts-project");
    let program = listener(&folder);
    folder.write(".svc/config.json", &json!({"notify": {"command": [program]}}).to_string());
    let output = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["start", "--port", "0", "--project"])
        .arg(folder.path())
        .env_remove("SVC_AGENT_ID")
        .env("XDG_CONFIG_HOME", folder.path().join(".svc/user"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("notify.command stands in your own"), "{said}");
    assert!(!folder.path().join("heard").exists());
}
