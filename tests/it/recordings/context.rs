//! How full a context is, held to what the real programs told: each recording as the work of an agent of its
//! own provider.

use crate::recordings::replay::{Replay, lines, provider_of};
use crate::support::world::{World, output};
use serde_json::json;
use svc::core::Event;
use svc::programs::registry::{Detection, Presence};
use svc::providers::{Activity, Effort, LaunchRequest, Permission, Purpose, SessionStart, Usage, by_id};

/// How far a figure may be from the truth.
const TOLERANCE: f64 = 0.02;

/// Recording, model that was named, tokens of the last call, window that the program works with.
const TRUTHS: &[(&str, Option<&str>, f64, f64)] = &[
    // Before its first result, which tells the window.
    ("claude-full", None, 190_300.0, 200_000.0),
    ("claude-default", None, 6_500.0, 200_000.0),
    ("codex-full", None, 190_000.0, 258_400.0),
    ("codex-plain", None, 6_000.0, 258_400.0),
    ("gemini-full", None, 190_000.0, 1_048_576.0),
    ("gemini-ctx", None, 6_000.0, 1_048_576.0),
    ("opencode-full", Some("anthropic/claude-sonnet-4-5"), 190_000.0, 200_000.0),
    ("opencode-full", None, 190_000.0, 200_000.0),
    ("opencode-ctx", None, 6_000.0, 200_000.0),
    ("qwen-full", None, 190_000.0, 131_072.0),
    ("qwen-ctx", None, 6_000.0, 131_072.0),
    ("cline-full", Some("fake-model"), 190_000.0, 128_000.0),
    ("cline-ctx", Some("gpt-4o"), 6_000.0, 128_000.0),
    ("aider-plain", Some("gpt-4o"), 6_000.0, 128_000.0),
    ("acp/codex-allow", Some("codex"), 6_242.0, 258_400.0),
    ("acp/opencode-allow", Some("opencode"), 6_200.0, 200_000.0),
    // It tells the sum of its three calls: their mean stands for the last one.
    ("acp/gemini-allow", Some("gemini"), 6_200.0, 1_048_576.0),
];

/// A world in which one agent of this provider runs.
fn world(provider: &'static str, model: Option<&str>) -> World {
    let mut world = World::new();
    let presence = Presence::Version("1".into());
    let found = Detection { provider, presence, has_key: true, login: None };
    world.apply(Event::Detected(vec![found]));
    let body = json!({"role": "dev", "name": "one", "provider": provider, "model": model});
    world.wish(&format!("POST /api/agents {body}"));
    world.fact("one started");
    world
}

fn fullness(world: &mut World, activities: Vec<Activity>) -> (f64, u64) {
    let id = world.id("one");
    world.apply(Event::Run(id, output(activities)));
    let agent = world.state.agents.get(id).expect("the agent");
    (agent.context_usage(), agent.context_window)
}

#[test]
fn the_fullness_of_a_context_is_right_within_2_percent_for_every_program_that_tells_tokens() {
    for (name, model, tokens, window) in TRUTHS {
        let mut all: Vec<Activity> = Replay::of(name).activities().cloned().collect();
        if provider_of(name) == "claude-code" {
            let end = all.iter().position(|activity| matches!(activity, Activity::TurnEnded(_)));
            all.truncate(end.expect("its first turn ends"));
            // The result's figures come right before the turn's end.
            while matches!(all.last(), Some(Activity::Usage(Usage { context_tokens: None, .. }))) {
                all.pop();
            }
        }
        let mut world = world(provider_of(name), *model);
        let (got, _) = fullness(&mut world, all);
        let truth = tokens / window;
        assert!((got - truth).abs() <= truth * TOLERANCE, "{name}: {got} is not {truth}");
    }
}

/// What Copilot tells of its context itself.
#[test]
fn copilot_tells_its_context_with_each_tool() {
    let usages: Vec<Usage> = Replay::of("copilot-default").usages().cloned().collect();
    let last = usages.iter().rev().find_map(|usage| usage.context_tokens).expect("a figure");
    let told = lines("copilot-default").join("\n");
    assert!(told.contains(&format!("\"context_current_tokens\":{last}")), "{last}");
}

