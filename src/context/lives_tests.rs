//! Whole lives, played on the pure core: runaways and what they may cost, tests that are red on the way, idle
//! agents, and successors that fail.

use super::quality::THRESHOLD;
use super::triggers::{CEILING_LIVES, COOLDOWN};
use crate::agents::report::RunReport;
use crate::agents::{JobReport, RunOrder, SpawnRequest, Status};
use crate::core::ids::AgentId;
use crate::core::{Document, Effect, Event};
use crate::programs::registry::{Detection, Presence};
use crate::providers::{Activity, SessionStart, TokensDelta, TurnEnd, Usage};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::time::Duration;

/// What a turn may cost by which the budget of these lives is outrun.
const TURN_USD: f64 = 0.5;
/// What every brief here says.
pub(super) const HANDOFF: &str = "# Handoff";

pub(super) fn bench(settings: &Value) -> Bench {
    let mut bench = Bench::new();
    let presence = Presence::Version("1".into());
    bench.apply(Event::Detected(vec![Detection {
        provider: "claude-code",
        presence,
        has_key: true,
        login: None,
    }]));
    assert_eq!(bench.ask("PATCH", "/api/config", settings).0, 200, "{settings}");
    bench
}

pub(super) fn agent(bench: &mut Bench, name: &str, model: &str) -> AgentId {
    let id = bench.agent_like(SpawnRequest {
        role: "dev".into(),
        name: Some(name.into()),
        provider: Some("claude-code".into()),
        ..SpawnRequest::default()
    });
    bench.does(id, vec![Activity::Session { id: format!("s-{name}"), model: Some(model.into()) }]);
    id
}

/// One call of the model that reads a context of so many tokens from the cache, and calls a tool.
pub(super) fn model_call(n: u64, context: u64) -> Vec<Activity> {
    let read = i64::try_from(context).unwrap();
    let delta = TokensDelta { input: 10, cache_read: read, cache_creation: 2_000, output: 0 };
    let usage = Usage { delta, context_tokens: Some(context), ..Usage::default() };
    let id = format!("t{n}");
    let input = json!({"command": format!("make step-{n}"), "description": "x".repeat(400)});
    let started =
        Activity::ToolStarted { id: id.clone(), name: "Bash".into(), input, path: None, writes: false };
    let ended = Activity::ToolEnded { id, error: false, output: "ok".into() };
    vec![Activity::Usage(usage), started, ended]
}

/// What programs were told, in order.
#[derive(Default)]
pub(super) struct Told {
    /// First messages, and whether the session was a fresh one.
    pub starts: Vec<(String, bool)>,
    /// What was said to running ones.
    pub said: Vec<String>,
    /// Whether programs go on when they are told that they may end.
    pub lingers: bool,
}

/// Carries on what the core has ordered: briefs are written, processes end and begin. The present life of
/// `name`.
pub(super) fn obey(bench: &mut Bench, name: &str, told: &mut Told) -> AgentId {
    loop {
        let Some(at) = bench.effects.iter().position(|effect| {
            matches!(effect, Effect::Job(crate::agents::Job::Brief { .. }))
                || matches!(
                    effect,
                    Effect::Run(
                        _,
                        RunOrder::Stop | RunOrder::Finish | RunOrder::Start(_) | RunOrder::Say { .. }
                    )
                )
        }) else {
            return bench.state.agents.find(name).unwrap().id;
        };
        match bench.effects.remove(at) {
            Effect::Job(crate::agents::Job::Brief { agent, .. }) => {
                bench.apply(Event::Job(JobReport::Brief(agent, Ok(HANDOFF.into()))));
            }
            Effect::Run(id, RunOrder::Stop) => bench.exits(id, 143),
            Effect::Run(_, RunOrder::Finish) if told.lingers => {}
            Effect::Run(id, RunOrder::Finish) => bench.exits(id, 0),
            Effect::Run(id, RunOrder::Start(order)) => {
                let is_fresh = order.request.session == SessionStart::Fresh;
                told.starts.push((order.request.prompt.clone(), is_fresh));
                bench.apply(Event::Run(id, RunReport::Started { pid: 9, start_ticks: 9 }));
            }
            Effect::Run(id, RunOrder::Say { message_id, text }) => {
                told.said.push(text);
                bench.apply(Event::Run(id, RunReport::Said { message_id, delivered: true }));
            }
            _ => {}
        }
    }
}

