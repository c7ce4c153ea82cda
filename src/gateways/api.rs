//! `/api/gateways`.

use super::{Command, CommandPermission, Kind, MAX_ALLOWED, Preset, Wish, worker_api};
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::{Map, Value, json};
use svc_base::choice::of_word;
use svc_base::{outgoing, sorted};

/// Characters of a display name.
const MAX_DISPLAY_NAME_CHARS: usize = 100;
/// Characters of a chat's or a user's id.
const MAX_ID_CHARS: usize = 100;
/// Characters of a base address.
const MAX_API_BASE_CHARS: usize = 200;

/// The routes of the gateways. Agents may look, and nothing else: who holds a gateway can approve.
pub fn routes() -> Vec<Route<Handler>> {
    let mut routes = record_routes();
    routes.extend(connection_routes());
    routes
}

fn record_routes() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::{Read, Write};
    vec![
        Route::new(Method::Get, "/api/gateways", "All chat gateways", Read(list)),
        Route::new(Method::Post, "/api/gateways", "Make a chat gateway", Write(OperatorOnly, create))
            .body(|| schema_of(new))
            .replies(&[(201, "the record"), (400, "a field is wrong"), (403, "the caller is an agent")]),
        Route::new(Method::Get, "/api/gateways/:id", "One chat gateway", Read(get))
            .replies(&[(200, "the record; allowedUsers lists them"), (404, "no such gateway")]),
        Route::new(Method::Patch, "/api/gateways/:id", "Change a chat gateway", Write(OperatorOnly, change))
            .body(|| schema_of(wish))
            .replies(&[(200, "the record"), (400, "a field is wrong"), (404, "no such gateway")]),
        Route::new(
            Method::Delete,
            "/api/gateways/:id",
            "Disconnect and remove a chat gateway, with its credentials",
            Write(OperatorOnly, |ask| Ok(Command::Delete(ask.target()).into())),
        )
        .replies(&[(200, "it is gone"), (404, "no such gateway")]),
    ]
}

fn connection_routes() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::{Work, Write};
    vec![
        Route::new(
            Method::Post,
            "/api/gateways/:id/test",
            "Send a test notification",
            Work(OperatorOnly, worker_api::test),
        )
        .replies(&[
            (200, "it was sent"),
            (404, "no such gateway"),
            (409, "no chatId or no credentials"),
            (502, "what the platform says"),
        ]),
        Route::new(
            Method::Post,
            "/api/gateways/:id/connect",
            "Connect to the platform",
            Write(OperatorOnly, |ask| Ok(Command::Connect(ask.target()).into())),
        )
        .replies(&[
            (200, "the record; lastError says why it is not connected"),
            (404, "no such gateway"),
            (409, "not enabled, or no credentials"),
        ]),
        Route::new(
            Method::Post,
            "/api/gateways/:id/disconnect",
            "Disconnect from the platform",
            Write(OperatorOnly, |ask| Ok(Command::Disconnect(ask.target()).into())),
        )
        .replies(&[(200, "the record"), (404, "no such gateway")]),
        Route::new(
            Method::Post,
            "/api/gateways/:id/credentials",
            "Store a token, encrypted",
            Work(OperatorOnly, worker_api::set_credential),
        )
        .body(credential_schema)
        .replies(&[(200, "ok"), (400, "an unknown key"), (404, "no such gateway")]),
        Route::new(
            Method::Delete,
            "/api/gateways/:id/credentials/:key",
            "Forget a token; the gateway disconnects",
            Write(OperatorOnly, |ask| {
                let key = ask.params.get("key").to_owned();
                Ok(Command::RemoveCredential { target: ask.target(), key }.into())
            }),
        )
        .replies(&[(200, "ok"), (404, "no such gateway or token")]),
    ]
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let list: Vec<Value> = ask.state.gateways.iter().map(|g| super::listed(ask.state, g)).collect();
    Ok(Reply::ok(&list))
}

fn get(ask: &Ask) -> Result<Reply, Problem> {
    let gateway = ask.state.gateways.find(&ask.target())?;
    Ok(Reply::ok(&super::shown(ask.state, gateway)))
}

fn create(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let (kind, wish) = ask.request.read(new)?;
    let kind = kind.ok_or_else(|| Problem::bad_request("validation_failed", "type is required"))?;
    Ok(Command::Create(kind, Box::new(wish)).into())
}

fn new(fields: &mut Fields) -> (Option<Kind>, Wish) {
    (fields.required_choice("type", &Kind::WORDS).and_then(of_word), wish(fields))
}

fn change(ask: &Ask) -> Result<crate::core::Command, Problem> {
    ask.state.gateways.find(&ask.target())?;
    let wish = ask.request.read(wish)?;
    Ok(Command::Change(ask.target(), Box::new(wish)).into())
}

