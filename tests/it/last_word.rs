//! The last word of an agent that is about to be replaced, with a stand-in for Claude Code whose sessions
//! have copies.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;

/// Writes down what each of its lives was told first, and works until its input ends or somebody opens its
/// pipe `leave` for writing. Of its copies the first answers, the others fail, or say nothing where a file
/// tells them to.
const CLAUDE: &str = r#"#!/usr/bin/env python3
import json, os, select, sys, time
if "--version" in sys.argv:
    print("2.1.329 (Claude Code)")
    sys.exit(0)
say = lambda line: print(json.dumps(line), flush=True)
usage = {"input_tokens": 5, "output_tokens": 20, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 10}
def begin(session, text):
    say({"type": "system", "subtype": "init", "session_id": session, "model": "claude-sonnet-4-5", "tools": []})
    say({"type": "assistant", "session_id": session, "message": {"id": "msg_" + session, "role": "assistant",
         "model": "claude-sonnet-4-5", "content": [{"type": "text", "text": text}], "usage": usage}})
def turn(session, text):
    begin(session, text)
    say({"type": "result", "subtype": "success", "is_error": False, "result": text, "session_id": session,
         "num_turns": 1, "duration_ms": 1, "total_cost_usd": 0.01, "usage": usage})
prompt = json.loads(sys.stdin.readline())["message"]["content"]
text = prompt if isinstance(prompt, str) else prompt[0]["text"]
if "--fork-session" in sys.argv:
    assert "Your session ends here" in text, text
    count = len([name for name in os.listdir(".") if name.startswith("asked-")])
    open("asked-%d" % count, "w").close()
    if count == 0:
        turn("fork", "Decision: tabs, for the linter wants them.\nCommitted all of it.\nNext: the tests.")
    elif os.path.exists("hang"):
        open("hangs", "w").close()
        time.sleep(600)
    else:
        print("API Error: overloaded", file=sys.stderr)
        sys.exit(1)
else:
    life = len([name for name in os.listdir(".") if name.startswith("told-")])
    with open("told.tmp", "w") as file:
        file.write(text)
    os.rename("told.tmp", "told-%d" % life)
    if not os.path.exists("leave"):
        os.mkfifo("leave")
    leave = os.open("leave", os.O_RDONLY | os.O_NONBLOCK)
    begin("s%d" % life, "Began.")
    say({"type": "assistant", "session_id": "s%d" % life, "message": {"id": "msg_more%d" % life, "role": "assistant",
         "model": "claude-sonnet-4-5", "usage": usage,
         "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make test"}}]}})
    select.select([sys.stdin, leave], [], [])
"#;

#[test]
fn a_rotation_has_the_last_word_of_the_old_session_and_never_fails_for_want_of_it() {
    let daemon = Daemon::with_claude(Arc::new(Folder::new("last-word")), CLAUDE);
    let told = |life: usize| {
        let file = daemon.project.join(format!("told-{life}"));
        wait_for("a life to be told", || fs::read_to_string(&file).ok())
    };
    let works = || {
        wait_for("it to be at work", || {
            let record = daemon.get("/api/agents/one");
            // Its tokens are those of all its lives; a life whose context is empty is not asked.
            (record["contextUsage"].as_f64()? > 0.0 && record["sessionId"].is_string()).then_some(())
        });
    };
    let rotate = || -> Value {
        works();
        let rotated = daemon.post("/api/agents/one/rotate", &json!({}));
        let entry = daemon.get("/api/rotation")["history"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(entry["new"], rotated["new"]);
        entry["lastWord"].clone()
    };
    let body = json!({"role": "dev", "name": "one", "provider": "claude-code", "prompt": "Add a login page"});
    daemon.post("/api/agents", &body);
    told(0);
    let word = rotate();
    assert_eq!((&word["outcome"], &word["tokens"]["cacheRead"]), (&json!("answered"), &json!(900)), "{word}");
    let brief = told(1);
    assert!(brief.contains("- Decision: tabs, for the linter wants them.\n"), "{brief}");
    assert!(brief.contains("- Committed all of it. **[the log has no git commit]**\n"), "{brief}");
    let booked = daemon.get("/api/tokens/summary")["internalOverhead"]["components"]["__agent_qa__"].clone();
    assert_eq!(booked["tokens"], 915, "{booked}");

    assert_eq!(rotate()["outcome"], "failed");
    assert!(!told(2).contains("last word"), "the rotation goes on without it");

    works();
    daemon.send("PATCH", "/api/config", &json!({"askBeforeRotation": false}));
    assert_eq!(rotate(), Value::Null);
    told(3);
    assert!(!daemon.project.join("asked-2").exists(), "it was not asked");
}

#[test]
fn a_daemon_that_is_killed_while_it_waits_for_a_last_word_ends_the_rotation_without_it() {
    is_ended_by_the_next_daemon(false);
}

#[test]
fn a_rotation_whose_agent_ends_while_its_copy_is_asked_is_ended_by_the_daemon_after_a_kill() {
    is_ended_by_the_next_daemon(true);
}

/// A rotation waits for a last word when its daemon is killed; `ends_first` of an agent whose process has
/// ended by then.
fn is_ended_by_the_next_daemon(ends_first: bool) {
    let mut daemon = Daemon::with_claude(Arc::new(Folder::new("last-word-kill")), CLAUDE);
    let body = json!({"role": "dev", "name": "one", "provider": "claude-code", "prompt": "Add a login page"});
    let old = daemon.post("/api/agents", &body)["id"].clone();
    wait_for("it to be at work", || {
        let record = daemon.get("/api/agents/one");
        let works = record["currentActivity"].as_str()?.contains("make test");
        (works && record["sessionId"].is_string()).then_some(())
    });
    for name in ["asked-0", "hang"] {
        fs::write(daemon.project.join(name), "").unwrap();
    }
    let caller = std::thread::spawn({
        let url = format!("{}/api/agents/one/rotate", daemon.url);
        move || drop(ureq::post(&url).header("Content-Type", "application/json").send("{}"))
    });
    wait_for("it to be asked", || daemon.project.join("hangs").exists().then_some(()));
    if ends_first {
        drop(fs::File::options().write(true).open(daemon.project.join("leave")).unwrap());
    }
    // Within a second the disk knows that it is being replaced.
    let stored = daemon.project.join(".svc/state/agents.json");
    wait_for("the disk", || {
        let stored = fs::read_to_string(&stored).ok()?;
        (stored.contains("\"rotating\"") && stored.contains("\"completed\"") == ends_first).then_some(())
    });
    daemon.kill();
    caller.join().unwrap();
    let daemon = Daemon::with_claude(daemon.folder(), CLAUDE);
    let new = wait_for("the rotation to end", || {
        let entry = daemon.get("/api/rotation")["history"].as_array()?.last()?.clone();
        (entry["old"] == old).then_some(entry)
    });
    assert_eq!(new["lastWord"], Value::Null);
    let brief = wait_for("its successor", || fs::read_to_string(daemon.project.join("told-1")).ok());
    assert!(
        brief.contains("# Handoff from your predecessor") && brief.contains("Add a login page"),
        "{brief}"
    );
}
