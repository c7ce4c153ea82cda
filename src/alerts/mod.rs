//! Telling a person's desktop what waits: `notify.command`, a program of that person's own, with its words in
//! its variables and wherever its arguments ask for them. No shell reads any of it.
//!
//! The command stands in the person's own settings alone: neither a project nor an agent names a program that
//! the daemon runs as that person. What is told is what the console's queue has: approvals and questions,
//! agents that crashed, were cut off, fell silent or came to a limit, and a spent budget.
//!
//! **Invariant:** at most [`MAX_IN_WINDOW`] programs are started in [`WINDOW`]; what is held back is counted,
//! and the next alert says how many.
//! **Invariant:** words of agents are one line each, cut, with everything in them that steers what shows it
//! made visible, and no option of the program.

#[cfg(test)]
mod tests;
pub mod worker;

use crate::agents::{Reason, Status};
use crate::core::time::Time;
use crate::core::{Context, Effect, Notice, State as All};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use svc_base::untrusted::untrusted_line;

/// Alerts in one window at most.
pub const MAX_IN_WINDOW: usize = 5;
/// Its length.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Characters of a title.
pub const MAX_TITLE_CHARS: usize = 80;
/// Characters of what is told below it.
pub const MAX_TEXT_CHARS: usize = 300;

/// When the last ones were told.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    told: VecDeque<Time>,
    /// What was held back since.
    held_back: u64,
}

/// Tell this.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Order {
    /// The program and its arguments, as the person wrote them.
    pub command: Vec<String>,
    /// `approval`, `crashed`, `interrupted`, `silent`, `limited` or `budget`.
    pub kind: &'static str,
    pub title: String,
    pub text: String,
    /// Where the console has it.
    pub url: String,
}

/// What waits, as the event that was just applied tells it to WebSocket clients.
struct Waits {
    kind: &'static str,
    title: String,
    text: String,
    /// Behind the console's address.
    page: String,
}

/// Looks at what the event that was just applied tells WebSocket clients.
pub fn overheard(all: &mut All, cx: &mut Context) {
    if all.settings.config().notify.command.is_empty() {
        return;
    }
    for notice in cx.notices() {
        if let Some(waits) = waits(&notice) {
            tell(all, cx, waits);
        }
    }
}

fn waits(notice: &Notice) -> Option<Waits> {
    let of_agent = |kind, name: &str, what: &str, why: &str, id: String| Waits {
        kind,
        title: format!("{name} {what}"),
        text: why.to_owned(),
        page: format!("#/agent/{id}"),
    };
    match notice {
        Notice::ApprovalRequest { data } => Some(Waits {
            kind: "approval",
            title: format!("{} asks", data.agent_name),
            text: data.action.description().to_owned(),
            page: "#/approvals".into(),
        }),
        Notice::AgentExit { agent_id, agent_name, status, reason, .. } => {
            // A life that a successor replaces does not end its agent.
            let (kind, what) = match status {
                _ if *reason.why() == Reason::Replaced => return None,
                Status::Crashed => ("crashed", "crashed"),
                Status::Interrupted => ("interrupted", "was cut off"),
                _ => return None,
            };
            Some(of_agent(kind, agent_name, what, &reason.to_string(), agent_id.to_string()))
        }
        Notice::AgentStalled { agent_id, agent_name, reason } => {
            Some(of_agent("silent", agent_name, "is silent", reason, agent_id.to_string()))
        }
        Notice::AgentLimited { agent_id, agent_name, reason, .. } => {
            Some(of_agent("limited", agent_name, "is at a limit", reason, agent_id.to_string()))
        }
        Notice::BudgetWarning { percent: 100.., text, .. } => Some(Waits {
            kind: "budget",
            title: "The daily budget is spent".into(),
            text: text.clone(),
            page: "#/tokens".into(),
        }),
        _ => None,
    }
}

/// Orders it, unless too many were told just now.
fn tell(all: &mut All, cx: &mut Context, waits: Waits) {
    let alerts = Arc::make_mut(&mut all.alerts);
    while alerts.told.front().is_some_and(|at| cx.now.since(*at) >= WINDOW) {
        alerts.told.pop_front();
    }
    if alerts.told.len() >= MAX_IN_WINDOW {
        alerts.held_back += 1;
        return;
    }
    alerts.told.push_back(cx.now);
    let more = match std::mem::take(&mut alerts.held_back) {
        0 => String::new(),
        n => format!(" (and {n} more before)"),
    };
    let Waits { kind, title, text, page } = waits;
    let order = Order {
        command: all.settings.config().notify.command.clone(),
        kind,
        title: line(&title, MAX_TITLE_CHARS),
        text: line(&text, MAX_TEXT_CHARS) + &more,
        url: format!("{}/{page}", all.project.url()),
    };
    cx.push(Effect::Alerts(order));
}

/// One visible line of so many characters.
fn line(text: &str, chars: usize) -> String {
    let words = untrusted_line(text.trim());
    if words.chars().count() <= chars {
        return words;
    }
    words.chars().take(chars - 1).chain(['…']).collect()
}
