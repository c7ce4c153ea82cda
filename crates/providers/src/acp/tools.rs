//! The tool calls of an agent, put together from what it tells of them bit by bit.

use crate::{Activity, Step, wire};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// At most this many calls are open at once; what is told of further ones is not joined.
const OPEN_CALLS_MAX: usize = 1024;
/// At most this many bytes are kept of all of them. One that would go beyond is told at once, and known by
/// its id alone from then on: it cannot be decided on.
const OPEN_CALLS_LIMIT_BYTES: usize = 8 * 1024 * 1024;
/// At most this many files of one call are looked at.
const PATHS_MAX: usize = 256;

/// What is known of a call.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    name: String,
    title: String,
    /// `edit`, `execute`, `read`...; empty where the agent tells none.
    pub(super) kind: String,
    /// JSON, once there is any that says something.
    input: Option<Box<RawValue>>,
    pub(super) paths: Vec<String>,
    /// It names more than are kept.
    pub(super) has_more_paths: bool,
    output: String,
    told: bool,
    /// Of what it is only its id was kept.
    is_forgotten: bool,
}

/// The calls that have not ended.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Calls {
    open: BTreeMap<String, Call>,
}

impl Calls {
    /// Takes a `tool_call`, a `tool_call_update` or the `toolCall` of a permission request.
    pub(super) fn update(&mut self, update: &Value, out: &mut Vec<Step>) {
        let id = wire::name(update, "toolCallId");
        if id.is_empty() || (self.open.len() >= OPEN_CALLS_MAX && !self.open.contains_key(id)) {
            return;
        }
        let call = self.open.entry(id.to_owned()).or_default();
        call.learn(update);
        match wire::text(update, "status") {
            status @ ("completed" | "failed") => {
                call.tell(id, out);
                wire::tool_ended(out, id, status == "failed", &call.output);
                self.open.remove(id);
            }
            // A first notice often lacks the arguments, which follow at once.
            "in_progress" => call.tell(id, out),
            _ if call.input.is_some() => call.tell(id, out),
            _ => {}
        }
        if self.open.values().map(Call::bytes).sum::<usize>() > OPEN_CALLS_LIMIT_BYTES
            && let Some(call) = self.open.get_mut(id)
        {
            call.tell(id, out);
            *call = Call { told: true, is_forgotten: true, ..Call::default() };
        }
    }

    /// Tells that a call has begun, because it is to be decided on. Gives what is known of it.
    pub(super) fn asked(&mut self, id: &str, out: &mut Vec<Step>) -> Option<&Call> {
        let call = self.open.get_mut(id).filter(|call| !call.is_forgotten)?;
        call.tell(id, out);
        Some(call)
    }

    /// A turn's end ends what the agent left open.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }
}

impl Call {
    /// What a person would call the tool.
    pub(super) fn name(&self) -> &str {
        [&self.name, &self.kind, &self.title]
            .into_iter()
            .find(|name| !name.is_empty())
            .map_or("tool", |name| name)
    }

    /// Its arguments, or what it is called where the agent tells none.
    pub(super) fn input(&self) -> Value {
        let input = self.input.as_ref().and_then(|input| serde_json::from_slice(input.get().as_bytes()).ok());
        input.unwrap_or_else(|| json!({"title": self.title}))
    }

    /// How much of it is kept.
    fn bytes(&self) -> usize {
        let input = self.input.as_ref().map_or(0, |input| input.get().len());
        let texts = [&self.name, &self.title, &self.kind, &self.output];
        input + texts.into_iter().chain(&self.paths).map(String::len).sum::<usize>()
    }

    fn learn(&mut self, update: &Value) {
        let replace = |field: &mut String, text: &str| {
            if !text.is_empty() {
                text.clone_into(field);
            }
        };
        let meta = update.pointer("/_meta/claudeCode/toolName").and_then(Value::as_str);
        replace(&mut self.name, meta.unwrap_or(""));
        replace(&mut self.title, wire::text(update, "title"));
        replace(&mut self.kind, wire::text(update, "kind"));
        if let Some(input) = update.get("rawInput").filter(|input| has_content(input)) {
            self.input = to_raw_value(input).ok();
        }
        let named = wire::items(update, "locations").iter().chain(wire::items(update, "content"));
        let named = named.filter_map(wire::path_in).take(PATHS_MAX + 1);
        for (index, path) in named.chain(update.get("rawInput").and_then(wire::path_in)).enumerate() {
            if index < PATHS_MAX && self.paths.contains(&path) {
                continue;
            }
            if index < PATHS_MAX && self.paths.len() < PATHS_MAX {
                self.paths.push(path);
            } else {
                self.has_more_paths = true;
            }
        }
        // Before it runs its content is a description.
        if matches!(wire::text(update, "status"), "in_progress" | "completed" | "failed") {
            replace(&mut self.output, &output(update));
        }
    }

    fn tell(&mut self, id: &str, out: &mut Vec<Step>) {
        if self.told {
            return;
        }
        self.told = true;
        let names_file = matches!(self.kind.as_str(), "read" | "edit" | "delete" | "move");
        let input = self.input();
        wire::emit(
            out,
            Activity::ToolStarted {
                id: id.to_owned(),
                name: self.name().to_owned(),
                input,
                path: if names_file { self.paths.first().cloned() } else { None },
                writes: names_file && self.kind != "read",
            },
        );
    }
}

fn has_content(input: &Value) -> bool {
    match input {
        Value::Null => false,
        // A folder alone is not what is to be done there.
        Value::Object(fields) => fields.keys().any(|key| key != "cwd"),
        _ => true,
    }
}

fn output(update: &Value) -> String {
    let raw = update.get("rawOutput").unwrap_or(&Value::Null);
    let text = raw.as_str().unwrap_or_else(|| wire::text(raw, "output"));
    if text.is_empty() {
        update.get("content").map(wire::words).unwrap_or_default()
    } else {
        wire::cut(text, wire::TOOL_OUTPUT_LIMIT_BYTES)
    }
}