pub(super) fn today(bench: &Bench) -> f64 {
    bench.state.usage.today_usd(bench.now)
}

/// Agents that call their model without end, in turn, until none of them is alive. How many lives that took.
fn run_away(bench: &mut Bench, names: &[&str], model: &str, context: u64) -> usize {
    let mut told = Told::default();
    for name in names {
        agent(bench, name, model);
        obey(bench, name, &mut told);
    }
    for n in 0..100_000 {
        bench.now = bench.now + Duration::from_millis(400);
        for name in names {
            let id = obey(bench, name, &mut told);
            if bench.state.agents.get(id).unwrap().status.is_live() {
                bench.does(id, model_call(n, context));
            }
            obey(bench, name, &mut told);
        }
        if bench.state.agents.live().count() == 0 {
            return told.starts.len();
        }
    }
    panic!("they run for ever");
}

#[test]
fn the_runaway_never_outruns_the_daily_budget_by_more_than_a_turn() {
    for mid_turn in ["warn", "stop"] {
        for names in [&["solo"][..], &["ann", "bob", "cem", "dora", "eva"][..]] {
            let safety = json!({"dailyBudgetUsd": 2.0, "tokenCeilingPerAgent": 100_000});
            let mut bench = bench(&json!({"safety": safety, "budget": {"midTurn": mid_turn}}));
            let lives = run_away(&mut bench, names, "claude-sonnet-4-5", 90_000);
            assert!(today(&bench) <= 2.0 + TURN_USD, "{mid_turn}: {}", today(&bench));
            assert!(lives <= CEILING_LIVES * names.len(), "{mid_turn}: {lives} lives");
            let id = bench.state.agents.find(names[0]).unwrap().id;
            assert_eq!(bench.state.agents.get(id).unwrap().status, Status::Killed);
        }
    }
    // Without a ceiling that it comes to, it is the budget alone that ends it.
    let mut bench = bench(&json!({"safety": {"dailyBudgetUsd": 2.0}}));
    assert_eq!(run_away(&mut bench, &["solo"], "claude-sonnet-4-5", 90_000), 1);
    assert!((2.0..=2.0 + TURN_USD).contains(&today(&bench)), "{}", today(&bench));
    let told: Vec<Value> = bench.notices("budget:warning").iter().map(|one| one["percent"].clone()).collect();
    assert_eq!(told, [80, 100]);
    let why = bench.ask("GET", "/api/agents/solo", &Value::Null).1["statusReason"].to_string();
    assert!(why.contains("would be outrun by more than a turn") && why.contains("svc resume solo"), "{why}");
    assert_eq!(bench.ask("POST", "/api/agents/solo/resume", &json!({})).1["code"], "budget");
}

#[test]
fn the_runaway_without_a_budget_is_stopped_after_two_lives_and_people_are_asked() {
    let mut bench = bench(&json!({"safety": {"tokenCeilingPerAgent": 100_000}}));
    assert_eq!(run_away(&mut bench, &["solo"], "claude-sonnet-4-5", 90_000), CEILING_LIVES);
    let told = bench.notices("rotation:failed").pop().unwrap()["error"].to_string();
    assert!(told.contains("look at what it does before it goes on"), "{told}");
}

