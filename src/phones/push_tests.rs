//! What phones are told of, when, and what becomes of it, on the pure core.

use super::push::{
    Address, MAX_ASKED, MAX_IN_WINDOW, MAX_KEPT, MAX_WAITING, RETRIES, Refusal, Sending, Then, Tried, WINDOW,
};
use super::*;
use crate::assembly::documents::encode;
use crate::core::time::Jump;
use crate::core::{Actor, Event, Timer};
use crate::testing::Bench;
use std::time::Duration;

const ID: PhoneId = PhoneId(7);

fn address(n: u32) -> Address {
    Address { endpoint: format!("https://push.example.org/{n}"), p256dh: "key".into(), auth: "auth".into() }
}

fn pair(bench: &mut Bench, id: PhoneId, rights: &[Right]) -> Actor {
    bench.actor = Actor::Operator;
    let grant = Grant { name: Some(format!("phone {id}")), rights: rights.to_vec() };
    let pair = Command::Pair(id, grant, "digest".into());
    assert_eq!(bench.command(core::Command::Phones(pair)).unwrap().status, 201);
    Actor::Phone(format!("phone {id}").into())
}

/// What a wish of this phone comes to.
fn wishes(bench: &mut Bench, actor: Actor, command: Command) -> (u16, Value) {
    bench.actor = actor;
    let reply = bench.command(core::Command::Phones(command)).expect("an answer");
    bench.actor = Actor::Operator;
    (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap_or_default())
}

fn subscribe(bench: &mut Bench, id: PhoneId) {
    let actor = pair(bench, id, &Right::ALL);
    let (status, body) = wishes(bench, actor, Command::Subscribe(id, Box::new(address(id.0))));
    assert_eq!((status, &body["push"]["host"]), (200, &json!("push.example.org")), "{body}");
}

/// A daemon with a phone that wants to be told.
fn bench() -> Bench {
    let mut bench = Bench::in_project();
    subscribe(&mut bench, ID);
    bench
}

fn question(bench: &mut Bench, words: &str) -> String {
    let asked = bench.post("/api/questions", &json!({"question": words}));
    asked["approvalId"].as_str().unwrap().to_owned()
}

fn decide(bench: &mut Bench, id: &str) {
    assert_eq!(bench.ask("POST", &format!("/api/approvals/{id}/reject"), &json!({})).0, 200);
}

/// What is being sent; each once.
fn sent(bench: &mut Bench) -> Vec<Sending> {
    let is_one = |effect: &mut Effect| matches!(effect, Effect::Phones(Order::Send(_)));
    let taken: Vec<Effect> = bench.effects.extract_if(.., is_one).collect();
    let sending =
        |effect| if let Effect::Phones(Order::Send(sending)) = effect { Some(*sending) } else { None };
    taken.into_iter().filter_map(sending).collect()
}

fn forgotten(bench: &Bench) -> usize {
    bench.effects.iter().filter(|effect| matches!(effect, Effect::Phones(Order::Forget(_)))).count()
}

/// The one message that is being sent: its number, and what it says.
fn one(bench: &mut Bench) -> (u64, Value) {
    let mut all = sent(bench);
    assert_eq!(all.len(), 1, "{all:?}");
    let sending = all.remove(0);
    (sending.message, serde_json::from_str(&sending.text).unwrap())
}

fn says(bench: &mut Bench, message: u64, outcome: Result<(), Then>) {
    let outcome = outcome.map_err(|then| Refusal { why: "status 500: no\u{1b}".into(), then });
    bench.apply(Event::Phones(Report::Tried(Tried { phone: ID, message, outcome })));
}

fn shown(bench: &Bench) -> Value {
    bench.state.phones.get(ID).unwrap().shown()["push"].clone()
}

#[test]
fn what_starts_to_wait_is_told_once_it_is_on_disk_without_a_word_of_what_is_asked() {
    let mut bench = bench();
    bench.disk_hangs = true;
    let id = question(&mut bench, "Is the password hunter2?");
    assert!(sent(&mut bench).is_empty(), "the disk has said nothing");
    let stored = String::from_utf8(encode(Document::Phones, &bench.state).unwrap().unwrap()).unwrap();
    assert!(stored.contains("waiting"), "{stored}");
    bench.disk_hangs = false;
    bench.apply(Event::Timer(Timer::PhoneDue(ID)));
    let mut all = sent(&mut bench);
    let sending = all.remove(0);
    assert!(all.is_empty() && sending.address == address(7));
    assert_eq!(sending.kept, MAX_KEPT, "as long as it can be decided");
    let told: Value = serde_json::from_str(&sending.text).unwrap();
    let expected =
        json!({"id": id, "title": "operator asks you", "project": bench.state.project.name, "more": 0});
    assert_eq!(told, expected);
    says(&mut bench, sending.message, Ok(()));
    assert_eq!((&shown(&bench)["sent"], &shown(&bench)["waiting"]), (&json!(1), &json!(0)));
    bench.pass(Duration::from_secs(3_600));
    assert!(sent(&mut bench).is_empty(), "once");
    decide(&mut bench, &id);
    assert!(sent(&mut bench).is_empty(), "what is decided is no news");
}

