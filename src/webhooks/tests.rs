//! What waits, when it is tried, what becomes of it, and what lasts.

use super::*;
use crate::assembly::documents::encode;
use crate::core::Event;
use crate::testing::Bench;

fn sealed() -> Sealed {
    serde_json::from_str("\"00ff00ff\"").unwrap()
}

const ID: WebhookId = WebhookId(7);

/// A daemon with a webhook that wants these.
fn bench(events: &[&str]) -> Bench {
    let mut bench = Bench::in_project();
    create_in(&mut bench, ID, "one", events);
    bench
}

fn create_in(bench: &mut Bench, id: WebhookId, name: &str, events: &[&str]) -> u16 {
    let wish = Wish {
        name: Some(name.into()),
        url: Some("https://example.org/hook".into()),
        events: Some(events.iter().map(|event| (*event).to_owned()).collect()),
        enabled: None,
    };
    let command = Command::Create(id, Box::new(wish), sealed());
    bench.command(crate::core::Command::Webhooks(command)).unwrap().status
}

/// What is being sent, oldest first; each once.
fn sent(bench: &mut Bench) -> Vec<Sending> {
    let sending = |effect: &mut Effect| matches!(effect, Effect::Webhooks(Order::Send(_)));
    let taken: Vec<Effect> = bench.effects.extract_if(.., sending).collect();
    let sending =
        |effect| if let Effect::Webhooks(Order::Send(sending)) = effect { Some(*sending) } else { None };
    taken.into_iter().filter_map(sending).collect()
}

fn says(bench: &mut Bench, webhook: WebhookId, message: &Arc<str>, outcome: Result<(), Refusal>) {
    bench.apply(Event::Webhooks(Report::Tried { webhook, message: Arc::clone(message), outcome }));
}

fn refusal(why: &str) -> Refusal {
    Refusal { why: why.into(), after: None, is_gone: false }
}

fn record(bench: &Bench, id: WebhookId) -> Value {
    bench.state.webhooks.find(&id.to_string()).unwrap().shown()
}

fn try_it(bench: &mut Bench) {
    assert_eq!(bench.ask("POST", "/api/webhooks/one/test", &Value::Null).0, 202);
}

#[test]
fn an_event_that_was_chosen_is_sent_once_it_is_on_disk_and_forgotten_when_it_is_taken() {
    let mut bench = bench(&["agent:exit", "agent:start"]);
    bench.disk_hangs = true;
    let id = bench.agent("backend-1");
    assert!(sent(&mut bench).is_empty(), "the disk has said nothing");
    let stored = encode(Document::Webhooks, &bench.state).unwrap().unwrap();
    assert!(String::from_utf8(stored).unwrap().contains("agent:start"));
    bench.disk_hangs = false;
    bench.apply(Event::Timer(Timer::WebhookDue(ID)));
    let first = sent(&mut bench).remove(0);
    let body: Value = serde_json::from_str(&first.body).unwrap();
    assert_eq!((&body["type"], &body["data"]["agentName"]), (&json!("agent:start"), &json!("backend-1")));
    assert_eq!((&body["project"], &body["timestamp"]), (&json!("project"), &json!(bench.now.to_string())));
    assert_eq!(first.secrets[0].0, "webhook/00000007/secret");
    bench.exits(id, 3);
    assert!(sent(&mut bench).is_empty(), "one at a time");
    says(&mut bench, ID, &first.message, Ok(()));
    let second = sent(&mut bench).remove(0);
    let body: Value = serde_json::from_str(&second.body).unwrap();
    assert_eq!((&body["type"], &body["data"]["code"]), (&json!("agent:exit"), &json!(3)));
    says(&mut bench, ID, &second.message, Ok(()));
    let shown = record(&bench, ID);
    assert_eq!((&shown["taken"], &shown["waiting"], &shown["dead"]), (&json!(2), &json!(0), &json!(0)));
}

#[test]
fn what_was_not_chosen_is_not_told() {
    let mut bench = bench(&["approval:*"]);
    let id = bench.agent("backend-1");
    bench.exits(id, 3);
    assert!(sent(&mut bench).is_empty());
    bench.post("/api/questions", &json!({"question": "may I?"}));
    let body: Value = serde_json::from_str(&sent(&mut bench).remove(0).body).unwrap();
    assert_eq!(body["type"], "approval:request");
}

#[test]
fn patterns_mean_events_that_there_are() {
    for good in ["*", "agent:*", "agent:exit", "agent:turn", "plan:done", "memory:constraint:*"] {
        assert!(is_pattern(good), "{good}");
    }
    for bad in ["", "agent", "agent:ex*", "agents:*", "webhook:test", "webhook:*", "**", "agent:exit "] {
        assert!(!is_pattern(bad), "{bad}");
    }
    assert!(!means("*", TEST), "a test goes to whom it tests");
}

