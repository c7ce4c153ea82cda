//! The threads of the gateways: one takes, one does the commands, one sends.
//!
//! The taking thread reports the state of the connection and hands what people say to the core, waiting
//! until it is on disk before the platform hears that we have it. The sending thread is alone with its
//! queue: order is kept, limits of the platform are waited for, what fails for a while is tried again.

use super::message::{Text, split_thread};
use super::worker_desk::Desk;
use super::worker_http::Http;
use super::worker_queue::{Item, Queue};
use super::worker_socket::{Stopper, back_off};
use super::{
    Command, Entry, Errand, GatewayId, Heard, Kind, Message, Order, Outgoing, Place, Receipt, Report, Start,
    Why, render,
};
use super::{worker_discord, worker_discord_rest, worker_slack, worker_telegram};
use crate::agents::worker_log::LogStore;
use crate::assembly::host::Core;
use crate::core::{Actor, Event, Response};
use crate::credentials::{Secret, Vault};
use crossbeam_channel::{Sender, TrySendError, bounded};
use serde_json::Value;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use svc_sys::clock;
use svc_sys::threads::{Thread, lock};

/// Stack of a gateway's thread: TLS and JSON need more than a line of text.
const STACK_BYTES: usize = 1 << 20;
/// Commands on their way to the desk at most; the core lets fewer wait.
const DESK_LANE: usize = 2 * super::inbox::MAX_WAITING;
/// Two messages to one chat are this far apart: Telegram and Slack take one a second, in bursts a little
/// more.
const PACE: Duration = Duration::from_millis(350);
/// The longest wait that a platform may ask for.
const MAX_WAIT: Duration = Duration::from_secs(15 * 60);
/// Tries of one message that the platform fails to take.
const MAX_TRIES: u32 = 10;
/// Users who are not allowed and have been told so: once each.
const MAX_STRANGERS: usize = 100;

/// All thread sets.
pub struct Gateways {
    core: Core,
    vault: Arc<Vault>,
    logs: Arc<LogStore>,
    sets: BTreeMap<GatewayId, Set>,
    /// Sets that were told to end; joined when they have, or at the end of the daemon.
    ending: Vec<Set>,
}

struct Set {
    desk: Option<Sender<Arc<Entry>>>,
    shared: Arc<Shared>,
    threads: Vec<Thread>,
}

impl Set {
    /// Tells its threads to end, without waiting for them.
    fn stop(&mut self) {
        self.desk = None;
        self.shared.stopper.stop();
        self.shared.queue.close();
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        self.stop();
        self.threads.clear();
    }
}

/// What a message of a platform says to a bot with this id, or name for Telegram, if it is for us. No
/// connection is needed, and no message may panic: they come from strangers.
pub fn heard(kind: Kind, bot: &str, message: &Value) -> Option<Heard> {
    match kind {
        Kind::Telegram => {
            worker_telegram::numbers(message)?;
            worker_telegram::heard(bot, message)
        }
        Kind::Discord => {
            let (identity, data) = (worker_discord::Identity::of(bot), &message["d"]);
            match message["t"].as_str()? {
                "MESSAGE_CREATE" => identity.message(data),
                _ => identity.interaction(data).map(|(heard, _)| heard),
            }
        }
        Kind::Slack => worker_slack::heard(bot, message, message["envelope_id"].as_str()?),
    }
}

/// What it takes to call a platform's Web API.
pub(super) struct Line {
    pub(super) kind: Kind,
    /// Without a slash at the end.
    pub(super) api: String,
    pub(super) bot_token: Secret,
    pub(super) http: Http,
    /// The platform wants no message before this moment.
    rest_until: Mutex<Option<Instant>>,
}

impl Line {
    /// `app_token` is not used by it, and never shown.
    pub(super) fn new(kind: Kind, api: &str, bot_token: Secret, app_token: Option<Secret>) -> Self {
        let api = api.trim_end_matches('/').to_owned();
        let secrets = std::iter::once(bot_token.clone()).chain(app_token).collect();
        let http = Http::new(secrets, api.starts_with("http://"));
        Self { kind, api, bot_token, http, rest_until: Mutex::default() }
    }

