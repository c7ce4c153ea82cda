//! Accounts: logins of a provider's program beside the person's usual one, each in a folder of its own or by
//! a key of its own.
//!
//! An account is a folder that the program is told to take for its own by its own variables
//! (`CLAUDE_CONFIG_DIR`, `CODEX_HOME`, ..), and, where one is stored, a key in the vault under
//! `account/<name>`. Where none is named it is the default one: the program as the person uses it.
//!
//! **Invariant:** the processes of an account get that account's variables and key, and no login of another
//! one by their environment; of an account that is gone they get a folder that nobody can use.

pub mod api;
#[cfg(test)]
mod tests;
pub mod worker;

use crate::api::{Problem, Reply};
use crate::core::time::{Time, rfc3339};
use crate::core::{CallId, Context, Document, Durability, Effect, Moment, State as All};
use crate::credentials;
use crate::providers::environment::Extra;
use crate::providers::login::{Login, Source};
use crate::providers::{self, Info};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use svc_base::sorted::Gather;

/// Accounts at most, of all providers; a further one is refused.
pub const MAX_ACCOUNTS: usize = 20;
/// Characters of a name.
pub const MAX_NAME_CHARS: usize = 40;
/// Characters of what a person calls one.
pub const MAX_LABEL_CHARS: usize = 80;
/// The one that is not named.
pub const DEFAULT: &str = "default";
/// The one with the most room in its windows, chosen whenever an agent is started.
pub const AUTO: &str = "auto";
/// The version this code writes.
pub const STORED_VERSION: u32 = 1;
/// What a program is told to use whose account is gone: nothing can be made below it.
const NOWHERE: &str = "/dev/null/svc-account-is-gone";

/// One account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// Unique.
    pub name: String,
    /// The provider's id.
    pub provider: String,
    /// Absolute, without links; `None` where its program knows no other home, and the account is a key alone.
    pub home: Option<String>,
    /// When it was added.
    #[serde(with = "rfc3339")]
    pub added_at: Time,
    /// What its person calls it; empty for nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Nothing is begun with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_off: bool,
}

/// What becomes another of an account; `None` for what stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Change {
    pub label: Option<String>,
    /// A folder that is there.
    pub home: Option<String>,
    pub enabled: Option<bool>,
}

/// All of them, by name.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    known: BTreeMap<String, Arc<Account>>,
    /// Who is logged in, as far as that was asked since the start: by name, and by provider for the default
    /// accounts.
    logins: BTreeMap<String, Option<Login>>,
}

/// `.svc/state/accounts.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    pub accounts: Vec<Arc<Account>>,
}

/// A wish of a person's.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Its folder is there.
    Add {
        name: String,
        provider: String,
        home: Option<String>,
    },
    Change(String, Change),
    Remove(String),
}

/// What the daemon is to find out.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub enum Order {
    /// Ask the program of this provider who is logged in to its accounts.
    Ask(String),
}

/// What programs have said.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Report {
    /// Who is logged in, by the keys of [`State::login`]; `None` where the answer was not understood.
    Logins(Vec<(String, Option<Login>)>),
}

impl State {
    /// The account of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Account>> {
        self.known.get(name)
    }

    /// All, by name; the default ones apart.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.known.values()
    }

    /// What was said of an account's login; of a provider's id what was said of its default one.
    pub fn login(&self, key: &str) -> Option<&Login> {
        self.logins.get(key)?.as_ref()
    }

    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        Stored { version: STORED_VERSION, accounts: self.known.values().map(Arc::clone).collect() }
    }

    /// What an earlier daemon has left.
    pub fn restore(stored: Stored) -> Self {
        let entry = |account: Arc<Account>| (account.name.clone(), account);
        Self { known: stored.accounts.into_iter().map(entry).gather(), logins: BTreeMap::new() }
    }
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| match command {
        Command::Add { name, provider, home } => {
            let account =
                Account { name, provider, home, added_at: cx.now, label: String::new(), is_off: false };
            add(all, cx, account)
        }
        Command::Change(name, change) => self::change(all, cx, &name, change),
        Command::Remove(name) => remove(all, cx, &name),
    });
    cx.answer(call, result);
}

