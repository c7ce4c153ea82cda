//! Codex, one `codex exec` a turn.
//!
//! The prompt comes on standard input, which is then closed. The command line was tried with codex
//! 0.169.0: `-s`, `-m`, `-c` and `--json` stand before `resume` and hold for it too.

use super::json::{Json, Look};
use super::limit::{self, Limit};
use super::login::{self, LoginFacts, Source};
use super::terminal::{self, AtTerminal, Reads};
use super::wire::{self, Meter};
use super::{
    Activity, Args, Capabilities, Carried, Conversation, Cut, Env, Info, Launch, LaunchRequest, Model, Once,
    Permission, Program, Provider, Purpose, RecordPlace, SessionStart, Step, Tier, Tokens, TokensDelta,
    TurnEnd, Usage, carried, cut, outside, saved,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use svc_base::time::Time;

/// Codex.
pub struct Codex;

/// At most this many files of one change are named.
const CHANGES_MAX: usize = 256;
/// At most this many calls are remembered as begun. The end of one beyond it is told with its begin.
const OPEN_CALLS_MAX: usize = 1024;

/// Tokens that codex 0.169.0 fills before it makes room: 95 % of what it lists for these models.
const CONTEXT_WINDOW: u64 = 258_400;

static INFO: Info = Info {
    id: "codex",
    name: "Codex",
    program: Program::OnPath("codex", &["--version"]),
    auth_type: "api-key",
    env_key: "OPENAI_API_KEY",
    install_command: "npm install -g @openai/codex",
    state_places: &[".codex/"],
    account_homes: &[("CODEX_HOME", "")],
    obeyed_places: &[".codex/config.toml", ".codex/hooks.json", ".codex/rules/", ".codex/AGENTS.md"],
    routed: true,
    has_screen: true,
    pass_env: &["OPENAI_*", "CODEX_*"],
    // Its settings name the variable with a model provider's key (`env_key`).
    vendor_keys: true,
    login: LoginFacts { command: "codex login", source: Source::Program(&["login", "status"], login::codex) },
    models: &[
        // As codex 0.169.0 offers them.
        Model { id: "gpt-6.1-terra", name: "GPT-6.1 Terra", tier: Tier::Medium, context_window: 475_000 },
        Model { id: "gpt-6-luna", name: "GPT-6 Luna", tier: Tier::Light, context_window: CONTEXT_WINDOW },
        Model { id: "gpt-6.1-sol", name: "GPT-6.1 Sol", tier: Tier::Heavy, context_window: CONTEXT_WINDOW },
        Model { id: "gpt-6-astra", name: "GPT-6 Astra", tier: Tier::Heavy, context_window: CONTEXT_WINDOW },
    ],
    capabilities: Capabilities { resume: true, live_input: false, hooks: false, mcp: true, headless: true },
    ..Info::PLAIN
};

impl Provider for Codex {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn forks(&self) -> bool {
        true
    }

    fn forks_elsewhere(&self) -> bool {
        true
    }

    fn cut(&self, record: &str, at: Time) -> Option<Cut> {
        cut::lines(record, at, self.session_reader()?)
    }

    /// `$CODEX_HOME/sessions/YEAR/MONTH/DAY/rollout-TIME-THREAD.jsonl`.
    fn record(&self, session: &str, env: Env<'_>) -> Option<RecordPlace> {
        let root = home(env)?.join("sessions");
        Some(RecordPlace { root, depth: 3, suffix: format!("-{session}.jsonl") })
    }

    fn kept_sessions(&self, _project: &Path, env: Env<'_>) -> Option<outside::Kept> {
        let root = home(env)?.join("sessions");
        Some(outside::Kept::Files(outside::Files { root, depth: 3, begins: String::new(), note: None }))
    }

    fn carried(&self, session: &str, _project: &Path, _folder: &Path, env: Env<'_>) -> Carried {
        match home(env).filter(|_| carried::is_name(session)) {
            Some(root) => {
                let file = carried::File::OfDay { folder: "sessions", session: session.to_owned() };
                Carried::File(carried::Place { root, file })
            }
            None => Carried::Stays("its session has no name that a file could have"),
        }
    }

    fn session_reader(&self) -> Option<outside::Reader> {
        Some(outside::Reader::new(Reads::Codex(Told { meter: Meter::default() }), facts))
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        wire::check_names(request)?;
        let sandbox = match (request.purpose, request.permission) {
            (Purpose::Query, _) => "read-only",
            (Purpose::Work, Permission::Auto) => "workspace-write",
            (Purpose::Work, Permission::Full) => "danger-full-access",
        };
        let mut args = Args::of(&["exec", "--json", "--skip-git-repo-check", "-s", sandbox]);
        args.model("-m", request);
        let levels = [
            "model_reasoning_effort=low",
            "model_reasoning_effort=high",
            // The highest level that all of its models take.
            "model_reasoning_effort=xhigh",
        ];
        args.effort("-c", levels, request);
        let counted = match &request.session {
            SessionStart::Fresh => Tokens::default(),
            SessionStart::Resume { id, counted } => {
                args.add(&["resume", id]);
                *counted
            }
            // A copy goes on counting from the original's total.
            SessionStart::Fork { id, counted } => {
                args.add(&["fork", id]);
                *counted
            }
        };
        args.add(&["-"]);
        let stream = Stream { meter: Meter::starting_at(counted), ..Stream::default() };
        Ok(Launch::once("codex", args, Some(request.prompt.clone()), stream))
    }

    fn at_terminal(&self, request: &LaunchRequest, _since: u64) -> Result<AtTerminal, String> {
        let (session, counted) = terminal::session(request)?;
        let sandbox = match request.permission {
            Permission::Auto => "workspace-write",
            Permission::Full => "danger-full-access",
        };
        let mut args = Args::of(&["-s", sandbox]);
        args.model("-m", request);
        if request.room.is_some() {
            // Whether it may trust the folder it would ask at each start, and could not note the answer in a
            // room: there its settings are for reading. What the folder makes it run stays in the room.
            let folder = serde_json::to_string(&request.working_dir).map_err(|error| error.to_string())?;
            args.add(&["-c", &format!("projects={{{folder}={{trust_level=\"trusted\"}}}}")]);
        }
        args.add(&["resume", session]);
        let told = Told { meter: Meter::starting_at(counted) };
        Ok(AtTerminal::of(self, args, session, Reads::Codex(told)))
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<Once<Stream>>(INFO.id, saved)
    }
}

/// The folder of what the program keeps.
fn home(env: Env<'_>) -> Option<PathBuf> {
    env("CODEX_HOME").or_else(|| Some(env("HOME")?.join(".codex")))
}

/// The events of `codex exec --json`.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    meter: Meter,
    /// The last words: codex does not repeat them at the end.
    last_text: String,
    open_calls: BTreeSet<String>,
    denied: Vec<String>,
    thread: String,
    /// What the record has told: the model, and the tokens of the last call and the window.
    model: String,
    context: Option<(u64, u64)>,
    /// Calls of tools that have ended in this turn.
    calls: u64,
}

