//! Telling phones that something waits, while their page is closed: what is to be told to whom, when it is
//! tried, and what becomes of it.
//!
//! ```text
//! something waits ──▶ to be told (on disk) ──its turn──▶ decided meanwhile: nothing is sent
//!                          ▲                       └──▶ sent ──taken──▶ told
//!                          └──── later each time ◀──refused──┘
//! ```
//! A message tells of the newest, and how much more waits; so what was to be told of older things is told
//! with it. It says who asks and the id of the card, and nothing of what is asked: the phone reads the card
//! here.
//!
//! **Invariant:** a thing is told to a phone once; twice only where the daemon was killed before the disk
//! knew of it, and then the phone shows it in the place of the first.
//! **Invariant:** nothing is sent of what is decided, nor to a phone that is revoked or has unsubscribed.

use super::{Phone, State, save};
use crate::api::{Problem, Reply};
use crate::approvals::{Action, Approval, ApprovalId};
use crate::core::ids::PhoneId;
use crate::core::time::{Jump, Time};
use crate::core::{Context, Document, Durability, Effect, Notice, State as All, Timer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use svc_base::outgoing;
use svc_base::untrusted::untrusted_line;

/// Things that one phone is to be told of at most; of more the oldest is told as one of how many wait.
pub const MAX_WAITING: usize = 32;
/// Messages to one phone in one window at most; what comes beyond is told together when it is over.
pub const MAX_IN_WINDOW: usize = 5;
/// Its length.
pub const WINDOW: Duration = Duration::from_secs(60);
/// After each refusal a message waits so long; after the last one it is given up.
pub const RETRIES: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(2 * 60),
    Duration::from_secs(10 * 60),
    Duration::from_secs(30 * 60),
];
/// The longest wait that a push service may ask for.
pub const MAX_ASKED: Duration = Duration::from_secs(60 * 60);
/// A push service keeps a message for a phone that is off for so long at most, and no longer than it matters.
pub const MAX_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Characters of a title.
const MAX_TITLE_CHARS: usize = 60;
/// Characters of a project's name.
const MAX_PROJECT_CHARS: usize = 40;
/// Characters of why a try failed.
const MAX_WHY_CHARS: usize = 300;

/// Where a phone's browser is told, as it says itself (W3C Push API).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
pub struct Address {
    /// An `https://` address of its push service.
    pub endpoint: String,
    /// Its public key, in base64 for URLs.
    pub p256dh: String,
    /// What it shares with its senders, likewise.
    pub auth: String,
}

/// A phone that wants to be told.
#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    pub address: Address,
    since: Time,
    /// Oldest first.
    waiting: Vec<ApprovalId>,
    /// Tries in a row that were refused.
    tries: usize,
    /// Not before.
    next_at: Time,
    /// When the last messages were sent.
    told: VecDeque<Time>,
    /// Messages that its service took.
    sent: u64,
    sent_at: Option<Time>,
    error: Option<Arc<str>>,
    error_at: Option<Time>,
    /// What its thread sends: a number of its own, and all that it tells of.
    #[serde(skip)]
    under_way: Option<(u64, Vec<ApprovalId>)>,
    /// Whether the disk is asked to say when it has all that waits.
    #[serde(skip)]
    awaits_disk: bool,
}

/// A fact from the threads that send.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Tried {
    pub phone: PhoneId,
    /// The message's own number.
    pub message: u64,
    pub outcome: Result<(), Refusal>,
}

/// Why a message was not taken.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Refusal {
    /// For people.
    pub why: String,
    pub then: Then,
}

/// What follows from a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, svc_base::recorded::Recorded)]
pub enum Then {
    /// It is tried again, not before as long as the service asks for.
    Retry(Option<Duration>),
    /// It would be refused again.
    GiveUp,
    /// The subscription is no more.
    Forget,
}

/// An order to the threads that send.
#[derive(Debug)]
pub enum Order {
    Send(Box<Sending>),
    /// The phone is revoked, or wants to hear no more: what is under way is cut.
    Forget(PhoneId),
}

