use super::lineage::SEGMENT_BYTES;
use super::*;
use crate::providers::{Activity, Tokens, TokensDelta, TurnEnd, Usage};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

const LINEAGE: LineageId = LineageId(0xa1);
const AGENT: AgentId = AgentId(0xb2);

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("svc-log-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self) -> LogStore {
        LogStore::open(&self.0).expect("opens")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(LINEAGE.to_string()).join(name)
    }

    /// Names of the lineage's files that end so, in order.
    fn names(&self, suffix: &str) -> Vec<String> {
        let files = std::fs::read_dir(self.0.join(LINEAGE.to_string())).expect("a folder");
        let mut names: Vec<String> =
            files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name.ends_with(suffix));
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(text: &str) -> LogEntry {
    LogEntry::Activity(Activity::Text { text: text.into() })
}

fn numbers(page: &Page) -> Vec<u64> {
    page.entries.iter().map(|entry| entry.n).collect()
}

/// Entry n has the time n * 1000.
fn fill(store: &LogStore, from: u64, to: u64, size: usize) {
    for n in from..=to {
        let entry = text(&"x".repeat(size));
        assert_eq!(store.append(LINEAGE, AGENT, Time(n * 1000), &entry).expect("appends"), n);
    }
}

fn all_activities() -> Vec<Activity> {
    let delta = TokensDelta { input: -3, output: 4, cache_read: 5, cache_creation: 6 };
    vec![
        Activity::Session { id: "s".into(), model: Some("m".into()) },
        Activity::Session { id: String::new(), model: None },
        Activity::TurnStarted,
        Activity::Text { text: "a\n\"b\" \u{1F600}".into() },
        Activity::Thinking { text: String::new() },
        Activity::ToolStarted {
            id: "t1".into(),
            name: "Edit".into(),
            input: json!({"n": 7, "ts": 1, "type": "user", "f": 0.5, "big": u64::MAX, "deep": [[{"a": null}]]}),
            path: Some("a.rs".into()),
            writes: true,
        },
        Activity::ToolStarted {
            id: "t2".into(),
            name: "x".into(),
            input: json!(null),
            path: None,
            writes: false,
        },
        Activity::ToolEnded { id: "t1".into(), error: true, output: "no".into() },
        Activity::Usage(Usage::default()),
        Activity::Usage(Usage {
            model: Some("small".to_owned()),
            delta,
            session_total: Some(Tokens { input: 1, output: 2, cache_read: 3, cache_creation: 4 }),
            context_tokens: Some(9),
            context_window: Some(200_000),
            cost_usd: Some(0.25),
        }),
        Activity::Trouble { text: "retry 2 of 10".into() },
        Activity::Compacted,
        Activity::TurnEnded(TurnEnd::default()),
        Activity::TurnEnded(TurnEnd {
            text: "done".into(),
            is_error: true,
            error: "why".into(),
            turns: Some(2),
            duration_ms: Some(3),
            cost_usd: Some(0.5),
            denied: vec!["Bash".into()],
        }),
        Activity::Noise { text: "?".into() },
    ]
}

#[test]
fn decisions_2_every_entry_survives_its_json() {
    let mut entries: Vec<LogEntry> = all_activities().into_iter().map(LogEntry::Activity).collect();
    entries.push(LogEntry::Other(Other::User { text: "hi".into() }));
    entries.push(LogEntry::Other(Other::Life { text: "started".into() }));
    for entry in entries {
        let record = LogRecord { n: 7, ts: Time(1_795_221_836_476), agent_id: AGENT, entry };
        let line = serde_json::to_string(&record).expect("encodes");
        assert!(!line.contains('\n'), "{line}");
        let back: LogRecord = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(back, record, "{line}");
    }
}

#[test]
fn design_9_what_is_appended_is_read_after_a_restart_with_numbers_going_on() {
    let folder = Folder::new();
    fill(&folder.open(), 1, 3, 10);
    let store = folder.open();
    fill(&store, 4, 5, 10);
    let page = store.read(LINEAGE, Query::default()).expect("reads");
    assert_eq!(numbers(&page), [1, 2, 3, 4, 5]);
    assert_eq!(page.next, None);
    assert_eq!(page.entries[4].ts, Time(5000));
    assert_eq!(store.read(LineageId(1), Query::default()).expect("reads"), Page::default());
    assert!(!folder.0.join("00000001").exists(), "reading makes no folder");
}

