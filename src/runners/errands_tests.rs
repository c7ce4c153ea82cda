//! What waits to be done on a machine, when it is tried, and when it is forgotten.

use super::super::State;
use super::*;
use crate::agents::report::RunReport;
use crate::assembly::documents::encode;
use crate::core::{Command, Event};
use crate::testing::{Bench, facts};
use serde_json::{Value, json};

fn bench() -> (Bench, AgentId, LineageId) {
    let mut bench = Bench::with_programs();
    bench.runner("box", &[], Some(Ok(facts(48_000))));
    let body = json!({"role": "dev", "name": "far", "provider": "script", "runner": "box", "prompt": "work"});
    let id = bench.spawn(&body);
    bench.apply(Event::Run(id, RunReport::Started { pid: 1, start_ticks: 1 }));
    let lineage = bench.state.agents.get(id).unwrap().lineage_id;
    bench.effects.clear();
    (bench, id, lineage)
}

/// The lives and lineages of the orders since the last look.
fn orders(bench: &mut Bench) -> Vec<Vec<Arc<Errand>>> {
    let orders = bench.effects.iter().filter_map(|effect| match effect {
        Effect::Runners(order) => Some(order.errands.clone()),
        _ => None,
    });
    let orders = orders.collect();
    bench.effects.clear();
    orders
}

fn reports(bench: &mut Bench, errands: &[Arc<Errand>], outcome: Result<Vec<Done>, String>) {
    let (runner, errands) = ("box".to_owned(), errands.to_vec());
    bench.apply(Event::Runners(Report { runner, errands, outcome }));
}

fn done(lineage: LineageId, ended: u64, left: Option<&str>) -> Result<Vec<Done>, String> {
    Ok(vec![Done { lineage, ended, left: left.map(str::to_owned) }])
}

fn stored(bench: &Bench) -> Value {
    serde_json::from_slice(&encode(Document::Runners, &bench.state).unwrap().unwrap()).unwrap()
}

#[test]
fn what_a_kill_has_not_reached_is_ended_when_its_machine_is_reached_again() {
    let (mut bench, id, lineage) = bench();
    bench.apply(Event::Run(id, RunReport::Line { cut: Some("no route".into()) }));
    // Answered when it has ended.
    bench.wish("DELETE", "/api/agents/far", &Value::Null);
    bench.apply(Event::Run(id, RunReport::LeftThere));
    bench.exits(id, 1);
    let first = orders(&mut bench);
    assert_eq!(first.len(), 1, "one at a time");
    assert_eq!((first[0][0].lineage, first[0][0].ends.as_slice()), (lineage, &[id][..]));
    // It is on disk, and another daemon goes on with it.
    let kept = State::restore(serde_json::from_value(stored(&bench)).unwrap());
    assert_eq!(kept.errands, bench.state.runners.errands);
    reports(&mut bench, &first[0], Err("no route".into()));
    assert_eq!(orders(&mut bench).len(), 0, "not at once");
    bench.pass(AGAIN);
    let again = orders(&mut bench);
    assert_eq!(again.len(), 1);
    reports(&mut bench, &again[0], Err("no route".into()));
    // A check that goes well does not wait for that.
    bench.checked("box", false, Ok(facts(48_000)));
    let third = orders(&mut bench);
    assert_eq!(third.len(), 1);
    reports(&mut bench, &third[0], done(lineage, 1, None));
    assert_eq!(bench.audited("runner.end").len(), 1);
    assert!(bench.state.runners.errands.is_empty() && stored(&bench)["errands"].is_null());
    bench.pass(AGAIN * 3);
    assert_eq!(orders(&mut bench).len(), 0, "nothing is left to be done");
}

#[test]
fn after_the_time_of_its_keeper_nothing_wakes_for_it_and_the_next_line_does_it_all_the_same() {
    let (mut bench, id, lineage) = bench();
    bench.apply(Event::Run(id, RunReport::LeftThere));
    bench.exits(id, 1);
    for order in orders(&mut bench) {
        reports(&mut bench, &order, Err("no route".into()));
    }
    bench.pass(Duration::from_secs(24 * 3600));
    for order in orders(&mut bench) {
        reports(&mut bench, &order, Err("no route".into()));
    }
    assert!(!bench.state.timers.is_set(Timer::Errands));
    let next = bench.spawn(&json!({"role": "dev", "provider": "script", "runner": "box", "prompt": "work"}));
    bench.apply(Event::Run(next, RunReport::Started { pid: 2, start_ticks: 2 }));
    let last = orders(&mut bench);
    assert_eq!(last.iter().flatten().filter(|errand| errand.lineage == lineage).count(), 1, "{last:?}");
}

#[test]
fn what_an_agent_has_left_goes_with_its_record_and_what_stays_is_told() {
    let (mut bench, id, lineage) = bench();
    bench.exits(id, 0);
    assert_eq!(orders(&mut bench).len(), 0);
    bench.ask("DELETE", "/api/agents/far", &Value::Null);
    let order = orders(&mut bench);
    assert!(order[0][0].tidies && order[0][0].ends.is_empty(), "{order:?}");
    reports(&mut bench, &order[0], done(lineage, 0, Some("it was not fetched")));
    let told = bench.audited("runner.tidy");
    assert_eq!((told.len(), &told[0]["left"]), (1, &json!("it was not fetched")), "{told:?}");
    assert!(bench.state.runners.errands.is_empty() && bench.state.runners.works.is_empty());
    // With a runner goes all that waits for it.
    let (mut bench, id, _) = self::bench();
    bench.exits(id, 0);
    bench.ask("DELETE", "/api/agents/far", &Value::Null);
    assert_eq!(bench.state.runners.errands.len(), 1);
    bench.command(Command::Runners(super::super::Command::Remove("box".into())));
    assert!(bench.state.runners.errands.is_empty());
}

#[test]
fn limits_errands_are_bounded_and_of_more_the_oldest_that_only_tidies_is_given_up() {
    let (mut bench, _, _) = bench();
    let lineage = |n: usize| LineageId(u32::try_from(n).unwrap() + 1);
    bench.with(|all, cx| left_there(all, cx, "box", (lineage(0), AgentId(1)), Duration::ZERO));
    for n in 1..=MAX_ERRANDS {
        bench.with(|all, cx| edit(all, cx, "box", lineage(n), |errand| errand.tidies = true));
    }
    let errands = &bench.state.runners.errands;
    assert_eq!(errands.len(), MAX_ERRANDS);
    assert_eq!((errands[0].lineage, errands[1].lineage), (lineage(0), lineage(2)), "the first one ends");
    for life in 0..20 {
        bench.with(|all, cx| left_there(all, cx, "box", (lineage(0), AgentId(life)), Duration::ZERO));
    }
    let ends = &bench.state.runners.errands[0].ends;
    assert_eq!((ends.len(), ends.last()), (MAX_LIVES, Some(&AgentId(19))));
}
