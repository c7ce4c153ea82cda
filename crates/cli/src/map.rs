//! `svc map`: which files a task is about.

use super::client::encode;
use super::commands::{ANY, Command, Group, value};
use super::session::{Failure, Outcome, Session};
use super::target::text;

/// The command of this file.
pub static COMMANDS: &[Command] = &[Command {
    name: "map",
    group: Group::Look,
    summary: "tell which files a task is about, and what they define",
    usage: "map TASK.. [--chars N]",
    words: (1, ANY),
    options: &[value("chars", "N", "characters of the answer (8000)")],
    details: "Made from the files as they are now: by the words of the task, names and paths in it, and who uses\n\
              whom; no model is asked. Agents get the same of their task when they start.",
    run: map,
    ..Command::PLAIN
}];

/// `svc map TASK..`.
fn map(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let task = args.words.join(" ");
    if task.trim().is_empty() {
        return Err(Failure::usage("say what is to be done, for example: svc map fix the login timeout"));
    }
    let path = format!("/api/map?task={}{}", encode(&task), args.query(&["chars"]));
    let answer = session.client()?.get(&path)?;
    if out.json {
        return out.document(&answer);
    }
    match text(&answer, "text") {
        "" => out.line("no file has to do with it; try other words"),
        text => out.line(text.trim_end()),
    }?;
    if answer["truncated"] == true {
        return out.line(
            "(the project is larger than the map: some files are known by their paths, or not at all)",
        );
    }
    Ok(())
}
