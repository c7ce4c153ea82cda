//! The question before a rotation: who is asked, and that nothing of it delays or loses one.

use super::last_word::{QUESTION, TIMEOUT};
use super::{Command as Wish, Job, JobReport, SpawnRequest, State, Status};
use crate::agents::report::{Batch, Credit, Packed, RunReport};
use crate::core::ids::AgentId;
use crate::core::{CallId, Command, Effect, Event};
use crate::programs::registry::Detection;
use crate::providers::{Activity, SessionStart, Tokens, TokensDelta, TurnEnd, Usage};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

fn feed(bench: &mut Bench, id: AgentId, activities: Vec<Activity>) {
    let batch = Batch { activities, frames: Packed::default(), upto: 0, credit: Credit::free() };
    bench.apply(Event::Run(id, RunReport::Output(batch)));
}

/// An agent of this provider inside of the first turn of its session.
fn agent(bench: &mut Bench, provider: &str) -> AgentId {
    bench.apply(Event::Detected(["claude-code", "gemini"].map(|id| Detection::installed(id, "1")).into()));
    let id = bench.agent_like(SpawnRequest {
        role: "dev".into(),
        name: Some("one".into()),
        provider: Some(provider.into()),
        prompt: "x".into(),
        ..SpawnRequest::default()
    });
    let delta = TokensDelta { input: 900, ..TokensDelta::default() };
    let usage = Usage { delta, context_tokens: Some(900), context_window: Some(200_000), ..Usage::default() };
    let session = Activity::Session { id: "s1".into(), model: Some("claude-sonnet-4-5".into()) };
    feed(bench, id, vec![session, Activity::Usage(usage)]);
    id
}

fn rotate(bench: &mut Bench) {
    bench.effects.clear();
    bench.command(Command::Agents(Wish::Rotate("one".into())));
}

/// Its context is full, and it has work left.
fn fills(bench: &mut Bench, id: AgentId) {
    let full = |delta| Usage {
        delta,
        context_tokens: Some(190_000),
        context_window: Some(200_000),
        ..Usage::default()
    };
    bench.ask("POST", "/api/agents/one/instruct", &json!({"message": "use tabs", "deliver": "rotation"}));
    bench.effects.clear();
    let delta = TokensDelta { input: 190_000, ..TokensDelta::default() };
    feed(bench, id, vec![Activity::Usage(full(delta)), Activity::TurnEnded(TurnEnd::default())]);
}

/// The question that was ordered.
fn question(bench: &Bench) -> Option<CallId> {
    bench.effects.iter().find_map(|effect| match effect {
        Effect::Job(Job::Query { call, request, .. }) => {
            assert_eq!(request.prompt, QUESTION);
            assert!(
                matches!(&request.session, SessionStart::Fork { id, .. } if id == "s1"),
                "a copy of its session"
            );
            Some(*call)
        }
        _ => None,
    })
}

/// What each brief that was ordered has of the answer.
fn briefs(bench: &Bench) -> Vec<Option<String>> {
    let of = |effect: &Effect| match effect {
        Effect::Job(Job::Brief { facts, .. }) => Some(facts.last_word.clone()),
        _ => None,
    };
    bench.effects.iter().filter_map(of).collect()
}

fn is_cancelled(bench: &Bench) -> bool {
    bench.effects.iter().any(|effect| matches!(effect, Effect::Job(Job::CancelQuery(_))))
}

/// The rotation goes on to its end; what its history tells of the question.
fn ends(bench: &mut Bench, old: AgentId) -> Value {
    bench.apply(Event::Job(JobReport::Brief(old, Ok("brief".into()))));
    bench.exits(old, 0);
    let new = bench.state.agents.find("one").unwrap().id;
    assert_ne!(old, new);
    bench.apply(Event::Run(new, RunReport::Started { pid: 2, start_ticks: 2 }));
    let (_, body) = bench.ask("GET", "/api/rotation", &Value::Null);
    body["history"].as_array().unwrap().last().unwrap()["lastWord"].clone()
}

