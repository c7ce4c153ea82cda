//! Rules on the built daemon: what they let through, that a kill lets no more through, and that nobody but a
//! person makes one; the card that shows what it takes to decide.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::mcp::{add, audit};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXEC: &str = "/api/integrations/hub/exec";

/// A daemon with the integration `hub`, whose tool `send` is gated, and an agent that goes on for long.
fn world(name: &str) -> (Arc<Folder>, Daemon) {
    let folder = Arc::new(Folder::new(name));
    folder.write(".svc/rehearsals/waits.json", &json!({"steps": [{"ask": "And now?"}]}).to_string());
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    add(&daemon, "hub", &[]);
    let body = json!({
        "role": "dev", "name": "worker", "provider": "script", "model": "waits", "prompt": "go",
        "integrations": ["hub"],
    });
    daemon.post("/api/agents", &body);
    (folder, daemon)
}

fn call(daemon: &Daemon, params: &Value) -> (u16, Value) {
    daemon.send("POST", EXEC, &json!({"tool": "send", "params": params, "agent": "worker"}))
}

fn svc(daemon: &Daemon, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).current_dir(&daemon.project).env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{args:?}: {}{}", said(&output.stdout), said(&output.stderr));
    said(&output.stdout)
}

#[test]
fn a_rule_made_on_the_command_line_lets_calls_through_as_often_as_it_says() {
    let (folder, daemon) = world("rules");
    let file = folder.path().join("sent");
    let params = json!({"file": file.to_str().unwrap()});
    let (status, body) = call(&daemon, &params);
    assert_eq!(status, 202, "{body}");
    let id = body["approvalId"].as_str().unwrap();
    let card = svc(&daemon, &["approvals", &id[4..9]]);
    assert!(card.contains("it wants to call a tool of an integration") && card.contains("file: "), "{card}");
    let made = svc(&daemon, &["rules", "allow", &id[4..], "--uses", "2"]);
    assert!(
        made.contains("is in force: worker may call send of hub") && made.contains("approved apr-"),
        "{made}"
    );
    let statuses: Vec<u16> = (0..3).map(|_| call(&daemon, &params).0).collect();
    assert_eq!(statuses, [200, 200, 202]);
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
    let other = json!({"file": folder.path().join("other").to_str().unwrap()});
    assert_eq!(call(&daemon, &other).0, 202, "other parameters");
    assert!(svc(&daemon, &["rules", "--all"]).contains("2 of 2"), "{}", svc(&daemon, &["rules", "--all"]));
    assert_eq!(
        svc(&daemon, &["rules"]),
        "no rules; 'svc rules allow APPROVAL' makes one of what an agent asks for\n"
    );
    let uses: Vec<Value> =
        audit(&daemon.project).into_iter().filter(|entry| entry["event"] == "rule.use").collect();
    assert_eq!((uses.len(), &uses[1]["used"]), (2, &json!(2)), "{uses:?}");
    // never, and taken back.
    svc(&daemon, &["rules", "never", "--file", "docs/x.md", "--for", "project"]);
    let rule = svc(&daemon, &["rules", "--quiet"]);
    let revoked = svc(&daemon, &["rules", "revoke", rule.trim()]);
    assert!(revoked.contains("is revoked"), "{revoked}");
    daemon.stop();
}

