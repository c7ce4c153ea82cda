//! What a person keeps of a window: what begins in it, and what does not.

use crate::agents::limit_tests::{at_limit, bench, spawn, starts};
use crate::agents::{SpawnRequest, State, limit};
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Actor, Event};
use crate::providers::limit::Limit;
use crate::providers::{Activity, TurnEnd, Usage};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn told(used: f64, opens: Time) -> Activity {
    Activity::Limit(Limit::window("five_hour", Some(used), Some(opens.0)))
}

fn turn_ended() -> Activity {
    Activity::TurnEnded(TurnEnd { text: "done".into(), ..TurnEnd::default() })
}

fn session() -> Activity {
    Activity::Session { id: "s-1".into(), model: None }
}

fn record(bench: &mut Bench, name: &str) -> Value {
    bench.ask("GET", &format!("/api/agents/{name}"), &Value::Null).1
}

/// 30 % are kept, and an agent has told that so much is used.
fn at(used: f64) -> (Bench, AgentId, Time) {
    let mut bench = bench(&json!({"limits": {"reserve": 30}}));
    let id = spawn(&mut bench, "claude-code", "build the roof");
    let opens = bench.now + 3 * HOUR;
    bench.does(id, vec![session(), told(used, opens)]);
    starts(&mut bench);
    (bench, id, opens)
}

#[test]
fn what_waits_for_an_agent_begins_no_turn_in_what_is_kept_and_one_when_the_window_opens() {
    for (used, is_held) in [(69.0, false), (70.0, true), (99.0, true)] {
        let (mut bench, id, opens) = at(used);
        let later = json!({"message": "paint it", "deliver": "idle"});
        assert_eq!(bench.ask("POST", "/api/agents/dev/instruct", &later).0, 200);
        bench.does(id, vec![turn_ended()]);
        let says = |bench: &Bench| {
            let say = |effect: &crate::core::Effect| {
                matches!(effect, crate::core::Effect::Run(_, crate::agents::RunOrder::Say { .. }))
            };
            bench.effects.iter().any(say)
        };
        assert_eq!(says(&bench), !is_held, "{used}");
        if !is_held {
            continue;
        }
        bench.exits(id, 0);
        let held = record(&mut bench, "dev");
        let limit = &held["limit"];
        assert_eq!((&held["state"], &held["statusCode"]), (&json!("limited"), &json!("limited")), "{held:#}");
        let why = held["statusReason"].as_str().unwrap();
        assert!(why.contains("kept for you") && why.contains("30 % are kept"), "{why}");
        assert_eq!((&limit["reserve"], &limit["resetsAt"]), (&json!(30), &json!(opens.to_string())));
        assert_eq!(starts(&mut bench).len(), 0);
        bench.pass(3 * HOUR);
        assert_eq!(starts(&mut bench).len(), 0, "not before it is surely open");
        bench.pass(limit::MARGIN);
        let goes_on = bench.audited("limit.goesOn");
        assert_eq!((&goes_on[0]["reserve"], &goes_on[0]["actor"]), (&json!(30), &json!("daemon")));
        let issued = starts(&mut bench);
        assert_eq!(issued.len(), 1);
        assert_eq!(issued[0].1.request.prompt, "paint it", "nothing was cut off");
        bench.pass(HOUR);
        assert_eq!(starts(&mut bench).len(), 0, "once");
    }
}

