//! Cline, one headless run a turn.
//!
//! The prompt comes on standard input, which is then closed, and the argument is a single space: a prompt of
//! one word would be taken for a command, an empty one for a wish to talk, and one that is too long for an
//! argument not at all (tried with cline 3.0.65). It cannot continue a session without a terminal, and knows
//! only all permissions or none: in [`Permission::Auto`] it has all behind the kernel's fence; without one it
//! reads and answers, and what changes something is refused and named.

use super::json::{Json, Look};
use super::login::{self, LoginFacts, Source, StateFile};
use super::wire::{self, Joiner, Meter};
use super::{
    Activity, Args, Capabilities, Conversation, Info, Launch, LaunchRequest, Once, Permission, Program,
    Provider, Purpose, SessionStart, Step, Tokens, TurnEnd, Usage, saved,
};
use serde::{Deserialize, Serialize};

/// Cline.
pub struct Cline;

static INFO: Info = Info {
    id: "cline",
    name: "Cline",
    program: Program::OnPath("cline", &["--version"]),
    // `cline auth` writes the provider, its key and the model into a file.
    auth_type: "login",
    install_command: "npm install -g cline",
    state_places: &[".cline/"],
    obeyed_places: &[".cline/hooks/", ".cline/data/settings/cline_mcp_settings.json", ".cline/data/hooks/"],
    pass_env: &["CLINE_*"],
    vendor_keys: true,
    needs_fence: true,
    login: LoginFacts {
        command: "cline auth",
        source: Source::File(StateFile { path: ".cline/data/settings/providers.json", read: login::cline }),
    },
    capabilities: Capabilities { resume: false, live_input: false, hooks: false, mcp: false, headless: true },
    ..Info::PLAIN
};

impl Provider for Cline {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        wire::check_names(request)?;
        if request.session != SessionStart::Fresh {
            return Err("cline cannot continue a session without a terminal".to_owned());
        }
        let mut args = Args::of(&["--json"]);
        match (request.purpose, request.permission) {
            (Purpose::Query, _) => args.add(&["--plan", "--auto-approve", "false"]),
            (Purpose::Work, Permission::Auto) if request.fence.is_none() => {
                args.add(&["--auto-approve", "false"]);
            }
            (Purpose::Work, _) => args.add(&["--auto-approve", "true"]),
        }
        args.model("-m", request);
        args.effort("--thinking", ["low", "high", "xhigh"], request);
        args.add(&["--", " "]);
        Ok(Launch::once("cline", args, Some(request.prompt.clone()), Stream::default()))
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<Once<Stream>>(INFO.id, saved)
    }
}

/// The events of `--json`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    session: String,
    working: bool,
    words: Joiner,
    last_text: String,
    meter: Meter,
    error: String,
    denied: Vec<String>,
}

impl Stream {
    fn flush(&mut self, out: &mut Vec<Step>) {
        if let Some(text) = self.words.take() {
            wire::answer(out, &mut self.last_text, &text);
        }
    }

    fn hook_event(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let id = wire::name(event, "taskId");
        let by_subagent = event.get("parentAgentId").is_some_and(|parent| !parent.is_null());
        if self.session.is_empty() && !id.is_empty() && !by_subagent {
            id.clone_into(&mut self.session);
            wire::emit(out, Activity::Session { id: id.to_owned(), model: None });
        }
    }

    fn agent_event(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        wire::turn_started(out, &mut self.working);
        let kind = wire::text(event, "type");
        match (kind, wire::text(event, "contentType")) {
            ("content_start", "text") => {
                if let Some(text) = self.words.push(wire::text(event, "text")) {
                    wire::answer(out, &mut self.last_text, &text);
                }
            }
            ("content_end", "text") => self.flush(out),
            ("content_end", "reasoning") => wire::think(out, wire::text(event, "text")),
            ("content_start", "tool") => {
                self.flush(out);
                tool_started(event, out);
            }
            ("content_end", "tool") => self.tool_ended(event, out),
            ("usage", _) => self.usage(event, out),
            ("error", _) => self.failed(event, out),
            _ => {}
        }
    }

    fn tool_ended(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let output = event.get("output").unwrap_or(&Json::Null);
        let outputs = output.as_array().unwrap_or(std::slice::from_ref(output));
        let refused = outputs.iter().any(|part| wire::text(part, "error").contains("requires approval in a"));
        let failed = |part: &Json<'_>| part.get("success").and_then(Json::as_bool) == Some(false);
        let error = event.get("error").is_some_and(|error| !error.is_null()) || outputs.iter().any(failed);
        wire::tool_ended(out, wire::text(event, "toolCallId"), error, &words_of(outputs));
        if refused {
            wire::refused(&mut self.denied, wire::text(event, "toolName"));
        }
    }

