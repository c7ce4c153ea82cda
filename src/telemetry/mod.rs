//! Spans of what agents do, for a collector that speaks the OpenTelemetry protocol. Off unless a person has
//! named an endpoint in a file of their own.
//!
//! Each turn of an agent is a trace: `invoke_agent NAME` is its root, and below it are `chat MODEL` for what
//! the ledger counted as one step of the model, and `execute_tool NAME` for each tool call.
//! Times are those at which the daemon heard of it.
//!
//! **Invariant:** no words of a person, an agent or a tool are in a span unless `telemetry.content` says so.
//! **Invariant:** a span is exported, or counted as dropped or rejected; nothing waits for the collector.

pub mod api;
pub mod span;
#[cfg(test)]
mod tests;
pub mod worker;

use crate::agents::Agent;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Context, Effect, Moment, State as All};
use crate::credentials::Sealed;
use crate::providers::{Activity, Tokens, TokensDelta, Usage};
use serde_json::{Value, json};
use span::{Place, Span, Word};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tool calls of one turn that may be open at once; further ones have no span, and are counted.
pub const MAX_OPEN_TOOLS: usize = 256;
/// Characters of one attribute with content; the rest is cut off.
pub const MAX_CONTENT_CHARS: usize = 4_000;
/// Characters of a name that an agent's program has chosen: of a tool, a call, a model; the rest is cut off.
pub const MAX_NAME_CHARS: usize = 200;
/// Where the vault has the head lines that the endpoint wants: `telemetry/authorization`.
pub const HEADERS: &str = "telemetry/";

/// Open turns, and what became of spans since the start.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    open: BTreeMap<AgentId, Arc<Turn>>,
    exported: u64,
    dropped: u64,
    rejected: u64,
    exported_at: Option<Time>,
    error: Option<Arc<str>>,
    error_at: Option<Time>,
}

/// A turn that is not over.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
struct Turn {
    place: Place,
    start: Time,
    /// Since when the model is at work.
    model_since: Time,
    tokens: Tokens,
    cost_usd: Option<f64>,
    tools: Vec<Tool>,
    /// What the agent said, where content is asked for.
    said: String,
}

/// A tool call that is not over.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
struct Tool {
    id: String,
    name: String,
    span: [u8; 8],
    start: Time,
    /// Where content is asked for.
    input: Option<String>,
}

/// Spans to be exported, and where.
#[derive(Debug)]
pub struct Order {
    pub endpoint: String,
    /// The name of each head line, its name in the vault, and its value.
    pub headers: Vec<(String, String, Sealed)>,
    pub project: String,
    pub spans: Vec<Span>,
}

/// What became of spans.
#[derive(Debug, Clone, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Report {
    /// The collector has them.
    pub exported: u64,
    /// The collector does not want them.
    pub rejected: u64,
    /// It did not answer in time, or too many waited.
    pub dropped: u64,
    pub error: Option<String>,
}

/// Takes what became of spans.
pub fn report(all: &mut All, cx: &mut Context, report: Report) {
    let state = Arc::make_mut(&mut all.telemetry);
    state.exported += report.exported;
    state.rejected += report.rejected;
    state.dropped += report.dropped;
    if report.exported > 0 {
        state.exported_at = Some(cx.now);
    }
    match report.error {
        Some(error) => {
            state.error = Some(error.into());
            state.error_at = Some(cx.now);
        }
        None if report.exported > 0 => (state.error, state.error_at) = (None, None),
        None => {}
    }
}

fn is_on(all: &All) -> bool {
    all.settings.config().telemetry.endpoint.is_some()
}

/// Takes in what an agent did.
pub fn heard(all: &mut All, cx: &mut Context, id: AgentId, activities: &[Activity]) {
    if !is_on(all) {
        return;
    }
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let content = all.settings.config().telemetry.content;
    let mut spans = Vec::new();
    for activity in activities {
        match activity {
            Activity::TurnStarted => begin(all, cx, id),
            Activity::TurnEnded(end) => {
                // The provider's own words stay here: they may quote anything.
                let error = end.is_error.then_some("turn_error");
                spans.extend(finish(all, cx, &agent, end.cost_usd, error));
            }
            _ => step(all, cx, &agent, activity, content, &mut spans),
        }
    }
    export(all, cx, spans);
}

/// An agent's process is gone, perhaps within a turn.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    let id = match *moment {
        Moment::Ended(id) | Moment::PutAway(id) => id,
        Moment::Rotated { old, .. } | Moment::Resumed { old, .. } | Moment::Removed(old, _) => old,
        _ => return,
    };
    if !all.telemetry.open.contains_key(&id) {
        return;
    }
    let Some(agent) = all.agents.get(id).cloned() else {
        Arc::make_mut(&mut all.telemetry).open.remove(&id);
        return;
    };
    let status = json!(agent.status);
    let spans = finish(all, cx, &agent, None, status.as_str().or(Some("ended")));
    export(all, cx, spans);
}

