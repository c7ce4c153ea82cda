//! Events that no recording has, in the forms that the programs' documentation gives them.

use serde_json::{Value, json};
use std::path::PathBuf;
use svc::providers::{
    Activity, Conversation, Effort, LaunchRequest, Permission, Purpose, Ruling, SessionStart, Step, Tokens,
    TurnEnd, by_id,
};

pub fn request(model: Option<&str>) -> LaunchRequest {
    LaunchRequest {
        purpose: Purpose::Work,
        prompt: "do it".to_owned(),
        model: model.map(str::to_owned),
        effort: Effort::Medium,
        permission: Permission::Auto,
        working_dir: PathBuf::from("/project"),
        project_dir: PathBuf::from("/project"),
        session: SessionStart::Fresh,
        command: Vec::new(),
        has_integrations: false,
        hook_program: None,
        fence: None,
        room: None,
        extra_env: svc::providers::environment::Extra::default(),
    }
}

pub fn begin(provider: &str, request: &LaunchRequest) -> (Box<dyn Conversation>, Vec<Step>) {
    let launch = by_id(provider).expect("a registered provider").launch(request).expect("a launch");
    let (mut conversation, mut steps) = (launch.conversation, Vec::new());
    conversation.open(&mut steps);
    (conversation, steps)
}

pub fn feed(conversation: &mut dyn Conversation, messages: &[Value]) -> Vec<Step> {
    let mut steps = Vec::new();
    for message in messages {
        conversation.line(&message.to_string(), &mut steps);
    }
    steps
}

pub fn activities(steps: &[Step]) -> Vec<Activity> {
    let activities = steps.iter().filter_map(|step| match step {
        Step::Event(activity) => Some(activity.clone()),
        _ => None,
    });
    activities.collect()
}

fn writes(steps: &[Step]) -> Vec<Value> {
    let writes = steps.iter().filter_map(|step| match step {
        Step::Write(text) => Some(serde_json::from_str(text).expect("one line of JSON")),
        _ => None,
    });
    writes.collect()
}

fn turn_end(steps: &[Step]) -> TurnEnd {
    let mut ends = activities(steps).into_iter().filter_map(|activity| match activity {
        Activity::TurnEnded(end) => Some(end),
        _ => None,
    });
    ends.next_back().expect("an end of a turn")
}

/// An ACP session that is open, its prompt under way, and what was said so far.
fn acp(request: &LaunchRequest, opened: &Value) -> (Box<dyn Conversation>, Vec<Step>) {
    let (mut conversation, mut steps) = begin("acp", request);
    let capabilities = json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}});
    steps.extend(feed(
        conversation.as_mut(),
        &[json!({"id": 1, "result": capabilities}), json!({"id": 2, "result": opened})],
    ));
    (conversation, steps)
}

fn update(update: &Value) -> Value {
    json!({"method": "session/update", "params": {"sessionId": "s", "update": update}})
}

/// Asks for permission for a call. Returns the option that was chosen.
fn ask(conversation: &mut dyn Conversation, kind: &str, input: &Value) -> String {
    let options = json!([{"optionId": "always", "kind": "allow_always"}, {"optionId": "yes", "kind": "allow_once"},
        {"optionId": "no", "kind": "reject_once"}]);
    let call = json!({"toolCallId": format!("{kind}{input}"), "kind": kind, "rawInput": input});
    let params = json!({"sessionId": "s", "toolCall": call, "options": options});
    let mut steps =
        feed(conversation, &[json!({"id": "a", "method": "session/request_permission", "params": params})]);
    let question = activities(&steps).into_iter().find_map(|activity| match activity {
        Activity::PermissionAsked { question, .. } => Some(question),
        _ => None,
    });
    if let Some(question) = &question {
        assert!(writes(&steps).is_empty(), "it waits for a person");
        conversation.decide(question, &Ruling::default(), &mut steps);
    }
    let answer = writes(&steps).remove(0);
    assert_eq!(answer["id"], "a");
    let chosen = answer["result"]["outcome"]["optionId"].as_str().expect("an option");
    if question.is_some() { format!("asked, {chosen}") } else { chosen.to_owned() }
}

