//! Who may send an agent to another machine, what goes along, and what becomes known of the line.

use super::super::report::RunReport;
use super::super::{Command, RunOrder, SpawnRequest};
use crate::core::ids::AgentId;
use crate::core::{Actor, Effect, Event};
use crate::providers::environment::Extra;
use crate::runners::{self, Facts};
use crate::testing::{Bench, facts};
use serde_json::{Value, json};
use std::sync::Arc;

pub fn bench() -> Bench {
    let mut bench = Bench::with_programs();
    let bare = Facts { git: None, ..facts(1000) };
    for (name, found) in [("box", Some(facts(1000))), ("other", Some(bare)), ("unknown", None)] {
        bench.runner(name, &[], found.map(Ok));
    }
    bench
}

pub fn request(runner: &str) -> SpawnRequest {
    SpawnRequest {
        role: "dev".into(),
        name: Some("far".into()),
        provider: Some("script".into()),
        runner: Some(runner.into()),
        worktree: Some(".svc/worktrees/far".into()),
        ..SpawnRequest::default()
    }
}

fn refused(bench: &mut Bench, request: SpawnRequest) -> (u16, String) {
    let reply = bench.command(crate::core::Command::Agents(Command::Spawn(Box::new(request)))).unwrap();
    (reply.status, String::from_utf8_lossy(reply.body.bytes()).into_owned())
}

fn agent(bench: &Bench, id: AgentId) -> Value {
    json!(bench.state.agents.get(id).unwrap().status_reason.code())
}

#[test]
fn only_a_person_sends_an_agent_away_and_only_where_it_is_known_what_is_there() {
    let mut bench = bench();
    for (runner, words) in [
        ("nowhere", "there is no runner"),
        ("other", "there is no git"),
        ("unknown", "svc runner check unknown"),
    ] {
        let (status, told) = refused(&mut bench, request(runner));
        assert!(status == 400 && told.contains(words), "{runner}: {told}");
    }
    let (status, told) =
        refused(&mut bench, SpawnRequest { provider: Some("gemini".into()), ..request("box") });
    assert!(status == 400 && told.contains("no fence"), "{told}");
    let maker = bench.agent("maker");
    bench.actor = Actor::Agent(maker);
    let (status, told) = refused(&mut bench, request("box"));
    assert!(status == 403 && told.contains("a person has to"), "{told}");
    bench.actor = Actor::Operator;
    bench.ask("PATCH", "/api/config", &json!({"enforcement": "kernel"}));
    let (status, told) = refused(&mut bench, request("box"));
    assert!(status == 400 && told.contains("enforcement is kernel"), "{told}");
}

#[test]
fn what_goes_along_is_made_for_that_machine_and_holds_nothing_of_this_one() {
    let mut bench = bench();
    bench.ask("PATCH", "/api/config", &json!({"env": {"set": {"SECRET_KEY": "here"}}}));
    let named = Extra { set: [("NAMED".to_owned(), Some("1".to_owned()))].into(), ..Extra::default() };
    bench.effects.clear();
    bench.agent_like(SpawnRequest { env: named.clone(), ..request("box") });
    let order = bench.effects.iter().find_map(|effect| match effect {
        Effect::Run(_, RunOrder::Start(order)) => Some(order),
        _ => None,
    });
    let order = order.unwrap();
    assert_eq!(order.request.extra_env, named);
    assert!(order.request.hook_program.is_none() && order.request.room.is_none());
    let far = order.far.as_ref().unwrap().as_ref().unwrap();
    assert_eq!((far.branch.as_str(), &far.tree), ("svc/far", &order.request.working_dir));
    assert!(far.tree.starts_with("/there/.local/state/svc/runners"), "{far:?}");
}

#[test]
fn a_line_that_is_cut_is_shown_and_forgotten_when_it_stands_again() {
    let mut bench = bench();
    let id = bench.agent_like(request("box"));
    let before = agent(&bench, id);
    let line = |bench: &mut Bench, cut: Option<&str>| {
        bench.apply(Event::Run(id, RunReport::Line { cut: cut.map(str::to_owned) }));
    };
    line(&mut bench, None);
    assert_eq!(agent(&bench, id), before, "it was not cut");
    line(&mut bench, Some("no \u{1b}[2J route"));
    line(&mut bench, Some("still none"));
    assert_eq!(agent(&bench, id), "unreachable");
    let listed = bench.get("/api/runners")["runners"][0].clone();
    assert_eq!((&listed["agents"], &listed["unreachable"]), (&json!(1), &json!(1)), "{listed}");
    let remove = crate::core::Command::Runners(runners::Command::Remove("box".into()));
    assert_eq!(bench.command(remove).unwrap().status, 409, "somebody works there");
    line(&mut bench, None);
    assert_eq!(agent(&bench, id), before);
}

#[test]
fn an_agent_that_has_ended_goes_on_where_a_person_says_and_leaves_its_session_behind() {
    let mut bench = bench();
    let id = bench.agent_like(request("box"));
    let resume = |bench: &mut Bench, runner: &str| {
        bench.ask("POST", "/api/agents/far/resume", &json!({"runner": runner}))
    };
    let (status, told) = resume(&mut bench, "here");
    assert_eq!((status, &told["code"]), (409, &json!("agent_alive")), "{told}");
    bench.exits(id, 1);
    let (status, told) = resume(&mut bench, "other");
    assert!(status == 400 && told.to_string().contains("there is no git"), "{told}");
    if let Some(agent) = Arc::make_mut(&mut bench.state.agents).edit(id) {
        agent.session_id = Some("s-1".into());
    }
    let (status, told) = resume(&mut bench, "here");
    assert_eq!(status, 200, "{told}");
    assert_eq!(
        (&told["agent"]["runner"], &told["agent"]["sessionId"]),
        (&Value::Null, &Value::Null),
        "{told}"
    );
    assert_eq!(bench.audited("agent.move").len(), 1);
}
