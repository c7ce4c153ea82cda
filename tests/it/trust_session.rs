//! A session of agents and a person, over HTTP alone: every answer of the specification's tables, an agent
//! that tries to grant its own wish, a kill in the middle of a gated call, questions to a person, and the
//! audit log that replays into who did what.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::mcp::{add, audit, exec};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXEC: &str = "/api/integrations/hub/exec";

/// A daemon with the integration `hub`, whose tool `send` is gated, and a scenario that hangs at its end.
fn daemon_with_hub(scenarios: &[(&str, Value)]) -> Daemon {
    let folder = Arc::new(Folder::new("session"));
    for (name, steps) in scenarios {
        let scenario = json!({"steps": steps, "onSay": [{"run": {"command": HEARD, "timeoutMs": 20_000}}]});
        folder.write(&format!(".svc/rehearsals/{name}.json"), &scenario.to_string());
    }
    let daemon = Daemon::start_in(folder, &[]);
    add(&daemon, "hub", &[]);
    daemon
}

/// What an agent does with a message.
const HEARD: &str = "printf '%s' '{{message}}' > heard";

fn spawn(daemon: &Daemon, name: &str, scenario: &str) -> String {
    let body = json!({"role": "dev", "name": name, "provider": "script", "model": scenario, "prompt": "go", "integrations": ["hub"]});
    daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned()
}

fn run(command: &str) -> Value {
    json!({"run": {"command": command, "timeoutMs": 60_000}})
}

fn send(daemon: &Daemon) -> Value {
    json!({"file": daemon.project.join("sent").to_str().unwrap()})
}

/// Asks for a gated call; the approval's id.
fn asked(daemon: &Daemon, params: &Value) -> String {
    let (status, body) = exec(daemon, "hub", "send", params);
    assert_eq!(status, 202, "{body}");
    body["approvalId"].as_str().unwrap().to_owned()
}

fn with_approval(daemon: &Daemon, params: &Value, id: &str) -> (u16, Value) {
    daemon.send("POST", EXEC, &json!({"tool": "send", "params": params, "approvalId": id}))
}

#[test]
fn spec_exec_and_declare_answer_with_the_bodies_of_the_tables() {
    let daemon = daemon_with_hub(&[]);
    let params = send(&daemon);
    // In the order of the table. 200: the result as the server gave it.
    let (status, body) = exec(&daemon, "hub", "echo", &json!({"text": "x"}));
    assert_eq!((status, &body["result"]["content"][0]), (200, &json!({"type": "text", "text": "x"})));
    // 202: gated, asked for.
    let (status, body) = exec(&daemon, "hub", "send", &params);
    assert_eq!((status, &body["requiresApproval"]), (202, &json!(true)), "{body}");
    assert!(body["approvalId"].is_string() && body["message"].is_string(), "{body}");
    let rejected = body["approvalId"].as_str().unwrap().to_owned();
    // 400: validation, not installed, the server's error.
    for (path, wish) in [
        (EXEC, json!({"tool": 5})),
        (EXEC, json!({"tool": "echo", "params": []})),
        ("/api/integrations/nothing/exec", json!({"tool": "echo"})),
        (EXEC, json!({"tool": "refuse"})),
    ] {
        let (status, body) = daemon.send("POST", path, &wish);
        assert!(status == 400 && body["error"].is_string(), "{wish}: {status} {body}");
    }
    // 403: rejected. 404: unknown.
    daemon.post("/api/approvals", &json!({"id": rejected, "decision": "reject"}));
    let (status, body) = with_approval(&daemon, &params, &rejected);
    assert_eq!((status, &body["code"]), (403, &json!("approval_rejected")), "{body}");
    assert!(body["error"].is_string());
    let (status, body) = with_approval(&daemon, &params, "apr-00000000");
    assert_eq!((status, &body["code"]), (404, &json!("not_found")), "{body}");
    // 423: who holds what, until when.
    let declare = |agent: &str| {
        let body = json!({"agentId": agent, "operation": "install", "resources": ["a", "lock", "b"]});
        daemon.send("POST", "/api/coordination/declare", &body)
    };
    let (status, body) = declare("one");
    assert_eq!((status, &body["declared"], &body["operation"]), (200, &json!(true), &json!("install")));
    assert_eq!(body["resources"], json!(["a", "lock", "b"]));
    let (status, body) = declare("two");
    assert_eq!((status, &body["conflict"], &body["owner"]), (423, &json!(true), &json!("one")), "{body}");
    assert_eq!((&body["operation"], &body["resource"]), (&json!("install"), &json!("a")));
    assert!(body["expiresAt"].as_u64().unwrap() > 1_600_000_000_000, "{body}");
    // 429: the thirty-first of a minute.
    let (status, body) =
        (0..40).map(|_| exec(&daemon, "hub", "echo", &json!({}))).find(|(s, _)| *s != 200).unwrap();
    assert_eq!((status, &body["error"]), (429, &json!("Rate limit exceeded (30/min) for hub")));
}

