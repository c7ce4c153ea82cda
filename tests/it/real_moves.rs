//! Real programs whose agents go on on another machine: a real sshd, the real program there, and the same
//! scripted model endpoint for both, which sees what stands in each request.

use crate::runners::{Host, add, check, executable, repository};
use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::daemon::Daemon;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

const LIMIT: Duration = Duration::from_secs(120);
const PLAIN_ANSWER: &str = "This is the plain answer.";
/// Answered only where the request has the first answer in it.
const SECOND_ANSWER: &str = "This is the answer to the second message.";
/// The endpoint's figures.
const PLAIN_TOKENS: u64 = 1200 + 34;
const SECOND_TOKENS: u64 = 2100 + 21;

/// The endpoint where both machines reach it.
fn between(host: &Host, endpoint: &str) -> String {
    let listener = TcpListener::bind(format!("{}:0", host.address_of_here())).unwrap();
    let address = listener.local_addr().unwrap();
    let to = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(&to) else { continue };
            for (mut from, mut to) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far.try_clone().unwrap(), near.try_clone().unwrap()),
            ] {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    format!("http://{address}")
}

/// Fields are dropped in this order.
struct Stage {
    daemon: Daemon,
    host: Host,
    home: Home,
    _aimock: Aimock,
}

/// A daemon and a machine that have the program, each in a HOME of its own.
fn stage(cli: Cli, program: &str) -> Option<Stage> {
    if !cli.is_here() {
        return None;
    }
    let host = Host::start()?;
    let folder = repository(1, 1);
    let aimock = Aimock::start(folder.path());
    let url = between(&host, &aimock.url);
    let home = Home::new(&url);
    let variables = home.variables(cli, &url);
    let of = |name: &str| variables.iter().find(|(key, _)| *key == name).unwrap().1.clone();
    // The program as one has it there, with settings and a key for that endpoint, and no session.
    fs::create_dir_all(host.home().join(".local/bin")).unwrap();
    let names = [
        "PATH",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "IS_SANDBOX",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    ];
    let login: Vec<String> = names.iter().map(|name| format!("export {name}='{}'", of(name))).collect();
    let shell = format!("#!/bin/sh\n{}\nexec {program} \"$@\"\n", login.join("\n"));
    executable(&host.home().join(".local/bin").join(program), &shell);
    fs::create_dir_all(host.home().join(".codex")).unwrap();
    fs::copy(home.path().join(".codex/config.toml"), host.home().join(".codex/config.toml")).unwrap();
    let path = format!("{}:{}", host.path("bin").display(), of("PATH"));
    let mut given: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    given.push(("PATH", &path));
    let daemon = Daemon::start_in(Arc::clone(&folder), &given);
    wait_within(LIMIT, "the provider to be detected", || {
        let providers = daemon.get("/api/providers");
        let mine = providers.as_array()?.iter().find(|one| one["id"] == cli.provider())?;
        (mine["installed"] == true).then_some(())
    });
    add(&daemon, "box", "box");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    Some(Stage { daemon, host, home, _aimock: aimock })
}

fn goes_there_and_back_and_remembers(cli: Cli) {
    let program = if cli == Cli::Codex { "codex" } else { "claude" };
    let Some(Stage { daemon, host, home, _aimock }) = stage(cli, program) else { return };
    let body = json!({"role": "builder", "name": "one", "provider": cli.provider(), "model": cli.model(),
        "permission": "full", "isolation": "worktree", "prompt": "Please do REAL-PLAIN now."});
    daemon.post("/api/agents", &body);
    let told = || {
        let log = daemon.get("/api/agents/one/log?tail=1000");
        format!("{:#}\n{log:#}", daemon.get("/api/agents/one"))
    };
    let ended = |turns: u64| {
        let ended = wait_within(LIMIT, "the turn", || {
            let record = daemon.get("/api/agents/one");
            let is_over = ["completed", "crashed"].contains(&record["state"].as_str()?);
            (is_over && record["turns"] == turns || record["state"] == "crashed").then_some(record)
        });
        assert_eq!(ended["state"], "completed", "{}", told());
        ended
    };
    let first = ended(1);
    assert!(told().contains(PLAIN_ANSWER) && first["tokensUsed"] == PLAIN_TOKENS, "{}", told());
    let moves = |to: &str, message: &Value| {
        let mut body = json!({"runner": to});
        if message.is_string() {
            body["message"] = message.clone();
        }
        let (status, answer) = daemon.send("POST", "/api/agents/one/move", &body);
        assert_eq!((status, &answer["session"]), (200, &json!("goes")), "{answer:#}\n{}", told());
    };
    moves("box", &json!("Please do REAL-SECOND now."));
    let second = ended(2);
    assert!(told().contains(SECOND_ANSWER), "it knows what was said before: {}", told());
    assert_eq!((&second["sessionId"], &second["runner"]), (&first["sessionId"], &json!("box")));
    assert_eq!(second["tokensUsed"], PLAIN_TOKENS + SECOND_TOKENS, "no turn is counted twice");
    let session = first["sessionId"].as_str().unwrap();
    let records = |root: &std::path::Path| {
        let mut command = std::process::Command::new("find");
        let found = command.arg(root).args(["-name", &format!("*{session}.jsonl")]).output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let [there, here] = [host.home().as_path(), home.path()].map(records);
    assert_eq!((there.len(), here.len()), (1, 1), "{there:?} {here:?}");
    let is_longer = fs::metadata(&there[0]).unwrap().len() > fs::metadata(&here[0]).unwrap().len();
    assert!(is_longer, "it was written on there");
    moves("here", &Value::Null);
    assert_eq!(fs::read(&there[0]).unwrap(), fs::read(&records(home.path())[0]).unwrap());
    daemon.post("/api/agents/one/instruct", &json!({"message": "Please do REAL-PLAIN now."}));
    let third = ended(3);
    assert_eq!((&third["sessionId"], &third["runner"]), (&first["sessionId"], &Value::Null), "{third:#}");
    eprintln!("{program}: session {session} went there and back, {} tokens", third["tokensUsed"]);
}

#[test]
fn claude() {
    goes_there_and_back_and_remembers(Cli::Claude);
}

#[test]
fn codex() {
    goes_there_and_back_and_remembers(Cli::Codex);
}
