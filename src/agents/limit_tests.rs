//! Limits of providers: what single agents do at them. Many nights are in `limit_nights.rs`.

use super::report::RunReport;
use super::{Job, JobReport, RunOrder, SpawnRequest, StartOrder, State, limit};
use crate::core::ids::AgentId;
use crate::core::time::{Jump, Time};
use crate::core::{Effect, Event, Timer};
use crate::programs::registry::{Detection, State as Programs};
use crate::providers::limit::{Kind, Limit, Source};
use crate::providers::{self, Activity, TurnEnd};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

pub(super) const PROVIDERS: [&str; 8] =
    ["claude-code", "codex", "gemini", "copilot", "opencode", "qwen", "cline", "ollama"];
pub(super) const HOUR_MS: u64 = 3_600_000;

pub(in crate::agents) fn at_limit(reset: Option<Time>) -> Vec<Activity> {
    let closed = Limit { closed: true, ..Limit::window("five_hour", Some(100.0), reset.map(|at| at.0)) };
    let error = "You've hit your session limit".to_owned();
    vec![
        Activity::Session { id: "s-1".into(), model: None },
        Activity::Limit(closed),
        Activity::TurnEnded(TurnEnd { is_error: true, error, ..TurnEnd::default() }),
    ]
}

/// A daemon with every program, and one agent.
pub(in crate::agents) fn bench(settings: &Value) -> Bench {
    let mut bench = Bench::new();
    bench.state.providers =
        Arc::new(Programs::new(PROVIDERS.map(|id| Detection::installed(id, "1.0")).to_vec()));
    assert_eq!(bench.ask("PATCH", "/api/config", settings).0, 200);
    bench
}

pub(in crate::agents) fn spawn(bench: &mut Bench, provider: &str, prompt: &str) -> AgentId {
    bench.agent_like(SpawnRequest {
        role: "dev".into(),
        name: Some("dev".into()),
        provider: Some(provider.into()),
        model: (provider == "ollama").then(|| "tiny".into()),
        prompt: prompt.into(),
        ..SpawnRequest::default()
    })
}

/// The runs that were ordered since the last look.
pub(in crate::agents) fn starts(bench: &mut Bench) -> Vec<(AgentId, Box<StartOrder>)> {
    let mut found = Vec::new();
    for effect in std::mem::take(&mut bench.effects) {
        if let Effect::Run(id, RunOrder::Start(order)) = effect {
            found.push((id, order));
        }
    }
    found
}

fn dev(bench: &mut Bench) -> Value {
    bench.ask("GET", "/api/agents/dev", &Value::Null).1
}

#[test]
fn a_limit_is_a_state_and_the_prompt_is_issued_again_once_when_it_opens() {
    let mut bench = bench(&json!({"onLimit": "wait"}));
    let id = spawn(&mut bench, "claude-code", "build the roof");
    starts(&mut bench);
    let reset = bench.now + Duration::from_secs(3 * 3600);
    bench.does(id, at_limit(Some(reset)));
    bench.exits(id, 0);
    let held = dev(&mut bench);
    assert_eq!((&held["status"], &held["state"]), (&json!("active"), &json!("limited")), "{held:#}");
    assert_eq!((&held["statusCode"], &held["pid"]), (&json!("limited"), &Value::Null));
    let limit = &held["limit"];
    assert_eq!(limit["resetsAt"], json!(reset.to_string()));
    let told =
        ["provider", "account", "window", "source", "onLimit", "saidBy"].map(|name| limit[name].clone());
    assert_eq!(json!(told), json!(["claude-code", "default", "five_hour", "event", "wait", "project"]));
    assert_eq!(bench.notices("agent:limited").len(), 1);
    assert_eq!(bench.notices("agent:exit"), Vec::<Value>::new(), "it has not ended");
    starts(&mut bench);
    bench.pass(Duration::from_secs(3 * 3600));
    assert_eq!(starts(&mut bench).len(), 0, "not before the reset is surely over");
    bench.pass(limit::MARGIN);
    let issued = starts(&mut bench);
    assert_eq!(issued.len(), 1);
    assert!(issued[0].1.request.prompt.ends_with("build the roof"), "{}", issued[0].1.request.prompt);
    assert!(
        matches!(&issued[0].1.request.session, providers::SessionStart::Resume { id, .. } if id == "s-1")
    );
    bench.pass(Duration::from_secs(24 * 3600));
    assert_eq!(starts(&mut bench).len(), 0);
}

