//! A key of the vault on another machine: it goes where a person has granted it, into the environment of the
//! program there, and nowhere else.

use crate::runners::{Host, add, agent, check, executable, repository, wait_finished};
use crate::support::daemon::Daemon;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const KEY: &str = "sk-ant-0granted0granted0granted0granted0";
/// As `claude setup-token` prints one.
const LOGIN: &str = "sk-ant-oat01-0granted0granted0granted";

/// Stands in for Claude Code: says how its key ends, and stays until there is a file.
const CLAUDE: &str = r#"#!/usr/bin/env python3
import json, os, sys, time
def say(**what): print(json.dumps(what), flush=True)
for line in sys.stdin:
    if json.loads(line).get("type") != "user": continue
    say(type="system", subtype="init", session_id="s1", model="m", tools=[])
    name, value = "key", os.environ.get("ANTHROPIC_API_KEY", "")
    if not value and "CLAUDE_CODE_OAUTH_TOKEN" in os.environ: name, value = "login", os.environ["CLAUDE_CODE_OAUTH_TOKEN"]
    text = name + ": " + (value[-4:] or "none") + " " + str(len(value))
    say(type="assistant", session_id="s1", message={"id": "m1", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 1, "output_tokens": 1}})
    while not os.path.exists(os.environ["HOME"] + "/go"): time.sleep(0.02)
    say(type="result", subtype="success", is_error=False, result=text, session_id="s1", num_turns=1,
        usage={"input_tokens": 1, "output_tokens": 1}, total_cost_usd=0)
"#;

fn spawn(daemon: &Daemon, name: &str) {
    let body =
        json!({"role": "dev", "name": name, "provider": "claude-code", "prompt": "work", "runner": "box"});
    daemon.post("/api/agents", &body);
}

fn said(daemon: &Daemon, name: &str) -> String {
    wait_within(Duration::from_secs(60), "its words", || {
        let log = daemon.get(&format!("/api/agents/{name}/log?tail=100"));
        let entries = log["entries"].as_array()?.clone();
        let text = entries.iter().find(|entry| entry["type"] == "text")?;
        text["text"].as_str().map(str::to_owned)
    })
}

/// Programs in whose command line, or environment, the key is.
fn holders(what: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(bytes) = fs::read(entry.path().join(what)) else { continue };
        if String::from_utf8_lossy(&bytes).contains(KEY) {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    found
}

fn files_with_key(folder: &Path) -> String {
    let found = Command::new("grep").args(["-rlaF", KEY]).arg(folder).output().unwrap();
    String::from_utf8_lossy(&found.stdout).into_owned()
}

#[test]
fn a_key_goes_where_it_is_granted_into_the_programs_environment_and_nowhere_else() {
    let Some(host) = Host::start() else { return };
    fs::create_dir_all(host.home().join(".local/bin")).unwrap();
    executable(&host.home().join(".local/bin/claude"), CLAUDE);
    // Here it is, too: a provider has to be known.
    executable(&host.path("bin/claude"), CLAUDE);
    let folder = repository(1, 1);
    let daemon = host.daemon(std::sync::Arc::clone(&folder));
    wait_within(Duration::from_secs(30), "the stand-in to be found", || {
        let providers = daemon.get("/api/providers");
        let found = |one: &Value| one["id"] == "claude-code" && one["installed"] == true;
        providers.as_array().unwrap().iter().any(found).then_some(())
    });
    add(&daemon, "box", "box");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    let grants = "/api/runners/box/grants";
    let (status, told) = daemon.send("POST", grants, &json!({"provider": "claude-code"}));
    assert_eq!((status, &told["code"]), (409, &json!("no_key")), "{told}");
    daemon.post("/api/credentials", &json!({"provider": "claude-code", "key": KEY}));
    // Without a grant nothing of the vault goes.
    fs::write(host.home().join("go"), "").unwrap();
    spawn(&daemon, "without");
    assert_eq!(said(&daemon, "without"), "key: none 0");
    wait_finished(&daemon, "without");
    for (body, status) in [
        (json!({"provider": "script"}), 400),
        (json!({"provider": "nobody"}), 400),
        (json!({"provider": "claude-code", "account": "none"}), 400),
        (json!({}), 400),
    ] {
        assert_eq!(daemon.send("POST", grants, &body).0, status, "{body}");
    }
    let shown = daemon.post(grants, &json!({"provider": "claude-code"}));
    assert_eq!(shown["grants"][0]["provider"], "claude-code", "{shown:#}");
    fs::remove_file(host.home().join("go")).unwrap();
    spawn(&daemon, "with");
    let own = format!("key: {} {}", &KEY[KEY.len() - 4..], KEY.len());
    assert_eq!(said(&daemon, "with"), own);
    // While it runs: no command line has it, and of all environments those of its line and of itself.
    assert_eq!(holders("cmdline"), Vec::<String>::new());
    let environments = holders("environ");
    let fits = |line: &String| line.contains(" __line ") || line.contains("/claude");
    assert!(environments.len() >= 2 && environments.iter().all(fits), "{environments:#?}");
    for folder in [folder.path(), host.path("").as_path()] {
        assert_eq!(files_with_key(folder), "", "in no file, while it runs");
    }
    fs::write(host.home().join("go"), "").unwrap();
    wait_finished(&daemon, "with");
    for folder in [folder.path(), host.path("").as_path()] {
        assert_eq!(files_with_key(folder), "", "nor afterwards");
    }
    let told =
        [daemon.get("/api/audit?event=runner").to_string(), agent(&daemon, "with").to_string(), daemon.log()];
    assert!(told[0].contains("runner.grant") && told.iter().all(|text| !text.contains(KEY)), "{}", told[0]);
    // The token of a login goes as a key does, by the same grant.
    daemon.post("/api/credentials", &json!({"provider": "claude-code", "key": LOGIN}));
    spawn(&daemon, "login");
    assert_eq!(said(&daemon, "login"), format!("login: {} {}", &LOGIN[LOGIN.len() - 4..], LOGIN.len()));
    wait_finished(&daemon, "login");
    // Taken back, and without the key in the vault: nothing goes.
    let path = format!("{grants}/claude-code");
    assert_eq!(daemon.send("DELETE", &path, &Value::Null).1["grants"], json!([]));
    assert_eq!(daemon.send("DELETE", &path, &Value::Null).0, 404);
    spawn(&daemon, "after");
    assert_eq!(said(&daemon, "after"), "key: none 0");
}
