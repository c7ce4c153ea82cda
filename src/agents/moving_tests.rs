//! What becomes of a move: whether the session goes along, whether it goes on, what a restart finds.

use super::super::elsewhere::tests::{bench, request};
use super::super::{Job, JobReport, RunOrder, SpawnRequest, State};
use super::{Session, Trip};
use crate::core::ids::AgentId;
use crate::core::{Actor, Effect, Event};
use crate::providers::{Activity, SessionStart, TurnEnd};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::collections::HashSet;

/// An agent here with a branch and a session, in its first turn.
fn here(bench: &mut Bench) -> AgentId {
    let id = bench.agent_like(SpawnRequest { runner: None, ..request("box") });
    bench.does(id, vec![Activity::Session { id: "s-1".into(), model: None }, Activity::TurnStarted]);
    id
}

fn ends(bench: &mut Bench, id: AgentId) {
    bench.does(id, vec![Activity::TurnEnded(TurnEnd::default())]);
    bench.exits(id, 0);
}

fn far(bench: &Bench) -> Value {
    json!(bench.state.agents.find("far").unwrap().rest())
}

fn moves(bench: &mut Bench, body: &Value) -> Option<(u16, Value)> {
    bench.wish("POST", "/api/agents/far/move", body)
}

fn is_ordered(bench: &mut Bench) -> bool {
    let found = bench.effects.iter().any(|effect| matches!(effect, Effect::Job(Job::Move(_))));
    bench.effects.clear();
    found
}

fn arrives(bench: &mut Bench, session: Session) {
    let id = bench.state.agents.find("far").unwrap().id;
    bench.apply(Event::Job(JobReport::Moved(id, Ok(Trip { session, committed: true }))));
}

/// How the last life was ordered to start.
fn start(bench: &Bench) -> Option<(SessionStart, String)> {
    bench.effects.iter().rev().find_map(|effect| match effect {
        Effect::Run(_, RunOrder::Start(order)) => {
            Some((order.request.session.clone(), order.request.prompt.clone()))
        }
        _ => None,
    })
}

#[test]
fn at_the_end_of_its_turn_it_goes_and_goes_on_in_its_session() {
    let mut bench = bench();
    let id = here(&mut bench);
    let (status, told) = moves(&mut bench, &json!({"runner": "box"})).unwrap();
    assert_eq!((status, &told["waits"], &told["session"]), (200, &json!(true), &Value::Null), "{told}");
    assert!(!is_ordered(&mut bench), "its turn is not over");
    bench.post("/api/agents/far/instruct", &json!({"message": "and then this", "deliver": "idle"}));
    ends(&mut bench, id);
    assert!(is_ordered(&mut bench));
    let now = far(&bench);
    assert_eq!(
        (&now["statusCode"], &now["state"], &now["pid"]),
        (&json!("moving"), &json!("starting"), &Value::Null)
    );
    arrives(&mut bench, Session::Goes);
    let now = far(&bench);
    assert_eq!(
        (&now["runner"], &now["predecessorId"], &now["sessionId"]),
        (&json!("box"), &json!(id), &json!("s-1"))
    );
    let (session, prompt) = start(&bench).unwrap();
    assert!(matches!(session, SessionStart::Resume { id, .. } if id == "s-1"));
    assert!(prompt.contains("another machine (box)") && prompt.ends_with("and then this"), "{prompt}");
    assert_eq!(bench.audited("agent.moved").len(), 1);
}

#[test]
fn one_that_has_ended_waits_there_for_the_next_word() {
    let mut bench = bench();
    let id = here(&mut bench);
    ends(&mut bench, id);
    assert_eq!(moves(&mut bench, &json!({"runner": "box"})), None, "it is answered when it is there");
    assert!(is_ordered(&mut bench));
    arrives(&mut bench, Session::Goes);
    let now = far(&bench);
    assert_eq!(
        (&now["statusCode"], &now["state"], &now["id"]),
        (&json!("moved"), &json!("completed"), &json!(id))
    );
    assert!(start(&bench).is_none(), "nobody has said anything to it");
    bench.post("/api/agents/far/instruct", &json!({"message": "go"}));
    let (_, prompt) = start(&bench).unwrap();
    assert!(prompt.contains("another machine (box)") && prompt.ends_with("go"), "{prompt}");
}

#[test]
fn where_the_session_cannot_go_it_begins_a_new_one_with_a_brief() {
    let mut bench = bench();
    let id = here(&mut bench);
    assert_eq!(moves(&mut bench, &json!({"runner": "box", "now": true})), None);
    bench.exits(id, 143);
    assert!(is_ordered(&mut bench));
    arrives(&mut bench, Session::Stays("its program keeps it elsewhere".into()));
    assert!(bench.effects.iter().any(|effect| matches!(effect, Effect::Job(Job::Brief { .. }))));
    assert_eq!(far(&bench)["statusCode"], "moving", "its brief is not there yet");
    bench.apply(Event::Job(JobReport::Brief(id, Ok("what was done so far".into()))));
    let (session, prompt) = start(&bench).unwrap();
    assert_eq!(session, SessionStart::Fresh);
    assert!(prompt.contains("what was done so far"), "{prompt}");
    assert_eq!((&far(&bench)["runner"], &far(&bench)["sessionId"]), (&json!("box"), &Value::Null));
    let told = bench.audited("agent.moved");
    assert_eq!(told[0]["session"], "new", "{told:?}");
}

