//! The built daemon as the governor of this machine: real agents whose tools hold real memory.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;

/// More than any machine has: there is room for one agent, and for no other.
const NO_ROOM: u64 = 1 << 24;

/// A project whose agents hold so much memory each until a file of that name is there.
fn project(megabytes: usize, settings: &Value) -> Arc<Folder> {
    let folder = Folder::new("governor");
    let hold = format!(
        "x=$(head -c {} /dev/zero | tr '\\0' x); touch held-$SVC_AGENT_NAME; \
         until [ -e go-$SVC_AGENT_NAME ]; do sleep 0.05; done",
        megabytes << 20
    );
    let steps = json!({"steps": [{"run": {"command": hold, "timeoutMs": 600_000}}, {"answer": "done"}]});
    folder.write(".svc/rehearsals/hold.json", &steps.to_string());
    let mut config = json!({"isolation": {"cage": "off"}});
    config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    folder.write(".svc/config.json", &config.to_string());
    Arc::new(folder)
}

fn spawn(daemon: &Daemon, name: &str) -> Value {
    let body = json!({"role": "tester", "name": name, "provider": "script", "model": "hold", "prompt": name});
    daemon.post("/api/agents", &body)
}

fn state(daemon: &Daemon, name: &str) -> String {
    daemon.get(&format!("/api/agents/{name}"))["state"].as_str().unwrap().to_owned()
}

fn let_go(daemon: &Daemon, name: &str) {
    fs::write(daemon.project.join(format!("go-{name}")), "").unwrap();
}

fn wait_held(daemon: &Daemon, name: &str) {
    let file = daemon.project.join(format!("held-{name}"));
    wait_for(&format!("{name} to hold its memory"), || file.exists().then_some(()));
}

