//! What a person is shown of a decision: what would happen, where, why, and what was decided of the like.
//!
//! Everything that agents wrote in it is shown as text by whoever shows it.

pub mod api;
#[cfg(test)]
mod tests;
pub mod worker;

use crate::agents::Agent;
use crate::approvals::{Action, Approval, Certainty};
use crate::core::{State as All, untrusted_line};
use serde_json::{Value, json};
use svc_base::scopes::owns;
use svc_base::sorted::Gather;

/// Characters of one parameter, in words.
const MAX_WORDS_CHARS: usize = 2_000;
/// Parameters told.
const MAX_PARAMETERS: usize = 60;
/// Decisions of the like that are told.
const MAX_BEFORE: usize = 5;
/// Lines of a change shown; of more the first.
const MAX_CHANGE_LINES: usize = 400;
/// Lines shown around a change.
const AROUND: usize = 3;
/// Bytes of a text that is compared.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// Whatever of a card can be told without looking at a file or a log.
pub fn told(all: &All, approval: &Approval) -> Value {
    let agent = approval.agent_id.and_then(|id| all.agents.get(id));
    let (parameters, command) = match &approval.action {
        Action::ToolPermission { params, command, .. } => (parameters(params), json!(command)),
        Action::IntegrationExec { params, .. } => (parameters(params), Value::Null),
        Action::ScopeViolation { file_path, .. } => {
            (vec![("file".to_owned(), file_path.clone())], Value::Null)
        }
        Action::Question { .. } | Action::ResumeAgents { .. } => (Vec::new(), Value::Null),
    };
    json!({
        "id": approval.id,
        "kind": kind(&approval.action),
        "parameters": parameters,
        "command": command,
        "folder": agent.map(|agent| folder_of(agent)),
        "owner": owner(all, &approval.action),
        "scope": agent.map(|agent| agent.scope.clone()),
        "task": agent.map(|agent| first_chars(&agent.prompt, MAX_WORDS_CHARS)),
        "certainty": certainty(&approval.action),
        "before": before(all, approval),
        "mayRule": crate::approvals::rules::offered(&approval.action),
    })
}

/// What it is, in a few words.
fn kind(action: &Action) -> &'static str {
    match action {
        Action::ScopeViolation { written: true, .. } => "it has written a file outside of its scope",
        Action::ScopeViolation { .. } => "it wants to write a file outside of its scope",
        Action::ToolPermission { command: Some(_), .. } => "it wants to run a command",
        Action::ToolPermission { .. } => "it wants to use a tool",
        Action::IntegrationExec { .. } => "it wants to call a tool of an integration",
        Action::Question { .. } => "it asks you",
        Action::ResumeAgents { .. } => "agents ended with the last daemon",
    }
}

fn certainty(action: &Action) -> Value {
    match action {
        Action::ScopeViolation { certainty: Certainty::Sure, .. } => {
            json!("its own tool call names the file")
        }
        Action::ScopeViolation { .. } => json!("likely: a command of it ran when the file changed"),
        _ => Value::Null,
    }
}

/// Where an agent's program works, relative to the project.
pub fn folder_of(agent: &Agent) -> String {
    match &agent.worktree {
        Some(worktree) => format!("{worktree}/{}", agent.working_dir).trim_end_matches('/').to_owned(),
        None => agent.working_dir.clone(),
    }
}

/// Who owns the file, and what is its.
fn owner(all: &All, action: &Action) -> Value {
    let Action::ScopeViolation { file_path, owner_id, .. } = action else { return Value::Null };
    let named = owner_id.and_then(|id| all.agents.get(id));
    let owner = named.or_else(|| {
        all.agents.live().find(|agent| agent.worktree.is_none() && owns(&agent.scope, file_path))
    });
    owner.map_or(Value::Null, |agent| json!({"id": agent.id, "name": agent.name, "scope": agent.scope}))
}

/// Parameters as rows of a name in words and a text.
fn parameters(params: &Value) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    gather("", params, &mut rows);
    rows.truncate(MAX_PARAMETERS);
    rows
}

fn gather(name: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                gather(&format!("{name} {}", in_words(member)), value, rows);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            for (at, item) in items.iter().enumerate() {
                gather(&format!("{name} {}", at + 1), item, rows);
            }
        }
        Value::Array(items) => {
            let words: Vec<String> = items.iter().map(plain).collect();
            rows.push((name.trim().to_owned(), first_chars(&words.join(", "), MAX_WORDS_CHARS)));
        }
        other => rows.push((name.trim().to_owned(), first_chars(&plain(other), MAX_WORDS_CHARS))),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Null => "nothing".into(),
        other => other.to_string(),
    }
}

/// `newString` and `new_string` as `new string`.
fn in_words(name: &str) -> String {
    let mut words = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if c == '_' || c == '-' {
            words.push(' ');
        } else if c.is_uppercase() && before.is_lowercase() {
            words.push(' ');
            words.extend(c.to_lowercase());
        } else {
            words.push(c);
        }
        before = c;
    }
    words
}

