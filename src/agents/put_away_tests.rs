//! Who is put away while memory is short, and how it comes back.

use super::*;
use crate::agents::limit_tests::starts;
use crate::agents::report::RunReport;
use crate::agents::{RunOrder, SpawnRequest, State};
use crate::core::{Actor, Event};
use crate::governor::{LASTING, Report, SETTLING};
use crate::programs::registry::Detection;
use crate::providers::{Activity, SessionStart, TurnEnd};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::collections::HashSet;
use svc_base::machine::Machine;

const MIB: u64 = 1 << 20;
const NOBODY: [AgentId; 0] = [];
const SECOND: Duration = Duration::from_secs(1);

/// The machine has a gigabyte, of which so many megabytes are free and 64 kept for the person; each of these
/// agents holds a hundred.
fn looked(bench: &mut Bench, mut machine: Machine, holders: &[AgentId]) {
    (machine.memory_total, machine.cpus) = (1_024 * MIB, 2);
    let held = holders.iter().map(|id| (*id, 100 * MIB)).collect();
    bench.apply(Event::Governor(Report::Looked(Arc::new(machine), Some(held))));
}

fn free(megabytes: u64) -> Machine {
    Machine { memory_free: megabytes * MIB, ..Machine::default() }
}

/// Looked at now, and when that has lasted.
fn lasts(bench: &mut Bench, machine: &Machine, holders: &[AgentId]) {
    looked(bench, machine.clone(), holders);
    bench.now = bench.now + LASTING;
    looked(bench, machine.clone(), holders);
}

/// Asks a person, and ends its turn; the approval's id.
fn waits(bench: &mut Bench, id: AgentId) -> String {
    bench.does(id, vec![Activity::Session { id: format!("s-{id}"), model: None }, Activity::TurnStarted]);
    bench.actor = Actor::Agent(id);
    let (status, asked) = bench.ask("POST", "/api/questions", &json!({"question": "red or blue?"}));
    assert_eq!(status, 202, "{asked}");
    bench.actor = Actor::Operator;
    bench.does(id, vec![Activity::TurnEnded(TurnEnd::default())]);
    assert_eq!(bench.state.agents.get(id).unwrap().status, Status::Waiting);
    bench.effects.clear();
    asked["approvalId"].as_str().unwrap().to_owned()
}

/// So many agents that wait for a person, each for a second longer than the next.
fn idle<const N: usize>(bench: &mut Bench, names: [&str; N]) -> [AgentId; N] {
    let ids = names.map(|name| bench.agent(name));
    for id in ids {
        waits(bench, id);
        bench.now = bench.now + SECOND;
    }
    bench.now = bench.now + IDLE_LEAST;
    ids
}

fn let_go(bench: &mut Bench) -> Vec<AgentId> {
    let finish = |effect| match effect {
        Effect::Run(id, RunOrder::Finish) => Some(id),
        _ => None,
    };
    std::mem::take(&mut bench.effects).into_iter().filter_map(finish).collect()
}

fn record(bench: &mut Bench, name: &str) -> Value {
    bench.ask("GET", &format!("/api/agents/{name}"), &Value::Null).1
}

/// One agent that is put away.
fn away() -> (Bench, AgentId, String) {
    let mut bench = Bench::new();
    let id = bench.agent("a");
    let approval = waits(&mut bench, id);
    bench.now = bench.now + IDLE_LEAST;
    lasts(&mut bench, &free(10), &[id]);
    assert_eq!(let_go(&mut bench), [id]);
    bench.exits(id, 0);
    (bench, id, approval)
}

