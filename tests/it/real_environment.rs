//! The real Claude Code and Codex where the way to the model leads through a proxy, a certificate of the
//! office's own, or a cloud: they get there through svc as they do without it.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::proxy::{Proxy, Tls};
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A turn takes 4 s on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);
const ANSWER: &str = "This is the plain answer.";
const PROMPT: &str = "Please do REAL-PLAIN now.";
/// What a program finds in this test's own environment would lead it elsewhere.
const CLEARED: [&str; 8] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
];

/// A program, its home, and its model endpoint. Fields are dropped in this order.
struct Stage {
    cli: Cli,
    aimock: Aimock,
    home: Home,
    project: Arc<Folder>,
}

impl Stage {
    /// `None` when the program is absent.
    fn new(cli: Cli) -> Option<Self> {
        if !cli.is_here() {
            return None;
        }
        let project = Arc::new(Folder::in_target("environment"));
        let aimock = Aimock::start(project.path());
        let home = Home::new(&aimock.url);
        Some(Self { cli, aimock, home, project })
    }

    /// Without svc, and then through svc, in an environment with these variables instead of the usual ones.
    fn both_answer(&self, drop: &[&str], more: &[(&str, &str)]) {
        let mut variables = self.home.variables(self.cli, &self.aimock.url);
        variables.retain(|(name, _)| !drop.contains(name));
        let own = variables.iter().map(|(name, value)| (*name, value.as_str()));
        let cleared = CLEARED.iter().chain(drop).map(|name| (*name, ""));
        // The last value of a name counts; an empty one means that it is not there.
        let all: BTreeMap<&str, &str> = cleared.chain(own).chain(more.iter().copied()).collect();
        let all: Vec<(&str, &str)> = all.into_iter().collect();
        self.alone(&all);
        self.through_svc(&all);
    }

    fn alone(&self, variables: &[(&str, &str)]) {
        let (program, args): (&str, &[&str]) = match self.cli {
            Cli::Claude => ("claude", &["-p", PROMPT, "--model", "claude-opus-5-5"]),
            _ => ("codex", &["exec", "--skip-git-repo-check", PROMPT]),
        };
        let mut command = Command::new("timeout");
        command.args([&LIMIT.as_secs().to_string(), "env"]);
        for (name, _) in variables.iter().filter(|(_, value)| value.is_empty()) {
            command.args(["-u", name]);
        }
        command
            .arg(program)
            .args(args)
            .envs(variables.iter().filter(|(_, value)| !value.is_empty()).copied());
        command.current_dir(self.project.path()).stdin(Stdio::null());
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        assert!(told.contains(ANSWER), "{program} without svc: {told}");
    }

    fn through_svc(&self, variables: &[(&str, &str)]) {
        let daemon = Daemon::start_in(Arc::clone(&self.project), variables);
        let body = json!({
            "role": "dev", "name": "a", "provider": self.cli.provider(), "model": self.cli.model(),
            "prompt": PROMPT,
        });
        daemon.post("/api/agents", &body);
        let ended = wait_within(LIMIT, "the agent to end", || {
            let record = daemon.get("/api/agents/a");
            (record["status"] != "active").then_some(record)
        });
        let (_, log) = daemon.send("GET", "/api/agents/a/log", &Value::Null);
        assert_eq!(ended["state"], "completed", "{ended:#}\n{log:#}");
        assert!(log.to_string().contains(ANSWER), "{log:#}");
    }

    fn codex_settings(&self, base_url: &str, key: &str, more: &str) {
        let settings = format!(
            "model = \"gpt-5.5\"\nmodel_provider = \"office\"\n\n[model_providers.office]\nname = \"office\"\n\
             base_url = \"{base_url}\"\nwire_api = \"responses\"\nenv_key = \"{key}\"\n{more}"
        );
        self.home.write(".codex/config.toml", &settings);
    }
}

#[test]
fn real_claude_goes_through_a_proxy() {
    let Some(stage) = Stage::new(Cli::Claude) else { return };
    let proxy = Proxy::start(&stage.aimock.url);
    let way = [("ANTHROPIC_BASE_URL", "http://model.invalid"), ("HTTP_PROXY", proxy.url.as_str())];
    stage.both_answer(&["ANTHROPIC_BASE_URL"], &way);
    let asked = proxy.asked();
    assert!(asked.iter().filter(|line| line.contains("model.invalid")).count() >= 2, "{asked:?}");
}

#[test]
fn real_codex_goes_through_a_proxy() {
    let Some(stage) = Stage::new(Cli::Codex) else { return };
    let proxy = Proxy::start(&stage.aimock.url);
    stage.codex_settings("http://model.invalid/v1", "OPENAI_API_KEY", "");
    stage.both_answer(&[], &[("HTTP_PROXY", proxy.url.as_str())]);
    let asked = proxy.asked();
    assert!(asked.iter().filter(|line| line.contains("model.invalid")).count() >= 2, "{asked:?}");
}

#[test]
fn real_claude_trusts_a_certificate_of_the_office() {
    let Some(stage) = Stage::new(Cli::Claude) else { return };
    let Some(tls) = Tls::start(stage.project.path(), &stage.aimock.url) else {
        return eprintln!("skipped: there is no openssl to make certificates with");
    };
    let authority = tls.authority.to_str().unwrap();
    let way = [("ANTHROPIC_BASE_URL", tls.url.as_str()), ("NODE_EXTRA_CA_CERTS", authority)];
    stage.both_answer(&["ANTHROPIC_BASE_URL", "SSL_CERT_FILE", "SSL_CERT_DIR"], &way);
}

#[test]
fn real_codex_trusts_a_certificate_of_the_office() {
    let Some(stage) = Stage::new(Cli::Codex) else { return };
    let Some(tls) = Tls::start(stage.project.path(), &stage.aimock.url) else {
        return eprintln!("skipped: there is no openssl to make certificates with");
    };
    stage.codex_settings(&format!("{}/v1", tls.url), "OPENAI_API_KEY", "");
    stage.both_answer(&["SSL_CERT_DIR"], &[("SSL_CERT_FILE", tls.authority.to_str().unwrap())]);
}

#[test]
fn real_claude_speaks_to_a_cloud_as_bedrock_is_one() {
    let Some(stage) = Stage::new(Cli::Claude) else { return };
    let way = [
        ("CLAUDE_CODE_USE_BEDROCK", "1"),
        ("ANTHROPIC_BEDROCK_BASE_URL", stage.aimock.url.as_str()),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "AKIASCRIPTED"),
        ("AWS_SECRET_ACCESS_KEY", "scripted-secret-key-0123456789"),
    ];
    stage.both_answer(&["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"], &way);
}

#[test]
fn real_codex_speaks_to_a_cloud_as_azure_is_one() {
    let Some(stage) = Stage::new(Cli::Codex) else { return };
    let base = format!("{}/v1", stage.aimock.url);
    stage.codex_settings(&base, "AZURE_OPENAI_API_KEY", "query_params = { api-version = \"2026-04-01\" }\n");
    stage.both_answer(&["OPENAI_API_KEY"], &[("AZURE_OPENAI_API_KEY", "scripted-model-key-0123456789")]);
}
