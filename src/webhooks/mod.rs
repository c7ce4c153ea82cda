//! Webhooks: what happens here is posted, signed, to addresses that a person has named.
//!
//! ```text
//! event ──▶ waits (on disk) ──sent──▶ taken: gone
//!              ▲                 └──▶ refused: tried again, later each time ──▶ dead after [`RETRIES`]
//!              └──────────────────────────── a person sends it again ──────────────┘
//! ```
//! What waits is on the disk no later than what it tells of, and is sent when it is there; it is forgotten
//! when the receiver has said yes and that is on the disk. So a kill -9 may have a message sent twice, under
//! the same id, and never loses one.
//!
//! **Invariant:** a message is taken, waits, is dead, or was counted as dropped.
//! **Invariant:** a receiver that is slow, or never answers, delays its own messages alone.
//! **Invariant:** no secret is in the state, in an event or in a file but sealed.

pub mod api;
mod queue;
pub mod sign;
mod store;
#[cfg(test)]
mod tests;
pub mod worker;
pub mod worker_api;

pub use queue::{due, moment, overheard, report};
pub use store::{STORED_VERSION, Stored, restore};

use crate::api::{Problem, Reply};
use crate::core::ids::WebhookId;
use crate::core::time::{Jump, Time, rfc3339};
use crate::core::{CallId, Context, Document, Durability, Effect, Notice, State as All, Timer};
use crate::credentials::{self, Sealed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Webhooks at most; each that has something to send has a thread.
pub const MAX_WEBHOOKS: usize = 20;
/// Messages of one webhook that wait at most; of more the oldest is dead.
pub const MAX_WAITING: usize = 200;
/// Bytes of their bodies at most; as above.
pub const MAX_WAITING_BYTES: usize = 512 << 10;
/// Dead messages of one webhook at most; of more the oldest is dropped, and counted.
pub const MAX_DEAD: usize = 100;
/// Bytes of their bodies at most; as above.
pub const MAX_DEAD_BYTES: usize = 256 << 10;
/// Bytes of a body; what an event tells beyond that is left out, and the body says so.
pub const MAX_BODY_BYTES: usize = 64 << 10;
/// Patterns of events of one webhook.
pub const MAX_PATTERNS: usize = 60;
/// After each refusal a message waits so long; after the last one it is dead.
pub const RETRIES: [Duration; 9] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(2 * 60),
    Duration::from_secs(10 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(60 * 60),
    Duration::from_secs(2 * 60 * 60),
    Duration::from_secs(4 * 60 * 60),
    Duration::from_secs(8 * 60 * 60),
];
/// The longest wait that a receiver may ask for.
pub const MAX_ASKED: Duration = Duration::from_secs(60 * 60);
/// After a new secret is made, messages are signed with the one before, too, for so long.
pub const BOTH_SECRETS: Duration = Duration::from_secs(24 * 60 * 60);

/// Events that no WebSocket client is told of by a message of its own.
const OWN_EVENTS: [&str; 3] = [AGENT_START, AGENT_TURN, TEST];
/// An agent was started, or goes on.
const AGENT_START: &str = "agent:start";
/// A turn of an agent is over.
const AGENT_TURN: &str = "agent:turn";
/// A person tries a webhook; nobody chooses it.
const TEST: &str = "webhook:test";

/// All events, as they are called on the wire.
pub fn events() -> impl Iterator<Item = &'static str> {
    OWN_EVENTS.into_iter().chain(Notice::KINDS.iter().copied())
}

/// A message on its way, or dead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// `msg_` and 32 hexadecimal digits; the same for all webhooks that tell of the event, and for each try.
    pub id: Arc<str>,
    pub event: Arc<str>,
    /// When it happened.
    pub at: Time,
    /// JSON text.
    pub body: Arc<str>,
    /// Tries that were refused.
    pub tries: usize,
    /// Not before.
    pub next_at: Time,
    /// What came of the last try.
    pub error: Option<Arc<str>>,
}

