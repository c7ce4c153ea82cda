//! The threads of `svc top` that talk to the daemon, so that keys never wait for it.
//!
//! They are not joined: the process ends with the command, and what a request has asked for the daemon
//! carries out anyway.

use super::fleet::Fleet;
use super::view::{Look, Wish};
use crate::approvals::card_of;
use crate::client::{Client, encode};
use crate::logs::{Reader, Start, describe};
use crate::session::{Failure, now};
use crate::target::{agents, text};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use svc_sys::terminal::Waker;

/// Between two looks; a daemon that takes long to answer is asked less often.
const PAUSE: Duration = Duration::from_secs(1);
/// A look may take this part of the time, so that a thousand agents do not keep the daemon busy.
const LOAD_PART: u32 = 10;
/// Lines of a watched log that are kept.
const LOG_LINES_MAX: usize = 1000;
/// Entries of a log that are asked for at first.
const LOG_TAIL: u64 = 300;
/// Cards of approvals that are read at one look.
const CARDS_AT_ONCE: usize = 5;
/// Decisions and kills under way at the same time.
const ERRANDS_MAX: usize = 8;

/// What the threads leave for the screen: the latest look, and words.
#[derive(Default)]
struct Inbox {
    look: Mutex<Option<Look>>,
    said: Mutex<Option<String>>,
    errands: AtomicUsize,
}

fn slot<T>(slot: &Mutex<Option<T>>) -> std::sync::MutexGuard<'_, Option<T>> {
    // A thread that panicked has left a whole value or none.
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Order {
    Watch(Option<String>),
    LookNow,
}

/// The screen's side of the threads.
pub struct Daemon {
    fleet: Arc<Fleet>,
    inbox: Arc<Inbox>,
    orders: Sender<Order>,
    waker: Arc<Waker>,
}

impl Daemon {
    /// Starts to look at the daemon, once in a second.
    pub fn watch(fleet: Fleet, waker: Waker) -> Self {
        let (fleet, inbox, waker) = (Arc::new(fleet), Arc::new(Inbox::default()), Arc::new(waker));
        // Keys are typed by a person: the queue stays short without a limit.
        let (orders, received) = channel();
        let (its_fleet, its_inbox, its_waker) = (fleet.clone(), inbox.clone(), waker.clone());
        thread::spawn(move || keep_looking(&its_fleet, &its_inbox, &its_waker, &received));
        Self { fleet, inbox, orders, waker }
    }

    /// The latest look, once.
    pub fn news(&self) -> Option<Look> {
        slot(&self.inbox.look).take()
    }

    /// What came of an errand, once.
    pub fn said(&self) -> Option<String> {
        slot(&self.inbox.said).take()
    }

    /// Carries out what a key asked for, on another thread.
    pub fn wish(&self, wish: Wish) {
        if let Wish::Watch(agent) = wish {
            let _ = self.orders.send(Order::Watch(agent));
            return;
        }
        if self.inbox.errands.fetch_add(1, Ordering::SeqCst) >= ERRANDS_MAX {
            self.inbox.errands.fetch_sub(1, Ordering::SeqCst);
            *slot(&self.inbox.said) = Some(format!("{ERRANDS_MAX} requests are under way; wait a moment"));
            return;
        }
        let (fleet, inbox) = (self.fleet.clone(), self.inbox.clone());
        let (orders, waker) = (self.orders.clone(), self.waker.clone());
        thread::spawn(move || {
            let said = match errand(&fleet, &wish) {
                Ok(said) | Err(Failure::Say { message: said, .. }) => said,
                Err(_) => "not done".into(),
            };
            *slot(&inbox.said) = Some(said);
            inbox.errands.fetch_sub(1, Ordering::SeqCst);
            let _ = orders.send(Order::LookNow);
            waker.wake();
        });
    }
}

fn errand(fleet: &Fleet, wish: &Wish) -> Result<String, Failure> {
    match wish {
        Wish::Decide { id, approve } => {
            let (verb, done) = if *approve { ("approve", "approved") } else { ("reject", "rejected") };
            let (client, own) = fleet.of(id)?;
            client.post(&format!("/api/approvals/{}/{verb}", encode(&own)), &json!({}))?;
            Ok(format!("{done} {id}"))
        }
        Wish::Answer { id, words } => {
            let (client, own) = fleet.of(id)?;
            client.post(&format!("/api/approvals/{}/approve", encode(&own)), &json!({"reason": words}))?;
            Ok(format!("answered {id}: {words}"))
        }
        Wish::Kill { id, name } => {
            let (client, own) = fleet.of(id)?;
            client.call("DELETE", &format!("/api/agents/{}", encode(&own)), None)?;
            Ok(format!("{name}: done"))
        }
        Wish::Watch(_) | Wish::Quit => Ok(String::new()),
    }
}