#[test]
fn who_has_been_idle_longest_gives_back_what_is_missing_and_no_more() {
    let mut bench = Bench::new();
    let [a, b, c] = idle(&mut bench, ["a", "b", "c"]);
    let holders = [a, b, c];
    looked(&mut bench, free(64), &holders);
    assert_eq!(let_go(&mut bench), NOBODY, "as much is free as is kept");
    looked(&mut bench, free(63), &holders);
    assert_eq!(let_go(&mut bench), NOBODY, "for a moment");
    bench.now = bench.now + LASTING;
    looked(&mut bench, free(63), &holders);
    assert_eq!(let_go(&mut bench), [a]);
    bench.now = bench.now + SECOND;
    looked(&mut bench, free(63), &holders);
    assert_eq!(let_go(&mut bench), NOBODY, "what it holds is on its way");
    bench.exits(a, 0);
    looked(&mut bench, free(95), &[b, c]);
    assert_eq!(let_go(&mut bench), [b], "not yet half as much again");
    bench.exits(b, 0);
    looked(&mut bench, free(96), &[c]);
    looked(&mut bench, free(65), &[c]);
    bench.now = bench.now + LASTING;
    looked(&mut bench, free(65), &[c]);
    assert_eq!(let_go(&mut bench), NOBODY, "it is short no more");
    let shown = record(&mut bench, "a");
    assert_eq!(
        (&shown["status"], &shown["state"], &shown["statusCode"], &shown["pid"]),
        (&json!("active"), &json!("waiting"), &json!("put-away"), &Value::Null)
    );
    let words = shown["statusReason"].as_str().unwrap();
    assert!(words.contains("memory is short") && words.contains("red or blue?"), "{words}");
}

#[test]
fn a_word_starts_it_in_its_session_under_its_name_and_at_its_place() {
    let (mut bench, id, _) = away();
    assert_eq!(
        bench.ask("PATCH", "/api/config", &json!({"maxAgents": 1, "governor": {"admit": "refuse"}})).0,
        200
    );
    starts(&mut bench);
    let (status, told) = bench.ask("POST", "/api/agents/a/instruct", &json!({"message": "take blue"}));
    assert_eq!(status, 200, "{told}");
    let order = starts(&mut bench);
    let [(next, order)] = &order[..] else { panic!("{} starts", order.len()) };
    assert!(order.request.prompt.contains("take blue"), "{}", order.request.prompt);
    assert!(
        matches!(&order.request.session, SessionStart::Resume { id: of, .. } if *of == format!("s-{id}"))
    );
    bench.apply(Event::Run(*next, RunReport::Started { pid: 2, start_ticks: 2 }));
    let shown = record(&mut bench, "a");
    assert_eq!((&shown["state"], &shown["statusCode"]), (&json!("waiting"), &json!("awaits-decision")));
    assert!(!bench.state.agents.get(*next).unwrap().is_put_away());
}

#[test]
fn a_decision_brings_it_back_and_so_does_a_person_without_a_word() {
    let (mut bench, _, approval) = away();
    let decide = json!({"reason": "blue it is"});
    assert_eq!(bench.ask("POST", &format!("/api/approvals/{approval}/reject"), &decide).0, 200);
    let order = starts(&mut bench);
    assert!(order.len() == 1 && order[0].1.request.prompt.contains("blue it is"), "{}", order.len());
    let (mut bench, id, _) = away();
    assert_eq!(bench.ask("POST", "/api/agents/a/resume", &Value::Null).0, 200);
    let order = starts(&mut bench);
    assert!(order.len() == 1 && order[0].0 != id);
    assert_eq!(bench.ask("GET", &format!("/api/agents/{id}"), &Value::Null).1["name"], "a");
}

#[test]
fn what_is_decided_or_said_while_its_process_ends_begins_its_next_life() {
    for (path, body) in
        [("instruct", json!({"message": "take blue"})), ("reject", json!({"reason": "take blue"}))]
    {
        let mut bench = Bench::new();
        let id = bench.agent("a");
        let approval = waits(&mut bench, id);
        bench.now = bench.now + IDLE_LEAST;
        lasts(&mut bench, &free(10), &[id]);
        assert_eq!(let_go(&mut bench), [id]);
        let target =
            if path == "reject" { format!("/api/approvals/{approval}") } else { "/api/agents/a".into() };
        assert_eq!(bench.ask("POST", &format!("{target}/{path}"), &body).0, 200);
        assert_eq!(starts(&mut bench).len(), 0, "a session has one writer");
        bench.exits(id, 0);
        let order = starts(&mut bench);
        assert!(
            order.len() == 1 && order[0].1.request.prompt.contains("take blue"),
            "{path}: {}",
            order.len()
        );
        let next = bench.state.agents.find("a").unwrap();
        assert!(next.put_away.is_none() && next.queue.iter().all(|message| message.in_prompt));
    }
}

