//! A person at an agent's own screen, with rehearsals; the real programs' screens are in `real_clis.rs`.

use crate::callers::{spawn_running, told};
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::processes::{of_project, with_variable};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_keeper::terminal::{Said, Viewer};
use svc_sys::process::Size;
use svc_sys::sockets::Poll;

const PATIENCE: Duration = Duration::from_secs(120);
/// What the first turn of the rehearsal uses, and a turn at its screen.
const FIRST_TOKENS: u64 = 110;
const TURN_TOKENS: u64 = 110;

fn project() -> Arc<Folder> {
    let folder = Folder::new("attach");
    let usage = json!({"usage": {"input": 100, "output": 10, "cacheRead": 0, "cacheCreation": 0}});
    let on_say = json!([{"answer": "heard {{message}}"}]);
    let quick = json!({"steps": [usage, {"answer": "heard {{prompt}}"}], "onSay": on_say});
    folder.write(".svc/rehearsals/quick-turn.json", &quick.to_string());
    let wait = json!({"waitForFile": {"path": "go", "timeoutMs": 60_000}});
    let long = json!({"steps": [usage, {"say": "at work"}, wait, {"answer": "done"}], "onSay": on_say});
    folder.write(".svc/rehearsals/long-turn.json", &long.to_string());
    Arc::new(folder)
}

/// A person at the screen of an agent.
pub struct Person {
    viewer: Viewer,
    pub screen: String,
    over: Option<String>,
}

impl Person {
    /// Asks for the screen until it is there.
    pub fn come(daemon: &Daemon, agent: &str, now: bool) -> Self {
        let path = format!("/api/agents/{agent}");
        daemon.post(&format!("{path}/attach"), &json!({"now": now}));
        let mut found = None;
        wait_for("the screen", || {
            let record = daemon.get(&path);
            assert!(record["attached"].is_string(), "{record:#}");
            if record["attached"] == "here" {
                let answer = daemon.post(&format!("{path}/attach"), &json!({}));
                found = answer["token"].as_str().map(|token| (answer["agentId"].clone(), token.to_owned()));
            }
            found.is_some().then_some(())
        });
        let (id, token) = found.unwrap();
        let run_dir = daemon.project.join(".svc/run").join(id.as_str().unwrap());
        let size = Size { columns: 100, lines: 30 };
        let viewer = wait_for("its socket", || Viewer::come(&run_dir, &token, size).ok());
        Self { viewer, screen: String::new(), over: None }
    }

    /// Looks at what is there.
    pub fn looks(&mut self) {
        let mut poll = Poll::default();
        poll.add(self.viewer.fd(), true, self.viewer.has_more());
        poll.wait(Some(Duration::from_millis(100))).unwrap();
        let _ = self.viewer.flush();
        for said in self.viewer.hear().unwrap_or_else(|error| panic!("{error}: {:?}", self.screen)) {
            match said {
                Said::Screen(bytes) => self.sees(&String::from_utf8_lossy(&bytes)),
                Said::Over(why) => self.over = Some(why),
            }
        }
    }

    /// Looks on until it is so.
    pub fn until(&mut self, wanted: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < until, "{wanted}: {:?} {:?}", self.screen, self.over);
            self.looks();
        }
    }

    /// Programs ask their terminal where its cursor is and what it is, and wait for the answer.
    fn sees(&mut self, text: &str) {
        self.screen.push_str(text);
        let answers = [
            ("\x1b[6n", "\x1b[1;1R"),
            ("\x1b[c", "\x1b[?62;22c"),
            ("\x1b[?u", "\x1b[?0u"),
            ("\x1b]10;?", "\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
            ("\x1b]11;?", "\x1b]11;rgb:0000/0000/0000\x1b\\"),
        ];
        for (asked, answer) in answers {
            if text.contains(asked) {
                self.types(answer);
            }
        }
    }

    /// What was shown, without blanks and the signs that lead the cursor: programs draw in pieces.
    pub fn words(&self) -> String {
        let mut words = String::new();
        let mut rest = self.screen.chars().peekable();
        while let Some(sign) = rest.next() {
            match (sign, rest.peek()) {
                ('\x1b', Some('[')) => {
                    rest.next();
                    while rest.next().is_some_and(|sign| !('@'..='~').contains(&sign)) {}
                }
                ('\x1b', Some(']')) => {
                    while rest.next().is_some_and(|sign| sign != '\x07' && sign != '\\') {}
                }
                ('\x1b', _) => drop(rest.next()),
                _ if sign.is_whitespace() => {}
                _ => words.push(sign),
            }
        }
        words
    }

    pub fn types(&mut self, text: &str) {
        self.viewer.typed(text.as_bytes()).unwrap();
    }

    pub fn shows(&mut self, text: &str) {
        self.until(text, |person| person.screen.contains(text));
    }

    /// Says something and sees the answer of a rehearsal.
    fn says(&mut self, text: &str) {
        self.types(&format!("{text}\r"));
        self.shows(&format!("noted: {text}"));
    }

    pub fn leaves(mut self) {
        self.viewer.leave().unwrap();
        self.until("the end", |person| person.over.is_some());
        assert_eq!(self.over.as_deref(), Some(""), "{:?}", self.screen);
    }
}

