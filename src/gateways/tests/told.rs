//! Notifications that chats get without asking: presets, coalescing, approvals.

use super::super::digest::{MAX_BYTES, MAX_LINES};
use super::super::notify::COALESCE;
use super::chat::asks;
use super::*;
use crate::agents::{Reason, Status};
use crate::core::ids::AgentId;
use crate::core::time::Time;
use std::time::Duration;

#[test]
fn specification_notifications_are_coalesced_over_3_seconds() {
    let mut rig = Rig::connected("telegram");
    rig.patch(&json!({"notifications": {"preset": "lifecycle"}}));
    let worker = rig.bench.agent("worker");
    rig.bench.pass(Duration::from_millis(2_900));
    rig.bench.exits(worker, 1);
    assert!(rig.sent().is_empty(), "nothing is told at once");
    rig.bench.pass(Duration::from_millis(200));
    let sent = rig.sent();
    let told = words(&sent);
    assert_eq!(told.len(), 1, "together: {told:?}");
    assert!(told[0].contains("worker was started") && told[0].contains("worker crashed"), "{told:?}");
    assert_eq!((sent[0].chat.as_str(), sent[0].why), ("77", Why::Notice));
    rig.bench.pass(COALESCE * 2);
    assert!(rig.sent().is_empty(), "nothing is told twice");
}

/// What each preset tells of a spawn, a good end, a crash and a team.
fn told_with(preset: &str) -> String {
    let mut rig = Rig::connected("telegram");
    rig.patch(&json!({"notifications": {"preset": preset}}));
    let good = rig.bench.agent("good");
    let bad = rig.bench.agent("bad");
    rig.bench.exits(good, 0);
    rig.bench.exits(bad, 3);
    rig.bench.with(|all, cx| {
        cx.notice(Notice::ConstraintAdded { hash: "abc123".into(), category: "style".into() });
        overheard(all, cx);
    });
    rig.bench.pass(COALESCE);
    words(&rig.sent()).join("\n")
}

#[test]
fn specification_presets_critical_lifecycle_and_all() {
    let critical = told_with("critical");
    assert!(critical.contains("bad crashed") && !critical.contains("good"), "{critical}");
    assert!(!critical.contains("started"), "{critical}");
    let lifecycle = told_with("lifecycle");
    for part in ["bad crashed", "good was started", "good completed"] {
        assert!(lifecycle.contains(part), "{part} in {lifecycle}");
    }
    assert!(!lifecycle.contains("memory"), "{lifecycle}");
    let all = told_with("all");
    assert!(
        all.contains("memory:constraint:added: category style, hash abc123")
            && all.contains("good completed"),
        "{all}"
    );
    assert!(!all.contains("type memory"), "what it is stands at its head, and only there: {all}");
}

#[test]
fn whether_an_end_is_told_is_decided_by_the_reason_and_not_by_its_words() {
    let mut rig = Rig::connected("telegram");
    rig.patch(&json!({"notifications": {"preset": "lifecycle"}}));
    let mut told = |reason: Reason| {
        rig.bench.with(|all, cx| {
            cx.notice(Notice::AgentExit {
                agent_id: AgentId(1),
                agent_name: "worker".into(),
                code: Some(0),
                signal: None,
                status: Status::Killed,
                reason: reason.into(),
                error: None,
            });
            overheard(all, cx);
        });
        rig.bench.pass(COALESCE);
        words(&rig.sent()).join("\n")
    };
    assert_eq!(told(Reason::Replaced), "", "its rotation is told");
    let quoted = Reason::Trouble { text: Reason::Replaced.to_string() };
    assert_eq!(told(quoted), "worker killed: replaced by its successor");
}

#[test]
fn a_digest_is_bounded_in_lines_and_bytes() {
    let mut digest = super::super::digest::Digest::default();
    for n in 0..MAX_LINES + 5 {
        digest.add(Text::from(format!("line {n}")));
    }
    let text = digest.message().unwrap().words();
    assert_eq!(text.lines().count(), MAX_LINES + 1);
    assert!(text.ends_with("… and 5 more events"), "{text}");
    let mut digest = super::super::digest::Digest::default();
    for _ in 0..20 {
        digest.add(Text::from("x".repeat(1_000)));
    }
    let text = digest.message().unwrap();
    assert!(text.bytes() <= MAX_BYTES + 100, "{}", text.bytes());
    assert!(text.words().ends_with("… and 14 more events"));
    assert!(super::super::digest::Digest::default().message().is_none());
}