#[test]
fn a_step_that_fails_leaves_it_where_it_was() {
    let mut bench = bench();
    let id = here(&mut bench);
    moves(&mut bench, &json!({"runner": "box", "now": true}));
    bench.exits(id, 143);
    bench.apply(Event::Job(JobReport::Moved(id, Err("no \u{1b}[2J route".into()))));
    let now = far(&bench);
    assert_eq!((&now["state"], &now["statusCode"]), (&json!("interrupted"), &json!("move-failed")), "{now}");
    assert_eq!((&now["runner"], &now["sessionId"]), (&Value::Null, &json!("s-1")));
    assert!(!now["statusReason"].as_str().unwrap().contains('\u{1b}'), "{now}");
    assert_eq!(bench.ask("POST", "/api/agents/far/resume", &json!({})).0, 200);
    assert!(matches!(start(&bench).unwrap().0, SessionStart::Resume { .. }));
}

#[test]
fn people_alone_move_agents_and_only_where_they_can_go() {
    let mut bench = bench();
    let id = here(&mut bench);
    for (runner, status, words) in [
        ("here", 409, "already"),
        ("nowhere", 400, "there is no runner"),
        ("other", 400, "there is no git"),
        ("unknown", 400, "svc runner check unknown"),
    ] {
        let (found, told) = moves(&mut bench, &json!({"runner": runner})).unwrap();
        assert!(found == status && told.to_string().contains(words), "{runner}: {told}");
    }
    bench.actor = Actor::Agent(id);
    let (status, told) = moves(&mut bench, &json!({"runner": "box"})).unwrap();
    assert_eq!(status, 403, "{told}");
    bench.actor = Actor::Operator;
    let shared = bench.agent("shared");
    bench.exits(shared, 0);
    let (status, told) = bench.ask("POST", "/api/agents/shared/move", &json!({"runner": "box"}));
    assert_eq!((status, &told["code"]), (409, &json!("no_worktree")), "{told}");
    // Nobody is moved twice at once, replaced or shown a screen meanwhile.
    moves(&mut bench, &json!({"runner": "box"}));
    let (status, told) = moves(&mut bench, &json!({"runner": "box"})).unwrap();
    assert_eq!((status, &told["code"]), (409, &json!("move_under_way")), "{told}");
    ends(&mut bench, id);
    for (path, body) in [
        ("rotate", json!({})),
        ("move", json!({"runner": "box"})),
        ("resume", json!({})),
        ("attach", json!({"term": "xterm"})),
    ] {
        let (status, told) = bench.ask("POST", &format!("/api/agents/far/{path}"), &body);
        assert_eq!(status, 409, "{path}: {told}");
    }
}

#[test]
fn who_crashes_or_is_ended_meanwhile_is_not_moved() {
    let mut bench = bench();
    let id = here(&mut bench);
    moves(&mut bench, &json!({"runner": "box"}));
    bench.exits(id, 1);
    assert_eq!(far(&bench)["state"], "crashed");
    assert!(!is_ordered(&mut bench));
    bench.ask("POST", "/api/agents/far/resume", &json!({}));
    let id = bench.state.agents.find("far").unwrap().id;
    ends(&mut bench, id);
    assert!(!is_ordered(&mut bench), "the wish was that of the life before");
    bench.ask("POST", "/api/agents/far/resume", &json!({}));
    let id = bench.state.agents.find("far").unwrap().id;
    bench.does(id, vec![Activity::TurnStarted]);
    moves(&mut bench, &json!({"runner": "box"}));
    ends(&mut bench, id);
    assert!(is_ordered(&mut bench));
    assert_eq!(bench.ask("DELETE", "/api/agents/far", &Value::Null).0, 200);
    assert_eq!(far(&bench)["state"], "killed");
    arrives(&mut bench, Session::Goes);
    assert_eq!((&far(&bench)["state"], &far(&bench)["runner"]), (&json!("killed"), &Value::Null));
}

#[test]
fn a_daemon_that_comes_after_a_crash_carries_it_on() {
    let mut bench = bench();
    let id = here(&mut bench);
    moves(&mut bench, &json!({"runner": "box"}));
    ends(&mut bench, id);
    let stored = serde_json::to_value(bench.state.agents.stored()).unwrap();
    let restored =
        State::restore(serde_json::from_value(stored).unwrap(), |_| "p".into(), &HashSet::new(), bench.now);
    assert!(!restored.has_lost());
    bench.state.agents = std::sync::Arc::new(restored);
    bench.effects.clear();
    bench.with(super::go_on);
    assert!(is_ordered(&mut bench));
    arrives(&mut bench, Session::Goes);
    assert_eq!(far(&bench)["runner"], "box");
}
