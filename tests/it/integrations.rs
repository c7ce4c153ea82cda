//! The integrations bridge of the built daemon, against a tool server of our own (`support/mcp_server.py`)
//! that does what servers do and should not do.

use crate::support::daemon::{Daemon, next_message};
use crate::support::folder::Folder;
use crate::support::mcp::{add, audit, exec, is_alive, record, text, tool_names};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn exec_runs_a_tool_and_the_result_comes_as_it_is() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    assert_eq!(record(&daemon, "hub")["running"], false, "lazily started");
    let (status, body) = exec(&daemon, "hub", "echo", &json!({"text": "grüße\n\u{2028}"}));
    assert_eq!(status, 200);
    assert_eq!(body["result"]["content"], json!([{"type": "text", "text": "grüße\n\u{2028}"}]));
    assert_eq!(body["result"]["structuredContent"]["text"], "grüße\n\u{2028}");
    let (status, body) = exec(&daemon, "hub", "fail", &json!({}));
    assert_eq!((status, &body["result"]["isError"]), (200, &json!(true)), "decisions 11: isError is 200");
    let (status, body) = exec(&daemon, "hub", "refuse", &json!({}));
    assert_eq!((status, &body["code"]), (400, &json!("server_error")), "a JSON-RPC error is 400: {body}");
    let (status, body) = exec(&daemon, "hub", "nonsense", &json!({}));
    assert_eq!(status, 400, "{body}");
    let record = record(&daemon, "hub");
    assert_eq!((&record["running"], &record["protocolVersion"]), (&json!(true), &json!("2025-06-18")));
    let events: Vec<_> = audit(&daemon.project)
        .iter()
        .map(|entry| entry["event"].as_str().unwrap().to_owned())
        .filter(|event| event.starts_with("integration.exec"))
        .collect();
    let [ran, failed] = ["integration.exec", "integration.exec.failed"];
    assert_eq!(events, [ran, ran, failed, failed]);
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn decisions_11_noise_paging_old_versions_and_changed_lists_are_met() {
    let daemon = Daemon::start();
    add(&daemon, "noisy", &["--noise", "--paging", "2", "--version", "2024-11-05"]);
    let names = tool_names(&daemon, "noisy");
    assert_eq!(names.len(), 13, "all pages: {names:?}");
    assert_eq!(record(&daemon, "noisy")["protocolVersion"], "2024-11-05");
    assert_eq!(text(&daemon, "noisy", "echo", &json!({"text": "through the noise"})), "through the noise");
    text(&daemon, "noisy", "grow", &json!({}));
    assert_eq!(tool_names(&daemon, "noisy").last().map(String::as_str), Some("grown"));
    add(&daemon, "future", &["--version", "2099-01-01"]);
    let (status, body) = exec(&daemon, "future", "echo", &json!({}));
    assert_eq!(status, 400);
    assert!(body["error"].as_str().unwrap().contains("2099-01-01"), "{body}");
}

#[test]
fn decisions_11_requests_of_the_server_with_our_ids_are_answered() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    let ask = |method: &str| -> Value {
        serde_json::from_str(&text(&daemon, "hub", "ask_client", &json!({"method": method}))).unwrap()
    };
    let roots = ask("roots/list");
    let uri = roots["result"]["roots"][0]["uri"].as_str().unwrap();
    assert_eq!(uri, format!("file://{}", daemon.project.display()));
    assert_eq!(ask("ping")["result"], json!({}));
    assert_eq!(ask("elicitation/create")["result"]["action"], "decline");
    assert!(ask("sampling/createMessage")["error"]["message"].is_string());
    assert_eq!(ask("nonsense")["error"]["code"], -32601);
}

#[test]
fn decisions_11_one_start_for_concurrent_first_calls() {
    let daemon = Daemon::start();
    let count = daemon.project.join("starts");
    add(&daemon, "hub", &["--count", count.to_str().unwrap()]);
    thread::scope(|scope| {
        for n in 0..20 {
            let daemon = &daemon;
            scope.spawn(move || {
                let said = text(daemon, "hub", "echo", &json!({"text": n.to_string()}));
                assert_eq!(said, n.to_string(), "each caller gets its own answer");
            });
        }
    });
    assert_eq!(std::fs::read_to_string(count).unwrap(), "start\n");
}

