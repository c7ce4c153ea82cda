use super::*;

/// A client after its handshake.
fn ready() -> Client {
    let mut client = Client::new(Some("file:///project".into()));
    let mut steps = Vec::new();
    client.open(&mut steps);
    client.message(json!({"id": 1, "result": {"protocolVersion": "2025-06-18"}}), &mut steps);
    client
}

fn hears(client: &mut Client, message: Value) -> Vec<Step> {
    let mut steps = Vec::new();
    client.message(message, &mut steps);
    steps
}

fn asks(client: &mut Client, call: u64, ask: &Ask) -> Vec<Value> {
    let mut steps = Vec::new();
    client.ask(CallId(call), ask, &mut steps);
    written(&steps)
}

fn written(steps: &[Step]) -> Vec<Value> {
    let lines = steps.iter().filter_map(|step| if let Step::Write(line) = step { Some(line) } else { None });
    lines
        .map(|line| {
            assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line:?}");
            serde_json::from_str(line).unwrap()
        })
        .collect()
}

fn tool(name: &str) -> Ask {
    Ask::Tool { name: name.into(), params: Arc::new(json!({"a": "b\nc"})) }
}

#[test]
fn decisions_11_any_known_protocol_version_is_taken_and_others_are_refused() {
    for version in ACCEPTED {
        let mut client = Client::new(Some("file:///p".into()));
        let mut steps = Vec::new();
        client.open(&mut steps);
        assert_eq!(written(&steps)[0]["params"]["protocolVersion"], "2025-06-18");
        assert_eq!(written(&steps)[0]["params"]["capabilities"], json!({"roots": {}}));
        let result = json!({"protocolVersion": version, "serverInfo": {"name": "x", "version": "1"}});
        let steps = hears(&mut client, json!({"id": 1, "jsonrpc": "2.0", "result": result}));
        assert_eq!(written(&steps)[0]["method"], "notifications/initialized");
        assert_eq!(steps[1], Step::Ready(version.into(), "x 1".into()));
    }
    for result in [json!({"protocolVersion": "2026-07-28"}), json!({}), json!({"protocolVersion": 7})] {
        let mut client = Client::new(Some("file:///p".into()));
        client.open(&mut Vec::new());
        let steps = hears(&mut client, json!({"id": 1, "result": result}));
        assert!(matches!(&steps[..], [Step::Refused(_)]), "{steps:?}");
    }
    let mut client = Client::new(Some("file:///p".into()));
    client.open(&mut Vec::new());
    let steps = hears(&mut client, json!({"id": 1, "error": {"code": -1, "message": "no\ntoken"}}));
    assert_eq!(steps, [Step::Refused("it refused to initialize: no token (-1)".into())]);
}

