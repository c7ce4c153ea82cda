//! The threads of the gateways: one takes, one does the commands, one sends.
//!
//! The taking thread reports the state of the connection and hands what people say to the core, waiting
//! until it is on disk before the platform hears that we have it. The sending thread is alone with its
//! queue: order is kept, limits of the platform are waited for, what fails for a while is tried again.

use super::message::Text;
use super::worker_desk::Desk;
use super::worker_http::Http;
use super::worker_queue::{Item, Queue};
use super::worker_socket::{Stopper, back_off};
use super::{
    Command, Entry, GatewayId, Heard, Kind, Message, Order, Outgoing, Place, Report, Start, Why, render,
};
use super::{worker_discord, worker_slack, worker_telegram};
use crate::agents::worker_log::LogStore;
use crate::core::{Actor, Event};
use crate::credentials::{Secret, Vault};
use crate::runtime::clock;
use crate::runtime::state_thread::Core;
use crate::runtime::threads::Thread;
use crossbeam_channel::{Sender, TrySendError, bounded};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
/// Strangers who are told that they are none of ours, once each.
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
        let http = Http::new(std::iter::once(bot_token.clone()).chain(app_token).collect());
        let api = api.trim_end_matches('/').to_owned();
        Self { kind, api, bot_token, http, rest_until: Mutex::default() }
    }

    /// The platform wants no message for so long.
    pub(super) fn rest(&self, wait: Duration) {
        let until = Instant::now() + wait.min(MAX_WAIT);
        *self.rest_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// How long the platform wants no message; asked once.
    fn resting(&self) -> Duration {
        let until = self.rest_until.lock().unwrap_or_else(PoisonError::into_inner).take();
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
            Kind::Discord => worker_discord::send(self, piece),
            Kind::Slack => worker_slack::send(self, piece),
        }
    }

    fn edit(&self, place: &Place, message: &Message) -> Result<(), Refusal> {
        let pieces = render::render(self.kind, &message.text);
        let text = pieces.first().map(String::as_str).unwrap_or_default();
        match self.kind {
            Kind::Telegram => worker_telegram::edit(self, place, text),
            Kind::Discord => worker_discord::edit(self, place, text),
            Kind::Slack => worker_slack::edit(self, place, text),
        }
    }
}

/// What the threads of one gateway share.
pub(super) struct Shared {
    pub(super) id: GatewayId,
    pub(super) run: u64,
    pub(super) line: Line,
    /// Slack's.
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
}

