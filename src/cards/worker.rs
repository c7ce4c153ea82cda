//! What a card shows of the agent's log and of files, on the caller's own thread.

use super::{MAX_TEXT_BYTES, diff, first_chars, folder_of, proposed, told};
use crate::agents::Agent;
use crate::agents::report::{LogEntry, LogRecord};
use crate::agents::worker_log::Query;
use crate::api::{Problem, Reply};
use crate::approvals::{Action, Approval, hash};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crate::providers::Activity;
use crate::workspace::path::ProjectPath;
use crate::workspace::worker_files::{root, text_of};
use serde_json::{Value, json};
use svc_base::scopes::within;

/// Entries of the log that are looked at.
const ENTRIES: u64 = 300;
/// Messages of the agent that are shown.
const MAX_WORDS: usize = 3;
/// Characters of one.
const MAX_WORDS_CHARS: usize = 2_000;

/// `GET /api/approvals/:id/card`.
pub fn card(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let approval = ask.state.approvals.find(ask.params.get("id"))?;
    let mut card = told(ask.state, approval);
    let agent = approval.agent_id.and_then(|id| ask.state.agents.get(id));
    if let Some(agent) = agent {
        let query = Query { tail: Some(ENTRIES), since: None, limit: None };
        // A log that cannot be read is told elsewhere; the rest of the card is worth showing.
        let entries = host.logs.read(agent.lineage_id, query).map(|page| page.entries).unwrap_or_default();
        card["words"] = json!(last_words(&entries, approval));
        card["change"] = change(host, agent, approval, &entries);
    }
    Ok(Answer::Reply(Reply::ok(&card)))
}

/// What the agent said last before it asked, oldest first.
fn last_words(entries: &[LogRecord], approval: &Approval) -> Vec<Value> {
    let said =
        entries.iter().rev().filter(|record| record.ts <= approval.requested_at).filter_map(|record| {
            let LogEntry::Activity(Activity::Text { text }) = &record.entry else { return None };
            Some(json!({"at": record.ts.to_string(), "text": first_chars(text, MAX_WORDS_CHARS)}))
        });
    let mut words: Vec<Value> = said.take(MAX_WORDS).collect();
    words.reverse();
    words
}

/// The change of a file that is asked for, as the agent's own tool call says it.
fn change(host: &Host, agent: &Agent, approval: &Approval, entries: &[LogRecord]) -> Value {
    let place = |path: &str| within(&host.project, &folder_of(agent), path);
    let started = |record: &LogRecord| match &record.entry {
        LogEntry::Activity(Activity::ToolStarted { input, path, .. }) => Some((input.clone(), path.clone())),
        _ => None,
    };
    let calls = entries.iter().rev().filter_map(started);
    let (input, file, is_done) = match &approval.action {
        Action::ScopeViolation { file_path, written, .. } => {
            let is_it = |path: &Option<String>| path.as_deref().and_then(place).as_ref() == Some(file_path);
            let mut calls = calls.filter(|(_, path)| is_it(path));
            (calls.next().map(|(input, _)| input), Some(file_path.clone()), *written)
        }
        Action::ToolPermission { params_hash, .. } => {
            let mut calls = calls.filter(|(input, _)| hash(input) == *params_hash);
            let call = calls.next();
            let named = ["file_path", "path", "filePath", "notebook_path"];
            let path = call.as_ref().and_then(|(input, path)| {
                path.clone()
                    .or_else(|| named.iter().find_map(|name| input[*name].as_str()).map(str::to_owned))
            });
            (call.map(|(input, _)| input), path.as_deref().and_then(place), false)
        }
        _ => return Value::Null,
    };
    let Some(file) = file else { return Value::Null };
    let now = now_in(host, &file);
    let pieces = input.as_ref().and_then(|input| {
        // What is written already is compared with nothing but what it says itself.
        proposed(input, if is_done { None } else { now.as_deref() })
    });
    let patch = pieces.and_then(|(old, new)| diff(&file, &old, &new));
    let note = match (&patch, is_done) {
        (Some(_), false) => "what it would change",
        (Some(_), true) => "what it has written, as its tool call says",
        (None, true) => "no tool call of it names the file; the agent's diff shows what was changed",
        (None, false) => "what it would write is not told",
    };
    json!({"path": file, "diff": patch, "note": note, "exists": now.is_some()})
}

/// A file of the project as it is, if it is text that people may read.
fn now_in(host: &Host, file: &str) -> Option<String> {
    let path = ProjectPath::parse(file).ok()?;
    path.check_readable().ok()?;
    let text = text_of(&root(host).ok()?, &path).ok()?;
    (text.len() <= MAX_TEXT_BYTES).then_some(text)
}