/// An address, and what it is told.
#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    pub id: WebhookId,
    /// Unique.
    pub name: String,
    pub url: String,
    /// Names of events; `*` for all, `agent:*` for all of a kind.
    pub events: Vec<String>,
    pub enabled: bool,
    #[serde(with = "rfc3339")]
    pub created_at: Time,
    /// Until when the secret before is in use, too.
    pub both_until: Option<Time>,
    /// In order.
    waiting: Vec<Arc<Message>>,
    /// In the order in which they died.
    dead: Vec<Arc<Message>>,
    /// Dead ones for which there was no room.
    dropped: u64,
    /// Messages that were taken.
    taken: u64,
    taken_at: Option<Time>,
    /// Tries that were refused.
    refused: u64,
    error: Option<Arc<str>>,
    error_at: Option<Time>,
    /// What its thread sends.
    #[serde(skip)]
    under_way: Option<Arc<str>>,
    /// Whether the disk is asked to say when it has all that waits.
    #[serde(skip)]
    awaits_disk: bool,
}

/// All webhooks.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    webhooks: BTreeMap<WebhookId, Arc<Webhook>>,
}

/// What a webhook is to be; absent fields stay as they are.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Wish {
    pub name: Option<String>,
    pub url: Option<String>,
    pub events: Option<Vec<String>>,
    pub enabled: Option<bool>,
}

/// A wish about webhooks. Targets are ids or exact names.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// With its secret, sealed for [`secret_name`].
    Create(WebhookId, Box<Wish>, Sealed),
    Change(String, Box<Wish>),
    Remove(String),
    /// A new secret, and the one before, each sealed for its name.
    NewSecret(WebhookId, Sealed, Option<Sealed>),
    /// Send it something.
    Test(String),
    /// Send dead messages again: this one, or all.
    Resend(String, Option<String>),
}

/// A fact from the threads that send.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Report {
    /// What came of a try.
    Tried { webhook: WebhookId, message: Arc<str>, outcome: Result<(), Refusal> },
}

/// Why a message was not taken.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Refusal {
    /// For people.
    pub why: String,
    /// The receiver asks for so much time.
    pub after: Option<Duration>,
    /// It wants nothing more, ever: status 410.
    pub is_gone: bool,
}

/// An order to the threads that send.
#[derive(Debug)]
pub enum Order {
    Send(Box<Sending>),
    /// It is gone, or elsewhere: its connection is ended, and what is under way is cut.
    Forget(WebhookId),
}

/// A message, and where it goes.
#[derive(Debug)]
pub struct Sending {
    pub webhook: WebhookId,
    pub url: String,
    /// Its id.
    pub message: Arc<str>,
    pub body: Arc<str>,
    /// The names of the secrets that sign it, and the secrets.
    pub secrets: Vec<(String, Sealed)>,
}

/// The name of a webhook's secret in the vault.
pub fn secret_name(id: WebhookId) -> String {
    format!("webhook/{id}/secret")
}

/// The name of the secret before.
pub fn previous_name(id: WebhookId) -> String {
    format!("webhook/{id}/previous")
}

/// Whether a pattern means this event.
fn means(pattern: &str, event: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => event.starts_with(start) && event != TEST,
        None => pattern == event,
    }
}

/// Whether a pattern is one: it means an event, and a star stands alone or behind a colon.
fn is_pattern(pattern: &str) -> bool {
    let is_whole = pattern.strip_suffix('*').is_none_or(|start| start.is_empty() || start.ends_with(':'));
    is_whole && events().any(|event| event != TEST && means(pattern, event))
}

impl Webhook {
    fn wants(&self, event: &str) -> bool {
        self.enabled && self.events.iter().any(|pattern| means(pattern, event))
    }

    /// The record as REST shows it.
    fn shown(&self) -> Value {
        let time = |at: Option<Time>| at.map(|at| at.to_string());
        json!({
            "id": self.id, "name": self.name, "url": self.url, "events": self.events, "enabled": self.enabled,
            "createdAt": self.created_at.to_string(), "previousSecretUntil": time(self.both_until),
            "waiting": self.waiting.len(), "dead": self.dead.len(), "dropped": self.dropped,
            "taken": self.taken, "lastTaken": time(self.taken_at),
            "refused": self.refused, "lastError": self.error, "lastErrorAt": time(self.error_at),
        })
    }

