//! What people have said, from the platform's hand-over to the answer.
//!
//! ```text
//! Take (durable, then the platform hears that we have it) ──▶ queued
//! queued (Discord's interactions: from Release on) ──Begin (durable)──▶ running
//! running ──▶ the command itself ──Done──▶ gone
//! ```
//!
//! A command that looks only goes from queued to gone. When the daemon dies, what was queued is done by the
//! next one; of what was running nobody can tell how far it came, so it is not done again and its user is
//! told.
//!
//! **Invariant:** a platform is told that we have a message only after it is on disk.
//! **Invariant:** a command that changes something is begun at most once.

use super::message::{Place, Text, cut, split_thread};
use super::record::GatewayId;
use super::{Errand, Order, Outgoing, Why, commands, notify, save};
use crate::api::Problem;
use crate::core::time::{Time, rfc3339};
use crate::core::{Context, Durability, Effect, State as All};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use svc_base::bounded;

/// Commands of one gateway that wait or run, at most; a further one is refused with a word to its user.
pub const MAX_WAITING: usize = 50;
/// What changes something is done only when it was said at most so long ago: after an outage a platform
/// hands over what a person may have thought better of.
const MAX_AGE: Duration = Duration::from_secs(10 * 60);
/// Keys of messages remembered per gateway, to know what comes again.
pub const MAX_RECENT: usize = 500;
/// Characters of a command's text; a longer one is refused.
pub const MAX_TEXT_CHARS: usize = 8_000;
/// Characters of a command in the audit log.
const AUDITED_CHARS: usize = 200;

/// What somebody has said on a platform.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Heard {
    /// The platform's id of this message, unique within the gateway.
    pub key: String,
    /// The platform's id of who said it.
    pub user: String,
    /// Their name, for people.
    pub user_name: String,
    pub chat: String,
    /// The words, beginning with `/`.
    pub text: String,
    /// How this very message is answered; empty: with a message in its chat.
    pub reply_to: String,
    /// It was a click on a button.
    pub button: bool,
    /// The platform's id of the message with that button; empty where it says none.
    pub clicked: String,
    /// When it was said, by the platform's clock; `None` where it says nothing of it.
    pub said_at: Option<Time>,
    /// The new cursor, when it moves on.
    pub cursor: Option<String>,
    /// It is done only when it is released: the platform wants its acknowledgement before any answer.
    pub held: bool,
}

/// A command that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Unique within the project.
    pub number: u64,
    /// Where it came from.
    pub gateway: GatewayId,
    /// The platform's id of who said it.
    pub user: String,
    pub chat: String,
    pub text: String,
    /// As in [`Heard::reply_to`].
    pub reply_to: String,
    /// It was a click on a button.
    pub button: bool,
    /// When it was taken.
    #[serde(with = "rfc3339")]
    pub at: Time,
    /// Its effect may have begun.
    pub running: bool,
}

/// What the core says to a gateway's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receipt {
    /// It is ours, on disk: the number of the command.
    Entry(u64),
    /// It was ours before.
    Known,
    /// Its user may give no commands here: the words for them.
    Stranger(String),
    /// It is not done: the words for its user.
    Refused(String),
    /// The effect may begin.
    Begun,
    /// The command was begun before or is gone: its effect must not come.
    NotAgain,
    Noted,
}

impl Receipt {
    /// Whether what the thread asked for is done.
    pub fn is_granted(&self) -> bool {
        matches!(self, Self::Entry(_) | Self::Begun | Self::Noted)
    }
}

/// Does what a gateway's thread asks for.
///
/// Errors: 503 when it cannot be written, 404 when the gateway is gone.
pub fn errand(all: &mut All, cx: &mut Context, errand: Errand) -> Result<Receipt, Problem> {
    match errand {
        Errand::Take(id, heard) => take(all, cx, id, *heard),
        Errand::Begin(number) => begin(all, cx, number),
        // These are taken back by nobody, whether or not they can be written.
        Errand::Done(number) => Ok(done(all, cx, number)),
        Errand::Release(number) => Ok(release(all, cx, number)),
    }
}