#[test]
fn specification_approvals_are_sent_at_once_and_individually_with_buttons() {
    let mut rig = Rig::connected("telegram");
    rig.bench.agent("worker");
    rig.bench.effects.clear();
    let (first, second) = (asks(&mut rig, "worker", 1), asks(&mut rig, "worker", 2));
    let sent = rig.sent();
    assert_eq!(sent.len(), 2, "one message each");
    for (message, id) in sent.iter().zip([&first, &second]) {
        assert!(matches!(message.why, Why::Approval(approval) if approval.to_string() == **id));
        let buttons: Vec<_> =
            message.message.buttons.iter().map(|b| (b.label.as_str(), b.command.clone())).collect();
        assert_eq!(buttons, [("Approve", format!("/approve {id}")), ("Reject", format!("/reject {id}"))]);
        let text = message.message.text.words();
        assert!(text.contains("worker wants to call create_issue of github"), "{text}");
        assert!(text.contains("[redacted]") && !text.contains("hush"), "secrets are not told: {text}");
        assert!(message.message.buttons.iter().all(|b| b.command.len() <= message::MAX_BUTTON_BYTES));
    }
}

fn place(message: &str) -> Place {
    Place { chat: "77".into(), message: message.into() }
}

fn edits(rig: &Rig) -> Vec<(String, String)> {
    let edit = |effect: &Effect| match effect {
        Effect::Gateways(Order::Edit(_, place, message)) => {
            Some((place.message.clone(), message.text.words()))
        }
        _ => None,
    };
    rig.bench.effects.iter().filter_map(edit).collect()
}

#[test]
fn the_message_is_updated_after_the_decision_wherever_it_was_made() {
    let mut rig = Rig::connected("telegram");
    rig.bench.agent("worker");
    let id = asks(&mut rig, "worker", 1);
    let (gateway, approval) = (rig.id, id.parse().unwrap());
    rig.report(Report::Sent { gateway, approval, place: place("9") });
    assert!(edits(&rig).is_empty());
    let (status, _) = rig.bench.ask("POST", &format!("/api/approvals/{id}/reject"), &json!({"reason": "no"}));
    assert_eq!(status, 200);
    let edits = edits(&rig);
    assert_eq!(edits[0].0, "9");
    assert!(edits[0].1.starts_with("Rejected by operator") && edits[0].1.ends_with("no"), "{edits:?}");
}

#[test]
fn a_decision_made_while_the_chat_cannot_be_reached_is_shown_later() {
    let mut rig = Rig::connected("telegram");
    rig.bench.agent("worker");
    let id = asks(&mut rig, "worker", 1);
    let gateway = rig.id;
    rig.report(Report::Sent { gateway, approval: id.parse().unwrap(), place: place("9") });
    rig.bench.ask("POST", &format!("/api/gateways/{gateway}/disconnect"), &json!({}));
    rig.bench.ask("POST", &format!("/api/approvals/{id}/reject"), &json!({}));
    assert!(edits(&rig).is_empty(), "nobody can be told");
    assert!(rig.connect().is_none());
    let run = rig.gateway().run;
    rig.report(Report::Connected { gateway, run, bot: "b".into() });
    assert!(edits(&rig)[0].1.starts_with("Rejected"), "{:?}", edits(&rig));
    assert_eq!(edits(&rig).len(), 1);
}

#[test]
fn a_decision_that_overtakes_the_message_is_shown_in_it() {
    let mut rig = Rig::connected("telegram");
    rig.bench.agent("worker");
    let id = asks(&mut rig, "worker", 1);
    rig.bench.ask("POST", &format!("/api/approvals/{id}/approve"), &json!({}));
    assert!(edits(&rig).is_empty(), "it stands nowhere yet");
    let (gateway, approval) = (rig.id, id.parse().unwrap());
    rig.report(Report::Sent { gateway, approval, place: place("5") });
    assert!(edits(&rig)[0].1.starts_with("Approved by operator"));
}

#[test]
fn an_approval_that_came_while_nobody_listened_is_sent_with_the_connection() {
    let mut rig = Rig::new("telegram");
    rig.bench.agent("worker");
    let id = asks(&mut rig, "worker", 1);
    assert!(rig.sent().is_empty(), "nobody wants it connected");
    assert!(rig.connect().is_none());
    let (gateway, run) = (rig.id, rig.gateway().run);
    rig.report(Report::Connected { gateway, run, bot: "b".into() });
    assert_eq!(rig.sent().len(), 1);
    rig.report(Report::Connected { gateway, run, bot: "b".into() });
    assert!(rig.sent().is_empty(), "it is on its way");
    rig.report(Report::Sent { gateway, approval: id.parse().unwrap(), place: place("3") });
    assert!(rig.connect().is_some(), "it is connected already");
    assert!(rig.sent().is_empty(), "and stands in the chat");
}

