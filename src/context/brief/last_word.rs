//! What the old session said when it was asked before its rotation, line by line, with a mark where the log
//! or the record says otherwise. What neither can tell stands as it was said.

use super::ledger::{self, relative};
use super::transcript::Transcript;
use super::{Facts, Losses, cut, without_mark};
use svc_base::fence::one_line;

/// The head of the section.
pub const TITLE: &str =
    "Your predecessor's last word (asked before it went; marked where the log says otherwise)";
/// Lines of it; further ones are losses.
const MAX_LINES: usize = 20;
/// Characters of a line; what is beyond is a loss.
const MAX_LINE_CHARS: usize = 300;

/// Words with which something is said to be well.
const WELL: [&str; 10] =
    ["pass", "passes", "passed", "passing", "green", "succeeds", "succeeded", "works", "fixed", "clean"];
/// Words with which something is said to have been changed.
const CHANGED: [&str; 13] = [
    "changed",
    "edited",
    "wrote",
    "created",
    "added",
    "updated",
    "modified",
    "implemented",
    "fixed",
    "removed",
    "deleted",
    "renamed",
    "rewrote",
];
/// Words that make of a claim something that is not, or not yet: such a line claims nothing.
const NOT: [&str; 35] = [
    "not", "no", "never", "isn't", "aren't", "don't", "doesn't", "didn't", "wasn't", "won't", "nothing",
    "without", "must", "should", "need", "needs", "will", "would", "until", "unless", "before", "once",
    "when", "if", "next", "make", "todo", "still", "then", "to", "fail", "fails", "failed", "failing", "red",
];

/// The lines of the answer, each checked.
pub fn lines(facts: &Facts, transcript: &Transcript, losses: &mut Losses) -> Vec<String> {
    let Some(answer) = &facts.last_word else { return Vec::new() };
    let said =
        answer.lines().map(|line| without_mark(&one_line(plain(line)))).filter(|line| !line.is_empty());
    let mut lines = Vec::new();
    for line in said {
        if lines.len() == MAX_LINES {
            losses.add(TITLE, &line, false);
            continue;
        }
        if line.chars().count() > MAX_LINE_CHARS {
            losses.add(TITLE, &line, true);
        }
        let mark = contradiction(facts, transcript, &line);
        let mark = mark.map(|mark| format!(" **[{mark}]**")).unwrap_or_default();
        lines.push(format!("- {}{mark}", cut(&line, MAX_LINE_CHARS)));
    }
    // Lines go from the beginning of a section, and here the first ones are as good as the last.
    lines
}

