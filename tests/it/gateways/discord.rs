//! Discord, through the whole daemon.

use super::*;
use crate::support::chat::discord::{BOT, Discord, Order, TOKEN};
use crate::support::chat::web::Web;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

fn start(interval_ms: u64) -> (Web, Arc<Discord>, Daemon, String) {
    let (web, discord) = Discord::start();
    discord.with(|state| state.interval_ms = interval_ms);
    let daemon = Daemon::start();
    let api = format!("http://127.0.0.1:{}/api/v10", web.port);
    let id = gateway(&daemon, "discord", &api, "55", &[("bot_token", TOKEN)]);
    rehearse(&daemon);
    connect(&daemon, &id);
    (web, discord, daemon, id)
}

fn told(discord: &Discord, part: &str) -> (String, String, Value) {
    wait_for(&format!("a message with {part:?}"), || {
        discord.with(|state| {
            let found = state.messages.iter().find(|one| one.2.contains(part));
            found.map(|one| (one.0.clone(), one.2.clone(), one.3.clone()))
        })
    })
}

fn heard(discord: &Discord, op: u64, count: usize) -> Value {
    wait_for(&format!("opcode {op} for the {count}. time"), || {
        discord.with(|state| state.heard.iter().filter(|one| one["op"] == op).nth(count - 1).cloned())
    })
}

fn ready(discord: &Discord) {
    wait_for("the session", || discord.with(|state| state.ready).then_some(()));
}

#[test]
fn identify_asks_for_no_privileged_intent_and_commands_are_registered() {
    let (_web, discord, _daemon, _id) = start(41_250);
    let identify = heard(&discord, 2, 1);
    let intents = identify["d"]["intents"].as_u64().unwrap();
    assert_eq!(intents & (1 << 15 | 1 << 1 | 1 << 8), 0, "MESSAGE_CONTENT, GUILD_MEMBERS, GUILD_PRESENCES");
    assert_ne!(intents & (1 << 9), 0);
    let registered = wait_for("the slash commands", || {
        discord.with(|state| state.calls.iter().find(|(method, ..)| method == "PUT").cloned())
    });
    assert_eq!(registered.1, "applications/901/commands");
    let list = registered.2.as_array().unwrap();
    assert_eq!(list.len(), 17);
    for command in list {
        assert!((1..=100).contains(&command["description"].as_str().unwrap().chars().count()), "{command}");
    }
}

#[test]
fn messages_slash_commands_and_buttons_are_commands() {
    let (_web, discord, daemon, id) = start(41_250);
    discord.says("m-1", "7", &format!("<@{BOT}> /spawn backend name=api model=hang do *it* @everyone"));
    let (_, text, _) = told(&discord, "api** was started");
    assert!(text.contains(r"\(backend, script\)"), "escaped: {text}");
    discord.says("m-2", "7", "just talk between people");
    discord.interacts("i-1", "7", 2, &json!({"name": "agents", "options": []}));
    wait_for("the answer in place of the wait", || {
        discord.with(|state| {
            let path = "webhooks/901/toki-1/messages/@original";
            state.calls.iter().any(|(method, p, _)| method == "PATCH" && p == path).then_some(())
        })
    });
    discord.with(|state| {
        let ack = state.calls.iter().find(|(_, path, _)| path == "interactions/i-1/toki-1/callback").unwrap();
        assert_eq!(ack.2["type"], 5);
    });
    let agent = worker(&daemon, "web");
    let approval = approval(&daemon, &agent, "api/a.rs");
    let (message, _, rows) = told(&discord, "Approval needed");
    assert_eq!(rows[0]["components"][0]["custom_id"], format!("/approve {approval}"));
    discord.interacts(
        "i-2",
        "7",
        3,
        &json!({"component_type": 2, "custom_id": format!("/reject {approval}")}),
    );
    wait_for("the message to show the decision", || {
        discord.with(|state| {
            let now = state.messages.iter().find(|one| one.0 == message).unwrap();
            (now.2.contains("Rejected") && now.3 == json!([])).then_some(())
        })
    });
    discord.with(|state| {
        let ack = state.calls.iter().find(|(_, path, _)| path == "interactions/i-2/toki-2/callback").unwrap();
        assert_eq!(ack.2["type"], 6);
    });
    assert_eq!(status_of(&daemon, &approval), "rejected");
    assert_eq!(audited(&daemon, "gateway.command").len(), 3, "talk is none of ours");
    assert!(record(&daemon, &id)["lastError"].is_null());
}

/// The id of something that is made at this moment, as Discord numbers it.
fn made(at: SystemTime) -> String {
    let millis = at.duration_since(UNIX_EPOCH + Duration::from_secs(1_420_070_400)).unwrap().as_millis();
    (millis << 22).to_string()
}

