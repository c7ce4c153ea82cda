//! `/api/credentials`.

use super::{Command, MAX_NAME_BYTES, Secret, check_name, worker};
use crate::api::{Fields, Method, Problem, Route, schema_of};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::json;

/// Characters of a key.
const MAX_KEY_CHARS: usize = 8_192;

/// The routes of the credentials. Agents may not use any of them.
pub fn routes() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::{Work, Write};
    vec![
        Route::new(Method::Get, "/api/credentials", "Stored keys, masked", Work(OperatorOnly, worker::list))
            .replies(&[(200, "provider, setAt, masked of each"), (403, "the caller is an agent")]),
        Route::new(
            Method::Post,
            "/api/credentials",
            "Store a key, encrypted",
            Work(OperatorOnly, worker::set),
        )
        .body(|| schema_of(key_wish))
        .replies(&[(200, "ok, provider, masked"), (403, "the caller is an agent")]),
        Route::new(Method::Delete, "/api/credentials/:provider", "Forget a key", Write(OperatorOnly, remove))
            .replies(&[(200, "it is gone"), (403, "the caller is an agent"), (404, "no such key")]),
    ]
}

/// Reads `POST /api/credentials`. No message repeats the key.
pub(super) fn key_wish(fields: &mut Fields) -> (String, Secret) {
    fields.tell("provider", || json!({"maxLength": MAX_NAME_BYTES}));
    let name = fields.required_string("provider").unwrap_or_default().to_owned();
    if !name.is_empty()
        && let Err(rule) = check_name(&name)
    {
        fields.validator.fail("provider", format!("provider {rule}"));
    }
    (name, secret(fields, "key"))
}

/// A required secret, without the white space around it, for every endpoint that takes one.
pub fn secret(fields: &mut Fields, name: &str) -> Secret {
    fields.tell(name, || json!({"maxLength": MAX_KEY_CHARS, "writeOnly": true}));
    let text = fields.required_string(name).unwrap_or_default().trim();
    let fits = text.chars().count() <= MAX_KEY_CHARS && !text.chars().any(char::is_control);
    fields.validator.check(fits, name, || {
        format!("{name} must have 1 to {MAX_KEY_CHARS} characters, without control characters")
    });
    Secret::new(text)
}

fn remove(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let name = ask.params.get("provider").to_owned();
    Ok(crate::core::Command::Credentials(Command::Remove(name)))
}