    /// The figures of one call of the model, so that counters move during a turn: the end has the total.
    fn usage(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let figures = tokens(event);
        let delta = self.meter.provisional(figures);
        let context = Tokens { output: 0, ..figures }.total();
        wire::usage(out, Usage { delta, context_tokens: Some(context), ..Usage::default() });
    }

    fn failed(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let message = event.get("error").map_or("", |error| wire::text(error, "message"));
        if event.get("recoverable").and_then(Json::as_bool) != Some(true) {
            self.error = wire::cut(message, wire::NOISE_LIMIT_BYTES);
            super::limit::told(out, None, message, "");
        } else if !message.contains(" tool call(s) failed") {
            // Of failed tool calls each has told its own end.
            wire::trouble(out, message);
        }
    }

    fn result(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        self.flush(out);
        wire::turn_started(out, &mut self.working);
        let mut cost_usd = None;
        // With sub-agents, where there were some.
        if let Some(figures) = event.get("aggregateUsage").or(event.get("usage")) {
            cost_usd = figures.get("totalCost").and_then(Json::as_f64).filter(|cost| *cost >= 0.0);
            let delta = self.meter.total(tokens(figures));
            wire::usage(out, Usage { delta, cost_usd, ..Usage::default() });
        }
        let is_error = wire::text(event, "finishReason") != "completed";
        let text = wire::text(event, "text");
        let told = if text.is_empty() { std::mem::take(&mut self.last_text) } else { text.to_owned() };
        let error = Some(std::mem::take(&mut self.error)).filter(|error| !error.is_empty());
        let error = error.unwrap_or_else(|| {
            let reason = wire::text(event, "finishReason");
            let words = if text.is_empty() { reason } else { text };
            format!("the turn failed: {}", wire::cut(words, wire::NOISE_LIMIT_BYTES))
        });
        let end = TurnEnd {
            turns: wire::count_if_any(event, "iterations"),
            duration_ms: wire::count_if_any(event, "durationMs"),
            cost_usd,
            ..TurnEnd::of(told, is_error.then_some(error))
        };
        self.turn_ended(end, out);
    }

    fn turn_ended(&mut self, mut end: TurnEnd, out: &mut Vec<Step>) {
        end.denied = std::mem::take(&mut self.denied);
        wire::emit(out, Activity::TurnEnded(end));
        self.working = false;
    }
}

impl Conversation for Stream {
    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line) else { return wire::noise(line, out) };
        match wire::text(&event, "type") {
            "" => wire::noise(line, out),
            "hook_event" => self.hook_event(&event, out),
            "agent_event" => self.agent_event(event.get("event").unwrap_or(&Json::Null), out),
            "run_result" => self.result(&event, out),
            // It did not get as far as a run.
            "error" => {
                wire::turn_started(out, &mut self.working);
                let message = wire::text(&event, "message");
                let error = if message.is_empty() { "the turn failed" } else { message };
                let error = wire::cut(error, wire::NOISE_LIMIT_BYTES);
                super::limit::told(out, None, &error, "");
                self.turn_ended(TurnEnd { is_error: true, error, ..TurnEnd::default() }, out);
            }
            _ => {}
        }
    }

    fn end(&mut self, out: &mut Vec<Step>) {
        self.flush(out);
    }
}

fn tool_started(event: &Json<'_>, out: &mut Vec<Step>) {
    let name = wire::text(event, "toolName").to_owned();
    let input = event.get("input").map(Json::to_value).unwrap_or_default();
    let path = if name == "editor" { wire::path_in(&input) } else { None };
    let writes = path.is_some();
    let id = wire::text(event, "toolCallId").to_owned();
    wire::emit(out, Activity::ToolStarted { id, name, input, path, writes });
}

/// What the parts of a tool's output say, each its result or its error.
fn words_of(outputs: &[Json<'_>]) -> String {
    wire::joined(outputs.iter().map(|part| {
        let error = wire::text(part, "error");
        if error.is_empty() { wire::text(part, "result") } else { error }
    }))
}

/// Cached tokens stand inside the input here.
fn tokens(figures: &Json<'_>) -> Tokens {
    let all_input = wire::count(figures, "inputTokens");
    let cache_read = wire::count(figures, "cacheReadTokens").min(all_input);
    let cache_creation = wire::count(figures, "cacheWriteTokens").min(all_input - cache_read);
    Tokens {
        input: all_input - cache_read - cache_creation,
        output: wire::count(figures, "outputTokens"),
        cache_read,
        cache_creation,
    }
}