/// A call of a tool as an item tells it.
struct Call {
    id: String,
    name: String,
    input: Value,
    path: Option<String>,
    writes: bool,
}

impl Stream {
    fn item_started(&mut self, item: &Json<'_>, out: &mut Vec<Step>) {
        for call in calls(item) {
            let has_room = self.open_calls.len() < OPEN_CALLS_MAX && call.id.len() <= wire::NAME_LIMIT_BYTES;
            if has_room && self.open_calls.insert(call.id.clone()) {
                started(call, out);
            }
        }
    }

    fn item_completed(&mut self, item: &Json<'_>, out: &mut Vec<Step>) {
        match wire::text(item, "type") {
            "agent_message" => wire::answer(out, &mut self.last_text, wire::text(item, "text")),
            "reasoning" => wire::think(out, wire::text(item, "text")),
            "error" => wire::trouble(out, wire::text(item, "message")),
            _ => self.calls_ended(item, out),
        }
    }

    fn calls_ended(&mut self, item: &Json<'_>, out: &mut Vec<Step>) {
        let status = wire::text(item, "status");
        let error = matches!(status, "failed" | "declined")
            || item.get("exit_code").and_then(Json::as_i64).is_some_and(|code| code != 0)
            || item.get("error").is_some_and(|error| !error.is_null());
        // The files of one change share its outcome: it is told with the first.
        let mut output = output(item);
        for call in calls(item) {
            self.calls = self.calls.saturating_add(1);
            let (id, name) = (call.id.clone(), call.name.clone());
            if !self.open_calls.remove(&id) {
                started(call, out);
            }
            wire::tool_ended(out, &id, error, &std::mem::take(&mut output));
            if status == "declined" {
                wire::refused(&mut self.denied, &name);
            }
        }
    }

