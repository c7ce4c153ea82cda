//! What WebSocket clients see of an activity: the `data` of `agent:output`, and its encoding.

use crate::core::ids::AgentId;
use crate::providers::{Activity, TurnEnd, Usage, windows};
use crate::usage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::Write;
use svc_base::bounded;
use svc_base::json_text::push_json_text;

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

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Tool {
    id: String,
    name: String,
    /// As JSON.
    input: Box<[u8]>,
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

    /// What is to be kept to go on from here.
    pub fn save(&self) -> Value {
        json!([self.tools, self.session, self.context_window, self.model])
    }

    /// Goes on from there; with nothing to repeat where that cannot be read.
    pub fn restore(&mut self, saved: Value) {
        if let Ok(saved) = serde_json::from_value(saved) {
            (self.tools, self.session, self.context_window, self.model) = saved;
        }
    }

    /// Adds the whole `agent:output` message without its closing brace, to which the hub appends `seq` and
    /// `ts`; `false` when clients are not told of this kind, and nothing is added then. Its data by subtype,
    /// each object's fields in the order of the alphabet:
    ///
    /// - `assistant`: `{text}`, and `thinking: true` for thoughts
    /// - `tool`: `{id, input, name, output?, path?, status: "started"|"ok"|"error"}`
    /// - `result`: `{costUsd, durationMs, error?, isError, sessionId, text, turns}`
    /// - `usage`: `{cacheCreation, cacheRead, contextUsage, contextWindow, input, model?, output}`; the four
    ///   counts are what this message **adds** (negative when it corrects), `contextUsage` is a fraction, and
    ///   `model` names the one that has used it where that is not the session's
    pub fn frame(&mut self, activity: &Activity, out: &mut Vec<u8>) -> bool {
        match activity {
            Activity::Session { id, model } => {
                self.session = Some(id.clone());
                self.model = model.clone().or(self.model.take());
                return false;
            }
            Activity::Text { text } => self.words(out, text, false),
            Activity::Thinking { text } => self.words(out, text, true),
            Activity::ToolStarted { id, name, input, path, .. } => {
                self.tool_started(out, id, name, input, path.as_deref());
            }
            Activity::ToolEnded { id, error, output } => self.tool_ended(out, id, *error, output),
            Activity::TurnEnded(end) => self.result(out, end),
            Activity::Usage(usage) => self.usage(out, usage),
            Activity::TurnStarted
            | Activity::Trouble { .. }
            | Activity::Limit(_)
            | Activity::Compacted
            | Activity::PermissionAsked { .. }
            | Activity::Noise { .. } => return false,
        }
        out.push(b'}');
        true
    }

    fn begin(&self, out: &mut Vec<u8>, subtype: &str) {
        let begun = write!(
            out,
            r#"{{"type":"agent:output","agentId":"{}","data":{{"type":"activity","subtype":"{subtype}","data":"#,
            self.agent
        );
        debug_assert!(begun.is_ok(), "a vector takes everything");
    }

    fn words(&mut self, out: &mut Vec<u8>, text: &str, thinking: bool) {
        self.begin(out, "assistant");
        out.extend_from_slice(br#"{"text":"#);
        push_json_text(out, text);
        out.extend_from_slice(if thinking { br#","thinking":true}"#.as_slice() } else { b"}" });
    }

    fn tool_started(&mut self, out: &mut Vec<u8>, id: &str, name: &str, input: &Value, path: Option<&str>) {
        self.begin(out, "tool");
        out.extend_from_slice(br#"{"id":"#);
        push_json_text(out, id);
        out.extend_from_slice(br#","input":"#);
        let start = out.len();
        push_json(out, input);
        let input = &out[start..];
        let input: Box<[u8]> = if input.len() <= REMEMBERED_INPUT_BYTES { input.into() } else { NULL.into() };
        push_field(out, "name", name);
        push_path_and_status(out, path, "started");
        let (id, name, path) = (id.to_owned(), name.to_owned(), path.map(str::to_owned));
        bounded::push(&mut self.tools, Tool { id, name, input, path }, OPEN_TOOLS_MAX);
    }

    fn tool_ended(&mut self, out: &mut Vec<u8>, id: &str, error: bool, output: &str) {
        let started = self.tools.iter().position(|tool| tool.id == id);
        let started = started.and_then(|at| self.tools.remove(at));
        let input = started.as_ref().map_or(NULL, |tool| &tool.input);
        self.begin(out, "tool");
        out.extend_from_slice(br#"{"id":"#);
        push_json_text(out, id);
        out.extend_from_slice(br#","input":"#);
        out.extend_from_slice(input);
        push_field(out, "name", started.as_ref().map_or("", |tool| &tool.name));
        push_field(out, "output", output);
        let path = started.as_ref().and_then(|tool| tool.path.as_deref());
        push_path_and_status(out, path, if error { "error" } else { "ok" });
    }

    fn result(&mut self, out: &mut Vec<u8>, end: &TurnEnd) {
        self.begin(out, "result");
        let data = ResultData {
            cost_usd: end.cost_usd,
            duration_ms: end.duration_ms,
            error: &end.error,
            is_error: end.is_error,
            session_id: self.session.as_deref(),
            text: &end.text,
            turns: end.turns,
        };
        push_json(out, &data);
    }

    fn usage(&mut self, out: &mut Vec<u8>, usage: &Usage) {
        self.context_window = usage.context_window.or(self.context_window);
        let model = self.model.as_deref().unwrap_or(usage::UNKNOWN_MODEL);
        let table = || windows::window_of(self.provider, model);
        let window = self.context_window.filter(|window| *window > 0).or_else(table);
        #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let fraction = usage.context_tokens.zip(window).map(|(tokens, window)| tokens as f64 / window as f64);
        self.begin(out, "usage");
        let data = UsageData {
            cache_creation: usage.delta.cache_creation,
            cache_read: usage.delta.cache_read,
            context_usage: fraction,
            context_window: window,
            input: usage.delta.input,
            model: usage.model.as_deref(),
            output: usage.delta.output,
        };
        push_json(out, &data);
    }
}

/// What a tool's arguments are where they are not known.
const NULL: &[u8] = b"null";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultData<'a> {
    cost_usd: Option<f64>,
    duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
    is_error: bool,
    session_id: Option<&'a str>,
    text: &'a str,
    turns: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageData<'a> {
    cache_creation: i64,
    cache_read: i64,
    context_usage: Option<f64>,
    context_window: Option<u64>,
    input: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    output: i64,
}

fn push_json(text: &mut Vec<u8>, value: &impl Serialize) {
    let start = text.len();
    if serde_json::to_writer(&mut *text, value).is_err() {
        // No value of these types fails; a half one would spoil the whole message.
        text.truncate(start);
        text.extend_from_slice(NULL);
    }
}

fn push_field(text: &mut Vec<u8>, name: &str, value: &str) {
    text.push(b',');
    push_json_text(text, name);
    text.push(b':');
    push_json_text(text, value);
}

/// The last fields of a tool's data.
fn push_path_and_status(text: &mut Vec<u8>, path: Option<&str>, status: &str) {
    if let Some(path) = path {
        push_field(text, "path", path);
    }
    push_field(text, "status", status);
    text.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::TokensDelta;
    use serde_json::json;

    impl Wire {
        /// Subtype and data of a message, read back.
        fn map(&mut self, activity: &Activity) -> Option<(String, Value)> {
            let mut out = b"before".to_vec();
            if !self.frame(activity, &mut out) {
                assert_eq!(out, b"before", "nothing was added");
                return None;
            }
            let whole = String::from_utf8([&out[6..], &b"}"[..]].concat()).expect("text");
            let mut message: Value = serde_json::from_str(&whole).expect("json");
            let data = message["data"]["data"].take();
            assert!(whole.contains(&format!(r#""data":{data}"#)), "in the order of the alphabet: {whole}");
            Some((message["data"]["subtype"].as_str().expect("a subtype").to_owned(), data))
        }
    }

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
        assert_eq!(text, Some(("assistant".to_owned(), json!({"text": "hi"}))));
        let thought = map(Activity::Thinking { text: "hm".into() });
        assert_eq!(thought, Some(("assistant".to_owned(), json!({"text": "hm", "thinking": true}))));
        let tool = json!({"id": "t", "name": "Edit", "input": {"a": 1}, "path": "a.rs", "status": "started"});
        assert_eq!(map(started("t", json!({"a": 1}))), Some(("tool".to_owned(), tool.clone())));
        let mut end = tool;
        end["status"] = json!("error");
        end["output"] = json!("no");
        assert_eq!(map(ended("t")), Some(("tool".to_owned(), end)));
        let result = map(Activity::TurnEnded(TurnEnd { text: "done".into(), ..TurnEnd::default() }));
        let wanted = json!({"text": "done", "isError": false, "turns": null, "durationMs": null,
            "costUsd": null, "sessionId": "s1"});
        assert_eq!(result, Some(("result".to_owned(), wanted)));
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
        assert_eq!(wire.map(&Activity::Usage(usage(None))), Some(("usage".to_owned(), wanted)));
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
        let mut frame = Vec::new();
        assert!(Wire::new(AgentId(0xab)).frame(&Activity::Text { text: "a\"}\n".into() }, &mut frame));
        let whole = String::from_utf8([&frame, &b",\"seq\":1}"[..]].concat()).expect("text");
        let wanted = json!({"type": "agent:output", "agentId": "000000ab", "seq": 1,
            "data": {"type": "activity", "subtype": "assistant", "data": {"text": "a\"}\n"}}});
        assert_eq!(serde_json::from_str::<Value>(&whole).expect("json"), wanted);
    }
}
