//! Claude Code, spoken to over its stream of JSON lines.
//!
//! The prompt is the first line of standard input and never an argument, so that it may be long and may
//! begin with a dash. Standard input stays open for more messages; closing it lets the program end.

mod stream;
mod told;

pub(super) use told::Told;

pub(super) use stream::{has_failed, is_subagent, tool_results, turn_end};

use super::login::{self, LoginFacts, Source};
use super::terminal::{self, AtTerminal, Reads};
use super::{
    Args, Capabilities, Carried, Conversation, Cut, Env, EnvToken, Info, Launch, LaunchProgram,
    LaunchRequest, Model, Permission, Program, Provider, Purpose, RecordPlace, SessionStart, Tier, Tokens,
    carried, cut, outside, saved, wire,
};
use serde_json::json;
use std::path::{Path, PathBuf};
use svc_base::time::Time;

/// Claude Code.
pub struct ClaudeCode;

/// Characters of the name of a folder of sessions that is not cut.
const FOLDER_NAME_MAX: usize = 200;

/// What a question may not use, whatever the user's settings allow.
const WRITING_TOOLS: &str = "Bash,Edit,MultiEdit,NotebookEdit,Write";

/// The tools whose writes are judged beforehand.
const WRITE_TOOLS: &str = "Edit|MultiEdit|NotebookEdit|Write";
/// The daemon answers at once; a hook that takes longer is given up by Claude Code, and its own rules apply.
const HOOK_TIMEOUT_SECONDS: u64 = 10;

/// A model as claude 2.1.329 runs it. Which ones there are stands in the vendor's list of November 2026.
const fn model(id: &'static str, name: &'static str, tier: Tier) -> Model {
    Model { id, name, tier, context_window: 1_000_000 }
}

static INFO: Info = Info {
    id: "claude-code",
    name: "Claude Code",
    program: Program::OnPath("claude", &["--version"]),
    auth_type: "api-key",
    env_key: "ANTHROPIC_API_KEY",
    // Seen with claude 2.1.329: it sends it as a bearer token, unless a key is set as well.
    env_token: Some(EnvToken {
        beginning: "sk-ant-oat",
        variable: "CLAUDE_CODE_OAUTH_TOKEN",
        command: "claude setup-token",
    }),
    install_command: "npm install -g @anthropic-ai/claude-code",
    state_places: &[".claude/", ".claude.json", ".local/share/claude/", ".local/state/claude/"],
    account_homes: &[("CLAUDE_CONFIG_DIR", "")],
    obeyed_places: &[
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".claude/hooks/",
        ".claude/plugins/",
        ".claude/agents/",
        ".claude/commands/",
        ".claude/CLAUDE.md",
    ],
    mcp_file: true,
    routed: true,
    // As its documentation lists them (settings, Amazon Bedrock, Google Vertex AI).
    pass_env: &[
        "ANTHROPIC_*",
        "CLAUDE_*",
        "IS_SANDBOX",
        "API_TIMEOUT_MS",
        "AWS_DEFAULT_REGION",
        "AWS_PROFILE",
        "AWS_REGION",
        "BASH_*",
        "DISABLE_*",
        "MAX_MCP_OUTPUT_TOKENS",
        "MAX_THINKING_TOKENS",
        "MCP_*",
        "USE_BUILTIN_RIPGREP",
    ],
    pass_env_when: &[
        ("CLAUDE_CODE_USE_BEDROCK", &["AWS_*"]),
        (
            "CLAUDE_CODE_USE_VERTEX",
            &["CLOUDSDK_CONFIG", "CLOUD_ML_REGION", "GCLOUD_PROJECT", "GOOGLE_*", "VERTEX_*"],
        ),
        ("CLAUDE_CODE_USE_FOUNDRY", &["AZURE_*"]),
    ],
    login: LoginFacts {
        command: "claude auth login",
        source: Source::Program(&["auth", "status"], login::claude),
    },
    has_screen: true,
    models: &[
        model("claude-sonnet-5-5", "Claude Sonnet 5.5", Tier::Medium),
        model("claude-haiku-5-5", "Claude Haiku 5.5", Tier::Light),
        model("claude-opus-5-5", "Claude Opus 5.5", Tier::Heavy),
        model("claude-fable-5-1", "Claude Fable 5.1", Tier::Heavy),
    ],
    capabilities: Capabilities { resume: true, live_input: true, hooks: true, mcp: true, headless: true },
    ..Info::PLAIN
};

