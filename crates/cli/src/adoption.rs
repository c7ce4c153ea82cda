//! `svc sessions` and `svc adopt`.

use super::client::encode;
use super::commands::{Command, Group, value};
use super::render::{Table, age_of, clean, count, one_line};
use super::session::{Outcome, Session, now};
use super::target::text;
use serde_json::{Value, json};

/// Characters of a session's first words.
const WORDS_CHARS: usize = 60;

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "sessions",
        group: Group::Look,
        summary: "list the sessions that you had in this project without svc",
        usage: "sessions [--provider ID]",
        options: &[value("provider", "ID", "only of this one")],
        details: "Read from the programs' own records of Claude Code, Codex, Gemini CLI and opencode, the usual homes and\n\
                  those of accounts: the newest fifty of each. 'svc adopt SESSION' makes one an agent.",
        run: sessions,
        ..Command::PLAIN
    },
    Command {
        name: "adopt",
        group: Group::Agents,
        summary: "make a session of yours an agent, with its history and its tokens",
        usage: "adopt SESSION [--name NAME] [--role ROLE] [--scope GLOB].. [--permission auto|full]",
        words: (1, 1),
        options: &[
            value("name", "NAME", "unique (ROLE-1)"),
            value("role", "ROLE", "what it is (adopted)"),
            value("scope", "GLOB", "files it owns; may be repeated"),
            value("permission", "P", "auto or full (auto)"),
        ],
        details: "Leave the program first: a session has one writer. The agent waits, without a process, and goes on in\n\
                  the session with what it is told next ('svc instruct'), or at its own screen ('svc attach'). SESSION is\n\
                  an id of 'svc sessions'.",
        run: adopt,
        ..Command::PLAIN
    },
];

fn sessions(session: &Session) -> Outcome {
    let out = &session.out;
    let only =
        session.args.value("provider").map_or_else(String::new, |id| format!("?provider={}", encode(id)));
    let answer = session.client()?.get(&format!("/api/sessions{only}"))?;
    let Some(sessions) = out.rows(&answer, &answer["sessions"], "id")? else { return Ok(()) };
    let mut table =
        Table::new(&["SESSION", "PROVIDER", "CHANGED", "TURNS", "TOKENS", "AGENT", "FIRST WORDS"])
            .numeric(&[3, 4]);
    for one in sessions {
        let number = |key: &str| one[key].as_u64().map_or_else(|| "-".to_owned(), count);
        let account = one["account"].as_str().map_or_else(String::new, |name| format!("/{}", clean(name)));
        let agent = match (one["agentName"].as_str(), one["pid"].as_u64()) {
            (Some(name), _) => clean(name),
            (None, Some(pid)) => format!("(open in {pid})"),
            (None, None) => "-".to_owned(),
        };
        table.row(&[
            clean(text(one, "id")),
            format!("{}{account}", clean(text(one, "provider"))),
            one["changed"].as_str().map_or_else(|| "-".to_owned(), |at| age_of(at, now())),
            number("turns"),
            number("tokens"),
            agent,
            one_line(text(one, "words")).chars().take(WORDS_CHARS).collect(),
        ]);
    }
    let mut lines = table.lines(out.width, out.colour);
    if sessions.is_empty() {
        lines = vec!["no sessions of yours in this project".to_owned()];
    }
    lines.extend(answer["notes"].as_array().into_iter().flatten().filter_map(Value::as_str).map(one_line));
    out.lines(&lines)
}

fn adopt(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let client = session.client()?;
    let mut body = Value::Object(args.given(&["name", "role", "permission"]));
    let scope = args.values("scope");
    if !scope.is_empty() {
        body["scope"] = json!(scope);
    }
    let agent = client.post(&format!("/api/sessions/{}/adopt", encode(&args.words[0])), &body)?;
    let name = clean(text(&agent, "name"));
    let turns = agent["turns"].as_u64().unwrap_or_default();
    let tokens = count(agent["tokensUsed"].as_u64().unwrap_or_default());
    let words = format!(
        "{name} has the session: {turns} turns, {tokens} tokens; it waits for your word\n\
         next: svc instruct {name} 'go on', or svc logs {name}"
    );
    out.told(&agent, &name, &words)
}
