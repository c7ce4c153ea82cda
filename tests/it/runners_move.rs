//! An agent goes on on another machine and comes back: a real sshd, reached by the real ssh.

use crate::runners::{
    Host, add, agent, check, counted, daemon_of, executable, repository, said, spawn_there, wait_code,
    wait_finished,
};
use crate::runners_hostile::Pretended;
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// An agent here, whose branch can go elsewhere.
fn spawn_here(daemon: &Daemon, name: &str) -> String {
    let body = json!({"role": "dev", "name": name, "provider": "script", "model": "counts", "prompt": "count",
        "isolation": "worktree"});
    daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned()
}

fn moves(daemon: &Daemon, name: &str, body: &Value) -> (u16, Value) {
    daemon.send("POST", &format!("/api/agents/{name}/move"), body)
}

fn git(folder: &Path, args: &[&str]) -> String {
    let done = Command::new("git").args(args).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

/// What a person's own branch and index are, whatever agents do.
fn own(project: &Path) -> String {
    git(project, &["rev-parse", "main"]) + &git(project, &["status", "--porcelain", "--untracked-files=no"])
}

fn ready(host: &Host, count: usize, pause_ms: u64) -> (Daemon, Arc<Folder>) {
    let folder = repository(count, pause_ms);
    let daemon = host.daemon(Arc::clone(&folder));
    add(&daemon, "box", "box");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    (daemon, folder)
}

/// So many turns of so many lines.
fn rounds(turns: usize, lines: usize) -> Vec<usize> {
    counted(lines).into_iter().cycle().take(turns * lines).collect()
}

#[test]
fn an_agent_goes_there_and_back_in_its_session_with_work_that_no_commit_holds() {
    let Some(host) = Host::start() else { return };
    let (daemon, folder) = ready(&host, 3, 10);
    let id = spawn_here(&daemon, "one");
    wait_finished(&daemon, &id);
    let (first, before) = (agent(&daemon, &id), own(folder.path()));
    let tree = folder.path().join(first["worktree"].as_str().unwrap());
    assert!(!git(&tree, &["status", "--porcelain"]).is_empty(), "it has left something uncommitted");
    let (status, told) = moves(&daemon, "one", &json!({"runner": "box", "message": "once more"}));
    assert_eq!((status, &told["session"], &told["waits"]), (200, &json!("goes"), &json!(false)), "{told:#}");
    assert_eq!(told["agent"]["runner"], "box", "{told:#}");
    wait_finished(&daemon, "one");
    let second = agent(&daemon, "one");
    let same = ["name", "lineageId", "sessionId", "worktree"];
    assert!(same.iter().all(|name| first[*name] == second[*name]), "{first:#} {second:#}");
    assert_eq!((&second["turns"], &second["predecessorId"]), (&json!(2), &first["id"]));
    assert_eq!(said(&daemon, "one"), rounds(2, 3), "its log goes on");
    assert!(git(&tree, &["log", "-1", "--format=%s"]).contains("has not committed itself"));
    assert_eq!(git(&tree, &["status", "--porcelain"]), "");
    // It has written there what it left uncommitted, too; and it comes back without a word to it.
    let (status, told) = moves(&daemon, "one", &json!({"runner": "here"}));
    assert_eq!((status, &told["session"]), (200, &json!("goes")), "{told:#}");
    let third = agent(&daemon, "one");
    assert_eq!((&third["statusCode"], &third["state"]), (&json!("moved"), &json!("completed")), "{third:#}");
    assert_eq!((&third["runner"], &third["turns"]), (&Value::Null, &json!(2)));
    let there = std::fs::read_to_string(tree.join("where")).unwrap();
    assert_eq!(there.trim(), host.home().to_str().unwrap(), "what it wrote there is here");
    daemon.post("/api/agents/one/instruct", &json!({"message": "and here"}));
    wait_finished(&daemon, "one");
    let last = agent(&daemon, "one");
    assert_eq!((&last["turns"], &last["sessionId"]), (&json!(3), &first["sessionId"]), "{last:#}");
    let here = std::fs::read_to_string(tree.join("where")).unwrap();
    assert_ne!(here.trim(), there.trim(), "it works here again");
    // There once more: the tree of the first time goes on.
    let (status, told) = moves(&daemon, "one", &json!({"runner": "box", "message": "again"}));
    assert_eq!((status, &told["session"]), (200, &json!("goes")), "{told:#}");
    wait_finished(&daemon, "one");
    assert_eq!(said(&daemon, "one"), rounds(4, 3));
    assert_eq!(own(folder.path()), before, "nothing of the person's own was touched");
}

#[test]
fn who_works_comes_to_the_end_of_its_turn_first_or_is_interrupted() {
    let Some(host) = Host::start() else { return };
    // Its first turn is not over before the other one is there, however slow this machine is.
    let (daemon, _folder) = ready(&host, 40, 200);
    let patient = spawn_here(&daemon, "patient");
    let hasty = spawn_here(&daemon, "hasty");
    for name in ["patient", "hasty"] {
        wait_within(Duration::from_secs(30), "some lines", || (said(&daemon, name).len() > 3).then_some(()));
    }
    let (status, told) = moves(&daemon, "hasty", &json!({"runner": "box", "now": true}));
    assert_eq!((status, &told["waits"]), (200, &json!(false)), "{told:#}");
    assert_eq!((&told["agent"]["runner"], &told["agent"]["status"]), (&json!("box"), &json!("active")));
    let (status, told) = moves(&daemon, "patient", &json!({"runner": "box"}));
    assert_eq!((status, &told["waits"]), (200, &json!(true)), "{told:#}");
    let (status, told) = moves(&daemon, "patient", &json!({"runner": "box"}));
    assert_eq!((status, &told["code"]), (409, &json!("move_under_way")), "{told:#}");
    wait_within(Duration::from_secs(60), "both to be there, at the end of a turn", || {
        let ended = ["patient", "hasty"].map(|name| {
            let agent = agent(&daemon, name);
            agent["statusCode"] == "finished" && agent["runner"] == "box"
        });
        (ended == [true; 2]).then_some(())
    });
    assert_eq!(said(&daemon, "patient"), rounds(2, 40), "its turn was not cut off");
    let all = said(&daemon, "hasty");
    assert!(all.len() < 80 && all.ends_with(&counted(40)), "{all:?}");
    let lives = [patient, hasty].map(|id| agent(&daemon, &id)["id"] != json!(id));
    assert_eq!(lives, [true; 2], "each goes on as its next life");
}

#[test]
fn where_a_step_fails_it_stays_where_it_was_and_goes_on_there() {
    let Some(host) = Host::start() else { return };
    let (daemon, folder) = ready(&host, 2, 5);
    let id = spawn_here(&daemon, "one");
    wait_finished(&daemon, &id);
    let failed = |words: &str| {
        let runner = agent(&daemon, "one")["runner"].clone();
        let to = if runner.is_null() { "box" } else { "here" };
        let (status, told) = moves(&daemon, "one", &json!({"runner": to, "message": "go"}));
        assert!(status == 502 && told.to_string().contains(words), "{words}: {told:#}");
        let now = agent(&daemon, "one");
        assert_eq!((&now["runner"], &now["statusCode"]), (&runner, &json!("move-failed")), "{now:#}");
        assert!(now["statusReason"].as_str().unwrap().contains(words), "{now:#}");
        let turns = now["turns"].as_u64().unwrap();
        daemon.post("/api/agents/one/resume", &json!({}));
        wait_finished(&daemon, "one");
        let now = agent(&daemon, "one");
        assert_eq!((&now["runner"], &now["turns"]), (&runner, &json!(turns + 1)), "{now:#}");
    };
    // Its folder here is on another branch.
    let tree = folder.path().join(agent(&daemon, "one")["worktree"].as_str().unwrap());
    let branch = git(&tree, &["branch", "--show-current"]);
    git(&tree, &["switch", "--quiet", "-c", "else"]);
    failed("not on its branch");
    git(&tree, &["switch", "--quiet", &branch]);
    // There is no repository to be made.
    let work = host.home().join(".local/state/svc");
    let places = work.join("runners");
    std::fs::rename(&places, work.join("aside")).unwrap();
    std::fs::write(&places, "").unwrap();
    failed("runners");
    std::fs::remove_file(&places).unwrap();
    std::fs::rename(work.join("aside"), &places).unwrap();
    // It goes there, and somebody changes something in the tree after it has come back.
    let (status, told) = moves(&daemon, "one", &json!({"runner": "box"}));
    assert_eq!(status, 200, "{told:#}");
    // Coming back, a file of a person's own in its folder here is in the way.
    daemon.post("/api/agents/one/instruct", &json!({"message": "work"}));
    wait_finished(&daemon, "one");
    std::fs::write(tree.join("where"), "a person's").unwrap();
    failed("where");
    git(&tree, &["checkout", "--quiet", "--", "where"]);
    let (status, told) = moves(&daemon, "one", &json!({"runner": "here"}));
    assert_eq!(status, 200, "{told:#}");
    let there = Command::new("find").arg(host.home()).args(["-type", "d", "-name", "tree"]).output().unwrap();
    let there = String::from_utf8(there.stdout).unwrap();
    // Git's own folder of it has that name, too.
    let there = there.lines().find(|path| !path.contains("repo.git")).unwrap();
    std::fs::write(Path::new(there).join("a.txt"), "changed there").unwrap();
    failed("holds work that no commit does");
    // Nobody answers there.
    host.do_("die");
    failed("ssh");
}

/// What the one agent works on that is on this machine.
fn tree_of(host: &Host) -> std::path::PathBuf {
    let runners = host.home().join(".local/state/svc/runners");
    let done =
        Command::new("find").arg(runners).args(["-maxdepth", "3", "-type", "d", "-name", "tree"]).output();
    let all = String::from_utf8(done.unwrap().stdout).unwrap();
    assert_eq!(all.lines().count(), 1, "{all}");
    all.trim().into()
}

#[test]
fn an_agent_goes_from_one_machine_to_another_in_its_session_and_with_its_work() {
    let hosts: Vec<Host> = (0..2).filter_map(|_| Host::start()).collect();
    if hosts.len() < 2 {
        return;
    }
    let folder = repository(3, 10);
    let daemon = daemon_of(&hosts, Arc::clone(&folder));
    let before = own(folder.path());
    for name in ["box0", "box1"] {
        add(&daemon, name, name);
        assert_eq!(check(&daemon, name)["error"], Value::Null);
    }
    let id = spawn_there(&daemon, "one", "box0");
    wait_finished(&daemon, &id);
    let first = agent(&daemon, &id);
    std::fs::write(tree_of(&hosts[0]).join("more"), "of the first machine").unwrap();
    let (status, told) = moves(&daemon, "one", &json!({"runner": "box1", "message": "once more"}));
    assert_eq!((status, &told["session"], &told["waits"]), (200, &json!("goes"), &json!(false)), "{told:#}");
    wait_finished(&daemon, "one");
    let second = agent(&daemon, "one");
    assert_eq!((&second["runner"], &second["turns"]), (&json!("box1"), &json!(2)), "{second:#}");
    assert!(["sessionId", "lineageId", "worktree"].iter().all(|name| first[*name] == second[*name]));
    assert_eq!(said(&daemon, "one"), rounds(2, 3), "its log goes on");
    let read = |host: &Host, name: &str| std::fs::read_to_string(tree_of(host).join(name)).unwrap();
    assert_eq!(read(&hosts[1], "more"), "of the first machine");
    for host in &hosts {
        assert_eq!(read(host, "where").trim(), host.home().to_str().unwrap(), "it worked on both");
    }
    let told = daemon.get("/api/audit?event=agent.moved").to_string();
    assert!(told.contains("\"from\":\"box0\"") && told.contains("\"to\":\"box1\""), "{told}");
    // Back, where its tree of the first time goes on; then its next machine is dead, and it stays.
    let (status, told) = moves(&daemon, "one", &json!({"runner": "box0", "message": "and back"}));
    assert_eq!((status, &told["session"]), (200, &json!("goes")), "{told:#}");
    wait_finished(&daemon, "one");
    hosts[1].do_("die");
    let (status, told) = moves(&daemon, "one", &json!({"runner": "box1", "message": "in vain"}));
    assert_eq!((status, &told["code"]), (502, &json!("move_failed")), "{told:#}");
    daemon.post("/api/agents/one/resume", &json!({}));
    wait_finished(&daemon, "one");
    let last = agent(&daemon, "one");
    assert_eq!((&last["runner"], &last["turns"]), (&json!("box0"), &json!(4)), "{last:#}");
    assert_eq!(last["sessionId"], first["sessionId"]);
    assert_eq!(own(folder.path()), before, "nothing of the person's own was touched");
}

/// An `ssh` that waits while there is a file `wait` in the host's folder.
fn slow(host: &Host) {
    let own = std::fs::read_to_string(host.path("bin/ssh")).unwrap();
    let wait = host.path("wait").display().to_string();
    let loops = format!("#!/bin/sh\nwhile [ -e {wait} ]; do sleep 0.02; done\n");
    executable(&host.path("bin/ssh"), &own.replacen("#!/bin/sh\n", &loops, 1));
}

#[test]
fn a_daemon_that_is_killed_on_the_way_leaves_it_to_the_next_one() {
    let Some(host) = Host::start() else { return };
    let (mut daemon, folder) = ready(&host, 2, 5);
    slow(&host);
    let id = spawn_here(&daemon, "one");
    wait_finished(&daemon, &id);
    std::fs::write(host.path("wait"), "").unwrap();
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            // Its connection ends with the daemon.
            let body = json!({"runner": "box", "message": "go"});
            daemon.try_send("POST", "/api/agents/one/move", &body).is_err()
        });
        wait_code(&daemon, "one", "moving");
        let (status, told) = daemon.send("POST", "/api/agents/one/rotate", &json!({}));
        assert_eq!(status, 409, "{told:#}");
        let queued = daemon.post("/api/agents/one/instruct", &json!({"message": "meanwhile"}));
        assert_eq!(queued["status"], "queued", "{queued:#}");
        let killed = Command::new("kill").args(["-9", &daemon.pid().to_string()]).status().unwrap();
        assert!(killed.success() && caller.join().unwrap());
    });
    daemon.kill();
    let daemon = host.daemon(folder);
    let now = agent(&daemon, "one");
    assert_eq!((&now["statusCode"], &now["runner"]), (&json!("moving"), &Value::Null), "{now:#}");
    std::fs::remove_file(host.path("wait")).unwrap();
    wait_within(Duration::from_secs(60), "it to be there", || {
        let agent = agent(&daemon, "one");
        (agent["runner"] == "box" && agent["statusCode"] == "finished").then_some(())
    });
    assert_eq!(said(&daemon, "one"), rounds(2, 2));
    let log = daemon.get("/api/agents/one/log?tail=1000").to_string();
    assert!(log.contains("meanwhile"), "what was said on its way was heard: {log}");
}

