//! Programs that never end what they begin: whatever a program says, what is remembered of it stays small.

use crate::recordings::replay::{conversation, provider_of};
use serde_json::{Value, json};
use svc::providers::{Activity, Conversation, Ruling, SAVED_LIMIT_BYTES, SessionStart, Step, by_id};

/// Bytes that most conversations stay below: the last words and the joined ones, 256 KiB each, and names.
const SMALL_BYTES: usize = 3 * 1024 * 1024;
/// Lines of a flood.
const FLOOD: usize = 5_000;
/// Of long ones.
const LONG_FLOOD: usize = 100;

/// A name of its own that is just short enough to be remembered.
fn name(number: usize) -> String {
    format!("{number:0>1024}")
}

/// A text that no state may hold many of.
fn long() -> String {
    "long ".repeat(60_000)
}

fn flood(name: &str, lines: impl IntoIterator<Item = Value>) -> Box<dyn Conversation> {
    let mut conversation = conversation(name, SessionStart::Fresh);
    let mut steps = Vec::new();
    conversation.open(&mut steps);
    for line in lines {
        steps.clear();
        conversation.line(&line.to_string(), &mut steps);
    }
    conversation
}

/// It remembers something, but not more than this, and is restored from that.
fn holds(name: &str, conversation: &dyn Conversation, limit: usize) {
    let saved = conversation.save();
    assert!(limit < SAVED_LIMIT_BYTES, "what is held can be saved");
    assert!(saved.len() <= limit, "{name} holds {} bytes, its limit is {limit}", saved.len());
    let again = by_id(provider_of(name)).expect("registered").restore(&saved).expect("restores");
    assert_eq!(again.save(), saved, "{name}");
}

#[test]
fn claude_code_neither_remembers_every_message_nor_every_question() {
    let usage = |id: String| json!({"type": "assistant", "message": {"id": id, "usage": {"input_tokens": 1}, "content": []}});
    let init = json!({"type": "system", "subtype": "init", "session_id": long(), "model": long()});
    let messages = (0..FLOOD).map(name).chain((0..LONG_FLOOD).map(|n| format!("{n}{}", long())));
    let conversation = flood("claude-default", messages.map(usage).chain([init]));
    holds("claude-default", conversation.as_ref(), 4096 * 1030 + 1000);

    let asked = |number: usize| {
        let request = json!({"subtype": "can_use_tool", "tool_name": "Write", "input": {"content": long()}});
        json!({"type": "control_request", "request_id": format!("q-{number}"), "request": request})
    };
    let mut conversation = flood("claude-default", (0..LONG_FLOOD).map(asked));
    holds("claude-default", conversation.as_ref(), 8 * 1024 * 1024 + 2000);
    // What did not fit was refused at once; what did waits, whole.
    let mut answer = |question: &str| {
        let mut steps = Vec::new();
        conversation.decide(question, &Ruling { allow: true, ..Ruling::default() }, &mut steps);
        steps.iter().map(|step| if let Step::Write(text) = step { text.len() } else { 0 }).sum::<usize>()
    };
    assert!(answer("q-0") > long().len());
    assert_eq!(answer("q-99"), 0);
    let mut steps = Vec::new();
    conversation.line(&asked(100).to_string(), &mut steps);
    assert!(matches!(&steps[..], [Step::Event(Activity::PermissionAsked { .. })]), "there is room again");
}

#[test]
fn codex_remembers_neither_every_call_nor_long_words() {
    let started = |id: String| json!({"type": "item.started", "item": {"id": id, "type": "web_search"}});
    let declined = |number: usize| {
        let item = json!({"id": "d", "type": "mcp_tool_call", "tool": long(), "status": "declined"});
        json!({"type": "item.completed", "number": number, "item": item})
    };
    let words = json!({"type": "item.completed", "item": {"type": "agent_message", "text": long()}});
    let lines = (0..FLOOD).map(|number| started(name(number)));
    let lines = lines.chain((0..LONG_FLOOD).map(|n| started(format!("{n}{}", long()))));
    let lines = lines.chain((0..LONG_FLOOD).map(declined)).chain([words]);
    let thread = json!({"type": "thread.started", "thread_id": long()});
    let mut conversation = flood("codex-default", lines.chain([thread]));
    conversation
        .record(&json!({"type": "turn_context", "payload": {"model": long()}}).to_string(), &mut Vec::new());
    holds("codex-default", conversation.as_ref(), SMALL_BYTES);
}

#[test]
fn gemini_remembers_few_refusals_and_few_words() {
    let refused = |number: usize| {
        let problem = json!({"type": "policy_violation"});
        json!({"type": "tool_result", "tool_id": format!("{number}{}", long()), "error": problem})
    };
    let delta = json!({"type": "message", "role": "assistant", "content": long(), "delta": true});
    let words = json!({"type": "message", "role": "assistant", "content": long().repeat(10)});
    let lines = (0..LONG_FLOOD).map(refused).chain([words]);
    let lines = lines.chain((0..LONG_FLOOD).map(|_| delta.clone()));
    holds("gemini-default", flood("gemini-default", lines).as_ref(), SMALL_BYTES);
}

