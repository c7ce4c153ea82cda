//! Telegram, through the whole daemon.

use super::*;
use crate::support::chat::telegram::{TOKEN, Telegram, now};
use crate::support::chat::web::Web;
use std::sync::Arc;

fn start() -> (Web, Arc<Telegram>, Daemon, String) {
    let (web, telegram) = Telegram::start();
    let daemon = Daemon::start();
    let api = format!("http://127.0.0.1:{}", web.port);
    let id = gateway(&daemon, "telegram", &api, "77", &[("bot_token", TOKEN)]);
    rehearse(&daemon);
    (web, telegram, daemon, id)
}

/// Waits for a message with this in it: its id and text.
fn told(telegram: &Telegram, part: &str) -> (i64, String) {
    wait_for(&format!("a message with {part:?}"), || {
        telegram.with(|state| {
            let found = state.messages.iter().find(|one| one.2.contains(part));
            found.map(|one| (one.0, one.2.clone()))
        })
    })
}

#[test]
fn commands_are_taken_and_answered_and_audited_with_their_user() {
    let (_web, telegram, daemon, id) = start();
    let shown = connect(&daemon, &id);
    assert_eq!(shown["botUsername"], "svc_bot");
    telegram.says(4711, 77, "/spawn backend name=api model=hang build <all> & more");
    assert!(told(&telegram, "api was started (backend, script)").1.contains("id "));
    assert_eq!(daemon.get("/api/agents/api")["prompt"], "build <all> & more");
    telegram.says(4711, 77, "/agents@svc_bot");
    told(&telegram, "api backend");
    telegram.says(4711, 77, "/kill ap");
    told(&telegram, "api has ended");
    telegram.says(4711, 77, "/start");
    assert!(told(&telegram, "Commands").1.ends_with("This chat's id is 77, yours is 4711"));
    let entries = audited(&daemon, "gateway.command");
    assert_eq!(entries.len(), 4);
    assert!(entries.iter().all(|entry| entry["actor"] == "telegram:4711"), "{entries:?}");
    assert_eq!(audited(&daemon, "agent.delete")[0]["actor"], "telegram:4711");
    assert!(!daemon.log().contains(TOKEN), "the token is in no log");
}

#[test]
fn decisions_12_test_answers_ok_or_502_with_the_platforms_words() {
    let (_web, telegram, daemon, id) = start();
    let path = format!("/api/gateways/{id}/test");
    assert_eq!(daemon.send("POST", &path, &json!({})), (200, json!({"ok": true})));
    told(&telegram, &format!("Test from svc, gateway {id}"));
    patch(&daemon, &id, &json!({"chatId": "404"}));
    let (status, problem) = daemon.send("POST", &path, &json!({}));
    assert_eq!(status, 502);
    assert!(problem["error"].as_str().unwrap().contains("Bad Request: chat not found"), "{problem}");
    assert_eq!(daemon.send("POST", "/api/gateways/telegram-000000/test", &json!({})).0, 404);
    patch(&daemon, &id, &json!({"chatId": ""}));
    assert_eq!(daemon.send("POST", &path, &json!({})).0, 409);
}

#[test]
fn approvals_come_with_buttons_that_work_and_the_message_shows_the_decision() {
    let (_web, telegram, daemon, id) = start();
    connect(&daemon, &id);
    let agent = worker(&daemon, "web");
    let approval = approval(&daemon, &agent, "api/a.rs");
    let (message, text) = told(&telegram, "Approval needed");
    assert!(text.contains("web wants to write api/a.rs"), "{text}");
    let buttons =
        telegram.with(|state| state.messages.iter().find(|one| one.0 == message).unwrap().3.clone());
    assert_eq!(buttons[0][0]["callback_data"], format!("/approve {approval}"));
    patch(&daemon, &id, &json!({"allowedUsers": ["4711"]}));
    telegram.clicks(13, message, &format!("/approve {approval}"));
    wait_for("the refusal to be shown", || {
        telegram.with(|state| {
            let shown = state.calls.iter().find(|(method, _)| method == "answerCallbackQuery");
            shown.map(|(_, body)| assert!(body["text"].as_str().unwrap().contains("allowed users"), "{body}"))
        })
    });
    patch(&daemon, &id, &json!({"commandPermission": "read-only"}));
    telegram.clicks(4711, message, &format!("/approve {approval}"));
    wait_for("the permission to hold for buttons", || {
        telegram.with(|state| {
            let shown = |body: &Value| body["text"].as_str().unwrap().contains("is read-only");
            state
                .calls
                .iter()
                .any(|(method, body)| method == "answerCallbackQuery" && shown(body))
                .then_some(())
        })
    });
    assert_eq!(status_of(&daemon, &approval), "pending", "neither of them decided");
    patch(&daemon, &id, &json!({"commandPermission": "full"}));
    telegram.clicks(4711, message, &format!("/approve {approval}"));
    wait_for("the message to show the decision", || {
        telegram.with(|state| {
            let message = state.messages.iter().find(|one| one.0 == message).unwrap();
            (message.2.starts_with("Approved by telegram:4711") && message.3 == json!([])).then_some(())
        })
    });
    assert_eq!(status_of(&daemon, &approval), "approved");
}

