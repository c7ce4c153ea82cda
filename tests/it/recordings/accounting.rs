//! The sum of all changes equals the provider's own total, computed here from the raw lines alone.

use crate::recordings::replay::{Replay, counted_before, lines, names, provider_of};
use serde_json::Value;
use std::collections::HashSet;
use std::ops::Add;
use svc::providers::{SessionStart, Tokens, TokensDelta};

fn events(lines: &[String], kind: &str) -> Vec<Value> {
    let all = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|event| event["type"] == kind).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn delta(tokens: Tokens) -> TokensDelta {
    tokens.minus(Tokens::default())
}

/// Each class of `modelUsage` summed over the models.
fn model_usage(result: &Value, field: &str) -> Tokens {
    let sum = |class: &str| {
        let models = result[field].as_object().expect("a map of models");
        models.values().map(|model| number(&model[class])).sum()
    };
    Tokens {
        input: sum("inputTokens"),
        output: sum("outputTokens"),
        cache_read: sum("cacheReadInputTokens"),
        cache_creation: sum("cacheCreationInputTokens"),
    }
}

/// A session without a result has only the input of its messages, each counted once.
fn claude_without_result(lines: &[String]) -> TokensDelta {
    let mut seen = HashSet::new();
    let mut sum = Tokens::default();
    for event in events(lines, "assistant") {
        let message = &event["message"];
        if seen.insert(message["id"].clone()) {
            sum.input += number(&message["usage"]["input_tokens"]);
            sum.cache_read += number(&message["usage"]["cache_read_input_tokens"]);
            sum.cache_creation += number(&message["usage"]["cache_creation_input_tokens"]);
        }
    }
    delta(sum)
}

/// What the program itself says that this run has used.
pub fn own_total(name: &str, lines: &[String], counted: Tokens) -> TokensDelta {
    match provider_of(name) {
        "claude-code" => match events(lines, "result").last() {
            Some(result) => model_usage(result, "modelUsage").minus(counted),
            None => claude_without_result(lines),
        },
        "codex" => events(lines, "turn.completed").last().map_or(TokensDelta::default(), |turn| {
            let usage = &turn["usage"];
            let cached = number(&usage["cached_input_tokens"]);
            Tokens {
                input: number(&usage["input_tokens"]) - cached,
                output: number(&usage["output_tokens"]),
                cache_read: cached,
                cache_creation: 0,
            }
            .minus(counted)
        }),
        "gemini" => {
            let mut sum = Tokens::default();
            for result in events(lines, "result") {
                let stats = &result["stats"];
                sum.input += number(&stats["input_tokens"]) - number(&stats["cached"]);
                sum.cache_read += number(&stats["cached"]);
                sum.output += number(&stats["total_tokens"]) - number(&stats["input_tokens"]);
            }
            delta(sum)
        }
        "opencode" => {
            let mut sum = Tokens::default();
            for step in events(lines, "step_finish") {
                let tokens = &step["part"]["tokens"];
                sum.input += number(&tokens["input"]);
                sum.output += number(&tokens["output"]) + number(&tokens["reasoning"]);
                sum.cache_read += number(&tokens["cache"]["read"]);
                sum.cache_creation += number(&tokens["cache"]["write"]);
            }
            delta(sum)
        }
        "qwen" => qwen_total(lines, counted),
        // In this mode it tells none.
        "copilot" => TokensDelta::default(),
        "cline" => delta(cline_total(lines)),
        "aider" => delta(aider_total(lines)),
        _ => delta(acp_total(lines)),
    }
}

/// The cumulative figures of the result; without one, those of the answers.
fn qwen_total(lines: &[String], counted: Tokens) -> TokensDelta {
    let tokens = |usage: &Value| {
        let cached = number(&usage["cache_read_input_tokens"]);
        Tokens {
            input: number(&usage["input_tokens"]) - cached,
            output: number(&usage["output_tokens"]),
            cache_read: cached,
            cache_creation: 0,
        }
    };
    match events(lines, "result").last() {
        Some(result) if number(&result["usage"]["input_tokens"]) == 0 => TokensDelta::default(),
        Some(result) => tokens(&result["usage"]).minus(counted),
        None => {
            let answers = events(lines, "assistant");
            delta(
                answers
                    .iter()
                    .map(|event| tokens(&event["message"]["usage"]))
                    .fold(Tokens::default(), Tokens::add),
            )
        }
    }
}