#[test]
fn opencode_remembers_few_refusals_and_few_words() {
    let part = |text: String| json!({"type": "text", "sessionID": text, "part": {"text": text}});
    let rejected: Vec<String> = (0..FLOOD).map(|number| format!("{number}{}", name(number))).collect();
    let failed = json!({"type": "error", "error": {"data": {"message": long(), "statusCode": 500}}});
    let tool = |number: usize| {
        let state = json!({"status": "error", "error": "user rejected permission"});
        json!({"type": "tool_use", "part": {"callID": "c", "tool": format!("{number}{}", long()), "state": state}})
    };
    let lines = (0..LONG_FLOOD).map(tool).chain([part(long().repeat(10)), failed]);
    holds("opencode-default", flood("opencode-default", lines).as_ref(), SMALL_BYTES);
    let done = json!({"type": "done", "rejected": rejected});
    holds("opencode-default", flood("opencode-default", [done]).as_ref(), SMALL_BYTES);
}

#[test]
fn qwen_remembers_a_session_and_figures() {
    let init = json!({"type": "system", "subtype": "init", "session_id": long(), "model": long()});
    let said = json!({"type": "assistant", "message": {"content": [{"type": "text", "text": long()}]}});
    let lines = (0..LONG_FLOOD).flat_map(|_| [init.clone(), said.clone()]);
    holds("qwen-default", flood("qwen-default", lines).as_ref(), 2000);
}

#[test]
fn copilot_remembers_neither_every_call_nor_long_words() {
    let event = |kind: &str, data: Value| json!({"type": kind, "data": data});
    let started = |id: String, name: &str| {
        event("tool.execution_start", json!({"toolCallId": id, "toolName": name, "arguments": {"x": long()}}))
    };
    let lines = (0..FLOOD / 10).map(|number| started(name(number), &name(0)));
    let lines = lines.chain((0..LONG_FLOOD).map(|number| started(format!("{number}{}", long()), "bash")));
    let lines = lines.chain([
        event("session.tools_updated", json!({"model": long()})),
        event("assistant.message", json!({"content": long().repeat(10)})),
        event("session.error", json!({"message": long()})),
    ]);
    holds("copilot-default", flood("copilot-default", lines).as_ref(), SMALL_BYTES);
}

#[test]
fn cline_remembers_few_refusals_and_few_words() {
    let event = |event: Value| json!({"type": "agent_event", "event": event});
    let refused = |number: usize| {
        let output = json!({"error": "requires approval in a terminal"});
        let name = format!("{number}{}", long());
        event(json!({"type": "content_end", "contentType": "tool", "toolName": name, "output": output}))
    };
    let delta = event(json!({"type": "content_start", "contentType": "text", "text": long()}));
    let failed = event(json!({"type": "error", "error": {"message": long()}}));
    let hook = json!({"type": "hook_event", "taskId": long()});
    let lines = (0..LONG_FLOOD).map(refused).chain((0..LONG_FLOOD).map(|_| delta.clone()));
    holds("cline-default", flood("cline-default", lines.chain([failed, hook])).as_ref(), SMALL_BYTES);
}

#[test]
fn aider_remembers_few_words() {
    let mut conversation = conversation("aider-plain", SessionStart::Fresh);
    let mut steps = Vec::new();
    let mut line = |line: &str| {
        steps.clear();
        conversation.line(line, &mut steps);
    };
    line("Repo-map: disabled");
    (0..LONG_FLOOD).for_each(|_| line(&long()));
    line(&format!("litellm.{}Error: {}", long(), long()));
    (0..FLOOD).for_each(|_| line("Tokens: 6.0k sent, 40 received. Cost: $1e308 message, $1e308 session."));
    (0..LONG_FLOOD).for_each(|_| line(&format!("Applied edit to {}", long())));
    line(&long().repeat(10));
    holds("aider-plain", conversation.as_ref(), SMALL_BYTES);
    steps.clear();
    conversation.end(&mut steps);
    let Some(Step::Event(Activity::TurnEnded(end))) = steps.last() else { panic!("{steps:?}") };
    assert_eq!(end.cost_usd, Some(f64::MAX), "a sum of nonsense is a number");
}

const ACP: &str = "acp/claude-reject";

/// An agent whose session is open and whose turn runs.
fn acp(updates: impl IntoIterator<Item = Value>) -> Box<dyn Conversation> {
    let reply = |id: u64, result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
    let opened = [reply(1, json!({"protocolVersion": 1})), reply(2, json!({"sessionId": "s"}))];
    flood(ACP, opened.into_iter().chain(updates))
}

fn update(update: &Value) -> Value {
    json!({"method": "session/update", "params": {"sessionId": "s", "update": update}})
}

