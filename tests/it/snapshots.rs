//! What agents have changed, turn by turn: undone, redone, shown. Real daemon, real children, real files.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn project(scenarios: &[(&str, Value)]) -> Arc<Folder> {
    let folder = Arc::new(Folder::new("snapshots"));
    for (name, steps) in scenarios {
        folder.write(&format!(".svc/rehearsals/{name}.json"), &steps.to_string());
    }
    folder
}

fn write(path: &str, text: &str) -> Value {
    json!({"write": {"path": path, "text": text}})
}

fn run(command: &str) -> Value {
    json!({"run": {"command": command, "timeoutMs": 20_000}})
}

/// Starts an agent in the project's own folder.
fn begin(daemon: &Daemon, scenario: &str) -> String {
    let wish = json!({
        "role": "dev", "name": scenario, "provider": "script", "model": scenario, "prompt": "p",
    });
    daemon.post("/api/agents", &wish)["id"].as_str().unwrap().to_owned()
}

/// Waits until so many turns of an agent are over; what is told of them.
fn turns(daemon: &Daemon, agent: &str, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} turns of {agent}"), || {
        let told =
            daemon.get(&format!("/api/agents/{agent}/snapshots"))["turns"].as_array().cloned().unwrap();
        let is_over = |turn: &Value| turn["endedAt"].is_string();
        let state = daemon.get(&format!("/api/agents/{agent}"));
        // What is behind a turn is kept a moment before its end is heard of.
        let rests = state["state"] != "running" && state["turns"].as_u64() >= Some(count as u64);
        (told.len() == count && told.iter().all(is_over) && rests).then_some(told)
    })
}

fn undo(daemon: &Daemon, agent: &str, body: &Value) -> (u16, Value) {
    daemon.send("POST", &format!("/api/agents/{agent}/undo"), body)
}

fn redo(daemon: &Daemon, agent: &str) -> (u16, Value) {
    daemon.send("POST", &format!("/api/agents/{agent}/redo"), &json!({}))
}

fn read(folder: &Path, path: &str) -> String {
    fs::read_to_string(folder.join(path)).unwrap_or_else(|error| format!("({})", error.kind()))
}

fn mode(folder: &Path, path: &str) -> u32 {
    fs::metadata(folder.join(path)).unwrap().permissions().mode() & 0o7777
}

fn svc(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).current_dir(folder);
    let output = command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_a_turn_and_its_commands_have_changed_is_undone_and_redone_and_nothing_else() {
    let steps = json!({
        "steps": [
            run("echo agent >> src/a.txt; rm b.txt; chmod 600 c.txt; ln -s c.txt link"),
            run("mkdir -p gen; printf made > gen/x; echo l > out.log"),
            {"answer": "done"},
        ],
    });
    let folder = project(&[("painter", steps)]);
    for (path, text) in
        [("src/a.txt", "mine\n"), ("b.txt", "b\n"), ("c.txt", "c\n"), (".gitignore", "*.log\n")]
    {
        folder.write(path, text);
    }
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let at = folder.path();
    let was = mode(at, "c.txt");
    let agent = begin(&daemon, "painter");
    let told = turns(&daemon, &agent, 1);
    assert_eq!((&told[0]["changed"], &told[0]["missed"]), (&json!(true), &json!(null)), "{told:?}");
    // A person goes on beside it.
    folder.write("mine.txt", "a person's\n");
    let (code, shown, _) = svc(at, &["diff", "painter", "--stat"]);
    assert_eq!(code, 0);
    for name in ["src/a.txt", "b.txt", "gen/x", "link"] {
        assert!(shown.contains(name), "{shown}");
    }
    assert!(!shown.contains("mine.txt") && !shown.contains("SVC_") && !shown.contains("out.log"), "{shown}");
    let (status, answer) = undo(&daemon, &agent, &json!({}));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["files"].as_array().unwrap().len(), 5, "{answer}");
    assert_eq!((read(at, "src/a.txt"), read(at, "b.txt")), ("mine\n".into(), "b\n".into()));
    assert_eq!(mode(at, "c.txt"), was, "as it was");
    assert!(fs::symlink_metadata(at.join("link")).is_err() && !at.join("gen").exists());
    assert_eq!((read(at, "mine.txt"), read(at, "out.log")), ("a person's\n".into(), "l\n".into()));
    assert_eq!(undo(&daemon, &agent, &json!({})).1["code"], "nothing_to_undo");
    let (code, said, note) = svc(at, &["redo", "painter"]);
    assert_eq!(code, 0, "{said}{note}");
    assert_eq!((read(at, "src/a.txt"), read(at, "gen/x")), ("mine\nagent\n".into(), "made".into()));
    assert_eq!((mode(at, "c.txt"), at.join("b.txt").exists()), (0o600, false));
    assert_eq!(fs::read_link(at.join("link")).unwrap(), Path::new("c.txt"));
    // Its next turn, and back over both.
    daemon.post("/api/agents/painter/instruct", &json!({"message": "again"}));
    turns(&daemon, "painter", 2);
    let second = daemon.get("/api/agents/painter/diff?turn=2");
    assert_eq!(second["files"].as_array().unwrap().len(), 1, "{second}");
    assert!(second["diff"].as_str().unwrap().contains(" agent\n+agent\n"), "{second}");
    let (code, said, note) = svc(at, &["undo", "painter", "--turn", "1"]);
    assert_eq!(code, 0, "{said}{note}");
    assert!(said.contains("undone turns 1 to 2 of painter: 5 files"), "{said}");
    assert_eq!((read(at, "src/a.txt"), read(at, "b.txt")), ("mine\n".into(), "b\n".into()));
    let audit = daemon.get("/api/audit?limit=50").to_string();
    assert!(audit.contains("agent.undo") && audit.contains("agent.redo"), "{audit}");
}

