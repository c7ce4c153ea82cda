//! opencode, one `opencode run` a turn.
//!
//! The prompt comes on standard input, which is then closed: an argument with a space would reach the
//! model in quotes (tried with opencode 1.18.33). That its model cannot be reached, and that it tries again,
//! it tells in its log alone, for which standard error is asked.

use super::json::{Json, Look};
use super::login::{self, LoginFacts, Source, StateFile};
use super::terminal::{self, AtTerminal, Reads};
use super::wire;
use super::{
    Activity, Args, Capabilities, Conversation, Env, Info, Launch, LaunchRequest, Model, Once, Permission,
    Program, Provider, Purpose, SessionStart, Step, Tier, Tokens, TurnEnd, Usage, outside, saved,
};
use serde::{Deserialize, Serialize};
use std::path::Path;
use svc_base::time::Time;

/// opencode.
pub struct OpenCode;

const fn model(id: &'static str, name: &'static str, tier: Tier) -> Model {
    Model { id, name, tier, context_window: 1_000_000 }
}

static INFO: Info = Info {
    id: "opencode",
    name: "opencode",
    program: Program::OnPath("opencode", &["--version"]),
    auth_type: "api-key",
    env_key: "ANTHROPIC_API_KEY",
    install_command: "npm install -g opencode-ai",
    state_places: &[".config/opencode/", ".local/share/opencode/", ".local/state/opencode/"],
    // Logins and sessions are data of its; its settings stay the person's.
    account_homes: &[("XDG_DATA_HOME", "data"), ("XDG_STATE_HOME", "state")],
    obeyed_places: &[
        ".config/opencode/opencode.json",
        ".config/opencode/opencode.jsonc",
        ".config/opencode/config.json",
        ".config/opencode/AGENTS.md",
        ".config/opencode/plugin/",
        ".config/opencode/plugins/",
        ".config/opencode/command/",
        ".config/opencode/commands/",
        ".config/opencode/agent/",
        ".config/opencode/agents/",
        ".config/opencode/tool/",
        ".config/opencode/tools/",
        ".config/opencode/skills/",
    ],
    pass_env: &["OPENCODE_*"],
    vendor_keys: true,
    has_screen: true,
    login: LoginFacts {
        command: "opencode auth login",
        source: Source::File(StateFile { path: ".local/share/opencode/auth.json", read: login::opencode }),
    },
    models: &[
        model("anthropic/claude-sonnet-5-5", "Claude Sonnet 5.5", Tier::Medium),
        model("anthropic/claude-haiku-5-5", "Claude Haiku 5.5", Tier::Light),
        model("anthropic/claude-opus-5-5", "Claude Opus 5.5", Tier::Heavy),
    ],
    capabilities: Capabilities { resume: true, live_input: false, hooks: false, mcp: true, headless: true },
    ..Info::PLAIN
};

impl Provider for OpenCode {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn forks(&self) -> bool {
        true
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        wire::check_names(request)?;
        let mut args = Args::of(&["run", "--format", "json", "--print-logs", "--log-level", "ERROR"]);
        match (request.purpose, request.permission) {
            // Its built-in agent that may not edit.
            (Purpose::Query, _) => args.add(&["--agent", "plan"]),
            // Without a flag it refuses what its configuration wants asked.
            (Purpose::Work, Permission::Auto) => {}
            (Purpose::Work, Permission::Full) => args.add(&["--auto"]),
        }
        args.model("--model", request);
        // Which variants there are depends on the model; one that it lacks changes nothing.
        args.effort("--variant", ["low", "high", "max"], request);
        match &request.session {
            SessionStart::Fresh => {}
            // Its figures are of the step alone: what was counted before does not come again.
            SessionStart::Resume { id, .. } => args.add(&["--session", id]),
            SessionStart::Fork { id, .. } => args.add(&["--session", id, "--fork"]),
        }
        Ok(Launch::once("opencode", args, Some(request.prompt.clone()), Stream::default()))
    }

    fn at_terminal(&self, request: &LaunchRequest, since: u64) -> Result<AtTerminal, String> {
        let (session, _) = terminal::session(request)?;
        if !is_id(session) {
            return Err(format!("{session:?} is no session of opencode"));
        }
        let mut args = Args::of(&[]);
        args.model("--model", request);
        args.add(&["--session", session]);
        let mut screen = AtTerminal::of(self, args, session, Reads::OpenCode(Told::default()));
        // Its record is a database, which it reads itself.
        screen.last = said_since(session, since);
        Ok(screen)
    }

    fn kept_sessions(&self, project: &Path, env: Env<'_>) -> Option<outside::Kept> {
        let data = env("XDG_DATA_HOME").or_else(|| Some(env("HOME")?.join(".local/share")))?;
        let project = project.to_str()?.replace('\'', "''");
        Some(outside::Kept::Told {
            file: data.join("opencode/opencode.db"),
            list: sessions_below(&project),
            read: listed,
            said: |session| said_since(session, 0),
        })
    }

    fn session_reader(&self) -> Option<outside::Reader> {
        Some(outside::Reader::new(Reads::OpenCode(Told::default()), |_, _| {}))
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<Once<Stream>>(INFO.id, saved)
    }
}

