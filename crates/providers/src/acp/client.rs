//! The client side of the Agent Client Protocol.
//!
//! ```text
//!  initialize ──▶ session/new or session/load ──▶ settings ──▶ session/prompt ⇄ session/update
//!                                                                   ▲               │
//!                                                                   └── next message ┘
//! ```
//!
//! One request of ours is under way at a time. Whatever fails before the first prompt ends the run.

use super::permission::{Bounds, Decision, Options, Question};
use super::tools::{Call, Calls};
use super::{OUT_OF_REQUESTS, OUT_OF_TOKENS, PROTOCOL_VERSION, REFUSED};
use crate::gemini;
use crate::wire::{self, CostMeter, Joiner};
use crate::{
    Activity, Conversation, LaunchRequest, Purpose, Ruling, SessionStart, Step, Tokens, TurnEnd, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// At most this many messages wait for the end of a turn.
const QUEUED_MESSAGES_MAX: usize = 256;
/// And no more than this many bytes of them, the first one aside.
const QUEUED_LIMIT_BYTES: usize = 4 * 1024 * 1024;
/// At most this many requests wait for a person at once; further ones are refused.
const QUESTIONS_MAX: usize = 64;
/// JSON-RPC: the method is not known here.
const METHOD_NOT_FOUND: i64 = -32601;

/// Which of our requests is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// Nothing is: before the start, or between two turns.
    Quiet,
    Initialize,
    NewSession,
    /// The agent first repeats the whole conversation, which was told before.
    LoadSession,
    Setting,
    Prompt,
    /// It cannot go on.
    Over,
}

/// What the words held back are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Words {
    #[default]
    Text,
    Thinking,
}

/// What is asked of the agent before the first prompt.
#[derive(Debug, Serialize, Deserialize)]
enum Setting {
    Model(String),
    /// A mode that the agent has.
    Mode(String),
    /// An option of the agent's own, by its id, and the value it gets.
    Option(String, String),
}

impl Setting {
    /// The method and its parameters.
    fn request(&self, session: &str) -> (&'static str, Value) {
        match self {
            Self::Model(id) => ("session/set_model", json!({"sessionId": session, "modelId": id})),
            Self::Mode(id) => ("session/set_mode", json!({"sessionId": session, "modeId": id})),
            Self::Option(id, value) => {
                let params = json!({"sessionId": session, "configId": id, "value": value});
                ("session/set_config_option", params)
            }
        }
    }
}

/// The conversation of one run.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Client {
    phase: Phase,
    /// The id of our last request.
    request: u64,
    /// The session to continue, then the one that is open.
    session: String,
    model: Option<String>,
    bounds: Bounds,
    /// Requests to be made before the first prompt.
    settings: VecDeque<Setting>,
    messages: VecDeque<String>,
    words: Joiner,
    words_are: Words,
    last_text: String,
    calls: Calls,
    denied: Vec<String>,
    /// Requests that wait for a person.
    questions: BTreeMap<String, Asked>,
    cost: CostMeter,
    turn_cost_usd: Option<f64>,
    /// The agent tells the tokens of each call: what it repeats at the turn's end is not counted again.
    counts_calls: bool,
    /// The tokens of the last call, as the record told.
    recorded: Option<u64>,
    /// Calls of tools that have begun in this turn.
    tools: u64,
    /// Nothing more will be said: the input is closed as soon as no turn is open.
    finishing: bool,
}

/// A request for permission that waits for a person.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// A number or a text.
    id: Value,
    options: Options,
    name: String,
}

fn answer(id: &Value, allow: bool, options: &Options, out: &mut Vec<Step>) {
    write(out, &json!({"jsonrpc": "2.0", "id": id, "result": options.outcome(allow)}));
}

impl Client {
    pub(super) fn new(request: &LaunchRequest, model: Option<String>) -> Self {
        let session = match &request.session {
            SessionStart::Resume { id, .. } => id.clone(),
            SessionStart::Fresh | SessionStart::Fork { .. } => String::new(),
        };
        Self {
            phase: Phase::Quiet,
            finishing: false,
            request: 0,
            cost: CostMeter::new(!session.is_empty()),
            session,
            model,
            bounds: Bounds {
                purpose: request.purpose,
                permission: request.permission,
                working_dir: request.working_dir.clone(),
            },
            settings: VecDeque::new(),
            messages: VecDeque::from([request.prompt.clone()]),
            words: Joiner::default(),
            words_are: Words::default(),
            last_text: String::new(),
            calls: Calls::default(),
            denied: Vec::new(),
            questions: BTreeMap::new(),
            turn_cost_usd: None,
            counts_calls: false,
            recorded: None,
            tools: 0,
        }
    }

