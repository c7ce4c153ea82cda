//! Any agent that speaks the Agent Client Protocol (JSON-RPC lines over standard streams, version 1), by
//! command or by preset.
//!
//! The model names the preset, as `preset` or `preset/model`; a command of its own takes the whole name
//! as the model. `claude-code-acp` and `codex-acp` stay when their input is closed: they end by SIGTERM
//! after the runtime's grace period.

mod client;
mod permission;
mod tools;

use super::{
    Capabilities, Conversation, Env, Info, Launch, LaunchProgram, LaunchRequest, Model, Program, Provider,
    RecordPlace, SessionStart, Tier, gemini, saved,
};

/// Agents that speak the Agent Client Protocol.
pub struct Acp;

/// The version of the protocol that both sides of svc speak: its only stable one.
pub const PROTOCOL_VERSION: u64 = 1;
/// The `error` of a turn that the model refused; the door tells editors `refusal`.
pub const REFUSED: &str = "the model refused";
/// The `error` of a turn that ran out of tokens; the door tells editors `max_tokens`.
pub const OUT_OF_TOKENS: &str = "the limit of tokens was reached";
/// The `error` of a turn with too many requests to the model; the door tells editors `max_turn_requests`.
pub const OUT_OF_REQUESTS: &str = "the limit of requests was reached";

/// Tokens; assumed until the agent reports its own window.
const UNKNOWN_WINDOW: u64 = 128_000;

/// The commands of known agents, by the name that a model begins with.
const PRESETS: &[(&str, &[&str])] = &[
    ("qwen", &["qwen", "--acp"]),
    ("copilot", &["copilot", "--acp"]),
    ("cline", &["cline", "--acp"]),
    ("goose", &["goose", "acp"]),
    ("gemini", &["gemini", "--acp"]),
    ("opencode", &["opencode", "acp"]),
    ("claude", &["claude-code-acp"]),
    ("codex", &["codex-acp"]),
];

const fn preset(id: &'static str, name: &'static str, context_window: u64) -> Model {
    Model { id, name, tier: Tier::Medium, context_window }
}

static INFO: Info = Info {
    id: "acp",
    name: "Agent Client Protocol",
    // The client side is part of svc; whether an agent's command is there shows when it is started.
    program: Program::Itself,
    takes_command: true,
    auth_type: "login",
    install_command: "npm install -g @qwen-code/qwen-code",
    pass_env: &[
        "ANTHROPIC_*",
        "CLAUDE_*",
        "OPENAI_*",
        "CODEX_*",
        "GEMINI_*",
        "GOOGLE_*",
        "OPENCODE_*",
        "COPILOT_*",
        "QWEN_*",
        "GOOSE_*",
        "CLINE_*",
    ],
    vendor_keys: true,
    models: &[
        preset("qwen", "Qwen Code", UNKNOWN_WINDOW),
        preset("copilot", "GitHub Copilot CLI", UNKNOWN_WINDOW),
        preset("cline", "Cline", UNKNOWN_WINDOW),
        preset("goose", "Goose", UNKNOWN_WINDOW),
        preset("gemini", "Gemini CLI over ACP", 1_048_576),
        preset("opencode", "opencode over ACP", 200_000),
        preset("claude", "Claude Code over ACP", 200_000),
        preset("codex", "Codex over ACP", 258_400),
    ],
    capabilities: Capabilities { resume: true, live_input: true, hooks: false, mcp: true, headless: true },
    ..Info::PLAIN
};

impl Provider for Acp {
    fn info(&self) -> &'static Info {
        &INFO
    }

    /// Gemini CLI tells only sums here, too; where there is no such record, nothing is read.
    fn record(&self, session: &str, env: Env<'_>) -> Option<RecordPlace> {
        gemini::record_place(session, env)
    }

    fn check(&self, model: Option<&str>, command: &[String]) -> Result<(), (&'static str, String)> {
        let field = if model.is_some() { "model" } else { "command" };
        command_and_model(command, model).map(|_| ()).map_err(|fault| (field, fault))
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        if matches!(request.session, SessionStart::Fork { .. }) {
            return Err("acp cannot copy a session for a question".to_owned());
        }
        let (command, model) = command_and_model(&request.command, request.model.as_deref())?;
        let Some((program, args)) = command.split_first() else {
            return Err("the command of an acp agent is empty".to_owned());
        };
        Ok(Launch {
            program: LaunchProgram::Named(program.clone()),
            args: args.to_vec(),
            env: (program == "gemini").then(gemini::stays).into_iter().collect(),
            stdin: true,
            conversation: Box::new(client::Client::new(request, model)),
        })
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<client::Client>(INFO.id, saved)
    }
}

/// What to run, and the model to ask it for.
fn command_and_model(
    command: &[String],
    model: Option<&str>,
) -> Result<(Vec<String>, Option<String>), String> {
    if !command.is_empty() {
        return Ok((command.to_vec(), model.map(str::to_owned)));
    }
    let names = || PRESETS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let Some(wanted) = model else {
        return Err(format!("an acp agent needs a command, or a model that names one of {}", names()));
    };
    let (name, model) = match wanted.split_once('/') {
        Some((name, model)) => (name, (!model.is_empty()).then(|| model.to_owned())),
        None => (wanted, None),
    };
    match PRESETS.iter().find(|(preset, _)| *preset == name) {
        Some((_, command)) => Ok((command.iter().map(|word| (*word).to_owned()).collect(), model)),
        None => Err(format!("unknown acp agent {name:?}; known are {}", names())),
    }
}