/// The record once nobody is at the screen and it has ended.
pub fn given_back(daemon: &Daemon, agent: &str) -> Value {
    let mut last = Value::Null;
    let over = catch_unwind(AssertUnwindSafe(|| {
        wait_for("the agent to be given back", || {
            last = daemon.get(&format!("/api/agents/{agent}"));
            (last["attached"].is_null() && last["status"] != "active").then_some(())
        });
    }));
    if over.is_err() {
        let log = daemon.log();
        panic!("it was not given back: {last:#}\n{log}");
    }
    last
}

/// What was said in an agent's session: the person's words with `>`, the agent's own without.
pub fn transcript(daemon: &Daemon, agent: &str) -> Vec<String> {
    let log = daemon.get(&format!("/api/agents/{agent}/log?tail=5000"));
    let said = |entry: &Value| match entry["type"].as_str()? {
        "user" => Some(format!("> {}", entry["text"].as_str()?)),
        "text" => Some(entry["text"].as_str()?.to_owned()),
        _ => None,
    };
    log["entries"].as_array().unwrap().iter().filter_map(said).collect()
}

#[test]
fn a_session_goes_on_at_the_screen_and_back_and_every_word_and_token_counts_once() {
    let daemon = Daemon::start_in(project(), &[]);
    let id = daemon.spawn("quick-turn");
    daemon.wait_state(&id, &["completed"]);
    let session = daemon.get(&format!("/api/agents/{id}"))["sessionId"].clone();
    let mut wanted = vec!["heard".to_owned()];
    for round in 0..3 {
        let mut person = Person::come(&daemon, &id, false);
        let record = daemon.get(&format!("/api/agents/{id}"));
        assert_eq!((&record["attached"], &record["sessionId"]), (&json!("here"), &session), "{record:#}");
        person.says(&format!("one of {round}"));
        person.says(&format!("two of {round}"));
        // What others say waits, and is heard when the person has left.
        let told =
            daemon.post(&format!("/api/agents/{id}/instruct"), &json!({"message": format!("word {round}")}));
        assert_eq!(told["status"], "queued", "{told}");
        assert_eq!(daemon.send("POST", &format!("/api/agents/{id}/rotate"), &json!({})).0, 409);
        person.leaves();
        let record = given_back(&daemon, &id);
        assert_eq!(record["state"], "completed", "{record:#}");
        assert_eq!(record["sessionId"], session);
        // Its own turns use as much as the rehearsal's first, for each life plays it from the beginning.
        let own = (round + 2) * FIRST_TOKENS;
        assert_eq!(record["tokensUsed"], own + (round + 1) * 2 * TURN_TOKENS, "round {round}");
        for said in [format!("one of {round}"), format!("two of {round}")] {
            wanted.extend([format!("> {said}"), format!("noted: {said}")]);
        }
        wanted.extend([format!("> word {round}"), format!("heard word {round}")]);
    }
    let told = transcript(&daemon, &id);
    let told: Vec<&str> = told.iter().skip(1).map(String::as_str).collect();
    assert!(told[0].starts_with(&wanted[0]), "{told:?}");
    assert_eq!(told[1..], wanted[1..], "one continuous transcript");
}