/// The arguments with which it tells the parts of a session's messages since a time, in milliseconds.
fn said_since(session: &str, since: u64) -> Vec<String> {
    let query = format!(
        "select json_object('at', m.time_created, 'role', json_extract(m.data, '$.role'), 'part', json(case \
         json_extract(p.data, '$.type') when 'tool' then json_remove(p.data, '$.state.output', \
         '$.state.metadata', '$.state.attachments') else p.data end)) as told from part p join message m \
         on m.id = p.message_id where p.session_id = '{session}' and m.time_created >= {since} and \
         json_extract(p.data, '$.type') in ('text', 'reasoning', 'tool', 'step-start', 'step-finish') \
         order by m.time_created, m.id, p.id"
    );
    ["db", &query, "--format", "tsv"].map(str::to_owned).into()
}

/// The arguments with which it tells the sessions of a folder and those below it, the newest first; quotes
/// are doubled in `folder`.
fn sessions_below(folder: &str) -> Vec<String> {
    let by_person = "json_extract(m.data, '$.role') = 'user' and m.session_id = s.id";
    let query = format!(
        "select json_object('id', s.id, 'folder', s.directory, 'began', s.time_created, 'changed', \
         s.time_updated, 'input', s.tokens_input, 'output', s.tokens_output + s.tokens_reasoning, 'read', \
         s.tokens_cache_read, 'write', s.tokens_cache_write, 'turns', (select count(*) from message m where \
         {by_person}), 'words', (select substr(json_extract(p.data, '$.text'), 1, 400) from part p join \
         message m on m.id = p.message_id where {by_person} and json_extract(p.data, '$.type') = 'text' and \
         json_extract(p.data, '$.synthetic') is null order by p.id limit 1)) as told from session s where \
         s.parent_id is null and (s.directory = '{folder}' or substr(s.directory, 1, length('{folder}/')) = \
         '{folder}/') order by s.time_updated desc limit {}",
        outside::LISTED_MAX
    );
    ["db", &query, "--format", "tsv"].map(str::to_owned).into()
}

/// One line of that.
fn listed(line: &str) -> Option<outside::Session> {
    let row = wire::object(line)?;
    let mut session = outside::Session {
        id: Some(wire::name(&row, "id")).filter(|id| is_id(id))?.to_owned(),
        folder: wire::name(&row, "folder").to_owned(),
        began: wire::count_if_any(&row, "began").map(Time),
        changed: wire::count_if_any(&row, "changed").map(Time),
        turns: wire::count(&row, "turns"),
        tokens: Tokens {
            input: wire::count(&row, "input"),
            output: wire::count(&row, "output"),
            cache_read: wire::count(&row, "read"),
            cache_creation: wire::count(&row, "write"),
        },
        ..outside::Session::default()
    };
    session.said(wire::text(&row, "words"));
    Some(session)
}

fn is_id(session: &str) -> bool {
    session.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The events of `opencode run --format json`. The turn ends with the stream, or with the `done` event of
/// newer versions.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    session: String,
    started: bool,
    ended: bool,
    /// A step has begun and not finished.
    in_step: bool,
    steps: u64,
    cost_usd: Option<f64>,
    last_text: String,
    error: String,
    denied: Vec<String>,
}

impl Stream {
    fn step_started(&mut self, out: &mut Vec<Step>) {
        self.in_step = true;
        self.steps = self.steps.saturating_add(1);
        wire::turn_started(out, &mut self.started);
    }

    fn step_finished(&mut self, part: &Json<'_>, out: &mut Vec<Step>) {
        self.in_step = false;
        let Some(figures) = part.get("tokens") else { return };
        let cache = figures.get("cache").unwrap_or(&Json::Null);
        let tokens = Tokens {
            input: wire::count(figures, "input"),
            output: wire::count(figures, "output").saturating_add(wire::count(figures, "reasoning")),
            cache_read: wire::count(cache, "read"),
            cache_creation: wire::count(cache, "write"),
        };
        let cost_usd = part.get("cost").and_then(Json::as_f64).filter(|cost| *cost >= 0.0);
        if let Some(cost) = cost_usd {
            self.cost_usd = Some(wire::sum_of_costs(self.cost_usd.unwrap_or(0.0), cost));
        }
        let context = Tokens { output: 0, ..tokens }.total();
        wire::usage(
            out,
            Usage {
                delta: tokens.minus(Tokens::default()),
                context_tokens: (context > 0).then_some(context),
                cost_usd,
                ..Usage::default()
            },
        );
    }

    /// A call is told once, when it is over.
    fn tool(&mut self, part: &Json<'_>, out: &mut Vec<Step>) {
        let state = part.get("state").unwrap_or(&Json::Null);
        let (id, name) = (wire::text(part, "callID").to_owned(), wire::text(part, "tool").to_owned());
        let input = state.get("input").map(Json::to_value).unwrap_or_default();
        let writes = matches!(name.as_str(), "write" | "edit" | "multiedit" | "patch" | "apply_patch");
        let path = if writes || name == "read" { wire::path_in(&input) } else { None };
        let failed = wire::text(state, "status") != "completed";
        let output = if failed { wire::text(state, "error") } else { wire::text(state, "output") };
        if failed && output.contains("rejected permission") {
            self.denied(&name);
        }
        let started = Activity::ToolStarted { id: id.clone(), name, input, path, writes };
        wire::emit(out, started);
        wire::tool_ended(out, &id, failed, output);
    }

