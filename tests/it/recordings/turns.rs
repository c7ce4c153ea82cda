//! Sessions, ends of turns, refused tools and troubles of the recordings.

use crate::recordings::replay::{FOLDER, Replay, conversation, lines, names, read};
use svc::providers::{Activity, Ruling, SessionStart, Step};

/// Per recording: for each end of a turn `ok`, or a part of its error.
fn ends_of(name: &str) -> &'static [&'static str] {
    match name {
        // The stream just stops; in the last two it never began, or is not one.
        "claude-drop" | "claude-sigkill" | "claude-sigterm" | "codex-sigkill" | "codex-sigterm"
        | "gemini-sigkill" | "gemini-sigterm" | "gemini-noauth" | "gemini-json" | "qwen-sigkill"
        | "qwen-sigterm" | "qwen-json" | "copilot-sigkill" | "copilot-sigterm" | "copilot-sigtermgrp"
        | "copilot-noauth" | "cline-sigkill" | "cline-sigterm" => &[],
        "claude-err401" => &["Failed to authenticate. API Error: 401 scripted 401"],
        "claude-noauth" => &["Not logged in"],
        "claude-interrupt" => &["the turn was interrupted", "ok"],
        "claude-full" | "claude-twoturns" => &["ok", "ok"],
        "codex-drop" => &["stream disconnected before completion"],
        "codex-err401" => &["unexpected status 401 Unauthorized"],
        "codex-noauth" => &["Missing environment variable: `FAKE_KEY`."],
        "gemini-drop" => &["[API Error: terminated]"],
        "gemini-err401" | "cline-err401" => &["scripted 401"],
        "opencode-err401" => &["error 401: scripted 401"],
        "opencode-sigkill"
        | "opencode-sigterm"
        | "opencode-sigtermgrp"
        | "opencode-sighup"
        | "opencode-sigint" => &["the model's stream was cut short"],
        // Its result calls that a success.
        "copilot-sigintgrp" => &["the turn was aborted"],
        "acp/gemini-cancel" => &["the turn was cancelled"],
        "qwen-err401" => &["[API Error: 401 scripted 401]"],
        "qwen-noauth" => &["No auth type is selected."],
        "copilot-err401" => &["(HTTP 401)"],
        // Its exit status is 0 all the same.
        "aider-err401" => &["litellm.AuthenticationError"],
        _ => &["ok"],
    }
}

#[test]
fn every_turn_ends_as_its_recording_says() {
    for name in names() {
        let replay = Replay::of(&name);
        let (ends, expected) = (replay.turn_ends(), ends_of(&name));
        assert_eq!(ends.len(), expected.len(), "{name}: {ends:?}");
        for (end, expected) in ends.iter().zip(expected) {
            assert_eq!(end.is_error, *expected != "ok", "{name}: {end:?}");
            assert_eq!(end.is_error, !end.error.is_empty(), "{name}: an error has a reason");
            assert!(*expected == "ok" || end.error.contains(expected), "{name}: {end:?}");
            assert!(end.is_error || !end.text.is_empty(), "{name}: the final answer");
        }
    }
}

