//! The recall bench: what a successor can state of 30 facts planted in sessions of ten shapes, out of its
//! brief alone, by one search alone, and with one search for each fact that it misses in the brief. `make
//! recall` prints the table.
//!
//! A fact counts when one line or one item of the brief, or one answer of the search, has all of its keys.
//! Noise is every line that is neither the brief's own form (head, task, headlines, the user's last messages,
//! the pointer at its end) nor about a planted fact.

mod mined;
mod sessions;

use crate::support::folder::Folder;
use sessions::{Bank, SHAPES, Session};
use svc::agents::report::{LogEntry, LogRecord};
use svc::agents::worker_log::LogStore;
use svc::context::brief;
use svc::core::State;
use svc::core::ids::{AgentId, LineageId};
use svc::core::time::Time;
use svc::recall::{self, Question};

/// What the table must show, of 30 and in per cent.
const FROM_BRIEF: f64 = 24.0;
const WITH_SEARCH: f64 = 27.0;
const NOISE_PERCENT: f64 = 15.0;

/// What came of one session.
struct Score {
    shape: &'static str,
    brief: usize,
    search: usize,
    /// Found by the search alone.
    alone: usize,
    noise_percent: f64,
    bytes: usize,
    missed: Vec<String>,
}

fn records(log: &[LogEntry]) -> Vec<LogRecord> {
    let number = |(at, entry): (usize, &LogEntry)| LogRecord {
        n: at as u64 + 1,
        ts: Time(1_764_000_000_000 + at as u64 * 1_000),
        agent_id: AgentId(1),
        entry: entry.clone(),
    };
    log.iter().enumerate().map(number).collect()
}

/// The items of a brief: a line, with the block that follows it.
fn units(text: &str) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let begins = fence.is_none() && line.starts_with("```");
        if let Some(last) = units.last_mut().filter(|_| begins || fence.is_some()) {
            last.push('\n');
            last.push_str(line);
        } else {
            units.push(line.to_owned());
        }
        if begins {
            fence = Some("```");
        } else if fence.is_some_and(|fence| line == fence) {
            fence = None;
        }
    }
    units
}

/// How many in a hundred characters of the brief carry nothing.
fn noise(text: &str, session: &Session) -> f64 {
    let mut section = "";
    let (mut noise, mut all) = (0, 0);
    for unit in units(text) {
        let chars = unit.chars().count();
        all += chars;
        if let Some(title) = unit.strip_prefix("## ") {
            section =
                if title == "Original task" || title == "The user's last messages" { "form" } else { "" };
            continue;
        }
        let is_form = section == "form" || unit.starts_with(['#', '(']) || unit.starts_with("You take over");
        let is_told = session
            .planted
            .iter()
            .any(|fact| fact.is_in(&unit) || fact.context().is_some_and(|command| unit.contains(command)));
        if !is_form && !is_told && !unit.trim().is_empty() {
            noise += chars;
        }
    }
    f64::from(u32::try_from(noise).unwrap_or(u32::MAX)) * 100.0
        / f64::from(u32::try_from(all).unwrap_or(u32::MAX)).max(1.0)
}

type Facts<'a> = Vec<&'a sessions::Planted>;

fn score(session: &Session) -> Score {
    let text = brief::build(&session.facts, &records(&session.log));
    assert_eq!(text, brief::build(&session.facts, &records(&session.log)), "same input, same bytes");
    assert!(text.chars().count() <= brief::MAX_CHARS);
    let units = units(&text);
    let is_told = |fact: &sessions::Planted| units.iter().any(|unit| fact.is_in(unit));
    let logs = Logs::of(session);
    let is_found = |fact: &sessions::Planted| logs.hits(&fact.question).iter().any(|hit| fact.is_in(hit));
    let (told, untold): (Facts, Facts) = session.planted.iter().partition(|fact| is_told(fact));
    let (found, missed): (Facts, Facts) = untold.into_iter().partition(|fact| is_found(fact));
    let line =
        |place: &str, fact: &sessions::Planted| format!("{place}: {}: {}", fact.kind, fact.keys.join("; "));
    let alone = session.planted.iter().filter(|fact| is_found(fact)).count();
    if let Some(folder) = std::env::var_os("RECALL_BRIEFS") {
        let path = std::path::Path::new(&folder).join(format!("{}.md", session.shape));
        std::fs::write(path, &text).expect("the brief is kept");
    }
    Score {
        shape: session.shape,
        brief: told.len(),
        search: told.len() + found.len(),
        alone,
        noise_percent: noise(&text, session),
        bytes: text.len(),
        missed: found
            .iter()
            .map(|fact| line("in the log", fact))
            .chain(missed.iter().map(|fact| line("nowhere", fact)))
            .collect(),
    }
}