#[test]
fn design_9_pages_are_found_by_number_tail_and_time() {
    let folder = Folder::new();
    let store = folder.open();
    fill(&store, 1, 20, 10);
    let read = |query| store.read(LINEAGE, query).expect("reads");
    let tail = read(Query { tail: Some(3), ..Query::default() });
    assert_eq!((numbers(&tail), tail.next), (vec![18, 19, 20], None));
    let page = read(Query { since: Some(Since::Number(5)), limit: Some(2), ..Query::default() });
    assert_eq!((numbers(&page), page.next), (vec![6, 7], Some(7)));
    let both = read(Query { tail: Some(3), since: Some(Since::Number(18)), ..Query::default() });
    assert_eq!(numbers(&both), [19, 20]);
    let time = read(Query { since: Some(Since::Time(Time(18_001))), ..Query::default() });
    assert_eq!(numbers(&time), [19, 20]);
    let exact = read(Query { since: Some(Since::Time(Time(19_000))), ..Query::default() });
    assert_eq!(numbers(&exact), [19, 20]);
    for beyond in [Since::Number(20), Since::Number(u64::MAX), Since::Time(Time(20_001))] {
        assert_eq!(read(Query { since: Some(beyond), ..Query::default() }), Page::default());
    }
    assert_eq!(read(Query { tail: Some(u64::MAX), ..Query::default() }).entries.len(), 20);
    assert_eq!(Since::parse("12"), Some(Since::Number(12)));
    assert_eq!(Since::parse("1970-01-01T00:00:01Z"), Some(Since::Time(Time(1000))));
    assert_eq!(Since::parse("soon"), None);
}

#[test]
fn design_9_paging_goes_over_segments_and_reads_no_whole_file() {
    let folder = Folder::new();
    let store = folder.open();
    // About 20 MB in entries of 10 kB: three segments.
    fill(&store, 1, 2000, 10_000);
    let segments = folder.names(".jsonl");
    assert_eq!(segments.len(), 3, "{segments:?}");
    for name in &segments {
        assert!(folder.file(name).metadata().expect("exists").len() <= SEGMENT_BYTES);
    }
    for store in [store, folder.open()] {
        let (mut since, mut seen) = (0, Vec::new());
        loop {
            let query = Query { since: Some(Since::Number(since)), ..Query::default() };
            let page = store.read(LINEAGE, query).expect("reads");
            seen.extend(numbers(&page));
            assert!(page.entries.len() <= 105, "a page has at most 1 MiB");
            let Some(next) = page.next else { break };
            since = next;
        }
        assert_eq!(seen, (1..=2000).collect::<Vec<u64>>());
        for n in [1, 2, 799, 800, 839, 840, 1600, 2000] {
            let query =
                Query { since: Some(Since::Time(Time(n * 1000))), limit: Some(1), ..Query::default() };
            assert_eq!(numbers(&store.read(LINEAGE, query).expect("reads")), [n]);
        }
    }
    // What lies before the last mark is not looked at: it may be anything.
    let newest = folder.file(&segments[2]);
    let mut bytes = std::fs::read(&newest).expect("reads");
    let length = bytes.len();
    bytes[..length - 200_000].fill(b' ');
    std::fs::write(&newest, bytes).expect("writes");
    let tail = folder.open().read(LINEAGE, Query { tail: Some(2), ..Query::default() }).expect("reads");
    assert_eq!(numbers(&tail), [1999, 2000]);
}

