//! A person comments on lines that an agent wrote, sends that, and the agent's answer ticks it off.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::process::Command;
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
        (json!({"path": "src/a.rs", "line": 1, "side": "both", "text": "x"}), 400),
        (json!({"path": "src/a.rs", "line": 1, "side": "old", "text": "no git, no old text"}), 409),
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
    let is_told = |entry: &Value| {
        let text = entry["text"].as_str().unwrap_or_default();
        entry["type"] == "user" && text.contains("> fn two() {}\ncall it second")
    };
    wait_for("the message in its log", || daemon.log_of(&id).iter().any(is_told).then_some(()));
    daemon.stop();
}

/// In a worktree of its own: what is removed against its base.
#[test]
fn a_comment_on_removed_lines_is_done_when_they_are_there_again() {
    let folder = Folder::new("comments-removed");
    let first = "one\ntwo\nthree\nfour\n";
    folder.write("a.txt", first);
    let git = |args: &[&str]| {
        let done = Command::new("git")
            .args(["-c", "user.email=a@example.org", "-c", "user.name=a"])
            .args(args)
            .current_dir(folder.path())
            .output();
        assert!(done.unwrap().status.success(), "{args:?}");
    };
    git(&["init", "-q", "."]);
    git(&["add", "a.txt"]);
    git(&["commit", "-qm", "start"]);
    let write = |text: &str| json!({"write": {"path": "a.txt", "text": text}});
    let steps = json!([write("zero\none\nfour\n"), {"ask": "Well?"}, write("one\ntwo\nthree\n"), {"answer": "it is back"}]);
    folder.write(".svc/rehearsals/cuts.json", &json!({"steps": steps}).to_string());
    let daemon = Daemon::start_in(Arc::new(folder), &[]);
    let body =
        json!({"role": "dev", "provider": "script", "model": "cuts", "prompt": "x", "isolation": "worktree"});
    let (status, agent) = daemon.send("POST", "/api/agents", &body);
    assert_eq!(status, 201, "{agent}");
    let id = agent["id"].as_str().unwrap().to_owned();
    let diff = |query: &str| {
        daemon.get(&format!("/api/agents/{id}/diff{query}"))["diff"].as_str().unwrap().to_owned()
    };
    wait_for("what it removes", || diff("").contains("-two").then_some(()));
    assert!(diff("?context=0").contains("@@ -2,2 +2,0 @@"), "{}", diff("?context=0"));
    assert_eq!(daemon.send("GET", &format!("/api/agents/{id}/diff?context=-1"), &json!({})).0, 400);
    let place = format!("/api/agents/{id}/comments");
    let on = |line: u64, last: u64| json!({"path": "a.txt", "line": line, "lastLine": last, "side": "old", "text": "needed"});
    for (line, last) in [(1, 2), (3, 4), (9, 9)] {
        assert_eq!(daemon.send("POST", &place, &on(line, last)).0, 404, "{line}-{last}");
    }
    assert_eq!(daemon.send("POST", &place, &on(2, 3)).0, 201);
    let one = || comments(&daemon, &id)[0].clone();
    assert_eq!(
        (&one()["quote"], &one()["changed"], &one()["stands"]),
        (&json!("two\nthree"), &json!(false), &json!(2))
    );
    assert_eq!(daemon.send("POST", &format!("{place}/send"), &json!({})).0, 200);
    wait_for("its answer to tick it off", || (one()["state"] == "done").then_some(()));
    daemon.stop();
}

/// The person sees the file of the project, the agent has moved its lines.
#[test]
fn a_comment_is_on_the_same_lines_where_they_stand_in_the_agents_worktree() {
    let folder = Folder::new("comments-moved");
    folder.write("a.txt", "one\n  two\nthree\nfour\n");
    let git = |args: &[&str]| {
        let who = ["-c", "user.email=a@example.org", "-c", "user.name=a"];
        let done = Command::new("git").args(who).args(args).current_dir(folder.path()).output();
        assert!(done.unwrap().status.success(), "{args:?}");
    };
    git(&["init", "-q", "."]);
    git(&["add", "a.txt"]);
    git(&["commit", "-qm", "start"]);
    let write = json!({"write": {"path": "a.txt", "text": "zero\nhalf\none\n  two\nthree\n4\n"}});
    let steps = json!([write, {"ask": "Well?"}, {"answer": "good"}]);
    folder.write(".svc/rehearsals/moves.json", &json!({"steps": steps}).to_string());
    let daemon = Daemon::start_in(Arc::new(folder), &[]);
    let mut body = json!({"role": "dev", "provider": "script", "model": "moves", "prompt": "x"});
    body["isolation"] = json!("worktree");
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    let diff = || daemon.get(&format!("/api/agents/{id}/diff"))["diff"].as_str().unwrap().to_owned();
    wait_for("what it writes", || diff().contains("+zero").then_some(()));
    let says = |line: u64, last: u64, quote: &str| {
        let body = json!({"path": "a.txt", "line": line, "lastLine": last, "quote": quote, "text": "why?"});
        daemon.send("POST", &format!("/api/agents/{id}/comments"), &body)
    };
    let (status, said) = says(2, 3, "  two\nthree");
    assert_eq!((status, &said["line"], &said["lastLine"]), (201, &json!(4), &json!(5)), "{said}");
    assert_eq!(said["quote"], "  two\nthree");
    for (line, quote) in [(4, "four"), (2, "two")] {
        let (status, said) = says(line, line, quote);
        assert_eq!((status, &said["code"]), (409, &json!("lines_differ")), "{said}");
    }
    let (status, said) = says(2, 2, &"x".repeat(8001));
    assert_eq!((status, &said["errors"][0]["field"]), (400, &json!("quote")), "{said}");
    // Without it the numbers are the agent's own.
    assert_eq!((says(6, 6, "").1["quote"].clone(), says(7, 7, "").0), (json!("4"), 404));
    daemon.stop();
}