/// Sub-agents included; without a result, the last total that was told.
fn cline_total(lines: &[String]) -> Tokens {
    let tokens = |input: &Value, output: &Value, cached: &Value| Tokens {
        input: number(input) - number(cached),
        output: number(output),
        cache_read: number(cached),
        cache_creation: 0,
    };
    if let Some(result) = events(lines, "run_result").last() {
        let usage = &result["aggregateUsage"];
        assert_eq!(number(&usage["cacheWriteTokens"]), 0, "the recordings write no cache");
        return tokens(&usage["inputTokens"], &usage["outputTokens"], &usage["cacheReadTokens"]);
    }
    let agent = events(lines, "agent_event");
    let last = agent.iter().map(|event| &event["event"]).rfind(|event| event["type"] == "usage");
    last.map_or(Tokens::default(), |usage| {
        tokens(&usage["totalInputTokens"], &usage["totalOutputTokens"], &usage["totalCacheReadTokens"])
    })
}

/// The recordings have only this one line, or none.
fn aider_total(lines: &[String]) -> Tokens {
    let told = lines.iter().filter(|line| line.starts_with("Tokens: "));
    told.fold(Tokens::default(), |sum, line| {
        assert_eq!(line, "Tokens: 6.0k sent, 40 received.");
        sum + Tokens { input: 6000, output: 40, ..Tokens::default() }
    })
}

fn acp_total(lines: &[String]) -> Tokens {
    let mut sum = Tokens::default();
    for line in lines {
        let message: Value = serde_json::from_str(line).expect("a message is JSON");
        let result = &message["result"];
        let quota = &result["_meta"]["quota"]["token_count"];
        sum.input += number(&result["usage"]["inputTokens"]) + number(&quota["input_tokens"]);
        sum.output += number(&result["usage"]["outputTokens"]) + number(&quota["output_tokens"]);
        sum.cache_read += number(&result["usage"]["cachedReadTokens"]);
    }
    sum
}

#[test]
fn decisions_8_the_deltas_sum_up_to_the_providers_own_total() {
    let mut with_tokens = 0;
    for name in names() {
        let counted = counted_before(&name).unwrap_or_default();
        let got = Replay::of(&name).counted();
        assert_eq!(got, own_total(&name, &lines(&name), counted), "{name}");
        with_tokens += usize::from(!got.is_zero());
    }
    assert!(with_tokens > 50, "most recordings have tokens: {with_tokens}");
}

/// `total_tokens` is the program's own sum of all classes.
#[test]
fn gemini_and_opencode_classes_add_up_to_the_printed_total() {
    for name in names() {
        let lines = lines(&name);
        let printed: u64 = match provider_of(&name) {
            "gemini" => {
                events(&lines, "result").iter().map(|event| number(&event["stats"]["total_tokens"])).sum()
            }
            "opencode" => events(&lines, "step_finish")
                .iter()
                .map(|event| number(&event["part"]["tokens"]["total"]))
                .sum(),
            _ => continue,
        };
        let got = Replay::of(&name).counted();
        let sum = got.input + got.output + got.cache_read + got.cache_creation;
        assert_eq!(sum, i64::try_from(printed).expect("a small number"), "{name}");
    }
}

#[test]
fn a_resumed_session_counts_only_the_difference() {
    let claude = Replay::of("claude-resume");
    assert_eq!(
        claude.counted(),
        delta(Tokens { input: 1000, output: 40, cache_read: 5000, cache_creation: 300 })
    );
    assert_eq!(
        claude.last_session_total(),
        Some(Tokens { input: 2000, output: 80, cache_read: 10_000, cache_creation: 600 })
    );
    let codex = Replay::of("codex-resume");
    assert_eq!(
        codex.counted(),
        delta(Tokens { input: 1000, output: 40, cache_read: 5000, cache_creation: 0 })
    );
    assert_eq!(codex.session_ids(), Replay::of("codex-plain").session_ids());
    let qwen = Replay::of("qwen-sessionresume");
    assert_eq!(
        qwen.counted(),
        delta(Tokens { input: 2000, output: 80, cache_read: 10_000, cache_creation: 0 })
    );
    assert_eq!(
        qwen.last_session_total(),
        Some(Tokens { input: 4000, output: 160, cache_read: 20_000, cache_creation: 0 })
    );
    let gemini = Replay::of("gemini-sessionresume");
    assert_eq!(gemini.counted(), Replay::of("gemini-ctx").counted());
}

