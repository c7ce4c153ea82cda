//! Rotation triggers, quality and adaptive thresholds, line by line of the specification.

use super::adaptive::{CONVERGED_SESSIONS, Profile};
use super::quality::{MIN_EVENTS, WINDOW, Window};
use super::triggers;
use crate::agents::report::{Batch, Credit, Packed, RunReport};
use crate::agents::{self, JobReport, SpawnRequest, Status};
use crate::core::ids::AgentId;
use crate::core::{Command, Event};
use crate::providers::{Activity, TokensDelta, TurnEnd, Usage};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::time::Duration;

/// `percent` of a window of 1000 tokens, `used` more tokens.
pub(super) fn context(percent: u64, used: i64) -> Activity {
    Activity::Usage(Usage {
        delta: TokensDelta { input: used, ..TokensDelta::default() },
        context_tokens: Some(percent * 10),
        context_window: Some(1_000),
        ..Usage::default()
    })
}

pub(super) fn text() -> Activity {
    Activity::Text { text: "hm".into() }
}

pub(super) fn turn_end() -> Activity {
    Activity::TurnEnded(TurnEnd::default())
}

/// The end of a turn that leaves work to be done.
pub(super) fn failed_turn() -> Activity {
    Activity::TurnEnded(TurnEnd { is_error: true, error: "broken".into(), ..TurnEnd::default() })
}

pub(super) fn call(id: &str, path: Option<&str>, error: bool) -> [Activity; 2] {
    let started = Activity::ToolStarted {
        id: id.into(),
        name: "tool".into(),
        input: Value::Null,
        path: path.map(Into::into),
        writes: path.is_some(),
    };
    [started, Activity::ToolEnded { id: id.into(), error, output: String::new() }]
}

pub(super) fn feed(bench: &mut Bench, id: AgentId, activities: Vec<Activity>) {
    let batch = Batch { activities, frames: Packed::default(), upto: 0, credit: Credit::free() };
    bench.apply(Event::Run(id, RunReport::Output(batch)));
}

pub(super) fn status(bench: &Bench, id: AgentId) -> Status {
    bench.state.agents.get(id).expect("known").status
}

/// Carries a rotation that has begun to its end; the successor.
pub(super) fn successor(bench: &mut Bench, old: AgentId) -> AgentId {
    assert_eq!(status(bench, old), Status::Rotating);
    let name = bench.state.agents.get(old).unwrap().name.clone();
    bench.apply(Event::Job(JobReport::Brief(old, Ok("brief".into()))));
    bench.exits(old, 0);
    let new = bench.state.agents.find(&name).unwrap().id;
    bench.apply(Event::Run(new, RunReport::Started { pid: 2, start_ticks: 2 }));
    new
}

pub(super) fn history(bench: &mut Bench) -> Vec<Value> {
    let (status, body) = bench.ask("GET", "/api/rotation", &Value::Null);
    assert_eq!(status, 200);
    body["history"].as_array().unwrap().clone()
}

pub(super) fn reasons(bench: &mut Bench) -> Vec<String> {
    history(bench).iter().map(|entry| entry["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn decisions_8_a_full_context_rotates_at_the_end_of_the_turn() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    feed(&mut bench, id, vec![context(90, 900)]);
    assert_eq!(status(&bench, id), Status::Running, "the model may answer with anything");
    feed(&mut bench, id, vec![failed_turn()]);
    let new = successor(&mut bench, id);
    assert_eq!(reasons(&mut bench), ["context_threshold"]);
    assert_eq!(bench.notices("rotation:start").len(), 1);
    let told = &bench.notices("rotation:complete")[0];
    assert_eq!((&told["oldAgentId"], &told["agentId"]), (&json!(id), &json!(new)));
    assert_eq!((&told["tokensSaved"], &told["reason"]), (&json!(900), &json!("context_threshold")));
}

#[test]
fn decisions_8_below_the_threshold_a_turns_end_lets_the_agent_finish() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    feed(&mut bench, id, vec![context(74, 740), failed_turn()]);
    assert_eq!(status(&bench, id), Status::Running);
    bench.exits(id, 0);
    assert_eq!(status(&bench, id), Status::Crashed);
    let id = bench.agent("two");
    feed(&mut bench, id, vec![context(75, 750), failed_turn()]);
    assert_eq!(status(&bench, id), Status::Rotating, "the threshold itself counts");
}

#[test]
fn limits_regular_rotations_of_a_lineage_are_5_minutes_apart() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    feed(&mut bench, id, vec![context(90, 900), failed_turn()]);
    let id = successor(&mut bench, id);
    bench.pass(Duration::from_secs(299));
    feed(&mut bench, id, vec![Activity::TurnStarted, context(90, 1), failed_turn()]);
    assert_eq!(status(&bench, id), Status::Running, "still in the cooldown");
    let other = bench.agent("two");
    feed(&mut bench, other, vec![context(90, 900), failed_turn()]);
    assert_eq!(status(&bench, other), Status::Rotating, "a lineage of its own");
    bench.exits(id, 0);
    bench.ask("POST", "/api/agents/one/resume", &json!({}));
    let id = bench.state.agents.find("one").unwrap().id;
    bench.apply(Event::Run(id, RunReport::Started { pid: 3, start_ticks: 3 }));
    bench.pass(Duration::from_secs(1));
    feed(&mut bench, id, vec![context(90, 1), failed_turn()]);
    assert_eq!(status(&bench, id), Status::Rotating);
}

