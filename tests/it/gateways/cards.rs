//! One approval is one message, also where the platform took it and the daemon did not hear that.

use super::*;
use crate::support::chat::{discord, slack, telegram};

const ASKED: &str = "Approval needed";

#[test]
fn discord_takes_a_card_once_over_a_lost_answer_and_kill_nine() {
    let (web, discord) = discord::Discord::start();
    let mut daemon = Daemon::start();
    let api = format!("http://127.0.0.1:{}/api/v10", web.port);
    let id = gateway(&daemon, "discord", &api, "55", &[("bot_token", discord::TOKEN)]);
    rehearse(&daemon);
    connect(&daemon, &id);
    let agent = worker(&daemon, "web");
    let asked = || discord.with(|state| state.messages.iter().filter(|one| one.2.contains(ASKED)).count());
    let tries = || {
        discord.with(|state| {
            let is_card = |one: &&(String, String, Value)| one.2["content"].to_string().contains(ASKED);
            state.calls.iter().filter(is_card).count()
        })
    };
    web.tear("channels/55/messages", ASKED);
    let first = approval(&daemon, &agent, "api/a.rs");
    wait_for("the card to be tried again", || (tries() == 2).then_some(()));
    assert_eq!(asked(), 1, "what was taken is not taken a second time");

    web.tear("channels/55/messages", ASKED);
    approval(&daemon, &agent, "api/b.rs");
    wait_for("the answer to be lost", || web.has_torn().then_some(()));
    daemon.kill();
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    wait_for("the card to be tried again", || (tries() >= 4).then_some(()));
    assert_eq!(asked(), 2, "nor by the next daemon");
    daemon.post(&format!("/api/approvals/{first}/approve"), &json!({}));
    wait_for("the first card to show the decision", || {
        discord.with(|state| state.messages.iter().any(|one| one.2.contains("Approved")).then_some(()))
    });
    // Another chat, and the first one again: there it is asked anew.
    let cards = asked();
    patch(&daemon, &id, &json!({"chatId": "56"}));
    patch(&daemon, &id, &json!({"chatId": "55"}));
    wait_for("the card in both chats", || (asked() > cards).then_some(()));
    wait_for("a card that asks in the chat that was left", || {
        discord.with(|state| {
            let asks = |one: &&(String, String, String, Value)| one.1 == "55" && one.3 != json!([]);
            state.messages.iter().any(|one| asks(&one) && one.2.contains(ASKED)).then_some(())
        })
    });
}

#[test]
fn slack_finds_its_card_again_where_the_bot_may_read() {
    let (web, slack) = slack::Slack::start();
    let daemon = Daemon::start();
    let api = format!("http://127.0.0.1:{}/api", web.port);
    let tokens = [("bot_token", slack::BOT_TOKEN), ("app_token", slack::APP_TOKEN)];
    let id = gateway(&daemon, "slack", &api, "C55", &tokens);
    connect(&daemon, &id);
    rehearse(&daemon);
    let agent = worker(&daemon, "web");
    let asked = || slack.with(|state| state.messages.iter().filter(|one| one.2.contains(ASKED)).count());
    let looks =
        || slack.with(|state| state.calls.iter().filter(|one| one.0 == "conversations.history").count());
    slack.with(|state| state.reads = true);
    web.tear("chat.postMessage", "ts");
    let first = approval(&daemon, &agent, "api/a.rs");
    wait_for("the card to be looked for", || (looks() == 1).then_some(()));
    daemon.post(&format!("/api/approvals/{first}/approve"), &json!({}));
    wait_for("the card to show the decision", || {
        slack.with(|state| state.messages.iter().any(|one| one.2.contains("Approved")).then_some(()))
    });
    assert_eq!(slack.with(|state| state.messages.len()), 1, "there is one");

    // Without the scope it is asked twice, rather than not at all.
    slack.with(|state| state.reads = false);
    web.tear("chat.postMessage", "ts");
    approval(&daemon, &agent, "api/b.rs");
    wait_for("the second card", || (asked() == 2).then_some(()));
    assert_eq!(looks(), 2);
}

#[test]
fn a_card_that_nobody_knew_of_shows_the_decision_when_it_is_clicked() {
    let (web, telegram) = telegram::Telegram::start();
    let mut daemon = Daemon::start();
    let api = format!("http://127.0.0.1:{}", web.port);
    let id = gateway(&daemon, "telegram", &api, "77", &[("bot_token", telegram::TOKEN)]);
    rehearse(&daemon);
    connect(&daemon, &id);
    let agent = worker(&daemon, "web");
    let cards = |part: &str| -> Vec<i64> {
        telegram
            .with(|state| state.messages.iter().filter(|one| one.2.contains(part)).map(|one| one.0).collect())
    };
    web.tear("sendMessage", "message_id");
    let wanted = approval(&daemon, &agent, "api/a.rs");
    wait_for("the answer to be lost", || web.has_torn().then_some(()));
    daemon.kill();
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    // Telegram takes the same message twice, and nobody can ask it for the first one.
    let both = wait_for("the second card", || Some(cards(ASKED)).filter(|cards| cards.len() == 2));
    telegram.clicks(5, both[0], &format!("/approve {wanted}"));
    wait_for("both cards to show the decision", || (cards("Approved by telegram:5") == both).then_some(()));
    assert_eq!(status_of(&daemon, &wanted), "approved");
}
