//! A fork from behind the last turn has a copy of the session where the real program lets one go on in
//! another folder; the one that it was made of keeps its own.

use crate::real_clis::Stage;
use crate::support::aimock::Cli;
use crate::support::wait::wait_within;
use serde_json::json;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);
/// What the script answers to the same words where it sees an earlier turn, and where it sees none.
const REMEMBERS: &str = "This is the answer to the second message.";
const ALONE: &str = "This is the answer to the second message, asked without a first one.";

/// Forks an agent that has had a turn; what the fork answers and uses, with and without a copy.
fn a_fork_remembers(cli: Cli) {
    let Some(stage) = Stage::with_endpoint(cli) else { return };
    let git = |args: &[&str]| {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let said =
            Command::new("git").current_dir(&stage.daemon.project).args(who).args(args).output().unwrap();
        assert!(said.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said.stderr));
    };
    git(&["init", "--quiet", "-b", "main"]);
    std::fs::write(stage.daemon.project.join("a.txt"), "a\n").unwrap();
    git(&["add", "a.txt"]);
    git(&["commit", "--quiet", "-m", "First"]);
    let id = stage.spawn("REAL-PLAIN", "full");
    let first = stage.completed(&id);
    let session = |id: &str| stage.daemon.get(&format!("/api/agents/{id}"))["sessionId"].clone();
    let kept = session(&id);
    let fork = |more: serde_json::Value| {
        let mut wish = json!({"prompt": "And now REAL-SECOND, please."});
        wish.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let forked = stage.daemon.post(&format!("/api/agents/{id}/fork"), &wish);
        let new = forked["id"].as_str().unwrap().to_owned();
        let record = stage.completed(&new);
        let log = || stage.daemon.get(&format!("/api/agents/{new}/log?tail=1000"))["entries"].clone();
        let answer = wait_within(LIMIT, "its answer", || {
            let entries = log();
            let said = entries.as_array()?.iter().filter(|entry| entry["type"] == "text");
            said.filter_map(|entry| entry["text"].as_str())
                .find(|text| text.starts_with("This is"))
                .map(str::to_owned)
        });
        assert_ne!(session(&new), kept, "a session of its own: {record:#}");
        (answer, record["tokensUsed"].as_u64().unwrap())
    };
    assert_eq!(first["tokensUsed"], 1200 + 34, "{first:#}");
    let (answer, tokens) = fork(json!({}));
    assert_eq!((answer.as_str(), tokens), (REMEMBERS, 2100 + 21), "from behind its last turn");
    assert_eq!(fork(json!({"fresh": true})), (ALONE.to_owned(), 2000 + 20), "with a brief alone");
    assert_eq!(fork(json!({"turn": 1})), (ALONE.to_owned(), 2000 + 20), "from before its turn");
    assert_eq!(session(&id), kept, "the other one stays as it is");
}

#[test]
fn claude() {
    a_fork_remembers(Cli::Claude);
}

#[test]
fn codex() {
    a_fork_remembers(Cli::Codex);
}
