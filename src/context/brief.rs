//! The handoff brief: what a successor must know, built from the record and the log without a model call.
//!
//! **Invariant:** the same facts and log give the same bytes.
//! **Invariant:** at most [`MAX_CHARS`] characters; the least important section is cut first.

use crate::agents::report::{LogEntry, LogRecord, Other};
use crate::agents::{Agent, FileTouch};
use crate::core::State as All;
use crate::providers::Activity;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Characters of a brief at most.
pub const MAX_CHARS: usize = 16_000;
/// The user's last messages carried over verbatim.
pub const USER_MESSAGES: usize = 5;
/// Log records read to build a brief.
pub const RECORDS_READ: u64 = 1_000;
/// First line of every brief; by it a brief is recognised and never nested in another.
pub const MARK: &str = "# Handoff from your predecessor";

const TASK_CHARS: usize = 4_000;
const MESSAGE_CHARS: usize = 1_500;
const LINE_CHARS: usize = 240;
const HUNK_CHARS: usize = 600;

/// What the record knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The agent's name.
    pub name: String,
    /// Its role.
    pub role: String,
    /// The original task.
    pub task: Arc<str>,
    /// Why it is rotated.
    pub reason: String,
    /// Files it touched.
    pub files: Arc<BTreeMap<String, FileTouch>>,
    /// Its scope.
    pub scope: Arc<Vec<String>>,
}

impl Facts {
    /// The facts of `agent`.
    pub fn of(_all: &All, agent: &Agent, reason: &str) -> Self {
        Self {
            name: agent.name.clone(),
            role: agent.role.clone(),
            task: Arc::clone(&agent.prompt),
            reason: reason.to_owned(),
            files: Arc::clone(&agent.files),
            scope: Arc::clone(&agent.scope),
        }
    }
}

/// One section; a lower weight is cut earlier.
struct Section {
    weight: u8,
    title: &'static str,
    lines: Vec<String>,
}

/// Builds the brief from the last records of the agent's log, oldest first.
pub fn build(facts: &Facts, records: &[LogRecord]) -> String {
    let transcript = Transcript::read(records);
    let mut head = format!(
        "{MARK}\n\nYou take over from {} ({}), whose context was renewed ({}). Everything below happened \
         already. Continue from there and deliver the result; do not start over.\n\n## Original task\n\n{}\n",
        facts.name,
        facts.role,
        facts.reason,
        cut(&facts.task, TASK_CHARS)
    );
    if !facts.scope.is_empty() {
        let _ = write!(head, "\nYou own: {}\n", facts.scope.join(", "));
    }
    let mut sections = vec![
        Section { weight: 6, title: "The user's last messages", lines: transcript.user },
        Section { weight: 5, title: "What was said last", lines: transcript.said },
        Section { weight: 4, title: "Files changed", lines: files_changed(&facts.files) },
        Section { weight: 3, title: "Failed, do not repeat blindly", lines: transcript.failures },
        Section { weight: 2, title: "Commands run", lines: transcript.commands },
        Section { weight: 1, title: "Last changes", lines: transcript.hunks },
    ];
    fit(&head, &mut sections)
}

/// Renders the sections, dropping the oldest lines of the least important one until all fits.
fn fit(head: &str, sections: &mut [Section]) -> String {
    loop {
        let text = render(head, sections);
        if text.chars().count() <= MAX_CHARS {
            return text;
        }
        let victim = sections.iter_mut().filter(|section| !section.lines.is_empty()).min_by_key(|s| s.weight);
        match victim {
            Some(section) => {
                section.lines.remove(0);
            }
            None => return cut(&text, MAX_CHARS),
        }
    }
}