#[test]
fn an_agent_starts_no_other_in_what_is_kept_and_a_person_does() {
    let (mut bench, id, _) = at(80.0);
    let request = |name: &str| SpawnRequest {
        role: "dev".into(),
        name: Some(name.into()),
        provider: Some("claude-code".into()),
        prompt: "help".into(),
        ..SpawnRequest::default()
    };
    let order = |bench: &mut Bench, name: &str| {
        let spawn = crate::agents::Command::Spawn(Box::new(request(name)));
        bench.command(crate::core::Command::Agents(spawn));
    };
    for (actor, name) in [(Actor::Agent(id), "child"), (Actor::Daemon, "clock")] {
        bench.actor = actor;
        order(&mut bench, name);
        assert_eq!(record(&mut bench, name)["state"], "limited", "{name}");
    }
    assert_eq!(starts(&mut bench).len(), 0);
    bench.actor = Actor::Agent(id);
    assert_eq!(bench.ask("POST", "/api/agents/child/resume", &json!({})).0, 403, "nor goes on by an agent");
    for (path, body) in [("rotate", Value::Null), ("query", json!({"question": "why?"}))] {
        let (status, refused) = bench.ask("POST", &format!("/api/agents/dev/{path}"), &body);
        assert_eq!((status, &refused["code"]), (409, &json!("reserve")), "{path}: {refused}");
    }
    bench.actor = Actor::Operator;
    order(&mut bench, "own");
    assert_eq!(starts(&mut bench).len(), 1);
    assert_eq!(bench.ask("POST", "/api/agents/child/resume", &json!({})).0, 200);
    let consent = bench.audited("limit.consent");
    assert_eq!((&consent[0]["actor"], &consent[0]["name"]), (&json!("operator"), &json!("child")));
    let issued = starts(&mut bench);
    assert_eq!(issued.len(), 1);
    assert!(issued[0].1.request.prompt.ends_with("# Task\n\nhelp\n"), "{}", issued[0].1.request.prompt);
}

#[test]
fn where_no_figure_is_told_nothing_is_held_and_that_is_said() {
    let mut bench = bench(&json!({"limits": {"reserve": 30}}));
    let id = spawn(&mut bench, "opencode", "a");
    bench.does(id, vec![Activity::Limit(Limit::window("day", None, Some(bench.now.0 + 1_000_000)))]);
    bench.actor = Actor::Agent(id);
    starts(&mut bench);
    let spawn = SpawnRequest {
        role: "dev".into(),
        name: Some("child".into()),
        provider: Some("opencode".into()),
        ..SpawnRequest::default()
    };
    bench.agent_like(spawn);
    assert_eq!(starts(&mut bench).len(), 1);
    let quota = bench.ask("GET", "/api/quota", &Value::Null).1;
    assert_eq!(quota["reserve"], json!({"percent": 30, "withoutFigure": ["opencode"]}));
}

#[test]
fn more_that_is_left_and_less_that_is_kept_let_it_go_on() {
    for by_setting in [false, true] {
        let (mut bench, id, opens) = at(80.0);
        bench.actor = Actor::Daemon;
        let spawn = SpawnRequest {
            role: "dev".into(),
            name: Some("child".into()),
            provider: Some("claude-code".into()),
            ..SpawnRequest::default()
        };
        bench.command(crate::core::Command::Agents(crate::agents::Command::Spawn(Box::new(spawn))));
        bench.actor = Actor::Operator;
        if by_setting {
            assert_eq!(bench.ask("PATCH", "/api/config", &json!({"limits": {"reserve": 10}})).0, 200);
            let patch = bench.audited("config.patch");
            assert!(patch.last().unwrap().to_string().contains("reserve"), "{patch:?}");
        } else {
            bench.does(id, vec![told(10.0, opens)]);
        }
        bench.pass(Duration::from_secs(1));
        assert_eq!(starts(&mut bench).len(), 1, "{by_setting}");
    }
}

#[test]
fn a_window_without_a_known_reset_waits_for_a_person_and_of_two_windows_the_later_counts() {
    let (mut bench, id, opens) = at(80.0);
    let week = Limit::window("seven_day", Some(90.0), Some((opens + HOUR).0));
    bench.does(id, vec![Activity::Limit(week), turn_ended()]);
    let later = json!({"message": "paint it", "deliver": "idle"});
    assert_eq!(bench.ask("POST", "/api/agents/dev/instruct", &later).0, 200);
    bench.exits(id, 0);
    assert_eq!(record(&mut bench, "dev")["limit"]["window"], "seven_day");
    let figure = Limit::window("month", Some(90.0), None);
    let other = spawn_other(&mut bench);
    bench.does(other, vec![Activity::Limit(figure)]);
    assert_eq!(record(&mut bench, "dev")["limit"]["goesOnAt"], Value::Null);
    starts(&mut bench);
    bench.pass(4 * HOUR);
    assert_eq!(starts(&mut bench).len(), 0);
    assert_eq!(bench.ask("POST", "/api/agents/dev/resume", &json!({})).0, 200);
    assert_eq!(starts(&mut bench).len(), 1);
}

fn spawn_other(bench: &mut Bench) -> AgentId {
    bench.agent_like(SpawnRequest {
        role: "dev".into(),
        name: Some("other".into()),
        provider: Some("claude-code".into()),
        ..SpawnRequest::default()
    })
}

