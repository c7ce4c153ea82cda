//! `svc tokens` and `svc rotations`.

use super::commands::{Command, Group, switch};
use super::render::{Table, age_of, clean, count, dollars, percent};
use super::session::{Outcome, Session, now};
use super::target::text;
use serde_json::Value;

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "tokens",
        group: Group::Look,
        summary: "show what agents have used, cost and saved",
        usage: "tokens [--by-team]",
        options: &[switch("by-team", "by team instead of by agent")],
        details: "Removed agents still count. What svc itself has used, for example for questions, stands apart. \
                  unpriced: nobody knows what the model costs; $1.00+: what a part of it costs.",
        run: tokens,
        ..Command::PLAIN
    },
    Command {
        name: "rotations",
        group: Group::Look,
        summary: "list the rotations, why, and what they saved",
        usage: "rotations",
        details: "BEFORE and AFTER are tokens in the 10 minutes around it; AFTER is told when they are over.",
        run: rotations,
        ..Command::PLAIN
    },
];

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn money(value: &Value) -> String {
    dollars(value.as_f64().unwrap_or_default())
}

/// A cost beside which `unpricedTokens` says how much is not in it, because nobody knows the model's price.
pub(super) fn priced(cost: &Value, of: &Value) -> String {
    let usd = cost.as_f64().unwrap_or_default();
    match (of["unpricedTokens"].as_u64().unwrap_or_default() > 0, usd > 0.0) {
        (false, _) => dollars(usd),
        (true, false) => "unpriced".to_owned(),
        (true, true) => format!("{}+", dollars(usd)),
    }
}

fn tokens(session: &Session) -> Outcome {
    let out = &session.out;
    let client = session.client()?;
    if session.args.flag("by-team") {
        let answer = client.get("/api/tokens/by-team")?;
        return if out.json { out.document(&answer) } else { by_team(session, &answer) };
    }
    let summary = client.get("/api/tokens/summary")?;
    if out.json {
        return out.document(&summary);
    }
    if out.quiet {
        return out.line(&number(&summary["totalUsed"]).to_string());
    }
    let mut table = Table::new(&["AGENT", "ID", "MODEL", "TOKENS", "COST"]).numeric(&[3, 4]);
    for agent in summary["perAgent"].as_array().into_iter().flatten() {
        table.row(&[
            clean(text(agent, "name")),
            text(agent, "id").into(),
            clean(agent["model"].as_str().unwrap_or("-")),
            count(number(&agent["used"])),
            priced(&agent["costUsd"], agent),
        ]);
    }
    let mut lines = if table.is_empty() { Vec::new() } else { table.lines(out.width, out.colour) };
    // The sums begin with an empty line, to stand apart.
    lines.extend(sums(&summary).into_iter().skip(usize::from(table.is_empty())));
    let dashboard = client.get("/api/dashboard")?;
    let cost = &dashboard["cost"];
    let budget = cost["dailyBudgetUsd"].as_f64().map(|budget| format!(" of {}", dollars(budget)));
    lines.push(format!("today    {}{}", money(&cost["todayUsd"]), budget.unwrap_or_default()));
    if let Some(message) = cost["message"].as_str() {
        lines.push(format!("budget   {}", clean(message)));
    }
    out.lines(&lines)
}

/// What all agents come to.
fn sums(summary: &Value) -> Vec<String> {
    let parts = &summary["breakdown"];
    let overhead = &summary["internalOverhead"];
    let reuse = percent(summary["cacheHitRate"].as_f64().unwrap_or_default());
    vec![
        String::new(),
        format!(
            "total    {} tokens, {}",
            count(number(&summary["totalUsed"])),
            priced(&summary["totalCostUsd"], summary)
        ),
        format!("cache    {reuse} of cached input was read again"),
        format!(
            "saved    {} tokens: {} by rotation, {} by resuming, {} by prevented conflicts",
            count(number(&summary["totalSaved"])),
            count(number(&parts["rotation"])),
            count(number(&parts["coldStart"])),
            count(number(&parts["conflict"])),
        ),
        format!("svc      {} tokens, {}", count(number(&overhead["tokens"])), money(&overhead["costUsd"])),
    ]
}

fn by_team(session: &Session, answer: &Value) -> Outcome {
    let out = &session.out;
    let mut table = Table::new(&["TEAM", "ID", "AGENTS", "TOKENS", "EACH", "COST"]).numeric(&[2, 3, 4, 5]);
    for team in answer["teams"].as_array().into_iter().flatten() {
        table.row(&[
            clean(text(team, "teamName")),
            text(team, "teamId").into(),
            number(&team["agentCount"]).to_string(),
            count(number(&team["totalTokens"])),
            count(number(&team["avgTokensPerAgent"])),
            priced(&team["totalCostUsd"], team),
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

fn rotations(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/rotation")?;
    if out.json {
        return out.document(&answer);
    }
    let history = answer["history"].as_array().cloned().unwrap_or_default();
    if out.quiet {
        return out.lines(&history.iter().map(|entry| text(entry, "new").to_owned()).collect::<Vec<_>>());
    }
    if history.is_empty() {
        return out.line("no agent was rotated yet");
    }
    let header = &["AGE", "AGENT", "REASON", "OLD", "NEW", "SAVED", "BEFORE", "AFTER"];
    let mut table = Table::new(header).numeric(&[5, 6, 7]);
    let known = |value: &Value| value.as_u64().map_or_else(|| "-".into(), count);
    for entry in &history {
        table.row(&[
            age_of(text(entry, "timestamp"), now()),
            clean(text(entry, "agentName")),
            text(entry, "reason").into(),
            text(entry, "old").into(),
            text(entry, "new").into(),
            known(&entry["tokensSaved"]),
            known(&entry["preRotationVelocity"]),
            known(&entry["postRotationVelocity"]),
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}