    /// What waits and what is dead, oldest first.
    fn messages(&self) -> Value {
        let shown = |message: &Arc<Message>| {
            json!({
                "id": message.id, "event": message.event, "at": message.at.to_string(),
                "tries": message.tries, "nextAt": message.next_at.to_string(), "error": message.error,
                "underWay": self.under_way.as_ref() == Some(&message.id), "body": message.body,
            })
        };
        let list = |all: &[Arc<Message>]| all.iter().map(shown).collect::<Vec<_>>();
        json!({"webhook": self.id, "waiting": list(&self.waiting), "dead": list(&self.dead), "dropped": self.dropped})
    }
}

impl State {
    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Webhook>> {
        self.webhooks.values()
    }

    /// The webhook of this id or exact name.
    ///
    /// Errors: 404.
    pub fn find(&self, word: &str) -> Result<&Arc<Webhook>, Problem> {
        let by_id = word.parse().ok().and_then(|id| self.webhooks.get(&id));
        by_id.or_else(|| self.iter().find(|webhook| webhook.name == word)).ok_or_else(|| {
            let text = format!("no webhook has the id or name {word:?}; GET /api/webhooks lists them");
            Problem::not_found(text)
        })
    }

    fn edit(&mut self, id: WebhookId) -> Option<&mut Webhook> {
        self.webhooks.get_mut(&id).map(Arc::make_mut)
    }
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| match command {
        Command::Create(id, wish, sealed) => create(all, cx, id, *wish, sealed),
        Command::Change(word, wish) => change(all, cx, &word, *wish),
        Command::Remove(word) => remove(all, cx, &word),
        Command::NewSecret(id, sealed, previous) => new_secret(all, cx, id, sealed, previous),
        Command::Test(word) => queue::test(all, cx, &word),
        Command::Resend(word, message) => queue::resend(all, cx, &word, message.as_deref()),
    });
    cx.answer(call, result);
}

fn save(cx: &mut Context, durability: Durability) {
    cx.push(Effect::Put(Document::Webhooks, durability));
}

/// Errors: 409 `name_in_use`.
fn check_name(all: &All, name: &str, own: WebhookId) -> Result<(), Problem> {
    if all.webhooks.iter().any(|other| other.name == name && other.id != own) {
        let text = format!("another webhook is called {name:?}; choose another name");
        return Err(Problem::new(409, "name_in_use", text));
    }
    Ok(())
}

/// The host an address goes to: also the name of what was given none.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or_default().to_owned()
}

fn create(
    all: &mut All,
    cx: &mut Context,
    id: WebhookId,
    wish: Wish,
    sealed: Sealed,
) -> Result<Reply, Problem> {
    if all.webhooks.webhooks.len() >= MAX_WEBHOOKS {
        let text = format!("there are {MAX_WEBHOOKS} webhooks and that is the limit; remove one first");
        return Err(Problem::new(409, "too_many_webhooks", text));
    }
    if all.webhooks.webhooks.contains_key(&id) {
        return Err(Problem::new(409, "webhook_exists", format!("there is a webhook {id}; try again")));
    }
    let url = wish.url.unwrap_or_default();
    let name = wish.name.unwrap_or_else(|| host_of(&url));
    check_name(all, &name, id)?;
    credentials::put(all, cx, &secret_name(id), sealed)?;
    let webhook = Webhook {
        id,
        name,
        url,
        events: wish.events.unwrap_or_default(),
        enabled: wish.enabled.unwrap_or(true),
        created_at: cx.now,
        both_until: None,
        waiting: Vec::new(),
        dead: Vec::new(),
        dropped: 0,
        taken: 0,
        taken_at: None,
        refused: 0,
        error: None,
        error_at: None,
        under_way: None,
        awaits_disk: false,
    };
    let host = host_of(&webhook.url);
    let told = json!({"webhookId": id, "host": host, "name": webhook.name, "events": webhook.events});
    cx.audit("webhook.create", &told);
    let shown = webhook.shown();
    Arc::make_mut(&mut all.webhooks).webhooks.insert(id, Arc::new(webhook));
    save(cx, Durability::BeforeReply);
    Ok(Reply::json(201, &shown).with_header("Location", format!("/api/webhooks/{id}")))
}

