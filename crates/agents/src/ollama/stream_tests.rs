use super::*;

/// The answer and what was shown of it.
fn read(lines: &[&str]) -> (Result<Reply, String>, Vec<Activity>) {
    let (mut assembler, mut shown) = (Assembler::default(), Vec::new());
    let mut emit = |activity| shown.push(activity);
    for line in lines {
        if let Err(error) = assembler.line(line, &mut emit) {
            return (Err(error), shown);
        }
    }
    let reply = assembler.end(&mut emit);
    (reply, shown)
}

fn content(text: &str) -> String {
    format!("data: {}", serde_json::json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
}

const STOP: &str = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#;

#[test]
fn deltas_become_paragraphs_but_code_stays_whole() {
    let lines = ["One.\n", "\nTwo:\n```\na\n\nb\n", "```\n\nThr", "ee."].map(content);
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    lines.extend([": keep-alive", "", STOP, "data: [DONE]"]);
    let (reply, shown) = read(&lines);
    let texts: Vec<_> = shown
        .iter()
        .map(|activity| match activity {
            Activity::Text { text } => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, ["One.", "Two:\n```\na\n\nb\n```", "Three."]);
    assert_eq!(reply.expect("whole").text, "One.\n\nTwo:\n```\na\n\nb\n```\n\nThree.");
}

/// A piece of a tool call.
fn piece(index: u64, id: Option<&str>, function: &serde_json::Value) -> String {
    let mut call = serde_json::json!({"index": index, "function": function});
    if let Some(id) = id {
        call["id"] = id.into();
    }
    format!("data: {}", serde_json::json!({"choices": [{"delta": {"tool_calls": [call]}}]}))
}

#[test]
fn a_tool_call_comes_in_pieces_or_whole() {
    use serde_json::json;
    let lines = [
        piece(0, Some("a"), &json!({"name": "read_file", "arguments": ""})),
        piece(0, None, &json!({"arguments": "{\"path\""})),
        piece(0, None, &json!({"arguments": ":1}"})),
        piece(1, Some("b"), &json!({"name": "x", "arguments": "{}"})),
        // As some servers do: the same index again, but another id; arguments as an object.
        piece(1, Some("c"), &json!({"name": "y", "arguments": {"k": 2}})),
        piece(3, None, &json!({"name": "z"})),
    ];
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    lines.push(STOP);
    let calls = read(&lines).0.expect("whole").calls;
    let found: Vec<_> =
        calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.as_str())).collect();
    let expected = [
        ("a", "read_file", r#"{"path":1}"#),
        ("b", "x", "{}"),
        ("c", "y", r#"{"k":2}"#),
        ("call-4", "z", ""),
    ];
    assert_eq!(found, expected);
}

fn cost(prompt: u64, completion: u64, cached: u64) -> CallUsage {
    let details = serde_json::json!({"cached_tokens": cached});
    let usage = serde_json::json!({"prompt_tokens": prompt, "completion_tokens": completion,
        "prompt_tokens_details": details});
    let line = format!("data: {}", serde_json::json!({"choices": [], "usage": usage}));
    read(&[STOP, &line, "data: [DONE]"]).0.expect("whole").usage.expect("told")
}

#[test]
fn decisions_8_cached_tokens_are_no_fresh_input() {
    let tokens = Tokens { input: 40, output: 7, cache_read: 60, cache_creation: 0 };
    assert_eq!(cost(100, 7, 60), CallUsage { tokens, context: 100 });
    let nonsense = cost(5, 0, 9).tokens;
    assert_eq!((nonsense.input, nonsense.cache_read), (0, 5));
}

#[test]
fn thinking_is_shown_before_the_words_that_follow() {
    let thought = r#"data: {"choices":[{"delta":{"reasoning":"hm"}}]}"#;
    let (_, shown) = read(&[thought, thought, &content("so"), STOP]);
    let expected = [Activity::Thinking { text: "hmhm".into() }, Activity::Text { text: "so".into() }];
    assert_eq!(shown, expected);
}

#[test]
fn a_failure_within_the_stream_has_the_endpoints_words() {
    for line in [r#"data: {"error":{"message":"out of memory"}}"#, r#"data: {"error":"out of memory"}"#] {
        assert_eq!(read(&[line]).0, Err("the endpoint failed: out of memory".into()));
    }
    assert!(read(&["data: {"]).0.expect_err("broken").contains("broken JSON"));
}

#[test]
fn a_cut_stream_is_an_error_that_still_shows_its_words() {
    let (reply, shown) = read(&[&content("half a sen")]);
    assert_eq!(reply, Err("the endpoint's answer was cut off before its end".into()));
    assert_eq!(shown, [Activity::Text { text: "half a sen".into() }]);
}

#[test]
fn an_answer_has_limits() {
    let many: Vec<String> = (0..=CALLS_LIMIT)
        .map(|index| format!(r#"data: {{"choices":[{{"delta":{{"tool_calls":[{{"index":{index}}}]}}}}]}}"#))
        .collect();
    let lines: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(read(&lines).0, Err("an answer asks for more than 128 tools".into()));
    let long = content(&"x".repeat(REPLY_LIMIT_BYTES));
    assert!(read(&[&long]).0.expect_err("too long").contains("more than 8388608 bytes"));
}