#[test]
fn by_default_nothing_goes_on_without_a_person_s_word_and_who_gave_it_is_in_the_audit_log() {
    let mut bench = bench(&json!({}));
    let id = spawn(&mut bench, "claude-code", "build the roof");
    bench.does(id, at_limit(Some(bench.now + Duration::from_secs(60))));
    bench.exits(id, 0);
    starts(&mut bench);
    bench.pass(Duration::from_secs(48 * 3600));
    assert_eq!(starts(&mut bench).len(), 0);
    assert_eq!(dev(&mut bench)["limit"]["goesOnAt"], Value::Null);
    // An agent cannot consent, neither for itself nor for another.
    bench.actor = crate::core::Actor::Agent(id);
    for (method, path, body) in [
        ("PATCH", "/api/agents/dev", json!({"onLimit": "wait"})),
        ("POST", "/api/agents/dev/resume", json!({})),
        ("POST", "/api/agents", json!({"role": "x", "provider": "script", "onLimit": "wait"})),
    ] {
        if path != "/api/agents" {
            assert_eq!(bench.ask(method, path, &body).0, 403, "{method} {path}");
        }
    }
    bench.actor = crate::core::Actor::Operator;
    assert_eq!(bench.ask("PATCH", "/api/agents/dev", &json!({"onLimit": "wait"})).0, 200);
    let consents = bench.audited("limit.consent");
    assert_eq!((&consents[0]["actor"], &consents[0]["onLimit"]), (&json!("operator"), &json!("wait")));
    bench.pass(Duration::from_secs(3600));
    assert_eq!(starts(&mut bench).len(), 1, "the window is open");
}

#[test]
fn a_person_lets_it_go_on_now_and_says_something_with_it() {
    let mut bench = bench(&json!({}));
    let id = spawn(&mut bench, "claude-code", "build the roof");
    bench.does(id, at_limit(None));
    bench.exits(id, 0);
    starts(&mut bench);
    let said = bench.ask("POST", "/api/agents/dev/resume", &json!({"message": "use slates"}));
    assert_eq!(said.0, 200, "{}", said.1);
    let issued = starts(&mut bench);
    assert!(issued[0].1.request.prompt.ends_with("use slates"));
    assert_eq!((issued.len(), said.1["id"].clone()), (1, json!(issued[0].0)));
    assert_eq!(bench.state.agents.find("dev").unwrap().id, issued[0].0);
}

#[test]
fn an_overload_and_a_network_that_is_down_are_waited_for_without_asking() {
    for (kind, error) in [(Kind::Overload, "API Error: 529 overloaded"), (Kind::Network, "fetch failed")] {
        let mut bench = bench(&json!({}));
        let id = spawn(&mut bench, "gemini", "build the roof");
        let end = TurnEnd { is_error: true, error: error.into(), ..TurnEnd::default() };
        bench.does(id, vec![Activity::TurnEnded(end)]);
        bench.exits(id, 1);
        let held = dev(&mut bench);
        assert_eq!((&held["state"], &held["statusCode"]), (&json!("waiting"), &json!("provider-busy")));
        assert_eq!(held["limit"]["kind"], json!(kind));
        starts(&mut bench);
        bench.pass(Duration::from_secs(59));
        assert_eq!(starts(&mut bench).len(), 0);
        bench.pass(Duration::from_secs(2));
        assert_eq!(starts(&mut bench).len(), 1, "{error}");
    }
}