/// A session as the daemon has logged it.
struct Logs {
    store: LogStore,
    state: State,
    _folder: Folder,
}

impl Logs {
    fn of(session: &Session) -> Self {
        let folder = Folder::new("recall");
        let store = LogStore::open(&folder.path().join("logs")).expect("the logs open");
        store.append_deeds(LineageId(1), AgentId(1), Time(1_764_000_000_000), 1, &session.log);
        store.index_words(|| true).expect("the logs are indexed");
        Self { store, state: State::default(), _folder: folder }
    }

    /// The answers to a question.
    fn hits(&self, words: &str) -> Vec<String> {
        let question = Question { words: words.to_owned(), lineage: None, most: recall::DEFAULT_HITS };
        let answer = recall::ask(&self.store, &self.state, &question).expect("an answer");
        let hits = answer["hits"].as_array().expect("hits");
        hits.iter().map(|hit| hit["text"].as_str().expect("a text").to_owned()).collect()
    }
}

/// The middle of ten: the lower of the two, so that it is not flattered.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) / 2]
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(0))
}

/// Scores all shapes of a bank, after so many rotations, and prints the table.
fn table(bank: &str, rotations: usize) -> Vec<Score> {
    let phrases = Bank::read(bank);
    println!("{bank}, after {rotations} rotations        brief +search   alone   noise   bytes");
    let all = (0..SHAPES.len()).map(|shape| {
        let mut session = Session::of(&phrases, shape);
        for _ in 0..rotations {
            let brief = brief::build(&session.facts, &records(&session.log));
            session.rotate(&brief);
        }
        let score = score(&session);
        let Score { shape, brief, search, alone, noise_percent, bytes, .. } = &score;
        println!(
            "  {shape:<30} {brief:>3}/30  {search:>3}/30  {alone:>3}/30  {noise_percent:>4.1} %  {bytes:>6}"
        );
        for missed in score.missed.iter().filter(|_| std::env::var_os("RECALL_MISSED").is_some()) {
            println!("      {missed}");
        }
        score
    });
    let all: Vec<Score> = all.collect();
    let (brief, search, noise) = medians(&all);
    println!("  {:<30} {brief:>3}/30  {search:>3}/30  {noise:>4.1} %", "median");
    all
}

fn medians(all: &[Score]) -> (f64, f64, f64) {
    let of = |figure: fn(&Score) -> f64| median(all.iter().map(figure).collect());
    (of(|score| as_f64(score.brief)), of(|score| as_f64(score.search)), of(|score| score.noise_percent))
}

#[test]
fn a_successor_can_state_what_its_predecessor_knew() {
    let mut short = Vec::new();
    for bank in ["develop", "held-out"] {
        for rotations in [0, 5] {
            let (brief, search, noise) = medians(&table(bank, rotations));
            if brief < FROM_BRIEF || search < WITH_SEARCH || noise > NOISE_PERCENT {
                short.push(format!("{bank} after {rotations} rotations: {brief}, {search}, {noise:.1} %"));
            }
        }
    }
    assert!(short.is_empty(), "{short:?}");
}

/// The bench can fail: of a session without its records nothing is known.
#[test]
fn what_is_not_in_the_log_cannot_be_stated() {
    let bank = Bank::read("develop");
    let mut session = Session::of(&bank, 0);
    session.log.truncate(1);
    session.facts.files = std::sync::Arc::default();
    let score = score(&session);
    assert_eq!((score.brief, score.search), (0, 0));
}
