//! Coding-agent programs. One file each: its command line, its stream, its capabilities, its models.
//!
//! A provider is pure: [`Provider::launch`] says what to run, and a [`Conversation`] is a state machine
//! that turns the lines a program prints into [`Activity`] and into lines to write to it. Threads, pipes
//! and processes are the runtime's business.
//!
//! **Invariant:** the deltas of all [`Usage`] events of a run add up to what the provider itself reports
//! at the end of each turn, however often it repeats a figure.

pub mod acp;
mod activity;
mod aider;
pub mod carried;
mod claude_code;
mod cline;
mod codex;
#[cfg(test)]
mod command_lines;
mod copilot;
mod cut;
pub mod environment;
mod gemini;
mod json;
mod launch;
pub mod limit;
pub mod login;
pub mod native;
pub mod ollama;
mod opencode;
pub mod outside;
pub mod price;
mod qwen;
mod saved;
pub mod script;
mod shares;
pub mod terminal;
pub mod windows;
mod wire;

pub use activity::{Activity, Tokens, TokensDelta, TurnEnd, Usage};
pub use carried::Carried;
pub use cut::Cut;
pub use launch::{
    Effort, Home, Launch, LaunchProgram, LaunchRequest, Permission, Program, Purpose, Room, SessionStart,
};
pub use saved::{SAVED_LIMIT_BYTES, Save};
pub use terminal::AtTerminal;

use launch::{Args, Once};
use std::path::{Path, PathBuf};
use svc_base::time::Time;

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
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    Light,
    /// The default.
    Medium,
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
    pub program: Program,
    /// `api-key`, `login` or `none`.
    pub auth_type: &'static str,
    /// The variable that holds its API key; empty when it needs none.
    pub env_key: &'static str,
    /// What may stand in a key's place, if anything.
    pub env_token: Option<EnvToken>,
    /// How a person installs it; empty when it is part of `svc`.
    pub install_command: &'static str,
    /// Variables of the daemon's environment that its children get, beyond the common ones. A trailing
    /// `*` takes all with that prefix.
    pub pass_env: &'static [&'static str],
    /// Further ones that it gets while the variable named first is set: keys of a cloud it is told to use.
    pub pass_env_when: &'static [(&'static str, &'static [&'static str])],
    /// Whether it speaks to models of any vendor and gets every vendor's key.
    pub vendor_keys: bool,
    /// The npm package that it comes in, where it writes into the home folder even to tell its version: the
    /// package tells that instead, if its program stands in one.
    pub package: &'static str,
    /// The variable that names the home folder to it, if there is one. A program of such a package that
    /// stands elsewhere gets an empty folder there when it is asked for its version.
    pub home_variable: &'static str,
    /// The variables by which it takes another folder for its home, each with the part of an account's folder
    /// that it names; empty where it has none, and so no accounts.
    pub account_homes: &'static [(&'static str, &'static str)],
    /// How one learns whether somebody is logged in to it.
    pub login: login::LoginFacts,
    /// Whether it has no fence of its own that leaves it room to work: in [`Permission::Auto`] the kernel's
    /// is put around it, with its project as the scope.
    pub needs_fence: bool,
    /// Whether a person can go on with a session of its at its own screen, see [`Provider::at_terminal`].
    pub has_screen: bool,
    /// Whether it plays a scenario instead of asking a model: it is told nothing of the project, costs
    /// nothing, and runs what it is told to in any permission, so that an agent without
    /// [`Permission::Full`] starts it inside of the fence alone.
    pub scripted: bool,
    /// Below the home folder: what it writes to by itself, and so may behind a fence. Names that end with `/`
    /// are folders, and are made where they are not there yet: it could not make them.
    pub state_places: &'static [&'static str],
    /// Those of its files that make it run programs (settings with hooks, servers, plugins): in a room they
    /// can be read and not be changed, for a person's own session obeys them, too.
    pub obeyed_places: &'static [&'static str],
    /// Whether a person names the command that is run, which may be the program of any other provider.
    pub takes_command: bool,
    /// Whether it reads `.mcp.json` in its working folder. The others are told of their tools in words.
    pub mcp_file: bool,
    /// Whether its models are what its own endpoint sells, so that routing may name one of them unasked. The
    /// others run what is installed, configured or rehearsed.
    pub routed: bool,
    /// Known models; the first is the default.
    pub models: &'static [Model],
    /// Whether a model that is not listed is passed through.
    pub any_model: bool,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// The token of a login that a vendor makes for machines without a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvToken {
    /// How it begins, unlike any key.
    pub beginning: &'static str,
    /// The variable that it goes into, instead of the key's.
    pub variable: &'static str,
    /// What a person runs to get one.
    pub command: &'static str,
}

impl Info {
    /// What most programs have in common, for the rest of a literal.
    pub const PLAIN: Self = Self {
        id: "",
        name: "",
        program: Program::Itself,
        auth_type: "none",
        env_key: "",
        env_token: None,
        install_command: "",
        pass_env: &[],
        pass_env_when: &[],
        vendor_keys: false,
        package: "",
        home_variable: "",
        account_homes: &[],
        login: login::NO_LOGIN,
        needs_fence: false,
        has_screen: false,
        scripted: false,
        state_places: &[],
        obeyed_places: &[],
        takes_command: false,
        mcp_file: false,
        routed: false,
        models: &[],
        any_model: true,
        capabilities: Capabilities {
            resume: false,
            live_input: false,
            hooks: false,
            mcp: false,
            headless: true,
        },
    };
}

