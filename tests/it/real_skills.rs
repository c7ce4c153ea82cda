//! The real agent programs see a skill that the daemon installed from a running marketplace (issue: "the real
//! agent CLI sees the installed skill").
//!
//! The skill's own words stand nowhere but in the front matter of its `SKILL.md`: the marketplace lists other
//! words, and only these are in the daemon's briefing. So where the skill's own words are in the request that
//! a program sends to its model, the program has found the file by itself, in the folder that it reads.
//!
//! `tests/real/setup` installs the programs. Without it these tests say that they were skipped, and fail
//! where `SVC_REAL_CLIS=require`.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::market::Market;
use crate::support::tap::Tap;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A turn of the slowest program takes 10 s on an idle machine.
const LIMIT: Duration = Duration::from_secs(90);
const ID: &str = "quartz-sorting";
/// In the front matter of the skill's file, and nowhere else.
const OWN_WORDS: &str = "Sorts quartz by hue under moonlight.";
/// What the marketplace lists, and the briefing tells.
const LISTED_WORDS: &str = "Listed for the sorting of minerals.";

/// Creates and publishes the skill.
fn publish(market: &Market) {
    let content = format!(
        "---\nname: {ID}\ndescription: {OWN_WORDS} Use when somebody mentions quartz.\n---\n\n# Quartz\n\nBring a lamp.\n"
    );
    let body = json!({
        "name": "Quartz Sorting", "description": LISTED_WORDS, "category": "quality", "content": content,
    });
    let made = market.write("POST", "/api/v1/skills", &body);
    assert_eq!((made.status, &made.json()["id"]), (201, &json!(ID)), "{}", made.text);
    let published = market.write("POST", &format!("/api/v1/skills/{ID}/publish"), &Value::Null);
    assert_eq!(published.status, 200, "{}", published.text);
}

fn daemon_for(cli: Cli, market: &Market, home: &Home, endpoint: &str, project: Arc<Folder>) -> Daemon {
    let config = json!({"skills": {"baseUrl": format!("http://{}/api/v1", market.address)}});
    project.write(".svc/config.json", &config.to_string());
    let variables = home.variables(cli, endpoint);
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let daemon = Daemon::start_in(project, &variables);
    wait_within(LIMIT, "the provider to be detected", || {
        let providers = daemon.get("/api/providers");
        let mine = providers.as_array()?.iter().find(|p| p["id"] == cli.provider())?;
        (mine["installed"] == true).then_some(())
    });
    daemon
}

/// Runs one turn; what the program sent to its model meanwhile.
fn sent_in_a_turn(cli: Cli, daemon: &Daemon, tap: &Tap, skills: &[&str]) -> String {
    let before = tap.sent().len();
    let mut body = json!({
        "role": "builder", "provider": cli.provider(), "permission": "auto",
        "prompt": "Please do REAL-PLAIN now.", "skills": skills,
    });
    if let Some(model) = cli.model() {
        body["model"] = json!(model);
    }
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    let record = wait_within(LIMIT, "the agent to end", || {
        let record = daemon.get(&format!("/api/agents/{id}"));
        (record["status"] != "active").then_some(record)
    });
    assert_eq!(record["status"], "completed", "{record}\n{}", daemon.log());
    tap.sent().split_off(before)
}

fn the_installed_skill_is_in_the_request_to_the_model(cli: Cli) {
    if !cli.is_here() {
        return;
    }
    let market = Market::start(&[]);
    publish(&market);
    let project = Arc::new(Folder::new("real-skills"));
    let aimock = Aimock::start(project.path());
    let tap = Tap::start(&aimock.url);
    let home = Home::new(&tap.url);
    let daemon = daemon_for(cli, &market, &home, &tap.url, project);
    let installed = daemon.post(&format!("/api/skills/{ID}/install"), &json!({}));
    assert_eq!(installed["source"], "live", "{installed}");

    let without = sent_in_a_turn(cli, &daemon, &tap, &[]);
    assert!(without.contains("REAL-PLAIN"), "the tap hears the program");
    assert!(!without.contains(OWN_WORDS), "an agent without it does not see it");
    let with = sent_in_a_turn(cli, &daemon, &tap, &[ID]);
    assert!(with.contains(LISTED_WORDS), "the briefing tells of it");
    let at = with.find(OWN_WORDS).unwrap_or_else(|| {
        panic!("{} does not tell its model of the skill\n{}", cli.provider(), daemon.log())
    });
    let before: Vec<char> = with[..at].chars().rev().take(80).collect();
    let around: String = before.into_iter().rev().chain(with[at..].chars().take(80)).collect();
    assert!(around.contains(ID), "its name stands beside its description: {around}");
    eprintln!("{} tells its model: {around}", cli.provider());
}

#[test]
fn claude_sees_the_installed_skill() {
    the_installed_skill_is_in_the_request_to_the_model(Cli::Claude);
}

#[test]
fn codex_sees_the_installed_skill() {
    the_installed_skill_is_in_the_request_to_the_model(Cli::Codex);
}

#[test]
fn gemini_sees_the_installed_skill() {
    the_installed_skill_is_in_the_request_to_the_model(Cli::Gemini);
}

#[test]
fn opencode_sees_the_installed_skill() {
    the_installed_skill_is_in_the_request_to_the_model(Cli::OpenCode);
}
