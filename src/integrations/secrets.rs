//! Credentials of integrations: names in the vault, and what a server is given.

use super::catalogue::Definition;
use crate::core::State as All;

/// Whether a variable has a value.
pub fn is_set(_all: &All, _id: &str, _key: &str) -> bool {
    false
}

/// Whether every required variable has a value.
pub fn is_configured(all: &All, definition: &Definition) -> bool {
    definition.env.iter().filter(|env| env.required).all(|env| is_set(all, &definition.id, &env.key))
}

/// The variables of a server, with their values.
pub fn environment(_all: &All, _definition: &Definition) -> Vec<(String, String)> {
    Vec::new()
}

/// Forgets every credential of an integration.
pub fn remove_all(_all: &mut All, _cx: &mut crate::core::Context, _definition: &Definition) {}