#[test]
fn issue_4_an_agent_cannot_grant_its_own_wish_by_curl_nor_after_a_double_fork_and_setsid() {
    let ask = format!(
        "curl -s -H 'content-type: application/json' -d '{{\"tool\":\"send\",\"params\":{{\"file\":\"'$PWD'/sent\"}}}}' \
         $SVC_DAEMON_URL{EXEC} > asked"
    );
    let id = "id=$(sed 's/.*\\(apr-[0-9a-f]*\\).*/\\1/' asked)";
    let grant = "curl -s -o /dev/null -w '%{http_code}' -X POST $SVC_DAEMON_URL/api/approvals/$id/approve";
    let by_body = "curl -s -o /dev/null -w '%{http_code}' -H 'content-type: application/json' \
                   -d '{\"id\":\"'$id'\",\"decision\":\"approve\"}' $SVC_DAEMON_URL/api/approvals";
    // The second child outlives the first, which has a session of its own; nothing of the environment is
    // left but what curl needs.
    let hidden = format!(
        "export id; (setsid sh -c '(env -i PATH=\"$PATH\" SVC_DAEMON_URL=$SVC_DAEMON_URL id=$id setsid sh -c \"{}\" &)' &)",
        format!("{grant} > hidden.tmp; mv hidden.tmp hidden")
            .replace('$', "\\$")
            .replace('\'', "'\\''")
            .replace('"', "\\\"")
    );
    let daemon = daemon_with_hub(&[(
        "greedy",
        json!([run(&ask), run(&format!("{id}; {grant} > plain")), run(&format!("{id}; {by_body} > body")),
               run(&format!("{id}; {hidden}")), {"hang": true}]),
    )]);
    let agent = spawn(&daemon, "greedy", "greedy");
    let read = |name: &str| fs::read_to_string(daemon.project.join(name)).ok();
    for name in ["plain", "body", "hidden"] {
        let status =
            wait_for(&format!("{name}\n{}", daemon.log()), || read(name).filter(|text| !text.is_empty()));
        assert_eq!(status, "403", "{name}");
    }
    let pending = daemon.get("/api/approvals")["pending"].clone();
    assert_eq!(pending.as_array().map(Vec::len), Some(1), "{pending}");
    assert_eq!((&pending[0]["agentId"], &pending[0]["status"]), (&json!(agent), &json!("pending")));
    // A person's curl works.
    let url = format!("{}/api/approvals/{}/approve", daemon.url, pending[0]["id"].as_str().unwrap());
    let curl = std::process::Command::new("curl").args(["-s", "-X", "POST", &url]).output().unwrap();
    let record: Value = serde_json::from_slice(&curl.stdout).unwrap();
    assert_eq!(
        (&record["status"], &record["resolvedBy"]),
        (&json!("approved"), &json!("operator")),
        "{record}"
    );
    assert!(read("sent").is_none(), "nothing ran by itself");
}

#[test]
fn issue_4_a_gated_call_runs_at_most_once_whenever_the_daemon_is_killed() {
    let folder = Arc::new(Folder::new("kill-gated"));
    add(&Daemon::start_in(Arc::clone(&folder), &[]), "hub", &[]);
    let (mut lost, mut done) = (0, 0);
    for round in 0_u64..24 {
        let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        let params = json!({"file": folder.path().join(format!("sent-{round}")).to_str().unwrap()});
        let sent = || fs::read_to_string(params["file"].as_str().unwrap()).unwrap_or_default();
        // The server runs, so that the call follows its approval at once.
        assert_eq!(exec(&daemon, "hub", "echo", &json!({})).0, 200);
        let id = asked(&daemon, &params);
        daemon.post("/api/approvals", &json!({"id": id, "decision": "approve"}));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                let body = json!({"tool": "send", "params": params, "approvalId": id});
                daemon.try_send("POST", EXEC, &body).is_ok_and(|(status, _)| status == 200)
            });
            // Half of the rounds: at once when it has run. The others: some moment before or after.
            let began = Instant::now();
            let moment = Duration::from_micros(round * 397);
            while if round % 2 == 0 { sent().is_empty() } else { began.elapsed() < moment } {
                assert!(began.elapsed() < Duration::from_secs(20), "round {round}: it never ran");
                std::hint::spin_loop();
            }
            let pid = daemon.pid().to_string();
            std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
            let _ = call.join().unwrap();
        });
        drop(daemon);
        let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        // Whoever got no answer tries again with the same approval.
        let (status, body) = with_approval(&daemon, &params, &id);
        let ran = sent().lines().count();
        match status {
            200 => assert_eq!(ran, 1, "round {round}: approved once, ran {ran} times"),
            403 => assert_eq!(body["code"], "approval_used", "round {round}: {body}"),
            other => panic!("round {round}: {other} {body}"),
        }
        assert!(ran <= 1, "round {round}: approved once, ran {ran} times");
        (lost, done) = if ran == 0 { (lost + 1, done) } else { (lost, done + 1) };
    }
    println!("{done} calls ran once, {lost} were lost with the daemon, none ran twice");
}

