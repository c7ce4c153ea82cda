//! Watching files over WebSocket (specification: "Events", `file:changed`; decisions §13, File watching).

use crate::support::daemon::{Daemon, next_message};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

type Socket = WebSocket<MaybeTlsStream<TcpStream>>;

/// A client that gets nothing but what it asks for.
fn client(daemon: &Daemon) -> Socket {
    let mut socket = daemon.connect("?types=none");
    assert_eq!(next_message(&mut socket)["type"], "state");
    socket
}

fn say(socket: &mut Socket, kind: &str, path: &str) -> Value {
    socket.send(Message::text(json!({"type": kind, "path": path}).to_string())).unwrap();
    next_message(socket)
}

fn watch(socket: &mut Socket, path: &str) {
    let answer = say(socket, "watch", path);
    assert_eq!(
        (answer["type"].as_str(), answer["path"].as_str()),
        (Some("watching"), Some(path)),
        "{answer}"
    );
}

/// The next message; that it comes at all is the test, so there is a limit.
fn changed(socket: &mut Socket) -> Value {
    if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    }
    next_message(socket)
}

/// Whether something came before the answer to a ping, which is sent after `what` had its effect.
fn nothing_before_pong(socket: &mut Socket) {
    socket.send(Message::text(r#"{"type":"ping"}"#)).unwrap();
    assert_eq!(changed(socket)["type"], "pong");
}

#[test]
fn spec_file_changed_has_path_and_timestamp_and_only_those_who_asked_get_it() {
    let daemon = Daemon::start();
    fs::create_dir(daemon.project.join("src")).unwrap();
    fs::write(daemon.project.join("src/a.txt"), "one").unwrap();
    let (mut asked, mut other, mut folder) = (client(&daemon), client(&daemon), client(&daemon));
    watch(&mut asked, "src/a.txt");
    watch(&mut folder, "src");
    let before = svc_sys::clock::now().0;
    daemon.post("/api/files/write", &json!({"path": "src/a.txt", "content": "two"}));
    for socket in [&mut asked, &mut folder] {
        let message = changed(socket);
        assert_eq!(
            (message["type"].as_str(), message["path"].as_str()),
            (Some("file:changed"), Some("src/a.txt"))
        );
        assert!(message["timestamp"].as_u64().unwrap() >= before, "{message}");
        assert!(message["seq"].as_u64().is_some() && message["ts"].as_str().is_some());
    }
    nothing_before_pong(&mut other);
    // A neighbour is the folder's business only; a file that is not there yet can be watched.
    watch(&mut other, "src/later.txt");
    fs::write(daemon.project.join("src/later.txt"), "x").unwrap();
    assert_eq!(changed(&mut other)["path"], "src/later.txt");
    assert_eq!(changed(&mut folder)["path"], "src/later.txt");
    nothing_before_pong(&mut asked);
}

#[test]
fn spec_limits_the_debounce_is_300_ms() {
    let daemon = Daemon::start();
    let path = daemon.project.join("busy.txt");
    let mut socket = client(&daemon);
    watch(&mut socket, "busy.txt");
    let began = Instant::now();
    for n in 0..50 {
        fs::write(&path, n.to_string()).unwrap();
    }
    let last = Instant::now();
    assert_eq!(changed(&mut socket)["path"], "busy.txt");
    // The watcher may have seen the last write a moment before we looked at the clock.
    assert!(last.elapsed() >= Duration::from_millis(200), "{:?} after the last change", last.elapsed());
    assert!(began.elapsed() < Duration::from_secs(20));
    nothing_before_pong(&mut socket);
}

#[test]
fn decisions_13_watching_ends_with_unwatch_and_with_the_client() {
    let daemon = Daemon::start();
    fs::write(daemon.project.join("a"), "").unwrap();
    fs::write(daemon.project.join("b"), "").unwrap();
    let mut gone = client(&daemon);
    watch(&mut gone, "a");
    drop(gone);
    let mut socket = client(&daemon);
    watch(&mut socket, "a");
    watch(&mut socket, "b");
    assert_eq!(say(&mut socket, "unwatch", "a")["type"], "unwatched");
    assert_eq!(say(&mut socket, "unwatch", "a")["type"], "watch:failed");
    fs::write(daemon.project.join("a"), "1").unwrap();
    fs::write(daemon.project.join("b"), "1").unwrap();
    assert_eq!(changed(&mut socket)["path"], "b", "a is not watched any more");
}

#[test]
fn watches_are_bounded_and_lead_nowhere_outside() {
    let daemon = Daemon::start();
    std::os::unix::fs::symlink("/etc", daemon.project.join("out")).unwrap();
    let mut socket = client(&daemon);
    for path in ["../x", "/etc/passwd", "out/passwd", ".svc/token", "no/such/file"] {
        assert_eq!(say(&mut socket, "watch", path)["type"], "watch:failed", "{path}");
    }
    socket.send(Message::text(r#"{"type":"watch"}"#)).unwrap();
    assert_eq!(next_message(&mut socket)["code"], "validation_failed");
    for n in 0..256 {
        watch(&mut socket, &format!("file-{n}"));
    }
    assert_eq!(say(&mut socket, "watch", "one-more")["code"], "too_many_watches");
    watch(&mut socket, "file-0");
}