#[test]
fn who_is_on_its_way_can_be_ended_and_stays_where_it_was() {
    let Some(host) = Host::start() else { return };
    let (daemon, _folder) = ready(&host, 2, 5);
    slow(&host);
    let id = spawn_here(&daemon, "one");
    wait_finished(&daemon, &id);
    std::fs::write(host.path("wait"), "").unwrap();
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| moves(&daemon, "one", &json!({"runner": "box", "message": "go"})));
        wait_code(&daemon, "one", "moving");
        let (status, told) = daemon.send("DELETE", "/api/agents/one", &Value::Null);
        assert_eq!((status, &told["status"]), (200, &json!("killed")), "{told:#}");
        let (status, told) = caller.join().unwrap();
        assert_eq!((status, &told["code"]), (409, &json!("agent_ended")), "{told:#}");
    });
    std::fs::remove_file(host.path("wait")).unwrap();
    let now = agent(&daemon, "one");
    assert_eq!((&now["state"], &now["runner"]), (&json!("killed"), &Value::Null), "{now:#}");
    let there = spawn_there(&daemon, "two", "box");
    wait_finished(&daemon, &there);
    assert_eq!(agent(&daemon, "one")["runner"], Value::Null, "what came afterwards is nobody's");
}

/// Stands in for Claude Code: it keeps its sessions as that does, and tells how many turns it remembers.
const CLAUDE: &str = r#"#!/usr/bin/env python3
import json, os, re, sys
args = sys.argv[1:]
known = "--resume" in args
session = args[args.index("--resume") + 1] if known else "5c0d0000-0000-4000-8000-000000000001"
folder = os.path.join(os.environ["HOME"], ".claude/projects", re.sub("[^A-Za-z0-9]", "-", os.getcwd()))
path = os.path.join(folder, session + ".jsonl")
def say(**what): print(json.dumps(what), flush=True)
if known and not os.path.exists(path):
    print("No conversation found with session ID: " + session, file=sys.stderr)
    sys.exit(1)