fn change(all: &mut All, cx: &mut Context, word: &str, wish: Wish) -> Result<Reply, Problem> {
    let id = all.webhooks.find(word)?.id;
    if let Some(name) = &wish.name {
        check_name(all, name, id)?;
    }
    let Some(webhook) = Arc::make_mut(&mut all.webhooks).edit(id) else { return Err(gone(word)) };
    webhook.name = wish.name.unwrap_or_else(|| webhook.name.clone());
    let url = wish.url.unwrap_or_else(|| webhook.url.clone());
    let is_elsewhere = url != webhook.url;
    webhook.url = url;
    webhook.events = wish.events.unwrap_or_else(|| webhook.events.clone());
    webhook.enabled = wish.enabled.unwrap_or(webhook.enabled);
    let shown = webhook.shown();
    // Of the address only the host: the rest of it may be a secret.
    let mut told = json!({"webhookId": id, "host": host_of(&webhook.url)});
    for name in ["name", "enabled", "events"] {
        told[name] = shown[name].clone();
    }
    cx.audit("webhook.change", &told);
    if is_elsewhere {
        // What its thread sends through was made for the old address: by way of a proxy, or not.
        cx.push(Effect::Webhooks(Order::Forget(id)));
    }
    save(cx, Durability::BeforeReply);
    queue::announce(all, cx, id);
    Ok(Reply::ok(&shown))
}

fn gone(word: &str) -> Problem {
    Problem::not_found(format!("webhook {word:?} is gone"))
}

fn remove(all: &mut All, cx: &mut Context, word: &str) -> Result<Reply, Problem> {
    let id = all.webhooks.find(word)?.id;
    Arc::make_mut(&mut all.webhooks).webhooks.remove(&id);
    Arc::make_mut(&mut all.timers).clear(Timer::WebhookDue(id));
    credentials::remove_below(all, cx, &format!("webhook/{id}/"));
    cx.audit("webhook.remove", &json!({"webhookId": id}));
    cx.push(Effect::Webhooks(Order::Forget(id)));
    save(cx, Durability::BeforeReply);
    Ok(Reply::ok(&json!({"ok": true, "id": id})))
}

fn new_secret(
    all: &mut All,
    cx: &mut Context,
    id: WebhookId,
    sealed: Sealed,
    previous: Option<Sealed>,
) -> Result<Reply, Problem> {
    if !all.webhooks.webhooks.contains_key(&id) {
        return Err(gone(&id.to_string()));
    }
    let until = previous.is_some().then(|| cx.now + BOTH_SECRETS);
    // The new place first: where there is none, nothing has changed.
    if let Some(previous) = previous {
        credentials::put(all, cx, &previous_name(id), previous)?;
    }
    credentials::put(all, cx, &secret_name(id), sealed)?;
    let Some(webhook) = Arc::make_mut(&mut all.webhooks).edit(id) else { return Err(gone(&id.to_string())) };
    webhook.both_until = until;
    let shown = webhook.shown();
    cx.audit("webhook.secret", &json!({"webhookId": id}));
    save(cx, Durability::BeforeReply);
    Ok(Reply::ok(&shown))
}

/// The wall clock has jumped: what waits, waits as long as it says.
pub fn clock_set(all: &mut All, jump: Jump) {
    for webhook in Arc::make_mut(&mut all.webhooks).webhooks.values_mut() {
        let webhook = Arc::make_mut(webhook);
        webhook.both_until = webhook.both_until.map(|until| until.moved(jump));
        for message in &mut webhook.waiting {
            let message = Arc::make_mut(message);
            message.next_at = message.next_at.moved(jump);
        }
    }
}
