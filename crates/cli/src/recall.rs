//! `svc recall`: asking all that is known of the project. `svc search`: finding words in all logs as they
//! were typed.

use super::client::encode;
use super::commands::{ANY, Command, Group, switch, value};
use super::render::{Style, clean, one_line, parse_duration};
use super::session::{Failure, Out, Outcome, Session, now};
use super::target::text;
use serde_json::Value;
use std::fmt::Write as _;
use svc_base::time::Time;

/// The commands of this file.
pub static COMMANDS: &[Command] = &[RECALL, SEARCH];

const RECALL: Command = Command {
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
};

const SEARCH: Command = Command {
    name: "search",
    group: Group::Look,
    summary: "find words in all logs as they were typed",
    usage: "search WORDS.. [--agent TARGET | --outside [--provider ID]] [--since T] [--in tool|text] [--limit N]",
    words: (1, ANY),
    options: &[
        value("agent", "TARGET", "only the log of this agent"),
        switch("outside", "in the sessions that you had here without svc instead"),
        value("provider", "ID", "with --outside: only sessions of this one"),
        value("since", "T", "only what is younger than 30m, 2h, 7d, or after an RFC 3339 time"),
        value("in", "WHERE", "text: what was said; tool: what tools were given and have answered"),
        value("limit", "N", "how many hits (10)"),
    ],
    details: "Newest first, over the logs of all agents, live and ended. An entry has all of the words, each as a whole word in\n\
              any case; an argument with blanks among others, or words in double quotes, stand together as they are. 'svc logs\n\
              AGENT --since N' shows what follows entry N. 'svc recall' asks by meaning instead. --outside reads the\n\
              programs' own records, as 'svc sessions' does, 20 seconds at most; 'svc adopt SESSION' makes one an agent.",
    run: search,
    ..Command::PLAIN
};

/// `svc recall WORDS..`.
fn recall(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let words = args.words.join(" ");
    if words.trim().is_empty() {
        return Err(Failure::usage("give the words to look for, for example: svc recall why no redis"));
    }
    let path = format!("/api/recall?q={}{}", encode(&words), args.query(&["agent", "limit"]));
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
    left_out(out, &answer, "are not indexed yet and were not asked")
}

fn left_out(out: &Out, answer: &Value, why: &str) -> Outcome {
    match answer["notSearchedBytes"].as_u64().unwrap_or(0) {
        0 => Ok(()),
        bytes => out.line(&format!("({} MB of logs {why})", bytes.div_ceil(1_000_000))),
    }
}

/// `svc search WORDS..`.
fn search(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let is_outside = args.flag("outside");
    if is_outside && args.value("agent").is_some() {
        let text = "--agent asks the log of an agent, --outside sessions of yours; give one of them";
        return Err(Failure::usage(text));
    }
    if !is_outside && args.value("provider").is_some() {
        return Err(Failure::usage("--provider goes with --outside; --agent chooses among agents"));
    }
    let route = if is_outside { "/api/sessions/search" } else { "/api/search" };
    let options = args.query(&["agent", "provider", "in", "limit"]);
    let mut path = format!("{route}?q={}{options}", encode(&typed(&args.words)));
    if let Some(since) = args.value("since") {
        let _ = write!(path, "&since={}", encode(&moment(since, now())?));
    }
    let answer = session.client()?.get(&path)?;
    if out.json {
        return out.document(&answer);
    }
    let hits = answer["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
    for hit in hits {
        let tool = hit["tool"].as_str().map(|tool| format!(" {}", clean(tool))).unwrap_or_default();
        let whose = if is_outside { session_of(hit) } else { place(hit) };
        let head = format!("{} {whose}{tool}", text(hit, "ts").get(..16).unwrap_or_default());
        out.line(&format!("{}  {}", out.paint(Style::Dim, &head), clean(text(hit, "text"))))?;
    }
    if hits.is_empty() {
        out.line(if is_outside {
            "no entry of a session of yours in this project has all of these words"
        } else {
            "no entry has all of these words; svc recall asks by meaning"
        })?;
    } else if answer["more"] == true {
        out.line("(there are more: --limit 50, or more words)")?;
    }
    out.lines(&adoptions(hits))?;
    let notes = answer["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    out.lines(&notes.map(|note| format!("({})", one_line(note))).collect::<Vec<_>>())?;
    left_out(out, &answer, "were too much to look through; give --agent, --since or a rarer word")
}

/// Whose session a hit is of, and in which folder: `claude-code 0199f3c2-.. in docs`.
fn session_of(hit: &Value) -> String {
    let folder = Some(clean(text(hit, "folder"))).filter(|folder| !folder.is_empty());
    let folder = folder.map_or_else(String::new, |folder| format!(" in {folder}"));
    format!("{} {}{folder}", clean(text(hit, "provider")), clean(text(hit, "sessionId")))
}

/// What makes agents of the sessions that hits are of, in their order.
fn adoptions(hits: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    for id in hits.iter().map(|hit| clean(text(hit, "sessionId"))).filter(|id| !id.is_empty()) {
        let line = format!("go on there: svc adopt {id}");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// The words of a search: an argument with blanks is a phrase.
fn typed(words: &[String]) -> String {
    let is_phrase = |word: &String| words.len() > 1 && word.contains(' ') && !word.contains('"');
    let one = |word: &String| if is_phrase(word) { format!("\"{word}\"") } else { word.clone() };
    words.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// A time, or how long ago.
fn moment(since: &str, now: Time) -> Result<String, Failure> {
    let ago = parse_duration(since).map(|length| u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
    let time = ago.map(|ago| Time(now.0.saturating_sub(ago))).or_else(|| Time::parse(since));
    time.map(|time| time.to_string()).ok_or_else(|| {
        Failure::usage(format!("--since is like 30m, 2h or 2026-01-31T12:00:00Z, not '{since}'"))
    })
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
    fn an_argument_with_blanks_among_others_is_a_phrase() {
        let typed = |words: &[&str]| typed(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(typed(&["login", "expected 412"]), "login \"expected 412\"");
        assert_eq!(typed(&["login page"]), "login page", "one argument is what others type in two");
        assert_eq!(typed(&["a", "\"b c\" d"]), "a \"b c\" d");
    }

    #[test]
    fn since_is_a_time_or_how_long_ago() {
        let now = Time(1_764_000_000_000);
        assert_eq!(moment("2h", now).ok(), Some(Time(now.0 - 7_200_000).to_string()));
        assert_eq!(moment("2026-01-31T12:00:00Z", now).ok().as_deref(), Some("2026-01-31T12:00:00.000Z"));
        assert!(moment("soon", now).is_err());
    }

    #[test]
    fn a_place_is_an_agent_and_a_record_or_a_kind() {
        assert_eq!(place(&json!({"source": "log", "agentName": "a", "n": 8})), "a 8");
        assert_eq!(place(&json!({"source": "log", "agentName": null, "lineageId": "l-1", "n": 8})), "l-1 8");
        assert_eq!(place(&json!({"source": "rule", "agentName": null})), "rule");
    }
}
