//! The handoff brief: what a successor must know, built from the record and the log without a model call.
//!
//! **Invariant:** the same facts and log give the same bytes.
//! **Invariant:** at most [`MAX_CHARS`] characters; the least important section is cut first, the user's
//! messages last.
//! **Invariant:** every command, failure, file, lock, step, rule and message that was found is in the brief
//! or in the loss report.
//! **Invariant:** what was only read does not count as changed, and what is red no more not as failed.
//! **Invariant:** an older brief is never nested: handoffs before this one appear as one line each.

mod last_word;
mod ledger;
mod lessons;
pub use ledger::{failing_line_of_success, relative};
mod signs;
mod steps;
#[cfg(test)]
mod tests;
mod transcript;

use crate::agents::report::LogRecord;
use crate::agents::{Agent, FileTouch};
use crate::core::State as All;
use crate::memory::Learned;
use serde::Serialize;
use signs::Kind;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use svc_base::fence::one_line;
use svc_base::sorted;
use transcript::{FAILED, Transcript};

/// Characters of a brief at most.
pub const MAX_CHARS: usize = 16_000;
/// The user's last messages carried over verbatim.
pub const USER_MESSAGES: usize = 5;
/// Log records read to build a brief, the latest ones; how many are older stands in the loss report.
pub const RECORDS_READ: u64 = 50_000;
/// First line of every brief; by it a brief is recognised and never nested in another.
pub const MARK: &str = "# Handoff from your predecessor";
/// Losses told one by one, the latest ones; earlier ones are counted.
pub const MAX_LOSSES: usize = 5_000;
/// Bytes of all losses together; the earliest go first, and are counted.
pub const MAX_LOSS_BYTES: usize = 2_000_000;

/// Characters of the task, as long as there is room for the user's messages besides.
const TASK_CHARS: usize = 6_000;
/// Characters of the task in any case.
const LEAST_TASK_CHARS: usize = 1_000;
/// Losses looked at for repetitions.
const RECENT_LOSSES: usize = 100;
/// Characters of one loss.
const LOSS_CHARS: usize = 100_000;
/// Room for the remark about what was left out.
const REMARK_CHARS: usize = 300;
/// Characters of the project map: the briefing above the brief has it as well.
const MAP_CHARS: usize = 400;
/// Weights that are asked for by name.
const MAP: u8 = 1;
const OPEN_STEPS: u8 = 17;
/// Earlier handoffs of the role that are named.
const CHAIN_ENTRIES: usize = 3;

/// What the record and the other features know.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    pub name: String,
    pub role: String,
    pub task: Arc<str>,
    /// The folder from which paths are seen, absolute; empty: as they were told.
    pub root: String,
    /// Why it is rotated.
    pub reason: String,
    pub files: Arc<BTreeMap<String, FileTouch>>,
    pub scope: Arc<Vec<String>>,
    /// Resources it holds, one line each.
    pub locks: Vec<String>,
    /// The project's rules, one line each.
    pub constraints: Vec<String>,
    /// Earlier handoffs of its role, newest first, one line each.
    pub chain: Vec<String>,
    /// Its workspace's part of the project map.
    pub map: Option<String>,
    /// What the old session said when it was asked.
    pub last_word: Option<String>,
    /// For a fork: the turn before which it begins.
    pub forked_at: Option<u64>,
}

impl Facts {
    /// The facts of `agent`.
    pub fn of(all: &All, agent: &Agent, reason: &str) -> Self {
        let rule =
            |rule: &crate::memory::Constraint| format!("- [{}] {}", rule.category, one_line(&rule.text));
        let handoff = |entry: &Arc<crate::memory::ChainEntry>| {
            format!("- {} ({}, {}): {}", entry.agent_name, entry.reason, entry.ts, one_line(&entry.summary))
        };
        Self {
            name: agent.name.clone(),
            role: agent.role.clone(),
            task: Arc::clone(&agent.prompt),
            root: root_of(all, agent),
            reason: reason.to_owned(),
            files: Arc::clone(&agent.files),
            scope: Arc::clone(&agent.scope),
            locks: super::held_locks(all, agent),
            constraints: all.memory.constraints().iter().map(rule).collect(),
            chain: all.memory.chain(&agent.role).take(CHAIN_ENTRIES).map(handoff).collect(),
            map: super::map_section(all, &agent.working_dir),
            last_word: None,
            forked_at: None,
        }
    }