/// A message, and where it goes.
#[derive(Debug)]
pub struct Sending {
    pub phone: PhoneId,
    /// Its number.
    pub message: u64,
    pub address: Address,
    /// What is encrypted: JSON text.
    pub text: String,
    /// How long the push service keeps it for a phone that is off.
    pub kept: Duration,
    pub settings: crate::settings::Push,
}

impl Subscription {
    fn new(address: Address, now: Time) -> Self {
        Self {
            address,
            since: now,
            waiting: Vec::new(),
            tries: 0,
            next_at: now,
            told: VecDeque::new(),
            sent: 0,
            sent_at: None,
            error: None,
            error_at: None,
            under_way: None,
            awaits_disk: false,
        }
    }

    /// Its host; the rest of the address is between the phone and its service.
    fn host(&self) -> &str {
        outgoing::https_host(&self.address.endpoint).map_or("", |(host, _)| host)
    }

    /// As REST shows it.
    pub fn shown(&self) -> Value {
        let time = |at: Option<Time>| at.map(|at| at.to_string());
        json!({
            "host": self.host(), "since": self.since.to_string(), "waiting": self.waiting.len(),
            "sent": self.sent, "lastSent": time(self.sent_at),
            "lastError": self.error, "lastErrorAt": time(self.error_at),
        })
    }

    /// When the next message is to be tried.
    fn due_at(&self) -> Option<Time> {
        (self.under_way.is_none() && !self.waiting.is_empty()).then_some(self.next_at)
    }

    fn failed(&mut self, now: Time, why: &str) {
        let why: String = untrusted_line(why).chars().take(MAX_WHY_CHARS).collect();
        self.error = Some(why.into());
        self.error_at = Some(now);
    }

    /// Whether so much was told just now that the next message waits; until when.
    fn braked(&mut self, now: Time) -> Option<Time> {
        while self.told.front().is_some_and(|at| now.since(*at) >= WINDOW) {
            self.told.pop_front();
        }
        let first = self.told.front().filter(|_| self.told.len() >= MAX_IN_WINDOW)?;
        Some(*first + WINDOW)
    }
}

impl State {
    fn edit(&mut self, id: PhoneId) -> Option<&mut Phone> {
        self.phones.get_mut(&id).map(Arc::make_mut)
    }

    fn subscription(&mut self, id: PhoneId) -> Option<&mut Subscription> {
        self.edit(id)?.push.as_mut()
    }
}

/// A phone wants to be told. The browser that another phone had, has moved to this one: it alone knows all
/// three parts of its address.
///
/// Errors: 401 for a phone that is gone; 409 `push_address_taken` for the endpoint of another phone.
pub(super) fn subscribe(
    all: &mut All,
    cx: &mut Context,
    id: PhoneId,
    address: Address,
) -> Result<Reply, Problem> {
    let holds = |phone: &&Arc<Phone>| {
        phone.id != id && phone.push.as_ref().is_some_and(|push| push.address.endpoint == address.endpoint)
    };
    let other = all.phones.iter().find(holds).map(|phone| (phone.id, phone.push.clone()));
    if let Some((_, Some(push))) = &other
        && push.address != address
    {
        let text = "another phone is told by this endpoint; subscribe anew in this browser";
        return Err(Problem::new(409, "push_address_taken", text));
    }
    let now = cx.now;
    let phone = Arc::make_mut(&mut all.phones).edit(id).ok_or_else(super::not_paired)?;
    let is_known = phone.push.as_ref().is_some_and(|push| push.address == address);
    if !is_known {
        let subscription = Subscription::new(address, now);
        let told = json!({"phoneId": id, "name": phone.name, "host": subscription.host()});
        let had = phone.push.replace(subscription).is_some();
        cx.audit("phone.subscribe", &told);
        forget(all, cx, id, had);
    }
    if let Some((other, _)) = other {
        unsubscribe(all, cx, other)?;
    }
    save(cx);
    shown(all, id)
}

