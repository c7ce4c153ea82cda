//! Fifty agents at once, ten thousand lines each, twenty WebSocket clients, one of which never reads: no line
//! is lost for the others, memory stays bounded, and the stuck one is closed with 1013.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::processes::resident_bytes;
use crate::support::wait::wait_within;
use memchr::memmem;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tungstenite::Message;
use tungstenite::protocol::frame::coding::CloseCode;

const AGENTS: usize = 50;
const LINES: u64 = 10_000;
const CLIENTS: usize = 20;
/// The daemon's resident memory must stay below this; idle it has a tenth of it.
const MEMORY_BYTES: u64 = 200 << 20;
/// On a loaded machine; alone it takes a tenth.
const LIMIT: Duration = Duration::from_secs(180);

/// What a message tells of its agent.
enum Told {
    /// It has written this line.
    Line(u64),
    Exit,
}

/// What one client saw: lines by agent, and how many have ended.
#[derive(Default)]
struct Seen {
    lines: BTreeMap<String, u64>,
    exits: usize,
}

#[test]
fn fifty_agents_flood_and_only_the_stuck_client_is_cut_off() {
    let folder = Arc::new(Folder::new("flood"));
    folder.write(".svc/config.json", r#"{"maxAgents": 60}"#);
    let scenario = json!({"description": "a flood", "steps": [
        {"waitForFile": {"path": "go", "timeoutMs": 120_000}},
        {"flood": {"lines": LINES, "bytes": 80}},
        {"answer": "done"},
    ]});
    folder.write(".svc/rehearsals/wave.json", &scenario.to_string());
    let daemon = Daemon::start_in(folder, &[]);
    let stuck_code = std::sync::Mutex::new(None);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut stuck = daemon.connect("");
        let (daemon_ref, code) = (&daemon, &stuck_code);
        scope.spawn(move || {
            // It reads nothing until the daemon has given it up; then what the system had buffered, and the
            // close.
            wait_within(LIMIT, "the stuck client to be cut off", || slow_closed(daemon_ref).then_some(()));
            let close = loop {
                match stuck.read() {
                    Ok(Message::Close(frame)) => break frame.map(|frame| frame.code),
                    Ok(_) => {}
                    Err(error) => panic!("cut off without a close: {error}"),
                }
            };
            *code.lock().unwrap() = close;
        });
        let clients: Vec<_> = (1..CLIENTS)
            .map(|n| {
                let socket = daemon.connect("?types=agent:output,agent:exit");
                let read = if n == 1 { parsed } else { searched };
                scope.spawn(move || follow(socket, read))
            })
            .collect();
        for _ in 0..AGENTS {
            daemon.spawn("wave");
        }
        let pid = daemon.pid();
        let done = &done;
        let peak = scope.spawn(move || {
            let mut peak = 0;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(resident_bytes(pid));
                std::thread::park_timeout(Duration::from_millis(50));
            }
            peak
        });
        // Also when a client panics: the scope waits for the thread that looks.
        let end = SetOnDrop(done);
        std::fs::write(daemon.project.join("go"), "").unwrap();
        for (n, client) in clients.into_iter().enumerate() {
            let seen = client.join().unwrap();
            assert_eq!(seen.lines.len(), AGENTS, "client {n}");
            for (agent, lines) in seen.lines {
                assert_eq!(lines, LINES, "client {n}, agent {agent}");
            }
        }
        drop(end);
        let peak = peak.join().unwrap();
        assert!(peak < MEMORY_BYTES, "the daemon took {peak} bytes");
    });
    assert_eq!(*stuck_code.lock().unwrap(), Some(CloseCode::Again), "1013");
    assert!(slow_closed(&daemon), "nobody else was cut off");
    assert_eq!(daemon.get("/api/health")["leaked"], 0);
}

/// Sets its flag when it goes.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether exactly one client was cut off.
fn slow_closed(daemon: &Daemon) -> bool {
    let metrics = daemon.send("GET", "/metrics", &Value::Null).1;
    metrics.as_str().unwrap().contains("svc_websocket_slow_closed_total 1\n")
}

/// Of `N of ..`.
fn number(words: &[u8]) -> u64 {
    let (digits, rest) = words.split_at(memchr::memchr(b' ', words).unwrap());
    assert!(rest.starts_with(b" of "), "{}", String::from_utf8_lossy(words));
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}

/// Reads a message whole: who, and what.
fn parsed(text: &str) -> Option<(String, Told)> {
    let frame: Value = serde_json::from_str(text).unwrap();
    let told = match frame["type"].as_str().unwrap() {
        "agent:output" if frame["data"]["subtype"] == "assistant" => {
            let words = frame["data"]["data"]["text"].as_str().unwrap().strip_prefix("line ")?;
            Told::Line(number(words.as_bytes()))
        }
        "agent:exit" => Told::Exit,
        _ => return None,
    };
    Some((frame["agentId"].as_str().unwrap().to_owned(), told))
}

/// As [`parsed`], by looking for words: nine million messages are too many to be made trees of.
fn searched(text: &str) -> Option<(String, Told)> {
    let behind = |words: &str| {
        memmem::find(text.as_bytes(), words.as_bytes()).map(|at| &text.as_bytes()[at + words.len()..])
    };
    let told = if let Some(line) = behind(r#""subtype":"assistant","data":{"text":"line "#) {
        Told::Line(number(line))
    } else if behind(r#""type":"agent:exit""#).is_some() {
        Told::Exit
    } else {
        return None;
    };
    let agent = behind(r#""agentId":""#).unwrap();
    let agent = &agent[..memchr::memchr(b'"', agent).unwrap()];
    Some((String::from_utf8(agent.to_vec()).unwrap(), told))
}

/// Reads until all agents have ended.
fn follow(
    mut socket: tungstenite::WebSocket<tungstenite::stream::MaybeTlsStream<std::net::TcpStream>>,
    read: fn(&str) -> Option<(String, Told)>,
) -> Seen {
    let mut seen = Seen::default();
    while seen.exits < AGENTS {
        let text = match socket.read().unwrap() {
            Message::Text(text) => text,
            Message::Close(frame) => panic!("a client that reads was cut off: {frame:?}"),
            _ => continue,
        };
        match read(&text) {
            Some((agent, Told::Line(line))) => {
                let count = seen.lines.entry(agent).or_default();
                *count += 1;
                assert_eq!(line, *count, "out of order: {text}");
            }
            Some((_, Told::Exit)) => seen.exits += 1,
            None => {}
        }
    }
    seen
}