#[test]
fn acp_auto_allows_reads_and_edits_inside_the_folder_and_asks_about_the_rest() {
    let (mut conversation, _) = acp(&request(Some("qwen")), &json!({"sessionId": "s"}));
    let mut ask = |kind, input: Value| ask(conversation.as_mut(), kind, &input);
    assert_eq!(ask("edit", json!({"file_path": "/project/src/a.rs"})), "yes");
    assert_eq!(ask("edit", json!({"path": "src/../b.rs"})), "yes");
    assert_eq!(ask("read", json!({"path": "/etc/hosts"})), "yes");
    for (kind, input) in [
        ("edit", json!({"path": "/project/../etc/passwd"})),
        ("edit", json!({"path": "/projects/a"})),
        ("edit", json!({})),
        ("delete", json!({"path": "/project/a"})),
        ("execute", json!({"command": "ls"})),
        ("", json!({})),
    ] {
        assert_eq!(ask(kind, input), "asked, no", "{kind}");
    }
    let end =
        turn_end(&feed(conversation.as_mut(), &[json!({"id": 3, "result": {"stopReason": "end_turn"}})]));
    assert_eq!(end.denied, ["edit", "edit", "edit", "delete", "execute", "tool"]);
}

/// Every file a call names is judged, not only the one it names first.
#[test]
fn acp_auto_asks_about_an_edit_with_one_file_outside() {
    let (mut conversation, _) = acp(&request(Some("qwen")), &json!({"sessionId": "s"}));
    let locations = json!([{"path": "/project/a"}, {"path": "/etc/passwd"}]);
    let call =
        json!({"sessionUpdate": "tool_call", "toolCallId": "t", "kind": "edit", "locations": locations});
    feed(conversation.as_mut(), &[update(&call)]);
    let params = json!({"toolCall": {"toolCallId": "t", "rawInput": {"path": "/project/a"}},
        "options": [{"optionId": "yes", "kind": "allow_once"}]});
    let steps = feed(
        conversation.as_mut(),
        &[json!({"id": 9, "method": "session/request_permission", "params": params})],
    );
    assert!(writes(&steps).is_empty(), "a person is asked");
    let mut steps = Vec::new();
    conversation.decide("9", &Ruling::default(), &mut steps);
    assert_eq!(writes(&steps)[0]["result"], json!({"outcome": {"outcome": "cancelled"}}), "no such option");
}

/// The protocol's answer has no room for it, so that it is the next thing the agent is told.
#[test]
fn acp_a_reason_for_a_no_reaches_the_agent() {
    let (mut conversation, _) = acp(&request(Some("qwen")), &json!({"sessionId": "s"}));
    let options = json!([{"optionId": "no", "kind": "reject_once"}]);
    let call =
        json!({"toolCallId": "t", "kind": "execute", "title": "rm x", "rawInput": {"command": "rm x"}});
    let params = json!({"sessionId": "s", "toolCall": call, "options": options});
    feed(
        conversation.as_mut(),
        &[json!({"id": 9, "method": "session/request_permission", "params": params})],
    );
    let mut steps = Vec::new();
    conversation.decide("9", &Ruling { allow: false, reason: "use make clean".into() }, &mut steps);
    assert_eq!(writes(&steps)[0]["result"]["outcome"]["optionId"], "no");
    let steps = feed(conversation.as_mut(), &[json!({"id": 3, "result": {"stopReason": "end_turn"}})]);
    let next = writes(&steps).remove(0);
    assert_eq!(next["method"], "session/prompt");
    let said = next["params"]["prompt"][0]["text"].as_str().expect("words");
    assert!(said.contains("a person rejected this: use make clean"), "{said}");
}

