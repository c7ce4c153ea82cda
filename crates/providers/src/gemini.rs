//! Gemini CLI, one headless run a turn.
//!
//! The prompt stands in `--prompt=...`: with `-p` one that begins with a dash is refused. A long one goes
//! to standard input, which the program takes in its place (tried with gemini-cli 0.61.0).

mod told;

pub(super) use told::Told;

use super::json::{Json, Look};
use super::login::{self, LoginFacts, Source, StateFile};
use super::shares::{Figure, Shares};
use super::terminal::Reads;
use super::wire::{self, Joiner};
use super::{
    Activity, Capabilities, Conversation, Info, Launch, LaunchRequest, Model, Permission, Program, Provider,
    Purpose, RecordPlace, SessionStart, Step, Tier, Tokens, TurnEnd, Usage, outside, saved,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Gemini CLI.
pub struct Gemini;

/// Tokens.
const CONTEXT_WINDOW: u64 = 1_048_576;

const fn model(id: &'static str, name: &'static str, tier: Tier) -> Model {
    Model { id, name, tier, context_window: CONTEXT_WINDOW }
}

static INFO: Info = Info {
    id: "gemini",
    name: "Gemini CLI",
    program: Program::OnPath("gemini", &["--version"]),
    auth_type: "api-key",
    env_key: "GEMINI_API_KEY",
    install_command: "npm install -g @google/gemini-cli",
    package: "@google/gemini-cli",
    home_variable: "GEMINI_CLI_HOME",
    account_homes: &[("GEMINI_CLI_HOME", "")],
    state_places: &[".gemini/"],
    obeyed_places: &[
        ".gemini/settings.json",
        ".gemini/extensions/",
        ".gemini/commands/",
        ".gemini/policies/",
        ".gemini/GEMINI.md",
    ],
    routed: true,
    pass_env: &["GEMINI_*", "GOOGLE_*"],
    needs_fence: true,
    login: LoginFacts {
        command: "gemini",
        source: Source::File(StateFile { path: ".gemini/google_accounts.json", read: login::gemini }),
    },
    models: &[
        // As Gemini CLI 0.61.0 knows them.
        model("gemini-3.8-flash", "Gemini 3.8 Flash", Tier::Medium),
        model("gemini-3.5-flash-lite", "Gemini 3.5 Flash-Lite", Tier::Light),
        model("gemini-3.1-pro-preview", "Gemini 3.1 Pro", Tier::Heavy),
    ],
    any_model: true,
    capabilities: Capabilities { resume: true, live_input: false, hooks: true, mcp: true, headless: true },
    ..Info::PLAIN
};

impl Provider for Gemini {
    fn info(&self) -> &'static Info {
        &INFO
    }

    /// `~/.gemini/tmp/PROJECT/chats/session-TIME-ID.jsonl`, of the id its first eight digits.
    fn record(&self, session: &str, env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<RecordPlace> {
        record_place(session, env)
    }

    /// Its folder for a project has a name of the program's own choice, and notes the project beside it.
    fn kept_sessions(&self, _project: &Path, env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<outside::Kept> {
        let home = env("GEMINI_CLI_HOME").or_else(|| env("HOME"))?;
        Some(outside::Kept::Files(outside::Files {
            root: home.join(".gemini/tmp"),
            depth: 2,
            begins: String::new(),
            note: Some((2, ".project_root")),
        }))
    }

    fn session_reader(&self) -> Option<outside::Reader> {
        Some(outside::Reader::new(Reads::Gemini(Told::default()), told::facts))
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        wire::check_names(request)?;
        let mode = match (request.purpose, request.permission) {
            (Purpose::Query, _) => "plan",
            // Behind the kernel's fence it may do what it wants; without it, it has no shell.
            (Purpose::Work, Permission::Auto) if request.fence.is_some() => "yolo",
            (Purpose::Work, Permission::Auto) => "auto_edit",
            (Purpose::Work, Permission::Full) => "yolo",
        };
        let mut args: Vec<String> =
            ["--output-format", "stream-json", "--skip-trust", "--approval-mode", mode]
                .map(str::to_owned)
                .into();
        if let Some(model) = &request.model {
            args.extend(["-m".to_owned(), model.clone()]);
        }
        match &request.session {
            SessionStart::Fresh => {}
            // Its figures are of the run alone: what was counted before does not come again.
            SessionStart::Resume { id, .. } => args.extend(["--resume".to_owned(), id.clone()]),
            SessionStart::Fork { .. } => return Err("gemini cannot copy a session for a question".to_owned()),
        }
        let long = request.prompt.len() > wire::ARGUMENT_LIMIT_BYTES;
        if !long {
            args.push(format!("--prompt={}", request.prompt));
        }
        let prompt = long.then(|| request.prompt.clone());
        let mut launch = Launch::once("gemini", args, prompt, Stream::default());
        launch.env.push(stays());
        Ok(launch)
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        Launch::restore_once::<Stream>(INFO.id, saved)
    }
}

/// The events of `--output-format stream-json`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    words: Joiner,
    /// The last words: the result does not repeat them.
    last_text: String,
    denied: Vec<String>,
    /// The tokens of the last call, as the record told.
    context: Option<u64>,
    #[serde(default)]
    model: String,
}

/// Has it work in the process that was started. By itself it starts another one of the same program, to let
/// that have half of the machine's memory, and waits beside it with 100 MB of its own (gemini 0.61.0).
pub(super) fn stays() -> (String, String) {
    ("GEMINI_CLI_NO_RELAUNCH".to_owned(), "true".to_owned())
}

/// Where a session's record is. Of an id in another form there is none.
pub(super) fn record_place(session: &str, env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<RecordPlace> {
    let home = env("GEMINI_CLI_HOME").or_else(|| env("HOME"))?;
    let short = session.get(..8).filter(|short| short.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some(RecordPlace { root: home.join(".gemini/tmp"), depth: 2, suffix: format!("-{short}.jsonl") })
}

/// The tokens of one call in a line of the record: the stream tells only sums over the run.
pub(super) fn recorded_context(line: &str) -> Option<u64> {
    let event = line.contains("\"tokens\"").then(|| wire::object(line)).flatten()?;
    let is_answer = wire::text(&event, "type") == "gemini";
    let tokens = event.get("tokens").filter(|_| is_answer)?;
    wire::count_if_any(tokens, "input").filter(|input| *input > 0)
}

impl Stream {
    fn flush(&mut self, out: &mut Vec<Step>) {
        if let Some(text) = self.words.take() {
            self.said(&text, out);
        }
    }

    fn said(&mut self, text: &str, out: &mut Vec<Step>) {
        wire::say(out, text);
        wire::remember(&mut self.last_text, text);
    }

    fn message(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let content = wire::text(event, "content");
        if wire::text(event, "role") != "assistant" {
            self.flush(out);
            return;
        }
        if event.get("delta").and_then(Json::as_bool).unwrap_or(false) {
            if let Some(text) = self.words.push(content) {
                self.said(&text, out);
            }
        } else {
            self.flush(out);
            self.said(content, out);
        }
    }

    fn tool_result(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let problem = event.get("error").unwrap_or(&Json::Null);
        let failed = wire::text(event, "status") != "success";
        let output = wire::text(event, "output");
        let output = if output.is_empty() { wire::text(problem, "message") } else { output };
        wire::tool_ended(out, wire::text(event, "tool_id"), failed, output);
        if wire::text(problem, "type") == "policy_violation" {
            // The program builds its call ids as `<tool>__<tool>_<time>_<n>`.
            let id = wire::text(event, "tool_id");
            wire::refused(&mut self.denied, id.split_once("__").map_or(id, |(name, _)| name));
        }
    }

    fn result(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let stats = event.get("stats").unwrap_or(&Json::Null);
        let delta = tokens(stats).minus(Tokens::default());
        // Without the record about the last call: each tool led to one more.
        let calls = wire::count(stats, "tool_calls").saturating_add(1);
        let about = wire::count(stats, "input_tokens").checked_div(calls);
        let context_tokens = if self.context.is_some() { None } else { about };
        let context_tokens = context_tokens.filter(|context| *context > 0);
        let mut usage = Usage { delta, context_tokens, ..Usage::default() };
        for part in by_model(&self.model, stats, &mut usage) {
            wire::usage(out, part);
        }
        wire::usage(out, usage);
        let is_error = wire::text(event, "status") != "success";
        let message = event.get("error").map_or("", |error| wire::text(error, "message"));
        let message = if message.is_empty() { "the turn failed" } else { message };
        let text = std::mem::take(&mut self.last_text);
        if is_error {
            super::limit::told(out, None, message, "");
        }
        wire::emit(
            out,
            Activity::TurnEnded(TurnEnd {
                text: if is_error { String::new() } else { text },
                is_error,
                error: if is_error { wire::cut(message, wire::NOISE_LIMIT_BYTES) } else { String::new() },
                duration_ms: wire::count_if_any(stats, "duration_ms"),
                denied: std::mem::take(&mut self.denied),
                ..TurnEnd::default()
            }),
        );
    }
}

impl Conversation for Stream {
    fn save(&self) -> String {
        saved::save(self)
    }

    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line) else { return wire::noise(line, out) };
        let kind = wire::text(&event, "type");
        if kind != "message" {
            self.flush(out);
        }
        match kind {
            "" => wire::noise(line, out),
            "init" => {
                let (id, model) = (wire::text(&event, "session_id"), wire::name(&event, "model"));
                model.clone_into(&mut self.model);
                if !id.is_empty() {
                    let model = (!model.is_empty()).then(|| model.to_owned());
                    wire::emit(out, Activity::Session { id: id.to_owned(), model });
                }
                wire::emit(out, Activity::TurnStarted);
            }
            "message" => self.message(&event, out),
            "tool_use" => tool_started(&event, out),
            "tool_result" => self.tool_result(&event, out),
            "error" => wire::trouble(out, wire::text(&event, "message")),
            "result" => self.result(&event, out),
            _ => {}
        }
    }

    fn record(&mut self, line: &str, out: &mut Vec<Step>) {
        if let Some(context) = recorded_context(line).filter(|context| self.context != Some(*context)) {
            self.context = Some(context);
            wire::usage(out, Usage { context_tokens: Some(context), ..Usage::default() });
        }
    }

    /// Only there it says that it tries again: `Attempt 2 failed. Retrying with backoff... Error: ...`.
    fn complaint(&mut self, line: &str, out: &mut Vec<Step>) {
        if line.starts_with("Attempt ") && line.contains(" failed") {
            wire::trouble(out, line);
        }
    }

    fn end(&mut self, out: &mut Vec<Step>) {
        self.flush(out);
    }
}

fn tool_started(event: &Json<'_>, out: &mut Vec<Step>) {
    let name = wire::text(event, "tool_name").to_owned();
    let input = event.get("parameters").map(Json::to_value).unwrap_or_default();
    let writes = matches!(name.as_str(), "write_file" | "replace" | "edit");
    let path = if writes || name == "read_file" { wire::path_in(&input) } else { None };
    let id = wire::text(event, "tool_id").to_owned();
    wire::emit(out, Activity::ToolStarted { id, name, input, path, writes });
}

/// A call in the record, which stands there when it is over.
fn tool_called(call: &Json<'_>, out: &mut Vec<Step>) {
    let name = wire::text(call, "name").to_owned();
    let input = call.get("args").map(Json::to_value).unwrap_or_default();
    let writes = matches!(name.as_str(), "write_file" | "replace" | "edit");
    let path = if writes || name == "read_file" { wire::path_in(&input) } else { None };
    let id = wire::text(call, "id").to_owned();
    wire::emit(out, Activity::ToolStarted { id: id.clone(), name, input, path, writes });
    let answers = wire::items(call, "result").iter().filter_map(|part| part.get("functionResponse"));
    let words = answers.filter_map(|answer| answer.get("response"));
    let words = words.map(|response| ["output", "error"].map(|key| wire::text(response, key)).concat());
    let output = words.collect::<Vec<_>>().join("\n");
    wire::tool_ended(out, &id, wire::text(call, "status") != "success", &output);
}

/// Of one call in the record; thinking stands beside the output.
fn recorded_tokens(figures: &Json<'_>) -> Tokens {
    let (all_input, cache_read) = (wire::count(figures, "input"), wire::count(figures, "cached"));
    let output = wire::count(figures, "output");
    Tokens {
        input: all_input.saturating_sub(cache_read),
        output: wire::count(figures, "total").saturating_sub(all_input).max(output),
        cache_read: cache_read.min(all_input),
        cache_creation: 0,
    }
}

/// Cached input stands inside the input here; thinking stands only in the total.
/// Of a run's `stats`, what other models than the session's have used. Where that is chosen anew for each
/// call, the rest goes by the name of the one that was used most.
fn by_model(model: &str, stats: &Json<'_>, usage: &mut Usage) -> Vec<Usage> {
    let told = stats.get("models").map(Json::fields).unwrap_or_default();
    let told = told.into_iter().filter(|(name, _)| name.len() <= wire::NAME_LIMIT_BYTES);
    let figure = |(name, stats): (&str, &Json<'_>)| Figure {
        name: name.to_owned(),
        total: tokens(stats),
        ..Figure::default()
    };
    let figures: Vec<Figure> = told.map(figure).collect();
    if model.starts_with("auto") {
        let most = figures.iter().max_by_key(|figure| figure.total.total());
        usage.model = most.map(|figure| figure.name.clone());
    }
    Shares::default().part(model, &figures, false, usage)
}

fn tokens(stats: &Json<'_>) -> Tokens {
    let (all_input, cache_read) = (wire::count(stats, "input_tokens"), wire::count(stats, "cached"));
    let output = wire::count(stats, "output_tokens");
    Tokens {
        input: all_input.saturating_sub(cache_read),
        output: wire::count(stats, "total_tokens").saturating_sub(all_input).max(output),
        cache_read: cache_read.min(all_input),
        cache_creation: 0,
    }
}
