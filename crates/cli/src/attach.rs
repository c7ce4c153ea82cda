//! `svc attach`: this terminal is the agent's program's own screen.

use super::client::Client;
use super::render::{clean, one_line};
use super::session::{Failure, Outcome, Session};
use super::target::{find, is_live, path, text};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use svc_keeper::terminal::{Said, Viewer};
use svc_sys::process::Size;
use svc_sys::sockets::Poll;
use svc_sys::terminal::{Through, stdout_size};

/// Between two questions whether the screen is there.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long a screen that is said to be there may take to open.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
/// How long is waited for the agent's record once the screen is over.
const RECORD_LIMIT: Duration = Duration::from_secs(40);
/// How a terminal tells ctrl-\\: as a byte, and in the ways that programs can switch on.
const KEY: [&[u8]; 4] = [b"\x1c", b"\x1b[92;5u", b"\x1b[92;5:1u", b"\x1b[27;5;92~"];
/// That it was let go.
const KEY_UP: &[u8] = b"\x1b[92;5:3u";

/// `svc attach TARGET [--now]`.
pub fn attach(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::usage("'svc attach' needs a terminal for its input and output"));
    }
    let client = session.client()?;
    let agent = find(&client, &args.words[0])?;
    let Some(project) = client.address().project.clone() else {
        return Err(Failure::failed(
            "the screen of an agent is shown on its own machine only; run this in the project's folder",
        ));
    };
    let name = clean(text(&agent, "name"));
    let term = std::env::var("TERM").ok().filter(|term| !term.is_empty() && term != "dumb");
    let wish = json!({"now": args.flag("now"), "term": term.as_deref().unwrap_or("xterm-256color")});
    let is_over = asked_to_end()?;
    let answer = client.post(&path(&agent, "/attach"), &wish)?;
    let (id, token) = match answer["token"].as_str() {
        Some(token) => (text(&answer, "agentId").to_owned(), token.to_owned()),
        None => wait(session, &client, &agent, &wish, &is_over)?,
    };
    let mut viewer = come(&project.join(".svc/run").join(&id), &token, &is_over)?;
    out.note(&format!("{name} is yours; ctrl-\\ pressed twice gives it back"));
    let why = through(&mut viewer, &name)?;
    told(session, &client, &id, &why, &is_over)
}

/// Waits until the screen is there; the life that has it, and the token.
fn wait(
    session: &Session,
    client: &Client,
    agent: &Value,
    wish: &Value,
    is_over: &AtomicBool,
) -> Result<(String, String), Failure> {
    let mut is_told = false;
    loop {
        let record = client.get(&path(agent, ""))?;
        match record["attached"].as_str() {
            Some("here") if is_live(&record) => {
                let answer = client.post(&path(agent, "/attach"), wish)?;
                if let Some(token) = answer["token"].as_str() {
                    return Ok((text(&answer, "agentId").to_owned(), token.to_owned()));
                }
            }
            Some("wanted") if !is_told => {
                is_told = true;
                let hint = if wish["now"] == true { "" } else { "; --now takes it at once" };
                session.out.note(&format!(
                    "{}: {}; its screen comes when its turn ends{hint}, ctrl-c withdraws",
                    clean(text(&record, "name")),
                    one_line(text(&record, "statusReason"))
                ));
            }
            Some(_) => {}
            None => {
                let reason = one_line(text(&record, "statusReason"));
                return Err(Failure::failed(format!("the screen does not come: {reason}")));
            }
        }
        if is_over.load(Ordering::SeqCst) {
            client.call("DELETE", &path(agent, "/attach"), None)?;
            return Err(Failure::Say { code: 130, message: "the wish is withdrawn".into() });
        }
        sleep(ASK_AGAIN);
    }
}

/// A flag that ctrl-c raises, and a terminal that is closed: once heeded they end nothing by themselves.
fn asked_to_end() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(|error| Failure::failed(format!("ctrl-c cannot be waited for: {error}")))?;
    }
    Ok(flag)
}

fn size() -> Size {
    let (columns, lines) = stdout_size().unwrap_or((80, 24));
    let short = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    Size { columns: short(columns), lines: short(lines) }
}

fn come(run_dir: &Path, token: &str, is_over: &AtomicBool) -> Result<Viewer, Failure> {
    let until = Instant::now() + OPEN_LIMIT;
    loop {
        match Viewer::come(run_dir, token, size()) {
            Ok(viewer) => return Ok(viewer),
            Err(error) => {
                let may_come = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused);
                if !may_come || Instant::now() >= until || is_over.load(Ordering::SeqCst) {
                    let at = run_dir.display();
                    return Err(Failure::failed(format!("the screen below {at} does not open: {error}")));
                }
            }
        }
        sleep(ASK_AGAIN / 4);
    }
}