/// The cause of a refused request stands where each program puts it.
#[test]
fn acp_errors_are_told_in_the_words_of_the_agent() {
    for data in [
        json!({"details": "no key"}),
        json!({"message": "no key"}),
        json!("no key"),
        json!({"message": " no key "}),
    ] {
        let (mut conversation, _) = acp(&request(Some("codex")), &json!({"sessionId": "s"}));
        let error = json!({"code": -32603, "message": "Internal error", "data": data});
        let end = turn_end(&feed(conversation.as_mut(), &[json!({"id": 3, "error": error})]));
        assert_eq!(end.error, "Internal error: no key", "{data}");
    }
}

#[test]
fn claude_reads_why_a_person_said_no() {
    for (reason, message) in [
        ("use make test", "a person rejected this: use make test"),
        ("", "a person rejected this; find another way or report why it is needed"),
    ] {
        let (mut conversation, _) = begin("claude-code", &request(None));
        let asked = json!({"type": "control_request", "request_id": "r",
            "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "cargo test"}}});
        feed(conversation.as_mut(), &[asked]);
        let mut steps = Vec::new();
        conversation.decide("r", &Ruling { allow: false, reason: reason.into() }, &mut steps);
        let response = &writes(&steps)[0]["response"]["response"];
        assert_eq!(response, &json!({"behavior": "deny", "message": message}));
    }
}

/// What it asks a person is answered in the arguments of its tool, as its SDK has it
/// (`platform.claude.com`, `agent-sdk/user-input`).
#[test]
fn claude_reads_what_a_person_answers() {
    let questions = json!([
        {"question": "Which one?", "options": [{"label": "tabs"}, {"label": "spaces"}]},
        {"question": "Why?", "options": []},
    ]);
    let decided = |tool: &str, reason: &str| {
        let (mut conversation, _) = begin("claude-code", &request(None));
        let asked = json!({"type": "control_request", "request_id": "r",
            "request": {"subtype": "can_use_tool", "tool_name": tool, "input": {"questions": questions}}});
        feed(conversation.as_mut(), &[asked]);
        let mut steps = Vec::new();
        conversation.decide("r", &Ruling { allow: true, reason: reason.into() }, &mut steps);
        writes(&steps)[0]["response"]["response"]["updatedInput"].clone()
    };
    let answers = json!({"Which one?": "tabs", "Why?": "tabs"});
    assert_eq!(
        decided("AskUserQuestion", "tabs"),
        json!({"questions": questions.clone(), "answers": answers}),
        "one answer is for all of them"
    );
    assert_eq!(decided("AskUserQuestion", ""), json!({"questions": questions.clone()}));
    assert_eq!(decided("Other", "tabs"), json!({"questions": questions.clone()}), "no other tool is changed");
}

#[test]
fn acp_full_allows_everything_once_and_a_question_only_reads() {
    let full = LaunchRequest { permission: Permission::Full, ..request(Some("qwen")) };
    let (mut conversation, _) = acp(&full, &json!({"sessionId": "s"}));
    assert_eq!(ask(conversation.as_mut(), "execute", &json!({"command": "ls"})), "yes");
    let query = LaunchRequest { purpose: Purpose::Query, ..full };
    let modes = json!({"sessionId": "s", "modes": {"availableModes": [{"id": "default"}, {"id": "plan"}]}});
    let (mut conversation, steps) = acp(&query, &modes);
    let asked = writes(&steps);
    assert_eq!(asked[2]["method"], "session/set_mode");
    assert_eq!(asked[2]["params"]["modeId"], "plan");
    assert_eq!(ask(conversation.as_mut(), "edit", &json!({"path": "/project/a"})), "no");
    assert_eq!(ask(conversation.as_mut(), "read", &json!({"path": "/project/a"})), "yes");
}

#[test]
fn acp_sets_the_model_before_the_first_prompt() {
    let opened = json!({"sessionId": "s", "models": {"availableModels": [], "currentModelId": "auto"}});
    let (mut conversation, steps) = acp(&request(Some("gemini/gemini-2.5-flash")), &opened);
    let asked = writes(&steps);
    assert_eq!(asked[2]["method"], "session/set_model");
    assert_eq!(asked[2]["params"], json!({"sessionId": "s", "modelId": "gemini-2.5-flash"}));
    assert_eq!(asked.len(), 3, "the prompt waits");
    let refused = json!({"id": 3, "error": {"code": -32603, "message": "no such model"}});
    let steps = feed(conversation.as_mut(), &[refused]);
    assert_eq!(
        activities(&steps)[0],
        Activity::Trouble { text: "the agent refused a setting: no such model".to_owned() }
    );
    assert_eq!(writes(&steps)[0]["method"], "session/prompt");
    let options = json!({"sessionId": "s", "configOptions": [{"id": "model", "category": "model"}]});
    let (_, steps) = acp(&request(Some("opencode/x/y")), &options);
    let asked = writes(&steps);
    assert_eq!(asked[2]["method"], "session/set_config_option");
    assert_eq!(asked[2]["params"], json!({"sessionId": "s", "configId": "model", "value": "x/y"}));
}

#[test]
fn acp_continues_a_session_without_telling_it_again() {
    let session = SessionStart::Resume { id: "s".to_owned(), counted: Tokens::default() };
    let (mut conversation, _) = begin("acp", &LaunchRequest { session, ..request(Some("qwen")) });
    let capabilities = json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}});
    let chunk = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "old"}});
    let steps = feed(
        conversation.as_mut(),
        &[json!({"id": 1, "result": capabilities}), update(&chunk), json!({"id": 2, "result": null})],
    );
    let asked = writes(&steps);
    assert_eq!(
        (&asked[0]["method"], &asked[0]["params"]["sessionId"]),
        (&json!("session/load"), &json!("s"))
    );
    assert_eq!(asked[1]["method"], "session/prompt");
    let told = activities(&steps);
    assert_eq!(told, [Activity::Session { id: "s".to_owned(), model: None }, Activity::TurnStarted]);
    let chunk = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "new"}});
    let done = json!({"id": 3, "result": {"stopReason": "end_turn"}});
    assert_eq!(turn_end(&feed(conversation.as_mut(), &[update(&chunk), done])).text, "new");
}