#[test]
fn the_end_of_the_turn_is_waited_for_unless_a_person_takes_it_at_once_and_a_turn_that_was_cut_goes_on() {
    let daemon = Daemon::start_in(project(), &[]);
    let id = daemon.spawn("long-turn");
    let path = format!("/api/agents/{id}");
    wait_for("it works", || transcript(&daemon, &id).contains(&"at work".to_owned()).then_some(()));
    daemon.post(&format!("{path}/attach"), &json!({}));
    assert_eq!(daemon.get(&path)["attached"], "wanted");
    assert_eq!(daemon.get(&path)["state"], "running", "its turn goes on");
    // A wish can be withdrawn, and made again.
    assert_eq!(daemon.send("DELETE", &format!("{path}/attach"), &Value::Null).0, 200);
    assert_eq!(daemon.get(&path)["attached"], Value::Null);
    assert_eq!(daemon.send("DELETE", &format!("{path}/attach"), &Value::Null).0, 409);
    daemon.post(&format!("{path}/attach"), &json!({}));
    daemon.folder().write("go", "");
    let person = Person::come(&daemon, &id, false);
    assert!(transcript(&daemon, &id).contains(&"done".to_owned()), "its turn has ended well");
    person.leaves();
    assert_eq!(given_back(&daemon, &id)["statusCode"], "given-back");

    fs::remove_file(daemon.project.join("go")).unwrap();
    let id = daemon.spawn("long-turn");
    wait_for("it works", || transcript(&daemon, &id).contains(&"at work".to_owned()).then_some(()));
    let mut person = Person::come(&daemon, &id, true);
    assert!(!transcript(&daemon, &id).contains(&"done".to_owned()), "its turn was cut");
    person.shows("a rehearsal");
    person.leaves();
    daemon.folder().write("go", "");
    let record = given_back(&daemon, &id);
    assert_eq!(
        (record["state"].as_str(), record["statusCode"].as_str()),
        (Some("completed"), Some("finished"))
    );
    assert!(transcript(&daemon, &id).contains(&"done".to_owned()), "it went on by itself");
}

/// The daemon dies while a person is at the screen, who sees nothing of it; what is said then is told once.
#[test]
fn a_daemon_that_is_killed_comes_back_knowing_who_has_the_session() {
    let folder = project();
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let id = daemon.spawn("quick-turn");
    daemon.wait_state(&id, &["completed"]);
    let mut person = Person::come(&daemon, &id, false);
    let mut wanted = Vec::new();
    for round in 0..4 {
        person.says(&format!("before {round}"));
        if round % 2 == 0 {
            let told = |said: String| transcript(&daemon, &id).contains(&said).then_some(());
            wait_for("it is told", || told(format!("noted: before {round}")));
        }
        daemon.kill();
        person.says(&format!("between {round}"));
        daemon = Daemon::start_in(Arc::clone(&folder), &[]);
        let record = daemon.get(&format!("/api/agents/{id}"));
        assert_eq!(
            (&record["attached"], &record["status"]),
            (&json!("here"), &json!("active")),
            "{record:#}"
        );
        for when in ["before", "between"] {
            wanted.extend([format!("> {when} {round}"), format!("noted: {when} {round}")]);
        }
        let writers = programs(&daemon, &id);
        assert_eq!(writers, 1, "one program has the session");
    }
    person.leaves();
    let record = given_back(&daemon, &id);
    assert_eq!(record["tokensUsed"], FIRST_TOKENS + 8 * TURN_TOKENS);
    let told: Vec<String> = transcript(&daemon, &id).into_iter().skip(2).collect();
    assert_eq!(told, wanted);
}

/// How many programs of a rehearsal work for this agent.
fn programs(daemon: &Daemon, agent: &str) -> usize {
    let id = daemon.get(&format!("/api/agents/{agent}"))["id"].as_str().unwrap().to_owned();
    let is_one = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&&b"agent-script"[..])
    };
    with_variable(&format!("SVC_AGENT_ID={id}")).iter().filter(|pid| is_one(pid)).count()
}

