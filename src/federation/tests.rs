//! The protocol without sockets: codes, signatures, replays, the clock.

use super::envelope::{Envelope, MAX_NONCES, Replays, WINDOW};
use super::pairing::{code, commitment, peer_id};
use super::*;
use crate::testing::Bench;
use ed25519_dalek::SigningKey;

const NOW: Time = Time(1_767_225_600_000);

fn key(n: u8) -> SigningKey {
    SigningKey::from_bytes(&[n; 32])
}

fn public(n: u8) -> [u8; 32] {
    key(n).verifying_key().to_bytes()
}

fn envelope(nonce: u64) -> Envelope {
    let envelope = Envelope {
        from: peer_id(&public(1)),
        to: peer_id(&public(2)),
        kind: "agents.list".into(),
        nonce: format!("{nonce:032x}"),
        re: String::new(),
        ts: NOW.0,
        body: r#"{"usage":0.1}"#.into(),
        signature: String::new(),
    };
    envelope.signed(&key(1))
}

fn check(envelope: &Envelope, now: Time) -> Result<(), &'static str> {
    let (to, from) = (peer_id(&public(2)), peer_id(&public(1)));
    envelope.check(&to, &from, &key(1).verifying_key(), now).map_err(|problem| problem.code)
}

#[test]
fn decisions_13_an_envelope_that_was_changed_in_any_member_is_refused() {
    let good = envelope(1);
    assert_eq!(check(&good, NOW), Ok(()));
    let json = serde_json::to_value(&good).unwrap();
    assert_eq!(check(&serde_json::from_value(json.clone()).unwrap(), NOW), Ok(()), "over the wire");
    for (member, value) in [
        ("kind", json!("agents.kill")),
        ("nonce", json!("00")),
        ("re", json!("x")),
        ("ts", json!(NOW.0 + 1)),
        ("body", json!(r#"{"usage":0.2}"#)),
        ("signature", json!("00".repeat(64))),
        ("signature", json!("")),
        ("signature", json!(good.signature.to_uppercase())),
    ] {
        let mut changed = json.clone();
        changed[member] = value;
        let changed: Envelope = serde_json::from_value(changed).unwrap();
        assert_eq!(check(&changed, NOW), Err("bad_signature"), "{member}");
    }
    for member in ["from", "to"] {
        let mut changed = json.clone();
        changed[member] = json!(peer_id(&public(3)));
        assert_eq!(check(&serde_json::from_value(changed).unwrap(), NOW), Err("wrong_recipient"), "{member}");
    }
    let forged = envelope(1).signed(&key(3));
    assert_eq!(check(&forged, NOW), Err("bad_signature"), "another's key");
    let mut more = json;
    more["more"] = json!(1);
    assert!(serde_json::from_value::<Envelope>(more).is_err(), "what is not signed is not taken");
}

#[test]
fn decisions_13_the_window_is_five_minutes_both_ways() {
    let good = envelope(1);
    let before = |length: Duration| Time(NOW.0 - u64::try_from(length.as_millis()).unwrap());
    for now in [NOW + WINDOW, before(WINDOW)] {
        assert_eq!(check(&good, now), Ok(()));
    }
    let beyond = WINDOW + Duration::from_millis(1);
    for now in [NOW + beyond, before(beyond)] {
        assert_eq!(check(&good, now), Err("outside_window"));
    }
}

#[test]
fn decisions_13_a_nonce_is_taken_once_and_the_memory_of_them_is_bounded() {
    let mut replays = Replays::new(NOW);
    let take =
        |replays: &mut Replays, envelope: &Envelope, now| replays.take(envelope, now).map_err(|p| p.code);
    assert_eq!(take(&mut replays, &envelope(1), NOW), Ok(()));
    assert_eq!(take(&mut replays, &envelope(1), NOW), Err("replayed"));
    assert_eq!(
        take(&mut replays, &envelope(1), NOW + WINDOW),
        Err("replayed"),
        "as long as the window lasts"
    );
    for n in 2..=MAX_NONCES as u64 {
        assert_eq!(take(&mut replays, &envelope(n), NOW), Ok(()));
    }
    assert_eq!(
        take(&mut replays, &envelope(0), NOW),
        Err("too_many_envelopes"),
        "never forgets one to take another"
    );
    let later = NOW + WINDOW + Duration::from_millis(1);
    let mut fresh = envelope(0);
    fresh.ts = later.0;
    assert_eq!(take(&mut replays, &fresh, later), Ok(()), "what has left the window is forgotten");
    let mut restarted = Replays::new(NOW + Duration::from_millis(1));
    assert_eq!(
        take(&mut restarted, &envelope(1), NOW),
        Err("outside_window"),
        "a restart forgets, so it refuses"
    );
}

#[test]
fn decisions_13_both_sides_have_the_same_six_digits_and_each_part_counts() {
    let (a, b, na, nb) = (public(1), public(2), [3; 32], [4; 32]);
    let shown = code(&a, &b, &na, &nb);
    assert!(shown.len() == 6 && shown.bytes().all(|digit| digit.is_ascii_digit()));
    let others = [
        code(&b, &a, &na, &nb),
        code(&a, &b, &nb, &na),
        code(&public(5), &b, &na, &nb),
        code(&a, &b, &na, &[5; 32]),
    ];
    assert!(others.iter().all(|other| *other != shown));
}

fn offered(bench: &mut Bench, n: u8, nonce: [u8; 32]) -> (u16, Value) {
    let other = Other { key: public(n), name: format!("peer {n}"), url: "http://127.0.0.1:1".into() };
    let offer = Offer {
        other,
        commitment: commitment(&public(n), &nonce),
        own_key: public(9),
        own_nonce: [7; 32],
        own_name: "own".into(),
    };
    ask(bench, Command::Offered(Box::new(offer)))
}

fn ask(bench: &mut Bench, command: Command) -> (u16, Value) {
    let reply = bench.command(crate::core::Command::Federation(command)).unwrap();
    (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap())
}

fn confirm_with(id: PairingId, code: Option<&str>) -> Command {
    Command::Confirm { id, code: code.map(Into::into), url: None }
}

fn id_of(body: &Value) -> PairingId {
    body["id"].as_str().unwrap().parse().unwrap()
}

#[test]
fn decisions_13_nobody_is_a_peer_before_a_person_confirms() {
    let mut bench = Bench::new();
    let (status, body) = offered(&mut bench, 1, [3; 32]);
    assert_eq!(status, 201);
    let id = id_of(&body);
    assert_eq!(ask(&mut bench, confirm_with(id, None)).1["code"], "not_ready");
    assert_eq!(ask(&mut bench, Command::Revealed(id, [3; 32])).0, 200);
    assert_eq!(ask(&mut bench, Command::Revealed(id, [3; 32])).1["code"], "already_revealed");
    let (_, listed) = bench.ask("GET", "/api/federation/peers", &Value::Null);
    let wanted = code(&public(1), &public(9), &[3; 32], &[7; 32]);
    assert_eq!(listed["pairings"][0]["code"], wanted);
    assert_eq!(listed["peers"], json!([]));
    let (status, peer) = ask(&mut bench, confirm_with(id, Some(&wanted)));
    assert_eq!((status, &peer["id"]), (200, &json!(peer_id(&public(1)))));
    let put = |effect: &Effect| matches!(effect, Effect::Put(Document::Federation, Durability::BeforeReply));
    assert!(bench.effects.iter().any(put));
    let stored = serde_json::to_string(&bench.state.federation.stored()).unwrap();
    let restored = State::restore(serde_json::from_str(&stored).unwrap());
    assert_eq!(restored.find("peer 1").unwrap().public_key, PublicKey(public(1)));
    assert_eq!(ask(&mut bench, Command::Remove("peer 1".into())).0, 200);
    assert_eq!(ask(&mut bench, Command::Remove("peer 1".into())).0, 404);
    for event in ["federation.offer", "federation.confirm", "federation.remove"] {
        assert_eq!(bench.audited(event).len(), 1, "{event}");
    }
}

#[test]
fn a_nonce_that_was_not_committed_to_and_a_code_that_differs_end_the_pairing() {
    let mut bench = Bench::new();
    let id = id_of(&offered(&mut bench, 1, [3; 32]).1);
    assert_eq!(ask(&mut bench, Command::Revealed(id, [4; 32])).1["code"], "commitment_broken");
    assert_eq!(ask(&mut bench, Command::Revealed(id, [3; 32])).0, 404, "one try");
    let id = id_of(&offered(&mut bench, 1, [3; 32]).1);
    ask(&mut bench, Command::Revealed(id, [3; 32]));
    assert_eq!(ask(&mut bench, confirm_with(id, Some("x"))).1["code"], "code_mismatch");
    assert_eq!(ask(&mut bench, confirm_with(id, None)).0, 404, "it is dropped");
}

#[test]
fn pairings_are_few_and_expire() {
    let mut bench = Bench::new();
    let first = id_of(&offered(&mut bench, 1, [3; 32]).1);
    ask(&mut bench, Command::Revealed(first, [3; 32]));
    for _ in 1..MAX_PAIRINGS {
        assert_eq!(offered(&mut bench, 1, [3; 32]).0, 201);
    }
    assert_eq!(offered(&mut bench, 1, [3; 32]).1["code"], "too_many_pairings");
    let other = Other { key: public(2), name: "b".into(), url: "http://127.0.0.1:2".into() };
    let opened = Command::Opened { id: PairingId(5), other: Box::new(other), code: "123456".into() };
    assert_eq!(ask(&mut bench, opened).0, 201, "strangers do not take a person's own room");
    bench.pass(PAIRING_TTL);
    assert_eq!(ask(&mut bench, confirm_with(first, None)).0, 404);
    assert_eq!(offered(&mut bench, 1, [3; 32]).0, 201);
}
