//! A person comments on lines that a real program wrote: it hears of them in its session, its edit changes
//! some of these lines, and their comments are done.

use crate::real_clis::Stage;
use crate::support::aimock::Cli;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);
/// What the script answers behind the edit.
const ANSWER: &str = "The second line is called second.";

fn a_comment_is_ticked_off_by_the_answer(cli: Cli) {
    let Some(stage) = Stage::with_endpoint(cli) else { return };
    let id = stage.spawn("REAL-WRITE", "full");
    stage.completed(&id);
    let place = format!("/api/agents/{id}/comments");
    let on = |line: u64, text: &str| json!({"path": "written.txt", "line": line, "text": text});
    stage.daemon.post(&place, &on(2, "REAL-AMEND: call it second"));
    stage.daemon.post(&place, &on(3, "this may stay"));
    let comments = || stage.daemon.get(&place)["comments"].as_array().unwrap().clone();
    let states =
        || comments().iter().map(|one| one["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(states(), ["open", "open"]);
    let sent = stage.daemon.post(&format!("{place}/send"), &json!({"message": "Before we merge:"}));
    assert_eq!(sent["sent"], json!([1, 2]), "{sent:#}");

    let log = || stage.daemon.get(&format!("/api/agents/{id}/log?tail=1000"))["entries"].clone();
    let logged = |kind: &str, words: &str| {
        let is_it = |entry: &Value| entry["type"] == kind && entry.to_string().contains(words);
        log().as_array().unwrap().iter().any(is_it)
    };
    wait_within(LIMIT, "the answer", || logged("text", ANSWER).then_some(()));
    stage.completed(&id);
    let written = fs::read_to_string(stage.daemon.project.join("written.txt")).unwrap();
    assert_eq!(written, "one\nsecond\nthree\n", "{:#}", log());
    assert_eq!(states(), ["done", "sent"], "{:#}", log());
    assert!(comments().iter().all(|one| one["doneAt"].is_null()), "no person ticked one: {:#?}", comments());
    assert!(logged("user", "Before we merge:\\n\\nComments on your work."), "{:#}", log());
    assert!(logged("user", "> two\\nREAL-AMEND: call it second"), "{:#}", log());
}

#[test]
fn claude() {
    a_comment_is_ticked_off_by_the_answer(Cli::Claude);
}

#[test]
fn codex() {
    a_comment_is_ticked_off_by_the_answer(Cli::Codex);
}

#[test]
fn gemini() {
    a_comment_is_ticked_off_by_the_answer(Cli::Gemini);
}

#[test]
fn opencode() {
    a_comment_is_ticked_off_by_the_answer(Cli::OpenCode);
}
