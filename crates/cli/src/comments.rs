//! `svc comment` and `svc comments`.

use super::commands::{Command, Group, Words, switch, value};
use super::render::{Table, age_of, clean, one_line};
use super::session::{Failure, Outcome, Session, now};
use super::target::{find, path, text};
use serde_json::{Value, json};

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "comment",
        group: Group::Agents,
        summary: "comment on lines of a file that an agent works on",
        usage: "comment TARGET FILE:LINE[-LAST] TEXT [--removed]",
        words: (3, 3),
        complete: Words::Agents,
        options: &[switch(
            "removed",
            "the lines are those that the agent has removed, as they were numbered before",
        )],
        details: "FILE is relative to the folder of the agent. Comments gather until 'svc comments TARGET --send' gives\n\
                  them to it as one message, each with its lines.",
        run: comment,
        ..Command::PLAIN
    },
    Command {
        name: "comments",
        group: Group::Agents,
        summary: "list, send, tick or remove the comments on an agent's work",
        usage: "comments TARGET [--send [--say WORDS] | --done N | --open N | --remove N]",
        words: (1, 1),
        complete: Words::Agents,
        options: &[
            switch("send", "give the agent all open ones as one message"),
            value("say", "WORDS", "what to say before them"),
            value("done", "N", "tick comment N"),
            value("open", "N", "open comment N again"),
            value("remove", "N", "remove comment N"),
        ],
        details: "One that was sent is done by itself when its lines stand in the file no more. An agent that has ended\n\
                  goes on with what it is sent.",
        run: comments,
        ..Command::PLAIN
    },
];

/// A file with a line or a range of lines, as `src/a.rs:7-9`.
fn place(word: &str) -> Option<(&str, u64, u64)> {
    let (file, lines) = word.rsplit_once(':')?;
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (!file.is_empty() && first > 0 && last >= first).then_some((file, first, last))
}

fn comment(session: &Session) -> Outcome {
    let (out, words) = (&session.out, &session.args.words);
    let wrong = || {
        Failure::usage(format!(
            "lines are named as src/login.rs:10 or src/login.rs:10-14, not {:?}",
            words[1]
        ))
    };
    let (file, line, last) = place(&words[1]).ok_or_else(wrong)?;
    let client = session.client()?;
    let agent = find(&client, &words[0])?;
    let mut body = json!({"path": file, "line": line, "lastLine": last, "text": words[2]});
    if session.args.flag("removed") {
        body["side"] = json!("old");
    }
    let made = client.post(&path(&agent, "/comments"), &body)?;
    let name = clean(text(&agent, "name"));
    out.told(
        &made,
        &made["id"].to_string(),
        &format!("comment {} is kept; 'svc comments {name} --send' gives it to {name}", made["id"]),
    )
}

fn comments(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let client = session.client()?;
    let agent = find(&client, &args.words[0])?;
    if args.flag("send") {
        let body = args.value("say").map_or_else(|| json!({}), |words| json!({"message": words}));
        let sent = client.post(&path(&agent, "/comments/send"), &body)?;
        let count = sent["sent"].as_array().map_or(0, Vec::len);
        let name = clean(text(&sent, "agentName"));
        let left = sent["left"].as_u64().filter(|left| *left > 0);
        let left = left.map_or_else(String::new, |left| format!("; {left} did not fit, send again"));
        let s = if count == 1 { "" } else { "s" };
        return out.said(&sent, &format!("{name} was told {count} comment{s}{left}"));
    }
    for (option, done) in [("done", true), ("open", false)] {
        if let Some(number) = args.value(option) {
            let place = path(&agent, &format!("/comments/{}", number_of(number)?));
            return show(
                session,
                &client.call("PATCH", &place, Some(&json!({"done": done})))?,
                number,
                option,
            );
        }
    }
    if let Some(number) = args.value("remove") {
        let gone =
            client.call("DELETE", &path(&agent, &format!("/comments/{}", number_of(number)?)), None)?;
        return show(session, &gone, number, "removed");
    }
    list(session, &client.get(&path(&agent, "/comments"))?)
}

fn number_of(word: &str) -> Result<u64, Failure> {
    word.parse().map_err(|_| Failure::usage(format!("comments have numbers, {word:?} is none")))
}

fn show(session: &Session, answer: &Value, number: &str, what: &str) -> Outcome {
    let out = &session.out;
    out.said(answer, &format!("comment {number} is {what}"))
}

fn list(session: &Session, answer: &Value) -> Outcome {
    let out = &session.out;
    let Some(comments) = out.rows(answer, &answer["comments"], "id")? else { return Ok(()) };
    let mut table = Table::new(&["N", "STATE", "AGE", "LINES", "COMMENT"]).numeric(&[0]);
    for comment in comments {
        let (line, last) = (comment["line"].as_u64(), comment["lastLine"].as_u64());
        let lines = match (line, last) {
            (Some(line), Some(last)) if last > line => format!("{line}-{last}"),
            (line, _) => line.unwrap_or_default().to_string(),
        };
        table.row(&[
            comment["id"].to_string(),
            clean(text(comment, "state")),
            age_of(text(comment, "at"), now()),
            format!(
                "{}:{lines}{}",
                clean(text(comment, "path")),
                if comment["side"] == "old" { " (removed)" } else { "" }
            ),
            one_line(text(comment, "text")),
        ]);
    }
    out.table(&table, "no comments; 'svc comment TARGET FILE:LINE TEXT' writes one")
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn lines_are_named_behind_the_last_colon() {
        assert_eq!(place("src/a.rs:7"), Some(("src/a.rs", 7, 7)));
        assert_eq!(place("a:b.rs:7-9"), Some(("a:b.rs", 7, 9)));
        for wrong in ["src/a.rs", "src/a.rs:0", "src/a.rs:9-7", ":3", "a.rs:x", "a.rs:3-"] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }
}
