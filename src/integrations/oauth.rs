//! The consent flow of integrations with OAuth: RFC 6749 authorisation code, with PKCE (RFC 7636, S256)
//! and a random `state` that works once.
//!
//! ```text
//! start --> the person consents in a browser --> callback (code, state) --> a thread has tokens for the code
//!       --> they are sealed and kept as credentials; the browser is told
//! ```
//!
//! **Invariant:** a `state` is consumed by the first callback that names it, whatever comes of it.

use super::catalogue::{Definition, OAuth};
use super::{Order, edit, life, save, secrets, tell_status};
use crate::api::{Problem, Reply};
use crate::core::time::Time;
use crate::core::{CallId, Context, Effect, State as All};
use crate::credentials::{self, Sealed, SecretVariable};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::Duration;
use svc_base::{base64, percent};

/// A consent has to come within this time.
pub const LIFETIME: Duration = Duration::from_secs(600);
/// Consents waited for at most; the oldest is given up for a new one.
const MAX_PENDING: usize = 20;
/// A token is renewed when it is valid for less than this.
const RENEW_BEFORE: Duration = Duration::from_secs(60);

/// A consent that is waited for.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Pending {
    id: String,
    state: String,
    /// Sealed under the name [`verifier_name`].
    verifier: Sealed,
    redirect_uri: String,
    pub(super) until: Time,
}

/// `POST /api/integrations/:id/oauth/start`, its random parts made by the worker.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Start {
    pub id: String,
    /// Random.
    pub state: String,
    /// Sealed under the name [`verifier_name`].
    pub verifier: Sealed,
    /// Where the browser comes back to.
    pub redirect_uri: String,
    /// Where the person consents.
    pub url: String,
}

/// What a thread needs to have tokens. Everything secret in it is sealed.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub id: String,
    pub token_url: String,
    pub client_id: SecretVariable,
    /// Its secret, if it has one.
    pub client_secret: Option<SecretVariable>,
    /// What is given for them.
    pub grant: Grant,
    /// Name in the vault for the refresh token.
    pub refresh_name: String,
    /// Name in the vault for the access token, if the server wants it.
    pub access_name: Option<String>,
}

/// What tokens are given for.
#[derive(Debug, Clone)]
pub enum Grant {
    /// A code that the browser brought.
    Code {
        /// It works once, with its verifier only.
        code: String,
        /// Sealed.
        verifier: Sealed,
        /// Name the verifier was sealed for.
        verifier_name: String,
        /// As it was when the consent was asked for.
        redirect_uri: String,
    },
    /// An earlier refresh token.
    Refresh(SecretVariable),
}

/// What came of an exchange.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Tokens {
    /// Sealed for `refresh_name`; a server that keeps the old one sends none.
    pub refresh: Option<Sealed>,
    /// Sealed for `access_name`.
    pub access: Option<Sealed>,
    /// How long the access token is valid.
    pub valid_for: Option<Duration>,
}

/// The name a verifier is sealed for.
pub fn verifier_name(state: &str) -> String {
    format!("oauth/{state}")
}

/// The consent flow of a definition.
///
/// Errors: 400 `no_oauth`.
pub fn flow(definition: &Definition) -> Result<&OAuth, Problem> {
    definition.oauth.as_ref().ok_or_else(|| {
        let id = &definition.id;
        let text = format!(
            "integration {id} has no consent flow; set its credentials with POST /api/integrations/{id}/credentials"
        );
        Problem::bad_request("no_oauth", text)
    })
}

