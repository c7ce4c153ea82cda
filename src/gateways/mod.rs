//! Chat gateways: Telegram, Discord and Slack push notifications and take commands. All connections go
//! outwards.
//!
//! A gateway has a thread set of its own ([`worker`]): one takes what people say and hands it to the core
//! ([`inbox`]), one does the commands ([`commands`], through the same door as REST), one sends. The core
//! decides what is told to whom ([`notify`]); how it looks on each platform stands in [`render`].
//!
//! **Invariant:** a user who is not allowed, and a command that the gateway's permission leaves out, change
//! nothing; a button is a command like any other.
//! **Invariant:** no command is done twice, and none is lost without a word to its user.
//! **Invariant:** no token is in the state, in an event or in a file but sealed.

mod answers;
pub mod api;
pub mod commands;
mod connection;
mod digest;
mod inbox;
pub mod message;
mod notify;
mod record;
pub mod render;
mod sources;
mod store;
mod targets;
#[cfg(test)]
mod tests;
pub mod worker;
pub mod worker_api;
mod worker_desk;
mod worker_discord;
mod worker_discord_rest;
mod worker_http;
mod worker_queue;
mod worker_slack;
mod worker_socket;
mod worker_telegram;

pub use connection::{answer_connects as connect_due, boot, check_credentials, report};
pub use inbox::{Entry, Heard, MAX_TEXT_CHARS, Receipt};
pub use message::{Message, Place};
pub use notify::{Card, digest_due, moment, overheard, send_missing_cards as cards_due};
pub use record::{CommandPermission, Gateway, GatewayId, Kind, Preset};
pub use store::{Stored, VERSION as STORED_VERSION, restore};

use crate::api::{Problem, Reply};
use crate::approvals::ApprovalId;
use crate::core::Notice;
use crate::core::{CallId, Context, Document, Durability, Effect, State as All, Timer};
use crate::credentials::{self, Sealed};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Gateways at most; each has three threads.
pub const MAX_GATEWAYS: usize = 20;
/// Users on one allow-list at most.
pub const MAX_ALLOWED: usize = 200;
/// `POST connect` waits this long for the platform; then it answers what is known.
pub const CONNECT_WAIT: Duration = Duration::from_secs(15);
/// Callers that wait for one connection at most.
const MAX_CONNECTING: usize = 16;

/// All gateways, and what is between them and the core.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    gateways: BTreeMap<GatewayId, Arc<Gateway>>,
    /// Commands taken and not yet done with, in order.
    inbox: Vec<Arc<Entry>>,
    /// Approvals that were sent and wait for a decision.
    cards: Vec<Card>,
    /// Lines that wait to be told together.
    digests: BTreeMap<GatewayId, digest::Digest>,
    /// Who waits for a connection.
    connecting: BTreeMap<GatewayId, Vec<CallId>>,
    next_entry: u64,
    next_run: u64,
}

/// What a gateway is to be; absent fields stay as they are.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Wish {
    /// For people.
    pub display_name: Option<String>,
    /// Whether it may connect.
    pub enabled: Option<bool>,
    pub chat_id: Option<String>,
    /// Who may give commands.
    pub allowed_users: Option<Vec<String>>,
    /// Which events are told.
    pub preset: Option<Preset>,
    /// What people in the chat may do.
    pub command_permission: Option<CommandPermission>,
    /// Where the Web API is; empty: at the platform.
    pub api_base: Option<String>,
}

/// A wish about gateways. Targets are ids.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    Create(Kind, Box<Wish>),
    Change(String, Box<Wish>),
    /// Remove one, with its credentials.
    Delete(String),
    /// Let it connect; answered when it has, or has not.
    Connect(String),
    Disconnect(String),
    SetCredential {
        target: String,
        /// Which of [`Kind::credentials`].
        key: String,
        /// Sealed for [`Gateway::credential`].
        sealed: Sealed,
    },
    RemoveCredential {
        target: String,
        key: String,
    },
    /// From a gateway's threads.
    Inbox(Errand),
}

