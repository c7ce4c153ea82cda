//! An answer goes where the question was asked: into the topic, or the thread.

use super::*;
use crate::support::chat::{discord, slack, telegram};

#[test]
fn telegram_answers_in_the_topic_and_in_the_chat_when_the_topic_is_gone() {
    let (web, telegram) = telegram::Telegram::start();
    let daemon = Daemon::start();
    let api = format!("http://127.0.0.1:{}", web.port);
    let id = gateway(&daemon, "telegram", &api, "-100:7", &[("bot_token", telegram::TOKEN)]);
    rehearse(&daemon);
    connect(&daemon, &id);
    let sent = |part: &str| {
        wait_for(&format!("a message with {part:?}"), || {
            telegram.with(|state| {
                let has_it =
                    |one: &&(String, Value)| one.1["text"].as_str().is_some_and(|text| text.contains(part));
                state.calls.iter().rev().find(has_it).map(|one| one.1.clone())
            })
        })
    };
    telegram.says_in_topic(5, -100, 9, "/start@svc_bot");
    let answer = sent("-100:9");
    assert_eq!((&answer["chat_id"], &answer["message_thread_id"]), (&json!("-100"), &json!(9)), "{answer}");
    telegram.says_in_topic(5, -100, 404, "/status@svc_bot");
    let answer = wait_for("the answer in the chat", || {
        telegram.with(|state| {
            let fallen = state.calls.windows(2).find(|two| two[0].1["message_thread_id"] == 404);
            fallen.map(|two| two[1].1.clone())
        })
    });
    assert_eq!((&answer["chat_id"], answer.get("message_thread_id")), (&json!("-100"), None), "{answer}");

    // The chat of a gateway may be a topic, too; what was sent there is found again.
    let agent = worker(&daemon, "web");
    let approval = approval(&daemon, &agent, "api/a.rs");
    let card = sent("Approval needed");
    assert_eq!((&card["chat_id"], &card["message_thread_id"]), (&json!("-100"), &json!(7)), "{card}");
    daemon.post(&format!("/api/approvals/{approval}/reject"), &json!({}));
    assert_eq!(sent("Rejected")["chat_id"], "-100");
}

#[test]
fn slack_answers_in_the_thread() {
    let (web, slack) = slack::Slack::start();
    let daemon = Daemon::start();
    let api = format!("http://127.0.0.1:{}/api", web.port);
    let tokens = [("bot_token", slack::BOT_TOKEN), ("app_token", slack::APP_TOKEN)];
    let id = gateway(&daemon, "slack", &api, "C55", &tokens);
    connect(&daemon, &id);
    slack.says_in_thread("Ev1", "U7", "help", "1700.000100");
    let answer = wait_for("the answer", || slack.with(|state| state.calls.first().map(|one| one.1.clone())));
    assert_eq!(
        (&answer["channel"], &answer["thread_ts"]),
        (&json!("C55"), &json!("1700.000100")),
        "{answer}"
    );
    assert!(answer["text"].as_str().unwrap().contains("C55:1700.000100"), "{answer}");
    slack.says("Ev2", "U7", "help");
    let answer = wait_for("the answer", || slack.with(|state| state.calls.get(1).map(|one| one.1.clone())));
    assert_eq!((&answer["channel"], answer.get("thread_ts")), (&json!("D55"), None), "{answer}");
}

/// There a thread is a channel.
#[test]
fn discord_answers_in_the_thread() {
    let (web, discord) = discord::Discord::start();
    let daemon = Daemon::start();
    let api = format!("http://127.0.0.1:{}/api/v10", web.port);
    let id = gateway(&daemon, "discord", &api, "55", &[("bot_token", discord::TOKEN)]);
    connect(&daemon, &id);
    discord.says_in("5599", "m-1", "7", &format!("<@{}> help", discord::BOT));
    let message = wait_for("the answer", || discord.with(|state| state.messages.first().cloned()));
    assert_eq!(message.1, "5599", "{message:?}");
}