/// Programs were asked.
pub fn report(all: &mut All, _cx: &mut Context, report: Report) {
    let Report::Logins(told) = report;
    Arc::make_mut(&mut all.accounts).logins.extend(told);
}

fn add(all: &mut All, cx: &mut Context, account: Account) -> Result<Reply, Problem> {
    let Account { name, home, .. } = &account;
    if let Some(known) = all.accounts.get(name) {
        let text = format!(
            "there is an account {name} of {}; remove it first, or choose another name",
            known.provider
        );
        return Err(Problem::new(409, "account_exists", text));
    }
    if all.accounts.known.len() >= MAX_ACCOUNTS {
        let text = format!("{MAX_ACCOUNTS} accounts are known and that is the limit; remove one first");
        return Err(Problem::new(409, "too_many_accounts", text));
    }
    check_home(all, name, home.as_deref())?;
    let told = shown(all, &account);
    let state = Arc::make_mut(&mut all.accounts);
    state.logins.remove(name);
    state.known.insert(name.clone(), Arc::new(account));
    cx.audit("account.add", &told);
    cx.push(Effect::Put(Document::Accounts, Durability::BeforeReply));
    Ok(Reply::json(201, &told))
}

/// What is inside of another account's folder would be shown and hidden with it.
///
/// Errors: 409 `account_exists`.
fn check_home(all: &All, name: &str, home: Option<&str>) -> Result<(), Problem> {
    let meets = |other: &&Arc<Account>| {
        let both = home.zip(other.home.as_deref()).filter(|_| other.name != name);
        both.is_some_and(|(a, b)| Path::new(a).starts_with(b) || Path::new(b).starts_with(a))
    };
    let Some(other) = all.accounts.iter().find(meets) else { return Ok(()) };
    let text = format!(
        "its home is in or around that of account {}; every account needs a folder of its own",
        other.name
    );
    Err(Problem::new(409, "account_exists", text))
}

/// The account of this name.
///
/// Errors: 404.
fn find(all: &All, name: &str) -> Result<Arc<Account>, Problem> {
    all.accounts.get(name).cloned().ok_or_else(|| Problem::not_found(unknown(all, name, None)))
}

/// What living agents work with is not taken from them.
///
/// Errors: 409 `account_in_use`.
fn check_unused(all: &All, account: &Account) -> Result<(), Problem> {
    let users = users(all, account);
    if users.is_empty() {
        return Ok(());
    }
    let (name, names, all_of) = (&account.name, users.join(", "), users.join(" "));
    let text = format!("account {name} is used by {names}; end them first: svc kill {all_of}");
    Err(Problem::new(409, "account_in_use", text))
}

fn change(all: &mut All, cx: &mut Context, name: &str, change: Change) -> Result<Reply, Problem> {
    let mut account = (*find(all, name)?).clone();
    let moves = change.home.filter(|home| account.home.as_ref() != Some(home));
    let has_moved = moves.is_some();
    if let Some(home) = moves {
        check_unused(all, &account)?;
        check_home(all, name, Some(&home))?;
        account.home = Some(home);
    }
    account.label = change.label.unwrap_or(account.label);
    account.is_off = change.enabled.map_or(account.is_off, |is_on| !is_on);
    let state = Arc::make_mut(&mut all.accounts);
    if has_moved {
        // Who was logged in was so in the other folder.
        state.logins.remove(name);
    }
    state.known.insert(name.to_owned(), Arc::new(account.clone()));
    let told = shown(all, &account);
    cx.audit("account.change", &told);
    cx.push(Effect::Put(Document::Accounts, Durability::BeforeReply));
    Ok(Reply::ok(&told))
}

