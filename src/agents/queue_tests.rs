//! Agents that wait for room on the machine.

use crate::agents::limit_tests::starts;
use crate::agents::{State, Status};
use crate::core::ids::AgentId;
use crate::core::{Actor, Event};
use crate::governor::{self, Report};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use svc_base::machine::Machine;

const MIB: u64 = 1 << 20;

/// The machine has so many megabytes left of a gigabyte; 64 of them are for the person.
fn looked(bench: &mut Bench, free: u64) {
    let machine =
        Machine { memory_total: 1_024 * MIB, memory_free: free * MIB, cpus: 2, ..Machine::default() };
    bench.apply(Event::Governor(Report::Looked(Arc::new(machine), Some(Vec::new()))));
}

/// One agent runs, and there is no room for another.
fn full() -> (Bench, AgentId) {
    let mut bench = Bench::new();
    let id = bench.agent("first");
    // It has shown what it uses by now.
    bench.now = bench.now + governor::SHOWN_AFTER;
    looked(&mut bench, 70);
    starts(&mut bench);
    (bench, id)
}

fn wish(name: &str, more: &Value) -> Value {
    let mut body =
        json!({"role": "dev", "name": name, "provider": "script", "prompt": format!("{name}'s task")});
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    body
}

fn spawn(bench: &mut Bench, name: &str, more: &Value) -> Value {
    let body = wish(name, more);
    let request = crate::agents::api::spawn_body(body.as_object().unwrap()).unwrap();
    let command = crate::core::Command::Agents(crate::agents::Command::Spawn(Box::new(request)));
    let reply = bench.command(command).unwrap();
    serde_json::from_slice(reply.body.bytes()).unwrap()
}

fn started(bench: &mut Bench) -> Vec<String> {
    let starts = starts(bench);
    starts.iter().map(|(id, _)| bench.state.agents.get(*id).unwrap().name.clone()).collect()
}

fn id_of(bench: &Bench, name: &str) -> AgentId {
    bench.state.agents.find(name).unwrap().id
}

#[test]
fn without_room_an_agent_waits_and_starts_by_itself_when_there_is_some() {
    let (mut bench, first) = full();
    let record = spawn(&mut bench, "second", &json!({}));
    assert_eq!((&record["status"], &record["state"]), (&json!("active"), &json!("queued")), "{record:#}");
    assert_eq!((&record["statusCode"], &record["pid"]), (&json!("queued"), &Value::Null));
    assert!(record["statusReason"].as_str().unwrap().contains("waits for room"), "{record:#}");
    assert_eq!(bench.audited("agent.queued").len(), 1);
    looked(&mut bench, 70);
    assert_eq!(started(&mut bench), [""; 0]);
    bench.exits(first, 0);
    assert_eq!(started(&mut bench), [""; 0], "what is known of the machine is old");
    looked(&mut bench, 70);
    let order = starts(&mut bench);
    assert_eq!(order.len(), 1);
    assert!(order[0].1.request.prompt.contains("second's task"), "{}", order[0].1.request.prompt);
    let agent = bench.state.agents.find("second").unwrap();
    assert_eq!((agent.status, agent.is_queued()), (Status::Starting, false));
    looked(&mut bench, 900);
    assert_eq!(started(&mut bench), [""; 0], "once");
}

#[test]
fn of_one_priority_the_first_goes_first_and_nobody_passes_who_came_later() {
    let (mut bench, first) = full();
    for (name, priority) in [("b", "normal"), ("c", "low"), ("d", "normal"), ("e", "high")] {
        spawn(&mut bench, name, &json!({"priority": priority}));
    }
    bench.exits(first, 0);
    // There would be room, and it asks right now: those that wait go before it.
    let late = spawn(&mut bench, "f", &json!({}));
    assert!(late["statusReason"].as_str().unwrap().contains("wait for room before it"), "{late:#}");
    let mut order = Vec::new();
    for _ in 0..6 {
        looked(&mut bench, 70);
        let now = started(&mut bench);
        assert!(now.len() <= 1, "{now:?}");
        for name in now {
            bench.exits(id_of(&bench, &name), 0);
            order.push(name);
        }
    }
    assert_eq!(order, ["e", "b", "d", "f", "c"]);
}

#[test]
fn who_is_let_in_counts_at_once_with_what_it_may_come_to_use() {
    let (mut bench, _) = full();
    for n in 0..5 {
        spawn(&mut bench, &format!("w{n}"), &json!({"role": format!("role-{n}")}));
    }
    // 64 for the person, 24 for the one that runs; each of the others may need 24.
    looked(&mut bench, 64 + 24 + 24 + 24 + 10);
    assert_eq!(started(&mut bench), ["w0", "w1"]);
    looked(&mut bench, 64 + 24 + 24 + 24 + 10);
    assert_eq!(started(&mut bench), [""; 0]);
}