#[test]
fn a_planned_rotation_asks_once_and_the_answer_is_in_the_brief_and_booked_to_the_rotation() {
    let mut bench = Bench::new();
    let id = agent(&mut bench, "claude-code");
    rotate(&mut bench);
    let call = question(&bench).expect("it is asked");
    assert_eq!((briefs(&bench), bench.state.agents.get(id).unwrap().status), (vec![], Status::Rotating));
    bench.pass(Duration::from_secs(4));
    let tokens = Tokens { cache_read: 900, output: 100, ..Tokens::default() };
    bench.apply(Event::Job(JobReport::Query(call, Ok(("use tabs".into(), tokens)))));
    assert_eq!(briefs(&bench), [Some("use tabs".to_owned())]);
    let told = ends(&mut bench, id);
    assert_eq!((&told["outcome"], &told["waitedMs"]), (&json!("answered"), &json!(4_000)));
    // 900 x 0.30 + 100 x 15, of a million.
    assert_eq!((&told["tokens"]["cacheRead"], &told["costUsd"]), (&json!(900), &json!(0.001_77)));
    let (_, summary) = bench.ask("GET", "/api/tokens/summary", &Value::Null);
    assert_eq!(summary["internalOverhead"]["components"]["__agent_qa__"]["tokens"], 1_000);
    assert_eq!(summary["totalUsed"], 900, "the agent has not spent it");
    bench.pass(Duration::from_secs(120));
    bench.apply(Event::Job(JobReport::Query(call, Ok(("again".into(), Tokens::default())))));
    assert_eq!(
        bench.state.agents.find("one").unwrap().status,
        Status::Running,
        "nothing comes of a second answer"
    );
}

#[test]
fn a_question_that_fails_delays_nothing_and_one_that_hangs_delays_no_longer_than_its_time() {
    let mut bench = Bench::new();
    let id = agent(&mut bench, "claude-code");
    rotate(&mut bench);
    let call = question(&bench).unwrap();
    bench.apply(Event::Job(JobReport::Query(call, Err("overloaded".into()))));
    assert_eq!(briefs(&bench), [None], "at once, without it");
    assert_eq!(ends(&mut bench, id)["outcome"], "failed");

    let mut bench = Bench::new();
    let id = agent(&mut bench, "claude-code");
    rotate(&mut bench);
    let call = question(&bench).unwrap();
    bench.pass(TIMEOUT.checked_sub(Duration::from_millis(1)).unwrap());
    assert!(briefs(&bench).is_empty());
    bench.pass(Duration::from_millis(1));
    assert_eq!((briefs(&bench), is_cancelled(&bench)), (vec![None], true));
    let tokens = Tokens { input: 7, ..Tokens::default() };
    bench.apply(Event::Job(JobReport::Query(call, Ok(("too late".into(), tokens)))));
    assert_eq!(ends(&mut bench, id)["outcome"], "late");
    let (_, summary) = bench.ask("GET", "/api/tokens/summary", &Value::Null);
    assert_eq!(summary["internalOverhead"]["tokens"], 7, "what it has used is booked all the same");
}

#[test]
fn who_cannot_tell_or_is_not_to_be_asked_is_replaced_at_once() {
    type Case = (&'static str, &'static str, fn(&mut Bench));
    let cases: [Case; 5] = [
        ("the setting", "claude-code", |bench| {
            bench.ask("PATCH", "/api/config", &json!({"askBeforeRotation": false}));
        }),
        ("a cold cache", "claude-code", |bench| bench.pass(Duration::from_secs(301))),
        ("a program whose sessions have no copies", "gemini", |_| {}),
        ("a rehearsal", "script", |_| {}),
        ("eight questions under way", "claude-code", |bench| {
            for _ in 0..super::MAX_QUERIES {
                let query = Wish::Query { target: "one".into(), question: "?".into() };
                bench.command(Command::Agents(query));
            }
        }),
    ];
    for (what, provider, change) in cases {
        let mut bench = Bench::new();
        let id = agent(&mut bench, provider);
        change(&mut bench);
        rotate(&mut bench);
        assert_eq!((question(&bench), briefs(&bench)), (None, vec![None]), "{what}");
        assert_eq!(ends(&mut bench, id), Value::Null, "{what}");
    }
}

