//! Which runner is taken, and what is said where none fits.

use super::super::elsewhere::tests::request;
use super::super::report::RunReport;
use super::super::{Command, SpawnRequest};
use crate::core::{Actor, Event};
use crate::testing::{Bench, facts};
use serde_json::{Value, json};

fn runner(bench: &mut Bench, name: &str, available: Option<u64>) {
    bench.runner(name, &["big"], available.map(|available| Ok(facts(available))));
}

fn spawn(bench: &mut Bench, name: &str) -> (u16, Value) {
    let wish = SpawnRequest { name: Some(name.into()), ..request("label:big") };
    let reply = bench.command(crate::core::Command::Agents(Command::Spawn(Box::new(wish)))).unwrap();
    crate::testing::parsed(&reply)
}

#[test]
fn the_one_with_the_fewest_agents_is_taken_and_it_is_said_why() {
    let mut bench = Bench::with_programs();
    let (status, told) = spawn(&mut bench, "none");
    assert!(status == 409 && told["error"].as_str().unwrap().contains("no runner has the label"), "{told}");
    runner(&mut bench, "a", Some(32_000));
    runner(&mut bench, "b", Some(48_000));
    let mut placed = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let (status, told) = spawn(&mut bench, name);
        assert_eq!(status, 201, "{told}");
        assert!(told["placed"].as_str().unwrap().contains("with the label big"), "{told}");
        placed.push(told["runner"].as_str().unwrap().to_owned());
    }
    // Of two with as many the one that has more memory.
    assert_eq!(placed, ["b", "a", "b", "a"]);
    assert_eq!(bench.audited("agent.placed").len(), 4);
}

#[test]
fn where_none_fits_it_is_said_of_each_why() {
    let mut bench = Bench::with_programs();
    runner(&mut bench, "unseen", None);
    runner(&mut bench, "failed", None);
    bench.checked("failed", false, Err("no route".into()));
    runner(&mut bench, "full", Some(1));
    runner(&mut bench, "silent", Some(48_000));
    let (status, told) = spawn(&mut bench, "one");
    assert_eq!((status, &told["runner"]), (201, &json!("silent")), "{told}");
    let id = bench.state.agents.find("one").unwrap().id;
    bench.apply(Event::Run(id, RunReport::Started { pid: 1, start_ticks: 1 }));
    bench.apply(Event::Run(id, RunReport::Line { cut: Some("no route".into()) }));
    let (status, told) = spawn(&mut bench, "two");
    assert_eq!((status, &told["code"]), (409, &json!("no_runner_fits")), "{told}");
    let against = told["against"].to_string();
    for words in
        ["svc runner check unseen", "no route", "full: one more may need", "silent: nothing is heard of 1"]
    {
        assert!(against.contains(words), "{words}: {against}");
    }
    let maker = bench.agent("maker");
    bench.actor = Actor::Agent(maker);
    assert_eq!(spawn(&mut bench, "three").0, 403);
}
