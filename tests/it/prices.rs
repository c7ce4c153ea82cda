//! Prices as people replace them: the built daemon, its command line, a kill in between.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::sync::Arc;

/// The output of `svc ARGS` for this daemon, and whether it went well.
fn svc(daemon: &Daemon, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).current_dir(&daemon.project).env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL");
    let output = command.output().unwrap();
    let told =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success(), told)
}

fn input(daemon: &Daemon, model: &str) -> Value {
    let prices = daemon.get("/api/prices");
    let row = prices["models"].as_array().unwrap().iter().find(|row| row["id"] == model).cloned();
    row.map_or(Value::Null, |row| row["input"].clone())
}

#[test]
fn prices_are_replaced_from_a_file_without_a_release_and_survive_a_kill() {
    let mut daemon = Daemon::start_in(Arc::new(Folder::new("prices")), &[]);
    let (well, told) = svc(&daemon, &["prices"]);
    assert!(
        well && told.contains("claude-opus-5-5") && told.contains("built-in prices as of 2026-"),
        "{told}"
    );
    let file = daemon.project.join("prices.json");
    let path = file.to_str().unwrap();
    // What it tells can be edited and given back.
    let (_, told) = svc(&daemon, &["prices", "--json"]);
    let mut table: Value = serde_json::from_str(&told).unwrap();
    table["source"] = json!("our contract");
    table["models"][0]["input"] = json!("cheap");
    fs::write(&file, table.to_string()).unwrap();
    let (well, told) = svc(&daemon, &["prices", "update", path]);
    let id = table["models"][0]["id"].as_str().unwrap().to_owned();
    assert!(!well && told.contains(&format!("models[0].input ({id}) must be 0 to 10000")), "{told}");
    assert_eq!(daemon.get("/api/prices")["isGiven"], false);
    table["models"][0]["input"] = json!(0.123);
    fs::write(&file, table.to_string()).unwrap();
    let (well, told) = svc(&daemon, &["prices", "update", path]);
    assert!(well && told.contains("given prices as of") && told.contains("our contract"), "{told}");
    assert_eq!(input(&daemon, &id), json!(0.123));
    daemon.kill();
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    assert_eq!(input(&daemon, &id), json!(0.123), "the disk had it before it was answered");
    let (well, told) = svc(&daemon, &["prices", "update", "--reset"]);
    assert!(well && told.contains("built-in prices as of"), "{told}");
    assert_ne!(input(&daemon, &id), json!(0.123));
    let entries = daemon.get("/api/audit?event=prices.update");
    assert_eq!(entries["entries"].as_array().unwrap().len(), 1, "{entries}");
    for (words, fault) in [
        (&["prices", "update"][..], "usage: svc prices"),
        (&["prices", "update", "nowhere.json"], "nowhere.json: "),
        (&["prices", "update", "/dev/zero"], "at most 1 MiB"),
    ] {
        let (well, told) = svc(&daemon, words);
        assert!(!well && told.contains(fault), "{words:?}: {told}");
    }
}
