//! A fork has a copy of the session where the real program lets one go on in another folder: from behind the
//! last turn, and from before an earlier one with what stood there by then and nothing of what came after.
//! The one that it was made of keeps its own.

use crate::real_clis::Stage;
use crate::support::aimock::{Aimock, Cli};
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(90);
/// What the script answers to the same words, by how many answers it sees before them, and its figures.
const ANSWERS: [(&str, u64); 4] = [
    ("This is an answer that sees none before it.", 2000 + 20),
    ("This is an answer that sees one before it.", 2100 + 21),
    ("This is an answer that sees two before it.", 2200 + 22),
    ("This is an answer that sees three before it.", 2300 + 23),
];
/// A word that a person says in each turn.
const WORDS: [&str; 3] = ["kiwi", "mango", "papaya"];

/// A repository, for a fork needs one.
fn commit(stage: &Stage) {
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
}

/// Says something to an agent that has ended, and waits for the turn; its id from then on.
fn says(stage: &Stage, id: &str, words: &str) -> String {
    let resumed = stage.daemon.post(&format!("/api/agents/{id}/resume"), &json!({"message": words}));
    let id = resumed["agent"]["id"].as_str().unwrap().to_owned();
    stage.completed(&id);
    id
}

/// What its program has asked the scripted endpoint, oldest first.
fn asked(stage: &Stage) -> Vec<Value> {
    stage.aimock.as_ref().map(Aimock::asked).unwrap_or_default()
}

/// The last words of the script in an agent's log.
fn answer(stage: &Stage, id: &str) -> String {
    wait_within(LIMIT, "its answer", || {
        let log = stage.daemon.get(&format!("/api/agents/{id}/log?tail=1000"));
        let said = log["entries"].as_array()?.iter().filter(|entry| entry["type"] == "text");
        let mut said = said.filter_map(|entry| entry["text"].as_str());
        said.rfind(|text| text.starts_with("This is")).map(str::to_owned)
    })
}

/// Forks an agent that has had three turns; what each fork remembers, counts, and goes on in.
fn a_fork_remembers(cli: Cli) {
    let Some(stage) = Stage::with_endpoint(cli) else { return };
    commit(&stage);
    let first = stage.spawn(&format!("REAL-PLAIN, {}", WORDS[0]), "full");
    stage.completed(&first);
    let second = says(&stage, &first, &format!("Please do REAL-SECOND, {}", WORDS[1]));
    let id = says(&stage, &second, &format!("Once more REAL-SECOND, {}", WORDS[2]));
    let session = |id: &str| stage.daemon.get(&format!("/api/agents/{id}"))["sessionId"].clone();
    let kept = session(&id);
    assert_eq!(session(&first), kept, "all of it in one session");
    let fork = |more: Value| {
        let mut wish = json!({"prompt": "And now REAL-DEPTH, please."});
        wish.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let forked = stage.daemon.post(&format!("/api/agents/{id}/fork"), &wish);
        let new = forked["id"].as_str().unwrap().to_owned();
        let record = stage.completed(&new);
        assert_ne!(session(&new), kept, "a session of its own: {record:#}");
        (new.clone(), answer(&stage, &new), record["tokensUsed"].as_u64().unwrap())
    };
    let sees = |more: Value, turns: usize, why: &str| {
        let before = asked(&stage).len();
        let (new, said, tokens) = fork(more);
        assert_eq!((said.as_str(), tokens), ANSWERS[turns], "{why}: {}", stage.daemon.log());
        (new, Value::from(asked(&stage).split_off(before)).to_string())
    };
    sees(json!({"fresh": true}), 0, "with a brief alone");
    sees(json!({}), 3, "from behind its last turn");
    sees(json!({"turn": 1}), 0, "from before its first turn");
    let (third, asked) = sees(json!({"turn": 3}), 2, "from before its third turn");
    assert!(asked.contains(WORDS[1]) && !asked.contains(WORDS[2]), "{asked}");
    let (new, asked) = sees(json!({"turn": 2}), 1, "from before its second turn");
    assert!(asked.contains(WORDS[0]) && !asked.contains(WORDS[1]) && !asked.contains(WORDS[2]), "{asked}");
    // It goes on in that session, as any agent does in its own, and may be forked again.
    let again = says(&stage, &new, "Then REAL-DEPTH.");
    assert_eq!((answer(&stage, &again).as_str(), session(&again)), (ANSWERS[2].0, session(&new)));
    let told = stage.daemon.get(&format!("/api/agents/{again}"));
    assert_eq!(told["tokensUsed"], ANSWERS[1].1 + ANSWERS[2].1, "{told:#}");
    let wish = json!({"turn": 2, "prompt": "And now REAL-DEPTH, please."});
    let of_it = stage.daemon.post(&format!("/api/agents/{again}/fork"), &wish);
    let of_it = of_it["id"].as_str().unwrap();
    stage.completed(of_it);
    assert_eq!(answer(&stage, of_it), ANSWERS[2].0);
    assert_ne!(session(&third), session(&new));
    assert_eq!(session(&id), kept, "the other one stays as it is");
    let last = says(&stage, &id, "And REAL-DEPTH.");
    assert_eq!((answer(&stage, &last).as_str(), session(&last)), (ANSWERS[3].0, kept));
}

#[test]
fn claude() {
    a_fork_remembers(Cli::Claude);
}

#[test]
fn codex() {
    a_fork_remembers(Cli::Codex);
}
