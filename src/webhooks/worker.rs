//! The threads that send: one for each webhook that has something to send, so that none waits for another's
//! receiver.

use super::{Order, Refusal, Report, Sending, sign};
use crate::core::ids::WebhookId;
use crate::credentials::Vault;
use std::sync::Arc;
use std::time::Duration;
use svc_sys::clock;
use svc_sys::http::client;
use svc_sys::threads::{Line, Lines};

const USER_AGENT: &str = concat!("svc-webhooks/", env!("CARGO_PKG_VERSION"));

/// Where outcomes go.
type Tell = Arc<dyn Fn(Report) + Send + Sync>;

/// All threads.
pub struct Senders {
    vault: Arc<Vault>,
    tell: Tell,
    lines: Lines<WebhookId, Sending>,
}

impl Senders {
    /// None yet; outcomes are told to `tell`.
    pub fn new(vault: Arc<Vault>, tell: impl Fn(Report) + Send + Sync + 'static) -> Self {
        Self { vault, tell: Arc::new(tell), lines: Lines::default() }
    }

    /// Has something sent, and never waits.
    ///
    /// Errors: no thread, as a report.
    pub fn order(&mut self, order: Order) -> Result<(), Report> {
        let sending = match order {
            Order::Send(sending) => *sending,
            Order::Forget(id) => {
                self.lines.forget(&id);
                return Ok(());
            }
        };
        let (webhook, message) = (sending.webhook, Arc::clone(&sending.message));
        let (vault, tell) = (Arc::clone(&self.vault), Arc::clone(&self.tell));
        let given = self.lines.give(webhook, sending, move |sending| line(&sending.url, vault, tell));
        given.map_err(|why| Report::Tried {
            webhook,
            message,
            outcome: Err(Refusal { why, after: None, is_gone: false }),
        })
    }
}

fn line(url: &str, vault: Arc<Vault>, tell: Tell) -> std::io::Result<Line<Sending>> {
    client::line("webhook", agent(url), move |agent, sending: Sending| {
        let outcome = try_once(agent, &vault, &sending);
        tell(Report::Tried { webhook: sending.webhook, message: sending.message, outcome });
    })
}

/// What follows no redirect: it would lead where nobody has said that messages may go.
fn agent(url: &str) -> ureq::Agent {
    // No proxy gets to see what stays on this machine.
    let proxy = if url.starts_with("http://") { None } else { ureq::Proxy::try_from_env() };
    client::poster(USER_AGENT).proxy(proxy).build().into()
}

fn try_once(agent: &ureq::Agent, vault: &Vault, sending: &Sending) -> Result<(), Refusal> {
    let failed = |why: String| Refusal { why, after: None, is_gone: false };
    // The signature tells when this try was made: a receiver refuses old ones.
    let timestamp = clock::now().0 / 1000;
    let signatures = signatures(vault, sending, timestamp).map_err(failed)?;
    let request = agent
        .post(&sending.url)
        .header("content-type", "application/json")
        .header(sign::ID, &*sending.message)
        .header(sign::TIMESTAMP, timestamp.to_string())
        .header(sign::SIGNATURE, signatures);
    let mut response = request.send(sending.body.as_bytes()).map_err(|error| failed(error.to_string()))?;
    let status = response.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(());
    }
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let after = header("retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    if (300..400).contains(&status) {
        let why =
            format!("status {status}: it points elsewhere, which is not followed; name the address itself");
        return Err(Refusal { why, after, is_gone: false });
    }
    Err(Refusal { why: client::refusal(&mut response), after, is_gone: status == 410 })
}

/// One for each secret that is in use, with a blank between them.
fn signatures(vault: &Vault, sending: &Sending, timestamp: u64) -> Result<String, String> {
    let mut all = Vec::new();
    for (name, sealed) in &sending.secrets {
        let secret = vault.open(name, sealed)?;
        let key = sign::key_of(secret.expose()).ok_or_else(|| format!("{name} is not {}", sign::RULE))?;
        all.push(sign::signature(&key, &sending.message, timestamp, sending.body.as_bytes()));
    }
    if all.is_empty() {
        return Err("it has no secret any more: 'svc webhook secret' gives it one".to_owned());
    }
    Ok(all.join(" "))
}