    fn request(&mut self, phase: Phase, method: &str, params: &Value, out: &mut Vec<Step>) {
        self.phase = phase;
        self.request = self.request.saturating_add(1);
        write(out, &json!({"jsonrpc": "2.0", "id": self.request, "method": method, "params": params}));
    }

    fn replied(&mut self, reply: &Value, out: &mut Vec<Step>) {
        if reply.get("id").and_then(Value::as_u64) != Some(self.request) {
            return;
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Quiet);
        let result = match reply.get("error") {
            Some(error) => Err(error_text(error)),
            None => Ok(reply.get("result").unwrap_or(&Value::Null)),
        };
        match (phase, result) {
            (Phase::Quiet | Phase::Over, _) => self.phase = phase,
            (Phase::Initialize, Ok(result)) => self.initialized(result, out),
            (Phase::NewSession | Phase::LoadSession, Ok(result)) => self.opened(result, out),
            (Phase::Setting, result) => {
                if let Err(error) = result {
                    wire::trouble(out, &format!("the agent refused a setting: {error}"));
                }
                self.next(out);
            }
            (Phase::Prompt, Ok(result)) => self.turn_ended(result, out),
            (Phase::Prompt, Err(error)) => self.turn_failed(error, out),
            (_, Err(error)) => self.give_up(error, out),
        }
    }

    fn initialized(&mut self, result: &Value, out: &mut Vec<Step>) {
        let version = wire::count(result, "protocolVersion");
        if version != PROTOCOL_VERSION {
            let error = format!("the agent speaks version {version} of the protocol, not {PROTOCOL_VERSION}");
            return self.give_up(error, out);
        }
        let cwd = self.bounds.working_dir.to_string_lossy();
        if self.session.is_empty() {
            let params = json!({"cwd": cwd, "mcpServers": []});
            return self.request(Phase::NewSession, "session/new", &params, out);
        }
        if result.pointer("/agentCapabilities/loadSession") != Some(&Value::Bool(true)) {
            return self.give_up("this agent cannot continue a session".to_owned(), out);
        }
        let params = json!({"sessionId": self.session, "cwd": cwd, "mcpServers": []});
        self.request(Phase::LoadSession, "session/load", &params, out);
    }

    fn opened(&mut self, result: &Value, out: &mut Vec<Step>) {
        let id = wire::name(result, "sessionId");
        if !id.is_empty() {
            id.clone_into(&mut self.session);
        }
        if self.session.is_empty() {
            return self.give_up("the agent opened a session without an id".to_owned(), out);
        }
        self.plan_settings(result, out);
        let current = result.pointer("/models/currentModelId").and_then(Value::as_str).map(str::to_owned);
        let model = self.model.clone().or(current);
        wire::emit(out, Activity::Session { id: self.session.clone(), model });
        self.next(out);
    }

    /// A question is asked in the agent's planning mode where it has one; the model is set by whichever
    /// of the two ways the agent knows.
    fn plan_settings(&mut self, result: &Value, out: &mut Vec<Step>) {
        let option = |category: &str| {
            let options = wire::items(result, "configOptions").iter();
            options.map(|option| (wire::name(option, "id"), option)).find(|(id, option)| {
                !id.is_empty() && (*id == category || wire::text(*option, "category") == category)
            })
        };
        if let Some(model) = &self.model {
            if result.pointer("/models/availableModels").is_some() {
                self.settings.push_back(Setting::Model(model.clone()));
            } else if let Some((id, _)) = option("model") {
                self.settings.push_back(Setting::Option(id.to_owned(), model.clone()));
            } else {
                wire::trouble(out, "this agent does not let its model be chosen");
            }
        }
        if self.bounds.purpose == Purpose::Query {
            let modes = result.pointer("/modes/availableModes").and_then(Value::as_array);
            if modes.is_some_and(|modes| modes.iter().any(|mode| wire::text(mode, "id") == "plan")) {
                self.settings.push_back(Setting::Mode("plan".to_owned()));
            } else if let Some((id, option)) = option("mode")
                && wire::items(option, "options").iter().any(|mode| wire::text(mode, "value") == "plan")
            {
                self.settings.push_back(Setting::Option(id.to_owned(), "plan".to_owned()));
            }
        }
    }

