//! The exact command lines, against the ones that were seen to work (`facts/agent-clis.md`, 1.1).

use super::{
    Effort, Launch, LaunchProgram, LaunchRequest, Permission, Purpose, SessionStart, Step, Tokens, by_id,
};
use std::path::PathBuf;

pub(crate) fn request(prompt: &str) -> LaunchRequest {
    LaunchRequest {
        purpose: Purpose::Work,
        prompt: prompt.to_owned(),
        model: None,
        effort: Effort::Medium,
        permission: Permission::Auto,
        working_dir: PathBuf::from("/project"),
        project_dir: PathBuf::from("/project"),
        session: SessionStart::Fresh,
        command: Vec::new(),
        has_integrations: false,
        hook_program: None,
        fence: None,
        room: None,
        extra_env: crate::environment::Extra::default(),
    }
}

fn launch(provider: &str, request: &LaunchRequest) -> Launch {
    by_id(provider).expect("a registered provider").launch(request).expect("a launch")
}

/// The command line in one line, as a person would type it (without quoting).
fn line(launch: &Launch) -> String {
    let LaunchProgram::Named(program) = &launch.program else { panic!("a named program") };
    let env = launch.env.iter().map(|(key, value)| format!("{key}={value} "));
    format!("{}{program} {}", env.collect::<String>(), launch.args.join(" "))
}

/// What goes to standard input at the start, and whether it is closed behind that.
fn input(launch: &mut Launch) -> (String, bool) {
    let (mut out, mut input, mut closed) = (Vec::new(), String::new(), false);
    launch.conversation.open(&mut out);
    for step in out {
        match step {
            Step::Write(text) => input.push_str(&text),
            Step::CloseInput => closed = true,
            Step::Event(_) | Step::Said(_) => {}
        }
    }
    (input, closed)
}

#[derive(Clone, Copy)]
enum Case {
    Auto,
    Fenced,
    Full,
    Model,
    Max,
    Resume,
    Fork,
    FreshQuery,
}

fn request_of(case: Case) -> LaunchRequest {
    let mut request = request("do it");
    match case {
        Case::Auto => {}
        Case::Fenced => request.fence = Some(vec!["**".to_owned()]),
        Case::Full => request.permission = Permission::Full,
        Case::Model => request.model = Some("m-1".to_owned()),
        Case::Max => request.effort = Effort::Max,
        Case::Resume => {
            request.session = SessionStart::Resume { id: "s-1".to_owned(), counted: Tokens::default() };
        }
        Case::Fork => {
            request.purpose = Purpose::Query;
            request.session = SessionStart::Fork { id: "s-1".to_owned(), counted: Tokens::default() };
        }
        Case::FreshQuery => request.purpose = Purpose::Query,
    }
    request
}

fn check(provider: &str, case: Case, expected: &str) {
    assert_eq!(line(&launch(provider, &request_of(case))), expected, "{provider}");
}

fn refused(provider: &str, request: &LaunchRequest) -> String {
    by_id(provider).expect("a registered provider").launch(request).map(|_| ()).expect_err("a refusal")
}

#[test]
fn facts_1_1_claude_code() {
    let base = "claude -p --input-format stream-json --output-format stream-json --verbose";
    let query = "--permission-mode dontAsk --disallowedTools Bash,Edit,MultiEdit,NotebookEdit,Write";
    let check = |case, rest: &str| check("claude-code", case, &format!("{base} {rest}"));
    check(Case::Auto, "--permission-mode acceptEdits --permission-prompt-tool stdio");
    check(Case::Model, "--model m-1 --permission-mode acceptEdits --permission-prompt-tool stdio");
    check(Case::Max, "--effort max --permission-mode acceptEdits --permission-prompt-tool stdio");
    check(Case::Resume, "--permission-mode acceptEdits --permission-prompt-tool stdio --resume s-1");
    check(Case::Fork, &format!("{query} --resume s-1 --fork-session"));
    check(Case::FreshQuery, query);
    let full = launch("claude-code", &request_of(Case::Full));
    assert_eq!(line(&full), format!("IS_SANDBOX=1 {base} --dangerously-skip-permissions"));
}