#[test]
fn design_7_a_torn_last_line_is_dropped() {
    let folder = Folder::new();
    for torn in [&b"{\"n\":4,\"ts\":"[..], b"\xff\xfe", b"{}\n", b"garbage\n{\"n\""] {
        let _ = std::fs::remove_dir_all(&folder.0);
        fill(&folder.open(), 1, 3, 10);
        let path = folder.file("000000000001.jsonl");
        let mut file = OpenOptions::new().append(true).open(path).expect("opens");
        file.write_all(torn).expect("writes");
        let store = folder.open();
        fill(&store, 4, 4, 10);
        let page = store.read(LINEAGE, Query::default()).expect("reads");
        assert_eq!(numbers(&page), [1, 2, 3, 4], "{torn:?}");
    }
}

#[test]
fn a_damaged_index_only_costs_time() {
    let folder = Folder::new();
    fill(&folder.open(), 1, 50, 10_000);
    let path = folder.file("000000000001.index");
    let good = std::fs::read(&path).expect("reads");
    assert!(String::from_utf8(good).expect("text").lines().count() > 3);
    for bad in
        [&b""[..], b"1 1000 0\n9 ", b"\xff\xff", b"1 1000 0\n99 99000 99999999999\n", b"5 5 5\n5 5 5\n"]
    {
        std::fs::write(&path, bad).expect("writes");
        let store = folder.open();
        let tail = store.read(LINEAGE, Query { tail: Some(2), ..Query::default() }).expect("reads");
        let time = Query { since: Some(Since::Time(Time(49_000))), ..Query::default() };
        assert_eq!(numbers(&tail), [49, 50], "{bad:?}");
        assert_eq!(numbers(&store.read(LINEAGE, time).expect("reads")), [49, 50], "{bad:?}");
    }
}

#[test]
fn time_never_goes_back_within_a_lineage() {
    let folder = Folder::new();
    let store = folder.open();
    for ts in [5000, 3000, 6000] {
        store.append(LINEAGE, AGENT, Time(ts), &text("x")).expect("appends");
    }
    let page = store.read(LINEAGE, Query::default()).expect("reads");
    assert_eq!(page.entries.iter().map(|entry| entry.ts.0).collect::<Vec<_>>(), [5000, 5000, 6000]);
}

#[test]
fn eight_writers_leave_no_gap() {
    let folder = Folder::new();
    let store = folder.open();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..100 {
                    let entry = text(&format!("{writer}-{n}"));
                    store.append(LINEAGE, AgentId(writer), Time(1), &entry).expect("appends");
                    // More lineages than stay open.
                    store.append(LineageId(n), AgentId(writer), Time(1), &entry).expect("appends");
                }
            });
        }
    });
    let page = store.read(LINEAGE, Query::default()).expect("reads");
    assert_eq!(numbers(&page), (1..=800).collect::<Vec<u64>>());
    for n in 0..100 {
        let page = folder.open().read(LineageId(n), Query::default()).expect("reads");
        assert_eq!(numbers(&page), (1..=8).collect::<Vec<u64>>());
    }
    assert!(store.slots.lock().expect("not poisoned").by_lineage.len() <= OPEN_LINEAGES_MAX + 8);
}

#[test]
fn raw_lines_are_bounded_and_their_oldest_go_first() {
    let folder = Folder::new();
    let store = folder.open();
    let line = "y".repeat(1 << 20);
    let append = |stream, line: &str| {
        let mut lines = RawLines::new(AGENT, stream);
        lines.at(Time(1));
        lines.push(line);
        store.append_raw(LINEAGE, &mut lines);
        assert!(lines.bytes().is_empty(), "written");
    };
    (0..45).for_each(|_| append(Stream::Stdout, &line));
    append(Stream::Stderr, "oops");
    assert_eq!(store.health().failed, 0);
    let names = folder.names(".jsonl");
    assert_eq!(names.len(), 4, "{names:?}");
    assert_ne!(names[0], "raw-000001.jsonl");
    let newest = std::fs::read_to_string(folder.file(&names[3])).expect("reads");
    let last = newest.lines().last().expect("a line");
    let wanted = r#"{"ts":"1970-01-01T00:00:00.001Z","agentId":"000000b2","stream":"stderr","line":"oops"}"#;
    assert_eq!(last, wanted);
    // Raw lines alone are no entries.
    assert_eq!(store.read(LINEAGE, Query::default()).expect("reads"), Page::default());
}

