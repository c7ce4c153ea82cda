//! GitHub Copilot CLI, one headless run a turn.
//!
//! The prompt comes on standard input, which is then closed: no prompt is taken for an option, however it
//! begins, and none is too long (tried with copilot 1.0.102). In this mode the program tells no token counts,
//! only how full its context is after a tool call. It hides the value of its key wherever that occurs in its
//! output, so that a short key spoils the words.

use super::json::{Json, Look};
use super::login::{self, LoginFacts, Source, StateFile};
use super::wire;
use super::{
    Activity, Args, Capabilities, Conversation, Info, Launch, LaunchRequest, Once, Permission, Program,
    Provider, Purpose, SessionStart, Step, TurnEnd, Usage, saved,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// GitHub Copilot CLI.
pub struct Copilot;

/// Of at most this many running tool calls the name is kept.
const OPEN_CALLS_MAX: usize = 256;

static INFO: Info = Info {
    id: "copilot",
    name: "GitHub Copilot CLI",
    program: Program::OnPath("copilot", &["--version"]),
    auth_type: "login",
    env_key: "COPILOT_GITHUB_TOKEN",
    install_command: "npm install -g @github/copilot",
    // It unpacks itself into the last.
    state_places: &[".copilot/", ".cache/copilot/"],
    account_homes: &[("COPILOT_HOME", "")],
    obeyed_places: &[".copilot/mcp-config.json", ".copilot/hooks/", ".copilot/agents/"],
    pass_env: &["COPILOT_*", "GH_TOKEN", "GITHUB_TOKEN"],
    needs_fence: true,
    login: LoginFacts {
        command: "copilot login",
        source: Source::File(StateFile { path: ".copilot/config.json", read: login::copilot }),
    },
    capabilities: Capabilities { resume: true, live_input: false, hooks: false, mcp: false, headless: true },
    ..Info::PLAIN
};

impl Provider for Copilot {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        wire::check_names(request)?;
        let mut args = Args::of(&["--output-format", "json"]);
        match (request.purpose, request.permission) {
            // What is denied stays denied, whatever the user's settings allow.
            (Purpose::Query, _) => args.add(&["--deny-tool=write", "--deny-tool=shell"]),
            (Purpose::Work, Permission::Auto) if request.fence.is_some() => args.add(&["--allow-all-tools"]),
            // Without the kernel's fence and anybody to ask, it refuses all else that changes something.
            (Purpose::Work, Permission::Auto) => args.add(&["--allow-tool=write"]),
            (Purpose::Work, Permission::Full) => args.add(&["--allow-all-tools", "--allow-all-paths"]),
        }
        args.model("--model", request);
        args.effort("--reasoning-effort", ["low", "high", "max"], request);
        match &request.session {
            SessionStart::Fresh => {}
            // The option's value may be left out, so that it must stand in the same word.
            SessionStart::Resume { id, .. } => args.add(&[&format!("--resume={id}")]),
            SessionStart::Fork { .. } => {
                return Err("copilot cannot copy a session for a question".to_owned());
            }
        }
        Ok(Launch::once("copilot", args, Some(request.prompt.clone()), Stream::default()))
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<Once<Stream>>(INFO.id, saved)
    }
}

/// The events of `--output-format json`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    model: String,
    working: bool,
    /// Running tool calls and the tools' names.
    open_calls: BTreeMap<String, String>,
    last_text: String,
    error: String,
    /// Somebody has broken its turn off; its result calls that a success.
    aborted: bool,
    denied: Vec<String>,
}

impl Stream {
    fn tool_started(&mut self, data: &Json<'_>, out: &mut Vec<Step>) {
        let (id, name) = (wire::text(data, "toolCallId").to_owned(), wire::text(data, "toolName").to_owned());
        let input = data.get("arguments").map(Json::to_value).unwrap_or_default();
        let writes = matches!(name.as_str(), "create" | "edit");
        let path = if writes || name == "view" { wire::path_in(&input) } else { None };
        let is_short = id.len().max(name.len()) <= wire::NAME_LIMIT_BYTES;
        if is_short && self.open_calls.len() < OPEN_CALLS_MAX {
            self.open_calls.insert(id.clone(), name.clone());
        }
        wire::emit(out, Activity::ToolStarted { id, name, input, path, writes });
    }