#[test]
fn decisions_8_the_ceiling_rotates_inside_of_a_turn_and_bypasses_the_cooldown() {
    let mut bench = Bench::new();
    bench.ask(
        "PATCH",
        "/api/config",
        &json!({"autoRotation": false, "safety": {"tokenCeilingPerAgent": 1000}}),
    );
    let id = bench.agent("one");
    feed(&mut bench, id, vec![context(1, 1000)]);
    assert_eq!(status(&bench, id), Status::Running, "more than the ceiling, not the ceiling itself");
    feed(&mut bench, id, vec![context(1, 250)]);
    feed(&mut bench, id, call("a", None, false).into());
    assert_eq!(status(&bench, id), Status::Running, "the end of its turn is waited for");
    feed(&mut bench, id, vec![text(), context(1, 1)]);
    assert_eq!(status(&bench, id), Status::Running, "not while the model answers");
    feed(&mut bench, id, call("b", None, false).into());
    let id = successor(&mut bench, id);
    assert_eq!(bench.state.agents.get(id).unwrap().tokens.total(), 1251, "the lineage's tokens are kept");
    bench.now = bench.now + triggers::CEILING_WINDOW;
    feed(&mut bench, id, vec![context(1, 1000)]);
    feed(&mut bench, id, call("c", None, false).into());
    assert_eq!(status(&bench, id), Status::Running, "counted since this life began");
    feed(&mut bench, id, vec![context(1, 1), failed_turn()]);
    successor(&mut bench, id);
    assert_eq!(reasons(&mut bench), ["token_limit_exceeded", "token_limit_exceeded"]);
}

#[test]
fn limits_token_ceiling_is_5_000_000_times_the_roles_multiplier() {
    let mut bench = Bench::new();
    let ceiling = |bench: &Bench, role: &str| triggers::ceiling(&bench.state, role);
    for (role, wanted) in [
        ("backend", 5_000_000),
        ("planner", 50_000_000),
        ("analyst", 25_000_000),
        ("fullstack", 20_000_000),
        ("security", 20_000_000),
    ] {
        assert_eq!(ceiling(&bench, role), wanted, "{role}");
    }
    let change = json!({"safety": {"roleMultipliers": {"backend": 0.5, "planner": 2}}});
    assert_eq!(bench.ask("PATCH", "/api/config", &change).0, 200);
    assert_eq!((ceiling(&bench, "backend"), ceiling(&bench, "planner")), (2_500_000, 10_000_000));

    let role = SpawnRequest {
        role: "analyst".into(),
        name: Some("ann".into()),
        provider: Some("script".into()),
        ..SpawnRequest::default()
    };
    bench.command(Command::Agents(agents::Command::Spawn(Box::new(role))));
    let id = bench.state.agents.find("ann").unwrap().id;
    bench.apply(Event::Run(id, RunReport::Started { pid: 1, start_ticks: 1 }));
    feed(&mut bench, id, vec![context(1, 25_000_000)]);
    assert_eq!(status(&bench, id), Status::Running);
    feed(&mut bench, id, vec![context(1, 1), failed_turn()]);
    assert_eq!(status(&bench, id), Status::Rotating);
}