    /// The platform wants no message for so long.
    pub(super) fn rest(&self, wait: Duration) {
        let until = Instant::now() + wait.min(MAX_WAIT);
        *lock(&self.rest_until) = Some(until);
    }

    /// How long the platform wants no message; asked once.
    fn resting(&self) -> Duration {
        let until = lock(&self.rest_until).take();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Whether addresses without TLS may be used: the Web API itself is on this machine.
    pub(super) fn is_plain(&self) -> bool {
        self.api.starts_with("http://")
    }

    /// Sends one piece; where it stands, if that is known.
    pub(super) fn send(&self, piece: &Piece) -> Result<Option<Place>, Refusal> {
        match self.kind {
            Kind::Telegram => worker_telegram::send(self, piece),
            Kind::Discord => worker_discord_rest::send(self, piece),
            Kind::Slack => worker_slack::send(self, piece),
        }
    }

    fn edit(&self, place: &Place, message: &Message) -> Result<(), Refusal> {
        let words = render::split(self.kind, &message.text).into_iter().next().unwrap_or_default();
        let text = render::markup(self.kind, &words);
        match self.kind {
            Kind::Telegram => worker_telegram::edit(self, place, &text),
            Kind::Discord => worker_discord_rest::edit(self, place, &text),
            Kind::Slack => worker_slack::edit(self, place, &words),
        }
    }
}

/// What the threads of one gateway share.
pub(super) struct Shared {
    pub(super) id: GatewayId,
    pub(super) run: u64,
    pub(super) line: Line,
    pub(super) app_token: Option<Secret>,
    pub(super) stopper: Stopper,
    pub(super) queue: Queue,
    pub(super) core: Core,
    pub(super) logs: Arc<LogStore>,
    strangers: Mutex<BTreeSet<String>>,
}

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Not now: the platform wants us to wait.
    Wait(Duration),
    /// Nobody answered, or the platform is unwell: trying again may help.
    Later(String),
    /// Never: the platform's words.
    Never(String),
    /// The platform rejects the bot: the token was revoked.
    Over(String),
}

impl Refusal {
    /// What a status means that none of a platform's own words explain.
    pub(super) fn of(status: u16, words: String) -> Self {
        match status {
            500..=599 => Self::Later(words),
            401 => Self::Over(words),
            _ => Self::Never(words),
        }
    }
}

/// How a connection ended.
pub(super) enum End {
    Over,
    /// Connect again, now: the platform has said so in good order.
    Refresh,
    /// Connect again after a while.
    Again(String),
    /// The platform rejects the bot: trying again would not help.
    Fatal(String),
}

/// A message that was not sent, for people.
struct Unsent {
    words: String,
    /// Nothing will be, until a person connects anew.
    fatal: bool,
}

impl Unsent {
    fn of(words: impl Into<String>) -> Self {
        Self { words: words.into(), fatal: false }
    }
}

/// A piece of a message on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) chat: &'a str,
    /// In the platform's markup.
    pub(super) text: &'a str,
    /// The same with its styles beside it.
    pub(super) words: &'a Text,
    pub(super) buttons: &'a [super::message::Button],
    pub(super) reply_to: &'a str,
    /// The pieces before it in the same message.
    pub(super) number: usize,
    /// As in [`Outgoing::key`].
    pub(super) key: &'a str,
    /// It may have been taken before.
    pub(super) again: bool,
}

/// What became of what somebody said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is ours now, or was before, or is refused: the platform may forget it.
    Ours,
    /// We end before it could be taken: the platform has to keep it.
    NotYet,
}

impl Gateways {
    /// No gateway yet.
    pub fn new(core: Core, vault: Arc<Vault>, logs: Arc<LogStore>) -> Self {
        Self { core, vault, logs, sets: BTreeMap::new(), ending: Vec::new() }
    }

