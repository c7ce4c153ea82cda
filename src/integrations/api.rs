//! `/api/integrations`.

use super::catalogue::{Definition, EnvKey, Kind, OAuth};
use super::install::unknown;
use super::{Command, exec, record, worker_oauth};
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::credentials::Secret;
use crate::endpoint::{Access, Ask, Handler};
use serde_json::{Value, json};
use std::sync::Arc;

/// Characters of an integration's id.
const MAX_ID_CHARS: usize = 64;
/// Characters of a tool's name or an agent's.
const MAX_NAME_CHARS: usize = 200;
const MAX_DESCRIPTION_CHARS: usize = 300;
/// Characters of one word of a command line.
const MAX_WORD_CHARS: usize = 2000;
/// Arguments, variables or gated tools of a custom integration.
const MAX_LIST: usize = 100;

/// The routes of the integrations.
pub fn routes() -> Vec<Route<Handler>> {
    let mut routes = operator_routes();
    routes.extend(credential_routes());
    routes.extend(agent_routes());
    routes
}

fn agent_routes() -> Vec<Route<Handler>> {
    use Access::Anyone;
    use Handler::{Read, Write};
    vec![
        Route::new(Method::Get, "/api/integrations", "The catalogue, and what is installed", Read(list)),
        Route::new(Method::Get, "/api/integrations/:id", "One integration", Read(get))
            .replies(&[(200, "the record"), (404, "no such integration")]),
        Route::new(
            Method::Get,
            "/api/integrations/:id/tools",
            "Its tools; starts its server",
            Write(Anyone, |ask| Ok(Command::Tools(ask.target()).into())),
        )
        .replies(&[(200, "tools"), (400, "not installed, or its server failed")]),
        Route::new(Method::Post, "/api/integrations/:id/exec", "Call a tool", Write(Anyone, parse_exec))
            .body(exec_schema)
            .replies(&[
                (200, "result"),
                (202, "a gated tool: approve, then repeat the call with approvalId"),
                (400, "a field is wrong, it is not installed, or its server failed"),
                (403, "the approval was rejected, used, or given for another call"),
                (404, "no such approval"),
                (429, "more than 30 calls a minute"),
            ]),
    ]
}

fn operator_routes() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::Write;
    vec![
        Route::new(
            Method::Post,
            "/api/integrations",
            "Add an integration of your own",
            Write(OperatorOnly, add),
        )
        .body(add_schema)
        .replies(&[(201, "the record"), (409, "the id is in use")]),
        Route::new(
            Method::Post,
            "/api/integrations/:id/install",
            "Install one of the catalogue",
            Write(OperatorOnly, install),
        )
        .body(|| schema_of(version))
        .replies(&[
            (200, "the record"),
            (202, "it takes longer; integration:status reports it"),
            (404, "not in the catalogue"),
            (502, "npm could not install it"),
        ]),
        Route::new(
            Method::Delete,
            "/api/integrations/:id",
            "Stop and remove one, its credentials too",
            Write(OperatorOnly, |ask| Ok(Command::Remove(ask.target()).into())),
        )
        .replies(&[(200, "it is gone"), (404, "not installed")]),
    ]
}

fn credential_routes() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::{Work, Write};
    vec![
        Route::new(
            Method::Post,
            "/api/integrations/:id/credentials",
            "Store a credential of an integration, encrypted",
            Work(OperatorOnly, worker_oauth::set_credential),
        )
        .body(|| {
            json!({
                "type": "object",
                "required": ["key", "value"],
                "properties": {"key": {"type": "string"}, "value": {"type": "string", "writeOnly": true}},
            })
        })
        .replies(&[(200, "ok, key, masked"), (400, "no such key"), (404, "no such integration")]),
        Route::new(
            Method::Delete,
            "/api/integrations/:id/credentials/:key",
            "Forget a credential of an integration",
            Write(OperatorOnly, |ask| {
                Ok(Command::RemoveCredential(ask.target(), ask.params.get("key").to_owned()).into())
            }),
        )
        .replies(&[(200, "it is gone"), (404, "not set")]),
        Route::new(
            Method::Post,
            "/api/integrations/:id/oauth/start",
            "Begin a consent flow",
            Work(OperatorOnly, worker_oauth::start),
        )
        .replies(&[
            (200, "url to open in a browser, redirectUri, expiresAt"),
            (400, "it has no consent flow, or its client id is not set"),
        ]),
        Route::new(
            Method::Get,
            "/api/integrations/oauth/callback",
            "Where the browser comes back from a consent",
            Write(OperatorOnly, callback),
        )
        .query(&[
            ("state", "as it was given to the authorisation server"),
            ("code", "for tokens"),
            ("error", "why there is no code"),
        ])
        .replies(&[(200, "a page for the person"), (400, "a page that says why not")]),
    ]
}

