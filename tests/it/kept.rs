//! Agents work on while their daemon goes and comes back: killed, replaced, or told to leave them.

use crate::support::daemon::{Daemon, OPEN, next_message};
use crate::support::dice::Dice;
use crate::support::folder::Folder;
use crate::support::processes::of_project;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LINES: usize = 240;
/// Times that the daemon is replaced in the suite, beside three agents; `SVC_RESTARTS=50` has as many, beside
/// twenty who take their time.
const RESTARTS: usize = 5;

fn restarts() -> usize {
    std::env::var("SVC_RESTARTS").map_or(RESTARTS, |count| count.parse().unwrap())
}

/// A project with a rehearsal of many numbered lines, tokens between them, and an answer to what is said.
fn project() -> Arc<Folder> {
    let folder = Folder::new("kept");
    let mut steps = Vec::new();
    for line in 1..=LINES {
        steps.push(json!({"say": format!("line {line}")}));
        if line % 10 == 0 {
            steps.push(json!({"usage": {"input": 100, "output": 10, "cacheRead": 0, "cacheCreation": 0}}));
            steps.push(json!({"sleepMs": if restarts() > RESTARTS { 12 * restarts() } else { 30 }}));
        }
    }
    steps.push(json!({"answer": "all said"}));
    folder.write(".svc/config.json", &json!({"maxAgents": 40}).to_string());
    let on_say = json!([{"answer": "heard {{prompt}}"}]);
    folder.write(".svc/rehearsals/talk.json", &json!({"steps": steps, "onSay": on_say}).to_string());
    let slow = json!([{"loop": {"times": 100, "steps": [{"say": "still at it"}, {"sleepMs": 50}]}}]);
    folder.write(".svc/rehearsals/slow.json", &json!({"steps": slow, "onSay": on_say}).to_string());
    Arc::new(folder)
}

/// Each line was said once, and in order.
fn assert_said(daemon: &Daemon, id: &str) {
    let entries = daemon.log_of(id);
    let said: Vec<&str> = entries
        .iter()
        .filter(|entry| entry["type"] == "text")
        .filter_map(|entry| entry["text"].as_str())
        .filter(|text| text.starts_with("line "))
        .collect();
    let wanted: Vec<String> = (1..=LINES).map(|line| format!("line {line}")).collect();
    assert_eq!(said, wanted, "{id}");
    let ends = entries.iter().filter(|entry| entry["type"] == "turn-ended").count();
    assert_eq!(ends, 1, "{id}: {ends} turns have ended");
}

fn assert_counted(daemon: &Daemon, id: &str) {
    let record = daemon.get(&format!("/api/agents/{id}"));
    let (input, output) = (100 * LINES / 10, 10 * LINES / 10);
    assert_eq!(record["tokens"]["input"], json!(input), "{record}");
    assert_eq!(record["tokens"]["output"], json!(output), "{record}");
    let summary = daemon.get("/api/tokens/summary");
    let own = |agent: &&Value| agent["agentId"] == json!(id) || agent["id"] == json!(id);
    if let Some(agents) = summary["agents"].as_array()
        && let Some(row) = agents.iter().find(own)
    {
        assert!(row.to_string().contains(&input.to_string()), "{row}");
    }
}