    /// Does what the core wants, without waiting.
    pub fn order(&mut self, order: Order) {
        self.ending.retain(|set| !set.threads.iter().all(Thread::is_finished));
        match order {
            Order::Start(start) => self.start(*start),
            Order::Stop(id) => {
                if let Some(mut set) = self.sets.remove(&id) {
                    set.stop();
                    self.ending.push(set);
                }
            }
            Order::Send(outgoing) => {
                if let Some(set) = self.sets.get(&outgoing.gateway) {
                    set.shared.queue.push(Item::Send(outgoing));
                }
            }
            Order::Edit(id, place, message) => {
                if let Some(set) = self.sets.get(&id) {
                    set.shared.queue.push(Item::Edit(place, message));
                }
            }
            Order::Run(entry) => {
                let Some(set) = self.sets.get(&entry.gateway) else { return };
                let Some(desk) = &set.desk else { return };
                if let Err(TrySendError::Full(entry)) = desk.try_send(entry) {
                    // It stays in the inbox and is done when the gateway connects anew.
                    log::warn!(
                        "gateway {}: too many commands at once, {} waits",
                        entry.gateway,
                        entry.number
                    );
                }
            }
        }
    }

    fn start(&mut self, start: Start) {
        self.order(Order::Stop(start.gateway));
        let (id, run) = (start.gateway, start.run);
        if let Err(error) = self.try_start(start) {
            self.core.control(Event::Gateways(Report::Trouble { gateway: id, run, error, fatal: true }));
        }
    }

    /// Another gateway at work with a token of this one: the platform would give each event to both, or
    /// to either.
    fn sharing(&self, id: GatewayId, line: &Line, app_token: Option<&Secret>) -> Option<GatewayId> {
        let same = |a: &Secret, b: &Secret| a.expose() == b.expose();
        let shares = |set: &Set| {
            let theirs = &set.shared;
            let app = theirs.app_token.as_ref().zip(app_token).is_some_and(|(a, b)| same(a, b));
            theirs.line.kind == line.kind && (app || same(&theirs.line.bot_token, &line.bot_token))
        };
        let mut others = self.sets.iter().filter(|(other, set)| **other != id && shares(set));
        others.next().map(|(other, _)| *other)
    }

    fn try_start(&mut self, start: Start) -> Result<(), String> {
        let open = |key: &str| {
            let found = start.credentials.iter().find(|(name, ..)| *name == key);
            found.map(|(_, name, sealed)| self.vault.open(name, sealed)).transpose()
        };
        let bot_token = open("bot_token")?.ok_or("it has no bot_token")?;
        let app_token = open("app_token")?;
        let line = Line::new(start.gateway.kind, &start.api, bot_token, app_token.clone());
        if let Some(other) = self.sharing(start.gateway, &line, app_token.as_ref()) {
            return Err(format!("gateway {other} uses the same token; one token serves one gateway"));
        }
        let shared = Arc::new(Shared {
            id: start.gateway,
            run: start.run,
            app_token,
            stopper: Stopper::new(line.http.clone()),
            line,
            queue: Queue::default(),
            core: self.core.clone(),
            logs: Arc::clone(&self.logs),
            strangers: Mutex::default(),
        });
        let (desk, entries) = bounded(DESK_LANE);
        let mut set = Set { desk: Some(desk), shared: Arc::clone(&shared), threads: Vec::new() };
        let mut spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let thread = Thread::with_stack(name, STACK_BYTES, body).map_err(|error| error.to_string())?;
            set.threads.push(thread);
            Ok::<(), String>(())
        };
        let theirs = Arc::clone(&shared);
        spawn("chat-send", Box::new(move || theirs.send_all()))?;
        let theirs = Arc::clone(&shared);
        spawn("chat-desk", Box::new(move || Desk::new(theirs).run(&entries)))?;
        let cursor = start.cursor;
        spawn("chat-take", Box::new(move || shared.take_all(&cursor)))?;
        self.sets.insert(start.gateway, set);
        Ok(())
    }
}

impl Shared {
    pub(super) fn kind(&self) -> Kind {
        self.id.kind
    }

    /// Connects, again and again, until the gateway ends or the platform rejects the bot. `connect` counts
    /// its failures from zero once a connection stands.
    pub(super) fn keep_connected(&self, mut connect: impl FnMut(&mut u32) -> End) {
        let mut failures = 0;
        while !self.stopper.is_stopped() {
            match connect(&mut failures) {
                End::Over => return,
                End::Fatal(error) => return self.trouble(error, true),
                End::Refresh => continue,
                End::Again(error) => self.trouble(error, false),
            }
            failures += 1;
            if self.pause_after(failures) {
                return;
            }
        }
    }

