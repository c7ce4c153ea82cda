//! `svc memory`, `svc brief`, `svc journalist`, `svc review`: what the project's agents have learned and
//! done.

use super::client::encode;
use super::commands::{ANY, Command, Group, Words, choice, switch, value};
use super::render::{Table, clean};
use super::session::{Failure, Outcome, Session};
use super::target::{find, text};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The words after `svc memory`.
const MEMORY_WORDS: &[&str] = &["rules", "rule", "lift", "found", "discover", "handoffs", "profiles"];

/// The commands of this file.
pub static COMMANDS: [Command; 4] = [
    Command {
        name: "memory",
        alias: "",
        group: Group::Agents,
        summary: "read or add what all agents are told",
        usage: "memory rules | rule TEXT.. | lift HASH | found | discover TRIGGER FIX | handoffs [ROLE] | profiles",
        words: (1, ANY),
        complete: Words::OneOf(MEMORY_WORDS),
        options: &[
            value("category", "WORD", "rule: a word to sort by (general)"),
            value("role", "ROLE", "found, discover: the finder's role"),
            value("limit", "N", "found: how many (100); handoffs: how many (3)"),
        ],
        details: "rules     the rules for all agents; rule TEXT sets one, lift HASH lifts one\n\
                  found     what worked; discover TRIGGER FIX tells it to the agents that come\n\
                  handoffs  roles with a handoff chain, or the last briefs of ROLE\n\
                  profiles  what agents and roles have shown",
        run: memory,
    },
    Command {
        name: "brief",
        group: Group::Agents,
        summary: "print what a new agent of a role would be told",
        usage: "brief ROLE [TASK..] [OPTIONS]",
        words: (1, ANY),
        options: &[
            value("provider", "ID", "whose context window sets the budget"),
            value("dir", "DIR", "its working directory"),
            value("scope", "GLOB", "files it owns; may be repeated"),
        ],
        details: "The memory is chosen by the words of TASK. 'svc rotate TARGET --dry-run' shows a handoff brief.",
        run: brief,
        ..Command::PLAIN
    },
    Command {
        name: "journalist",
        group: Group::Look,
        summary: "show what the journalist writes, or have it write now",
        usage: "journalist [--cycle]",
        options: &[switch("cycle", "write SVC_PROJECT_MAP.md and SVC_DECISIONS.md now")],
        run: journalist,
        ..Command::PLAIN
    },
    Command {
        name: "review",
        alias: "",
        group: Group::Agents,
        summary: "have an agent's work or wish checked",
        usage: "review TARGET [DESCRIPTION..] [--file PATH] [--action WORD] | review --history",
        words: (0, ANY),
        complete: Words::Agents,
        options: &[
            value("file", "PATH", "the file it is about; else all it has written"),
            value("action", "WORD", "what it wants to do, for example delete"),
            switch("history", "list past reviews"),
            choice("only", "VERDICT", &["approved", "rejected"], "with --history: only these"),
        ],
        details: "Exit code 1 when the review does not approve.",
        run: review,
    },
];

/// `svc memory ..`.
fn memory(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["rules"] => rules(session),
        ["rule", _, ..] => add_rule(session),
        ["lift", hash] => lift(session, hash),
        ["found"] => found(session),
        ["discover", trigger, fix] => discover(session, trigger, fix),
        ["handoffs"] => roles(session),
        ["handoffs", role] => handoffs(session, role),
        ["profiles"] => profiles(session),
        _ => Err(Failure::usage(
            "usage: svc memory rules | rule TEXT.. | lift HASH | found | discover TRIGGER FIX | \
             handoffs [ROLE] | profiles; see 'svc help memory'",
        )),
    }
}

fn rules(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/memory/constraints")?;
    let Some(list) = out.rows(&answer, &answer["constraints"], "hash")? else { return Ok(()) };
    let mut table = Table::new(&["HASH", "CATEGORY", "RULE"]);
    for rule in list {
        table.row(&["hash", "category", "text"].map(|name| text(rule, name).to_owned()));
    }
    out.table(&table, "no rules; set one with 'svc memory rule TEXT'")
}

fn add_rule(session: &Session) -> Outcome {
    let out = &session.out;
    let mut body = json!({"text": session.args.text_from(1)});
    if let Some(category) = session.args.value("category") {
        body["category"] = json!(category);
    }
    let answer = session.client()?.post("/api/memory/constraints", &body)?;
    let hash = text(&answer, "hash");
    let mut words = match answer["added"].as_bool() {
        Some(true) => format!("rule {hash} is told to every new agent"),
        _ => format!("rule {hash} was known already"),
    };
    let evicted = text(&answer["evicted"], "text");
    if !evicted.is_empty() {
        let _ = write!(words, "\nthe oldest rule was dropped: {}", clean(evicted));
    }
    out.told(&answer, hash, &words)
}