#[test]
fn an_approval_that_could_not_be_sent_comes_with_the_next_connection() {
    let mut rig = Rig::connected("telegram");
    rig.bench.agent("worker");
    rig.bench.effects.clear();
    let id = asks(&mut rig, "worker", 1);
    assert_eq!(rig.sent().len(), 1);
    let (gateway, run, error) = (rig.id, rig.gateway().run, "nobody answers".to_owned());
    let approval = Some(id.parse().unwrap());
    rig.report(Report::Refused { gateway, run, error: error.clone(), approval });
    assert_eq!(rig.gateway().last_error, Some(error));
    rig.report(Report::Connected { gateway, run, bot: "b".into() });
    let sent = rig.sent();
    assert_eq!(sent.iter().map(|one| one.why.approval()).collect::<Vec<_>>(), [approval]);
}

#[test]
fn an_approval_that_waits_is_asked_for_as_soon_as_a_chat_is_named() {
    let mut rig = Rig::connected("telegram");
    rig.bench.agent("worker");
    rig.patch(&json!({"chatId": ""}));
    let id = asks(&mut rig, "worker", 1);
    rig.sent();
    assert!(rig.sent().is_empty());
    rig.patch(&json!({"chatId": "78"}));
    let sent = rig.sent();
    assert_eq!(sent.iter().map(|one| one.chat.as_str()).collect::<Vec<_>>(), ["78"]);
    // In another chat it is asked for anew, and asks no more in the old one.
    let (gateway, approval) = (rig.id, id.parse().unwrap());
    rig.report(Report::Sent { gateway, approval, place: place("4") });
    rig.patch(&json!({"chatId": "79"}));
    assert_eq!(rig.sent().iter().map(|one| one.chat.as_str()).collect::<Vec<_>>(), ["79"]);
    assert!(edits(&rig).iter().any(|(message, text)| message == "4" && text.contains("another chat")));
    rig.patch(&json!({"chatId": "79"}));
    assert!(rig.sent().is_empty(), "it is on its way");
}

#[test]
fn an_approval_that_was_refused_is_sent_again_after_a_while_and_when_the_platform_is_well() {
    let mut rig = Rig::connected("telegram");
    rig.bench.agent("worker");
    let id = asks(&mut rig, "worker", 1);
    rig.sent();
    let (gateway, run, approval) = (rig.id, rig.gateway().run, Some(id.parse().unwrap()));
    let refused = Report::Refused { gateway, run, error: "no".into(), approval };
    for (wait, round) in [(30, 1), (60, 2), (120, 3)] {
        rig.report(refused.clone());
        rig.bench.pass(Duration::from_secs(wait - 1));
        assert!(rig.sent().is_empty(), "round {round}");
        rig.bench.pass(Duration::from_secs(1));
        assert_eq!(
            rig.sent().iter().map(|one| one.why.approval()).collect::<Vec<_>>(),
            [approval],
            "{round}"
        );
    }
    rig.report(refused);
    rig.report(Report::Healed { gateway, run });
    assert_eq!(rig.sent().len(), 1);
    assert_eq!(rig.gateway().last_error, None, "trouble that is over is not told");
}

#[test]
fn no_agent_forges_a_line_of_the_message_that_asks() {
    let mut rig = Rig::connected("telegram");
    let agent = rig.bench.agent("worker");
    let text = "go?\n\nApproved by telegram:5\nnot real \u{202e}";
    let (status, asked) =
        rig.bench.ask("POST", "/api/questions", &json!({"agentId": agent.to_string(), "question": text}));
    assert!(status < 300, "{status} {asked}");
    let sent = rig.sent();
    let card = sent.iter().find(|one| one.why.approval().is_some()).unwrap().message.text.words();
    assert!(card.contains("Approved by telegram:5"), "{card}");
    assert!(card.lines().all(|line| !line.starts_with("Approved by")), "{card}");
    assert!(!card.contains('\u{202e}'), "{card}");
}

#[test]
fn without_a_chat_nothing_is_told() {
    let mut rig = Rig::connected("telegram");
    rig.patch(&json!({"chatId": "", "notifications": {"preset": "all"}}));
    rig.bench.agent("worker");
    asks(&mut rig, "worker", 1);
    rig.bench.pass(COALESCE * 2);
    assert!(rig.sent().is_empty());
}

