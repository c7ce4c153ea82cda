//! Sessions that a person has with the real programs, outside of the daemon: listed, adopted, gone on with.

use crate::real_clis::Stage;
use crate::support::aimock::Cli;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);
/// The endpoint's figures: a turn with a tool, and a second one in the same session.
const TOOL_TURN_TOKENS: u64 = 1500 + 40 + 1600 + 25;
const SECOND_TOKENS: u64 = 2100 + 21;
/// Answered only where the request has the first answer in it.
const SECOND_ANSWER: &str = "This is the answer to the second message.";

/// A person runs the program itself, in the project.
fn by_hand(stage: &Stage, word: &str) {
    let prompt = format!("Please do {word} now.");
    let (program, args): (&str, Vec<&str>) = match stage.cli {
        Cli::Claude => {
            ("claude", vec!["-p", "--model", "claude-opus-5-5", "--dangerously-skip-permissions", &prompt])
        }
        Cli::Codex => ("codex", vec!["exec", "--skip-git-repo-check", "-s", "danger-full-access", &prompt]),
        Cli::Gemini => {
            ("gemini", vec!["--skip-trust", "--approval-mode", "yolo", "-m", "gemini-2.5-pro", "-p", &prompt])
        }
        _ => ("opencode", vec!["run", "--auto", "--model", "aimock/gpt-4o", &prompt]),
    };
    let output = Command::new(program)
        .args(args)
        .envs(stage.variables.iter().map(|(name, value)| (*name, value)))
        .current_dir(&stage.daemon.project)
        // As a shell does; opencode believes it.
        .env("PWD", stage.daemon.project.as_os_str())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A program that is asked itself may not answer in time on a busy machine; then a note says so.
fn sessions(stage: &Stage) -> Vec<Value> {
    wait_within(LIMIT, "all to have told their sessions", || {
        let answer = stage.daemon.get("/api/sessions");
        (answer["notes"] == json!([])).then(|| answer["sessions"].as_array().unwrap().clone())
    })
}

fn a_session_of_a_person_is_listed_adopted_and_gone_on_with(cli: Cli) {
    let Some(stage) = Stage::with_endpoint(cli) else { return };
    assert_eq!(sessions(&stage), Vec::<Value>::new());
    by_hand(&stage, "REAL-WRITE");
    let found = sessions(&stage);
    let [session] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!(session["provider"], cli.provider());
    assert!(session["words"].as_str().unwrap().contains("Please do REAL-WRITE now."), "{session:#}");
    assert_eq!((&session["turns"], &session["tokens"]), (&json!(1), &json!(TOOL_TURN_TOKENS)), "{session:#}");
    assert_eq!((&session["agentId"], &session["pid"]), (&Value::Null, &Value::Null), "{session:#}");

    let id = session["id"].as_str().unwrap();
    let found_in = |query: &str| {
        let answer = stage.daemon.get(&format!("/api/sessions/search?q={query}"));
        let hits = answer["hits"].as_array().unwrap().clone();
        assert!(
            hits.iter().all(|hit| hit["sessionId"] == id && hit["provider"] == cli.provider()),
            "{answer:#}"
        );
        hits.len()
    };
    assert!(found_in("real-write") > 0 && found_in("%22I+wrote+written.txt%22&in=text") > 0, "what was said");
    assert!(found_in("written.txt&in=tool") > 0, "what a tool was given");
    assert_eq!((found_in("zeppelin"), found_in("real-write&since=2999-01-01T00:00:00Z")), (0, 0));
    let wish = json!({"name": "mine", "permission": "full", "scope": ["src/**"]});
    let agent = stage.daemon.post(&format!("/api/sessions/{id}/adopt"), &wish);
    assert_eq!((&agent["state"], &agent["statusCode"]), (&json!("waiting"), &json!("adopted")), "{agent:#}");
    assert_eq!(agent["tokensUsed"], TOOL_TURN_TOKENS, "{agent:#}");
    assert_eq!((&agent["sessionId"], &agent["scope"]), (&session["id"], &wish["scope"]));
    let summary = stage.daemon.get("/api/tokens/summary");
    assert!(summary.to_string().contains(&TOOL_TURN_TOKENS.to_string()), "the ledger has it: {summary:#}");
    let log = stage.daemon.get("/api/agents/mine/log?tail=1000");
    let place = |kind: &str, words: &str| {
        let entries = log["entries"].as_array().unwrap();
        entries.iter().position(|entry| entry["type"] == kind && entry.to_string().contains(words))
    };
    let places = [
        place("user", "REAL-WRITE"),
        place("tool-started", "written.txt"),
        place("text", "I wrote written.txt."),
        place("life", "adopted"),
    ];
    assert!(places.is_sorted() && places[0].is_some(), "{places:?} {log:#}");
    let files = stage.daemon.get("/api/agents/mine/files");
    assert!(files.to_string().contains("written.txt"), "{files:#}");
    assert_eq!(sessions(&stage)[0]["agentName"], "mine");
    assert_eq!(found_in("real-write"), 0, "it is an agent's, and stands in its log");
    let (status, refused) = stage.daemon.send("POST", &format!("/api/sessions/{id}/adopt"), &json!({}));
    assert_eq!((status, &refused["code"]), (409, &json!("session_owned")), "{refused}");

    let say = json!({"message": "Please do REAL-SECOND now."});
    stage.daemon.post("/api/agents/mine/instruct", &say);
    let ended = wait_within(LIMIT, "the second turn", || {
        let record = stage.daemon.get("/api/agents/mine");
        ["completed", "crashed"].contains(&record["state"].as_str()?).then_some(record)
    });
    let log = stage.daemon.get("/api/agents/mine/log?tail=1000");
    assert_eq!(ended["state"], "completed", "{ended:#} {log:#}");
    assert_eq!(ended["sessionId"], session["id"]);
    assert!(log.to_string().contains(SECOND_ANSWER), "the whole conversation was there: {log:#}");
    assert_eq!(ended["tokensUsed"], TOOL_TURN_TOKENS + SECOND_TOKENS, "{ended:#}");
}

#[test]
fn claude() {
    a_session_of_a_person_is_listed_adopted_and_gone_on_with(Cli::Claude);
}

#[test]
fn codex() {
    a_session_of_a_person_is_listed_adopted_and_gone_on_with(Cli::Codex);
}

#[test]
fn gemini() {
    a_session_of_a_person_is_listed_adopted_and_gone_on_with(Cli::Gemini);
}

#[test]
fn opencode() {
    a_session_of_a_person_is_listed_adopted_and_gone_on_with(Cli::OpenCode);
}