/// A limit opens while another window of the provider has less left than is kept.
#[test]
fn what_goes_on_after_a_limit_stops_at_what_is_kept_of_another_window() {
    let mut bench = bench(&json!({"onLimit": "wait", "limits": {"reserve": 30}}));
    let id = spawn(&mut bench, "claude-code", "build the roof");
    let (opens, week) = (bench.now + HOUR, bench.now + 4 * HOUR);
    let figure = Limit::window("seven_day", Some(90.0), Some(week.0));
    bench.does(id, vec![Activity::Limit(figure)]);
    bench.does(id, at_limit(Some(opens)));
    bench.exits(id, 0);
    starts(&mut bench);
    bench.pass(2 * HOUR);
    assert_eq!(starts(&mut bench).len(), 0);
    assert_eq!(record(&mut bench, "dev")["limit"]["reserve"], 30);
    bench.pass(3 * HOUR);
    let issued = starts(&mut bench);
    assert_eq!(issued.len(), 1);
    assert!(issued[0].1.request.prompt.ends_with("build the roof"));
}

/// A rotation inside of a turn: its successor would begin one.
#[test]
fn a_successor_begins_with_its_brief_when_the_window_opens() {
    let (mut bench, id, _) = at(80.0);
    let full = Usage { context_tokens: Some(950), context_window: Some(1000), ..Usage::default() };
    bench.does(id, vec![Activity::Usage(full)]);
    let failed = TurnEnd { is_error: true, error: "cut short".into(), ..TurnEnd::default() };
    let is_rotating = |bench: &Bench| crate::agents::rotation::under_way(&bench.state, id);
    if !is_rotating(&bench) {
        bench.with(|all, cx| crate::agents::rotation::begin(all, cx, id, "context_threshold", None));
    }
    assert!(is_rotating(&bench));
    bench.does(id, vec![Activity::TurnEnded(failed)]);
    bench.apply(Event::Job(crate::agents::JobReport::Brief(id, Ok("THE BRIEF".into()))));
    bench.exits(id, 0);
    assert_eq!(starts(&mut bench).len(), 0);
    assert_eq!(record(&mut bench, "dev")["state"], "limited");
    assert_eq!(bench.state.agents.iter().count(), 1, "one life");
    bench.pass(4 * HOUR);
    let issued = starts(&mut bench);
    assert_eq!(issued.len(), 1);
    assert!(issued[0].1.request.prompt.contains("THE BRIEF"), "{}", issued[0].1.request.prompt);
    let new = issued[0].0;
    bench.apply(Event::Run(new, crate::agents::report::RunReport::Started { pid: 2, start_ticks: 2 }));
    assert_eq!(bench.notices("rotation:complete").len(), 1, "and the rotation is one");
}

#[test]
fn what_is_held_for_a_person_is_held_by_the_next_daemon_too() {
    let (mut bench, id, _) = at(80.0);
    bench.actor = Actor::Agent(id);
    let child = SpawnRequest {
        role: "dev".into(),
        name: Some("child".into()),
        provider: Some("claude-code".into()),
        prompt: "help".into(),
        ..SpawnRequest::default()
    };
    bench.command(crate::core::Command::Agents(crate::agents::Command::Spawn(Box::new(child))));
    let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
    let ledger = serde_json::to_vec(&bench.state.usage.stored()).unwrap();
    let stored = serde_json::from_slice(&stored).unwrap();
    bench.state.agents = Arc::new(State::restore(stored, |_| "help".into(), &HashSet::from([id]), bench.now));
    let now = bench.now;
    bench.with(|all, _| crate::usage::restore(all, serde_json::from_slice(&ledger).unwrap(), now));
    bench.state.timers = Arc::default();
    bench.with(|all, _| limit::started(all));
    let stays = record(&mut bench, "child");
    assert_eq!((&stays["state"], &stays["limit"]["reserve"]), (&json!("limited"), &json!(30)));
    starts(&mut bench);
    bench.pass(2 * HOUR);
    assert_eq!(starts(&mut bench).len(), 0);
    bench.pass(2 * HOUR);
    let issued = starts(&mut bench);
    assert_eq!(issued.len(), 1);
    assert!(issued[0].1.request.prompt.contains("help"));
}