fn lift(session: &Session, hash: &str) -> Outcome {
    let out = &session.out;
    let path = format!("/api/memory/constraints/{}", encode(hash));
    let answer = session.client()?.call("DELETE", &path, None)?;
    out.said(&answer, &format!("rule {hash} is lifted"))
}

fn found(session: &Session) -> Outcome {
    let out = &session.out;
    let limit = encode(session.args.value("limit").unwrap_or("100"));
    let role = session.args.query(&["role"]);
    let answer = session.client()?.get(&format!("/api/memory/discoveries?limit={limit}{role}"))?;
    if out.json {
        return out.document(&answer);
    }
    let mut table = Table::new(&["WHEN", "ROLE", "MET", "HELPED", "TIMES", "OF USE"]);
    for found in answer["discoveries"].as_array().into_iter().flatten() {
        let [when, role, met, helped] =
            ["ts", "role", "trigger", "fix"].map(|name| text(found, name).to_owned());
        let count = |name: &str| found[name].as_u64().unwrap_or_default();
        let of_use = format!("{} of {}", count("endedWell"), count("told"));
        table.row(&[when, role, met, helped, (count("again") + 1).to_string(), of_use]);
    }
    out.table(&table, "nothing was found yet; tell what helped with 'svc memory discover TRIGGER FIX'")
}

fn discover(session: &Session, trigger: &str, fix: &str) -> Outcome {
    let out = &session.out;
    let mut body = json!({"trigger": trigger, "fix": fix});
    if let Some(role) = session.args.value("role") {
        body["role"] = json!(role);
    }
    if let Some(agent) = session.caller() {
        body["agentId"] = json!(agent);
    }
    let answer = session.client()?.post("/api/memory/discoveries", &body)?;
    out.said(
        &answer,
        match answer["added"].as_bool() {
            Some(true) => "noted: agents with such a task will be told of it",
            _ => "this was known already",
        },
    )
}

