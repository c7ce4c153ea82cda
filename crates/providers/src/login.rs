//! Whether somebody is logged in to a provider's program: what the program says when it is asked, or the file
//! in which it keeps that. Never a secret, only that it is there and whose it is.

use super::Info;
use serde_json::Value;

/// Whether a program can be used as it is.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Login {
    pub is_in: bool,
    /// For people, for example `logged in as a@b.c`.
    pub told: String,
}

impl Login {
    fn as_whom(whom: &str) -> Self {
        let whom = super::wire::cut(&plain(whom), NAME_BYTES);
        let told = if whom.is_empty() { "logged in".to_owned() } else { format!("logged in as {whom}") };
        Self { is_in: true, told }
    }

    /// Nobody is.
    pub fn out() -> Self {
        Self { is_in: false, told: "not logged in".into() }
    }
}

/// Bytes of a name that are shown.
const NAME_BYTES: usize = 100;

/// What a program has answered.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Standard output and error.
    pub text: &'a str,
    /// Exit code 0.
    pub is_success: bool,
}

/// How one learns of it.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// There is nothing to log in to, or no way to learn it.
    Nowhere,
    /// The program answers these arguments; `None` is an answer that is not understood.
    Program(&'static [&'static str], fn(Answer) -> Option<Login>),
    /// A JSON file says it.
    File(StateFile),
    /// It is somebody on the network: reachable or not.
    Endpoint,
}

/// A file of a program's own state.
#[derive(Debug, Clone, Copy)]
pub struct StateFile {
    /// Its path below the home folder, where no variable moves it.
    pub path: &'static str,
    /// Reads it; `None` where it says that nobody is logged in.
    pub read: fn(&Value) -> Option<Login>,
}

/// Facts about the login of a program.
#[derive(Debug, Clone, Copy)]
pub struct LoginFacts {
    /// What a person runs to log in; empty where there is no such thing.
    pub command: &'static str,
    /// How one learns of it.
    pub source: Source,
}

/// A program without a login.
pub const NO_LOGIN: LoginFacts = LoginFacts { command: "", source: Source::Nowhere };

/// Parts of an error that mean that nobody is logged in, or with a wrong key.
const SIGNS: &[&str] = &[
    "/login",
    "401 Unauthorized",
    "API key not valid",
    "Authentication failed",
    "HTTP 401",
    "Invalid API key",
    "Missing environment variable",
    "Not logged in",
    "authentication_error",
    "invalid x-api-key",
    "not logged in",
];

/// Whether a turn failed for want of a login.
pub fn is_missing(error: &str) -> bool {
    SIGNS.iter().any(|sign| error.contains(sign))
}

/// What to do where nobody is logged in; empty where there is nothing to do.
pub fn remedy(info: &Info) -> String {
    if let Source::Endpoint = info.login.source {
        return format!("start it: {}, or name another by SVC_OLLAMA_URL", info.login.command);
    }
    match (info.login.command, info.env_key) {
        ("", "") => String::new(),
        ("", _) => format!("store its key: svc credentials set {}", info.id),
        (command, "") => format!("log in: {command}"),
        (command, _) => format!("log in: {command}, or store a key: svc credentials set {}", info.id),
    }
}

/// `claude auth status`: an object with `loggedIn`, and more where somebody is.
pub fn claude(answer: Answer) -> Option<Login> {
    let status: Value = serde_json::from_slice(answer.text.trim().as_bytes()).ok()?;
    if !status.get("loggedIn")?.as_bool()? {
        return Some(Login::out());
    }
    let text = |name: &str| status.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    Some(match (text("email"), text("authMethod")) {
        (Some(email), _) => Login::as_whom(email),
        (None, Some("api_key")) => Login { is_in: true, told: "its key is in the environment".into() },
        (None, Some("third_party")) => {
            let whom = text("apiProvider").unwrap_or("a third party");
            Login { is_in: true, told: format!("goes through {}", plain(whom)) }
        }
        (None, method) => Login::as_whom(method.unwrap_or_default()),
    })
}

/// `codex login status`: words for people; where it is a key, parts of the key stand behind a dash.
pub fn codex(answer: Answer) -> Option<Login> {
    let lines = || answer.text.lines().map(str::trim);
    if lines().any(|line| line == "Not logged in") {
        return Some(Login::out());
    }
    let how = lines().find(|line| line.starts_with("Logged in using") || line.starts_with("API key"))?;
    let told = if how.contains("ChatGPT") { "logged in with ChatGPT" } else { "logged in with an API key" };
    answer.is_success.then(|| Login { is_in: true, told: told.into() })
}

/// Gemini's `google_accounts.json`: the account that is in use.
pub fn gemini(file: &Value) -> Option<Login> {
    let active = file.get("active")?.as_str().filter(|account| !account.is_empty())?;
    Some(Login::as_whom(active))
}