os.makedirs(folder, exist_ok=True)
for line in sys.stdin:
    if json.loads(line).get("type") != "user": continue
    with open(path, "a") as record: record.write(json.dumps({"type": "user", "cwd": os.getcwd()}) + "\n")
    turns = len(open(path).readlines())
    say(type="system", subtype="init", session_id=session, model="m", tools=[])
    text = "turn %d of %s" % (turns, session[:4])
    say(type="assistant", session_id=session, message={"id": "m%d" % turns, "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 1, "output_tokens": 1}})
    say(type="result", subtype="success", is_error=False, result=text, session_id=session, num_turns=1,
        usage={"input_tokens": 1, "output_tokens": 1}, total_cost_usd=0)
"#;

/// A daemon whose machine, and a pretended other one, have that program, each with a HOME of its own.
fn with_claude() -> (Pretended, Daemon, Arc<Folder>) {
    let host = Pretended::new();
    executable(&host.0.path().join("claude"), CLAUDE);
    let folder = repository(1, 1);
    let home = host.0.path().join("here").display().to_string();
    std::fs::create_dir_all(&home).unwrap();
    let daemon = host.daemon_with(Arc::clone(&folder), &[("HOME", &home)]);
    wait_within(Duration::from_secs(30), "the stand-in to be found", || {
        let providers = daemon.get("/api/providers");
        let found = |one: &Value| one["id"] == "claude-code" && one["installed"] == true;
        providers.as_array().unwrap().iter().any(found).then_some(())
    });
    let body = json!({"role": "dev", "name": "one", "provider": "claude-code", "prompt": "work",
        "isolation": "worktree"});
    daemon.post("/api/agents", &body);
    wait_finished(&daemon, "one");
    (host, daemon, folder)
}

fn last_words(daemon: &Daemon) -> String {
    let log = daemon.get("/api/agents/one/log?tail=1000");
    let mut texts = log["entries"].as_array().unwrap().iter().filter(|entry| entry["type"] == "text");
    texts.next_back().unwrap()["text"].as_str().unwrap().to_owned()
}

#[test]
fn the_record_of_a_session_goes_to_where_its_program_looks_for_it_there_and_here_again() {
    let (host, daemon, _folder) = with_claude();
    assert_eq!(last_words(&daemon), "turn 1 of 5c0d");
    for (turns, to) in [(2, "box"), (3, "here"), (4, "box"), (5, "here")] {
        let (status, told) = moves(&daemon, "one", &json!({"runner": to, "message": "more"}));
        assert_eq!((status, &told["session"]), (200, &json!("goes")), "{told:#}");
        wait_finished(&daemon, "one");
        assert_eq!(last_words(&daemon), format!("turn {turns} of 5c0d"), "{to}");
    }
    let session = daemon.get("/api/agents/one")["sessionId"].clone();
    // What its program has lost begins anew, with what is known of it.
    std::fs::remove_dir_all(host.0.path().join("here/.claude/projects")).unwrap();
    let (status, told) = moves(&daemon, "one", &json!({"runner": "box", "message": "more"}));
    assert_eq!((status, &told["session"]), (200, &json!("new")), "{told:#}");
    assert!(told["why"].as_str().unwrap().contains("cannot be read"), "{told:#}");
    wait_finished(&daemon, "one");
    let now = daemon.get("/api/agents/one");
    assert!(now["runner"] == "box" && now["turns"] == 6, "{now:#} {session}");
}

#[test]
fn what_a_machine_sends_as_a_session_lands_in_its_place_or_nowhere() {
    let (host, daemon, _folder) = with_claude();
    let (status, told) = moves(&daemon, "one", &json!({"runner": "box", "message": "more"}));
    assert_eq!(status, 200, "{told:#}");
    wait_finished(&daemon, "one");
    let home = host.0.path().join("here");
    let before = listing(&home);
    let session = daemon.get("/api/agents/one")["sessionId"].as_str().unwrap().to_owned();
    let lies = |name: &str, bytes: u64, content: &[u8]| {
        let head = format!("svc-far {}\n", json!({"name": name, "bytes": bytes, "stays": null}));
        std::fs::write(host.0.path().join("session"), [head.as_bytes(), content].concat()).unwrap();
    };
    let own = format!("{session}.jsonl");
    let refused = |words: &str| {
        let (status, told) = moves(&daemon, "one", &json!({"runner": "here"}));
        assert!(status == 502 && told.to_string().contains(words), "{words}: {told:#}");
        assert_eq!(listing(&home), before, "{words}");
        assert_eq!(daemon.get("/api/agents/one")["runner"], "box");
    };
    for name in ["../../.ssh/authorized_keys", "x.jsonl", "", "/etc/passwd", &format!("../{own}")] {
        lies(name, 1, b"x");
        refused("not the record of its session");
    }
    lies(&own, 5, b"x");
    refused("as a whole");
    lies(&own, 1, b"more than that");
    refused("as a whole");
    lies(&own, u64::MAX, b"x");
    refused("as a whole");
    std::fs::write(host.0.path().join("session"), "nothing of the kind").unwrap();
    refused("nothing was brought");
    // Without an end: what is kept has one.
    let huge = std::fs::File::create(host.0.path().join("session")).unwrap();
    huge.set_len(70 << 20).unwrap();
    refused("more than 67108864 bytes");
    std::fs::remove_file(host.0.path().join("session")).unwrap();
    // The record there is none: a link, a pipe, a folder, too long.
    let there = find(&host.0.path().join("home"), &own);
    let real = there.with_extension("kept");
    std::fs::rename(&there, &real).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &there).unwrap();
    let stays = |words: &str| {
        let (status, told) = moves(&daemon, "one", &json!({"runner": "here"}));
        assert_eq!((status, &told["session"]), (200, &json!("new")), "{words}: {told:#}");
        assert!(told["why"].as_str().unwrap().contains(words), "{words}: {told:#}");
    };
    stays("cannot be read");
    assert_eq!(listing(&home), before);
}

#[test]
fn a_link_in_the_way_of_a_session_is_not_followed() {
    let (host, daemon, _folder) = with_claude();
    let (status, told) = moves(&daemon, "one", &json!({"runner": "box", "message": "more"}));
    assert_eq!(status, 200, "{told:#}");
    wait_finished(&daemon, "one");
    let session = daemon.get("/api/agents/one")["sessionId"].as_str().unwrap().to_owned();
    let record = find(&host.0.path().join("here"), &format!("{session}.jsonl"));
    let other = host.0.path().join("other");
    std::fs::write(&other, "untouched").unwrap();
    // The file itself is a link: that is replaced.
    std::fs::remove_file(&record).unwrap();
    std::os::unix::fs::symlink(&other, &record).unwrap();
    let (status, told) = moves(&daemon, "one", &json!({"runner": "here"}));
    assert_eq!((status, &told["session"]), (200, &json!("goes")), "{told:#}");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "untouched");
    assert!(std::fs::symlink_metadata(&record).unwrap().is_file());
    // A folder above it is one: nothing is written.
    let (status, told) = moves(&daemon, "one", &json!({"runner": "box"}));
    assert_eq!(status, 200, "{told:#}");
    let (folder, aside) = (record.parent().unwrap(), host.0.path().join("aside"));
    std::fs::rename(folder, &aside).unwrap();
    let before = listing(&aside);
    std::os::unix::fs::symlink(&aside, folder).unwrap();
    let (status, told) = moves(&daemon, "one", &json!({"runner": "here"}));
    assert!(status == 502 && told.to_string().contains("cannot be written"), "{told:#}");
    assert_eq!(listing(&aside), before);
}

/// All below a folder, with sizes and times.
fn listing(folder: &Path) -> String {
    let done = Command::new("find").arg(folder).args(["-printf", "%p %s %T@ %y\\n"]).output().unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn find(folder: &Path, name: &str) -> std::path::PathBuf {
    let done = Command::new("find").arg(folder).args(["-name", name]).output().unwrap();
    String::from_utf8(done.stdout).unwrap().trim().into()
}