fn wish(fields: &mut Fields) -> Wish {
    fields.tell("displayName", || json!({"maxLength": MAX_DISPLAY_NAME_CHARS}));
    fields.tell("chatId", || json!({"type": ID_TYPES}));
    let display_name = bounded(fields, "displayName", 1, MAX_DISPLAY_NAME_CHARS);
    // An absent chat and a null one differ: the latter is taken away.
    let chat_id = if fields.has("chatId") && fields.value("chatId").is_none() {
        Some(String::new())
    } else {
        id(fields, "chatId")
    };
    Wish {
        display_name,
        enabled: fields.boolean("enabled"),
        chat_id,
        allowed_users: allowed_users(fields),
        preset: preset(fields),
        command_permission: fields
            .choice("commandPermission", &CommandPermission::WORDS)
            .map(|word| if word == "full" { CommandPermission::Full } else { CommandPermission::ReadOnly }),
        api_base: api_base(fields),
    }
}

fn bounded(fields: &mut Fields, name: &str, least: usize, most: usize) -> Option<String> {
    let text = fields.string(name)?.trim().to_owned();
    let chars = text.chars().count();
    let fits = (least..=most).contains(&chars) && !text.chars().any(char::is_control);
    fields.validator.check(fits, name, || {
        format!("{name} must have {least} to {most} characters, without control characters, it has {chars}")
    });
    Some(text)
}

/// What an id may be in JSON.
const ID_TYPES: [&str; 2] = ["string", "integer"];

/// The id of a chat or user; Telegram's are numbers, and may be given as such.
fn id(fields: &mut Fields, name: &str) -> Option<String> {
    let given = fields.value(name)?;
    let Some(text) = id_text(given) else {
        fields.validator.fail(name, format!("{name} must be an id, as text or a whole number"));
        return None;
    };
    let fits = text.is_empty() || is_id(&text);
    fields.validator.check(fits, name, || id_rule(name));
    Some(text)
}

fn id_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        _ => None,
    }
}

fn is_id(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "@_.:#-".contains(c);
    !text.is_empty() && text.chars().count() <= MAX_ID_CHARS && text.chars().all(fits)
}

fn id_rule(name: &str) -> String {
    format!("{name} must be an id of the platform: 1 to {MAX_ID_CHARS} letters, digits or @ _ . : # -")
}

fn allowed_users(fields: &mut Fields) -> Option<Vec<String>> {
    const NAME: &str = "allowedUsers";
    let users = || json!({"type": "array", "items": {"type": ID_TYPES}, "maxItems": MAX_ALLOWED});
    fields.tell(NAME, users);
    let value = fields.value(NAME)?;
    let list: Option<Vec<String>> =
        value.as_array().and_then(|items| items.iter().map(id_text).collect::<Option<_>>());
    let Some(mut list) = list else {
        fields.validator.fail(NAME, format!("{NAME} must be a list of user ids, as text or whole numbers"));
        return None;
    };
    let count = list.len();
    fields.validator.check(count <= MAX_ALLOWED, NAME, || {
        format!("{NAME} may list at most {MAX_ALLOWED} users, it lists {count}")
    });
    fields.validator.check(list.iter().all(|user| is_id(user)), NAME, || id_rule("each of allowedUsers"));
    sorted::up(&mut list);
    list.dedup();
    Some(list)
}

fn preset(fields: &mut Fields) -> Option<Preset> {
    let preset = || json!({"preset": {"enum": Preset::WORDS}});
    fields.tell("notifications", || json!({"type": "object", "properties": preset()}));
    let value = fields.value("notifications")?;
    let word = value.get("preset").and_then(Value::as_str);
    let found = word.and_then(of_word::<Preset>);
    fields.validator.check(found.is_some(), "notifications", || {
        let words = Preset::WORDS.join(", ");
        format!("notifications must be {{\"preset\": one of {words}}}, it is {value}")
    });
    found
}

/// `null` and an empty text stand for the platform itself, and give an empty text.
fn api_base(fields: &mut Fields) -> Option<String> {
    fields.tell("apiBase", || json!({"type": ["string", "null"], "maxLength": MAX_API_BASE_CHARS}));
    if !fields.has("apiBase") {
        return None;
    }
    let Some(text) = bounded(fields, "apiBase", 0, MAX_API_BASE_CHARS).filter(|text| !text.is_empty()) else {
        return Some(String::new());
    };
    let text = text.trim_end_matches('/').to_owned();
    fields.validator.check(is_base(&text), "apiBase", || format!("apiBase must be {}", outgoing::RULE));
    Some(text)
}

/// Tokens travel in the open only within this machine.
fn is_base(text: &str) -> bool {
    outgoing::is_guarded(text) && !text.contains('?')
}

/// Reads the body of `POST /api/gateways/:id/credentials`. No message repeats the value.
pub(super) fn parse_credential(
    body: &Map<String, Value>,
    kind: Kind,
) -> Result<(&'static str, crate::credentials::Secret), Problem> {
    let mut fields = Fields::new(body);
    let key = fields.required_choice("key", kind.credentials());
    let value = crate::credentials::api::secret(&mut fields, "value");
    fields.validator.finish()?;
    let key = key.ok_or_else(|| Problem::bad_request("validation_failed", "key is required"))?;
    Ok((key, value))
}

fn credential_schema() -> Value {
    json!({
        "type": "object",
        "required": ["key", "value"],
        "properties": {
            "key": {"enum": ["bot_token", "app_token"]},
            "value": {"type": "string", "writeOnly": true},
        },
    })
}
