//! Questions over logs and memory.

use super::*;
use crate::agents::report::LogEntry;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::providers::Activity;
use crate::testing::Bench;
use std::path::PathBuf;

/// Logs in a folder of their own, which goes with them.
struct Logs(LogStore, PathBuf);

impl Logs {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("svc-recall-{name}-{}", std::process::id()));
        Self(LogStore::open(&folder).unwrap(), folder)
    }

    fn say(&self, lineage: u32, text: &str) {
        let entry = LogEntry::Activity(Activity::Text { text: text.into() });
        self.0.append(LineageId(lineage), AgentId(lineage), Time(1_764_000_000_000), &entry).unwrap();
    }

    fn hits(&self, all: &All, words: &str, lineage: Option<LineageId>) -> Vec<String> {
        let question = Question { words: words.into(), lineage, most: 5 };
        let answer = ask(&self.0, all, &question).unwrap();
        let hit =
            |hit: &Value| format!("{}:{}", hit["source"].as_str().unwrap(), hit["text"].as_str().unwrap());
        answer["hits"].as_array().unwrap().iter().map(hit).collect()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

#[test]
fn a_question_finds_logs_and_memory_by_stems_and_near_words() {
    let mut bench = Bench::new();
    let logs = Logs::new("near");
    logs.say(7, "pg_dump runs every night at three");
    logs.say(8, "The backups of the database are encrypted.");
    logs.say(9, "Nothing to see");
    bench.ask("POST", "/api/memory/discoveries", &json!({"trigger": "dump hangs", "fix": "use --jobs 4"}));
    bench.ask(
        "POST",
        "/api/memory/constraints",
        &json!({"text": "Sicherungen gehören auf den zweiten Rechner"}),
    );
    let found = logs.hits(&bench.state, "Backup the db", None);
    let said = "log:The backups of the database are encrypted.";
    assert_eq!(found[0], said, "{found:?}");
    for other in
        ["log:pg_dump runs every night at three", "discovery:dump hangs -> use --jobs 4", "rule:Sicherungen"]
    {
        assert!(found.iter().any(|hit| hit.starts_with(other)), "{other}: {found:?}");
    }
    assert_eq!(found.len(), 4);
    assert_eq!(logs.hits(&bench.state, "Datenbank", Some(LineageId(8))), [said], "one log alone");
    assert!(logs.hits(&bench.state, "zeppelin", None).is_empty());
}

#[test]
fn what_is_indexed_is_found_like_what_is_not() {
    let bench = Bench::new();
    let logs = Logs::new("index");
    let filler = "nothing of interest happens here at all ".repeat(40);
    for n in 0..900 {
        logs.say(1, &format!("{n} {filler}"));
        if n == 400 {
            logs.say(1, "The ferry is called Nordstern");
        }
    }
    let before = logs.hits(&bench.state, "name of the ferry", None);
    assert_eq!(logs.0.index_words(|| true).unwrap(), 1);
    assert_eq!(logs.0.index_words(|| true).unwrap(), 0, "nothing has come since");
    assert_eq!(logs.hits(&bench.state, "name of the ferry", None), before);
    assert!(before[0].contains("Nordstern"), "{before:?}");
    logs.say(1, "The other ferry sails on Monday");
    let after = logs.hits(&bench.state, "ferry monday", None);
    assert_eq!(after[0], "log:The other ferry sails on Monday", "the tail is read as it is");
    // A damaged index is none.
    let words = logs.1.join(LineageId(1).to_string()).join("000000000001.words");
    let whole = std::fs::read(&words).unwrap();
    for damaged in [&whole[..whole.len() / 3], &[0; 64][..], b"", &[&whole[..20], &[255; 40]].concat()] {
        std::fs::write(&words, damaged).unwrap();
        assert!(logs.hits(&bench.state, "name of the ferry", None)[0].contains("Nordstern"));
    }
}