#[test]
fn decisions_11_a_server_request_with_the_id_of_a_call_is_not_its_answer() {
    let mut client = ready();
    let sent = asks(&mut client, 7, &tool("echo"));
    let id = sent[0]["id"].clone();
    assert_eq!(sent[0]["params"], json!({"name": "echo", "arguments": {"a": "b\nc"}}));
    let steps = hears(&mut client, json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"}));
    let roots = json!({"roots": [{"uri": "file:///project", "name": "project"}]});
    assert_eq!(written(&steps), [json!({"jsonrpc": "2.0", "id": id, "result": roots})]);
    let steps = hears(&mut client, json!({"id": id, "result": {"content": [], "isError": true}}));
    assert_eq!(steps, [Step::Answer(CallId(7), Ok(json!({"content": [], "isError": true})))]);
}

#[test]
fn decisions_11_ping_is_answered_and_sampling_and_elicitation_are_refused_politely() {
    let mut client = ready();
    let mut answer = |id: Value, method: &str| {
        let steps = hears(&mut client, json!({"id": id, "method": method, "params": {}}));
        written(&steps).remove(0)
    };
    assert_eq!(answer(json!(0), "ping"), json!({"jsonrpc": "2.0", "id": 0, "result": {}}));
    assert_eq!(answer(json!("a"), "elicitation/create")["result"]["action"], "decline");
    assert_eq!(answer(json!(1), "sampling/createMessage")["error"]["code"], -1);
    assert_eq!(answer(json!(1), "tasks/get")["error"]["code"], -32601);
}

#[test]
fn decisions_11_next_cursor_is_followed_and_bounded() {
    let mut client = ready();
    assert_eq!(asks(&mut client, 1, &Ask::Tools)[0]["params"], json!({}));
    assert!(asks(&mut client, 2, &Ask::Tools).is_empty(), "the second caller joins the first");
    let page = |n: u64, next: Value| json!({"id": n, "result": {"tools": [{"name": format!("t{n}")}], "nextCursor": next}});
    let steps = hears(&mut client, page(2, json!("c")));
    assert_eq!(written(&steps)[0]["params"], json!({"cursor": "c"}));
    let steps = hears(&mut client, page(3, Value::Null));
    let record = |name: &str| json!({"name": name, "description": "", "inputSchema": {"type": "object"}});
    let tools = json!([record("t2"), record("t3")]);
    assert_eq!(steps, [1, 2].map(|call| Step::Answer(CallId(call), Ok(tools.clone()))));

    let mut client = ready();
    asks(&mut client, 1, &Ask::Tools);
    for n in 2..=u64::try_from(MAX_PAGES).unwrap() {
        assert_eq!(written(&hears(&mut client, page(n, json!("again")))).len(), 1);
    }
    let steps = hears(&mut client, page(51, json!("again")));
    let error = "its tool list has more than 50 pages".to_owned();
    assert_eq!(steps, [Step::Answer(CallId(1), Err(error))]);
}

#[test]
fn decisions_11_list_changed_has_the_tools_fetched_again() {
    let mut client = ready();
    asks(&mut client, 1, &Ask::Tools);
    hears(&mut client, json!({"id": 2, "result": {"tools": []}}));
    assert!(asks(&mut client, 2, &Ask::Tools).is_empty(), "kept");
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    hears(&mut client, changed.clone());
    assert_eq!(asks(&mut client, 3, &Ask::Tools)[0]["method"], "tools/list");
    // A change while the list is on its way: it is answered, but not kept.
    hears(&mut client, changed);
    assert_eq!(hears(&mut client, json!({"id": 3, "result": {"tools": []}})).len(), 1);
    assert_eq!(asks(&mut client, 4, &Ask::Tools).len(), 1);
}

#[test]
fn decisions_11_a_cancelled_call_is_told_to_the_server_and_its_late_reply_reaches_nobody() {
    let mut client = ready();
    asks(&mut client, 1, &tool("slow"));
    asks(&mut client, 2, &tool("slow"));
    let mut steps = Vec::new();
    client.cancel(CallId(1), "too slow", &mut steps);
    let sent = written(&steps);
    assert_eq!(sent[0]["method"], "notifications/cancelled");
    assert_eq!(sent[0]["params"]["requestId"], 2);
    let late = hears(&mut client, json!({"id": 2, "result": {"content": []}}));
    assert!(matches!(&late[..], [Step::Note(_)]), "{late:?}");
    let other = hears(&mut client, json!({"id": 3, "result": {}}));
    assert_eq!(other, [Step::Answer(CallId(2), Ok(json!({})))]);
    let mut none = Vec::new();
    client.cancel(CallId(2), "again", &mut none);
    assert!(none.is_empty());
}

#[test]
fn decisions_11_noise_and_answers_to_nothing_change_nothing() {
    let mut client = ready();
    asks(&mut client, 1, &tool("echo"));
    for noise in [
        json!("text"),
        json!(17),
        json!({}),
        json!({"id": null, "error": {"code": -32700, "message": "parse"}}),
        json!({"id": 99, "result": {}}),
        json!({"id": "2", "result": {}}),
        json!({"id": 1.5, "result": {}}),
    ] {
        let steps = hears(&mut client, noise.clone());
        assert!(matches!(&steps[..], [Step::Note(_)]), "{noise}: {steps:?}");
    }
    // A batch, as 2025-03-26 allows: a notification, a request, and the answer.
    let batch =
        json!([{"method": "notifications/message"}, {"id": 2, "method": "ping"}, {"id": 2, "result": {}}]);
    let steps = hears(&mut client, batch);
    assert_eq!(steps.last(), Some(&Step::Answer(CallId(1), Ok(json!({})))));
    for answer in [json!({"id": 3, "result": 7}), json!({"id": 4})] {
        asks(&mut client, 5, &tool("echo"));
        let steps = hears(&mut client, answer);
        assert!(matches!(&steps[..], [Step::Answer(CallId(5), Err(_))]), "{steps:?}");
    }
}

/// Some servers let the client's roots take the place of the folders in their arguments.
#[test]
fn a_server_that_is_not_told_the_project_gets_no_roots() {
    let mut client = Client::new(None);
    let mut steps = Vec::new();
    client.open(&mut steps);
    assert_eq!(written(&steps)[0]["params"]["capabilities"], json!({}));
    client.message(json!({"id": 1, "result": {"protocolVersion": "2025-06-18"}}), &mut Vec::new());
    let steps = hears(&mut client, json!({"jsonrpc": "2.0", "id": "r", "method": "roots/list"}));
    assert_eq!(written(&steps)[0]["error"]["code"], -32601, "{steps:?}");
}
