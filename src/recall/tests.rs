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

/// What a search finds, as `n:text`, newest first.
fn found(logs: &Logs, all: &All, words: &str, within: Within, most: usize) -> Vec<String> {
    let exact = Exact::parse(words).expect("words");
    let search = Search { words: words.to_owned(), exact, within, most };
    let answer = find(&logs.0, all, &search).unwrap();
    let hit = |hit: &Value| format!("{}:{}", hit["n"], hit["text"].as_str().unwrap());
    answer["hits"].as_array().unwrap().iter().map(hit).collect()
}

fn at(logs: &Logs, lineage: u32, ms: u64, entry: &LogEntry) {
    logs.0.append(LineageId(lineage), AgentId(lineage), Time(1_764_000_000_000 + ms), entry).unwrap();
}

fn text(words: &str) -> LogEntry {
    LogEntry::Activity(Activity::Text { text: words.into() })
}

#[test]
fn a_search_finds_words_as_they_were_typed_the_newest_first() {
    let bench = Bench::new();
    let logs = Logs::new("search");
    at(&logs, 1, 10, &text("The login page is slow"));
    at(&logs, 2, 20, &text("login: no page yet"));
    at(&logs, 1, 30, &text("logins and paging"));
    let input = json!({"command": "grep -n \"login\" src/page.js", "lines": [7]});
    let started =
        Activity::ToolStarted { id: "a".into(), name: "Bash".into(), input, path: None, writes: false };
    at(&logs, 2, 40, &LogEntry::Activity(started));
    at(&logs, 1, 50, &LogEntry::user("Mend the LOGIN page"));
    let all = Within::default();
    let hits = found(&logs, &bench.state, "login page", all, 9);
    let expected = [
        "3:Mend the LOGIN page",
        "2:Bash grep -n \"login\" src/page.js 7",
        "1:login: no page yet",
        "1:The login page is slow",
    ];
    assert_eq!(hits, expected);
    assert_eq!(found(&logs, &bench.state, "login page", all, 2), expected[..2], "the newest of all logs");
    assert_eq!(found(&logs, &bench.state, "\"login page\"", all, 9).len(), 2, "a phrase as it is");
    let only = |kind| Within { kind: Some(kind), ..all };
    assert_eq!(found(&logs, &bench.state, "login page", only(Kind::Tool), 9), expected[1..2]);
    assert_eq!(found(&logs, &bench.state, "login page", only(Kind::Text), 9).len(), 3);
    let mine = Within { lineage: Some(LineageId(1)), ..all };
    assert_eq!(found(&logs, &bench.state, "login page", mine, 9).len(), 2);
    let late = Within { since: Some(Time(1_764_000_000_040)), ..all };
    assert_eq!(found(&logs, &bench.state, "login page", late, 9), expected[..2]);
    assert!(found(&logs, &bench.state, "\"page login\"", all, 9).is_empty());
}

#[test]
fn a_search_finds_the_same_with_an_index_and_without_one() {
    let bench = Bench::new();
    let logs = Logs::new("search-index");
    let filler = "nothing of interest happens here at all ".repeat(40);
    let odd = [
        "parseHttpHeader(x)",
        "fooBar—Übung 测试用例 naïveCafé",
        "src/userLogin.rs:42",
        "a tab\there \"quoted\"",
    ];
    for n in 0..900_usize {
        logs.say(1, &format!("{n} {filler} {}", odd[n % odd.len()]));
    }
    // Larger than what is read at a time.
    logs.say(1, &format!("{} the whale is here", "blubber ".repeat(400_000)));
    logs.say(1, "after the whale");
    let words = [
        "HttpHeader",
        "httpheader",
        "parsehttpheader",
        "header 16",
        "übung",
        "测试",
        "userlogin",
        "login.rs:42",
        "42",
        "whale",
        "blubber here",
        "quoted",
        "\"a tab\"",
        "nothing 899",
        "foobar",
        "interest xylophone",
        "899",
        "42 interest",
    ];
    let ask = |words: &str| found(&logs, &bench.state, words, Within::default(), 50);
    let before: Vec<Vec<String>> = words.iter().map(|words| ask(words)).collect();
    assert_eq!(logs.0.index_words(|| true).unwrap(), 1);
    for (words, before) in words.iter().zip(before) {
        assert_eq!(ask(words), before, "{words}");
        assert_eq!(
            before.is_empty(),
            matches!(*words, "httpheader" | "interest xylophone"),
            "{words}: {before:?}"
        );
    }
    assert_eq!(ask("whale")[0], "902:after the whale");
}