#[test]
fn what_is_decided_before_its_turn_is_not_told() {
    let mut bench = bench();
    let first = question(&mut bench, "a?");
    let (message, _) = one(&mut bench);
    let (second, third) = (question(&mut bench, "b?"), question(&mut bench, "c?"));
    assert!(sent(&mut bench).is_empty(), "one at a time");
    for id in [&first, &second, &third] {
        decide(&mut bench, id);
    }
    says(&mut bench, message, Err(Then::Retry(None)));
    bench.pass(MAX_ASKED);
    assert!(sent(&mut bench).is_empty());
    assert_eq!(shown(&bench)["waiting"], 0);
    question(&mut bench, "d?");
    assert_eq!(one(&mut bench).1["more"], 0);
}

#[test]
fn what_came_meanwhile_is_told_together_by_the_newest() {
    let mut bench = bench();
    question(&mut bench, "a?");
    let (message, _) = one(&mut bench);
    let second = question(&mut bench, "b?");
    let third = question(&mut bench, "c?");
    let last = question(&mut bench, "d?");
    decide(&mut bench, &last);
    says(&mut bench, message, Ok(()));
    let (message, told) = one(&mut bench);
    assert_eq!((&told["id"], &told["more"]), (&json!(third), &json!(2)), "with the first one, and {second}");
    says(&mut bench, message, Ok(()));
    assert!(sent(&mut bench).is_empty(), "all are told");
}

#[test]
fn no_more_than_a_few_are_sent_in_a_minute_and_what_is_held_back_is_told_together() {
    let mut bench = bench();
    for n in 0..MAX_IN_WINDOW {
        question(&mut bench, &format!("{n}?"));
        let (message, _) = one(&mut bench);
        says(&mut bench, message, Ok(()));
    }
    for n in 0..2 * MAX_WAITING {
        question(&mut bench, &format!("more {n}?"));
        assert!(sent(&mut bench).is_empty());
    }
    assert_eq!(shown(&bench)["waiting"], MAX_WAITING, "and no more are kept one by one");
    bench.pass(WINDOW);
    let (_, told) = one(&mut bench);
    assert_eq!(told["more"], MAX_IN_WINDOW + 2 * MAX_WAITING - 1, "though all are counted");
}

#[test]
fn a_refusal_is_tried_again_as_long_as_the_service_asks_for_and_not_for_ever() {
    let mut bench = bench();
    question(&mut bench, "a?");
    let (message, _) = one(&mut bench);
    says(&mut bench, message, Err(Then::Retry(Some(Duration::from_secs(100)))));
    assert_eq!(shown(&bench)["lastError"], "status 500: no\\u{1b}");
    bench.pass(Duration::from_secs(99));
    assert!(sent(&mut bench).is_empty(), "it asked for 100 s");
    let newer = question(&mut bench, "b?");
    assert!(sent(&mut bench).is_empty(), "of newer things, too");
    bench.pass(Duration::from_secs(1));
    let (message, told) = one(&mut bench);
    assert_eq!((&told["id"], &told["more"]), (&json!(newer), &json!(1)));
    says(&mut bench, message, Err(Then::Retry(Some(Duration::MAX))));
    bench.pass(MAX_ASKED);
    let mut message = one(&mut bench).0;
    for wait in &RETRIES[2..] {
        says(&mut bench, message, Err(Then::Retry(None)));
        bench.pass(wait.checked_sub(Duration::from_millis(1)).unwrap());
        assert!(sent(&mut bench).is_empty(), "{wait:?}");
        bench.pass(Duration::from_millis(1));
        message = one(&mut bench).0;
    }
    says(&mut bench, message, Err(Then::Retry(None)));
    bench.pass(MAX_ASKED);
    assert!(sent(&mut bench).is_empty(), "given up");
    assert_eq!(shown(&bench)["waiting"], 0);
    question(&mut bench, "c?");
    let (message, _) = one(&mut bench);
    says(&mut bench, message, Err(Then::GiveUp));
    bench.pass(MAX_ASKED);
    assert!(sent(&mut bench).is_empty(), "what would be refused again is not tried");
    question(&mut bench, "d?");
    let (message, _) = one(&mut bench);
    says(&mut bench, message, Ok(()));
    assert!(shown(&bench)["lastError"].is_null());
}