#[test]
fn acp_gives_up_with_a_reason() {
    for (reply, expected) in [
        (json!({"id": 1, "error": {"code": -32000, "message": "log in first"}}), "log in first"),
        (
            json!({"id": 1, "result": {"protocolVersion": 7}}),
            "the agent speaks version 7 of the protocol, not 1",
        ),
    ] {
        let (mut conversation, _) = begin("acp", &request(Some("qwen")));
        let steps = feed(conversation.as_mut(), &[reply]);
        let end = turn_end(&steps);
        assert_eq!((end.is_error, end.error.as_str()), (true, expected));
        assert_eq!(steps.last(), Some(&Step::CloseInput));
        assert!(!conversation.say("more", &mut Vec::new()));
    }
    let session = SessionStart::Resume { id: "s".to_owned(), counted: Tokens::default() };
    let (mut conversation, _) = begin("acp", &LaunchRequest { session, ..request(Some("qwen")) });
    let steps = feed(conversation.as_mut(), &[json!({"id": 1, "result": {"protocolVersion": 1}})]);
    assert_eq!(turn_end(&steps).error, "this agent cannot continue a session");
}

#[test]
fn acp_stop_reasons_that_are_errors() {
    for (reason, expected) in [
        ("cancelled", "the turn was cancelled"),
        ("refusal", "the model refused"),
        ("max_tokens", "the limit of tokens was reached"),
        ("max_turn_requests", "the limit of requests was reached"),
        ("new one", "the turn stopped: new one"),
    ] {
        let (mut conversation, _) = acp(&request(Some("qwen")), &json!({"sessionId": "s"}));
        let steps = feed(conversation.as_mut(), &[json!({"id": 3, "result": {"stopReason": reason}})]);
        let end = turn_end(&steps);
        assert_eq!((end.is_error, end.error.as_str()), (true, expected));
    }
}