#[test]
fn decisions_13_auto_rotation_off_and_a_spent_budget_put_off_what_is_no_safety_limit() {
    let mut bench = Bench::new();
    bench.ask("PATCH", "/api/config", &json!({"autoRotation": false}));
    let id = bench.agent("one");
    feed(&mut bench, id, vec![context(90, 900), failed_turn()]);
    assert_eq!(status(&bench, id), Status::Running);
    bench.ask("PATCH", "/api/config", &json!({"autoRotation": true, "safety": {"dailyBudgetUsd": 1.0}}));
    let id = bench.agent("two");
    let cost = Activity::Usage(Usage { cost_usd: Some(2.0), ..Usage::default() });
    feed(&mut bench, id, vec![cost, context(90, 900), failed_turn()]);
    assert_eq!(status(&bench, id), Status::Running);
}

#[test]
fn spec_a_manual_rotation_ignores_cooldown_and_goes_into_the_history() {
    let mut bench = Bench::new();
    bench.agent("one");
    bench.rotates("one");
    bench.rotates("one");
    let (_, body) = bench.ask("GET", "/api/rotation", &Value::Null);
    assert_eq!(body["totalRotations"], 2);
    for field in ["old", "new", "reason", "timestamp"] {
        assert!(body["history"][0][field].is_string(), "{field}");
    }
    assert_eq!(reasons(&mut bench), ["manual", "manual"]);
}

#[test]
fn decisions_8_velocity_is_measured_10_minutes_before_and_after() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    feed(&mut bench, id, vec![context(10, 5_000)]);
    bench.pass(Duration::from_secs(700));
    feed(&mut bench, id, vec![context(10, 300)]);
    bench.pass(Duration::from_secs(300));
    feed(&mut bench, id, vec![context(10, 200)]);
    let id = bench.rotates("one");
    let entry = history(&mut bench)[0].clone();
    assert_eq!(entry["preRotationVelocity"], 500, "the 5000 are more than 10 minutes ago");
    assert_eq!((&entry["postRotationVelocity"], &entry["velocityDelta"]), (&Value::Null, &Value::Null));
    feed(&mut bench, id, vec![context(10, 80)]);
    bench.pass(Duration::from_secs(599));
    feed(&mut bench, id, vec![context(10, 40)]);
    assert_eq!(history(&mut bench)[0]["postRotationVelocity"], Value::Null);
    bench.pass(Duration::from_secs(1));
    feed(&mut bench, id, vec![context(10, 1_000)]);
    let entry = history(&mut bench)[0].clone();
    assert_eq!((&entry["postRotationVelocity"], &entry["velocityDelta"]), (&json!(120), &json!(380)));
}

#[test]
fn decisions_8_natural_compaction_is_recorded_and_rotates_nothing() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    feed(&mut bench, id, vec![context(40, 400), context(31, 1)]);
    assert!(history(&mut bench).is_empty(), "a drop of less than a quarter");
    feed(&mut bench, id, vec![context(30, 1)]);
    let entry = history(&mut bench)[0].clone();
    assert_eq!(entry["reason"], "natural_compaction", "a quarter of the peak");
    assert_eq!((&entry["old"], &entry["new"]), (&json!(id), &json!(id)));
    feed(&mut bench, id, vec![Activity::Compacted, context(5, 1)]);
    assert_eq!(reasons(&mut bench).len(), 2, "its own event, and the drop that follows is the same one");
    feed(&mut bench, id, vec![context(14, 1), context(1, 1)]);
    assert_eq!(reasons(&mut bench).len(), 2, "a peak below 0.15 says nothing");
    let (_, body) = bench.ask("GET", "/api/rotation", &Value::Null);
    assert_eq!(body["totalRotations"], 0);
    assert!(bench.notices("rotation:start").is_empty());
    feed(&mut bench, id, vec![context(90, 1), failed_turn()]);
    assert_eq!(status(&bench, id), Status::Rotating, "a compaction starts no cooldown");
}

fn window(activities: &[Activity]) -> Window {
    let mut window = Window::default();
    for activity in activities {
        window.take(activity);
    }
    window
}

/// The score of these tool results and enough words.
fn score(calls: &[(Option<&str>, bool)]) -> f64 {
    let mut all: Vec<Activity> = vec![text(); 40];
    for (n, (path, error)) in calls.iter().enumerate() {
        all.extend(call(&n.to_string(), *path, *error));
    }
    window(&all).score().expect("enough events")
}

