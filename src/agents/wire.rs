//! What WebSocket clients see of an activity: the `data` of `agent:output`, and its encoding.

use crate::core::ids::AgentId;
use crate::providers::{Activity, TurnEnd, Usage, windows};
use crate::usage;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;

/// Tool calls whose name is remembered until their end; the oldest is forgotten beyond that.
const OPEN_TOOLS_MAX: usize = 256;
/// A tool's arguments are repeated at its end up to this length as JSON; longer ones are `null` there.
const REMEMBERED_INPUT_BYTES: usize = 4096;

/// Turns the activities of one run into messages, in order. It remembers what later ones repeat.
#[derive(Debug)]
pub struct Wire {
    agent: AgentId,
    tools: VecDeque<Tool>,
    session: Option<String>,
    /// As the provider told.
    context_window: Option<u64>,
    provider: &'static str,
    model: Option<String>,
}

#[derive(Debug)]
struct Tool {
    id: String,
    name: String,
    input: Value,
    path: Option<String>,
}

impl Wire {
    /// For a run that begins.
    pub fn new(agent: AgentId) -> Self {
        Self { agent, tools: VecDeque::new(), session: None, context_window: None, provider: "", model: None }
    }

    /// For a run of this provider with the model that was named for it, if any.
    #[must_use]
    pub fn of(mut self, provider: &'static str, model: Option<String>) -> Self {
        (self.provider, self.model) = (provider, model);
        self
    }

    /// The whole `agent:output` message without its closing brace, to which the hub appends `seq` and `ts`;
    /// `None` when clients are not told of this kind.
    pub fn frame(&mut self, activity: &Activity) -> Option<Arc<[u8]>> {
        let (subtype, data) = self.map(activity)?;
        let mut text = format!(
            r#"{{"type":"agent:output","agentId":"{}","data":{{"type":"activity","subtype":"{subtype}","data":"#,
            self.agent
        );
        text.push_str(&data.to_string());
        text.push('}');
        Some(Arc::from(text.into_bytes()))
    }

    /// The subtype and its data:
    ///
    /// - `assistant`: `{text}`, and `thinking: true` for thoughts
    /// - `tool`: `{id, name, input, path?, status: "started"|"ok"|"error", output?}`
    /// - `result`: `{text, isError, error?, turns, durationMs, costUsd, sessionId}`
    /// - `usage`: `{input, output, cacheRead, cacheCreation, contextWindow, contextUsage}`; the four counts
    ///   are what this message **adds** (negative when it corrects), `contextUsage` is a fraction
    pub fn map(&mut self, activity: &Activity) -> Option<(&'static str, Value)> {
        match activity {
            Activity::Session { id, model } => {
                self.session = Some(id.clone());
                self.model = model.clone().or(self.model.take());
                None
            }
            Activity::Text { text } => Some(("assistant", json!({ "text": text }))),
            Activity::Thinking { text } => Some(("assistant", json!({ "text": text, "thinking": true }))),
            Activity::ToolStarted { id, name, input, path, .. } => {
                let data = tool(id, name, input, path.as_deref(), "started");
                self.remember(id, name, input, path.as_deref());
                Some(("tool", data))
            }
            Activity::ToolEnded { id, error, output } => {
                let started = self.tools.iter().position(|tool| tool.id == *id);
                let started = started.and_then(|at| self.tools.remove(at));
                let status = if *error { "error" } else { "ok" };
                let mut data = match started {
                    Some(known) => tool(id, &known.name, &known.input, known.path.as_deref(), status),
                    None => tool(id, "", &Value::Null, None, status),
                };
                data["output"] = json!(output);
                Some(("tool", data))
            }
            Activity::TurnEnded(end) => Some(("result", self.result(end))),
            Activity::Usage(usage) => Some(("usage", self.usage(usage))),
            Activity::TurnStarted
            | Activity::Trouble { .. }
            | Activity::Compacted
            | Activity::PermissionAsked { .. }
            | Activity::Noise { .. } => None,
        }
    }

    fn remember(&mut self, id: &str, name: &str, input: &Value, path: Option<&str>) {
        if self.tools.len() >= OPEN_TOOLS_MAX {
            self.tools.pop_front();
        }
        let is_short = input.to_string().len() <= REMEMBERED_INPUT_BYTES;
        self.tools.push_back(Tool {
            id: id.to_owned(),
            name: name.to_owned(),
            input: if is_short { input.clone() } else { Value::Null },
            path: path.map(str::to_owned),
        });
    }

    fn result(&self, end: &TurnEnd) -> Value {
        let mut data = json!({
            "text": end.text,
            "isError": end.is_error,
            "turns": end.turns,
            "durationMs": end.duration_ms,
            "costUsd": end.cost_usd,
            "sessionId": self.session,
        });
        if !end.error.is_empty() {
            data["error"] = json!(end.error);
        }
        data
    }