#[test]
fn acp_turns_follow_one_another_and_other_requests_are_refused() {
    let (mut conversation, _) = acp(&request(Some("qwen")), &json!({"sessionId": "s"}));
    let mut steps = Vec::new();
    assert!(conversation.say("second", &mut steps) && steps.is_empty());
    let read = json!({"id": 5, "method": "fs/read_text_file", "params": {"path": "/project/a"}});
    assert_eq!(writes(&feed(conversation.as_mut(), &[read]))[0]["error"]["code"], -32601);
    let done = |id: u64| json!({"id": id, "result": {"stopReason": "end_turn"}});
    let steps = feed(conversation.as_mut(), &[done(3)]);
    assert_eq!(writes(&steps)[0]["params"]["prompt"][0]["text"], "second");
    feed(conversation.as_mut(), &[done(4)]);
    let mut steps = Vec::new();
    assert!(conversation.say("third", &mut steps));
    assert_eq!(writes(&steps)[0]["id"], 5, "an idle agent gets it at once");
}

/// The total tells whether cached and thought tokens stand inside the other classes.
#[test]
fn acp_usage_in_either_form() {
    for (usage, expected) in [
        (
            json!({"inputTokens": 1200, "outputTokens": 42, "cachedReadTokens": 5000, "totalTokens": 6242}),
            [1200, 42, 5000],
        ),
        (
            json!({"inputTokens": 6200, "outputTokens": 42, "cachedReadTokens": 5000, "totalTokens": 6242}),
            [1200, 42, 5000],
        ),
        (json!({"inputTokens": 10, "outputTokens": 2, "thoughtTokens": 3, "totalTokens": 15}), [10, 5, 0]),
        (json!({"inputTokens": 10, "outputTokens": 5, "thoughtTokens": 3, "totalTokens": 15}), [10, 5, 0]),
    ] {
        let (mut conversation, _) = acp(&request(Some("qwen")), &json!({"sessionId": "s"}));
        let reply = json!({"id": 3, "result": {"stopReason": "end_turn", "usage": usage}});
        let told = activities(&feed(conversation.as_mut(), &[reply]));
        let Activity::Usage(usage) = &told[0] else { panic!("{told:?}") };
        assert_eq!([usage.delta.input, usage.delta.output, usage.delta.cache_read], expected);
    }
}

#[test]
fn claude_compaction_and_unknown_events() {
    let (mut conversation, _) = begin("claude-code", &request(None));
    let compacted = json!({"type": "system", "subtype": "compact_boundary",
        "compact_metadata": {"trigger": "auto", "pre_tokens": 160_000, "post_tokens": 9000}});
    let told = activities(&feed(conversation.as_mut(), &[compacted, json!({"type": "something_new"})]));
    assert_eq!(told[0], Activity::Compacted);
    assert!(matches!(&told[1], Activity::Usage(usage) if usage.context_tokens == Some(9000)));
    assert_eq!(told.len(), 2);
}

#[test]
fn claude_limits_are_errors_with_a_reason() {
    let (mut conversation, _) = begin("claude-code", &request(None));
    let result = json!({"type": "result", "subtype": "error_max_turns", "is_error": false, "num_turns": 9});
    let end = turn_end(&feed(conversation.as_mut(), &[result]));
    assert_eq!((end.is_error, end.error.as_str()), (true, "the limit of turns was reached"));
    assert_eq!(end.turns, Some(9));
}

/// A failed turn without figures is not a session total of zero.
#[test]
fn claude_without_figures_keeps_the_counted_total() {
    let counted = Tokens { input: 500, ..Tokens::default() };
    let session = SessionStart::Resume { id: "s".to_owned(), counted };
    let (mut conversation, _) = begin("claude-code", &LaunchRequest { session, ..request(None) });
    let failed = json!({"type": "result", "subtype": "success", "is_error": true, "modelUsage": {}});
    let model = json!({"m": {"inputTokens": 700, "outputTokens": 0}});
    let works = json!({"type": "result", "subtype": "success", "modelUsage": model});
    let told = activities(&feed(conversation.as_mut(), &[failed, works]));
    let deltas: Vec<i64> = told
        .iter()
        .filter_map(|activity| match activity {
            Activity::Usage(usage) => Some(usage.delta.input),
            _ => None,
        })
        .collect();
    assert_eq!(deltas, [200]);
}

