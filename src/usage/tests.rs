use super::classifier::{MIN_EVENTS, WINDOW, Work};
use super::*;
use crate::agents::report::{Batch, Credit, Packed, RunReport};
use crate::agents::{self, SpawnRequest};
use crate::core::{Command, Event};
use crate::programs::registry::{Detection, State as Registry};
use crate::providers::{self, Tier, TokensDelta, TurnEnd};
use crate::testing::Bench;
use serde_json::{Value, json};

pub(super) fn usage(input: i64, output: i64) -> Activity {
    Activity::Usage(Usage {
        delta: TokensDelta { input, output, ..TokensDelta::default() },
        ..Usage::default()
    })
}

fn cached(read: i64, creation: i64) -> Activity {
    let delta = TokensDelta { cache_read: read, cache_creation: creation, ..TokensDelta::default() };
    Activity::Usage(Usage { delta, ..Usage::default() })
}

fn text() -> Activity {
    Activity::Text { text: "hm".into() }
}

pub(super) fn feed(bench: &mut Bench, id: AgentId, activities: Vec<Activity>) {
    let batch = Batch { activities, frames: Packed::default(), upto: 0, credit: Credit::free() };
    bench.apply(Event::Run(id, RunReport::Output(batch)));
}

pub(super) fn get(bench: &mut Bench, path: &str) -> Value {
    let (status, body) = bench.ask("GET", path, &Value::Null);
    assert_eq!(status, 200, "{path}: {body}");
    body
}

pub(super) fn sum(rows: &Value, field: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).sum()
}

/// Σ agents = Σ teams = total = `wanted`.
pub(super) fn balances(bench: &mut Bench, wanted: u64) {
    let summary = get(bench, "/api/tokens/summary");
    let teams = get(bench, "/api/tokens/by-team");
    assert_eq!(summary["totalUsed"], wanted);
    assert_eq!(summary["totalTokens"], wanted);
    assert_eq!(sum(&summary["perAgent"], "used"), wanted);
    assert_eq!(sum(&teams["teams"], "totalTokens"), wanted);
}

/// A bench on which these providers are installed.
fn with_providers() -> Bench {
    let mut bench = Bench::new();
    let found = ["claude-code", "codex", "gemini"].map(|provider| Detection::installed(provider, "1"));
    bench.apply(Event::Detected(found.into()));
    assert!(Registry::is_installed(&bench.state.providers, "codex"));
    bench
}

fn request(provider: &str, model: Option<&str>, prompt: &str) -> SpawnRequest {
    SpawnRequest {
        role: "backend".into(),
        provider: Some(provider.into()),
        model: model.map(Into::into),
        prompt: prompt.into(),
        ..SpawnRequest::default()
    }
}

fn spawn(bench: &mut Bench, request: SpawnRequest) -> AgentId {
    let reply = bench.command(Command::Agents(agents::Command::Spawn(Box::new(request)))).unwrap();
    let body: Value = serde_json::from_slice(reply.body.bytes()).unwrap();
    assert_eq!(reply.status, 201, "{body}");
    let id = body["id"].as_str().unwrap().parse().unwrap();
    bench.apply(Event::Run(id, RunReport::Started { pid: 1, start_ticks: 1 }));
    id
}

#[test]
fn spec_tokens_summary_has_every_field() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    feed(&mut bench, id, vec![usage(100, 20), cached(300, 100)]);
    bench.with(|all, cx| {
        let tokens = Tokens { input: 40, output: 2, ..Tokens::default() };
        book(all, cx, "__journalist__", "claude-haiku-4-5", tokens, None);
        book(all, cx, "__journalist__", "claude-haiku-4-5", tokens, Some(0.5));
    });
    let body = get(&mut bench, "/api/tokens/summary");
    assert_eq!(body["totalUsed"], 520);
    assert_eq!(body["totalTokens"], 520);
    assert_eq!(body["totalSaved"], 0);
    for part in ["rotation", "coldStart", "conflict"] {
        assert_eq!(body["breakdown"][part], 0);
        let basis = if part == "conflict" { "measured" } else { "estimated" };
        assert_eq!(body["breakdown"]["basis"][part], basis);
    }
    let agent = &body["perAgent"][0];
    assert_eq!((&agent["id"], &agent["used"]), (&json!(id), &json!(520)));
    assert_eq!(agent["model"], "auto", "nobody has told which");
    assert_eq!(body["cacheHitRate"], 0.75, "reads / (reads + creation)");
    assert_eq!(body["savings"]["total"], 0);
    assert_eq!(body["savings"]["fromRotation"], 0);
    assert_eq!(body["savings"]["percentage"], 0.0);
    let overhead = &body["internalOverhead"];
    assert_eq!((&overhead["tokens"], &overhead["costUsd"]), (&json!(84), &json!(0.500_05)));
    let journalist = json!({"tokens": 84, "costUsd": 0.500_05, "sessions": 2});
    assert_eq!(overhead["components"], json!({"__journalist__": journalist}));
}

