//! What a log tells a successor, in the order it happened.

use super::super::briefing;
use super::last_word::Acts;
use super::ledger::{self, Ledger, Place};
use super::{Losses, MARK, USER_MESSAGES, cut, first_line, lessons, steps, without_mark};
use crate::agents::report::{LogEntry, LogRecord, Other};
use crate::providers::Activity;
use serde_json::Value;
use std::collections::BTreeMap;

const LINE_CHARS: usize = 240;
const SAID_CHARS: usize = 480;
const HUNK_CHARS: usize = 240;
/// Kept of each kind; older ones are losses.
const MAX_SAID: usize = 2;
const MAX_COMMANDS: usize = 80;
const MAX_FAILURES: usize = 40;
/// Of files, the last change of each.
const MAX_HUNKS: usize = 3;
/// Commands that are told: those that act, and those that only look.
const MAX_ACTING: usize = 8;
const MAX_LOOKING: usize = 2;
/// A text without a fact that is at least so long is a report all the same.
const REPORT_CHARS: usize = 200;
const MAX_STEPS: usize = 40;
const STEP_CHARS: usize = 200;
/// The head above what failed and has not gone well since.
pub const FAILED: &str = "Failed, do not repeat blindly";

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
    /// Where they stand.
    user_at: Vec<Place>,
    pub ledger: Ledger,
    pub acts: Acts,
    /// The project's folder: paths are told as seen from it.
    root: String,
    pub open_steps: Vec<String>,
    pub said: Vec<String>,
    /// Each with its outcome once, where it was run last, and how often it was.
    commands: Vec<(String, usize)>,
    pub failures: Vec<String>,
    /// The last changes of files, by their paths.
    hunks: Vec<(String, String)>,
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
    /// Nothing is read yet; `root` is the project's folder.
    pub fn new(root: &str) -> Self {
        Self { root: root.trim_end_matches('/').to_owned(), ..Self::default() }
    }

    /// Takes in the next record of the log.
    pub fn take(&mut self, record: &LogRecord, task: &str, losses: &mut Losses) {
        let place = Place::of(record);
        self.ledger.at(place);
        match &record.entry {
            LogEntry::Other(Other::User { text }) => {
                self.user.extend(user_messages(text, task));
                self.user_at.resize(self.user.len(), place);
            }
            // What an ended process had open is not open any more.
            LogEntry::Other(Other::Life { .. }) => self.open.clear(),
            LogEntry::Activity(activity) => {
                if let Some(steps) = steps::of(activity) {
                    self.todo = steps;
                }
                self.activity(activity, place, losses);
            }
        }
        self.bound(losses);
    }

    /// The files that were changed last.
    pub fn open_files(&self) -> Vec<&str> {
        self.hunks.iter().filter_map(|(path, _)| path.rsplit('/').next()).collect()
    }

    /// The last changes as lines.
    pub fn hunks(&self) -> Vec<String> {
        self.hunks.iter().map(|(_, hunk)| hunk.clone()).collect()
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
        let old_words = self.user.len().saturating_sub(USER_MESSAGES);
        for (old, place) in self.user.drain(..old_words).zip(self.user_at.drain(..old_words)) {
            self.ledger.asked(&old, place, losses);
        }
        for (_, old) in self.hunks.drain(..self.hunks.len().saturating_sub(MAX_HUNKS)) {
            losses.add("Last changes", &old, false);
        }
        let lists =
            [(&mut self.said, MAX_SAID, "What was said last"), (&mut self.failures, MAX_FAILURES, FAILED)];
        for (list, keep, title) in lists {
            for old in list.drain(..list.len().saturating_sub(keep)) {
                losses.add(title, &old, false);
            }
        }
        for (old, _) in self.commands.drain(..self.commands.len().saturating_sub(MAX_COMMANDS)) {
            losses.add("Commands run", &old, false);
        }
    }

    /// The commands as lines: the last that acted, and the last that looked.
    pub fn commands(&mut self, losses: &mut Losses) -> Vec<String> {
        let (mut acting, mut looking) = (0, 0);
        let mut lines = Vec::new();
        for (line, times) in std::mem::take(&mut self.commands).into_iter().rev() {
            let looks = line
                .strip_prefix("- ")
                .and_then(|line| line.rsplit_once("`: "))
                .is_some_and(|(command, outcome)| outcome == "exit 0" && ledger::only_looks(command));
            let (count, most) = if looks { (&mut looking, MAX_LOOKING) } else { (&mut acting, MAX_ACTING) };
            *count += 1;
            let is_told = *count <= most;
            let line = if times == 1 { line } else { format!("{line} ({times} times)") };
            if is_told {
                lines.push(line);
            } else {
                losses.add("Commands run", &line, false);
            }
        }
        lines.reverse();
        lines
    }

    /// Notes a command; one that repeats with the same outcome moves to the end.
    fn ran(&mut self, line: String) {
        let known = self.commands.iter().position(|(known, _)| *known == line);
        let times = known.map_or(0, |at| self.commands.remove(at).1);
        self.commands.push((line, times + 1));
    }

    /// The agent said something. What only tells that it goes on is a loss.
    fn say(&mut self, text: &str, place: Place, losses: &mut Losses) {
        const TITLE: &str = "What was said last";
        let text = self.seen_from_root(text);
        let is_report = self.ledger.said(&text, place, losses) || text.chars().count() >= REPORT_CHARS;
        if !is_report {
            losses.add(TITLE, &text, false);
            return;
        }
        let line = shortened(TITLE, &without_mark(&text), SAID_CHARS, losses);
        self.said.push(format!("- {line}"));
    }

    /// A text whose paths are as seen from the project's folder.
    fn seen_from_root<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        if self.root.is_empty() || !text.contains(&self.root) {
            return text.into();
        }
        text.replace(&format!("{}/", self.root), "").into()
    }

    /// A call has ended.
    fn ended(&mut self, open: Open, error: bool, output: &str, place: Place, losses: &mut Losses) {
        let Open { what, hunk } = open;
        let is_command = what.starts_with('`');
        let looks = is_command && ledger::only_looks(&what);
        // What a reader reads may speak of failures; what acts reports its own.
        let acts = is_command && !looks;
        let code = exit_code(output);
        let says_so = error || (acts && code.is_some_and(|code| code != 0));
        let telling = match (acts, says_so) {
            (true, true) => ledger::failing_line(output),
            (true, false) => ledger::failing_line_of_success(output),
            (false, _) => None,
        };
        let failed = says_so || telling.is_some();
        if failed {
            let why = self.seen_from_root(telling.unwrap_or_else(|| first_line(output))).into_owned();
            self.fail(&what, &why, losses);
            if acts {
                self.ledger.failed(&what, &why, !lessons::has_no_verdict(output), place);
            }
        } else if let Some((path, text)) = hunk {
            // What was refused or failed has changed nothing.
            self.change(path.as_deref(), &text, losses);
        }
        if !is_command {
            return;
        }
        if !failed && !looks && self.ledger.went_well(&what, place) {
            // It is red no more.
            let head = format!("- {what}: ");
            self.failures.retain(|line| {
                let stays = !line.starts_with(&head);
                if !stays {
                    losses.add(FAILED, line, false);
                }
                stays
            });
        }
        let outcome = match (code, error) {
            (Some(code), _) => format!("exit {code}"),
            (None, true) => "failed".to_owned(),
            (None, false) => "exit 0".to_owned(),
        };
        self.ran(format!("- {what}: {outcome}"));
    }

    /// A file was changed: the change before it is old.
    fn change(&mut self, path: Option<&str>, text: &str, losses: &mut Losses) {
        let path = ledger::relative(path.unwrap_or("a file"), &self.root).to_owned();
        if let Some(at) = self.hunks.iter().position(|(known, _)| *known == path) {
            losses.add("Last changes", &self.hunks.remove(at).1, false);
        }
        self.ledger.changed(&path);
        let hunk = shown_hunk(&path, text, losses);
        self.hunks.push((path, hunk));
    }

    fn activity(&mut self, activity: &Activity, place: Place, losses: &mut Losses) {
        match activity {
            Activity::Text { text } => self.say(text, place, losses),
            Activity::ToolStarted { id, name, input, path, writes } => {
                // Editors have a `command` too, and it is none of a shell's.
                let command = if *writes { None } else { command_of(input) };
                let command = command.map(|command| self.seen_from_root(bare(&command)).into_owned());
                if let Some(command) = &command {
                    self.acts.ran(command);
                }
                let path = path.as_deref().map(|path| ledger::relative(path, &self.root).to_owned());
                let what = call(name, command, path.as_deref(), losses);
                let text = written(input).filter(|_| *writes);
                let hunk = text.map(|text| (path, text.to_owned()));
                self.open.insert(id.clone(), Open { what, hunk });
            }
            Activity::ToolEnded { id, error, output } => {
                let Some(open) = self.open.remove(id) else { return };
                self.ended(open, *error, output, place, losses);
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
        let why = without_mark(why);
        let line = format!("- {what}: {}", cut(&why, LINE_CHARS));
        if why.chars().count() > LINE_CHARS {
            losses.add_once(FAILED, &why);
        }
        self.failures.retain(|known| *known != line);
        self.failures.push(line);
    }
}

/// What a tool call does, in a line: a command in backticks, else the tool's name and its file.
fn call(name: &str, command: Option<String>, path: Option<&str>, losses: &mut Losses) -> String {
    match (command, path) {
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

/// A command without the shell that some programs wrap around it.
fn bare(command: &str) -> &str {
    let shells = ["/bin/bash -lc ", "bash -lc ", "/bin/sh -c ", "bash -c ", "sh -c "];
    let Some(inside) = shells.iter().find_map(|shell| command.strip_prefix(shell)) else { return command };
    let quoted = |mark: char| inside.strip_prefix(mark).and_then(|rest| rest.strip_suffix(mark));
    let whole = |mark: char| quoted(mark).filter(|rest| !rest.contains(mark));
    whole('\'').or_else(|| whole('"')).unwrap_or(command)
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

fn shown_hunk(path: &str, text: &str, losses: &mut Losses) -> String {
    let block = svc_base::fence::fenced(&shortened("Last changes", &without_mark(text), HUNK_CHARS, losses));
    format!("{path}:\n{}", block.trim_end())
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

    #[test]
    fn a_shell_around_a_command_is_not_told() {
        assert_eq!(bare("/bin/bash -lc 'npm test'"), "npm test");
        assert_eq!(bare("sh -c \"a 'b'\""), "a 'b'");
        assert_eq!(bare("bash -c 'a' 'b'"), "bash -c 'a' 'b'");
        assert_eq!(bare("npm test"), "npm test");
    }
}
