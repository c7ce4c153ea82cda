//! `/api/accounts`. What changes them is a person's.

use super::{AUTO, Change, Command, DEFAULT, MAX_LABEL_CHARS, MAX_NAME_CHARS, has_accounts, worker};
use crate::api::{Fields, Method, Problem, Route, schema_of};
use crate::endpoint::{Access, Ask, Handler};
use crate::providers;
use serde_json::json;

/// Bytes of a path.
const MAX_PATH_BYTES: usize = 1_000;

/// What `POST /api/accounts` asks for.
pub(super) struct Wish {
    pub name: String,
    pub provider: String,
    /// Absolute; the daemon's own choice where there is none.
    pub home: Option<String>,
}

/// The routes of the accounts.
pub fn routes() -> Vec<Route<Handler>> {
    use Access::{Anyone, OperatorOnly};
    use Handler::{Work, Write};
    vec![
        Route::new(
            Method::Get,
            "/api/accounts",
            "Logins of providers' programs beside the usual ones",
            Work(Anyone, worker::list),
        )
        .query(&[("login", "true: ask the programs who is logged in, 30 s at most")])
        .replies(&[(
            200,
            "name, label, enabled, provider, home, keyName, ready, login, loginCommand, agents of each",
        )]),
        Route::new(
            Method::Post,
            "/api/accounts",
            "Add an account: a folder of its own for a provider's program, or a key of its own",
            Work(OperatorOnly, worker::add),
        )
        .body(|| schema_of(wish))
        .replies(&[
            (201, "the account, with what logs in to it"),
            (403, "the caller is an agent"),
            (409, "there is one of this name, or its folder meets another's"),
        ]),
        Route::new(
            Method::Patch,
            "/api/accounts/:name",
            "Change an account: its label, its folder, whether agents are started with it",
            Work(OperatorOnly, worker::change),
        )
        .body(|| schema_of(change))
        .replies(&[
            (200, "the account"),
            (403, "the caller is an agent"),
            (404, "no such account"),
            (409, "agents use its folder, or the other one meets another account's"),
        ]),
        Route::new(
            Method::Delete,
            "/api/accounts/:name",
            "Forget an account and its key; its folder stays",
            Write(OperatorOnly, remove),
        )
        .replies(&[
            (200, "it is gone"),
            (403, "the caller is an agent"),
            (404, "no such account"),
            (409, "agents use it"),
        ]),
    ]
}

/// Reads `POST /api/accounts`.
pub(super) fn wish(fields: &mut Fields) -> Wish {
    fields.tell("name", || json!({"pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$"}));
    let name = fields.required_string("name").unwrap_or_default().to_owned();
    if let Some(rule) = (!name.is_empty()).then(|| name_rule(&name)).flatten() {
        fields.validator.fail("name", rule);
    }
    let provider = fields.required_string("provider").unwrap_or_default().to_owned();
    if !provider.is_empty() && !providers::by_id(&provider).is_some_and(|known| has_accounts(known.info())) {
        let can = providers::all().iter().map(|known| known.info()).filter(|info| has_accounts(info));
        let can: Vec<_> = can.map(|info| info.id).collect();
        let text = format!("provider {provider:?} can have no accounts; those that can: {}", can.join(", "));
        fields.validator.fail("provider", text);
    }
    let home = home(fields);
    if home.is_some() && !provider.is_empty() {
        check_home(fields, &provider);
    }
    Wish { name, provider, home }
}

/// Reads `PATCH /api/accounts/:name`.
pub(super) fn change(fields: &mut Fields) -> Change {
    let label = fields.text("label", MAX_LABEL_CHARS).map(str::to_owned);
    let is_plain = label.as_ref().is_none_or(|label| !label.chars().any(char::is_control));
    fields.validator.check(is_plain, "label", || "label must have no control characters".to_owned());
    Change { label, home: home(fields), enabled: fields.boolean("enabled") }
}

fn home(fields: &mut Fields) -> Option<String> {
    fields.tell("home", || json!({"maxLength": MAX_PATH_BYTES}));
    let home = fields.string("home").map(str::to_owned)?;
    let fits = home.starts_with('/') && home.len() <= MAX_PATH_BYTES && !home.chars().any(char::is_control);
    fields
        .validator
        .check(fits, "home", || format!("home must be an absolute path of at most {MAX_PATH_BYTES} bytes"));
    Some(home)
}

/// An account of this provider has a folder.
pub(super) fn check_home(fields: &mut Fields, provider: &str) {
    let has_home = !providers::info_of(provider).account_homes.is_empty();
    fields.validator.check(has_home, "home", || {
        format!("home cannot be given: {provider} knows no other home; its accounts are keys alone")
    });
}

/// What is wrong with a name, if anything.
fn name_rule(name: &str) -> Option<String> {
    let is_word = name.len() <= MAX_NAME_CHARS
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    // `limits.handoverTo` names both.
    let is_taken = [DEFAULT, AUTO].contains(&name) || providers::by_id(name).is_some();
    (!is_word || is_taken).then(|| {
        format!(
            "name must have 1 to {MAX_NAME_CHARS} of A-Z a-z 0-9 _ . -, begin with a letter or digit, and be \
             neither {DEFAULT} nor {AUTO} nor a provider's id"
        )
    })
}

fn remove(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(crate::core::Command::Accounts(Command::Remove(ask.params.get("name").to_owned())))
}
