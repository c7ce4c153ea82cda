//! The marketplace over HTTP, on the connection's own thread: bounded answers, bounded time.

use super::{MAX_CONTENT_BYTES, check_id};
use crate::api::Problem;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use svc_sys::http::client;
use svc_sys::threads::lock;

/// Until a connection stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// For one call in all.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a registry is shown without asking again.
const FRESH: Duration = Duration::from_secs(30);
/// How long a marketplace that did not answer is left alone.
const OFFLINE: Duration = Duration::from_secs(5);
/// Bytes of an answer: a page of 200 skills.
const ANSWER_LIMIT_BYTES: u64 = 2 << 20;
/// Skills asked for at once; the service's own limit.
const PAGE: usize = 200;
/// Pages read: 2 000 skills.
const MAX_PAGES: usize = 10;

/// Why the marketplace gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// No answer, or none that can be used; in words.
    Unreachable(String),
    /// It answered no: status and sentence, and its `Retry-After`.
    Refused(u16, String, Option<String>),
}

impl Trouble {
    /// What the caller of the daemon is told.
    pub fn problem(self, base: &str) -> Problem {
        match self {
            Self::Unreachable(why) => {
                let text = format!(
                    "the marketplace at {base} does not answer ({why}); retry, or set skills.baseUrl"
                );
                Problem::new(502, "marketplace_unreachable", text)
            }
            Self::Refused(404, why, _) => Problem::not_found(why),
            Self::Refused(410, why, _) => Problem::new(410, "gone", why),
            Self::Refused(429, why, after) => {
                let problem = Problem::new(429, "rate_limited", why);
                after.map_or(problem.clone(), |after| problem.with_header("Retry-After", after))
            }
            Self::Refused(status, why, _) => {
                let text = format!("the marketplace at {base} refuses with status {status}: {why}");
                Problem::new(502, "marketplace_refused", text)
            }
        }
    }

    /// In a few words.
    pub fn words(&self) -> String {
        match self {
            Self::Unreachable(why) => why.clone(),
            Self::Refused(status, why, _) => format!("status {status}: {why}"),
        }
    }
}

/// A registry as it was last seen.
struct Seen {
    base: String,
    at: Instant,
    found: Result<Arc<Vec<Value>>, Trouble>,
}

/// The client, and which skills are being changed.
pub struct Marketplace {
    seen: Mutex<Option<Seen>>,
    busy: Arc<Mutex<BTreeSet<String>>>,
}

/// Held while a skill is being changed.
pub struct Busy {
    id: String,
    all: Arc<Mutex<BTreeSet<String>>>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.id);
    }
}

impl Default for Marketplace {
    fn default() -> Self {
        Self::new()
    }
}

impl Marketplace {
    /// Nothing asked yet.
    pub fn new() -> Self {
        Self { seen: Mutex::default(), busy: Arc::default() }
    }

    /// Claims a skill for a change.
    ///
    /// Errors: 409 `skill_busy`, another change is under way.
    pub fn begin(&self, id: &str) -> Result<Busy, Problem> {
        if !lock(&self.busy).insert(id.to_owned()) {
            let text = format!("another change of skill {id} is under way; retry when it is over");
            return Err(Problem::new(409, "skill_busy", text));
        }
        Ok(Busy { id: id.to_owned(), all: Arc::clone(&self.busy) })
    }

    /// All published skills. One caller asks, the others wait for its answer.
    pub fn registry(&self, base: &str, refresh: bool) -> Result<Arc<Vec<Value>>, Trouble> {
        let mut seen = lock(&self.seen);
        let known = seen.as_ref().filter(|seen| {
            let keep = if seen.found.is_ok() { FRESH } else { OFFLINE };
            !refresh && seen.base == base && seen.at.elapsed() < keep
        });
        if let Some(known) = known {
            return known.found.clone();
        }
        let found = fetch_registry(base).map(Arc::new);
        *seen = Some(Seen { base: base.to_owned(), at: Instant::now(), found: found.clone() });
        found
    }

    /// Counts an install.
    pub fn count_install(base: &str, id: &str) -> Result<Value, Trouble> {
        call(base, "POST", &format!("/skills/{id}/install"), None)
    }