impl Provider for ClaudeCode {
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

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        wire::check_names(request)?;
        let mut args =
            Args::of(&["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]);
        args.model("--model", request);
        args.effort("--effort", ["low", "high", "max"], request);
        let mut env = Vec::new();
        match (request.purpose, request.permission) {
            (Purpose::Query, _) => {
                args.add(&["--permission-mode", "dontAsk", "--disallowedTools", WRITING_TOOLS]);
            }
            (Purpose::Work, Permission::Auto) => {
                args.add(&["--permission-mode", "acceptEdits"]);
                // What goes beyond edits is asked over the stream, and a person answers.
                args.add(&["--permission-prompt-tool", "stdio"]);
            }
            (Purpose::Work, Permission::Full) => {
                args.add(&["--dangerously-skip-permissions"]);
                // Without it the program refuses that flag when it runs as root.
                env.push(("IS_SANDBOX".to_owned(), "1".to_owned()));
            }
        }
        if request.has_integrations && request.purpose == Purpose::Work {
            // Calls of our own server are not asked about: its gated tools ask a person anyway.
            args.add(&["--allowedTools", "mcp__svc"]);
        }
        if let Some(program) = request.hook_program.as_ref().filter(|_| request.purpose == Purpose::Work) {
            args.add(&["--settings", &hook_settings(program)]);
        }
        match &request.session {
            SessionStart::Fresh => {}
            SessionStart::Resume { id, .. } => args.add(&["--resume", id]),
            SessionStart::Fork { id, .. } => args.add(&["--resume", id, "--fork-session"]),
        }
        Ok(Launch {
            program: LaunchProgram::Named("claude".to_owned()),
            args: args.0,
            env,
            stdin: true,
            conversation: Box::new(stream::Stream::new(&request.prompt, &request.session)),
        })
    }

    fn at_terminal(&self, request: &LaunchRequest, _since: u64) -> Result<AtTerminal, String> {
        let (session, counted) = terminal::session(request)?;
        let mut args = Args::of(&[]);
        args.model("--model", request);
        match request.permission {
            Permission::Auto => args.add(&["--permission-mode", "acceptEdits"]),
            Permission::Full => args.add(&["--dangerously-skip-permissions"]),
        }
        if let Some(program) = &request.hook_program {
            args.add(&["--settings", &hook_settings(program)]);
        }
        args.add(&["--resume", session]);
        let mut screen = AtTerminal::of(self, args, session, Reads::Claude(Told::new(counted)));
        if request.permission == Permission::Full {
            // As above.
            screen.launch.env.push(("IS_SANDBOX".to_owned(), "1".to_owned()));
        }
        Ok(screen)
    }

    fn kept_sessions(&self, project: &Path, env: Env<'_>) -> Option<outside::Kept> {
        let (root, begins) = (home(env)?.join("projects"), folder_name(project)?);
        Some(outside::Kept::Files(outside::Files { root, depth: 1, begins, note: None }))
    }

    /// A name of more than so many characters is cut, and a number put behind it.
    fn carried(&self, session: &str, _project: &Path, folder: &Path, env: Env<'_>) -> Carried {
        let name = folder_name(folder).filter(|name| name.len() <= FOLDER_NAME_MAX);
        match (home(env), name) {
            (Some(root), Some(name)) if carried::is_name(session) => {
                let file = carried::File::Fixed(format!("projects/{name}/{session}.jsonl"));
                Carried::File(carried::Place { root, file })
            }
            _ => Carried::Stays("the path of its folder is too long for a name that its program would find"),
        }
    }

    fn session_reader(&self) -> Option<outside::Reader> {
        Some(outside::Reader::new(Reads::Claude(Told::new(Tokens::default())), told::facts))
    }

    /// `~/.claude/projects/FOLDER/SESSION.jsonl`.
    fn session_file(&self, session: &str, env: Env<'_>) -> Option<RecordPlace> {
        let root = home(env)?.join("projects");
        Some(RecordPlace { root, depth: 1, suffix: format!("/{session}.jsonl") })
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<stream::Stream>(INFO.id, saved)
    }
}

/// The folder of what the program keeps.
fn home(env: Env<'_>) -> Option<PathBuf> {
    env("CLAUDE_CONFIG_DIR").or_else(|| Some(env("HOME")?.join(".claude")))
}

/// What the program calls the folder of the sessions that are held in this one.
fn folder_name(folder: &Path) -> Option<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    Some(folder.to_str()?.chars().map(plain).collect())
}

/// Settings beyond the user's own: before a tool writes a file, `svc hook` asks the daemon.
fn hook_settings(program: &Path) -> String {
    let command = format!("'{}' hook", program.to_string_lossy().replace('\'', "'\\''"));
    let hook = json!({"type": "command", "command": command, "timeout": HOOK_TIMEOUT_SECONDS});
    json!({"hooks": {"PreToolUse": [{"matcher": WRITE_TOOLS, "hooks": [hook]}]}}).to_string()
}
