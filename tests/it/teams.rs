//! Planned teams, schedules and toys, on the built daemon with real child processes.

use crate::support::daemon::{Daemon, next_message};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn scenario(project: &Path, name: &str, steps: &Value) {
    let folder = project.join(".svc/rehearsals");
    std::fs::create_dir_all(&folder).unwrap();
    let text = json!({"description": name, "steps": steps}).to_string();
    std::fs::write(folder.join(format!("{name}.json")), text).unwrap();
}

/// Steps that write a file and then wait until the test lets them end.
fn gated(name: &str) -> Value {
    json!([
        {"write": {"path": format!("src/{name}.rs"), "text": "built\n"}},
        {"read": "README.md"},
        {"waitForFile": {"path": format!("go-{name}"), "timeoutMs": 60_000}},
        {"answer": "built"},
    ])
}

fn let_go(daemon: &Daemon, name: &str) {
    std::fs::write(daemon.project.join(format!("go-{name}")), "").unwrap();
}

/// The plan's agents by name: outcome and restarts.
fn plan(daemon: &Daemon) -> (Value, BTreeMap<String, (String, u64)>) {
    let plan = daemon.get("/api/plans")["plans"][0].clone();
    let agents = plan["agents"].as_array().unwrap().iter().filter_map(|agent| {
        let name = agent["name"].as_str()?.to_owned();
        Some((name, (agent["outcome"].as_str()?.to_owned(), agent["restarts"].as_u64()?)))
    });
    let agents = agents.collect();
    (plan, agents)
}

fn wait_outcome(daemon: &Daemon, name: &str, outcome: &str) {
    wait_for(&format!("{name} to be {outcome}"), || {
        plan(daemon).1.get(name).filter(|(found, _)| found == outcome).map(|_| ())
    });
}

fn wait_written(daemon: &Daemon, name: &str) {
    wait_for(&format!("{name} to have written"), || {
        let files = daemon.get(&format!("/api/agents/{name}/files"))["files"].clone();
        files.as_array().unwrap().iter().any(|file| file["writes"].as_u64() > Some(0)).then_some(())
    });
}

/// Issue 6: plan, launch, builders (one crashes once, one is rotated), a restart of the daemon in the
/// middle, quality control, done; the brief of quality control names the files changed.
#[test]
fn decisions_7_a_planned_team_survives_crash_rotation_and_restart() {
    let mut daemon = Daemon::start();
    daemon.tie_agents();
    let project = daemon.project.clone();
    std::fs::write(project.join("README.md"), "# Project\n").unwrap();
    let builders = ["one", "two", "three"];
    let agents: Vec<Value> = builders
        .iter()
        .map(|name| json!({"role": "backend", "name": name, "phase": 1, "prompt": "build", "model": name}))
        .collect();
    let recommendation = json!({"agents": agents}).to_string();
    scenario(
        &project,
        "plans",
        &json!([
            {"write": {"path": ".svc/recommended-team.json", "text": recommendation}},
            {"answer": "planned"},
        ]),
    );
    scenario(&project, "one", &gated("one"));
    scenario(&project, "three", &gated("three"));
    let mut crashing = vec![
        json!({"run": {"command": "if [ -e first ]; then touch second; else touch first; fi"}}),
        json!({"waitForFile": {"path": "second", "timeoutMs": 100}}),
    ];
    crashing.extend(gated("two").as_array().unwrap().clone());
    scenario(&project, "two", &json!(crashing));
    let told = ok(&daemon, &["plan", "build three parts", "--provider", "script", "--model", "plans"]);
    assert!(builders.iter().all(|name| told.contains(name)), "{told}");
    let launched = daemon.post("/api/recommended-team/launch", &json!({}));
    assert_eq!((&launched["launched"], &launched["phase2Pending"]), (&json!(3), &json!(1)), "{launched}");
    assert_eq!(launched["failed"], json!([]));
    assert_eq!(daemon.send("POST", "/api/recommended-team/launch", &json!({})).0, 409);

    // One crashes, and is restarted once.
    wait_for("the restart of two", || plan(&daemon).1.get("two").filter(|(_, n)| *n == 1).map(|_| ()));
    for name in builders {
        wait_written(&daemon, name);
    }
    // One is rotated.
    let old = daemon.get("/api/agents/three")["id"].clone();
    let rotated = daemon.post("/api/agents/three/rotate", &json!({}));
    assert_eq!(rotated["old"], old);
    let_go(&daemon, "two");
    let_go(&daemon, "three");
    wait_outcome(&daemon, "two", "completed");
    wait_outcome(&daemon, "three", "completed");
    assert_eq!(plan(&daemon).1["one"].0, "working");

    // The daemon dies while one still works. What was acknowledged goes to disk with all that came before.
    daemon.send("PATCH", "/api/config", &json!({"qcThreshold": 4}));
    daemon.kill();
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    let record = daemon.get("/api/agents/one");
    assert_eq!(record["state"], "interrupted");
    assert_eq!(plan(&daemon).0["status"], "working", "it waits for the one that was interrupted");
    let mut socket = daemon.connect("?types=phase2:spawned,phase2:failed");
    assert_eq!(next_message(&mut socket)["type"], "state", "always first");
    daemon.post("/api/agents/one/resume", &json!({}));
    let_go(&daemon, "one");
    let told = next_message(&mut socket);
    assert_eq!(
        (&told["type"], &told["name"], &told["role"]),
        (&json!("phase2:spawned"), &json!("qc-1"), &json!("fullstack"))
    );
    let prompt = daemon.get("/api/agents/qc-1")["prompt"].as_str().unwrap().to_owned();
    for name in builders {
        assert!(prompt.contains(&format!("- src/{name}.rs ({name}, ")), "{prompt}");
    }
    assert!(!prompt.contains("README.md"), "what was only read is not named: {prompt}");
    wait_for("the end of the plan", || (plan(&daemon).0["status"] == "done").then_some(()));
    assert_eq!(plan(&daemon).1["qc-1"].0, "completed");
}

