//! The real programs' own screens, with a person at them who types and looks.

use crate::attach::{Person, given_back, transcript};
use crate::real_clis::Stage;
use crate::support::aimock::Cli;
use crate::support::processes::of_project;
use crate::support::wait::wait_within;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Rounds in the suite; `SVC_ATTACH_ROUNDS` asks for more.
const ROUNDS: u64 = 2;
/// A screen takes 6 s on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);
/// After so long without an answer the key was not heard as one.
const PRESS_AGAIN: Duration = Duration::from_secs(2);
/// Between two looks at who has the session.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The endpoint's figures.
const FIRST_TOKENS: u64 = 1200 + 34;
const TURN_TOKENS: u64 = 2100 + 21;
const ANSWER: &str = "This is the answer to the second message.";

/// Rounds of a person at the screen and an agent by itself, and how many had the session at most.
fn rounds(cli: Cli, ready: impl Fn(&mut Person), turns: impl Fn(&Stage, &str) -> usize) {
    let Some(stage) = Stage::with_endpoint(cli) else { return };
    let count = std::env::var("SVC_ATTACH_ROUNDS").map_or(ROUNDS, |count| count.parse().unwrap());
    let most = AtomicUsize::new(0);
    let (over, is_over) = channel::<()>();
    let (all, project) = (&most, &stage.daemon.project);
    thread::scope(|scope| {
        scope.spawn(move || {
            while is_over.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                all.fetch_max(writers(project), Ordering::Relaxed);
            }
        });
        // A failure drops it, too.
        let _over = over;
        let id = stage.spawn("REAL-PLAIN", "auto");
        let session = stage.completed(&id)["sessionId"].clone();
        let mut wanted = vec!["This is the plain answer.".to_owned()];
        for round in 1..=count {
            let begun = Instant::now();
            at_screen(&stage, &id, &ready, &turns);
            let record = given_back(&stage.daemon, &id);
            assert_eq!(record["state"], "completed", "{record:#}");
            assert_eq!(record["sessionId"], session);
            assert_eq!(record["tokensUsed"], FIRST_TOKENS + round * TURN_TOKENS, "{record:#}");
            wanted.extend(["> Please do REAL-SECOND now.".to_owned(), ANSWER.to_owned()]);
            println!(
                "round {round}: {} tokens, {:.1} s",
                record["tokensUsed"],
                begun.elapsed().as_secs_f32()
            );
        }
        let said = transcript(&stage.daemon, &id);
        let (first, rest) = said.split_first().unwrap();
        assert!(first.trim_end().ends_with("Please do REAL-PLAIN now."), "{first}");
        assert_eq!(rest, wanted);
    });
    assert_eq!(most.into_inner(), 1, "programs that had the session at once");
}

/// A person comes, has one turn, and leaves.
fn at_screen(stage: &Stage, id: &str, ready: &impl Fn(&mut Person), turns: &impl Fn(&Stage, &str) -> usize) {
    let begun = Instant::now();
    let mut person = Person::come(&stage.daemon, id, false);
    ready(&mut person);
    let shown = begun.elapsed().as_secs_f32();
    let before = turns(stage, id);
    person.types("Please do REAL-SECOND now.");
    person.until("what was typed", |person| person.words().contains("REAL-SECOND"));
    // What comes fast behind a text passes for a part of it; on an empty line the key does nothing.
    let mut pressed: Option<Instant> = None;
    wait_within(LIMIT, "the turn's end", || {
        if pressed.is_none_or(|then| then.elapsed() > PRESS_AGAIN) {
            person.types("\r");
            pressed = Some(Instant::now());
        }
        person.looks();
        (turns(stage, id) > before).then_some(())
    });
    let answered = begun.elapsed().as_secs_f32();
    person.leaves();
    println!("shown {shown:.1}, answered {answered:.1}, left {:.1} s", begun.elapsed().as_secs_f32());
}

/// How many programs have the session: those of the vendor that no other of them has started. One that was
/// seen first and is still there after all were seen was there with the others.
fn writers(project: &Path) -> usize {
    let is_one = |pid: u32| {
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // The daemon asks what is installed, and who is logged in.
        let is_asked = [&b"--version\0"[..], b"login\0status\0"].iter().any(|end| line.ends_with(end));
        program.file_name().is_some_and(|name| name == "codex" || name == "opencode.exe") && !is_asked
    };
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    let is_own = |pid: &u32| is_one(*pid) && parent(*pid).is_some_and(|parent| !is_one(parent));
    let seen: Vec<u32> = of_project(project).into_iter().filter(is_own).collect();
    seen.iter().filter(|pid| is_own(pid)).count()
}

#[test]
fn codex_goes_on_at_its_screen_and_back() {
    let ready =
        |person: &mut Person| person.until("the session", |person| person.words().contains("Workedfor"));
    // Who leaves before its own record has the end has left a turn: then the agent goes on with it.
    let turns = |stage: &Stage, _: &str| {
        let records = glob::glob(&format!("{}/**/rollout-*.jsonl", stage.home().display())).unwrap();
        let texts = records.map(|path| fs::read_to_string(path.unwrap()).unwrap());
        texts.map(|text| text.matches("\"task_complete\"").count()).sum()
    };
    rounds(Cli::Codex, ready, turns);
}

/// How many steps its database has; the program itself takes seconds to tell that.
const STEPS: &str = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute(\
    \"select count(*) from part where json_extract(data, '$.type') = 'step-finish'\").fetchone()[0])";

#[test]
fn opencode_goes_on_at_its_screen_and_back() {
    // The first answer, or of later rounds the last.
    let shows =
        |person: &Person| ["plainanswer", "secondmessage"].iter().any(|text| person.words().contains(text));
    let ready = |person: &mut Person| person.until("the session", shows);
    let turns = |stage: &Stage, _: &str| {
        let database = stage.home().join(".local/share/opencode/opencode.db");
        let output = Command::new("python3").args(["-c", STEPS]).arg(database).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0)
    };
    rounds(Cli::OpenCode, ready, turns);
}
