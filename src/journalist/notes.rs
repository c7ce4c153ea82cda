//! Taking notes: which activities say something worth keeping.

use super::book::{Book, Note, shortened};
use crate::agents::Agent;
use crate::context::project_path;
use crate::core::time::Time;
use crate::providers::Activity;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::Path;

/// Tool calls of one agent whose end is awaited; the oldest is forgotten.
const MAX_OPEN: usize = 64;
/// Words by which a sentence tells a decision.
const DECIDING: [&str; 12] = [
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
    "instead of",
];
/// Words by which a line tells an open question.
const ASKING: [&str; 4] = ["open question:", "question:", "todo:", "unclear:"];
/// Longer lines are prose, and no question or decision.
const MAX_SENTENCE_CHARS: usize = 400;

/// Whether [`take`] would note anything of it.
pub fn is_worth_noting(activity: &Activity) -> bool {
    match activity {
        Activity::Text { text } => sentences(text).into_iter().any(|sentence| kind(sentence).is_some()),
        Activity::ToolStarted { .. } | Activity::ToolEnded { .. } => true,
        Activity::TurnEnded(end) => end.is_error,
        _ => false,
    }
}

/// Notes one activity. `open` are the agent's tool calls under way: id and what they do.
pub fn take(
    book: &mut Book,
    open: &mut VecDeque<(String, String)>,
    project: &Path,
    agent: &Agent,
    activity: &Activity,
    now: Time,
) {
    match activity {
        Activity::Text { text } => said(book, agent, text, now),
        Activity::ToolStarted { id, name, input, path, writes } => {
            if let Some(path) = path.as_ref().filter(|_| *writes) {
                let path = project_path(project, agent, path);
                book.workspace(&agent.working_dir).written(&path, &agent.name, now);
            }
            let command = ["command", "cmd"].iter().find_map(|name| input.get(name).and_then(Value::as_str));
            let what =
                command.or(path.as_deref()).map_or_else(|| name.clone(), |what| format!("{name} {what}"));
            if open.len() >= MAX_OPEN {
                open.pop_front();
            }
            open.push_back((id.clone(), what));
        }
        Activity::ToolEnded { id, error, output } => {
            let Some(at) = open.iter().position(|(open, _)| open == id) else { return };
            let Some((_, what)) = open.remove(at) else { return };
            let workspace = book.workspace(&agent.working_dir);
            if *error {
                let line = output.trim().lines().next().unwrap_or_default();
                workspace.failed(Note::new(agent, &format!("{}: {line}", shortened(&what)), now));
            } else {
                workspace.succeeded(&what);
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
    DECIDING.iter().any(|words| lower.contains(words)).then_some(Kind::Decision)
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

/// The sentences of a text, without list marks; those too long for one are left out.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in text.lines() {
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
}