/// A piece of a message on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) chat: &'a str,
    pub(super) text: &'a str,
    pub(super) buttons: &'a [super::message::Button],
    pub(super) reply_to: &'a str,
    /// The pieces before it in the same message.
    pub(super) number: usize,
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
            self.core.control(Event::Gateway(Report::Trouble { gateway: id, run, error, fatal: true }));
        }
    }

    fn try_start(&mut self, start: Start) -> Result<(), String> {
        let open = |key: &str| {
            let found = start.credentials.iter().find(|(name, ..)| *name == key);
            found.map(|(_, name, sealed)| self.vault.open(name, sealed)).transpose()
        };
        let bot_token = open("bot_token")?.ok_or("it has no bot_token")?;
        let app_token = open("app_token")?;
        let line = Line::new(start.gateway.kind, &start.api, bot_token, app_token.clone());
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
        self.core.report(Event::Gateway(Report::Connected { gateway: self.id, run: self.run, bot }));
    }

    /// Tells the core that the connection does not stand.
    pub(super) fn trouble(&self, error: impl Into<String>, fatal: bool) {
        if self.stopper.is_stopped() {
            return;
        }
        let report = Report::Trouble { gateway: self.id, run: self.run, error: error.into(), fatal };
        self.core.report(Event::Gateway(report));
    }

    /// Tells the core how far the platform's stream was read.
    pub(super) fn moved(&self, cursor: String) {
        self.core.report(Event::Gateway(Report::Moved { gateway: self.id, cursor }));
    }

    /// Waits before the next try; whether it is over.
    pub(super) fn pause_after(&self, failures: u32) -> bool {
        self.stopper.pause(back_off(failures, clock::random()))
    }

    pub(super) fn actor(&self, user: &str) -> Actor {
        Actor::Chat(format!("{}:{user}", self.kind().word()).into())
    }

    /// Hands over what somebody said, and returns when it is on disk.
    pub(super) fn take(&self, heard: &Heard) -> Taken {
        let (user, chat, reply_to) = (heard.user.clone(), heard.chat.clone(), heard.reply_to.clone());
        let mut failures = 0;
        loop {
            let command = Command::Take(self.id, Box::new(heard.clone()));
            let reply = self.core.call(self.actor(&user), crate::core::Command::Gateways(command));
            match reply.status {
                // Not on disk: it is ours only when it can be written.
                500..=599 => {
                    failures += 1;
                    if self.pause_after(failures) {
                        return Taken::NotYet;
                    }
                }
                403 if !heard.button && !self.is_new_stranger(&user) => return Taken::Ours,
                403 | 413 | 429 => {
                    let body: serde_json::Value =
                        serde_json::from_slice(reply.body.bytes()).unwrap_or_default();
                    let words = body["error"].as_str().unwrap_or("it was refused");
                    self.answer(&chat, &reply_to, Text::from(words).into());
                    return Taken::Ours;
                }
                _ => return Taken::Ours,
            }
        }
    }

    fn is_new_stranger(&self, user: &str) -> bool {
        let mut known = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        known.len() < MAX_STRANGERS && known.insert(user.to_owned())
    }

    /// Puts an answer into the queue.
    pub(super) fn answer(&self, chat: &str, reply_to: &str, message: Message) {
        self.queue.push(Item::Send(Box::new(Outgoing {
            gateway: self.id,
            chat: chat.to_owned(),
            message,
            reply_to: reply_to.to_owned(),
            why: Why::Answer,
        })));
    }

    fn send_all(&self) {
        let mut last: BTreeMap<String, Instant> = BTreeMap::new();
        while let Some((item, dropped)) = self.queue.pop() {
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
            if let Err(error) = sent {
                let report = Report::Refused { gateway: self.id, run: self.run, error, approval };
                self.core.report(Event::Gateway(report));
            }
        }
    }

    /// Sends all pieces of a message; the buttons go with the last.
    fn send(
        &self,
        outgoing: &Outgoing,
        dropped: u64,
        last: &mut BTreeMap<String, Instant>,
    ) -> Result<(), String> {
        let Outgoing { chat, message, reply_to, why, .. } = outgoing;
        let mut text = message.text.clone();
        if dropped > 0 {
            text = Text::from(format!("({dropped} earlier messages could not be sent)")).line(text);
        }
        let pieces = render::render(self.kind(), &text);
        let count = pieces.len();
        for (number, text) in pieces.iter().enumerate() {
            let buttons = if number + 1 == count { message.buttons.as_slice() } else { &[] };
            let piece = Piece { chat, text, buttons, reply_to, number };
            let place = self.paced(chat, last, || self.line.send(&piece))?;
            if let (Why::Approval(approval), Some(place), true) = (*why, place, number + 1 == count) {
                self.core.report(Event::Gateway(Report::Sent { gateway: self.id, approval, place }));
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
    ) -> Result<T, String> {
        let mut tries = 0;
        loop {
            let pace = last.get(chat).map_or(Duration::ZERO, |at| PACE.saturating_sub(at.elapsed()));
            let left = pace.max(self.line.resting());
            if !left.is_zero() && self.stopper.pause(left) {
                return Err("the gateway was stopped before it was sent".into());
            }
            // What is older than the pace says nothing any more.
            last.retain(|_, at| at.elapsed() < PACE);
            let result = send();
            last.insert(chat.to_owned(), Instant::now());
            tries += 1;
            let (wait, words) = match result {
                Ok(value) => return Ok(value),
                Err(Refusal::Never(words)) => return Err(words),
                Err(Refusal::Wait(wait)) => {
                    (wait.min(MAX_WAIT), format!("the platform wants us to wait {} s", wait.as_secs()))
                }
                Err(Refusal::Later(words)) => (back_off(tries, clock::random()), words),
            };
            if tries >= MAX_TRIES || self.stopper.pause(wait) {
                return Err(words);
            }
        }
    }
}