/// Shows the screen until it is over; why it is, empty where the person wished it.
fn through(viewer: &mut Viewer, name: &str) -> Result<String, Failure> {
    let terminal = Through::take().map_err(|error| Failure::failed(format!("this terminal: {error}")))?;
    let mut stdout = io::stdout().lock();
    // What most terminals show above the screen, where programs cannot cover it.
    write!(stdout, "\x1b]2;{name} (svc attach: ctrl-\\ twice gives it back)\x07")?;
    stdout.flush()?;
    let mut keys = Keys::default();
    let lost = |error: io::Error| format!("the connection with the screen is lost: {error}");
    let mut leaves = false;
    loop {
        let mut poll = Poll::default();
        let screen = poll.add(viewer.fd(), true, viewer.has_more());
        let news = poll.add(terminal.news(), true, false);
        // While the program takes nothing, nothing more is taken from the person.
        let typed = (!viewer.has_more() && !leaves).then(|| poll.add(terminal.keys(), true, false));
        poll.wait(None)?;
        let mut done = Ok(());
        if poll.is_ready(news) {
            leaves |= terminal.is_asked_to_end();
            done = if leaves { viewer.leave() } else { viewer.resized(size()) };
        }
        if typed.is_some_and(|typed| poll.is_ready(typed)) {
            let bytes = terminal.typed();
            // A terminal that is gone is a person who is gone.
            let (pass, gives_back) = if bytes.is_empty() { (bytes, true) } else { keys.take(&bytes) };
            done = done.and_then(|()| viewer.typed(&pass));
            if gives_back {
                leaves = true;
                done = done.and_then(|()| viewer.leave());
            }
        }
        if let Err(error) = done.and_then(|()| viewer.flush()) {
            return Ok(lost(error));
        }
        if !poll.is_ready(screen) {
            continue;
        }
        match viewer.hear() {
            Ok(said) => {
                for said in said {
                    match said {
                        Said::Screen(bytes) => stdout.write_all(&bytes)?,
                        Said::Over(why) => return Ok(why),
                    }
                }
                stdout.flush()?;
            }
            Err(error) => return Ok(lost(error)),
        }
    }
}

/// Says how the agent goes on.
fn told(session: &Session, client: &Client, id: &str, why: &str, is_over: &AtomicBool) -> Outcome {
    let until = Instant::now() + RECORD_LIMIT;
    let record = loop {
        let record = client.get(&format!("/api/agents/{id}"))?;
        let is_long = Instant::now() >= until || is_over.load(Ordering::SeqCst);
        if record["attached"].is_null() || !why.is_empty() || is_long {
            break record;
        }
        sleep(ASK_AGAIN);
    };
    let (name, reason) = (clean(text(&record, "name")), one_line(text(&record, "statusReason")));
    if !why.is_empty() {
        return Err(Failure::failed(format!("{name}: {} ({reason})", clean(why))));
    }
    let tokens = record["tokensUsed"].as_u64().unwrap_or_default();
    session.out.line(&format!("{name} is given back: {reason}, {tokens} tokens so far"))
}

/// Finds the key pressed twice among what is typed.
#[derive(Default)]
struct Keys {
    /// It was pressed once, and told in this way.
    held: Vec<u8>,
}

impl Keys {
    /// What of it is for the program, and whether the agent is to be given back.
    fn take(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut pass = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some(key) = KEY.iter().find(|key| rest.starts_with(key)) {
                if !self.held.is_empty() {
                    return (pass, true);
                }
                self.held = key.to_vec();
                rest = &rest[key.len()..];
            } else if !self.held.is_empty() && rest.starts_with(KEY_UP) {
                rest = &rest[KEY_UP.len()..];
            } else {
                // Pressed once it is the program's.
                pass.append(&mut self.held);
                pass.push(rest[0]);
                rest = &rest[1..];
            }
        }
        (pass, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_pressed_twice_gives_the_agent_back_and_pressed_once_is_the_programs() {
        let mut keys = Keys::default();
        assert_eq!(keys.take(b"ab"), (b"ab".to_vec(), false));
        assert_eq!(keys.take(b"\x1c"), (Vec::new(), false));
        assert_eq!(keys.take(b"c"), (b"\x1cc".to_vec(), false));
        assert_eq!(keys.take(b"x\x1c"), (b"x".to_vec(), false));
        assert_eq!(keys.take(b"\x1cy"), (Vec::new(), true));
        for way in KEY {
            let twice = [way, KEY_UP, way].concat();
            assert_eq!(Keys::default().take(&twice), (Vec::new(), true), "{way:?}");
        }
        assert_eq!(Keys::default().take(b"\x1b[92;6u"), (b"\x1b[92;6u".to_vec(), false), "another key");
    }
}
