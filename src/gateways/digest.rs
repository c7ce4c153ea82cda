//! Lines that are told together, and what each event says.

use super::message::{Text, cut, first_line};
use super::record::Preset;
use crate::core::State as All;
use serde_json::Value;

/// Lines told in one message at most; further ones are counted.
pub const MAX_LINES: usize = 40;
/// Bytes of all these lines at most.
pub const MAX_BYTES: usize = 6_000;
/// Characters of one line's free part.
const MAX_WORDS: usize = 200;

/// What waits to be told.
#[derive(Debug, Clone, Default)]
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
pub fn describe(all: &All, kind: &str, body: &Value) -> Option<(Preset, Text)> {
    match kind {
        // Approvals are told by themselves. A gateway's own state is not told through gateways: what cannot
        // be sent would give more to send.
        "state" | "state:delta" | "agent:output" | "gateway:status" | "approval:request"
        | "approval:resolved" => None,
        "agent:exit" => exit(body),
        "agent:stalled" => Some(line(Preset::Lifecycle, name(all, body), "is silent", body, "reason")),
        "rotation:start" => Some(line(Preset::Lifecycle, name(all, body), "is being rotated", body, "")),
        "rotation:complete" => Some(line(Preset::Lifecycle, name(all, body), "was rotated", body, "reason")),
        "rotation:failed" => {
            Some(line(Preset::Lifecycle, name(all, body), "could not be rotated", body, "error"))
        }
        "conflict:detected" => {
            let data = &body["data"];
            let owner = data["ownerName"].as_str();
            let whose = owner.map_or_else(String::new, |owner| format!(", which {owner} owns"));
            let verb = match data["certainty"].as_str() {
                Some("likely") => " has likely written to ",
                Some("unknown") => " may have written to ",
                _ => " wrote to ",
            };
            let text = Text::new()
                .bold(word(data, "agentName"))
                .plain(verb)
                .code(cut(word(data, "filePath"), MAX_WORDS))
                .said(&whose);
            Some((Preset::Lifecycle, text))
        }
        "instruction:undelivered" => {
            let what = "ended before it could be told what waited for it";
            Some(line(Preset::Lifecycle, name(all, body), what, body, "reason"))
        }
        "phase2:spawned" => {
            Some(line(Preset::Lifecycle, name(all, body), "began the next phase", body, "role"))
        }
        "phase2:failed" => Some((Preset::Lifecycle, generic("a phase is blocked", body))),
        "qc:activated" => Some((Preset::Lifecycle, generic("quality control is called for", body))),
        "schedule:execute" => {
            Some(line(Preset::Lifecycle, name(all, body), "was started by a schedule", body, ""))
        }
        other => Some((Preset::All, generic(other, body))),
    }
}

fn exit(body: &Value) -> Option<(Preset, Text)> {
    // A life that a successor replaces does not end its agent; the rotation is told.
    if word(body, "statusCode") == "replaced" {
        return None;
    }
    let status = word(body, "status");
    let preset = if status == "crashed" { Preset::Critical } else { Preset::Lifecycle };
    let mut text = Text::new().bold(word(body, "agentName")).plain(format!(" {status}"));
    let reason = first_line(word(body, "statusReason"), MAX_WORDS);
    if !reason.is_empty() && reason != status {
        text = text.plain(": ").said(&reason);
    }
    let error = last_line(word(body, "error"));
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

fn line(preset: Preset, who: String, what: &str, body: &Value, why: &str) -> (Preset, Text) {
    let text = Text::new().bold(who).plain(format!(" {what}"));
    let reason = if why.is_empty() { String::new() } else { first_line(word(body, why), MAX_WORDS) };
    let text = if reason.is_empty() { text } else { text.plain(": ").said(&reason) };
    (preset, text)
}

/// An event that has no words of its own: its type, and its plain fields.
fn generic(what: &str, body: &Value) -> Text {
    let mut fields = Vec::new();
    for (name, value) in body.as_object().into_iter().flatten() {
        match value {
            Value::Object(inner) => {
                fields.extend(inner.iter().filter_map(|(name, value)| field(name, value)));
            }
            plain => fields.extend(field(name, plain)),
        }
    }
    let text = Text::new().plain(what);
    if fields.is_empty() { text } else { text.plain(": ").said(&cut(&fields.join(", "), MAX_WORDS)) }
}

fn field(name: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(format!("{name} {}", first_line(text, MAX_WORDS))),
        Value::Number(number) => Some(format!("{name} {number}")),
        Value::Bool(flag) => Some(format!("{name} {flag}")),
        _ => None,
    }
}

fn word<'a>(body: &'a Value, name: &str) -> &'a str {
    body[name].as_str().unwrap_or_default()
}

/// The agent's name as told, or as its id leads to it.
fn name(all: &All, body: &Value) -> String {
    let told = ["agentName", "name"].iter().find_map(|field| body[*field].as_str());
    let id = word(body, "agentId");
    told.map(ToOwned::to_owned)
        .or_else(|| all.agents.find(id).ok().map(|agent| agent.name.clone()))
        .unwrap_or_else(|| id.to_owned())
}
