//! What an event brings along, and where its effects go.

use super::time::Time;
use super::{Actor, CallId, Document, Durability, Effect, Journal, Moment, Notice, Response, Timer, Timers};
use crate::api::Problem;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// The surroundings of one event: its time, its randomness, its effects.
#[derive(Debug)]
pub struct Context {
    /// When the event happened. Never decreases from event to event, except with [`super::Event::ClockSet`].
    pub now: Time,
    /// Who caused it.
    pub actor: Actor,
    seed: u64,
    effects: Vec<Effect>,
    moments: VecDeque<Moment>,
    /// Whether [`Effect::Exit`] was given; at most once in a daemon's life.
    pub exit_sent: bool,
}

impl Context {
    /// A context at `now` with 64 random bits.
    pub fn new(now: Time, seed: u64) -> Self {
        Self {
            now,
            actor: Actor::default(),
            seed,
            effects: Vec::new(),
            moments: VecDeque::new(),
            exit_sent: false,
        }
    }

    /// The next random number of this event (splitmix64 of its seed).
    pub fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random 32-bit number that `taken` does not know.
    pub fn fresh_id(&mut self, taken: impl Fn(u32) -> bool) -> u32 {
        loop {
            let id = u32::try_from(self.random() >> 32).unwrap_or_default();
            if id != 0 && !taken(id) {
                return id;
            }
        }
    }

    /// The surroundings of the same event for a trial: the same time, actor and randomness, no effects yet.
    pub(crate) fn fork(&self) -> Self {
        let (actor, exit_sent) = (self.actor.clone(), self.exit_sent);
        Self { actor, exit_sent, ..Self::new(self.now, self.seed) }
    }

    /// The trial is what happens: its effects, and what it has used up of the randomness.
    pub(crate) fn adopt(&mut self, trial: Self) {
        let mut effects = std::mem::take(&mut self.effects);
        effects.extend(trial.effects);
        *self = Self { effects, ..trial };
    }

    /// What the next random number comes of.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The effects so far.
    pub(crate) fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Gives an order.
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Has a document written that tells of what this event changes, no later than that is.
    pub fn put_along(&mut self, document: Document) {
        let is_durable = |effect: &Effect| matches!(effect, Effect::Put(_, Durability::BeforeReply));
        let lasts = self.effects.iter().any(is_durable);
        self.push(Effect::Put(document, if lasts { Durability::BeforeReply } else { Durability::Soon }));
    }

    /// Has `timer` come when what waits is `due`: if that is now, as soon as the disk has all that waits.
    /// `awaits_disk` notes that the disk was asked, until the timer has come.
    pub fn send_when_due(
        &mut self,
        timers: &mut Arc<Timers>,
        timer: Timer,
        due: Option<Time>,
        awaits_disk: &mut bool,
    ) {
        if due.is_some_and(|at| at <= self.now) && !*awaits_disk {
            *awaits_disk = true;
            self.push(Effect::WhenStored(timer));
        } else {
            Arc::make_mut(timers).put(timer, due);
        }
    }

    /// Answers a caller.
    pub fn reply(&mut self, call: CallId, response: impl Into<Response>) {
        self.push(Effect::Reply(call, response.into()));
    }

    /// Answers a caller whose change is on disk already.
    pub fn reply_stored(&mut self, call: CallId, response: impl Into<Response>) {
        self.push(Effect::ReplyStored(call, response.into()));
    }

    /// Answers a caller with a result.
    pub fn answer(&mut self, call: CallId, result: Result<impl Into<Response>, Problem>) {
        match result {
            Ok(response) => self.reply(call, response),
            Err(problem) => self.reply(call, problem),
        }
    }

    /// Tells the WebSocket clients, and who else listens.
    pub fn notice(&mut self, notice: Notice) {
        self.push(Effect::Notice(Arc::new(notice)));
    }

    /// What this event tells WebSocket clients, so far.
    pub fn notices(&self) -> Vec<Arc<Notice>> {
        let notice = |effect: &Effect| match effect {
            Effect::Notice(notice) => Some(Arc::clone(notice)),
            _ => None,
        };
        self.effects.iter().filter_map(notice).collect()
    }

    /// Has every listener told of `moment` when the event is applied.
    pub fn moment(&mut self, moment: Moment) {
        self.moments.push_back(moment);
    }

    /// The next moment to tell of.
    pub fn next_moment(&mut self) -> Option<Moment> {
        self.moments.pop_front()
    }

    /// Writes an entry of the audit log: `ts`, `event`, `actor`, then the fields of `details`.
    pub fn audit(&mut self, event: &str, details: &Value) {
        let mut entry = serde_json::json!({
            "ts": self.now.to_string(), "event": event, "actor": self.actor.to_string(),
        });
        if let (Value::Object(entry), Value::Object(details)) = (&mut entry, details) {
            entry.extend(details.clone());
        }
        self.push(Effect::Append(Journal::Audit, entry.to_string().into_bytes().into()));
    }

    /// The orders given so far.
    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}