#[test]
fn a_killed_daemon_interrupts_no_turn_and_the_next_loses_and_doubles_nothing() {
    let folder = project();
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let agents: Vec<String> = (0..3).map(|_| daemon.spawn("talk")).collect();
    let mut pids = BTreeMap::new();
    for id in &agents {
        let record = daemon.wait_state(id, &["running"]);
        pids.insert(id.clone(), record["pid"].clone());
    }
    let mut dice = Dice::seeded(14);
    for round in 0..12 {
        let fate = Instant::now() + Duration::from_micros(dice.below(60_000));
        wait_for("the moment", || (Instant::now() >= fate).then_some(()));
        daemon.kill();
        daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        for id in &agents {
            wait_for("its program to be shown again", || {
                let record = daemon.get(&format!("/api/agents/{id}"));
                let is_live = record["status"] == "active";
                assert!(
                    is_live || record["state"] == "completed",
                    "round {round}: {record}\n{}",
                    daemon.log()
                );
                (!is_live || record["pid"] == pids[id]).then_some(())
            });
        }
    }
    for id in &agents {
        let record = daemon.wait_state(id, &["completed", "crashed", "killed", "interrupted"]);
        assert_eq!(record["state"], "completed", "{record}\n{}", daemon.log());
        assert_said(&daemon, id);
        assert_counted(&daemon, id);
        assert_eq!(record["turns"], 1, "{record}");
    }
    wait_for("all processes to end", || of_project(folder.path()).is_empty().then_some(()));
    wait_for("the folders of the runs to go", || is_empty(&folder, ".svc/run").then_some(()));
    daemon.stop();
}

fn is_empty(folder: &Folder, path: &str) -> bool {
    std::fs::read_dir(folder.path().join(path)).map_or(true, |mut entries| entries.next().is_none())
}

#[test]
fn a_message_that_was_acknowledged_reaches_the_agent_once_whenever_the_daemon_dies() {
    let folder = project();
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("slow");
    daemon.wait_state(&id, &["running"]);
    let mut dice = Dice::seeded(7);
    let mut acknowledged = Vec::new();
    for round in 0..8 {
        let message = format!("message {round}");
        let body = json!({"message": message, "deliver": "now"});
        if let Ok((200, _)) = daemon.try_send("POST", &format!("/api/agents/{id}/instruct"), &body) {
            acknowledged.push(message);
        }
        let fate = Instant::now() + Duration::from_micros(dice.below(4_000));
        wait_for("the moment", || (Instant::now() >= fate).then_some(()));
        daemon.kill();
        daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    }
    assert_eq!(acknowledged.len(), 8);
    let name = daemon.get(&format!("/api/agents/{id}"))["name"].as_str().unwrap().to_owned();
    wait_for("all messages to be taken", || {
        let record = daemon.get(&format!("/api/agents/{name}"));
        (record["pendingInstructions"] == 0 && record["status"] != "active").then_some(())
    });
    let entries = daemon.log_of(&name);
    for message in &acknowledged {
        let taken = entries.iter().filter(|entry| {
            entry["type"] == "user" && entry["text"].as_str().is_some_and(|text| text.contains(message))
        });
        assert_eq!(taken.count(), 1, "{message}\n{}", json!(entries));
    }
    daemon.stop();
}