#[test]
fn a_message_that_is_refused_is_tried_again_later_each_time_then_dead_and_can_be_sent_again() {
    let mut bench = bench(&["agent:exit"]);
    try_it(&mut bench);
    let mut waited = Duration::ZERO;
    let mut ids = Vec::new();
    for (at, wait) in RETRIES.iter().map(Some).chain([None]).enumerate() {
        let sending = sent(&mut bench).remove(0);
        ids.push(Arc::clone(&sending.message));
        says(&mut bench, ID, &sending.message, Err(refusal("status 500: no\u{202e}t now")));
        let Some(wait) = wait else { break };
        assert_eq!(record(&bench, ID)["waiting"], 1, "after try {at}");
        bench.pass(wait.saturating_sub(Duration::from_millis(1)));
        assert!(sent(&mut bench).is_empty(), "not before its time");
        bench.pass(Duration::from_millis(1));
        waited += *wait;
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "each try has the same id");
    let shown = record(&bench, ID);
    assert_eq!((&shown["waiting"], &shown["dead"], &shown["refused"]), (&json!(0), &json!(1), &json!(10)));
    assert!(!shown["lastError"].as_str().unwrap().contains('\u{202e}'), "{shown}");
    assert!(waited > Duration::from_secs(15 * 60 * 60), "for most of a day: {waited:?}");
    bench.pass(Duration::from_secs(7 * 24 * 60 * 60));
    assert!(sent(&mut bench).is_empty(), "not by itself");
    let (status, answer) = bench.ask("POST", "/api/webhooks/one/resend", &json!({"message": "msg_0"}));
    assert_eq!(status, 404, "{answer}");
    let answer = bench.post("/api/webhooks/one/resend", &json!({}));
    assert_eq!((&answer["sent"], &answer["dead"]), (&json!([ids[0]]), &json!(0)));
    let again = sent(&mut bench).remove(0);
    assert_eq!(again.message, ids[0]);
    says(&mut bench, ID, &again.message, Ok(()));
    assert_eq!(record(&bench, ID)["taken"], 1);
}

#[test]
fn one_refused_message_does_not_hold_up_others_and_its_receiver_may_ask_for_time() {
    let mut bench = bench(&["agent:exit"]);
    try_it(&mut bench);
    let first = sent(&mut bench).remove(0);
    let after = Some(Duration::from_secs(90));
    says(&mut bench, ID, &first.message, Err(Refusal { after, ..refusal("status 429") }));
    try_it(&mut bench);
    let second = sent(&mut bench).remove(0);
    assert_ne!(first.message, second.message);
    says(&mut bench, ID, &second.message, Ok(()));
    bench.pass(Duration::from_secs(89));
    assert!(sent(&mut bench).is_empty());
    bench.pass(Duration::from_secs(1));
    let again = sent(&mut bench).remove(0);
    let after = Some(Duration::MAX);
    says(&mut bench, ID, &again.message, Err(Refusal { after, ..refusal("status 503") }));
    bench.pass(MAX_ASKED);
    assert_eq!(sent(&mut bench).len(), 1, "nobody asks for longer than that");
}

#[test]
fn a_receiver_that_is_gone_is_told_nothing_more_until_a_person_says_so() {
    let mut bench = bench(&["agent:exit"]);
    try_it(&mut bench);
    let sending = sent(&mut bench).remove(0);
    says(&mut bench, ID, &sending.message, Err(Refusal { is_gone: true, ..refusal("status 410") }));
    let shown = record(&bench, ID);
    assert_eq!((&shown["enabled"], &shown["dead"]), (&json!(false), &json!(1)));
    assert_eq!(bench.audited("webhook.gone").len(), 1);
    let id = bench.agent("backend-1");
    bench.exits(id, 1);
    bench.post("/api/webhooks/one/resend", &json!({}));
    assert_eq!(bench.ask("POST", "/api/webhooks/one/test", &Value::Null).0, 409);
    assert!(sent(&mut bench).is_empty());
    assert_eq!(bench.ask("PATCH", "/api/webhooks/one", &json!({"enabled": true})).0, 200);
    assert_eq!(sent(&mut bench).remove(0).message, sending.message, "what waits goes on");
}

