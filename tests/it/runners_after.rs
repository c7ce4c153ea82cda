//! What is done on another machine while nobody is at hand: agents that the clock starts there, those that a
//! kill did not reach, and what is left of those whose record is gone. Real sshd in network namespaces.

use crate::runners::{
    Host, add, agent, check, counted, repository, said, spawn_there, wait_code, wait_finished,
};
use crate::support::daemon::Daemon;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);

#[test]
fn the_clock_starts_agents_on_another_machine_each_on_a_branch_of_its_own() {
    let Some(host) = Host::start() else { return };
    let daemon = host.daemon(repository(2, 5));
    add(&daemon, "box", "box");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    let body = json!({"name": "nightly", "cron": "0 0 1 1 *", "agent": {"role": "dev", "provider": "script",
        "model": "counts", "prompt": "count", "runner": "box"}});
    daemon.post("/api/schedules", &body);
    let mut trees = Vec::new();
    for _ in 0..2 {
        let run = daemon.post("/api/schedules/nightly/run", &json!({}));
        let id = run["agentId"].as_str().unwrap().to_owned();
        wait_finished(&daemon, &id);
        assert_eq!(said(&daemon, &id), counted(2));
        let fetched = daemon.post(&format!("/api/agents/{id}/fetch"), &Value::Null);
        assert_eq!(fetched["commits"], 1, "{fetched:#}");
        trees.push(agent(&daemon, &id)["worktree"].as_str().unwrap().to_owned());
    }
    assert_ne!(trees[0], trees[1]);
    assert!(trees.iter().all(|tree| daemon.project.join(tree).join(".git").exists()), "{trees:?}");
}

/// How many processes of this life of an agent are on that machine.
fn running(host: &Host, id: &str) -> usize {
    let marks = [format!("HOME={}\0", host.home().display()), format!("SVC_AGENT_ID={id}\0")];
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let environments = all.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    let is_one = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        marks.iter().all(|mark| text.contains(mark))
    };
    environments.map(is_one).filter(|is_one| *is_one).count()
}

fn remove(daemon: &Daemon, id: &str) {
    let (status, told) = daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null);
    assert_eq!(status, 200, "{told}");
}

fn wait_audited(daemon: &Daemon, event: &str, words: &str) {
    wait_within(SOON, words, || {
        let told = daemon.get(&format!("/api/audit?event={event}")).to_string();
        told.contains(words).then_some(())
    });
}

#[test]
fn a_kill_reaches_a_machine_that_was_out_of_reach_as_soon_as_its_line_is_back() {
    let Some(host) = Host::start() else { return };
    let folder = repository(4000, 50);
    let mut daemon = host.daemon(Arc::clone(&folder));
    add(&daemon, "box", "box");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    let [one, other] = ["one", "other"].map(|name| spawn_there(&daemon, name, "box"));
    for id in [&one, &other] {
        wait_within(SOON, "some lines", || (said(&daemon, id).len() > 3).then_some(()));
    }
    host.do_("cut");
    wait_code(&daemon, &one, "unreachable");
    remove(&daemon, &one);
    wait_within(SOON, "its end here", || (agent(&daemon, &one)["status"] != "active").then_some(()));
    assert!(running(&host, &one) > 0, "it works on there");
    // Another daemon knows of it as well.
    daemon.kill();
    daemon = host.daemon(folder);
    assert!(running(&host, &one) > 0);
    host.do_("mend");
    let began = Instant::now();
    wait_within(SOON, "its end there", || (running(&host, &one) == 0).then_some(()));
    eprintln!("ended there {:?} after its line was back", began.elapsed());
    wait_audited(&daemon, "runner.end", "\"ended\":1");
    assert!(running(&host, &other) > 0, "nobody else is ended");
    wait_code(&daemon, &other, "working");
    remove(&daemon, &other);
    wait_within(SOON, "the end of the other one", || (running(&host, &other) == 0).then_some(()));
}

