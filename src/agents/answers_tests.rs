//! Whoever asks is answered, in its time and not before the disk has it; and what ends an agent outranks what
//! has it go on.

use super::report::RunReport;
use super::{
    Command as Wish, Job, JobReport, MAX_QUERIES, QUERY_TIMEOUT, RunOrder, SpawnRequest, Status, rotation,
};
use crate::core::{Command, Document, Durability, Effect, Event};
use crate::providers::Activity;
use crate::testing::Bench;
use serde_json::{Value, json};

fn is_written(bench: &Bench, is_it: impl Fn(&Document) -> bool) -> bool {
    let put = |effect: &Effect| matches!(effect, Effect::Put(one, Durability::BeforeReply) if is_it(one));
    bench.effects.iter().any(put)
}

fn rotate(bench: &mut Bench) -> Option<(u16, Value)> {
    bench.wish("POST", "/api/agents/dev/rotate", &Value::Null)
}

#[test]
fn a_rotation_is_answered_once_and_with_the_disk() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    assert!(rotate(&mut bench).is_none(), "it is answered when the successor runs");
    let (status, body) = rotate(&mut bench).expect("a second one at the same time is refused");
    assert_eq!((status, &body["code"]), (409, &json!("rotation_under_way")));
    bench.apply(Event::Job(JobReport::Brief(id, Ok("brief".into()))));
    bench.exits(id, 143);
    let next = bench.state.agents.find("dev").unwrap().id;
    bench.effects.clear();
    let reply = bench.apply(Event::Run(next, RunReport::Started { pid: 2, start_ticks: 2 }));
    assert_eq!(reply.expect("an answer").status, 200);
    assert!(is_written(&bench, |one| *one == Document::Agents), "the new life is on disk before");
}

#[test]
fn whoever_asked_for_a_rotation_that_fails_is_told() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    assert!(rotate(&mut bench).is_none());
    let reply = bench.apply(Event::Job(JobReport::Brief(id, Err("no log".into())))).expect("an answer");
    let body: Value = serde_json::from_slice(reply.body.bytes()).unwrap();
    assert_eq!((reply.status, &body["code"]), (500, &json!("rotation_failed")));
}

#[test]
fn whoever_asked_for_a_rotation_is_answered_although_the_agent_crashed_and_was_to_be_resumed_meanwhile() {
    for brief in [Ok("brief".to_owned()), Err("no log".to_owned())] {
        let mut bench = Bench::new();
        let id = bench.agent("dev");
        assert!(rotate(&mut bench).is_none());
        bench.exits(id, 1);
        let (status, body) = bench.ask("POST", "/api/agents/dev/resume", &Value::Null);
        assert_eq!((status, &body["code"]), (409, &json!("rotation_under_way")));
        let told = bench.apply(Event::Job(JobReport::Brief(id, brief)));
        let next = bench.state.agents.find("dev").unwrap().id;
        if next == id {
            assert_eq!(told.expect("an answer").status, 500);
            assert_eq!(bench.ask("POST", "/api/agents/dev/resume", &Value::Null).0, 200);
        } else {
            let reply = bench.apply(Event::Run(next, RunReport::Started { pid: 2, start_ticks: 2 }));
            assert_eq!(reply.expect("an answer").status, 200);
        }
    }
}

/// A rotation may be asked for before the program runs; it asks a person, and the rotation fails.
#[test]
fn who_waits_for_a_person_is_shown_so_behind_a_rotation_that_failed_though_it_began_before_the_program() {
    let mut bench = Bench::with_programs();
    let body = json!({"provider": "claude-code", "role": "dev", "name": "dev", "prompt": "work"});
    assert_eq!(bench.ask("POST", "/api/agents", &body).0, 201);
    let id = bench.state.agents.find("dev").unwrap().id;
    assert!(rotate(&mut bench).is_none());
    bench.apply(Event::Run(id, RunReport::Started { pid: 1, start_ticks: 1 }));
    let status = |bench: &Bench| bench.state.agents.get(id).unwrap().status;
    assert_eq!(status(&bench), Status::Rotating);
    let asked = Activity::PermissionAsked {
        question: "q1".into(),
        name: "Bash".into(),
        input: json!({"command": "rm x"}),
    };
    bench.does(id, vec![asked]);
    bench.apply(Event::Job(JobReport::Brief(id, Err("no log".into()))));
    assert_eq!(status(&bench), Status::Waiting);
}

#[test]
fn whoever_ends_an_agent_that_never_starts_is_told() {
    let mut bench = Bench::new();
    let request = SpawnRequest {
        role: "dev".into(),
        name: Some("dev".into()),
        provider: Some("script".into()),
        ..SpawnRequest::default()
    };
    bench.command(Command::Agents(Wish::Spawn(Box::new(request))));
    let id = bench.state.agents.find("dev").unwrap().id;
    assert!(bench.wish("DELETE", "/api/agents/dev", &Value::Null).is_none(), "its process comes first");
    let failed = RunReport::StartFailed { error: "no such program".into() };
    assert_eq!(bench.apply(Event::Run(id, failed)).expect("an answer").status, 200);
}

#[test]
fn an_agent_that_a_person_ends_while_it_is_replaced_gets_no_successor() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    bench.with(|all, cx| rotation::begin(all, cx, id, "manual", None));
    bench.apply(Event::Job(JobReport::Brief(id, Ok("brief".into()))));
    assert!(bench.wish("DELETE", "/api/agents/dev", &Value::Null).is_none(), "it ends first");
    bench.effects.clear();
    bench.exits(id, 143);
    let starts = |effect: &Effect| matches!(effect, Effect::Run(_, RunOrder::Start(_)));
    assert!(!bench.effects.iter().any(starts));
    assert_eq!(bench.state.agents.get(id).unwrap().status, Status::Killed);
}

#[test]
fn questions_are_bounded_and_none_waits_for_ever() {
    let mut bench = Bench::new();
    bench.agent("dev");
    let ask = |bench: &mut Bench| {
        bench.command(Command::Agents(Wish::Query { target: "dev".into(), question: "?".into() }))
    };
    for _ in 0..MAX_QUERIES {
        assert!(ask(&mut bench).is_none(), "it is asked");
    }
    assert_eq!(ask(&mut bench).expect("an answer").status, 429);
    bench.pass(QUERY_TIMEOUT);
    let is_given_up = |effect: &&Effect| matches!(effect, Effect::Job(Job::CancelQuery(_)));
    assert_eq!(bench.effects.iter().filter(is_given_up).count(), MAX_QUERIES);
    assert!(ask(&mut bench).is_none(), "there is room again");
}

#[test]
fn the_task_of_a_new_agent_is_on_disk_with_its_record() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    let lineage = bench.state.agents.get(id).unwrap().lineage_id;
    assert!(is_written(&bench, |one| *one == Document::Prompt(lineage)));
}
