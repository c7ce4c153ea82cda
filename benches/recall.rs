//! What asking and searching cost: a gigabyte of logs is written, indexed, asked and searched, and a long log
//! is read for its facts. `cargo bench --bench recall`; `-- 100` takes 100 MB. With `rg` in the `PATH`,
//! or named by `RG`, it searches the same files for the same words in the same run, as whole words in any
//! case.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};
use support::folder::Folder;
use svc::agents::report::{LogEntry, LogRecord};
use svc::agents::worker_log::{Exact, LogStore, Within};
use svc::context::brief::{Facts, Reader};
use svc::core::State;
use svc::core::ids::{AgentId, LineageId};
use svc::core::time::Time;
use svc::providers::Activity;
use svc::recall::{self, Question, Search};

const MEGABYTES: u64 = 1_000;
/// Words of all logs; the first are the commonest.
const WORDS: u64 = 60_000;
const LINEAGES: u32 = 10;
/// Questions of one to eight words, rare ones and such as stand everywhere.
const QUESTIONS: [&str; 10] = [
    "zeppelin",
    "why was the zeppelin painted green",
    "harbour crane motor",
    "Sicherung der Datenbank",
    "error in the test",
    "bada bade badi",
    "bada bade zeppelin colour of it",
    "decision about the payment queue and its order",
    "does not exist anywhere xylophone",
    "timeout 412 expected 409 stale cart status",
];
const RUNS: usize = 9;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    /// A word, the smaller its number the likelier, as in any language.
    fn word(&mut self) -> String {
        let ceiling = 1 + self.roll(WORDS);
        let mut n = self.roll(ceiling);
        let mut word = String::from("bad");
        loop {
            word.push(char::from(b"aeioubcdfghklmnprst"[usize::try_from(n % 19).unwrap_or(0)]));
            n /= 19;
            if n == 0 {
                return word;
            }
        }
    }

    fn text(&mut self, words: u64) -> String {
        (0..words).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

fn entries(dice: &mut Dice, count: u64) -> Vec<LogEntry> {
    let one = |at: u64| {
        let activity = match dice.roll(4) {
            0 => Activity::Text { text: dice.text(30) },
            1 => Activity::ToolStarted {
                id: at.to_string(),
                name: "Bash".into(),
                input: serde_json::json!({"command": dice.text(6)}),
                path: None,
                writes: false,
            },
            _ => {
                let words = 40 + dice.roll(300);
                Activity::ToolEnded { id: at.to_string(), error: false, output: dice.text(words) }
            }
        };
        LogEntry::Activity(activity)
    };
    (0..count).map(one).collect()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn bytes_of(folder: &std::path::Path, ending: &str) -> u64 {
    let lineages = std::fs::read_dir(folder).expect("the logs").flatten();
    let files = lineages.flat_map(|lineage| std::fs::read_dir(lineage.path()).expect("a log").flatten());
    let fitting = files.filter(|file| file.path().extension().is_some_and(|known| known == ending));
    fitting.map(|file| file.metadata().map_or(0, |meta| meta.len())).sum()
}

fn main() {
    let megabytes = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(MEGABYTES);
    facts();
    let folder = Folder::in_target("recall");
    let logs = LogStore::open(folder.path()).expect("the logs open");
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut deed = 1;
    while bytes_of(folder.path(), "jsonl") < megabytes * 1_000_000 {
        for lineage in 1..=LINEAGES {
            for _ in 0..8 {
                let mut some = entries(&mut dice, 256);
                if deed == 2_000 * 256 + 1 || deed == 1 {
                    let text = "The zeppelin is green because the harbour crane has a motor.".to_owned();
                    some[7] = LogEntry::Activity(Activity::Text { text });
                }
                let now = Time(1_764_000_000_000 + deed);
                logs.append_deeds(LineageId(lineage), AgentId(lineage), now, deed, &some);
                deed += 256;
            }
        }
    }
    let logged = bytes_of(folder.path(), "jsonl");
    let began = Instant::now();
    let made = logs.index_words(|| true).expect("an index");
    let took = began.elapsed();
    let index = bytes_of(folder.path(), "words");
    println!("logs                            {:>9} MB in {LINEAGES} lineages", logged / 1_000_000);
    println!("index of {made} segments          {:>9} MB, {:.1} s", index / 1_000_000, took.as_secs_f64());
    ask(&logs);
    search(&logs, folder.path());
}

/// Words as they are typed: rare ones, common ones, such as stand together seldom, one that is nowhere, a
/// phrase, and one that no index has.
const SEARCHES: [&str; 8] = [
    "zeppelin",
    "harbour crane motor",
    "bada",
    "bada bade badi",
    "bada bade zeppelin",
    "xylophone",
    "\"green because\"",
    "\"bada bade badi bado badu\"",
];

/// Searches beside `rg`, and how much memory the searches took.
fn search(logs: &LogStore, folder: &std::path::Path) {
    let state = State::default();
    let before = resident_bytes("VmRSS");
    reset_peak();
    let mut worst = 0.0_f64;
    for words in SEARCHES {
        let exact = Exact::parse(words).expect("words");
        let within = Within::default();
        let wanted = Search { words: words.to_owned(), exact, within, most: recall::DEFAULT_HITS };
        let mut times = Vec::new();
        let mut answer = serde_json::Value::Null;
        for _ in 0..RUNS {
            let began = Instant::now();
            answer = recall::find(logs, &state, &wanted).expect("an answer");
            times.push(millis(began.elapsed()));
        }
        times.sort_by(f64::total_cmp);
        worst = worst.max(times[RUNS - 1]);
        let hits = answer["hits"].as_array().map_or(0, Vec::len);
        let left = answer["notSearchedBytes"].as_u64().unwrap_or(0) / 1_000_000;
        let (middle, slowest) = (times[RUNS / 2], times[RUNS - 1]);
        let beside = beside(words, folder);
        println!(
            "search {words:<36} {middle:>7.1} ms, worst {slowest:>7.1} ms, {hits:>2} hits, {left} MB not looked at, rg {beside}"
        );
    }
    let grown = resident_bytes("VmHWM").saturating_sub(before) / 1_000;
    println!("{:<43} {worst:>7.1} ms (at most 200)", "the worst search");
    println!("{:<43} {grown:>7} KB above what the bench had (at most 30 000)", "memory of all searches");
}

/// What `rg` takes for the same words: the least of three runs, and how many lines it finds.
fn beside(words: &str, folder: &std::path::Path) -> String {
    let program = std::env::var_os("RG").unwrap_or_else(|| "rg".into());
    let bare = words.replace('"', "");
    // It looks for one pattern: of several words the last; a second look would have to narrow that.
    let pattern =
        if words.starts_with('"') { &bare } else { bare.split(' ').next_back().unwrap_or_default() };
    let mut least = f64::MAX;
    let mut lines = String::new();
    for _ in 0..3 {
        let began = Instant::now();
        let args = ["-i", "-w", "-F", "--count-matches", "--no-filename", "-g", "*.jsonl", "--", pattern];
        let Ok(output) = std::process::Command::new(&program).args(args).arg(folder).output() else {
            return "is absent".to_owned();
        };
        least = least.min(millis(began.elapsed()));
        let counts = String::from_utf8_lossy(&output.stdout).into_owned();
        lines = counts.lines().filter_map(|line| line.parse::<u64>().ok()).sum::<u64>().to_string();
    }
    format!("{least:.0} ms for {pattern:?}, {lines} matches")
}

/// A figure of `/proc/self/status`, in bytes.
fn resident_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * 1_024
}

/// The peak begins anew.
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn ask(logs: &LogStore) {
    let state = State::default();
    let mut worst = 0.0_f64;
    for words in QUESTIONS {
        let question = Question { words: words.to_owned(), lineage: None, most: recall::DEFAULT_HITS };
        let mut times = Vec::new();
        let mut found = 0;
        for _ in 0..RUNS {
            let began = Instant::now();
            let answer = recall::ask(logs, &state, &question).expect("an answer");
            times.push(millis(began.elapsed()));
            found = answer["hits"].as_array().map_or(0, Vec::len);
        }
        times.sort_by(f64::total_cmp);
        worst = worst.max(times[RUNS - 1]);
        println!(
            "{words:<48} {:>7.1} ms, worst {:>7.1} ms, {found} answers",
            times[RUNS / 2],
            times[RUNS - 1]
        );
    }
    println!("{:<48} {worst:>7.1} ms (at most 200)", "the worst of all");
}

/// What it costs to take the facts out of a line, and to write the brief.
fn facts() {
    let mut dice = Dice(7);
    let number = |(entry, n): (LogEntry, u64)| LogRecord { n, ts: Time(n), agent_id: AgentId(1), entry };
    let records: Vec<LogRecord> = entries(&mut dice, 50_000).into_iter().zip(1..).map(number).collect();
    let facts = Facts { task: "Build it".into(), ..Facts::default() };
    let began = Instant::now();
    let mut reader = Reader::new(&facts);
    for record in &records {
        reader.take(record);
    }
    let read = began.elapsed();
    let built = reader.build();
    println!("facts of a line, on a job's thread {:>9.2} µs", millis(read) * 1_000.0 / 50_000.0);
    println!("facts of a line, in the core       {:>9.2} µs (it takes none there)", 0.0);
    println!(
        "the brief of 50 000 lines          {:>9.2} ms, {} bytes",
        millis(began.elapsed()),
        built.text.len()
    );
}
