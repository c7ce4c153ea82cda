//! A person at an agent's own screen: what stands in the way, and what comes first.

use crate::agents::limit_tests::{bench, spawn, starts};
use crate::core::ids::AgentId;
use crate::providers::limit::Limit;
use crate::providers::{Activity, TurnEnd};
use crate::testing::Bench;
use serde_json::{Value, json};

fn session() -> Activity {
    Activity::Session { id: "s-1".into(), model: None }
}

/// An agent whose session has begun, in the middle of its turn.
fn at_work() -> (Bench, AgentId) {
    let mut bench = bench(&json!({"onLimit": "wait"}));
    let id = spawn(&mut bench, "codex", "build the roof");
    bench.does(id, vec![session()]);
    starts(&mut bench);
    (bench, id)
}

fn attach(bench: &mut Bench, body: &Value) -> (u16, Value) {
    bench.ask("POST", "/api/agents/dev/attach", body)
}

fn dev(bench: &mut Bench) -> Value {
    bench.ask("GET", "/api/agents/dev", &Value::Null).1
}

fn at_limit() -> Vec<Activity> {
    let closed = Limit { closed: true, ..Limit::window("five_hour", Some(100.0), None) };
    let error = "You've hit your session limit".to_owned();
    vec![
        Activity::Limit(closed),
        Activity::TurnEnded(TurnEnd { is_error: true, error, ..TurnEnd::default() }),
    ]
}

#[test]
fn nobody_cuts_a_turn_off_whose_session_has_not_begun() {
    let mut bench = bench(&json!({}));
    let id = spawn(&mut bench, "codex", "build the roof");
    let (status, body) = attach(&mut bench, &json!({"now": true}));
    assert_eq!((status, &body["code"]), (409, &json!("no_session")), "{body}");
    assert_eq!(dev(&mut bench)["state"], "running", "it works on");
    // The end of its turn may be waited for.
    assert_eq!(attach(&mut bench, &json!({})).0, 200);
    bench.does(id, vec![session()]);
    assert_eq!(attach(&mut bench, &json!({"now": true})).0, 200);
    assert_eq!(dev(&mut bench)["statusCode"], "handing-over");
}

#[test]
fn an_agent_at_its_limit_is_let_go_on_first_and_a_wish_waits_with_it() {
    let (mut bench, id) = at_work();
    assert_eq!(attach(&mut bench, &json!({})).0, 200);
    bench.does(id, at_limit());
    bench.exits(id, 1);
    let record = dev(&mut bench);
    assert_eq!((&record["state"], &record["attached"]), (&json!("limited"), &json!("wanted")), "{record:#}");
    assert!(starts(&mut bench).is_empty(), "no screen in the place of what was cut off");
    let (status, body) = attach(&mut bench, &json!({"now": true}));
    assert_eq!((status, &body["code"]), (409, &json!("agent_limited")), "{body}");
    assert_eq!(bench.ask("POST", "/api/agents/dev/resume", &json!({})).0, 200);
    let again = starts(&mut bench);
    assert_eq!((again.len(), again[0].1.at_screen), (1, None), "what was cut off comes first");
    let id = again[0].0;
    bench.does(id, vec![session(), Activity::TurnEnded(TurnEnd::default())]);
    bench.exits(id, 0);
    let screens = starts(&mut bench);
    assert_eq!(screens.len(), 1);
    assert!(screens[0].1.at_screen.is_some(), "then the screen");
    assert_eq!(dev(&mut bench)["attached"], "here");
}

#[test]
fn a_wish_ends_with_the_agent_that_is_killed_at_its_limit() {
    let (mut bench, id) = at_work();
    assert_eq!(attach(&mut bench, &json!({})).0, 200);
    bench.does(id, at_limit());
    bench.exits(id, 1);
    assert_eq!(dev(&mut bench)["attached"], "wanted");
    assert_eq!(bench.ask("DELETE", "/api/agents/dev", &Value::Null).0, 200);
    let record = dev(&mut bench);
    assert_eq!((&record["state"], &record["attached"]), (&json!("killed"), &Value::Null), "{record:#}");
    assert_eq!(bench.ask("POST", "/api/agents/dev/resume", &json!({})).0, 200);
    let again = starts(&mut bench);
    assert_eq!((again.len(), again[0].1.at_screen), (1, None));
    let id = again[0].0;
    bench.does(id, vec![session(), Activity::TurnEnded(TurnEnd::default())]);
    bench.exits(id, 0);
    assert!(starts(&mut bench).is_empty(), "nobody waits for a screen any more");
}

#[test]
fn a_rotation_takes_the_wish_along_and_a_screen_is_not_rotated() {
    let (mut bench, id) = at_work();
    assert_eq!(attach(&mut bench, &json!({})).0, 200);
    let new = bench.rotates("dev");
    assert_eq!(dev(&mut bench)["attached"], "wanted");
    starts(&mut bench);
    bench.does(new, vec![session(), Activity::TurnEnded(TurnEnd::default())]);
    bench.exits(new, 0);
    assert!(starts(&mut bench)[0].1.at_screen.is_some());
    assert_eq!(bench.ask("POST", "/api/agents/dev/rotate", &json!({})).1["code"], "attached");
    // While one is under way there is nothing to be had.
    let (mut bench, _) = at_work();
    bench.wish("POST", "/api/agents/dev/rotate", &json!({}));
    let (status, body) = attach(&mut bench, &json!({"now": true}));
    assert_eq!((status, &body["code"]), (409, &json!("agent_busy")), "{body}");
    assert_ne!(id, new);
}

/// A token goes to the person who asks, another to the next.
#[test]
fn each_person_has_a_token_of_their_own_which_no_record_and_no_log_tells() {
    let (mut bench, id) = at_work();
    bench.does(id, vec![Activity::TurnEnded(TurnEnd::default())]);
    bench.exits(id, 0);
    assert_eq!(attach(&mut bench, &json!({})).1["token"], Value::Null, "it is on its way");
    let tokens = [(); 2].map(|()| attach(&mut bench, &json!({})).1["token"].as_str().unwrap().to_owned());
    assert_ne!(tokens[0], tokens[1]);
    assert!(!dev(&mut bench).to_string().contains(&tokens[0]));
    let audited = bench.audited("agent.attach");
    assert_eq!(audited.len(), 1, "{audited:?}");
    assert!(!format!("{audited:?}").contains(&tokens[0]));
}
