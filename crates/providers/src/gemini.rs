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
    Activity, Args, Capabilities, Conversation, Env, Info, Launch, LaunchRequest, Model, Once, Permission,
    Program, Provider, Purpose, RecordPlace, SessionStart, Step, Tier, Tokens, TurnEnd, Usage, outside,
    saved,
};
use serde::{Deserialize, Serialize};
use std::path::Path;

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
    capabilities: Capabilities { resume: true, live_input: false, hooks: true, mcp: true, headless: true },
    ..Info::PLAIN
};

impl Provider for Gemini {
    fn info(&self) -> &'static Info {
        &INFO
    }

    /// `~/.gemini/tmp/PROJECT/chats/session-TIME-ID.jsonl`, of the id its first eight digits.
    fn record(&self, session: &str, env: Env<'_>) -> Option<RecordPlace> {
        record_place(session, env)
    }

    /// Its folder for a project has a name of the program's own choice, and notes the project beside it.
    fn kept_sessions(&self, _project: &Path, env: Env<'_>) -> Option<outside::Kept> {
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
        let mut args = Args::of(&["--output-format", "stream-json", "--skip-trust", "--approval-mode", mode]);
        args.model("-m", request);
        match &request.session {
            SessionStart::Fresh => {}
            // Its figures are of the run alone: what was counted before does not come again.
            SessionStart::Resume { id, .. } => args.add(&["--resume", id]),
            SessionStart::Fork { .. } => return Err("gemini cannot copy a session for a question".to_owned()),
        }
        let long = request.prompt.len() > wire::ARGUMENT_LIMIT_BYTES;
        if !long {
            args.add(&[&format!("--prompt={}", request.prompt)]);
        }
        let prompt = long.then(|| request.prompt.clone());
        let mut launch = Launch::once("gemini", args, prompt, Stream::default());
        launch.env.push(stays());
        Ok(launch)
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<Once<Stream>>(INFO.id, saved)
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
pub(super) fn record_place(session: &str, env: Env<'_>) -> Option<RecordPlace> {
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
            wire::answer(out, &mut self.last_text, &text);
        }
    }

    fn message(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let content = wire::text(event, "content");
        if wire::text(event, "role") != "assistant" {
            self.flush(out);
            return;
        }
        if event.get("delta").and_then(Json::as_bool).unwrap_or(false) {
            if let Some(text) = self.words.push(content) {
                wire::answer(out, &mut self.last_text, &text);
            }
        } else {
            self.flush(out);
            wire::answer(out, &mut self.last_text, content);
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
        let delta = tokens(stats, OF_RUN).minus(Tokens::default());
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
        let failure = is_error.then(|| wire::failure(out, event));
        let end = TurnEnd {
            duration_ms: wire::count_if_any(stats, "duration_ms"),
            denied: std::mem::take(&mut self.denied),
            ..TurnEnd::of(std::mem::take(&mut self.last_text), failure)
        };
        wire::emit(out, Activity::TurnEnded(end));
    }
}

impl Conversation for Stream {
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
            "tool_use" => {
                let (id, name) = (wire::text(&event, "tool_id"), wire::text(&event, "tool_name"));
                tool_started(id, name, event.get("parameters"), out);
            }
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

fn tool_started(id: &str, name: &str, input: Option<&Json<'_>>, out: &mut Vec<Step>) {
    let input = input.map(Json::to_value).unwrap_or_default();
    let writes = matches!(name, "write_file" | "replace" | "edit");
    let path = if writes || name == "read_file" { wire::path_in(&input) } else { None };
    let (id, name) = (id.to_owned(), name.to_owned());
    wire::emit(out, Activity::ToolStarted { id, name, input, path, writes });
}

/// A call in the record, which stands there when it is over.
fn tool_called(call: &Json<'_>, out: &mut Vec<Step>) {
    let id = wire::text(call, "id");
    tool_started(id, wire::text(call, "name"), call.get("args"), out);
    let answers = wire::items(call, "result").iter().filter_map(|part| part.get("functionResponse"));
    let words = answers.filter_map(|answer| answer.get("response"));
    let words = words.map(|response| ["output", "error"].map(|key| wire::text(response, key)).concat());
    let output = words.collect::<Vec<_>>().join("\n");
    wire::tool_ended(out, id, wire::text(call, "status") != "success", &output);
}

/// Of a run's `stats`, what other models than the session's have used. Where that is chosen anew for each
/// call, the rest goes by the name of the one that was used most.
fn by_model(model: &str, stats: &Json<'_>, usage: &mut Usage) -> Vec<Usage> {
    let told = stats.get("models").map(Json::fields).unwrap_or_default();
    let told = told.into_iter().filter(|(name, _)| name.len() <= wire::NAME_LIMIT_BYTES);
    let figure = |(name, stats): (&str, &Json<'_>)| Figure {
        name: name.to_owned(),
        total: tokens(stats, OF_RUN),
        ..Figure::default()
    };
    let figures: Vec<Figure> = told.map(figure).collect();
    if model.starts_with("auto") {
        let most = figures.iter().max_by_key(|figure| figure.total.total());
        usage.model = most.map(|figure| figure.name.clone());
    }
    Shares::default().part(model, &figures, false, usage)
}

/// What the figures of a run are called: input, of it cached, output, and the total.
const OF_RUN: [&str; 4] = ["input_tokens", "cached", "output_tokens", "total_tokens"];
/// And those of one call in the record.
const OF_CALL: [&str; 4] = ["input", "cached", "output", "total"];

/// Cached input stands inside the input here; thinking stands only in the total.
fn tokens(figures: &Json<'_>, names: [&str; 4]) -> Tokens {
    let [all_input, cache_read, output, total] = names.map(|name| wire::count(figures, name));
    Tokens {
        input: all_input.saturating_sub(cache_read),
        output: total.saturating_sub(all_input).max(output),
        cache_read: cache_read.min(all_input),
        cache_creation: 0,
    }
}
