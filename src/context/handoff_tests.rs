//! A full context at the end of a turn: who is replaced at once, and who goes on through a handoff later.

use super::triggers_tests::{context, feed, history, status, successor, turn_end};
use crate::agents::report::RunReport;
use crate::agents::{self, JobReport, RunOrder, Status};
use crate::core::ids::AgentId;
use crate::core::{Effect, Event};
use crate::providers::{Activity, SessionStart};
use crate::testing::Bench;
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
    assert_eq!((&tokens["totalUsed"], &tokens["breakdown"]["rotation"]), (&json!(900), &json!(0)));
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

/// What was said to a running process, in order.
fn spoken(bench: &Bench) -> Vec<&str> {
    let said = bench.effects.iter().filter_map(|effect| match effect {
        Effect::Run(_, RunOrder::Say { text, .. }) => Some(text.as_str()),
        _ => None,
    });
    said.collect()
}

#[test]
fn an_instruction_that_waits_for_a_rotation_is_said_at_the_turns_end() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    let (_, queued) = bench.ask("POST", "/api/agents/one/instruct", &json!({"message": "use tabs"}));
    assert_eq!((&queued["deliverOn"], &queued["queued"]), (&json!("rotation"), &json!(1)));
    feed(&mut bench, id, vec![Activity::Text { text: "working".into() }]);
    assert!(spoken(&bench).is_empty(), "not inside of the turn");
    feed(&mut bench, id, vec![turn_end()]);
    assert_eq!(spoken(&bench), ["use tabs"]);
    let finishes = bench.effects.iter().any(|effect| matches!(effect, Effect::Run(_, RunOrder::Finish)));
    assert!(!finishes, "it goes on with the message");
}

#[test]
fn an_instruction_that_waited_when_the_program_ended_well_begins_the_next_life() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    bench.ask("POST", "/api/agents/one/instruct", &json!({"message": "use tabs"}));
    bench.exits(id, 0);
    assert_eq!(last_start(&bench).0.lines().last(), Some("> use tabs"));
    let next = bench.state.agents.find("one").unwrap().id;
    bench.apply(Event::Run(next, RunReport::Started { pid: 2, start_ticks: 2 }));
    let agent = bench.state.agents.get(next).unwrap();
    assert!(next != id && agent.queue.is_empty() && agent.status.is_live());
    assert!(bench.notices("instruction:undelivered").is_empty());
}

#[test]
fn an_instruction_that_cannot_be_delivered_is_told_back() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    bench.ask("POST", "/api/agents/one/instruct", &json!({"message": "use tabs"}));
    bench.exits(id, 3);
    let told = bench.notices("instruction:undelivered");
    assert_eq!((&told[0]["agentName"], &told[0]["count"]), (&json!("one"), &json!(1)));
    assert_eq!(told[0]["instructions"][0]["message"], "use tabs");
    let (_, shown) = bench.ask("GET", "/api/agents/one", &Value::Null);
    let reason = shown["statusReason"].as_str().unwrap();
    assert!(reason.ends_with("; 1 instruction was not delivered, svc resume one delivers it"), "{reason}");
    assert_eq!(shown["pendingInstructions"], 1);
    bench.ask("POST", "/api/agents/one/resume", &json!({}));
    assert!(last_start(&bench).0.contains("use tabs"));

    // A spent budget keeps the next life from starting, and nothing of what was said is lost.
    let id = bench.agent("two");
    bench.ask("POST", "/api/agents/two/instruct", &json!({"message": "use blanks", "deliver": "idle"}));
    bench.ask("PATCH", "/api/config", &json!({"maxAgents": 1}));
    bench.exits(id, 0);
    assert_eq!(bench.notices("instruction:undelivered")[1]["agentName"], "two");
    assert_eq!(bench.ask("GET", "/api/agents/two", &Value::Null).1["pendingInstructions"], 1);
}

#[test]
fn a_remark_of_the_daemon_wakes_nobody() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    bench.with(|all, cx| agents::note(all, cx, id, "a neighbour moved in".into()));
    feed(&mut bench, id, vec![turn_end()]);
    assert!(spoken(&bench).is_empty());
    bench.exits(id, 0);
    assert_eq!(status(&bench, id), Status::Completed);
    assert!(bench.notices("instruction:undelivered").is_empty());
}

#[test]
fn deliver_auto_speaks_at_once_where_the_provider_takes_it() {
    let mut bench = Bench::new();
    bench.agent("one");
    let body = json!({"message": "teal", "deliver": "auto"});
    let (_, told) = bench.ask("POST", "/api/agents/one/instruct", &body);
    assert_eq!(told["deliverOn"], "now");
    assert_eq!(spoken(&bench), ["teal"]);
    let (status, _) =
        bench.ask("POST", "/api/agents/one/instruct", &json!({"message": "x", "deliver": "soon"}));
    assert_eq!(status, 400);
}
