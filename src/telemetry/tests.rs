//! Which spans come of what agents do, and what is never in them.

use super::*;
use crate::providers::TurnEnd;
use crate::testing::Bench;
use serde_json::{Map, Value};
use std::time::Duration;

const SAID: &str = "the launch code is 0000";

fn bench(content: bool) -> Bench {
    let telemetry = json!({"telemetry": {"endpoint": "http://127.0.0.1:4318", "content": content}});
    let user = telemetry.as_object().cloned().unwrap_or_default();
    let mut bench = Bench::in_project();
    bench.state.settings = Arc::new(crate::settings::State::new(user, Map::new()).expect("settings"));
    bench
}

fn spans(bench: &mut Bench) -> Vec<Span> {
    let is_order = |effect: &mut Effect| matches!(effect, Effect::Telemetry(_));
    let orders: Vec<Effect> = bench.effects.extract_if(.., is_order).collect();
    let spans = |effect| if let Effect::Telemetry(order) = effect { order.spans } else { Vec::new() };
    orders.into_iter().flat_map(spans).collect()
}

fn usage(input: i64, output: i64, cache_read: i64) -> Activity {
    let delta = TokensDelta { input, output, cache_read, cache_creation: 0 };
    Activity::Usage(Usage { delta, ..Usage::default() })
}

fn tool(id: &str) -> Activity {
    let input = json!({"command": SAID});
    Activity::ToolStarted { id: id.into(), name: "bash".into(), input, path: None, writes: false }
}

fn ended(id: &str, error: bool) -> Activity {
    Activity::ToolEnded { id: id.into(), error, output: SAID.into() }
}

fn word<'a>(span: &'a Span, name: &str) -> Option<&'a Word> {
    span.attributes.iter().find(|(known, _)| *known == name).map(|(_, word)| word)
}

/// A turn with a step of the model, a tool, and another step.
fn turn(bench: &mut Bench) -> (AgentId, Vec<Span>) {
    let id = bench.agent("backend-1");
    bench.does(id, vec![Activity::TurnStarted]);
    bench.pass(Duration::from_secs(2));
    bench.does(id, vec![Activity::Text { text: SAID.into() }, usage(10, 5, 100), tool("t1")]);
    bench.pass(Duration::from_secs(3));
    bench.does(id, vec![ended("t1", true)]);
    bench.pass(Duration::from_secs(1));
    let end = TurnEnd { text: SAID.into(), cost_usd: Some(0.5), ..Default::default() };
    bench.does(id, vec![usage(1, 7, 0), usage(0, -2, 0), Activity::TurnEnded(end)]);
    (id, spans(bench))
}

#[test]
fn a_turn_is_a_trace_of_its_model_steps_and_tools() {
    let mut bench = bench(false);
    let (id, spans) = turn(&mut bench);
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["chat", "execute_tool bash", "chat", "invoke_agent backend-1"]);
    let root = &spans[3];
    for child in &spans[..3] {
        assert_eq!((child.place.trace, child.place.parent), (root.place.trace, Some(root.place.span)));
    }
    let ids: std::collections::BTreeSet<_> = spans.iter().map(|span| span.place.span).collect();
    assert_eq!((ids.len(), root.place.parent), (4, None));
    let seconds =
        |span: &Span| (span.start.since(root.start).as_secs(), span.end.since(root.start).as_secs());
    assert_eq!(spans.iter().map(seconds).collect::<Vec<_>>(), [(0, 2), (2, 5), (5, 6), (0, 6)]);
    assert_eq!(word(root, "gen_ai.usage.input_tokens"), Some(&Word::Whole(111)), "from the cache, too");
    assert_eq!(word(root, "gen_ai.usage.output_tokens"), Some(&Word::Whole(10)), "corrected");
    assert_eq!(word(root, "gen_ai.agent.id"), Some(&id.to_string().into()));
    assert_eq!(word(root, "svc.cost_usd"), Some(&Word::Number(0.5)));
    assert_eq!((spans[1].error.as_deref(), root.error.as_deref()), (Some("tool_error"), None));
}

#[test]
fn no_words_are_in_a_span_unless_they_are_asked_for() {
    let (_, without) = turn(&mut bench(false));
    assert!(!format!("{without:?}").contains("launch"), "{without:?}");
    let (_, with) = turn(&mut bench(true));
    assert!(word(&with[1], "gen_ai.tool.call.arguments").is_some());
    assert!(word(&with[1], "gen_ai.tool.call.result").is_some());
    let Some(Word::Text(said)) = word(&with[3], "gen_ai.output.messages") else { panic!("{with:?}") };
    let said: Value = serde_json::from_str(said).unwrap();
    assert_eq!(said[0]["parts"][0]["content"], SAID);
}

#[test]
fn without_an_endpoint_there_is_nothing() {
    let mut bench = Bench::in_project();
    let (_, spans) = turn(&mut bench);
    assert!(spans.is_empty() && bench.state.telemetry.open.is_empty());
}

