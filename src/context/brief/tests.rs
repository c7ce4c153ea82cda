//! The handoff brief against decisions 8.

use super::*;
use crate::agents::report::LogEntry;
use crate::context::briefing;
use crate::core::Context;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::providers::Activity;
use crate::providers::TurnEnd;
use serde_json::json;

fn records(entries: Vec<LogEntry>) -> Vec<LogRecord> {
    let number = |(n, entry)| LogRecord { n: n as u64 + 1, ts: Time(1), agent_id: AgentId(1), entry };
    entries.into_iter().enumerate().map(number).collect()
}

fn facts() -> Facts {
    let files = BTreeMap::from([("src/a.rs".to_owned(), FileTouch { reads: 1, writes: 2 })]);
    Facts {
        name: "backend-1".into(),
        role: "backend".into(),
        task: "Add a login page".into(),
        reason: "manual".into(),
        files: Arc::new(files),
        scope: Arc::new(vec!["src/**".into()]),
        ..Facts::default()
    }
}

fn tool(id: &str, command: &str, error: bool) -> [LogEntry; 2] {
    let input = json!({"command": command});
    let (id, name) = (id.to_owned(), "Bash".to_owned());
    [
        LogEntry::Activity(Activity::ToolStarted { id: id.clone(), name, input, path: None, writes: false }),
        LogEntry::Activity(Activity::ToolEnded { id, error, output: "no such file".into() }),
    ]
}

#[test]
fn decisions_8_the_brief_has_task_messages_files_commands_and_failures() {
    let mut log = vec![LogEntry::user("Add a login page")];
    log.extend((1..=6).map(|n| LogEntry::user(format!("message {n}\nsecond line"))));
    log.extend(tool("1", "cargo test", true));
    log.extend(tool("2", "ls", false));
    let end = TurnEnd { is_error: true, error: "overloaded".into(), ..TurnEnd::default() };
    log.push(LogEntry::Activity(Activity::TurnEnded(end)));
    let brief = build(&facts(), &records(log.clone()));
    for part in [
        "Add a login page",
        "> message 2\n> second line",
        "> message 6",
        "src/a.rs (writes: 2)",
        "`cargo test`: failed",
        "`ls`: exit 0",
        "- `cargo test`: no such file",
        "a turn: overloaded",
        "Continue from there and deliver",
    ] {
        assert!(brief.contains(part), "{part:?} is missing in\n{brief}");
    }
    assert!(
        brief.contains("\n- message 1 second line [2]\n"),
        "what was said earlier stays while it is short"
    );
    assert!(!brief.contains("> message 1"), "only the last five messages are carried over verbatim");
    assert_eq!(brief, build(&facts(), &records(log)), "same input, same bytes");
}

#[test]
fn a_command_that_repeats_is_told_once_and_a_rare_failure_stays() {
    let mut log = vec![LogEntry::user("task")];
    log.extend(tool("f", "cargo test", true));
    for n in 0..500 {
        log.extend(tool(&n.to_string(), "ls api", false));
    }
    let brief = build(&facts(), &records(log));
    assert!(brief.contains("- `ls api`: exit 0 (500 times)"), "{brief}");
    assert_eq!(brief.matches("ls api").count(), 1, "{brief}");
    assert!(brief.contains("- `cargo test`: failed"), "{brief}");
}

#[test]
fn decisions_8_the_brief_is_bounded_and_cut_from_the_least_important_up() {
    let mut log = vec![LogEntry::user("task")];
    for n in 0..200 {
        log.extend(tool(&n.to_string(), &format!("echo {n} {}", "x".repeat(400)), n % 2 == 0));
        let text = format!("said {n} {}", "y".repeat(2000));
        log.push(LogEntry::Activity(Activity::Text { text }));
    }
    log.push(LogEntry::user(format!("last words {}", "z".repeat(1000))));
    let brief = build(&facts(), &records(log));
    assert!(brief.chars().count() <= MAX_CHARS);
    assert!(brief.contains("last words"));
}