#[test]
fn an_agent_that_ends_meanwhile_is_followed_and_one_that_is_killed_is_not() {
    let mut bench = Bench::new();
    let id = agent(&mut bench, "claude-code");
    rotate(&mut bench);
    let call = question(&bench).unwrap();
    bench.exits(id, 0);
    bench.apply(Event::Job(JobReport::Query(call, Ok(("use tabs".into(), Tokens::default())))));
    assert_eq!(briefs(&bench), [Some("use tabs".to_owned())]);
    bench.apply(Event::Job(JobReport::Brief(id, Ok("brief".into()))));
    assert_eq!(bench.state.agents.find("one").unwrap().predecessor_id, Some(id), "its work goes on");

    let mut bench = Bench::new();
    let id = agent(&mut bench, "claude-code");
    fills(&mut bench, id);
    let call = question(&bench).expect("a full context is a plan, too");
    assert!(bench.wish("DELETE", "/api/agents/one", &Value::Null).is_none());
    bench.exits(id, 0);
    assert!(is_cancelled(&bench) && !super::rotation::under_way(&bench.state, id));
    bench.apply(Event::Job(JobReport::Query(call, Ok(("use tabs".into(), Tokens::default())))));
    assert!(briefs(&bench).is_empty());
    assert_eq!(bench.notices("rotation:failed").len(), 1);
}

/// The daemon was killed, and the next one goes on.
fn daemon_is_killed(bench: &mut Bench) {
    let stored = serde_json::to_value(bench.state.agents.stored()).unwrap();
    let stored = serde_json::from_value(stored).unwrap();
    bench.state.agents = Arc::new(State::restore(stored, |_| "x".into(), &HashSet::new(), bench.now));
    bench.effects.clear();
    bench.with(super::go_on);
}

#[test]
fn an_agent_that_ended_while_its_copy_was_asked_has_its_successor_from_the_next_daemon() {
    for code in [0, 3] {
        let mut bench = Bench::new();
        let id = agent(&mut bench, "claude-code");
        rotate(&mut bench);
        question(&bench).unwrap();
        bench.exits(id, code);
        let one = bench.get("/api/agents/one");
        let told = one["statusReason"].as_str().unwrap();
        assert!(told.ends_with("; a rotation (manual) prepares its successor"), "{told}");
        daemon_is_killed(&mut bench);
        assert_eq!(briefs(&bench), [None]);
        daemon_is_killed(&mut bench);
        assert_eq!(briefs(&bench), [None], "and from the one after that");
        bench.apply(Event::Job(JobReport::Brief(id, Ok("brief".into()))));
        let new = bench.state.agents.find("one").unwrap().id;
        bench.apply(Event::Run(new, RunReport::Started { pid: 2, start_ticks: 2 }));
        let entry = bench.get("/api/rotation")["history"][0].clone();
        assert_eq!((&entry["old"], &entry["new"]), (&json!(id), &json!(new)));
        assert_eq!(entry["reason"], "manual");
        daemon_is_killed(&mut bench);
        assert!(briefs(&bench).is_empty(), "it is over");
    }
}

#[test]
fn an_agent_that_ended_while_its_copy_was_asked_has_no_successor_where_none_is_to_be() {
    type Case = (&'static str, fn(&mut Bench, AgentId));
    let cases: [Case; 3] = [
        ("its record is removed", |bench, _| {
            assert_eq!(bench.ask("DELETE", "/api/agents/one", &Value::Null).0, 200);
        }),
        ("the daemon stops", |bench, _| bench.with(super::stop_all)),
        ("no brief can be made", |bench, id| {
            bench.apply(Event::Job(JobReport::Brief(id, Err("disk full".into()))));
        }),
    ];
    for (what, happens) in cases {
        let mut bench = Bench::new();
        let id = agent(&mut bench, "claude-code");
        fills(&mut bench, id);
        question(&bench).unwrap();
        bench.exits(id, 0);
        bench.effects.clear();
        happens(&mut bench, id);
        assert!(is_cancelled(&bench) && !super::rotation::under_way(&bench.state, id), "{what}");
        assert_eq!(bench.notices("rotation:failed").len(), 1, "{what}");
        if let Ok(one) = bench.state.agents.find("one") {
            assert!(!one.status_reason.to_string().contains("rotation"), "{what}: {}", one.status_reason);
        }
        daemon_is_killed(&mut bench);
        assert!(briefs(&bench).is_empty(), "{what}");
    }
}
