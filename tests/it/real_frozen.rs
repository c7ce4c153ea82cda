//! The real agent programs, which stand still in the middle of a call of their model while memory is short:
//! the endpoint says the rest meanwhile, or gives up the line. `SVC_FROZEN_SECONDS=180` freezes for longer.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A turn takes some seconds on an idle machine, and it stands still for some in between.
const LIMIT: Duration = Duration::from_secs(120);
/// It stands still for so long in the suite.
const FROZEN_SECONDS: u64 = 4;
/// More than any machine has: memory is short.
const NO_ROOM: u64 = 1 << 24;
/// So much of the answer arrives before it stands still: its head, and the first of its pieces.
const FIRST_BYTES: usize = 600;
/// What the endpoint tells of the two turns.
const TOKENS: u64 = 1200 + 34 + 2100 + 21;
const ANSWER: &str = "This is the answer to the second message.";
/// What stands in the request of the second turn alone.
const MARK: &[u8] = b"REAL-SECOND";

/// What becomes of the answer that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nobody has asked for it yet.
    Awaited,
    Held,
    /// The rest is said.
    Said,
    /// The line is given up.
    Cut,
}

/// A line to the endpoint on which the first answer with the mark is held behind its beginning.
struct Line {
    url: String,
    fate: Arc<(Mutex<Fate>, Condvar)>,
}

impl Line {
    fn start(endpoint: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let endpoint = endpoint.trim_start_matches("http://").to_owned();
        let fate = Arc::new((Mutex::new(Fate::Awaited), Condvar::new()));
        let given = Arc::clone(&fate);
        // The threads end with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&endpoint) else { continue };
                let is_marked = Arc::new(Mutex::new(false));
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let marks = Arc::clone(&is_marked);
                thread::spawn(move || asks(from, to, &marks));
                let fate = Arc::clone(&given);
                thread::spawn(move || answers(server, client, &is_marked, &fate));
            }
        });
        Self { url, fate }
    }

    fn is_held(&self) -> bool {
        *self.fate.0.lock().unwrap() == Fate::Held
    }

    fn ends(&self, fate: Fate) {
        *self.fate.0.lock().unwrap() = fate;
        self.fate.1.notify_all();
    }
}

fn asks(mut from: TcpStream, mut to: TcpStream, is_marked: &Mutex<bool>) {
    let (mut buffer, mut seen) = (vec![0; 64 << 10], Vec::new());
    while let Ok(count) = from.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..count]);
        *is_marked.lock().unwrap() |= seen.windows(MARK.len()).any(|part| part == MARK);
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn answers(
    mut from: TcpStream,
    mut to: TcpStream,
    is_marked: &Mutex<bool>,
    (fate, changed): &(Mutex<Fate>, Condvar),
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut buffer) {
        let mut rest = &buffer[..count];
        let mut now = fate.lock().unwrap();
        if *now == Fate::Awaited && *is_marked.lock().unwrap() && count > 0 {
            let (first, behind) = rest.split_at(FIRST_BYTES.min(count));
            let _ = to.write_all(first);
            rest = behind;
            *now = Fate::Held;
            now = changed.wait_while(now, |now| *now == Fate::Held).unwrap();
            if *now == Fate::Cut {
                let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
                return;
            }
        }
        drop(now);
        if count == 0 || to.write_all(rest).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A daemon with the program, and one older agent at work: that goes on, so that another may stand still.
/// Fields are dropped in this order.
struct Stage {
    daemon: Daemon,
    line: Line,
    _aimock: Aimock,
    _home: Home,
}

impl Stage {
    fn start(cli: Cli) -> Self {
        let folder = Arc::new(Folder::new("frozen"));
        let hold = "until [ -e go ]; do sleep 0.1; done";
        let steps = json!({"steps": [{"run": {"command": hold, "timeoutMs": 600_000}}, {"answer": "done"}]});
        folder.write(".svc/rehearsals/hold.json", &steps.to_string());
        let aimock = Aimock::start(folder.path());
        let line = Line::start(&aimock.url);
        let home = Home::new(&line.url);
        let variables = home.variables(cli, &line.url);
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let daemon = Daemon::start_in(folder, &variables);
        wait_within(LIMIT, "the provider to be detected", || {
            let providers = daemon.get("/api/providers");
            let mine = providers.as_array()?.iter().find(|one| one["id"] == cli.provider())?;
            (mine["installed"] == true).then_some(())
        });
        let stage = Self { daemon, line, _aimock: aimock, _home: home };
        stage.set(&json!({"admit": "off"}));
        let body =
            json!({"role": "dev", "name": "older", "provider": "script", "model": "hold", "prompt": "go"});
        stage.daemon.post("/api/agents", &body);
        let body = json!({"role": "builder", "name": "it", "provider": cli.provider(), "model": cli.model(),
            "permission": "auto", "prompt": "Please do REAL-PLAIN now."});
        stage.daemon.post("/api/agents", &body);
        stage.until("the first turn", |record| record["state"] == "completed");
        stage
    }

    fn set(&self, governor: &Value) {
        assert_eq!(self.daemon.send("PATCH", "/api/config", &json!({"governor": governor})).0, 200);
    }

    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait_within(LIMIT, what, || {
            let record = self.daemon.get("/api/agents/it");
            is_so(&record).then_some(record)
        })
    }

    /// It stands still for so long; in the middle of that comes the answer's fate.
    fn stands_still(&self, time: Duration, fate: Fate) {
        self.set(&json!({"reserveMegabytes": NO_ROOM}));
        self.until("it to be frozen", |record| record["statusCode"] == "frozen");
        let began = Instant::now();
        for (part, fate) in [(time / 2, Some(fate)), (time, None)] {
            wait_within(LIMIT + time, "the time", || (began.elapsed() >= part).then_some(()));
            if let Some(fate) = fate {
                self.line.ends(fate);
            }
        }
        let record = self.daemon.get("/api/agents/it");
        assert_eq!((&record["statusCode"], &record["turns"]), (&json!("frozen"), &json!(1)), "{record:#}");
        self.set(&json!({"reserveMegabytes": null}));
    }
}