#[test]
fn what_waits_and_what_is_dead_is_bounded_and_what_is_lost_is_counted() {
    let mut bench = bench(&["agent:exit"]);
    let total = MAX_WAITING + MAX_DEAD + 5;
    for _ in 0..total {
        try_it(&mut bench);
    }
    let shown = record(&bench, ID);
    let counts = (&shown["waiting"], &shown["dead"], &shown["dropped"]);
    assert_eq!(counts, (&json!(MAX_WAITING), &json!(MAX_DEAD), &json!(5)));
    let answer = bench.post("/api/webhooks/one/resend", &json!({}));
    assert_eq!((&answer["sent"], &answer["dead"]), (&json!([]), &json!(MAX_DEAD)), "there is no room");
    let dead = bench.state.webhooks.find("one").unwrap().dead[0].id.clone();
    assert_eq!(bench.ask("POST", "/api/webhooks/one/resend", &json!({"message": dead})).0, 409);
    // The one under way was the oldest: that it is taken changes nothing, and nobody fails.
    let sending = sent(&mut bench).remove(0);
    says(&mut bench, ID, &sending.message, Ok(()));
    assert_eq!(record(&bench, ID)["waiting"], MAX_WAITING);
    assert_eq!(sent(&mut bench).len(), 1, "the next one goes");
}

#[test]
fn a_long_body_is_left_out_and_says_so_and_bytes_are_bounded_too() {
    let mut bench = bench(&["agent:stalled"]);
    let tell = |bench: &mut Bench, chars: usize| {
        let agent_id = crate::core::ids::AgentId(1);
        let notice = Notice::AgentStalled { agent_id, agent_name: "a".into(), reason: "x".repeat(chars) };
        bench.with(|all, cx| {
            cx.notice(notice);
            overheard(all, cx);
        });
    };
    tell(&mut bench, MAX_BODY_BYTES);
    let webhook = |bench: &Bench| Arc::clone(bench.state.webhooks.find("one").unwrap());
    let body: Value = serde_json::from_str(&webhook(&bench).waiting[0].body).unwrap();
    assert!(body["data"]["omitted"].as_str().unwrap().contains("are the limit"), "{body}");
    for _ in 0..20 {
        tell(&mut bench, MAX_BODY_BYTES - 1000);
    }
    let sum = |all: &[Arc<Message>]| all.iter().map(|message| message.body.len()).sum::<usize>();
    let webhook = webhook(&bench);
    assert!(sum(&webhook.waiting) <= MAX_WAITING_BYTES && sum(&webhook.dead) <= MAX_DEAD_BYTES);
    assert_eq!(webhook.waiting.len() + webhook.dead.len() + usize::try_from(webhook.dropped).unwrap(), 21);
}

#[test]
fn what_waited_is_sent_by_the_next_daemon_under_the_same_id() {
    let mut bench = bench(&["agent:exit"]);
    try_it(&mut bench);
    let sending = sent(&mut bench).remove(0);
    let bytes = encode(Document::Webhooks, &bench.state).unwrap().unwrap();
    let stored: Stored = serde_json::from_slice(&bytes).unwrap();
    let mut next = Bench::new();
    let now = next.now;
    next.with(|all, _| restore(all, stored, now));
    next.pass(Duration::ZERO);
    assert_eq!(sent(&mut next).remove(0).message, sending.message);
}

#[test]
fn a_message_lasts_as_what_it_tells_of_does() {
    let mut bench = bench(&["approval:request", "rotation:failed"]);
    let put = |bench: &Bench, wanted: Durability| {
        let is_it =
            |effect: &Effect| matches!(effect, Effect::Put(Document::Webhooks, how) if *how == wanted);
        bench.effects.iter().any(is_it)
    };
    bench.effects.clear();
    bench.disk = None;
    assert!(bench.wish("POST", "/api/questions", &json!({"question": "may I?"})).is_none());
    assert!(put(&bench, Durability::BeforeReply), "with the approval");
    let written = encode(Document::Webhooks, &bench.state).unwrap().unwrap();
    assert!(String::from_utf8(written).unwrap().contains("approval:request"), "it is on its way with it");
    assert_eq!(record(&bench, ID)["waiting"], 0, "and not in force before");
    bench.effects.clear();
    let agent_id = crate::core::ids::AgentId(1);
    bench.with(|all, cx| {
        cx.notice(Notice::RotationFailed { agent_id, error: "x".into() });
        overheard(all, cx);
    });
    assert!(put(&bench, Durability::Soon) && !put(&bench, Durability::BeforeReply));
}

#[test]
fn a_new_secret_leaves_the_one_before_in_use_for_a_day() {
    let mut bench = bench(&["agent:exit"]);
    let command = Command::NewSecret(ID, sealed(), Some(sealed()));
    assert_eq!(bench.command(crate::core::Command::Webhooks(command)).unwrap().status, 200);
    let names = |bench: &mut Bench| {
        try_it(bench);
        let sending = sent(bench).remove(0);
        says(bench, ID, &sending.message, Ok(()));
        sending.secrets.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut bench), [secret_name(ID), previous_name(ID)]);
    bench.pass(BOTH_SECRETS);
    assert_eq!(names(&mut bench), [secret_name(ID)]);
}

