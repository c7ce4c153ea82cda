//! What to run for an agent.

use super::environment::Extra;
use super::{Conversation, Step, Tokens};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use svc_base::folders::WORKTREES;

/// The program of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Found on `PATH`; the arguments print its version.
    OnPath(&'static str, &'static [&'static str]),
    /// This very binary, with a hidden sub-command: always installed.
    Itself,
}

/// How hard the model should think.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Least.
    Low,
    /// The provider's default.
    #[default]
    Medium,
    High,
    /// Most.
    Max,
}

/// What the agent may do without asking.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// Edits in its folder; the provider asks or refuses beyond that.
    #[default]
    Auto,
    Full,
}

/// Which provider session the run belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionStart {
    Fresh,
    Resume {
        /// The provider's session id.
        id: String,
        /// What the provider had counted for it so far.
        counted: Tokens,
    },
    /// A copy of this one, which stays undisturbed; for questions.
    Fork {
        /// The provider's session id.
        id: String,
        /// What the provider had counted for it so far: some count a copy from there.
        counted: Tokens,
    },
}

/// Why it is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// To work: it may use tools, and may get more messages.
    Work,
    /// To answer one question, read-only, and end.
    Query,
}

/// Everything a provider needs to know for one run.
#[derive(Debug, Clone)]
pub struct LaunchRequest {
    /// Work or a question.
    pub purpose: Purpose,
    /// The first message, briefing included. May be long (200 000 characters and more) and may begin
    /// with a dash.
    pub prompt: String,
    /// `None` means the provider's default.
    pub model: Option<String>,
    /// How hard to think.
    pub effort: Effort,
    /// What it may do.
    pub permission: Permission,
    /// The agent's working directory, absolute.
    pub working_dir: PathBuf,
    /// The project's root, absolute.
    pub project_dir: PathBuf,
    /// Fresh, resumed or forked.
    pub session: SessionStart,
    /// For `acp`: the command to run instead of a preset.
    pub command: Vec<String>,
    /// Whether integrations are attached: a provider with native support gets our `.mcp.json`.
    pub has_integrations: bool,
    /// This program, where the agent's writes are to be asked about by `svc hook`.
    pub hook_program: Option<PathBuf>,
    /// Behind the kernel's fence: the globs below which alone it may write; empty for its working directory.
    pub fence: Option<Vec<String>>,
    /// What it is shown of the machine, where it gets a room of its own; `None` where it sees all of it.
    pub room: Option<Room>,
    /// What a person adds to the variables that its processes get.
    pub extra_env: Extra,
}

/// What an agent's room shows beside its project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room {
    /// The home folder.
    pub home: Home,
    /// What a person has granted: names and paths, see [`Room::check_grant`].
    pub grants: Vec<String>,
    /// What it never shows: the folders of accounts that are not the agent's.
    pub hidden: Vec<PathBuf>,
}

/// How a room shows the home folder, but for secrets, which it never shows.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "lowercase")]
pub enum Home {
    /// As it is; what is written there goes to a layer that is thrown away with the run.
    #[default]
    Overlay,
    /// As it is, to be read.
    Read,
    /// Not at all, but for what its program needs.
    Hide,
}

impl Room {
    /// The socket of the person's ssh agent.
    pub const SSH_AGENT: &str = "ssh-agent";
    /// The socket of the container engine, which is as much as the whole machine.
    pub const DOCKER: &str = "docker";

    /// Whether something can be granted: one of the names, or a path from the root or the home folder, which
    /// is then shown as it is and can be written.
    ///
    /// Errors: what it must be.
    pub fn check_grant(grant: &str) -> Result<(), &'static str> {
        let is_path =
            (grant.starts_with('/') || grant.starts_with("~/")) && !grant.contains("/../") && grant.len() > 2;
        if [Self::SSH_AGENT, Self::DOCKER].contains(&grant) || is_path {
            return Ok(());
        }
        Err("must be ssh-agent, docker, or a path that begins with / or ~/")
    }
}

impl LaunchRequest {
    /// What a scope's globs are relative to: the agent's own worktree, or the project.
    pub fn base_dir(&self) -> PathBuf {
        let worktrees = self.project_dir.join(WORKTREES);
        let own = self.working_dir.strip_prefix(&worktrees).ok().and_then(|rest| rest.components().next());
        own.map_or_else(|| self.project_dir.clone(), |name| worktrees.join(name))
    }
}

/// The command line of one run and the protocol to speak with it.
pub struct Launch {
    /// The program; [`Program::Itself`] resolves to the running binary.
    pub program: LaunchProgram,
    pub args: Vec<String>,
    /// Variables to set, beyond what `Info::pass_env` lets through.
    pub env: Vec<(String, String)>,
    /// Whether standard input is a pipe; otherwise it is `/dev/null`.
    pub stdin: bool,
    pub conversation: Box<dyn Conversation>,
}

/// The arguments of a command line, one word after the other.
pub(super) struct Args(pub(super) Vec<String>);

impl Args {
    /// What the line begins with.
    pub(super) fn of(words: &[&str]) -> Self {
        Self(words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// Adds these words.
    pub(super) fn add(&mut self, words: &[&str]) {
        self.0.extend(Self::of(words).0);
    }

    /// Adds the model behind this option, where one is asked for.
    pub(super) fn model(&mut self, option: &str, request: &LaunchRequest) {
        if let Some(model) = &request.model {
            self.add(&[option, model]);
        }
    }

    /// Adds the effort behind this option: the program's words for low, high and the most. Medium is what it
    /// does by itself.
    pub(super) fn effort(&mut self, option: &str, [low, high, max]: [&str; 3], request: &LaunchRequest) {
        match request.effort {
            Effort::Low => self.add(&[option, low]),
            Effort::Medium => {}
            Effort::High => self.add(&[option, high]),
            Effort::Max => self.add(&[option, max]),
        }
    }
}

impl Launch {
    /// A run of one turn by the program of this name: what is to go to standard input is written at once, and
    /// the input is then closed. Without a prompt there it is `/dev/null`.
    pub(super) fn once(
        program: &str,
        args: Args,
        prompt: Option<String>,
        stream: impl Conversation + Serialize + 'static,
    ) -> Self {
        Self {
            program: LaunchProgram::Named(program.to_owned()),
            args: args.0,
            env: Vec::new(),
            stdin: prompt.is_some(),
            conversation: Box::new(Once { prompt, stream }),
        }
    }
}

/// The conversation of such a run, in which nothing is said after the prompt.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Once<S> {
    /// Until it is written.
    prompt: Option<String>,
    stream: S,
}

impl<S: Conversation + Serialize> Conversation for Once<S> {
    fn open(&mut self, out: &mut Vec<Step>) {
        self.stream.open(out);
        if let Some(prompt) = self.prompt.take() {
            out.push(Step::Write(prompt));
            out.push(Step::CloseInput);
        }
    }

    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        self.stream.line(line, out);
    }

    fn complaint(&mut self, line: &str, out: &mut Vec<Step>) {
        self.stream.complaint(line, out);
    }

    fn record(&mut self, line: &str, out: &mut Vec<Step>) {
        self.stream.record(line, out);
    }

    /// There is no input, or it was closed behind the prompt.
    fn finish(&mut self, _out: &mut Vec<Step>) {}

    fn end(&mut self, out: &mut Vec<Step>) {
        self.stream.end(out);
    }
}

/// See [`Launch::program`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchProgram {
    /// Looked up on the agent's `PATH`, or a path.
    Named(String),
    Itself,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The arguments hold the prompt: too long for a log, and the user's own.
        f.debug_struct("Launch")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .finish_non_exhaustive()
    }
}