#[test]
fn facts_1_1_codex() {
    let base = "codex exec --json --skip-git-repo-check -s";
    let check = |case, rest: &str| check("codex", case, &format!("{base} {rest}"));
    check(Case::Auto, "workspace-write -");
    check(Case::Full, "danger-full-access -");
    check(Case::Model, "workspace-write -m m-1 -");
    check(Case::Max, "workspace-write -c model_reasoning_effort=xhigh -");
    check(Case::Resume, "workspace-write resume s-1 -");
    check(Case::FreshQuery, "read-only -");
    check(Case::Fork, "read-only fork s-1 -");
}

#[test]
fn facts_1_1_gemini() {
    let base = "GEMINI_CLI_NO_RELAUNCH=true gemini --output-format stream-json --skip-trust --approval-mode";
    let check = |case, rest: &str| check("gemini", case, &format!("{base} {rest} --prompt=do it"));
    check(Case::Auto, "auto_edit");
    check(Case::Fenced, "yolo");
    check(Case::Full, "yolo");
    check(Case::Model, "auto_edit -m m-1");
    check(Case::Max, "auto_edit");
    check(Case::Resume, "auto_edit --resume s-1");
    check(Case::FreshQuery, "plan");
    assert_eq!(refused("gemini", &request_of(Case::Fork)), "gemini cannot copy a session for a question");
}

#[test]
fn facts_1_1_opencode() {
    let base = "opencode run --format json --print-logs --log-level ERROR";
    let check = |case, rest: &str| check("opencode", case, &format!("{base}{rest}"));
    check(Case::Auto, "");
    check(Case::Full, " --auto");
    check(Case::Model, " --model m-1");
    check(Case::Max, " --variant max");
    check(Case::Resume, " --session s-1");
    check(Case::Fork, " --agent plan --session s-1 --fork");
    check(Case::FreshQuery, " --agent plan");
}

#[test]
fn facts_1_1_qwen() {
    let base = "qwen --output-format stream-json";
    let check = |case, rest: &str| check("qwen", case, &format!("{base} {rest}"));
    check(Case::Auto, "--approval-mode default");
    check(Case::Fenced, "--yolo");
    check(Case::Full, "--yolo");
    check(Case::Model, "--approval-mode default -m m-1");
    check(Case::Max, "--approval-mode default");
    check(Case::Resume, "--approval-mode default --resume s-1");
    check(Case::Fork, "--approval-mode plan --resume s-1 --fork-session");
    check(Case::FreshQuery, "--approval-mode plan");
}

#[test]
fn facts_1_1_copilot() {
    let base = "copilot --output-format json";
    let check = |case, rest: &str| check("copilot", case, &format!("{base} {rest}"));
    check(Case::Auto, "--allow-tool=write");
    check(Case::Fenced, "--allow-all-tools");
    check(Case::Full, "--allow-all-tools --allow-all-paths");
    check(Case::Model, "--allow-tool=write --model m-1");
    check(Case::Max, "--allow-tool=write --reasoning-effort max");
    check(Case::Resume, "--allow-tool=write --resume=s-1");
    check(Case::FreshQuery, "--deny-tool=write --deny-tool=shell");
    assert_eq!(refused("copilot", &request_of(Case::Fork)), "copilot cannot copy a session for a question");
}

/// The argument is one space: whatever the prompt is, one word included, it comes on standard input.
#[test]
fn facts_1_1_cline() {
    let check = |case, rest: &str| check("cline", case, &format!("cline --json {rest} --  "));
    check(Case::Auto, "--auto-approve false");
    check(Case::Fenced, "--auto-approve true");
    check(Case::Full, "--auto-approve true");
    check(Case::Model, "--auto-approve false -m m-1");
    check(Case::Max, "--auto-approve false --thinking xhigh");
    check(Case::FreshQuery, "--plan --auto-approve false");
    for case in [Case::Resume, Case::Fork] {
        let refusal = refused("cline", &request_of(case));
        assert_eq!(refusal, "cline cannot continue a session without a terminal");
    }
}

#[test]
fn facts_1_1_aider() {
    let base = "aider --no-pretty --yes-always --no-stream --no-show-model-warnings --analytics-disable \
                --no-check-update --no-show-release-notes --no-gitignore --no-auto-commits \
                --no-dirty-commits --message-file=/dev/stdin";
    let check = |case, rest: &str| check("aider", case, &format!("{base}{rest}"));
    check(Case::Auto, "");
    check(Case::Full, "");
    check(Case::Model, " --model m-1");
    check(Case::Max, " --reasoning-effort high");
    check(Case::FreshQuery, " --chat-mode ask");
    for case in [Case::Resume, Case::Fork] {
        assert_eq!(refused("aider", &request_of(case)), "aider keeps no sessions that could be continued");
    }
}

