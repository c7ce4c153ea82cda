//! Who stands still while memory is short, and who goes on.

use super::*;
use crate::agents::report::RunReport;
use crate::core::Event;
use crate::governor::{LASTING, Report};
use crate::providers::{Activity, TurnEnd};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::time::Duration;
use svc_base::machine::Machine;

const MIB: u64 = 1 << 20;
const NOBODY: [(AgentId, bool); 0] = [];
const SECOND: Duration = Duration::from_secs(1);

/// A gigabyte, so many megabytes of it free, and 64 kept for the person.
fn looked(bench: &mut Bench, free: u64) {
    let machine =
        Machine { memory_total: 1_024 * MIB, memory_free: free * MIB, cpus: 2, ..Machine::default() };
    bench.apply(Event::Governor(Report::Looked(Arc::new(machine), Some(Vec::new()))));
}

fn later(bench: &mut Bench, time: Duration, free: u64) {
    bench.now = bench.now + time;
    looked(bench, free);
}

/// Agents inside of a turn, each a second older than the next.
fn at_work<const N: usize>(bench: &mut Bench, names: [&str; N]) -> [AgentId; N] {
    let ids = names.map(|name| {
        let id = bench.agent(name);
        bench.does(id, vec![Activity::TurnStarted]);
        bench.now = bench.now + SECOND;
        id
    });
    bench.effects.clear();
    ids
}

/// What keepers were told: who is to stand still, and who to go on.
fn told(bench: &mut Bench) -> Vec<(AgentId, bool)> {
    let effects = std::mem::take(&mut bench.effects);
    let settings = effects.into_iter().filter_map(|effect| match effect {
        Effect::Run(id, RunOrder::Settings) => Some(id),
        _ => None,
    });
    let agents = &bench.state.agents;
    settings.map(|id| (id, agents.get(id).unwrap().stands_still())).collect()
}

fn record(bench: &mut Bench, name: &str) -> Value {
    bench.ask("GET", &format!("/api/agents/{name}"), &Value::Null).1
}

#[test]
fn the_newest_are_frozen_one_after_another_and_go_on_in_their_order() {
    let mut bench = Bench::new();
    let [a, b, c] = at_work(&mut bench, ["a", "b", "c"]);
    looked(&mut bench, 63);
    assert_eq!(told(&mut bench), NOBODY, "for a moment");
    later(&mut bench, LASTING, 63);
    assert_eq!(told(&mut bench), [(c, true)]);
    later(&mut bench, SETTLING.saturating_sub(SECOND), 63);
    assert_eq!(told(&mut bench), NOBODY, "what comes of it is not seen yet");
    later(&mut bench, SECOND, 63);
    assert_eq!(told(&mut bench), [(b, true)]);
    later(&mut bench, SETTLING, 10);
    assert_eq!(told(&mut bench), NOBODY, "one goes on");
    later(&mut bench, SETTLING, 95);
    assert_eq!(told(&mut bench), NOBODY, "not yet half as much again");
    later(&mut bench, SECOND, 96);
    assert_eq!(told(&mut bench), [(b, false)]);
    later(&mut bench, SETTLING.saturating_sub(SECOND), 96);
    assert_eq!(told(&mut bench), NOBODY);
    later(&mut bench, SECOND, 96);
    assert_eq!(told(&mut bench), [(c, false)]);
    assert!(!bench.state.agents.get(a).unwrap().is_frozen());
}

#[test]
fn when_the_one_that_went_on_has_ended_its_turn_the_next_goes_on_at_once() {
    let mut bench = Bench::new();
    let [a, b, c] = at_work(&mut bench, ["a", "b", "c"]);
    looked(&mut bench, 63);
    later(&mut bench, LASTING, 63);
    later(&mut bench, SETTLING, 63);
    assert_eq!(told(&mut bench), [(c, true), (b, true)]);
    let shown = record(&mut bench, "c");
    assert_eq!(
        (&shown["status"], &shown["state"], &shown["statusCode"]),
        (&json!("active"), &json!("waiting"), &json!("frozen"))
    );
    bench.does(a, vec![Activity::TurnEnded(TurnEnd::default())]);
    assert_eq!(told(&mut bench), [(b, false)]);
    bench.exits(b, 0);
    assert_eq!(told(&mut bench), [(c, false)]);
    assert_eq!(record(&mut bench, "c")["state"], "running");
}

#[test]
fn whose_turn_is_over_behind_the_order_to_stand_still_goes_on_and_begins_its_next_turn_so() {
    let mut bench = Bench::new();
    let [_, _, c] = at_work(&mut bench, ["a", "b", "c"]);
    looked(&mut bench, 63);
    later(&mut bench, LASTING, 63);
    assert_eq!(told(&mut bench), [(c, true)]);
    bench.does(c, vec![Activity::TurnEnded(TurnEnd::default())]);
    assert_eq!(told(&mut bench), [(c, false)]);
    bench.does(c, vec![Activity::TurnStarted]);
    assert!(!bench.state.agents.get(c).unwrap().stands_still());
    assert_eq!(record(&mut bench, "c")["state"], "running");
}

#[test]
fn nobody_is_frozen_for_an_agent_that_waits_for_room_or_while_an_idle_one_has_something_to_give() {
    let mut bench = Bench::new();
    let [_, b] = at_work(&mut bench, ["a", "b"]);
    bench.ask("PATCH", "/api/config", &json!({"governor": {"freeze": false}}));
    looked(&mut bench, 63);
    later(&mut bench, LASTING, 63);
    bench.effects.clear();
    later(&mut bench, SETTLING, 63);
    assert_eq!(told(&mut bench), NOBODY, "the person does not want it");
    let on = |bench: &mut Bench, is_on: bool| {
        bench.ask("PATCH", "/api/config", &json!({"governor": {"freeze": is_on}}));
        bench.effects.clear();
    };
    on(&mut bench, true);
    later(&mut bench, SECOND, 63);
    assert_eq!(told(&mut bench), [(b, true)]);
    on(&mut bench, false);
    later(&mut bench, SECOND, 10);
    assert_eq!(told(&mut bench), [(b, false)], "and not any more");
    on(&mut bench, true);
    later(&mut bench, SETTLING, 130);
    // There is no room for another, and more than enough is free.
    let (_, queued) =
        bench.ask("POST", "/api/agents", &json!({"role": "dev", "name": "c", "provider": "script"}));
    assert_eq!(queued["state"], "queued", "{queued:#}");
    later(&mut bench, LASTING, 130);
    bench.effects.clear();
    later(&mut bench, SETTLING, 130);
    assert_eq!(told(&mut bench), NOBODY);
}

#[test]
fn one_that_stands_still_is_not_silent_and_moves_to_be_ended() {
    let mut bench = Bench::new();
    let [_, b] = at_work(&mut bench, ["a", "b"]);
    looked(&mut bench, 63);
    later(&mut bench, LASTING, 63);
    assert_eq!(told(&mut bench), [(b, true)]);
    bench.pass(2 * silence::SILENCE);
    assert_eq!(bench.notices("agent:stalled").len(), 1, "of the other one");
    assert_eq!(record(&mut bench, "b")["statusCode"], "frozen");
    bench.wish("DELETE", "/api/agents/b", &Value::Null);
    assert!(!bench.state.agents.get(b).unwrap().stands_still(), "its keeper is not told again to hold it");
    bench.apply(Event::Run(b, RunReport::Left));
}
