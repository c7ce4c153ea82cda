//! What a log tells a successor, in the order it happened.

use super::super::briefing;
use super::{Losses, MARK, USER_MESSAGES, cut, first_line, steps, without_mark};
use crate::agents::report::{LogEntry, LogRecord, Other};
use crate::providers::Activity;
use serde_json::Value;
use std::collections::BTreeMap;

const LINE_CHARS: usize = 240;
const SAID_CHARS: usize = 480;
const HUNK_CHARS: usize = 600;
/// Kept of each kind; older ones are losses.
const MAX_SAID: usize = 8;
const MAX_COMMANDS: usize = 80;
const MAX_FAILURES: usize = 40;
const MAX_HUNKS: usize = 20;
const MAX_STEPS: usize = 40;
const STEP_CHARS: usize = 200;

/// A tool call under way.
struct Open {
    what: String,
    /// The file that it writes, and what it puts there.
    hunk: Option<(Option<String>, String)>,
}

/// What a log tells, oldest first. Each list is bounded as it is filled: what falls out is a loss.
#[derive(Default)]
pub struct Transcript {
    /// The user's last [`USER_MESSAGES`], verbatim.
    pub user: Vec<String>,
    pub open_steps: Vec<String>,
    pub said: Vec<String>,
    /// Each with its outcome once, where it was run last, and how often it was.
    commands: Vec<(String, usize)>,
    pub failures: Vec<String>,
    pub hunks: Vec<String>,
    /// Tool calls under way, by id.
    open: BTreeMap<String, Open>,
    /// The agent's own list of steps, as it was told last.
    todo: Vec<String>,
}

/// The messages of people in an entry of the log. The first message of a life is our own, but for what it
/// quotes.
fn user_messages(text: &str, task: &str) -> Vec<String> {
    let quoted = || {
        let mut messages = briefing::unquoted(text, briefing::WAITED);
        messages.extend(briefing::unquoted(text, briefing::SAYS_NOW));
        messages
    };
    if text.starts_with(briefing::MARK) || text.starts_with(MARK) {
        return quoted();
    }
    if text == task || text == briefing::GO_ON || text.trim().is_empty() {
        return Vec::new();
    }
    if text.starts_with(task) {
        let messages = quoted();
        if !messages.is_empty() {
            return messages;
        }
    }
    vec![text.to_owned()]
}

impl Transcript {
    /// Takes in the next record of the log.
    pub fn take(&mut self, record: &LogRecord, task: &str, losses: &mut Losses) {
        match &record.entry {
            LogEntry::Other(Other::User { text }) => self.user.extend(user_messages(text, task)),
            // What an ended process had open is not open any more.
            LogEntry::Other(Other::Life { .. }) => self.open.clear(),
            LogEntry::Activity(activity) => {
                if let Some(steps) = steps::of(activity) {
                    self.todo = steps;
                }
                self.activity(activity, losses);
            }
        }
        self.bound(losses);
    }

    /// The log is read: what was under way is open.
    pub fn finish(&mut self, losses: &mut Losses) {
        for step in std::mem::take(&mut self.todo) {
            self.open_steps.push(shortened("Open steps", &step, STEP_CHARS, losses));
        }
        let open = std::mem::take(&mut self.open).into_values();
        self.open_steps.extend(open.map(|call| format!("- was under way: {}", call.what)));
        // The first step is to be kept longest.
        for left in self.open_steps.drain(self.open_steps.len().min(MAX_STEPS)..) {
            losses.add("Open steps", &left, false);
        }
    }

    /// Drops what is too old.
    fn bound(&mut self, losses: &mut Losses) {
        let lists = [
            (&mut self.user, USER_MESSAGES, "The user's last messages"),
            (&mut self.said, MAX_SAID, "What was said last"),
            (&mut self.failures, MAX_FAILURES, "Failed, do not repeat blindly"),
            (&mut self.hunks, MAX_HUNKS, "Last changes"),
        ];
        for (list, keep, title) in lists {
            for old in list.drain(..list.len().saturating_sub(keep)) {
                losses.add(title, &old, false);
            }
        }
        for (old, _) in self.commands.drain(..self.commands.len().saturating_sub(MAX_COMMANDS)) {
            losses.add("Commands run", &old, false);
        }
    }

    /// The commands as lines.
    pub fn commands(&mut self) -> Vec<String> {
        let line = |(line, times): (String, usize)| match times {
            1 => line,
            _ => format!("{line} ({times} times)"),
        };
        std::mem::take(&mut self.commands).into_iter().map(line).collect()
    }

    /// Notes a command; one that repeats with the same outcome moves to the end.
    fn ran(&mut self, line: String) {
        let known = self.commands.iter().position(|(known, _)| *known == line);
        let times = known.map_or(0, |at| self.commands.remove(at).1);
        self.commands.push((line, times + 1));
    }