#[test]
fn what_loses_its_keeper_here_is_ended_there() {
    let Some(host) = Host::start() else { return };
    let daemon = host.daemon(repository(4000, 50));
    add(&daemon, "box", "box");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    let id = spawn_there(&daemon, "one", "box");
    wait_within(SOON, "some lines", || (said(&daemon, &id).len() > 3).then_some(()));
    assert!(running(&host, &id) > 0);
    // Its line, and the keeper above that.
    let line = agent(&daemon, &id)["pid"].to_string();
    let stat = std::fs::read_to_string(format!("/proc/{line}/stat")).unwrap();
    let keeper = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
    let kill = |pid: &str| Command::new("kill").args(["-9", pid]).status().unwrap();
    assert!(kill(keeper).success());
    // Mostly it ends with its keeper.
    let _ = kill(&line);
    wait_within(SOON, "its end here", || (agent(&daemon, &id)["status"] == "crashed").then_some(()));
    wait_within(SOON, "its end there", || (running(&host, &id) == 0).then_some(()));
    // It goes on in the same tree.
    let next =
        daemon.post(&format!("/api/agents/{id}/resume"), &json!({}))["id"].as_str().unwrap().to_owned();
    let before = said(&daemon, &next).len();
    wait_within(SOON, "more lines", || (said(&daemon, &next).len() > before).then_some(()));
    remove(&daemon, &next);
    wait_within(SOON, "its end there", || (running(&host, &next) == 0).then_some(()));
}

/// The one place of a project on that machine.
fn place(host: &Host) -> PathBuf {
    let all = std::fs::read_dir(host.home().join(".local/state/svc/runners")).unwrap().flatten();
    let mut places = all.map(|entry| entry.path()).filter(|path| path.join("repo.git").exists());
    let place = places.next().unwrap();
    assert_eq!(places.next(), None);
    place
}

#[test]
fn what_an_agent_has_left_on_another_machine_goes_with_its_record_unless_it_is_not_here() {
    let Some(host) = Host::start() else { return };
    let folder = repository(2, 5);
    let mut daemon = host.daemon(Arc::clone(&folder));
    add(&daemon, "box", "box");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    let mut works = Vec::new();
    for name in ["fetched", "unfetched", "later"] {
        let id = spawn_there(&daemon, name, "box");
        wait_finished(&daemon, &id);
        works.push(place(&host).join(agent(&daemon, &id)["lineageId"].as_str().unwrap()));
        if name != "unfetched" {
            daemon.post(&format!("/api/agents/{id}/fetch"), &Value::Null);
        }
    }
    let stand = |works: &[PathBuf]| works.iter().map(|work| work.exists()).collect::<Vec<_>>();
    assert_eq!(stand(&works), [true; 3]);
    let other = host.home().join(".local/state/svc/runners/other");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(other.join("file"), "a person's").unwrap();
    let branches = || {
        let repo = place(&host).join("repo.git");
        let said = Command::new("git").arg("--git-dir").arg(repo).arg("for-each-ref").output().unwrap();
        String::from_utf8(said.stdout).unwrap().lines().count()
    };
    assert_eq!(branches(), 3);
    remove(&daemon, "fetched");
    wait_within(SOON, "its folder to go", || (!works[0].exists()).then_some(()));
    wait_within(SOON, "its branch to go", || (branches() == 2).then_some(()));
    remove(&daemon, "unfetched");
    wait_audited(&daemon, "runner.tidy", "holds work that no commit does");
    assert_eq!(stand(&works), [false, true, true], "nothing is lost that is not here");
    // Out of reach, and the daemon is another one then.
    host.do_("cut");
    remove(&daemon, "later");
    daemon.kill();
    host.do_("mend");
    daemon = host.daemon(folder);
    check(&daemon, "box");
    wait_within(SOON, "what was left to be done", || (!works[2].exists()).then_some(()));
    assert_eq!(stand(&works), [false, true, false]);
    assert_eq!(std::fs::read_to_string(other.join("file")).unwrap(), "a person's");
}
