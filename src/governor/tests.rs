//! Whether there is room, by the numbers.

use super::*;
use crate::agents::SpawnRequest;
use crate::core::Event;
use crate::testing::Bench;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

/// A machine with so many megabytes, of which so many are free.
pub(super) fn machine(total: u64, free: u64) -> Machine {
    Machine { memory_total: total * MIB, memory_free: free * MIB, cpus: 2, ..Machine::default() }
}

fn looked(bench: &mut Bench, machine: Machine, agents: &[(AgentId, u64)]) {
    let agents = agents.iter().map(|(id, held)| (*id, held * MIB)).collect();
    bench.apply(Event::Governor(Report::Looked(Arc::new(machine), Some(agents))));
}

/// A daemon with places for many agents.
fn roomy() -> Bench {
    let mut bench = Bench::new();
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"maxAgents": 100})).0, 200);
    bench
}

fn agent(bench: &mut Bench, name: &str, role: &str) -> AgentId {
    bench.agent_like(SpawnRequest {
        role: role.into(),
        name: Some(name.into()),
        provider: Some("script".into()),
        ..SpawnRequest::default()
    })
}

fn why(bench: &Bench, role: &str) -> String {
    room(&bench.state, bench.now, "script", role).err().unwrap_or_default()
}

#[test]
fn what_nearly_all_runs_of_a_kind_have_used_is_what_the_next_one_is_expected_to_use() {
    let mut bench = Bench::new();
    let of = |bench: &Bench, role: &str| expected(&bench.state, bench.now, "script", role);
    assert_eq!(of(&bench, "dev"), Expected { bytes: GUESS_SCRIPTED, basis: Basis::Guessed, runs: 0 });
    assert_eq!(expected(&bench.state, bench.now, "claude-code", "dev").bytes, GUESS);
    for n in 0..30_u64 {
        let id = agent(&mut bench, &format!("a{n}"), "dev");
        // The twelfth has gone wild; what it has used is remembered, and not what all need.
        let used = if n == 12 { 9_000 } else { 100 + n };
        looked(&mut bench, machine(64_000, 60_000), &[(id, used)]);
        looked(&mut bench, machine(64_000, 60_000), &[(id, 10)]);
        bench.exits(id, 0);
    }
    assert_eq!(of(&bench, "dev"), Expected { bytes: 128 * MIB, basis: Basis::Measured, runs: MAX_RUNS });
    assert_eq!(of(&bench, "other").bytes, 128 * MIB, "others of its provider, before a guess");
    assert_eq!(expected(&bench.state, bench.now, "claude-code", "dev").basis, Basis::Guessed);
    let stored = serde_json::to_vec(&bench.state.governor.stored()).unwrap();
    let again = State::restore(serde_json::from_slice(&stored).unwrap());
    assert_eq!(again.kinds, bench.state.governor.kinds);
    assert!(again.running.is_empty() && bench.state.governor.running.is_empty());
}

#[test]
fn what_runs_now_counts_for_the_next_one_once_it_has_shown_itself() {
    let mut bench = Bench::new();
    let id = agent(&mut bench, "a", "dev");
    looked(&mut bench, machine(250, 210), &[(id, 5)]);
    let of = |bench: &Bench| expected(&bench.state, bench.now, "script", "dev");
    assert_eq!(of(&bench).basis, Basis::Guessed);
    assert!(why(&bench, "dev").contains("the first one shows it"), "{}", why(&bench, "dev"));
    assert_eq!(why(&bench, "other"), "", "another kind may try, too");
    looked(&mut bench, machine(512, 240), &[(id, 5)]);
    assert_eq!(why(&bench, "dev"), "", "the guess is little against what is left");
    bench.now = bench.now + SHOWN_AFTER;
    assert_eq!(of(&bench), Expected { bytes: 5 * MIB, basis: Basis::Running, runs: 1 });
    assert_eq!(why(&bench, "dev"), "");
    looked(&mut bench, machine(1_000, 600), &[(id, 400)]);
    looked(&mut bench, machine(1_000, 600), &[(id, 300)]);
    // It may come to 400 again; 62 are for the person.
    assert_eq!(of(&bench).bytes, 400 * MIB);
    looked(&mut bench, machine(1_000, 561), &[(id, 300)]);
    let no = why(&bench, "dev");
    assert!(no.contains("may need 400 MB") && no.contains("398 MB are left"), "{no}");
    looked(&mut bench, machine(1_000, 563), &[(id, 300)]);
    assert_eq!(why(&bench, "dev"), "");
}

#[test]
fn nobody_is_expected_to_use_more_than_an_agent_may() {
    let mut bench = Bench::new();
    let of = |bench: &Bench| expected(&bench.state, bench.now, "claude-code", "dev").bytes;
    assert_eq!(of(&bench), GUESS);
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"governor": {"agentMegabytes": 100}})).0, 200);
    assert_eq!(of(&bench), 100 * MIB);
}

