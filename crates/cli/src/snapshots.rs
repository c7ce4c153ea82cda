//! `svc snapshots`, `svc undo`, `svc redo` and `svc fork`.

use super::agents::{started, words_or_stdin};
use super::commands::{Command, Group, Words, switch, value};
use super::render::{Table, age_of, clean, one_line};
use super::session::{Failure, Outcome, Session, now};
use super::target::{find, path, text};
use serde_json::{Value, json};

/// Files named of an undo; `--json` has all.
const SHOWN_FILES: usize = 20;

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "snapshots",
        group: Group::Agents,
        summary: "list the turns of an agent that can be undone",
        usage: "snapshots TARGET",
        words: (1, 1),
        complete: Words::Agents,
        details: "Before and behind each turn its folder is kept: all files that .gitignore does not name, with their\n\
                  permissions, and links. LEFT OUT counts what is too large (32 MiB), cannot be read, or is a\n\
                  repository of its own. 'svc diff TARGET --turn N' shows what a turn has changed.",
        run: snapshots,
        ..Command::PLAIN
    },
    Command {
        name: "undo",
        group: Group::Agents,
        summary: "take back what an agent has changed in its last turn, or since one",
        usage: "undo TARGET [--turn N]",
        words: (1, 1),
        complete: Words::Agents,
        options: &[value("turn", "N", "all from this turn on; the last that changed something by default")],
        details: "Only what was the agent's is touched, and nothing at all where somebody else has changed one of these\n\
                  files since: they are named. What is there now is kept first, for 'svc redo'. Its session still\n\
                  remembers what it did; tell it.",
        run: undo,
        ..Command::PLAIN
    },
    Command {
        name: "redo",
        group: Group::Agents,
        summary: "take back the last undo of an agent",
        usage: "redo TARGET",
        words: (1, 1),
        complete: Words::Agents,
        run: redo,
        ..Command::PLAIN
    },
    Command {
        name: "fork",
        group: Group::Agents,
        summary: "start a new agent from where one was before a turn",
        usage: "fork TARGET [WORD..] [--turn N]",
        words: (1, usize::MAX),
        complete: Words::Agents,
        options: &[
            value("turn", "N", "as it was before this turn; behind its last one by default"),
            value("name", "NAME", "what the new one is called"),
            switch("fresh", "with the brief alone, without a copy of the session"),
        ],
        details: "It may do what the other one may, works in a git worktree of its own with the files as they were then,\n\
                  and begins with a brief of the log up to there and your words; '-' reads them from standard input.\n\
                  It has a copy of the session up to there, too, where its program can (Claude Code, Codex, ollama)\n\
                  and the record of the session tells where the turn began.\n\
                  The other one, its session and its folder stay as they are. 'svc diff' and 'svc merge' know the rest.",
        run: fork,
        ..Command::PLAIN
    },
];

fn snapshots(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let client = session.client()?;
    let agent = find(&client, &args.words[0])?;
    let answer = client.get(&path(&agent, "/snapshots"))?;
    let Some(turns) = out.rows(&answer, &answer["turns"], "turn")? else { return Ok(()) };
    if turns.is_empty() {
        let why = if answer["enabled"] == true { "" } else { "; snapshots.enabled is false" };
        return out.line(&format!("no turn of {} was kept{why}", clean(text(&answer, "agentName"))));
    }
    let mut table = Table::new(&["TURN", "AGE", "FILES", "LEFT OUT", "STATE"]).numeric(&[0, 2, 3]);
    for turn in turns {
        let state = match turn["missed"].as_str() {
            Some(why) => format!("no snapshot: {}", one_line(why)),
            None if turn["undone"] == true => "undone".to_owned(),
            None if turn["changed"] == true => "changed files".to_owned(),
            None => "changed nothing".to_owned(),
        };
        table.row(&[
            turn["turn"].to_string(),
            age_of(text(turn, "at"), now()),
            turn["files"].to_string(),
            turn["leftOut"].to_string(),
            state,
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

fn undo(session: &Session) -> Outcome {
    let body = match session.args.value("turn") {
        Some(turn) => json!({"turn": number_of(turn)?}),
        None => json!({}),
    };
    restore(session, "undo", &body)
}

fn fork(session: &Session) -> Outcome {
    let args = &session.args;
    let mut body = match args.value("turn") {
        Some(turn) => json!({"turn": number_of(turn)?}),
        None => json!({}),
    };
    let prompt = words_or_stdin(session, 1)?;
    for (field, value) in [("prompt", Some(prompt.as_str())), ("name", args.value("name"))] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            body[field] = json!(value);
        }
    }
    if args.flag("fresh") {
        body["fresh"] = json!(true);
    }
    let client = session.client()?;
    let agent = find(&client, &args.words[0])?;
    started(session, &client.post(&path(&agent, "/fork"), &body)?, false)
}

fn number_of(turn: &str) -> Result<u64, Failure> {
    turn.parse().map_err(|_| Failure::usage(format!("--turn is a number, not {turn:?}")))
}

fn redo(session: &Session) -> Outcome {
    restore(session, "redo", &json!({}))
}

fn restore(session: &Session, verb: &str, body: &Value) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let client = session.client()?;
    let agent = find(&client, &args.words[0])?;
    let answer = client.post(&path(&agent, &format!("/{verb}")), body)?;
    let Some(files) = out.rows(&answer, &answer["files"], "path")? else { return Ok(()) };
    let name = clean(text(&answer, "agentName"));
    let turns = match (answer["turn"].as_u64(), answer["to"].as_u64()) {
        (Some(from), Some(to)) if to > from => format!("turns {from} to {to}"),
        (from, _) => format!("turn {}", from.unwrap_or_default()),
    };
    let done = if verb == "undo" { "undone" } else { "redone" };
    let count = files.len();
    out.line(&format!("{done} {turns} of {name}: {count} file{}", if count == 1 { "" } else { "s" }))?;
    for file in files.iter().take(SHOWN_FILES) {
        out.line(&format!("  {}: {}", one_line(text(file, "path")), text(file, "is")))?;
    }
    if count > SHOWN_FILES {
        out.line(&format!("  and {} more", count - SHOWN_FILES))?;
    }
    for left in answer["left"].as_array().into_iter().flatten() {
        out.note(&format!(
            "{} was left as it is: {}",
            one_line(text(left, "path")),
            one_line(text(left, "why"))
        ));
    }
    if verb == "undo" {
        out.note(&format!("svc redo {name} takes it back"));
    }
    Ok(())
}