/// Qwen's `oauth_creds.json`: there or not.
pub fn qwen(file: &Value) -> Option<Login> {
    file.get("access_token").is_some().then(|| Login::as_whom(""))
}

/// opencode's `auth.json`: an entry a vendor.
pub fn opencode(file: &Value) -> Option<Login> {
    let vendors: Vec<String> = file.as_object()?.keys().take(10).map(|name| plain(name)).collect();
    (!vendors.is_empty()).then(|| Login { is_in: true, told: format!("logged in to {}", vendors.join(", ")) })
}

/// Copilot's `config.json`: who logged in last, else anybody.
pub fn copilot(file: &Value) -> Option<Login> {
    let last = ["last_logged_in_user", "lastLoggedInUser"].iter().find_map(|name| file.get(name));
    let any =
        ["logged_in_users", "loggedInUsers"].iter().find_map(|name| file.get(name)?.as_array()?.first());
    let user = last.or(any)?;
    Some(Login::as_whom(user.get("login").and_then(Value::as_str).or(user.as_str()).unwrap_or_default()))
}

/// Cline's `providers.json`: which vendor it uses.
pub fn cline(file: &Value) -> Option<Login> {
    let vendors = file.get("providers")?.as_object()?;
    let used =
        file.get("lastUsedProvider").and_then(Value::as_str).filter(|name| vendors.contains_key(*name));
    let name = used.or_else(|| vendors.keys().next().map(String::as_str))?;
    Some(Login { is_in: true, told: format!("set up for {}", plain(name)) })
}

/// Words of another program, fit for one line.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(login: Option<Login>) -> String {
        login.map_or_else(|| "unknown".into(), |login| login.told)
    }

    /// The answers of claude 2.1.329, which was really asked.
    #[test]
    fn what_claude_says_of_its_login() {
        let ask = |status: Value| told(claude(Answer { text: &status.to_string(), is_success: true }));
        assert_eq!(ask(json!({"loggedIn": false, "authMethod": "none"})), "not logged in");
        assert_eq!(ask(json!({"loggedIn": true, "authMethod": "api_key"})), "its key is in the environment");
        assert_eq!(ask(json!({"loggedIn": true, "authMethod": "oauth_token"})), "logged in as oauth_token");
        assert_eq!(
            ask(json!({"loggedIn": true, "authMethod": "third_party", "apiProvider": "bedrock"})),
            "goes through bedrock"
        );
        assert_eq!(
            ask(json!({"loggedIn": true, "authMethod": "claude.ai", "email": "a@b.c"})),
            "logged in as a@b.c"
        );
        assert_eq!(ask(json!({})), "unknown");
        assert_eq!(told(claude(Answer { text: "error: unknown command", is_success: false })), "unknown");
    }

    /// The answers of codex 0.169.0; parts of the key are not repeated.
    #[test]
    fn what_codex_says_of_its_login() {
        let ask = |text, is_success| told(codex(Answer { text, is_success }));
        assert_eq!(ask("WARNING: no aliases\nNot logged in\n", false), "not logged in");
        assert_eq!(ask("API key configured - sk-abcde***vwxyz\n", true), "logged in with an API key");
        assert_eq!(ask("Logged in using ChatGPT\n", true), "logged in with ChatGPT");
        assert_eq!(ask("error: unrecognized subcommand", false), "unknown");
    }

    #[test]
    fn what_the_files_of_the_others_say() {
        assert_eq!(told(gemini(&json!({"active": "a@b.c", "old": []}))), "logged in as a@b.c");
        assert_eq!(told(gemini(&json!({"active": null}))), "unknown");
        assert_eq!(told(opencode(&json!({"anthropic": {"key": "secret"}}))), "logged in to anthropic");
        assert_eq!(told(opencode(&json!({}))), "unknown");
        assert_eq!(told(qwen(&json!({"access_token": "secret"}))), "logged in");
        let users = json!({"logged_in_users": [{"host": "h", "login": "octo\u{1b}[31m"}]});
        assert_eq!(told(copilot(&users)), "logged in as octo[31m");
        let file = json!({"providers": {"openai": {"apiKey": "secret"}}, "lastUsedProvider": "openai"});
        assert_eq!(told(cline(&file)), "set up for openai");
    }

    #[test]
    fn a_failure_for_want_of_a_login_names_what_to_do() {
        assert!(is_missing("Invalid API key · Please run /login"));
        assert!(is_missing("unexpected status 401 Unauthorized: x"));
        assert!(!is_missing("the answer has 401 lines"));
        let info = |id| super::super::by_id(id).expect("a provider").info();
        assert_eq!(
            remedy(info("claude-code")),
            "log in: claude auth login, or store a key: svc credentials set claude-code"
        );
        assert_eq!(remedy(info("script")), "");
    }
}
