//! Runners that an engine makes: real podman and real Slurm, each with all of its files in a folder of the
//! test's.
//!
//! `tests/real/setup-engines` installs both; without them, or without root, these tests say that they were
//! skipped, and fail where `SVC_REAL_CLIS=require`.

use crate::runners::{
    agent, check, counted, first_word, repository, said, spawn_there, wait_code, wait_finished,
};
use crate::support::daemon::{Daemon, is_root};
use crate::support::folder::Folder;
use crate::support::real::absent;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// An engine; all that it has made is gone on drop.
struct Engine {
    folder: Folder,
}

impl Engine {
    /// `podman` or `slurm`; `None` where there is none to be had.
    ///
    /// Panics where `SVC_REAL_CLIS=require`.
    fn start(word: &str) -> Option<Self> {
        let engine = Self { folder: Folder::new(word) };
        if !is_root() || engine.setup(&["--status"]).is_err() {
            absent("podman or Slurm, or root's rights,", "setup-engines");
            return None;
        }
        engine.folder.write("lie", LIE);
        std::fs::create_dir_all(engine.folder.path().join("home")).unwrap();
        let folder = engine.path("");
        let mut words = vec![word, folder.as_str()];
        if word == "podman" {
            words.push(env!("CARGO_BIN_EXE_svc"));
        }
        engine.setup(&words).unwrap_or_else(|error| panic!("setup-engines {word}: {error}"));
        Some(engine)
    }

    fn setup(&self, words: &[&str]) -> Result<(), String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/setup-engines");
        // What stays is asked nothing, and must not hold a pipe.
        let log = std::fs::File::create(self.folder.path().join("setup.log")).unwrap();
        let status = Command::new(script)
            .args(words)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .status()
            .map_err(|error| error.to_string())?;
        let told = || std::fs::read_to_string(self.folder.path().join("setup.log")).unwrap();
        if status.success() { Ok(()) } else { Err(told()) }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().trim_end_matches('/').to_owned()
    }

    fn env(&self) -> [(String, String); 4] {
        [
            ("CONTAINERS_CONF", "containers.conf"),
            ("CONTAINERS_STORAGE_CONF", "storage.conf"),
            ("SLURM_CONF", "slurm.conf"),
            ("HOME", "home"),
        ]
        .map(|(name, file)| (name.to_owned(), self.path(file)))
    }

    fn daemon(&self, project: Arc<Folder>) -> Daemon {
        let env = self.env();
        let env: Vec<(&str, &str)> =
            env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Daemon::start_in(project, &env)
    }

    /// What one of its programs prints.
    fn ask(&self, program: &str, args: &[&str]) -> String {
        let said = Command::new(program).args(args).envs(self.env()).output().unwrap();
        let stderr = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{program} {args:?}: {stderr}");
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    }

    /// All containers, with those that are stopped.
    fn containers(&self) -> Vec<String> {
        let all = self.ask("podman", &["ps", "--all", "--format={{.Names}}"]);
        all.lines().map(str::to_owned).collect()
    }

    /// All jobs that are not over.
    fn jobs(&self) -> Vec<String> {
        let all = self.ask("squeue", &["--noheader", "--format=%i"]);
        all.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Kills each process of a line, as the system does that has no memory left; how many there were.
    fn kill_lines(&self, program: &str) -> usize {
        let own =
            format!("{}={}", if program == "srun" { "SLURM_CONF" } else { "CONTAINERS_CONF" }, self.path(""));
        let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let read = |name: &str| std::fs::read(entry.path().join(name)).ok();
            let words = String::from_utf8_lossy(&read("cmdline")?).into_owned();
            let is_line = words.starts_with(program) && words.contains("__far open");
            let environment = String::from_utf8_lossy(&read("environ")?).into_owned();
            (is_line && environment.contains(&own)).then_some(pid)
        });
        let all: Vec<i32> = all.collect();
        for pid in &all {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        all.len()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if is_root() {
            // One that was not started leaves nothing to stop.
            let folder = self.path("");
            let _ = self.setup(&["stop", &folder]);
        }
    }
}

