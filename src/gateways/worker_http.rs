//! Requests to a platform's Web API: total time-outs, no redirects, and a stop that does not wait for an
//! answer.

use crate::credentials::Secret;
use serde_json::Value;
use std::io::Read;
use std::time::Duration;
use svc_sys::http::client;

/// An ordinary request, in all.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Until a connection stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer read; a longer one is refused.
const ANSWER_LIMIT_BYTES: u64 = 8 << 20;
/// A shorter end of a token is not looked for alone.
const MIN_TAIL_BYTES: usize = 8;
/// Discord wants to know who calls; the others do not mind.
const USER_AGENT: &str = concat!("DiscordBot (https://github.com/, ", env!("CARGO_PKG_VERSION"), ") svc");

/// A client. Clones share its connections, and its end.
#[derive(Clone)]
pub struct Http {
    agent: ureq::Agent,
    /// Never shown: Telegram's is part of its addresses, and a server may say back what it was asked.
    secrets: Vec<Secret>,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// `Retry-After`, and Discord's `X-RateLimit-Reset-After` when its bucket is empty.
    pub wait: Option<Duration>,
    /// The body; text that is no JSON as a string.
    pub body: Value,
}

impl Http {
    /// A client whose errors and answers never show `secrets`. `plain`: the server is on this machine;
    /// then no proxy gets to see the tokens.
    pub fn new(secrets: Vec<Secret>, plain: bool) -> Self {
        let proxy = if plain { None } else { ureq::Proxy::try_from_env() };
        let config = client::strict().proxy(proxy).timeout_connect(Some(CONNECT_TIMEOUT));
        Self { agent: config.user_agent(USER_AGENT).build().into(), secrets }
    }

    /// Ends every request under way, and refuses further ones.
    pub fn shutdown(&self) {
        self.agent.clone().shutdown();
    }

    /// Sends a request with a JSON body, within `timeout` in all. `authorization` is the header's value.
    ///
    /// Errors: a sentence when there is no answer; any status is an answer.
    pub fn call(
        &self,
        method: &str,
        url: &str,
        authorization: Option<&str>,
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<Answer, String> {
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        if let Some(value) = authorization {
            request = request.header("Authorization", value);
        }
        if body.is_some() {
            request = request.header("Content-Type", "application/json; charset=utf-8");
        }
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = request.body(bytes).map_err(|error| self.clean(&error.to_string()))?;
        let request = self.agent.configure_request(request).timeout_global(Some(timeout)).build();
        let response = self.agent.run(request).map_err(|error| self.clean(&error.to_string()))?;
        let status = response.status().as_u16();
        let wait = wait_of(response.headers());
        let mut bytes = Vec::new();
        let mut reader = response.into_body().into_reader().take(ANSWER_LIMIT_BYTES);
        reader.read_to_end(&mut bytes).map_err(|error| self.clean(&error.to_string()))?;
        let text = self.clean(&String::from_utf8_lossy(&bytes));
        let body = serde_json::from_slice(text.as_bytes()).unwrap_or(Value::String(text));
        Ok(Answer { status, wait, body })
    }

    /// Words without the secrets.
    fn clean(&self, words: &str) -> String {
        let mut clean = words.to_owned();
        for secret in self.secrets.iter().map(Secret::expose).filter(|secret| !secret.is_empty()) {
            clean = clean.replace(secret, "****");
            // The colon of Telegram's may have been written otherwise; what follows it is the secret.
            if let Some((_, tail)) = secret.split_once(':').filter(|(_, tail)| tail.len() >= MIN_TAIL_BYTES) {
                clean = clean.replace(tail, "****");
            }
        }
        clean
    }
}

fn wait_of(headers: &ureq::http::HeaderMap) -> Option<Duration> {
    let seconds = |name: &str| {
        let number: f64 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0).then(|| Duration::from_secs_f64(number.min(86_400.0)))
    };
    let is_empty = headers.get("x-ratelimit-remaining").is_some_and(|left| left.as_bytes() == b"0");
    seconds("retry-after").or_else(|| seconds("x-ratelimit-reset-after").filter(|_| is_empty))
}