#[test]
fn decisions_8_quality_score_follows_the_formula() {
    let ok = (None, false);
    let failed = (None, true);
    let write = |path| (Some(path), false);
    for (calls, wanted, why) in [
        (vec![], 70.0, "nothing to rate"),
        (vec![ok; 10], 74.0, "+ 20 x (1.0 - 0.8)"),
        (vec![failed, ok], 70.0 - 5.0 + 3.0 - 6.0, "an error, falling, rate 0.5"),
        (vec![ok, failed], 70.0 - 5.0 - 6.0 - 6.0, "an error, rising, rate 0.5"),
        (vec![failed, failed], 70.0 - 10.0 - 16.0, "two errors, no trend, rate 0"),
        (vec![write("a")], 70.0 + 4.0 + 2.0, "a file written"),
        (vec![write("a"), write("a"), write("b")], 70.0 + 4.0 + 4.0 - 6.0, "one repeated write"),
        (vec![write("a"); 5], 70.0 + 4.0 + 2.0 - 24.0 - 10.0, "four repeated, and five writes"),
        (vec![write("a"); 9], 70.0 + 4.0 + 2.0 - 30.0 - 10.0, "repeated writes cost 30 at most"),
        (
            vec![write("a"), write("b"), write("c"), write("d"), write("e"), write("f")],
            70.0 + 4.0 + 10.0,
            "files bring 10 at most",
        ),
        (vec![failed; 20], 0.0, "never below 0"),
    ] {
        assert!((score(&calls) - wanted).abs() < 1e-9, "{why}: {} is not {wanted}", score(&calls));
    }
    let mut violated = window(&vec![text(); 40]);
    violated.violation();
    assert_eq!(violated.score(), Some(60.0), "10 per scope violation");
}

#[test]
fn decisions_8_a_write_counts_by_its_own_result() {
    assert!(
        (score(&[(Some("a"), true)]) - (70.0 - 5.0 - 16.0)).abs() < 1e-9,
        "a failed write writes nothing"
    );
    let [started, _] = call("x", Some("a"), false);
    let end = |id: &str| Activity::ToolEnded { id: id.into(), error: false, output: String::new() };
    let mut activities = vec![text(); 40];
    activities.extend([started, end("y")]);
    assert_eq!(window(&activities).score(), Some(74.0), "another call's end is no write");
}

#[test]
fn limits_quality_needs_30_events_and_looks_at_the_last_200() {
    let failing: Vec<Activity> = (0..14).flat_map(|n| call(&n.to_string(), None, true)).collect();
    let mut window = window(&failing);
    window.take(&text());
    assert_eq!((window.count(), window.score()), (MIN_EVENTS - 1, None));
    window.take(&text());
    assert_eq!(window.score(), Some(0.0));
    for _ in 0..WINDOW {
        window.take(&text());
    }
    assert_eq!(window.score(), Some(70.0), "what is older has left the window");
}

/// Enough words, and the same file written so often.
pub(super) fn degraded(files: usize) -> Vec<Activity> {
    let mut all = vec![text(); 30];
    for n in 0..files {
        all.extend(call(&format!("w{n}"), Some("same"), false));
    }
    all
}

#[test]
fn decisions_8_quality_rotates_below_55_where_nothing_is_under_way() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    // Four writes of one file: 70 + 4 + 2 - 18 = 58.
    feed(&mut bench, id, degraded(4));
    feed(&mut bench, id, vec![turn_end()]);
    assert_eq!(status(&bench, id), Status::Running, "58 is good enough");
    let id = bench.agent("two");
    // Five: 70 + 4 + 2 - 24 - 10 = 42.
    let [begun, ended] = call("open", None, false);
    let mut all = degraded(5);
    all.push(begun);
    feed(&mut bench, id, all);
    assert_eq!(status(&bench, id), Status::Running, "not while a tool is under way");
    feed(&mut bench, id, vec![ended]);
    let id = successor(&mut bench, id);
    assert_eq!(reasons(&mut bench), ["quality_degradation"]);
    let lineage = bench.state.agents.get(id).unwrap().lineage_id;
    assert_eq!(bench.state.triggers.score(lineage), Some(42.0), "of its last life");
    feed(&mut bench, id, vec![turn_end()]);
    assert_eq!(status(&bench, id), Status::Running, "the successor begins with a clean sheet");
}

#[test]
fn decisions_8_the_order_is_ceiling_context_quality() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    let mut all = degraded(5);
    all.extend([context(90, 10), failed_turn()]);
    feed(&mut bench, id, all);
    successor(&mut bench, id);
    assert_eq!(reasons(&mut bench), ["context_threshold"]);
    bench.ask("PATCH", "/api/config", &json!({"safety": {"tokenCeilingPerAgent": 1000}}));
    let id = bench.agent("two");
    let mut all = degraded(5);
    all.extend([context(90, 1001), failed_turn()]);
    feed(&mut bench, id, all);
    successor(&mut bench, id);
    assert_eq!(reasons(&mut bench)[1], "token_limit_exceeded");
}