/// The environment of a program: a variable's value, by its name, as a path; `None` where it is not set.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

/// One coding-agent program.
pub trait Provider: Sync {
    /// Its fixed facts.
    fn info(&self) -> &'static Info;

    /// The exact command line and the conversation for one run.
    ///
    /// Errors: a sentence when the request asks for something this provider cannot do.
    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String>;

    /// The conversation that [`Save::save`] has written down, to be gone on with: its program runs
    /// on, and what was said so far is not said again.
    ///
    /// Errors: a sentence when this is above [`SAVED_LIMIT_BYTES`], or is not what this version saves of a
    /// conversation with this provider. No text makes it panic, nor what it gives.
    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String>;

    /// The program's own screen, for a person who goes on with the request's session; what was there before
    /// `since`, in milliseconds since 1970, is not told again.
    ///
    /// Errors: a sentence; it has none, see [`Info::has_screen`], or the request asks for what it cannot do.
    fn at_terminal(&self, request: &LaunchRequest, since: u64) -> Result<AtTerminal, String> {
        let _ = (request, since);
        Err(format!("{} has no screen on which a person could go on with a session", self.info().name))
    }

    /// Where the program keeps the record of this session that tells what was said at its screen; `env` is
    /// its environment.
    fn session_file(&self, session: &str, env: Env<'_>) -> Option<RecordPlace> {
        self.record(session, env)
    }

    /// What is wrong with the model and the command of a wish, before anything is started: the field and a
    /// sentence.
    fn check(&self, model: Option<&str>, command: &[String]) -> Result<(), (&'static str, String)> {
        let _ = (model, command);
        Ok(())
    }

    /// Whether [`SessionStart::Fork`] works: a question then sees the whole session.
    fn forks(&self) -> bool {
        false
    }

    /// Whether such a copy may go on in another folder than the one in which the session was held.
    fn forks_elsewhere(&self) -> bool {
        false
    }

    /// The record of a session as it was before all that stands there from `at` on, for a copy that goes on
    /// from there in another folder. `None` where its program finds no such copy, the record does not tell,
    /// nothing stands before, or the last turn before had not come to its end.
    fn cut(&self, record: &str, at: Time) -> Option<Cut> {
        let _ = (record, at);
        None
    }

    /// Where the program keeps the sessions that people have in this project; `env` is its environment.
    fn kept_sessions(&self, project: &Path, env: Env<'_>) -> Option<outside::Kept> {
        let _ = (project, env);
        None
    }

    /// What of this session goes along when its agent goes on in `folder` of another machine, below `project`
    /// there; `env` is its environment there. The same where it comes from.
    fn carried(&self, session: &str, project: &Path, folder: &Path, env: Env<'_>) -> Carried {
        let _ = (session, project, folder, env);
        Carried::Stays("svc does not know how its program finds a session that was brought to it")
    }

    /// What reads one of these; `None` where [`Provider::kept_sessions`] is.
    fn session_reader(&self) -> Option<outside::Reader> {
        None
    }

    /// Where the program keeps a record of this session beside its stream, if it tells there what its stream
    /// does not; `env` is its environment. What is read there goes to [`Conversation::record`].
    fn record(&self, session: &str, env: Env<'_>) -> Option<RecordPlace> {
        let _ = (session, env);
        None
    }
}

/// A file of JSON lines that a program appends to: of those so many folders below `root` whose names end so.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RecordPlace {
    /// The folder to look in.
    pub root: PathBuf,
    /// How many folders lie between it and the file.
    pub depth: usize,
    /// How the file's name ends: it names the session.
    pub suffix: String,
}

/// What a conversation wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Event(Activity),
    /// Write these bytes (whole lines) to the program's standard input.
    Write(String),
    /// Close its standard input: nothing more will be said.
    CloseInput,
    /// A person has said this to the program, at its own screen.
    Said(String),
}

/// What a person has said to a question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ruling {
    pub allow: bool,
    /// Why; empty where none was given.
    pub reason: String,
}

impl Ruling {
    /// What the model reads of a no.
    fn refusal(&self) -> String {
        match self.reason.trim() {
            "" => "a person rejected this; find another way or report why it is needed".to_owned(),
            reason => format!("a person rejected this: {reason}"),
        }
    }
}

/// The protocol of one run, without I/O. Called from one thread at a time. The same inputs in the same order
/// make the same steps, see `saved.rs`.
pub trait Conversation: Save + Send {
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

    /// One line of the program's record of its session, see [`Provider::record`].
    fn record(&mut self, line: &str, out: &mut Vec<Step>) {
        let _ = (line, out);
    }

    /// Nothing more of this turn is wanted: asks the program to leave it, where it can be asked. The run is
    /// stopped soon after.
    fn interrupt(&mut self, out: &mut Vec<Step>) {
        let _ = out;
    }

    /// A person's answer to [`Activity::PermissionAsked`]. An unknown question is ignored.
    fn decide(&mut self, question: &str, ruling: &Ruling, out: &mut Vec<Step>) {
        let _ = (question, ruling, out);
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

/// What is known of a provider; of one that nobody knows, what most have in common.
pub fn info_of(id: &str) -> &'static Info {
    static UNKNOWN: Info = Info::PLAIN;
    by_id(id).map_or(&UNKNOWN, |provider| provider.info())
}

/// The provider of this id.
pub fn by_id(id: &str) -> Option<&'static dyn Provider> {
    all().iter().find(|provider| provider.info().id == id).copied()
}