/// Reads `POST /api/integrations/:id/credentials`. No message repeats the value.
pub(super) fn parse_credential(ask: &Ask) -> Result<(String, String, Secret), Problem> {
    let id = ask.target();
    let definition = definition(ask, &id)?;
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let key = word(&mut fields, "key", MAX_NAME_CHARS, true).unwrap_or_default();
    let known = definition.keys();
    if !key.is_empty() {
        fields.validator.check(known.contains(&key.as_str()), "key", || {
            let list = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!("key must be one that integration {id} takes ({list}), it is {key:?}")
        });
    }
    let secret = crate::credentials::api::secret(&mut fields, "value");
    fields.validator.finish()?;
    Ok((id, key, secret))
}

fn callback(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let given = |name: &str| ask.request.query(name).unwrap_or_default();
    let cut = |text: &str| text.chars().take(MAX_WORD_CHARS).collect::<String>();
    let code = match (given("code"), given("error")) {
        ("", "") => Err("the authorisation server sent neither code nor error".to_owned()),
        ("", error) => Err(cut(error)),
        (code, _) => Ok(cut(code)),
    };
    Ok(Command::OAuthCallback(cut(given("state")), code).into())
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&ask.state.integrations.records(ask.state)))
}

fn get(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&record(ask.state, definition(ask, &ask.target())?)))
}

fn definition<'a>(ask: &Ask<'a>, id: &str) -> Result<&'a Definition, Problem> {
    ask.state.integrations.definition(id).ok_or_else(|| unknown(id))
}

fn install(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(Command::Install(ask.target(), ask.request.read(version)?).into())
}

/// One exact version of the package; absent for the newest.
fn version(fields: &mut Fields) -> Option<String> {
    let version = fields.string("version").map(ToOwned::to_owned);
    if let Some(version) = &version {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
        let fits = !version.is_empty() && version.len() <= MAX_ID_CHARS && version.chars().all(is_plain);
        fields.validator.check(fits && !version.starts_with('-'), "version", || {
            format!("version must be one exact version of the package, it is {version:?}")
        });
    }
    version
}

fn parse_exec(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let tool = word(&mut fields, "tool", MAX_NAME_CHARS, true).unwrap_or_default();
    let params = fields.value("params").cloned().unwrap_or_else(|| json!({}));
    fields.validator.check(params.is_object(), "params", || {
        format!("params must be an object, it is {}", kind_of(&params))
    });
    let request = exec::Request {
        id: ask.target(),
        tool,
        params: Arc::new(params),
        approval_id: word(&mut fields, "approvalId", MAX_NAME_CHARS, false),
        agent: word(&mut fields, "agent", MAX_NAME_CHARS, false),
    };
    // The specification's order: an integration that is not installed is told before a wrong field.
    ask.state.integrations.find(&request.id)?;
    fields.validator.finish()?;
    Ok(Command::Exec(Box::new(request)).into())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "a list",
        Value::String(_) => "a string",
        Value::Number(_) => "a number",
        Value::Bool(_) => "a boolean",
        _ => "something else",
    }
}

/// A string without control characters.
fn word(fields: &mut Fields, name: &str, limit: usize, required: bool) -> Option<String> {
    let text = if required { fields.required_string(name)? } else { fields.string(name)? };
    let fits = text.chars().count() <= limit && !text.chars().any(char::is_control);
    fields.validator.check(fits, name, || {
        format!("{name} must have at most {limit} characters and no control characters")
    });
    (required || !text.is_empty()).then(|| text.to_owned())
}

fn words(fields: &mut Fields, name: &str) -> Vec<String> {
    let list = fields.strings(name).unwrap_or_default();
    let fits = |text: &&str| text.chars().count() <= MAX_WORD_CHARS && !text.contains('\0');
    fields.validator.check(list.len() <= MAX_LIST && list.iter().all(fits), name, || {
        format!(
            "{name} must have at most {MAX_LIST} entries of at most {MAX_WORD_CHARS} characters without NUL"
        )
    });
    list.into_iter().map(ToOwned::to_owned).collect()
}