/// Errors: 401 for a phone that is gone.
pub(super) fn unsubscribe(all: &mut All, cx: &mut Context, id: PhoneId) -> Result<Reply, Problem> {
    let phone = Arc::make_mut(&mut all.phones).edit(id).ok_or_else(super::not_paired)?;
    let had = phone.push.take().is_some();
    if had {
        cx.audit("phone.unsubscribe", &json!({"phoneId": id, "name": phone.name}));
    }
    forget(all, cx, id, had);
    save(cx);
    shown(all, id)
}

fn shown(all: &All, id: PhoneId) -> Result<Reply, Problem> {
    let phone = all.phones.get(id).ok_or_else(super::not_paired)?;
    Ok(Reply::ok(&phone.shown()))
}

/// Nothing more is sent to what a phone was subscribed by, if it was.
pub(super) fn forget(all: &mut All, cx: &mut Context, id: PhoneId, had: bool) {
    Arc::make_mut(&mut all.timers).clear(Timer::PhoneDue(id));
    if had {
        cx.push(Effect::Phones(Order::Forget(id)));
    }
}

/// Looks at what the event that was just applied tells WebSocket clients: all phones that want to be told of
/// what waits are.
pub fn overheard(all: &mut All, cx: &mut Context) {
    let wants = |phone: &&Arc<Phone>| phone.push.is_some();
    if !all.phones.iter().any(|phone| wants(&phone)) {
        return;
    }
    let new = |notice: Arc<Notice>| match &*notice {
        Notice::ApprovalRequest { data } => Some(data.id),
        _ => None,
    };
    let new: Vec<ApprovalId> = cx.notices().into_iter().filter_map(new).collect();
    if new.is_empty() {
        return;
    }
    let phones: Vec<PhoneId> = all.phones.iter().filter(wants).map(|phone| phone.id).collect();
    for id in phones {
        let Some(push) = Arc::make_mut(&mut all.phones).subscription(id) else { continue };
        push.waiting.extend(&new);
        let beyond = push.waiting.len().saturating_sub(MAX_WAITING);
        push.waiting.drain(..beyond);
        cx.put_along(Document::Phones);
        announce(all, cx, id);
    }
}

/// Looks for what is to be sent as soon as the disk has all that waits.
fn announce(all: &mut All, cx: &mut Context, id: PhoneId) {
    let Some(push) = Arc::make_mut(&mut all.phones).subscription(id) else { return };
    let due = push.due_at();
    cx.send_when_due(&mut all.timers, Timer::PhoneDue(id), due, &mut push.awaits_disk);
}

/// What is to be told may be due.
pub fn due(all: &mut All, cx: &mut Context, id: PhoneId) {
    let now = cx.now;
    let open: Vec<Arc<Approval>> =
        all.approvals.pending().filter(|approval| now < approval.expires_at).cloned().collect();
    let settings = all.settings.config().push.clone();
    let project = all.project.name.clone();
    let Some(push) = Arc::make_mut(&mut all.phones).subscription(id) else { return };
    push.awaits_disk = false;
    let timers = Arc::make_mut(&mut all.timers);
    let due = push.due_at();
    if due.is_none_or(|at| at > now) {
        return timers.put(Timer::PhoneDue(id), due);
    }
    let had = push.waiting.len();
    push.waiting.retain(|waits| open.iter().any(|approval| approval.id == *waits));
    if push.waiting.len() != had {
        cx.push(Effect::Put(Document::Phones, Durability::Soon));
    }
    let newest = push.waiting.last().and_then(|newest| open.iter().find(|approval| approval.id == *newest));
    let Some(newest) = newest else {
        push.tries = 0;
        return timers.put(Timer::PhoneDue(id), push.due_at());
    };
    if let Some(until) = push.braked(now) {
        push.next_at = until;
        return timers.put(Timer::PhoneDue(id), push.due_at());
    }
    let message = cx.random();
    let sending = Sending {
        phone: id,
        message,
        address: push.address.clone(),
        text: text_of(newest, &project, open.len() - 1),
        kept: newest.expires_at.since(now).min(MAX_KEPT),
        settings,
    };
    push.under_way = Some((message, push.waiting.clone()));
    push.told.push_back(now);
    timers.clear(Timer::PhoneDue(id));
    cx.push(Effect::Phones(Order::Send(Box::new(sending))));
}

