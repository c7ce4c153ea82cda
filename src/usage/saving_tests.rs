//! Honest figures: what was saved, what nobody has counted, and what each model used.

use super::tests::{balances, feed, get};
use crate::agents::SpawnRequest;
use crate::core::Event;
use crate::core::ids::AgentId;
use crate::programs::registry::Detection;
use crate::providers::{Activity, TokensDelta, TurnEnd, Usage};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::time::Duration;

/// A call with this context, of which `cached` came from the cache.
fn call(context: u64, cached: i64) -> Activity {
    let delta = TokensDelta { input: 100, cache_read: cached, ..TokensDelta::default() };
    Activity::Usage(Usage {
        delta,
        context_tokens: Some(context),
        context_window: Some(200_000),
        ..Usage::default()
    })
}

fn of_provider(bench: &mut Bench, name: &str, provider: &str) -> AgentId {
    bench.apply(Event::Detected(["codex", "claude-code"].map(|id| Detection::installed(id, "1")).into()));
    bench.agent_like(SpawnRequest {
        role: "dev".into(),
        name: Some(name.into()),
        provider: Some(provider.into()),
        prompt: "x".into(),
        ..SpawnRequest::default()
    })
}

fn runs(bench: &mut Bench, name: &str, model: &str) -> AgentId {
    let id = of_provider(bench, name, "claude-code");
    feed(bench, id, vec![Activity::Session { id: format!("s-{name}"), model: Some(model.into()) }]);
    id
}

#[test]
fn decisions_8_a_rotation_has_saved_what_was_cheaper_ten_minutes_later_and_the_range_says_how_sure_that_is() {
    let mut bench = Bench::new();
    let id = runs(&mut bench, "one", "claude-sonnet-4-5");
    feed(&mut bench, id, vec![call(150_000, 149_000)]);
    let id = bench.rotates("one");
    let model = Some("claude-sonnet-4-5".into());
    feed(&mut bench, id, vec![Activity::Session { id: "s2".into(), model }]);
    // It begins with 20 000 tokens and has read 10 000 more after twenty calls.
    (0..20).for_each(|n| feed(&mut bench, id, vec![call(20_000 + if n > 0 { 10_000 } else { 0 }, 20_000)]));
    let early = get(&mut bench, "/api/tokens/summary");
    assert_eq!(
        (&early["breakdown"]["rotation"], &early["savings"]["rotationRange"]["open"]),
        (&json!(0), &json!(1))
    );
    bench.pass(Duration::from_secs(600));
    let body = get(&mut bench, "/api/tokens/summary");
    // 20 x (150 000 - 20 000) x 0.1 - 20 000 x 1.25; and less 10 000 x (1.25 + 20 / 2 x 0.1).
    let range = &body["savings"]["rotationRange"];
    assert_eq!((&range["high"], &range["low"]), (&json!(235_000), &json!(212_500)));
    assert_eq!((&range["highUsd"], &range["lowUsd"]), (&json!(0.705), &json!(0.6375)), "3 dollars a million");
    assert_eq!(body["breakdown"]["rotation"], 223_750);
    assert_eq!(body["savings"]["basis"]["rotation"], "estimated");
    assert_eq!(body["totalSaved"], 223_750);
}

#[test]
fn five_rotations_in_a_row_have_saved_nothing() {
    let mut bench = Bench::new();
    let id = runs(&mut bench, "one", "claude-sonnet-4-5");
    feed(&mut bench, id, vec![call(60_000, 0)]);
    for _ in 0..5 {
        let id = bench.rotates("one");
        bench.pass(Duration::from_secs(2));
        feed(&mut bench, id, vec![call(60_000, 0)]);
    }
    bench.pass(Duration::from_secs(600));
    let body = get(&mut bench, "/api/tokens/summary");
    assert_eq!((&body["totalSaved"], &body["savings"]["rotationRange"]["checked"]), (&json!(0), &json!(5)));
    assert!(
        body["savings"]["rotationRange"]["high"].as_i64().unwrap() < 0,
        "they have cost something: {body}"
    );
}

#[test]
fn a_resume_saves_what_its_first_call_finds_in_the_cache_and_no_more() {
    for (cached, saved) in [(0, 0), (50_000, 45_000)] {
        let mut bench = Bench::new();
        let id = runs(&mut bench, "one", "claude-sonnet-4-5");
        feed(&mut bench, id, vec![call(60_000, 0), Activity::TurnEnded(TurnEnd::default())]);
        bench.exits(id, 0);
        assert_eq!(bench.ask("POST", "/api/agents/one/resume", &json!({})).0, 200);
        let id = bench.state.agents.find("one").unwrap().id;
        feed(&mut bench, id, vec![call(60_000, cached), call(60_000, 60_000)]);
        let body = get(&mut bench, "/api/tokens/summary");
        assert_eq!(body["breakdown"]["coldStart"], saved);
    }
}