#[test]
fn a_turn_starts_before_it_ends() {
    for name in names() {
        let mut open = false;
        for activity in Replay::of(&name).activities() {
            match activity {
                Activity::TurnStarted => {
                    assert!(!open, "{name}: two turns at once");
                    open = true;
                }
                Activity::TurnEnded(_) => {
                    assert!(open, "{name}: an end without a start");
                    open = false;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn every_session_is_named_once() {
    for name in names() {
        let replay = Replay::of(&name);
        // Some never began, some are without a stream; copilot names its session at the end, aider has none.
        let expected = usize::from(!matches!(
            name.as_str(),
            "gemini-noauth"
                | "gemini-json"
                | "claude-json"
                | "qwen-noauth"
                | "qwen-json"
                | "copilot-noauth"
                | "copilot-sigkill"
                | "copilot-sigterm"
                | "copilot-sigtermgrp"
                | "aider-plain"
                | "aider-err401"
                | "aider-sigterm"
        ));
        assert_eq!(replay.session_ids().len(), expected, "{name}");
    }
    assert_eq!(Replay::of("claude-resume").session_ids(), ["aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"]);
    assert_eq!(Replay::of("gemini-sessionresume").session_ids(), ["cccccccc-bbbb-4ccc-8ddd-eeeeeeeeeeee"]);
    assert_eq!(Replay::of("opencode-plain").session_ids(), ["ses_e047031a8ffenmLsOICEDMhykK"]);
    assert_eq!(Replay::of("qwen-sessionresume").session_ids(), ["cccccccc-bbbb-4ccc-8ddd-eeeeeeeeeeee"]);
    assert_eq!(Replay::of("copilot-plain").session_ids(), ["6b70df25-a962-4bc6-87df-3054fc38ea3b"]);
    assert_eq!(Replay::of("cline-plain").session_ids(), ["conv_1795222506835_tgnupk7"]);
}

#[test]
fn refused_tools_are_named() {
    for name in names() {
        let expected: &[&str] = match name.as_str() {
            "claude-denied" | "acp/claude-reject" => &["Write"],
            // The second, a shell command that only reads, was allowed.
            "copilot-denied" => &["create"],
            "cline-denied" => &["editor", "run_commands"],
            _ => &[],
        };
        let denied: Vec<String> =
            Replay::of(&name).turn_ends().iter().flat_map(|end| end.denied.clone()).collect();
        assert_eq!(denied, expected, "{name}");
    }
}

#[test]
fn retries_are_told_as_troubles() {
    let troubles = |name: &str| -> Vec<String> {
        let replay = Replay::of(name);
        let troubles = replay.activities().filter_map(|activity| match activity {
            Activity::Trouble { text } => Some(text.clone()),
            _ => None,
        });
        troubles.collect()
    };
    assert_eq!(troubles("claude-err429once"), ["retry 1 of 10 after error 429"]);
    assert_eq!(troubles("claude-drop").len(), 7);
    assert_eq!(troubles("claude-drop")[0], "retry 1 of 10 after a broken connection");
    assert_eq!(troubles("copilot-err429once"), ["the model's endpoint answered 429: scripted 429"]);
    assert_eq!(troubles("copilot-err401").len(), 3);
    assert!(troubles("codex-err429once").iter().any(|text| text.contains("429 Too Many Requests")));
}

/// The recorder put the time before each line.
#[test]
fn gemini_tells_its_retries_only_on_standard_error() {
    let mut conversation = conversation("gemini-err429once", SessionStart::Fresh);
    let mut steps = Vec::new();
    for line in read(&format!("{FOLDER}/gemini-err429once.stderr.txt")).lines() {
        conversation.complaint(line.trim_start().split_once(' ').map_or("", |(_, rest)| rest), &mut steps);
    }
    let [Step::Event(Activity::Trouble { text })] = steps.as_slice() else { panic!("{steps:?}") };
    assert!(text.starts_with("Attempt 1 failed with status 429. Retrying with backoff..."), "{text}");
}

/// Each line of its log after one more call that the endpoint refused; the last but one asks for a title.
#[test]
fn opencode_tells_of_a_busy_endpoint_only_in_its_log() {
    let mut conversation = conversation("opencode-plain", SessionStart::Fresh);
    let mut steps = Vec::new();
    for line in read(&format!("{FOLDER}/opencode-err429.stderr.txt")).lines() {
        conversation.complaint(line.trim_start().split_once(' ').map_or("", |(_, rest)| rest), &mut steps);
    }
    let trouble = |step: &Step| match step {
        Step::Event(Activity::Trouble { text }) => text.clone(),
        other => panic!("{other:?}"),
    };
    let troubles: Vec<String> = steps.iter().map(trouble).collect();
    assert_eq!(troubles, ["the call of its model failed: AI_APICallError: scripted 429"; 4]);
}

#[test]
fn every_tool_call_that_ends_has_begun_and_files_are_named() {
    for name in names() {
        let mut begun = Vec::new();
        for activity in Replay::of(&name).activities() {
            match activity {
                Activity::ToolStarted { id, path, writes, .. } => {
                    assert!(!begun.contains(id), "{name}: begun twice");
                    assert!(!writes || path.is_some(), "{name}: a write names its file");
                    begun.push(id.clone());
                }
                Activity::ToolEnded { id, .. } => assert!(begun.contains(id), "{name}: ended, not begun"),
                _ => {}
            }
        }
    }
    for name in [
        "claude-default",
        "gemini-default",
        "opencode-default",
        "qwen-default",
        "copilot-default",
        "cline-default",
        "acp/opencode-allow",
        "acp/claude-allow",
    ] {
        let written = Replay::of(name).activities().any(|activity| {
            matches!(activity, Activity::ToolStarted { path: Some(path), writes: true, .. }
                if path == "/project/hello.txt")
        });
        assert!(written, "{name}");
    }
}

#[test]
fn a_permission_request_is_answered_as_in_the_recording() {
    for name in names().iter().filter(|name| name.starts_with("acp/")) {
        let text =
            crate::recordings::replay::read(&format!("{}/{name}.jsonl", crate::recordings::replay::FOLDER));
        let records = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let is_choice = |message: &serde_json::Value| message.pointer("/result/outcome").is_some();
        let expected: Vec<_> = records
            .filter(|record| record["dir"] == "->" && is_choice(&record["msg"]))
            .map(|record| record["msg"].clone())
            .collect();
        let replay = Replay::of(name);
        let got: Vec<serde_json::Value> = replay
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Write(text) => serde_json::from_str(text).ok(),
                _ => None,
            })
            .filter(is_choice)
            .collect();
        assert_eq!(got, expected, "{name}");
    }
}

#[test]
fn claude_asks_a_person_and_gets_the_answer_of_the_recording() {
    let replay = Replay::of("claude-permstdio");
    let asked = replay.activities().filter(|activity| {
        matches!(activity, Activity::PermissionAsked { name, input, .. }
            if name == "Write" && input["file_path"] == "/project/hello.txt")
    });
    assert_eq!(asked.count(), 1);
    let answers = replay.steps.iter().filter(|step| {
        matches!(step, Step::Write(text) if text.contains("\"control_response\"")
            && text.contains("a0a0f502-3e3f-43b4-a6f2-65419c9755ba")
            && text.contains("\"behavior\":\"allow\"") && text.contains("\"updatedInput\":{\"content\""))
    });
    assert_eq!(answers.count(), 1);
}

#[test]
fn a_request_that_claude_must_not_wait_for_is_answered() {
    let mut conversation = conversation("claude-default", SessionStart::Fresh);
    let mut steps = Vec::new();
    conversation.line(
        r#"{"type":"control_request","request_id":"r","request":{"subtype":"unheard_of"}}"#,
        &mut steps,
    );
    assert!(matches!(&steps[..], [Step::Write(text)] if text.contains("\"error\"")));
    conversation.decide("nobody asked", &Ruling::default(), &mut steps);
    assert_eq!(steps.len(), 1);
}

/// A message given during a turn reaches claude at once and an ACP agent after the turn.
#[test]
fn live_messages_are_written_where_the_program_takes_them() {
    for (name, at_once) in [("claude-default", true), ("acp/gemini-allow", false)] {
        let lines = lines(name);
        let mut conversation = conversation(name, SessionStart::Fresh);
        let mut steps = Vec::new();
        conversation.open(&mut steps);
        for line in &lines[..lines.len() - 1] {
            conversation.line(line, &mut steps);
        }
        let has = |steps: &[Step]| {
            steps.iter().any(|step| matches!(step, Step::Write(text) if text.contains("and the tests")))
        };
        assert!(conversation.say("and the tests", &mut steps), "{name}");
        assert_eq!(has(&steps), at_once, "{name}");
        conversation.line(&lines[lines.len() - 1], &mut steps);
        assert!(has(&steps), "{name}");
    }
    for name in [
        "codex-default",
        "gemini-default",
        "opencode-default",
        "qwen-default",
        "copilot-default",
        "cline-default",
        "aider-plain",
    ] {
        assert!(!conversation(name, SessionStart::Fresh).say("more", &mut Vec::new()), "{name}");
    }
}
