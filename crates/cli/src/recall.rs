//! `svc recall`: asking all that is known of the project.

use super::client::encode;
use super::commands::{ANY, Command, Group, value};
use super::render::{Style, clean};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use serde_json::Value;
use std::fmt::Write as _;

/// The command of this file.
pub static COMMANDS: &[Command] = &[Command {
    name: "recall",
    group: Group::Look,
    summary: "find what agents said, did, decided and found out",
    usage: "recall WORDS.. [--agent TARGET] [--limit N]",
    words: (1, ANY),
    options: &[
        value("agent", "TARGET", "only the log of this agent"),
        value("limit", "N", "how many answers (10)"),
    ],
    details: "Asks the logs of all agents, live and ended, the handoff briefs, discoveries, decisions and rules. Words are\n\
              found by their stems, in several languages, and by some near words. 'svc logs AGENT --since N' shows what\n\
              follows record N.",
    run: recall,
    ..Command::PLAIN
}];

/// `svc recall WORDS..`.
fn recall(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let words = args.words.join(" ");
    if words.trim().is_empty() {
        return Err(Failure::usage("give the words to look for, for example: svc recall why no redis"));
    }
    let mut path = format!("/api/recall?q={}", encode(&words));
    for name in ["agent", "limit"] {
        if let Some(value) = args.value(name) {
            let _ = write!(path, "&{name}={}", encode(value));
        }
    }
    let answer = session.client()?.get(&path)?;
    if out.json {
        return out.document(&answer);
    }
    let hits = answer["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
    for hit in hits {
        out.line(&format!("{}  {}", out.paint(Style::Dim, &place(hit)), clean(text(hit, "text"))))?;
    }
    if hits.is_empty() {
        out.line("nothing is known of it; try other words")?;
    }
    match answer["notSearchedBytes"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        bytes => out.line(&format!(
            "({} MB of logs are not indexed yet and were not asked)",
            bytes.div_ceil(1_000_000)
        )),
    }
}

/// Where it stands: `backend-1 812`, `discovery backend`.
fn place(hit: &Value) -> String {
    let whose = match hit["agentName"].as_str() {
        Some(name) => clean(name),
        None => clean(text(hit, "lineageId")),
    };
    match hit["n"].as_u64() {
        Some(n) => format!("{whose} {n}"),
        None => format!("{} {whose}", text(hit, "source")).trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_place_is_an_agent_and_a_record_or_a_kind() {
        assert_eq!(place(&json!({"source": "log", "agentName": "a", "n": 8})), "a 8");
        assert_eq!(place(&json!({"source": "log", "agentName": null, "lineageId": "l-1", "n": 8})), "l-1 8");
        assert_eq!(place(&json!({"source": "rule", "agentName": null})), "rule");
    }
}
