//! What WebSocket clients get (decisions §3).

use crate::support::daemon::{Daemon, next_message};
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tungstenite::Message;
use tungstenite::protocol::frame::coding::CloseCode;

/// Messages up to and including the next exit of an agent.
fn until_exit(daemon: &Daemon, query: &str, run: impl FnOnce()) -> Vec<Value> {
    let mut socket = daemon.connect(query);
    let mut messages = vec![next_message(&mut socket)];
    run();
    while messages.last().is_none_or(|message| message["type"] != "agent:exit") {
        messages.push(next_message(&mut socket));
    }
    messages
}

fn kinds(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["type"].as_str().unwrap()).collect()
}

#[test]
fn decisions_3_every_message_has_type_seq_and_ts_and_state_comes_first() {
    let daemon = Daemon::start();
    let messages = until_exit(&daemon, "", || {
        daemon.spawn("default");
    });
    assert_eq!(messages[0]["type"], "state");
    assert_eq!(messages[0]["data"], json!([]));
    let mut last = 0;
    for message in &messages {
        let seq = message["seq"].as_u64().unwrap();
        assert!(seq >= last, "{message}");
        last = seq;
        assert!(message["ts"].as_str().unwrap().ends_with('Z'));
    }
    let state = messages.iter().rev().find(|message| message["type"] == "state").unwrap();
    assert!(
        ["starting", "running"].contains(&state["data"][0]["status"].as_str().unwrap()),
        "the fine word: {state}"
    );
}

#[test]
fn decisions_3_since_replays_what_was_missed_and_resync_tells_what_is_gone() {
    let daemon = Daemon::start();
    let query = "types=agent:output,agent:exit";
    let seen = until_exit(&daemon, &format!("?{query}"), || {
        daemon.spawn("default");
    });
    // From the middle of what one batch may have carried.
    let middle = seen.len() / 2;
    let since = seen[middle]["seq"].as_u64().unwrap();
    let mut socket = daemon.connect(&format!("?since={since}&{query}"));
    for expected in &seen[middle + 1..] {
        assert_eq!(&next_message(&mut socket), expected);
    }
    assert_eq!(next_message(&mut socket)["type"], "state");
    for gone in ["1", "9000000000000000"] {
        let mut socket = daemon.connect(&format!("?since={gone}"));
        let first = [next_message(&mut socket), next_message(&mut socket)];
        assert_eq!(kinds(&first), ["resync", "state"], "since={gone}");
    }
}

#[test]
fn decisions_3_types_filter_and_delta_instead_of_repeated_state() {
    let daemon = Daemon::start();
    let only = until_exit(&daemon, "?types=agent:exit", || {
        daemon.spawn("quick");
    });
    assert_eq!(kinds(&only), ["state", "agent:exit"]);

    let mut socket = daemon.connect("?delta=1&types=state,agent:exit");
    assert_eq!(next_message(&mut socket)["type"], "state");
    let id = daemon.spawn("quick");
    let mut deltas = |found: &dyn Fn(&Value) -> bool| loop {
        let message = next_message(&mut socket);
        match message["type"].as_str().unwrap() {
            "state:delta" if found(&message["data"]) => break,
            "state:delta" | "agent:exit" => {}
            other => panic!("{other} to a client that asked for deltas"),
        }
    };
    let completed = |record: &Value| record["id"] == json!(id) && record["status"] == "completed";
    deltas(&|data| data["changed"].as_array().unwrap().iter().any(completed));
    daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null);
    deltas(&|data| data["removed"].as_array().unwrap().contains(&json!(id)));
}

#[test]
fn decisions_3_a_ping_gets_a_pong_and_a_message_above_64_kib_is_1009() {
    let daemon = Daemon::start();
    let mut socket = daemon.connect("");
    next_message(&mut socket);
    socket.send(Message::text(r#"{"type":"ping"}"#)).unwrap();
    assert_eq!(next_message(&mut socket), json!({"type": "pong"}));
    socket.send(Message::Ping(vec![1, 2].into())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong(vec![1, 2].into()));
    socket.send(Message::text("x".repeat(70_000))).unwrap();
    let close = loop {
        if let Message::Close(frame) = socket.read().unwrap() {
            break frame.unwrap().code;
        }
    };
    assert_eq!(close, CloseCode::Size);
}

#[test]
fn clients_are_told_that_the_daemon_stops() {
    let daemon = Daemon::start();
    let mut socket = daemon.connect("?types=nothing");
    next_message(&mut socket);
    daemon.stop();
    let close = loop {
        if let Message::Close(frame) = socket.read().unwrap() {
            break frame.unwrap().code;
        }
    };
    assert_eq!(close, CloseCode::Away);
}

#[test]
fn a_daemon_that_was_suspended_goes_on_with_its_clients() {
    let daemon = Daemon::start();
    let mut socket = daemon.connect("?types=nothing");
    next_message(&mut socket);
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &daemon.pid().to_string()]).status().unwrap().success());
    };
    let is_suspended = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    };
    for _ in 0..3 {
        signal("-STOP");
        wait_for("the daemon to be suspended", || is_suspended().then_some(()));
        signal("-CONT");
        socket.send(Message::text(r#"{"type":"ping"}"#)).unwrap();
        assert_eq!(next_message(&mut socket), json!({"type": "pong"}));
    }
}

/// How long a flood and the end of the daemon take, with so many clients that read nothing.
fn flood_with_stuck_clients(stuck: usize) -> Duration {
    let folder = Arc::new(Folder::new("stuck"));
    let scenario = json!({"description": "a flood", "steps": [
        {"waitForFile": {"path": "go", "timeoutMs": 120_000}},
        {"flood": {"lines": 20_000, "bytes": 600}},
        {"answer": "done"},
    ]});
    folder.write(".svc/rehearsals/wave.json", &scenario.to_string());
    let daemon = Daemon::start_in(folder, &[]);
    let sockets: Vec<_> = (0..stuck).map(|_| daemon.connect("")).collect();
    let mut good = daemon.connect("?types=agent:exit");
    next_message(&mut good);
    daemon.spawn("wave");
    let begun = Instant::now();
    std::fs::write(daemon.project.join("go"), "").unwrap();
    assert_eq!(next_message(&mut good)["type"], "agent:exit");
    assert_eq!(daemon.stop(), Some(0));
    drop(sockets);
    begun.elapsed()
}

#[test]
fn forty_clients_that_do_not_read_cost_the_others_no_more_than_two() {
    let (two, forty) = (flood_with_stuck_clients(2), flood_with_stuck_clients(40));
    // One window of a second for all of them; the rest is for a loaded machine.
    assert!(forty < two + Duration::from_secs(15), "two cost {two:?}, forty {forty:?}");
}
