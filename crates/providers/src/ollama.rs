//! `ollama`: the built-in agent for any endpoint that speaks the chat-completions protocol of `OpenAI`, such
//! as Ollama, llama.cpp, vLLM or LM Studio. Its process side is `crates/agents/src/ollama/`.

use super::login::{LoginFacts, Source};
use super::native::Native;
use super::wire::check_names;
use super::{
    Args, Capabilities, Carried, Conversation, Cut, Env, Info, Launch, LaunchRequest, Model, Permission,
    Program, Provider, Purpose, SessionStart, Tier, Tokens, carried, saved,
};
use serde_json::Value;
use std::path::Path;
use svc_base::time::Time;

/// The hidden sub-command that is the agent.
pub const SUB_COMMAND: &str = "agent-ollama";

/// The variable with the endpoint's base address, for example `http://127.0.0.1:8080/v1`. Without it
/// `OLLAMA_HOST` counts, then Ollama's own default.
pub const URL_VARIABLE: &str = "SVC_OLLAMA_URL";

/// The variable with the endpoint's key, for those that want one.
pub const KEY_VARIABLE: &str = "SVC_OLLAMA_KEY";

/// The variable with Ollama's own address, as its own programs take it.
pub const HOST_VARIABLE: &str = "OLLAMA_HOST";

/// The variable by which the child learns where sessions are kept.
pub const PROJECT_DIR_VARIABLE: &str = super::script::PROJECT_DIR_VARIABLE;

/// Behind a model's name, how many tokens its context holds: `qwen3:8b?context=32768`. Endpoints do not say.
const CONTEXT_OPTION: &str = "?context=";

/// Any other model may be named too. Windows are those of the models, not of a server's settings.
const MODELS: &[Model] = &[
    Model { id: "qwen3:8b", name: "Qwen3 8B", tier: Tier::Light, context_window: 40_960 },
    Model { id: "qwen3-coder:30b", name: "Qwen3 Coder 30B", tier: Tier::Medium, context_window: 262_144 },
    Model { id: "gpt-oss:120b", name: "gpt-oss 120B", tier: Tier::Heavy, context_window: 131_072 },
];

static INFO: Info = Info {
    id: "ollama",
    name: "Ollama and OpenAI-compatible endpoints",
    program: Program::Itself,
    auth_type: "none",
    env_key: KEY_VARIABLE,
    pass_env: &[URL_VARIABLE, KEY_VARIABLE, HOST_VARIABLE],
    login: LoginFacts { command: "ollama serve", source: Source::Endpoint },
    models: MODELS,
    capabilities: Capabilities { resume: true, live_input: true, hooks: false, mcp: false, headless: true },
    ..Info::PLAIN
};

/// See the module.
#[derive(Debug)]
pub struct Ollama;