#[test]
fn a_runaway_on_a_model_without_a_price_stops_at_the_budget_instead_of_passing_it() {
    let mut bench = bench(&json!({"safety": {"dailyBudgetUsd": 2.0}}));
    run_away(&mut bench, &["solo"], "nobodys-model-7", 90_000);
    let summary = bench.ask("GET", "/api/tokens/summary", &Value::Null).1;
    assert_eq!(summary["perAgent"][0]["costUsd"], Value::Null);
    let used = summary["unpricedTokens"].as_u64().unwrap();
    // The dearest price known is 1.50 dollars for a million cached tokens.
    assert!((500_000..2_000_000).contains(&used), "{used}");
    let refused = bench.ask("POST", "/api/agents/solo/resume", &json!({})).1;
    assert_eq!(refused["code"], "budget");
    let text = refused["error"].as_str().unwrap();
    assert!(
        text.contains("of models whose price is not known") && text.contains("the setting models"),
        "{text}"
    );
    // Its price is given, and the budget sees what it really cost from then on.
    let price = json!({"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheCreation": 0.0});
    bench.ask("PATCH", "/api/config", &json!({"models": {"nobodys-model-7": {"price": price}}}));
    bench.pass(Duration::from_secs(86_400));
    assert_eq!(bench.ask("POST", "/api/agents/solo/resume", &json!({})).0, 200);
}

#[test]
fn what_waits_for_an_agent_begins_no_new_turn_once_the_budget_is_spent() {
    let mut bench = bench(&json!({"safety": {"dailyBudgetUsd": 4.0}}));
    let id = agent(&mut bench, "ann", "claude-sonnet-4-5");
    bench.ask(
        "POST",
        "/api/agents/ann/instruct",
        &json!({"message": "and then the docs", "deliver": "idle"}),
    );
    let end = Activity::TurnEnded(TurnEnd::default());
    bench.does(id, vec![Activity::Usage(Usage { cost_usd: Some(4.2), ..Usage::default() }), end]);
    let said = |effect: &Effect| matches!(effect, Effect::Run(_, RunOrder::Say { .. }));
    assert!(!bench.effects.iter().any(said), "a turn is something new");
    bench.exits(id, 0);
    assert_eq!(bench.notices("instruction:undelivered").len(), 1, "and it is told");
}

/// A command is run, and fails or not.
pub(super) fn command(n: u64, command: &str, error: bool) -> Vec<Activity> {
    let id = format!("c{n}");
    let input = json!({ "command": command });
    let started =
        Activity::ToolStarted { id: id.clone(), name: "Bash".into(), input, path: None, writes: false };
    vec![started, Activity::ToolEnded { id, error, output: String::new() }]
}

pub(super) fn write(n: u64, path: &str) -> Vec<Activity> {
    let id = format!("w{n}");
    let path = Some(path.to_owned());
    let started =
        Activity::ToolStarted { id: id.clone(), name: "Edit".into(), input: Value::Null, path, writes: true };
    vec![started, Activity::ToolEnded { id, error: false, output: String::new() }]
}

pub(super) fn good_end() -> Activity {
    Activity::TurnEnded(TurnEnd { text: "Done: all tests pass.".into(), ..TurnEnd::default() })
}

pub(super) fn failed_end() -> Activity {
    Activity::TurnEnded(TurnEnd { is_error: true, error: "overrun".into(), ..TurnEnd::default() })
}

fn judged(bench: &mut Bench, id: AgentId, field: &str) -> f64 {
    let body = bench.ask("GET", "/api/adaptive", &Value::Null).1;
    body["quality"][id.to_string()][field].as_f64().expect("enough events")
}