fn remove(all: &mut All, cx: &mut Context, name: &str) -> Result<Reply, Problem> {
    let account = find(all, name)?;
    check_unused(all, &account)?;
    let state = Arc::make_mut(&mut all.accounts);
    state.known.remove(name);
    state.logins.remove(name);
    credentials::remove(all, cx, &key_name(name));
    cx.moment(Moment::AccountRemoved { provider: account.provider.clone(), name: name.to_owned() });
    cx.audit("account.remove", &json!({"name": name, "provider": account.provider, "home": account.home}));
    cx.push(Effect::Put(Document::Accounts, Durability::BeforeReply));
    // Whose logins are in it is not for us to end.
    Ok(Reply::ok(&json!({"ok": true, "name": name, "provider": account.provider, "keptHome": account.home})))
}

/// The living agents that use it, by name.
fn users(all: &All, account: &Account) -> Vec<String> {
    let uses = all.agents.live().filter(|agent| {
        agent.provider == account.provider && agent.account.as_deref() == Some(account.name.as_str())
    });
    uses.map(|agent| agent.name.clone()).collect()
}

/// That there is no such account (of this provider), and which there are.
pub fn unknown(all: &All, name: &str, provider: Option<&str>) -> String {
    let fits = |one: &&Arc<Account>| provider.is_none_or(|provider| one.provider == provider);
    let names: Vec<&str> = all.accounts.iter().filter(fits).map(|one| one.name.as_str()).collect();
    let of = provider.map_or_else(String::new, |provider| format!(" of {provider}"));
    match names.as_slice() {
        [] => format!(
            "there is no account {name:?}{of}, nor any other; svc account add NAME --provider ID adds one"
        ),
        names => format!("there is no account {name:?}{of}; there are {}", names.join(", ")),
    }
}

/// Whether these, with commas between, are accounts that there are, or providers.
///
/// Errors: 400, with the one that is neither.
pub fn check_targets(all: &All, names: &str) -> Result<(), Problem> {
    let is_there = |name: &&str| all.accounts.get(name).is_some() || providers::by_id(name).is_some();
    let Some(name) = names.split(',').map(str::trim).find(|name| !is_there(name)) else { return Ok(()) };
    let ids: Vec<_> = providers::all().iter().map(|known| known.info().id).collect();
    let text = format!("{}; the providers are {}", unknown(all, name, None), ids.join(", "));
    Err(Problem::invalid("limits.handoverTo", format!("limits.handoverTo: {text}")))
}

/// Whether a provider's program can have several: it takes another folder for its home, or there is nothing
/// to log in to but by a key.
pub fn has_accounts(info: &Info) -> bool {
    let key_alone =
        !info.env_key.is_empty() && matches!(info.login.source, Source::Nowhere | Source::Endpoint);
    !info.account_homes.is_empty() || key_alone
}

/// The name of an account's key in the vault.
pub fn key_name(name: &str) -> String {
    format!("account/{name}")
}

/// The variables by which its program takes this folder for its own.
fn variables(info: &Info, home: &str) -> Vec<(&'static str, String)> {
    let value = |below: &str| if below.is_empty() { home.to_owned() } else { format!("{home}/{below}") };
    info.account_homes.iter().map(|(variable, below)| (*variable, value(below))).collect()
}

/// What the processes of an account get, beyond the environment of everybody; nothing for the default one.
pub fn environment(all: &All, provider: &str, account: Option<&str>) -> Extra {
    let Some(name) = account else { return Extra::default() };
    let known = all.accounts.get(name).filter(|known| known.provider == provider);
    let home = known.and_then(|known| known.home.as_deref()).unwrap_or(NOWHERE);
    let set = variables(providers::info_of(provider), home).into_iter();
    let set = set.map(|(name, value)| (name.to_owned(), Some(value))).gather();
    Extra { set, own_login: true, ..Extra::default() }
}

/// The folders of all accounts but this one: no room shows them.
pub fn others(all: &All, account: Option<&str>) -> Vec<PathBuf> {
    let others = all.accounts.iter().filter(|one| Some(one.name.as_str()) != account);
    others.filter_map(|one| one.home.as_deref()).map(PathBuf::from).collect()
}

