//! Sessions with planted facts: ten shapes, out of two banks of phrases that share no words. Rules are made
//! with `develop.txt` in sight; `held-out.txt` is only scored.

use super::super::recordings::replay::Replay;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use svc::agents::FileTouch;
use svc::agents::report::LogEntry;
use svc::context::brief::Facts;
use svc::providers::{Activity, TurnEnd};

/// The shapes, and for three of them the recording of a real program whose records the session is made of.
pub const SHAPES: [(&str, Option<&str>); 10] = [
    ("feature", Some("claude-default")),
    ("bug hunt", Some("codex-default")),
    ("refactoring", None),
    ("review", None),
    ("research", None),
    ("long chat", None),
    ("many tools", Some("opencode-default")),
    ("many files", None),
    ("interrupted", None),
    ("not in English", None),
];
/// Facts of each kind in one session: 30.
const PLAN: [(&str, usize); 12] = [
    ("decision", 3),
    ("correction", 3),
    ("constraint", 2),
    ("question", 2),
    ("number", 3),
    ("assertion", 3),
    ("cause", 2),
    ("deadend", 3),
    ("green", 2),
    ("name", 2),
    ("path", 3),
    ("next", 2),
];
/// Where the program of the recordings worked.
pub const ROOT: &str = "/project";

/// What an edit writes.
const CODE: &str = "pub fn entries(&self) -> impl Iterator<Item = &Entry> {\n    self.pages.iter()\n}\n\n\
    pub fn first(&self) -> Option<&Entry> {\n    self.entries().next()\n}\n\n\
    pub fn count(&self) -> usize {\n    self.entries().filter(|entry| entry.is_shown).count()\n}\n";

/// A planted fact.
#[derive(Clone)]
pub struct Planted {
    pub kind: &'static str,
    text: String,
    /// Whoever can say all of these in one breath can state it.
    pub keys: Vec<String>,
    pub question: String,
}

impl Planted {
    /// Whether `unit`, a line or an item with what belongs to it, states the fact.
    pub fn is_in(&self, unit: &str) -> bool {
        self.keys.iter().all(|key| unit.contains(key.as_str()))
    }

    /// The command that reports the assertion, or failed until a planted one was run.
    pub fn context(&self) -> Option<&str> {
        if self.kind == "assertion" {
            Some("run-tests")
        } else {
            self.text.split_once(" <- ").map(|(_, failing)| failing)
        }
    }
}

/// A bank of phrases.
pub struct Bank {
    facts: Vec<(String, Vec<String>)>,
}

impl Bank {
    pub fn read(name: &str) -> Self {
        let path = format!("{}/tests/recall/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let row = |line: &str| {
            let mut parts = line.split(" | ").map(|part| part.trim().to_owned());
            (parts.next().expect("a kind"), parts.collect())
        };
        Self { facts: text.lines().filter(|line| !line.starts_with('#')).map(row).collect() }
    }

    fn of(&self, kind: &str) -> Vec<&[String]> {
        self.facts.iter().filter(|(known, _)| known == kind).map(|(_, parts)| &parts[..]).collect()
    }

    fn filler(&self, kind: &str, at: usize) -> String {
        let lines = self.of(kind);
        lines[at % lines.len()][0].replace("{n}", &(at * 7 % 993).to_string())
    }

    fn planted(&self, shape: usize) -> Vec<Planted> {
        let mut all = Vec::new();
        for (kind, count) in PLAN {
            let foreign = self.of(&format!("x-{kind}"));
            let own = self.of(kind);
            let is_foreign = shape == 9;
            let take = |at: usize| match (is_foreign, foreign.get(at)) {
                (true, Some(row)) => *row,
                _ => own[(shape * 2 + at) % own.len()],
            };
            all.extend((0..count).map(|at| {
                let row = take(at);
                Planted {
                    kind,
                    text: row[0].clone(),
                    keys: row.get(1).map_or_else(
                        || vec![row[0].clone()],
                        |keys| keys.split(';').map(str::to_owned).collect(),
                    ),
                    question: row.get(2).cloned().unwrap_or_default(),
                }
            }));
        }
        assert_eq!(all.len(), 30);
        all
    }
}