    fn take_all(&self, cursor: &str) {
        match self.kind() {
            Kind::Telegram => worker_telegram::take(self, cursor),
            Kind::Discord => worker_discord::take(self, cursor),
            Kind::Slack => worker_slack::take(self),
        }
    }

    /// Tells the core that the connection stands.
    pub(super) fn connected(&self, bot: &str) {
        let bot = bot.to_owned();
        self.core.report(Event::Gateways(Report::Connected { gateway: self.id, run: self.run, bot }));
    }

    /// Tells the core that the connection does not stand.
    pub(super) fn trouble(&self, error: impl Into<String>, fatal: bool) {
        if self.stopper.is_stopped() {
            return;
        }
        let report = Report::Trouble { gateway: self.id, run: self.run, error: error.into(), fatal };
        self.core.report(Event::Gateways(report));
    }

    /// Tells the core how far the platform's stream was read.
    pub(super) fn moved(&self, cursor: String) {
        self.core.report(Event::Gateways(Report::Moved { gateway: self.id, cursor }));
    }

    /// Waits before the next try; whether it is over.
    pub(super) fn pause_after(&self, failures: u32) -> bool {
        self.stopper.pause(back_off(failures, clock::random()))
    }

    pub(super) fn actor(&self, user: &str) -> Actor {
        Actor::Chat(format!("{}:{user}", self.kind().word()).into())
    }

    /// Hands over what somebody said, and returns when it is on disk. A refusal is answered; to
    /// strangers once.
    pub(super) fn take(&self, heard: &Heard) -> Taken {
        match self.hand_over(heard) {
            None => return Taken::NotYet,
            Some(Receipt::Stranger(_)) if !heard.button && !self.is_new_stranger(&heard.user) => {}
            Some(Receipt::Stranger(words) | Receipt::Refused(words)) => {
                self.answer(&heard.chat, &heard.reply_to, Text::from(words).into());
            }
            Some(_) => {}
        }
        Taken::Ours
    }

    /// Hands over what somebody said, and returns when it is on disk; what is said to its user is the
    /// caller's. `None`: we end before it could be taken.
    pub(super) fn hand_over(&self, heard: &Heard) -> Option<Receipt> {
        let mut failures = 0;
        loop {
            match self.errand(&heard.user, Errand::Take(self.id, Box::new(heard.clone()))) {
                Response::Inbox(receipt) => return Some(receipt),
                // Not on disk: it is ours only when it can be written.
                Response::Refused(problem) if problem.may_pass() => {
                    failures += 1;
                    if self.pause_after(failures) {
                        return None;
                    }
                }
                // The gateway is gone, and nobody wants it.
                _ => return Some(Receipt::Known),
            }
        }
    }

    /// Lets a command that was taken as [`Heard::held`] be done.
    pub(super) fn release(&self, user: &str, number: u64) {
        self.errand(user, Errand::Release(number));
    }

    /// Has the core do this in the name of this user, and waits until it is on disk.
    pub(super) fn errand(&self, user: &str, errand: Errand) -> Response {
        let command = crate::core::Command::Gateways(Command::Inbox(errand));
        self.core.call(self.actor(user), command)
    }

    fn is_new_stranger(&self, user: &str) -> bool {
        let mut known = lock(&self.strangers);
        known.len() < MAX_STRANGERS && known.insert(user.to_owned())
    }

    /// Puts an answer into the queue.
    pub(super) fn answer(&self, chat: &str, reply_to: &str, message: Message) {
        let outgoing = Outgoing::new(self.id, chat.to_owned(), message, Why::Answer);
        self.queue.push(Item::Send(Box::new(Outgoing { reply_to: reply_to.to_owned(), ..outgoing })));
    }

