//! Who comes near to what an agent may hold.

use crate::agents::report::{Keeper, LogEntry, Other, RunReport};
use crate::agents::{RunOrder, SpawnRequest};
use crate::core::ids::AgentId;
use crate::core::{Effect, Event};
use crate::governor::Report;
use crate::programs::registry::Detection;
use crate::testing::Bench;
use serde_json::{Value, json};
use std::sync::Arc;
use svc_base::machine::Machine;

const MIB: u64 = 1 << 20;

fn bench(provider: &str) -> (Bench, AgentId) {
    let mut bench = Bench::new();
    bench.apply(Event::Detected(["claude-code", "codex"].map(|id| Detection::installed(id, "1")).to_vec()));
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"governor": {"agentMegabytes": 1_000}})).0, 200);
    let request = SpawnRequest {
        provider: Some(provider.into()),
        role: "dev".into(),
        name: Some("a".into()),
        ..SpawnRequest::default()
    };
    let id = bench.agent_like(request);
    bench.effects.clear();
    (bench, id)
}

fn holds(bench: &mut Bench, id: AgentId, megabytes: u64) -> Value {
    let machine = Machine { memory_total: 8_000 * MIB, memory_free: 7_000 * MIB, ..Machine::default() };
    bench.apply(Event::Governor(Report::Looked(Arc::new(machine), Some(vec![(id, megabytes * MIB)]))));
    bench.ask("GET", &format!("/api/agents/{id}"), &Value::Null).1["memory"].clone()
}

fn logged(bench: &Bench) -> usize {
    let words = |effect: &Effect| match effect {
        Effect::Log(_, _, LogEntry::Other(Other::Life { text })) => {
            Some(text.contains("800 MB of the 1000 MB"))
        }
        _ => None,
    };
    bench.effects.iter().filter_map(words).filter(|is_it| *is_it).count()
}

#[test]
fn it_is_told_once_for_each_time_that_it_comes_near() {
    let (mut bench, id) = bench("script");
    assert_eq!((holds(&mut bench, id, 799), logged(&bench)), (Value::Null, 0));
    let near = json!({"megabytes": 800, "ceilingMegabytes": 1_000});
    assert_eq!((holds(&mut bench, id, 800), logged(&bench)), (near, 1));
    assert_eq!(holds(&mut bench, id, 700)["megabytes"], 700, "it is still near");
    holds(&mut bench, id, 800);
    assert_eq!(logged(&bench), 1);
    assert_eq!(holds(&mut bench, id, 649), Value::Null);
    holds(&mut bench, id, 800);
    assert_eq!(logged(&bench), 2);
}

#[test]
fn who_takes_input_inside_of_a_turn_hears_it_at_once_and_others_with_their_next_message() {
    let said = |bench: &Bench| {
        bench.effects.iter().any(
            |effect| matches!(effect, Effect::Run(_, RunOrder::Say { text, .. }) if text.contains("From svc")),
        )
    };
    let (mut bench, id) = bench("claude-code");
    bench.does(id, vec![crate::providers::Activity::TurnStarted]);
    holds(&mut bench, id, 900);
    assert!(said(&bench));
    let (mut bench, id) = self::bench("codex");
    holds(&mut bench, id, 900);
    let waits: Vec<bool> = bench.state.agents.get(id).unwrap().queue.iter().map(|one| one.is_note).collect();
    assert_eq!((said(&bench), waits), (false, vec![true]), "it is worth no life of its own");
}

#[test]
fn keepers_hear_of_another_ceiling_and_what_passes_it_is_ended_with_an_honest_reason() {
    let (mut bench, id) = bench("script");
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"governor": {"agentMegabytes": 500}})).0, 200);
    let told = |effect: &Effect| matches!(effect, Effect::Run(agent, RunOrder::Settings) if *agent == id);
    assert!(bench.effects.iter().any(told));
    bench.apply(Event::Run(
        id,
        RunReport::Exited {
            code: None,
            signal: Some(9),
            signalled: true,
            stderr_tail: String::new(),
            leaked: 0,
            keeper: Keeper::Ceiling { held: 512 * MIB + 1, ceiling: 500 * MIB },
        },
    ));
    let record = bench.ask("GET", &format!("/api/agents/{id}"), &Value::Null).1;
    assert_eq!((&record["state"], &record["statusCode"]), (&json!("killed"), &json!("memory-ceiling")));
    let words = record["statusReason"].as_str().unwrap();
    assert!(words.contains("held 513 MB of memory, and an agent may hold 500"), "{words}");
}
