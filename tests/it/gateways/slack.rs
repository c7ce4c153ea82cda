//! Slack, through the whole daemon.

use super::*;
use crate::support::chat::slack::{APP_TOKEN, BOT_TOKEN, Slack};
use crate::support::chat::web::Web;
use std::sync::Arc;
use std::time::SystemTime;

fn start() -> (Web, Arc<Slack>, Daemon, String) {
    let (web, slack) = Slack::start();
    let daemon = Daemon::start();
    let api = format!("http://127.0.0.1:{}/api", web.port);
    let tokens = [("bot_token", BOT_TOKEN), ("app_token", APP_TOKEN)];
    let id = gateway(&daemon, "slack", &api, "C55", &tokens);
    rehearse(&daemon);
    connect(&daemon, &id);
    (web, slack, daemon, id)
}

fn told(slack: &Slack, part: &str) -> (String, String, Value) {
    wait_for(&format!("a message with {part:?}"), || {
        slack.with(|state| {
            let found = state.messages.iter().find(|one| one.2.contains(part));
            found.map(|one| (one.0.clone(), one.2.clone(), one.3.clone()))
        })
    })
}

fn acknowledged(slack: &Slack, count: usize) {
    wait_for(&format!("{count} acknowledgements"), || {
        slack.with(|state| (state.acknowledged.len() >= count).then_some(()))
    });
}

#[test]
fn messages_slash_commands_and_buttons_are_commands_acknowledged_in_3_seconds() {
    let (_web, slack, daemon, _id) = start();
    slack.says("Ev1", "U7", "spawn backend name=api model=hang a &lt;b&gt; &amp; c");
    told(&slack, "api was started");
    assert_eq!(daemon.get("/api/agents/api")["prompt"], "a <b> & c");
    slack.commands("t1", "U7", "/svc", "agents");
    let response = wait_for("the answer at the response address", || {
        slack.with(|state| state.responses.first().cloned())
    });
    assert!(response["text"].as_str().unwrap().contains("api backend"), "{response}");
    let agent = worker(&daemon, "web");
    let approval = approval(&daemon, &agent, "api/a.rs");
    let (ts, _, blocks) = told(&slack, "Approval needed");
    assert_eq!(blocks[1]["elements"][0]["value"], format!("/approve {approval}"));
    slack.clicks("t2", "U7", &format!("/approve {approval}"));
    wait_for("the message to show the decision", || {
        slack.with(|state| {
            let now = state.messages.iter().find(|one| one.0 == ts).unwrap();
            (now.2.contains("Approved") && now.3.as_array().unwrap().len() == 1).then_some(())
        })
    });
    assert_eq!(status_of(&daemon, &approval), "approved");
    slack.with(|state| {
        assert!(state.acknowledged.iter().all(|(_, took)| *took < Duration::from_secs(3)));
    });
    let users: Vec<_> = audited(&daemon, "gateway.command").iter().map(|one| one["actor"].clone()).collect();
    assert_eq!(users, [json!("slack:U7"), json!("slack:U7"), json!("slack:U7")]);
}

/// What a person may have thought better of meanwhile.
#[test]
fn a_button_that_was_pressed_long_ago_decides_nothing() {
    let (_web, slack, daemon, _id) = start();
    let approval = approval(&daemon, &worker(&daemon, "web"), "api/a.rs");
    told(&slack, "Approval needed");
    let wish = format!("/approve {approval}");
    slack.clicks_at("t1", "U7", &wish, SystemTime::now() - Duration::from_secs(20 * 60 + 5));
    wait_for("the presser to be told", || {
        let words = "that was pressed 20 minutes ago and was not done; press it again";
        slack.with(|state| state.responses.iter().any(|one| one.to_string().contains(words)).then_some(()))
    });
    assert_eq!(status_of(&daemon, &approval), "pending");
    assert_eq!(audited(&daemon, "gateway.stale").len(), 1);
    slack.clicks("t2", "U7", &wish);
    wait_for("the new one to count", || (status_of(&daemon, &approval) == "approved").then_some(()));
}

