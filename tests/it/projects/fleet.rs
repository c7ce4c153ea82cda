//! One budget, one governor and one clock of limits over all projects of a user, with real daemons.

use super::User;
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;

/// More than any machine has: there is room for one agent, and for no other.
const NO_ROOM: u64 = 1 << 24;

/// A user with these settings of its own.
fn user(settings: &Value) -> User {
    let user = User::new();
    set(&user, settings);
    user
}

fn set(user: &User, settings: &Value) {
    let folder = user.config().join("svc");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.json"), settings.to_string()).unwrap();
}

/// Settings by which an agent of the rehearsal `spends` costs a dollar.
fn with_budget(usd: &Value) -> Value {
    let price = json!({"input": 1.0, "output": 0.0, "cacheRead": 0.0, "cacheCreation": 0.0});
    json!({"maxAgents": 1000, "safety": {"dailyBudgetAllUsd": usd}, "models": {"spends": {"price": price}}})
}

fn project(name: &str) -> Arc<Folder> {
    let folder = Folder::new(name);
    let usage = json!({"usage": {"input": 1_000_000, "output": 0}});
    let spends = json!({"steps": [usage, {"answer": "done"}]});
    folder.write(".svc/rehearsals/spends.json", &spends.to_string());
    folder.write(".svc/rehearsals/hangs.json", &json!({"steps": [{"hang": true}]}).to_string());
    folder.write(".svc/config.json", &json!({"isolation": {"cage": "off"}}).to_string());
    Arc::new(folder)
}

fn spawn(daemon: &Daemon, scenario: &str) -> (u16, Value) {
    let body = json!({"role": "tester", "provider": "script", "model": scenario, "prompt": "go"});
    daemon.send("POST", "/api/agents", &body)
}

fn spends(daemon: &Daemon) {
    let (status, agent) = spawn(daemon, "spends");
    assert_eq!(status, 201, "{agent}");
    daemon.wait_state(agent["id"].as_str().unwrap(), &["completed"]);
}

/// Waits until a start is refused for the budget of all projects; why.
fn refused(daemon: &Daemon) -> String {
    wait_for("the budget of all projects to hold", || {
        let (status, body) = spawn(daemon, "quick");
        if status == 201 {
            return None;
        }
        assert_eq!((status, &body["code"]), (409, &json!("budget")), "{body}");
        Some(body["error"].as_str().unwrap().to_owned())
    })
}

/// Waits until a start is let in.
fn starts(daemon: &Daemon) {
    wait_for("a start to be let in", || (spawn(daemon, "quick").0 == 201).then_some(()));
}

#[test]
fn a_budget_over_all_projects_is_held_by_each_of_them_whoever_spends_and_whoever_is_killed() {
    let user = user(&with_budget(&json!(2.5)));
    let mut shop = user.start_in(project("shop"));
    let blog = user.start_in(project("blog"));
    spends(&shop);
    spends(&blog);
    let (status, _) = spawn(&blog, "quick");
    assert_eq!(status, 201, "there is half a dollar left");
    spends(&shop);
    let why = refused(&blog);
    assert!(
        why.contains("safety.dailyBudgetAllUsd") && why.contains("$2.00 of your other projects"),
        "{why}"
    );
    refused(&shop);
    let told = blog.get("/api/dashboard")["cost"].clone();
    assert_eq!(told["allProjects"], json!({"todayUsd": 3.0, "dailyBudgetUsd": 2.5}), "{told}");
    let folder = shop.folder();
    shop.kill();
    refused(&blog);
    let third = user.start_in(project("third"));
    refused(&third);
    // Its figure is damaged: what was spent is not known, and nothing starts.
    let name = blog.get("/api/status")["name"].as_str().unwrap().to_owned();
    let listed = user.listed();
    let dead = listed.iter().find(|one| one["state"] == "stopped").unwrap()["name"].as_str().unwrap();
    assert_ne!(name, dead);
    set(&user, &with_budget(&json!(100.0)));
    starts(&third);
    fs::write(user.registry().join(format!("{dead}.told")), "{").unwrap();
    let why = refused(&third);
    assert!(why.contains(&format!("what {dead} has spent today is not known")), "{why}");
    let shop = user.start_in(folder);
    // It tells anew what it knows.
    starts(&third);
    // The user's own file is read anew each time, and has to be whole.
    fs::write(user.config().join("svc/config.json"), "{").unwrap();
    assert!(refused(&shop).contains("config.json"));
    set(&user, &with_budget(&Value::Null));
    starts(&shop);
}

#[test]
fn no_project_says_what_all_may_cost() {
    let user = user(&json!({}));
    let shop = user.start_in(project("shop"));
    let body = json!({"safety": {"dailyBudgetAllUsd": 5}});
    let (status, problem) = shop.send("PATCH", "/api/config", &body);
    assert_eq!(status, 400, "{problem}");
    assert!(problem.to_string().contains("not in a project's"), "{problem}");
}