#[test]
fn states_crashes_are_told_and_three_fail_the_server_until_restart() {
    let folder = Arc::new(Folder::new("project"));
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    add(&daemon, "hub", &[]);
    for code in [0, 3] {
        let (status, body) = exec(&daemon, "hub", "crash", &json!({"code": code}));
        assert_eq!((status, &body["code"]), (400, &json!("server_crashed")));
        let error = body["error"].as_str().unwrap();
        assert!(
            error.contains(&format!("exited with code {code}")) && error.contains("about to crash"),
            "{error}"
        );
    }
    assert_eq!(text(&daemon, "hub", "echo", &json!({"text": "retried"})), "retried");
    for _ in 0..3 {
        assert_eq!(record(&daemon, "hub")["failed"], false, "a success resets the count");
        assert_eq!(exec(&daemon, "hub", "crash", &json!({})).0, 400);
    }
    assert_eq!(record(&daemon, "hub")["failed"], true);
    let (status, body) = exec(&daemon, "hub", "echo", &json!({"text": "x"}));
    assert_eq!((status, &body["code"]), (400, &json!("server_failed")));
    add(&daemon, "broken", &["--exit", "1"]);
    let (status, body) = exec(&daemon, "broken", "echo", &json!({}));
    assert_eq!(status, 400);
    assert!(body["error"].as_str().unwrap().contains("refusing to start"), "{body}");
    assert_eq!(daemon.stop(), Some(0));
    let daemon = Daemon::start_in(folder, &[]);
    assert_eq!(text(&daemon, "hub", "echo", &json!({"text": "again"})), "again", "installed and well again");
}

#[test]
fn states_an_idle_server_is_stopped_and_started_by_the_next_call() {
    let daemon = Daemon::start();
    let (status, _) = daemon.send("PATCH", "/api/config", &json!({"integrations": {"idleStopSeconds": 1}}));
    assert_eq!(status, 200);
    add(&daemon, "hub", &[]);
    let first = text(&daemon, "hub", "pid", &json!({}));
    wait_for("the idle server to stop", || (record(&daemon, "hub")["status"] == "stopped").then_some(()));
    assert!(!is_alive(&first));
    assert_ne!(text(&daemon, "hub", "pid", &json!({})), first);
    assert_eq!(record(&daemon, "hub")["lastError"], Value::Null);
}

/// Both only wait for half a minute, so they do it together.
#[test]
fn limits_and_states_a_call_and_an_initialize_get_30_s() {
    std::thread::scope(|scope| {
        scope.spawn(limits_a_35_s_tool_fails_at_30_s_and_its_late_reply_reaches_nobody);
        scope.spawn(states_a_server_that_never_answers_initialize_fails_its_caller_after_30_s);
    });
}

fn limits_a_35_s_tool_fails_at_30_s_and_its_late_reply_reaches_nobody() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    text(&daemon, "hub", "pid", &json!({}));
    let began = Instant::now();
    let (status, body) = exec(&daemon, "hub", "slow", &json!({"seconds": 35}));
    let took = began.elapsed();
    assert_eq!((status, &body["code"]), (400, &json!("server_timeout")), "{body}");
    assert!(took >= Duration::from_secs(30) && took < Duration::from_secs(34), "{took:?}");
    let seen = text(&daemon, "hub", "seen", &json!({}));
    assert!(seen.contains("notifications/cancelled"), "{seen}");
    // The late answer comes while other calls are made; each still gets its own.
    let log = daemon.project.join(".svc/logs/integrations/hub.log");
    let mut n = 0;
    wait_for("the late reply to have come", || {
        if n < 20 {
            assert_eq!(text(&daemon, "hub", "echo", &json!({"text": n.to_string()})), n.to_string());
            n += 1;
        }
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        (n == 20 && log.contains("an answer that nobody waits for")).then_some(())
    });
    assert_eq!(record(&daemon, "hub")["running"], true);
}

fn states_a_server_that_never_answers_initialize_fails_its_caller_after_30_s() {
    let daemon = Daemon::start();
    add(&daemon, "silent", &["--silent", "--stubborn"]);
    let began = Instant::now();
    let (status, body) = exec(&daemon, "silent", "echo", &json!({}));
    assert_eq!((status, &body["code"]), (400, &json!("server_timeout")), "{body}");
    assert!(began.elapsed() >= Duration::from_secs(30));
    wait_for("the stubborn server to be killed", || {
        (record(&daemon, "silent")["status"] == "stopped").then_some(())
    });
}