#[test]
fn a_subscription_that_is_gone_a_phone_that_is_revoked_or_wants_no_more_is_not_told() {
    let mut bench = bench();
    question(&mut bench, "a?");
    let (message, _) = one(&mut bench);
    says(&mut bench, message, Err(Then::Forget));
    assert!(shown(&bench).is_null());
    assert_eq!((forgotten(&bench), bench.audited("phone.push-gone").len()), (1, 1));
    question(&mut bench, "b?");
    assert!(sent(&mut bench).is_empty());
    let me = || Actor::Phone(format!("phone {ID}").into());
    wishes(&mut bench, me(), Command::Subscribe(ID, Box::new(address(8))));
    question(&mut bench, "c?");
    let (stale, _) = one(&mut bench);
    wishes(&mut bench, me(), Command::Unsubscribe(ID));
    assert_eq!(forgotten(&bench), 2);
    wishes(&mut bench, me(), Command::Subscribe(ID, Box::new(address(9))));
    question(&mut bench, "d?");
    one(&mut bench);
    says(&mut bench, stale, Err(Then::Forget));
    assert_eq!(
        shown(&bench)["host"],
        "push.example.org",
        "an answer to the one before says nothing of this one"
    );
    question(&mut bench, "e?");
    bench.command(core::Command::Phones(Command::Revoke(ID.to_string())));
    assert_eq!(forgotten(&bench), 3);
    bench.pass(MAX_ASKED);
    bench.apply(Event::Timer(Timer::PhoneDue(ID)));
    assert!(sent(&mut bench).is_empty());
    let stored = String::from_utf8(encode(Document::Phones, &bench.state).unwrap().unwrap()).unwrap();
    assert!(!stored.contains("example.org"), "{stored}");
}

#[test]
fn a_phone_says_where_it_is_told_itself_and_takes_no_other_phones_place() {
    let mut bench = bench();
    let other = PhoneId(8);
    let actor = pair(&mut bench, other, &[Right::Look]);
    for command in [Command::Subscribe(ID, Box::new(address(1))), Command::Unsubscribe(ID)] {
        let (status, body) = wishes(&mut bench, actor.clone(), command);
        assert_eq!((status, &body["code"]), (403, &json!("phone_may_not")));
    }
    let mut stolen = address(7);
    stolen.auth = "other".into();
    let (status, body) = wishes(&mut bench, actor.clone(), Command::Subscribe(other, Box::new(stolen)));
    assert_eq!((status, &body["code"]), (409, &json!("push_address_taken")));
    assert_eq!(shown(&bench)["host"], "push.example.org");
    // The same browser, paired anew.
    let (status, _) = wishes(&mut bench, actor.clone(), Command::Subscribe(other, Box::new(address(7))));
    assert_eq!(status, 200);
    assert!(shown(&bench).is_null(), "told once, not twice");
    let audited = bench.audited("phone.subscribe").len();
    // Said again it changes nothing.
    let (_, body) = wishes(&mut bench, actor, Command::Subscribe(other, Box::new(address(7))));
    assert_eq!((bench.audited("phone.subscribe").len(), &body["push"]["sent"]), (audited, &json!(0)));
    question(&mut bench, "a?");
    let to: Vec<_> = sent(&mut bench).into_iter().map(|sending| sending.phone).collect();
    assert_eq!(to, [other], "who may only look is told, too");
}

#[test]
fn what_was_to_be_told_outlives_the_daemon_and_a_clock_that_jumps() {
    let mut bench = bench();
    let id = question(&mut bench, "a?");
    one(&mut bench);
    let stored = serde_json::to_value(bench.state.phones.stored()).unwrap();
    let now = bench.now;
    bench.with(|all, _| restore(all, serde_json::from_value(stored).unwrap(), now));
    bench.pass(Duration::ZERO);
    let (message, told) = one(&mut bench);
    assert_eq!(told["id"], json!(id), "it was not known to be taken");
    says(&mut bench, message, Err(Then::Retry(None)));
    let hour = Duration::from_secs(3_600);
    let mut message = message;
    for (is_back, wait) in [(true, RETRIES[0]), (false, RETRIES[1])] {
        let jump = Jump { is_back, by: hour };
        bench.now = bench.now.moved(jump);
        bench.apply(Event::ClockSet(jump));
        assert!(sent(&mut bench).is_empty(), "a jump is no time that passes");
        bench.pass(wait);
        message = one(&mut bench).0;
        says(&mut bench, message, Err(Then::Retry(None)));
    }
    bench.pass(RETRIES[2]);
    let (last, _) = one(&mut bench);
    assert_ne!(last, message);
    says(&mut bench, last, Ok(()));
    // Stored by a daemon whose clock was far ahead.
    question(&mut bench, "b?");
    let mut stored = serde_json::to_value(bench.state.phones.stored()).unwrap();
    stored["phones"][0]["push"]["nextAt"] = json!(bench.now.0 + 1_000 * 3_600_000);
    let now = bench.now;
    bench.with(|all, _| restore(all, serde_json::from_value(stored).unwrap(), now));
    sent(&mut bench);
    bench.pass(MAX_ASKED);
    one(&mut bench);
}
