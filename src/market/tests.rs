//! The skills, without a marketplace and without files.

use super::*;
use crate::agents::{self, SpawnRequest};
use crate::testing::Bench;

fn skill(id: &str, content: &str) -> Installed {
    let listed = json!({"name": format!("The {id}"), "description": "Helps.", "version": "1.0.0"});
    Installed::new(id, &listed, content, Origin::Live, Time(1))
}

fn keep(bench: &mut Bench, id: &str, content: &str) -> (u16, Value) {
    let command = Command::Keep(Box::new(skill(id, content)));
    let reply = bench.command(crate::core::Command::Market(command)).unwrap();
    (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap())
}

fn forget(bench: &mut Bench, id: &str) -> (u16, Value) {
    let reply = bench.command(crate::core::Command::Market(Command::Forget(id.into()))).unwrap();
    (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap())
}

#[test]
fn ids_are_slugs_that_lead_nowhere() {
    for good in ["a", "code-review", "skill-0123abcd", "x-2", &"a".repeat(80)] {
        assert_eq!(check_id(good), Ok(()), "{good}");
    }
    let long = "a".repeat(81);
    for bad in [
        "", ".", "..", "a/b", "../a", "a..b", "A", "a_b", "-a", "a-", "a--b", "a b", "ä", "a\0", "%2e", &long,
    ] {
        assert_eq!(check_id(bad).unwrap_err().status, 400, "{bad:?}");
    }
}

#[test]
fn decisions_13_the_bundled_set_is_the_21_skills_with_text_and_description() {
    let all = bundled::registry();
    assert_eq!(all.len(), 21);
    for listed in all {
        let id = listed["id"].as_str().unwrap();
        assert_eq!(check_id(id), Ok(()));
        let description = listed["description"].as_str().unwrap();
        assert!((10..=500).contains(&description.chars().count()), "{id}: {description}");
        assert!(bundled::content(id).unwrap().len() <= MAX_CONTENT_BYTES, "{id}");
    }
}

#[test]
fn what_a_registry_tells_is_cut_to_its_rules() {
    let listed = json!({
        "name": "a\nb\u{1b}[2J", "description": "x".repeat(9_000), "version": 7, "tags": vec!["t".repeat(99); 99],
    });
    let kept = Installed::new("a", &listed, "text", Origin::Live, Time(1));
    assert_eq!(kept.name, "a b [2J");
    assert_eq!((kept.description.len(), kept.tags.len(), kept.tags[0].len()), (500, 20, 32));
    assert_eq!(kept.version, "");
    assert_eq!(kept.digest, "sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1");
}

#[test]
fn decisions_13_a_record_is_durable_before_the_reply_and_survives_a_restart() {
    let mut bench = Bench::new();
    let (status, body) = keep(&mut bench, "review", "one");
    assert_eq!((status, &body["updated"]), (201, &json!(false)));
    let put = |effect: &Effect| matches!(effect, Effect::Put(Document::Skills, Durability::BeforeReply));
    assert!(bench.effects.iter().any(put));
    assert_eq!(bench.audited("skill.install").len(), 1);
    let stored = serde_json::to_string(&bench.state.market.stored()).unwrap();
    let restored = State::restore(serde_json::from_str(&stored).unwrap());
    assert_eq!(restored.get("review"), bench.state.market.get("review"));
    let (status, body) = keep(&mut bench, "review", "two");
    assert_eq!((status, &body["updated"]), (200, &json!(true)));
    assert_eq!(bench.audited("skill.update").len(), 1);
    let mut bad = bench.state.market.stored();
    bad.installed[0].id = "../../x".into();
    assert_eq!(State::restore(bad).iter().count(), 0, "an id that was tampered with becomes no path");
}

#[test]
fn decisions_2_skills_must_be_installed_and_stay_while_attached() {
    let mut bench = Bench::new();
    let request = |skill: &str| SpawnRequest {
        role: "dev".into(),
        name: Some("web".into()),
        provider: Some("script".into()),
        skills: vec![skill.into()],
        ..SpawnRequest::default()
    };
    let spawn = |bench: &mut Bench| {
        let command = agents::Command::Spawn(Box::new(request("review")));
        let reply = bench.command(crate::core::Command::Agents(command)).unwrap();
        (reply.status, serde_json::from_slice::<Value>(reply.body.bytes()).unwrap())
    };
    let (status, body) = spawn(&mut bench);
    assert_eq!(status, 400);
    assert_eq!(body["errors"][0]["message"], "skills names \"review\", which is not installed");
    keep(&mut bench, "review", "one");
    assert_eq!(spawn(&mut bench).0, 201);
    let (status, body) = forget(&mut bench, "review");
    assert_eq!((status, &body["code"], &body["agents"]), (409, &json!("skill_in_use"), &json!(["web"])));
    let id = bench.state.agents.find("web").unwrap().id;
    bench.exits(id, 0);
    assert_eq!(forget(&mut bench, "review").0, 200);
    assert_eq!(forget(&mut bench, "review").0, 404);
    assert_eq!(bench.audited("skill.remove").len(), 1);
}

#[test]
fn names_and_descriptions_are_told_to_the_agent() {
    let mut bench = Bench::new();
    keep(&mut bench, "review", "one");
    let lines = briefing_lines(&bench.state, &["review".into(), "gone".into()]);
    assert_eq!(lines[0], "- The review (.agents/skills/review/SKILL.md): Helps.");
    assert!(lines[1].contains("gone"));
}

#[test]
fn the_number_of_installed_skills_is_bounded() {
    let mut bench = Bench::new();
    for n in 0..MAX_INSTALLED {
        assert_eq!(keep(&mut bench, &format!("s-{n}"), "x").0, 201);
    }
    let (status, body) = keep(&mut bench, "one-more", "x");
    assert_eq!((status, &body["code"]), (409, &json!("too_many_skills")));
    assert_eq!(keep(&mut bench, "s-0", "y").0, 200, "an update needs no room");
}