#[test]
fn decisions_11_a_server_gets_no_key_of_a_provider_and_leaves_no_process() {
    let folder = Arc::new(Folder::new("project"));
    let env = [("ANTHROPIC_API_KEY", "planted-secret-1"), ("OPENAI_API_KEY", "planted-secret-2")];
    let daemon = Daemon::start_in(folder, &env);
    add(&daemon, "hub", &[]);
    let environment = text(&daemon, "hub", "environment", &json!({}));
    assert!(environment.contains("\"PATH\""));
    for planted in ["planted-secret", "ANTHROPIC", "OPENAI"] {
        assert!(!environment.contains(planted), "{environment}");
    }
    let (pid, stray) = (text(&daemon, "hub", "pid", &json!({})), text(&daemon, "hub", "stray", &json!({})));
    assert!(is_alive(&pid) && is_alive(&stray));
    let (status, body) = daemon.send("DELETE", "/api/integrations/hub", &Value::Null);
    assert_eq!((status, &body["ok"]), (200, &json!(true)));
    assert!(!is_alive(&pid) && !is_alive(&stray), "gone when the answer comes, with all it started");
    add(&daemon, "stubborn", &["--stubborn"]);
    let (pid, stray) =
        (text(&daemon, "stubborn", "pid", &json!({})), text(&daemon, "stubborn", "stray", &json!({})));
    assert_eq!(daemon.stop(), Some(0));
    assert!(!is_alive(&pid) && !is_alive(&stray), "gone with the daemon");
}

#[test]
fn states_a_killed_daemons_servers_are_ended_by_the_next() {
    let folder = Arc::new(Folder::new("project"));
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    add(&daemon, "hub", &["--stubborn"]);
    let (pid, stray) = (text(&daemon, "hub", "pid", &json!({})), text(&daemon, "hub", "stray", &json!({})));
    daemon.kill();
    let next = Daemon::start_in(folder, &[]);
    assert!(!is_alive(&pid) && !is_alive(&stray));
    assert_eq!(text(&next, "hub", "echo", &json!({"text": "on"})), "on");
}

#[test]
fn exec_gated_tools_ask_a_person_and_two_callers_race_for_one_approval() {
    let daemon = Daemon::start();
    let mut events = daemon.connect("?types=approval:request,approval:resolved");
    add(&daemon, "hub", &[]);
    let sent = daemon.project.join("sent");
    let params = json!({"file": sent.to_str().unwrap()});
    let (status, body) = exec(&daemon, "hub", "send", &params);
    assert_eq!((status, &body["requiresApproval"]), (202, &json!(true)));
    let id = body["approvalId"].as_str().unwrap().to_owned();
    assert!(body["message"].as_str().unwrap().contains(&id));
    let mut told = |kind: &str| {
        loop {
            let message = next_message(&mut events);
            if message["type"] == kind {
                return message["data"].clone();
            }
        }
    };
    assert_eq!(told("approval:request")["id"], json!(id));
    assert!(!sent.exists());
    let retry = json!({"tool": "send", "params": params, "approvalId": id});
    let (status, body) = daemon.send("POST", "/api/integrations/hub/exec", &retry);
    assert_eq!((status, &body["approvalId"], &body["status"]), (202, &json!(id), &json!("pending")));
    daemon.post("/api/approvals", &json!({"id": id, "decision": "approve"}));
    assert_eq!(told("approval:resolved")["status"], "approved");
    let statuses: Vec<u16> = thread::scope(|scope| {
        let call = || daemon.send("POST", "/api/integrations/hub/exec", &retry).0;
        let racers = [scope.spawn(call), scope.spawn(call)];
        racers.map(|racer| racer.join().unwrap()).into()
    });
    let mut sorted = statuses.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [200, 403], "one runs");
    assert_eq!(std::fs::read_to_string(sent).unwrap(), "sent\n");
}

#[test]
fn exec_the_thirty_first_call_of_a_minute_is_429_with_the_words_of_the_specification() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    for _ in 0..30 {
        assert_eq!(exec(&daemon, "hub", "echo", &json!({"text": "x"})).0, 200);
    }
    let (status, body) = exec(&daemon, "hub", "echo", &json!({"text": "x"}));
    assert_eq!((status, &body["error"]), (429, &json!("Rate limit exceeded (30/min) for hub")));
    add(&daemon, "other", &[]);
    assert_eq!(exec(&daemon, "other", "echo", &json!({"text": "x"})).0, 200, "each has its own window");
}

#[test]
fn limits_a_message_above_16_mib_fails_its_call_and_nothing_else() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    assert_eq!(text(&daemon, "hub", "big", &json!({"bytes": 8 << 20})).len(), 8 << 20);
    let (status, body) = exec(&daemon, "hub", "big", &json!({"bytes": 17 << 20}));
    assert_eq!(status, 400);
    assert!(body["error"].as_str().unwrap().contains("16 MiB"), "{body}");
    assert_eq!(text(&daemon, "hub", "echo", &json!({"text": "on"})), "on");
}
