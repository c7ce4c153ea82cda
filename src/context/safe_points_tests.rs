//! Rotation inside of long turns, and what the ceiling does when it is passed again and again.

use super::triggers::{CEILING_LIVES, CEILING_WINDOW, weighed};
use super::triggers_tests::{
    call, context, degraded, failed_turn, feed, history, reasons, status, successor, text, turn_end,
};
use crate::agents::report::RunReport;
use crate::agents::{self, JobReport, RunOrder, SpawnRequest, Status};
use crate::core::ids::AgentId;
use crate::core::{Command, Effect, Event};
use crate::programs::registry::{Detection, Presence};
use crate::providers::{Activity, SessionStart, Tokens, TokensDelta, Usage};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::time::Duration;

fn running(bench: &mut Bench, provider: &'static str, name: &str, model: Option<&str>) -> AgentId {
    let presence = Presence::Version("1".into());
    let found = Detection { provider, presence, has_key: true, login: None };
    bench.apply(Event::Detected(vec![found]));
    let request = SpawnRequest {
        role: "dev".into(),
        name: Some(name.into()),
        provider: Some(provider.into()),
        model: model.map(Into::into),
        ..SpawnRequest::default()
    };
    bench.command(Command::Agents(agents::Command::Spawn(Box::new(request))));
    let id = bench.state.agents.find(name).expect("it was started").id;
    bench.apply(Event::Run(id, RunReport::Started { pid: 1, start_ticks: 1 }));
    id
}

fn orders(bench: &Bench, wanted: impl Fn(&RunOrder) -> bool) -> usize {
    let matching = |effect: &&Effect| matches!(effect, Effect::Run(_, order) if wanted(order));
    bench.effects.iter().filter(matching).count()
}

fn interrupts(bench: &Bench) -> usize {
    orders(bench, |order| matches!(order, RunOrder::Interrupt))
}

#[test]
fn a_full_context_rotates_inside_of_a_turn_after_a_tool_call_and_before_the_next() {
    let mut bench = Bench::new();
    let id = running(&mut bench, "claude-code", "one", None);
    let [first, first_end] = call("a", None, false);
    let [second, second_end] = call("b", None, false);
    feed(&mut bench, id, vec![first, second, context(90, 900)]);
    assert_eq!(status(&bench, id), Status::Running, "two tools are under way");
    feed(&mut bench, id, vec![first_end]);
    assert_eq!(status(&bench, id), Status::Running, "one still is");
    feed(&mut bench, id, vec![second_end]);
    assert_eq!(status(&bench, id), Status::Rotating);
    assert_eq!(interrupts(&bench), 1, "no other tool is to begin meanwhile");
    successor(&mut bench, id);
    assert_eq!(reasons(&mut bench), ["context_threshold"]);
}

#[test]
fn once_the_model_answers_a_full_context_waits_for_the_end_of_the_turn() {
    let mut bench = Bench::new();
    let id = running(&mut bench, "claude-code", "one", None);
    let [begun, ended] = call("a", None, false);
    feed(&mut bench, id, vec![begun, ended, text(), context(90, 900)]);
    assert_eq!(status(&bench, id), Status::Running, "these may be its last words");
    feed(&mut bench, id, vec![turn_end()]);
    assert_eq!((status(&bench, id), interrupts(&bench)), (Status::Running, 0), "they were");
    bench.exits(id, 0);
    assert_eq!(status(&bench, id), Status::Completed);
}

#[test]
fn a_program_that_takes_one_prompt_a_run_is_replaced_at_the_end_of_its_turn() {
    for provider in ["codex", "gemini", "opencode", "qwen"] {
        let mut bench = Bench::new();
        let id = running(&mut bench, provider, "one", None);
        feed(&mut bench, id, vec![context(90, 900)]);
        feed(&mut bench, id, call("a", None, false).into());
        assert_eq!(status(&bench, id), Status::Running, "{provider}");
        feed(&mut bench, id, vec![failed_turn()]);
        assert_eq!((status(&bench, id), interrupts(&bench)), (Status::Rotating, 0), "{provider}");
    }
}

