//! What people are answered in chats.

use super::commands::{ALL, Described};
use super::message::{Text, cut, first_line};
use super::record::{CommandPermission, Gateway};
use super::sources;
use crate::agents::{Agent, Deliver, Outcome, Status};
use crate::approvals;
use crate::core::time::Time;
use crate::core::{Response, State as All};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use svc_base::sorted;
use svc_base::words::with_commands;

/// Rows of a list at most; further ones are counted.
pub const MAX_ROWS: usize = 30;
/// Characters of a name in a list.
pub const NAME_CHARS: usize = 40;
/// Characters of what an agent does, in a list.
const ACTIVITY_CHARS: usize = 80;
/// Characters of an answer or of a log line.
const LINE_CHARS: usize = 300;
/// Characters of an agent's answer; its own log has the whole.
const ANSWER_CHARS: usize = 12_000;
/// What `/brief` looks back at.
const BRIEF_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// `/help`.
pub fn help(gateway: &Gateway) -> Text {
    let full = gateway.command_permission == CommandPermission::Full;
    let mut text = Text::new().bold("Commands");
    for command in ALL.iter().filter(|command| full || command.looks_only) {
        let line = Text::new().code(format!("/{} {}", command.name, command.arguments).trim_end());
        text = text.line(line.plain(format!(" {}", command.summary)));
    }
    text.line("A target is the name of an agent or a team, the beginning of one, or a role.".into())
}

/// What a person needs to set the gateway up; below the help.
pub fn whereabouts(chat: &str, user: &str) -> Text {
    Text::from("This chat's id is ").code(chat).plain(", yours is ").code(user)
}

/// How a command is given.
pub fn usage(command: &Described) -> Text {
    Text::from("usage: ").code(format!("/{} {}", command.name, command.arguments).trim_end())
}

/// A length of time in one or two units.
fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

pub(super) fn status_word(status: Status) -> String {
    format!("{status:?}").to_lowercase()
}

/// `/status`.
pub fn status(all: &All, now: Time) -> Text {
    let live: Vec<_> = all.agents.live().collect();
    let count = |status| live.iter().filter(|agent| agent.status == status).count();
    let (running, waiting) = (count(Status::Running), count(Status::Waiting));
    let up = span(now.since(all.project.started_at));
    let project =
        all.project.dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut text = Text::new()
        .bold(if project.is_empty() { "svc".into() } else { project })
        .plain(format!(" · svc {} · up {up}", crate::VERSION))
        .line(format!("{} agents alive, {running} running, {waiting} waiting", live.len()).into());
    let pending = all.approvals.pending().count();
    if pending > 0 {
        text = text
            .line(Text::new().bold(format!("{pending} approvals wait")).plain(" for you: /approve, /reject"));
    }
    if let Some(error) = &all.health.storage_error {
        text = text.line(Text::new().bold("state cannot be written: ").plain(error.as_ref()));
    }
    text
}

/// The first [`MAX_ROWS`] rows of a list, and how many are left out.
pub fn rows(mut rows: impl Iterator<Item = Text>) -> Text {
    let text = rows.by_ref().take(MAX_ROWS).fold(Text::new(), Text::line);
    match rows.count() {
        0 => text,
        more => text.line(format!("… and {more} more").into()),
    }
}

/// `/agents`: the living, then the ended, the latest first.
pub fn agents(all: &All, now: Time) -> Text {
    let mut list: Vec<&Arc<Agent>> = all.agents.iter().collect();
    sorted::by_key(&mut list, |agent| {
        (!agent.status.is_live(), std::cmp::Reverse(agent.status_since), agent.id)
    });
    if list.is_empty() {
        return Text::from("no agents; ").code("/spawn <role> <task>").plain(" starts one");
    }
    rows(list.into_iter().map(|agent| row(agent, now)))
}

fn row(agent: &Agent, now: Time) -> Text {
    let since = span(now.since(agent.status_since));
    let mut text = Text::new().bold(cut(&agent.name, NAME_CHARS)).plain(format!(
        " {} · {} · {since}",
        agent.role,
        status_word(agent.status)
    ));
    let usage = agent.context_usage();
    if agent.status.is_live() && usage > 0.0 {
        text = text.plain(format!(" · context {:.0} %", usage * 100.0));
    }
    match &agent.current_activity {
        Some(activity) if agent.status.is_live() => {
            text.plain(" · ").said(&first_line(activity, ACTIVITY_CHARS))
        }
        _ => text,
    }
}

/// `/teams`.
pub fn teams(all: &All) -> Text {
    let teams = sources::teams(all);
    if teams.is_empty() {
        return "no teams".into();
    }
    let row = |team: &sources::Team| {
        let members = sources::members(all, team);
        let live = members.iter().filter(|agent| agent.status.is_live()).count();
        let lead = super::targets::lead(&members);
        let lead = lead.map_or_else(String::new, |lead| format!(", led by {}", cut(&lead.name, NAME_CHARS)));
        Text::new()
            .bold(cut(&team.name, NAME_CHARS))
            .plain(format!(" {live} alive of {}{lead}", members.len()))
    };
    rows(teams.iter().map(row))
}

