//! The finish of the command line: the tour, manual pages, completions, `--json` everywhere, tables that fit,
//! and a line of progress on a real terminal.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::processes::of_project;
use crate::support::wait::wait_for;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn svc(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).current_dir(dir).stdin(Stdio::null());
    for name in ["SVC_DAEMON_URL", "SVC_AGENT_ID", "COLUMNS"] {
        command.env_remove(name);
    }
    command
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn issue_7_demo_shows_a_team_an_approval_a_rotation_and_leaves_nothing() {
    let folder = Folder::new("demo");
    let tour = |args: &[&str]| {
        let mut command = svc(folder.path(), args);
        command.env("TMPDIR", folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let child = tour(&["demo", "--fast"]);
    let project = folder.path().join(format!("svc-demo-{}", child.id()));
    let output = child.wait_with_output().unwrap();
    let told = words(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", words(&output.stderr));
    for part in [
        "$ svc spawn planner",
        "reviewer-1 completed",
        "may write api/routes.txt, outside of its scope",
        "The form and its route are there.",
        "rotated writer-1",
        "writer-1 completed",
        "$ svc tokens",
        "svc start --background",
    ] {
        assert!(told.contains(part), "{part:?} is missing in\n{told}");
    }
    assert!(is_empty(folder.path()), "the project is removed");
    assert!(of_project(&project).is_empty(), "an agent is left");
    let refused = tour(&["demo", "--project", "."]).wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", words(&refused.stderr));
}

#[test]
fn issue_7_an_interrupted_demo_leaves_no_daemon_and_no_folder() {
    let folder = Folder::new("demo");
    let mut child = svc(folder.path(), &["demo"])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let state = folder.path().join(format!("svc-demo-{}/.svc", child.id()));
    wait_for("the tour's daemon", || state.join("daemon.port").exists().then_some(()));
    let lock: Value = serde_json::from_slice(&std::fs::read(state.join("daemon.lock")).unwrap()).unwrap();
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let status = wait_for("the end of the tour", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    let daemon = format!("/proc/{}", lock["pid"]);
    wait_for("the daemon to be gone", || (!Path::new(&daemon).exists()).then_some(()));
    assert!(is_empty(folder.path()), "the project is removed");
}

fn commands() -> Vec<String> {
    let output = svc(Path::new("/"), &["help", "--json"]).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names = list["commands"].as_array().unwrap().iter();
    names.map(|command| command["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn issue_7_every_command_has_a_manual_page_that_man_reads_without_a_warning() {
    let folder = Folder::new("man");
    let output = svc(folder.path(), &["man", "--into", "man1", "--quiet"]).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let pages: BTreeSet<String> = std::fs::read_dir(folder.path().join("man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut expected: BTreeSet<String> = commands().iter().map(|name| format!("svc-{name}.1")).collect();
    expected.insert("svc.1".into());
    assert_eq!(pages, expected);
    for page in pages {
        let file = folder.path().join("man1").join(&page);
        let mut man = Command::new("man");
        man.args(["--warnings=w", "-E", "UTF-8", "-P", "cat", "-l"]).arg(&file);
        let shown = man.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80").output();
        let Ok(shown) = shown else { return eprintln!("skipped: there is no 'man' to read the pages with") };
        let (text, warnings) = (words(&shown.stdout), words(&shown.stderr));
        assert!(shown.status.success() && warnings.is_empty(), "{page}: {warnings}");
        assert!(text.contains("NAME") && text.contains("OPTIONS"), "{page}: {text}");
    }
}

#[test]
fn issue_7_bash_completes_commands_options_and_agents() {
    let daemon = Daemon::start();
    daemon.spawn("hang");
    let folder = daemon.folder();
    let program = Path::new(env!("CARGO_BIN_EXE_svc"));
    let path = std::env::var("PATH").unwrap();
    let complete = |typed: &str| {
        let script = format!(
            "source <(svc completions bash); COMP_WORDS=({typed} ''); \
             [[ '{typed}' == *- || '{typed}' == *sp ]] && COMP_WORDS=({typed}); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _svc; echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash")
            .args(["-c", &script])
            .current_dir(folder.path())
            .env("PATH", format!("{}:{path}", program.parent().unwrap().display()))
            .output()
            .unwrap();
        words(&output.stdout).trim().to_owned()
    };
    assert_eq!(complete("svc sp"), "spawn");
    assert_eq!(complete("svc logs"), "tester-1");
    assert!(complete("svc spawn --").contains("--isolation"));
    assert_eq!(complete("svc completions"), "bash zsh fish");
}

/// Commands that end by themselves and change nothing without words.
fn harmless() -> impl Iterator<Item = String> {
    let others = ["start", "stop", "demo", "rehearse", "hook", "acp", "mcp", "wait", "open", "pair"];
    commands().into_iter().filter(move |name| !others.contains(&name.as_str()))
}

fn run(daemon: &Daemon, args: &[&str], columns: &str) -> Output {
    svc(daemon.folder().path(), args).env("COLUMNS", columns).output().unwrap()
}

#[test]
fn issue_7_json_is_understood_everywhere() {
    let daemon = Daemon::start();
    let id = daemon.spawn("quick");
    daemon.wait_state(&id, &["completed"]);
    let mut seen = 0;
    let mut check = |args: &[&str]| {
        let output = run(&daemon, args, "80");
        let (stdout, stderr) = (words(&output.stdout), words(&output.stderr));
        let needs_words = args.len() == 2 && output.status.code() == Some(2);
        if needs_words && stderr.contains("svc help") {
            return;
        }
        seen += 1;
        let parsed: Result<Value, _> = serde_json::from_str(&stdout);
        assert!(parsed.is_ok(), "svc {args:?} prints no JSON: {:?} {stdout}{stderr}", output.status);
    };
    for name in harmless() {
        check(&[&name, "--json"]);
    }
    for args in [
        &["logs", "tester-1", "--json"][..],
        &["rotate", "tester-1", "--dry-run", "--json"],
        &["wait", "tester-1", "--json"],
        &["pair", "--address", "127.0.0.1", "--json"],
        &["config", "get", "--json"],
        &["config", "set", "maxAgents", "3", "--json"],
        &["index", "--rescan", "--json"],
        &["instruct", "tester-1", "go", "on", "--json"],
        &["completions", "fish", "--json"],
        &["memory", "--json"],
        &["team", "save", "crew", "tester-1", "--json"],
        &["skills", "update", "--json"],
        &["kill", "tester-1", "--json"],
        &["status", "-q", "--json"],
        &["stop", "-q", "--json"],
    ] {
        check(args);
    }
    assert!(seen > 25, "{seen} commands printed JSON");
}

#[test]
fn issue_7_tables_fit_the_terminal() {
    let daemon = Daemon::start();
    let long = "a-task-without-any-blank-".repeat(20);
    let body = serde_json::json!({
        "role": "a-role-with-a-rather-long-name", "provider": "script", "model": "quick", "prompt": long,
    });
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    daemon.wait_state(&id, &["completed"]);
    let mut tables = 0;
    for name in harmless() {
        let stdout = words(&run(&daemon, &[&name], "50").stdout);
        // A table's headings are in capitals.
        let is_heading =
            |line: &str| line.len() > 3 && line.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
        let Some(from) = stdout.lines().position(|line| is_heading(line.trim_end_matches('…'))) else {
            continue;
        };
        tables += 1;
        for line in stdout.lines().skip(from).take_while(|line| !line.is_empty()) {
            assert!(line.chars().count() <= 50, "svc {name}: {line}");
        }
    }
    assert!(tables > 5, "{tables} tables");
}

#[test]
fn issue_7_a_wait_over_a_second_shows_on_a_terminal_and_is_wiped() {
    let daemon = Daemon::start();
    daemon.spawn("hang");
    let line = format!("{} wait --timeout 2s --url {}", env!("CARGO_BIN_EXE_svc"), daemon.url);
    let output = Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output();
    let Ok(output) = output else {
        return eprintln!("skipped: there is no 'script' of util-linux to make a terminal with");
    };
    let shown = words(&output.stdout);
    assert!(shown.contains("waiting: tester-1"), "{shown}");
    let (_, after) = shown.rsplit_once("\r\u{1b}[K").expect("the line is wiped");
    assert!(after.starts_with("svc: after 2s still running: tester-1"), "{after}");
    let quiet = run(&daemon, &["wait", "--timeout", "1s"], "80");
    assert!(!words(&quiet.stderr).contains("waiting"), "a pipe sees no progress: {quiet:?}");
}
