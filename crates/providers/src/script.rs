//! `script`: the built-in rehearsal agent. It plays a scenario file as a real child process, without a
//! network, a key or a token; see `docs/rehearsals.md`.

use super::native::{self, Native};
use super::terminal::{self, AtTerminal, Reads};
use super::{
    Args, Capabilities, Carried, Conversation, Env, Info, Launch, LaunchRequest, Model, Program, Provider,
    Purpose, RecordPlace, SessionStart, Step, Tier, saved,
};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The hidden sub-command that plays a scenario.
pub const SUB_COMMAND: &str = "agent-script";

/// The variable by which the child learns the project's root, where its own scenarios stand.
pub const PROJECT_DIR_VARIABLE: &str = "SVC_PROJECT_DIR";

/// With this option it is a program with a screen, at which a person goes on with a session.
pub const TERMINAL_OPTION: &str = "--terminal";
/// Where the record of what was said there is, below the project: `script-SESSION.jsonl`, of activities and
/// [`native::Input::Say`].
pub const SESSIONS: &str = ".svc/sessions";

/// Tokens; what the scenarios that come with `svc` report.
const CONTEXT_WINDOW: u64 = 200_000;

/// A scenario that comes with `svc`, named as a model.
const fn scenario(id: &'static str, name: &'static str) -> Model {
    Model { id, name, tier: Tier::Light, context_window: CONTEXT_WINDOW }
}

static INFO: Info = Info {
    id: "script",
    name: "Rehearsal script",
    program: Program::Itself,
    auth_type: "none",
    has_screen: true,
    scripted: true,
    models: &[
        scenario("default", "Default rehearsal"),
        scenario("planner", "Rehearsed planner"),
        scenario("builder", "Rehearsed builder"),
        scenario("reviewer", "Rehearsed reviewer"),
        scenario("quick", "Quick answer"),
        scenario("chatty", "Chatty"),
        scenario("ask", "Asks a question"),
        scenario("limit", "Reaches a usage limit"),
        scenario("crash", "Crashes"),
    ],
    capabilities: Capabilities { resume: true, live_input: true, hooks: false, mcp: false, headless: true },
    ..Info::PLAIN
};

/// See the module.
#[derive(Debug)]
pub struct Script;

impl Provider for Script {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        let mut args = Args::of(&[SUB_COMMAND]);
        if request.purpose == Purpose::Query {
            args.add(&["--query"]);
        }
        // A fork needs nothing of the other session: it gets an id of its own and leaves that one alone.
        if let SessionStart::Resume { id, counted } = &request.session {
            let counted = serde_json::to_string(counted).map_err(|error| error.to_string())?;
            args.add(&["--resume", id, "--counted", &counted]);
        }
        args.model("--model", request);
        Ok(Native::launch(args, request))
    }

    fn at_terminal(&self, request: &LaunchRequest, _since: u64) -> Result<AtTerminal, String> {
        let (session, counted) = terminal::session(request)?;
        if !session.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(format!("{session:?} is no session of a rehearsal"));
        }
        let told = serde_json::to_string(&counted).map_err(|error| error.to_string())?;
        let args = Args::of(&[SUB_COMMAND, TERMINAL_OPTION, "--resume", session, "--counted", &told]);
        let reads = Reads::Script(Told(Native::new("", &request.session)));
        let mut screen = AtTerminal::of(self, args, session, reads);
        let project = request.project_dir.to_string_lossy().into_owned();
        screen.launch.env.push((PROJECT_DIR_VARIABLE.to_owned(), project));
        Ok(screen)
    }

    /// What it is started with tells all.
    fn carried(&self, _session: &str, _project: &Path, _folder: &Path, _env: Env<'_>) -> Carried {
        Carried::Nothing
    }

    fn session_file(&self, session: &str, env: Env<'_>) -> Option<RecordPlace> {
        let root = env(PROJECT_DIR_VARIABLE)?.join(SESSIONS);
        Some(RecordPlace { root, depth: 0, suffix: format!("/script-{session}.jsonl") })
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<Native>(INFO.id, saved)
    }
}

/// The lines of that record.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Told(Native);

impl Told {
    /// One of them.
    pub(super) fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        match serde_json::from_slice(line.as_bytes()) {
            Ok(native::Input::Say { text }) => terminal::said(out, &text),
            _ => self.0.line(line, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Effort, LaunchProgram, Permission, Tokens};

    fn request(purpose: Purpose, session: SessionStart, model: Option<&str>) -> LaunchRequest {
        LaunchRequest {
            purpose,
            prompt: "-go".to_owned(),
            model: model.map(str::to_owned),
            effort: Effort::Medium,
            permission: Permission::Auto,
            working_dir: "/p/w".into(),
            project_dir: "/p".into(),
            session,
            command: Vec::new(),
            has_integrations: false,
            hook_program: None,
            fence: None,
            room: None,
            extra_env: crate::environment::Extra::default(),
        }
    }

    #[test]
    fn the_command_line_names_session_and_scenario() {
        let counted = Tokens { input: 7, ..Tokens::default() };
        let session = SessionStart::Resume { id: "abc".to_owned(), counted };
        let launch = Script.launch(&request(Purpose::Work, session, Some("quick"))).unwrap();
        let counted = r#"{"input":7,"output":0,"cacheRead":0,"cacheCreation":0}"#;
        assert_eq!(
            launch.args,
            ["agent-script", "--resume", "abc", "--counted", counted, "--model", "quick"]
        );
        assert_eq!(launch.program, LaunchProgram::Itself);
        assert_eq!(launch.env, [("SVC_PROJECT_DIR".to_owned(), "/p".to_owned())]);
        assert!(launch.stdin);
    }

    #[test]
    fn a_question_forks_and_does_not_resume() {
        let session = SessionStart::Fork { id: "abc".to_owned(), counted: Tokens::default() };
        let launch = Script.launch(&request(Purpose::Query, session, None)).unwrap();
        assert_eq!(launch.args, ["agent-script", "--query"]);
    }
}