#[test]
fn a_daemon_that_is_replaced_leaves_agents_at_work_and_clients_miss_nothing() {
    let folder = project();
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let seq = next_message(&mut daemon.connect(""))["seq"].as_u64().unwrap();
    let mut since = format!("&since={seq}");
    let count = if restarts() > RESTARTS { 20 } else { 3 };
    let agents: Vec<String> = (0..count).map(|_| daemon.spawn("talk")).collect();
    let mut heard: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // An agent may end while the daemons come and go.
    let exits = std::cell::RefCell::new(std::collections::BTreeSet::new());
    let mut hear = |daemon: &Daemon, since: &mut String, until: &dyn Fn(&Value) -> bool| {
        let query = format!("?types=agent:output,agent:exit{since}");
        let Some(mut socket) = daemon.try_connect(&query) else { return };
        while let Ok(message) = socket.read() {
            let Ok(text) = message.to_text() else { break };
            let Ok(message) = serde_json::from_str::<Value>(text) else { continue };
            assert_ne!(message["type"], "resync", "something is missing");
            if let Some(seq) = message["seq"].as_u64().filter(|_| message["type"] != "state") {
                *since = format!("&since={seq}");
            }
            if let Some(text) = message["data"]["data"]["text"].as_str()
                && message["data"]["subtype"] == "assistant"
            {
                let agent = message["agentId"].as_str().unwrap().to_owned();
                heard.entry(agent).or_default().push(text.to_owned());
            }
            if message["type"] == "agent:exit" {
                exits.borrow_mut().insert(message["agentId"].to_string());
            }
            if until(&message) {
                break;
            }
        }
    };
    for _ in 0..restarts() {
        // At least one more line each time, while any agent talks: the last to end may have said all.
        if exits.borrow().len() < agents.len() {
            let all_over = || exits.borrow().len() == agents.len();
            hear(&daemon, &mut since, &|message| message["type"] == "agent:output" || all_over());
        }
        assert_eq!(daemon.send("POST", "/api/shutdown?keep=true", &json!({})).0, 202);
        hear(&daemon, &mut since, &|_| false);
        assert_eq!(daemon.exit_code(), Some(0), "{}", daemon.log());
        daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    }
    for id in &agents {
        let record = daemon.wait_state(id, &["completed", "crashed", "killed", "interrupted"]);
        assert_eq!(record["state"], "completed", "{record}\n{}", daemon.log());
        assert_said(&daemon, id);
        assert_counted(&daemon, id);
    }
    // A client that is cut off comes again.
    wait_for("all ends", || {
        if exits.borrow().len() < agents.len() {
            hear(&daemon, &mut since, &|_| exits.borrow().len() == agents.len());
        }
        (exits.borrow().len() == agents.len()).then_some(())
    });
    for id in &agents {
        let lines: Vec<&String> = heard[id].iter().filter(|text| text.starts_with("line ")).collect();
        let wanted: Vec<String> = (1..=LINES).map(|line| format!("line {line}")).collect();
        assert_eq!(lines, wanted.iter().collect::<Vec<_>>(), "{id}");
    }
    daemon.stop();
}

#[test]
fn a_wanted_stop_ends_everything_and_an_agent_whose_keeper_dies_says_so() {
    let folder = project();
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("hang");
    let other = daemon.spawn("hang");
    let running = daemon.wait_state(&id, &["running"]);
    daemon.wait_state(&other, &["running"]);
    let keeper = keeper_of(&folder, &id);
    assert!(Command::new("kill").args(["-9", &keeper.to_string()]).status().unwrap().success());
    let killed = Instant::now();
    let record = daemon.wait_state(&id, &["crashed"]);
    assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
    assert_eq!(record["statusCode"], "keeper-gone", "{record}");
    let pid = running["pid"].as_u64().unwrap();
    wait_for("its program to be gone", || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    assert_eq!(daemon.get(&format!("/api/agents/{other}"))["state"], "running");
    let own = keeper_of(&folder, &other);
    assert_eq!(daemon.stop(), Some(0));
    assert!(of_project(folder.path()).is_empty());
    wait_for("the other's keeper to be gone", || is_gone(own).then_some(()));
}

fn is_gone(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.trim_start().starts_with(['Z', 'X']))
}

/// Its program is gone, and its keeper still ends what that has left, which takes a moment.
#[test]
fn who_has_just_ended_is_not_shown_at_work_by_the_first_answer_of_the_next_daemon() {
    let stray = "(trap 'sleep 0.25; exit' TERM; touch ready; while :; do sleep 1; done) >/dev/null 2>&1 &";
    let steps = json!([{"run": {"command": stray}}, {"waitForFile": {"path": "go"}}, {"exit": 3}]);
    let folder = Folder::new("kept-ending");
    folder.write(".svc/rehearsals/leaves.json", &json!({"steps": steps}).to_string());
    folder.write(".svc/config.json", OPEN);
    let folder = Arc::new(folder);
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("leaves");
    let pid = daemon.wait_state(&id, &["running"])["pid"].as_u64().unwrap();
    wait_for("what it leaves", || folder.path().join("ready").exists().then_some(()));
    daemon.kill();
    folder.write("go", "");
    wait_for("its program to end", || is_gone(pid).then_some(()));
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    assert_eq!(daemon.get(&format!("/api/agents/{id}"))["state"], "crashed", "{}", daemon.log());
    daemon.stop();
}

