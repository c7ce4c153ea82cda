//! Grants: which keys of the vault agents on a runner get, for the life of a run. A person gives each one,
//! and without one nothing of the vault leaves this machine.
//!
//! ```text
//! vault ── keeper's order ──▶ svc __line ── its line ──▶ svc __far ── keeper's order ──▶ the program there
//! ```
//! **Invariant:** a granted key is in no command line, in no environment but those of `svc __line` and of the
//! program there, and in no file but the vault's own.

use super::{Kind, Runner, kept};
use crate::accounts;
use crate::api::{Problem, Reply};
use crate::core::time::{Time, rfc3339};
use crate::core::{Context, State as All};
use crate::credentials::{self, SecretVariable};
use crate::providers;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A key that agents of a provider get on a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    pub provider: String,
    /// Whose key; `None` is the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    pub by: String,
    #[serde(with = "rfc3339")]
    pub at: Time,
}

impl Grant {
    /// As callers see it.
    pub(super) fn shown(&self) -> Value {
        let Self { provider, account, by, at } = self;
        json!({"provider": provider, "account": account, "by": by, "at": at.to_string()})
    }

    /// The name of its entry in the vault.
    fn entry(&self) -> String {
        self.account.as_deref().map_or_else(|| self.provider.clone(), accounts::key_name)
    }
}

/// What agents of a provider get of the vault on this runner: nothing without a grant.
pub fn lent(all: &All, runner: &Runner, provider: &str) -> Vec<SecretVariable> {
    let grant = runner.grants.iter().find(|grant| grant.provider == provider);
    let key = |grant: &Grant| credentials::variables(all, &grant.provider, Some(&grant.entry()), None);
    grant.map(key).unwrap_or_default()
}

/// Errors: 404, 400 where its program takes no key, 409 `no_key`.
pub(super) fn grant(
    all: &mut All,
    cx: &mut Context,
    name: &str,
    provider: String,
    account: Option<String>,
) -> Result<Reply, Problem> {
    let mut runner = Runner::clone(all.runners.find(name)?);
    let refuse = |text: String| Err(Problem::bad_request("not_lendable", text));
    if runner.kind == Kind::Slurm {
        return refuse(format!(
            "runner {name} is a job of Slurm, in which a keeper is begun through a file, where no key may stand; log in \
             there yourself"
        ));
    }
    let Some(info) = providers::by_id(&provider).map(providers::Provider::info) else {
        return refuse(format!("provider {provider:?} is not one; GET /api/providers lists them"));
    };
    if info.env_key.is_empty() {
        return refuse(format!(
            "the program of {provider} takes no key from its environment; log in on that machine yourself"
        ));
    }
    if let Some(account) = &account {
        let is_one = all.accounts.iter().any(|known| known.name == *account && known.provider == provider);
        if !is_one {
            return refuse(format!("{provider} has no account {account:?}; svc account list shows them"));
        }
    }
    let grant = Grant { provider, account, by: cx.actor.to_string(), at: cx.now };
    if !all.credentials.has(&grant.entry()) {
        let token = info.env_token.map(|token| format!(" (it takes what '{}' prints, too)", token.command));
        let text = format!(
            "there is no key {} in the vault, and only keys can be lent: svc credentials set {0}{}, or log in on \
             that machine yourself",
            grant.entry(),
            token.unwrap_or_default()
        );
        return Err(Problem::new(409, "no_key", text));
    }
    cx.audit(
        "runner.grant",
        &json!({"name": name, "provider": grant.provider, "account": grant.account, "entry": grant.entry()}),
    );
    runner.grants.retain(|other| other.provider != grant.provider);
    runner.grants.push(grant);
    Ok(kept(all, cx, runner))
}

/// Errors: 404.
pub(super) fn revoke(all: &mut All, cx: &mut Context, name: &str, provider: &str) -> Result<Reply, Problem> {
    let mut runner = Runner::clone(all.runners.find(name)?);
    let before = runner.grants.len();
    runner.grants.retain(|grant| grant.provider != provider);
    if runner.grants.len() == before {
        let text =
            format!("runner {name} is granted no key of {provider}; svc runners shows what it is granted");
        return Err(Problem::not_found(text));
    }
    cx.audit("runner.revoke", &json!({"name": name, "provider": provider}));
    Ok(kept(all, cx, runner))
}