#[test]
fn a_held_agent_is_ended_like_any_other_and_a_shutdown_does_not_wait_for_it() {
    let mut bench = bench(&json!({"onLimit": "wait"}));
    let id = spawn(&mut bench, "codex", "build the roof");
    bench.does(id, at_limit(Some(bench.now + Duration::from_secs(60))));
    bench.exits(id, 1);
    let mut other = Bench::new();
    other.state = bench.state.clone();
    other.apply(crate::core::Event::Terminate);
    assert!(other.effects.iter().any(|effect| matches!(effect, Effect::Exit)), "the daemon ends");
    let (status, body) = bench.ask("DELETE", "/api/agents/dev", &Value::Null);
    assert_eq!((status, &body["status"]), (200, &json!("killed")));
    starts(&mut bench);
    bench.pass(Duration::from_secs(3600));
    assert_eq!(starts(&mut bench).len(), 0);
}

#[test]
fn on_limit_stop_ends_it_and_a_later_reset_that_another_agent_heard_of_is_waited_for() {
    let mut bench = bench(&json!({"onLimit": "stop"}));
    let id = spawn(&mut bench, "claude-code", "a");
    bench.does(id, at_limit(None));
    bench.exits(id, 0);
    let stopped = dev(&mut bench);
    assert_eq!((&stopped["state"], &stopped["statusCode"]), (&json!("killed"), &json!("limit-reached")));

    let mut bench = self::bench(&json!({"onLimit": "wait"}));
    let id = spawn(&mut bench, "claude-code", "a");
    let other = bench.agent_like(SpawnRequest {
        role: "dev".into(),
        name: Some("other".into()),
        provider: Some("claude-code".into()),
        ..SpawnRequest::default()
    });
    let reset = bench.now + Duration::from_secs(600);
    bench.does(id, at_limit(Some(reset)));
    bench.exits(id, 0);
    let later = reset + Duration::from_secs(7200);
    bench.does(other, vec![Activity::Limit(Limit::window("five_hour", None, Some(later.0)))]);
    assert_eq!(dev(&mut bench)["limit"]["resetsAt"], json!(later.to_string()));
    starts(&mut bench);
    bench.pass(Duration::from_secs(7800));
    assert_eq!(starts(&mut bench).len(), 0);
}

#[test]
fn a_spent_budget_stops_a_turn_at_its_next_safe_place_where_a_person_wants_it() {
    for (mid_turn, stops) in [("warn", false), ("stop", true)] {
        let settings = json!({"budget": {"midTurn": mid_turn}, "safety": {"dailyBudgetUsd": 4.0}});
        let mut bench = bench(&settings);
        let id = spawn(&mut bench, "claude-code", "a");
        let used =
            |usd| Activity::Usage(providers::Usage { cost_usd: Some(usd), ..providers::Usage::default() });
        let tool = |id: &str| Activity::ToolStarted {
            id: id.into(),
            name: "Bash".into(),
            input: Value::Null,
            path: None,
            writes: false,
        };
        bench.does(id, vec![Activity::TurnStarted, tool("1"), used(4.1)]);
        let stopped = |bench: &Bench| {
            bench.effects.iter().any(|effect| matches!(effect, Effect::Run(_, RunOrder::Stop)))
        };
        assert!(!stopped(&bench), "a tool is under way");
        bench.does(id, vec![Activity::ToolEnded { id: "1".into(), error: false, output: String::new() }]);
        assert_eq!(stopped(&bench), stops, "{mid_turn}");
        bench.does(id, vec![tool("2"), used(1.0)]);
        assert!(stopped(&bench), "{mid_turn}: by more than a turn nobody outruns it, wherever it is");
        let told: Vec<Value> = bench.notices("budget:warning");
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["percent"], 100);
    }
}