#[test]
fn decisions_8_agents_and_teams_and_total_agree_under_rotation_resume_and_removal() {
    let mut bench = Bench::new();
    let one = bench.agent("one");
    let two = bench.agent("two");
    feed(&mut bench, one, vec![usage(100, 20)]);
    feed(&mut bench, two, vec![usage(7, 3)]);
    let one = bench.rotates("one");
    feed(&mut bench, one, vec![usage(50, 0), usage(0, 0)]);
    balances(&mut bench, 180);
    bench.exits(one, 0);
    let (status, body) = bench.ask("POST", "/api/agents/one/resume", &json!({}));
    assert_eq!(status, 200, "{body}");
    let one: AgentId = body["id"].as_str().unwrap().parse().unwrap();
    bench.apply(Event::Run(one, RunReport::Started { pid: 1, start_ticks: 1 }));
    feed(&mut bench, one, vec![usage(10, 0)]);
    balances(&mut bench, 190);
    bench.exits(one, 0);
    bench.ask("DELETE", "/api/agents/one", &Value::Null);
    assert!(bench.state.agents.find("one").is_err());
    balances(&mut bench, 190);
    let summary = get(&mut bench, "/api/tokens/summary");
    let removed = &summary["perAgent"][0];
    assert_eq!((&removed["used"], &removed["removed"]), (&json!(180), &json!(true)));
    assert_eq!(removed["lives"], 3);
}

#[test]
fn decisions_8_a_correction_below_a_row_is_taken_from_the_lineage_as_the_record_does() {
    let mut bench = Bench::new();
    let one = bench.agent("one");
    feed(&mut bench, one, vec![usage(100, 20)]);
    let one = bench.rotates("one");
    feed(&mut bench, one, vec![usage(5, 0), usage(-30, 4), usage(0, -500)]);
    let record = bench.state.agents.get(one).unwrap().tokens.total();
    assert_eq!(record, 75);
    balances(&mut bench, 75);
}

#[test]
fn spec_by_team_is_ranked_and_counts_at_the_time_of_use() {
    let mut bench = Bench::new();
    let one = bench.agent("one");
    let two = bench.agent("two");
    feed(&mut bench, one, vec![usage(100, 0)]);
    let (_, team) = bench.ask("POST", "/api/teams", &json!({"name": "crew", "agents": []}));
    bench.ask("PATCH", "/api/agents/one", &json!({"teamId": "crew"}));
    feed(&mut bench, one, vec![usage(900, 0)]);
    feed(&mut bench, two, vec![usage(50, 0)]);
    let teams = get(&mut bench, "/api/tokens/by-team")["teams"].clone();
    let first = json!({"teamId": team["id"], "teamName": "crew", "isDefault": false, "agentCount": 1,
        "totalTokens": 900, "totalCostUsd": 0.0, "unpricedTokens": 0, "avgTokensPerAgent": 900});
    assert_eq!(teams[0], first);
    assert_eq!(teams[1]["teamId"], "__unassigned__");
    assert_eq!((&teams[1]["totalTokens"], &teams[1]["agentCount"]), (&json!(150), &json!(2)));
    assert_eq!(teams[1]["avgTokensPerAgent"], 75);
    balances(&mut bench, 1050);
}