    fn send_all(&self) {
        let mut last: BTreeMap<String, Instant> = BTreeMap::new();
        let mut troubled = false;
        let mut lost = 0;
        while let Some((item, dropped)) = self.queue.pop() {
            lost += dropped;
            // Nothing stands on top of what a person has to decide.
            let is_card = matches!(&item, Item::Send(outgoing) if outgoing.why.approval().is_some());
            let dropped = if is_card { 0 } else { std::mem::take(&mut lost) };
            let chat = match &item {
                Item::Send(outgoing) => outgoing.chat.clone(),
                Item::Edit(place, _) => place.chat.clone(),
            };
            let (approval, sent) = match item {
                Item::Send(outgoing) => (outgoing.why.approval(), self.send(&outgoing, dropped, &mut last)),
                Item::Edit(place, message) => {
                    (None, self.paced(&chat, &mut last, || self.line.edit(&place, &message)))
                }
            };
            let report = match sent {
                Ok(()) if !std::mem::take(&mut troubled) => continue,
                Ok(()) => Report::Healed { gateway: self.id, run: self.run },
                Err(Unsent { words: error, fatal: true }) => {
                    let report = Report::Trouble { gateway: self.id, run: self.run, error, fatal: true };
                    self.core.report(Event::Gateways(report));
                    // Nobody takes what comes in any more either.
                    self.stopper.stop();
                    return;
                }
                Err(Unsent { words: error, .. }) => {
                    troubled = true;
                    Report::Refused { gateway: self.id, run: self.run, error, approval }
                }
            };
            self.core.report(Event::Gateways(report));
        }
    }

    /// Sends all pieces of a message; the buttons go with the last.
    fn send(
        &self,
        outgoing: &Outgoing,
        dropped: u64,
        last: &mut BTreeMap<String, Instant>,
    ) -> Result<(), Unsent> {
        let Outgoing { chat, message, reply_to, why, key, again, .. } = outgoing;
        // However often it is tried, it is this message.
        let key = if key.is_empty() { &format!("{:016x}", clock::random()) } else { key };
        let mut text = message.text.clone();
        if dropped > 0 {
            text = Text::from(format!("({dropped} earlier messages could not be sent)")).line(text);
        }
        let pieces = render::split(self.kind(), &text);
        let count = pieces.len();
        for (number, words) in pieces.iter().enumerate() {
            let buttons = if number + 1 == count { message.buttons.as_slice() } else { &[] };
            let text = &render::markup(self.kind(), words);
            let again = Cell::new(*again);
            let send = || {
                let again_now = again.get();
                let piece = Piece { chat, text, words, buttons, reply_to, number, key, again: again_now };
                let sent = self.line.send(&piece);
                // It may have been taken although nobody heard that.
                again.set(again_now || matches!(sent, Err(Refusal::Later(_))));
                sent
            };
            let place = self.paced(split_thread(chat).0, last, send)?;
            if let (Why::Approval(approval), Some(place), true) = (*why, place, number + 1 == count) {
                self.core.report(Event::Gateways(Report::Sent { gateway: self.id, approval, place }));
            }
        }
        Ok(())
    }

    /// Sends when the chat's pace allows, and again while that may help.
    fn paced<T>(
        &self,
        chat: &str,
        last: &mut BTreeMap<String, Instant>,
        send: impl Fn() -> Result<T, Refusal>,
    ) -> Result<T, Unsent> {
        let mut tries = 0;
        loop {
            let pace = last.get(chat).map_or(Duration::ZERO, |at| PACE.saturating_sub(at.elapsed()));
            let left = pace.max(self.line.resting());
            if !left.is_zero() && self.stopper.pause(left) {
                return Err(Unsent::of("the gateway was stopped before it was sent"));
            }
            // What is older than the pace says nothing any more.
            last.retain(|_, at| at.elapsed() < PACE);
            let result = send();
            last.insert(chat.to_owned(), Instant::now());
            tries += 1;
            let (wait, words) = match result {
                Ok(value) => return Ok(value),
                Err(Refusal::Never(words)) => return Err(Unsent::of(words)),
                Err(Refusal::Over(words)) => return Err(Unsent { words, fatal: true }),
                Err(Refusal::Wait(wait)) => {
                    (wait.min(MAX_WAIT), format!("the platform wants us to wait {} s", wait.as_secs()))
                }
                Err(Refusal::Later(words)) => (back_off(tries, clock::random()), words),
            };
            if tries >= MAX_TRIES || self.stopper.pause(wait) {
                return Err(Unsent::of(words));
            }
        }
    }
}
