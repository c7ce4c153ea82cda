//! The endpoints of webhooks that make and seal secrets, or show what agents may not see.

use super::api::new;
use super::{Command, events, previous_name, secret_name, sign};
use crate::api::{Fields, Problem, Reply};
use crate::assembly::host::Host;
use crate::core;
use crate::core::ids::WebhookId;
use crate::credentials::Secret;
use crate::endpoint::{Answer, Ask};
use serde_json::{Value, json};

/// Bytes of a key that is made here.
const KEY_BYTES: usize = 32;

/// Random bytes.
///
/// Errors: 503, the system gives none.
pub fn random<const N: usize>() -> Result<[u8; N], Problem> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::new(503, "no_randomness", format!("no randomness: {error}; retry")))?;
    Ok(bytes)
}

/// `GET /api/webhooks`.
pub fn list(_host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let webhooks: Vec<Value> = ask.state.webhooks.iter().map(|webhook| webhook.shown()).collect();
    let events: Vec<&str> = events().filter(|event| *event != super::TEST).collect();
    Ok(Answer::Reply(Reply::ok(&json!({"webhooks": webhooks, "events": events}))))
}

/// `GET /api/webhooks/:id/messages`.
pub fn messages(_host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let webhook = ask.state.webhooks.find(&ask.target())?;
    Ok(Answer::Reply(Reply::ok(&webhook.messages())))
}

/// A secret of the person's own, where the receiver has one already; else one is made.
pub fn secret(fields: &mut Fields) -> Option<Secret> {
    fields.tell("secret", || json!({"type": "string", "pattern": "^whsec_", "writeOnly": true}));
    fields.value("secret")?;
    let secret = crate::credentials::api::secret(fields, "secret");
    let fits = sign::key_of(secret.expose()).is_some();
    fields.validator.check(fits, "secret", || format!("secret must be {}", sign::RULE));
    Some(secret)
}

/// The secret that a person has given, or a new one.
pub fn given_or_made(given: Option<Secret>) -> Result<Secret, Problem> {
    match given {
        Some(secret) => Ok(secret),
        None => Ok(Secret::new(sign::secret_of(&random::<KEY_BYTES>()?))),
    }
}

/// The answer, with the secret that nobody is shown again.
pub fn showing(command: core::Command, secret: Secret) -> Answer {
    let show = move |reply: Reply| {
        let mut body: Value = serde_json::from_slice(reply.body.bytes()).unwrap_or_default();
        body["secret"] = secret.expose().into();
        Reply { body: Reply::ok(&body).body, ..reply }
    };
    Answer::Followed(command, Box::new(show))
}

/// `POST /api/webhooks`.
pub fn create(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let (wish, given) = ask.request.read(|fields| (new(fields), secret(fields)))?;
    let secret = given_or_made(given)?;
    let id = WebhookId(u32::from_be_bytes(random()?));
    let sealed = host.vault.seal(&secret_name(id), &secret)?;
    Ok(showing(core::Command::Webhooks(Command::Create(id, Box::new(wish), sealed)), secret))
}

/// `POST /api/webhooks/:id/secret`.
pub fn new_secret(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let given = if ask.request.body.is_empty() { None } else { ask.request.read(secret)? };
    let id = ask.state.webhooks.find(&ask.target())?.id;
    let secret = given_or_made(given)?;
    let name = secret_name(id);
    // One that the vault cannot open signs nothing any more.
    let before =
        ask.state.credentials.get(&name).and_then(|entry| host.vault.open(&name, &entry.sealed).ok());
    let previous = before.map(|before| host.vault.seal(&previous_name(id), &before)).transpose()?;
    let sealed = host.vault.seal(&name, &secret)?;
    Ok(showing(core::Command::Webhooks(Command::NewSecret(id, sealed, previous)), secret))
}