#[test]
fn one_always_may_run_and_nothing_is_decided_before_the_machine_was_looked_at() {
    let mut bench = Bench::new();
    assert_eq!(why(&bench, "dev"), "");
    let id = agent(&mut bench, "a", "dev");
    assert_eq!(why(&bench, "dev"), "", "never looked at");
    looked(&mut bench, machine(512, 3), &[]);
    assert_ne!(why(&bench, "dev"), "");
    bench.exits(id, 0);
    assert_eq!(why(&bench, "dev"), "", "none runs");
    // A system that tells nothing of its memory decides nothing.
    agent(&mut bench, "b", "dev");
    looked(&mut bench, machine(0, 0), &[]);
    assert_eq!(why(&bench, "dev"), "");
}

#[test]
fn pressure_lets_nothing_in_and_busy_processors_only_a_crowd() {
    let mut bench = roomy();
    agent(&mut bench, "a", "dev");
    let roomy = || machine(64_000, 60_000);
    let mut with = |machine: Machine| {
        looked(&mut bench, machine, &[]);
        why(&bench, "dev")
    };
    assert_eq!(with(roomy()), "");
    assert!(
        with(Machine { memory_full: Some(10_00), ..roomy() }).contains("everything waits for memory 10 %")
    );
    assert_eq!(with(Machine { memory_full: Some(9_99), memory_some: Some(39_99), ..roomy() }), "");
    assert!(with(Machine { memory_some: Some(40_00), ..roomy() }).contains("something waits for memory"));
    let busy = Machine { cpu_some: Some(99_00), io_full: Some(99_00), load: 90_00, ..roomy() };
    assert_eq!(with(busy.clone()), "", "one agent is no crowd");
    for n in 0..15 {
        agent(&mut bench, &format!("b{n}"), "dev");
    }
    let mut with = |machine: Machine| {
        looked(&mut bench, machine, &[]);
        why(&bench, "dev")
    };
    assert!(with(busy.clone()).contains("waits for the disk"));
    assert!(with(Machine { io_full: None, ..busy.clone() }).contains("waits for a processor"));
    assert_eq!(with(Machine { io_full: None, cpu_some: Some(50_00), ..busy.clone() }), "");
    assert!(with(Machine { io_full: None, cpu_some: None, ..busy }).contains("90 tasks want one of 2"));
}

#[test]
fn limits_kinds_are_bounded_and_what_is_gone_is_forgotten() {
    let mut bench = Bench::new();
    for n in 0..MAX_KINDS + 5 {
        let id = agent(&mut bench, &format!("a{n}"), &format!("role-{n}"));
        looked(&mut bench, machine(64_000, 60_000), &[(id, 10)]);
        bench.now = bench.now + SECOND;
        bench.exits(id, 0);
        // A look that began before it ended.
        looked(&mut bench, machine(64_000, 60_000), &[(id, 10), (AgentId(77), 10)]);
    }
    let kinds = &bench.state.governor.kinds;
    assert_eq!((kinds.len(), bench.state.governor.running.len()), (MAX_KINDS, 0));
    assert!(!kinds.keys().any(|(_, role)| &**role == "role-0"), "the oldest has gone");
}

#[test]
fn capacity_tells_how_many_more_fit_and_why() {
    let mut bench = roomy();
    let capacity = |bench: &Bench, machine: &Machine| {
        shown::capacity(&bench.state, bench.now, machine, Some("script"), Some("dev"))
    };
    assert_eq!(capacity(&bench, &machine(512, 10))["more"], json!(1), "one always may run");
    let id = agent(&mut bench, "a", "dev");
    looked(&mut bench, machine(8_000, 7_000), &[(id, 200)]);
    bench.now = bench.now + SHOWN_AFTER;
    looked(&mut bench, machine(8_000, 7_000), &[(id, 100)]);
    let told = capacity(&bench, &machine(8_000, 7_000));
    // 7000 without 500 for the person and 100 that the one may take again, 200 each.
    assert_eq!(
        (&told["more"], &told["eachMegabytes"], &told["basis"]),
        (&json!(32), &json!(200), &json!("running"))
    );
    assert_eq!(told["memory"]["promisedMegabytes"], json!(100));
    assert_eq!(told["memory"]["reserveMegabytes"], json!(500));
    assert_eq!(told["agents"], json!([{"agentId": id, "name": "a", "megabytes": 100, "peakMegabytes": 200}]));
    assert_eq!(told["kinds"][0]["role"], json!("dev"));
    let pressed = Machine { memory_full: Some(50_00), ..machine(8_000, 7_000) };
    let told = capacity(&bench, &pressed);
    assert_eq!((&told["more"], &told["pressure"]["memoryFullPercent"]), (&json!(0), &json!(50.0)));
    assert!(told["why"].as_str().unwrap().contains("memory"));
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"governor": {"admit": "off"}})).0, 200);
    let told = capacity(&bench, &pressed);
    assert_eq!(
        (&told["why"], &told["more"]),
        (&Value::Null, &json!(told["places"]["max"].as_u64().unwrap() - 1))
    );
}
