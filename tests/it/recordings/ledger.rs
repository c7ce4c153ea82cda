//! All recordings as the work of one agent, with rotations and a resume in between: the ledger equals the
//! programs' own totals to the token.

use crate::recordings::accounting::own_total;
use crate::recordings::replay::{Replay, counted_before, lines, names, provider_of};
use crate::support::world::{World, output};
use serde_json::Value;
use svc::core::Event;
use svc::providers::{SessionStart, TokensDelta};
use svc::usage::report;

/// Claude Code repeats a message's usage on each of its lines; here every such line comes twice.
fn with_duplicates(name: &str) -> (Replay, Vec<String>) {
    let lines = lines(name);
    let twice = |line: &String| provider_of(name) == "claude-code" && line.contains("\"type\":\"assistant\"");
    let doubled =
        lines.iter().flat_map(|line| vec![line.clone(); 1 + usize::from(twice(line))]).collect::<Vec<_>>();
    let session = match counted_before(name) {
        Some(counted) => SessionStart::Resume { id: "given".to_owned(), counted },
        None => SessionStart::Fresh,
    };
    (Replay::with(name, session, &doubled), lines)
}

fn total(delta: TokensDelta) -> u64 {
    u64::try_from(delta.input + delta.output + delta.cache_read + delta.cache_creation)
        .expect("a sum of uses")
}

fn rotate(world: &mut World) {
    world.wish("POST /api/agents/one/rotate");
    world.fact("one brief # brief");
    world.fact("one exits 0");
    world.fact("one started");
}

fn resume(world: &mut World) {
    world.fact("one exits 0");
    world.wish("POST /api/agents/one/resume {}");
    world.fact("one started");
}

fn sum(rows: &Value, field: &str) -> u64 {
    rows.as_array().expect("rows").iter().map(|row| row[field].as_u64().expect("a count")).sum()
}

#[test]
fn issue_5_the_ledger_equals_all_recordings_over_duplicates_a_resume_and_three_rotations() {
    let mut world = World::new();
    world.wish(
        "PATCH /api/config {\"autoRotation\":false,\"safety\":{\"tokenCeilingPerAgent\":1000000000000}}",
    );
    world.wish("POST /api/agents {\"role\":\"dev\",\"name\":\"one\",\"provider\":\"script\"}");
    world.fact("one started");
    let names = names();
    let mut known = 0;
    for (n, name) in names.iter().enumerate() {
        let (replay, lines) = with_duplicates(name);
        let id = world.id("one");
        world.apply(Event::Run(id, output(replay.activities().cloned().collect())));
        known += total(own_total(name, &lines, counted_before(name).unwrap_or_default()));
        let lineage = world.state.agents.find("one").expect("the agent").lineage_id;
        assert_eq!(world.state.usage.tokens_of(lineage), known, "after {name}");
        if [names.len() / 4, names.len() / 2, names.len() * 3 / 4].contains(&n) {
            rotate(&mut world);
        } else if n == names.len() / 3 {
            resume(&mut world);
        }
    }
    assert_eq!(world.state.agents.rotations().total, 3);
    assert!(known > 100_000, "the recordings have tokens: {known}");
    let summary = serde_json::json!(report::summary(&world.state));
    assert_eq!(summary["totalUsed"], known);
    assert_eq!(sum(&summary["perAgent"], "used"), known);
    assert_eq!(sum(&report::by_team(&world.state)["teams"], "totalTokens"), known);
    assert_eq!(summary["perAgent"][0]["lives"], 5, "three rotations and a resume");
    let record = world.state.agents.find("one").expect("the agent");
    assert_eq!(record.tokens.total(), known, "the record says the same");
}