    fn turn_completed(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        if let Some(figures) = event.get("usage").filter(|figures| figures.is_object()) {
            let session_total = tokens(figures);
            let delta = self.meter.total(session_total);
            let about = estimated_context(delta, std::mem::take(&mut self.calls));
            let context_tokens = if self.context.is_some() { None } else { about };
            let session_total = Some(session_total);
            wire::usage(out, Usage { delta, session_total, context_tokens, ..Usage::default() });
        }
        let text = std::mem::take(&mut self.last_text);
        self.turn_ended(TurnEnd { text, ..TurnEnd::default() }, out);
    }

    fn turn_failed(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let message = event.get("error").map_or("", |error| wire::text(error, "message"));
        let message = if message.is_empty() { "the turn failed" } else { message };
        let error = wire::cut(message, wire::NOISE_LIMIT_BYTES);
        limit::told(out, None, &error, "");
        self.turn_ended(TurnEnd { is_error: true, error, ..TurnEnd::default() }, out);
    }

    fn turn_ended(&mut self, mut end: TurnEnd, out: &mut Vec<Step>) {
        end.denied = std::mem::take(&mut self.denied);
        wire::emit(out, Activity::TurnEnded(end));
    }
}

impl Conversation for Stream {
    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line) else { return wire::noise(line, out) };
        let item = event.get("item").unwrap_or(&Json::Null);
        match wire::text(&event, "type") {
            "" => wire::noise(line, out),
            "thread.started" => {
                let id = wire::name(&event, "thread_id").to_owned();
                if !id.is_empty() {
                    self.thread.clone_from(&id);
                    wire::emit(out, Activity::Session { id, model: None });
                }
            }
            "turn.started" => wire::emit(out, Activity::TurnStarted),
            "item.started" => self.item_started(item, out),
            "item.completed" => self.item_completed(item, out),
            "error" => wire::trouble(out, wire::text(&event, "message")),
            "turn.completed" => self.turn_completed(&event, out),
            "turn.failed" => self.turn_failed(&event, out),
            _ => {}
        }
    }

    /// Its stream tells only sums over the thread. What one call took, the window and the model stand here.
    fn record(&mut self, line: &str, out: &mut Vec<Step>) {
        let told = ["\"token_count\"", "\"turn_context\""].iter().any(|word| line.contains(word));
        let Some(event) = told.then(|| wire::object(line)).flatten() else { return };
        let payload = event.get("payload").unwrap_or(&Json::Null);
        if wire::text(&event, "type") == "turn_context" {
            let model = wire::name(payload, "model");
            if !model.is_empty() && model != self.model && !self.thread.is_empty() {
                model.clone_into(&mut self.model);
                let id = self.thread.clone();
                wire::emit(out, Activity::Session { id, model: Some(model.to_owned()) });
            }
            return;
        }
        if wire::text(payload, "type") == "token_count" {
            limits(payload.get("rate_limits").unwrap_or(&Json::Null), out);
        }
        let Some(info) = payload.get("info").filter(|_| wire::text(payload, "type") == "token_count") else {
            return;
        };
        let last = info.get("last_token_usage").unwrap_or(&Json::Null);
        let context = (wire::count(last, "input_tokens"), wire::count(info, "model_context_window"));
        if context.0 > 0 && self.context != Some(context) {
            self.context = Some(context);
            let context_window = Some(context.1).filter(|window| *window > 0);
            wire::usage(out, Usage { context_tokens: Some(context.0), context_window, ..Usage::default() });
        }
    }
}