    /// The facts for a fork of `agent`, as it was before this turn. Its locks stay its own.
    pub fn of_fork(all: &All, agent: &Agent, turn: u64) -> Self {
        Self { locks: Vec::new(), forked_at: Some(turn), ..Self::of(all, agent, "fork") }
    }
}

impl Facts {
    /// What it takes to read a log without writing a brief.
    pub fn to_read(all: &All, agent: &Agent) -> Self {
        Self { task: Arc::clone(&agent.prompt), root: root_of(all, agent), ..Self::default() }
    }
}

/// The folder that an agent calls its project: its worktree, or the project itself.
pub fn root_of(all: &All, agent: &Agent) -> String {
    let dir = match &agent.worktree {
        Some(worktree) => all.project.dir.join(worktree),
        None => all.project.dir.clone(),
    };
    dir.to_string_lossy().into_owned()
}

/// A brief, and what is not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    pub text: String,
    /// What did not fit, in the order of the sections.
    pub losses: Vec<Loss>,
    /// Losses beyond [`MAX_LOSSES`] or [`MAX_LOSS_BYTES`].
    pub more_losses: usize,
}

/// Something that is not in the brief, or not whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// The section it belongs to.
    pub section: &'static str,
    /// The whole of it, up to 100 000 characters.
    pub text: String,
    /// Whether a part of it is in the brief.
    pub cut: bool,
}

/// One section; a lower weight is cut earlier.
struct Section {
    weight: u8,
    title: &'static str,
    /// The most important last: lines go from the beginning.
    lines: Vec<String>,
}

impl Section {
    fn new(weight: u8, title: &'static str, lines: Vec<String>) -> Self {
        Self { weight, title, lines }
    }

    /// Characters it takes in the brief.
    fn chars(&self) -> usize {
        if self.lines.is_empty() {
            return 0;
        }
        let lines: usize = self.lines.iter().map(|line| line.chars().count() + 1).sum();
        self.title.chars().count() + "\n## \n\n".len() + lines
    }
}

/// Builds the brief from the last records of the agent's log, oldest first.
pub fn build(facts: &Facts, records: &[LogRecord]) -> String {
    build_with_losses(facts, records).text
}

/// As [`build`], with what is not in the brief.
pub fn build_with_losses(facts: &Facts, records: &[LogRecord]) -> Built {
    let mut reader = Reader::new(facts);
    for record in records {
        reader.take(record);
    }
    reader.build()
}

/// Reads a log record by record, however long it is, and then builds the brief.
pub struct Reader<'a> {
    facts: &'a Facts,
    transcript: Transcript,
    losses: Losses,
}

impl<'a> Reader<'a> {
    /// Nothing is read yet.
    pub fn new(facts: &'a Facts) -> Self {
        Self { facts, transcript: Transcript::new(&facts.root), losses: Losses::default() }
    }

    /// Takes in the next record, oldest first.
    pub fn take(&mut self, record: &LogRecord) {
        self.transcript.take(record, &self.facts.task, &mut self.losses);
    }

    /// So many records are older than those that are read.
    pub fn skipped(&mut self, records: u64) {
        let text = format!("the log's first {records} records are too old and were not read");
        self.losses.add("The log", &text, false);
    }

    /// What failed and went well then, oldest first.
    pub fn learned(self) -> impl DoubleEndedIterator<Item = Learned> {
        self.transcript.ledger.learned()
    }

    /// The brief.
    pub fn build(mut self) -> Built {
        self.transcript.finish(&mut self.losses);
        assemble(self.facts, self.transcript, self.losses)
    }
}