#[test]
fn a_kill_at_any_moment_lets_no_more_calls_through_than_the_rule_says() {
    const USES: usize = 4;
    let (folder, daemon) = world("rules-kill");
    let file = folder.path().join("sent");
    let params = json!({"file": file.to_str().unwrap()});
    let ran = || fs::read_to_string(&file).unwrap_or_default().lines().count();
    let id = call(&daemon, &params).1["approvalId"].as_str().unwrap().to_owned();
    daemon.post("/api/rules", &json!({"say": "allow", "approval": id, "uses": USES}));
    drop(daemon);
    for round in 0_u64..10 {
        let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        // The server runs, so that the call follows at once.
        daemon.get("/api/integrations/hub/tools");
        let before = ran();
        std::thread::scope(|scope| {
            let wish = scope.spawn(|| {
                let body = json!({"tool": "send", "params": params, "agent": "worker"});
                daemon.try_send("POST", EXEC, &body).is_ok()
            });
            // Half of the rounds: as soon as it has run, or is answered otherwise. The others: some moment.
            let began = Instant::now();
            let moment = Duration::from_micros(round * 397);
            while if round % 2 == 0 {
                ran() == before && !wish.is_finished()
            } else {
                began.elapsed() < moment
            } {
                assert!(began.elapsed() < Duration::from_secs(20), "round {round}: nothing came of it");
                std::hint::spin_loop();
            }
            let pid = daemon.pid().to_string();
            Command::new("kill").args(["-9", &pid]).status().unwrap();
            let _ = wish.join().unwrap();
        });
        drop(daemon);
        assert!(ran() <= USES, "round {round}: {} calls of {USES}", ran());
    }
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    for _ in 0..=USES {
        call(&daemon, &params);
    }
    let rule = daemon.get("/api/rules")["rules"][0].clone();
    assert_eq!((&rule["used"], &rule["over"]), (&json!(USES), &json!("used_up")), "{rule}");
    assert!(ran() <= USES, "{} calls of {USES}", ran());
    assert_eq!(call(&daemon, &params).0, 202, "a person is asked");
    daemon.stop();
}

#[test]
fn an_agents_process_makes_no_rule_and_reads_no_card() {
    let folder = Arc::new(Folder::new("rules-cheat"));
    let post = "curl -s -o /dev/null -w '%{http_code} ' -H 'content-type: application/json'";
    let make = format!(
        "{post} -d '{{\"say\":\"allow\",\"file\":\"web/x.js\",\"for\":\"project\"}}' $SVC_DAEMON_URL/api/rules > said"
    );
    let revoke =
        "curl -s -o /dev/null -w '%{http_code} ' -X DELETE $SVC_DAEMON_URL/api/rules/$(cat rule) >> said";
    let read =
        "curl -s -o /dev/null -w '%{http_code}' $SVC_DAEMON_URL/api/approvals/apr-00000001/card >> said";
    let run = |command: &str| json!({"run": {"command": command, "timeoutMs": 20_000}});
    let steps = json!({"steps": [{"waitForFile": {"path": "rule"}}, run(&make), run(revoke), run(read), {"answer": "done"}]});
    folder.write(".svc/rehearsals/cheats.json", &steps.to_string());
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let made = daemon.post("/api/rules", &json!({"say": "never", "file": "web/x.js", "for": "project"}));
    let id = daemon.spawn("cheats");
    folder.write("rule", made["rule"]["id"].as_str().unwrap());
    daemon.wait_state(&id, &["completed", "crashed"]);
    assert_eq!(fs::read_to_string(folder.path().join("said")).unwrap(), "403 403 403");
    let rules = daemon.get("/api/rules")["rules"].clone();
    assert_eq!((rules.as_array().unwrap().len(), &rules[0]["over"]), (1, &Value::Null));
    daemon.stop();
}

#[test]
fn a_card_shows_the_change_and_the_last_words() {
    let folder = Arc::new(Folder::new("rules-card"));
    let steps = json!({"steps": [
        {"say": "The login needs a second field."},
        {"write": {"path": "web/login.js", "text": "one\ntwo\n"}},
        {"answer": "done"},
    ]});
    folder.write(".svc/rehearsals/writes.json", &steps.to_string());
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let body = json!({
        "role": "dev", "name": "api-1", "provider": "script", "model": "writes", "prompt": "Mend the login",
        "scope": ["api/**"],
    });
    daemon.post("/api/agents", &body);
    let approval = wait_for("its question", || {
        daemon.get("/api/approvals")["pending"][0]["id"].as_str().map(str::to_owned)
    });
    let card = daemon.get(&format!("/api/approvals/{approval}/card"));
    assert_eq!(card["kind"], "it has written a file outside of its scope", "{card}");
    let patch = card["change"]["diff"].as_str().unwrap_or_default();
    assert!(patch.contains("+one\n+two\n"), "{card}");
    assert_eq!(card["words"][0]["text"], "The login needs a second field.", "{card}");
    assert!(card["task"].as_str().unwrap().contains("Mend the login"), "{card}");
    let told = svc(&daemon, &["approve", &approval]);
    assert!(told.contains("  +two") && told.contains("it said   The login needs"), "{told}");
    daemon.stop();
}
