//! A full context at the end of a turn: who is replaced at once, and who goes on through a handoff later.

use super::triggers_tests::{context, feed, history, status, successor, turn_end};
use crate::agents::report::RunReport;
use crate::agents::{self, JobReport, RunOrder, Status};
use crate::core::ids::AgentId;
use crate::core::testing::Bench;
use crate::core::{Effect, Event};
use crate::providers::{Activity, SessionStart};
use serde_json::{Value, json};

/// How the last process was started.
fn last_start(bench: &Bench) -> (String, SessionStart) {
    let started = bench.effects.iter().rev().find_map(|effect| match effect {
        Effect::Run(_, RunOrder::Start(order)) => {
            Some((order.request.prompt.clone(), order.request.session.clone()))
        }
        _ => None,
    });
    started.expect("a start")
}

/// An agent whose turn has ended well with a full context.
fn finished_full(bench: &mut Bench, name: &str) -> AgentId {
    let id = bench.agent(name);
    let session = Activity::Session { id: format!("s-{name}"), model: None };
    feed(bench, id, vec![session, context(90, 900), turn_end()]);
    assert_eq!(status(bench, id), Status::Running, "it has no work left to hand over");
    bench.exits(id, 0);
    assert_eq!(status(bench, id), Status::Completed);
    let asked = bench
        .effects
        .iter()
        .any(|effect| matches!(effect, Effect::Job(agents::Job::Brief { agent, .. }) if *agent == id));
    assert!(asked, "a brief is made in case that it goes on");
    id
}

#[test]
fn an_agent_that_has_finished_with_a_full_context_is_handed_over_when_it_goes_on() {
    let mut bench = Bench::new();
    let old = finished_full(&mut bench, "one");
    bench.apply(Event::Job(JobReport::Brief(old, Ok("# Handoff of one".into()))));
    assert!(history(&mut bench).is_empty() && bench.notices("rotation:start").is_empty());
    let (status_code, body) =
        bench.ask("POST", "/api/agents/one/resume", &json!({"message": "now test it\ntwice"}));
    assert_eq!(status_code, 200, "{body}");
    let (prompt, session) = last_start(&bench);
    assert_eq!(session, SessionStart::Fresh);
    assert_eq!(prompt, "# Handoff of one\n# The user says now\n\n> now test it\n> twice\n");
    let new = bench.state.agents.find("one").unwrap().id;
    assert_eq!((&body["id"], &body["resumed"]), (&json!(new), &json!(old)));
    bench.apply(Event::Run(new, RunReport::Started { pid: 2, start_ticks: 2 }));
    let entry = history(&mut bench)[0].clone();
    assert_eq!(
        (&entry["old"], &entry["new"], &entry["reason"]),
        (&json!(old), &json!(new), &json!("context_threshold"))
    );
    let told = &bench.notices("rotation:complete")[0];
    assert_eq!((&told["oldAgentId"], &told["tokensSaved"]), (&json!(old), &json!(900)));
    assert_eq!(bench.notices("rotation:start")[0]["agentId"], json!(old));
    let (_, chain) = bench.ask("GET", "/api/memory/handoff-chain/dev", &Value::Null);
    assert_eq!(chain["entries"][0]["body"], "# Handoff of one");
    let (_, tokens) = bench.ask("GET", "/api/tokens/summary", &Value::Null);
    assert_eq!((&tokens["totalUsed"], &tokens["breakdown"]["rotation"]), (&json!(900), &json!(900)));
    assert_eq!(tokens["breakdown"]["coldStart"], 0, "its session is not resumed");
}

#[test]
fn without_a_brief_or_within_the_cooldown_a_finished_agent_goes_on_in_its_session() {
    let mut bench = Bench::new();
    let old = finished_full(&mut bench, "one");
    bench.apply(Event::Job(JobReport::Brief(old, Err("no log".into()))));
    bench.ask("POST", "/api/agents/one/resume", &json!({}));
    assert!(matches!(last_start(&bench).1, SessionStart::Resume { .. }), "no brief");

    let old = finished_full(&mut bench, "two");
    bench.apply(Event::Job(JobReport::Brief(old, Ok("brief".into()))));
    bench.ask("PATCH", "/api/config", &json!({"autoRotation": false}));
    bench.ask("POST", "/api/agents/two/resume", &json!({}));
    assert!(matches!(last_start(&bench).1, SessionStart::Resume { .. }), "autoRotation is off");
    assert!(history(&mut bench).is_empty());
    let (_, chain) = bench.ask("GET", "/api/memory/handoff-chain/dev", &Value::Null);
    assert_eq!(chain["entries"], json!([]), "a brief that nobody got is in no chain");
}

#[test]
fn a_full_context_is_replaced_at_a_good_turns_end_when_an_instruction_waits_for_the_rotation() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    bench.ask("POST", "/api/agents/one/instruct", &json!({"message": "use tabs"}));
    feed(&mut bench, id, vec![context(90, 900), turn_end()]);
    let new = successor(&mut bench, id);
    assert!(last_start(&bench).0.contains("> use tabs"));
    assert!(bench.state.agents.get(new).unwrap().queue.is_empty());
}