/// Wherever a recording of several turns is cut in two, the halves count what the whole counts.
#[test]
fn a_session_cut_behind_a_turn_and_resumed_counts_the_same() {
    for name in ["claude-twoturns", "claude-full", "claude-interrupt"] {
        let all = lines(name);
        let cut = 1 + all.iter().position(|line| line.contains("\"type\":\"result\"")).expect("a result");
        let first = Replay::with(name, SessionStart::Fresh, &all[..cut]);
        let counted = first.last_session_total().expect("a total");
        let resumed = SessionStart::Resume { id: "s".to_owned(), counted };
        let second = Replay::with(name, resumed, &all[cut..]);
        let (whole, a, b) = (Replay::of(name).counted(), first.counted(), second.counted());
        assert_eq!(whole.input, a.input + b.input, "{name}");
        assert_eq!(whole.output, a.output + b.output, "{name}");
        assert_eq!(whole.cache_read, a.cache_read + b.cache_read, "{name}");
        assert_eq!(whole.cache_creation, a.cache_creation + b.cache_creation, "{name}");
    }
}

/// A copy of a session begins with the original's totals, which belong to the original.
#[test]
fn a_forked_session_counts_only_its_own_turn() {
    let name = "claude-resume";
    let fork = SessionStart::Fork { id: "s".to_owned(), counted: Tokens::default() };
    let forked = Replay::with(name, fork, &lines(name));
    let result = events(&lines(name), "result").remove(0);
    assert_eq!(forked.counted(), delta(model_usage(&result, "model_usage_since_last_result")));
}

/// A provider that counts a resumed session from zero again is not taken for one that gives back tokens.
#[test]
fn a_total_below_the_counted_one_is_a_fresh_count() {
    let counted = Tokens { input: 900_000, output: 9000, cache_read: 0, cache_creation: 0 };
    for name in ["claude-default", "codex-default"] {
        let resumed = SessionStart::Resume { id: "s".to_owned(), counted };
        let replay = Replay::with(name, resumed, &lines(name));
        assert_eq!(replay.counted(), Replay::of(name).counted(), "{name}");
    }
}

#[test]
fn decisions_8_context_is_the_last_main_thread_message() {
    let full = Replay::of("claude-full");
    let contexts: Vec<u64> = full.usages().filter_map(|usage| usage.context_tokens).collect();
    assert_eq!(contexts, [190_300, 6300]);
    assert!(full.usages().any(|usage| usage.context_window == Some(200_000)));
    let opencode = Replay::of("opencode-full");
    assert_eq!(opencode.usages().filter_map(|usage| usage.context_tokens).last(), Some(190_000));
    let qwen = Replay::of("qwen-full");
    assert_eq!(qwen.usages().filter_map(|usage| usage.context_tokens).last(), Some(190_000));
    let cline = Replay::of("cline-full");
    assert_eq!(cline.usages().filter_map(|usage| usage.context_tokens).last(), Some(190_000));
    let copilot = Replay::of("copilot-default");
    let last = copilot.usages().last().expect("a usage");
    assert_eq!((last.context_tokens, last.context_window), (Some(10_476), Some(128_000)));
    let codex = Replay::of("acp/codex-allow");
    let last = codex.usages().last().expect("a usage");
    assert_eq!((last.context_tokens, last.context_window), (Some(6242), Some(258_400)));
}

/// Sub-agents count as tokens but not as context.
#[test]
fn decisions_8_sub_agents_do_not_fill_the_context() {
    let name = "claude-default";
    let mut all = lines(name);
    let sub = all[1]
        .replace("\"parent_tool_use_id\":null", "\"parent_tool_use_id\":\"toolu_9\"")
        .replace("msg_0001", "msg_sub");
    all.insert(3, sub);
    all.truncate(4);
    let replay = Replay::with(name, SessionStart::Fresh, &all);
    let usages: Vec<_> = replay.usages().collect();
    assert_eq!(usages.len(), 2, "one for each message id");
    assert_eq!(usages[0].context_tokens, Some(6300));
    assert_eq!((usages[1].context_tokens, usages[1].delta), (None, usages[0].delta));
}

#[test]
fn the_cost_is_the_difference_of_the_cumulative_one() {
    let two = Replay::of("claude-twoturns");
    let costs: Vec<f64> = two.turn_ends().iter().filter_map(|end| end.cost_usd).collect();
    assert_eq!(costs.len(), 2);
    assert!((costs.iter().sum::<f64>() - 0.019_305).abs() < 1e-9, "{costs:?}");
    let resumed: f64 = Replay::of("claude-resume").usages().filter_map(|usage| usage.cost_usd).sum();
    assert!((resumed - 0.006_225).abs() < 1e-9, "{resumed}");
}