#[test]
fn nobody_is_put_away_who_would_lose_something() {
    let mut bench = Bench::new();
    bench.apply(Event::Detected(["claude-code", "codex"].map(|id| Detection::installed(id, "1")).to_vec()));
    let [in_turn, asked, nameless, written] = idle(&mut bench, ["in-turn", "asked", "nameless", "written"]);
    bench.does(in_turn, vec![Activity::TurnStarted]);
    let question = Activity::PermissionAsked {
        question: "q7".into(),
        name: "Bash".into(),
        input: json!({"command": "make"}),
    };
    bench.does(asked, vec![question, Activity::TurnEnded(TurnEnd::default())]);
    let say = json!({"message": "use tabs", "deliver": "now"});
    assert_eq!(bench.ask("POST", "/api/agents/written/instruct", &say).0, 200);
    if let Some(agent) = Arc::make_mut(&mut bench.state.agents).edit(nameless) {
        agent.session_confirmed = false;
    }
    let [busy, fresh] = ["busy", "fresh"].map(|name| bench.agent(name));
    bench.now = bench.now + IDLE_LEAST;
    lasts(&mut bench, &free(1), &[in_turn, asked, nameless, written, busy]);
    assert_eq!(let_go(&mut bench), NOBODY);
    // Somebody who may be about to decide.
    waits(&mut bench, fresh);
    looked(&mut bench, free(1), &[fresh]);
    assert_eq!(let_go(&mut bench), NOBODY);
    bench.now = bench.now + IDLE_LEAST;
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"governor": {"putAway": false}})).0, 200);
    looked(&mut bench, free(1), &[fresh]);
    assert_eq!(let_go(&mut bench), NOBODY, "a person does not want it");
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"governor": {"putAway": true}})).0, 200);
    looked(&mut bench, free(1), &[fresh]);
    assert_eq!(let_go(&mut bench), [fresh]);
}

#[test]
fn while_only_tasks_wait_for_memory_one_at_a_time_goes_and_then_a_while_is_waited() {
    let mut bench = Bench::new();
    let [a, b] = idle(&mut bench, ["a", "b"]);
    let full = |share| Machine { memory_full: Some(share), ..free(900) };
    lasts(&mut bench, &full(9_99), &[a, b]);
    assert_eq!(let_go(&mut bench), NOBODY);
    lasts(&mut bench, &full(10_00), &[a, b]);
    assert_eq!(let_go(&mut bench), [a]);
    bench.exits(a, 0);
    bench.now = bench.now + SETTLING.saturating_sub(SECOND);
    looked(&mut bench, full(10_00), &[b]);
    assert_eq!(let_go(&mut bench), NOBODY);
    bench.now = bench.now + SECOND;
    looked(&mut bench, full(4_99), &[b]);
    assert_eq!(let_go(&mut bench), NOBODY, "less than half of it: it is over");
    lasts(&mut bench, &full(5_00), &[b]);
    assert_eq!(let_go(&mut bench), NOBODY, "which is not where it begins");
    lasts(&mut bench, &full(10_00), &[b]);
    assert_eq!(let_go(&mut bench), [b]);
}