    /// The next request, if there is one and the session is open.
    fn next(&mut self, out: &mut Vec<Step>) {
        if let Some(setting) = self.settings.pop_front() {
            let (method, params) = setting.request(&self.session);
            self.request(Phase::Setting, method, &params, out);
        } else if let Some(text) = self.messages.pop_front() {
            wire::emit(out, Activity::TurnStarted);
            let prompt = json!([{"type": "text", "text": text}]);
            let params = json!({"sessionId": self.session, "prompt": prompt});
            self.request(Phase::Prompt, "session/prompt", &params, out);
        }
    }

    fn updated(&mut self, params: &Value, out: &mut Vec<Step>) {
        let update = params.get("update").unwrap_or(&Value::Null);
        if self.phase == Phase::LoadSession || wire::text(params, "sessionId") != self.session {
            return;
        }
        if let Some(meta) = update.get("_meta").filter(|meta| meta.get("usage").is_some()) {
            self.call_counted(meta, out);
        }
        match wire::text(update, "sessionUpdate") {
            // Words outside of a turn are the agent's remarks on its settings, not its answer.
            "agent_message_chunk" if self.phase != Phase::Prompt => {}
            "agent_message_chunk" => self.chunk(Words::Text, update, out),
            "agent_thought_chunk" => self.chunk(Words::Thinking, update, out),
            "tool_call" | "tool_call_update" => {
                self.flush(out);
                self.calls.update(update, out);
            }
            "usage_update" => self.context(update, out),
            _ => {}
        }
    }

    fn chunk(&mut self, words: Words, update: &Value, out: &mut Vec<Step>) {
        if words != self.words_are {
            self.flush(out);
            self.words_are = words;
        }
        let text = update.get("content").map_or("", |content| wire::text(content, "text"));
        if let Some(text) = self.words.push(text) {
            self.said(text, out);
        }
    }

    fn flush(&mut self, out: &mut Vec<Step>) {
        if let Some(text) = self.words.take() {
            self.said(text, out);
        }
    }

    fn said(&mut self, text: String, out: &mut Vec<Step>) {
        match self.words_are {
            Words::Text => wire::answer(out, &mut self.last_text, &text),
            Words::Thinking => wire::emit(out, Activity::Thinking { text }),
        }
    }

    /// Qwen Code tells the tokens of each call of the model beside an empty chunk; a sub-agent's are marked.
    fn call_counted(&mut self, meta: &Value, out: &mut Vec<Step>) {
        self.counts_calls = true;
        let figures = tokens(meta);
        let context = Tokens { output: 0, ..figures }.total();
        let by_subagent = meta.get("parentToolCallId").is_some_and(|parent| !parent.is_null());
        let context_tokens = Some(context).filter(|context| *context > 0 && !by_subagent);
        let delta = figures.minus(Tokens::default());
        wire::usage(out, Usage { delta, context_tokens, ..Usage::default() });
    }

    fn context(&mut self, update: &Value, out: &mut Vec<Step>) {
        let amount = update.pointer("/cost/amount").and_then(Value::as_f64);
        let cost_usd = self.cost.total(amount);
        if let Some(cost) = cost_usd {
            self.turn_cost_usd = Some(wire::sum_of_costs(self.turn_cost_usd.unwrap_or(0.0), cost));
        }
        wire::usage(
            out,
            Usage {
                context_tokens: wire::count_if_any(update, "used"),
                context_window: wire::count_if_any(update, "size").filter(|window| *window > 0),
                cost_usd,
                ..Usage::default()
            },
        );
    }

