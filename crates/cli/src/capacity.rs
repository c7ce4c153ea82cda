//! `svc capacity`.

use super::commands::{Command, Group, value};
use super::render::{Table, age_of, clean};
use super::session::{Outcome, Session, now};
use super::target::text;
use serde_json::Value;

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "capacity",
    group: Group::Look,
    summary: "show how many more agents fit on this machine",
    usage: "capacity [--provider ID] [--role ROLE]",
    options: &[
        value("provider", "ID", "of which provider they are"),
        value("role", "ROLE", "of which role they are"),
    ],
    details: "EACH is what one more is expected to use: what nearly all of the last runs of its kind stayed below \
              (measured), what those that run have used so far (running), or a guess.\n\
              What running agents may still come to use is kept for them.",
    run: capacity,
    ..Command::PLAIN
}];

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn capacity(session: &Session) -> Outcome {
    let out = &session.out;
    let options = session.args.query(&["provider", "role"]);
    let answer = session.client()?.get(&format!("/api/capacity?{}", options.trim_start_matches('&')))?;
    if out.json {
        return out.document(&answer);
    }
    if out.quiet {
        return out.line(&number(&answer["more"]).to_string());
    }
    let mut lines = vec![said(&answer)];
    let memory = &answer["memory"];
    let elsewhere = memory["elsewhereMegabytes"].as_u64().filter(|most| *most > 0);
    let elsewhere = elsewhere.map(|most| format!(", {most} MB for those of other projects"));
    lines.push(format!(
        "memory: {} MB, {} MB free; {} MB are kept for those that run{}, {} MB for you{}",
        number(&memory["totalMegabytes"]),
        number(&memory["freeMegabytes"]),
        number(&memory["promisedMegabytes"]),
        elsewhere.unwrap_or_default(),
        number(&memory["reserveMegabytes"]),
        if memory["limitedBy"] == "cgroup" { " (a control group allows no more)" } else { "" },
    ));
    if let Some(most) = memory["agentMegabytes"].as_u64() {
        lines.push(format!(
            "an agent that comes to hold more than {most} MB is ended (governor.agentMegabytes)"
        ));
    }
    lines.push(pressure(&answer["pressure"]));
    lines.extend(kinds(session, &answer));
    for one in answer["queued"].as_array().into_iter().flatten() {
        let since = age_of(text(one, "since"), now());
        lines.push(format!("{} waits since {since}: {}", clean(text(one, "name")), clean(text(one, "why"))));
    }
    for (which, words) in [
        ("putAway", "put away while memory is short, back on the next word"),
        ("frozen", "frozen while memory is short, and goes on by itself"),
    ] {
        let named: Vec<String> =
            answer[which].as_array().into_iter().flatten().map(|one| clean(text(one, "name"))).collect();
        if !named.is_empty() {
            lines.push(format!("{words}: {}", named.join(", ")));
        }
    }
    out.lines(&lines)
}

/// How many more fit, in a sentence.
pub(super) fn said(answer: &Value) -> String {
    let basis = match text(answer, "basis") {
        "measured" => format!("the most of {} runs", number(&answer["runs"])),
        "running" => "the most of those that run".to_owned(),
        _ => "a guess".to_owned(),
    };
    let why = answer["why"].as_str().map(|why| format!(": {}", clean(why))).unwrap_or_default();
    format!(
        "{} more agents of {} fit, {} MB each ({basis}){why}",
        number(&answer["more"]),
        clean(text(answer, "provider")),
        number(&answer["eachMegabytes"]),
    )
}

fn pressure(pressure: &Value) -> String {
    let share =
        |name: &str| pressure[name].as_f64().map_or_else(|| "-".to_owned(), |share| format!("{share} %"));
    format!(
        "waiting, of the last ten seconds: for memory {} (all at once {}), for a processor {}, for a disk (all at \
         once) {}; load {} on {} processors",
        share("memorySomePercent"),
        share("memoryFullPercent"),
        share("cpuSomePercent"),
        share("ioFullPercent"),
        pressure["load"].as_f64().unwrap_or_default(),
        number(&pressure["cpus"]),
    )
}

fn kinds(session: &Session, answer: &Value) -> Vec<String> {
    let out = &session.out;
    let mut table = Table::new(&["PROVIDER", "ROLE", "EACH", "KNOWN", "RUNS", "MORE"]).numeric(&[2, 4, 5]);
    for kind in answer["kinds"].as_array().into_iter().flatten() {
        table.row(&[
            clean(text(kind, "provider")),
            clean(text(kind, "role")),
            format!("{} MB", number(&kind["eachMegabytes"])),
            clean(text(kind, "basis")),
            number(&kind["runs"]).to_string(),
            number(&kind["more"]).to_string(),
        ]);
    }
    if table.is_empty() { Vec::new() } else { table.lines(out.width, out.colour) }
}
