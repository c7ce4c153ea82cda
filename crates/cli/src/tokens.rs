//! `svc tokens`, `svc quota` and `svc rotations`.

use super::commands::{Command, Group, switch};
use super::render::{Table, age_of, clean, count, dollars, percent};
use super::session::{Outcome, Session, now};
use super::target::text;
use serde_json::Value;
use std::fmt::Write as _;

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "tokens",
        group: Group::Look,
        summary: "show what agents have used, cost and saved",
        usage: "tokens [--by-team | --by-model]",
        options: &[
            switch("by-team", "by team instead of by agent"),
            switch("by-model", "by model instead of by agent"),
        ],
        details: "Removed agents still count. What svc itself has used, for example for questions, stands apart. \
                  unpriced: nobody knows what the model costs; $1.00+: what a part of it costs. Saved is an \
                  estimate in tokens of fresh input, of rotations as seen ten minutes later; cut off is output \
                  of interrupted turns that nobody has counted, estimated, and in no other figure but the budget's.",
        run: tokens,
        ..Command::PLAIN
    },
    Command {
        name: "quota",
        group: Group::Look,
        summary: "show the providers' windows and who waits for one",
        usage: "quota",
        details: "USED, LEFT and OPENS are as the provider told them, HEARD ago. AN HOUR is measured between its figures.\n\
                  FULL and FIT (of the agents that run now) are guesses: if they go on at that pace.\n\
                  limits.reserve keeps a part of each window for you, of providers that tell figures.",
        run: quota,
        ..Command::PLAIN
    },
    Command {
        name: "rotations",
        group: Group::Look,
        summary: "list the rotations, why, and how fast tokens went around them",
        usage: "rotations",
        details: "LEFT is the context that the old agent held and the new one began without.\n\
                  BEFORE and AFTER are tokens in the 10 minutes around it; AFTER is told when they are over.",
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
    if session.args.flag("by-model") {
        return by_model(session, &summary);
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
    let mut today = format!("today    {}{}", money(&cost["todayUsd"]), budget.unwrap_or_default());
    for (name, words) in [
        ("todayEstimatedUsd", "about {} of turns that were cut off"),
        ("todayUnpricedAtMostUsd", "at most {} unpriced"),
    ] {
        if cost[name].as_f64().is_some_and(|usd| usd > 0.0) {
            let _ = write!(today, ", {}", words.replace("{}", &money(&cost[name])));
        }
    }
    lines.push(today);
    let all = &cost["allProjects"];
    if let Some(budget) = all["dailyBudgetUsd"].as_f64() {
        lines.push(format!("all      {} of {} in all projects", money(&all["todayUsd"]), dollars(budget)));
    }
    if let Some(message) = cost["message"].as_str() {
        lines.push(format!("budget   {}", clean(message)));
    }
    out.lines(&lines)
}

/// What all agents come to.
fn sums(summary: &Value) -> Vec<String> {
    let parts = &summary["breakdown"];
    let overhead = &summary["internalOverhead"];
    let cut = &summary["interrupted"];
    let cut_off = (number(&cut["outputTokens"]) > 0).then(|| {
        let (tokens, cost) = (count(number(&cut["outputTokens"])), priced(&cut["costUsd"], cut));
        format!("cut off  about {tokens} tokens of output, {cost}, of interrupted turns")
    });
    let reuse = percent(summary["cacheHitRate"].as_f64().unwrap_or_default());
    let mut lines = vec![
        String::new(),
        format!(
            "total    {} tokens, {}",
            count(number(&summary["totalUsed"])),
            priced(&summary["totalCostUsd"], summary)
        ),
        format!("cache    {reuse} of cached input was read again"),
        format!(
            "saved    about {} tokens: {} by rotation{}, {} by resuming, {} by prevented conflicts",
            count(number(&summary["totalSaved"])),
            count(number(&parts["rotation"])),
            range(&summary["savings"]["rotationRange"]),
            count(number(&parts["coldStart"])),
            count(number(&parts["conflict"])),
        ),
        format!(
            "svc      {} tokens, {}",
            count(number(&overhead["tokens"])),
            priced(&overhead["costUsd"], overhead)
        ),
    ];
    lines.extend(cut_off);
    lines
}

/// What rotations have saved at least and at most; below zero they have cost more.
fn range(range: &Value) -> String {
    let signed = |value: &Value| {
        let tokens = value.as_i64().unwrap_or_default();
        format!("{}{}", if tokens < 0 { "-" } else { "" }, count(tokens.unsigned_abs()))
    };
    let open = number(&range["open"]);
    let open = if open > 0 { format!(", {open} not checked yet") } else { String::new() };
    match number(&range["checked"]) {
        0 if open.is_empty() => String::new(),
        0 => format!(" ({})", &open[2..]),
        _ => format!(" ({} to {}{open})", signed(&range["low"]), signed(&range["high"])),
    }
}

fn by_model(session: &Session, summary: &Value) -> Outcome {
    let mut table = Table::new(&["MODEL", "TOKENS", "COST"]).numeric(&[1, 2]);
    for model in summary["byModel"].as_array().into_iter().flatten() {
        let cost = priced(&model["costUsd"], model);
        table.row(&[clean(text(model, "model")), count(number(&model["used"])), cost]);
    }
    session.out.lines(&table.lines(session.out.width, session.out.colour))
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

fn quota(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/quota")?;
    if out.json {
        return out.document(&answer);
    }
    let list = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
    let (windows, held) = (list("windows"), list("held"));
    if out.quiet {
        return out.lines(&held.iter().map(|one| text(one, "agentId").to_owned()).collect::<Vec<_>>());
    }
    let header = &["PROVIDER", "WINDOW", "USED", "LEFT", "OPENS", "HEARD", "AN HOUR", "FULL", "FIT"];
    let mut table = Table::new(header).numeric(&[2, 3, 6]);
    let share = |value: &Value| value.as_f64().map_or_else(|| "-".into(), |n| format!("{n}%"));
    let moment =
        |value: &Value| value.as_str().map_or_else(|| "-".into(), |at| clean(&at[..at.len().min(16)]));
    for one in &windows {
        let guess = &one["guessed"];
        let fit = guess["fit"].as_u64().map(|fit| format!("~{fit} of {}", number(&guess["agents"])));
        table.row(&[
            clean(&with_account(one)),
            clean(text(one, "window")),
            if one["closed"] == true { "closed".into() } else { share(&one["usedPercent"]) },
            share(&one["leftPercent"]),
            moment(&one["opensAt"]),
            age_of(text(one, "heardAt"), now()),
            share(&one["percentPerHour"]),
            guess["fullAt"]
                .as_str()
                .map_or_else(|| "-".into(), |at| format!("~{}", clean(&at[..at.len().min(16)]))),
            fit.unwrap_or_else(|| "-".into()),
        ]);
    }
    let mut lines = if table.is_empty() {
        vec!["no provider has told of a window yet".to_owned()]
    } else {
        table.lines(out.width, out.colour)
    };
    lines.extend(reserve(&answer["reserve"]));
    for one in &held {
        let name = clean(text(one, "name"));
        let then = match one["goesOnAt"].as_str() {
            Some(at) => format!("goes on at {}", clean(at)),
            None => format!("waits for you: svc resume {name}"),
        };
        let kept = one["reserve"].as_u64().map(|percent| format!("kept: {percent} % of"));
        let why = [kept.as_deref().unwrap_or_else(|| text(one, "kind")), text(one, "window")].join(" ");
        lines.push(format!(
            "{name} is held by {} ({}), {then}",
            clean(&with_account(one)),
            clean(why.trim())
        ));
    }
    out.lines(&lines)
}

/// The provider, with its account where that is not the usual one.
pub(super) fn with_account(one: &Value) -> String {
    match one["account"].as_str() {
        Some(account) if account != "default" => format!("{} ({account})", text(one, "provider")),
        _ => text(one, "provider").to_owned(),
    }
}

/// What is kept of the windows, and where that has no effect.
fn reserve(reserve: &Value) -> Option<String> {
    let percent = reserve["percent"].as_u64()?;
    let silent: Vec<String> =
        reserve["withoutFigure"].as_array()?.iter().filter_map(Value::as_str).map(clean).collect();
    let without = if silent.is_empty() {
        String::new()
    } else {
        format!("; it has no effect on {}, which told no figure", silent.join(", "))
    };
    Some(format!(
        "{percent} % of each window are kept for you: with less left no turn begins by itself{without}"
    ))
}

fn rotations(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/rotation")?;
    let Some(history) = out.rows(&answer, &answer["history"], "new")? else { return Ok(()) };
    let header = &["AGE", "AGENT", "REASON", "OLD", "NEW", "LEFT", "BEFORE", "AFTER"];
    let mut table = Table::new(header).numeric(&[5, 6, 7]);
    let known = |value: &Value| value.as_u64().map_or_else(|| "-".into(), count);
    for entry in history {
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
    out.table(&table, "no agent was rotated yet")
}