    fn asked(&mut self, request: &Value, out: &mut Vec<Step>) {
        let id = request.get("id").cloned().unwrap_or_default();
        let params = request.get("params").unwrap_or(&Value::Null);
        if wire::text(request, "method") != "session/request_permission" {
            let error = json!({"code": METHOD_NOT_FOUND, "message": "this client does not do that"});
            return write(out, &json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
        self.flush(out);
        let asked = params.get("toolCall").unwrap_or(&Value::Null);
        self.calls.update(asked, out);
        let tool = wire::text(asked, "toolCallId");
        let options = Options::of(wire::items(params, "options"));
        // A call that cannot be remembered cannot be judged either.
        let Some(call) = self.calls.asked(tool, out) else { return answer(&id, false, &options, out) };
        let (name, input) = (call.name().to_owned(), call.input());
        let Call { kind, paths, has_more_paths, .. } = call;
        let is_short = id.to_string().len() <= wire::NAME_LIMIT_BYTES && (id.is_string() || id.is_number());
        match self.bounds.decide(&Question { kind, paths, has_more_paths: *has_more_paths }) {
            Decision::Allow => answer(&id, true, &options, out),
            Decision::AskAPerson if is_short && self.questions.len() < QUESTIONS_MAX => {
                let question = id.to_string();
                let asked = Asked { id, options, name: wire::cut(&name, wire::NAME_LIMIT_BYTES) };
                self.questions.insert(question.clone(), asked);
                wire::emit(out, Activity::PermissionAsked { question, name, input });
            }
            Decision::Reject | Decision::AskAPerson => {
                wire::refused(&mut self.denied, &name);
                answer(&id, false, &options, out);
            }
        }
    }

    /// Whether a message can wait.
    fn has_room(&self, text: &str) -> bool {
        let bytes = self.messages.iter().map(String::len).sum::<usize>() + text.len();
        self.messages.is_empty() || (self.messages.len() < QUEUED_MESSAGES_MAX && bytes <= QUEUED_LIMIT_BYTES)
    }

    fn turn_ended(&mut self, result: &Value, out: &mut Vec<Step>) {
        self.flush(out);
        let figures = if self.counts_calls { Tokens::default() } else { tokens(result) };
        // Gemini tells the sum over the turn: each tool led to one more call.
        let is_sum = result.pointer("/_meta/quota").is_some() && self.recorded.is_none();
        let context =
            Tokens { output: 0, ..figures }.total() / std::mem::take(&mut self.tools).saturating_add(1);
        let context_tokens = Some(context).filter(|context| is_sum && *context > 0);
        let delta = figures.minus(Tokens::default());
        wire::usage(out, Usage { delta, context_tokens, ..Usage::default() });
        match wire::text(result, "stopReason") {
            "end_turn" => {
                let text = std::mem::take(&mut self.last_text);
                self.end_turn(TurnEnd { text, ..TurnEnd::default() }, out);
            }
            "cancelled" => self.turn_failed("the turn was cancelled".to_owned(), out),
            "refusal" => self.turn_failed(REFUSED.to_owned(), out),
            "max_tokens" => self.turn_failed(OUT_OF_TOKENS.to_owned(), out),
            "max_turn_requests" => self.turn_failed(OUT_OF_REQUESTS.to_owned(), out),
            other => self.turn_failed(format!("the turn stopped: {}", wire::cut(other, 100)), out),
        }
    }

    fn turn_failed(&mut self, error: String, out: &mut Vec<Step>) {
        self.flush(out);
        crate::limit::told(out, None, &error, "");
        self.end_turn(TurnEnd { is_error: true, error, ..TurnEnd::default() }, out);
    }

    fn end_turn(&mut self, mut end: TurnEnd, out: &mut Vec<Step>) {
        end.denied = std::mem::take(&mut self.denied);
        end.cost_usd = self.turn_cost_usd.take();
        self.last_text.clear();
        self.calls.clear();
        self.questions.clear();
        wire::emit(out, Activity::TurnEnded(end));
        self.next(out);
        self.close_when_through(out);
    }

    fn close_when_through(&mut self, out: &mut Vec<Step>) {
        if self.finishing && self.phase == Phase::Quiet && self.messages.is_empty() {
            out.push(Step::CloseInput);
        }
    }

    fn give_up(&mut self, error: String, out: &mut Vec<Step>) {
        self.phase = Phase::Over;
        wire::emit(out, Activity::TurnEnded(TurnEnd { is_error: true, error, ..TurnEnd::default() }));
        out.push(Step::CloseInput);
    }
}

impl Conversation for Client {
    fn open(&mut self, out: &mut Vec<Step>) {
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false},
            "clientInfo": {"name": "svc", "version": env!("CARGO_PKG_VERSION")},
        });
        self.request(Phase::Initialize, "initialize", &params, out);
    }

    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(message) = wire::own_object(line) else { return wire::noise(line, out) };
        let before = out.len();
        let params = message.get("params").unwrap_or(&Value::Null);
        match (wire::text(&message, "method"), message.get("id").is_some()) {
            ("", true) => self.replied(&message, out),
            ("", false) => wire::noise(line, out),
            (_, true) => self.asked(&message, out),
            ("session/update", false) => self.updated(params, out),
            _ => {}
        }
        let is_tool = |step: &&Step| matches!(step, Step::Event(Activity::ToolStarted { .. }));
        let begun = out[before..].iter().filter(is_tool).count();
        self.tools = self.tools.saturating_add(u64::try_from(begun).unwrap_or_default());
    }

    fn record(&mut self, line: &str, out: &mut Vec<Step>) {
        if let Some(context) =
            gemini::recorded_context(line).filter(|context| self.recorded != Some(*context))
        {
            self.recorded = Some(context);
            wire::usage(out, Usage { context_tokens: Some(context), ..Usage::default() });
        }
    }

    fn interrupt(&mut self, out: &mut Vec<Step>) {
        if self.phase == Phase::Prompt {
            let params = json!({"sessionId": self.session});
            write(out, &json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
        }
    }

    fn decide(&mut self, question: &str, ruling: &Ruling, out: &mut Vec<Step>) {
        let Some(asked) = self.questions.remove(question) else { return };
        if !ruling.allow {
            // The protocol's answer has no room for a reason: it is said as soon as the agent listens.
            let words = format!("About {}: {}", asked.name, ruling.refusal());
            if !ruling.reason.trim().is_empty() && self.has_room(&words) {
                self.messages.push_front(words);
            }
            wire::refused(&mut self.denied, &asked.name);
        }
        answer(&asked.id, ruling.allow, &asked.options, out);
    }

    /// A message waits until the running turn has ended.
    fn say(&mut self, text: &str, out: &mut Vec<Step>) -> bool {
        if self.phase == Phase::Over || !self.has_room(text) {
            return false;
        }
        self.messages.push_back(text.to_owned());
        // Before the first request the session is not open yet.
        if self.phase == Phase::Quiet && self.request > 0 {
            self.next(out);
        }
        true
    }

    fn finish(&mut self, out: &mut Vec<Step>) {
        self.finishing = true;
        self.close_when_through(out);
    }

    fn end(&mut self, out: &mut Vec<Step>) {
        self.flush(out);
    }
}

