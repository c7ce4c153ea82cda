//! Having tokens from an authorisation server, and the endpoints that see plain text.

use super::oauth::{self, Exchange, Grant, Start, Tokens};
use super::{Command, api, secrets};
use crate::api::{Problem, Request};
use crate::assembly::host::Host;
use crate::credentials::{Secret, SecretVariable, Vault};
use crate::endpoint::{Answer, Ask};
use serde_json::Value;
use std::time::Duration;
use svc_base::base64;
use svc_sys::http::client;

/// The authorisation server gets this long.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of its answer.
const ANSWER_BYTES: u64 = 256 << 10;
/// Characters of its words that are passed on.
const WORDS_CHARS: usize = 300;

/// `POST /api/integrations/:id/credentials`.
pub fn set_credential(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let (id, key, secret) = api::parse_credential(ask)?;
    let sealed = host.vault.seal(&secrets::name(&id, &key), &secret)?;
    let masked = secret.masked();
    let command = Command::SetCredential { id, key, sealed, masked };
    Ok(Answer::Command(crate::core::Command::Integrations(command)))
}

/// `POST /api/integrations/:id/oauth/start`.
pub fn start(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let id = ask.params.get("id").to_owned();
    let oauth = oauth::flow(ask.state.integrations.find(&id)?)?;
    let key = &oauth.client_id_key;
    let client_id = secrets::variable(ask.state, &id, key).ok_or_else(|| {
        let text = format!("set {key} first: POST /api/integrations/{id}/credentials {{\"key\",\"value\"}}");
        Problem::bad_request("not_configured", text)
    })?;
    let broken = |error: String| Problem::new(503, "storage_unavailable", error);
    let client_id = host.vault.open(&client_id.name, &client_id.sealed).map_err(broken)?;
    let (state, verifier) = (random_text()?, random_text()?);
    let redirect_uri = format!("{}/api/integrations/oauth/callback", own_url(ask.request, ask));
    let url = oauth::consent_url(oauth, client_id.expose(), &redirect_uri, &state, &verifier);
    let verifier = host.vault.seal(&oauth::verifier_name(&state), &Secret::new(verifier))?;
    let start = Start { id, state, verifier, redirect_uri, url };
    let command = Command::OAuthStart(Box::new(start));
    Ok(Answer::Command(crate::core::Command::Integrations(command)))
}

/// The daemon's address as the person's browser knows it, which the authorisation server may have on its
/// list:
/// `localhost` stays `localhost`. The edge has checked the host.
fn own_url(request: &Request, ask: &Ask) -> String {
    request.header("host").map_or_else(|| ask.state.project.url(), |host| format!("http://{host}"))
}

/// 256 random bits as text.
fn random_text() -> Result<String, Problem> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        Problem::new(503, "no_randomness", format!("the system gives no randomness: {error}"))
    })?;
    Ok(base64::encode_for_url(&bytes))
}

/// Has tokens, sealed.
///
/// Errors: a sentence without anything secret.
pub(super) fn exchange(vault: &Vault, order: &Exchange) -> Result<Tokens, String> {
    let open = |one: &SecretVariable| vault.open(&one.name, &one.sealed);
    let client_id = open(&order.client_id)?;
    let client_secret = order.client_secret.as_ref().map(open).transpose()?;
    let mut pairs = vec![("client_id", client_id.expose())];
    if let Some(secret) = &client_secret {
        pairs.push(("client_secret", secret.expose()));
    }
    let given;
    match &order.grant {
        Grant::Code { code, verifier, verifier_name, redirect_uri } => {
            given = vault.open(verifier_name, verifier)?;
            pairs.push(("grant_type", "authorization_code"));
            pairs.push(("code", code));
            pairs.push(("code_verifier", given.expose()));
            pairs.push(("redirect_uri", redirect_uri));
        }
        Grant::Refresh(refresh) => {
            given = open(refresh)?;
            pairs.push(("grant_type", "refresh_token"));
            pairs.push(("refresh_token", given.expose()));
        }
    }
    let answer = post(&order.token_url, &oauth::form(&pairs))?;
    let seal = |field: &str, name: &str| {
        let text = answer[field].as_str().filter(|text| !text.is_empty())?;
        Some(vault.seal(name, &Secret::new(text)).map_err(|problem| problem.error))
    };
    let refresh = seal("refresh_token", &order.refresh_name).transpose()?;
    let access = order.access_name.as_deref().and_then(|name| seal("access_token", name)).transpose()?;
    if refresh.is_none() && access.is_none() {
        return Err("the authorisation server sent no token".into());
    }
    let valid_for = answer["expires_in"].as_u64().map(Duration::from_secs);
    Ok(Tokens { refresh, access, valid_for })
}

fn post(url: &str, body: &str) -> Result<Value, String> {
    let agent: ureq::Agent = client::strict().timeout_global(Some(TIMEOUT)).build().into();
    let failed = |error: ureq::Error| format!("the authorisation server could not be asked: {error}");
    let request = agent.post(url).header("accept", "application/json");
    let mut response =
        request.content_type("application/x-www-form-urlencoded").send(body).map_err(failed)?;
    let status = response.status().as_u16();
    let text = response.body_mut().with_config().limit(ANSWER_BYTES).read_to_string().map_err(failed)?;
    let answer: Value = serde_json::from_slice(text.as_bytes()).unwrap_or_default();
    if status == 200 {
        return Ok(answer);
    }
    // Its own words for what is wrong; never the whole body, which may repeat what was sent.
    let words = ["error", "error_description"].map(|name| answer[name].as_str().unwrap_or_default());
    let words: String = words.join(" ").trim().chars().take(WORDS_CHARS).collect();
    Err(format!("the authorisation server answered {status} {words}").trim_end().to_owned())
}