#[test]
fn without_room_for_the_secret_before_nothing_has_changed() {
    let mut bench = bench(&["agent:exit"]);
    bench.with(|all, cx| {
        let names = (0..).map(|n| format!("other/{n}"));
        let refused =
            names.map(|name| crate::credentials::put(all, cx, &name, sealed())).find_map(Result::err);
        assert_eq!(refused.unwrap().code, "too_many_credentials");
    });
    let before = record(&bench, ID);
    let command = Command::NewSecret(ID, sealed(), Some(sealed()));
    assert_eq!(bench.command(crate::core::Command::Webhooks(command)).unwrap().status, 409);
    assert_eq!(record(&bench, ID), before);
}

#[test]
fn a_new_address_has_a_connection_of_its_own_and_is_told_by_its_host_alone() {
    let mut bench = bench(&["agent:exit"]);
    let forgets = |effect: &Effect| matches!(effect, Effect::Webhooks(Order::Forget(ID)));
    let mut change = |body: Value| {
        bench.effects.clear();
        assert_eq!(bench.ask("PATCH", "/api/webhooks/one", &body).0, 200);
        let told = bench.audited("webhook.change");
        (bench.effects.iter().any(forgets), told[0].to_string())
    };
    assert!(!change(json!({"events": ["*"]})).0);
    assert!(!change(json!({"url": "https://example.org/hook"})).0);
    let (forgets, told) = change(json!({"url": "http://127.0.0.1:9/hook?key=secret"}));
    assert!(forgets && told.contains("127.0.0.1:9") && !told.contains("secret"), "{told}");
}

#[test]
fn a_webhook_goes_with_its_secret_and_its_messages() {
    let mut bench = bench(&["agent:exit"]);
    try_it(&mut bench);
    let sending = sent(&mut bench).remove(0);
    assert!(bench.state.credentials.has(&secret_name(ID)));
    assert_eq!(bench.ask("DELETE", "/api/webhooks/one", &Value::Null).0, 200);
    assert!(!bench.state.credentials.has(&secret_name(ID)));
    let forgets = |effect: &Effect| matches!(effect, Effect::Webhooks(Order::Forget(ID)));
    assert!(bench.effects.iter().any(forgets));
    says(&mut bench, ID, &sending.message, Ok(()));
    bench.pass(Duration::from_secs(60));
    assert!(sent(&mut bench).is_empty());
    assert_eq!(bench.ask("DELETE", "/api/webhooks/one", &Value::Null).0, 404);
}

#[test]
fn webhooks_are_bounded_and_have_names_of_their_own() {
    let mut bench = bench(&["*"]);
    assert_eq!(create_in(&mut bench, WebhookId(8), "one", &["*"]), 409);
    for n in 1..MAX_WEBHOOKS {
        let id = WebhookId(100 + u32::try_from(n).unwrap());
        assert_eq!(create_in(&mut bench, id, &format!("hook {n}"), &["*"]), 201);
    }
    assert_eq!(create_in(&mut bench, WebhookId(999), "more", &["*"]), 409);
    assert_eq!(bench.ask("PATCH", "/api/webhooks/one", &json!({"name": "hook 1"})).0, 409);
    for (field, wrong) in [
        ("url", json!("http://example.org")),
        ("url", json!("https://user@example.org")),
        ("url", json!("file:///etc/passwd")),
        ("events", json!([])),
        ("events", json!(["agent:exits"])),
        ("enabled", json!("yes")),
    ] {
        let (status, answer) = bench.ask("PATCH", "/api/webhooks/one", &json!({field: wrong}));
        assert_eq!((status, &answer["errors"][0]["field"]), (400, &json!(field)), "{answer}");
    }
}

#[test]
fn a_wait_lasts_as_long_as_it_says_when_the_clock_jumps() {
    for is_back in [true, false] {
        let mut bench = bench(&["agent:exit"]);
        try_it(&mut bench);
        let sending = sent(&mut bench).remove(0);
        says(&mut bench, ID, &sending.message, Err(refusal("status 500")));
        let jump = Jump { is_back, by: Duration::from_secs(3600) };
        bench.now = bench.now.moved(jump);
        bench.apply(Event::ClockSet(jump));
        bench.pass(RETRIES[0].saturating_sub(Duration::from_millis(1)));
        assert!(sent(&mut bench).is_empty());
        bench.pass(Duration::from_millis(1));
        assert_eq!(sent(&mut bench).len(), 1);
    }
}