#[test]
fn ambiguous_targets_are_asked_about_with_buttons() {
    let (_web, telegram, daemon, id) = start();
    connect(&daemon, &id);
    for name in ["build-1", "build-2"] {
        daemon.post(
            "/api/agents",
            &json!({"role": "dev", "name": name, "provider": "script", "model": "hang"}),
        );
    }
    telegram.says(5, 77, "/instruct build keep the tests green");
    let (message, text) = told(&telegram, "which one is build?");
    assert!(text.contains("1. build-1") && text.contains("2. build-2"), "{text}");
    let buttons =
        telegram.with(|state| state.messages.iter().find(|one| one.0 == message).unwrap().3.clone());
    let choice = buttons[0][1]["callback_data"].as_str().unwrap();
    telegram.clicks(5, message, choice);
    // It takes live input, so it is told at once.
    let heard = || {
        let log = daemon.get("/api/agents/build-2/log?tail=50");
        let entries = log["entries"].as_array().unwrap().clone();
        entries.iter().filter(|entry| entry["text"] == "keep the tests green").count()
    };
    wait_for("the instruction to arrive", || (heard() > 0).then_some(()));
    telegram.clicks(5, message, choice);
    wait_for("a second click to be refused", || {
        telegram.with(|state| {
            let old = |body: &Value| body["text"].as_str().unwrap_or_default().contains("too old");
            state
                .calls
                .iter()
                .any(|(method, body)| method == "answerCallbackQuery" && old(body))
                .then_some(())
        })
    });
    assert_eq!(heard(), 1);
}

#[test]
fn what_was_written_before_the_bot_was_set_up_is_no_command_and_the_menu_is_there() {
    let (web, telegram) = Telegram::start();
    telegram.said(now() - 3_600, 4711, 77, "/plan long ago");
    telegram.said(1, 4711, 77, "/plan in 1970");
    telegram.says(4711, 77, "/plan now");
    let daemon = Daemon::start();
    let api = format!("http://127.0.0.1:{}", web.port);
    let id = gateway(&daemon, "telegram", &api, "77", &[("bot_token", TOKEN)]);
    rehearse(&daemon);
    connect(&daemon, &id);
    told(&telegram, "planner");
    assert_eq!(prompts(&daemon), ["now"]);
    let menu =
        telegram.with(|state| state.calls.iter().find(|(method, _)| method == "setMyCommands").cloned());
    assert_eq!(menu.unwrap().1["commands"].as_array().unwrap().len(), 17);
}

#[test]
fn a_reason_that_looks_like_an_id_is_a_reason() {
    let (_web, telegram, daemon, id) = start();
    connect(&daemon, &id);
    let agent = worker(&daemon, "web");
    let asked = approval(&daemon, &agent, "api/a.rs");
    told(&telegram, "Approval needed");
    telegram.says(4711, 77, "/reject added twice already");
    wait_for("the decision", || (status_of(&daemon, &asked) == "rejected").then_some(()));
    assert_eq!(daemon.get(&format!("/api/approvals/{asked}"))["reason"], "added twice already");
    let asked = approval(&daemon, &agent, "api/b.rs");
    // What has digits is meant as an id, and no other approval is taken for it.
    telegram.says(4711, 77, "/approve 0a1b2c3d");
    told(&telegram, "no approval has the id");
    assert_eq!(status_of(&daemon, &asked), "pending");
}

#[test]
fn a_429_is_waited_for_and_the_message_comes_once() {
    let (_web, telegram, daemon, id) = start();
    connect(&daemon, &id);
    telegram.with(|state| {
        let body = json!({"ok": false, "error_code": 429, "description": "Too Many Requests: retry after 1",
            "parameters": {"retry_after": 1}});
        state.refusals.push_back((429, body));
        state.refusals.push_back((502, json!("bad gateway")));
    });
    telegram.says(5, 77, "/status");
    told(&telegram, "agents alive");
    telegram.with(|state| {
        let tries = state.calls.iter().filter(|(method, _)| method == "sendMessage").count();
        assert_eq!((tries, state.messages.len()), (3, 1));
    });
    assert_eq!(record(&daemon, &id)["connected"], true);
}