#[test]
fn test_first_work_is_not_punished_and_finished_work_is_not_done_again() {
    let mut bench = bench(&json!({}));
    let id = agent(&mut bench, "tess", "claude-sonnet-4-5");
    let is_left_alone = |bench: &Bench| bench.state.agents.get(id).unwrap().status == Status::Running;
    (0..8).for_each(|n| bench.does(id, command(n, "cat src/tax.rs", false)));
    for n in 10..16 {
        bench.does(id, write(n, "src/tax.rs"));
        bench.does(id, command(n, "cd app && cargo test tax 2>&1 | tail -5", true));
        assert!(is_left_alone(&bench), "red after edit {n}");
    }
    bench.does(id, write(20, "src/tax.rs"));
    assert!(judged(&mut bench, id, "score") < THRESHOLD, "by the formula of all it would be replaced");
    assert!(judged(&mut bench, id, "judged") > 70.0);
    bench.does(id, command(21, "cargo test", false));
    bench.does(id, vec![good_end()]);
    assert!(is_left_alone(&bench));
    bench.exits(id, 0);
    assert_eq!(bench.state.agents.rotations().total, 0);
    assert!(
        bench.effects.iter().all(|effect| !matches!(effect, Effect::Job(crate::agents::Job::Brief { .. }))),
        "no brief is made either"
    );
}

#[test]
fn whoever_runs_the_same_red_test_again_and_again_is_no_test_first_worker() {
    let mut bench = bench(&json!({}));
    let id = agent(&mut bench, "rick", "claude-sonnet-4-5");
    (0..20).for_each(|n| bench.does(id, command(n, "cargo test", true)));
    assert_eq!(bench.state.agents.get(id).unwrap().status, Status::Rotating);
    // Nor is one whose edits change nothing about it for long.
    let id = agent(&mut bench, "flo", "claude-sonnet-4-5");
    for n in 0..40 {
        bench.does(id, write(n, "src/tax.rs"));
        bench.does(id, command(n, "cargo test", true));
    }
    assert_eq!(bench.state.agents.get(id).unwrap().status, Status::Rotating);
}

#[test]
fn an_early_failure_is_forgotten_by_the_later_half() {
    let mut bench = bench(&json!({"autoRotation": false}));
    let id = agent(&mut bench, "ann", "claude-sonnet-4-5");
    (0..15).for_each(|n| bench.does(id, command(n, &format!("apt{n} install"), n % 3 == 0)));
    (15..20).for_each(|n| bench.does(id, command(n, "./nowhere", true)));
    (20..60).for_each(|n| bench.does(id, command(n, "cargo build", false)));
    assert!(judged(&mut bench, id, "score") < THRESHOLD && judged(&mut bench, id, "judged") >= 74.0);
}

#[test]
fn the_idle_agent_is_not_rotated_however_full_and_poor() {
    let mut bench = bench(&json!({}));
    let id = agent(&mut bench, "ida", "claude-sonnet-4-5");
    let mut told = Told::default();
    obey(&mut bench, "ida", &mut told);
    let mut turn = vec![Activity::Text { text: "x".into() }; 30];
    (0..6).for_each(|n| turn.extend([write(n, "a.rs"), model_call(n, 30_000)].concat()));
    let full = Usage { context_tokens: Some(190_000), context_window: Some(200_000), ..Usage::default() };
    turn.extend([Activity::Usage(full.clone()), good_end()]);
    bench.does(id, turn);
    assert!(judged(&mut bench, id, "judged") < THRESHOLD);
    for _ in 0..10 {
        bench.now = bench.now + COOLDOWN;
        bench.does(id, vec![Activity::Usage(full.clone())]);
        obey(&mut bench, "ida", &mut told);
    }
    bench.pass(Duration::from_secs(3_600));
    obey(&mut bench, "ida", &mut told);
    assert_eq!((bench.state.agents.rotations().total, told.starts.len()), (0, 1));
}

#[test]
fn inside_of_a_turn_a_full_context_is_replaced_where_that_is_cheaper_or_it_is_full_to_the_brim() {
    // Just full, and the turn has only begun: a few calls of 155 000 cached tokens cost less than a start.
    let mut bench = bench(&json!({}));
    let fill = |bench: &mut Bench, id: AgentId, n: u64, context: u64| {
        bench.does(id, model_call(n, context));
        bench.state.agents.get(id).unwrap().status
    };
    let id = agent(&mut bench, "few", "claude-sonnet-4-5");
    assert_eq!(fill(&mut bench, id, 1, 155_000), Status::Running);
    assert_eq!(fill(&mut bench, id, 2, 171_000), Status::Rotating, "full to the brim");
    let id = agent(&mut bench, "many", "claude-sonnet-4-5");
    let until = (0..200).find(|n| fill(&mut bench, id, *n, 155_000) == Status::Rotating);
    assert!(until.is_some_and(|calls| (2..20).contains(&calls)), "{until:?}");
}