    fn tool_ended(&mut self, data: &Json<'_>, out: &mut Vec<Step>) {
        let id = wire::text(data, "toolCallId");
        let name = self.open_calls.remove(id).unwrap_or_default();
        let is_success = data.get("success").and_then(Json::as_bool).unwrap_or(false);
        let problem = data.get("error").unwrap_or(&Json::Null);
        let output = match data.get("result") {
            Some(result) if is_success => wire::text(result, "content"),
            _ => wire::text(problem, "message"),
        };
        wire::tool_ended(out, id, !is_success, output);
        if wire::text(problem, "code") == "denied" && !name.is_empty() {
            wire::refused(&mut self.denied, &name);
        }
        if let Some(metrics) = data.get("toolTelemetry").and_then(|telemetry| telemetry.get("metrics")) {
            let filled = |key| wire::count_if_any(metrics, key).filter(|count| *count > 0);
            let context_tokens = filled("context_current_tokens");
            let context_window = filled("context_token_limit");
            wire::usage(out, Usage { context_tokens, context_window, ..Usage::default() });
        }
    }

    fn result(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let id = wire::text(event, "sessionId");
        if !id.is_empty() {
            let model = std::mem::take(&mut self.model);
            let model = (!model.is_empty()).then_some(model);
            wire::emit(out, Activity::Session { id: id.to_owned(), model });
        }
        wire::turn_started(out, &mut self.working);
        self.working = false;
        let aborted = std::mem::take(&mut self.aborted);
        let is_error = aborted || event.get("exitCode").and_then(Json::as_i64) != Some(0);
        let text = std::mem::take(&mut self.last_text);
        let mut error = std::mem::take(&mut self.error);
        if error.is_empty() {
            let words = if aborted { "the turn was aborted" } else { "the turn failed" };
            words.clone_into(&mut error);
        }
        let denied = std::mem::take(&mut self.denied);
        let end = TurnEnd { denied, ..TurnEnd::of(text, is_error.then_some(error)) };
        wire::emit(out, Activity::TurnEnded(end));
    }
}

impl Conversation for Stream {
    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line) else { return wire::noise(line, out) };
        let data = event.get("data").unwrap_or(&Json::Null);
        match wire::text(&event, "type") {
            "" => wire::noise(line, out),
            "session.tools_updated" => wire::name(data, "model").clone_into(&mut self.model),
            "user.message" | "assistant.turn_start" => wire::turn_started(out, &mut self.working),
            "assistant.reasoning" => wire::think(out, wire::text(data, "content")),
            "assistant.message" => {
                let words = wire::text(data, "content");
                if !words.is_empty() {
                    wire::answer(out, &mut self.last_text, words);
                }
            }
            "tool.execution_start" => self.tool_started(data, out),
            "tool.execution_complete" => self.tool_ended(data, out),
            "model.call_failure" => {
                let words = failure_text(data);
                super::limit::told(out, wire::count_if_any(data, "statusCode"), &words, "");
                wire::trouble(out, &words);
            }
            "session.error" => {
                let kind = wire::text(data, "errorType");
                let status = match wire::count_if_any(data, "statusCode") {
                    None if matches!(kind, "rate_limit" | "quota") => Some(429),
                    told => told,
                };
                super::limit::told(out, status, wire::text(data, "message"), "");
                self.error = wire::cut(wire::text(data, "message"), wire::NOISE_LIMIT_BYTES);
            }
            "abort" => self.aborted = true,
            "session.compaction_complete" => wire::emit(out, Activity::Compacted),
            "result" => self.result(&event, out),
            _ => {}
        }
    }
}

/// A refused call of the model, for people. The endpoint's own answer stands in it as JSON, or as words.
fn failure_text(data: &Json<'_>) -> String {
    let told = wire::text(data, "errorMessage");
    let answer = wire::object(told);
    let words = answer.as_ref().map(|answer| wire::text(answer, "message")).filter(|text| !text.is_empty());
    let words = words.unwrap_or(told);
    match wire::count_if_any(data, "statusCode") {
        Some(status) => format!("the model's endpoint answered {status}: {words}"),
        None => format!("the model's endpoint failed: {words}"),
    }
}