#[test]
fn a_redelivered_event_is_acknowledged_and_not_done_again() {
    let (_web, slack, daemon, _id) = start();
    slack.with(|state| (state.redeliver_ms, state.lose_acks) = (300, 2));
    slack.says("Ev1", "U7", "/plan once");
    acknowledged(&slack, 1);
    assert_eq!(daemon.get("/api/agents").as_array().unwrap().len(), 1);
    assert_eq!(audited(&daemon, "gateway.command").len(), 1);
}

#[test]
fn on_disconnect_the_new_connection_stands_before_the_old_one_goes() {
    let (_web, slack, daemon, id) = start();
    for reason in ["warning", "refresh_requested"] {
        let before = slack.with(|state| state.opened);
        slack.order(json!({"type": "disconnect", "reason": reason, "debug_info": {"host": "applink"}}));
        wait_for("another connection, and one only", || {
            slack.with(|state| (state.opened > before && state.connections == 1).then_some(()))
        });
    }
    assert!(slack.with(|state| state.at_once) >= 2, "the new one stood first");
    assert_eq!(record(&daemon, &id)["connected"], true);
    slack.says("Ev1", "U7", "status");
    told(&slack, "agents alive");
}

#[test]
fn a_cut_in_mid_stream_loses_nothing() {
    let (web, slack, daemon, _id) = start();
    slack.with(|state| state.redeliver_ms = 500);
    for n in 0..4 {
        slack.says(&format!("Ev{n}"), "U7", &format!("/plan task {n}"));
        if n % 2 == 1 {
            web.cut();
        }
    }
    acknowledged(&slack, 4);
    wait_for("all of them, once each", || {
        (prompts(&daemon) == ["task 0", "task 1", "task 2", "task 3"]).then_some(())
    });
}

#[test]
fn an_envelope_that_is_cut_in_its_middle_is_taken_when_it_comes_again() {
    let (_web, slack, daemon, _id) = start();
    slack.with(|state| (state.redeliver_ms, state.tear_next) = (300, true));
    slack.says("Ev1", "U7", "/plan once");
    acknowledged(&slack, 1);
    told(&slack, "planner");
    assert_eq!(prompts(&daemon), ["once"]);
    assert!(slack.with(|state| state.opened >= 2 && !state.tear_next));
}

#[test]
fn no_command_is_lost_or_done_twice_over_kill_nine() {
    let (_web, slack, mut daemon, _id) = start();
    slack.with(|state| state.redeliver_ms = 300);
    let folder = daemon.folder();
    for n in 0..6 {
        slack.says(&format!("Ev{n}"), "U7", &format!("/plan task {n}"));
        if n % 3 == 2 {
            // At any moment between the hand-over and the answer.
            acknowledged(&slack, n - 1);
            daemon.kill();
            daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        }
    }
    acknowledged(&slack, 6);
    wait_for("every command to have its one end", || {
        let done = prompts(&daemon);
        let mut once = done.clone();
        once.dedup();
        assert_eq!(done, once, "a command was done twice");
        let confessed =
            slack.with(|state| state.messages.iter().filter(|one| one.2.contains("not done again")).count());
        (done.len() + confessed >= 6).then_some(())
    });
    let entries = audited(&daemon, "gateway.command");
    let mut commands: Vec<String> = entries.iter().map(|entry| entry["command"].to_string()).collect();
    commands.sort();
    commands.dedup();
    assert_eq!(commands.len(), 6, "each was taken: {commands:?}");
}

#[test]
fn decisions_12_long_answers_are_split_at_3000() {
    let (_web, slack, daemon, id) = start();
    slack.says("Ev1", "U7", &unknown(6_500));
    told(&slack, "lists them");
    // The server itself refuses what is longer.
    let pieces = slack.with(|state| state.messages.iter().map(|one| one.2.clone()).collect::<Vec<_>>());
    assert_eq!(pieces.len(), 3, "{pieces:?}");
    assert_eq!(pieces.concat().matches('n').count(), 6_500 + "there is no command".matches('n').count());
    assert!(record(&daemon, &id)["lastError"].is_null());
}

