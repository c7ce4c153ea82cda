//! The documents, made from the notes alone.

use super::State;
use super::book::{Book, Note, Workspace};
use crate::core::time::Time;
use crate::memory::Constraint;
use std::fmt::Write as _;
use svc_base::fence::one_line;
use svc_base::sorted;

/// Files listed for one workspace; more are counted.
const MAX_FILES_LISTED: usize = 150;
const MAP_HEAD: &str =
    "# Project map\n\n<!-- Written by svc from what its agents did. Changes made here are overwritten. -->\n";
const DECISIONS_HEAD: &str =
    "# Decisions\n\n<!-- Written by svc from what its agents did. Changes made here are overwritten. -->\n";
const SUMMARY_BEGIN: &str = "\n## Summary by a model\n\n";
const SUMMARY_END: &str = "\n<!-- end of the summary -->\n";

/// `SVC_PROJECT_MAP.md`: flat when all agents work at the project's root, else one section for each
/// workspace. Empty when there is nothing to tell.
pub fn map(book: &Book) -> String {
    if book.workspaces.is_empty() {
        return String::new();
    }
    let mut text = MAP_HEAD.to_owned();
    if is_flat(book) {
        for workspace in book.workspaces.values() {
            text.push_str(&section(workspace, "##"));
        }
        return text;
    }
    for (dir, workspace) in &book.workspaces {
        let _ = write!(text, "\n## {}\n{}", named(dir), section(workspace, "###"));
    }
    text
}

fn is_flat(book: &Book) -> bool {
    book.workspaces.keys().all(String::is_empty)
}

fn named(dir: &str) -> String {
    if dir.is_empty() { "the project's root".to_owned() } else { one_line(dir) }
}

fn section(workspace: &Workspace, level: &str) -> String {
    let mut text = String::new();
    let mut part = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = write!(text, "\n{level} {title}\n\n{}\n", lines.join("\n"));
        }
    };
    let mut agents: Vec<_> = workspace.agents.values().collect();
    sorted::by(&mut agents, |a, b| a.at.cmp(&b.at).then(a.name.cmp(&b.name)));
    let agents = agents.into_iter().map(|note| {
        let task = if note.task.is_empty() { String::new() } else { format!(": {}", note.task) };
        let words = if note.words.is_empty() { String::new() } else { format!(" Last: {}", note.words) };
        format!("- {} ({}), {} since {}{task}{words}", note.name, note.role, note.status, minute(note.at))
    });
    part("Agents", agents.collect());
    let mut files: Vec<String> = workspace
        .files
        .iter()
        .take(MAX_FILES_LISTED)
        .map(|(path, note)| {
            format!(
                "- {} (writes: {}, last by {}, {})",
                one_line(path),
                note.writes,
                note.last_by,
                minute(note.at)
            )
        })
        .collect();
    let more = workspace.files.len().saturating_sub(MAX_FILES_LISTED);
    if more > 0 {
        files.push(format!("- and {more} more"));
    }
    part("Files changed", files);
    part("Open questions", workspace.questions.iter().map(line).collect());
    part("Failures not yet overcome", workspace.failures.iter().map(line).collect());
    text
}

fn line(note: &Note) -> String {
    format!("- {} ({}, {})", note.text, note.agent, minute(note.at))
}

/// `2026-01-31 12:00`.
fn minute(at: Time) -> String {
    let text = at.to_string();
    format!("{} {}", text.get(..10).unwrap_or_default(), text.get(11..16).unwrap_or_default())
}

/// `SVC_DECISIONS.md`. Empty when no agent has worked and no rule was set.
pub fn decisions(book: &Book, constraints: &[Constraint]) -> String {
    if book.workspaces.is_empty() && book.decisions.is_empty() && constraints.is_empty() {
        return String::new();
    }
    let mut text = DECISIONS_HEAD.to_owned();
    if !constraints.is_empty() {
        text.push_str("\n## Rules set by people\n\n");
        for rule in constraints {
            let _ = writeln!(text, "- [{}] {}", rule.category, one_line(&rule.text));
        }
    }
    if book.decisions.is_empty() {
        text.push_str("\nNo agent has told a decision yet.\n");
    } else {
        text.push_str("\n## Decisions of agents\n\n");
        let flat = is_flat(book);
        for note in &book.decisions {
            let place = if flat { String::new() } else { format!(", {}", named(&note.workspace)) };
            let _ = writeln!(text, "- {} ({}{place}, {})", note.text, note.agent, minute(note.at));
        }
    }
    text
}

/// One line on what there is.
pub fn synthesis(book: &Book) -> String {
    let count = |of: fn(&Workspace) -> usize| book.workspaces.values().map(|one| of(one)).sum::<usize>();
    format!(
        "{} agents in {} workspaces, {} files changed, {} decisions, {} open questions, {} failures",
        count(|workspace| workspace.agents.len()),
        book.workspaces.len(),
        count(|workspace| workspace.files.len()),
        book.decisions.len(),
        count(|workspace| workspace.questions.len()),
        count(|workspace| workspace.failures.len()),
    )
}

/// The map with a model's words above.
pub fn with_summary(map: &str, words: &str) -> String {
    let words: Vec<String> = words.lines().map(|line| format!("> {}", one_line(line))).collect();
    let rest = map.strip_prefix(MAP_HEAD).unwrap_or(map);
    format!("{MAP_HEAD}{SUMMARY_BEGIN}{}\n{SUMMARY_END}{rest}", words.join("\n"))
}

/// The map as the notes alone make it.
pub fn without_summary(map: &str) -> String {
    let cut =
        map.split_once(SUMMARY_BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(SUMMARY_END)?.1)));
    cut.map_or_else(|| map.to_owned(), |(head, rest)| format!("{head}{rest}"))
}

impl State {
    /// The part of the map that belongs to a working directory: its own section, or the nearest above it.
    /// `None` when there is nothing to tell.
    pub fn map_section(&self, working_dir: &str) -> Option<String> {
        let book = &self.book;
        let mut dir = working_dir.trim_end_matches('/');
        let workspace = loop {
            if let Some(workspace) = book.workspaces.get(dir) {
                break workspace;
            }
            if dir.is_empty() {
                return None;
            }
            dir = dir.rsplit_once('/').map_or("", |(above, _)| above);
        };
        let text = section(workspace, "###");
        (!text.trim().is_empty()).then(|| text.trim().to_owned())
    }
}