#[test]
fn long_answers_are_split_at_the_limit() {
    let (_web, telegram, daemon, id) = start();
    connect(&daemon, &id);
    let (status, _) = daemon.send("PATCH", "/api/config", &json!({"maxAgents": 40}));
    assert_eq!(status, 200);
    let role = "r".repeat(50);
    for n in 0..30 {
        let name = format!("{n:02}-{}", "n".repeat(60));
        daemon.post(
            "/api/agents",
            &json!({"role": role, "name": name, "provider": "script", "model": "quick"}),
        );
    }
    telegram.says(5, 77, "/brief");
    let brief = |state: &mut crate::support::chat::telegram::State| {
        let mine: Vec<String> = state.messages.iter().map(|one| one.2.clone()).collect();
        mine.iter().any(|text| text.contains("Ended in the last")).then_some(mine)
    };
    wait_within(LONG, "the brief", || telegram.with(brief));
    // The server itself refuses what is longer than 4096.
    telegram.with(|state| assert!(state.messages.iter().all(|one| one.2.encode_utf16().count() <= 4096)));
    assert_eq!(record(&daemon, &id)["lastError"], Value::Null);
}

#[test]
fn an_answer_that_is_cut_in_its_middle_is_asked_for_again() {
    let (web, telegram, daemon, id) = start();
    connect(&daemon, &id);
    web.tear("getUpdates", "/plan");
    telegram.says(5, 77, "/plan once");
    wait_for("the cut", || web.has_torn().then_some(()));
    told(&telegram, "planner");
    assert_eq!(audited(&daemon, "gateway.command").len(), 1);
    assert_eq!(prompts(&daemon), ["once"]);
}

#[test]
fn a_409_is_told_and_survived() {
    let (_web, telegram, daemon, id) = start();
    telegram.with(|state| state.conflicts = 2);
    let shown = daemon.post(&format!("/api/gateways/{id}/connect"), &json!({}));
    let error = shown["lastError"].as_str().unwrap_or_default();
    assert!(shown["connected"] == false && error.contains("terminated by other getUpdates"), "{shown}");
    wait_for("the connection to stand", || (record(&daemon, &id)["connected"] == true).then_some(()));
    telegram.says(5, 77, "/status");
    told(&telegram, "agents alive");
}

#[test]
fn a_wrong_token_is_fatal_and_told() {
    let (_web, _telegram, daemon, id) = start();
    daemon.post(
        &format!("/api/gateways/{id}/credentials"),
        &json!({"key": "bot_token", "value": "1:wrong-token"}),
    );
    let shown = daemon.post(&format!("/api/gateways/{id}/connect"), &json!({}));
    assert_eq!(shown["connected"], false);
    assert!(shown["lastError"].as_str().unwrap().contains("401: Unauthorized"), "{shown}");
    assert!(!daemon.log().contains("wrong-token"));
}

#[test]
fn no_command_is_lost_or_done_twice_over_cuts_and_kill_nine() {
    let (web, telegram, mut daemon, id) = start();
    connect(&daemon, &id);
    let folder = daemon.folder();
    let mut sent = 0;
    for round in 0..4 {
        for _ in 0..3 {
            telegram.says(5, 77, &format!("/plan task {sent}"));
            sent += 1;
        }
        if round % 2 == 0 {
            web.cut();
        } else {
            // Killed at any moment between the hand-over and the answer.
            let half = sent - 2;
            wait_for("some commands to be taken", || {
                (audited(&daemon, "gateway.command").len() >= half).then_some(())
            });
            daemon.kill();
            daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        }
    }
    let prompts = wait_within(LONG, "every command to have its one end", || {
        let list = daemon.get("/api/agents");
        let mut prompts: Vec<String> =
            list.as_array().unwrap().iter().map(|one| one["prompt"].as_str().unwrap().to_owned()).collect();
        prompts.sort();
        let before = prompts.len();
        prompts.dedup();
        assert_eq!(before, prompts.len(), "a command was done twice: {prompts:?}");
        let confessed = telegram
            .with(|state| state.messages.iter().filter(|one| one.2.contains("was not done again")).count());
        let refused =
            telegram.with(|state| state.messages.iter().filter(|one| one.2.contains("Refused: ")).count());
        (prompts.len() + confessed + refused >= sent).then_some(prompts)
    });
    assert!(prompts.len() >= 8, "most were done: {prompts:?}");
    // A daemon that is killed between its audit log and its state hears the same message again, and says so
    // twice.
    let mut commands: Vec<String> =
        audited(&daemon, "gateway.command").iter().map(|entry| entry["command"].to_string()).collect();
    commands.sort();
    commands.dedup();
    assert_eq!(commands.len(), sent, "each was taken");
    let all = 100 + i64::try_from(sent).unwrap();
    wait_for("the last offset", || telegram.with(|state| (state.confirmed == all).then_some(())));
}

#[test]
fn notifications_of_the_lifecycle_come_together_and_a_stop_is_quick() {
    let (_web, telegram, daemon, id) = start();
    connect(&daemon, &id);
    daemon.post(
        "/api/agents",
        &json!({"role": "dev", "name": "brief", "provider": "script", "model": "quick"}),
    );
    let (_, text) = told(&telegram, "brief was started");
    assert!(text.contains("brief completed"), "within 3 s they are one message: {text}");
    // A poll is open for 50 s; the daemon does not wait for it.
    let began = std::time::Instant::now();
    assert_eq!(daemon.stop(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