/// An agent whose successor has just been ordered to start and whose brief and words it was to get.
fn rotated(bench: &mut Bench, name: &str) -> AgentId {
    let id = agent(bench, name, "claude-sonnet-4-5");
    bench.ask("POST", &format!("/api/agents/{name}/instruct"), &json!({"message": "prices are in cents"}));
    assert!(bench.wish("POST", &format!("/api/agents/{name}/rotate"), &json!({})).is_none());
    bench.apply(Event::Job(JobReport::Brief(id, Ok(HANDOFF.into()))));
    bench.exits(id, 143);
    bench.state.agents.find(name).unwrap().id
}

/// Somebody lets it go on: the first message of the next life.
fn goes_on(bench: &mut Bench, name: &str, words: &str) -> (String, bool) {
    let (status, body) =
        bench.ask("POST", &format!("/api/agents/{name}/resume"), &json!({ "message": words }));
    assert_eq!(status, 200, "{body}");
    let mut told = Told::default();
    obey(bench, name, &mut told);
    told.starts.pop().expect("a life")
}

fn runs(bench: &mut Bench, id: AgentId) {
    bench.apply(Event::Run(id, RunReport::Started { pid: 5, start_ticks: 5 }));
}

#[test]
fn a_successor_that_dies_in_its_first_second_or_at_its_first_words_never_loses_the_handoff() {
    let dies: [fn(&mut Bench, AgentId); 4] = [
        |bench, id| {
            bench.apply(Event::Run(id, RunReport::StartFailed { error: "no such program".into() }));
        },
        |bench, id| {
            runs(bench, id);
            bench.exits(id, 1);
        },
        |bench, id| {
            runs(bench, id);
            let session = Activity::Session { id: "s-new".into(), model: None };
            bench.does(id, vec![session, Activity::Text { text: "Let me".into() }]);
            bench.exits(id, 1);
        },
        |bench, id| {
            runs(bench, id);
            bench.does(id, vec![Activity::Session { id: "s-new".into(), model: None }]);
            bench.exits(id, 137);
        },
    ];
    for (n, dies) in dies.into_iter().enumerate() {
        let mut bench = bench(&json!({}));
        let mut id = rotated(&mut bench, "sue");
        bench.effects.retain(|effect| !matches!(effect, Effect::Run(_, RunOrder::Start(_))));
        for again in 0..3 {
            dies(&mut bench, id);
            let (prompt, is_fresh) = goes_on(&mut bench, "sue", &format!("try {again}"));
            let has_all = prompt.contains(HANDOFF) && prompt.contains("prices are in cents");
            assert!(is_fresh && has_all, "way {n}, time {again}: {prompt}");
            assert!((0..=again).all(|n| prompt.contains(&format!("try {n}"))), "{prompt}");
            id = bench.state.agents.find("sue").unwrap().id;
        }
        // A turn that ends well has taken it in: from then on its session holds it.
        bench.does(id, vec![Activity::Session { id: "s-last".into(), model: None }, good_end()]);
        bench.exits(id, 0);
        let (prompt, is_fresh) = goes_on(&mut bench, "sue", "and now the docs");
        assert_eq!((prompt.as_str(), is_fresh), ("and now the docs", false));
    }
}

#[test]
fn a_session_that_is_gone_costs_neither_the_handoff_nor_what_was_said() {
    let mut bench = bench(&json!({}));
    let id = rotated(&mut bench, "sue");
    runs(&mut bench, id);
    bench.does(id, vec![Activity::Session { id: "s-new".into(), model: None }, good_end()]);
    bench.exits(id, 0);
    bench.effects.clear();
    assert_eq!(goes_on(&mut bench, "sue", "add the tests").0, "add the tests");
    let id = bench.state.agents.find("sue").unwrap().id;
    bench.exits(id, 1);
    obey(&mut bench, "sue", &mut Told::default());
    let (prompt, is_fresh) = goes_on(&mut bench, "sue", "go");
    assert!(is_fresh && prompt.contains(HANDOFF) && prompt.contains("add the tests"), "{prompt}");
}