#[test]
fn output_of_a_turn_that_is_cut_off_is_estimated_and_said_so() {
    let mut bench = Bench::new();
    let id = runs(&mut bench, "one", "claude-sonnet-4-5");
    let words = Activity::Text { text: "x".repeat(4_000) };
    feed(&mut bench, id, vec![call(1_000, 0), words.clone(), Activity::TurnEnded(TurnEnd::default()), words]);
    bench.exits(id, 137);
    let body = get(&mut bench, "/api/tokens/summary");
    let cut = &body["interrupted"];
    assert_eq!((&cut["outputTokens"], &cut["basis"]), (&json!(1_000), &json!("estimated")));
    assert_eq!((&cut["costUsd"], &body["perAgent"][0]["interruptedOutput"]), (&json!(0.015), &json!(1_000)));
    assert_eq!(body["tokens"]["output"], 0, "what was counted stays what was counted");
    assert!((bench.state.usage.today_estimated_usd(bench.now) - 0.015).abs() < 1e-9, "the budget sees it");
    let stored = serde_json::to_vec(&bench.state.usage.stored()).unwrap();
    let now = bench.now;
    bench.with(|all, _| super::restore(all, serde_json::from_slice(&stored).unwrap(), now));
    assert_eq!(get(&mut bench, "/api/tokens/summary")["interrupted"]["outputTokens"], 1_000);
}

#[test]
fn each_model_has_what_it_used_and_all_of_them_have_all() {
    let mut bench = Bench::new();
    let id = runs(&mut bench, "one", "claude-sonnet-4-5");
    feed(&mut bench, id, vec![call(1_000, 900)]);
    let model = Some("us.anthropic.claude-haiku-4-5-20251001-v1:0".into());
    feed(&mut bench, id, vec![Activity::Session { id: "s".into(), model }, call(1_000, 0)]);
    let other = runs(&mut bench, "two", "nobodys-model-7");
    feed(&mut bench, other, vec![call(1_000, 400)]);
    bench.exits(other, 0);
    bench.ask("DELETE", "/api/agents/two", &Value::Null);
    balances(&mut bench, 1_600);
    let body = get(&mut bench, "/api/tokens/summary");
    let rows = body["byModel"].as_array().unwrap();
    let used: Vec<_> = rows.iter().map(|row| (row["model"].as_str().unwrap(), row["used"].clone())).collect();
    assert_eq!(used[0], ("claude-sonnet-4-5", json!(1_000)));
    assert_eq!(used.len(), 3);
    assert_eq!(rows.iter().map(|row| row["used"].as_u64().unwrap()).sum::<u64>(), 1_600);
    let unpriced = rows.iter().find(|row| row["model"] == "nobodys-model-7").unwrap();
    assert_eq!((&unpriced["costUsd"], &unpriced["unpricedTokens"]), (&Value::Null, &json!(500)));
    let bedrock =
        rows.iter().find(|row| row["costUsd"] == json!(0.0001)).expect("a price under any spelling");
    assert!(bedrock["model"].as_str().unwrap().contains("haiku"));
}

#[test]
fn beyond_fifty_models_the_rest_is_told_together() {
    let mut bench = Bench::new();
    let id = runs(&mut bench, "one", "nobodys-model-0");
    for n in 0..super::report::MAX_MODELS + 7 {
        let model = Some(format!("nobodys-model-{n}"));
        feed(&mut bench, id, vec![Activity::Session { id: "s".into(), model }, call(1_000, 0)]);
    }
    let body = get(&mut bench, "/api/tokens/summary");
    let rows = body["byModel"].as_array().unwrap();
    assert_eq!(rows.len(), super::report::MAX_MODELS);
    let others = rows.iter().find(|row| row["model"] == super::report::OTHERS).expect("the others");
    assert_eq!(
        (&others["used"], &others["costUsd"], &others["unpricedTokens"]),
        (&json!(800), &Value::Null, &json!(800))
    );
    assert_eq!(rows.iter().map(|row| row["used"].as_u64().unwrap()).sum::<u64>(), 5_700);
}