/// `/brief`: what waits, who works, and what ended within a day.
pub fn brief(all: &All, now: Time) -> Text {
    let mut text = status(all, now);
    for approval in all.approvals.pending().take(MAX_ROWS) {
        let what = format!(" {} wants to {}", approval.agent_name, approval.action.description());
        let line = Text::new().code(approval.id.to_string()).said(&what);
        text = text.line(line);
    }
    let mut live: Vec<_> = all.agents.live().collect();
    sorted::by_key(&mut live, |agent| agent.spawned_at);
    for agent in live.iter().take(MAX_ROWS) {
        text = text.line(row(agent, now));
    }
    let mut ended: Vec<&Arc<Agent>> = all
        .agents
        .iter()
        .filter(|agent| !agent.status.is_live() && now.since(agent.status_since) < BRIEF_WINDOW)
        .collect();
    sorted::by_key(&mut ended, |agent| std::cmp::Reverse(agent.status_since));
    if !ended.is_empty() {
        text = text.line(Text::new().bold("Ended in the last 24 h"));
    }
    for agent in ended.into_iter().take(MAX_ROWS) {
        let said = agent.last_turn.as_ref().map(|turn| turn.text.clone()).filter(|text| !text.is_empty());
        let words = first_line(&said.unwrap_or_else(|| agent.status_reason.to_string()), ACTIVITY_CHARS);
        let name = cut(&agent.name, NAME_CHARS);
        text = text.line(Text::new().bold(name).said(&format!(" {}: {words}", status_word(agent.status))));
    }
    let rotations = all.agents.rotations().total;
    if rotations > 0 { text.line(format!("{rotations} rotations so far").into()) } else { text }
}

/// `/log`: entries of a log as `GET /api/agents/:id/log` shows them.
pub fn log(name: &str, entries: &[Value]) -> Text {
    let rows = entries.iter().filter_map(log_line);
    let text = rows.fold(Text::new().bold(name), Text::line);
    if entries.is_empty() { text.plain(" has an empty log") } else { text }
}

/// What is known of a subject.
pub fn recalled(answer: &Value) -> Text {
    let hits = answer["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let word = |hit: &Value, field: &str| hit[field].as_str().unwrap_or_default().to_owned();
    let row = |hit: &Value| {
        let whose = Text::new().bold(word(hit, "source")).plain(" ").said(&word(hit, "agentName"));
        let place = hit["n"].as_u64().map_or_else(String::new, |n| format!(" {n}"));
        whose.plain(place).plain(": ").said(&first_line(&word(hit, "text"), LINE_CHARS))
    };
    match hits {
        [] => Text::from("nothing is known of it; try other words"),
        [first, rest @ ..] => rest.iter().map(row).fold(row(first), Text::line),
    }
}

fn log_line(entry: &Value) -> Option<Text> {
    let word = |field: &str| entry[field].as_str().unwrap_or_default();
    let time = word("ts").get(11..16).unwrap_or_default().to_owned();
    let said = first_line(word("text"), LINE_CHARS);
    let text = match word("type") {
        "text" => Text::new().said(&said),
        "user" => Text::new().bold("to it: ").said(&said),
        "life" => Text::new().bold(said),
        "tool-started" => {
            let path = first_line(word("path"), ACTIVITY_CHARS);
            Text::new().code(cut(word("name"), NAME_CHARS)).plain(" ").said(&path)
        }
        "turn-ended" => {
            let words = if entry["isError"] == true { word("error") } else { word("text") };
            Text::new().bold("turn ended ").said(&first_line(words, LINE_CHARS))
        }
        "trouble" => Text::from("trouble: ").said(&said),
        _ => return None,
    };
    Some(Text::new().code(time).plain(" ").then(text))
}

/// What is said to a command that the core was given.
pub fn told(response: &Response) -> Text {
    match response {
        Response::Refused(problem) => refused(&problem.error),
        Response::Agents(outcome) => became(outcome),
        Response::Decided(approval) => {
            let (who, action) = (&approval.agent_name, approval.action.description());
            let is_approved = approval.status == approvals::Status::Approved;
            let (word, may) = if is_approved { ("Approved", "may") } else { ("Rejected", "may not") };
            Text::new().bold(word).said(&format!(": {who} {may} {action}"))
        }
        // No command of a chat is answered so.
        Response::Http(_) | Response::Inbox(_) => "done".into(),
    }
}

fn refused(words: &str) -> Text {
    // In a chat nobody calls endpoints.
    let words = words.replace("GET /api/approvals lists them", "/brief lists those that wait");
    let words = words.replace("GET /api/teams lists them", "/teams lists them");
    let words = words.replace("GET /api/agents lists them", "/agents lists them");
    Text::new().bold("Refused: ").plain(with_commands(&words))
}

fn became(outcome: &Outcome) -> Text {
    let name = |name: &str| Text::new().bold(name);
    match outcome {
        Outcome::Spawned { agent, overlaps, .. } => {
            let details = format!(" was started ({}, {}), id ", agent.role, agent.provider);
            let text = name(&agent.name).plain(details).code(agent.id.to_string());
            match overlaps.len() {
                0 => text,
                n => text.plain(format!("; its scope overlaps with {n} others")),
            }
        }
        Outcome::Ended { name: who, .. } | Outcome::Removed { name: who, .. } => {
            name(who).plain(" has ended")
        }
        Outcome::Rotated { agent, .. } => {
            name(&agent.name).plain(" was rotated; its new id is ").code(agent.id.to_string())
        }
        Outcome::Resumed { agent, .. } => {
            name(&agent.name).plain(" had ended; it goes on with your message")
        }
        Outcome::Queued { name: who, deliver: Deliver::Rotation, queued, .. } => name(who).plain(format!(
            " gets it with its next rotation or when its turn ends ({queued} waiting); /rotate {who} delivers it now"
        )),
        Outcome::Queued { name: who, deliver, .. } => name(who).plain(format!(" gets it: {}", deliver.word())),
        // No chat has a word for either: only a person at this machine does them.
        Outcome::Moves { agent, .. } => name(&agent.name).plain(" goes on on another machine"),
        Outcome::Attached { name: who, .. } => name(who).plain(" has a person at its screen"),
        Outcome::Answered { name: who, answer, .. } => {
            name(who).plain(format!(": {}", cut(answer.trim(), ANSWER_CHARS)))
        }
    }
}