#[test]
fn the_queue_survives_the_daemon_and_an_agent_is_started_once() {
    let (mut bench, _) = full();
    spawn(&mut bench, "b", &json!({}));
    spawn(&mut bench, "c", &json!({}));
    let again = |bench: &mut Bench, kept: &[AgentId]| {
        let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
        let kept: HashSet<AgentId> = kept.iter().copied().collect();
        let agents =
            State::restore(serde_json::from_slice(&stored).unwrap(), |_| "b's task".into(), &kept, bench.now);
        bench.state.agents = Arc::new(agents);
        starts(bench);
        let agents = Arc::make_mut(&mut bench.state.agents);
        agents.tell_unbegun(|_| false);
        agents.take_unbegun()
    };
    assert!(again(&mut bench, &[]).is_empty());
    for name in ["b", "c"] {
        assert_eq!(bench.state.agents.find(name).unwrap().status, Status::Queued);
    }
    // The first one ended with the daemon, so one may run. The daemon dies again before the disk has it.
    bench.disk_hangs = true;
    looked(&mut bench, 70);
    assert_eq!(started(&mut bench), [""; 0], "not on disk yet");
    let b = id_of(&bench, "b");
    assert_eq!(again(&mut bench, &[]), [b]);
    bench.disk_hangs = false;
    bench.with(|all, cx| crate::agents::start_again(all, cx, b).unwrap());
    let order = starts(&mut bench);
    assert!(order.len() == 1 && order[0].1.request.prompt.contains("b's task"));
    // It dies right after the start: the keeper has it, and it is gone on with.
    assert!(again(&mut bench, &[b]).is_empty());
    let record = bench.state.agents.get(b).unwrap();
    assert!(record.is_working() && !record.is_queued() && record.has_process(), "{record:?}");
    looked(&mut bench, 70);
    assert_eq!(started(&mut bench), [""; 0]);
    let c = bench.state.agents.find("c").unwrap();
    assert!(c.is_queued());
}

#[test]
fn a_person_may_start_end_or_speak_to_one_that_waits() {
    let (mut bench, _) = full();
    for name in ["b", "c", "d"] {
        spawn(&mut bench, name, &json!({}));
    }
    assert_eq!(bench.ask("POST", "/api/agents/c/rotate", &Value::Null).0, 409);
    assert_eq!(bench.ask("POST", "/api/agents/b/instruct", &json!({"message": "and this"})).0, 200);
    bench.actor = Actor::Agent(id_of(&bench, "first"));
    assert_eq!(bench.ask("POST", "/api/agents/c/resume", &Value::Null).0, 403);
    bench.actor = Actor::Operator;
    assert_eq!(bench.ask("POST", "/api/agents/c/resume", &Value::Null).0, 200);
    assert_eq!(started(&mut bench), ["c"]);
    let (status, body) = bench.ask("DELETE", "/api/agents/d", &Value::Null);
    assert_eq!((status, &body["status"]), (200, &json!("killed")));
    assert_eq!(bench.state.agents.find("b").unwrap().queue.len(), 1);
    // A shutdown leaves the queue as it is, and does not wait for it.
    bench.with(crate::agents::stop_all);
    assert_eq!(bench.state.agents.find("b").unwrap().status, Status::Queued);
}

#[test]
fn it_is_refused_or_started_all_the_same_where_a_person_has_said_so() {
    let (mut bench, _) = full();
    let admit = |bench: &mut Bench, word: &str| {
        let body = json!({"governor": {"admit": word}});
        assert_eq!(bench.ask("PATCH", "/api/config", &body).0, 200);
    };
    spawn(&mut bench, "waits", &json!({}));
    admit(&mut bench, "refuse");
    let refusal = spawn(&mut bench, "b", &json!({}));
    assert_eq!((&refusal["status"], &refusal["code"]), (&json!(409), &json!("no_room")), "{refusal:#}");
    assert!(refusal["error"].as_str().unwrap().contains("svc capacity"));
    assert_eq!(started(&mut bench), [""; 0]);
    admit(&mut bench, "off");
    looked(&mut bench, 70);
    assert_eq!(started(&mut bench), ["waits"], "what waited goes on");
    spawn(&mut bench, "b", &json!({}));
    assert_eq!(started(&mut bench), ["b"]);
    let (status, problem) = bench.ask("PATCH", "/api/config", &json!({"governor": {"admit": "maybe"}}));
    assert_eq!(status, 400, "{problem:#}");
}

#[test]
fn who_is_resumed_waits_too_and_goes_on_in_its_session_with_what_was_said() {
    let (mut bench, _) = full();
    let other = spawn(&mut bench, "other", &json!({}));
    bench.ask("POST", "/api/agents/other/resume", &Value::Null);
    let id: AgentId = other["id"].as_str().unwrap().parse().unwrap();
    bench.apply(Event::Run(id, crate::agents::report::RunReport::Started { pid: 2, start_ticks: 1 }));
    bench.exits(id, 0);
    starts(&mut bench);
    looked(&mut bench, 70);
    let (status, body) = bench.ask("POST", "/api/agents/other/resume", &json!({"message": "once more"}));
    assert_eq!((status, &body["agent"]["state"]), (200, &json!("queued")), "{body:#}");
    looked(&mut bench, 900);
    let order = starts(&mut bench);
    assert_eq!(order.len(), 1);
    assert!(order[0].1.request.prompt.contains("once more"), "{}", order[0].1.request.prompt);
}

#[test]
fn an_agent_may_not_give_the_high_priority() {
    let (mut bench, first) = full();
    bench.actor = Actor::Agent(first);
    let refusal = spawn(&mut bench, "b", &json!({"priority": "high"}));
    assert_eq!((&refusal["status"], &refusal["code"]), (&json!(403), &json!("agent_may_not")), "{refusal:#}");
    assert_eq!(spawn(&mut bench, "c", &json!({"priority": "low"}))["priority"], json!("low"));
}

#[test]
fn who_waits_for_room_waits_on_while_the_budget_is_spent() {
    let (mut bench, first) = full();
    spawn(&mut bench, "second", &json!({}));
    let cost = crate::providers::Usage { cost_usd: Some(2.0), ..crate::providers::Usage::default() };
    bench.does(first, vec![crate::providers::Activity::Usage(cost)]);
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"safety": {"dailyBudgetUsd": 1.0}})).0, 200);
    looked(&mut bench, 900);
    assert_eq!(started(&mut bench), [""; 0]);
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"safety": {"dailyBudgetUsd": 5.0}})).0, 200);
    looked(&mut bench, 900);
    assert_eq!(started(&mut bench), ["second"]);
}