fn asks(id: &Value, call: &Value) -> Value {
    let options = json!([{"kind": "allow_once", "optionId": "y"}, {"kind": "reject_once", "optionId": "n"}]);
    json!({"id": id, "method": "session/request_permission",
        "params": {"sessionId": "s", "toolCall": call, "options": options}})
}

#[test]
fn acp_remembers_neither_every_call_nor_its_arguments() {
    let call = |id: String, words: String| {
        let kind = json!([{"path": words}]);
        update(&json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": words, "kind": words,
            "locations": kind, "rawInput": {"x": words}, "status": "in_progress"}))
    };
    let calls = (0..LONG_FLOOD).map(|number| call(format!("{number}"), long()));
    let calls = calls.chain((0..FLOOD).map(|number| call(name(number), "w".to_owned())));
    let calls = calls.chain((0..LONG_FLOOD).map(|number| call(format!("{number}{}", long()), long())));
    let mut conversation = acp(calls);
    holds(ACP, conversation.as_ref(), 12 * 1024 * 1024);
    // Of the last long one only the id was kept: nobody can judge it, so it is refused.
    let mut steps = Vec::new();
    conversation.line(&asks(&json!(7), &json!({"toolCallId": "99"})).to_string(), &mut steps);
    assert!(matches!(&steps[..], [Step::Write(text)] if text.contains("\"optionId\":\"n\"")), "{steps:?}");
    // It was told when it began, and is told when it ends.
    steps.clear();
    let ended = json!({"sessionUpdate": "tool_call_update", "toolCallId": "99", "status": "completed"});
    conversation.line(&update(&ended).to_string(), &mut steps);
    assert!(matches!(&steps[..], [Step::Event(Activity::ToolEnded { .. })]), "{steps:?}");
}

#[test]
fn acp_remembers_neither_every_question_nor_every_word() {
    let question = |number: usize| {
        let call = json!({"toolCallId": "c", "title": long(), "kind": "execute"});
        let mut asked = asks(&json!(number), &call);
        asked["params"]["options"][0]["name"] = json!(long());
        asked
    };
    let odd = [json!(long()), json!([[1]]), json!({"a": long()}), Value::Null, json!(name(0))];
    let odd = odd.map(|id| asks(&id, &json!({"toolCallId": "c"})));
    let chunk = |kind: &str| update(&json!({"sessionUpdate": kind, "content": {"text": long()}}));
    let chunks = (0..LONG_FLOOD).map(|n| chunk(["agent_message_chunk", "agent_thought_chunk"][n % 2]));
    let mut conversation = acp((0..LONG_FLOOD).map(question).chain(odd).chain(chunks));
    holds(ACP, conversation.as_ref(), SMALL_BYTES);

    let taken = (0..LONG_FLOOD).filter(|_| conversation.say(&long(), &mut Vec::new())).count();
    assert_eq!(taken, 13, "messages of 300 kB, of which 4 MiB wait");
    holds(ACP, conversation.as_ref(), 8 * 1024 * 1024);
    for number in 0..LONG_FLOOD {
        let no = Ruling { allow: false, reason: long() };
        conversation.decide(&number.to_string(), &no, &mut Vec::new());
    }
    holds(ACP, conversation.as_ref(), 8 * 1024 * 1024);
}

/// Of 257 files the last lies elsewhere: an agent may change those of its folder alone.
#[test]
fn acp_files_that_nobody_has_looked_at_are_not_written_unasked() {
    let edit = |files: &[String]| {
        let places: Vec<Value> = files.iter().map(|path| json!({"path": path})).collect();
        let call = json!({"toolCallId": "c", "title": "edit", "kind": "edit", "locations": places});
        let mut steps = Vec::new();
        acp([]).line(&asks(&json!(7), &call).to_string(), &mut steps);
        steps.iter().any(|step| matches!(step, Step::Event(Activity::PermissionAsked { .. })))
    };
    let mut files: Vec<String> = (0..256).map(|number| format!("/elsewhere/{number}")).collect();
    assert!(!edit(&files), "they are all its own");
    files.push("/etc/passwd".to_owned());
    assert!(edit(&files), "a person is asked");
}

#[test]
fn built_in_agents_remember_figures_alone() {
    for id in ["script", "ollama"] {
        let saved = "{\"prompt\":null,\"counted\":{}}";
        let mut conversation = by_id(id).expect("registered").restore(saved).expect("restores");
        let mut steps = Vec::new();
        for number in 0..LONG_FLOOD / 10 {
            let started = Activity::ToolStarted {
                id: format!("{number}{}", long()),
                name: long(),
                input: json!({"x": long()}),
                path: None,
                writes: false,
            };
            let text = serde_json::to_string(&started).expect("an activity is JSON");
            conversation.line(&text, &mut steps);
            conversation.say(&long(), &mut steps);
            steps.clear();
        }
        let length = conversation.save().len();
        assert!(length < 200, "{id} holds {length} bytes");
    }
}
