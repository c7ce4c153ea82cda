//! Lines that are told together, and what each event says.

use super::answers::status_word;
use super::message::{Text, cut, first_line};
use super::record::Preset;
use crate::agents::{Reason, Status, StatusReason};
use crate::approvals::Certainty;
use crate::core::State as All;
use crate::core::ids::AgentId;
use crate::core::notice::{ConflictSeen, Notice};
use serde_json::Value;

/// Lines told in one message at most; further ones are counted.
pub const MAX_LINES: usize = 40;
/// Bytes of all these lines at most.
pub const MAX_BYTES: usize = 6_000;
/// Characters of one line's free part.
const MAX_WORDS: usize = 200;

/// What waits to be told.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Digest {
    lines: Vec<Text>,
    bytes: usize,
    left_out: u64,
}

impl Digest {
    /// Adds a line, or counts it when there is no room.
    pub fn add(&mut self, line: Text) {
        let bytes = line.bytes();
        if self.lines.len() >= MAX_LINES || self.bytes + bytes > MAX_BYTES {
            self.left_out += 1;
            return;
        }
        self.bytes += bytes;
        self.lines.push(line);
    }

    /// The message; `None` when there is nothing to tell.
    pub fn message(self) -> Option<Text> {
        let empty = self.lines.is_empty() && self.left_out == 0;
        let text = self.lines.into_iter().fold(Text::new(), Text::line);
        let more = self.left_out;
        let text = if more > 0 { text.line(format!("… and {more} more events").into()) } else { text };
        (!empty).then_some(text)
    }
}

/// What an event says, and the quietest preset that is told of it. `None`: nobody is.
pub fn describe(all: &All, notice: &Notice) -> Option<(Preset, Text)> {
    let told = match notice {
        // Approvals have messages of their own. A gateway's own state is not told through gateways: what
        // cannot be sent would give more to send.
        Notice::ApprovalRequest { .. } | Notice::ApprovalResolved { .. } | Notice::GatewayStatus { .. } => {
            return None;
        }
        Notice::AgentExit { agent_name, status, reason, error, .. } => {
            return exit(agent_name, *status, reason, error.as_deref());
        }
        Notice::AgentStalled { agent_name, reason, .. } => line(agent_name, "is silent", reason),
        Notice::AgentLimited { agent_name, reason, .. } => line(agent_name, "is at a limit", reason),
        Notice::RotationStart { agent_name, .. } => line(agent_name, "is being rotated", ""),
        Notice::RotationComplete { agent_name, reason, .. } => line(agent_name, "was rotated", reason),
        Notice::RotationFailed { agent_id, error } => {
            line(&name(all, *agent_id), "could not be rotated", error)
        }
        Notice::BudgetWarning { percent: 100.., text, .. } => line("the daily budget", "is spent", text),
        Notice::BudgetWarning { text, .. } => line("the daily budget", "is nearly spent", text),
        Notice::ConflictDetected { data } => conflict(data),
        Notice::InstructionUndelivered { agent_name, reason, .. } => {
            line(agent_name, "ended before it could be told what waited for it", reason)
        }
        Notice::PhaseSpawned { name, role, .. } => line(name, "began the next phase", role),
        Notice::PhaseFailed { .. } => generic("a phase is blocked", notice),
        Notice::QcActivated { .. } => generic("quality control is called for", notice),
        Notice::ScheduleExecute { name, .. } => line(name, "was started by a schedule", ""),
        Notice::AgentMerged { .. }
        | Notice::ConflictUnresolved { .. }
        | Notice::CoordinationDeclared { .. }
        | Notice::CoordinationCompleted { .. }
        | Notice::IntegrationStatus { .. }
        | Notice::FederationPairing { .. }
        | Notice::FederationPaired { .. }
        | Notice::JournalistCycle { .. }
        | Notice::ConstraintAdded { .. }
        | Notice::ConstraintRemoved { .. }
        | Notice::DiscoveryAdded { .. }
        | Notice::ClassifierUpdate { .. }
        | Notice::RepoImport(_)
        | Notice::SkillInstalled { .. }
        | Notice::SkillRemoved { .. }
        | Notice::TeamCreated { .. }
        | Notice::TeamUpdated { .. }
        | Notice::TeamDeleted { .. }
        | Notice::TeamRecommended { .. }
        | Notice::PlanDone { .. } => return Some((Preset::All, generic(notice.kind(), notice))),
    };
    Some((Preset::Lifecycle, told))
}

fn conflict(data: &ConflictSeen) -> Text {
    let whose = data.owner_name.as_ref().map_or_else(String::new, |owner| format!(", which {owner} owns"));
    let verb = match data.certainty {
        Certainty::Sure => " wrote to ",
        Certainty::Likely => " has likely written to ",
        Certainty::Unknown => " may have written to ",
    };
    Text::new().bold(data.agent_name.clone()).plain(verb).code(cut(&data.file_path, MAX_WORDS)).said(&whose)
}

fn exit(name: &str, status: Status, reason: &StatusReason, error: Option<&str>) -> Option<(Preset, Text)> {
    // A life that a successor replaces does not end its agent; the rotation is told.
    if *reason.why() == Reason::Replaced {
        return None;
    }
    let preset = if status == Status::Crashed { Preset::Critical } else { Preset::Lifecycle };
    let word = status_word(status);
    let text = Text::new().bold(name).plain(format!(" {word}"));
    let reason = first_line(&reason.to_string(), MAX_WORDS);
    let mut text = with_details(text, if reason == word { "" } else { &reason });
    let error = last_line(error.unwrap_or_default());
    if !error.is_empty() && !reason.contains(&error) {
        text = text.plain(" · ").code(error);
    }
    Some((preset, text))
}

/// The last line of an error says most.
fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    cut(line.unwrap_or_default(), MAX_WORDS)
}

fn line(who: &str, what: &str, why: &str) -> Text {
    with_details(Text::new().bold(who).plain(format!(" {what}")), &first_line(why, MAX_WORDS))
}

fn with_details(text: Text, details: &str) -> Text {
    if details.is_empty() { text } else { text.plain(": ").said(details) }
}

/// An event that has no words of its own: its plain fields.
fn generic(what: &str, notice: &Notice) -> Text {
    let mut fields = Vec::new();
    for (name, value) in notice.body().as_object().into_iter().flatten() {
        match value {
            Value::Object(inner) => {
                fields.extend(inner.iter().filter_map(|(name, value)| field(name, value)));
            }
            plain => fields.extend(field(name, plain)),
        }
    }
    with_details(what.into(), &cut(&fields.join(", "), MAX_WORDS))
}

fn field(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(format!("{name} {}", first_line(text, MAX_WORDS))),
        Value::Number(number) => Some(format!("{name} {number}")),
        Value::Bool(flag) => Some(format!("{name} {flag}")),
        _ => None,
    }
}

/// The agent's name as its id leads to it.
fn name(all: &All, id: AgentId) -> String {
    let id = id.to_string();
    all.agents.find(&id).map(|agent| agent.name.clone()).unwrap_or(id)
}
