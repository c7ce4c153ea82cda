//! `svc record`, `svc replay`: the flight recorder. What it has is read from the disk, so that it can be had
//! of a daemon that is dead.

use super::commands::{Command, Group, Words, switch, value};
use super::render::{Style, one_line};
use super::session::{Failure, Out, Outcome, Session};
use super::target::text;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of a file that is played, at most: several times the largest ring.
const MAX_FILE_BYTES: u64 = 32 << 30;
/// Exit code of a replay that parts from what was recorded.
const PARTED: u8 = 1;

/// The flight recorder.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "record",
        group: Group::Look,
        summary: "show what the flight recorder has, or make one file of it",
        usage: "record [status | export [FILE]] [--without-text]",
        words: (0, 2),
        complete: Words::OneOf(&["status", "export"]),
        options: &[switch("without-text", "export: what was said and printed becomes x, as long as it was")],
        details: "The file has what came into the daemon: prompts, messages, what agents said, names, paths. It has\n\
                  no key, token or password that svc keeps. It can be made when the daemon is dead, too.",
        run: record,
        ..Command::PLAIN
    },
    Command {
        name: "replay",
        group: Group::Look,
        summary: "play a recording: what happened, what followed, and why",
        usage: "replay FILE [--from N] [--until N|TIME]",
        words: (1, 1),
        options: &[
            value("from", "N", "tell from this event on"),
            value("until", "T", "stop after this event, or before what came later than a time"),
        ],
        details: "No daemon is needed. Hashes of the state that stand in the file are compared; where the replay\n\
                  parts from them, or another version wrote the file, that is said, and the exit code is 1.\n\
                  --json tells an event a line, and the state after the last one; --quiet only the sum.",
        run: replay,
        ..Command::PLAIN
    },
];

fn record(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["status"] => status(session),
        ["export"] => export(session, Path::new("svc-record.rec")),
        ["export", file] => export(session, Path::new(file)),
        _ => Err(Failure::usage("usage: svc record [status | export [FILE]]; see 'svc help record'")),
    }
}

fn status(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/record")?;
    if out.json {
        return out.document(&answer);
    }
    let count = |name: &str| answer[name].as_u64().unwrap_or_default();
    if let Some(trouble) = answer["trouble"].as_str() {
        return out.line(&format!("nothing is recorded: {}", one_line(trouble)));
    }
    let left_out = match count("lost") {
        0 => String::new(),
        lost => format!(", {lost} were left out, because the disk did not follow"),
    };
    out.line(&format!(
        "recording: {} events of this daemon{left_out}; {:.1} of {} MiB in {} segments\n\
         make a file of it with 'svc record export', play it with 'svc replay FILE'",
        count("events"),
        mebibytes(count("bytes")),
        count("maxBytes") >> 20,
        count("segments"),
    ))
}

#[allow(clippy::cast_precision_loss, reason = "a size for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn export(session: &Session, file: &Path) -> Outcome {
    let project = session.surroundings.project_dir().ok_or_else(|| {
        Failure::failed("there is no .svc folder here or above; name the project with --project DIR")
    })?;
    let none = |why: &str| {
        Failure::failed(format!("{} has no recording: {why}; is record.enabled true?", project.display()))
    };
    let mut bytes =
        (session.recordings.export)(&project.join(".svc")).map_err(|error| none(&error.to_string()))?;
    if session.args.flag("without-text") {
        bytes = (session.recordings.wordless)(&bytes).map_err(Failure::failed)?;
    }
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut made| made.write_all(&bytes));
    written.map_err(|error| {
        Failure::failed(format!("{}: {error}; name a file that is not there yet", file.display()))
    })?;
    session.out.note(if session.args.flag("without-text") {
        "names, paths and ids are in it; what was said and printed is not"
    } else {
        "prompts, messages and what agents said are in it: --without-text leaves them out"
    });
    session.out.line(&format!("{} ({:.1} MiB)", file.display(), mebibytes(bytes.len() as u64)))
}