    /// What the registry tells about one skill.
    pub fn listed(base: &str, id: &str) -> Result<Value, Trouble> {
        call(base, "GET", &format!("/skills/{id}"), None)
    }

    /// A skill's markdown.
    pub fn content(base: &str, id: &str) -> Result<String, Trouble> {
        let answer = call(base, "GET", &format!("/skills/{id}/content"), None)?;
        let content = answer["content"].as_str().unwrap_or_default();
        if answer["id"] != id {
            return Err(Trouble::Unreachable("it answered for another skill".into()));
        }
        if content.is_empty() || content.len() > MAX_CONTENT_BYTES || content.contains('\0') {
            let bytes = content.len();
            let text =
                format!("its content has {bytes} bytes, 1 to {MAX_CONTENT_BYTES} without NUL are taken");
            return Err(Trouble::Unreachable(text));
        }
        Ok(content.to_owned())
    }

    /// Rates a skill.
    pub fn rate(base: &str, id: &str, rating: u64) -> Result<Value, Trouble> {
        call(base, "POST", &format!("/skills/{id}/rate"), Some(&json!({"rating": rating})))
    }
}

fn fetch_registry(base: &str) -> Result<Vec<Value>, Trouble> {
    let mut found: Vec<Value> = Vec::new();
    for page in 0..MAX_PAGES {
        let path = format!("/skills?limit={PAGE}&offset={}", page * PAGE);
        let answer = call(base, "GET", &path, None)?;
        let Some(skills) = answer["skills"].as_array() else {
            return Err(Trouble::Unreachable("its answer has no list of skills".into()));
        };
        // What cannot be installed here is not offered.
        let usable =
            skills.iter().filter(|skill| skill["id"].as_str().is_some_and(|id| check_id(id).is_ok()));
        found.extend(usable.cloned());
        if skills.len() < PAGE {
            break;
        }
    }
    Ok(found)
}

/// One call. A proxy of the environment serves other machines, never this one.
fn call(base: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Trouble> {
    let unreachable = |why: String| Trouble::Unreachable(why);
    let url = format!("{}{path}", base.trim_end_matches('/'));
    let mut config =
        client::strict().timeout_global(Some(CALL_TIMEOUT)).timeout_connect(Some(CONNECT_TIMEOUT));
    if is_local(base) {
        config = config.proxy(None);
    }
    let agent: ureq::Agent = config.build().into();
    let sent = match (method, body) {
        ("GET", _) => agent.get(&url).call(),
        (_, None) => agent.post(&url).send_empty(),
        (_, Some(body)) => agent.post(&url).content_type("application/json").send(body.to_string()),
    };
    let mut response = sent.map_err(|error| unreachable(error.to_string()))?;
    let status = response.status().as_u16();
    let after =
        response.headers().get("retry-after").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut text = Vec::new();
    let mut reader = response.body_mut().as_reader().take(ANSWER_LIMIT_BYTES + 1);
    reader.read_to_end(&mut text).map_err(|error| unreachable(error.to_string()))?;
    if text.len() as u64 > ANSWER_LIMIT_BYTES {
        return Err(unreachable(format!("its answer is larger than {ANSWER_LIMIT_BYTES} bytes")));
    }
    let value: Option<Value> = serde_json::from_slice(&text).ok();
    match (status, value) {
        (200..=299, Some(value)) => Ok(value),
        (200..=299, None) => Err(unreachable("its answer is not JSON".into())),
        (300..=399, _) => Err(unreachable(format!("it redirects with status {status}"))),
        (500..=599, _) => Err(unreachable(format!("it answers with status {status}"))),
        (_, value) => {
            let told = value.as_ref().and_then(|value| value["error"].as_str());
            let why = super::clipped(told.unwrap_or("it gives no reason"), 300);
            Err(Trouble::Refused(status, why, after.filter(|after| after.parse::<u32>().is_ok())))
        }
    }
}

/// Whether an address names this machine.
fn is_local(url: &str) -> bool {
    let host = url.split_once("://").map_or("", |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|local| host.starts_with(local))
}