#[test]
fn what_models_have_used_is_told_of_agents_that_are_long_gone_too() {
    let mut bench = Bench::new();
    for n in 0..super::gone::MAX_GONE + 10 {
        let id = runs(&mut bench, &format!("a{n}"), "claude-sonnet-4-5");
        feed(&mut bench, id, vec![call(1_000, 0), Activity::TurnEnded(TurnEnd::default())]);
        bench.exits(id, 0);
        bench.ask("DELETE", &format!("/api/agents/a{n}"), &Value::Null);
    }
    let check = |bench: &mut Bench| {
        let body = get(bench, "/api/tokens/summary");
        let rows = body["byModel"].as_array().unwrap().clone();
        assert_eq!(
            (rows.len(), &rows[0]["model"], &rows[0]["used"]),
            (1, &json!("claude-sonnet-4-5"), &json!(11_000))
        );
    };
    check(&mut bench);
    let stored = serde_json::to_vec(&bench.state.usage.stored()).unwrap();
    let now = bench.now;
    bench.with(|all, _| super::restore(all, serde_json::from_slice(&stored).unwrap(), now));
    check(&mut bench);
}

#[test]
fn a_new_price_counts_from_then_on_and_nowhere_does_an_unknown_one_pass_for_nothing() {
    let mut bench = Bench::new();
    let id = runs(&mut bench, "one", "nobodys-model-7");
    let million = || {
        let delta = TokensDelta { input: 1_000_000, ..TokensDelta::default() };
        Activity::Usage(Usage { delta, ..Usage::default() })
    };
    bench.ask("PATCH", "/api/config", &json!({"safety": {"dailyBudgetUsd": 1000.0}}));
    feed(&mut bench, id, vec![million()]);
    let told = |bench: &mut Bench| {
        let summary = get(bench, "/api/tokens/summary");
        let team = get(bench, "/api/tokens/by-team");
        let record = get(bench, "/api/agents/one");
        let dashboard = get(bench, "/api/dashboard");
        [
            record["costUsd"].clone(),
            summary["totalCostUsd"].clone(),
            summary["perAgent"][0]["costUsd"].clone(),
            summary["byModel"][0]["costUsd"].clone(),
            team["teams"][0]["totalCostUsd"].clone(),
            dashboard["cost"]["totalUsd"].clone(),
        ]
    };
    assert!(told(&mut bench).iter().all(Value::is_null), "unpriced, everywhere");
    let dashboard = get(&mut bench, "/api/dashboard");
    assert!(
        dashboard["cost"]["todayUnpricedAtMostUsd"].as_f64().unwrap() >= 10.0,
        "the dearest: {dashboard}"
    );
    let give = |bench: &mut Bench, usd: f64| {
        let model =
            json!({"id": "nobodys-model-7", "input": usd, "output": 0, "cacheRead": 0, "cacheCreation": 0});
        let table = json!({"asOf": "1970-01-01", "source": "x", "models": [model]});
        assert_eq!(bench.ask("POST", "/api/prices", &table).0, 200);
    };
    give(&mut bench, 2.0);
    feed(&mut bench, id, vec![million()]);
    let first = told(&mut bench)[0].as_f64().unwrap();
    give(&mut bench, 5.0);
    feed(&mut bench, id, vec![million()]);
    let second = told(&mut bench);
    assert!(second.iter().all(|usd| *usd == json!(first + 5.0)), "nothing became dearer: {first} {second:?}");
}

#[test]
fn a_first_turn_that_ends_before_anything_was_counted_is_estimated_and_one_of_a_rehearsal_is_not() {
    for (provider, tokens) in [("codex", 500), ("script", 0)] {
        let mut bench = Bench::new();
        let id = of_provider(&mut bench, "one", provider);
        feed(&mut bench, id, vec![Activity::Text { text: "x".repeat(2_000) }]);
        bench.exits(id, 137);
        let body = get(&mut bench, "/api/tokens/summary");
        assert_eq!(body["interrupted"]["outputTokens"], tokens, "{provider}");
        assert_eq!(body["totalUsed"], 0);
        let unpriced = json!(tokens);
        assert_eq!(body["interrupted"]["unpricedTokens"], unpriced, "nobody has told the model");
        if tokens > 0 {
            assert_eq!(body["interrupted"]["costUsd"], Value::Null);
            let at_most = bench.state.usage.today_unpriced_usd(bench.now);
            let dearest = crate::prices::dearest(&bench.state).output;
            assert!((at_most - dearest * 500.0 / 1e6).abs() < 1e-9, "{at_most}");
        }
    }
}