#[test]
fn decisions_8_cost_is_the_providers_own_where_it_reports_one_and_the_tables_elsewhere() {
    let mut bench = with_providers();
    let id = spawn(&mut bench, request("claude-code", Some("claude-sonnet-4-5"), "x"));
    feed(&mut bench, id, vec![usage(1_000_000, 100_000)]);
    let cost = |bench: &mut Bench| get(bench, "/api/tokens/summary")["totalCostUsd"].as_f64().unwrap();
    assert!((cost(&mut bench) - 4.5).abs() < 1e-9, "3 + 1.5 dollars by the table");
    let told = Usage { cost_usd: Some(4.2), ..Usage::default() };
    feed(&mut bench, id, vec![Activity::Usage(told)]);
    assert!((cost(&mut bench) - 4.2).abs() < 1e-9, "the provider's figure replaces the table's");
    feed(&mut bench, id, vec![usage(1_000_000, 0)]);
    assert!((cost(&mut bench) - 7.2).abs() < 1e-9, "until the provider tells the next one");
    assert!((bench.state.usage.today_usd(bench.now) - 7.2).abs() < 1e-9);
    assert!((bench.state.agents.get(id).unwrap().cost_usd - 7.2).abs() < 1e-9, "the record says the same");
}

#[test]
fn spec_questions_are_booked_to_agent_qa_and_not_to_the_agent() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    bench.command(Command::Agents(agents::Command::Query { target: "one".into(), question: "?".into() }));
    let call = bench.effects.iter().find_map(|effect| match effect {
        crate::core::Effect::Job(agents::Job::Query { call, .. }) => Some(*call),
        _ => None,
    });
    let tokens = Tokens { input: 10, output: 5, ..Tokens::default() };
    bench.apply(Event::Job(agents::JobReport::Query(call.unwrap(), Ok(("yes".into(), tokens)))));
    let body = get(&mut bench, "/api/tokens/summary");
    assert_eq!(body["totalUsed"], 0);
    assert_eq!(body["internalOverhead"]["components"]["__agent_qa__"]["tokens"], 15);
    assert_eq!(bench.state.usage.tokens_of(bench.state.agents.get(id).unwrap().lineage_id), 0);
}

#[test]
fn the_ledger_survives_a_restart_and_follows_the_records() {
    let mut bench = Bench::new();
    let one = bench.agent("one");
    feed(&mut bench, one, vec![usage(100, 20)]);
    let written = serde_json::to_vec(&bench.state.usage.stored()).unwrap();
    // A second later the registry was written, the ledger not.
    feed(&mut bench, one, vec![usage(7, 0)]);
    let stored = serde_json::from_slice(&written).unwrap();
    let now = bench.now;
    bench.with(|all, _| restore(all, stored, now));
    balances(&mut bench, 127);
}

#[test]
fn rows_of_an_account_are_bounded_and_still_add_up() {
    let mut account = Account::new(AgentId(1), "a", "r", "codex", Time(0));
    let one = Usage { delta: TokensDelta { input: 1, ..TokensDelta::default() }, ..Usage::default() };
    for n in 0..200 {
        let place = Place { agent: AgentId(n), team: "t".into(), model: "gpt-5.6-sol".into(), price: None };
        account.add(&place, &one, Time(0));
    }
    assert_eq!(account.rows().len(), ledger::MAX_ROWS);
    assert_eq!(account.tokens().total(), 200);
    assert!((account.cost_usd() - 200.0 * 4.0 / 1e6).abs() < 1e-9);
}