/// What a person may have thought better of meanwhile.
#[test]
fn a_button_that_was_pressed_long_ago_decides_nothing() {
    let (_web, discord, daemon, _id) = start(41_250);
    let approval = approval(&daemon, &worker(&daemon, "web"), "api/a.rs");
    told(&discord, "Approval needed");
    let press = json!({"component_type": 2, "custom_id": format!("/approve {approval}")});
    let old = made(SystemTime::now() - Duration::from_secs(20 * 60 + 5));
    discord.interacts(&old, "7", 3, &press);
    let answer = wait_for("the presser to be told", || {
        let path = format!("interactions/{old}/tok{old}/callback");
        discord
            .with(|state| state.calls.iter().find(|(_, at, _)| *at == path).map(|(_, _, body)| body.clone()))
    });
    let words = answer["data"]["content"].as_str().unwrap();
    assert!(words.contains("that was pressed 20 minutes ago and was not done; press it again"), "{answer}");
    assert_eq!(status_of(&daemon, &approval), "pending");
    discord.interacts(&made(SystemTime::now()), "7", 3, &press);
    wait_for("the new one to count", || (status_of(&daemon, &approval) == "approved").then_some(()));
}

#[test]
fn an_interaction_is_acknowledged_before_it_is_answered_and_strangers_alone_see_their_refusal() {
    let (_web, discord, daemon, id) = start(41_250);
    // The server knows no webhook of what was not acknowledged, as Discord: an answer that overtakes the
    // acknowledgement would become a message in the channel.
    for n in 0..10 {
        if n % 2 == 1 {
            let busy = json!({"message": "You are being rate limited.", "retry_after": 0.2, "global": false});
            discord.with(|state| state.callback_refusals.push_back((429, busy)));
        }
        discord.interacts(&format!("i-{n}"), "7", 2, &json!({"name": "status", "options": []}));
    }
    wait_within(LONG, "all answers", || {
        let count = discord.with(|state| state.messages.iter().filter(|one| one.1 == "interaction").count());
        (count == 10).then_some(())
    });
    discord.with(|state| {
        assert!(state.messages.iter().all(|one| one.1 == "interaction"), "{:?}", state.messages);
    });
    assert!(record(&daemon, &id)["lastError"].is_null());
    patch(&daemon, &id, &json!({"allowedUsers": ["7"]}));
    for n in ["s-1", "s-2"] {
        discord.interacts(n, "8", 2, &json!({"name": "status", "options": []}));
        let path = format!("interactions/{n}/tok{n}/callback");
        let body = wait_for("the refusal", || {
            discord.with(|state| state.calls.iter().find(|one| one.1 == path).map(|one| one.2.clone()))
        });
        assert_eq!((&body["type"], &body["data"]["flags"]), (&json!(4), &json!(64)), "{body}");
        assert!(body["data"]["content"].as_str().unwrap().contains("allowed users"), "{body}");
    }
}

#[test]
fn a_session_outlives_an_outage() {
    let (web, discord, daemon, _id) = start(41_250);
    discord.says("m-1", "7", &format!("<@{BOT}> /plan one"));
    told(&discord, "planner");
    web.set_down(true);
    discord.says("m-2", "7", &format!("<@{BOT}> /plan two"));
    // The session's own address three times, then the general one.
    wait_within(LONG, "several tries", || (web.refused() >= 4).then_some(()));
    web.set_down(false);
    wait_within(LONG, "what was said meanwhile", || (prompts(&daemon) == ["one", "two"]).then_some(()));
    assert_eq!(discord.with(|state| state.heard.iter().filter(|one| one["op"] == 2).count()), 1);
    assert!(
        discord
            .with(|state| { state.calls.iter().filter(|(_, path, _)| path == "gateway/bot").count() >= 2 })
    );
}

#[test]
fn one_token_serves_one_gateway() {
    let (web, _discord, daemon, id) = start(41_250);
    let api = format!("http://127.0.0.1:{}/api/v10", web.port);
    let other = gateway(&daemon, "discord", &api, "56", &[]);
    let path = format!("/api/gateways/{other}/credentials");
    let (status, problem) = daemon.send("POST", &path, &json!({"key": "bot_token", "value": TOKEN}));
    assert_eq!((status, &problem["code"]), (409, &json!("token_in_use")), "{problem}");
    assert!(problem["error"].as_str().unwrap().contains(&id), "{problem}");
    let (status, _) =
        daemon.send("POST", &path, &json!({"key": "bot_token", "value": "another.token-it-is"}));
    assert_eq!(status, 200);
}

#[test]
fn the_heartbeat_is_kept_and_a_dead_connection_is_resumed() {
    let (_web, discord, daemon, id) = start(150);
    heard(&discord, 1, 3);
    discord.with(|state| state.acknowledge = false);
    let resume = heard(&discord, 6, 1);
    assert_eq!((&resume["d"]["session_id"], &resume["d"]["token"]), (&json!("session-1"), &json!(TOKEN)));
    let code = discord.with(|state| state.closed);
    assert!(code.is_none_or(|code| code != 1000 && code != 1001), "the session is not ended: {code:?}");
    discord.with(|state| state.acknowledge = true);
    ready(&discord);
    wait_for("the connection", || (record(&daemon, &id)["connected"] == true).then_some(()));
    // A heartbeat that the server asks for comes at once.
    let before = discord.with(|state| state.heard.iter().filter(|one| one["op"] == 1).count());
    discord.order(Order::Frame(json!({"op": 1, "d": null})));
    heard(&discord, 1, before + 1);
}