fn render(head: &str, sections: &[Section]) -> String {
    let mut text = head.to_owned();
    for section in sections.iter().filter(|section| !section.lines.is_empty()) {
        let _ = write!(text, "\n## {}\n\n", section.title);
        for line in &section.lines {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

fn files_changed(files: &BTreeMap<String, FileTouch>) -> Vec<String> {
    let changed = files.iter().filter(|(_, touched)| touched.writes > 0);
    changed.map(|(path, touched)| format!("- {path} (written {} times)", touched.writes)).collect()
}

/// What a log tells, in the order it happened.
#[derive(Default)]
struct Transcript {
    user: Vec<String>,
    said: Vec<String>,
    commands: Vec<String>,
    failures: Vec<String>,
    hunks: Vec<String>,
}

impl Transcript {
    fn read(records: &[LogRecord]) -> Self {
        let mut out = Self::default();
        let mut open: BTreeMap<&str, String> = BTreeMap::new();
        let mut first_message = true;
        for record in records {
            match &record.entry {
                LogEntry::Other(Other::User { text }) => {
                    // The first message of each life is its task or an older brief, not the user's words.
                    let opening = std::mem::take(&mut first_message);
                    if !opening && !text.contains(MARK) {
                        out.user.push(format!("> {}", cut(text, MESSAGE_CHARS).replace('\n', "\n> ")));
                    }
                }
                LogEntry::Other(Other::Life { .. }) => {}
                LogEntry::Activity(activity) => out.activity(activity, &mut open),
            }
        }
        for (list, keep) in [(&mut out.user, USER_MESSAGES), (&mut out.said, 8), (&mut out.commands, 30)] {
            list.drain(..list.len().saturating_sub(keep));
        }
        for (list, keep) in [(&mut out.failures, 15), (&mut out.hunks, 12)] {
            list.drain(..list.len().saturating_sub(keep));
        }
        out
    }

    fn activity<'a>(&mut self, activity: &'a Activity, open: &mut BTreeMap<&'a str, String>) {
        match activity {
            Activity::Text { text } => self.said.push(format!("- {}", cut(text, LINE_CHARS * 2))),
            Activity::ToolStarted { id, name, input, path, writes } => {
                let command = input.get("command").and_then(Value::as_str);
                let what = match (command, path) {
                    (Some(command), _) => format!("`{}`", cut(command, LINE_CHARS)),
                    (None, Some(path)) => format!("{name} {path}"),
                    (None, None) => name.clone(),
                };
                if *writes && let Some(hunk) = hunk(path.as_deref(), input) {
                    self.hunks.push(hunk);
                }
                open.insert(id, what);
            }
            Activity::ToolEnded { id, error, output } => {
                let Some(what) = open.remove(id.as_str()) else { return };
                if *error {
                    self.failures.push(format!("- {what}: {}", cut(first_line(output), LINE_CHARS)));
                }
                if what.starts_with('`') {
                    self.commands.push(format!("- {what}: {}", if *error { "failed" } else { "ok" }));
                }
            }
            Activity::TurnEnded(end) if end.is_error => {
                self.failures.push(format!("- a turn: {}", cut(first_line(&end.error), LINE_CHARS)));
            }
            _ => {}
        }
    }
}

/// The text a write put into a file, as far as the tool's arguments tell.
fn hunk(path: Option<&str>, input: &Value) -> Option<String> {
    let text = ["new_string", "newString", "content", "text", "patch"]
        .iter()
        .find_map(|name| input.get(name).and_then(Value::as_str))?;
    Some(format!("{}:\n```\n{}\n```", path.unwrap_or("a file"), cut(text, HUNK_CHARS)))
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

/// At most `chars` characters; what is missing is told.
fn cut(text: &str, chars: usize) -> String {
    const TOLD: &str = " [cut]";
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    let kept = chars.saturating_sub(TOLD.len());
    let end = text.char_indices().nth(kept).map_or(text.len(), |(at, _)| at);
    format!("{}{TOLD}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::AgentId;
    use crate::core::time::Time;
    use crate::providers::TurnEnd;
    use serde_json::json;

    fn records(entries: Vec<LogEntry>) -> Vec<LogRecord> {
        let number = |(n, entry)| LogRecord { n: n as u64 + 1, ts: Time(1), agent_id: AgentId(1), entry };
        entries.into_iter().enumerate().map(number).collect()
    }

    fn facts() -> Facts {
        let files = BTreeMap::from([("src/a.rs".to_owned(), FileTouch { reads: 1, writes: 2 })]);
        Facts {
            name: "backend-1".into(),
            role: "backend".into(),
            task: "Add a login page".into(),
            reason: "manual".into(),
            files: Arc::new(files),
            scope: Arc::new(vec!["src/**".into()]),
        }
    }

    fn tool(id: &str, command: &str, error: bool) -> [LogEntry; 2] {
        let input = json!({"command": command});
        let (id, name) = (id.to_owned(), "Bash".to_owned());
        [
            LogEntry::Activity(Activity::ToolStarted {
                id: id.clone(),
                name,
                input,
                path: None,
                writes: false,
            }),
            LogEntry::Activity(Activity::ToolEnded { id, error, output: "no such file".into() }),
        ]
    }

    #[test]
    fn decisions_8_the_brief_has_task_messages_files_commands_and_failures() {
        let mut log = vec![LogEntry::user("Add a login page")];
        log.extend((1..=6).map(|n| LogEntry::user(format!("message {n}\nsecond line"))));
        log.extend(tool("1", "cargo test", true));
        log.extend(tool("2", "ls", false));
        let end = TurnEnd { is_error: true, error: "overloaded".into(), ..TurnEnd::default() };
        log.push(LogEntry::Activity(Activity::TurnEnded(end)));
        let brief = build(&facts(), &records(log.clone()));
        for part in [
            "Add a login page",
            "> message 2\n> second line",
            "> message 6",
            "src/a.rs (written 2 times)",
            "`cargo test`: failed",
            "`ls`: ok",
            "- `cargo test`: no such file",
            "a turn: overloaded",
            "Continue from there and deliver",
        ] {
            assert!(brief.contains(part), "{part:?} is missing in\n{brief}");
        }
        assert!(!brief.contains("message 1"), "only the last five messages are carried over");
        assert_eq!(brief, build(&facts(), &records(log)), "same input, same bytes");
    }

    #[test]
    fn decisions_8_the_brief_is_bounded_and_cut_from_the_least_important_up() {
        let mut log = vec![LogEntry::user("task")];
        for n in 0..200 {
            log.extend(tool(&n.to_string(), &format!("echo {n} {}", "x".repeat(400)), n % 2 == 0));
            let text = format!("said {n} {}", "y".repeat(2000));
            log.push(LogEntry::Activity(Activity::Text { text }));
        }
        log.push(LogEntry::user(format!("last words {}", "z".repeat(1000))));
        let brief = build(&facts(), &records(log));
        assert!(brief.chars().count() <= MAX_CHARS);
        assert!(brief.contains("last words"));
    }

    #[test]
    fn decisions_8_an_older_brief_is_never_nested() {
        let old = build(&facts(), &[]);
        let log = vec![LogEntry::user("task"), LogEntry::user(old)];
        assert_eq!(build(&facts(), &records(log)).matches(MARK).count(), 1);
    }
}
