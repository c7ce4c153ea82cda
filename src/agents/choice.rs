//! What a new agent runs with: its provider, its model, its account.

use super::{Agent, Maker, SpawnRequest};
use crate::accounts::{self, AUTO, DEFAULT};
use crate::api::{Problem, Validator};
use crate::core::State as All;
use crate::core::time::Time;
use crate::providers::environment::Extra;
use crate::providers::limit::Kind;
use crate::providers::{self, Info, Provider};
use crate::usage::quota;
use std::cmp::Reverse;

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;

impl Agent {
    /// Whose login it uses, by name.
    pub fn account_name(&self) -> &str {
        self.account.as_deref().unwrap_or(DEFAULT)
    }
}

/// What persons have said about its variables here; the home of its account goes before all else.
pub fn variables(all: &All, agent: &Agent) -> Extra {
    let own = accounts::environment(all, &agent.provider, agent.account.as_deref());
    all.settings.config().env.of(&agent.provider).then(&agent.env).then(&own)
}

/// The provider that is named, else that of the account that is, else the configured one.
///
/// Errors: 400 for one that is unknown or not installed, and for an account that there is not.
pub(super) fn provider(all: &All, request: &SpawnRequest) -> Result<&'static dyn Provider, Problem> {
    let wanted = request.account.as_deref().filter(|name| ![DEFAULT, AUTO].contains(name));
    let account = wanted.and_then(|name| all.accounts.get(name));
    if let (Some(name), None, None) = (wanted, account, &request.provider) {
        return Err(Problem::invalid("account", format!("account: {}", accounts::unknown(all, name, None))));
    }
    let named = request.provider.as_deref().or(account.map(|account| account.provider.as_str()));
    let id = named.unwrap_or(&all.settings.config().default_provider);
    let installed = all.providers.installed_ids().collect::<Vec<_>>().join(", ");
    let refuse = |fault: String| Problem::invalid("provider", fault);
    let Some(provider) = providers::by_id(id) else {
        return Err(refuse(format!("provider {id:?} is unknown; installed are {installed}")));
    };
    // `acp` is a protocol: whether the agent it is to run is installed shows when it starts.
    // So does whether it is installed on another machine.
    if id != "acp" && request.runner.is_none() && !all.providers.is_installed(id) {
        let hint = provider.info().install_command;
        return Err(refuse(format!("provider {id:?} is not installed ({hint}); installed are {installed}")));
    }
    Ok(provider)
}

/// Checks a model that is named.
pub(super) fn check_model(info: &Info, model: &str, validator: &mut Validator) {
    let known = info.any_model || info.models.iter().any(|known| known.id == model);
    validator.check(known, "model", || {
        let ids: Vec<_> = info.models.iter().map(|known| known.id).collect();
        format!("model {model:?} is unknown to provider {}; it has {}", info.id, ids.join(", "))
    });
}

/// Checks the account that is named, whenever it is to be used: what an agent starts uses its maker's own.
///
/// Errors: 400 for one that there is not, with those that there are; 403 `agent_may_not`.
pub(super) fn check_account(
    all: &All,
    maker: &Maker,
    info: &Info,
    request: &SpawnRequest,
) -> Result<(), Problem> {
    let Some(name) = request.account.as_deref() else { return Ok(()) };
    if maker.lineage.is_some() {
        if name == own_account(all, maker, info).unwrap_or(DEFAULT) {
            return Ok(());
        }
        let text =
            "an agent may not choose the account of another one: it uses its maker's own; a person has to";
        return Err(Problem::new(403, "agent_may_not", text));
    }
    let is_known = all.accounts.get(name).is_some_and(|account| account.provider == info.id);
    if is_known || [DEFAULT, AUTO].contains(&name) {
        return Ok(());
    }
    let text = accounts::unknown(all, name, Some(info.id));
    Err(Problem::invalid(
        "account",
        format!("account: {text}; {DEFAULT} is the usual login, {AUTO} the one with the most room"),
    ))
}

/// The account of the agent that starts another one with the same program.
fn own_account<'a>(all: &'a All, maker: &Maker, info: &Info) -> Option<&'a str> {
    let own = all.agents.by_lineage(maker.lineage?).filter(|own| own.provider == info.id)?;
    own.account.as_deref()
}

/// Decides whose login a new agent uses: in the request then stands an account that there is, or none for the
/// default one.
///
/// Errors: as [`check_account`], and 409 `no_account` where `auto` finds nobody logged in,
/// `account_without_key`.
pub(super) fn settle_account(
    all: &All,
    now: Time,
    maker: &Maker,
    info: &Info,
    request: &mut SpawnRequest,
) -> Result<(), Problem> {
    check_account(all, maker, info, request)?;
    request.account = match request.account.take() {
        _ if maker.lineage.is_some() => own_account(all, maker, info).map(str::to_owned),
        Some(name) if name == AUTO => roomiest(all, now, info)?,
        named => named.filter(|name| name != DEFAULT),
    };
    accounts::check(all, info.id, request.account.as_deref())
}

/// The account with the most room left in its windows, of those that somebody can work with; of equal ones
/// that with the fewest agents. Of one that nobody has told a figure of nothing is used yet.
///
/// Errors: 409 `no_account`.
fn roomiest(all: &All, now: Time, info: &Info) -> Result<Option<String>, Problem> {
    let named = all.accounts.iter().filter(|account| account.provider == info.id && !account.is_off);
    let all_of: Vec<Option<&str>> =
        std::iter::once(None).chain(named.map(|account| Some(account.name.as_str()))).collect();
    if all_of.len() == 1 {
        return Ok(None);
    }
    let ready = |wanted: Option<bool>| {
        let fits = all_of.iter().filter(|name| accounts::is_ready(all, info.id, **name) == wanted);
        fits.copied().collect::<Vec<_>>()
    };
    // Who is known to be logged in before those of whom nothing is known.
    let can = Some(ready(Some(true))).filter(|can| !can.is_empty()).unwrap_or_else(|| ready(None));
    let best = can.into_iter().rev().max_by_key(|name| {
        let name = name.unwrap_or(DEFAULT);
        (room(all, now, info.id, name), Reverse(count(all, info.id, name)))
    });
    best.map(|name| name.map(str::to_owned)).ok_or_else(|| {
        let remedies: Vec<String> = all_of.iter().flatten().map(|name| accounts::remedy(all, name)).collect();
        let text = format!("nobody is logged in to any account of {}; {}", info.id, remedies.join("; "));
        Problem::new(409, "no_account", text)
    })
}

/// Thousandths of its fullest window that are left.
fn room(all: &All, now: Time, provider: &str, account: &str) -> u32 {
    let is_held = all
        .agents
        .live()
        .filter_map(|agent| agent.held.as_ref())
        .any(|held| held.kind == Kind::Window && held.provider == provider && held.account == account);
    if is_held { 0 } else { quota::room(all, now, provider, account) }
}

fn count(all: &All, provider: &str, account: &str) -> usize {
    let uses = |agent: &&std::sync::Arc<Agent>| agent.provider == provider && agent.account_name() == account;
    all.agents.live().filter(uses).count()
}