fn assemble(facts: &Facts, transcript: Transcript, mut losses: Losses) -> Built {
    let room = MAX_CHARS - REMARK_CHARS;
    let empty = head(facts, "").chars().count();
    let asked: usize = transcript.user.iter().map(|text| quote(text).chars().count() + 1).sum();
    let task_chars = room.saturating_sub(empty + asked + 100).clamp(LEAST_TASK_CHARS, TASK_CHARS);
    let task = cut(&facts.task, task_chars);
    if *task != *facts.task {
        losses.add("Original task", &facts.task, true);
    }
    let head = head(facts, &task);
    let head_chars = head.chars().count();
    let user = fit_messages(&transcript.user, room.saturating_sub(head_chars + 60), &mut losses);
    let mut sections = sections_of(facts, transcript, user, &mut losses);
    fit(head_chars, &mut sections, room, &mut losses);
    for section in sections.iter_mut().filter(|section| matches!(section.weight, MAP | OPEN_STEPS)) {
        section.lines.reverse();
    }
    let mut text = head;
    for section in sections.iter().filter(|section| !section.lines.is_empty()) {
        let _ = write!(text, "\n## {}\n\n", section.title);
        for line in &section.lines {
            let _ = writeln!(text, "{line}");
        }
    }
    text.push_str(&losses.remark(&facts.name));
    Built { text, more_losses: losses.more, losses: losses.in_order(&sections) }
}

/// The sections, in the order in which they are read.
fn sections_of(
    facts: &Facts,
    mut transcript: Transcript,
    user: Vec<String>,
    losses: &mut Losses,
) -> Vec<Section> {
    let mut chain = facts.chain.clone();
    chain.reverse();
    let word = last_word::lines(facts, &transcript, losses);
    let commands = transcript.commands(losses);
    let mended = transcript.ledger.mended_lines(losses);
    let known = |weight, kind: Kind| {
        let lines = transcript.ledger.lines(kind, &transcript.open_files());
        Section::new(weight, ledger::TITLES[kind as usize], lines)
    };
    let known = [
        known(14, Kind::Next),
        known(9, Kind::Question),
        known(13, Kind::Decision),
        known(11, Kind::Cause),
        known(11, Kind::Found),
        known(10, Kind::DeadEnd),
    ];
    let asked = transcript.ledger.asked_lines();
    let hunks = transcript.hunks();
    // Lines go from the beginning, and the first step is to be kept longest.
    let mut open_steps = transcript.open_steps;
    open_steps.reverse();
    let mut sections = vec![
        Section::new(18, "The user's last messages", user),
        Section::new(16, ledger::ASKED, asked),
        Section::new(OPEN_STEPS, "Open steps", open_steps),
    ];
    // After what it was asked to do, before what rules have found.
    sections.push(Section::new(14, last_word::TITLE, word));
    sections.extend(known);
    sections.extend([
        Section::new(15, "Locks you hold", facts.locks.clone()),
        Section::new(8, "Files changed", ledger::files_changed(&facts.files, &facts.root, losses)),
        Section::new(3, "Last changes", hunks),
        Section::new(7, ledger::MENDED, mended),
        Section::new(6, "Commands run", commands),
        Section::new(12, FAILED, transcript.failures),
        Section::new(5, "What was said last", transcript.said),
        Section::new(4, "Rules of this project", facts.constraints.clone()),
        Section::new(2, "Earlier handoffs of this role", chain),
        Section::new(MAP, "Project map", map_lines(facts, losses)),
    ]);
    sections
}

/// The first lines of the project map, the last of them first.
fn map_lines(facts: &Facts, losses: &mut Losses) -> Vec<String> {
    let map = facts.map.as_deref().map(without_mark).unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    let mut chars = 0;
    for line in map.lines() {
        chars += line.chars().count() + 1;
        if chars > MAP_CHARS {
            losses.add("Project map", line, false);
        } else {
            lines.push(line.to_owned());
        }
    }
    lines.reverse();
    lines
}

