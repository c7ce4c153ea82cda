//! `svc top`: the agents and what waits for a decision, live in the terminal.

mod fleet;
mod frame;
mod keys;
mod view;
mod watch;

use super::commands::{Command, Group, switch};
use super::session::{Failure, Outcome, Session};
use super::target::{is_live, text};
use fleet::Fleet;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use svc_sys::terminal::{self, Screen, Wake};
use view::{View, Wish};
use watch::Daemon;

/// The wait for a key, a signal or news ends after this at the latest.
const WAIT: Duration = Duration::from_secs(60);
/// A terminal that does not tell its size has this one.
const USUAL_SIZE: (usize, usize) = (80, 24);

/// The command of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "top",
    group: Group::Agents,
    summary: "watch all agents live, and decide what waits for you",
    usage: "top [--all] [--once]",
    options: &[
        switch("all", "the agents of all your projects ('svc ps'), by the name of the project before theirs"),
        switch("once", "print one look and return; also when the output is no terminal"),
    ],
    details: "Keys: j, k and arrows move; enter opens an agent's log or an approval's whole request; a approves\n\
              and r rejects the chosen approval. A question is answered: after a type the number of what it offers,\n\
              or words, and enter; r leaves it to the agent. K ends the chosen agent after a y; q leaves.\n\
              limits is what the providers' windows have left ('svc quota'), capacity what the machine has ('svc\n\
              capacity'). Approvals stand on top, oldest first. TOK/S is of the last ten seconds. --json implies --once.",
    run: top,
    ..Command::PLAIN
}];

/// `svc top`.
pub fn top(session: &Session) -> Outcome {
    let out = &session.out;
    let is_live_view = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let (fleet, place) = if session.args.flag("all") {
        (Fleet::all(), "all projects".to_owned())
    } else {
        let client = session.client()?;
        // The live view has a screen of its own.
        let client = if is_live_view { client.doing("") } else { client };
        let project = client.address().project.as_ref().map(|dir| dir.display().to_string());
        let place = project.unwrap_or_else(|| client.address().url.clone());
        (Fleet::one(client), place)
    };
    let mut view = View::new(place);
    if session.args.flag("once") || out.json || out.quiet || !is_live_view {
        view.saw(fleet.look()?);
        return print(session, &view);
    }
    // An error that is known at once is told on the usual screen.
    view.saw(fleet.look()?);
    let screen = Screen::take()
        .map_err(|error| Failure::failed(format!("the terminal cannot be taken: {error}; try --once")))?;
    let waker = screen.waker()?;
    let daemon = Daemon::watch(fleet, waker);
    run(&screen, &mut view, &daemon, out.colour)
}

fn print(session: &Session, view: &View) -> Outcome {
    let (out, look) = (&session.out, &view.look);
    if out.json {
        let live = look.agents.iter().filter(|agent| is_live(agent)).count();
        let tokens: u64 = look.agents.iter().filter_map(|agent| agent["tokensUsed"].as_u64()).sum();
        let cost: f64 = look.agents.iter().filter_map(|agent| agent["costUsd"].as_f64()).sum();
        return out.document(&json!({
            "agents": look.agents,
            "approvals": look.approvals,
            "quota": look.quota,
            "capacity": look.capacity,
            "totals": {"agents": look.agents.len(), "live": live, "tokensUsed": tokens, "costUsd": cost},
        }));
    }
    if out.quiet {
        let ids = |records: &[serde_json::Value]| -> Vec<String> {
            records.iter().map(|record| text(record, "id").to_owned()).collect()
        };
        return out.lines(&[ids(&look.approvals), ids(&look.agents)].concat());
    }
    let columns = out.width.unwrap_or(usize::MAX);
    out.line(&super::render::cut(&frame::headline(view), columns))?;
    for note in frame::notes(view) {
        out.line(&super::render::cut(&note, columns))?;
    }
    if look.agents.is_empty() {
        return out.line("no agents; start one with 'svc spawn ROLE PROMPT'");
    }
    if !look.approvals.is_empty() {
        let n = look.approvals.len();
        out.line(&format!("{n} to decide: see 'svc approvals', then 'svc approve ID' or 'svc reject ID'"))?;
    }
    out.lines(&frame::table(view, columns).lines(out.width, out.colour))
}

fn run(screen: &Screen, view: &mut View, daemon: &Daemon, colour: bool) -> Outcome {
    let mut shown: Vec<String> = Vec::new();
    let mut size = (0, 0);
    loop {
        let columns_and_lines = terminal::stdout_size().filter(|(_, lines)| *lines > 0).unwrap_or(USUAL_SIZE);
        if size != columns_and_lines {
            size = columns_and_lines;
            shown.clear();
        }
        let frame = frame::frame(view, size, colour);
        draw(&shown, &frame)?;
        shown = frame;
        match screen.wait(WAIT)? {
            Wake::End => return Ok(()),
            Wake::Look => {}
            Wake::Keys(bytes) => {
                for wish in keys::read(&bytes).into_iter().filter_map(|key| view.key(key)) {
                    if wish == Wish::Quit {
                        return Ok(());
                    }
                    daemon.wish(wish);
                }
            }
        }
        if let Some(look) = daemon.news() {
            view.saw(look);
        }
        if let Some(said) = daemon.said() {
            view.said = said;
        }
    }
}

/// Writes the lines that differ, in one go; nothing when none does.
fn draw(before: &[String], frame: &[String]) -> Outcome {
    let mut text = String::new();
    if before.is_empty() {
        text.push_str("\x1b[2J");
    }
    for (at, line) in frame.iter().enumerate() {
        if before.get(at) != Some(line) {
            let _ = write!(text, "\x1b[{};1H{line}\x1b[0m\x1b[K", at + 1);
        }
    }
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests;