#[test]
fn who_waits_for_room_gets_that_of_idle_agents() {
    let mut bench = Bench::new();
    let [a, b] = idle(&mut bench, ["a", "b"]);
    bench.now = bench.now + crate::governor::SHOWN_AFTER;
    // 64 for the person, and one of this kind may need a hundred.
    looked(&mut bench, free(150), &[a, b]);
    let request = SpawnRequest {
        role: "dev".into(),
        name: Some("next".into()),
        provider: Some("script".into()),
        ..SpawnRequest::default()
    };
    let command = crate::core::Command::Agents(crate::agents::Command::Spawn(Box::new(request)));
    assert!(bench.command(command).is_some());
    assert!(bench.state.agents.find("next").unwrap().is_queued());
    starts(&mut bench);
    lasts(&mut bench, &free(150), &[a, b]);
    assert_eq!(let_go(&mut bench), [a]);
    bench.exits(a, 0);
    looked(&mut bench, free(250), &[b]);
    let order = starts(&mut bench);
    assert_eq!(order.len(), 1);
    assert_eq!(bench.state.agents.get(order[0].0).unwrap().name, "next");
    assert!(bench.state.agents.find("a").unwrap().is_put_away());
}

#[test]
fn it_stays_put_away_over_a_restart_keeps_its_locks_and_can_be_ended() {
    let mut bench = Bench::new();
    let id = bench.agent("a");
    bench.actor = Actor::Agent(id);
    let lock = json!({"operation": "release", "resources": ["port:80"]});
    assert_eq!(bench.ask("POST", "/api/coordination/declare", &lock).0, 200);
    bench.actor = Actor::Operator;
    waits(&mut bench, id);
    bench.now = bench.now + IDLE_LEAST;
    lasts(&mut bench, &free(10), &[id]);
    assert_eq!(let_go(&mut bench), [id]);
    let restarted = |bench: &Bench, kept: &[AgentId]| {
        let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
        let kept: HashSet<AgentId> = kept.iter().copied().collect();
        State::restore(serde_json::from_slice(&stored).unwrap(), |_| "p".into(), &kept, bench.now)
    };
    // A daemon that is killed while the process ends: the next one lets it go again.
    bench.state.agents = Arc::new(restarted(&bench, &[id]));
    bench.apply(Event::Run(id, RunReport::CaughtUp));
    assert_eq!(let_go(&mut bench), [id]);
    bench.exits(id, 0);
    assert_eq!(bench.state.coordination.iter().count(), 1);
    let after = restarted(&bench, &[]);
    assert!(!after.has_lost());
    bench.state.agents = Arc::new(after);
    let agent = bench.state.agents.get(id).unwrap();
    assert!(agent.is_put_away() && agent.has_no_run() && agent.status == Status::Waiting);
    assert_eq!(bench.ask("DELETE", "/api/agents/a", &Value::Null).0, 200);
    assert_eq!(record(&mut bench, "a")["statusCode"], "stopped");
    assert_eq!(bench.state.coordination.iter().count(), 0);
}

#[test]
fn one_whose_program_fails_on_its_way_out_has_failed() {
    let mut bench = Bench::new();
    let [a] = idle(&mut bench, ["a"]);
    lasts(&mut bench, &free(10), &[a]);
    let failed = TurnEnd { is_error: true, error: "broken".into(), ..TurnEnd::default() };
    bench.does(a, vec![Activity::TurnStarted, Activity::TurnEnded(failed)]);
    bench.exits(a, 1);
    let agent = bench.state.agents.get(a).unwrap();
    assert_eq!((agent.status, agent.put_away.is_none()), (Status::Crashed, true));
}

/// What is missing is a matter of the numbers alone.
#[test]
fn readings_come_and_go_and_it_never_flutters() {
    let mut bench = Bench::new();
    let [a, b] = idle(&mut bench, ["a", "b"]);
    let mut left = 0;
    for second in 0..60 {
        bench.now = bench.now + SECOND;
        // Around what is kept, above and below, never for long.
        looked(&mut bench, free(if second % 4 == 3 { 97 } else { 63 }), &[a, b]);
        left += let_go(&mut bench).len();
    }
    assert_eq!(left, 0, "three seconds are not passed once");
    assert_eq!(governor::lacking(&bench.state, bench.now), 0);
}