#[test]
fn who_has_changed_the_same_since_is_named_and_nothing_is_touched() {
    let first = json!({"steps": [write("one", "1"), write("two", "1"), {"answer": "done"}]});
    let second = json!({"steps": [write("two", "2"), {"answer": "done"}]});
    let folder = project(&[("first", first), ("second", second)]);
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let agent = begin(&daemon, "first");
    turns(&daemon, &agent, 1);
    let other = begin(&daemon, "second");
    turns(&daemon, &other, 1);
    let (status, answer) = undo(&daemon, &agent, &json!({"turn": 1}));
    assert_eq!((status, &answer["code"]), (409, &json!("changed_since")), "{answer}");
    assert_eq!(answer["paths"][0]["path"], "two");
    assert_eq!((read(folder.path(), "one"), read(folder.path(), "two")), ("1".into(), "2".into()));
    // Once the other's is undone there is nothing against it.
    assert_eq!(undo(&daemon, &other, &json!({})).0, 200);
    assert_eq!(read(folder.path(), "two"), "1");
    assert_eq!(undo(&daemon, &agent, &json!({})).0, 200);
    assert!(!folder.path().join("one").exists() && !folder.path().join("two").exists());
    assert_eq!(redo(&daemon, &agent).0, 200);
    assert_eq!(undo(&daemon, &agent, &json!({"turn": 7})).0, 404);
}

#[test]
fn inside_of_a_turn_nothing_is_undone_and_of_two_at_once_each_has_what_its_tools_wrote() {
    let asks =
        json!({"steps": [write("slow", "1"), run("echo x > shell"), {"ask": "go on?"}, {"answer": "done"}]});
    let quick = json!({"steps": [write("quick", "1"), {"answer": "done"}]});
    let folder = project(&[("asks", asks), ("quick", quick)]);
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let slow = begin(&daemon, "asks");
    wait_for("its question", || folder.path().join("shell").exists().then_some(()));
    let (status, answer) = undo(&daemon, &slow, &json!({}));
    assert_eq!((status, &answer["code"]), (409, &json!("agent_busy")), "{answer}");
    let other = begin(&daemon, "quick");
    turns(&daemon, &other, 1);
    daemon.post(&format!("/api/agents/{slow}/instruct"), &json!({"message": "yes", "deliver": "now"}));
    turns(&daemon, &slow, 1);
    // What a command has made cannot be told from the other's, so it stays.
    let (status, answer) = undo(&daemon, &slow, &json!({}));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["files"].as_array().unwrap().len(), 1, "{answer}");
    assert!(!folder.path().join("slow").exists());
    assert_eq!((read(folder.path(), "shell"), read(folder.path(), "quick")), ("x\n".into(), "1".into()));
}

#[test]
fn a_daemon_that_is_killed_inside_of_an_undo_leaves_it_to_the_next_which_ends_it() {
    let many = "i=0; while [ $i -lt 1500 ]; do echo new > d/f$i; i=$((i+1)); done; rm -r gone";
    let folder = project(&[("many", json!({"steps": [run(many), {"answer": "done"}]}))]);
    for n in 0..1500 {
        folder.write(&format!("d/f{n}"), "old\n");
    }
    folder.write("gone/deep/file", "here\n");
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let agent = begin(&daemon, "many");
    turns(&daemon, &agent, 1);
    let at = folder.path().to_path_buf();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| daemon.try_send("POST", &format!("/api/agents/{agent}/undo"), &json!({})));
        // In the middle of it, however fast this machine is: some are back, others are not.
        wait_for("some files to be back", || {
            let back = |n: usize| read(&at, &format!("d/f{n}")) == "old\n";
            (back(0) && !back(999)).then_some(())
        });
        let pid = daemon.pid().to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        assert!(asked.join().unwrap().is_err(), "it was killed before it could answer");
    });
    daemon.kill();
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    for n in 0..1500 {
        assert_eq!(read(&at, &format!("d/f{n}")), "old\n", "f{n}");
    }
    assert_eq!(read(&at, "gone/deep/file"), "here\n");
    let told = daemon.get(&format!("/api/agents/{agent}/snapshots"));
    assert_eq!((&told["turns"][0]["undone"], &told["redo"]), (&json!(true), &json!(1)), "{told}");
    assert_eq!(redo(&daemon, &agent).0, 200);
    assert_eq!((read(&at, "d/f7"), at.join("gone").exists()), ("new\n".into(), false));
}