fn id_of(cx: &mut Context) -> [u8; 8] {
    cx.random().to_be_bytes()
}

fn begin(all: &mut All, cx: &mut Context, id: AgentId) {
    if all.telemetry.open.contains_key(&id) {
        return;
    }
    let (high, low, span) = (id_of(cx), id_of(cx), id_of(cx));
    let mut trace = [0; 16];
    trace[..8].copy_from_slice(&high);
    trace[8..].copy_from_slice(&low);
    let turn = Turn {
        place: Place { trace, span, parent: None },
        start: cx.now,
        model_since: cx.now,
        tokens: Tokens::default(),
        cost_usd: None,
        tools: Vec::new(),
        said: String::new(),
    };
    Arc::make_mut(&mut all.telemetry).open.insert(id, Arc::new(turn));
}

/// What happens within a turn. What comes outside of one has no span.
fn step(
    all: &mut All,
    cx: &mut Context,
    agent: &Agent,
    activity: &Activity,
    content: bool,
    spans: &mut Vec<Span>,
) {
    let (now, span) = (cx.now, id_of(cx));
    let state = Arc::make_mut(&mut all.telemetry);
    let Some(turn) = state.open.get_mut(&agent.id).map(Arc::make_mut) else { return };
    match activity {
        Activity::Text { text } if content => {
            turn.said = cut(
                &format!("{}{}{text}", turn.said, if turn.said.is_empty() { "" } else { "\n\n" }),
                MAX_CONTENT_CHARS,
            );
        }
        Activity::ToolStarted { id, name, input, .. } => {
            if turn.tools.len() >= MAX_OPEN_TOOLS {
                state.dropped += 1;
                return;
            }
            let input = content.then(|| cut(&input.to_string(), MAX_CONTENT_CHARS));
            let (id, name) = (cut(id, MAX_NAME_CHARS), cut(name, MAX_NAME_CHARS));
            turn.tools.push(Tool { id, name, span, start: now, input });
        }
        Activity::ToolEnded { id, error, output } => {
            let id = cut(id, MAX_NAME_CHARS);
            let Some(at) = turn.tools.iter().position(|tool| tool.id == id) else { return };
            let tool = turn.tools.remove(at);
            let output = content.then(|| cut(output, MAX_CONTENT_CHARS));
            turn.model_since = now;
            spans.push(turn.tool_span(tool, now, error.then_some("tool_error"), output));
        }
        Activity::Usage(usage) => spans.extend(turn.count(agent, usage, span, now)),
        _ => {}
    }
}

impl Turn {
    fn child(&self, span: [u8; 8]) -> Place {
        Place { span, parent: Some(self.place.span), ..self.place }
    }

    fn tool_span(&self, tool: Tool, end: Time, error: Option<&str>, output: Option<String>) -> Span {
        let mut attributes: Vec<(&'static str, Word)> = vec![
            ("gen_ai.operation.name", "execute_tool".into()),
            ("gen_ai.tool.name", tool.name.as_str().into()),
            ("gen_ai.tool.call.id", tool.id.into()),
            ("gen_ai.tool.type", "function".into()),
        ];
        attributes.extend(error.map(|error| ("error.type", error.into())));
        attributes.extend(tool.input.map(|input| ("gen_ai.tool.call.arguments", input.into())));
        attributes.extend(output.map(|output| ("gen_ai.tool.call.result", output.into())));
        Span {
            place: self.child(tool.span),
            name: format!("execute_tool {}", tool.name),
            is_client: false,
            start: tool.start,
            end,
            attributes,
            error: error.map(str::to_owned),
        }
    }

    /// One step of the model, as the ledger counts it; a correction of earlier counts is none.
    fn count(&mut self, agent: &Agent, usage: &Usage, span: [u8; 8], now: Time) -> Option<Span> {
        let mut own = Tokens::default();
        own += usage.delta;
        self.tokens += usage.delta;
        if let Some(cost) = usage.cost_usd {
            self.cost_usd = Some(self.cost_usd.unwrap_or_default() + cost);
        }
        let is_step = usage.delta != TokensDelta::default() && own.output > 0;
        if !is_step {
            return None;
        }
        let model =
            usage.model.as_deref().or_else(|| model_of(agent)).map(|model| cut(model, MAX_NAME_CHARS));
        let mut attributes: Vec<(&'static str, Word)> = vec![
            ("gen_ai.operation.name", "chat".into()),
            ("gen_ai.provider.name", provider_of(agent).into()),
        ];
        attributes.extend(model.as_deref().map(|model| ("gen_ai.request.model", model.into())));
        attributes.extend(tokens(own));
        let start = std::mem::replace(&mut self.model_since, now);
        let name = model.map_or_else(|| "chat".to_owned(), |model| format!("chat {model}"));
        Some(Span {
            place: self.child(span),
            name,
            is_client: true,
            start,
            end: now,
            attributes,
            error: None,
        })
    }
}

