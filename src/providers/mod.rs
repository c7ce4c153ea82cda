//! Coding-agent programs. One file each: its command line, its stream, its capabilities, its models.
//!
//! A provider is pure: [`Provider::launch`] says what to run, and a [`Conversation`] is a state machine
//! that turns the lines a program prints into [`Activity`] and into lines to write to it. Threads, pipes
//! and processes are the runtime's business.
//!
//! **Invariant:** the deltas of all [`Usage`] events of a run add up to what the provider itself reports
//! at the end of each turn, however often it repeats a figure.

mod acp;
mod activity;
mod aider;
pub mod api;
mod claude_code;
mod cline;
mod codex;
#[cfg(test)]
mod command_lines;
mod copilot;
mod gemini;
mod launch;
pub mod native;
pub mod ollama;
mod opencode;
mod qwen;
pub mod registry;
pub mod script;
mod wire;

pub use activity::{Activity, Tokens, TokensDelta, TurnEnd, Usage};
pub use launch::{Effort, Launch, LaunchProgram, LaunchRequest, Permission, Program, Purpose, SessionStart};

/// What a provider can do, as shown by `GET /api/providers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Capabilities {
    /// A finished session can be continued.
    pub resume: bool,
    /// A message can be given to a running process.
    #[serde(rename = "liveInput")]
    pub live_input: bool,
    /// It calls a hook before it uses a tool.
    pub hooks: bool,
    /// It speaks to MCP servers itself.
    pub mcp: bool,
    /// It answers a one-shot question without disturbing a session.
    pub headless: bool,
}

/// How much a model costs and can, for routing. Prices live in `data/`, not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Quick, cheap work.
    Light,
    /// The default.
    Medium,
    /// The largest models.
    Heavy,
}

/// A model a provider is known to take. Others may be named too where `Info::any_model` says so.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// What goes to the command line.
    pub id: &'static str,
    /// What people read.
    pub name: &'static str,
    /// Its place in routing.
    pub tier: Tier,
    /// Tokens.
    pub context_window: u64,
}

/// Fixed facts about a provider.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// For example `claude-code`.
    pub id: &'static str,
    /// For example `Claude Code`.
    pub name: &'static str,
    /// What to run.
    pub program: Program,
    /// `api-key`, `login` or `none`.
    pub auth_type: &'static str,
    /// The variable that holds its API key; empty when it needs none.
    pub env_key: &'static str,
    /// How a person installs it; empty when it is part of `svc`.
    pub install_command: &'static str,
    /// Variables of the daemon's environment that its children get, beyond the common ones. A trailing
    /// `*` takes all with that prefix.
    pub pass_env: &'static [&'static str],
    /// Known models; the first is the default.
    pub models: &'static [Model],
    /// Whether a model that is not listed is passed through.
    pub any_model: bool,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// One coding-agent program.
pub trait Provider: Sync {
    /// Its fixed facts.
    fn info(&self) -> &'static Info;

    /// The exact command line and the conversation for one run.
    ///
    /// Errors: a sentence when the request asks for something this provider cannot do.
    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String>;

    /// Whether [`SessionStart::Fork`] works: a question then sees the whole session.
    fn forks(&self) -> bool {
        false
    }
}

/// What a conversation wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Something happened.
    Event(Activity),
    /// Write these bytes (whole lines) to the program's standard input.
    Write(String),
    /// Close its standard input: nothing more will be said.
    CloseInput,
}

/// The protocol of one run, without I/O. Called from one thread at a time.
pub trait Conversation: Send {
    /// The process has started.
    fn open(&mut self, out: &mut Vec<Step>) {
        let _ = out;
    }

    /// One line of standard output, without its newline, invalid UTF-8 replaced, cut above 4 MiB. Noise
    /// that is not of the protocol becomes [`Activity::Noise`]; no line may panic.
    fn line(&mut self, line: &str, out: &mut Vec<Step>);

    /// One line of standard error, for programs that tell their troubles only there. It is kept anyhow.
    fn complaint(&mut self, line: &str, out: &mut Vec<Step>) {
        let _ = (line, out);
    }

    /// A message for the agent while it runs. `false` when this program takes none.
    fn say(&mut self, text: &str, out: &mut Vec<Step>) -> bool {
        let _ = (text, out);
        false
    }

    /// A person's answer to [`Activity::PermissionAsked`]. An unknown question is ignored.
    fn decide(&mut self, question: &str, allow: bool, out: &mut Vec<Step>) {
        let _ = (question, allow, out);
    }

    /// Called when a turn has ended and nothing is left to say: lets the program end.
    fn finish(&mut self, out: &mut Vec<Step>) {
        out.push(Step::CloseInput);
    }

    /// Standard output has ended: flush what is held back, for example text deltas.
    fn end(&mut self, out: &mut Vec<Step>) {
        let _ = out;
    }
}

/// All providers, in the order they are listed to people.
// One line each, so that additions do not meet in one line.
#[rustfmt::skip]
pub fn all() -> &'static [&'static dyn Provider] {
    &[
        &claude_code::ClaudeCode,
        &codex::Codex,
        &gemini::Gemini,
        &opencode::OpenCode,
        &qwen::Qwen,
        &copilot::Copilot,
        &cline::Cline,
        &aider::Aider,
        &acp::Acp,
        &ollama::Ollama,
        &script::Script,
    ]
}

/// The provider of this id.
pub fn by_id(id: &str) -> Option<&'static dyn Provider> {
    all().iter().find(|provider| provider.info().id == id).copied()
}