#[test]
fn a_turn_that_its_process_does_not_outlive_ends_with_it() {
    let mut bench = bench(false);
    let id = bench.agent("backend-1");
    bench.does(id, vec![Activity::TurnStarted, tool("t1")]);
    bench.exits(id, 3);
    let spans = spans(&mut bench);
    let errors: Vec<_> = spans.iter().map(|span| span.error.as_deref()).collect();
    assert_eq!(errors, [Some("no_end"), Some("crashed")]);
    assert!(bench.state.telemetry.open.is_empty());
    bench.does(id, vec![ended("t1", false), usage(1, 1, 1)]);
    assert!(super::tests::spans(&mut bench).is_empty(), "what comes outside of a turn has no span");
}

#[test]
fn open_tools_are_bounded_and_counted() {
    let mut bench = bench(true);
    let id = bench.agent("backend-1");
    let mut all = vec![Activity::TurnStarted];
    all.extend((0..MAX_OPEN_TOOLS + 3).map(|n| tool(&n.to_string())));
    bench.does(id, all);
    assert_eq!(bench.state.telemetry.dropped, 3);
    let long = Activity::Text { text: "x".repeat(3 * MAX_CONTENT_CHARS) };
    bench.does(id, vec![long.clone(), long, Activity::TurnEnded(TurnEnd::default())]);
    let spans = spans(&mut bench);
    assert_eq!(spans.len(), MAX_OPEN_TOOLS + 1);
    let Some(Word::Text(said)) = word(&spans[MAX_OPEN_TOOLS], "gen_ai.output.messages") else { panic!() };
    assert!(said.len() < MAX_CONTENT_CHARS + 200);
}

#[test]
fn names_that_a_program_chooses_are_cut_and_their_ends_are_found_all_the_same() {
    let mut bench = bench(false);
    let id = bench.agent("backend-1");
    let long = "n".repeat(3 * MAX_NAME_CHARS);
    let (tool, input) = (long.clone(), Value::Null);
    let started = Activity::ToolStarted { id: long.clone(), name: tool, input, path: None, writes: false };
    let ended = Activity::ToolEnded { id: long, error: false, output: String::new() };
    bench.does(id, vec![Activity::TurnStarted, started, ended, Activity::TurnEnded(TurnEnd::default())]);
    let spans = spans(&mut bench);
    assert_eq!(spans[0].error, None, "its end was heard");
    assert_eq!(word(&spans[0], "gen_ai.tool.name"), Some(&"n".repeat(MAX_NAME_CHARS).into()));
}

#[test]
fn head_lines_come_from_the_vault_and_only_those_of_telemetry() {
    let mut bench = bench(false);
    for name in ["telemetry/authorization", "codex"] {
        let sealed = serde_json::from_str("\"00ff00ff\"").unwrap();
        bench.with(|all, cx| crate::credentials::put(all, cx, name, sealed)).unwrap();
    }
    let id = bench.agent("backend-1");
    bench.does(id, vec![Activity::TurnStarted, Activity::TurnEnded(TurnEnd::default())]);
    let order = bench.effects.iter().find_map(|effect| match effect {
        Effect::Telemetry(order) => Some(order),
        _ => None,
    });
    let headers: Vec<_> =
        order.unwrap().headers.iter().map(|(head, name, _)| (head.as_str(), name.as_str())).collect();
    assert_eq!(headers, [("authorization", "telemetry/authorization")]);
}

#[test]
fn what_becomes_of_spans_is_counted_and_shown() {
    let mut bench = bench(false);
    let tell = |bench: &mut Bench, report| bench.apply(crate::core::Event::Telemetry(report));
    tell(&mut bench, Report { exported: 5, ..Report::default() });
    tell(&mut bench, Report { dropped: 2, error: Some("down".into()), ..Report::default() });
    let seen = shown(&bench.state);
    assert_eq!(
        (&seen["exported"], &seen["dropped"], &seen["lastError"]),
        (&json!(5), &json!(2), &json!("down"))
    );
    tell(&mut bench, Report { exported: 1, ..Report::default() });
    let seen = shown(&bench.state);
    assert_eq!((&seen["lastError"], &seen["lastErrorAt"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_project_does_not_say_where_spans_go() {
    let telemetry = json!({"telemetry": {"endpoint": "https://example.org"}});
    let project = telemetry.as_object().cloned().unwrap_or_default();
    let refused = crate::settings::State::new(Map::new(), project.clone()).expect_err("a project's file");
    assert!(refused.errors[0].message.contains("your own"), "{refused}");
    let (status, _) = Bench::new().ask("PATCH", "/api/config", &telemetry);
    assert_eq!(status, 400);
    let open = json!({"telemetry": {"endpoint": "http://example.org"}});
    let open = open.as_object().cloned().unwrap_or_default();
    assert!(crate::settings::State::new(open, Map::new()).is_err(), "in the open beyond this machine");
}
