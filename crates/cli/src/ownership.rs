//! `svc conflicts` and `svc hook`.

use super::commands::{Command, Group};
use super::render::{Table, age_of, clean};
use super::session::{Failure, Outcome, Session, now};
use super::target::text;
use serde_json::{Value, json};
use std::io::Read;

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "conflicts",
        group: Group::Trust,
        summary: "list writes outside of an agent's files",
        usage: "conflicts",
        details: "SURE is 'sure' where a tool call names the file, 'likely' where one agent's command did while the file\n\
                  changed, 'unknown' where it cannot be told who wrote. REJECTED says whether a rejected write is still\n\
                  in place.",
        run: conflicts,
        ..Command::PLAIN
    },
    Command {
        name: "hook",
        group: Group::Trust,
        summary: "answer a PreToolUse hook of Claude Code",
        usage: "hook",
        details: "Reads the hook's JSON on standard input and asks the daemon whether the agent may write that file.\n\
                  Agents that svc starts have it in their settings; people do not need it.",
        run: hook,
        ..Command::PLAIN
    },
];

/// Bytes of a hook's input read; a longer one is no question about one file.
const HOOK_INPUT_BYTES: u64 = 16 << 20;

fn conflicts(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/conflicts")?;
    if out.json {
        return out.document(&answer);
    }
    let list = answer["conflicts"].as_array().cloned().unwrap_or_default();
    if list.is_empty() && !out.quiet {
        return out.line("no agent has written outside of its files");
    }
    let mut table = Table::new(&["AGE", "AGENT", "FILE", "OWNER", "SEEN", "SURE", "APPROVAL", "REJECTED"]);
    for conflict in &list {
        table.row(&[
            age_of(text(conflict, "ts"), now()),
            clean(text(conflict, "agentName")),
            clean(text(conflict, "filePath")),
            conflict["ownerName"].as_str().map_or_else(|| "-".into(), clean),
            text(conflict, "seen").into(),
            conflict["certainty"].as_str().unwrap_or("sure").into(),
            conflict["approvalId"].as_str().unwrap_or("-").into(),
            conflict["afterRejection"].as_str().unwrap_or("-").into(),
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

/// For a tool that names no file, or for nobody's agent without a daemon to ask, it says nothing: then Claude
/// Code's own rules apply. An agent whose daemon does not answer may not write.
fn hook(session: &Session) -> Outcome {
    let mut input = String::new();
    let read = std::io::stdin().take(HOOK_INPUT_BYTES).read_to_string(&mut input);
    let event: Value = read
        .ok()
        .and_then(|_| serde_json::from_slice(input.as_bytes()).ok())
        .ok_or_else(|| Failure::usage("svc hook reads a hook's JSON object on standard input"))?;
    let named = ["file_path", "notebook_path", "path"];
    let Some(path) = named.iter().find_map(|name| event["tool_input"][name].as_str()) else { return Ok(()) };
    let mut body = json!({"tool": text(&event, "tool_name"), "path": path});
    if let Some(agent) = session.caller() {
        body["agentId"] = json!(agent);
    }
    let answer = session.client().ok().map(|client| client.try_call("POST", "/api/hooks/write", Some(&body)));
    let reason = match answer {
        // Allowing is left to the permission mode, which may still ask about other things.
        Some(Ok(answer)) if answer["decision"] != "deny" => return Ok(()),
        Some(Ok(answer)) => answer["reason"].clone(),
        _ if session.caller().is_none() => return Ok(()),
        _ => json!("svc cannot be asked whether this may be written; end your turn, a person has to look"),
    };
    session.out.document(&json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": reason,
    }}))
}