fn keep_looking(fleet: &Fleet, inbox: &Inbox, waker: &Waker, orders: &Receiver<Order>) {
    let mut log: Option<Log> = None;
    let mut cards = Cards::new();
    loop {
        let began = Instant::now();
        let seen = look_closely(fleet, log.as_mut(), &mut cards).unwrap_or_else(|failure| Look {
            trouble: Some(match failure {
                Failure::Say { message, .. } => message,
                _ => "the daemon cannot be asked".into(),
            }),
            ..Look::default()
        });
        *slot(&inbox.look) = Some(seen);
        waker.wake();
        let pause = PAUSE.max(began.elapsed() * LOAD_PART);
        match orders.recv_timeout(pause) {
            Ok(Order::Watch(agent)) => log = agent.and_then(|agent| Log::new(fleet, agent)),
            Ok(Order::LookNow) | Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A log that is watched.
struct Log {
    agent: String,
    client: Arc<Client>,
    reader: Reader,
    lines: VecDeque<String>,
}

impl Log {
    fn new(fleet: &Fleet, agent: String) -> Option<Self> {
        let (client, own) = fleet.of(&agent).ok()?;
        let reader = Reader::new(&json!({"id": own}), Start::Tail(Some(LOG_TAIL)));
        Some(Self { agent, client, reader, lines: VecDeque::new() })
    }

    fn read(&mut self) -> Result<(), Failure> {
        for entry in self.reader.read(&self.client)? {
            let Some(shown) = describe(&entry) else { continue };
            self.lines.extend(shown.text.lines().map(ToOwned::to_owned));
        }
        let excess = self.lines.len().saturating_sub(LOG_LINES_MAX);
        self.lines.drain(..excess);
        Ok(())
    }
}

/// What is known of decisions that wait, by the id: read once each.
type Cards = BTreeMap<String, Value>;

/// Puts the cards into the records of approvals; those that are not known yet are read, a few at a time.
fn with_cards(fleet: &Fleet, approvals: &mut [Value], cards: &mut Cards) {
    cards.retain(|id, _| approvals.iter().any(|record| text(record, "id") == id));
    let unknown = approvals.iter().map(|record| text(record, "id")).filter(|id| !cards.contains_key(*id));
    let wanted: Vec<String> = unknown.take(CARDS_AT_ONCE).map(ToOwned::to_owned).collect();
    for id in wanted {
        // One that is gone, or a daemon that knows no cards: the record alone is shown.
        let card = fleet.of(&id).ok().and_then(|(client, own)| card_of(&client, &own).ok());
        cards.insert(id, card.unwrap_or_default());
    }
    for record in approvals {
        record["card"] = cards.get(text(record, "id")).cloned().unwrap_or_default();
    }
}

/// A look with the lines of the log that is watched, and with cards.
fn look_closely(fleet: &Fleet, log: Option<&mut Log>, cards: &mut Cards) -> Result<Look, Failure> {
    let mut seen = fleet.look()?;
    with_cards(fleet, &mut seen.approvals, cards);
    seen.log = log.map(|log| {
        // The watched agent may have been removed meanwhile; its last lines stay.
        let _ = log.read();
        (log.agent.clone(), log.lines.iter().cloned().collect())
    });
    Ok(seen)
}

/// One look at one daemon, without a log and without cards.
pub fn look(client: &Client) -> Result<Look, Failure> {
    let agents = agents(client)?;
    let mut answer = client.get("/api/approvals")?;
    let approvals = match answer["pending"].take() {
        Value::Array(pending) => pending,
        _ => Vec::new(),
    };
    // A daemon of an earlier version has not both.
    let [quota, capacity] = ["/api/quota", "/api/capacity"].map(|path| client.get(path).unwrap_or_default());
    Ok(Look { at: now(), agents, approvals, quota, capacity, ..Look::default() })
}