fn add(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let id = word(&mut fields, "id", MAX_ID_CHARS, true).unwrap_or_default();
    if !id.is_empty() {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let fits = id.chars().all(plain) && !id.starts_with('-') && id != "oauth";
        fields.validator.check(fits, "id", || {
            format!("id must have 1 to {MAX_ID_CHARS} of a-z, 0-9 and - and not begin with -, it is {id:?}")
        });
    }
    let name = word(&mut fields, "name", MAX_NAME_CHARS, false).unwrap_or_else(|| id.clone());
    let command_word = word(&mut fields, "command", MAX_WORD_CHARS, true).unwrap_or_default();
    let transport = fields.choice("transport", &["stdio"]).unwrap_or("stdio");
    let env = env_keys(&mut fields);
    let oauth = fields.value("oauth").map(|value| serde_json::from_value::<OAuth>(value.clone()).ok());
    let fits = oauth.as_ref().is_none_or(|flow| flow.as_ref().is_some_and(is_safe));
    fields.validator.check(fits, "oauth", || {
        "oauth must have authorizeUrl, tokenUrl (https, or http on this machine), clientIdKey, refreshTokenKey, \
         and may have scopes, clientSecretKey, accessTokenKey, extra"
            .to_owned()
    });
    let oauth = oauth.flatten();
    let definition = Definition {
        id,
        name,
        description: word(&mut fields, "description", MAX_DESCRIPTION_CHARS, false).unwrap_or_default(),
        category: word(&mut fields, "category", MAX_ID_CHARS, false).unwrap_or_else(|| "custom".into()),
        transport: transport.to_owned(),
        command: command_word,
        args: words(&mut fields, "args"),
        auth_type: if oauth.is_some() {
            "oauth"
        } else if env.is_empty() {
            "none"
        } else {
            "api-key"
        }
        .into(),
        env,
        gated_tools: words(&mut fields, "gatedTools"),
        kind: Kind::Other,
        version: None,
        oauth,
    };
    fields.validator.finish()?;
    Ok(Command::Add(Box::new(definition)).into())
}

/// `env`: names, or objects with `key` and `required`. Values come by the credentials endpoint.
fn env_keys(fields: &mut Fields) -> Vec<EnvKey> {
    let Some(value) = fields.value("env") else { return Vec::new() };
    let read = |entry: &Value| -> Option<EnvKey> {
        let key = entry.as_str().or_else(|| entry["key"].as_str())?;
        let fits = is_variable(key);
        let has_value = entry.get("value").is_some();
        let required = entry.get("required").map_or(Some(true), Value::as_bool)?;
        (fits && !has_value && !is_ours(key)).then(|| EnvKey { key: key.to_owned(), required })
    };
    let keys: Option<Vec<EnvKey>> = value
        .as_array()
        .filter(|list| list.len() <= MAX_LIST)
        .and_then(|list| list.iter().map(read).collect());
    fields.validator.check(keys.is_some(), "env", || {
        "env must be a list of variable names, or of objects with key and required; set values with \
         POST /api/integrations/ID/credentials"
            .to_owned()
    });
    keys.unwrap_or_default()
}

/// A consent flow whose secrets go nowhere in plain text and replace no variable of ours.
fn is_safe(oauth: &OAuth) -> bool {
    let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(['/', ':']);
    let is_private = |url: &str| {
        url.starts_with("https://") || local.iter().any(|base| url.strip_prefix(base).is_some_and(ends))
    };
    let more = oauth.client_secret_key.iter().chain(&oauth.access_token_key);
    let mut keys = [&oauth.client_id_key, &oauth.refresh_token_key].into_iter().chain(more);
    [&oauth.authorize_url, &oauth.token_url].into_iter().all(|url| is_private(url))
        && keys.all(|key| is_variable(key) && !is_ours(key))
}

fn is_variable(name: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.chars().all(is_name)
}

/// Variables that decide what is run or who a process belongs to; a credential never replaces them.
fn is_ours(key: &str) -> bool {
    key.starts_with("SVC_") || key.starts_with("LD_") || key == "PATH" || key == "NODE_OPTIONS"
}

fn exec_schema() -> Value {
    json!({
        "type": "object",
        "required": ["tool"],
        "properties": {
            "tool": {"type": "string", "maxLength": MAX_NAME_CHARS},
            "params": {"type": "object", "default": {}},
            "approvalId": {"type": "string"},
            "agent": {"type": "string"},
        },
    })
}

fn add_schema() -> Value {
    let strings = json!({"type": "array", "maxItems": MAX_LIST, "items": {"type": "string"}});
    json!({
        "type": "object",
        "required": ["id", "command"],
        "properties": {
            "id": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}$"},
            "name": {"type": "string"},
            "description": {"type": "string", "maxLength": MAX_DESCRIPTION_CHARS},
            "category": {"type": "string"},
            "command": {"type": "string"},
            "args": strings,
            "env": {"type": "array", "items": {"type": ["string", "object"]}},
            "gatedTools": strings,
            "oauth": {"type": "object"},
        },
    })
}
