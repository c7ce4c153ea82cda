//! What every command gets: its arguments, its output, its surroundings.

use super::args::Args;
use super::client::{Client, Surroundings};
use super::progress;
use super::render::{Style, Table, clean};
use serde_json::Value;
use std::io::{self, IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};
use svc_base::time::Time;

/// Why a command did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A sentence for standard error, and the exit code.
    Say {
        /// 1 or 2.
        code: u8,
        /// What is wrong and what to do next.
        message: String,
    },
    /// Standard output has told it already.
    Told(u8),
    /// Standard output was closed by its reader, who has seen enough.
    ClosedPipe,
}

impl Failure {
    /// The operation failed: exit code 1.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Say { code: 1, message: message.into() }
    }

    /// The command line is wrong: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Say { code: 2, message: message.into() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::ClosedPipe;
        }
        Self::failed(format!("standard output cannot be written: {error}"))
    }
}

/// How a command ends.
pub type Outcome = Result<(), Failure>;

/// Standard output, and how it is to look.
#[derive(Debug, Clone, Copy)]
pub struct Out {
    /// `--json`: the API's JSON and nothing else.
    pub json: bool,
    /// `--quiet`: only the essential.
    pub quiet: bool,
    /// A terminal, and `NO_COLOR` is not set.
    pub colour: bool,
    /// Columns of the terminal; `None` when the output goes elsewhere.
    pub width: Option<usize>,
}

impl Out {
    /// Looks at the terminal and the environment. `COLUMNS` wins over what the terminal says.
    pub fn new(args: &Args) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let terminal = io::stdout().is_terminal();
        let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|n| *n > 0);
        Self {
            json: args.flag("json"),
            quiet: args.flag("quiet"),
            colour: terminal && !set("NO_COLOR"),
            width: columns.or_else(svc_sys::terminal::stdout_columns),
        }
    }

    /// Prints one line (or several).
    pub fn line(&self, text: &str) -> Outcome {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.write_all(b"\n")?;
        stdout.flush()?;
        Ok(())
    }

    /// Prints one JSON document.
    pub fn document(&self, value: &Value) -> Outcome {
        self.line(&format!("{value:#}"))
    }

    /// Prints an answer: as JSON, or (`--quiet`) its essential alone, which may be empty, or in words.
    pub fn told(&self, answer: &Value, essential: &str, words: &str) -> Outcome {
        match (self.json, self.quiet) {
            (true, _) => self.document(answer),
            (_, true) if essential.is_empty() => Ok(()),
            (_, true) => self.line(essential),
            _ => self.line(words),
        }
    }

    /// Prints an answer as JSON, or in words that `--quiet` keeps, for they are what was asked for.
    pub fn said(&self, answer: &Value, words: &str) -> Outcome {
        self.told(answer, words, words)
    }

    /// The rows of an answer, for people. Programs are given theirs here, and nothing comes back: the answer
    /// as JSON, or (`--quiet`) this member of each row, one a line.
    pub fn rows<'a>(
        &self,
        answer: &Value,
        rows: &'a Value,
        member: &str,
    ) -> Result<Option<&'a [Value]>, Failure> {
        let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
        if self.json {
            return self.document(answer).map(|()| None);
        }
        if self.quiet {
            let shown = |row: &Value| match &row[member] {
                Value::String(text) => clean(text),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            return self.lines(&rows.iter().map(shown).collect::<Vec<_>>()).map(|()| None);
        }
        Ok(Some(rows))
    }

    /// Prints `lines`.
    pub fn lines(&self, lines: &[String]) -> Outcome {
        if lines.is_empty() { Ok(()) } else { self.line(&lines.join("\n")) }
    }

    /// Prints a table that fits the terminal, or these words when it has no row.
    pub fn table(&self, table: &Table, empty: &str) -> Outcome {
        if table.is_empty() { self.line(empty) } else { self.lines(&table.lines(self.width, self.colour)) }
    }

    /// `text` in a style, where colours are wanted.
    pub fn paint(&self, style: Style, text: &str) -> String {
        if self.colour { style.paint(text) } else { text.to_owned() }
    }

    /// A status word in its colour.
    pub fn status(&self, word: &str) -> String {
        Style::of_status(word).map_or_else(|| word.to_owned(), |style| self.paint(style, word))
    }

    /// A remark on standard error, kept back by `--quiet`.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            complain(text);
        }
    }
}

/// Says something on standard error. A closed standard error is nobody's loss.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "svc: {}", super::render::clean(text));
}

/// One call of `svc`.
pub struct Session {
    /// What was asked for.
    pub args: Args,
    pub out: Out,
    /// Where it was asked: folder and environment.
    pub surroundings: Surroundings,
    /// Runs the daemon in this process.
    pub start: crate::Daemon,
    /// Plays recordings in this process.
    pub recordings: crate::Recordings,
}

impl Session {
    /// A client of the daemon that the options, the folder and the environment name.
    pub fn client(&self) -> Result<Client, Failure> {
        let client = Client::new(self.surroundings.find()?)?;
        Ok(if progress::is_shown(&self.out) { client.doing("waiting for the daemon") } else { client })
    }

    /// [`Self::client`], whose calls are about this.
    pub fn client_doing(&self, words: &'static str) -> Result<Client, Failure> {
        let client = self.client()?;
        Ok(if progress::is_shown(&self.out) { client.doing(words) } else { client })
    }

    /// The id of the agent that called `svc`, if an agent did.
    pub fn caller(&self) -> Option<&str> {
        self.surroundings.agent_id.as_deref()
    }
}

/// The wall clock.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