#[test]
fn decisions_8_an_older_brief_is_never_nested() {
    let old = build(&facts(), &[]);
    let log = vec![LogEntry::user("task"), LogEntry::user(old)];
    assert_eq!(build(&facts(), &records(log)).matches(MARK).count(), 1);
}

fn todo(steps: &[&str]) -> LogEntry {
    let todos: Vec<_> = steps.iter().map(|text| json!({"content": text, "status": "pending"})).collect();
    LogEntry::Activity(Activity::ToolStarted {
        id: "todo".into(),
        name: "TodoWrite".into(),
        input: json!({"todos": todos}),
        path: None,
        writes: false,
    })
}

#[test]
fn decisions_8_the_brief_has_steps_locks_rules_chain_and_map() {
    let facts = Facts {
        locks: vec!["- npm-install (until 12:00)".into()],
        constraints: vec!["- [style] use tabs".into()],
        chain: vec!["- backend-1 (manual): task: earlier".into()],
        map: Some("src/: the server\ndocs/: the guide".into()),
        ..facts()
    };
    let edit = Activity::ToolStarted {
        id: "e".into(),
        name: "Edit".into(),
        input: json!({"new_string": "fn login() {}"}),
        path: Some("src/a.rs".into()),
        writes: true,
    };
    let log = vec![
        LogEntry::user("Add a login page"),
        todo(&["write the form", "test it"]),
        LogEntry::Activity(edit.clone()),
        LogEntry::Activity(Activity::ToolEnded { id: "e".into(), error: false, output: String::new() }),
    ];
    let built = build_with_losses(&facts, &records(log));
    for part in [
        "## Open steps\n\n- write the form\n- test it",
        "## Locks you hold\n\n- npm-install (until 12:00)",
        "- [style] use tabs",
        "- backend-1 (manual): task: earlier",
        "src/: the server\ndocs/: the guide",
        "src/a.rs:\n```text\nfn login() {}\n```",
        "You own: src/**",
    ] {
        assert!(built.text.contains(part), "{part:?} is missing in\n{}", built.text);
    }
    assert_eq!(built.losses, []);
}

#[test]
fn a_refused_write_is_told_as_a_failure_and_not_as_a_change() {
    let write = Activity::ToolStarted {
        id: "w".into(),
        name: "Write".into(),
        input: json!({"content": "hello world"}),
        path: Some("hello.txt".into()),
        writes: true,
    };
    let output = "plan mode: not now".to_owned();
    let ended = Activity::ToolEnded { id: "w".into(), error: true, output };
    let log = vec![LogEntry::user("task"), LogEntry::Activity(write), LogEntry::Activity(ended)];
    let text = build(&facts(), &records(log));
    assert!(text.contains("- Write hello.txt: plan mode: not now"), "{text}");
    assert!(!text.contains("Last changes") && !text.contains("hello world"), "{text}");
}

#[test]
fn decisions_8_exit_codes_are_told() {
    let mut log = vec![LogEntry::user("task")];
    let [start, _] = tool("1", "make", true);
    log.push(start);
    let output = "Exit code 2\nmake: *** no rule".to_owned();
    log.push(LogEntry::Activity(Activity::ToolEnded { id: "1".into(), error: true, output }));
    assert!(build(&facts(), &records(log)).contains("- `make`: exit 2"));
}