#[test]
fn a_connection_too_many_is_tried_again_and_a_disabled_link_is_the_end() {
    let (_web, slack, daemon, id) = start();
    let before = slack.with(|state| state.opened);
    slack.order(json!({"type": "disconnect", "reason": "too_many_websockets"}));
    // One only: the old one must not get the next order.
    wait_for("another connection, and one only", || {
        slack.with(|state| (state.opened > before && state.connections == 1).then_some(()))
    });
    wait_for("it to be told", || (record(&daemon, &id)["connected"] == true).then_some(()));
    slack.order(json!({"type": "disconnect", "reason": "link_disabled"}));
    let shown = wait_for("the end", || {
        let record = record(&daemon, &id);
        record["lastError"].as_str().is_some_and(|words| words.contains("switched off")).then_some(record)
    });
    assert_eq!(shown["connected"], false);
}

#[test]
fn a_429_is_waited_for_and_a_refusal_is_told() {
    let (_web, slack, daemon, id) = start();
    slack.with(|state| {
        let wait = vec![("Retry-After", "1".to_owned())];
        state.refusals.push_back((429, wait, json!({"ok": false, "error": "ratelimited"})));
    });
    slack.says("Ev1", "U7", "status");
    told(&slack, "agents alive");
    patch(&daemon, &id, &json!({"chatId": "C404"}));
    let (status, problem) = daemon.send("POST", &format!("/api/gateways/{id}/test"), &json!({}));
    assert_eq!(status, 502);
    assert!(problem["error"].as_str().unwrap().contains("channel_not_found"), "{problem}");
}

#[test]
fn nothing_an_agent_writes_is_markup() {
    let (_web, slack, daemon, _id) = start();
    let agent = worker(&daemon, "web");
    approval(&daemon, &agent, "api/~*_safe_*~ <!channel> `x` *Approved by slack:U7*.rs");
    let (_, _, blocks) = told(&slack, "Approval needed");
    assert_eq!(blocks[0]["type"], "rich_text", "{blocks}");
    let elements = blocks[0]["elements"][0]["elements"].as_array().unwrap();
    let holds = |element: &&Value| element["text"].as_str().unwrap().contains("*Approved by slack:U7*");
    let said = elements.iter().find(holds).unwrap();
    assert!(said["style"].is_null(), "{said}");
    assert!(said["text"].as_str().unwrap().contains("~*_safe_*~ <!channel> `x`"), "{said}");
    let unparsed = |(_, body): &&(String, Value)| body["mrkdwn"] == false;
    assert!(slack.with(|state| {
        let posts = state.calls.iter().filter(|(method, _)| method == "chat.postMessage");
        posts.clone().count() > 0 && posts.clone().count() == posts.filter(unparsed).count()
    }));
}

/// The gateway ends, with these words.
fn over(daemon: &Daemon, id: &str, words: &str) {
    wait_within(LONG, words, || {
        let shown = record(daemon, id);
        let told = shown["lastError"].as_str().is_some_and(|error| error.contains(words));
        (told && shown["connected"] == false).then_some(())
    });
}

#[test]
fn a_revoked_token_is_noticed_by_event_by_refusal_and_with_the_next_connection() {
    let (_web, slack, daemon, id) = start();
    slack.happens("Ev1", &json!({"type": "tokens_revoked", "tokens": {"oauth": [], "bot": ["U900"]}}));
    over(&daemon, &id, "tokens_revoked");
    connect(&daemon, &id);
    slack.with(|state| state.revoked = true);
    slack.says("Ev2", "U7", "status");
    over(&daemon, &id, "token_revoked");
    slack.with(|state| state.revoked = false);
    connect(&daemon, &id);
    slack.with(|state| state.revoked = true);
    slack.order(json!({"type": "disconnect", "reason": "refresh_requested"}));
    over(&daemon, &id, "token_revoked");
}

#[test]
fn a_wrong_token_is_fatal_and_told() {
    let (_web, _slack, daemon, id) = start();
    daemon.post(
        &format!("/api/gateways/{id}/credentials"),
        &json!({"key": "app_token", "value": "xapp-wrong-one"}),
    );
    let shown = wait_for("the end", || {
        let record = record(&daemon, &id);
        record["lastError"].is_string().then_some(record)
    });
    assert_eq!(shown["connected"], false);
    assert!(shown["lastError"].as_str().unwrap().contains("invalid_auth"), "{shown}");
}