/// What a program asked of a further model stands under that one's name and price, and in no sum twice.
#[test]
fn tokens_of_a_further_model_are_booked_under_its_name_and_price() {
    let mut bench = with_providers();
    let id = spawn(&mut bench, request("claude-code", Some("claude-sonnet-4-5"), "x"));
    let part = |model: &str, input, cost_usd| {
        let delta = TokensDelta { input, ..TokensDelta::default() };
        Activity::Usage(Usage { model: Some(model.into()), delta, cost_usd, ..Usage::default() })
    };
    feed(&mut bench, id, vec![usage(1_000_000, 0), part("claude-haiku-4-5", 2_000_000, None)]);
    balances(&mut bench, 3_000_000);
    let rows = |bench: &mut Bench| {
        let summary = get(bench, "/api/tokens/summary");
        let rows = summary["byModel"].as_array().unwrap().clone();
        let row = |row: &Value| (row["model"].as_str().unwrap().to_owned(), row["costUsd"].as_f64());
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let (sonnet, haiku) = ("claude-sonnet-4-5".to_owned(), "claude-haiku-4-5".to_owned());
    assert_eq!(rows(&mut bench), [(haiku.clone(), Some(2.0)), (sonnet.clone(), Some(3.0))]);
    // At the end of the turn its program tells the cost: of each model its own, of all the rest the rest.
    let rest = Activity::Usage(Usage { cost_usd: Some(2.5), ..Usage::default() });
    feed(&mut bench, id, vec![part("claude-haiku-4-5", 1000, Some(1.75)), rest]);
    assert_eq!(rows(&mut bench), [(haiku, Some(1.75)), (sonnet, Some(2.5))]);
    assert_eq!(get(&mut bench, "/api/tokens/summary")["totalCostUsd"], 4.25);
    balances(&mut bench, 3_001_000);
    // One without a price is named, and costs nobody knows what.
    feed(&mut bench, id, vec![part("nobodys-model", 500, None)]);
    let summary = get(&mut bench, "/api/tokens/summary");
    let unpriced = summary["byModel"].as_array().unwrap().iter().find(|row| row["model"] == "nobodys-model");
    assert_eq!(unpriced.unwrap()["unpricedTokens"], 500);
    assert_eq!(summary["unpricedTokens"], 500);
}

#[test]
fn safety_daily_budget_refuses_new_starts_with_409_until_midnight() {
    let mut bench = Bench::new();
    let one = bench.agent("one");
    bench.ask("PATCH", "/api/config", &json!({"safety": {"dailyBudgetUsd": 1.0}}));
    let cost = |usd| Activity::Usage(Usage { cost_usd: Some(usd), ..Usage::default() });
    feed(&mut bench, one, vec![cost(0.99)]);
    assert!(check_budget(&bench.state, bench.now).is_ok());
    feed(&mut bench, one, vec![cost(0.01)]);
    assert!(check_budget(&bench.state, bench.now).is_err(), "it is reached");
    feed(&mut bench, one, vec![cost(0.01)]);
    for (path, body) in [("/api/agents/one/rotate", json!({})), ("/api/agents/one/resume", json!({}))] {
        if path.ends_with("resume") {
            bench.exits(one, 0);
        }
        let (status, body) = bench.ask("POST", path, &body);
        assert_eq!((status, body["code"].as_str()), (409, Some("budget")), "{path}: {body}");
        assert!(body["error"].as_str().unwrap().contains("safety.dailyBudgetUsd is $1.00"), "{body}");
    }
    let spawn = Command::Agents(agents::Command::Spawn(Box::new(request("script", None, "x"))));
    assert_eq!(bench.command(spawn).unwrap().status, 409);
    bench.now = bench.now + std::time::Duration::from_secs(86_400);
    assert!(check_budget(&bench.state, bench.now).is_ok(), "a new day");
}

#[test]
fn every_price_is_dated_sourced_and_found_under_the_names_providers_use() {
    assert!(!prices::table().as_of.is_empty() && !prices::table().source.is_empty());
    let price = |model: &str| prices::of_model(model).map(|price| price.input);
    assert_eq!(price("claude-sonnet-4-5-20250929"), Some(3.0));
    assert_eq!(price("anthropic/claude-opus-4-6"), Some(5.0));
    assert_eq!(price("gemini-2.5-flash-lite"), Some(0.1));
    assert_eq!(price("gemini-2.5-flash"), Some(0.3));
    assert_eq!(price("claude-sonnet-4-55"), None);
    assert_eq!(price("claude-opus-4-1"), Some(15.0), "not that of Opus 4.x");
    assert_eq!(price("gpt-6-sol-fast"), None);
    assert_eq!(price("default"), None);
    for provider in ["claude-code", "codex", "gemini", "opencode"] {
        for model in providers::by_id(provider).unwrap().info().models {
            assert!(prices::of_model(model.id).is_some(), "{} has a price", model.id);
        }
    }
}

#[test]
fn decisions_8_whole_words_of_the_task_choose_the_tier_before_anything_happened() {
    assert_eq!(Work::new("Add a login page").tier(), Tier::Medium);
    assert_eq!(Work::new("Fix the TYPO, please").tier(), Tier::Light);
    assert_eq!(Work::new("Refactor: the store").tier(), Tier::Heavy);
    assert_eq!(Work::new("Fix a typo and refactor").tier(), Tier::Medium);
    assert_eq!(Work::new("Show information on typography").tier(), Tier::Medium, "whole words only");
}

fn tool(n: usize, path: Option<&str>, error: bool) -> [Activity; 2] {
    let id = format!("t{n}");
    let started = Activity::ToolStarted {
        id: id.clone(),
        name: if path.is_some() { "Edit" } else { "Read" }.into(),
        input: Value::Null,
        path: path.map(Into::into),
        writes: path.is_some(),
    };
    [started, Activity::ToolEnded { id, error, output: String::new() }]
}

fn take(work: &mut Work, activities: &[Activity]) {
    for activity in activities {
        assert!(work.take(activity));
    }
}

#[test]
fn decisions_8_tiers_follow_the_work_with_hysteresis() {
    let mut work = Work::new("Add a login page");
    for n in 0..30 {
        take(&mut work, &tool(n, None, false));
    }
    assert_eq!((work.count(), work.tier()), (60, Tier::Light), "reads only");
    assert!(work.is_certain());
    // One file: 18 points are light by themselves; three: 30 are medium.
    take(&mut work, &tool(100, Some("a"), false));
    assert_eq!(work.tier(), Tier::Light);
    assert!(!work.is_certain(), "2 points from the border are too few to suggest anything");
    for n in 0..2 {
        take(&mut work, &tool(101 + n, Some(&format!("b{n}")), false));
    }
    assert_eq!(work.tier(), Tier::Medium);
    // Ten files make 45: heavy by the border, but not beyond the hysteresis.
    for n in 0..7 {
        take(&mut work, &tool(200 + n, Some(&format!("c{n}")), false));
    }
    assert_eq!(work.tier(), Tier::Medium, "45 points do not leave medium");
    for n in 0..30 {
        take(&mut work, &tool(300 + n, None, true));
    }
    assert_eq!(work.tier(), Tier::Heavy, "failures make 55");
    take(&mut work, &vec![text(); WINDOW]);
    assert_eq!(work.len(), WINDOW);
    assert_eq!(work.summary(), "0 files written, 0 tools used, 0 failures", "all of it has left the window");
    assert_eq!(work.tier(), Tier::Light);
}

#[test]
fn spec_classifier_update_comes_at_40_events_and_every_20_after() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    feed(&mut bench, id, (1..MIN_EVENTS).map(|_| text()).collect());
    assert!(bench.notices("classifier:update").is_empty());
    feed(&mut bench, id, (0..45).map(|_| text()).collect());
    let id = bench.rotates("one");
    feed(&mut bench, id, (0..20).map(|_| text()).collect());
    let told: Vec<(Value, Value)> = bench
        .notices("classifier:update")
        .into_iter()
        .map(|body| (body["agentId"].clone(), body["eventCount"].clone()))
        .collect();
    let old = bench.state.agents.get(id).unwrap().predecessor_id;
    let wanted = [(old, 40), (old, 60), (old, 80), (Some(id), 100)];
    assert_eq!(told, wanted.map(|(id, n)| (json!(id), json!(n))), "for the lineage's whole life");
    assert_eq!(bench.notices("classifier:update")[0]["tier"], "light");
}

