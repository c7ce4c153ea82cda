//! A person comments on lines that an agent wrote, sends that, and the agent's answer ticks it off.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::sync::Arc;

fn comments(daemon: &Daemon, id: &str) -> Vec<Value> {
    daemon.get(&format!("/api/agents/{id}/comments"))["comments"].as_array().unwrap().clone()
}

#[test]
fn a_comment_reaches_the_agent_and_is_done_when_it_has_changed_the_lines() {
    let folder = Folder::new("comments");
    let write = |text: &str| json!({"write": {"path": "src/a.rs", "text": text}});
    let steps = json!([write("fn one() {}\nfn two() {}\nfn three() {}\n"), {"waitForFile": {"path": "go"}}, {"answer": "written"}]);
    let on_say =
        json!([write("fn one() {}\nfn second() {}\nfn three() {}\n"), {"answer": "I was told: {{message}}"}]);
    folder.write(".svc/rehearsals/writes.json", &json!({"steps": steps, "onSay": on_say}).to_string());
    let folder = Arc::new(folder);
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("writes");
    wait_for("what it writes", || folder.path().join("src/a.rs").exists().then_some(()));
    let place = format!("/api/agents/{id}/comments");
    let on = |line: u64, text: &str| json!({"path": "src/a.rs", "line": line, "text": text});
    assert_eq!(daemon.send("POST", &place, &on(2, "call it second")).0, 201);
    assert_eq!(daemon.send("POST", &place, &on(3, "fine")).0, 201);
    for (body, code) in [
        (on(4, "there is none"), 404),
        (json!({"path": "../a.rs", "line": 1, "text": "x"}), 400),
        (json!({"path": ".svc/token", "line": 1, "text": "x"}), 403),
        (json!({"path": "src/a.rs", "line": 3, "lastLine": 2, "text": "x"}), 400),
        (json!({"path": "src/a.rs", "line": 1, "text": " "}), 400),
    ] {
        let (status, said) = daemon.send("POST", &place, &body);
        assert_eq!(status, code, "{body}: {said}");
    }
    let states = |id: &str| {
        let state = |comment: &Value| comment["state"].as_str().unwrap().to_owned();
        comments(&daemon, id).iter().map(state).collect::<Vec<_>>()
    };
    assert_eq!(states(&id), ["open", "open"]);
    assert_eq!(comments(&daemon, &id)[0]["quote"], "fn two() {}");
    let (status, sent) = daemon.send("POST", &format!("{place}/send"), &json!({}));
    assert_eq!(status, 200, "{sent}");
    assert_eq!((&sent["agentId"], states(&id)), (&json!(id), vec!["sent".to_owned(), "sent".to_owned()]));
    folder.write("go", "");
    wait_for("its answer to tick the first off", || (states(&id) == ["done", "sent"]).then_some(()));
    let told = daemon.log_of(&id).iter().any(|entry| {
        entry["type"] == "user"
            && entry["text"].as_str().unwrap_or_default().contains("> fn two() {}\ncall it second")
    });
    assert!(told, "{:?}", daemon.log_of(&id));
    daemon.stop();
}