#[test]
fn who_has_no_screen_or_no_session_is_told_so_and_an_agent_gets_no_screen() {
    let daemon = Daemon::start_in(project(), &[]);
    let id = daemon.spawn("quick-turn");
    daemon.wait_state(&id, &["completed"]);
    for body in [json!({"now": "yes"}), json!({"term": "a b"}), json!({"term": "x".repeat(65)})] {
        assert_eq!(daemon.send("POST", &format!("/api/agents/{id}/attach"), &body).0, 400, "{body}");
    }
    assert_eq!(daemon.send("POST", "/api/agents/nobody/attach", &json!({})).0, 404);
    let (status, body) = daemon.send("DELETE", &format!("/api/agents/{id}/attach"), &Value::Null);
    assert_eq!((status, &body["code"]), (409, &json!("not_attached")), "{body}");
    for method in ["POST", "DELETE"] {
        let path = format!("/api/agents/{id}/attach");
        let ask = format!(
            "import os, urllib.request as u\ntry:\n u.urlopen(u.Request('{}{path}', b'{{}}', \
             {{'Content-Type': 'application/json', 'Authorization': 'Bearer ' + os.environ['SVC_AGENT_TOKEN']}}, \
             method='{method}'))\nexcept u.HTTPError as e:\n open('answer', 'w').write(str(e.code))\n \
             os.rename('answer', 'told-{method}')",
            daemon.url
        );
        daemon.folder().write("ask.py", &ask);
        spawn_running(&daemon, &format!("asks-{}", method.to_lowercase()), "python3 ask.py");
        assert_eq!(told(&daemon, &format!("told-{method}")), "403", "{method}: an agent is no person");
    }
    assert_eq!(daemon.get(&format!("/api/agents/{id}"))["attached"], Value::Null);
    // A stop ends the person's life at the screen, too, and leaves nobody behind.
    let mut person = Person::come(&daemon, &id, false);
    person.says("hello");
    let (status, body) = daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null);
    assert_eq!((status, &body["status"]), (200, &json!("killed")), "{body}");
    let record = daemon.get(&format!("/api/agents/{id}"));
    assert_eq!((&record["attached"], &record["state"]), (&Value::Null, &json!("killed")));
    assert_eq!(record["tokensUsed"], FIRST_TOKENS + TURN_TOKENS, "what was used at the screen is counted");
    assert_eq!(programs(&daemon, &id), 0);
}

/// Runs a command on a terminal of its own, whose keys are the standard input. A terminal as agents get one
/// would mark it as a program of an agent.
const ON_A_TERMINAL: &str =
    "import pty, sys, os; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