/// The windows of a subscription. Older versions told in how many seconds one opens.
fn limits(told: &Json<'_>, out: &mut Vec<Step>) {
    for name in ["primary", "secondary"] {
        let Some(window) = told.get(name).filter(|window| window.is_object()) else { continue };
        let used = window.get("used_percent").and_then(Json::as_f64);
        let name = match wire::count(window, "window_minutes") {
            0 => name.to_owned(),
            minutes if minutes % 1440 == 0 => format!("{} d", minutes / 1440),
            minutes if minutes % 60 == 0 => format!("{} h", minutes / 60),
            minutes => format!("{minutes} min"),
        };
        let mut limit = Limit::window(&name, used, limit::instant_at(window, "resets_at"));
        limit.resets_in_ms = wire::count_if_any(window, "resets_in_seconds").map(|n| n.saturating_mul(1000));
        wire::emit(out, Activity::Limit(limit));
    }
}

/// What is in the record when a person was at its screen (tried with 0.169.0).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Told {
    meter: Meter,
}

impl Told {
    /// One line of the record.
    pub(super) fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line).filter(|event| wire::text(event, "type") == "event_msg") else {
            return;
        };
        let payload = event.get("payload").unwrap_or(&Json::Null);
        match wire::text(payload, "type") {
            "task_started" => wire::emit(out, Activity::TurnStarted),
            "task_complete" => {
                let text =
                    wire::cut(wire::text(payload, "last_agent_message"), wire::JOINED_TEXT_LIMIT_BYTES);
                wire::emit(out, Activity::TurnEnded(TurnEnd { text, ..TurnEnd::default() }));
            }
            // A person has left the turn: that is no failure.
            "turn_aborted" => wire::emit(out, Activity::TurnEnded(TurnEnd::default())),
            "item_completed" => told_item(payload.get("item").unwrap_or(&Json::Null), out),
            "token_count" => self.counted(payload.get("info").unwrap_or(&Json::Null), out),
            _ => {}
        }
    }

    /// The sums are of the whole thread, and stand there again and again.
    fn counted(&mut self, info: &Json<'_>, out: &mut Vec<Step>) {
        let Some(total) = info.get("total_token_usage").filter(|total| total.is_object()).map(tokens) else {
            return;
        };
        let delta = self.meter.total(total);
        if delta.is_zero() {
            return;
        }
        let context = wire::count(info.get("last_token_usage").unwrap_or(&Json::Null), "input_tokens");
        let window = wire::count(info, "model_context_window");
        let usage = Usage {
            delta,
            session_total: Some(total),
            context_tokens: (context > 0).then_some(context),
            context_window: (window > 0).then_some(window),
            ..Usage::default()
        };
        wire::usage(out, usage);
    }
}

/// What a line tells of the session itself.
fn facts(event: &Json<'_>, session: &mut outside::Session) {
    let payload = event.get("payload").unwrap_or(&Json::Null);
    match wire::text(event, "type") {
        "session_meta" if session.id.is_empty() => {
            wire::name(payload, "id").clone_into(&mut session.id);
            wire::name(payload, "cwd").clone_into(&mut session.folder);
            // Of a helper it tells more than a word.
            session.is_part = payload.get("source").is_some_and(Json::is_object);
        }
        "turn_context" => {
            let model = wire::name(payload, "model");
            session.model = (!model.is_empty()).then(|| model.to_owned());
        }
        _ => {}
    }
}

