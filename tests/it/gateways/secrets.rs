//! The tokens of the bots: they reach their platform, and nothing else; and nobody reaches us from outside.

use super::*;
use crate::support::chat::web::{Answer, Asked, Platform, Web};
use crate::support::chat::{discord, slack, telegram};
use crate::support::daemon::next_message;
use crate::support::processes;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use tungstenite::WebSocket;

/// Parts of the tokens that stand nowhere else.
const SECRETS: [&str; 4] = ["abcdefghijklmnop", discord::TOKEN, slack::BOT_TOKEN, slack::APP_TOKEN];

/// A server in a platform's place that fails, and says back all that it was asked.
struct Echo;

impl Platform for Echo {
    fn answer(&self, asked: &Asked) -> Answer {
        let said = format!("no {} {} for {}", asked.method, asked.path, asked.header("authorization"));
        (400, Vec::new(), json!({"ok": false, "error": said, "message": said, "description": said}))
    }

    fn socket(self: Arc<Self>, _: &Asked, _: WebSocket<TcpStream>) {}
}

/// Each kind with its token.
fn tokens() -> [(&'static str, Vec<(&'static str, &'static str)>); 3] {
    [
        ("telegram", vec![("bot_token", telegram::TOKEN)]),
        ("discord", vec![("bot_token", discord::TOKEN)]),
        ("slack", vec![("bot_token", slack::BOT_TOKEN), ("app_token", slack::APP_TOKEN)]),
    ]
}

fn collect_files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect_files(&path, found);
        } else if let Ok(bytes) = fs::read(&path) {
            found.push((path.display().to_string(), bytes));
        }
    }
}

fn assert_clean(place: &str, bytes: &[u8]) {
    for secret in SECRETS {
        let stands = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!stands, "{secret} stands in {place}: {}", String::from_utf8_lossy(bytes));
    }
}

/// Ports on which a process listens; `None` where this user may not look at its descriptors.
fn listening(pid: u32) -> Option<BTreeSet<String>> {
    let links = match fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
        links => links.unwrap().flatten(),
    };
    let ours: BTreeSet<String> = links
        .filter_map(|link| fs::read_link(link.path()).ok())
        .filter_map(|target| {
            Some(target.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
        })
        .collect();
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // State 0A is LISTEN.
            if fields[3] == "0A" && ours.contains(fields[9]) {
                ports.insert(fields[1].to_owned());
            }
        }
    }
    Some(ports)
}

/// Three gateways that work, each asked for something.
fn working(daemon: &Daemon) -> (Vec<Web>, String) {
    let (telegram_web, telegram) = telegram::Telegram::start();
    let (discord_web, discord) = discord::Discord::start();
    discord.with(|state| state.interval_ms = 41_250);
    let (slack_web, slack) = slack::Slack::start();
    let webs = vec![telegram_web, discord_web, slack_web];
    for ((kind, tokens), web) in tokens().iter().zip(&webs) {
        let base = match *kind {
            "telegram" => String::new(),
            "discord" => "/api/v10".to_owned(),
            _ => "/api".to_owned(),
        };
        let id = gateway(daemon, kind, &format!("http://127.0.0.1:{}{base}", web.port), "77", tokens);
        connect(daemon, &id);
    }
    telegram.says(5, 77, "/spawn dev model=hang");
    discord.says("m-1", "7", &format!("<@{}> /status", discord::BOT));
    slack.says("Ev1", "U7", "/status");
    let said = wait_for("three answers", || {
        let theirs: String = telegram.with(|state| state.messages.iter().map(|one| one.2.clone()).collect());
        let his: String = discord.with(|state| state.messages.iter().map(|one| one.2.clone()).collect());
        let its: String = slack.with(|state| state.messages.iter().map(|one| one.2.clone()).collect());
        let all = [&theirs, &his, &its].iter().all(|text| !text.is_empty());
        all.then(|| [theirs, his, its].concat())
    });
    (webs, said)
}

/// The same gateways at a server that says the token back, and where there is no server; what they were
/// answered.
fn failing(daemon: &Daemon) -> (Web, String) {
    let (web, _) = Web::start(|_| Arc::new(Echo));
    let mut said = String::new();
    for base in [format!("http://127.0.0.1:{}", web.port), "http://127.0.0.1:1".to_owned()] {
        for one in daemon.get("/api/gateways").as_array().unwrap() {
            let id = one["id"].as_str().unwrap();
            patch(daemon, id, &json!({"apiBase": base}));
            for what in ["connect", "test"] {
                let (_, answer) = daemon.send("POST", &format!("/api/gateways/{id}/{what}"), &json!({}));
                let _ = writeln!(said, "{answer}");
            }
            let _ = writeln!(said, "{}", record(daemon, id));
        }
    }
    (web, said)
}

#[test]
fn issue_6_the_tokens_stand_nowhere_but_sealed() {
    let daemon = Daemon::start();
    rehearse(&daemon);
    let mut events = daemon.connect("");
    let (_webs, messages) = working(&daemon);
    let (_web, answers) = failing(&daemon);
    assert!(answers.contains("****"), "the server did say them back: {answers}");
    assert_clean("messages", messages.as_bytes());
    assert_clean("answers", answers.as_bytes());
    for path in
        ["/api/gateways", "/api/credentials", "/api/audit", "/api/agents", "/api/config", "/api/timeline"]
    {
        assert_clean(path, daemon.get(path).to_string().as_bytes());
    }
    let mut pids = wait_for("an agent's process", || {
        Some(processes::of_project(&daemon.project)).filter(|pids| !pids.is_empty())
    });
    pids.push(daemon.pid());
    for pid in pids {
        for part in ["cmdline", "environ"] {
            let path = format!("/proc/{pid}/{part}");
            assert_clean(&path, &fs::read(&path).unwrap_or_default());
        }
    }
    let ports = listening(daemon.pid());
    assert!(ports.is_none_or(|ports| ports.len() == 1), "connections are outbound-only");
    let gone = daemon.get("/api/gateways");
    for one in gone.as_array().unwrap() {
        let (status, _) =
            daemon.send("DELETE", &format!("/api/gateways/{}", one["id"].as_str().unwrap()), &Value::Null);
        assert_eq!(status, 200);
    }
    loop {
        let event = next_message(&mut events);
        assert_clean("an event", event.to_string().as_bytes());
        if event["type"] == "gateway:status" && event["data"] == json!([]) {
            break;
        }
    }
    let mut files = Vec::new();
    collect_files(&daemon.project, &mut files);
    assert!(files.iter().any(|(name, _)| name.ends_with("daemon.log")), "the log is among them");
    for (name, bytes) in &files {
        assert_clean(name, bytes);
    }
}