/// Whether an agent of this account can be started: it is there and enabled, and one that is a key alone has
/// its key.
///
/// Errors: 409 `account_gone`, `account_disabled`, `account_without_key`.
pub fn check(all: &All, provider: &str, account: Option<&str>) -> Result<(), Problem> {
    let Some(name) = account else { return Ok(()) };
    let Some(known) = all.accounts.get(name).filter(|known| known.provider == provider) else {
        let text = format!(
            "account {name} of {provider} is gone, and what was done in it is known to no other; add it again \
             with its folder: svc account add {name} --provider {provider} --home DIR"
        );
        return Err(Problem::new(409, "account_gone", text));
    };
    if known.is_off {
        let text = format!("account {name} is disabled; svc account enable {name} lets agents use it again");
        return Err(Problem::new(409, "account_disabled", text));
    }
    if known.home.is_none() && !all.credentials.has(&key_name(name)) {
        let text = format!("account {name} has no key yet; store it: svc credentials set {}", key_name(name));
        return Err(Problem::new(409, "account_without_key", text));
    }
    Ok(())
}

/// What a person does to log in: a command with the account's variables, or a key.
pub fn remedy(all: &All, name: &str) -> String {
    let Some(account) = all.accounts.get(name) else { return String::new() };
    let info = providers::info_of(&account.provider);
    let key =
        (!info.env_key.is_empty()).then(|| format!("store a key: svc credentials set {}", key_name(name)));
    let command = login_command(info, account).map(|command| format!("log in: {command}"));
    [command, key].into_iter().flatten().collect::<Vec<_>>().join(", or ")
}

/// The provider's own login command, with the account's variables before it; for a POSIX shell.
fn login_command(info: &Info, account: &Account) -> Option<String> {
    let home = account.home.as_deref().filter(|_| !info.login.command.is_empty())?;
    let quoted = |value: &str| {
        let is_plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_.-+".contains(&b));
        if is_plain { value.to_owned() } else { format!("'{}'", value.replace('\'', "'\\''")) }
    };
    let set = variables(info, home);
    let words: Vec<String> = set.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
    Some(format!("{} {}", words.join(" "), info.login.command))
}

/// Whether somebody can work with it, as far as that is known: a key is stored, or its program has said that
/// somebody is logged in. `None` where nobody has said anything. `None` for a name is the default account.
pub fn is_ready(all: &All, provider: &str, account: Option<&str>) -> Option<bool> {
    let found = all.providers.get(provider);
    let has_key = match account {
        Some(name) => all.credentials.has(&key_name(name)),
        None => all.credentials.has(provider) || found.is_some_and(|found| found.has_key),
    };
    let usual = || found.and_then(|found| found.login.as_ref()).filter(|_| account.is_none());
    let login = all.accounts.login(account.unwrap_or(provider)).or_else(usual);
    let is_key_alone =
        account.and_then(|name| all.accounts.get(name)).is_some_and(|known| known.home.is_none());
    match login {
        _ if has_key => Some(true),
        _ if is_key_alone => Some(false),
        login => login.map(|login| login.is_in),
    }
}

/// As callers see it.
fn shown(all: &All, account: &Account) -> Value {
    let info = providers::info_of(&account.provider);
    let name = account.name.as_str();
    let login = all.accounts.login(name);
    json!({
        "name": name, "provider": account.provider, "home": account.home,
        "label": Some(&account.label).filter(|label| !label.is_empty()), "enabled": !account.is_off,
        "addedAt": account.added_at.to_string(),
        "hasKey": all.credentials.has(&key_name(name)), "keyName": key_name(name),
        "ready": is_ready(all, &account.provider, Some(name)),
        "login": login.map(|login| json!({"ok": login.is_in, "told": login.told})),
        "loginCommand": login_command(info, account),
        "agents": users(all, account),
    })
}

/// `GET /api/accounts`.
pub fn list(all: &All) -> Value {
    json!({"accounts": all.accounts.iter().map(|one| shown(all, one)).collect::<Vec<_>>(), "max": MAX_ACCOUNTS})
}