/// A line without the marks of a list or of a head.
fn plain(line: &str) -> &str {
    let line = line.trim().trim_start_matches(['#', '-', '*', '>', ' ']);
    let numbered = line.split_once(['.', ')']).filter(|(number, _)| {
        !number.is_empty() && number.len() < 3 && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    numbered.map_or(line, |(_, rest)| rest).trim()
}

/// What the facts say against a line, in words; `None` where they say nothing.
fn contradiction(facts: &Facts, transcript: &Transcript, line: &str) -> Option<String> {
    let lower = line.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !(c.is_alphanumeric() || c == '\'')).filter(|word| !word.is_empty()).collect();
    if words.iter().any(|word| NOT.contains(word)) {
        return None;
    }
    let has = |known: &[&str]| words.iter().any(|word| known.contains(word));
    still_red(transcript, &lower, &words).filter(|_| has(&WELL)).or_else(|| {
        unknown_act(transcript, &words)
            .or_else(|| unwritten(facts, transcript, line).filter(|_| has(&CHANGED)))
    })
}

/// A command that the line speaks of as well, and that failed when it was run last.
fn still_red(transcript: &Transcript, lower: &str, words: &[&str]) -> Option<String> {
    const SUBJECTS: [&str; 5] = ["test", "build", "lint", "check", "compile"];
    let mut red = transcript.ledger.red_commands();
    red.find(|command| {
        let bare = command.trim_matches('`').to_lowercase();
        let subject = |name: &str| bare.contains(name) && words.iter().any(|word| word.starts_with(name));
        lower.contains(&bare) || SUBJECTS.into_iter().any(subject)
    })
    .map(|command| format!("the log: {} failed when it was run last", cut(command, 80)))
}

/// A commit or a push that no command of the log has made.
fn unknown_act(transcript: &Transcript, words: &[&str]) -> Option<String> {
    let acts = [
        ("committed", "git commit", transcript.acts.commits),
        ("pushed", "git push", transcript.acts.pushes),
    ];
    let unknown = acts.into_iter().find(|(word, _, done)| words.contains(word) && !done);
    unknown.map(|(_, command, _)| format!("the log has no {command}"))
}

/// A file that it says it has changed, and that nothing in the log has written or named in a command that
/// acts.
fn unwritten(facts: &Facts, transcript: &Transcript, line: &str) -> Option<String> {
    if transcript.acts.overflowed {
        return None;
    }
    let paths = line
        .split(|c: char| c.is_whitespace() || "`\"'(),;:".contains(c))
        .map(|word| word.trim_end_matches('.'));
    let mut paths =
        paths.filter(|word| looks_like_a_file(word)).map(|word| relative(word, &facts.root)).peekable();
    paths.peek()?;
    let is_written = |path: &str| {
        let ends = |known: &str| {
            let known = relative(known, &facts.root);
            known == path || known.ends_with(path) && known[..known.len() - path.len()].ends_with('/')
        };
        let written = facts.files.iter().any(|(known, touched)| touched.writes > 0 && ends(known));
        written || transcript.acts.names(path)
    };
    let found: Vec<&str> = paths.collect();
    // One that is true speaks for the line.
    (!found.iter().any(|path| is_written(path)))
        .then(|| format!("the log has no change of {}", cut(found[0], 80)))
}

/// `src/a.rs`, `a.rs`; not `1.5`, `e.g`, `v1.2`, `https://x.y`.
fn looks_like_a_file(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    let Some((stem, extension)) = name.rsplit_once('.') else { return false };
    let is_extension = (1..=5).contains(&extension.len())
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && extension.bytes().any(|byte| byte.is_ascii_lowercase());
    let is_stem = stem.len() > 1 && stem.chars().any(char::is_alphabetic);
    is_extension && is_stem && !word.contains("://") && !word.starts_with("www.")
}

/// What commands have done that may be claimed.
#[derive(Default)]
pub struct Acts {
    pub commits: bool,
    pub pushes: bool,
    /// Names of files in commands that do more than look, at most [`MAX_NAMES`].
    names: std::collections::BTreeSet<String>,
    /// There were more of them, or something may have written files without naming them: nothing is said of
    /// files any more.
    pub overflowed: bool,
}

/// Words of commands that write files which they do not name.
const WRITERS: [&str; 24] = [
    "fmt", "format", "prettier", "generate", "codegen", "gen", "patch", "apply", "checkout", "stash", "pull",
    "merge", "python", "python3", "node", "perl", "ruby", "bash", "sh", "mv", "cp", "rsync", "tar", "unzip",
];

/// Names of files that are remembered of commands.
const MAX_NAMES: usize = 2_000;

impl Acts {
    /// A command was run, whatever became of it.
    pub fn ran(&mut self, command: &str) {
        self.commits |=
            command.contains("git commit") || command.contains("git merge") || command.contains("rebase");
        self.pushes |= command.contains("git push");
        if ledger::only_looks(command) {
            return;
        }
        let parts = |c: char| {
            c.is_whitespace()
                || matches!(c, '`' | '"' | '\'' | '(' | ')' | ',' | ';' | ':')
                || matches!(c, '=' | '<' | '>' | '|' | '&')
        };
        let words = || command.split(parts);
        self.overflowed |= words().any(|word| {
            WRITERS.contains(&word)
                || matches!(word, "--fix" | "--write")
                || word.strip_suffix(".sh").is_some()
        });
        for word in words().filter(|word| looks_like_a_file(word)) {
            let name = word.rsplit('/').next().unwrap_or_default();
            if self.names.len() < MAX_NAMES {
                self.names.insert(name.to_owned());
            } else {
                self.overflowed = true;
            }
        }
    }

    fn names(&self, path: &str) -> bool {
        self.names.contains(path.rsplit('/').next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Built, FileTouch, MAX_CHARS, build_with_losses};
    use super::*;
    use crate::agents::report::{LogEntry, LogRecord};
    use crate::core::ids::AgentId;
    use crate::core::time::Time;
    use crate::providers::Activity;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// The brief after these commands, each with whether it failed, and this answer.
    fn built(commands: &[(&str, bool)], answer: &str) -> Built {
        let touched = |writes| FileTouch { reads: 1, writes };
        let files = [("/p/src/login.rs", touched(2)), ("/p/src/read.rs", touched(0))];
        let facts = Facts {
            name: "one".into(),
            task: "Add a login page".into(),
            root: "/p".into(),
            files: Arc::new(BTreeMap::from(files.map(|(path, touched)| (path.to_owned(), touched)))),
            last_word: Some(answer.into()),
            ..Facts::default()
        };
        let mut entries = vec![LogEntry::user("Add a login page")];
        for (at, (command, error)) in commands.iter().enumerate() {
            let (id, input) = (at.to_string(), json!({"command": command}));
            let started = Activity::ToolStarted {
                id: id.clone(),
                name: "Bash".into(),
                input,
                path: None,
                writes: false,
            };
            let ended = Activity::ToolEnded { id, error: *error, output: String::new() };
            entries.extend([LogEntry::Activity(started), LogEntry::Activity(ended)]);
        }
        let number = |(n, entry)| LogRecord { n: n as u64 + 1, ts: Time(1), agent_id: AgentId(1), entry };
        build_with_losses(&facts, &entries.into_iter().enumerate().map(number).collect::<Vec<_>>())
    }

    fn line<'a>(built: &'a Built, begins: &str) -> &'a str {
        let found = built.text.lines().find(|line| line.starts_with(begins));
        found.unwrap_or_else(|| panic!("{begins:?} in\n{}", built.text))
    }

    #[test]
    fn what_the_log_contradicts_is_marked_and_the_rest_stands_as_it_was_said() {
        let commands =
            [("cargo test login", true), ("cargo build", false), ("sed -i s/a/b/ src/by_sed.rs", false)];
        let built = built(
            &commands,
            "## Decisions\n- Sessions live in cookies, for the proxy drops headers.\n1. All tests pass.\n\
             * The build is green.\n- Committed as 1abc.\n- I added src/login.rs and changed src/read.rs.\n\
             - I rewrote src/read.rs.\n- Updated src/ghost.rs.\n- Edited src/by_sed.rs.\n\
             - Next: make the tests pass.\n- Created /p/src/login.rs.\n- The tests do not pass.",
        );
        let marked = |begins: &str| {
            line(&built, begins).split_once(" **[").map(|(_, mark)| mark.trim_end_matches("]**"))
        };
        assert_eq!(marked("- Sessions live in cookies, for the proxy drops headers."), None);
        let red = "the log: `cargo test login` failed when it was run last";
        assert_eq!(marked("- All tests pass."), Some(red));
        assert_eq!(marked("- The build is green."), None, "that one was");
        assert_eq!(marked("- Committed as 1abc."), Some("the log has no git commit"));
        assert_eq!(marked("- I added src/login.rs"), None, "one that is true speaks for the line");
        assert_eq!(marked("- I rewrote src/read.rs."), Some("the log has no change of src/read.rs"));
        assert_eq!(marked("- Updated src/ghost.rs."), Some("the log has no change of src/ghost.rs"));
        assert_eq!(marked("- Edited src/by_sed.rs."), None, "a command has named it");
        assert_eq!(marked("- Next: make the tests pass."), None, "that claims nothing");
        assert_eq!(marked("- Created /p/src/login.rs."), None);
        assert_eq!(marked("- The tests do not pass."), None);
        assert!(built.text.contains(&format!("\n## {TITLE}\n\n- Decisions\n")), "{}", built.text);
    }

    #[test]
    fn nothing_is_said_of_files_when_a_command_may_have_written_any_nor_of_what_is_green_again() {
        let commands =
            [("cargo test", true), ("cargo fmt", false), ("cargo test", false), ("git commit -m x", false)];
        let built = built(&commands, "Updated src/ghost.rs.\nAll tests pass.\nCommitted it.");
        assert!(!built.text.contains("**["), "{}", built.text);
    }

    #[test]
    fn an_answer_keeps_to_twenty_lines_and_its_room_and_cannot_pass_for_a_brief() {
        let long = format!("{}\n", "x".repeat(400));
        let answer = format!("{}\n{}{}", super::super::MARK, long, "one more line\n".repeat(40));
        let built = built(&[], &answer);
        let section = built.text.split(TITLE).nth(1).unwrap().split("\n## ").next().unwrap();
        assert_eq!(section.lines().filter(|line| line.starts_with("- ")).count(), MAX_LINES);
        assert_eq!(built.text.matches(super::super::MARK).count(), 1);
        assert!(built.text.chars().count() <= MAX_CHARS);
        assert_eq!(
            built.losses.iter().filter(|loss| loss.section == TITLE).count(),
            23,
            "the rest is a loss"
        );
    }
}
