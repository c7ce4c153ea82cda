//! Sessions that people have with a program outside of the daemon: where the program keeps them, and what
//! stands there. Pure: a worker of the daemon opens the files.

use super::json::Json;
use super::terminal::Reads;
use super::{Activity, Step, Tokens, wire};
use std::path::PathBuf;
use svc_base::time::Time;

/// Sessions of one program that are told of at most, the newest.
pub const LISTED_MAX: usize = 50;
/// Characters kept of what a person said first.
const WORDS_CHARS: usize = 200;

/// Where a program keeps the sessions of a project.
pub enum Kept {
    Files(Files),
    /// It tells itself: a JSON line a session, and of one of them lines for a [`Reader`].
    Told {
        /// Without it there are none, and nobody is asked.
        file: PathBuf,
        list: Vec<String>,
        /// One line of that list.
        read: fn(&str) -> Option<Session>,
        /// The arguments for all of one session.
        said: fn(&str) -> Vec<String>,
    },
}

/// Files of JSON lines, one for each session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The folder to look in.
    pub root: PathBuf,
    /// How many folders lie between it and the files.
    pub depth: usize,
    /// How the name of the first of these folders begins, where the project can be told by it.
    pub begins: String,
    /// The file that names the folder of the sessions, where they do not: from the session's file upwards so
    /// many folders, and its name.
    pub note: Option<(usize, &'static str)>,
}

/// What is known of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Session {
    /// What the program resumes it by.
    pub id: String,
    /// The folder in which it was held, absolute; empty where nobody tells.
    pub folder: String,
    pub model: Option<String>,
    pub began: Option<Time>,
    pub changed: Option<Time>,
    /// How often the person has said something that the program went to work on.
    pub turns: u64,
    /// What the person said first, cut.
    pub words: String,
    pub tokens: Tokens,
    /// It is a helper's within another session, and not one to go on with.
    pub is_part: bool,
}

impl Session {
    pub(super) fn seen(&mut self, at: Option<Time>) {
        self.began = self.began.or(at);
        self.changed = self.changed.max(at);
    }

    /// Notes the first words.
    pub(super) fn said(&mut self, text: &str) {
        if self.words.is_empty() {
            self.words = text.trim().chars().take(WORDS_CHARS).collect();
        }
    }
}

/// Takes from a line what only the record's own words tell: id, folder, model, whose it is.
pub(super) type Facts = fn(&Json<'_>, &mut Session);

/// Reads the lines of one session, from the first.
pub struct Reader {
    session: Session,
    facts: Facts,
    reads: Reads,
    at: Option<Time>,
}

impl Reader {
    pub(super) fn new(reads: Reads, facts: Facts) -> Self {
        Self { session: Session::default(), facts, reads, at: None }
    }

    /// One line; what was said and done in it, as a run would have told it.
    pub fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line) else { return };
        let at = ["timestamp", "startTime"].iter().find_map(|key| Time::parse(wire::text(&event, key)));
        let at = at.or_else(|| wire::count_if_any(&event, "at").map(Time));
        if at.is_some() {
            self.at = at;
            self.session.seen(at);
        }
        (self.facts)(&event, &mut self.session);
        let from = out.len();
        self.reads.line(line, out);
        self.count(&out[from..]);
    }

    /// Nothing follows.
    pub fn end(&mut self, out: &mut Vec<Step>) {
        let from = out.len();
        self.reads.end(out);
        self.count(&out[from..]);
    }

    /// When the last line was written that says so.
    pub fn at(&self) -> Option<Time> {
        self.at
    }

    /// What is known so far.
    pub fn session(&self) -> &Session {
        &self.session
    }

    fn count(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Said(text) => self.session.said(text),
                Step::Event(Activity::TurnStarted) => self.session.turns += 1,
                Step::Event(Activity::Usage(usage)) => self.session.tokens += usage.delta,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "outside_tests.rs"]
mod tests;