fn state(daemon: &Daemon, id: &str) -> String {
    daemon.get(&format!("/api/agents/{id}"))["state"].as_str().unwrap().to_owned()
}

#[test]
fn memory_is_given_to_one_project_at_a_time_and_a_killed_daemon_claims_none() {
    let user = user(&json!({"governor": {"reserveMegabytes": NO_ROOM}}));
    let daemons = [user.start_in(project("shop")), user.start_in(project("blog"))];
    for round in 0..5 {
        // Both at once: each would be the only one that runs.
        let ids: Vec<String> = thread::scope(|scope| {
            let spawned = daemons.each_ref().map(|daemon| {
                scope.spawn(|| {
                    let (status, agent) = spawn(daemon, "hangs");
                    assert_eq!(status, 201, "{agent}");
                    agent["id"].as_str().unwrap().to_owned()
                })
            });
            spawned.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let states = || [0, 1].map(|n| state(&daemons[n], &ids[n]));
        wait_for("one of both to run", || states().contains(&"running".to_owned()).then_some(()));
        let told = states();
        assert_eq!(told.iter().filter(|state| *state == "queued").count(), 1, "round {round}: {told:?}");
        let first = usize::from(told[0] == "queued");
        let kill = |n: usize| {
            let (status, body) = daemons[n].send("DELETE", &format!("/api/agents/{}", ids[n]), &Value::Null);
            assert_eq!(status, 200, "{body}");
        };
        kill(first);
        daemons[1 - first].wait_state(&ids[1 - first], &["running"]);
        kill(1 - first);
    }
    let [mut shop, blog] = daemons;
    let (_, holder) = spawn(&shop, "hangs");
    shop.wait_state(holder["id"].as_str().unwrap(), &["running"]);
    let (_, waiting) = spawn(&blog, "hangs");
    let id = waiting["id"].as_str().unwrap();
    let told = blog.get("/api/capacity");
    assert_eq!(state(&blog, id), "queued", "{told:#}");
    shop.kill();
    blog.wait_state(id, &["running"]);
}

/// In place of Claude Code: tells a window as that one does, and ends its turn.
const CLAUDE: &str = r#"#!/usr/bin/env python3
import json, sys, time
if "--version" in sys.argv:
    print("2.1.329 (Claude Code)")
    sys.exit(0)
sys.stdin.readline()
said = lambda **event: print(json.dumps({"session_id": "s1", **event}), flush=True)
said(type="system", subtype="init", model="m", tools=[])
said(type="rate_limit_event", rate_limit_info={"status": "allowed_warning", "rateLimitType": "five_hour",
     "utilization": 0.9, "resetsAt": int(time.time()) + 7200})
said(type="result", subtype="success", is_error=False, result="done", num_turns=1, duration_ms=1,
     total_cost_usd=0, usage={})
sys.stdin.read()
"#;

#[test]
fn what_a_provider_told_one_project_is_known_to_all_that_use_the_same_login() {
    let user = user(&json!({}));
    let folder = project("shop");
    folder.write("bin/claude", CLAUDE);
    let bin = folder.path().join("bin");
    fs::set_permissions(bin.join("claude"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let config = user.config();
    let mut shop =
        Daemon::start_in(folder, &[("XDG_CONFIG_HOME", config.to_str().unwrap()), ("PATH", &path)]);
    let blog = user.start_in(project("blog"));
    let own = project("own");
    let env =
        json!({"isolation": {"cage": "off"}, "env": {"set": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}}});
    own.write(".svc/config.json", &env.to_string());
    let own = user.start_in(own);
    wait_for("the stand-in to be found", || {
        let body = json!({"role": "dev", "provider": "claude-code", "prompt": "go"});
        (shop.send("POST", "/api/agents", &body).0 == 201).then_some(())
    });
    let windows = |daemon: &Daemon| daemon.get("/api/quota")["windows"].clone();
    let told = wait_for("the window to be told", || Some(windows(&shop)).filter(|told| *told != json!([])));
    let known = |daemon: &Daemon| {
        wait_for("the others to know", || {
            // They hear before a wish is looked at.
            spawn(daemon, "quick");
            Some(windows(daemon)).filter(|windows| *windows != json!([]))
        })
    };
    let here = known(&blog);
    for field in ["provider", "account", "window", "usedPercent", "opensAt", "closed", "heardAt"] {
        assert_eq!(here[0][field], told[0][field], "{field}: {here}");
    }
    spawn(&own, "quick");
    assert_eq!(windows(&own), json!([]), "it sets variables of its own, and may use another login");
    shop.kill();
    let third = user.start_in(project("third"));
    assert_eq!(known(&third)[0]["heardAt"], told[0]["heardAt"], "its daemon is gone");
}