/// What a gateway's threads have the core do with what people say; commands by their number.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Errand {
    Take(GatewayId, Box<Heard>),
    /// A command that was held may be done.
    Release(u64),
    /// A command's effect is about to begin.
    Begin(u64),
    /// A command was answered.
    Done(u64),
}

/// What a thread set is started with.
#[derive(Debug)]
pub struct Start {
    pub gateway: GatewayId,
    /// Comes back in each report.
    pub run: u64,
    /// Where the Web API is, without a slash at the end.
    pub api: String,
    /// Where the platform's stream is taken up.
    pub cursor: String,
    /// Names and values of the credentials.
    pub credentials: Vec<(&'static str, String, Sealed)>,
}

/// Why something is sent: what goes first when a queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A notification that nobody asked for; the first to go.
    Notice,
    /// The answer to a command.
    Answer,
    /// A person has to decide; the last to go. Its place is reported.
    Approval(ApprovalId),
}

impl Why {
    /// The approval that it asks for.
    pub fn approval(self) -> Option<ApprovalId> {
        match self {
            Self::Approval(id) => Some(id),
            Self::Notice | Self::Answer => None,
        }
    }
}

/// A message on its way.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub gateway: GatewayId,
    pub chat: String,
    pub message: Message,
    /// As in [`Heard::reply_to`]; empty for an ordinary message.
    pub reply_to: String,
    pub why: Why,
    /// The same for the same message in the same chat, however often and by which daemon it is sent, so
    /// that a platform that knows it takes it once; may be empty.
    pub key: String,
    /// It may stand there already: who sent it before may not have heard that.
    pub again: bool,
}

impl Outgoing {
    /// An ordinary message, sent for the first time.
    pub fn new(gateway: GatewayId, chat: String, message: Message, why: Why) -> Self {
        Self { gateway, chat, message, reply_to: String::new(), why, key: String::new(), again: false }
    }
}

/// An order to the gateways' threads.
#[derive(Debug)]
pub enum Order {
    /// Connect, in place of an earlier thread set.
    Start(Box<Start>),
    Stop(GatewayId),
    Send(Box<Outgoing>),
    /// Change a message that was sent; its buttons go.
    Edit(GatewayId, Place, Box<Message>),
    Run(Arc<Entry>),
}

/// A fact from a gateway's threads.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Report {
    Connected {
        gateway: GatewayId,
        run: u64,
        bot: String,
    },
    /// Its connection does not stand.
    Trouble {
        gateway: GatewayId,
        run: u64,
        /// The platform's words, or the system's.
        error: String,
        /// It is over: the platform rejects the bot, and trying again would not help.
        fatal: bool,
    },
    /// A message was refused for good.
    Refused {
        gateway: GatewayId,
        run: u64,
        error: String,
        /// It asked for this decision.
        approval: Option<ApprovalId>,
    },
    /// A message was taken again, after one that was refused.
    Healed {
        gateway: GatewayId,
        run: u64,
    },
    /// The platform's stream has moved on without anything to be taken.
    Moved {
        gateway: GatewayId,
        cursor: String,
    },
    /// An approval stands in the chat.
    Sent {
        gateway: GatewayId,
        approval: ApprovalId,
        place: Place,
    },
}