#[test]
fn the_rehearsed_team_that_comes_with_svc_works_to_its_end() {
    let daemon = Daemon::start();
    daemon.post("/api/agents", &json!({"role": "planner", "provider": "script", "model": "team-planner"}));
    wait_for("the recommendation", || (daemon.get("/api/recommended-team")["exists"] == true).then_some(()));
    let (_, team) = daemon.send("POST", "/api/teams", &json!({"name": "crew", "agents": []}));
    daemon.post("/api/recommended-team/launch", &json!({"teamId": "crew"}));
    wait_for("the end of the plan", || (plan(&daemon).0["status"] == "done").then_some(()));
    let (shown, agents) = plan(&daemon);
    assert_eq!((&shown["teamId"], agents["builder-web"].1), (&team["id"], 1));
    assert!(daemon.project.join("builder-api/done.txt").exists());
    let members =
        daemon.post("/api/teams", &json!({"name": "crew", "agents": ["builder-api", "builder-web"]}));
    assert_eq!(members["agents"].as_array().unwrap().len(), 2);
    let loaded = daemon.post("/api/teams/crew/load", &json!({}));
    assert_eq!((loaded["agents"].as_array().unwrap().len(), &loaded["failed"]), (2, &json!([])), "{loaded}");
}

#[test]
fn decisions_13_schedules_survive_a_restart() {
    let mut daemon = Daemon::start();
    let agent = json!({"role": "cleaner", "provider": "script", "model": "quick", "prompt": "tidy"});
    let made = daemon.post(
        "/api/schedules",
        &json!({"name": "night", "cron": "30 2 * * MON", "timezone": "Europe/Berlin", "agent": agent}),
    );
    let run = daemon.post("/api/schedules/night/run", &json!({}));
    daemon.wait_state(run["agentId"].as_str().unwrap(), &["completed"]);
    let before = daemon.get("/api/schedules/night");
    assert_eq!(before["nextRun"], made["nextRun"]);
    daemon.kill();
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    assert_eq!(daemon.get("/api/schedules/night"), before);
    let (status, body) = daemon.send("POST", "/api/agents", &json!({"role": "x", "schedule": "70 * * * *"}));
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("schedule")), "{body}");
    let spawned = daemon.post(
        "/api/agents",
        &json!({"role": "x", "provider": "script", "model": "quick", "schedule": "0 5 * * *"}),
    );
    assert_eq!(daemon.get("/api/schedules").as_array().unwrap().len(), 2);
    assert!(spawned["scheduleId"].is_string());
}