fn request() -> LaunchRequest {
    LaunchRequest {
        room: None,
        extra_env: svc::providers::environment::Extra::default(),
        purpose: Purpose::Work,
        prompt: "do it".to_owned(),
        model: None,
        effort: Effort::Medium,
        permission: Permission::Full,
        working_dir: "/project".into(),
        project_dir: "/project".into(),
        session: SessionStart::Fresh,
        command: Vec::new(),
        has_integrations: false,
        hook_program: None,
        fence: None,
    }
}

fn with_record(provider: &str, session: &str, record: &[&str], stream: &[&str]) -> Vec<Usage> {
    let provider = by_id(provider).expect("a provider");
    let mut conversation = provider.launch(&request()).expect("a launch").conversation;
    let mut steps = Vec::new();
    conversation.line(session, &mut steps);
    for line in record {
        conversation.record(line, &mut steps);
    }
    for line in stream {
        conversation.line(line, &mut steps);
    }
    let usage = |step| match step {
        svc::providers::Step::Event(Activity::Usage(usage)) => Some(usage),
        _ => None,
    };
    steps.into_iter().filter_map(usage).collect()
}

/// As codex 0.169.0 writes it, shortened: two calls, of 150 000 and of 190 000 tokens.
const CODEX_RECORD: &[&str] = &[
    r#"{"type":"session_meta","payload":{"id":"t-1","cli_version":"0.169.0"}}"#,
    r#"{"type":"turn_context","payload":{"turn_id":"u-1","cwd":"/project","model":"gpt-5.5"}}"#,
    r#"{"type":"event_msg","payload":{"type":"token_count","info":null,"rate_limits":{}}}"#,
    concat!(
        r#"{"type":"event_msg","payload":{"type":"token_count","#,
        r#""info":{"total_token_usage":{"input_tokens":150000,"cached_input_tokens":0,"#,
        r#""output_tokens":40,"total_tokens":150040},"last_token_usage":{"input_tokens":150000,"#,
        r#""cached_input_tokens":0,"output_tokens":40,"total_tokens":150040},"#,
        r#""model_context_window":258400}}}"#,
    ),
    r#"{"type":"response_item","payload":{"type":"message","content":"a \"token_count\" in words"}}"#,
    concat!(
        r#"{"type":"event_msg","payload":{"type":"token_count","#,
        r#""info":{"total_token_usage":{"input_tokens":340000,"cached_input_tokens":0,"#,
        r#""output_tokens":80,"total_tokens":340080},"last_token_usage":{"input_tokens":190000,"#,
        r#""cached_input_tokens":0,"output_tokens":40,"total_tokens":190040},"#,
        r#""model_context_window":258400}}}"#,
    ),
    "not JSON: \"token_count\"",
];

#[test]
fn the_record_of_codex_tells_the_last_call_where_its_stream_tells_only_sums() {
    let started = r#"{"type":"thread.started","thread_id":"t-1"}"#;
    let end = concat!(
        r#"{"type":"turn.completed","usage":{"input_tokens":340000,"cached_input_tokens":0,"#,
        r#""output_tokens":80}}"#,
    );
    let usages = with_record("codex", started, CODEX_RECORD, &[end]);
    let told: Vec<_> = usages.iter().map(|usage| (usage.context_tokens, usage.context_window)).collect();
    assert_eq!(
        told,
        [(Some(150_000), Some(258_400)), (Some(190_000), Some(258_400)), (None, None)],
        "the sum at the end is no call's"
    );
    assert!(usages[..2].iter().all(|usage| usage.delta.is_zero()), "the record counts nothing");
    let without = with_record("codex", started, &[], &[end]);
    assert_eq!(without[0].context_tokens, Some(340_000), "one call as far as anybody knows");
}