#[test]
fn decisions_2_an_agent_asks_a_person_and_hears_the_answer() {
    let ask = "curl -s -H 'content-type: application/json' -d '{\"question\":\"Which database?\"}' \
               $SVC_DAEMON_URL/api/questions > asked";
    let daemon = daemon_with_hub(&[("asks", json!([run(ask), {"answer": "I wait."}]))]);
    let agent = spawn(&daemon, "asks", "asks");
    let record = wait_for("its turn to end", || {
        Some(daemon.get("/api/agents/asks")).filter(|record| record["turns"] == 1)
    });
    assert_eq!((&record["state"], &record["status"]), (&json!("waiting"), &json!("active")), "{record}");
    assert!(record["statusReason"].as_str().unwrap().contains("know: Which database?"), "{record}");
    let pending = daemon.get("/api/approvals")["pending"][0].clone();
    assert_eq!(pending["action"]["type"], "question", "{pending}");
    assert_eq!(
        (&pending["action"]["question"], &pending["agentId"]),
        (&json!("Which database?"), &json!(agent))
    );
    let id = pending["id"].as_str().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["answer", &id[..8], "SQLite,", "as in the README"])
        .current_dir(&daemon.project)
        .env_remove("SVC_AGENT_ID")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.trim(), format!("answered {id}: asks is told"), "{output:?}");
    let heard = wait_for("the answer", || {
        fs::read_to_string(daemon.project.join("heard")).ok().filter(|text| !text.is_empty())
    });
    assert_eq!(heard, format!("Answer to your question {id} (Which database?): SQLite, as in the README"));
    let resolved = daemon.get(&format!("/api/approvals/{id}"));
    assert_eq!(
        (&resolved["status"], &resolved["reason"]),
        (&json!("approved"), &json!("SQLite, as in the README"))
    );
    let (status, body) = daemon.send("POST", "/api/questions", &json!({"question": " "}));
    assert_eq!((status, &body["code"]), (400, &json!("validation_failed")));
}

/// What the audit log alone says of the session: who decided what, who holds which locks, who was started and
/// ended by whom, what ran for whom.
#[derive(Debug, Default, PartialEq)]
struct Replayed {
    approvals: BTreeMap<String, (String, String)>,
    locks: BTreeMap<String, BTreeSet<String>>,
    agents: BTreeMap<String, String>,
    ran: Vec<(String, String)>,
    config: Vec<String>,
}

impl Replayed {
    fn of(entries: &[Value]) -> Self {
        let mut replayed = Self::default();
        for entry in entries {
            let word = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let (event, actor, agent) = (word("event"), word("actor"), word("agentId"));
            let resources = || {
                let list = entry["resources"].as_array().into_iter().flatten();
                list.map(|one| one.as_str().unwrap().to_owned()).collect::<Vec<_>>()
            };
            match event.as_str() {
                "approval.request" => drop(replayed.approvals.insert(word("id"), ("pending".into(), actor))),
                "approval.approve" => drop(replayed.approvals.insert(word("id"), ("approved".into(), actor))),
                "approval.reject" => drop(replayed.approvals.insert(word("id"), ("rejected".into(), actor))),
                "coordination.declare" => replayed.locks.entry(agent).or_default().extend(resources()),
                "coordination.release" => {
                    let held = replayed.locks.entry(agent.clone()).or_default();
                    held.retain(|one| !resources().contains(one));
                    if held.is_empty() {
                        replayed.locks.remove(&agent);
                    }
                }
                "agent.spawn" => drop(replayed.agents.insert(agent, "alive".into())),
                "agent.delete" => drop(replayed.agents.insert(agent, format!("ended by {actor}"))),
                "integration.exec" => replayed.ran.push((word("tool"), actor)),
                "config.patch" => replayed.config.push(actor),
                _ => {}
            }
        }
        replayed
    }
}