#[test]
fn a_log_that_cannot_be_written_is_told_and_goes_on_later() {
    let folder = Folder::new();
    let store = folder.open();
    let blocker = folder.0.join(LINEAGE.to_string());
    std::fs::write(&blocker, "a file where the folder should be").expect("writes");
    assert!(store.append(LINEAGE, AGENT, Time(1), &text("lost")).is_err());
    let health = store.health();
    assert_eq!(health.failed, 1);
    assert!(health.last_error.is_some_and(|error| error.starts_with("cannot write the log of 000000a1: ")));
    std::fs::remove_file(&blocker).expect("removes");
    fill(&store, 1, 2, 10);
    assert_eq!(store.health().failed, 1);
}

#[test]
fn lines_that_are_written_together_are_the_bytes_of_lines_written_apart() {
    let (apart, together) = (Folder::new(), Folder::new());
    let mut entries = all_activities();
    // Over marks of the index, and over the end of a segment in the middle of an append.
    entries.extend((0..20).map(|n| Activity::Text { text: "\"x\n".repeat(200_000 + n) }));
    let (one, all) = (apart.open(), together.open());
    for _ in 0..2 {
        for entry in &entries {
            let entry = LogEntry::Activity(entry.clone());
            one.append(LINEAGE, AGENT, Time(7000), &entry).expect("appends");
        }
        all.append_deeds(LINEAGE, AGENT, Time(7000), 0, &entries);
    }
    let (mut lines, mut both) = (RawLines::new(AGENT, Stream::Stdout), RawLines::new(AGENT, Stream::Stdout));
    for line in ["{\"a\": \"b\\n\"}", "", "tab\t\u{1}\u{1F600}"] {
        lines.push(line);
        one.append_raw(LINEAGE, &mut lines);
        both.push(line);
    }
    all.append_raw(LINEAGE, &mut both);
    assert!(apart.names(".jsonl").len() > 3, "several segments: {:?}", apart.names(".jsonl"));
    for suffix in [".jsonl", ".index"] {
        assert_eq!(apart.names(suffix), together.names(suffix));
        for name in apart.names(suffix) {
            let [one, all] =
                [&apart, &together].map(|folder| std::fs::read(folder.file(&name)).expect("reads"));
            assert!(one == all, "{name} differs");
        }
    }
}

#[test]
fn of_lines_written_together_each_that_is_lost_counts() {
    let folder = Folder::new();
    let store = folder.open();
    let blocker = folder.0.join(LINEAGE.to_string());
    std::fs::write(&blocker, "a file where the folder should be").expect("writes");
    store.append_deeds(LINEAGE, AGENT, Time(1), 1, &all_activities()[..3]);
    assert_eq!(store.health().failed, 3);
    let mut lines = RawLines::new(AGENT, Stream::Stdout);
    lines.push("a");
    lines.push("b");
    store.append_raw(LINEAGE, &mut lines);
    assert_eq!(store.health().failed, 5);
    std::fs::remove_file(&blocker).expect("removes");
    store.append_deeds(LINEAGE, AGENT, Time(1), 1, &all_activities()[..3]);
    fill(&store, 4, 5, 10);
    assert_eq!(store.health().failed, 5);
}

#[test]
fn daemon_limits_cleanup_deletes_what_is_old() {
    let folder = Folder::new();
    let store = folder.open();
    fill(&store, 1, 1000, 10_000);
    assert_eq!(folder.names(".jsonl").len(), 2);
    assert_eq!(store.cleanup(Time(1)).expect("cleans"), 0);
    let oldest = OpenOptions::new().append(true).open(folder.file("000000000001.jsonl")).expect("opens");
    oldest.set_modified(std::time::UNIX_EPOCH).expect("sets the time");
    assert_eq!(store.cleanup(Time(1000)).expect("cleans"), 1);
    assert_eq!((folder.names(".jsonl").len(), folder.names(".index").len()), (1, 1));
    let page = store.read(LINEAGE, Query { limit: Some(1), ..Query::default() }).expect("reads");
    assert!(page.entries[0].n > 800 && page.next == Some(page.entries[0].n));
    fill(&store, 1001, 1001, 10);
    assert_eq!(store.cleanup(Time(u64::MAX / 2)).expect("cleans"), 1);
    assert!(!folder.0.join(LINEAGE.to_string()).exists());
    fill(&store, 1, 1, 10);
    store.remove(LINEAGE).expect("removes");
    store.remove(LINEAGE).expect("removes what is not there");
    assert_eq!(store.read(LINEAGE, Query::default()).expect("reads"), Page::default());
}