/// As Gemini CLI 0.61.0 writes it, shortened.
const GEMINI_RECORD: &[&str] = &[
    r#"{"sessionId":"f9d414ff-af0b","kind":"main"}"#,
    r#"{"id":"a","type":"user","content":[{"text":"my \"tokens\""}]}"#,
    concat!(
        r#"{"id":"b","type":"gemini","content":"","tokens":{"input":150000,"output":40,"#,
        r#""cached":0,"total":150040},"model":"gemini-2.5-pro"}"#,
    ),
    concat!(
        r#"{"id":"b","type":"gemini","content":"","tokens":{"input":150000,"output":40,"#,
        r#""cached":0,"total":150040},"toolCalls":[{"id":"x"}]}"#,
    ),
    concat!(
        r#"{"id":"c","type":"gemini","content":"done","tokens":{"input":190000,"output":40,"#,
        r#""cached":0,"total":190040}}"#,
    ),
];

#[test]
fn the_record_of_gemini_tells_the_last_call_where_its_stream_tells_only_sums() {
    let init = r#"{"type":"init","session_id":"f9d414ff-af0b","model":"gemini-2.5-pro"}"#;
    let end = concat!(
        r#"{"type":"result","status":"success","stats":{"total_tokens":340080,"#,
        r#""input_tokens":340000,"output_tokens":80,"cached":0,"tool_calls":1}}"#,
    );
    let told = |usages: &[Usage]| usages.iter().map(|usage| usage.context_tokens).collect::<Vec<_>>();
    let usages = with_record("gemini", init, GEMINI_RECORD, &[end]);
    assert_eq!(told(&usages), [Some(150_000), Some(190_000), None]);
    let without = with_record("gemini", init, &[], &[end]);
    assert_eq!(told(&without), [Some(170_000)], "about: the mean of its two calls");
}

/// Qwen Code over the protocol tells each call beside an empty chunk, and repeats nothing at the end.
#[test]
fn the_tokens_that_an_agent_tells_with_each_call_are_counted_once() {
    let chunk = |input: u64, parent: bool| {
        let mut meta = json!({
            "usage": {"inputTokens": input, "outputTokens": 40, "totalTokens": input + 40, "cachedReadTokens": input / 2},
            "durationMs": 10,
        });
        if parent {
            meta["parentToolCallId"] = json!("call-1");
        }
        let content = json!({"type": "text", "text": ""});
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": content, "_meta": meta});
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
            .to_string()
    };
    let request = LaunchRequest { model: Some("qwen".to_owned()), ..request() };
    let mut conversation = by_id("acp").expect("acp").launch(&request).expect("a launch").conversation;
    let mut steps = Vec::new();
    conversation.open(&mut steps);
    for reply in
        [json!({"id": 1, "result": {"protocolVersion": 1}}), json!({"id": 2, "result": {"sessionId": "s"}})]
    {
        conversation.line(&reply.to_string(), &mut steps);
    }
    for line in [chunk(6_000, false), chunk(900, true), chunk(6_100, false)] {
        conversation.line(&line, &mut steps);
    }
    let usage = json!({"inputTokens": 13_000, "outputTokens": 120, "totalTokens": 13_120});
    let end = json!({"id": 3, "result": {"stopReason": "end_turn", "usage": usage}});
    conversation.line(&end.to_string(), &mut steps);
    let replay = Replay { steps };
    let counted = replay.counted();
    assert_eq!(counted.input + counted.output + counted.cache_read, 6_040 + 940 + 6_140);
    let contexts: Vec<u64> = replay.usages().filter_map(|usage| usage.context_tokens).collect();
    assert_eq!(contexts, [6_000, 6_100], "a sub-agent's context is not the agent's");
}

#[test]
fn a_cost_of_0_that_a_program_tells_is_taken() {
    for name in ["opencode-full", "cline-full", "acp/opencode-allow"] {
        let told: Vec<f64> = Replay::of(name).usages().filter_map(|usage| usage.cost_usd).collect();
        assert!(!told.is_empty() && told.iter().all(|cost| cost.abs() < f64::EPSILON), "{name}: {told:?}");
    }
}