fn first_chars(text: &str, count: usize) -> String {
    match text.char_indices().nth(count) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What was decided of the like before, newest first: by whomever, for whomever.
fn before(all: &All, approval: &Approval) -> Vec<Value> {
    let like = |other: &&&std::sync::Arc<Approval>| {
        other.id != approval.id && is_like(&other.action, &approval.action)
    };
    let resolved = all.approvals.resolved();
    let told = resolved.iter().filter(like).take(MAX_BEFORE).map(|other| {
        json!({
            "id": other.id, "agentName": other.agent_name, "status": other.status,
            "at": other.resolved_at.map(|at| at.to_string()), "by": other.resolved_by, "reason": other.reason,
            "same": is_exactly(&other.action, &approval.action),
        })
    });
    told.gather()
}

/// Whether two are of a kind: the same file, tool or command.
fn is_like(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::ScopeViolation { file_path, .. }, Action::ScopeViolation { file_path: path, .. }) => {
            file_path == path
        }
        (
            Action::ToolPermission { tool, command, .. },
            Action::ToolPermission { tool: name, command: line, .. },
        ) => tool == name && command.as_ref().map(|one| &one.text) == line.as_ref().map(|one| &one.text),
        (
            Action::IntegrationExec { integration_id, tool, .. },
            Action::IntegrationExec { integration_id: id, tool: name, .. },
        ) => (integration_id, tool) == (id, name),
        _ => false,
    }
}

/// Whether it was exactly this, parameters and all.
fn is_exactly(one: &Action, other: &Action) -> bool {
    let hash = |action: &Action| match action {
        Action::ToolPermission { params_hash, .. } | Action::IntegrationExec { params_hash, .. } => {
            Some(params_hash.clone())
        }
        _ => None,
    };
    hash(one) == hash(other)
}

/// What a tool call writes: the file as it would be, by the arguments, or `None` where they do not say.
/// `now` is the file as it is, `None` where there is none.
pub fn proposed(input: &Value, now: Option<&str>) -> Option<(String, String)> {
    let text =
        |names: &[&str], of: &Value| names.iter().find_map(|name| of[*name].as_str()).map(ToOwned::to_owned);
    let edit = |of: &Value| {
        let old = text(&["old_string", "old_str", "oldString", "oldText"], of)?;
        Some((old, text(&["new_string", "new_str", "newString", "newText"], of)?, of["replace_all"] == true))
    };
    let edits: Vec<_> = match &input["edits"] {
        Value::Array(edits) => edits.iter().map(edit).collect::<Option<_>>()?,
        _ => edit(input).into_iter().collect(),
    };
    if edits.is_empty() {
        let content = text(&["content", "file_text", "new_source", "text"], input)?;
        return Some((now.unwrap_or_default().to_owned(), content));
    }
    let whole = now.filter(|now| edits.iter().all(|(old, ..)| old.is_empty() || now.contains(old.as_str())));
    let Some(whole) = whole else {
        // The file is another one by now, or cannot be read: the pieces are shown.
        let olds: Vec<&str> = edits.iter().map(|(old, ..)| old.as_str()).collect();
        let news: Vec<&str> = edits.iter().map(|(_, new, _)| new.as_str()).collect();
        return Some((olds.join("\n"), news.join("\n")));
    };
    let after = edits.iter().fold(whole.to_owned(), |text, (old, new, all)| match (old.is_empty(), all) {
        (true, _) => format!("{new}{text}"),
        (false, true) => text.replace(old, new),
        (false, false) => text.replacen(old, new, 1),
    });
    Some((whole.to_owned(), after))
}

/// A unified diff of one file with one hunk: from the first to the last line that differs.
pub fn diff(path: &str, old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let (olds, news): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let head = olds.iter().zip(&news).take_while(|(one, other)| one == other).count();
    let tail =
        olds[head..].iter().rev().zip(news[head..].iter().rev()).take_while(|(one, other)| one == other);
    let tail = tail.count();
    let from = head.saturating_sub(AROUND);
    let after = tail.min(AROUND);
    let (old_end, new_end) = (olds.len() - tail, news.len() - tail);
    let mut lines: Vec<String> = Vec::new();
    lines.extend(olds[from..head].iter().map(|line| format!(" {line}")));
    lines.extend(olds[head..old_end].iter().map(|line| format!("-{line}")));
    lines.extend(news[head..new_end].iter().map(|line| format!("+{line}")));
    lines.extend(olds[old_end..old_end + after].iter().map(|line| format!(" {line}")));
    if lines.is_empty() {
        // Only the end of the last line differs.
        return None;
    }
    let more = lines.len().saturating_sub(MAX_CHANGE_LINES);
    lines.truncate(MAX_CHANGE_LINES);
    if more > 0 {
        lines.push(format!("\\ {more} more lines"));
    }
    let (was, is) = (old_end + after - from, new_end + after - from);
    let start = |count: usize| if count == 0 { 0 } else { from + 1 };
    let path = untrusted_line(path);
    let head = format!("--- a/{path}\n+++ b/{path}\n@@ -{},{was} +{},{is} @@\n", start(was), start(is));
    Some(format!("diff --git a/{path} b/{path}\n{head}{}\n", lines.join("\n")))
}