#[test]
fn a_hand_over_begins_at_once_with_the_other_provider_and_without_one_a_person_is_asked() {
    for (to, goes_on) in [(json!("codex"), true), (json!("aider"), false), (Value::Null, false)] {
        let mut bench = bench(&json!({"onLimit": "handover", "limits": {"handoverTo": to}}));
        let id = spawn(&mut bench, "claude-code", "build the roof");
        bench.does(id, at_limit(Some(bench.now + Duration::from_secs(3600))));
        starts(&mut bench);
        bench.exits(id, 0);
        bench.pass(Duration::from_secs(7200));
        assert_eq!(briefs(&bench), usize::from(goes_on), "{to}");
        bench.apply(Event::Job(JobReport::Brief(id, Ok("THE BRIEF".into()))));
        let said: Vec<Value> = bench.audited("limit.goesOn");
        let said: Vec<&Value> = said.iter().map(|entry| &entry["handoverTo"]).collect();
        assert_eq!(said, if goes_on { vec!["codex"] } else { vec![] });
        let issued = starts(&mut bench);
        assert_eq!(issued.len(), usize::from(goes_on), "{to}");
        for (_, order) in issued {
            assert_eq!((order.provider, &order.request.session), ("codex", &providers::SessionStart::Fresh));
            assert!(order.request.prompt.contains("THE BRIEF"));
        }
    }
}

fn briefs(bench: &Bench) -> usize {
    let is_brief = |effect: &&Effect| matches!(effect, Effect::Job(Job::Brief { .. }));
    bench.effects.iter().filter(is_brief).count()
}

/// A daemon at a hand-over whose brief was asked for; the agent was told something that waits.
fn handing_over(settings: &Value) -> (Bench, AgentId) {
    let mut bench = bench(&json!({"onLimit": "handover", "limits": {"handoverTo": "codex"}}));
    assert_eq!(bench.ask("PATCH", "/api/config", settings).0, 200);
    let id = spawn(&mut bench, "claude-code", "TASK");
    bench.does(id, at_limit(Some(bench.now + Duration::from_secs(3600))));
    bench.exits(id, 0);
    let told = json!({"message": "use slates"});
    assert_eq!(bench.ask("POST", "/api/agents/dev/instruct", &told).0, 200);
    starts(&mut bench);
    bench.pass(Duration::from_secs(1));
    (bench, id)
}

fn brief(bench: &mut Bench, id: AgentId) {
    bench.apply(Event::Job(JobReport::Brief(id, Ok("THE BRIEF".into()))));
}

fn restarted(bench: &mut Bench, kept: &HashSet<AgentId>) {
    let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
    let briefs: Vec<_> = bench
        .state
        .agents
        .iter()
        .map(|agent| (agent.lineage_id, super::rotation::kept_handoff(&bench.state, agent)))
        .collect();
    let mut state =
        State::restore(serde_json::from_slice(&stored).unwrap(), |_| "TASK".into(), kept, bench.now);
    state.restore_handoffs(|of| briefs.iter().find(|(lineage, _)| *lineage == of)?.1.clone());
    bench.state.agents = Arc::new(state);
    bench.state.timers = Arc::default();
    bench.disk_hangs = false;
    bench.with(|all, _| limit::started(all));
}

#[test]
fn a_hand_over_is_done_once_over_kills_before_its_brief_behind_it_and_behind_its_start() {
    for step in 0..3 {
        let (mut bench, id) = handing_over(&json!({}));
        if step > 0 {
            bench.disk_hangs = step == 1;
            brief(&mut bench, id);
            assert_eq!(starts(&mut bench).len(), step - 1);
        }
        let life = bench.state.agents.find("dev").unwrap().id;
        let kept = if step == 2 { HashSet::from([life]) } else { HashSet::new() };
        restarted(&mut bench, &kept);
        bench.pass(Duration::from_secs(1));
        // The next daemon asks for the brief anew, unless the process of the next life is there.
        let old = bench.state.agents.find("dev").unwrap().id;
        brief(&mut bench, old);
        let issued = starts(&mut bench);
        assert_eq!(issued.len(), usize::from(step < 2), "{step}");
        for (_, order) in &issued {
            let prompt = &order.request.prompt;
            assert!(order.provider == "codex" && prompt.contains("THE BRIEF"), "{step}: {prompt}");
            assert_eq!(prompt.matches("use slates").count(), 1, "{step}: {prompt}");
        }
        bench.pass(Duration::from_secs(2 * 3600));
        assert_eq!(starts(&mut bench).len(), 0);
        assert_eq!(bench.state.agents.live().count(), 1, "one life");
    }
}