#[test]
fn a_card_has_the_same_key_whoever_sends_it_and_its_place_is_on_disk_at_once() {
    let mut rig = Rig::connected("discord");
    rig.bench.agent("worker");
    let id = asks(&mut rig, "worker", 1);
    let first = rig.sent().remove(0);
    assert!(!first.again && first.key.starts_with(&id), "{}", first.key);
    assert!(first.key.len() + 3 <= 25, "Discord's limit, with the number of a piece");
    // Another thread set, or another daemon, does not know what became of it.
    rig.bench.ask("POST", &format!("/api/gateways/{}/disconnect", rig.id), &json!({}));
    rig.connect();
    let (gateway, run) = (rig.id, rig.gateway().run);
    rig.report(Report::Connected { gateway, run, bot: "b".into() });
    let second = rig.sent().remove(0);
    assert_eq!((second.key.as_str(), second.again), (first.key.as_str(), true));
    rig.bench.effects.clear();
    rig.report(Report::Sent { gateway, approval: id.parse().unwrap(), place: place("9") });
    let is_saved =
        |effect: &Effect| matches!(effect, Effect::Put(Document::Gateways, Durability::BeforeReply));
    assert!(rig.bench.effects.iter().any(is_saved));
    // In another chat it is another message, and in the first one again, too.
    let mut keys = vec![first.key];
    for chat in ["78", "77"] {
        rig.patch(&json!({"chatId": chat}));
        keys.extend(rig.sent().into_iter().map(|one| one.key));
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3, "{keys:?}");
}

fn click(rig: &mut Rig, key: &str, text: &str, message: &str) {
    let heard = Heard {
        key: key.into(),
        user: "5".into(),
        chat: "77:12".into(),
        text: text.into(),
        button: true,
        clicked: message.into(),
        ..Heard::default()
    };
    let command = CoreCommand::Gateways(Command::Inbox(Errand::Take(rig.id, Box::new(heard))));
    assert!(matches!(rig.errand(command), Receipt::Entry(_)));
}

#[test]
fn a_message_that_is_clicked_shows_the_decision_known_or_not() {
    let mut rig = Rig::connected("telegram");
    rig.bench.agent("worker");
    let id = asks(&mut rig, "worker", 1);
    let approval = id.parse().unwrap();
    let gateway = rig.id;
    // Clicked while the one that is known is still on its way.
    click(&mut rig, "k1", &format!("/approve {id}"), "3");
    click(&mut rig, "k2", &format!("/approve {id}"), "3");
    rig.report(Report::Sent { gateway, approval, place: place("9") });
    rig.bench.ask("POST", &format!("/api/approvals/{id}/approve"), &json!({}));
    let mut shown: Vec<String> = edits(&rig).into_iter().map(|(message, _)| message).collect();
    shown.sort();
    assert_eq!(shown, ["3", "9"]);
    // After the decision nothing waits for one.
    rig.bench.effects.clear();
    click(&mut rig, "k3", &format!("/reject {id}"), "2");
    let told = edits(&rig);
    assert!(told.len() == 1 && told[0].0 == "2" && told[0].1.starts_with("Approved"), "{told:?}");
    // Other buttons, and approvals that nobody knows, lead nowhere.
    rig.bench.effects.clear();
    click(&mut rig, "k4", "/pick 00000001 1", "1");
    click(&mut rig, "k5", "/approve apr-00000000", "1");
    assert!(edits(&rig).is_empty());
}

#[test]
fn what_was_said_long_ago_is_looked_at_but_changes_nothing() {
    let mut rig = Rig::connected("telegram");
    let now = rig.bench.now;
    let mut say = |key: &str, text: &str, minutes: u64| {
        let heard = Heard {
            key: key.into(),
            user: "1".into(),
            chat: "77".into(),
            text: text.into(),
            said_at: Some(Time(now.0 - minutes * 60_000)),
            ..Heard::default()
        };
        rig.errand(CoreCommand::Gateways(Command::Inbox(Errand::Take(rig.id, Box::new(heard)))))
    };
    let Receipt::Refused(words) = say("1", "/approve apr-1", 180) else { panic!("it is too old") };
    assert!(words.contains("said 180 minutes ago and was not done"), "{words}");
    assert!(matches!(say("2", "/spawn dev", 11), Receipt::Refused(_)));
    assert!(matches!(say("3", "/status", 180), Receipt::Entry(_)));
    assert!(matches!(say("4", "/kill dev-1", 9), Receipt::Entry(_)));
}

#[test]
fn a_long_call_shows_its_begin_and_its_end() {
    let text = format!("{}{}", "x".repeat(5_000), "; rm -rf ~");
    let shown = crate::gateways::message::cut_middle(&text, 1_500);
    assert!(shown.starts_with("xxx") && shown.ends_with("; rm -rf ~"), "{shown}");
    assert!(shown.contains("3510 characters are not shown here"), "{shown}");
    assert_eq!(crate::gateways::message::cut_middle("short", 1_500), "short");
}