fn started_model(bench: &Bench, id: AgentId) -> Option<String> {
    bench.effects.iter().rev().find_map(|effect| match effect {
        crate::core::Effect::Run(agent, agents::RunOrder::Start(order)) if *agent == id => {
            Some(order.request.model.clone())
        }
        _ => None,
    })?
}

#[test]
fn decisions_8_auto_suggests_the_cheapest_of_the_tier_and_leaves_the_model_to_the_program() {
    let mut bench = with_providers();
    bench.ask("PATCH", "/api/config", &json!({"routing": "on"}));
    let light = spawn(&mut bench, request("codex", Some("auto"), "Fix a typo"));
    let heavy = spawn(&mut bench, request("claude-code", None, "Redesign the store"));
    let named = spawn(&mut bench, request("codex", Some("gpt-5.6-sol"), "Fix a typo"));
    assert_eq!(started_model(&bench, named).as_deref(), Some("gpt-5.6-sol"));
    let script = spawn(&mut bench, request("script", None, "Fix a typo"));
    let mut planner = request("codex", None, "Fix a typo");
    planner.role = "planner".into();
    let planner = spawn(&mut bench, planner);
    let ids = [light, heavy, script, planner];
    assert_eq!(ids.map(|id| started_model(&bench, id)), [None, None, None, None], "nothing is chosen");

    let body = get(&mut bench, "/api/routing");
    assert_eq!((&body["mode"], &body["decisions"]), (&json!("suggest"), &json!(4)));
    let of = |id: AgentId| &body["currentMappings"][id.to_string()];
    let told = |id: AgentId| (of(id)["suggestedTier"].clone(), of(id)["reason"].as_str().unwrap().to_owned());
    for (id, tier, says) in [
        (light, "light", "GPT-6 Luna is the cheapest model for light work by price; the task says \"typo\""),
        (heavy, "heavy", "Claude Opus 5.5"),
        (planner, "medium", "the least for role planner"),
    ] {
        let (suggested, reason) = told(id);
        assert_eq!(suggested, tier);
        assert!(reason.contains(says), "{reason}");
    }
    assert_eq!((&of(named)["model"], &of(named)["mode"]), (&json!("gpt-5.6-sol"), &json!("fixed")));
    assert!(told(script).1.contains("decides itself"));
    bench.ask("PATCH", "/api/config", &json!({"defaultModel": "gpt-5.6-sol"}));
    assert_eq!(get(&mut bench, "/api/routing")["mode"], "fixed");
}

