//! Qwen Code, one headless run a turn.
//!
//! Its stream looks like that of Claude Code, but the figures of its results grow over the whole session,
//! contain the cached tokens in the input, and include calls of the model that the stream does not show. The
//! prompt comes on standard input, which is then closed: no prompt is taken for an option, however it
//! begins, and none is too long (tried with qwen-code 0.24.4).

use super::claude_code::{has_failed, is_subagent, tool_results, turn_end};
use super::json::{Json, Look};
use super::login::{self, LoginFacts, Source, StateFile};
use super::wire::{self, Meter};
use super::{
    Activity, Args, Capabilities, Conversation, Info, Launch, LaunchRequest, Once, Permission, Program,
    Provider, Purpose, SessionStart, Step, Tokens, Usage, saved,
};
use serde::{Deserialize, Serialize};

/// Qwen Code.
pub struct Qwen;

static INFO: Info = Info {
    id: "qwen",
    name: "Qwen Code",
    program: Program::OnPath("qwen", &["--version"]),
    auth_type: "api-key",
    env_key: "OPENAI_API_KEY",
    install_command: "npm install -g @qwen-code/qwen-code",
    package: "@qwen-code/qwen-code",
    state_places: &[".qwen/"],
    obeyed_places: &[".qwen/settings.json", ".qwen/extensions/", ".qwen/commands/", ".qwen/QWEN.md"],
    pass_env: &["QWEN_*", "OPENAI_MODEL"],
    vendor_keys: true,
    needs_fence: true,
    login: LoginFacts {
        command: "qwen",
        source: Source::File(StateFile { path: ".qwen/oauth_creds.json", read: login::qwen }),
    },
    capabilities: Capabilities { resume: true, live_input: false, hooks: false, mcp: false, headless: true },
    ..Info::PLAIN
};

impl Provider for Qwen {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn forks(&self) -> bool {
        true
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        wire::check_names(request)?;
        let mut args = Args::of(&["--output-format", "stream-json"]);
        match (request.purpose, request.permission) {
            (Purpose::Query, _) => args.add(&["--approval-mode", "plan"]),
            // Its own mode of edits writes outside of the project, too: without the kernel's fence it reads.
            (Purpose::Work, Permission::Auto) if request.fence.is_none() => {
                args.add(&["--approval-mode", "default"]);
            }
            (Purpose::Work, _) => args.add(&["--yolo"]),
        }
        args.model("-m", request);
        let counted = match &request.session {
            SessionStart::Fresh => Tokens::default(),
            SessionStart::Resume { id, counted } => {
                args.add(&["--resume", id]);
                *counted
            }
            // A copy goes on counting from the original's total.
            SessionStart::Fork { id, counted } => {
                args.add(&["--resume", id, "--fork-session"]);
                *counted
            }
        };
        let meter = Meter::starting_at(counted);
        let stream = Stream { meter, session: String::new(), working: false };
        Ok(Launch::once("qwen", args, Some(request.prompt.clone()), stream))
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<Once<Stream>>(INFO.id, saved)
    }
}

/// The events of `--output-format stream-json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    meter: Meter,
    session: String,
    working: bool,
}

impl Stream {
    fn system(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        match wire::text(event, "subtype") {
            "init" => {
                let (id, model) = (wire::name(event, "session_id"), wire::text(event, "model"));
                if !id.is_empty() && id != self.session {
                    id.clone_into(&mut self.session);
                    let model = (!model.is_empty()).then(|| model.to_owned());
                    wire::emit(out, Activity::Session { id: id.to_owned(), model });
                }
                wire::turn_started(out, &mut self.working);
            }
            "compact_boundary" => wire::emit(out, Activity::Compacted),
            _ => {}
        }
    }

    fn assistant(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let Some(message) = event.get("message") else { return };
        let by_subagent = is_subagent(event);
        for block in wire::items(message, "content") {
            match wire::text(block, "type") {
                "text" if !by_subagent => wire::say(out, wire::text(block, "text")),
                "thinking" if !by_subagent => wire::think(out, wire::text(block, "thinking")),
                "tool_use" => tool_started(block, out),
                _ => {}
            }
        }
        // Of the lines of one answer only the last has figures; the others say 0.
        let figures = message.get("usage").map(tokens).unwrap_or_default();
        if figures != Tokens::default() {
            let delta = self.meter.provisional(figures);
            let context = Tokens { output: 0, ..figures }.total();
            wire::usage(
                out,
                Usage { delta, context_tokens: (!by_subagent).then_some(context), ..Usage::default() },
            );
        }
    }

    fn result(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        wire::turn_started(out, &mut self.working);
        // A turn that never reached the model says 0, also in a session with a total.
        let total = event.get("usage").map(tokens).filter(|total| *total != Tokens::default());
        if let Some(total) = total {
            let delta = self.meter.total(total);
            wire::usage(out, Usage { delta, session_total: Some(total), ..Usage::default() });
        }
        let failure = has_failed(event).then(|| wire::failure(out, event));
        wire::emit(out, Activity::TurnEnded(turn_end(event, failure)));
        self.working = false;
    }
}

impl Conversation for Stream {
    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line) else { return wire::noise(line, out) };
        match wire::text(&event, "type") {
            "" => wire::noise(line, out),
            "system" => self.system(&event, out),
            "assistant" => self.assistant(&event, out),
            "user" => tool_results(&event, out),
            "result" => self.result(&event, out),
            _ => {}
        }
    }
}

fn tool_started(block: &Json<'_>, out: &mut Vec<Step>) {
    let name = wire::text(block, "name").to_owned();
    let input = block.get("input").map(Json::to_value).unwrap_or_default();
    let writes = matches!(name.as_str(), "write_file" | "edit" | "notebook_edit");
    let path = if writes || name == "read_file" { wire::path_in(&input) } else { None };
    let id = wire::text(block, "id").to_owned();
    wire::emit(out, Activity::ToolStarted { id, name, input, path, writes });
}

/// Cached input stands inside the input here.
fn tokens(figures: &Json<'_>) -> Tokens {
    let all_input = wire::count(figures, "input_tokens");
    let cache_read = wire::count(figures, "cache_read_input_tokens").min(all_input);
    Tokens {
        input: all_input - cache_read,
        output: wire::count(figures, "output_tokens"),
        cache_read,
        cache_creation: 0,
    }
}