#[test]
fn op_7_and_lost_connections_resume_without_losing_a_command() {
    let (web, discord, daemon, _id) = start(41_250);
    discord.says("m-1", "7", &format!("<@{BOT}> /plan one"));
    told(&discord, "planner");
    discord.order(Order::Frame(json!({"op": 7, "d": null})));
    wait_for("the connection to go", || discord.with(|state| !state.ready).then_some(()));
    discord.says("m-2", "7", &format!("<@{BOT}> /plan two"));
    let resume = heard(&discord, 6, 1);
    assert!(resume["d"]["seq"].as_u64().unwrap() >= 2, "{resume}");
    ready(&discord);
    web.cut();
    wait_for("the connection to go", || discord.with(|state| !state.ready).then_some(()));
    discord.says("m-3", "7", &format!("<@{BOT}> /plan three"));
    heard(&discord, 6, 2);
    discord.order(Order::Close(4000));
    discord.says("m-3", "7", &format!("<@{BOT}> /plan three"));
    wait_for("all three, once each", || (prompts(&daemon) == ["one", "three", "two"]).then_some(()));
    assert_eq!(discord.with(|state| state.heard.iter().filter(|one| one["op"] == 2).count()), 1);
}

#[test]
fn op_9_and_lost_sessions_identify_anew() {
    let (_web, discord, daemon, id) = start(41_250);
    discord.order(Order::Frame(json!({"op": 9, "d": false})));
    heard(&discord, 2, 2);
    ready(&discord);
    discord.order(Order::Close(4009));
    heard(&discord, 2, 3);
    wait_for("the connection", || (record(&daemon, &id)["connected"] == true).then_some(()));
    discord.order(Order::Frame(json!({"op": 9, "d": true})));
    heard(&discord, 6, 1);
}

#[test]
fn fatal_close_codes_are_the_end() {
    let (_web, discord, daemon, id) = start(41_250);
    discord.order(Order::Close(4014));
    let shown = wait_for("the end", || {
        let record = record(&daemon, &id);
        (record["connected"] == false).then_some(record)
    });
    assert!(shown["lastError"].as_str().unwrap().contains("4014"), "{shown}");
    let count = discord.with(|state| state.heard.len());
    // A person may try again; nothing else does.
    connect(&daemon, &id);
    let later =
        discord.with(|state| state.heard.iter().skip(count).map(|one| one["op"].clone()).collect::<Vec<_>>());
    assert_eq!(later, [json!(6)], "the session was kept, and nobody came back by itself");
}

#[test]
fn a_429_is_waited_for() {
    let (_web, discord, _daemon, _id) = start(41_250);
    discord.with(|state| {
        let body = json!({"message": "You are being rate limited.", "retry_after": 0.4, "global": false});
        state.refusals.push_back((429, body));
    });
    discord.says("m-1", "7", &format!("<@{BOT}> status"));
    told(&discord, "agents alive");
    let tries = discord.with(|state| {
        state
            .calls
            .iter()
            .filter(|(method, path, _)| method == "POST" && path == "channels/55/messages")
            .count()
    });
    assert_eq!(tries, 2);
}

#[test]
fn an_event_that_is_cut_in_its_middle_comes_with_the_resume() {
    let (_web, discord, daemon, _id) = start(41_250);
    discord.with(|state| state.tear_next = true);
    discord.says("m-1", "7", &format!("<@{BOT}> /plan once"));
    heard(&discord, 6, 1);
    told(&discord, "planner");
    assert_eq!(prompts(&daemon), ["once"]);
    assert_eq!(audited(&daemon, "gateway.command").len(), 1);
}

#[test]
fn decisions_12_long_answers_are_split_at_2000() {
    let (_web, discord, daemon, id) = start(41_250);
    discord.says("m-1", "7", &format!("<@{BOT}> {}", unknown(6_500)));
    told(&discord, "lists them");
    // The server itself refuses what is longer.
    let pieces = discord.with(|state| state.messages.iter().map(|one| one.2.clone()).collect::<Vec<_>>());
    assert_eq!(pieces.len(), 4, "{pieces:?}");
    assert_eq!(pieces.concat().matches('n').count(), 6_500 + "there is no command".matches('n').count());
    assert!(record(&daemon, &id)["lastError"].is_null());
}

#[test]
fn a_session_outlives_the_daemon() {
    let (_web, discord, mut daemon, _id) = start(41_250);
    discord.says("m-1", "7", &format!("<@{BOT}> /plan one"));
    told(&discord, "planner");
    daemon.kill();
    wait_for("the connection to go", || discord.with(|state| !state.ready).then_some(()));
    discord.says("m-2", "7", &format!("<@{BOT}> /plan two"));
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    heard(&discord, 6, 1);
    wait_for("what was said meanwhile", || (prompts(&daemon) == ["one", "two"]).then_some(()));
}