/// A session, its facts and what the daemon knows of it besides.
pub struct Session<'a> {
    pub shape: &'static str,
    pub planted: Vec<Planted>,
    pub facts: Facts,
    pub log: Vec<LogEntry>,
    bank: &'a Bank,
    recorded: Vec<Activity>,
    dice: u64,
    calls: usize,
}

impl<'a> Session<'a> {
    pub fn of(bank: &'a Bank, shape: usize) -> Self {
        let (name, recording) = SHAPES[shape];
        let recorded = recording.map(|name| Replay::of(name).activities().cloned().collect());
        let facts = Facts {
            name: "dev-1".into(),
            role: "dev".into(),
            root: ROOT.into(),
            map: Some(
                (0..12)
                    .map(|n| format!("- dev-{n} ({n} files): worked on the pages and said that all is well"))
                    .collect::<Vec<_>>()
                    .join("\n"),
            ),
            task: "Bring the order pages and their export into shape, and say what is left.".into(),
            reason: "manual".into(),
            ..Facts::default()
        };
        let mut session = Self {
            shape: name,
            planted: bank.planted(shape),
            facts,
            log: vec![],
            bank,
            recorded: recorded.unwrap_or_default(),
            dice: 0x9e37_79b9_7f4a_7c15 ^ (shape as u64 + 1),
            calls: 0,
        };
        session.log.push(LogEntry::user(&*session.facts.task.clone()));
        session.write_all();
        session
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        usize::try_from(self.dice >> 16).unwrap_or(usize::MAX) % sides
    }

    /// All facts but the next steps in the first part of the session, then work without facts, then the
    /// next steps.
    fn write_all(&mut self) {
        let length = match self.shape {
            "many tools" => 40,
            "review" | "research" => 12,
            _ => 20,
        };
        let (last, mut first): (Vec<Planted>, Vec<Planted>) =
            self.planted.clone().into_iter().partition(|fact| fact.kind == "next");
        for at in (1..first.len()).rev() {
            let other = self.roll(at + 1);
            first.swap(at, other);
        }
        for fact in first {
            self.plant(&fact);
            self.idle(length);
        }
        self.idle(length * 15);
        for at in 0..6 {
            let text = self.bank.filler("ask", at);
            self.log.push(LogEntry::user(text));
            self.idle(length);
        }
        for fact in last {
            self.plant(&fact);
            self.idle(4);
        }
        if self.shape == "interrupted" {
            self.start(&json!({"command": "make all"}), None);
        }
    }

    /// A successor begins with the brief and works on without new facts.
    pub fn rotate(&mut self, brief: &str) {
        self.log.push(LogEntry::life("rotated: manual"));
        self.log.push(LogEntry::user(format!(
            "{brief}\n# Instructions that waited for this handoff\n\n> go on\n"
        )));
        self.idle(60);
    }

    fn say(&mut self, text: String) {
        self.log.push(LogEntry::Activity(Activity::Text { text }));
    }

    fn plant(&mut self, fact: &Planted) {
        let around = self.roll(8);
        let (before, after) = (self.bank.filler("say", around), self.bank.filler("say", around + 3));
        match fact.kind {
            "correction" | "constraint" => self.log.push(LogEntry::user(fact.text.clone())),
            "assertion" => {
                let hidden = self.roll(3) == 0;
                let noise: Vec<String> = (0..12).map(|at| self.bank.filler("out", at)).collect();
                let output = format!("{}\n{}\n{}", noise.join("\n"), fact.text, noise[..3].join("\n"));
                let suffix = if hidden { " || true" } else { "" };
                self.command(&format!("run-tests --part {around}{suffix}"), !hidden, output);
            }
            "green" => {
                let (mend, failing) = fact.text.split_once(" <- ").expect("what it mended");
                self.command(failing, true, "Exit code 1\nnot built".to_owned());
                self.idle(3);
                self.command(mend, false, String::new());
                if !mend.contains(failing) {
                    self.command(failing, false, "ok".to_owned());
                }
            }
            "path" => self.edit(&fact.text, CODE),
            "number" if around < 3 => {
                self.command("measure", false, format!("{before}\n{}\ndone", fact.text));
                self.say(format!("{} {after}", fact.text));
            }
            _ => self.say(format!("{before} {} {after}", fact.text)),
        }
    }