#[test]
fn poor_quality_is_acted_on_inside_of_a_turn_too() {
    let mut bench = Bench::new();
    let id = running(&mut bench, "claude-code", "one", None);
    feed(&mut bench, id, degraded(5));
    assert_eq!((status(&bench, id), interrupts(&bench)), (Status::Rotating, 1));
    let one_shot = running(&mut bench, "codex", "two", None);
    feed(&mut bench, one_shot, degraded(5));
    assert_eq!(status(&bench, one_shot), Status::Running);
    feed(&mut bench, one_shot, vec![failed_turn()]);
    assert_eq!(status(&bench, one_shot), Status::Rotating);
    let done = running(&mut bench, "codex", "three", None);
    feed(&mut bench, done, degraded(5));
    feed(&mut bench, done, vec![turn_end()]);
    assert_eq!(status(&bench, done), Status::Running, "a finished turn is not done again");
}

#[test]
fn an_agent_interrupted_for_a_rotation_that_fails_goes_on() {
    let mut bench = Bench::new();
    let id = running(&mut bench, "claude-code", "one", None);
    feed(&mut bench, id, vec![context(90, 900)]);
    feed(&mut bench, id, call("a", None, false).into());
    feed(&mut bench, id, vec![failed_turn()]);
    bench.apply(Event::Job(JobReport::Brief(id, Err("no log".into()))));
    assert_eq!(status(&bench, id), Status::Running);
    let said = |order: &RunOrder| matches!(order, RunOrder::Say { .. });
    assert_eq!((orders(&bench, said), orders(&bench, |order| matches!(order, RunOrder::Finish))), (1, 0));
}

#[test]
fn what_is_said_while_a_full_agent_ends_goes_to_its_successor_with_the_brief() {
    let mut bench = Bench::new();
    let id = running(&mut bench, "codex", "one", None);
    let session = Activity::Session { id: "s".into(), model: None };
    feed(&mut bench, id, vec![session, context(90, 900), turn_end()]);
    bench.ask("POST", "/api/agents/one/instruct", &json!({"message": "and test it", "deliver": "idle"}));
    bench.exits(id, 0);
    let starts = |order: &RunOrder| matches!(order, RunOrder::Start(_));
    assert_eq!(orders(&bench, starts), 1, "it waits for its brief");
    bench.apply(Event::Job(JobReport::Brief(id, Ok("# Handoff".into()))));
    let prompt = bench.effects.iter().rev().find_map(|effect| match effect {
        Effect::Run(_, RunOrder::Start(order)) => {
            Some((order.request.prompt.clone(), order.request.session.clone()))
        }
        _ => None,
    });
    let (prompt, session) = prompt.expect("it goes on");
    assert!(prompt.contains("\n# Handoff\n") && prompt.contains("> and test it"), "{prompt}");
    assert_eq!(session, SessionStart::Fresh);
    let new = bench.state.agents.find("one").unwrap().id;
    bench.apply(Event::Run(new, RunReport::Started { pid: 2, start_ticks: 2 }));
    assert_eq!(reasons(&mut bench), ["context_threshold"]);
}

#[test]
fn the_window_comes_from_a_person_then_the_program_then_the_table() {
    let mut bench = Bench::new();
    let tokens = |n: u64| Activity::Usage(Usage { context_tokens: Some(n), ..Usage::default() });
    let told = |n: u64, window: u64| {
        Activity::Usage(Usage { context_tokens: Some(n), context_window: Some(window), ..Usage::default() })
    };
    let window = |bench: &Bench, id: AgentId| {
        let agent = bench.state.agents.get(id).unwrap();
        (agent.context_window, agent.context_usage())
    };
    let id = running(&mut bench, "claude-code", "one", None);
    let session = Activity::Session { id: "s".into(), model: Some("claude-sonnet-4-5-20250929".into()) };
    feed(&mut bench, id, vec![session, tokens(190_000)]);
    assert_eq!(window(&bench, id), (200_000, 0.95), "in its first turn, before any result");
    feed(&mut bench, id, vec![told(100_000, 400_000)]);
    assert_eq!(window(&bench, id), (400_000, 0.25));
    let other = Activity::Session { id: "s".into(), model: Some("claude-opus-5-5".into()) };
    feed(&mut bench, id, vec![other, tokens(100_000)]);
    assert_eq!(window(&bench, id), (1_000_000, 0.1), "another model has another window");
    let own = json!({"models": {"claude-opus-5-5": {"contextWindow": 125_000}}});
    assert_eq!(bench.ask("PATCH", "/api/config", &own).0, 200);
    feed(&mut bench, id, vec![told(100_000, 1_000_000)]);
    assert_eq!(window(&bench, id), (125_000, 0.8));
    for (provider, model, wanted) in [
        ("codex", None, (258_400, 0.7353)),
        ("gemini", Some("gemini-2.5-pro"), (1_048_576, 0.1812)),
        ("opencode", Some("x/gpt-4o"), (128_000, 1.4844)),
    ] {
        let id = running(&mut bench, provider, provider, model);
        feed(&mut bench, id, vec![tokens(190_000)]);
        assert_eq!(window(&bench, id), wanted, "{provider}");
    }
}