#[test]
fn spec_a_suggestion_is_200_only_for_a_lighter_tier_with_40_events() {
    let mut bench = with_providers();
    let id = spawn(&mut bench, request("claude-code", Some("claude-opus-5-5"), "Look around"));
    let path = format!("/api/agents/{id}/routing/suggestion");
    feed(&mut bench, id, (1..MIN_EVENTS).map(|_| text()).collect());
    assert_eq!(bench.ask("GET", &path, &Value::Null), (204, Value::Null), "39 events are too few");
    feed(&mut bench, id, vec![text()]);
    let (status, body) = bench.ask("GET", &path, &Value::Null);
    assert_eq!(status, 200);
    let model = |id: &str, name: &str, tier: &str| json!({"id": id, "name": name, "tier": tier});
    assert_eq!(body["agentId"], json!(id));
    assert_eq!(body["currentModel"], model("claude-opus-5-5", "Claude Opus 5.5", "heavy"));
    assert_eq!(body["suggestedModel"], model("claude-haiku-5-5", "Claude Haiku 5.5", "light"));
    assert_eq!((&body["classifiedTier"], &body["eventCount"]), (&json!("light"), &json!(40)));
    assert!(body["reason"].is_string());
    assert_eq!(bench.state.agents.get(id).unwrap().model.as_deref(), Some("claude-opus-5-5"), "not applied");

    let cheapest = spawn(&mut bench, request("claude-code", Some("claude-haiku-5-5"), "x"));
    let path = format!("/api/agents/{cheapest}/routing/suggestion");
    feed(&mut bench, cheapest, (0..60).map(|_| text()).collect());
    assert_eq!(bench.ask("GET", &path, &Value::Null).0, 204, "already the cheapest");

    let busy = spawn(&mut bench, request("claude-code", Some("claude-haiku-5-5"), "Refactor it"));
    let path = format!("/api/agents/{busy}/routing/suggestion");
    let edits = (0..30).flat_map(|n| tool(n, Some(&format!("f{n}")), false)).collect();
    feed(&mut bench, busy, edits);
    assert_eq!(bench.ask("GET", &path, &Value::Null).0, 204, "never a heavier one");
    assert_eq!(bench.ask("GET", "/api/agents/nobody/routing/suggestion", &Value::Null).0, 404);
}

#[test]
fn a_turns_end_is_an_event_and_noise_is_none() {
    let mut work = Work::new("x");
    assert!(work.take(&Activity::TurnEnded(TurnEnd::default())));
    assert!(!work.take(&Activity::Noise { text: "x".into() }));
    assert!(!work.take(&Activity::TurnStarted));
    assert_eq!(work.count(), 1);
}