impl State {
    /// All gateways, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Gateway>> {
        self.gateways.values()
    }

    /// Commands taken and not yet done with, in order.
    pub fn inbox(&self) -> &[Arc<Entry>] {
        &self.inbox
    }

    /// The gateway with this id.
    pub fn get(&self, id: GatewayId) -> Option<&Arc<Gateway>> {
        self.gateways.get(&id)
    }

    /// Finds a gateway by its id.
    ///
    /// Errors: 404.
    pub fn find(&self, target: &str) -> Result<&Arc<Gateway>, Problem> {
        let found = target.parse().ok().and_then(|id| self.gateways.get(&id));
        found.ok_or_else(|| {
            Problem::not_found(format!("no gateway has the id {target:?}; GET /api/gateways lists them"))
        })
    }

    fn edit(&mut self, id: GatewayId) -> Option<&mut Gateway> {
        self.gateways.get_mut(&id).map(Arc::make_mut)
    }
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let changes = !matches!(command, Command::Connect(_) | Command::Inbox(_));
    if changes && let Err(problem) = all.health.writable() {
        return cx.reply(call, problem);
    }
    let result = match command {
        Command::Connect(target) => return connection::connect(all, cx, call, &target),
        Command::Inbox(errand) => {
            let result = inbox::errand(all, cx, errand);
            return cx.answer(call, result);
        }
        Command::Create(kind, wish) => create(all, cx, kind, *wish),
        Command::Change(target, wish) => patch(all, cx, &target, *wish),
        Command::Delete(target) => delete(all, cx, &target),
        Command::Disconnect(target) => connection::disconnect(all, cx, &target),
        Command::SetCredential { target, key, sealed } => set_credential(all, cx, &target, &key, sealed),
        Command::RemoveCredential { target, key } => remove_credential(all, cx, &target, &key),
    };
    cx.answer(call, result);
}

/// The record as REST shows it where it stands alone.
pub fn shown(all: &All, gateway: &Gateway) -> Value {
    gateway.shown(&credentials_of(all, gateway))
}

/// The record as it stands in lists.
pub fn listed(all: &All, gateway: &Gateway) -> Value {
    gateway.listed(&credentials_of(all, gateway))
}

/// The keys of the credentials that are set.
fn credentials_of(all: &All, gateway: &Gateway) -> Vec<&'static str> {
    let is_set = |key: &&&str| all.credentials.has(&gateway.credential(key));
    gateway.id.kind.credentials().iter().filter(is_set).copied().collect()
}

fn create(all: &mut All, cx: &mut Context, kind: Kind, wish: Wish) -> Result<Reply, Problem> {
    if all.gateways.gateways.len() >= MAX_GATEWAYS {
        let text = format!("there are {MAX_GATEWAYS} gateways and that is the limit; delete one first");
        return Err(Problem::new(409, "too_many_gateways", text));
    }
    let gateways = Arc::make_mut(&mut all.gateways);
    let taken =
        |number| gateways.gateways.contains_key(&GatewayId { kind, number: number & record::ID_MASK });
    let id = GatewayId { kind, number: cx.fresh_id(taken) & record::ID_MASK };
    let mut gateway = Gateway {
        id,
        display_name: kind.title().to_owned(),
        enabled: true,
        wanted: false,
        chat_id: String::new(),
        preset: Preset::default(),
        command_permission: CommandPermission::default(),
        allowed_users: Vec::new(),
        api_base: None,
        bot_username: String::new(),
        cursor: String::new(),
        recent: std::collections::VecDeque::new(),
        created_at: cx.now,
        moves: 0,
        connected: false,
        last_error: None,
        run: 0,
        running: false,
        unsent: 0,
    };
    take_over(&mut gateway, wish);
    gateways.gateways.insert(id, Arc::new(gateway));
    cx.audit("gateway.create", &json!({"gatewayId": id}));
    announce(all, cx);
    save(cx, Durability::BeforeReply);
    let gateway = all.gateways.find(&id.to_string())?;
    Ok(Reply::json(201, &shown(all, gateway)).with_header("Location", format!("/api/gateways/{id}")))
}

/// Takes the wishes over; whether it has to connect anew for them.
fn take_over(gateway: &mut Gateway, wish: Wish) -> bool {
    gateway.display_name = wish.display_name.unwrap_or_else(|| gateway.display_name.clone());
    gateway.enabled = wish.enabled.unwrap_or(gateway.enabled);
    gateway.chat_id = wish.chat_id.unwrap_or_else(|| gateway.chat_id.clone());
    gateway.preset = wish.preset.unwrap_or(gateway.preset);
    gateway.command_permission = wish.command_permission.unwrap_or(gateway.command_permission);
    if let Some(users) = wish.allowed_users {
        gateway.allowed_users = users;
    }
    match wish.api_base.map(|base| Some(base).filter(|base| !base.is_empty())) {
        Some(base) if base != gateway.api_base => {
            gateway.api_base = base;
            // Another server counts its messages otherwise.
            gateway.cursor.clear();
            gateway.recent.clear();
            true
        }
        _ => false,
    }
}

