//! The real agent programs work on while their daemon is killed again and again: one turn, each line once,
//! every token once. Skipped, and said so, where they are not installed; see `real_clis.rs`.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::daemon::Daemon;
use crate::support::dice::Dice;
use crate::support::folder::Folder;
use crate::support::processes::{keepers_of, of_project};
use crate::support::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A turn of the slowest program takes 4 s on an idle machine.
const LIMIT: Duration = Duration::from_secs(90);
/// The endpoint's figures for a turn with a tool in it: two calls.
const TOKENS: (u64, u64) = (1500 + 1600, 40 + 25);
const KILLS: usize = 12;

#[test]
fn codex_works_on_while_its_daemon_is_killed() {
    works_on_while_its_daemon_is_killed(Cli::Codex);
}

#[test]
fn opencode_works_on_while_its_daemon_is_killed() {
    works_on_while_its_daemon_is_killed(Cli::OpenCode);
}

fn works_on_while_its_daemon_is_killed(cli: Cli) {
    if !cli.is_here() {
        return;
    }
    let folder = Arc::new(Folder::new("real-kills"));
    let aimock = Aimock::start(folder.path());
    let home = Home::new(&aimock.url);
    let variables = home.variables(cli, &aimock.url);
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &variables);
    let mut body = json!({
        "role": "builder", "provider": cli.provider(), "permission": "full", "prompt": "Please do REAL-WRITE now.",
    });
    if let Some(model) = cli.model() {
        body["model"] = json!(model);
    }
    let id = wait_within(LIMIT, "the program to be found", || {
        let (status, record) = daemon.send("POST", "/api/agents", &body);
        (status == 201).then(|| record["id"].as_str().unwrap().to_owned())
    });
    let mut dice = Dice::seeded(14);
    for _ in 0..KILLS {
        let fate = Instant::now() + Duration::from_micros(dice.below(400_000));
        wait_for("the moment", || (Instant::now() >= fate).then_some(()));
        daemon.kill();
        daemon = Daemon::start_in(Arc::clone(&folder), &variables);
    }
    let record = wait_within(LIMIT, "its end", || {
        let record = daemon.get(&format!("/api/agents/{id}"));
        (record["status"] != "active").then_some(record)
    });
    assert_eq!(record["state"], "completed", "{record}\n{}", daemon.log());
    assert_eq!(record["turns"], 1, "{record}");
    let told = (&record["tokens"]["input"], &record["tokens"]["output"]);
    assert_eq!(told, (&json!(TOKENS.0), &json!(TOKENS.1)), "{record}");
    let log = daemon.get(&format!("/api/agents/{id}/log"));
    let entries = log["entries"].as_array().unwrap();
    let count = |is: &dyn Fn(&Value) -> bool| entries.iter().filter(|entry| is(entry)).count();
    for kind in ["user", "tool-started", "tool-ended", "turn-ended"] {
        assert_eq!(count(&|entry| entry["type"] == kind), 1, "{kind} in {log}");
    }
    let says =
        |entry: &Value| entry["type"] == "text" && entry["text"].to_string().contains("I wrote written.txt");
    assert_eq!(count(&says), 1, "{log}");
    wait_for("the keeper to go", || keepers_of(folder.path()).is_empty().then_some(()));
    assert_eq!(daemon.stop(), Some(0));
    assert!(of_project(folder.path()).is_empty());
}
