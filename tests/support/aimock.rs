//! The real agent programs and the scripted model endpoint they talk to (`tests/real/setup` installs both).
//!
//! The endpoint answers by words of the prompt, wherever in the message they stand; the script is in
//! `tests/data/aimock/`, where `@PROJECT@` stands for the project's root.

use super::folder::Folder;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

/// Every program gets this key; long, for some programs hide its value wherever it occurs in their output.
const KEY: &str = "scripted-model-key-0123456789";
/// The script of the endpoint.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/aimock");

/// An agent program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cli {
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Gemini CLI, spoken to by the Agent Client Protocol.
    GeminiAcp,
    /// Claude Code.
    Claude,
    /// `OpenCode`.
    OpenCode,
}

impl Cli {
    /// The daemon's id of its provider.
    pub fn provider(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::GeminiAcp => "acp",
            Self::Claude => "claude-code",
            Self::OpenCode => "opencode",
        }
    }

    /// The model to ask for: one whose tools are plain functions, which is what the script calls. Gemini's
    /// default would ask a second model which model to take.
    pub fn model(self) -> Option<&'static str> {
        match self {
            Self::Codex => Some("gpt-5.5"),
            Self::Gemini => Some("gemini-2.5-pro"),
            Self::GeminiAcp => Some("gemini/gemini-2.5-pro"),
            // The script's answers have no thinking blocks, which other models of Claude Code insist on.
            Self::Claude => Some("claude-opus-5-5"),
            Self::OpenCode => Some("aimock/gpt-4o"),
        }
    }

    /// Its program, also its folder's name in the installation.
    fn program(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Gemini | Self::GeminiAcp => "gemini",
            Self::Claude => "claude",
            Self::OpenCode => "opencode",
        }
    }

    /// Whether it is there to be tested; says so when it is not.
    ///
    /// Panics where `SVC_REAL_CLIS=require` and a program is absent that `tests/real/setup` installs
    /// by default.
    pub fn is_here(self) -> bool {
        let absent: Vec<&str> =
            ["aimock", self.program()].into_iter().filter(|name| !bin_folder(name).is_dir()).collect();
        if absent.is_empty() {
            return true;
        }
        let absent = absent.join(" and ");
        if matches!(self, Self::Codex | Self::Gemini) {
            super::real::absent(&absent, "setup");
        } else {
            eprintln!("SKIPPED: {absent} absent; 'tests/real/setup {}' installs it", self.program());
        }
        false
    }

    /// Its file, if it is there to be asked for something that needs no endpoint; says so when it is not.
    pub fn here_alone(self) -> Option<PathBuf> {
        let file = bin_folder(self.program()).join(self.program());
        let is_here = file.is_file() && self.is_here();
        is_here.then_some(file)
    }
}

/// Where programs and endpoint are installed.
fn installation() -> PathBuf {
    let default = || concat!(env!("CARGO_MANIFEST_DIR"), "/target/real-clis").into();
    PathBuf::from(std::env::var_os("SVC_REAL_CLIS_DIR").unwrap_or_else(default))
}

fn bin_folder(name: &str) -> PathBuf {
    installation().join(name).join("node_modules/.bin")
}

/// The running endpoint; ended on drop.
pub struct Aimock {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    child: Child,
    /// The script as this project sees it; read at the start, kept for a look after a failed test.
    _script: Folder,
}

impl Aimock {
    /// Starts one on a free port, with the script made for this project.
    pub fn start(project: &Path) -> Self {
        let script = Folder::new("aimock");
        for entry in fs::read_dir(SCRIPT).unwrap().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap();
            let text = text.replace("@PROJECT@", project.to_str().unwrap());
            script.write(entry.file_name().to_str().unwrap(), &text);
        }
        let mut child = Command::new(bin_folder("aimock").join("llmock"))
            .args(["--port", "0", "--strict", "--validate-on-load", "--fixtures"])
            .arg(script.path())
            // Otherwise the place in the conversation is only a preference among answers that fit.
            .env("AIMOCK_STRICT_TURN_INDEX", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let Some(url) = listening_url(&mut output) else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the scripted model endpoint did not start");
        };
        // It writes a line now and then; a full pipe would stop it. Ends with the child.
        thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Self { url, child, _script: script }
    }

    /// The bodies of the requests that it has got, oldest first.
    pub fn asked(&self) -> Vec<Value> {
        let mut answer = svc_sys::http::client::strict()
            .build()
            .new_agent()
            .get(format!("{}/__aimock/journal", self.url))
            .call()
            .unwrap();
        let journal: Value = serde_json::from_reader(answer.body_mut().as_reader()).unwrap();
        let entries = journal.as_array().or(journal["entries"].as_array()).expect("a list");
        entries.iter().map(|entry| entry["body"].clone()).collect()
    }
}