fn told_item(item: &Json<'_>, out: &mut Vec<Step>) {
    let text = || item.get("content").map(terminal::text_of).unwrap_or_default();
    match wire::text(item, "type") {
        "UserMessage" => terminal::said(out, &text()),
        "AgentMessage" => wire::say(out, &text()),
        "CommandExecution" => {
            let words = wire::items(item, "command").iter().filter_map(Json::as_str).collect::<Vec<_>>();
            let (id, input) = (wire::text(item, "id"), json!({"command": words.join(" ")}));
            let name = "command_execution".to_owned();
            started(Call { id: id.to_owned(), name, input, path: None, writes: false }, out);
            wire::tool_ended(out, id, wire::text(item, "status") != "completed", &output(item));
        }
        "FileChange" => {
            let id = wire::text(item, "id");
            let failed = wire::text(item, "status") != "completed";
            let paths = item.get("changes").map(Json::fields).into_iter().flatten();
            for (at, (path, _)) in paths.take(CHANGES_MAX).enumerate() {
                let id = if at == 0 { id.to_owned() } else { format!("{id}.{at}") };
                let input = json!({ "path": path });
                let call = Call {
                    id: id.clone(),
                    name: "file_change".to_owned(),
                    input,
                    path: Some(path.to_string()),
                    writes: true,
                };
                started(call, out);
                wire::tool_ended(out, &id, failed, if at == 0 { wire::text(item, "stdout") } else { "" });
            }
        }
        _ => {}
    }
}

/// About the tokens of the last call, from what a turn's calls have read together: without the record it is
/// only known that each tool led to one more. `None` where it is not known what they have read.
fn estimated_context(turn: TokensDelta, calls: u64) -> Option<u64> {
    let read = turn.input.saturating_add(turn.cache_read).saturating_add(turn.cache_creation);
    u64::try_from(read).ok().filter(|read| *read > 0)?.checked_div(calls.saturating_add(1))
}

fn started(call: Call, out: &mut Vec<Step>) {
    let Call { id, name, input, path, writes } = call;
    wire::emit(out, Activity::ToolStarted { id, name, input, path, writes });
}

/// The calls an item stands for: one, or one for each file of a change, or none.
fn calls(item: &Json<'_>) -> Vec<Call> {
    let kind = wire::text(item, "type");
    let id = wire::text(item, "id").to_owned();
    let part = |key: &str| item.get(key).map(Json::to_value).unwrap_or_default();
    let (name, input) = match kind {
        "command_execution" => (kind.to_owned(), json!({"command": part("command")})),
        "web_search" => (kind.to_owned(), json!({"query": part("query")})),
        "mcp_tool_call" => {
            (format!("mcp__{}__{}", wire::text(item, "server"), wire::text(item, "tool")), part("arguments"))
        }
        "file_change" => return changes(item, &id),
        _ => return Vec::new(),
    };
    vec![Call { id, name, input, path: None, writes: false }]
}

fn changes(item: &Json<'_>, id: &str) -> Vec<Call> {
    let changes = wire::items(item, "changes").iter().take(CHANGES_MAX).enumerate();
    let call = |(index, change): (usize, &Json<'_>)| Call {
        id: if index == 0 { id.to_owned() } else { format!("{id}.{index}") },
        name: "file_change".to_owned(),
        input: change.to_value(),
        path: wire::path_in(change),
        writes: true,
    };
    changes.map(call).collect()
}

fn output(item: &Json<'_>) -> String {
    let output = wire::text(item, "aggregated_output");
    if !output.is_empty() {
        return wire::cut(output, wire::TOOL_OUTPUT_LIMIT_BYTES);
    }
    if let Some(error) = item.get("error").filter(|error| !error.is_null()) {
        return error.as_str().unwrap_or_else(|| wire::text(error, "message")).to_owned();
    }
    item.get("result").and_then(|result| result.get("content")).map(wire::words).unwrap_or_default()
}

/// Cached input stands inside the input here, and reasoning inside the output.
fn tokens(figures: &Json<'_>) -> Tokens {
    let cache_read = wire::count(figures, "cached_input_tokens");
    let cache_creation = wire::count(figures, "cache_write_input_tokens");
    let input = wire::count(figures, "input_tokens");
    Tokens {
        input: input.saturating_sub(cache_read).saturating_sub(cache_creation),
        output: wire::count(figures, "output_tokens"),
        cache_read,
        cache_creation,
    }
}