/// `svc attach` on a terminal of its own.
#[test]
fn the_command_shows_the_screen_and_the_key_pressed_twice_gives_the_agent_back() {
    let daemon = Daemon::start_in(project(), &[]);
    let id = daemon.spawn("quick-turn");
    daemon.wait_state(&id, &["completed"]);
    let name = daemon.get(&format!("/api/agents/{id}"))["name"].as_str().unwrap().to_owned();
    let (mut child, mut screen) = on_a_terminal(&daemon, &name);
    let mut keys = child.stdin.take().unwrap();
    screen.until("pressed twice gives it back");
    screen.until("a rehearsal");
    keys.write_all(b"hello\r").unwrap();
    screen.until("noted: hello");
    keys.write_all(b"\x1c").unwrap();
    keys.write_all(b"\x1c").unwrap();
    let tokens = FIRST_TOKENS + TURN_TOKENS;
    screen.until(&format!("{name} is given back: the person has left its screen, {tokens} tokens"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// `svc attach` of this agent, on a terminal of its own.
fn on_a_terminal(daemon: &Daemon, name: &str) -> (Child, Screen) {
    let mut command = Command::new("python3");
    command.args(["-c", ON_A_TERMINAL, env!("CARGO_BIN_EXE_svc"), "attach", name]);
    command.current_dir(&daemon.project).env("TERM", "xterm").env_remove("SVC_AGENT_ID");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().unwrap();
    let screen = Screen { file: child.stdout.take().unwrap(), shown: String::new() };
    (child, screen)
}

/// The command of this agent that shows its screen.
fn command_of(daemon: &Daemon, name: &str) -> u32 {
    let is_it = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_here = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == daemon.project);
        is_here
            && line.ends_with(format!("svc\0attach\0{name}\0").as_bytes())
            && !line.starts_with(b"python3")
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(is_it).unwrap()
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// kill -9 leaves the screen where it is, for whoever comes next; a terminal that is closed gives it back.
#[test]
fn a_command_that_is_killed_is_followed_by_the_next_and_one_whose_terminal_is_closed_gives_back() {
    let daemon = Daemon::start_in(project(), &[]);
    let id = daemon.spawn("quick-turn");
    daemon.wait_state(&id, &["completed"]);
    let name = daemon.get(&format!("/api/agents/{id}"))["name"].as_str().unwrap().to_owned();
    let (mut first, mut screen) = on_a_terminal(&daemon, &name);
    first.stdin.as_mut().unwrap().write_all(b"one\r").unwrap();
    screen.until("noted: one");
    signal(command_of(&daemon, &name), "-KILL");
    first.wait().unwrap();
    let (mut next, mut screen) = on_a_terminal(&daemon, &name);
    next.stdin.as_mut().unwrap().write_all(b"two\r").unwrap();
    screen.until("noted: two");
    assert_eq!(programs(&daemon, &id), 1, "the same screen");
    signal(command_of(&daemon, &name), "-HUP");
    let record = given_back(&daemon, &id);
    next.wait().unwrap();
    assert_eq!(record["tokensUsed"], FIRST_TOKENS + 2 * TURN_TOKENS);
    let said: Vec<String> = transcript(&daemon, &id).into_iter().skip(2).collect();
    assert_eq!(said, ["> one", "noted: one", "> two", "noted: two"]);
}

/// What opens the screen is told to the person and the terminal alone.
#[test]
fn the_token_of_a_person_stands_in_no_file_and_in_no_environment() {
    let daemon = Daemon::start_in(project(), &[]);
    let id = daemon.spawn("quick-turn");
    daemon.wait_state(&id, &["completed"]);
    let mut person = Person::come(&daemon, &id, false);
    person.says("hello");
    let answer = daemon.post(&format!("/api/agents/{id}/attach"), &json!({}));
    let token = answer["token"].as_str().unwrap();
    assert_eq!(token.len(), 32);
    let mut folders = vec![daemon.project.join(".svc")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if let Ok(bytes) = fs::read(entry.path()) {
                files += 1;
                let found = bytes.windows(32).any(|piece| piece == token.as_bytes());
                assert!(!found, "{}", entry.path().display());
            }
        }
    }
    assert!(files > 10, "{files}");
    for pid in of_project(&daemon.project).into_iter().chain([daemon.pid()]) {
        for what in ["environ", "cmdline"] {
            let bytes = fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            assert!(!bytes.windows(32).any(|piece| piece == token.as_bytes()), "{pid} {what}");
        }
    }
    person.leaves();
    given_back(&daemon, &id);
}

/// A turn that the person leaves goes on by itself; one whose keeper was killed does not, nor one whose
/// terminal was.
#[test]
fn a_turn_that_was_left_goes_on_and_one_that_was_killed_does_not() {
    let daemon = Daemon::start_in(project(), &[]);
    let hang = |person: &mut Person| {
        person.types("hang\r");
        person.shows("working...");
    };
    let id = daemon.spawn("quick-turn");
    daemon.wait_state(&id, &["completed"]);
    let open = |id: &str| transcript(&daemon, id).contains(&"> hang".to_owned());
    let mut person = Person::come(&daemon, &id, false);
    hang(&mut person);
    wait_for("it is told", || open(&id).then_some(()));
    person.leaves();
    let record = given_back(&daemon, &id);
    assert_eq!(record["statusCode"], "finished", "{record:#}");
    for whose in ["keeper", "terminal"] {
        let id = daemon.spawn("quick-turn");
        daemon.wait_state(&id, &["completed"]);
        let mut person = Person::come(&daemon, &id, false);
        hang(&mut person);
        wait_for("it is told", || open(&id).then_some(()));
        let life = daemon.get(&format!("/api/agents/{id}"));
        let folder = daemon.project.join(".svc/run").join(life["id"].as_str().unwrap());
        let keeper: Value = serde_json::from_slice(&fs::read(folder.join("keeper.json")).unwrap()).unwrap();
        let pid = if whose == "keeper" { &keeper["pid"] } else { &life["pid"] };
        signal(pid.as_u64().unwrap().try_into().unwrap(), "-KILL");
        let record = given_back(&daemon, &id);
        let wanted = if whose == "keeper" { "keeper-gone" } else { "foreign-signal" };
        assert_eq!((&record["statusCode"], &record["id"]), (&json!(wanted), &life["id"]), "{whose}");
        wait_for("its program is gone", || (programs(&daemon, &id) == 0).then_some(()));
    }
}

struct Screen {
    file: ChildStdout,
    shown: String,
}

impl Screen {
    /// Reads on; a command that shows it not ends, and the test with it.
    fn until(&mut self, text: &str) {
        let mut chunk = [0; 4096];
        while !self.shown.contains(text) {
            let count = self.file.read(&mut chunk).unwrap();
            assert!(count > 0, "{text}: {}", self.shown);
            self.shown.push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
    }
}