#[test]
fn decisions_8_thresholds_start_at_the_setting_and_move_with_the_sessions() {
    let mut profile = Profile::default();
    let close = |profile: &Profile, wanted: f64| (profile.threshold(0.75) - wanted).abs() < 1e-9;
    assert!(close(&profile, 0.75));
    profile.session(0.75, 70.0);
    assert!(close(&profile, 0.77), "70 and more: + 0.02");
    profile.session(0.75, 69.9);
    profile.session(0.75, 40.0);
    assert!(close(&profile, 0.77), "between 40 and 70: as it was");
    profile.session(0.75, 39.9);
    assert!(close(&profile, 0.72), "below 40: - 0.05");
    for _ in 0..20 {
        profile.session(0.75, 100.0);
    }
    assert!(close(&profile, 0.95), "0.95 at most");
    for _ in 0..20 {
        profile.session(0.75, 0.0);
    }
    assert!(close(&profile, 0.40), "0.40 at least");
}

#[test]
fn decisions_8_converged_takes_10_still_or_alternating_sessions_and_a_real_move_before() {
    let mut never_moved = Profile::default();
    (0..2 * CONVERGED_SESSIONS).for_each(|_| never_moved.session(0.75, 50.0));
    assert!(!never_moved.is_converged(), "it has never moved");

    let mut still = Profile::default();
    still.session(0.75, 90.0);
    for n in 0..CONVERGED_SESSIONS {
        assert!(!still.is_converged(), "after {n} still sessions");
        still.session(0.75, 50.0);
    }
    assert!(still.is_converged());
    still.session(0.75, 90.0);
    assert!(!still.is_converged(), "it moves again");

    let mut alternating = Profile::default();
    for n in 0..CONVERGED_SESSIONS {
        assert!(!alternating.is_converged());
        alternating.session(0.75, if n % 3 < 2 { 90.0 } else { 10.0 });
    }
    assert!(alternating.is_converged(), "two steps up, one down: about one place");

    let mut drifting = Profile::default();
    for n in 0..40 {
        let before = drifting.threshold(0.75);
        drifting.session(0.75, if n % 2 == 0 { 90.0 } else { 10.0 });
        let has_come = before <= 0.45;
        assert!(has_come || !drifting.is_converged(), "it falls by 0.015 a session, now {before}");
    }
    let mut rising = Profile::default();
    (0..CONVERGED_SESSIONS).for_each(|_| rising.session(0.60, 90.0));
    assert!(!rising.is_converged());
}

#[test]
fn spec_adaptive_maps_provider_and_role_to_numbers() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    let (status, body) = bench.ask("GET", "/api/adaptive", &Value::Null);
    assert_eq!(status, 200);
    assert_eq!(body["thresholds"], json!({"script": {"dev": 0.75}}));
    assert_eq!(body["convergence"], json!({"script": false}));
    let mut all = vec![text(); 30];
    all.push(context(64, 1));
    feed(&mut bench, id, all.clone());
    bench.exits(id, 0);
    let (_, body) = bench.ask("GET", "/api/adaptive", &Value::Null);
    assert_eq!(body["thresholds"], json!({}), "its context never came near the threshold");
    let id = bench.agent("two");
    all.push(context(65, 1));
    feed(&mut bench, id, all);
    bench.exits(id, 0);
    let (_, body) = bench.ask("GET", "/api/adaptive", &Value::Null);
    assert_eq!(body["thresholds"], json!({"script": {"dev": 0.77}}), "a session of score 70");
    let stored = serde_json::to_vec(&bench.state.triggers.stored()).unwrap();
    let restored = triggers::State::restore(serde_json::from_slice(&stored).unwrap());
    bench.state.triggers = std::sync::Arc::new(restored);
    assert!((triggers::threshold(&bench.state, "script", "dev") - 0.77).abs() < 1e-9, "it is remembered");
}