#[test]
fn toys_the_key_reaches_the_environment_and_no_file_but_the_vault() {
    const KEY: &str = "k3y-of-the-toy-0123456789";
    let daemon = Daemon::start();
    let steps = json!([{"run": {"command": "printf %s \"$NASA_APOD_API_KEY\" | wc -c"}}, {"answer": "seen"}]);
    scenario(&daemon.project, "toy", &steps);
    let (status, body) =
        daemon.send("POST", "/api/toys/nasa-apod/launch", &json!({"provider": "script", "model": "toy"}));
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("apiKey")));
    let wish = json!({"provider": "script", "model": "toy", "apiKey": KEY});
    let launched = daemon.post("/api/toys/nasa-apod/launch", &wish);
    let id = launched["agent"]["id"].as_str().unwrap();
    daemon.wait_state(id, &["completed"]);
    let log = daemon.get(&format!("/api/agents/{id}/log?tail=100")).to_string();
    assert!(log.contains(&format!("{}\\n", KEY.len())), "{log}");
    let found = Command::new("grep").args(["-rl", KEY]).arg(daemon.project.join(".svc")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "the key stands in a file");
}

/// Runs `svc` for the daemon's project; its exit code, standard output and standard error.
fn svc(daemon: &Daemon, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).arg("--project").arg(&daemon.project);
    command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn ok(daemon: &Daemon, args: &[&str]) -> String {
    let (code, out, err) = svc(daemon, args);
    assert_eq!(code, Some(0), "svc {args:?}\n{out}\n{err}");
    out
}

/// Issue 6: `svc plan`, planner, launch, builders, quality control, done.
#[test]
fn svc_plan_goes_from_the_task_to_the_end_of_quality_control() {
    let daemon = Daemon::start();
    let planner = ["--provider", "script", "--model", "team-planner"];
    let told = ok(&daemon, &[&["plan", "build a page and its API"], &planner[..]].concat());
    assert!(told.contains("builder-api") && told.contains("builder-web"), "{told}");
    let (code, _, err) = svc(&daemon, &["plan", "again", "--provider", "script", "--model", "quick"]);
    assert_eq!(code, Some(1), "a planner that recommends nothing: {err}");
    assert!(err.contains("has recommended no team"), "{err}");
    let launched = ok(&daemon, &["team", "launch", "--follow"]);
    for line in ["phase 1: builder-web completed, restarted", "phase 2: qc-1 completed"] {
        assert!(launched.contains(line), "{line:?} is missing in\n{launched}");
    }
    let again = ok(&daemon, &[&["plan", "once more", "--launch"], &planner[..]].concat());
    assert!(again.contains("phase 2: qc-2 completed"), "{again}");
}