/// After a crash of the daemon the same deeds come again, and those that stand there are left out.
#[test]
fn the_last_deed_of_a_run_is_found_behind_what_others_wrote() {
    let folder = Folder::new();
    let store = folder.open();
    assert_eq!(store.last_deed(LINEAGE, AGENT).expect("reads"), 0);
    store.append_deeds(LINEAGE, AGENT, Time(1), 1, &all_activities());
    let last = all_activities().len() as u64;
    assert_eq!(folder.open().last_deed(LINEAGE, AGENT).expect("reads"), last);
    for _ in 0..3000 {
        store.append(LINEAGE, AGENT, Time(2), &LogEntry::life("x".repeat(100))).expect("appends");
    }
    assert_eq!(folder.open().last_deed(LINEAGE, AGENT).expect("reads"), last, "marks lie in between");
    assert_eq!(folder.open().last_deed(LINEAGE, AgentId(99)).expect("reads"), 0, "another life");
    let page = store.read(LINEAGE, Query { limit: Some(1), ..Query::default() }).expect("reads");
    assert!(!serde_json::to_string(&page.entries[0]).expect("encodes").contains("deed"));
}

#[test]
fn what_was_printed_behind_a_place_is_taken_back() {
    let folder = Folder::new();
    let store = folder.open();
    let print = |store: &LogStore, line: &str| {
        let mut lines = RawLines::new(AGENT, Stream::Stdout);
        lines.push(line);
        store.append_raw(LINEAGE, &mut lines);
    };
    let printed = || std::fs::read_to_string(folder.file("raw-000001.jsonl")).expect("reads");
    print(&store, "one");
    let place = store.raw_place(LINEAGE).expect("reads");
    let before = printed();
    print(&store, "two");
    let long = "x".repeat(5 << 20);
    print(&store, &long);
    print(&store, &long);
    assert!(folder.names(".jsonl").iter().any(|name| name == "raw-000002.jsonl"));
    store.rewind_raw(LINEAGE, place).expect("takes back");
    assert_eq!(printed(), before);
    assert!(!folder.names(".jsonl").iter().any(|name| name == "raw-000002.jsonl"));
    print(&store, "two again");
    assert_eq!(printed().lines().count(), 2);
}

/// The daemon was killed in between: the next one hears of the same start and the same end again.
#[test]
fn what_a_life_was_started_with_and_how_it_ended_is_told_once() {
    let folder = Folder::new();
    let store = folder.open();
    let (other, end) = (AgentId(0xb3), LogEntry::life("completed: finished"));
    for _ in 0..2 {
        store.append_prompt(LINEAGE, AGENT, Time(1), "do it").expect("appends");
    }
    fill_with(&store, "said");
    assert_eq!(store.append(LINEAGE, AGENT, Time(3), &end).expect("appends"), 3);
    store.append_prompt(LINEAGE, other, Time(4), "do it").expect("appends");
    let store = folder.open();
    assert_eq!(store.append(LINEAGE, AGENT, Time(5), &end).expect("appends"), 4, "it is there");
    store.append_prompt(LINEAGE, AGENT, Time(6), "do it").expect("appends");
    assert_eq!(store.append(LINEAGE, other, Time(7), &end).expect("appends"), 5, "another's end");
    fill_with(&store, "resumed");
    assert_eq!(store.append(LINEAGE, AGENT, Time(9), &end).expect("appends"), 7, "it has done more since");
}

fn fill_with(store: &LogStore, said: &str) {
    store.append(LINEAGE, AGENT, Time(2), &text(said)).expect("appends");
}