/// Seen with 2.1.329: after a SIGTERM the totals of a resumed session contain the interrupted run, whose
/// input was counted while it ran, and after a SIGKILL they do not.
#[test]
fn claude_does_not_count_an_interrupted_run_twice() {
    for total in [400, 300] {
        let counted = Tokens { input: 200, output: 14, ..Tokens::default() };
        let session = SessionStart::Resume { id: "s".to_owned(), counted };
        let (mut conversation, _) = begin("claude-code", &LaunchRequest { session, ..request(None) });
        let models = |input: u64| json!({"m": {"inputTokens": input, "outputTokens": 28}});
        let result = json!({"type": "result", "subtype": "success", "modelUsage": models(total),
            "model_usage_since_last_result": models(100)});
        let told = activities(&feed(conversation.as_mut(), &[result]));
        let Activity::Usage(usage) = &told[0] else { panic!("{told:?}") };
        assert_eq!(usage.delta.input, 100);
        assert_eq!(usage.session_total.map(|tokens| tokens.input), Some(total));
    }
}

#[test]
fn codex_changes_name_their_files_and_declined_commands_are_denied() {
    let (mut conversation, _) = begin("codex", &request(None));
    let changes = json!([{"path": "/project/a", "kind": "add"}, {"path": "/project/b", "kind": "delete"}]);
    let change = json!({"id": "item_1", "type": "file_change", "changes": changes, "status": "completed"});
    let command = json!({"id": "item_2", "type": "command_execution", "command": "rm", "status": "declined"});
    let steps = feed(
        conversation.as_mut(),
        &[
            json!({"type": "item.completed", "item": change}),
            json!({"type": "item.completed", "item": command}),
            json!({"type": "turn.completed"}),
        ],
    );
    let written: Vec<String> = activities(&steps)
        .into_iter()
        .filter_map(|activity| match activity {
            Activity::ToolStarted { path, writes: true, .. } => path,
            _ => None,
        })
        .collect();
    assert_eq!(written, ["/project/a", "/project/b"]);
    assert_eq!(turn_end(&steps).denied, ["command_execution"]);
}

/// Newer versions of opencode say which permissions they refused.
#[test]
fn opencode_refusals_are_named_once_and_the_turn_ends_once() {
    let (mut conversation, _) = begin("opencode", &request(None));
    let state = json!({"status": "error", "error": "The user rejected permission to use this tool"});
    let mut steps = feed(
        conversation.as_mut(),
        &[
            json!({"type": "step_start", "sessionID": "ses_1", "part": {}}),
            json!({"type": "tool_use", "sessionID": "ses_1",
                "part": {"tool": "bash", "callID": "c", "state": state}}),
            json!({"type": "step_finish", "sessionID": "ses_1", "part": {"tokens": {"input": 1}}}),
            json!({"type": "done", "sessionID": "ses_1", "reason": "idle", "rejected": ["bash", "edit"]}),
        ],
    );
    conversation.end(&mut steps);
    assert_eq!(turn_end(&steps).denied, ["bash", "edit"]);
    let ends = activities(&steps).iter().filter(|told| matches!(told, Activity::TurnEnded(_))).count();
    assert_eq!(ends, 1);
}

