//! What phones are promised, on the pure core, and what their page keeps to.

use super::*;
use crate::approvals;
use crate::core::Actor;
use crate::testing::Bench;

fn grant(rights: &[Right]) -> Grant {
    Grant { name: None, rights: rights.to_vec() }
}

fn wish(bench: &mut Bench, command: Command) -> (u16, Value) {
    let reply = bench.command(core::Command::Phones(command)).expect("an answer");
    (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap_or_default())
}

fn paired(bench: &mut Bench, id: u32, rights: &[Right]) -> Value {
    let (status, body) = wish(bench, Command::Pair(PhoneId(id), grant(rights), "digest".into()));
    assert_eq!(status, 201, "{body}");
    body
}

fn question(bench: &mut Bench) -> String {
    bench.actor = Actor::Operator;
    let asked = bench.post("/api/questions", &json!({"question": "Which port?"}));
    asked["approvalId"].as_str().unwrap().to_owned()
}

fn decide(bench: &mut Bench, id: &str) -> (u16, String) {
    let command = approvals::Command::Decide {
        id: id.into(),
        decision: approvals::Decision::Approve,
        reason: Some("31415".into()),
    };
    let reply = bench.command(core::Command::Approvals(command)).expect("an answer");
    let body: Value = serde_json::from_slice(reply.body.bytes()).unwrap();
    (reply.status, body["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn phones_have_names_of_their_own_and_there_are_only_so_many() {
    let mut bench = Bench::new();
    for n in 0..MAX_PHONES {
        let name = if n == 0 { "phone".to_owned() } else { format!("phone-{}", n + 1) };
        assert_eq!(paired(&mut bench, u32::try_from(n).unwrap(), &Right::ALL)["name"], json!(name));
    }
    let (status, body) = wish(&mut bench, Command::Pair(PhoneId(99), grant(&Right::ALL), "digest".into()));
    assert_eq!((status, &body["code"]), (409, &json!("too_many_phones")));
    assert_eq!(wish(&mut bench, Command::Revoke("phone-2".into())).0, 200);
    assert_eq!(wish(&mut bench, Command::Revoke("phone-2".into())).0, 404);
    let (status, body) = wish(&mut bench, Command::Pair(PhoneId(3), grant(&Right::ALL), "digest".into()));
    assert_eq!((status, &body["code"]), (409, &json!("phone_exists")));
    assert_eq!(paired(&mut bench, 99, &Right::ALL)["name"], json!("phone-2"));
    let stored = serde_json::to_value(bench.state.phones.stored()).unwrap();
    let again = State::restore(serde_json::from_value(stored).unwrap());
    assert_eq!(again.iter().count(), MAX_PHONES);
    assert_eq!(again.get(PhoneId(99)).unwrap().rights, Right::ALL);
}

#[test]
fn the_core_takes_from_a_phone_nothing_but_decisions_it_has_the_right_to() {
    let mut bench = Bench::new();
    let id = question(&mut bench);
    paired(&mut bench, 1, &[Right::Look, Right::Approve]);
    paired(&mut bench, 2, &[Right::Look, Right::Answer]);
    let may_not = || (403, "phone_may_not".to_owned());
    bench.actor = Actor::Phone("phone".into());
    assert_eq!(decide(&mut bench, &id), may_not(), "it has no right to answer");
    bench.actor = Actor::Phone("nobody".into());
    assert_eq!(decide(&mut bench, &id), (401, "phone_not_paired".to_owned()));
    bench.actor = Actor::Phone("phone-2".into());
    for command in [
        core::Command::Shutdown { keep: false },
        core::Command::Phones(Command::Revoke("phone".into())),
        core::Command::Phones(Command::Pair(PhoneId(3), grant(&Right::ALL), "digest".into())),
        core::Command::Approvals(approvals::Command::Ask { agent: None, question: "?".into() }),
        core::Command::Memory(crate::memory::Command::RemoveConstraint(String::new())),
    ] {
        assert_eq!(bench.command(command).unwrap().status, 403);
    }
    assert_eq!(bench.state.phones.iter().count(), 2);
    assert_eq!(decide(&mut bench, &id).0, 200);
    let id = question(&mut bench);
    assert_eq!(wish(&mut bench, Command::Revoke("phone-2".into())).0, 200);
    bench.actor = Actor::Phone("phone-2".into());
    assert_eq!(decide(&mut bench, &id), (401, "phone_not_paired".to_owned()), "revoked since it asked");
}

#[test]
fn what_the_disk_refuses_pairs_and_revokes_nobody() {
    let mut bench = Bench::new();
    paired(&mut bench, 1, &Right::ALL);
    bench.disk = Some(Err("no space left".into()));
    for command in [
        Command::Pair(PhoneId(2), grant(&Right::ALL), "digest".into()),
        Command::Revoke("phone".into()),
        Command::Invite("127.0.0.1:31450".into(), grant(&Right::ALL)),
    ] {
        assert_eq!(wish(&mut bench, command).0, 503);
        assert_eq!((bench.state.phones.iter().count(), bench.state.phones.listen()), (1, None));
    }
}

#[test]
fn the_page_is_light_has_nothing_inline_and_makes_no_markup_of_words() {
    let weight = page::PAGE.len() + page::ASSETS.iter().map(|(.., text)| text.len()).sum::<usize>();
    assert!(weight < page::WEIGHT_LIMIT_BYTES, "{weight} bytes, the limit is {}", page::WEIGHT_LIMIT_BYTES);
    for inline in [" style=", "<style", " onclick", " onload", "javascript:", "http://", "https://"] {
        assert!(!page::PAGE.contains(inline), "the page holds {inline}");
    }
    for (name, _, text) in page::ASSETS {
        let text = text.replace("http://www.w3.org/2000/svg", "");
        for door in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "srcdoc",
            "eval(",
            "new Function",
            "javascript:",
            "setHTML",
            "http://",
            "https://",
            "@import",
            "url(",
        ] {
            assert!(!text.contains(door), "{name} holds {door}");
        }
    }
    let worker = page::ASSETS.iter().find(|(name, ..)| *name == "worker.js").unwrap().2;
    for (name, ..) in page::ASSETS.iter().filter(|(name, ..)| *name != "worker.js") {
        assert!(
            worker.contains(&format!("\"/phone/{name}\"")),
            "{name} is not kept for when there is no network"
        );
    }
    let manifest = page::ASSETS.iter().find(|(name, ..)| *name == "manifest.json").unwrap().2;
    let manifest: Value = serde_json::from_str(manifest).unwrap();
    assert_eq!((&manifest["start_url"], &manifest["display"]), (&json!("/phone"), &json!("standalone")));
}