fn head(facts: &Facts, task: &str) -> String {
    let from = match facts.forked_at {
        Some(turn) => format!(
            "You are a fork of {} ({}), as it was before its turn {turn}. You work in a git worktree of your own, with \
             its files as they were then; {} may go on in its own folder, and nothing that you do changes that.",
            facts.name, facts.role, facts.name,
        ),
        None => format!(
            "You take over from {} ({}), whose context was renewed ({}).",
            facts.name, facts.role, facts.reason,
        ),
    };
    let mut head = format!(
        "{MARK}\n\n{from} Everything below happened already. Continue from there and deliver the result; do not start \
         over.\n\n## Original task\n\n{task}\n",
    );
    if !facts.scope.is_empty() {
        let _ = write!(head, "\nYou own: {}\n", facts.scope.join(", "));
    }
    head
}

/// Drops the first line of the least important section until all fits.
fn fit(head_chars: usize, sections: &mut [Section], room: usize, losses: &mut Losses) {
    let mut total = head_chars + sections.iter().map(Section::chars).sum::<usize>();
    while total > room {
        let victim = sections.iter_mut().filter(|section| !section.lines.is_empty()).min_by_key(|s| s.weight);
        let Some(section) = victim else { return };
        let before = section.chars();
        let line = section.lines.remove(0);
        total = total - before + section.chars();
        losses.add(section.title, &line, false);
    }
}

/// The user's messages, quoted, within `room` characters. They are whole unless they alone are too long;
/// then the longest are cut to one length.
fn fit_messages(messages: &[String], room: usize, losses: &mut Losses) -> Vec<String> {
    let quoted: Vec<String> = messages.iter().map(|text| quote(text)).collect();
    let mut lengths: Vec<usize> = quoted.iter().map(|text| text.chars().count() + 1).collect();
    sorted::up(&mut lengths);
    let mut left = room;
    let mut limit = usize::MAX;
    for (at, length) in lengths.iter().enumerate() {
        let fair = left / (lengths.len() - at);
        if *length > fair {
            limit = fair.saturating_sub(1);
            break;
        }
        left -= length;
    }
    let fitted = messages.iter().zip(quoted).map(|(message, quoted)| {
        if quoted.chars().count() > limit {
            losses.add("The user's last messages", message, true);
        }
        cut(&quoted, limit)
    });
    fitted.collect()
}

fn quote(text: &str) -> String {
    format!("> {}\n", text.trim_end_matches('\n').replace('\n', "\n> "))
}

/// What is not in the brief.
#[derive(Default)]
struct Losses {
    list: VecDeque<Loss>,
    /// Bytes of all in the list.
    bytes: usize,
    more: usize,
}

impl Losses {
    fn add(&mut self, section: &'static str, text: &str, is_cut: bool) {
        let loss = Loss { section, text: cut(text, LOSS_CHARS), cut: is_cut };
        self.bytes += loss.text.len();
        self.list.push_back(loss);
        while self.list.len() > MAX_LOSSES || self.bytes > MAX_LOSS_BYTES {
            let Some(oldest) = self.list.pop_front() else { return };
            self.bytes -= oldest.text.len();
            self.more += 1;
        }
    }

    /// Adds what was cut, unless the same was cut lately.
    fn add_once(&mut self, section: &'static str, text: &str) {
        let lately = self.list.iter().rev().take(RECENT_LOSSES);
        if !lately.into_iter().any(|loss| loss.text == text) {
            self.add(section, text, true);
        }
    }

    /// In the order of the sections; within one, as they happened.
    fn in_order(self, sections: &[Section]) -> Vec<Loss> {
        let mut list = Vec::from(self.list);
        sorted::by_key(&mut list, |loss| sections.iter().position(|section| section.title == loss.section));
        list
    }

    /// One line for the successor.
    fn remark(&self, name: &str) -> String {
        if self.list.is_empty() {
            return String::new();
        }
        let count = self.list.len() + self.more;
        format!(
            "\n({count} older or longer entries were left out or cut. Before you ask the user or search for yourself, ask for \
             them: 'svc recall WORDS'. A number like [812] is a record of the log: 'svc logs {name} --since 811'.)\n"
        )
    }
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

/// Text that is not the user's must not look like a brief.
fn without_mark(text: &str) -> String {
    text.replace(MARK, "(an older handoff)")
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