    fn denied(&mut self, name: &str) {
        if !self.denied.iter().any(|known| known == name) {
            wire::refused(&mut self.denied, name);
        }
    }

    fn failed(&mut self, error: &Json<'_>, out: &mut Vec<Step>) {
        wire::turn_started(out, &mut self.started);
        let message = error.get("data").map_or("", |data| wire::text(data, "message"));
        let message = if message.is_empty() { wire::text(error, "name") } else { message };
        let message = if message.is_empty() { "the turn failed" } else { message };
        let status = error.get("data").and_then(|data| wire::count_if_any(data, "statusCode"));
        let message = wire::cut(message, wire::NOISE_LIMIT_BYTES);
        let headers = error.get("data").and_then(|data| data.get("responseHeaders")).unwrap_or(&Json::Null);
        super::limit::told(out, status, &message, wire::text(headers, "retry-after"));
        self.error = match status {
            Some(status) => format!("error {status}: {message}"),
            None => message,
        };
    }

    fn turn_ended(&mut self, out: &mut Vec<Step>) {
        if !self.started || self.ended {
            return;
        }
        self.ended = true;
        if self.in_step && self.error.is_empty() {
            "the model's stream was cut short".clone_into(&mut self.error);
        }
        let failure = Some(std::mem::take(&mut self.error)).filter(|error| !error.is_empty());
        let end = TurnEnd {
            turns: Some(self.steps),
            cost_usd: self.cost_usd,
            denied: std::mem::take(&mut self.denied),
            ..TurnEnd::of(std::mem::take(&mut self.last_text), failure)
        };
        wire::emit(out, Activity::TurnEnded(end));
    }
}

impl Conversation for Stream {
    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line) else { return wire::noise(line, out) };
        let id = wire::name(&event, "sessionID");
        if !id.is_empty() && id != self.session {
            id.clone_into(&mut self.session);
            wire::emit(out, Activity::Session { id: id.to_owned(), model: None });
        }
        let part = event.get("part").unwrap_or(&Json::Null);
        match wire::text(&event, "type") {
            "" => wire::noise(line, out),
            "step_start" => self.step_started(out),
            "text" => wire::answer(out, &mut self.last_text, wire::text(part, "text")),
            "reasoning" => wire::think(out, wire::text(part, "text")),
            "tool_use" => self.tool(part, out),
            "step_finish" => self.step_finished(part, out),
            "error" => self.failed(event.get("error").unwrap_or(&Json::Null), out),
            "done" => {
                for name in wire::items(&event, "rejected").iter().filter_map(Json::as_str) {
                    self.denied(name);
                }
                self.turn_ended(out);
            }
            _ => {}
        }
    }

    fn complaint(&mut self, line: &str, out: &mut Vec<Step>) {
        if let Some(error) = stream_error(line) {
            wire::trouble(out, &format!("the call of its model failed: {error}"));
        }
    }

    fn end(&mut self, out: &mut Vec<Step>) {
        self.turn_ended(out);
    }
}

/// The parts of messages in its database, told when a person was at its screen (tried with 1.18.33).
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Told {
    turn: Stream,
}

impl Told {
    /// One part: whose message it is of, and what it says.
    pub(super) fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(row) = wire::object(line) else { return };
        let part = row.get("part").unwrap_or(&Json::Null);
        let text = wire::text(part, "text");
        if wire::text(&row, "role") == "user" {
            let is_made_up = part.get("synthetic").and_then(Json::as_bool).unwrap_or(false);
            if wire::text(part, "type") == "text" && !is_made_up {
                // A turn that was left is over.
                self.turn.in_step = false;
                self.turn.turn_ended(out);
                self.turn = Stream::default();
                terminal::said(out, text);
                wire::turn_started(out, &mut self.turn.started);
            }
            return;
        }
        match wire::text(part, "type") {
            "step-start" => self.turn.step_started(out),
            "text" => wire::answer(out, &mut self.turn.last_text, text),
            "reasoning" => wire::think(out, text),
            "tool" => self.turn.tool(part, out),
            "step-finish" => {
                self.turn.step_finished(part, out);
                if wire::text(part, "reason") != "tool-calls" {
                    self.turn.turn_ended(out);
                }
            }
            _ => {}
        }
    }
}

/// Why a call of the model failed, from a line of its log. That of its small model, which only writes a
/// title, holds nobody up.
fn stream_error(line: &str) -> Option<&str> {
    if !line.contains(" message=\"stream error\" ") || line.contains(" small=true ") {
        return None;
    }
    let (_, error) = line.split_once(" error.error=\"")?;
    error.split('"').next().filter(|error| !error.is_empty())
}
