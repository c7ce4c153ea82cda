//! Taking notes: which activities say something worth keeping.

use super::book::{Book, Note, shortened};
use crate::agents::Agent;
use crate::core::time::Time;
use crate::providers::Activity;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::Path;
use svc_base::bounded;

/// Tool calls of one agent whose end is awaited; the oldest is forgotten.
const MAX_OPEN: usize = 64;
/// Words by which a sentence tells a decision.
const DECIDING: [&str; 11] = [
    "decision:",
    "decided to",
    "decided on",
    "decided against",
    "we will use",
    "i will use",
    "i chose",
    "we chose",
    "going with",
    "opted for",
    "switched to",
];
/// Words that tell a decision beside `instead of`, which alone may compare what was found with what was
/// expected.
const PREFERRING: [&str; 9] =
    ["use ", "used ", "using ", "uses ", "keep ", "kept ", "chose", "choose", "replaced "];
/// Words by which a line tells an open question.
const ASKING: [&str; 4] = ["open question:", "question:", "todo:", "unclear:"];
/// Longer lines are prose, and no question or decision.
const MAX_SENTENCE_CHARS: usize = 400;

/// A tool call under way.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Call {
    id: String,
    what: String,
    /// The file it writes, as the agent named it.
    writes: Option<String>,
}

/// Whether [`take`] would note anything of it.
pub fn is_worth_noting(activity: &Activity) -> bool {
    match activity {
        Activity::Text { text } => sentences(text).into_iter().any(|sentence| kind(sentence).is_some()),
        Activity::ToolStarted { .. } | Activity::ToolEnded { .. } => true,
        Activity::TurnEnded(end) => end.is_error,
        _ => false,
    }
}

/// Notes one activity. `open` are the agent's tool calls under way.
pub fn take(
    book: &mut Book,
    open: &mut VecDeque<Call>,
    project: &Path,
    agent: &Agent,
    activity: &Activity,
    now: Time,
) {
    match activity {
        Activity::Text { text } => said(book, agent, text, now),
        Activity::ToolStarted { id, name, input, path, writes } => {
            let command = ["command", "cmd"].iter().find_map(|name| input.get(name).and_then(Value::as_str));
            let what =
                command.or(path.as_deref()).map_or_else(|| name.clone(), |what| format!("{name} {what}"));
            let call = Call { id: id.clone(), what, writes: path.clone().filter(|_| *writes) };
            bounded::push(open, call, MAX_OPEN);
        }
        Activity::ToolEnded { id, error, output } => {
            let Some(at) = open.iter().position(|call| call.id == *id) else { return };
            let Some(Call { what, writes, .. }) = open.remove(at) else { return };
            let workspace = book.workspace(&agent.working_dir);
            if *error {
                let line = output.trim().lines().next().unwrap_or_default();
                workspace.failed(Note::new(agent, &format!("{}: {line}", shortened(&what)), now));
            } else {
                workspace.succeeded(&what);
                if let Some(path) = writes {
                    workspace.written(&agent.project_path(project, &path), &agent.name, now);
                }
            }
        }
        Activity::TurnEnded(end) if end.is_error => {
            let text = format!("a turn: {}", end.error);
            book.workspace(&agent.working_dir).failed(Note::new(agent, &text, now));
        }
        _ => {}
    }
}

/// What a sentence is, if it is worth noting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Question,
    Decision,
}

fn kind(sentence: &str) -> Option<Kind> {
    let lower = sentence.to_lowercase();
    if ASKING.iter().any(|words| lower.starts_with(words)) || sentence.ends_with('?') {
        return Some(Kind::Question);
    }
    let prefers = lower.contains("instead of") && PREFERRING.iter().any(|word| lower.contains(word));
    (prefers || DECIDING.iter().any(|words| lower.contains(words))).then_some(Kind::Decision)
}

fn said(book: &mut Book, agent: &Agent, text: &str, now: Time) {
    const MARK: &str = "decision:";
    for sentence in sentences(text) {
        match kind(sentence) {
            Some(Kind::Question) => {
                book.workspace(&agent.working_dir).asked(Note::new(agent, sentence, now));
            }
            Some(Kind::Decision) => {
                let marked = sentence.get(..MARK.len()).is_some_and(|head| head.eq_ignore_ascii_case(MARK));
                let bare = if marked { sentence[MARK.len()..].trim() } else { sentence };
                book.decision(Note::new(agent, bare, now));
            }
            None => {}
        }
    }
}

/// The sentences of a text, without list marks; those too long for one are left out. Tables and code hold
/// none.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        let bare = line.trim_start();
        if bare.starts_with("```") || bare.starts_with("~~~") {
            in_code = !in_code;
            continue;
        }
        if in_code || bare.starts_with('|') {
            continue;
        }
        let line = line.trim().trim_start_matches(['-', '*', '#', '>', ' ']);
        let mut begin = 0;
        for (at, c) in line.char_indices() {
            // `a.b` and `1.5` are no ends: a sentence ends before a blank or at the line's end.
            let end = at + c.len_utf8();
            if matches!(c, '.' | '?' | '!') && line[end..].chars().next().is_none_or(char::is_whitespace) {
                found.push(line[begin..end].trim());
                begin = end;
            }
        }
        found.push(line[begin..].trim());
    }
    found.retain(|part| (4..=MAX_SENTENCE_CHARS).contains(&part.chars().count()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_before_a_blank() {
        let found = sentences("- I chose v1.5 of a.b. Is it ok? Yes\n\n# Plan\nx");
        assert_eq!(found, ["I chose v1.5 of a.b.", "Is it ok?", "Plan"]);
    }

    #[test]
    fn tables_code_and_comparisons_are_no_decisions() {
        let text = "| api/server.ts | 401 instead of 200 | medium |\n```\n# decided to fail\n```\n\
                    The server answered 401 instead of 200.\nI use tabs instead of blanks.";
        let decided: Vec<&str> =
            sentences(text).into_iter().filter(|one| kind(one) == Some(Kind::Decision)).collect();
        assert_eq!(decided, ["I use tabs instead of blanks."]);
    }
}
