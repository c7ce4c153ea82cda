//! Programs that were ended by a signal from outside: whatever they made of their turn, the record says so.

use crate::recordings::replay::{FOLDER, Replay, names, read};
use crate::support::world::{World, output};
use serde_json::Value;
use svc::agents::Status;
use svc::core::Event;

/// The signal that ended a recorded program, where it was sent to it on purpose.
fn ended_by(name: &str) -> Option<i64> {
    if name.starts_with("acp/") {
        return None;
    }
    let meta: Value = serde_json::from_str(&read(&format!("{FOLDER}/{name}.meta.json"))).expect("JSON");
    let sent = meta["signalsSent"].as_array()?;
    let is_signal = |one: &Value| one[1].as_str().is_some_and(|word| word.starts_with("SIG"));
    let signal = -meta["exitCode"].as_i64()?;
    (signal > 0 && !sent.is_empty() && sent.iter().all(is_signal)).then_some(signal)
}

#[test]
fn decisions_2_a_program_that_a_foreign_signal_ended_is_killed_whatever_its_last_words() {
    let mut seen = Vec::new();
    for name in names() {
        let Some(signal) = ended_by(&name) else { continue };
        let mut world = World::new();
        world.wish("POST /api/agents {\"role\":\"dev\",\"name\":\"one\",\"provider\":\"script\"}");
        world.fact("one started");
        let id = world.id("one");
        world.apply(Event::Run(id, output(Replay::of(&name).activities().cloned().collect())));
        world.fact(&format!("one dies-by-signal {signal}"));
        let agent = world.state.agents.find("one").expect("the agent");
        let told = (agent.status, agent.status_reason.to_string());
        let reason = format!("signal {signal} ended it; the daemon did not send it");
        assert_eq!(told, (Status::Killed, reason), "{name}");
        assert_eq!(agent.error, None, "{name}");
        seen.push(name);
    }
    // These end their turn when the signal comes: well, or cut short.
    for name in ["copilot-sigintgrp", "opencode-sighup", "opencode-sigint", "opencode-sigtermgrp"] {
        let ends = Replay::of(name).turn_ends().len();
        assert!(seen.iter().any(|one| one == name) && ends == 1, "{name}: {ends}");
    }
    assert!(seen.len() >= 12, "{seen:?}");
}