fn patch(all: &mut All, cx: &mut Context, target: &str, wish: Wish) -> Result<Reply, Problem> {
    let before = Arc::clone(all.gateways.find(target)?);
    let id = before.id;
    let anew = Arc::make_mut(&mut all.gateways).edit(id).is_some_and(|gateway| take_over(gateway, wish));
    cx.audit("gateway.update", &json!({"gatewayId": id}));
    let gateway = all.gateways.find(target)?;
    if gateway.chat_id != before.chat_id {
        if let Some(gateway) = Arc::make_mut(&mut all.gateways).edit(id) {
            gateway.moves = gateway.moves.wrapping_add(1);
        }
        notify::leave_chat(all, cx, id);
    }
    let gateway = all.gateways.find(target)?;
    let (due, running) = (gateway.is_due(), gateway.running);
    if running && (!due || anew) {
        connection::stop(all, cx, id);
    }
    if due && (!running || anew) {
        connection::start(all, cx, id);
    } else {
        notify::send_missing_cards(all, cx, id);
    }
    announce(all, cx);
    save(cx, Durability::BeforeReply);
    let gateway = all.gateways.find(target)?;
    Ok(Reply::ok(&shown(all, gateway)))
}

fn delete(all: &mut All, cx: &mut Context, target: &str) -> Result<Reply, Problem> {
    let id = all.gateways.find(target)?.id;
    connection::stop(all, cx, id);
    let gateways = Arc::make_mut(&mut all.gateways);
    gateways.gateways.remove(&id);
    gateways.inbox.retain(|entry| entry.gateway != id);
    gateways.cards.retain(|card| card.gateway != id);
    gateways.digests.remove(&id);
    Arc::make_mut(&mut all.timers).clear(Timer::GatewayDigest(id));
    Arc::make_mut(&mut all.timers).clear(Timer::GatewayCards(id));
    credentials::remove_below(all, cx, &format!("gateway/{id}/"));
    cx.audit("gateway.delete", &json!({"gatewayId": id}));
    announce(all, cx);
    save(cx, Durability::BeforeReply);
    Ok(Reply::ok(&json!({"ok": true, "id": id})))
}

fn set_credential(
    all: &mut All,
    cx: &mut Context,
    target: &str,
    key: &str,
    sealed: Sealed,
) -> Result<Reply, Problem> {
    let gateway = Arc::clone(all.gateways.find(target)?);
    credentials::put(all, cx, &gateway.credential(key), sealed)?;
    // Another bot has other messages.
    if let Some(gateway) = Arc::make_mut(&mut all.gateways).edit(gateway.id) {
        gateway.cursor.clear();
        gateway.recent.clear();
        save(cx, Durability::BeforeReply);
    }
    if gateway.is_due() && check_credentials(all, &gateway).is_ok() {
        connection::start(all, cx, gateway.id);
    }
    Ok(Reply::ok(&json!({"ok": true})))
}

fn remove_credential(all: &mut All, cx: &mut Context, target: &str, key: &str) -> Result<Reply, Problem> {
    let gateway = Arc::clone(all.gateways.find(target)?);
    if !credentials::remove(all, cx, &gateway.credential(key)) {
        let text = format!("gateway {} has no credential {key:?}", gateway.id);
        return Err(Problem::not_found(text));
    }
    if gateway.running {
        connection::stop(all, cx, gateway.id);
        announce(all, cx);
    }
    Ok(Reply::ok(&json!({"ok": true})))
}

/// Tells WebSocket clients of all gateways.
fn announce(all: &All, cx: &mut Context) {
    let data: Vec<Value> = all.gateways.iter().map(|gateway| listed(all, gateway)).collect();
    cx.notice(Notice::GatewayStatus { data });
}

fn save(cx: &mut Context, durability: Durability) {
    cx.push(Effect::Put(Document::Gateways, durability));
}