/// As a daemon after a kill -9 finds it: nobody was kept, and of the state what the disk has.
pub(super) fn killed(bench: &mut Bench) {
    let agents = &bench.state.agents;
    let stored = serde_json::to_vec(&agents.stored()).unwrap();
    let text = |document| -> Option<std::sync::Arc<str>> {
        let bytes = crate::assembly::documents::encode(document, &bench.state)?.unwrap();
        Some(serde_json::from_slice::<crate::agents::StoredPrompt>(&bytes).unwrap().prompt)
    };
    let mut next = crate::agents::State::restore(
        serde_json::from_slice(&stored).unwrap(),
        |lineage| text(Document::Prompt(lineage)).unwrap(),
        &std::collections::HashSet::new(),
        bench.now,
    );
    next.restore_handoffs(|lineage| text(Document::Handoff(lineage)));
    bench.state.agents = std::sync::Arc::new(next);
    bench.effects.clear();
}

#[test]
fn a_daemon_that_is_killed_in_a_rotation_loses_no_handoff() {
    // While the old one ends, while the new one starts, and in its first second.
    for moment in 0..3 {
        let mut bench = bench(&json!({}));
        let id = agent(&mut bench, "sue", "claude-sonnet-4-5");
        bench.ask("POST", "/api/agents/sue/instruct", &json!({"message": "prices are in cents"}));
        assert!(bench.wish("POST", "/api/agents/sue/rotate", &json!({})).is_none());
        bench.apply(Event::Job(JobReport::Brief(id, Ok(HANDOFF.into()))));
        let stop = bench.effects.iter().position(|e| matches!(e, Effect::Run(_, RunOrder::Stop))).unwrap();
        let is_handoff = |effect: &Effect| matches!(effect, Effect::Put(Document::Handoff(_), _));
        assert!(bench.effects[..stop].iter().any(is_handoff), "it is written before the old one is ended");
        if moment > 0 {
            bench.exits(id, 143);
        }
        if moment > 1 {
            let new = bench.state.agents.find("sue").unwrap().id;
            runs(&mut bench, new);
        }
        killed(&mut bench);
        let (prompt, is_fresh) = goes_on(&mut bench, "sue", "go");
        let in_session = moment == 0 && !is_fresh;
        assert!(in_session || (is_fresh && prompt.contains(HANDOFF)), "{moment}: {prompt}");
        assert!(prompt.contains("prices are in cents"), "{moment}: {prompt}");
    }
}

#[test]
fn a_budget_that_is_spent_between_two_lives_keeps_the_handoff_for_the_next_day() {
    let mut bench = bench(&json!({"safety": {"dailyBudgetUsd": 4.0}}));
    let id = agent(&mut bench, "sue", "claude-sonnet-4-5");
    assert!(bench.wish("POST", "/api/agents/sue/rotate", &json!({})).is_none());
    bench.apply(Event::Job(JobReport::Brief(id, Ok(HANDOFF.into()))));
    bench.does(id, vec![Activity::Usage(Usage { cost_usd: Some(4.5), ..Usage::default() })]);
    bench.exits(id, 143);
    let agent = bench.state.agents.find("sue").unwrap();
    assert_eq!((agent.status, agent.status_reason.code()), (Status::Crashed, "rotation-failed"));
    assert_eq!(bench.ask("POST", "/api/agents/sue/resume", &json!({})).1["code"], "budget");
    bench.now = bench.now + Duration::from_secs(86_400);
    assert_eq!(goes_on(&mut bench, "sue", "go").0.lines().last(), Some("> go"));
}
