//! The programs of the providers: whether they are there, who is logged in, and what of the environment
//! reaches them. Names and versions only, never a secret.

use super::super::client::Client;
use super::super::help::VERSION;
use super::super::target::text;
use super::{Check, Level, PROVIDER, not, ok, output_of};
use serde_json::{Value, json};
use svc_providers::{self as providers, Program};

/// Names of variables in one list.
const NAMES_MAX: usize = 200;
/// All providers, once versions and logins are told.
pub(super) const PROVIDERS: &str = "/api/providers?wait=true";

/// Programs as the daemon sees them, or as this shell does where no daemon answers.
pub(super) fn checks(client: Option<&Client>) -> Vec<Check> {
    let list = client.and_then(|client| client.try_call("GET", PROVIDERS, None).ok());
    let list = list.and_then(|list| list.as_array().cloned()).unwrap_or_else(|| {
        let look = |provider: &&dyn providers::Provider| {
            let info = provider.info();
            let version = match info.program {
                Program::Itself => Some(VERSION.to_owned()),
                Program::OnPath(program, args) => output_of(program, args),
            };
            json!({"id": info.id, "installed": version.is_some(), "version": version,
                "builtIn": info.program == Program::Itself, "installCommand": info.install_command})
        };
        providers::all().iter().map(look).collect()
    });
    let mut checks: Vec<Check> = list.iter().map(check).collect();
    checks.extend(client.and_then(environment));
    checks
}

fn check(provider: &Value) -> Check {
    let name = format!("{PROVIDER}{}", text(provider, "id"));
    if provider["installed"] != true {
        return not(Level::Warn, &name, "not installed", text(provider, "installCommand"));
    }
    let version = match text(provider, "version") {
        _ if provider["builtIn"] == true => "built in",
        "" => "installed, its version is not known yet",
        version => version,
    };
    let (access, remedy) = access(provider);
    let detail = if access.is_empty() { version.to_owned() } else { format!("{version}, {access}") };
    if remedy.is_empty() { ok(&name, detail) } else { not(Level::Warn, &name, detail, remedy) }
}

/// By what a provider's program is let in, and what to do where it is by nothing.
pub(super) fn access(provider: &Value) -> (String, String) {
    let login = &provider["login"];
    let key = match (text(provider, "keyFrom"), text(provider, "envKey")) {
        ("", _) => String::new(),
        ("environment", name) => format!("its key comes from the environment ({name})"),
        (from, _) => format!("its key comes from {from}"),
    };
    match (key.is_empty(), login["ok"].as_bool()) {
        (true, Some(true)) => (text(login, "told").to_owned(), String::new()),
        (true, Some(false)) => (text(login, "told").to_owned(), text(login, "remedy").to_owned()),
        (false, Some(true)) => (format!("{key}; {}", text(login, "told")), String::new()),
        (_, _) => (key, String::new()),
    }
}

/// What the agents of the default provider get of the daemon's environment.
fn environment(client: &Client) -> Option<Check> {
    let config = client.try_call("GET", "/api/config", None).ok()?;
    let provider = text(&config, "defaultProvider");
    let told = client.try_call("GET", &format!("/api/providers/{provider}/environment"), None).ok()?;
    let names = |list: &str| {
        let all: Vec<&str> = told[list].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let more = all.len().saturating_sub(NAMES_MAX);
        let shown = all[..all.len() - more].join(" ");
        match (all.is_empty(), more) {
            (true, _) => "none".to_owned(),
            (false, 0) => shown,
            (false, more) => format!("{shown} and {more} more"),
        }
    };
    let set = if told["set"] == json!([]) { String::new() } else { format!("; set: {}", names("set")) };
    let mut check = ok(
        "environment",
        format!("agents of {provider} get: {}{set}; held back: {}", names("passed"), names("held")),
    );
    check.remedy = "pass one: svc config set env.pass '[\"NAME\"]'".into();
    Some(check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_told_with_version_and_login_and_what_to_do() {
        let told = |provider: Value| {
            let check = check(&provider);
            (check.level, check.detail, check.remedy)
        };
        let login = json!({"ok": false, "told": "not logged in", "remedy": "log in: claude"});
        let provider =
            json!({"id": "a", "installed": true, "version": "1.2", "login": login, "envKey": "A_KEY"});
        let out = (Level::Warn, "1.2, not logged in".into(), "log in: claude".into());
        assert_eq!(told(provider.clone()), out);
        let mut keyed = provider.clone();
        keyed["keyFrom"] = json!("environment");
        let with_key = "1.2, its key comes from the environment (A_KEY)".to_owned();
        assert_eq!(told(keyed), (Level::Ok, with_key, String::new()));
        let mut inside = provider;
        inside["login"] = json!({"ok": true, "told": "logged in as a@b.c", "remedy": ""});
        assert_eq!(told(inside), (Level::Ok, "1.2, logged in as a@b.c".into(), String::new()));
        let built_in = json!({"id": "script", "installed": true, "builtIn": true, "version": null});
        assert_eq!(told(built_in), (Level::Ok, "built in".into(), String::new()));
        let absent = json!({"id": "a", "installed": false, "installCommand": "get it"});
        assert_eq!(told(absent), (Level::Warn, "not installed".into(), "get it".into()));
    }
}