#[test]
fn issue_4_the_audit_log_after_a_session_replays_into_who_did_what() {
    let curl = |path: &str, body: &str| {
        run(&format!("curl -s -H 'content-type: application/json' -d '{body}' $SVC_DAEMON_URL{path} >> said"))
    };
    let steps = json!([
        curl("/api/coordination/declare", r#"{"agentId":"'$SVC_AGENT_ID'","operation":"build","resources":["r1","r2"]}"#),
        curl("/api/coordination/declare", r#"{"agentId":"'$SVC_AGENT_ID'","operation":"test","resources":["r3"]}"#),
        curl("/api/coordination/complete", r#"{"agentId":"'$SVC_AGENT_ID'","operation":"build"}"#),
        curl(EXEC, r#"{"tool":"echo","params":{"text":"from the agent"}}"#),
        curl(EXEC, r#"{"tool":"send","params":{"file":"/nowhere"}}"#),
        run("curl -s -X PATCH -H 'content-type: application/json' -d '{\"maxAgents\":99}' $SVC_DAEMON_URL/api/config > done"),
        {"hang": true},
    ]);
    let daemon = daemon_with_hub(&[("works", steps)]);
    let (worker, other) = (spawn(&daemon, "works", "works"), spawn(&daemon, "other", "hang"));
    wait_for("the agent's wishes", || {
        fs::read_to_string(daemon.project.join("done")).ok().filter(|text| text.contains("agent_may_not"))
    });
    let own = asked(&daemon, &send(&daemon));
    let agents = daemon.get("/api/approvals")["pending"].clone();
    let agents =
        agents.as_array().unwrap().iter().find(|one| one["agentId"] == json!(worker)).unwrap().clone();
    let agents = agents["id"].as_str().unwrap().to_owned();
    daemon.post("/api/approvals", &json!({"id": own, "decision": "approve"}));
    daemon.post("/api/approvals", &json!({"id": agents, "decision": "reject", "reason": "not there"}));
    assert_eq!(with_approval(&daemon, &send(&daemon), &own).0, 200);
    assert_eq!(daemon.send("PATCH", "/api/config", &json!({"maxAgents": 12})).0, 200);
    assert_eq!(daemon.send("DELETE", &format!("/api/agents/{other}"), &Value::Null).0, 200);

    // The log as the API gives it is the file, newest first.
    let mut told = daemon.get("/api/audit?limit=1000")["entries"].as_array().unwrap().clone();
    told.reverse();
    assert_eq!(told, audit(&daemon.project));
    let times: Vec<&str> = told.iter().map(|entry| entry["ts"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let replayed = Replayed::of(&told);
    let agent = format!("agent:{worker}");
    // What it says is what is.
    let operations = daemon.get("/api/coordination")["operations"].clone();
    let held: BTreeMap<String, BTreeSet<String>> = operations
        .as_object()
        .unwrap()
        .iter()
        .map(|(id, record)| (id.clone(), serde_json::from_value(record["resources"].clone()).unwrap()))
        .collect();
    assert_eq!(replayed.locks, held);
    assert_eq!(held, BTreeMap::from([(worker.clone(), BTreeSet::from(["r3".to_owned()]))]));
    for (id, (status, actor)) in &replayed.approvals {
        let record = daemon.get(&format!("/api/approvals/{id}"));
        assert_eq!((&record["status"], &record["resolvedBy"]), (&json!(status), &json!(actor)), "{record}");
    }
    assert_eq!(replayed.approvals.len(), 2);
    assert_eq!(replayed.approvals[&own], ("approved".into(), "operator".into()));
    assert_eq!(replayed.approvals[&agents], ("rejected".into(), "operator".into()));
    let alive = BTreeMap::from([(worker, "alive".to_owned()), (other, "ended by operator".to_owned())]);
    assert_eq!(replayed.agents, alive);
    assert_eq!(replayed.ran, [("echo".to_owned(), agent), ("send".to_owned(), "operator".to_owned())]);
    assert_eq!(
        replayed.config,
        ["operator"],
        "the agent's attempt changed nothing and stands nowhere as done"
    );
}