/// The figures of a run of aider are in words for people; what it wrote is named behind them.
#[test]
fn aider_lines_of_fixed_form_are_read() {
    let (mut conversation, mut steps) = begin("aider", &request(None));
    for line in [
        "Aider v0.86.2",
        "Repo-map: disabled",
        "",
        "litellm.RateLimitError: RateLimitError: OpenAIException - busy",
        "Retrying in 0.2 seconds...",
        "Tokens: 12 sent, or so.",
        "Here it is:",
        "Tokens: 12k sent, 1.5k cache write, 9.0k cache hit, 940 received. Cost: $0.02 message, $0.03 session.",
        "",
        "src/a.rs",
        "Applied edit to src/a.rs",
    ] {
        conversation.line(line, &mut steps);
    }
    conversation.end(&mut steps);
    let all = activities(&steps);
    let texts = all.iter().filter_map(|activity| match activity {
        Activity::Text { text } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(texts.collect::<Vec<_>>(), ["Tokens: 12 sent, or so.\nHere it is:"]);
    assert_eq!(all.iter().filter(|activity| matches!(activity, Activity::Trouble { .. })).count(), 2);
    let usages: Vec<_> = all
        .iter()
        .filter_map(|activity| match activity {
            Activity::Usage(usage) => Some(usage),
            _ => None,
        })
        .collect();
    let counted = Tokens { input: 1500, output: 940, cache_read: 9000, cache_creation: 1500 };
    assert_eq!(usages.len(), 1);
    assert_eq!((usages[0].delta, usages[0].cost_usd), (counted.minus(Tokens::default()), Some(0.02)));
    assert!(all.iter().any(|activity| matches!(activity,
        Activity::ToolStarted { path: Some(path), writes: true, .. } if path == "/project/src/a.rs")));
    let end = turn_end(&steps);
    assert_eq!((end.is_error, end.cost_usd), (false, Some(0.02)));
}

/// A run of aider that stops before its announcements are over says its last line.
#[test]
fn an_aider_that_never_asks_its_model_has_failed() {
    let (mut conversation, mut steps) = begin("aider", &request(None));
    conversation.line("Unknown model nonesuch", &mut steps);
    conversation.end(&mut steps);
    assert_eq!(turn_end(&steps).error, "Unknown model nonesuch");
    let (mut silent, mut steps) = begin("aider", &request(None));
    silent.end(&mut steps);
    assert_eq!(turn_end(&steps).error, "it ended without an answer");
}

/// Sub-agents stand only in the aggregate, and what was told before is not counted twice.
#[test]
fn cline_ends_with_the_aggregate_of_its_sub_agents() {
    let (mut conversation, mut steps) = begin("cline", &request(None));
    let usage = json!({"type": "usage", "inputTokens": 100, "outputTokens": 4, "cacheReadTokens": 60,
        "cacheWriteTokens": 10});
    let totals = json!({"inputTokens": 350, "outputTokens": 9, "cacheReadTokens": 60, "cacheWriteTokens": 10,
        "totalCost": 0.5});
    let own = json!({"inputTokens": 100, "outputTokens": 4, "cacheReadTokens": 60, "cacheWriteTokens": 10});
    let result = json!({"type": "run_result", "finishReason": "completed", "usage": own,
        "aggregateUsage": totals, "text": "done"});
    steps.extend(feed(conversation.as_mut(), &[json!({"type": "agent_event", "event": usage}), result]));
    let mut sum = Tokens::default();
    for activity in activities(&steps) {
        if let Activity::Usage(usage) = activity {
            sum += usage.delta;
        }
    }
    assert_eq!(sum, Tokens { input: 280, output: 9, cache_read: 60, cache_creation: 10 });
    let end = turn_end(&steps);
    assert_eq!((end.text.as_str(), end.is_error, end.cost_usd), ("done", false, Some(0.5)));
}

/// As seen when cline has nothing to do: no run, one line, exit status 1.
#[test]
fn an_error_of_cline_outside_a_run_ends_the_turn() {
    let (mut conversation, _) = begin("cline", &request(None));
    let steps =
        feed(conversation.as_mut(), &[json!({"type": "error", "message": "JSON output mode requires"})]);
    assert_eq!(turn_end(&steps).error, "JSON output mode requires");
}