impl Drop for Aimock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what the endpoint prints until it says where it listens.
fn listening_url(output: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = String::new();
    while output.read_line(&mut line).ok()? > 0 {
        if let Some((_, url)) = line.trim().split_once("listening on ") {
            return Some(url.to_owned());
        }
        line.clear();
    }
    None
}

/// A `HOME` for all programs, in which each is set up to talk to one endpoint and nobody else.
pub struct Home(PathBuf);

impl Home {
    /// A fresh one. It is below the build's folder: Codex distrusts a `HOME` below the temporary folder.
    pub fn new(endpoint: &str) -> Self {
        let name = thread::current().name().unwrap_or("main").replace("::", "-");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("home-{name}-{}", std::process::id()));
        let home = Self(path);
        home.write(".codex/config.toml", &codex_settings(endpoint));
        home.write(".gemini/settings.json", &gemini_settings().to_string());
        home.write(".config/opencode/opencode.json", &opencode_settings(endpoint).to_string());
        home
    }

    /// What the daemon's environment needs for its agents to find the program, this `HOME`, the endpoint.
    pub fn variables(&self, cli: Cli, endpoint: &str) -> Vec<(&'static str, String)> {
        self.variables_of(&[cli], endpoint)
    }

    /// As [`Home::variables`], for agents of several programs.
    pub fn variables_of(&self, clis: &[Cli], endpoint: &str) -> Vec<(&'static str, String)> {
        let at = |name: &str| self.0.join(name).to_str().unwrap().to_owned();
        vec![
            ("HOME", at("")),
            ("PATH", path_variable(clis)),
            ("CODEX_HOME", at(".codex")),
            ("OPENAI_API_KEY", KEY.into()),
            ("GEMINI_API_KEY", KEY.into()),
            ("GOOGLE_GEMINI_BASE_URL", endpoint.into()),
            ("ANTHROPIC_API_KEY", KEY.into()),
            ("ANTHROPIC_BASE_URL", endpoint.into()),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
            // Claude Code refuses to skip its questions as root otherwise.
            ("IS_SANDBOX", "1".into()),
            ("OPENCODE_CONFIG", at(".config/opencode/opencode.json")),
        ]
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file below it.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A program that is only just ending may still write into it; what stays lies in the build's folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The programs' folders first, then what this test was started with. Each program more would be asked for
/// its version whenever a daemon starts, which takes seconds.
fn path_variable(clis: &[Cli]) -> String {
    let mut folders: Vec<PathBuf> = clis.iter().map(|cli| bin_folder(cli.program())).collect();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let joined: OsString = std::env::join_paths(folders).unwrap();
    joined.into_string().unwrap()
}

/// The last lines: a person has seen the advertisement of another model, which its screen begins with.
fn codex_settings(endpoint: &str) -> String {
    format!(
        "model = \"gpt-5.5\"\nmodel_provider = \"aimock\"\n\n[model_providers.aimock]\nname = \"aimock\"\n\
         base_url = \"{endpoint}/v1\"\nwire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n\n\
         [notice.model_migrations]\n\"gpt-5.5\" = \"gpt-6-sol\"\n"
    )
}

fn gemini_settings() -> Value {
    json!({
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"disableAutoUpdate": true},
        "privacy": {"usageStatisticsEnabled": false},
    })
}

fn opencode_settings(endpoint: &str) -> Value {
    json!({
        "model": "aimock/gpt-4o",
        "small_model": "aimock/gpt-4o",
        "autoupdate": false,
        "share": "disabled",
        "provider": {"aimock": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "aimock",
            "options": {"baseURL": format!("{endpoint}/v1"), "apiKey": KEY},
            "models": {"gpt-4o": {"name": "gpt-4o", "limit": {"context": 128_000, "output": 16_000}}},
        }},
    })
}