/// Takes what was said, durably. What is refused is ours all the same: the platform need not say it again.
///
/// Errors: as [`errand`].
pub fn take(all: &mut All, cx: &mut Context, id: GatewayId, heard: Heard) -> Result<Receipt, Problem> {
    all.health.writable()?;
    let gateways = Arc::make_mut(&mut all.gateways);
    let waiting = gateways.inbox.iter().filter(|entry| entry.gateway == id).count();
    let number = gateways.next_entry + 1;
    let Some(gateway) = gateways.edit(id) else { return Err(Problem::not_found("the gateway is gone")) };
    if let Some(cursor) = heard.cursor {
        gateway.cursor = cursor;
    }
    save(cx, Durability::BeforeReply);
    if !heard.key.is_empty() && gateway.recent.contains(&heard.key) {
        return Ok(Receipt::Known);
    }
    bounded::push(&mut gateway.recent, heard.key, MAX_RECENT);
    let details = json!({
        "gatewayId": id, "user": heard.user, "userName": heard.user_name, "chatId": heard.chat,
        "command": cut(&heard.text, AUDITED_CHARS), "button": heard.button,
    });
    if !gateway.allows(&heard.user) {
        cx.audit("gateway.refused", &details);
        let text = format!("you are not on this gateway's list of allowed users; your id is {}", heard.user);
        return Ok(Receipt::Stranger(text));
    }
    if heard.text.chars().count() > MAX_TEXT_CHARS {
        let text =
            format!("a command may have {MAX_TEXT_CHARS} characters; this one is longer and was not taken");
        return Ok(Receipt::Refused(text));
    }
    if waiting >= MAX_WAITING {
        let text =
            format!("{MAX_WAITING} commands wait already; this one was not taken, repeat it in a while");
        return Ok(Receipt::Refused(text));
    }
    if let Some(age) = heard.said_at.map(|at| cx.now.since(at)).filter(|age| *age > MAX_AGE)
        && !commands::looks_only(&heard.text)
    {
        cx.audit("gateway.stale", &details);
        let minutes = age.as_secs() / 60;
        let (done, again) = if heard.button { ("pressed", "press") } else { ("said", "say") };
        let text = format!(
            "that was {done} {minutes} minutes ago and was not done; {again} it again if it still holds"
        );
        return Ok(Receipt::Refused(text));
    }
    cx.audit("gateway.command", &details);
    if heard.button && !heard.clicked.is_empty() {
        let place = Place { chat: split_thread(&heard.chat).0.to_owned(), message: heard.clicked };
        notify::clicked(all, cx, id, &heard.text, place);
    }
    let gateways = Arc::make_mut(&mut all.gateways);
    let entry = Arc::new(Entry {
        number,
        gateway: id,
        user: heard.user,
        chat: heard.chat,
        text: heard.text,
        reply_to: heard.reply_to,
        button: heard.button,
        at: cx.now,
        running: false,
    });
    gateways.next_entry = number;
    gateways.inbox.push(Arc::clone(&entry));
    if !heard.held {
        cx.push(Effect::Gateways(Order::Run(entry)));
    }
    Ok(Receipt::Entry(number))
}

/// Lets a command that was held be done. One that a restart of the gateway has let go is gone or begun,
/// and nothing happens.
pub fn release(all: &All, cx: &mut Context, number: u64) -> Receipt {
    let entry = all.gateways.inbox.iter().find(|entry| entry.number == number && !entry.running);
    if let Some(entry) = entry {
        cx.push(Effect::Gateways(Order::Run(Arc::clone(entry))));
    }
    Receipt::Noted
}

/// Marks a command as running, durably, before its effect.
///
/// Errors: as [`errand`].
pub fn begin(all: &mut All, cx: &mut Context, number: u64) -> Result<Receipt, Problem> {
    all.health.writable()?;
    let inbox = &mut Arc::make_mut(&mut all.gateways).inbox;
    let entry = inbox.iter_mut().find(|entry| entry.number == number && !entry.running);
    let Some(entry) = entry else {
        return Ok(Receipt::NotAgain);
    };
    Arc::make_mut(entry).running = true;
    save(cx, Durability::BeforeReply);
    Ok(Receipt::Begun)
}

/// Forgets a command that was answered.
pub fn done(all: &mut All, cx: &mut Context, number: u64) -> Receipt {
    Arc::make_mut(&mut all.gateways).inbox.retain(|entry| entry.number != number);
    save(cx, Durability::BeforeReply);
    Receipt::Noted
}

/// Of what an earlier daemon was doing when it ended, tells the users.
pub fn own_up(all: &mut All, cx: &mut Context) {
    let (running, queued): (Vec<_>, Vec<_>) =
        all.gateways.inbox.iter().cloned().partition(|entry| entry.running);
    if running.is_empty() {
        return;
    }
    Arc::make_mut(&mut all.gateways).inbox = queued;
    for entry in running {
        let text = Text::from("The daemon ended while it did ")
            .code(cut(&entry.text, AUDITED_CHARS))
            .plain(". It was not done again; see /status for how far it came.");
        notify::push(cx, Outgoing::new(entry.gateway, entry.chat.clone(), text.into(), Why::Answer));
    }
    save(cx, Durability::Soon);
}