/// Where the person consents.
pub fn consent_url(
    oauth: &OAuth,
    client_id: &str,
    redirect_uri: &str,
    state: &str,
    verifier: &str,
) -> String {
    let challenge = base64::encode_for_url(&Sha256::digest(verifier.as_bytes()));
    let scope = oauth.scopes.join(" ");
    let mut pairs = vec![
        ("response_type", "code"),
        ("client_id", client_id),
        ("redirect_uri", redirect_uri),
        ("scope", &scope),
        ("state", state),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ];
    pairs.extend(oauth.extra.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let joint = if oauth.authorize_url.contains('?') { '&' } else { '?' };
    format!("{}{joint}{}", oauth.authorize_url, form(&pairs))
}

/// Notes that a consent is waited for: 200 with the address to open.
pub fn start(all: &mut All, cx: &mut Context, start: Start) -> Reply {
    let until = cx.now + LIFETIME;
    let body = json!({"url": start.url, "redirectUri": start.redirect_uri, "expiresAt": until.to_string()});
    let Start { id, state, verifier, redirect_uri, .. } = start;
    cx.audit("integration.oauth.start", &json!({"integrationId": id}));
    let pending = &mut edit(all).consents;
    pending.retain(|consent| consent.until > cx.now);
    if pending.len() >= MAX_PENDING {
        pending.remove(0);
    }
    pending.push(Pending { id, state, verifier, redirect_uri, until });
    Reply::ok(&body)
}

/// The browser comes back. `None`: the answer comes when the tokens are there.
///
/// Errors: none; whatever goes wrong is a page for the person.
pub fn callback(
    all: &mut All,
    cx: &mut Context,
    call: CallId,
    state: &str,
    code: Result<String, String>,
) -> Option<Reply> {
    let pending = &mut edit(all).consents;
    let found = pending.iter().position(|consent| consent.state == state && consent.until > cx.now);
    let Some(at) = found else {
        return Some(page(
            400,
            "This consent is unknown, used already, or older than 10 minutes. Start again.",
        ));
    };
    let consent = pending.remove(at);
    let code = match code {
        Ok(code) => code,
        Err(error) => return Some(page(400, &format!("The consent was not given: {error}"))),
    };
    let verifier_name = verifier_name(&consent.state);
    let Pending { id, verifier, redirect_uri, .. } = consent;
    let grant = Grant::Code { code, verifier, verifier_name, redirect_uri };
    let Some(exchange) = exchange(all, &id, grant) else {
        return Some(page(400, "The integration was removed, or its client id. Start again."));
    };
    cx.push(Effect::Integrations(Order::Exchange(call, Box::new(exchange))));
    None
}

fn exchange(all: &All, id: &str, grant: Grant) -> Option<Exchange> {
    let oauth = all.integrations.definition(id)?.oauth.as_ref()?;
    let secret_key = oauth.client_secret_key.as_deref();
    Some(Exchange {
        id: id.to_owned(),
        token_url: oauth.token_url.clone(),
        client_id: secrets::variable(all, id, &oauth.client_id_key)?,
        client_secret: secret_key.and_then(|key| secrets::variable(all, id, key)),
        grant,
        refresh_name: secrets::name(id, &oauth.refresh_token_key),
        access_name: oauth.access_token_key.as_deref().map(|key| secrets::name(id, key)),
    })
}

/// The thread has tokens for a code, or not: the browser is told.
pub fn exchanged(all: &mut All, cx: &mut Context, call: CallId, id: &str, result: Result<Tokens, String>) {
    let stored = result.and_then(|tokens| keep(all, cx, id, tokens).map_err(|problem| problem.error));
    let reply = match stored {
        Ok(()) => {
            cx.audit("integration.oauth.connect", &json!({"integrationId": id}));
            life::stop(all, cx, id, "it was connected anew; call again");
            page(200, &format!("{id} is connected. You may close this window."))
        }
        Err(error) => page(502, &format!("{id} could not be connected: {error}")),
    };
    cx.reply(call, reply);
    tell_status(all, cx, id);
}

/// Keeps tokens as credentials.
pub fn keep(all: &mut All, cx: &mut Context, id: &str, tokens: Tokens) -> Result<(), Problem> {
    let Some(oauth) = all.integrations.definition(id).and_then(|definition| definition.oauth.clone()) else {
        return Err(Problem::not_found("the integration was removed meanwhile"));
    };
    if let Some(refresh) = tokens.refresh {
        credentials::put(all, cx, &secrets::name(id, &oauth.refresh_token_key), refresh)?;
    }
    if let (Some(access), Some(key)) = (tokens.access, &oauth.access_token_key) {
        credentials::put(all, cx, &secrets::name(id, key), access)?;
        let now = cx.now;
        let expiries = &mut edit(all).expiries;
        match tokens.valid_for {
            Some(length) => expiries.insert(id.to_owned(), now + length),
            None => expiries.remove(id),
        };
        save(cx);
    }
    Ok(())
}

/// How to renew the access token of an integration, if that is due.
pub fn renewal(all: &All, id: &str, now: Time) -> Option<Exchange> {
    let oauth = all.integrations.definition(id)?.oauth.as_ref()?;
    let access = oauth.access_token_key.as_deref()?;
    let is_valid = all.integrations.expiries.get(id).is_none_or(|until| *until > now + RENEW_BEFORE);
    if is_valid && secrets::is_set(all, id, access) {
        return None;
    }
    exchange(all, id, Grant::Refresh(secrets::variable(all, id, &oauth.refresh_token_key)?))
}

/// A page for the person.
fn page(status: u16, words: &str) -> Reply {
    let safe = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>svc</title><body><p>{safe}</p></body></html>\n"
    );
    Reply::bytes(status, "text/html; charset=utf-8", html)
}

/// `a=b&c=d`, percent-encoded.
pub fn form(pairs: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{}={}", percent::encode(name), percent::encode(value));
    pairs.iter().map(pair).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_7636_appendix_b_is_met() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let challenge = base64::encode_for_url(&Sha256::digest(verifier.as_bytes()));
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert_eq!(form(&[("a", "b c"), ("d&", "=")]), "a=b%20c&d%26=%3D");
    }
}