fn replay(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let path = Path::new(&args.words[0]);
    let named = |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", path.display()));
    let size = fs::metadata(path).map_err(|error| named(&error))?.len();
    if size > MAX_FILE_BYTES {
        return Err(named(&"it is larger than any recording: 32 GiB are the limit"));
    }
    let file = fs::read(path).map_err(|error| named(&error))?;
    let from = match args.value("from") {
        None => 1,
        Some(text) => text
            .parse()
            .map_err(|_| Failure::usage(format!("--from must be the number of an event, it is '{text}'")))?,
    };
    let mut told = Ok(());
    let mut line = |event: &Value| {
        if !out.quiet {
            told = out.line(&if out.json { event.to_string() } else { shown(out, event) });
        }
        told.is_ok()
    };
    let sum = (session.recordings.play)(&file, from, args.value("until").unwrap_or_default(), &mut line)
        .map_err(|error| named(&error))?;
    told?;
    out.line(&if out.json { sum.to_string() } else { summed(&sum) })?;
    if sum["parts"].is_null() && sum["unread"].is_null() { Ok(()) } else { Err(Failure::Told(PARTED)) }
}

/// An event: its number and time, what it was, which agents it changed and why, and what was ordered.
fn shown(out: &Out, event: &Value) -> String {
    let mut shown = String::new();
    if let Some(note) = event["note"].as_str() {
        let _ = writeln!(shown, "-- {}", one_line(note));
    }
    let name = out.paint(Style::Bold, text(event, "event"));
    let _ = write!(shown, "{:>6}  {}  {name}", event["n"].as_u64().unwrap_or_default(), text(event, "at"));
    let detail = one_line(text(event, "detail"));
    let _ = write!(shown, "\n        {detail}");
    if event["panicked"] == true {
        shown.push_str("\n        its handling panicked: the state before it was kept");
    }
    for agent in event["agents"].as_array().into_iter().flatten() {
        let (name, status) = (one_line(text(agent, "name")), agent["status"].as_str().unwrap_or("gone"));
        let was = agent["was"].as_str().map(|was| format!("{was} -> ")).unwrap_or_default();
        let why = one_line(text(agent, "why"));
        let _ = write!(shown, "\n        {name}: {was}{}  {why}", out.status(status));
    }
    for effect in event["effects"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let _ = write!(shown, "\n        > {}", one_line(effect));
    }
    shown
}

fn summed(sum: &Value) -> String {
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let hashes = &sum["hashes"];
    let mut told = format!(
        "{} events played, the last is {} at {}; {} of {} hashes are equal\nstate {} after it",
        count(&sum["events"]),
        count(&sum["last"]),
        text(sum, "at"),
        count(&hashes["equal"]),
        count(&hashes["compared"]),
        text(sum, "hash"),
    );
    for agent in sum["state"]["agents"].as_array().into_iter().flatten() {
        let (name, status) = (one_line(text(agent, "name")), one_line(text(agent, "status")));
        let _ = write!(told, "\n  {name}  {status}  {}", one_line(text(agent, "statusReason")));
    }
    if let Some(parts) = sum["parts"].as_object() {
        let _ = write!(
            told,
            "\nIT PARTS from what was recorded: equal up to event {}, another state at event {} ({})",
            count(&parts["after"]),
            count(&parts["by"]),
            parts["at"].as_str().unwrap_or_default(),
        );
    }
    if let Some(unread) = sum["unread"].as_object() {
        let why = one_line(unread["why"].as_str().unwrap_or_default());
        let _ = write!(told, "\nNOT PLAYED after event {}: {why}", count(&unread["after"]));
    }
    let others = sum["recordedBy"].as_array().into_iter().flatten().filter(|one| **one != sum["version"]);
    let others: Vec<&str> = others.filter_map(Value::as_str).collect();
    if !others.is_empty() {
        let _ = write!(told, "\nrecorded by svc {}, played by {}", others.join(", "), text(sum, "version"));
    }
    told
}