#[test]
fn the_users_words_survive_handoffs_and_resumes() {
    let waited = ["first\n\nwith a gap", "second"];
    let opening = format!(
        "{} backend-1\n\nYou are..\n\n{MARK}\n\nold\n\n{}\n\n{}",
        briefing::MARK.trim_end(),
        briefing::WAITED,
        briefing::quoted(waited.into_iter())
    );
    let resumed =
        format!("Add a login page\n{}\n\n{}", briefing::SAYS_NOW, briefing::quoted(std::iter::once("third")));
    let log = vec![
        LogEntry::user("Add a login page"),
        LogEntry::user(opening),
        LogEntry::user(resumed),
        LogEntry::user(briefing::GO_ON),
        LogEntry::user("# The user says now\n\nnot ours"),
    ];
    let text = build(&facts(), &records(log));
    for part in
        ["> first\n> \n> with a gap\n", "> second\n", "> third\n", "> # The user says now\n> \n> not ours\n"]
    {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert!(!text.contains("> Add a login page") && !text.contains(briefing::GO_ON));
}

#[test]
fn decisions_8_user_messages_are_cut_last_and_only_when_they_alone_are_too_long() {
    let mut facts = facts();
    facts.task = "t".repeat(50_000).into();
    let whole = "w".repeat(2_500);
    let mut log: Vec<_> = (0..4).map(|n| LogEntry::user(format!("{n}{whole}"))).collect();
    let built = build_with_losses(&facts, &records(log.clone()));
    for n in 0..4 {
        assert!(built.text.contains(&format!("> {n}{whole}\n")), "message {n} is whole");
    }
    assert!(built.losses.iter().any(|loss| loss.section == "Original task" && loss.cut));
    log.push(LogEntry::user("x".repeat(100_000)));
    let built = build_with_losses(&facts, &records(log));
    assert!(built.text.chars().count() <= MAX_CHARS);
    for n in 0..4 {
        assert!(built.text.contains(&format!("> {n}{whole}\n")), "the long one is cut, not {n}");
    }
    assert!(built.losses.iter().any(|loss| loss.section == "The user's last messages" && loss.cut));
}

/// Facts planted in a session by a seed: each has a word of its own.
struct Planted {
    facts: Facts,
    log: Vec<LogEntry>,
    user: Vec<String>,
    others: Vec<String>,
}

/// A command that fails, with these words somewhere in its first line of output.
fn failure(id: u64, command: &str, output: String) -> [LogEntry; 2] {
    let [started, _] = tool(&id.to_string(), command, true);
    let ended = Activity::ToolEnded { id: id.to_string(), error: true, output };
    [started, LogEntry::Activity(ended)]
}

fn plant(seed: u64) -> Planted {
    let mut dice = Context::new(Time(0), seed);
    let mut roll = |sides: u64| dice.random() % sides;
    let mut planted = Planted { facts: facts(), log: vec![], user: vec![], others: vec![] };
    let mut files = BTreeMap::new();
    planted.log.push(LogEntry::user("Add a login page"));
    for n in 0..roll(400) {
        // Now and then far longer than a line of the brief, than a page, than the whole brief.
        let longest = [120, 120, 120, 1_000, 6_000][usize::try_from(roll(5)).unwrap()];
        let long = "pad ".repeat(usize::try_from(roll(longest)).unwrap());
        let word = format!("fact-{seed}-{n}-x");
        match roll(9) {
            0 => {
                files.insert(format!("src/{word}.rs"), FileTouch { reads: 0, writes: 1 });
                planted.others.push(word);
            }
            1 => planted.facts.locks.push(format!("- {word}")),
            2 => {
                planted.user.push(format!("{word} {}\nand more", &long[..long.len().min(200)]));
                planted.log.push(LogEntry::user(planted.user.last().unwrap().clone()));
            }
            3 => {
                planted
                    .log
                    .push(LogEntry::Activity(Activity::Text { text: format!("{long} {word} {long}") }));
                planted.others.push(word);
            }
            4 => {
                planted.log.extend(failure(n, "make", format!("{long} {word}\nand more")));
                planted.others.push(word);
            }
            kind => {
                planted.log.extend(tool(&n.to_string(), &format!("{long} {word}"), kind == 5));
                planted.others.push(word);
            }
        }
        if roll(60) == 0 {
            // A rotation in between: the successor's first message is the brief so far.
            let so_far = build(&planted.facts, &records(planted.log.clone()));
            planted
                .log
                .push(LogEntry::user(format!("{so_far}\n{}\n\n> said in between\n", briefing::WAITED)));
            planted.user.push("said in between".into());
        }
    }
    // The agent's own list, which may be longer than any that a brief holds.
    let steps: Vec<String> =
        (0..roll(90)).map(|n| format!("step-{seed}-{n}-x {}", "s".repeat(150))).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    planted.log.push(todo(&steps));
    planted.others.extend(steps.iter().map(|step| step.split(' ').next().unwrap().to_owned()));
    planted.others.extend(planted.facts.locks.iter().map(|lock| lock.trim_start_matches("- ").to_owned()));
    planted.facts.files = Arc::new(files);
    planted
}

#[test]
fn issue_5_every_planted_fact_is_in_the_brief_or_in_the_loss_report() {
    for seed in 0..25 {
        let Planted { facts, log, user, others } = plant(seed);
        let built = build_with_losses(&facts, &records(log.clone()));
        assert!(built.text.chars().count() <= MAX_CHARS, "seed {seed}");
        if seed % 6 == 0 {
            assert_eq!(
                built,
                build_with_losses(&facts, &records(log)),
                "seed {seed}: same input, same bytes"
            );
        }
        assert_eq!(built.text.matches(MARK).count(), 1, "seed {seed}: a brief of a brief does not nest");
        for message in user.iter().rev().take(USER_MESSAGES) {
            let quoted = format!("> {}\n", message.replace('\n', "\n> "));
            assert!(built.text.contains(&quoted), "seed {seed}: {message:?} is not there in full");
        }
        assert_eq!(built.more_losses, 0, "seed {seed}");
        for word in &others {
            let told = built.text.contains(word) || built.losses.iter().any(|loss| loss.text.contains(word));
            assert!(told, "seed {seed}: {word} is in neither");
        }
    }
}

#[test]
fn the_first_open_step_is_kept_longest_and_the_order_stays() {
    let steps: Vec<String> = (0..60).map(|n| format!("step {n} {}", "s".repeat(600))).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let mut log: Vec<_> = (0..5).map(|n| LogEntry::user(format!("{n}{}", "w".repeat(2_500)))).collect();
    log.push(todo(&steps));
    let built = build_with_losses(&facts(), &records(log));
    let kept: Vec<&str> = built.text.lines().filter(|line| line.starts_with("- step ")).collect();
    assert!(!kept.is_empty() && kept.len() < 40, "{}", built.text);
    for (n, line) in kept.iter().enumerate() {
        assert!(line.starts_with(&format!("- step {n} ")), "{line}");
    }
    for n in 0..60 {
        let whole = format!("step {n} {}", "s".repeat(600));
        assert!(
            built.losses.iter().any(|loss| loss.text.contains(&whole)),
            "step {n} was cut and is not told"
        );
    }
}

#[test]
fn losses_are_bounded_and_the_latest_are_told() {
    let mut log = vec![LogEntry::user("task")];
    for n in 0..MAX_LOSSES + 1_000 {
        log.extend(tool(&n.to_string(), &format!("echo {n}."), false));
    }
    let built = build_with_losses(&facts(), &records(log));
    assert_eq!(built.losses.len(), MAX_LOSSES);
    assert!((900..=1_000).contains(&built.more_losses), "{}", built.more_losses);
    let last = MAX_LOSSES + 999;
    assert!(built.text.contains(&format!("`echo {last}.`")));
    assert!(built.losses.iter().any(|loss| loss.text.contains(&format!("`echo {}.`", last - 80))));
    let (big, long) = (50, "x".repeat(LOSS_CHARS));
    let texts = (0..big).map(|_| LogEntry::Activity(Activity::Text { text: long.clone() })).collect();
    let built = build_with_losses(&facts(), &records(texts));
    assert!(built.losses.iter().map(|loss| loss.text.len()).sum::<usize>() <= MAX_LOSS_BYTES);
    assert!(built.more_losses > 0 && !built.losses.is_empty());
}

#[test]
fn the_property_test_can_fail() {
    let Planted { facts, mut log, others, .. } = plant(7);
    log.truncate(1);
    let built = build_with_losses(&facts, &records(log));
    let lost =
        |word: &String| !built.text.contains(word) && !built.losses.iter().any(|l| l.text.contains(word));
    assert!(others.iter().any(lost), "what is not in the log cannot be in the brief");
}
