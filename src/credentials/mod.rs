//! The vault: API keys and tokens, encrypted at rest.
//!
//! The core holds and stores sealed entries only. A worker seals a key before the core hears of it
//! ([`Vault::seal`]) and opens it where it is needed ([`Vault::open`]); only [`Secret`] carries it in
//! between.
//!
//! Names: a provider's id (`claude-code`), `account/<name>`, `integration/<id>/<key>`, `gateway/<id>/<key>`,
//! `webhook/<id>/<key>`, `inlet/<id>/<key>`, `telemetry/<header>`, `toy/<id>`.
//!
//! **Invariant:** no plaintext of a secret is in the state, in an event, in an effect or in a file.

pub mod api;
mod secret;
#[cfg(test)]
mod tests;
pub mod worker;

pub use secret::{Sealed, SecretVariable};
pub use svc_base::secret::Secret;
pub use worker::Vault;

use crate::api::{Problem, Reply};
use crate::core::time::{Time, rfc3339};
use crate::core::{CallId, Context, Document, Durability, Effect, State as All};
use crate::providers;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use svc_base::ids::TeamId;
use svc_base::toys;

/// Entries at most.
pub const MAX_ENTRIES: usize = 500;
/// Bytes of a name.
pub const MAX_NAME_BYTES: usize = 200;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// One entry, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// What only the vault can read.
    pub sealed: Sealed,
    /// When it was set.
    #[serde(with = "rfc3339")]
    pub set_at: Time,
}

/// All entries by name.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    entries: BTreeMap<String, Arc<Entry>>,
}

/// `.svc/credentials.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    /// By name.
    pub entries: BTreeMap<String, Arc<Entry>>,
}

/// A wish about credentials.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Keep a sealed secret under this name.
    Put {
        /// Checked by [`check_name`].
        name: String,
        /// Sealed for exactly this name.
        sealed: Sealed,
        /// What the caller is shown of it.
        #[recorded(skip)]
        masked: String,
    },
    Remove(String),
}

impl State {
    /// All entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry.as_ref()))
    }

    /// The entry of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// Whether there is a secret of this name.
    pub fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        Stored { version: STORED_VERSION, entries: self.entries.clone() }
    }

    /// What an earlier daemon has left.
    pub fn restore(stored: Stored) -> Self {
        Self { entries: stored.entries }
    }
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| match command {
        Command::Put { name, sealed, masked } => {
            put(all, cx, &name, sealed)?;
            Ok(Reply::ok(&json!({"ok": true, "provider": name, "masked": masked})))
        }
        Command::Remove(name) => {
            if remove(all, cx, &name) {
                return Ok(Reply::ok(&json!({"ok": true, "provider": name})));
            }
            let text = format!("there is no credential {name:?}; GET /api/credentials lists them");
            Err(Problem::not_found(text))
        }
    });
    cx.answer(call, result);
}

/// Keeps a sealed secret, in place of an earlier one. Written before the reply of the same event.
///
/// Errors: 409 `too_many_credentials`.
pub fn put(all: &mut All, cx: &mut Context, name: &str, sealed: Sealed) -> Result<(), Problem> {
    if all.credentials.entries.len() >= MAX_ENTRIES && !all.credentials.has(name) {
        let text = format!("{MAX_ENTRIES} credentials are stored and that is the limit; remove some first");
        return Err(Problem::new(409, "too_many_credentials", text));
    }
    let entry = Entry { sealed, set_at: cx.now };
    Arc::make_mut(&mut all.credentials).entries.insert(name.to_owned(), Arc::new(entry));
    cx.audit("credentials.set", &json!({"name": name}));
    cx.push(Effect::Put(Document::Credentials, Durability::BeforeReply));
    Ok(())
}

/// Forgets a secret; whether there was one.
pub fn remove(all: &mut All, cx: &mut Context, name: &str) -> bool {
    if !all.credentials.has(name) {
        return false;
    }
    Arc::make_mut(&mut all.credentials).entries.remove(name);
    cx.audit("credentials.remove", &json!({"name": name}));
    cx.push(Effect::Put(Document::Credentials, Durability::BeforeReply));
    true
}

/// Forgets every secret below `prefix`, for example `gateway/telegram-0123ab/`; how many there were.
pub fn remove_below(all: &mut All, cx: &mut Context, prefix: &str) -> usize {
    let names: Vec<String> =
        all.credentials.entries.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
    names.iter().filter(|name| remove(all, cx, name)).count()
}

/// What the processes of an agent get from the vault: the key of its provider, or of its account, whose entry
/// is named so; that of its team's toy.
pub fn variables(
    all: &All,
    provider: &str,
    account: Option<&str>,
    team: Option<&str>,
) -> Vec<SecretVariable> {
    let own = providers::by_id(provider)
        .map(|provider| key_of(all, provider.info(), account.unwrap_or(provider.info().id)));
    own.unwrap_or_default().into_iter().chain(team.and_then(|team| of_team(all, team))).collect()
}

/// The key of the toy that a team plays with.
fn of_team(all: &All, team: &str) -> Option<SecretVariable> {
    let team = all.teams.get(team.parse::<TeamId>().ok()?)?;
    let toy = toys::find(team.toy_id.as_deref()?)?;
    variable(all, toy.credential(), toy.variable(), None)
}

/// The key of a provider, for a process that runs it.
pub fn of_provider(all: &All, info: &providers::Info) -> Vec<SecretVariable> {
    key_of(all, info, info.id)
}

fn key_of(all: &All, info: &providers::Info, name: &str) -> Vec<SecretVariable> {
    let key = variable(all, name.to_owned(), info.env_key.to_owned(), info.env_token);
    key.filter(|_| !info.env_key.is_empty()).into_iter().collect()
}

/// A variable that gets the secret of this name, or instead of a key a `token`; `None` where there is none.
pub fn variable(
    all: &All,
    name: String,
    variable: String,
    token: Option<providers::EnvToken>,
) -> Option<SecretVariable> {
    let sealed = all.credentials.get(&name)?.sealed.clone();
    Some(SecretVariable { variable, token, name, sealed })
}

/// Checks an entry's name: words of `A-Z a-z 0-9 _ . -` joined by `/`, at most [`MAX_NAME_BYTES`].
pub fn check_name(name: &str) -> Result<(), String> {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    };
    if name.len() <= MAX_NAME_BYTES && name.split('/').all(is_word) {
        return Ok(());
    }
    Err(format!("must be words of A-Z a-z 0-9 _ . - joined by /, at most {MAX_NAME_BYTES} bytes"))
}
