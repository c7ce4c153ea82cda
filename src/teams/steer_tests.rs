//! Plans that a person steers, and recommendations that a person changes.

use super::phases::{Launch, Phase};
use super::tests::{builder, does, ends, launch, planned, state_of};
use super::*;
use crate::agents::Status;
use crate::core::Command as Core;
use crate::providers::{Activity, TurnEnd};
use crate::testing::Bench;

fn steer(bench: &mut Bench, deed: &str, phase: u64) -> (u16, Value) {
    let id = bench.state.teams.plans()[0].id;
    bench.ask("POST", &format!("/api/plans/{id}/{deed}"), &json!({"phase": phase}))
}

/// Two builders, one of whom has crashed for good.
fn blocked() -> Bench {
    let mut bench = Bench::new();
    launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
    ends(&mut bench, "b-1", 0);
    ends(&mut bench, "b-2", 3);
    ends(&mut bench, "b-2", 3);
    assert!(matches!(bench.state.teams.plans()[0].phase, Phase::Blocked { phase: 1, .. }));
    bench
}

#[test]
fn who_has_failed_is_tried_again_on_a_persons_word_and_the_plan_goes_on() {
    let mut bench = blocked();
    let lineage = bench.state.agents.find("b-2").unwrap().lineage_id;
    let (status, plan) = steer(&mut bench, "retry", 1);
    assert_eq!((status, &plan["status"]), (200, &json!("working")), "{plan}");
    assert_eq!(state_of(&bench, "b-2"), Status::Starting);
    assert_eq!(bench.state.agents.find("b-2").unwrap().lineage_id, lineage, "in its session");
    let audited = bench.audited("plan.retry");
    assert_eq!(audited[0]["agents"], json!(["b-2"]));
    // Crashing again, it is not restarted by itself a second time.
    ends(&mut bench, "b-2", 3);
    assert!(matches!(bench.state.teams.plans()[0].phase, Phase::Blocked { phase: 1, .. }));
    assert_eq!(steer(&mut bench, "retry", 1).0, 200);
    ends(&mut bench, "b-2", 0);
    assert!(bench.state.agents.find("qc-1").is_ok(), "the next phase");
}

#[test]
fn who_was_removed_is_started_anew() {
    let mut bench = blocked();
    let id = bench.state.agents.find("b-2").unwrap().id;
    assert_eq!(bench.ask("DELETE", &format!("/api/agents/{id}"), &Value::Null).0, 200);
    let (status, plan) = steer(&mut bench, "retry", 1);
    assert_eq!((status, &plan["status"]), (200, &json!("working")), "{plan}");
    let again = bench.state.agents.find("b-2").unwrap();
    assert!(again.id != id && again.status == Status::Starting);
}

#[test]
fn a_phase_is_passed_over_when_nobody_of_it_works() {
    let mut bench = Bench::new();
    launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
    let (status, body) = steer(&mut bench, "skip", 1);
    assert_eq!((status, &body["code"]), (409, &json!("agent_running")), "{body}");
    assert!(body["error"].as_str().unwrap().contains("b-1, b-2 still at work"), "{body}");
    ends(&mut bench, "b-1", 3);
    ends(&mut bench, "b-1", 3);
    ends(&mut bench, "b-2", 0);
    let (status, plan) = steer(&mut bench, "skip", 1);
    assert_eq!((status, &plan["status"], &plan["phase"]), (200, &json!("working"), &json!(2)), "{plan}");
    assert_eq!(plan["agents"][0]["outcome"], "skipped");
    assert_eq!(plan["agents"][1]["outcome"], "completed", "what was done stays done");
    assert!(bench.state.agents.find("qc-1").is_ok());
    assert_eq!(bench.audited("plan.skip")[0]["agents"], json!(["b-1"]));
    // What was passed over stays so over a restart, and starts nobody.
    let stored = serde_json::to_vec(&bench.state.teams.stored()).unwrap();
    let restored = State::restore(serde_json::from_slice(&stored).unwrap(), bench.now);
    assert_eq!(restored.plans()[0].members[0].outcome, phases::Outcome::Skipped);
    ends(&mut bench, "qc-1", 0);
    assert_eq!(bench.state.teams.plans()[0].phase, Phase::Done);
    assert_eq!(state_of(&bench, "b-1"), Status::Crashed);
}

#[test]
fn only_the_phase_that_was_seen_to_be_on_is_steered_and_by_persons_alone() {
    let mut bench = blocked();
    let (status, body) = steer(&mut bench, "skip", 2);
    assert_eq!((status, &body["code"]), (409, &json!("phase_not_on")), "{body}");
    let (status, body) = bench.ask("POST", "/api/plans/00000000/skip", &json!({"phase": 1}));
    assert_eq!(status, 404, "{body}");
    let id = bench.state.teams.plans()[0].id;
    let (status, body) = bench.ask("POST", &format!("/api/plans/{id}/retry"), &json!({}));
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("phase")));
    assert_eq!(steer(&mut bench, "skip", 1).0, 200);
    let (status, body) = steer(&mut bench, "retry", 2);
    assert_eq!((status, &body["code"]), (409, &json!("nothing_failed")), "{body}");
    ends(&mut bench, "qc-1", 0);
    assert_eq!(steer(&mut bench, "skip", 2).1["code"], "phase_not_on", "all phases are over");
}

#[test]
fn a_recommended_team_is_changed_before_the_launch() {
    let mut bench = Bench::new();
    let body = json!({"agents": [{"role": "api", "prompt": "go"}]});
    assert_eq!(bench.ask("PATCH", "/api/recommended-team", &body).0, 404);
    let spawn =
        SpawnRequest { role: "planner".into(), provider: Some("script".into()), ..SpawnRequest::default() };
    bench.command(Core::Agents(agents::Command::Spawn(Box::new(spawn))));
    let text =
        json!({"agents": [{"role": "api", "prompt": "go"}, {"role": "web", "prompt": "x"}]}).to_string();
    does(&mut bench, "planner-1", vec![Activity::TurnEnded(TurnEnd { text, ..TurnEnd::default() })]);
    let (_, known) = bench.ask("GET", "/api/recommended-team", &Value::Null);
    // What is shown can be given back, changed: one dropped, the other told more.
    let mut agents = known["agents"].clone();
    agents.as_array_mut().unwrap().remove(1);
    agents[0]["prompt"] = json!("go far");
    agents[0]["permission"] = json!("full");
    let (status, revised) = bench.ask("PATCH", "/api/recommended-team", &json!({"agents": agents}));
    assert_eq!(status, 200, "{revised}");
    assert_eq!((revised["agents"].as_array().unwrap().len(), &revised["planner"]), (1, &known["planner"]));
    assert_eq!(bench.audited("plan.revise").len(), 1);
    let (status, body) = bench.ask("PATCH", "/api/recommended-team", &json!({"agents": [{"role": "we b"}]}));
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("agents[0].role")), "{body}");
    let (_, launched) = launch(&mut bench, Launch::default());
    assert_eq!((&launched["launched"], &launched["agents"][0]["prompt"]), (&json!(1), &json!("go far")));
    assert_eq!(launched["agents"][0]["permission"], "full", "a person's word");
    assert_eq!(bench.ask("GET", "/api/recommended-team", &Value::Null).1["launched"], true);
    let late = bench.ask("PATCH", "/api/recommended-team", &json!({"agents": agents}));
    assert_eq!((late.0, &late.1["code"]), (409, &json!("already_launched")));
}