/// Who asks and which card, and no word of what is asked: a phone shows it on a locked screen.
fn text_of(approval: &Approval, project: &str, more: usize) -> String {
    let cut = |text: &str, chars: usize| untrusted_line(text).chars().take(chars).collect::<String>();
    let what = match approval.action {
        Action::Question { .. } => "asks you",
        _ => "waits for your yes or no",
    };
    let title = format!("{} {what}", cut(&approval.agent_name, MAX_TITLE_CHARS));
    let project = cut(project, MAX_PROJECT_CHARS);
    json!({"id": approval.id, "title": title, "project": project, "more": more}).to_string()
}

/// What came of a try.
pub fn report(all: &mut All, cx: &mut Context, tried: Tried) {
    let Tried { phone: id, message, outcome } = tried;
    let now = cx.now;
    let Some(push) = Arc::make_mut(&mut all.phones).subscription(id) else { return };
    // What was sent for a subscription of before says nothing of this one.
    let Some((_, told)) = push.under_way.take_if(|(number, _)| *number == message) else { return };
    let give_up = match outcome {
        Ok(()) => {
            push.sent += 1;
            push.sent_at = Some(now);
            push.error = None;
            push.error_at = None;
            true
        }
        Err(Refusal { why, then: Then::Forget }) => {
            push.failed(now, &why);
            return end(all, cx, id, &why);
        }
        Err(Refusal { why, then: Then::GiveUp }) => {
            push.failed(now, &why);
            true
        }
        Err(Refusal { why, then: Then::Retry(asked) }) => {
            push.failed(now, &why);
            let wait = RETRIES.get(push.tries).copied();
            push.tries += 1;
            push.next_at = now + wait.unwrap_or_default().max(asked.unwrap_or_default().min(MAX_ASKED));
            wait.is_none()
        }
    };
    if give_up {
        push.tries = 0;
        push.waiting.retain(|waits| !told.contains(waits));
    }
    cx.push(Effect::Put(Document::Phones, Durability::Soon));
    announce(all, cx, id);
}

/// Its push service says that it is no more: the browser has given it up, or the phone is gone.
fn end(all: &mut All, cx: &mut Context, id: PhoneId, why: &str) {
    let Some(phone) = Arc::make_mut(&mut all.phones).edit(id) else { return };
    phone.push = None;
    cx.audit("phone.push-gone", &json!({"phoneId": id, "name": phone.name, "why": untrusted_line(why)}));
    forget(all, cx, id, true);
    cx.push(Effect::Put(Document::Phones, Durability::Soon));
}

/// The wall clock has jumped: what waits, waits as long as it says.
pub fn clock_set(all: &mut All, jump: Jump) {
    for phone in Arc::make_mut(&mut all.phones).phones.values_mut() {
        let Some(push) = Arc::make_mut(phone).push.as_mut() else { continue };
        push.next_at = push.next_at.moved(jump);
        for at in &mut push.told {
            *at = at.moved(jump);
        }
    }
}

/// After a start what was to be told is looked at, no later than it says and than any wait is.
pub(super) fn resume(all: &mut All, now: Time) {
    let waits = |phone: &&Arc<Phone>| phone.push.as_ref().is_some_and(|push| !push.waiting.is_empty());
    let ids: Vec<PhoneId> = all.phones.iter().filter(waits).map(|phone| phone.id).collect();
    for id in ids {
        let Some(push) = Arc::make_mut(&mut all.phones).subscription(id) else { continue };
        push.next_at = push.next_at.min(now + MAX_ASKED);
        push.told.retain(|at| *at <= now);
        Arc::make_mut(&mut all.timers).put(Timer::PhoneDue(id), push.due_at());
    }
}