fn roles(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/memory/handoff-chain")?;
    if out.json {
        return out.document(&answer);
    }
    let roles = answer["roles"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let roles: Vec<String> = roles.map(ToOwned::to_owned).collect();
    if roles.is_empty() && !out.quiet {
        return out.line("no agent has left a handoff brief yet; 'svc rotate TARGET' does");
    }
    out.lines(&roles)
}

fn handoffs(session: &Session, role: &str) -> Outcome {
    let out = &session.out;
    let count = session.args.value("limit").unwrap_or("3");
    let path = format!("/api/memory/handoff-chain/{}/recent?count={}", encode(role), encode(count));
    let answer = session.client()?.get(&path)?;
    out.said(&answer, clean(text(&answer, "markdown")).trim_end())
}

fn profiles(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/memory/specializations")?;
    if out.json {
        return out.document(&answer);
    }
    let mut table = Table::new(&["AGENT", "ROLE", "SESSIONS", "SCORE", "FILES"]).numeric(&[2, 3, 4]);
    for profile in answer["perAgent"].as_object().into_iter().flat_map(|map| map.values()) {
        let score =
            profile["avgQualityScore"].as_f64().map_or_else(|| "-".to_owned(), |score| score.to_string());
        let files = profile["fileTouches"].as_object().map_or(0, serde_json::Map::len);
        table.row(&[
            text(profile, "agentName").to_owned(),
            text(profile, "role").to_owned(),
            profile["sessionCount"].to_string(),
            score,
            files.to_string(),
        ]);
    }
    out.table(&table, "no agent has a profile yet")
}

/// `svc brief ROLE [TASK..]`.
fn brief(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let mut path =
        format!("/api/briefing?role={}&task={}", encode(&args.words[0]), encode(&args.text_from(1)));
    for (name, given) in [("provider", args.value("provider")), ("workingDir", args.value("dir"))] {
        if let Some(given) = given {
            let _ = write!(path, "&{name}={}", encode(given));
        }
    }
    for glob in args.values("scope") {
        let _ = write!(path, "&scope={}", encode(glob));
    }
    let answer = session.client()?.get(&path)?;
    if out.json {
        return out.document(&answer);
    }
    out.line(clean(text(&answer, "briefing")).trim_end())?;
    let cut = answer["sections"].as_array().into_iter().flatten().filter(|section| section["cut"] == true);
    let cut: Vec<&str> = cut.map(|section| text(section, "name")).collect();
    let rest = if cut.is_empty() { String::new() } else { format!("; cut: {}", cut.join(", ")) };
    out.note(&format!("{} of {} characters{rest}", answer["chars"], answer["budgetChars"]));
    Ok(())
}

/// `svc journalist [--cycle]`.
fn journalist(session: &Session) -> Outcome {
    let out = &session.out;
    let client = session.client()?;
    if session.args.flag("cycle") {
        let answer = client.post("/api/journalist/cycle", &json!({}))?;
        let what = if answer["changed"] == true { "the documents are written" } else { "nothing is new" };
        return out.said(&answer, &format!("cycle {}: {what}", answer["cycle"]));
    }
    let answer = client.get("/api/journalist")?;
    if out.json {
        return out.document(&answer);
    }
    let last = answer["lastCycle"].as_str().unwrap_or("never");
    let names = answer["documentsGenerated"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let names = names.collect::<Vec<_>>().join(", ");
    let mut lines =
        vec![format!("last cycle {last}, every {} s, mode {}", answer["interval"], text(&answer, "mode"))];
    if !names.is_empty() {
        lines.push(format!("documents  {names}"));
    }
    if let Some(synthesis) = answer["lastSynthesis"].as_str() {
        lines.push(format!("it knows   {}", clean(synthesis)));
    }
    out.lines(&lines)
}

/// `svc review TARGET ..`, `svc review --history`.
fn review(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let client = session.client()?;
    if args.flag("history") {
        return reviews(session, &client.get("/api/pm/history")?);
    }
    let Some(target) = args.words.first() else {
        return Err(Failure::usage(
            "usage: svc review TARGET [DESCRIPTION..] | review --history; see 'svc help review'",
        ));
    };
    let agent = find(&client, target)?;
    let mut body = Value::Object(args.given(&["file", "action"]));
    body["agentId"] = json!(text(&agent, "id"));
    body["description"] = json!(args.text_from(1));
    let answer = client.post("/api/pm/review", &body)?;
    let approved = answer["approved"] == true;
    if out.json {
        out.document(&answer)?;
    } else if !out.quiet {
        let verdict = if approved { "approved" } else { "not approved" };
        let mut lines = vec![format!("{verdict}: {}", clean(text(&answer, "reason")))];
        for finding in answer["findings"].as_array().into_iter().flatten() {
            lines.push(format!("  {:<12} {}", text(finding, "check"), clean(text(finding, "message"))));
        }
        out.lines(&lines)?;
    }
    if approved { Ok(()) } else { Err(Failure::Told(1)) }
}

fn reviews(session: &Session, answer: &Value) -> Outcome {
    let out = &session.out;
    if out.json {
        return out.document(answer);
    }
    let only = session.args.value("only").map(|word| word == "approved");
    let mut table = Table::new(&["WHEN", "AGENT", "VERDICT", "REASON"]);
    let all = answer["history"].as_array().into_iter().flatten();
    for review in all.filter(|review| only.is_none_or(|wanted| review["approved"] == wanted)) {
        let verdict = if review["approved"] == true { "approved" } else { "rejected" };
        table.row(&[
            text(review, "reviewedAt").to_owned(),
            text(review, "agentName").to_owned(),
            verdict.to_owned(),
            text(review, "reason").to_owned(),
        ]);
    }
    out.table(&table, "no such review yet; 'svc review TARGET' makes one")
}

/// `svc rotate TARGET --dry-run`.
pub fn dry_run(session: &Session, agent: &Value) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get(&super::target::path(agent, "/brief"))?;
    if out.json {
        return out.document(&answer);
    }
    out.line(clean(text(&answer, "brief")).trim_end())?;
    let left: Vec<&Value> = answer["leftOut"].as_array().into_iter().flatten().collect();
    if out.quiet {
        return Ok(());
    }
    let more = answer["moreLeftOut"].as_u64().unwrap_or(0);
    let count = left.len() as u64 + more;
    let mut lines = vec![format!(
        "\n--- {} of {} characters; {count} left out or cut{}",
        answer["chars"],
        answer["maxChars"],
        if count == 0 { "" } else { ":" },
    )];
    for loss in left {
        let how = if loss["cut"] == true { " (cut)" } else { "" };
        lines.push(format!(
            "{}{how}: {}",
            text(loss, "section"),
            super::render::one_line(text(loss, "text"))
        ));
    }
    out.lines(&lines)
}
