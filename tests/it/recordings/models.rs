//! What further models of a session have used is told by their names, and all parts add up to the whole.

use crate::recordings::cases::{activities, begin, feed, request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use svc::providers::{Activity, LaunchRequest, SessionStart, Tokens, TokensDelta};

const MAIN: &str = "claude-sonnet-4-5";
const SMALL: &str = "claude-haiku-4-5-20251001";

fn init(model: &str) -> Value {
    json!({"type": "system", "subtype": "init", "session_id": "s", "model": model})
}

fn figures(input: u64, output: u64, usd: f64) -> Value {
    json!({"inputTokens": input, "outputTokens": output, "cacheReadInputTokens": 0,
        "cacheCreationInputTokens": 0, "costUSD": usd})
}

fn result(models: &Value, usd: f64) -> Value {
    json!({"type": "result", "subtype": "success", "modelUsage": models, "total_cost_usd": usd})
}

fn message(id: &str, model: &str, input: u64, parent: Option<&str>) -> Value {
    json!({"type": "assistant", "parent_tool_use_id": parent,
        "message": {"id": id, "model": model, "content": [], "usage": {"input_tokens": input}}})
}

/// Tokens of input and of output, and dollars, by model; the empty name is the session's.
fn by_model(told: &[Activity]) -> BTreeMap<String, (i64, i64, f64)> {
    let mut sums: BTreeMap<String, (i64, i64, f64)> = BTreeMap::new();
    for activity in told {
        let Activity::Usage(usage) = activity else { continue };
        let sum = sums.entry(usage.model.clone().unwrap_or_default()).or_default();
        let TokensDelta { input, output, .. } = usage.delta;
        *sum = (sum.0 + input, sum.1 + output, sum.2 + usage.cost_usd.unwrap_or_default());
    }
    sums
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn what_claude_asked_a_smaller_model_is_told_by_that_ones_name() {
    let (mut conversation, _) = begin("claude-code", &request(None));
    let first = [
        init(MAIN),
        message("m1", MAIN, 1000, None),
        // A name that a gateway has put there is no other model.
        message("m2", "some-model", 500, Some("toolu_1")),
        message("m3", SMALL, 40, Some("toolu_1")),
        result(&json!({MAIN: figures(1500, 60, 0.006), "claude-haiku-4-5": figures(70, 9, 0.0002)}), 0.0062),
    ];
    let told = activities(&feed(conversation.as_mut(), &first));
    let ahead = by_model(&told[..told.len() - 3]);
    assert_eq!((ahead[""].0, ahead[SMALL].0), (1500, 40), "{told:?}");
    let sums = by_model(&told);
    let small: i64 = sums.iter().filter(|(name, _)| name.contains("haiku")).map(|(_, sum)| sum.0).sum();
    assert_eq!(((sums[""].0, sums[""].1), small), ((1500, 60), 70));
    assert!(close(sums[""].2, 0.006) && close(sums["claude-haiku-4-5"].2, 0.0002), "{sums:?}");
    let second = [
        init(MAIN),
        message("m4", MAIN, 200, None),
        result(&json!({MAIN: figures(1700, 70, 0.007), "claude-haiku-4-5": figures(90, 12, 0.0003)}), 0.0073),
    ];
    let sums = by_model(&activities(&feed(conversation.as_mut(), &second)));
    let both = (sums[""], sums["claude-haiku-4-5"]);
    assert_eq!(((both.0.0, both.0.1), (both.1.0, both.1.1)), ((200, 10), (20, 3)));
    assert!(close(both.0.2, 0.001) && close(both.1.2, 0.0001), "{sums:?}");
}

/// Of a session that goes on, what was used before is of no model that is told now.
#[test]
fn a_resumed_session_tells_of_a_further_model_only_what_is_new() {
    let counted = Tokens { input: 1000, output: 50, ..Tokens::default() };
    let session = SessionStart::Resume { id: "s".to_owned(), counted };
    let models = json!({MAIN: figures(1200, 60, 1.2), SMALL: figures(300, 40, 0.3)});
    let since = json!({MAIN: figures(400, 25, 0.4), SMALL: figures(100, 25, 0.1)});
    let told = |since: Option<&Value>| {
        let (mut conversation, _) =
            begin("claude-code", &LaunchRequest { session: session.clone(), ..request(None) });
        let mut result = result(&models, 1.5);
        if let Some(since) = since {
            result["model_usage_since_last_result"] = since.clone();
        }
        by_model(&activities(&feed(conversation.as_mut(), &[init(MAIN), result])))
    };
    let newer = told(Some(&since));
    assert_eq!(((newer[""].0, newer[""].1), (newer[SMALL].0, newer[SMALL].1)), ((400, 25), (100, 25)));
    assert!(close(newer[""].2, 0.4) && close(newer[SMALL].2, 0.1), "{newer:?}");
    // An older version does not say what is new: all of it stays with the session's model.
    let older = told(None);
    assert_eq!((older.len(), older[""].0, older[""].1), (1, 500, 50));
}

/// Whatever is told, in whatever order: the parts add up to the totals, no model gets what is another's.
#[test]
fn the_parts_of_many_turns_add_up_under_changes_of_the_model() {
    let names = [MAIN, SMALL, "claude-opus-4-6", "claude-sonnet-4-5[1m]"];
    for seed in 0..200_u64 {
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = |sides: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % sides
        };
        let (mut conversation, _) = begin("claude-code", &request(None));
        let (mut totals, mut told) = (BTreeMap::<&str, (u64, u64)>::new(), Vec::new());
        for turn in 0..6 {
            let main = names[usize::try_from(roll(3)).unwrap() / 2 * 2];
            told.extend(activities(&feed(conversation.as_mut(), &[init(main)])));
            for call in 0..roll(4) {
                let by_subagent = roll(3) == 0;
                let model = if by_subagent { names[usize::try_from(roll(4)).unwrap()] } else { main };
                let input = roll(900);
                let sum = totals.entry(model).or_default();
                *sum = (sum.0 + input, sum.1 + roll(50));
                let parent = by_subagent.then_some("toolu_1");
                let line = message(&format!("m{turn}-{call}"), model, input, parent);
                told.extend(activities(&feed(conversation.as_mut(), &[line])));
            }
            let small = totals.entry(SMALL).or_default();
            *small = (small.0 + roll(30), small.1 + roll(5));
            let models: serde_json::Map<String, Value> =
                totals.iter().map(|(name, sum)| ((*name).to_owned(), figures(sum.0, sum.1, 0.0))).collect();
            told.extend(activities(&feed(conversation.as_mut(), &[result(&json!(models), 0.0)])));
            let sums = by_model(&told);
            let all = |part: fn(&(i64, i64, f64)) -> i64| sums.values().map(part).sum::<i64>();
            let wanted = totals.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let wanted = (i64::try_from(wanted.0).unwrap(), i64::try_from(wanted.1).unwrap());
            assert_eq!((all(|sum| sum.0), all(|sum| sum.1)), wanted, "seed {seed}, turn {turn}");
            let haiku = sums.iter().filter(|(name, _)| name.contains("haiku"));
            let haiku = haiku.fold((0, 0), |sum, (_, one)| (sum.0 + one.0, sum.1 + one.1));
            let (input, output) = totals[SMALL];
            let own = (i64::try_from(input).unwrap(), i64::try_from(output).unwrap());
            assert_eq!(haiku, own, "seed {seed}, turn {turn}");
        }
    }
}

#[test]
fn more_models_than_are_told_apart_count_with_the_main_one() {
    let (mut conversation, _) = begin("claude-code", &request(None));
    let models: serde_json::Map<String, Value> =
        (0..50).map(|n| (format!("claude-x{n:02}"), figures(10, 1, 0.0))).collect();
    let told = activities(&feed(conversation.as_mut(), &[init("claude-x00"), result(&json!(models), 0.0)]));
    let sums = by_model(&told);
    // 32 are told apart, the main one among them.
    assert_eq!((sums.len(), sums[""].0, sums.values().map(|sum| sum.0).sum::<i64>()), (32, 190, 500));
}

#[test]
fn gemini_tells_which_models_its_router_has_chosen() {
    let stats = |input: u64, output: u64| json!({"total_tokens": input + output, "input_tokens": input, "output_tokens": output});
    let run = |model: &str| {
        let mut whole = stats(5100, 320);
        whole["models"] = json!({"gemini-3-pro": stats(5000, 300), "gemini-3-flash-lite": stats(100, 20)});
        let lines = [
            json!({"type": "init", "session_id": "s", "model": model}),
            json!({"type": "result", "status": "success", "stats": whole}),
        ];
        let (mut conversation, _) = begin("gemini", &request(None));
        let sums = by_model(&activities(&feed(conversation.as_mut(), &lines)));
        sums.into_iter().map(|(name, sum)| (name, sum.0, sum.1)).collect::<Vec<_>>()
    };
    let lite = ("gemini-3-flash-lite".to_owned(), 100, 20);
    assert_eq!(run("gemini-3-pro"), [(String::new(), 5000, 300), lite.clone()]);
    assert_eq!(run("auto-gemini-3"), [lite, ("gemini-3-pro".to_owned(), 5000, 300)]);
}
