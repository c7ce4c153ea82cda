//! The rehearsal agent as the daemon meets it: the built binary with pipes. Waits have deadlines; nothing
//! sleeps.

use crate::support::rehearsal::{Agent, Project};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// Plays the steps, with `test` as the scenario, and gives the first turn.
fn turn_of(steps: &Value) -> Vec<Value> {
    let project = Project::steps(steps);
    let agent = project.play(&["--model", "test"]);
    let found = agent.turn();
    agent.end_well();
    found
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// The end of a turn.
fn ended(text: &str, error: &str) -> Value {
    json!({"type": "turn-ended", "text": text, "isError": !error.is_empty(), "error": error, "denied": []})
}

fn tool_end(id: &str, error: bool, output: &str) -> Value {
    json!({"type": "tool-ended", "id": id, "error": error, "output": output})
}

/// The total of a usage line.
fn total(usage: &Value) -> (u64, u64) {
    assert_eq!(usage["type"], "usage", "{usage}");
    let total = &usage["sessionTotal"];
    (total["input"].as_u64().unwrap(), total["output"].as_u64().unwrap())
}

#[test]
fn a_turn_begins_with_the_session_and_ends_with_the_answer() {
    let project = Project::new();
    let mut agent = project.play(&["--model", "quick"]);
    let session = agent.next();
    assert_eq!((&session["type"], &session["model"]), (&json!("session"), &json!("quick")));
    assert_eq!(session["id"].as_str().unwrap().len(), 32);
    assert_eq!(agent.next(), json!({"type": "turn-started"}));
    assert_eq!(agent.turn().last(), Some(&ended("done", "")));

    agent.say("go on");
    assert_eq!(agent.next(), json!({"type": "turn-started"}));
    assert_eq!(agent.turn(), [text("noted: go on"), ended("noted: go on", "")]);
    agent.end_well();

    let other = project.play(&["--model", "quick"]).next();
    assert_ne!(other["id"], session["id"], "each fresh session has an id of its own");
}

#[test]
fn words_and_thoughts_are_templates() {
    let found = turn_of(&json!([
        {"say": "{{name}} {{role}} {{agentId}}: {{prompt}}"},
        {"think": "{{message}}{{unknown}}"},
        {"loop": {"times": 2, "steps": [{"say": "again"}, {"sleepMs": 1}]}},
    ]));
    let thinking = json!({"type": "thinking", "text": "{{unknown}}"});
    let expected =
        [text("backend-1 backend 0000002a: build it"), thinking, text("again"), text("again"), ended("", "")];
    assert_eq!(found, expected);
}

#[test]
fn tools_have_real_effects_and_tell_start_and_end() {
    let project = Project::steps(&json!([
        {"write": {"path": "a/b.txt", "text": "by {{name}}"}},
        {"read": "a/b.txt"},
        {"run": {"command": "echo out; cat a/b.txt >&2"}},
        {"run": {"command": "exit 4"}},
        {"read": "nothing.txt"},
        {"waitForFile": {"path": "a/b.txt"}},
        {"answer": "done"},
    ]));
    let agent = project.play(&["--model", "test"]);
    let found = agent.turn();
    assert_eq!(fs::read_to_string(project.work("a/b.txt")).unwrap(), "by backend-1");
    assert_eq!(
        found[0],
        json!({"type": "tool-started", "id": "tool-1", "name": "write", "path": "a/b.txt", "writes": true,
            "input": {"path": "a/b.txt", "text": "by backend-1"}})
    );
    assert_eq!(found[1], tool_end("tool-1", false, "wrote 12 bytes to a/b.txt"));
    assert_eq!(
        found[2],
        json!({"type": "tool-started", "id": "tool-2", "name": "read", "path": "a/b.txt", "writes": false,
            "input": {"path": "a/b.txt"}})
    );
    assert_eq!(found[3], tool_end("tool-2", false, "by backend-1"));
    assert_eq!(found[5], tool_end("tool-3", false, "out\nby backend-1"));
    assert_eq!(found[7], tool_end("tool-4", true, "[exit status: 4]"));
    assert_eq!(found[9]["error"], true);
    assert_eq!(found[10..], [text("done"), ended("done", "")]);
    agent.end_well();
}

#[test]
fn a_path_that_leads_out_is_a_tool_error_without_effect() {
    let project = Project::steps(&json!([
        {"write": {"path": "../out.txt", "text": "x"}},
        {"write": {"path": "link/out.txt", "text": "x"}},
        {"write": {"path": "dangling", "text": "x"}},
        {"read": "/etc/hostname"},
        {"read": "link/secret"},
        {"write": {"path": "within/ok.txt", "text": "x"}},
    ]));
    fs::write(project.0.join("secret"), "s").unwrap();
    fs::create_dir(project.work("inner")).unwrap();
    std::os::unix::fs::symlink("..", project.work("link")).unwrap();
    std::os::unix::fs::symlink("../out.txt", project.work("dangling")).unwrap();
    std::os::unix::fs::symlink("inner", project.work("within")).unwrap();
    let agent = project.play(&["--model", "test"]);
    let ends: Vec<Value> = agent.turn().into_iter().filter(|a| a["type"] == "tool-ended").collect();
    let errors: Vec<&Value> = ends.iter().map(|end| &end["error"]).collect();
    assert_eq!(errors, [true, true, true, true, true, false], "{ends:?}");
    assert_eq!(ends[0]["output"], "../out.txt: leads out of the working directory");
    assert!(!project.0.join("out.txt").exists());
    assert!(project.work("inner/ok.txt").exists());
    agent.end_well();
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_its_children() {
    let found = turn_of(&json!([
        {"run": {"command": "echo begun; sleep 300 & sleep 300", "timeoutMs": 100}},
        {"answer": "went on"},
    ]));
    assert_eq!(found[1], tool_end("tool-1", true, "begun\n[killed after 100 ms]"));
    assert_eq!(found[2], text("went on"));
}

#[test]
fn a_file_that_does_not_come_fails_the_turn_and_the_agent_goes_on() {
    let project = Project::steps(&json!([{"waitForFile": {"path": "never", "timeoutMs": 1}}, {"say": "no"}]));
    let mut agent = project.play(&["--model", "test"]);
    assert_eq!(agent.turn(), [ended("", "never: did not appear within 1 ms")]);
    agent.say("then not");
    assert_eq!(agent.turn().last(), Some(&ended("noted: then not", "")));
    agent.end_well();
}

#[test]
fn a_file_that_comes_is_waited_for() {
    let project = Project::steps(&json!([{"say": "ready"}, {"waitForFile": {"path": "f"}}, {"read": "f"}]));
    let agent = project.play(&["--model", "test"]);
    while agent.next() != text("ready") {}
    fs::write(project.work("part"), "come").unwrap();
    fs::rename(project.work("part"), project.work("f")).unwrap();
    assert_eq!(agent.turn()[1], tool_end("tool-1", false, "come"));
    agent.end_well();
}

#[test]
fn usage_adds_up_to_the_total_of_the_session() {
    let found = turn_of(&json!([
        {"usage": {"input": 10, "output": 2, "cacheRead": 30, "cacheCreation": 4, "contextWindow": 1000}},
        {"usage": {"input": 5, "output": 1}},
        {"repeatUsage": 2},
    ]));
    assert_eq!(
        found[0]["sessionTotal"],
        json!({"input": 10, "output": 2, "cacheRead": 30, "cacheCreation": 4})
    );
    assert_eq!((&found[0]["contextTokens"], &found[0]["contextWindow"]), (&json!(44), &json!(1000)));
    assert_eq!(total(&found[1]), (15, 3));
    assert_eq!((&found[1]["contextTokens"], &found[1]["contextWindow"]), (&json!(5), &json!(200_000)));
    assert_eq!(found[2..4], [found[1].clone(), found[1].clone()]);
    assert_eq!(found.len(), 5);
}

#[test]
fn a_resumed_session_keeps_its_id_and_its_total() {
    let project = Project::new();
    let counted = r#"{"input":1000,"output":50,"cacheRead":7,"cacheCreation":0}"#;
    let agent = project.play(&["--resume", "abc", "--counted", counted, "--model", "quick"]);
    assert_eq!(agent.next()["id"], "abc");
    let found = agent.turn();
    assert_eq!(total(&found[0]), (1100, 70));
    assert_eq!(found[0]["sessionTotal"]["cacheRead"], 7);
    agent.end_well();
}

#[test]
fn a_question_is_answered_without_effects() {
    let scenario = json!({"query": "{{name}} on {{prompt}}", "steps": [
        {"write": {"path": "effect.txt", "text": "x"}},
    ]});
    let project = Project::with(&scenario);
    let agent = project.play(&["--query", "--model", "test"]);
    assert_eq!(agent.next()["type"], "session");
    assert_eq!(agent.next(), json!({"type": "turn-started"}));
    assert_eq!(agent.turn(), [text("backend-1 on build it"), ended("backend-1 on build it", "")]);
    assert_eq!(agent.raw(), None, "it ends by itself");
    agent.end_well();
    assert!(!project.work("effect.txt").exists());
}

#[test]
fn a_question_inside_a_turn_waits_for_its_message() {
    let project = Project::new();
    let mut agent = project.play(&["--model", "ask"]);
    while agent.next() != text("Which colour?") {}
    agent.say("blue");
    assert_eq!(agent.turn(), [text("I take blue."), ended("I take blue.", "")]);
    agent.end_well();

    let mut agent = project.play(&["--model", "ask"]);
    while agent.next() != text("Which colour?") {}
    agent.close();
    assert_eq!(agent.turn(), [ended("", "")]);
    agent.end_well();
}

#[test]
fn messages_play_their_own_steps() {
    let scenario = json!({"steps": [], "onSay": [{"say": "heard {{message}}"}, {"fail": "no {{message}}"}]});
    let project = Project::with(&scenario);
    let mut agent = project.play(&["--model", "test"]);
    assert_eq!(agent.turn(), [ended("", "")]);
    for message in ["one", "two"] {
        agent.say(message);
        let expected = [text(&format!("heard {message}")), ended("", &format!("no {message}"))];
        assert_eq!(agent.turn(), expected);
    }
    agent.end_well();
}

#[test]
fn a_limit_is_trouble_and_a_failed_turn() {
    let found = turn_of(&json!([{"limit": "limit reached"}, {"say": "never said"}]));
    assert_eq!(found, [json!({"type": "trouble", "text": "limit reached"}), ended("", "limit reached")]);
}

#[test]
fn a_flood_has_every_line_in_order() {
    let found = turn_of(&json!([{"flood": {"lines": 2000, "bytes": 80}}]));
    assert_eq!(found.len(), 2001);
    for (index, line) in found[..2000].iter().enumerate() {
        let words = line["text"].as_str().unwrap();
        assert!(words.starts_with(&format!("line {} of 2000 ", index + 1)) && words.len() == 80, "{words}");
    }
}

#[test]
fn bad_lines_are_bad_and_the_agent_goes_on() {
    let project = Project::steps(&json!([
        {"badUtf8": true}, {"hugeLine": 100_000}, {"halfLine": "half \
             "}, {"halfLine": "whole"}, {"newline": true},
        {"answer": "after"},
    ]));
    let agent = project.play(&["--model", "test"]);
    agent.next();
    agent.next();
    let bad = agent.raw().unwrap();
    assert!(std::str::from_utf8(&bad).is_err());
    let huge = agent.next();
    assert_eq!(huge["text"].as_str().unwrap().len(), 100_000);
    assert_eq!(agent.raw().unwrap(), b"half whole\n");
    assert_eq!(agent.turn(), [text("after"), ended("after", "")]);
    agent.end_well();
}

#[test]
fn half_a_line_at_the_end_stays_half() {
    let project = Project::new();
    let agent = project.play(&["--model", "halfline"]);
    let mut last = Vec::new();
    while let Some(line) = agent.raw() {
        last = line;
    }
    assert_eq!(last, br#"{"type":"text","text":"half a li"#);
    agent.end_well();
}

#[test]
fn an_exit_and_a_signal_end_it_in_the_middle_of_a_turn() {
    use std::os::unix::process::ExitStatusExt;
    let project = Project::new();
    let (status, _) = project.play(&["--model", "crash"]).end();
    assert_eq!(status.code(), Some(3));
    let (status, _) = project.play(&["--model", "segfault"]).end();
    assert_eq!((status.signal(), status.core_dumped()), (Some(11), false));
}

#[test]
fn a_hang_lasts_until_it_is_killed() {
    let project = Project::new();
    let mut agent = project.play(&["--model", "hang"]);
    while agent.next() != text("thinking for long") {}
    agent.close();
    assert!(agent.child.try_wait().unwrap().is_none());
    agent.child.kill().unwrap();
    assert_eq!(agent.raw(), None);
}

#[test]
fn it_can_ignore_the_wish_to_end() {
    use std::os::unix::process::ExitStatusExt;
    let suicide = json!({"run": {"command": "kill -TERM $PPID"}});
    let found = turn_of(&json!([{"ignoreTerm": true}, suicide, {"answer": "alive"}]));
    assert_eq!(found.last(), Some(&ended("alive", "")));
    let project = Project::steps(&json!([suicide, {"hang": true}]));
    assert_eq!(project.play(&["--model", "test"]).end().0.signal(), Some(15), "without the step it does not");
}

#[cfg(target_os = "linux")]
fn ignores_term(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() & (1 << 14) != 0
}

/// A process left behind, ended with the test.
#[cfg(target_os = "linux")]
struct Left(String);

#[cfg(target_os = "linux")]
impl Left {
    fn of(agent: &Agent) -> Self {
        loop {
            let activity = agent.next();
            let words = activity["text"].as_str().unwrap_or_default();
            if let Some(pid) = words.strip_prefix("left process ") {
                return Self(pid.trim_end_matches(" behind").to_owned());
            }
        }
    }

    fn leads_a_session(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(3) == Some(&self.0)
    }
}

#[cfg(target_os = "linux")]
impl Drop for Left {
    fn drop(&mut self) {
        let _ = Command::new("/bin/sh").args(["-c", &format!("kill -9 {}", self.0)]).status();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_fork_outlives_the_agent_and_holds_the_pipe() {
    let fork = json!({"fork": {"ignoreTerm": true, "ownSession": true, "holdPipe": true, "seconds": 60}});
    let project = Project::steps(&json!([fork, {"exit": 0}]));
    let mut agent = project.play(&["--model", "test"]);
    let left = Left::of(&agent);
    assert!(agent.child.wait().unwrap().success());
    assert!(ignores_term(&left.0) && left.leads_a_session());
    let open = agent.lines.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty);
    assert!(open, "the pipe is held although the agent is gone");
    drop(left);
    assert_eq!(agent.raw(), None, "and closed when the descendant is gone");
}

#[test]
#[cfg(target_os = "linux")]
fn a_mild_fork_holds_nothing_and_ends_by_itself() {
    let mild = Project::steps(&json!([{"fork": {"seconds": 60}}, {"exit": 0}]));
    let agent = mild.play(&["--model", "test"]);
    let left = Left::of(&agent);
    assert_eq!(agent.raw(), None, "the pipe is closed although the descendant lives");
    assert!(!ignores_term(&left.0) && !left.leads_a_session());

    let brief = Project::steps(&json!([{"fork": {"holdPipe": true, "seconds": 0}}, {"exit": 0}]));
    let agent = brief.play(&["--model", "test"]);
    while agent.raw().is_some() {}
}

#[test]
#[cfg(target_os = "linux")]
fn the_stubborn_one_leaves_only_by_force_and_its_descendant_too() {
    let project = Project::new();
    let mut agent = project.play(&["--model", "stubborn"]);
    let pid = agent.child.id().to_string();
    let left = Left::of(&agent);
    assert_eq!(agent.next(), text("I stay"));
    assert!(ignores_term(&pid) && ignores_term(&left.0));
    assert!(!left.leads_a_session(), "it can be reached by the agent's session");
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    assert!(agent.lines.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty));
    drop(left);
    assert_eq!(agent.raw(), None);
}

#[test]
fn the_projects_own_scenario_wins() {
    let project = Project::new();
    project.save("default", r#"{"steps":[{"answer":"mine"}]}"#);
    let agent = project.play(&[]);
    assert_eq!(agent.turn(), [text("mine"), ended("mine", "")]);
    agent.end_well();
}

#[test]
fn a_bad_scenario_names_file_step_and_field() {
    let cases = [
        (
            r#"{"steps":[{"say":"a"},{"sya":"b"}]}"#,
            ".svc/rehearsals/test.json: step 2, field sya: there is no",
        ),
        (
            r#"{"steps":[{"run":{"command":1}}]}"#,
            ".svc/rehearsals/test.json: step 1, field run.command: must be a text",
        ),
        ("{", ".svc/rehearsals/test.json: not JSON"),
    ];
    for (scenario, error) in cases {
        let project = Project::new();
        project.save("test", scenario);
        let agent = project.play(&["--model", "test"]);
        let end = agent.next();
        assert_eq!((&end["type"], &end["isError"]), (&json!("turn-ended"), &json!(true)));
        assert!(end["error"].as_str().unwrap().starts_with(error), "{end}");
        let (status, stderr) = agent.end();
        assert_eq!(status.code(), Some(2));
        assert!(stderr.starts_with(&format!("svc agent-script: {error}")), "{stderr}");
    }
}

#[test]
fn bad_input_ends_it_with_a_sentence() {
    let project = Project::new();
    for (line, error) in
        [(json!({"type": "say", "text": "x"}), "without a prompt"), (json!(1), "standard input")]
    {
        let mut agent = project.start(&[]);
        agent.write(&line);
        let (status, stderr) = agent.end();
        assert!(status.code() == Some(2) && stderr.contains(error), "{status} {stderr}");
    }
    let (status, stderr) = project.start(&["--modle", "x"]).end();
    assert_eq!((status.code(), stderr.as_str()), (Some(2), "svc agent-script: --modle: unknown option\n"));
    project.start(&[]).end_well();
}

#[test]
fn the_demo_team_works_together() {
    let project = Project::new();
    let reviewer = project.play(&["--model", "reviewer"]);
    let planner = project.play(&["--model", "planner"]);
    let builder = project.play(&["--model", "builder"]);
    for agent in [planner, builder, reviewer] {
        let found = agent.turn();
        assert_eq!(found.last().unwrap()["isError"], false);
        assert!(found.iter().all(|activity| activity["error"] != json!(true)), "{found:?}");
        agent.end_well();
    }
    assert!(project.work("plan.md").exists() && project.work("hello.txt").exists());
}

#[test]
fn the_example_of_the_guide_plays() {
    let guide = include_str!("../../docs/rehearsals.md");
    let example = guide.split_once("```json\n").unwrap().1.split_once("```").unwrap().0;
    let project = Project::new();
    project.save("painter", example);
    let mut agent = project.play(&["--model", "painter"]);
    agent.say("blue");
    assert_eq!(agent.turn().last(), Some(&ended("Painted in blue.", "")));
    agent.say("thanks");
    assert_eq!(agent.turn().first(), Some(&text("You said: thanks")));
    agent.end_well();
    assert_eq!(fs::read_to_string(project.work("out/colour.txt")).unwrap(), "blue\n");
}