#[test]
fn a_successor_that_fails_at_once_leaves_its_brief_to_the_next_life() {
    for starts_at_all in [false, true] {
        let (mut bench, id) = handing_over(&json!({}));
        let lineage = bench.state.agents.get(id).unwrap().lineage_id;
        brief(&mut bench, id);
        let new = starts(&mut bench)[0].0;
        if starts_at_all {
            bench.apply(Event::Run(new, RunReport::Started { pid: 2, start_ticks: 2 }));
            bench.exits(new, 1);
        } else {
            let error = "codex is not there".to_owned();
            bench.apply(Event::Run(new, RunReport::StartFailed { error }));
        }
        let failed = dev(&mut bench);
        assert_eq!((&failed["status"], &failed["provider"]), (&json!("crashed"), &json!("codex")));
        assert_eq!(bench.ask("POST", "/api/agents/dev/resume", &json!({})).0, 200);
        let issued = starts(&mut bench);
        let prompt = &issued[0].1.request.prompt;
        assert!(prompt.contains("THE BRIEF") && prompt.contains("use slates"), "{prompt}");
        assert_eq!(bench.state.agents.find("dev").unwrap().lineage_id, lineage);
    }
}

#[test]
fn an_agent_above_its_cap_and_one_in_quiet_hours_wait_until_a_person_changes_that() {
    let mut bench = bench(&json!({"onLimit": "wait", "limits": {"capTokens": 1000}}));
    let id = spawn(&mut bench, "claude-code", "a");
    let delta = providers::TokensDelta { input: 2000, ..providers::TokensDelta::default() };
    bench.does(id, vec![Activity::Usage(providers::Usage { delta, ..providers::Usage::default() })]);
    bench.does(id, at_limit(Some(bench.now + Duration::from_secs(60))));
    bench.exits(id, 0);
    starts(&mut bench);
    bench.pass(Duration::from_secs(3600));
    assert_eq!(starts(&mut bench).len(), 0, "above its cap");
    let raise = json!({"limits": {"capTokens": null, "quietHours": "00:00-03:00"}});
    assert_eq!(bench.ask("PATCH", "/api/config", &raise).0, 200);
    // The bench begins at midnight.
    bench.pass(Duration::from_secs(3600));
    assert_eq!(starts(&mut bench).len(), 0, "quiet");
    bench.pass(Duration::from_secs(3600));
    assert_eq!(starts(&mut bench).len(), 1);
}

#[test]
fn a_rate_that_opens_far_away_is_a_usage_limit_and_one_nearby_is_waited_for() {
    for (delay_ms, state) in [(20_000, "waiting"), (3 * HOUR_MS, "limited")] {
        let mut bench = bench(&json!({}));
        let id = spawn(&mut bench, "opencode", "a");
        let mut limit = Limit::new(Kind::Rate, Source::Error);
        limit.resets_in_ms = Some(delay_ms);
        let end = TurnEnd { is_error: true, error: "error 429: slow down".into(), ..TurnEnd::default() };
        bench.does(id, vec![Activity::Limit(limit), Activity::TurnEnded(end)]);
        bench.exits(id, 1);
        assert_eq!(dev(&mut bench)["state"], state);
    }
}

/// The next life is written, and the daemon is killed before its process was started, or right after.
#[test]
fn a_kill_between_the_mark_and_the_start_neither_loses_nor_repeats_the_prompt() {
    for started in [false, true] {
        let mut bench = bench(&json!({"onLimit": "wait"}));
        let id = spawn(&mut bench, "claude-code", "TASK");
        bench.does(id, at_limit(Some(bench.now + Duration::from_secs(60))));
        bench.exits(id, 0);
        starts(&mut bench);
        bench.disk_hangs = !started;
        bench.pass(Duration::from_secs(120));
        assert_eq!(starts(&mut bench).len(), usize::from(started));
        let next = bench.state.agents.find("dev").unwrap().id;
        let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
        let kept: HashSet<AgentId> = started.then_some(next).into_iter().collect();
        let stored = serde_json::from_slice(&stored).unwrap();
        bench.state.agents = Arc::new(State::restore(stored, |_| "TASK".into(), &kept, bench.now));
        bench.state.timers = Arc::default();
        bench.disk_hangs = false;
        bench.with(|all, _| limit::started(all));
        bench.pass(Duration::from_secs(3600));
        assert_eq!(starts(&mut bench).len(), usize::from(!started), "started before the kill: {started}");
        assert!(bench.state.agents.find("dev").unwrap().status.is_live());
    }
}