fn write(out: &mut Vec<Step>, message: &Value) {
    out.push(Step::Write(format!("{message}\n")));
}

fn error_text(error: &Value) -> String {
    let message = wire::text(error, "message");
    // Some tell the cause as details, codex-acp as a message within, others as plain text.
    let details = ["/data/details", "/data/message", "/data"]
        .iter()
        .find_map(|place| error.pointer(place)?.as_str())
        .unwrap_or_default()
        .trim();
    let message = if message.is_empty() { "the agent refused the request" } else { message };
    let text = if details.is_empty() { message.to_owned() } else { format!("{message}: {details}") };
    wire::cut(&text, wire::NOISE_LIMIT_BYTES)
}

/// The tokens of a turn, where the agent tells them. The protocol has no settled form yet: `usage` is an
/// unstable part of it, `_meta.quota` is Gemini's own.
fn tokens(result: &Value) -> Tokens {
    if let Some(quota) = result.pointer("/_meta/quota/token_count") {
        return Tokens {
            input: wire::count(quota, "input_tokens"),
            output: wire::count(quota, "output_tokens"),
            ..Tokens::default()
        };
    }
    let Some(usage) = result.get("usage") else { return Tokens::default() };
    let (input, output) = (wire::count(usage, "inputTokens"), wire::count(usage, "outputTokens"));
    let cache_read = wire::count(usage, "cachedReadTokens");
    let cache_creation = wire::count(usage, "cachedWriteTokens");
    let cached = cache_read.saturating_add(cache_creation);
    let thought = wire::count(usage, "thoughtTokens");
    let apart = input.saturating_add(output).saturating_add(cached);
    // The total tells which classes stand inside another.
    match wire::count_if_any(usage, "totalTokens") {
        Some(total) if total < apart => {
            let input = input.saturating_sub(cached);
            let output = total.saturating_sub(input.saturating_add(cached)).max(output);
            Tokens { input, output, cache_read, cache_creation }
        }
        Some(total) => {
            Tokens { input, output: output + (total - apart).min(thought), cache_read, cache_creation }
        }
        None => Tokens { input, output: output.saturating_add(thought), cache_read, cache_creation },
    }
}
