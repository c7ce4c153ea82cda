//! `svc routing`: which models agents run and why, and which one a task would get.

use super::client::encode;
use super::commands::{ANY, Command, Group, value};
use super::render::{Table, clean};
use super::session::{Outcome, Session};
use super::target::text;
use serde_json::Value;

/// The command of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "routing",
    group: Group::Look,
    summary: "show which models agents run and why, or which tier a task needs",
    usage: "routing [TASK..] [--provider P] [--role R] [--files F,..]",
    options: &[
        value("provider", "ID", "whose models; the default provider when absent"),
        value("role", "ROLE", "the role of who does it"),
        value("files", "FOLDERS", "the folders that it is about, with commas"),
    ],
    words: (0, ANY),
    details: "Judged by the words of the task, its folders, and what came of similar tasks here. It only tells:\n\
              measured, it is not right often enough to choose (docs/rotation-and-cost.md).",
    run: routing,
    ..Command::PLAIN
}];

fn routing(session: &Session) -> Outcome {
    let task = session.args.words.join(" ");
    if task.trim().is_empty() { all(session) } else { one(session, &task) }
}

/// Every agent with its model and the reason.
fn all(session: &Session) -> Outcome {
    let answer = session.client()?.get("/api/routing")?;
    let out = &session.out;
    if out.json {
        return out.document(&answer);
    }
    let mut table = Table::new(&["AGENT", "MODEL", "MODE", "TIER", "WHY"]);
    for (id, one) in answer["currentMappings"].as_object().into_iter().flatten() {
        let tier = one["tier"].as_str().unwrap_or("-");
        let mut row = vec![clean(id)];
        row.extend(["model", "mode"].map(|name| clean(text(one, name))));
        row.extend([tier.to_owned(), clean(text(one, "reason"))]);
        table.row(&row);
    }
    let mut lines = table.lines(out.width, out.colour);
    lines.push(String::new());
    lines.push(format!("routing is {}; what came of earlier work:", text(&answer, "mode")));
    for tier in ["light", "medium", "heavy"] {
        let of = |name: &str| answer["outcomes"][tier][name].as_u64().unwrap_or_default();
        lines.push(format!("  {tier}: {} well, {} not", of("well"), of("notWell")));
    }
    out.lines(&lines)
}

/// What a task would get.
fn one(session: &Session, task: &str) -> Outcome {
    let options = session.args.query(&["provider", "role", "files"]);
    let path = format!("/api/routing/suggestion?task={}{options}", encode(task));
    let answer = session.client()?.get(&path)?;
    let out = &session.out;
    if out.json {
        return out.document(&answer);
    }
    let model =
        answer["suggestedModel"]["id"].as_str().map_or_else(String::new, |id| format!(": {}", clean(id)));
    let mut lines =
        vec![format!("{}{model}", text(&answer, "suggestedTier")), clean(text(&answer, "reason"))];
    let similar: Vec<&Value> = answer["similar"].as_array().into_iter().flatten().collect();
    if !similar.is_empty() {
        lines.push("similar here:".to_owned());
    }
    lines.extend(
        similar.iter().map(|one| {
            format!("  {} {}: {}", text(one, "tier"), text(one, "came"), clean(text(one, "task")))
        }),
    );
    out.lines(&lines)
}