#[test]
fn a_fork_goes_on_from_before_a_turn_in_a_worktree_of_its_own() {
    let steps = json!({"steps": [
        run("cat a.txt >seen.txt; echo more >>a.txt; mkdir -p new; echo x >>new/file; chmod 750 new/file"),
        {"answer": "done"},
    ]});
    let folder = project(&[("painter", steps)]);
    let at = folder.path();
    folder.write("a.txt", "base\n");
    folder.write("b.txt", "in the commit\n");
    let git = |args: &[&str]| {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let said = Command::new("git").current_dir(at).args(who).args(args).output().unwrap();
        assert!(said.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said.stderr));
    };
    git(&["init", "--quiet", "-b", "main"]);
    git(&["add", "a.txt", "b.txt"]);
    git(&["commit", "--quiet", "-m", "First"]);
    fs::remove_file(at.join("b.txt")).unwrap();
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    begin(&daemon, "painter");
    turns(&daemon, "painter", 1);
    daemon.post("/api/agents/painter/instruct", &json!({"message": "a word of the second turn"}));
    turns(&daemon, "painter", 2);
    let told = |name: &str| {
        turns(&daemon, name, 1);
        let record = daemon.get(&format!("/api/agents/{name}"));
        let log = daemon.log_of(record["id"].as_str().unwrap());
        let first = log.iter().find(|entry| entry["type"] == "user").unwrap()["text"].to_string();
        (at.join(record["worktree"].as_str().unwrap()), first)
    };
    let (code, said, note) =
        svc(at, &["fork", "painter", "another", "way", "--turn", "2", "--name", "early"]);
    assert_eq!(code, 0, "{said}{note}");
    let (early, first) = told("early");
    assert_eq!(read(&early, "seen.txt"), "base\nmore\n", "what stood there before turn 2");
    assert_eq!(read(&early, "new/file"), "x\nx\n");
    assert_eq!((mode(&early, "new/file"), early.join("b.txt").exists()), (0o750, false));
    assert!(first.contains("a fork of painter (dev), as it was before its turn 2"), "{first}");
    assert!(first.contains("another way") && !first.contains("a word of the second turn"), "{first}");
    let late = daemon.post("/api/agents/painter/fork", &json!({"name": "late"}));
    assert_eq!((&late["isolation"], &late["role"]), (&json!("worktree"), &json!("dev")));
    let (late, first) = told("late");
    assert_eq!(read(&late, "seen.txt"), "base\nmore\nmore\n", "what it had come to");
    assert!(first.contains("a word of the second turn") && first.contains("Go on with the task"), "{first}");
    // Whom it was made of, and the person's own folder, have nothing of it.
    assert_eq!((read(at, "a.txt"), read(at, "new/file")), ("base\nmore\nmore\n".into(), "x\nx\n".into()));
    // Nor is anything left of one that cannot be.
    let fork = |who: &str, body: Value| daemon.send("POST", &format!("/api/agents/{who}/fork"), &body);
    assert_eq!(fork("painter", json!({"turn": 9})).0, 404);
    assert_eq!(fork("painter", json!({"name": "early"})).1["errors"][0]["field"], "name");
    assert_eq!(fork("painter", json!({"turn": "x"})).1["errors"][0]["field"], "turn");
    assert_eq!(fs::read_dir(at.join(".svc/worktrees")).unwrap().count(), 2);
    // What it has changed is its own, from its first turn on.
    let own = daemon.get("/api/agents/early/diff?turn=1");
    assert!(own["diff"].as_str().unwrap().contains("+++ b/seen.txt\n@@ -1 +1,2 @@\n base\n+more\n"), "{own}");
    assert_eq!(undo(&daemon, "early", &json!({})).0, 200);
    assert_eq!((read(&early, "a.txt"), read(&early, "seen.txt")), ("base\nmore\n".into(), "base\n".into()));
}
