//! The screen of a rehearsal: a person types a line, it answers, and writes both into the session's record.

use serde_json::to_string;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use svc_providers::native::Input;
use svc_providers::script::{PROJECT_DIR_VARIABLE, SESSIONS};
use svc_providers::{Activity, Tokens, TurnEnd, Usage};

/// What a turn costs here.
const TURN: Tokens = Tokens { input: 100, output: 10, cache_read: 0, cache_creation: 0 };
/// The line that begins a turn which does not end by itself, and how long it lasts at most.
const HANG: &str = "hang";
const HANG_LIMIT: Duration = Duration::from_secs(10 * 60);
/// The line with which a person leaves.
const EXIT: &str = "exit";

/// Goes on with a session of which so much was counted, until the person says `exit` or the input ends.
///
/// Errors: the record cannot be written, or the terminal is gone.
pub fn run(session: &str, counted: Tokens) -> io::Result<()> {
    let project = env::var_os(PROJECT_DIR_VARIABLE).map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
    fs::create_dir_all(project.join(SESSIONS))?;
    let path = project.join(SESSIONS).join(format!("script-{session}.jsonl"));
    let mut record = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let mut write = |line: Result<String, serde_json::Error>| -> io::Result<()> {
        // One write a line, so that nobody reads half of one.
        record.write_all(format!("{}\n", line?).as_bytes())
    };
    let mut total = counted;
    println!("This is session {session} of a rehearsal. Type a line, 'hang' or 'exit'.");
    for line in io::stdin().lock().lines() {
        let line = line?;
        let text = match line.trim() {
            "" => continue,
            EXIT => break,
            text => text.to_owned(),
        };
        write(to_string(&Input::Say { text: text.clone() }))?;
        write(to_string(&Activity::TurnStarted))?;
        if text == HANG {
            println!("working...");
            thread::sleep(HANG_LIMIT);
        }
        let answer = format!("noted: {text}");
        total = total + TURN;
        write(to_string(&Activity::Text { text: answer.clone() }))?;
        let usage = Usage { session_total: Some(total), ..Usage::default() };
        write(to_string(&Activity::Usage(usage)))?;
        write(to_string(&Activity::TurnEnded(TurnEnd { text: answer.clone(), ..TurnEnd::default() })))?;
        println!("{answer}");
    }
    Ok(())
}