#[test]
fn the_ceiling_counts_a_cached_token_as_a_tenth() {
    let tokens = Tokens { input: 100, output: 20, cache_read: 5_000, cache_creation: 30 };
    assert_eq!(weighed(tokens), 650);
    let mut bench = Bench::new();
    let id = bench.agent("one");
    // 56 calls at a context of 90 000 tokens, nearly all of it cached: 5 million tokens, no runaway.
    for n in 0..56 {
        let delta = TokensDelta { input: 10, output: 400, cache_read: 90_000, cache_creation: 800 };
        feed(&mut bench, id, vec![Activity::Usage(Usage { delta, ..Usage::default() })]);
        feed(&mut bench, id, call(&n.to_string(), None, false).into());
    }
    assert!(bench.state.agents.get(id).unwrap().instance_tokens.total() > 5_000_000);
    assert_eq!(status(&bench, id), Status::Running);
}

fn with_ceiling(budget: Option<f64>) -> Bench {
    let mut bench = Bench::new();
    let safety = json!({"tokenCeilingPerAgent": 1000, "dailyBudgetUsd": budget});
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"safety": safety})).0, 200);
    bench
}

#[test]
fn a_runaway_is_ended_wherever_it_is_and_a_finished_agent_nowhere() {
    let mut bench = with_ceiling(None);
    let id = bench.agent("one");
    feed(&mut bench, id, vec![context(1, 1500)]);
    assert_eq!(status(&bench, id), Status::Running, "it may still come to a safe place");
    feed(&mut bench, id, vec![context(1, 1)]);
    assert_eq!(status(&bench, id), Status::Rotating);
    let done = bench.agent("two");
    feed(&mut bench, done, vec![context(1, 5000), turn_end()]);
    assert_eq!(status(&bench, done), Status::Running, "it has no work left");
    bench.exits(done, 0);
    assert_eq!(status(&bench, done), Status::Completed);
}

/// The agent is being stopped without a successor, for this reason.
fn is_stopped_for(bench: &mut Bench, name: &str, why: &str) {
    let id = bench.state.agents.find(name).unwrap().id;
    assert_eq!(orders(bench, |order| matches!(order, RunOrder::Stop)), 1);
    let told = bench.notices("rotation:failed").pop().expect("people are told");
    assert!(told["error"].as_str().unwrap().contains(why), "{told}");
    bench.exits(id, 143);
    let (_, record) = bench.ask("GET", &format!("/api/agents/{name}"), &Value::Null);
    assert_eq!(record["state"], "killed");
    let reason = record["statusReason"].as_str().unwrap();
    assert!(reason.contains(why) && reason.contains("svc resume"), "{reason}");
}

#[test]
fn at_the_ceiling_a_spent_budget_stops_the_agent_instead_of_replacing_it() {
    let mut bench = with_ceiling(Some(2.0));
    let id = bench.agent("one");
    let cost = Activity::Usage(Usage { cost_usd: Some(3.0), ..Usage::default() });
    feed(&mut bench, id, vec![cost, context(1, 5000)]);
    is_stopped_for(&mut bench, "one", "the daily budget is spent");
    assert!(history(&mut bench).is_empty());
}

#[test]
fn a_lineage_whose_second_life_comes_to_the_ceiling_is_stopped_and_people_are_asked() {
    let mut bench = with_ceiling(None);
    let mut id = bench.agent("one");
    for _ in 1..CEILING_LIVES {
        feed(&mut bench, id, vec![context(1, 5000)]);
        id = successor(&mut bench, id);
        bench.pass(Duration::from_secs(3_600));
    }
    bench.effects.clear();
    feed(&mut bench, id, vec![context(1, 5000)]);
    is_stopped_for(&mut bench, "one", "2 of its lives have passed their token ceiling of 1000 tokens");
    assert_eq!(reasons(&mut bench).len(), CEILING_LIVES - 1);
    bench.pass(CEILING_WINDOW);
    bench.ask("POST", "/api/agents/one/resume", &json!({}));
    let id = bench.state.agents.find("one").unwrap().id;
    bench.apply(Event::Run(id, RunReport::Started { pid: 3, start_ticks: 3 }));
    feed(&mut bench, id, vec![context(1, 5000)]);
    assert_eq!(status(&bench, id), Status::Rotating, "a day later it may again");
}