    fn start(&mut self, input: &Value, write: Option<&str>) -> String {
        self.calls += 1;
        let id = format!("c{}", self.calls);
        let name = if write.is_some() { "Edit" } else { "Bash" };
        let is_writing = write.is_some();
        let path = write.map(|path| format!("{ROOT}/{path}"));
        let alike = self.recorded.iter().find_map(|activity| match activity {
            Activity::ToolStarted { name, input, writes, .. } if *writes == is_writing => {
                Some((name.clone(), input.clone()))
            }
            _ => None,
        });
        let (name, mut shaped) = alike.unwrap_or((name.to_owned(), input.clone()));
        // The recorded call with our words: the names of its arguments are the program's own.
        for (key, value) in shaped.as_object_mut().expect("arguments") {
            let ours = match key.as_str() {
                "command" if value.as_str().is_some_and(|text| text.starts_with("/bin/bash -lc")) => {
                    json!(format!("/bin/bash -lc '{}'", input["command"].as_str().unwrap_or_default()))
                }
                "command" => input["command"].clone(),
                "content" | "new_string" => input["new_string"].clone(),
                "file_path" | "filePath" => json!(path),
                _ => continue,
            };
            *value = ours;
        }
        let started = Activity::ToolStarted { id: id.clone(), name, input: shaped, path, writes: is_writing };
        self.log.push(LogEntry::Activity(started));
        id
    }

    fn end(&mut self, id: String, error: bool, output: String) {
        self.log.push(LogEntry::Activity(Activity::ToolEnded { id, error, output }));
    }

    fn command(&mut self, command: &str, error: bool, output: String) {
        let id = self.start(&json!({"command": command}), None);
        self.end(id, error, output);
    }

    fn edit(&mut self, path: &str, text: &str) {
        let id = self.start(&json!({"new_string": text}), Some(path));
        self.end(id, false, "ok".to_owned());
        self.touch(path, true);
    }

    fn touch(&mut self, path: &str, is_write: bool) {
        let mut files: BTreeMap<String, FileTouch> = (*self.facts.files).clone();
        let touched = files.entry(format!("{ROOT}/{path}")).or_default();
        touched.reads += u32::from(!is_write);
        touched.writes += u32::from(is_write);
        self.facts.files = Arc::new(files);
    }

    /// Work that leaves nothing worth telling, each shape with its own.
    fn idle(&mut self, records: usize) {
        let recorded: VecDeque<Activity> = self.recorded.clone().into();
        for _ in 0..records {
            let at = self.roll(1_000);
            match (self.shape, at % 10) {
                ("long chat", 0..=3) => {
                    let text = self.bank.filler("ask", at / 10);
                    self.log.push(LogEntry::user(text));
                }
                ("many files", 0..=3) => {
                    let n = at % 98;
                    self.edit(&format!("app/pages/part{}/page{n}.ts", n % 7), CODE);
                }
                ("refactoring", 0..=2) => {
                    let n = at % 23;
                    self.edit(&format!("lib/area{}/unit{n}.rs", n % 3), CODE);
                }
                ("research", 0..=3) => {
                    let id = self.start(&json!({"command": "curl -s https://example.org/page"}), None);
                    let text = self.bank.filler("out", at).repeat(40);
                    self.end(id, false, text);
                }
                ("interrupted", 0) => {
                    self.log.push(LogEntry::life("interrupted: the daemon died"));
                    self.log.push(LogEntry::user("Continue where you left off."));
                    let end = TurnEnd { is_error: true, error: "overloaded".into(), ..TurnEnd::default() };
                    self.log.push(LogEntry::Activity(Activity::TurnEnded(end)));
                }
                (_, 0 | 1) if !recorded.is_empty() => {
                    // What it wrote is not counted to our facts.
                    self.log.extend(recorded.iter().cloned().map(LogEntry::Activity));
                }
                (_, 4..=6) => {
                    let text = self.bank.filler("say", at / 10);
                    self.say(text);
                }
                _ => {
                    let (run, out) = (self.bank.filler("run", at / 10), self.bank.filler("out", at / 7));
                    self.command(&run, false, out.repeat(1 + at % 5));
                }
            }
        }
    }
}