#[test]
fn decisions_8_a_converged_profile_rotates_below_40_only() {
    let mut bench = Bench::new();
    for n in 0..=CONVERGED_SESSIONS {
        let id = bench.agent(&format!("a{n}"));
        // The first score is 70, the others 58.
        let mut session = if n == 0 { vec![text(); 30] } else { degraded(4) };
        session.push(context(70, 1));
        feed(&mut bench, id, session);
        bench.exits(id, 0);
    }
    let (_, body) = bench.ask("GET", "/api/adaptive", &Value::Null);
    assert_eq!(body["convergence"], json!({"script": true}));
    let id = bench.agent("last");
    let mut all = degraded(5);
    all.push(failed_turn());
    feed(&mut bench, id, all);
    assert_eq!(status(&bench, id), Status::Running, "42 is below 55, not below 40");
}

#[test]
fn a_turn_that_ends_while_a_rotation_is_prepared_leaves_its_work_to_the_successor() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    bench.command(Command::Agents(agents::Command::Rotate("one".into())));
    feed(&mut bench, id, vec![turn_end()]);
    let orders = |bench: &Bench| {
        let finish = |effect: &&crate::core::Effect| {
            matches!(effect, crate::core::Effect::Run(_, agents::RunOrder::Finish))
        };
        bench.effects.iter().filter(finish).count()
    };
    assert_eq!(orders(&bench), 0);
    // No brief: it is let go after all, for its turn is over.
    bench.apply(Event::Job(JobReport::Brief(id, Err("no log".into()))));
    assert_eq!((status(&bench, id), orders(&bench)), (Status::Running, 1));
}

fn timeline_kinds(bench: &mut Bench) -> Vec<String> {
    let (_, body) = bench.ask("GET", "/api/timeline", &Value::Null);
    let kind = |event: &Value| event["type"].as_str().unwrap().to_owned();
    body["events"].as_array().unwrap().iter().map(kind).collect()
}

#[test]
fn an_agent_that_exits_by_itself_before_its_successor_is_ready_is_not_told_as_ended() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    feed(&mut bench, id, vec![context(90, 900), failed_turn()]);
    // Programs that take one prompt exit at the end of their turn, whatever is planned.
    bench.exits(id, 0);
    bench.apply(Event::Job(JobReport::Brief(id, Ok("brief".into()))));
    let new = bench.state.agents.find("one").unwrap().id;
    bench.apply(Event::Run(new, RunReport::Started { pid: 2, start_ticks: 2 }));
    assert_eq!(timeline_kinds(&mut bench), ["spawned", "rotated"]);

    let id = bench.agent("two");
    feed(&mut bench, id, vec![context(90, 900), failed_turn()]);
    bench.exits(id, 0);
    bench.apply(Event::Job(JobReport::Brief(id, Err("no log".into()))));
    assert_eq!(timeline_kinds(&mut bench)[2..], ["spawned", "crashed"], "no successor comes");
    assert_eq!(status(&bench, id), Status::Crashed);
}

#[test]
fn a_successor_that_cannot_start_is_told_as_ended_once() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    feed(&mut bench, id, vec![context(90, 900), failed_turn()]);
    bench.apply(Event::Job(JobReport::Brief(id, Ok("brief".into()))));
    bench.exits(id, 0);
    let new = bench.state.agents.find("one").unwrap().id;
    bench.apply(Event::Run(new, RunReport::StartFailed { error: "no such program".into() }));
    assert_eq!(timeline_kinds(&mut bench), ["spawned", "crashed"]);
    assert_eq!(bench.notices("rotation:failed").len(), 1);
}

#[test]
fn versioning_saved_history_of_earlier_releases_is_read() {
    let entry = json!({"old": "00000001", "new": "00000002", "agentName": "a", "reason": "runaway_velocity",
        "timestamp": "2026-01-01T00:00:00.000Z"});
    let history: agents::history::History =
        serde_json::from_value(json!({"total": 1, "entries": [entry]})).unwrap();
    assert_eq!(history.entries[0].reason, "runaway_velocity");
    assert_eq!(history.entries[0].pre_velocity, None);
    let mut timers = crate::core::Timers::default();
    history.watch(&mut timers);
    assert_eq!(timers.next(), None, "there is nothing to measure for it");
}

#[test]
fn what_is_still_to_be_measured_is_measured_after_a_restart() {
    let mut bench = Bench::new();
    bench.agent("one");
    let id = bench.rotates("one");
    let mut timers = crate::core::Timers::default();
    bench.state.agents.rotations().watch(&mut timers);
    let wanted = (bench.now + Duration::from_secs(600), crate::core::Timer::Velocity(id));
    assert_eq!(timers.next(), Some(wanted));
}