/// A shell that waits as it is told to, and else says what it likes.
const LIE: &str = "#!/bin/busybox sh\ncase $2 in trap*) exec /bin/busybox sh -c \"$2\";; esac\n\
    echo 'svc-far {\"is\":\"king\"}'\nexit 0\n";

fn add(daemon: &Daemon, name: &str, kind: &str, destination: &str) {
    daemon.post("/api/runners", &json!({"name": name, "kind": kind, "destination": destination}));
}

fn remove(daemon: &Daemon, name: &str) -> Value {
    let (status, told) = daemon.send("DELETE", &format!("/api/runners/{name}"), &Value::Null);
    assert_eq!(status, 200, "{told}");
    told
}

/// What this runner's place is called, as the state on disk has it.
fn place_of(daemon: &Daemon, name: &str) -> String {
    let text = std::fs::read(daemon.project.join(".svc/state/runners.json")).unwrap();
    let stored: Value = serde_json::from_slice(&text).unwrap();
    let one = stored["runners"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
    format!("svc-{}", one["folder"].as_str().unwrap().to_lowercase())
}

fn show_first_words(daemon: &Daemon, runner: &str) {
    let least = |runner: Option<&str>| {
        let word = runner.unwrap_or("here");
        (0..3).map(|n| first_word(daemon, &format!("{word}{n}"), runner)).min().unwrap()
    };
    let (here, there) = (least(None), least(Some(runner)));
    eprintln!("to the first word: here {here:?}, on {runner} {there:?}");
}

fn wait_crashed(daemon: &Daemon, id: &str) -> String {
    let ended = wait_within(SOON, "its end", || {
        let agent = agent(daemon, id);
        (agent["status"] != "active").then_some(agent)
    });
    assert_eq!(ended["status"], "crashed", "{ended:#}");
    ended["error"].as_str().unwrap_or_default().to_owned()
}

/// Kills the lines of two agents three times, and the daemon once, while they count; neither loses a line nor
/// its turn.
fn cut(engine: &Engine, program: &str, runner: &str, mut daemon: Daemon, count: usize) -> Daemon {
    let folder = daemon.folder();
    let both = ["one", "two"].map(|name| spawn_there(&daemon, name, runner));
    let mut killed = 0;
    for round in 1..=3 {
        // Each has a line that stands.
        for id in &both {
            let before = said(&daemon, id).len();
            wait_within(SOON, "some lines", || {
                let now = agent(&daemon, id);
                assert_eq!(now["status"], "active", "{now:#}");
                (said(&daemon, id).len() > before + 5).then_some(())
            });
        }
        let now = engine.kill_lines(program);
        assert!(now >= 2, "round {round}: {now}");
        killed += now;
        wait_code(&daemon, &both[0], "unreachable");
        if round == 2 {
            daemon.kill();
            daemon = engine.daemon(Arc::clone(&folder));
        }
    }
    let before = said(&daemon, &both[0]).len();
    assert!(before < count, "it goes on");
    for id in &both {
        wait_finished(&daemon, id);
        assert_eq!(said(&daemon, id), counted(count), "each line once, in its order");
        assert_eq!(agent(&daemon, id)["turns"], 1, "the turn was not interrupted");
    }
    eprintln!(
        "{killed} processes of {program} were killed, and the daemon; no word of {} is missing",
        2 * count
    );
    daemon
}

#[test]
fn an_agent_works_in_a_container_and_its_work_comes_back_as_commits() {
    let Some(engine) = Engine::start("podman") else { return };
    let daemon = engine.daemon(repository(3, 20));
    add(&daemon, "cell", "container", "podman svc-test:1");
    assert!(engine.containers().is_empty(), "it is made when it is needed");
    let first = check(&daemon, "cell");
    assert_eq!((&first["error"], &first["copied"]), (&Value::Null, &json!(true)), "{first:#}");
    assert_eq!(first["facts"]["home"], "/root", "{first:#}");
    // It outlives the daemon that has made it.
    let folder = daemon.folder();
    assert_eq!(daemon.stop(), Some(0));
    let daemon = engine.daemon(folder);
    assert_eq!(engine.ask("podman", &["ps", "--format={{.Names}}"]), place_of(&daemon, "cell"));
    assert_eq!(daemon.get("/api/health")["leaked"], 0);
    let again = check(&daemon, "cell");
    assert_eq!((&again["error"], &again["copied"]), (&Value::Null, &json!(false)), "{again:#}");
    assert_eq!(engine.containers(), [place_of(&daemon, "cell")]);
    let id = spawn_there(&daemon, "one", "cell");
    wait_finished(&daemon, &id);
    assert_eq!(said(&daemon, &id), counted(3));
    let fetched = daemon.post(&format!("/api/agents/{id}/fetch"), &Value::Null);
    assert_eq!((&fetched["commits"], &fetched["uncommitted"]), (&json!(1), &json!(false)), "{fetched:#}");
    assert_eq!(daemon.post(&format!("/api/agents/{id}/merge"), &json!({}))["merged"], true);
    assert_eq!(std::fs::read_to_string(daemon.project.join("where")).unwrap().trim(), "/root");
    // The one that goes on when the container is removed behind svc's back finds another one, with svc in it.
    engine.ask("podman", &["rm", "--force", "--time=1", &place_of(&daemon, "cell")]);
    let (status, told) = daemon.send("POST", &format!("/api/agents/{id}/fetch"), &Value::Null);
    assert!(status == 502 && told.to_string().contains("container is not there any more"), "{told}");
    let next = spawn_there(&daemon, "two", "cell");
    wait_finished(&daemon, &next);
    let copies = daemon.get("/api/audit?event=runner.copy").to_string();
    assert_eq!(copies.matches("\"runner.copy\"").count(), 2, "by the check, and by the start: {copies}");
    assert!(copies.contains(&next), "{copies}");
    show_first_words(&daemon, "cell");
    assert_eq!(remove(&daemon, "cell")["left"], Value::Null);
    assert_eq!(engine.containers(), [""; 0]);
}

#[test]
fn a_line_to_a_container_that_is_killed_costs_no_line_and_interrupts_no_turn() {
    let Some(engine) = Engine::start("podman") else { return };
    let daemon = engine.daemon(repository(600, 60));
    add(&daemon, "cell", "container", "podman svc-test:1");
    assert_eq!(check(&daemon, "cell")["error"], Value::Null);
    let daemon = cut(&engine, "podman", "cell", daemon, 600);
    remove(&daemon, "cell");
    assert_eq!(engine.containers(), [""; 0]);
}

#[test]
fn a_container_that_is_stopped_ends_its_agents_with_a_reason_and_is_started_again() {
    let Some(engine) = Engine::start("podman") else { return };
    let daemon = engine.daemon(repository(600, 60));
    add(&daemon, "cell", "container", "podman svc-test:1");
    assert_eq!(check(&daemon, "cell")["error"], Value::Null);
    let place = place_of(&daemon, "cell");
    let id = spawn_there(&daemon, "one", "cell");
    wait_within(SOON, "some lines", || (said(&daemon, &id).len() > 3).then_some(()));
    let (status, told) = daemon.send("DELETE", "/api/runners/cell", &Value::Null);
    assert_eq!((status, &told["code"]), (409, &json!("runner_in_use")), "{told}");
    engine.ask("podman", &["stop", "--time=1", &place]);
    assert!(wait_crashed(&daemon, &id).contains("its container was stopped"), "{}", agent(&daemon, &id));
    let again = check(&daemon, "cell");
    assert_eq!((&again["error"], &again["copied"]), (&Value::Null, &json!(false)), "{again:#}");
    let next = spawn_there(&daemon, "two", "cell");
    wait_within(SOON, "some lines", || (said(&daemon, &next).len() > 3).then_some(()));
    engine.ask("podman", &["rm", "--force", "--time=1", &place]);
    assert!(wait_crashed(&daemon, &next).contains("its container is gone"), "{}", agent(&daemon, &next));
}

#[test]
fn a_container_that_svc_has_not_made_is_neither_used_nor_removed_and_a_shell_may_lie() {
    let Some(engine) = Engine::start("podman") else { return };
    let (daemon, other) = (engine.daemon(repository(1, 1)), engine.daemon(repository(1, 1)));
    add(&daemon, "cell", "container", "podman svc-test:1");
    let place = place_of(&daemon, "cell");
    let name = format!("--name={place}");
    engine.ask("podman", &["run", "--detach", &name, "svc-test:1", "sleep", "1000"]);
    let told = check(&daemon, "cell");
    assert!(told["error"].as_str().unwrap().contains("svc has not made"), "{told:#}");
    let left = remove(&daemon, "cell")["left"].clone();
    assert!(left.as_str().unwrap().contains("svc has not made"), "{left}");
    assert_eq!(engine.containers(), std::slice::from_ref(&place));
    engine.ask("podman", &["rm", "--force", "--time=1", &place]);
    // Two projects with a runner of one name have two containers.
    for daemon in [&daemon, &other] {
        add(daemon, "cell", "container", "podman svc-test:1");
        assert_eq!(check(daemon, "cell")["error"], Value::Null);
    }
    assert_eq!(engine.containers().len(), 2);
    assert_eq!(remove(&daemon, "cell")["left"], Value::Null);
    assert_eq!(engine.containers(), [place_of(&other, "cell")]);
    // An image whose shell says what it likes, and one that there is not.
    add(&daemon, "liar", "container", "podman svc-liar:1");
    let told = check(&daemon, "liar");
    assert!(told["error"].as_str().unwrap().contains("cannot be read"), "{told:#}");
    remove(&daemon, "liar");
    assert_eq!(engine.containers(), [place_of(&other, "cell")]);
    add(&daemon, "none", "container", "podman localhost/svc-none:1");
    let told = check(&daemon, "none");
    assert!(told["error"].as_str().unwrap().contains("podman run"), "{told:#}");
}

#[test]
fn agents_work_in_a_job_of_slurm_and_a_step_that_is_killed_ends_none_of_them() {
    let Some(engine) = Engine::start("slurm") else { return };
    let daemon = engine.daemon(repository(600, 60));
    add(&daemon, "hpc", "slurm", "");
    let first = check(&daemon, "hpc");
    assert_eq!((&first["error"], &first["copied"]), (&Value::Null, &json!(true)), "{first:#}");
    assert_eq!(engine.jobs().len(), 1);
    let daemon = cut(&engine, "srun", "hpc", daemon, 600);
    let one = daemon.get("/api/agents")[0]["id"].as_str().unwrap().to_owned();
    let fetched = daemon.post(&format!("/api/agents/{one}/fetch"), &Value::Null);
    assert_eq!(fetched["commits"], 1, "{fetched:#}");
    assert_eq!(remove(&daemon, "hpc")["left"], Value::Null);
    wait_within(SOON, "the job to be gone", || engine.jobs().is_empty().then_some(()));
}

#[test]
fn a_job_that_is_over_ends_its_agents_with_its_name_and_one_that_waits_is_waited_for() {
    let Some(engine) = Engine::start("slurm") else { return };
    let folder = repository(40, 30);
    let daemon = engine.daemon(folder);
    add(&daemon, "hpc", "slurm", "work");
    assert_eq!(check(&daemon, "hpc")["error"], Value::Null);
    show_first_words(&daemon, "hpc");
    let job = engine.jobs()[0].clone();
    let id = spawn_there(&daemon, "one", "hpc");
    wait_within(SOON, "some lines", || (!said(&daemon, &id).is_empty()).then_some(()));
    engine.ask("scancel", &[&job]);
    let error = wait_crashed(&daemon, &id);
    assert!(error.contains(&format!("its job {job} is over: CANCELLED")), "{error}");
    engine.ask("scontrol", &["update", "partitionname=work", "state=down"]);
    let both = ["two", "three"].map(|name| spawn_there(&daemon, name, "hpc"));
    for id in &both {
        let waits = wait_code(&daemon, id, "unreachable");
        assert!(waits.to_string().contains("waits in the queue: PENDING"), "{waits:#}");
    }
    assert_eq!(engine.jobs().len(), 1, "one job for both");
    engine.ask("scontrol", &["update", "partitionname=work", "state=up"]);
    for id in &both {
        wait_finished(&daemon, id);
        assert_eq!(said(&daemon, id), counted(40));
    }
    remove(&daemon, "hpc");
}