/// Its agent would be shown as ended, and nobody could stop it any more.
#[test]
fn a_keeper_that_does_not_answer_is_ended_with_what_it_keeps() {
    let folder = project();
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("hang");
    daemon.wait_state(&id, &["running"]);
    let keeper = keeper_of(&folder, &id);
    assert_eq!(daemon.send("POST", "/api/shutdown?keep=true", &json!({})).0, 202);
    assert_eq!(daemon.exit_code(), Some(0));
    assert!(!of_project(folder.path()).is_empty(), "it was to be kept");
    let file = folder.path().join(format!(".svc/run/{id}/keeper.json"));
    let told = std::fs::read_to_string(&file).unwrap();
    let mut told: Value = serde_json::from_str(&told).unwrap();
    told["token"] = json!("0".repeat(told["token"].as_str().unwrap().len()));
    std::fs::write(&file, told.to_string()).unwrap();
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    assert_eq!(daemon.get(&format!("/api/agents/{id}"))["state"], "interrupted", "{}", daemon.log());
    wait_for("its keeper to be gone", || is_gone(keeper).then_some(()));
    assert!(of_project(folder.path()).is_empty());
    daemon.stop();
}

/// The process that keeps an agent.
fn keeper_of(folder: &Folder, id: &str) -> u64 {
    let text = std::fs::read_to_string(folder.path().join(format!(".svc/run/{id}/keeper.json"))).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["pid"].as_u64().unwrap()
}

#[test]
fn agents_and_what_takes_in_their_output_stand_back() {
    let folder = project();
    folder.write(".svc/config.json", r#"{"keeper": {"nice": 3}}"#);
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("hang");
    let pid = daemon.wait_state(&id, &["running"])["pid"].as_u64().unwrap();
    assert_eq!(nice_of(&format!("/proc/{pid}/stat")), "3");
    assert_eq!(nice_of(&format!("/proc/{}/stat", keeper_of(&folder, &id))), "3");
    let own = daemon.pid();
    assert_eq!(nice_of(&format!("/proc/{own}/stat")), nice_of("/proc/self/stat"));
    let tasks = std::fs::read_dir(format!("/proc/{own}/task")).unwrap();
    let run = tasks.flatten().find(|task| {
        std::fs::read_to_string(task.path().join("comm")).unwrap_or_default().starts_with("run-")
    });
    assert_eq!(nice_of(run.unwrap().path().join("stat").to_str().unwrap()), "5");
    daemon.stop();
}

/// The niceness of a process or thread.
fn nice_of(stat: &str) -> String {
    let text = std::fs::read_to_string(stat).unwrap();
    // The name, which ends with a bracket, is the second field.
    text.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().to_owned()
}

#[test]
fn what_nobody_comes_back_to_ends_after_its_time_or_at_once() {
    let folder = project();
    folder.write(".svc/config.json", r#"{"keeper": {"orphanMinutes": 0}}"#);
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("hang");
    daemon.wait_state(&id, &["running"]);
    daemon.kill();
    wait_for("its agent to be ended", || of_project(folder.path()).is_empty().then_some(()));
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let record = daemon.wait_state(&id, &["interrupted"]);
    assert_eq!(record["status"], "interrupted", "{record}");
    daemon.stop();
}

#[test]
fn a_record_that_is_gone_has_no_keeper_after_the_next_start() {
    let folder = project();
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("hang");
    daemon.wait_state(&id, &["running"]);
    let keeper = keeper_of(&folder, &id);
    daemon.kill();
    std::fs::remove_file(folder.path().join(".svc/state/agents.json")).unwrap();
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    wait_for("its keeper to be gone", || is_gone(keeper).then_some(()));
    wait_for("its program to be gone", || of_project(folder.path()).is_empty().then_some(()));
    assert!(daemon.get("/api/agents").as_array().unwrap().is_empty());
    let mut socket = daemon.connect("");
    assert_eq!(next_message(&mut socket)["type"], "state");
    daemon.stop();
}