#[test]
fn without_a_model_an_agent_runs_what_its_program_is_set_to() {
    let mut bench = with_providers();
    let own = spawn(&mut bench, request("codex", None, "Fix a typo"));
    assert_eq!(started_model(&bench, own), None, "no model goes to the command line");
    let auto = spawn(&mut bench, request("codex", Some("auto"), "Fix a typo"));
    assert_eq!(started_model(&bench, auto), None, "who says auto is told what it needs");
    let body = get(&mut bench, "/api/routing");
    assert_eq!((&body["mode"], &body["decisions"]), (&json!("off"), &json!(1)));
    assert_eq!(body["currentMappings"][own.to_string()]["mode"], "program");
    assert_eq!(body["currentMappings"][auto.to_string()]["suggestedTier"], "light");

    bench.ask("PATCH", "/api/config", &json!({"routing": "suggest"}));
    let told = spawn(&mut bench, request("codex", None, "Fix a typo"));
    assert_eq!(started_model(&bench, told), None);
    let body = get(&mut bench, "/api/routing");
    let mapping = &body["currentMappings"][told.to_string()];
    assert_eq!(
        (&body["mode"], &mapping["mode"], &mapping["tier"]),
        (&json!("suggest"), &json!("suggest"), &json!("light"))
    );
    assert!(mapping["reason"].as_str().unwrap().contains("GPT-6 Luna"), "{mapping}");

    let name = bench.state.agents.get(own).unwrap().name.clone();
    bench.ask("PATCH", &format!("/api/agents/{name}"), &json!({"model": "auto"}));
    let own = bench.rotates(&name);
    let mode = get(&mut bench, "/api/routing")["currentMappings"][own.to_string()]["mode"].clone();
    assert_eq!(mode, "suggest", "asked for later");
    bench.ask("PATCH", "/api/config", &json!({"routing": "off"}));
    bench.ask("PATCH", &format!("/api/agents/{name}"), &json!({"model": null}));
    let own = bench.rotates(&name);
    let mode = get(&mut bench, "/api/routing")["currentMappings"][own.to_string()]["mode"].clone();
    assert_eq!((started_model(&bench, own), mode), (None, json!("program")), "and taken back");
}

#[test]
fn a_model_without_a_price_has_no_cost_and_says_so() {
    let mut bench = with_providers();
    let session = |model: &str| Activity::Session { id: "s".into(), model: Some(model.into()) };
    let known = spawn(&mut bench, request("claude-code", None, "x"));
    feed(
        &mut bench,
        known,
        vec![session("us.anthropic.claude-sonnet-4-5-20250929-v1:0"), usage(1_000_000, 0)],
    );
    let unknown = spawn(&mut bench, request("codex", None, "x"));
    feed(&mut bench, unknown, vec![session("nobody-knows-it"), usage(500_000, 0)]);
    let silent = spawn(&mut bench, request("gemini", None, "x"));
    feed(&mut bench, silent, vec![usage(250_000, 0)]);

    let summary = get(&mut bench, "/api/tokens/summary");
    assert_eq!((&summary["totalCostUsd"], &summary["unpricedTokens"]), (&json!(3.0), &json!(750_000)));
    let of = |id: AgentId| {
        let rows = summary["perAgent"].as_array().unwrap();
        let row = rows.iter().find(|row| row["id"] == json!(id)).unwrap();
        (row["costUsd"].clone(), row["unpricedTokens"].clone())
    };
    assert_eq!(of(known), (json!(3.0), json!(0)));
    assert_eq!(of(unknown), (Value::Null, json!(500_000)), "never another model's price");
    assert_eq!(of(silent), (Value::Null, json!(250_000)), "nor that of a model it might run");
    let teams = get(&mut bench, "/api/tokens/by-team");
    assert_eq!(teams["teams"][0]["unpricedTokens"], 750_000);
    assert_eq!(bench.state.agents.get(unknown).unwrap().unpriced_tokens, 500_000);

    let told = Usage { cost_usd: Some(0.0), ..Usage::default() };
    feed(&mut bench, unknown, vec![Activity::Usage(told)]);
    let summary = get(&mut bench, "/api/tokens/summary");
    assert_eq!(
        (&summary["totalCostUsd"], &summary["unpricedTokens"]),
        (&json!(3.0), &json!(250_000)),
        "a told 0 is a cost"
    );

    let price = json!({"input": 2.0, "output": 0.0, "cacheRead": 0.0, "cacheCreation": 0.0});
    bench.ask("PATCH", "/api/config", &json!({"models": {"nobody-knows-it": {"price": price}}}));
    feed(&mut bench, unknown, vec![usage(1_000_000, 0)]);
    assert_eq!(get(&mut bench, "/api/tokens/summary")["totalCostUsd"], 5.0, "a person's own price");
}
