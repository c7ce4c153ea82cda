//! Credentials of integrations: `integration/<id>/<key>` in the vault.

use super::catalogue::Definition;
use super::{edit, life, tell_status};
use crate::api::{Problem, Reply};
use crate::core::{Context, State as All};
use crate::credentials::{self, Sealed, SecretVariable};
use serde_json::json;

/// The name of a credential in the vault.
pub fn name(id: &str, key: &str) -> String {
    format!("integration/{id}/{key}")
}

/// Whether a variable has a value.
pub fn is_set(all: &All, id: &str, key: &str) -> bool {
    all.credentials.has(&name(id, key))
}

/// Whether every required variable has a value.
pub fn is_configured(all: &All, definition: &Definition) -> bool {
    definition.env.iter().filter(|env| env.required).all(|env| is_set(all, &definition.id, &env.key))
}

/// A credential, still sealed.
pub fn variable(all: &All, id: &str, key: &str) -> Option<SecretVariable> {
    credentials::variable(all, name(id, key), key.to_owned(), None)
}

/// The variables of a server, still sealed.
pub fn environment(all: &All, definition: &Definition) -> Vec<SecretVariable> {
    definition.keys().into_iter().filter_map(|key| variable(all, &definition.id, key)).collect()
}

/// Forgets every credential of an integration.
pub fn remove_all(all: &mut All, cx: &mut Context, id: &str) {
    credentials::remove_below(all, cx, &name(id, ""));
    edit(all).expiries.remove(id);
}

/// Keeps a credential; a running server is ended, so that the next call uses it.
///
/// Errors: 404 for an unknown integration, 409 `too_many_credentials`.
pub fn set(
    all: &mut All,
    cx: &mut Context,
    (id, key): (&str, &str),
    sealed: Sealed,
    masked: &str,
) -> Result<Reply, Problem> {
    credentials::put(all, cx, &name(id, key), sealed)?;
    life::stop(all, cx, id, "a credential of it was changed; call again");
    tell_status(all, cx, id);
    Ok(Reply::ok(&json!({"ok": true, "key": key, "masked": masked})))
}

/// Forgets a credential; a running server is ended.
///
/// Errors: 404.
pub fn remove(all: &mut All, cx: &mut Context, id: &str, key: &str) -> Result<Reply, Problem> {
    if !credentials::remove(all, cx, &name(id, key)) {
        let text =
            format!("integration {id:?} has no credential {key:?}; GET /api/integrations/{id} tells which");
        return Err(Problem::not_found(text));
    }
    life::stop(all, cx, id, "a credential of it was removed");
    tell_status(all, cx, id);
    Ok(Reply::ok(&json!({"ok": true, "key": key})))
}