/// The second turn of two stands still in the middle of its call, and is done once it goes on, with every
/// token counted once.
fn goes_on_with_its_turn(cli: Cli, fate: Fate) {
    if !cli.is_here() {
        return;
    }
    let seconds =
        std::env::var("SVC_FROZEN_SECONDS").map_or(FROZEN_SECONDS, |seconds| seconds.parse().unwrap());
    let stage = Stage::start(cli);
    stage.daemon.post("/api/agents/it/resume", &json!({"message": "Please do REAL-SECOND now."}));
    wait_within(LIMIT, "the call of its model", || stage.line.is_held().then_some(()));
    stage.stands_still(Duration::from_secs(seconds), fate);
    let thawed = Instant::now();
    let done = stage.until("the second turn", |record| record["status"] != "active");
    let log = stage.daemon.get("/api/agents/it/log?tail=1000");
    let told = format!("{done:#}\n{log:#}");
    let said = |kind: &str, words: &str| {
        let entries = log["entries"].as_array().unwrap().iter();
        entries.filter(|entry| entry["type"] == kind && entry.to_string().contains(words)).count()
    };
    assert_eq!((&done["state"], &done["tokensUsed"]), (&json!("completed"), &json!(TOKENS)), "{told}");
    assert_eq!((said("text", ANSWER), said("user", "REAL-SECOND")), (1, 1), "{told}");
    assert_eq!((said("life", "frozen: memory"), said("life", "frozen no more")), (1, 1), "{told}");
    let later = thawed.elapsed().as_secs_f32();
    eprintln!("{} {fate:?}: {seconds} s frozen, done {later:.1} s later", cli.provider());
    fs::write(stage.daemon.project.join("go"), "").unwrap();
    stage.daemon.wait_state("older", &["completed"]);
}

#[test]
fn codex_goes_on_with_an_answer_that_came_while_it_stood_still() {
    goes_on_with_its_turn(Cli::Codex, Fate::Said);
}

#[test]
fn codex_asks_again_when_the_line_was_cut_while_it_stood_still() {
    goes_on_with_its_turn(Cli::Codex, Fate::Cut);
}

#[test]
fn claude_goes_on_with_an_answer_that_came_while_it_stood_still() {
    goes_on_with_its_turn(Cli::Claude, Fate::Said);
}

#[test]
fn claude_asks_again_when_the_line_was_cut_while_it_stood_still() {
    goes_on_with_its_turn(Cli::Claude, Fate::Cut);
}

#[test]
fn opencode_goes_on_with_an_answer_that_came_while_it_stood_still() {
    goes_on_with_its_turn(Cli::OpenCode, Fate::Said);
}

#[test]
fn opencode_asks_again_when_the_line_was_cut_while_it_stood_still() {
    goes_on_with_its_turn(Cli::OpenCode, Fate::Cut);
}