#[test]
fn three_agents_without_room_for_two_run_one_after_another_over_a_kill_of_the_daemon() {
    let folder = project(1, &json!({"governor": {"reserveMegabytes": NO_ROOM}}));
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    assert_eq!(spawn(&daemon, "a")["state"], "starting");
    wait_held(&daemon, "a");
    for name in ["b", "c"] {
        let record = spawn(&daemon, name);
        assert_eq!(
            (&record["state"], &record["statusCode"]),
            (&json!("queued"), &json!("queued")),
            "{record:#}"
        );
    }
    let told = daemon.get("/api/capacity");
    let waiting: Vec<&str> =
        told["queued"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!((waiting, &told["more"]), (vec!["b", "c"], &json!(0)), "{told:#}");
    daemon.kill();
    let daemon = Daemon::start_in(folder, &[]);
    assert_eq!(["a", "b", "c"].map(|name| state(&daemon, name)), ["running", "queued", "queued"]);
    for (name, next) in [("a", Some("b")), ("b", Some("c")), ("c", None)] {
        let_go(&daemon, name);
        daemon.wait_state(name, &["completed"]);
        if let Some(next) = next {
            wait_held(&daemon, next);
        }
        let queued = ["b", "c"].iter().filter(|name| state(&daemon, name) == "queued").count();
        assert_eq!(queued, usize::from(name == "a"), "one after another");
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn what_an_agent_and_its_tools_hold_is_measured_and_expected_of_the_next() {
    // What differs by less than a tenth is neither looked at nor told again: two of them are left out.
    let folder = project(150, &json!({}));
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    spawn(&daemon, "a");
    wait_held(&daemon, "a");
    let capacity = |daemon: &Daemon| daemon.get("/api/capacity?provider=script&role=tester");
    assert_eq!(capacity(&daemon)["provider"], "script");
    let held = wait_for("its memory to be seen", || {
        let told = capacity(&daemon);
        let held = told["agents"][0]["megabytes"].as_u64()?;
        (held >= 120).then_some(held)
    });
    // The shell doubles its buffer while it reads; twice that would be counting somebody else's.
    assert!(held < 600, "{held} MB");
    let_go(&daemon, "a");
    daemon.wait_state("a", &["completed"]);
    let told = capacity(&daemon);
    assert_eq!((&told["basis"], &told["runs"]), (&json!("measured"), &json!(1)), "{told:#}");
    let each = told["eachMegabytes"].as_u64().unwrap();
    assert!(each >= held, "{each} after {held}");
    assert_eq!(daemon.stop(), Some(0));
    let daemon = Daemon::start_in(folder, &[]);
    assert_eq!(capacity(&daemon)["eachMegabytes"], json!(each), "it is remembered");
    let (status, problem) = daemon.send("GET", "/api/capacity?provider=none", &Value::Null);
    assert_eq!((status, &problem["code"]), (400, &json!("validation_failed")));
}

#[test]
fn who_is_told_to_refuse_refuses_and_a_person_starts_one_all_the_same() {
    let folder = project(1, &json!({"governor": {"reserveMegabytes": NO_ROOM, "admit": "refuse"}}));
    let daemon = Daemon::start_in(folder, &[]);
    spawn(&daemon, "a");
    wait_held(&daemon, "a");
    let body = json!({"role": "tester", "name": "b", "provider": "script", "model": "hold"});
    let (status, problem) = daemon.send("POST", "/api/agents", &body);
    assert_eq!((status, &problem["code"]), (409, &json!("no_room")), "{problem:#}");
    assert_eq!(daemon.send("GET", "/api/agents/b", &Value::Null).0, 404);
    assert_eq!(daemon.send("PATCH", "/api/config", &json!({"governor": {"admit": "queue"}})).0, 200);
    assert_eq!(spawn(&daemon, "b")["state"], "queued");
    daemon.post("/api/agents/b/resume", &json!({}));
    wait_held(&daemon, "b");
    for name in ["a", "b"] {
        let_go(&daemon, name);
        daemon.wait_state(name, &["completed"]);
    }
}

/// The program of an agent that takes more and more, until it is ended.
fn eater(folder: &Folder) {
    let eat = "n=0; while :; do dd if=/dev/zero bs=8M count=1 2>/dev/null | sleep 1000 & n=$((n+8)); \
               read up rest </proc/uptime; echo $up $n >>eaten; done";
    let steps = json!({"steps": [{"run": {"command": eat, "timeoutMs": 600_000}}, {"answer": "done"}]});
    folder.write(".svc/rehearsals/eat.json", &steps.to_string());
}

#[test]
fn who_holds_more_than_an_agent_may_is_ended_alone_and_says_what_it_held() {
    let folder = project(100, &json!({"governor": {"agentMegabytes": 400}}));
    eater(&folder);
    let daemon = Daemon::start_in(folder, &[]);
    spawn(&daemon, "modest");
    wait_held(&daemon, "modest");
    let body =
        json!({"role": "eater", "name": "greedy", "provider": "script", "model": "eat", "prompt": "eat"});
    daemon.post("/api/agents", &body);
    let record = daemon.wait_state("greedy", &["killed"]);
    assert_eq!(record["statusCode"], "memory-ceiling", "{record:#}");
    let words = record["statusReason"].as_str().unwrap();
    assert!(words.contains("an agent may hold 400") && words.contains("svc resume greedy"), "{words}");
    assert_eq!(state(&daemon, "modest"), "running");
    let took = fs::read_to_string(daemon.project.join("eaten")).unwrap();
    let took: Vec<(f64, u64)> = took
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(at, megabytes)| Some((at.parse().ok()?, megabytes.parse().ok()?)))
        .collect();
    let over = took.iter().find(|(_, megabytes)| *megabytes > 400).expect("nothing stops it before");
    let last = took.last().unwrap();
    assert!(last.0 - over.0 <= 2.0, "it took more for {} s, up to {} MB", last.0 - over.0, last.1);
    // What it held is expected of the next of its kind.
    let told = daemon.get("/api/capacity?provider=script&role=eater");
    assert!(told["basis"] == "measured" && told["eachMegabytes"].as_u64() >= Some(400), "{told:#}");
    let_go(&daemon, "modest");
    daemon.wait_state("modest", &["completed"]);
}

#[test]
fn who_comes_near_to_what_an_agent_may_hold_is_shown_and_told_and_a_lower_ceiling_counts_at_once() {
    let folder = project(120, &json!({"governor": {"agentMegabytes": 16_000}}));
    let daemon = Daemon::start_in(folder, &[]);
    spawn(&daemon, "a");
    wait_held(&daemon, "a");
    assert_eq!(daemon.get("/api/agents/a")["memory"], Value::Null);
    let ceiling = |megabytes: u64| {
        let body = json!({"governor": {"agentMegabytes": megabytes}});
        assert_eq!(daemon.send("PATCH", "/api/config", &body).0, 200);
    };
    let near = wait_for("it to be near", || {
        // Its shell holds more for a moment while it reads.
        let held =
            daemon.get("/api/capacity")["agents"][0]["megabytes"].as_u64().filter(|held| *held >= 120)?;
        ceiling(held + held / 10);
        let near = daemon.get("/api/agents/a")["memory"].clone();
        near.is_object().then_some(near)
    });
    assert!(near["megabytes"].as_u64() >= Some(120) && near["ceilingMegabytes"].is_u64(), "{near}");
    let id = daemon.get("/api/agents/a")["id"].as_str().unwrap().to_owned();
    let log = daemon.log_of(&id);
    let told =
        log.iter().filter(|line| line["text"].as_str().is_some_and(|text| text.contains("near its ceiling")));
    assert!(told.count() > 0, "{log:#?}");
    ceiling(64);
    assert_eq!(daemon.wait_state("a", &["killed"])["statusCode"], "memory-ceiling");
    let (status, problem) = daemon.send("PATCH", "/api/config", &json!({"governor": {"agentMegabytes": 5}}));
    assert_eq!((status, &problem["code"]), (400, &json!("validation_failed")), "{problem}");
}

#[test]
fn a_keeper_ends_who_holds_too_much_while_no_daemon_is_there() {
    let folder = project(1, &json!({"governor": {"agentMegabytes": 200}}));
    eater(&folder);
    folder.write(
        ".svc/rehearsals/later.json",
        &json!({"steps": [{"run": {"command":
            "touch ready; until [ -e eat ]; do sleep 0.05; done; x=xxxxxxxx; while :; do x=$x$x; done",
            "timeoutMs": 600_000}}, {"answer": "done"}]})
        .to_string(),
    );
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let body =
        json!({"role": "eater", "name": "later", "provider": "script", "model": "later", "prompt": "eat"});
    let pid = daemon.post("/api/agents", &body)["id"].as_str().map(str::to_owned);
    let ready = daemon.project.join("ready");
    wait_for("it to wait", || ready.exists().then_some(()));
    let pid =
        wait_for("its process", || daemon.get(&format!("/api/agents/{}", pid.as_ref()?))["pid"].as_u64());
    daemon.kill();
    folder.write("eat", "");
    wait_for("its keeper to end it", || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    let daemon = Daemon::start_in(folder, &[]);
    assert_eq!(daemon.wait_state("later", &["killed"])["statusCode"], "memory-ceiling");
}

/// The process above this one.
#[cfg(target_os = "linux")]
fn parent(pid: u64) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[test]
#[cfg(target_os = "linux")]
fn while_memory_is_short_who_waits_for_a_person_loses_its_process_and_comes_back_on_a_word() {
    let folder = project(1, &json!({}));
    let steps =
        json!({"steps": [{"waitForFile": {"path": "asked", "timeoutMs": 60_000}}, {"answer": "{{prompt}}"}]});
    folder.write(".svc/rehearsals/waits.json", &steps.to_string());
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let body =
        json!({"role": "tester", "name": "w", "provider": "script", "model": "waits", "prompt": "the task"});
    let id = daemon.post("/api/agents", &body)["id"].clone();
    let asked = daemon.post("/api/questions", &json!({"agentId": id, "question": "red or blue?"}));
    folder.write("asked", "");
    let record = wait_for("its turn to end", || {
        let record = daemon.get("/api/agents/w");
        (record["state"] == "waiting" && record["turns"] == 1).then_some(record)
    });
    let (pid, session) = (record["pid"].as_u64().unwrap(), record["sessionId"].clone());
    let keeper = parent(pid).unwrap();
    let reserve = |daemon: &Daemon, megabytes: Option<u64>| {
        let body = json!({"governor": {"reserveMegabytes": megabytes}});
        assert_eq!(daemon.send("PATCH", "/api/config", &body).0, 200);
    };
    reserve(&daemon, Some(NO_ROOM));
    let record = wait_for("it to be put away", || {
        let record = daemon.get("/api/agents/w");
        (record["statusCode"] == "put-away").then_some(record)
    });
    assert_eq!((&record["state"], &record["pid"]), (&json!("waiting"), &Value::Null), "{record:#}");
    assert_eq!(record["sessionId"], session);
    for gone in [pid, keeper] {
        let place = format!("/proc/{gone}");
        wait_for("no process of it", || (!std::path::Path::new(&place).exists()).then_some(()));
    }
    assert_eq!(daemon.get("/api/capacity")["putAway"][0]["name"], "w");
    // The next daemon leaves it so, and brings it back.
    daemon.kill();
    let daemon = Daemon::start_in(folder, &[]);
    let record = daemon.get("/api/agents/w");
    assert_eq!((&record["statusCode"], &record["sessionId"]), (&json!("put-away"), &session), "{record:#}");
    reserve(&daemon, None);
    let answers = |daemon: &Daemon, words: &str| {
        let id = daemon.get("/api/agents/w")["id"].as_str().unwrap().to_owned();
        wait_for(words, || {
            let log = daemon.log_of(&id);
            log.iter()
                .any(|line| line["text"].as_str().is_some_and(|text| text.contains(words)))
                .then_some(())
        });
    };
    daemon.post("/api/agents/w/instruct", &json!({"message": "any news?"}));
    answers(&daemon, "any news?");
    let record = daemon.wait_state("w", &["waiting"]);
    assert_eq!(
        (&record["sessionId"], &record["statusCode"]),
        (&session, &json!("awaits-decision")),
        "{record:#}"
    );
    let approval = asked["approvalId"].as_str().unwrap();
    daemon.post(&format!("/api/approvals/{approval}/reject"), &json!({"reason": "blue"}));
    assert_eq!(daemon.wait_state("w", &["completed"])["sessionId"], session);
    answers(&daemon, "blue");
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
#[cfg(target_os = "linux")]
fn while_memory_is_short_the_newest_agent_stands_still_and_goes_on_when_it_is_its_turn() {
    let folder = project(1, &json!({"governor": {"admit": "off"}}));
    let steps = json!({"steps": [
        {"run": {"command": "touch held-$SVC_AGENT_NAME; until [ -e go-$SVC_AGENT_NAME ]; do \
                             echo x >>ticks-$SVC_AGENT_NAME; sleep 0.02; done", "timeoutMs": 600_000}},
        {"answer": "done"},
    ]});
    folder.write(".svc/rehearsals/hold.json", &steps.to_string());
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    for name in ["a", "b"] {
        spawn(&daemon, name);
        wait_held(&daemon, name);
    }
    let reserve = |daemon: &Daemon, megabytes: Option<u64>| {
        let body = json!({"governor": {"reserveMegabytes": megabytes}});
        assert_eq!(daemon.send("PATCH", "/api/config", &body).0, 200);
    };
    let until_frozen = |daemon: &Daemon, is_so: bool| {
        wait_for("b to be frozen, or not", || {
            let code = daemon.get("/api/agents/b")["statusCode"] == "frozen";
            (code == is_so).then_some(())
        });
    };
    let ticks =
        |name: &str| fs::metadata(folder.path().join(format!("ticks-{name}"))).map_or(0, |file| file.len());
    let moves = |name: &str| {
        let before = ticks(name);
        wait_for("it to move", || (ticks(name) > before).then_some(()));
    };
    reserve(&daemon, Some(NO_ROOM));
    until_frozen(&daemon, true);
    assert_eq!(daemon.get("/api/capacity")["frozen"][0]["name"], "b");
    // What was under way in that moment is over when the older one has moved on.
    moves("a");
    let before = ticks("b");
    (0..20).for_each(|_| moves("a"));
    assert_eq!(ticks("b"), before, "it stands still");
    // Without its daemon it goes on, and the next daemon has it stand still again.
    daemon.kill();
    moves("b");
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    until_frozen(&daemon, true);
    // Whoever is the last at work goes on, however short memory is.
    let_go(&daemon, "a");
    daemon.wait_state("a", &["completed"]);
    until_frozen(&daemon, false);
    moves("b");
    let_go(&daemon, "b");
    daemon.wait_state("b", &["completed"]);
    assert_eq!(daemon.stop(), Some(0));
}
