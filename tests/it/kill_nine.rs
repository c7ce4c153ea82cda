//! kill -9 of the daemon at random points, 200 rounds: it starts again, shows no agent alive that is not,
//! leaves no process, and has every change that it had acknowledged.

use crate::support::daemon::Daemon;
use crate::support::dice::Dice;
use crate::support::folder::Folder;
use crate::support::processes::{of_project, values_of};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 200;

#[test]
fn kill_nine_loses_nothing_that_was_acknowledged() {
    let folder = Arc::new(Folder::new("kill-nine"));
    folder.write(".svc/config.json", r#"{"maxAgents": 50, "keeper": {"orphanMinutes": 0}}"#);
    let mut acknowledged = Acknowledged::default();
    let mut total = 0;
    for round in 0..ROUNDS {
        let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        acknowledged.check(&daemon, round);
        let mut dice = Dice::seeded(round);
        // The moment of death differs from round to round: somewhere inside the requests below.
        let fate = Instant::now() + Duration::from_micros(dice.below(60_000));
        std::thread::scope(|scope| {
            let daemon_ref = &daemon;
            let clients: Vec<_> = (0..2)
                .map(|client| scope.spawn(move || Acknowledged::work(daemon_ref, round * 10 + client, fate)))
                .collect();
            wait_for("the moment", || (Instant::now() >= fate).then_some(()));
            kill_nine(daemon.pid());
            for client in clients {
                let done = client.join().unwrap();
                total += (done.agents.len() + done.schedules.len()) as u64;
                acknowledged.merge(done);
            }
        });
        daemon.kill();
        if round % 20 == 19 {
            acknowledged.clear_ended(&folder);
        }
    }
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    acknowledged.check(&daemon, ROUNDS);
    assert!(
        total > ROUNDS / 2,
        "only {total} wishes were acknowledged: the test is too quick with its kills"
    );
    daemon.stop();
    assert!(of_project(folder.path()).is_empty());
}

fn kill_nine(pid: u32) {
    std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
}

/// What the daemon has said yes to.
#[derive(Default)]
struct Acknowledged {
    /// Spawned agents: name by lineage.
    agents: BTreeMap<String, String>,
    /// Instructions queued for a rotation: lineage and text.
    instructions: Vec<(String, String)>,
    /// Names of schedules.
    schedules: Vec<String>,
}

impl Acknowledged {
    /// One client's wishes until the daemon dies.
    fn work(daemon: &Daemon, seed: u64, fate: Instant) -> Self {
        let mut done = Self::default();
        let mut dice = Dice::at(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut last: Option<(String, String)> = None;
        // A few clients make a schedule first; the others have their short time for agents alone.
        if seed.is_multiple_of(4) {
            let agent = json!({"role": "dev", "provider": "script"});
            let schedule = json!({"name": format!("s{seed}"), "cron": "0 0 1 1 *", "agent": agent});
            if let Ok((status, body)) = daemon.try_send("POST", "/api/schedules", &schedule) {
                assert_eq!(status, 201, "schedule: {body}");
                done.schedules.push(format!("s{seed}"));
            }
        }
        for step in 0.. {
            if Instant::now() > fate + Duration::from_secs(5) {
                break;
            }
            let scenario = ["hang", "quick", "stubborn"][dice.roll(3)];
            let name = format!("a{seed}-{step}");
            let spawn =
                json!({"role": "dev", "name": name, "provider": "script", "model": scenario, "prompt": name});
            match daemon.try_send("POST", "/api/agents", &spawn) {
                Ok((201, record)) => {
                    let text = |field: &str| record[field].as_str().unwrap().to_owned();
                    done.agents.insert(text("lineageId"), name);
                    last = Some((text("id"), text("lineageId")));
                }
                Ok((409, _)) => {}
                Ok((status, body)) => panic!("spawn: {status} {body}"),
                Err(_) => break,
            }
            let Some((id, lineage)) = &last else { continue };
            let message = format!("m{seed}-{step}");
            let path = format!("/api/agents/{id}/instruct");
            match daemon.try_send("POST", &path, &json!({"message": message})) {
                Ok((200, reply)) if reply["status"] == "queued" => {
                    done.instructions.push((lineage.clone(), message));
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        done
    }

    fn merge(&mut self, other: Self) {
        self.agents.extend(other.agents);
        self.instructions.extend(other.instructions);
        self.schedules.extend(other.schedules);
    }

    /// Compares with a daemon that has just started after a kill.
    fn check(&self, daemon: &Daemon, round: u64) {
        let agents = daemon.get("/api/agents");
        let by_lineage: BTreeMap<&str, &Value> = agents
            .as_array()
            .unwrap()
            .iter()
            .map(|agent| (agent["lineageId"].as_str().unwrap(), agent))
            .collect();
        for (lineage, name) in &self.agents {
            let agent = by_lineage.get(lineage.as_str());
            let agent = agent.unwrap_or_else(|| panic!("round {round}: {name} was acknowledged and is lost"));
            assert_eq!(agent["name"], json!(name), "round {round}");
        }
        let alive = values_of("SVC_AGENT_ID");
        for agent in by_lineage.values() {
            let status = agent["status"].as_str().unwrap();
            assert_ne!(status, "active", "round {round}: a ghost: {agent}");
            assert!(
                !alive.contains(agent["id"].as_str().unwrap()),
                "round {round}: processes of {} are left",
                agent["name"]
            );
        }
        assert!(of_project(&daemon.project).is_empty(), "round {round}: processes are left");
        let schedules = daemon.get("/api/schedules");
        for name in &self.schedules {
            let kept = schedules.as_array().unwrap().iter().any(|schedule| schedule["name"] == json!(name));
            assert!(kept, "round {round}: schedule {name} was acknowledged and is lost");
        }
        for (lineage, text) in self.instructions.iter().rev().take(20) {
            let Some(agent) = by_lineage.get(lineage.as_str()) else { continue };
            let whole = daemon.get(&format!("/api/agents/{}", agent["id"].as_str().unwrap()));
            let queued = whole["instructions"].as_array().unwrap().iter();
            let read = format!("/api/agents/{}/log?tail=50", agent["id"].as_str().unwrap());
            let log = || daemon.get(&read);
            let is_it = |entry: &Value| entry["text"].as_str().is_some_and(|said| said.contains(text));
            let kept = queued.clone().any(is_it) || log()["entries"].as_array().unwrap().iter().any(is_it);
            assert!(kept, "round {round}: {text} was acknowledged and is lost: {whole}");
        }
    }

    /// Removes the records of ended agents, so that the registry does not grow past its limit.
    fn clear_ended(&mut self, folder: &Arc<Folder>) {
        let daemon = Daemon::start_in(Arc::clone(folder), &[]);
        for agent in daemon.get("/api/agents").as_array().unwrap() {
            let id = agent["id"].as_str().unwrap();
            let (status, _) = daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null);
            assert_eq!(status, 200);
        }
        for schedule in daemon.get("/api/schedules").as_array().unwrap() {
            let id = schedule["id"].as_str().unwrap();
            assert_eq!(daemon.send("DELETE", &format!("/api/schedules/{id}"), &Value::Null).0, 200);
        }
        daemon.stop();
        *self = Self::default();
    }
}

/// Locks go into a log ahead of their file, many in one sync: what a caller was told is in one of the two.
#[test]
fn kill_nine_keeps_every_lock_that_was_declared_and_none_that_was_given_back() {
    const CLIENTS: u64 = 6;
    let folder = Arc::new(Folder::new("kill-nine-locks"));
    let (mut total, mut ahead) = (0, 0);
    for round in 0..40_u64 {
        let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        // So many answers later, however slow the machine is.
        let (fate, told) = (Dice::seeded(round).below(30), AtomicU64::new(0));
        let done: Vec<Locks> = std::thread::scope(|scope| {
            let (daemon_ref, told) = (&daemon, &told);
            let clients: Vec<_> =
                (0..CLIENTS).map(|n| scope.spawn(move || Locks::work(daemon_ref, n, round, told))).collect();
            wait_for("the moment", || (told.load(Ordering::Relaxed) >= fate).then_some(()));
            kill_nine(daemon_ref.pid());
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        daemon.kill();
        let log = std::fs::metadata(folder.path().join(".svc/state/ahead.jsonl"));
        ahead += u64::from(log.is_ok_and(|log| log.len() > 0));
        let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        let held = daemon.get("/api/coordination").to_string();
        let audit = std::fs::read_to_string(folder.path().join(".svc/audit.jsonl")).unwrap_or_default();
        for resource in done.iter().flat_map(|done| &done.held) {
            assert!(held.contains(resource), "round {round}: {resource} was declared, and nobody holds it");
            assert!(audit.contains(resource), "round {round}: no line tells of {resource}");
        }
        for resource in done.iter().flat_map(|done| &done.free) {
            assert!(!held.contains(resource), "round {round}: {resource} was given back, and it is held");
        }
        total += done.iter().map(|done| done.held.len() + done.free.len()).sum::<usize>();
        for n in 0..CLIENTS {
            daemon.post("/api/coordination/complete", &json!({"agentId": format!("client-{n}")}));
        }
        assert_eq!(daemon.stop(), Some(0));
    }
    assert!(ahead > 5, "only {ahead} kills met a log with something in it");
    assert!(total > 200, "only {total} locks were acknowledged: the test is too quick with its kills");
}

/// What one client was told of its locks.
#[derive(Default)]
struct Locks {
    held: Vec<String>,
    free: Vec<String>,
}

impl Locks {
    /// Declares, and gives every second one back, until the daemon is gone; counts what all are told.
    fn work(daemon: &Daemon, client: u64, round: u64, told: &AtomicU64) -> Self {
        let (mut done, owner) = (Self::default(), format!("client-{client}"));
        for n in 0_u64.. {
            let resource = format!("<r{round}-c{client}-n{n}>");
            let declare = json!({"agentId": owner, "operation": resource, "resources": [resource]});
            match daemon.try_send("POST", "/api/coordination/declare", &declare) {
                Ok((200, _)) => {}
                // More than an owner may hold; or nobody knows what came of it.
                Ok(_) | Err(_) => break,
            }
            told.fetch_add(1, Ordering::Relaxed);
            if n % 2 == 1 {
                done.held.push(resource);
                continue;
            }
            let complete = json!({"agentId": owner, "operation": resource});
            match daemon.try_send("POST", "/api/coordination/complete", &complete) {
                Ok((200, _)) => done.free.push(resource),
                Ok(_) | Err(_) => break,
            }
        }
        done
    }
}