/// `/run rm x` would be a command of the program and `!rm x` one of the shell.
#[test]
fn a_prompt_is_no_command_of_aider() {
    for prompt in ["/run touch x", "!touch x"] {
        let (input, closed) = input(&mut launch("aider", &request(prompt)));
        assert_eq!((input, closed), (format!(" {prompt}"), true));
    }
}

#[test]
fn facts_1_5_acp_presets_and_commands() {
    let with_model =
        |model: Option<&str>| LaunchRequest { model: model.map(str::to_owned), ..request_of(Case::Auto) };
    for (model, expected) in [
        ("qwen", "qwen --acp"),
        ("copilot/gpt-5", "copilot --acp"),
        ("cline", "cline --acp"),
        ("goose", "goose acp"),
        ("gemini/gemini-2.5-pro", "GEMINI_CLI_NO_RELAUNCH=true gemini --acp"),
        ("opencode/anthropic/claude-sonnet-4-5", "opencode acp"),
        ("claude", "claude-code-acp "),
        ("codex", "codex-acp "),
    ] {
        assert_eq!(line(&launch("acp", &with_model(Some(model)))), expected);
    }
    let own =
        LaunchRequest { command: vec!["my-agent".to_owned(), "--stdio".to_owned()], ..with_model(None) };
    assert_eq!(line(&launch("acp", &own)), "my-agent --stdio");
    assert!(refused("acp", &with_model(None)).starts_with("an acp agent needs a command"));
    assert!(refused("acp", &with_model(Some("nobody"))).starts_with("unknown acp agent \"nobody\""));
    assert_eq!(refused("acp", &request_of(Case::Fork)), "acp cannot copy a session for a question");
}

/// A prompt never becomes an option of the program, and a long one never an argument: Linux takes 128 KiB
/// in one (`E2BIG`).
#[test]
fn a_prompt_may_begin_with_a_dash_and_be_long() {
    let long = "x".repeat(200_000);
    let providers =
        ["claude-code", "codex", "gemini", "opencode", "qwen", "copilot", "cline", "aider", "acp"];
    for provider in providers {
        for prompt in ["--dangerously-skip-permissions", "-p \"x\"\n-", long.as_str()] {
            let mut request = request(prompt);
            request.model = (provider == "acp").then(|| "qwen".to_owned());
            let mut launch = launch(provider, &request);
            assert!(launch.args.iter().all(|argument| argument != prompt && argument.len() < 128 * 1024));
            let (input, closed) = input(&mut launch);
            assert_eq!(launch.stdin, !input.is_empty(), "{provider}");
            match provider {
                "codex" | "opencode" | "qwen" | "copilot" | "cline" | "aider" => {
                    assert_eq!((input.as_str(), closed), (prompt, true));
                }
                "gemini" if prompt.len() > 100_000 => assert_eq!((input.as_str(), closed), (prompt, true)),
                "gemini" => assert_eq!(launch.args.last(), Some(&format!("--prompt={prompt}"))),
                "claude-code" => {
                    let line: serde_json::Value = serde_json::from_str(&input).expect("one line of JSON");
                    assert_eq!(line["message"]["content"][0]["text"], prompt);
                    assert!(input.ends_with('\n') && !closed);
                }
                _ => assert!(input.contains("\"method\":\"initialize\"") && !closed),
            }
        }
    }
}

/// `-m --yolo` would switch all permissions off.
#[test]
fn a_model_or_session_cannot_be_an_option() {
    for provider in ["claude-code", "codex", "gemini", "opencode", "qwen", "copilot", "cline", "aider"] {
        let model = LaunchRequest { model: Some("--yolo".to_owned()), ..request("do it") };
        assert!(refused(provider, &model).starts_with("the model \"--yolo\" is not a name"));
        let session = SessionStart::Resume { id: "--last".to_owned(), counted: Tokens::default() };
        let resumed = LaunchRequest { session, ..request("do it") };
        assert!(refused(provider, &resumed).starts_with("the session \"--last\" is not a name"));
    }
}

#[test]
fn ids_are_unique_and_models_have_windows() {
    let mut ids: Vec<_> = super::all().iter().map(|provider| provider.info().id).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    for provider in super::all() {
        assert!(provider.info().models.iter().all(|model| model.context_window > 0 && !model.id.is_empty()));
    }
}