    fn usage(&mut self, usage: &Usage) -> Value {
        self.context_window = usage.context_window.or(self.context_window);
        let model = self.model.as_deref().unwrap_or(usage::UNKNOWN_MODEL);
        let table = || windows::window_of(self.provider, model);
        let window = self.context_window.filter(|window| *window > 0).or_else(table);
        #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let fraction = usage.context_tokens.zip(window).map(|(tokens, window)| tokens as f64 / window as f64);
        json!({
            "input": usage.delta.input,
            "output": usage.delta.output,
            "cacheRead": usage.delta.cache_read,
            "cacheCreation": usage.delta.cache_creation,
            "contextWindow": window,
            "contextUsage": fraction,
        })
    }
}

fn tool(id: &str, name: &str, input: &Value, path: Option<&str>, status: &str) -> Value {
    let mut data = json!({ "id": id, "name": name, "input": input, "status": status });
    if let Some(path) = path {
        data["path"] = json!(path);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::TokensDelta;

    fn started(id: &str, input: Value) -> Activity {
        let path = Some("a.rs".into());
        Activity::ToolStarted { id: id.into(), name: "Edit".into(), input, path, writes: true }
    }

    fn ended(id: &str) -> Activity {
        Activity::ToolEnded { id: id.into(), error: true, output: "no".into() }
    }

    #[test]
    fn decisions_2_agent_output_has_the_four_subtypes() {
        let mut wire = Wire::new(AgentId(1));
        let mut map = |activity| wire.map(&activity);
        assert_eq!(map(Activity::Session { id: "s1".into(), model: None }), None);
        let text = map(Activity::Text { text: "hi".into() });
        assert_eq!(text, Some(("assistant", json!({"text": "hi"}))));
        let thought = map(Activity::Thinking { text: "hm".into() });
        assert_eq!(thought, Some(("assistant", json!({"text": "hm", "thinking": true}))));
        let tool = json!({"id": "t", "name": "Edit", "input": {"a": 1}, "path": "a.rs", "status": "started"});
        assert_eq!(map(started("t", json!({"a": 1}))), Some(("tool", tool.clone())));
        let mut end = tool;
        end["status"] = json!("error");
        end["output"] = json!("no");
        assert_eq!(map(ended("t")), Some(("tool", end)));
        let result = map(Activity::TurnEnded(TurnEnd { text: "done".into(), ..TurnEnd::default() }));
        let wanted = json!({"text": "done", "isError": false, "turns": null, "durationMs": null,
            "costUsd": null, "sessionId": "s1"});
        assert_eq!(result, Some(("result", wanted)));
    }

    #[test]
    fn decisions_2_usage_tells_the_share_of_the_context() {
        let mut wire = Wire::new(AgentId(1));
        let delta = TokensDelta { input: 1, output: -2, cache_read: 3, cache_creation: 4 };
        let usage =
            |window| Usage { delta, context_tokens: Some(50), context_window: window, ..Usage::default() };
        let (_, first) = wire.map(&Activity::Usage(usage(None))).expect("told");
        assert_eq!(first["contextUsage"], Value::Null);
        wire.map(&Activity::Usage(usage(Some(200))));
        let wanted = json!({"input": 1, "output": -2, "cacheRead": 3, "cacheCreation": 4,
            "contextWindow": 200, "contextUsage": 0.25});
        assert_eq!(wire.map(&Activity::Usage(usage(None))), Some(("usage", wanted)));
    }

    #[test]
    fn until_a_provider_tells_its_window_the_table_does() {
        let usage = |window| {
            Activity::Usage(Usage {
                context_tokens: Some(50_000),
                context_window: window,
                ..Usage::default()
            })
        };
        let mut wire = Wire::new(AgentId(1)).of("claude-code", Some("claude-sonnet-4-5".into()));
        let mut told = |activity| wire.map(&activity).map(|(_, data)| data["contextUsage"].clone());
        assert_eq!(told(usage(None)), Some(json!(0.25)));
        assert_eq!(told(Activity::Session { id: "s".into(), model: Some("claude-opus-5-5".into()) }), None);
        assert_eq!(told(usage(None)), Some(json!(0.05)));
        assert_eq!(told(usage(Some(100_000))), Some(json!(0.5)));
    }

    #[test]
    fn memory_of_tools_is_bounded_and_an_unknown_end_is_told() {
        let mut wire = Wire::new(AgentId(1));
        for n in 0..2 * OPEN_TOOLS_MAX {
            wire.map(&started(&n.to_string(), json!("x".repeat(5000))));
        }
        assert_eq!(wire.tools.len(), OPEN_TOOLS_MAX);
        let (_, forgotten) = wire.map(&ended("0")).expect("told");
        assert_eq!(forgotten["name"], "");
        let (_, known) = wire.map(&ended("511")).expect("told");
        assert_eq!((known["name"].as_str(), &known["input"]), (Some("Edit"), &Value::Null));
    }

    #[test]
    fn a_frame_wants_only_its_closing_brace() {
        let frame = Wire::new(AgentId(0xab)).frame(&Activity::Text { text: "a\"}\n".into() }).expect("told");
        let whole = String::from_utf8([&frame, &b",\"seq\":1}"[..]].concat()).expect("text");
        let wanted = json!({"type": "agent:output", "agentId": "000000ab", "seq": 1,
            "data": {"type": "activity", "subtype": "assistant", "data": {"text": "a\"}\n"}}});
        assert_eq!(serde_json::from_str::<Value>(&whole).expect("json"), wanted);
    }
}