#[test]
fn teams_schedules_and_toys_from_the_command_line() {
    let daemon = Daemon::start();
    daemon.wait_state(&daemon.spawn("quick"), &["completed"]);
    assert!(ok(&daemon, &["team"]).contains("default"));
    assert!(ok(&daemon, &["team", "save", "crew", "tester-1"]).contains("saved crew with 1 agent;"));
    assert!(ok(&daemon, &["team", "show", "crew"]).contains("tester-1"));
    assert!(ok(&daemon, &["team", "load", "crew"]).contains("started tester-1"));
    ok(&daemon, &["team", "rename", "crew", "Crew of two"]);
    ok(&daemon, &["team", "delete", "Crew of two"]);
    let (code, _, err) = svc(&daemon, &["team", "delete", "default"]);
    assert!(code == Some(1) && err.contains("cannot be deleted"), "{err}");
    let add = ["schedule", "add", "30 6 * * mon-fri", "cleaner", "tidy", "up", "--provider", "script"];
    let added = ok(&daemon, &[&add[..], &["--timezone", "Europe/Berlin", "--model", "quick"]].concat());
    assert!(added.contains("added cleaner; next at 20"), "{added}");
    assert!(ok(&daemon, &["schedule"]).contains("Europe/Berlin"));
    assert!(ok(&daemon, &["schedule", "run", "cleaner"]).contains("started cleaner-1"));
    assert!(ok(&daemon, &["schedule", "show", "cleaner"]).contains("started"));
    assert!(ok(&daemon, &["schedule", "disable", "cleaner"]).contains("disabled"));
    ok(&daemon, &["schedule", "delete", "cleaner"]);
    let (code, _, err) = svc(&daemon, &["schedule", "add", "61 * * * *", "cleaner", "x"]);
    assert!(code == Some(1) && err.contains("minute"), "{err}");
    assert!(ok(&daemon, &["toys", "--category", "fun", "-q"]).contains("pokeapi"));
    assert!(ok(&daemon, &["toys", "show", "pokeapi"]).contains("- Build"));
    let toy = ["toys", "launch", "pokeapi", "a", "quiz", "--provider", "script", "--model", "quick"];
    assert!(ok(&daemon, &toy).contains("made the team PokeAPI and started planner-1"));
    assert_eq!(svc(&daemon, &["schedule", "nonsense"]).0, Some(2));
}

/// What stands still goes on by a person's word, and the recommendation is theirs before the launch.
#[test]
fn a_recommendation_is_revised_and_a_blocked_plan_steered_from_the_command_line() {
    let daemon = Daemon::start();
    daemon.tie_agents();
    let project = daemon.project.clone();
    let (code, _, err) = svc(&daemon, &["team", "retry"]);
    assert!(code == Some(1) && err.contains("no plan is blocked"), "{code:?}: {err}");
    assert!(ok(&daemon, &["team", "recommended"]).contains("no planner has recommended a team"));
    let agent =
        |name: &str, phase: u64| json!({"role": "backend", "name": name, "phase": phase, "prompt": "build"});
    let recommendation = json!({"agents": [agent("breaks", 1), agent("left-out", 1)]}).to_string();
    let file = json!({"write": {"path": ".svc/recommended-team.json", "text": recommendation}});
    scenario(&project, "plans", &json!([file, {"answer": "planned"}]));
    scenario(&project, "breaking", &json!([{"say": "now"}, {"exit": 3}]));
    ok(&daemon, &["plan", "build", "--provider", "script", "--model", "plans"]);
    let mut wanted: Value = serde_json::from_str(&ok(&daemon, &["team", "recommended", "--json"])).unwrap();
    wanted["agents"].as_array_mut().unwrap().remove(1);
    wanted["agents"][0]["model"] = json!("breaking");
    let path = project.join("team.json");
    std::fs::write(&path, wanted.to_string()).unwrap();
    let shown = ok(&daemon, &["team", "revise", path.to_str().unwrap()]);
    assert!(shown.contains("breaks") && !shown.contains("left-out"), "{shown}");
    std::fs::write(&path, "[]").unwrap();
    let (code, _, err) = svc(&daemon, &["team", "revise", path.to_str().unwrap()]);
    assert!(code == Some(1) && err.contains("it has no list of agents"), "{code:?}: {err}");
    ok(&daemon, &["team", "launch"]);
    let blocked = || (plan(&daemon).0["status"] == "blocked").then_some(());
    wait_for("the plan to be blocked", blocked);
    let before = daemon.get("/api/agents/breaks")["id"].clone();
    assert!(ok(&daemon, &["team", "retry"]).contains("phase 1 of plan"));
    wait_for("another life that fails", || {
        blocked().filter(|()| daemon.get("/api/agents/breaks")["id"] != before)
    });
    let id = plan(&daemon).0["id"].as_str().unwrap().to_owned();
    assert!(ok(&daemon, &["team", "skip", &id]).contains("is passed over"));
    assert_eq!(plan(&daemon).1["breaks"].0, "skipped");
    let events = daemon.get("/api/audit?limit=100").to_string();
    for event in ["plan.revise", "plan.retry", "plan.skip"] {
        assert!(events.contains(event), "{events}");
    }
}