    fn activity(&mut self, activity: &Activity, losses: &mut Losses) {
        match activity {
            Activity::Text { text } => {
                let line = shortened("What was said last", &without_mark(text), SAID_CHARS, losses);
                self.said.push(format!("- {line}"));
            }
            Activity::ToolStarted { id, name, input, path, writes } => {
                let what = call(name, input, path.as_deref(), losses);
                let text = written(input).filter(|_| *writes);
                let hunk = text.map(|text| (path.clone(), text.to_owned()));
                self.open.insert(id.clone(), Open { what, hunk });
            }
            Activity::ToolEnded { id, error, output } => {
                let Some(Open { what, hunk }) = self.open.remove(id) else { return };
                let code = exit_code(output);
                if *error {
                    self.fail(&what, first_line(output), losses);
                } else if let Some((path, text)) = hunk {
                    // What was refused or failed has changed nothing.
                    self.hunks.push(shown_hunk(path.as_deref(), &text, losses));
                }
                if what.starts_with('`') {
                    let outcome = match (code, error) {
                        (Some(code), _) => format!("exit {code}"),
                        (None, true) => "failed".to_owned(),
                        (None, false) => "exit 0".to_owned(),
                    };
                    self.ran(format!("- {what}: {outcome}"));
                }
            }
            Activity::TurnEnded(end) => {
                let unheard = std::mem::take(&mut self.open).into_values().map(|call| call.what);
                for what in unheard.filter(|what| what.starts_with('`')) {
                    self.ran(format!("- {what}: no result reported"));
                }
                if end.is_error {
                    self.fail("a turn", first_line(&end.error), losses);
                }
            }
            _ => {}
        }
    }

    /// Notes a failure; one that repeats moves to the end.
    fn fail(&mut self, what: &str, why: &str, losses: &mut Losses) {
        const TITLE: &str = "Failed, do not repeat blindly";
        let why = without_mark(why);
        let line = format!("- {what}: {}", cut(&why, LINE_CHARS));
        if why.chars().count() > LINE_CHARS {
            losses.add_once(TITLE, &why);
        }
        self.failures.retain(|known| *known != line);
        self.failures.push(line);
    }
}

/// What a tool call does, in a line: a command in backticks, else the tool's name and its file.
fn call(name: &str, input: &Value, path: Option<&str>, losses: &mut Losses) -> String {
    match (command_of(input), path) {
        (Some(command), _) => {
            let command = command.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("`{}`", shortened("Commands run", &without_mark(&command), LINE_CHARS, losses))
        }
        (None, Some(path)) => format!("{name} {path}"),
        (None, None) => name.to_owned(),
    }
}

/// `text` within `chars`, the whole of it in the loss report when it is cut.
fn shortened(section: &'static str, text: &str, chars: usize, losses: &mut Losses) -> String {
    if text.chars().count() > chars {
        losses.add(section, text, true);
    }
    cut(text, chars)
}

/// The command line a tool call runs, if it runs one.
fn command_of(input: &Value) -> Option<String> {
    let value = ["command", "cmd", "script"].iter().find_map(|name| input.get(name))?;
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            (!words.is_empty()).then(|| words.join(" "))
        }
        _ => None,
    }
}

/// The exit code that a tool's output tells in words, for example `Exit code 2` in the first or last lines.
fn exit_code(output: &str) -> Option<i32> {
    let lines = output.trim().lines();
    let told = lines.clone().take(2).chain(lines.rev().take(2));
    let mut codes = told.filter_map(|line| {
        let lower = line.to_lowercase();
        let at = ["exit code", "exit status", "exited with code", "exited with status"]
            .iter()
            .find_map(|words| lower.find(words).map(|at| at + words.len()))?;
        let rest = lower[at..].trim_start_matches([':', ' ', '=']);
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    codes.next()
}

/// The text a write puts into a file, as far as the tool's arguments tell.
fn written(input: &Value) -> Option<&str> {
    ["new_string", "newString", "new_str", "content", "text", "patch", "diff"]
        .iter()
        .find_map(|name| input.get(name).and_then(Value::as_str))
}

fn shown_hunk(path: Option<&str>, text: &str, losses: &mut Losses) -> String {
    let block = svc_base::fence::fenced(&shortened("Last changes", &without_mark(text), HUNK_CHARS, losses));
    format!("{}:\n{}", path.unwrap_or("a file"), block.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_8_exit_codes_are_read_where_the_output_tells_them() {
        assert_eq!(exit_code("Exit code 127\nnot found"), Some(127));
        assert_eq!(exit_code("a\nb\nprocess exited with code: 2"), Some(2));
        assert_eq!(exit_code("fine"), None);
        assert_eq!(
            command_of(&serde_json::json!({"command": ["bash", "-c", "ls"]})).as_deref(),
            Some("bash -c ls")
        );
    }
}
