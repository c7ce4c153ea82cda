//! `svc rules`: what you have decided once for what comes again.

use super::approvals::whole_id;
use super::client::{Client, encode};
use super::commands::{Command, Group, Words, choice, short, switch, value};
use super::render::{Table, one_line};
use super::session::{Failure, Outcome, Session, now};
use super::target::text;
use serde_json::Value;
use std::fmt::Write as _;
use svc_base::time::Time;
use svc_base::untrusted::untrusted_line;

/// The command of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "rules",
    group: Group::Trust,
    summary: "decide once for what agents will ask again",
    usage: "rules [allow|ask|never [APPROVAL] | revoke RULE]",
    words: (0, 2),
    complete: Words::OneOf(&["list", "allow", "ask", "never", "revoke"]),
    options: &[
        switch("command", "its command in its folder, whatever else the call says"),
        choice("for", "WHOM", &["agent", "role", "project"], "whose deeds (the agent's that asks)"),
        value("agent", "NAME", "the agent, where nothing was asked for yet"),
        value("role", "NAME", "the role, with --for role"),
        value("file", "PATH", "instead of APPROVAL: writing this file, relative to the project"),
        value("run", "COMMAND", "instead of APPROVAL: running exactly this command line"),
        value("in", "FOLDER", "with --run: where (the project)"),
        value("tool", "NAME", "with --run: the program's name of its tool (Bash)"),
        value("uses", "N", "allow this often at most"),
        value("minutes", "N", "in force so long (30 days where it allows, 90 at most)"),
        value("note", "TEXT", "why, for yourself"),
        short('a', switch("all", "also those that are over")),
    ],
    details: "A rule is about exactly what was asked for: every parameter, every letter of a command. It follows an agent\n\
              over its rotations. never wins over ask, ask over allow, and what no rule fits you are asked. What waits\n\
              is decided along with the rule that is made of it. Some things no rule can allow; 'svc rules' on\n\
              them says why. Each use stands in 'svc audit --event rule'.",
    run: rules,
    ..Command::PLAIN
}];

fn rules(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    let client = session.client()?;
    match words.as_slice() {
        [] | ["list"] => list(session, &client),
        [say @ ("allow" | "ask" | "never")] => add(session, &client, say, None),
        [say @ ("allow" | "ask" | "never"), approval] => add(session, &client, say, Some(approval)),
        ["revoke", rule] => revoke(session, &client, rule),
        ["revoke"] => Err(Failure::usage("svc rules revoke RULE: 'svc rules' lists them")),
        _ => Err(Failure::usage(format!("{:?}: use allow, ask, never, revoke or list", words.join(" ")))),
    }
}

fn list(session: &Session, client: &Client) -> Outcome {
    let out = &session.out;
    let answer = client.get("/api/rules")?;
    if out.json {
        return out.document(&answer);
    }
    let is_wanted = |rule: &&Value| session.args.flag("all") || rule["over"].is_null();
    let rules: Vec<&Value> = answer["rules"].as_array().into_iter().flatten().filter(is_wanted).collect();
    if out.quiet {
        return out.lines(&rules.iter().map(|rule| text(rule, "id").to_owned()).collect::<Vec<_>>());
    }
    let mut table = Table::new(&["ID", "SAYS", "USED", "ENDS", "WHAT"]);
    for rule in rules {
        table.row(&[
            text(rule, "id").into(),
            text(rule, "say").into(),
            used(rule),
            ends(rule),
            one_line(text(rule, "description")),
        ]);
    }
    out.table(&table, "no rules; 'svc rules allow APPROVAL' makes one of what an agent asks for")
}

/// `2 of 5`, or how often where nothing limits it.
fn used(rule: &Value) -> String {
    let used = rule["used"].as_u64().unwrap_or_default();
    rule["uses"].as_u64().map_or_else(|| used.to_string(), |uses| format!("{used} of {uses}"))
}

fn ends(rule: &Value) -> String {
    if let Some(over) = rule["over"].as_str() {
        return over.replace('_', " ");
    }
    let at = rule["expiresAt"].as_str().and_then(Time::parse);
    at.map_or_else(|| "-".into(), |at| format!("in {}", super::render::age(at.since(now()))))
}

fn add(session: &Session, client: &Client, say: &str, approval: Option<&str>) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let mut body = args.given(&["for", "agent", "role", "file", "note"]);
    body.insert("say".into(), say.into());
    if let Some(approval) = approval {
        body.insert("approval".into(), whole_id(client, approval)?.into());
    }
    if args.flag("command") {
        body.insert("match".into(), "command".into());
    }
    if let Some(command) = args.value("run") {
        body.insert("command".into(), command.into());
        body.insert("tool".into(), args.value("tool").unwrap_or("Bash").into());
        body.insert("folder".into(), args.value("in").unwrap_or_default().into());
    }
    for option in ["uses", "minutes"] {
        if let Some(number) = args.value(option) {
            let number: u64 = number.parse().map_err(|_| {
                Failure::usage(format!("--{option} takes a whole number, {number:?} is none"))
            })?;
            body.insert(option.into(), number.into());
        }
    }
    if approval.is_none() && args.value("file").is_none() && args.value("run").is_none() {
        return Err(Failure::usage("name what it is about: an approval's id, --file PATH or --run COMMAND"));
    }
    let made = client.post("/api/rules", &Value::Object(body))?;
    let id = text(&made["rule"], "id");
    let mut words = format!("{id} is in force: {}", untrusted_line(text(&made["rule"], "description")));
    let answered = made["approval"]["status"].as_str().filter(|_| approval.is_some());
    if let Some(status @ ("approved" | "rejected")) = answered {
        let _ = write!(words, "\n{status} {}", text(&made["approval"], "id"));
    }
    out.told(&made, id, &words)
}

fn revoke(session: &Session, client: &Client, given: &str) -> Outcome {
    let out = &session.out;
    let answer = client.get("/api/rules")?;
    let begins = |id: &&str| {
        id.starts_with(given) || id.strip_prefix("rul-").is_some_and(|hex| hex.starts_with(given))
    };
    let ids = answer["rules"].as_array().into_iter().flatten().map(|rule| text(rule, "id"));
    let fitting: Vec<&str> = ids.filter(begins).collect();
    let id = match fitting.as_slice() {
        [one] => *one,
        [] => given,
        several => {
            return Err(Failure::failed(format!(
                "'{given}' fits {}; give more of the id",
                several.join(", ")
            )));
        }
    };
    let rule = client.call("DELETE", &format!("/api/rules/{}", encode(id)), None)?;
    out.told(
        &rule,
        id,
        &format!("{id} is revoked; it decided {} times", rule["used"].as_u64().unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rule_says_how_often_it_was_used_and_why_it_is_over() {
        assert_eq!(used(&json!({"used": 2, "uses": 5})), "2 of 5");
        assert_eq!(used(&json!({"used": 2, "uses": null})), "2");
        assert_eq!(ends(&json!({"over": "used_up", "expiresAt": null})), "used up");
        assert_eq!(ends(&json!({"over": null, "expiresAt": null})), "-");
    }
}