impl Provider for Ollama {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        check_names(request)?;
        let mut args = Args::of(&[SUB_COMMAND]);
        let model = request.model.as_deref().unwrap_or(MODELS[0].id);
        let (model, context) = split_model(model)?;
        args.add(&["--model", model]);
        if let Some(context) = context {
            args.add(&["--context", &context.to_string()]);
        }
        // Medium is the endpoint's default: models that cannot think refuse any word about it.
        args.effort("--effort", ["low", "high", "high"], request);
        match &request.session {
            SessionStart::Fresh => {}
            SessionStart::Resume { id, counted } => {
                let counted = serde_json::to_string(counted).map_err(|error| error.to_string())?;
                args.add(&["--resume", id, "--counted", &counted]);
            }
            SessionStart::Fork { id, .. } => args.add(&["--fork", id]),
        }
        if request.permission == Permission::Full {
            args.add(&["--full"]);
        }
        if request.purpose == Purpose::Query {
            args.add(&["--query"]);
        }
        Ok(Native::launch(args, request))
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<Native>(INFO.id, saved)
    }

    fn forks(&self) -> bool {
        true
    }

    fn carried(&self, session: &str, project: &Path, _folder: &Path, _env: Env<'_>) -> Carried {
        if !carried::is_name(session) {
            return Carried::Stays("its session has no name that a file could have");
        }
        let file = carried::File::Fixed(format!(".svc/sessions/{session}.json"));
        Carried::File(carried::Place { root: project.to_owned(), file })
    }

    fn forks_elsewhere(&self) -> bool {
        true
    }

    /// Its file tells when each message of the user came. What it has counted it is told with each start.
    fn cut(&self, record: &str, at: Time) -> Option<Cut> {
        let mut saved: Value = serde_json::from_slice(record.as_bytes()).ok()?;
        let began =
            saved.get("began")?.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()?;
        let turn = began.iter().position(|began| *began >= at.0).filter(|turn| *turn > 0)?;
        let messages = saved.get_mut("messages")?.as_array_mut()?;
        let is_user = |message: &Value| message.get("role").is_some_and(|role| role == "user");
        let said: Vec<usize> = (0..messages.len()).filter(|at| is_user(&messages[*at])).collect();
        if said.len() != began.len() {
            return None;
        }
        messages.truncate(said[turn]);
        *saved.get_mut("began")? = began[..turn].into();
        Some(Cut { record: saved.to_string(), counted: Tokens::default() })
    }
}

/// A model's name, and its context window where one is given or known.
fn split_model(model: &str) -> Result<(&str, Option<u64>), String> {
    let Some((name, number)) = model.split_once(CONTEXT_OPTION) else {
        let known = MODELS.iter().find(|known| known.id == model);
        return Ok((model, known.map(|known| known.context_window)));
    };
    match number.parse() {
        Ok(context) if context > 0 && !name.is_empty() => Ok((name, Some(context))),
        _ => Err(format!("the model {model:?} is not of the form `name{CONTEXT_OPTION}32768`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Effort;

    fn request(model: Option<&str>) -> LaunchRequest {
        LaunchRequest {
            purpose: Purpose::Work,
            prompt: "-go".to_owned(),
            model: model.map(str::to_owned),
            effort: Effort::Medium,
            permission: Permission::Auto,
            working_dir: "/p/w".into(),
            project_dir: "/p".into(),
            session: SessionStart::Fresh,
            command: Vec::new(),
            has_integrations: false,
            hook_program: None,
            fence: None,
            room: None,
            extra_env: crate::environment::Extra::default(),
        }
    }

    fn line(request: &LaunchRequest) -> String {
        Ollama.launch(request).expect("a launch").args.join(" ")
    }

    #[test]
    fn the_model_may_say_its_context() {
        assert_eq!(line(&request(None)), "agent-ollama --model qwen3:8b --context 40960");
        assert_eq!(line(&request(Some("a/b:c"))), "agent-ollama --model a/b:c");
        assert_eq!(line(&request(Some("a?context=9"))), "agent-ollama --model a --context 9");
        for bad in ["a?context=", "a?context=0", "?context=9", "a?context=many", "-a"] {
            assert!(Ollama.launch(&request(Some(bad))).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_line_names_session_permission_and_purpose() {
        let counted = Tokens { input: 7, ..Tokens::default() };
        let mut request = request(Some("m"));
        request.session = SessionStart::Resume { id: "s".into(), counted };
        request.permission = Permission::Full;
        request.effort = Effort::Max;
        let json = r#"{"input":7,"output":0,"cacheRead":0,"cacheCreation":0}"#;
        let expected = format!("agent-ollama --model m --effort high --resume s --counted {json} --full");
        assert_eq!(line(&request), expected);
        request.session = SessionStart::Fork { id: "s".into(), counted };
        request.permission = Permission::Auto;
        request.effort = Effort::Low;
        request.purpose = Purpose::Query;
        assert_eq!(line(&request), "agent-ollama --model m --effort low --fork s --query");
    }
}