/// Records are written before the settings: a kill between them leaves the ones without the others.
#[test]
fn who_is_held_goes_on_by_what_is_set_and_not_by_a_consent_that_was_lost_in_a_kill() {
    let mut bench = bench(&json!({}));
    let id = spawn(&mut bench, "claude-code", "TASK");
    bench.does(id, at_limit(Some(bench.now + Duration::from_secs(60))));
    bench.exits(id, 0);
    starts(&mut bench);
    let asks = Arc::clone(&bench.state.settings);
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"onLimit": "wait"})).0, 200);
    let waits = std::mem::replace(&mut bench.state.settings, asks);
    restarted(&mut bench, &HashSet::new());
    bench.pass(Duration::from_secs(3600));
    assert_eq!(starts(&mut bench).len(), 0);
    let limit = &dev(&mut bench)["limit"];
    assert_eq!((&limit["onLimit"], &limit["goesOnAt"]), (&json!("ask"), &Value::Null));
    // The other way round.
    bench.state.settings = waits;
    restarted(&mut bench, &HashSet::new());
    bench.pass(Duration::from_secs(3600));
    assert_eq!(starts(&mut bench).len(), 1);
}

/// The daemon is killed before the keeper of the ended run has heard that its end is known.
#[test]
fn a_keeper_that_tells_the_end_of_a_held_run_again_changes_nothing() {
    let mut bench = bench(&json!({"onLimit": "wait"}));
    let id = spawn(&mut bench, "claude-code", "TASK");
    bench.does(id, at_limit(Some(bench.now + Duration::from_secs(60))));
    bench.exits(id, 0);
    let before = dev(&mut bench)["limit"].clone();
    let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
    let stored = serde_json::from_slice(&stored).unwrap();
    let state = State::restore(stored, |_| "TASK".into(), &HashSet::from([id]), bench.now);
    bench.state.agents = Arc::new(state);
    assert!(bench.state.agents.get(id).unwrap().has_no_run());
    assert_eq!(dev(&mut bench)["limit"], before);
}

#[test]
fn a_clock_that_goes_back_does_not_hold_again_who_is_about_to_go_on() {
    let mut bench = bench(&json!({"onLimit": "wait"}));
    let id = spawn(&mut bench, "claude-code", "build the roof");
    bench.does(id, at_limit(None));
    bench.exits(id, 0);
    bench.disk_hangs = true;
    assert_eq!(bench.ask("POST", "/api/agents/dev/resume", &Value::Null).0, 200);
    let next = bench.state.agents.find("dev").unwrap().id;
    let jump = Jump { is_back: true, by: Duration::from_secs(300) };
    bench.now = bench.now.moved(jump);
    bench.apply(Event::ClockSet(jump));
    assert_eq!(bench.state.timers.get(Timer::LimitOpens(next)), None, "it waits for the disk alone");
}

#[test]
fn a_limit_that_opens_when_the_budget_is_spent_waits_for_the_next_day() {
    let mut bench = bench(&json!({"onLimit": "wait"}));
    let id = spawn(&mut bench, "claude-code", "build the roof");
    let cost = crate::providers::Usage { cost_usd: Some(2.0), ..crate::providers::Usage::default() };
    bench.does(id, vec![Activity::Usage(cost)]);
    bench.does(id, at_limit(Some(bench.now + Duration::from_secs(3600))));
    bench.exits(id, 0);
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"safety": {"dailyBudgetUsd": 1.0}})).0, 200);
    starts(&mut bench);
    bench.pass(Duration::from_secs(20 * 3600));
    assert!(starts(&mut bench).is_empty(), "nothing new starts today");
    bench.pass(Duration::from_secs(5 * 3600));
    assert_eq!(starts(&mut bench).len(), 1, "midnight is over");
}