/// Input is all of it, what came from a cache included.
fn tokens(of: Tokens) -> [(&'static str, Word); 4] {
    let input = Tokens { output: 0, ..of }.total();
    [
        ("gen_ai.usage.input_tokens", input.into()),
        ("gen_ai.usage.output_tokens", of.output.into()),
        ("gen_ai.usage.cache_read.input_tokens", of.cache_read.into()),
        ("gen_ai.usage.cache_creation.input_tokens", of.cache_creation.into()),
    ]
}

fn model_of(agent: &Agent) -> Option<&str> {
    agent.actual_model.as_deref().or(agent.model.as_deref()).filter(|model| *model != "auto")
}

/// As the conventions call it, where they do.
fn provider_of(agent: &Agent) -> &str {
    match agent.provider.as_str() {
        "claude-code" => "anthropic",
        "codex" => "openai",
        "gemini" => "gcp.gemini",
        other => other,
    }
}

/// The turn of an agent is over: its span, behind those of its tools that never ended.
fn finish(
    all: &mut All,
    cx: &mut Context,
    agent: &Agent,
    cost_usd: Option<f64>,
    error: Option<&str>,
) -> Vec<Span> {
    let state = Arc::make_mut(&mut all.telemetry);
    let Some(mut turn) = state.open.remove(&agent.id).map(Arc::unwrap_or_clone) else { return Vec::new() };
    let left = std::mem::take(&mut turn.tools);
    let mut spans: Vec<Span> =
        left.into_iter().map(|tool| turn.tool_span(tool, cx.now, Some("no_end"), None)).collect();
    let mut attributes: Vec<(&'static str, Word)> = vec![
        ("gen_ai.operation.name", "invoke_agent".into()),
        ("gen_ai.provider.name", provider_of(agent).into()),
        ("gen_ai.agent.id", agent.id.to_string().into()),
        ("gen_ai.agent.name", agent.name.as_str().into()),
        ("gen_ai.conversation.id", agent.lineage_id.to_string().into()),
        ("svc.agent.role", agent.role.as_str().into()),
    ];
    let model = model_of(agent).map(|model| cut(model, MAX_NAME_CHARS));
    attributes.extend(model.map(|model| ("gen_ai.request.model", model.into())));
    attributes.extend(tokens(turn.tokens));
    attributes.extend(cost_usd.or(turn.cost_usd).map(|cost| ("svc.cost_usd", Word::Number(cost))));
    attributes.extend(error.map(|error| ("error.type", error.into())));
    if !turn.said.is_empty() {
        let said = json!([{"role": "assistant", "parts": [{"type": "text", "content": turn.said}]}]);
        attributes.push(("gen_ai.output.messages", said.to_string().into()));
    }
    let name = format!("invoke_agent {}", agent.name);
    let (place, start) = (turn.place, turn.start);
    let error = error.map(str::to_owned);
    spans.push(Span { place, name, is_client: true, start, end: cx.now, attributes, error });
    spans
}

fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

fn export(all: &All, cx: &mut Context, spans: Vec<Span>) {
    let Some(endpoint) = all.settings.config().telemetry.endpoint.clone().filter(|_| !spans.is_empty())
    else {
        return;
    };
    let header = |(name, entry): (&str, &crate::credentials::Entry)| {
        Some((name.strip_prefix(HEADERS)?.to_owned(), name.to_owned(), entry.sealed.clone()))
    };
    let headers = all.credentials.iter().filter_map(header).collect();
    let project = all.project.dir.file_name().map(|name| name.to_string_lossy().into_owned());
    cx.push(Effect::Telemetry(Order { endpoint, headers, project: project.unwrap_or_default(), spans }));
}

/// `GET /api/telemetry`.
fn shown(all: &All) -> Value {
    let (config, state) = (&all.settings.config().telemetry, &all.telemetry);
    let time = |at: Option<Time>| at.map(|at| at.to_string());
    let headers = all.credentials.iter().filter_map(|(name, _)| name.strip_prefix(HEADERS));
    json!({
        "endpoint": config.endpoint, "content": config.content, "headers": headers.collect::<Vec<_>>(),
        "exported": state.exported, "dropped": state.dropped, "rejected": state.rejected,
        "openTurns": state.open.len(), "lastExport": time(state.exported_at),
        "lastError": state.error, "lastErrorAt": time(state.error_at),
    })
}
