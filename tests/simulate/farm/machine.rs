//! One simulated machine: the pure core, its disk, its programs and its people on a virtual clock.

use super::accounts::Accounts;
use super::chat::Chat;
use super::disk::{Disk, Scratch, Waiting};
use super::invariants::{self, Rule, ensure};
use super::limits::Holds;
use super::programs::Programs;
use super::promises::{Claim, Promises};
use super::room::Room;
use super::schedule_watch::Watch;
use super::starts::Starts;
use crate::support::dice::Dice;
use crate::support::world::World;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use svc::assembly::documents::encode;
use svc::assembly::unwritten::LEFT_OUT;
use svc::core::time::Time;
use svc::core::{
    Actor, CallId, Command, Document, Durability, Effect, Event, Response, SOON, State, Timer, Unwritten,
};

/// A fault that is planted on purpose, to show that it is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Plant {
    /// None.
    #[default]
    Nothing,
    /// The end of a process is never told: one of order.
    LosesExits,
    /// The disk says that this is written, and it is not: one of recovery.
    LosesDocument(Document),
    /// What an agent decides is taken for a person's: one of rights.
    AgentsDecide,
    /// Deadlines of locks never come.
    NoLockDeadlines,
    /// What an earlier daemon has said to a program is said again: one of order, over a kill.
    SaysAgain,
    /// The daemon is told of more room than there is.
    InventsRoom,
    /// The last of a line goes on, and nobody has said so.
    JumpsQueue,
    /// Who is let in is started before the disk knows.
    StartsEarly,
    /// Who is to have one account gets another.
    SwapsAccounts,
    /// Where the roomiest account is to be taken, another one is.
    TakesAnyAccount,
    /// The next daemon is told that no keeper has begun anything.
    ForgetsBegun,
    /// The next daemon is told that keepers have begun everything.
    ForgetsOrders,
}

/// A call that waits for its answer.
struct Call {
    claim: Claim,
    /// What it changes in the first place: what follows from that may come to the disk within a second.
    own: &'static [Document],
}

/// How often the interesting things happened.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Seen(pub BTreeMap<&'static str, u64>);

impl Seen {
    /// Once more.
    pub fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// All of another run.
    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

/// The machine.
pub struct Machine {
    pub core: World,
    /// The choices of this step.
    pub dice: Dice,
    pub disk: Disk,
    pub folder: Scratch,
    pub programs: Programs,
    pub promises: Promises,
    pub chat: Chat,
    /// Decisions that agents try.
    pub agent_decisions: BTreeSet<CallId>,
    pub watch: Watch,
    pub limits: Holds,
    pub accounts: Accounts,
    pub room: Room,
    pub starts: Starts,
    pub plant: Plant,
    /// Whether the daemon runs and knows its providers.
    pub is_up: bool,
    /// The power goes at the end of this step.
    pub dies_soon: bool,
    /// The daemon was told to end, and has not.
    pub is_ending: bool,
    pub seen: Seen,
    /// What has happened, in the words of the transcripts.
    pub trace: Option<Vec<String>>,
    /// Virtual milliseconds so far; jumps of the clock do not count.
    pub passed: u64,
    calls: BTreeMap<CallId, Call>,
    next_call: u64,
    /// What a client that follows `state` messages believes.
    pub model: BTreeMap<svc::core::ids::AgentId, String>,
    pub serial: u64,
}

impl Machine {
    /// A machine that was just switched on, near a night when the clocks change in every other run.
    pub fn new(seed: u64, plant: Plant, is_traced: bool) -> Self {
        let mut machine = Self {
            core: World::new(),
            dice: Dice::seeded(seed),
            disk: Disk::default(),
            folder: Scratch::new(),
            programs: Programs::default(),
            promises: Promises::default(),
            chat: Chat::default(),
            agent_decisions: BTreeSet::new(),
            watch: Watch::default(),
            limits: Holds::default(),
            accounts: Accounts::default(),
            room: Room::default(),
            starts: Starts::default(),
            plant,
            is_up: false,
            dies_soon: false,
            is_ending: false,
            seen: Seen::default(),
            trace: is_traced.then(Vec::new),
            passed: 0,
            calls: BTreeMap::new(),
            next_call: 0,
            model: BTreeMap::new(),
            serial: 0,
        };
        if let Plant::LosesDocument(document) = plant {
            machine.disk.loses = Some(document);
        }
        let nights = ["2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", "2026-01-01T00:00:00Z"];
        let begin = Time::parse(nights[machine.dice.roll(nights.len())]).unwrap();
        machine.core.now = Time(begin.0 + machine.dice.below(86_400_000));
        machine.start(State::default());
        machine
    }

    /// Writes a line of the trace.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    /// Applies an event, looks at what comes of it, and obeys.
    pub fn apply(&mut self, event: Event) {
        let before = self.core.state.clone();
        let now = self.core.now;
        let of = match &event {
            Event::OnDisk(call, outcome) => Some((*call, outcome.is_ok())),
            _ => None,
        };
        let twin = (self.dice.below(1024) == 0).then(|| event.clone());
        self.watch.before(&event, &self.core.state, now);
        let by = if let Event::Run(id, _) = &event { before.agents.get(*id).cloned() } else { None };
        let started = if let Event::Timer(Timer::ScheduleStart(id)) = &event { Some(*id) } else { None };
        let effects = match twin {
            Some(twin) => self.apply_twice(event, twin),
            None => self.core.apply(event),
        };
        if self.trace.is_some() {
            let lines: Vec<String> = effects.iter().map(|effect| self.core.line(effect)).collect();
            self.trace.iter_mut().for_each(|trace| trace.extend(lines.iter().cloned()));
        }
        if let Some(id) = started {
            self.watch.check_run(&self.core.state, &self.disk, id, &effects);
            // Between an order and its note on the disk a kill is worst.
            self.dies_soon |= self.dice.below(12) == 0;
        }
        self.check_answers(&before, of, &effects);
        self.check_due(&before);
        self.check_line(&before);
        if !Arc::ptr_eq(&before.agents, &self.core.state.agents) {
            self.check_holds(&before, by.as_deref());
        }
        self.take(effects, &before);
        invariants::check(self, &before);
    }

    fn apply_twice(&mut self, event: Event, twin: Event) -> Vec<Effect> {
        let state = self.core.state.clone();
        let seed = self.core.seed();
        let effects = self.core.apply(event);
        let mut cx = svc::core::Context::new(self.core.now, self.core.seed());
        let mut again = state;
        svc::assembly::apply::apply(&mut again, &mut cx, twin);
        let same = seed != self.core.seed() && format!("{again:?}") == format!("{:?}", self.core.state);
        // A snapshot of the counters takes no number.
        let same = same || seed == self.core.seed();
        ensure(Rule::Deterministic, same, || "the second time it made another state".to_owned());
        effects
    }

    /// What is acknowledged was written first; what is refused has changed nothing.
    fn check_answers(&self, before: &State, of: Option<(CallId, bool)>, effects: &[Effect]) {
        let put: BTreeSet<Document> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Put(document, Durability::BeforeReply) => Some(*document),
                _ => None,
            })
            .collect();
        let change = |call: CallId| before.unwritten.iter().find(|change| change.call == call);
        for effect in effects {
            let (Effect::Reply(call, response) | Effect::ReplyStored(call, response)) = effect else {
                continue;
            };
            let call = *call;
            let written = change(call).map(|one: &Arc<Unwritten>| one.documents.clone()).unwrap_or_default();
            let Some(own) = self.calls.get(&call).map(|call| call.own).filter(|own| !own.is_empty()) else {
                continue;
            };
            let changed = changed(before, &self.core.state);
            if response.is_granted() {
                for document in changed.iter().filter(|one| own.contains(one)) {
                    let is_there = put.contains(document) || written.contains(document);
                    let said = || format!("{} changed, and {call:?} is answered before", document.path());
                    ensure(Rule::DiskFirst, is_there, said);
                }
            } else if of == Some((call, false))
                && before.health.storage_error == self.core.state.health.storage_error
            {
                let said = || format!("{call:?} was refused, and changed {changed:?}");
                ensure(Rule::RefusedIsNothing, changed.is_empty(), said);
            }
        }
    }

    fn take(&mut self, effects: Vec<Effect>, before: &State) {
        let now = self.core.now;
        let durable = effects
            .iter()
            .any(|effect| matches!(effect, Effect::Put(_, Durability::BeforeReply) | Effect::Remove(_)));
        let mut answers = Vec::new();
        let (mut orders, mut early) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::Put(document, Durability::Later) => self.disk.put_later(document, now),
                Effect::Put(document, Durability::Soon) => self.disk.put(document, now, SOON),
                Effect::Put(document, Durability::BeforeReply) => {
                    self.disk.put(document, now, Duration::ZERO);
                }
                Effect::Remove(document) => self.disk.remove(document),
                Effect::AwaitDisk(call) => self.disk.wait(Waiting::Core(call)),
                Effect::WhenStored(timer @ Timer::QueueGoesOn(_)) if self.plant == Plant::StartsEarly => {
                    early.push(timer);
                }
                Effect::WhenStored(timer) => self.disk.tell_when_stored(timer),
                Effect::Settled(agent, n) => self.disk.settle(agent, n),
                Effect::Reply(call, response) if durable => self.disk.wait(Waiting::Caller(call, response)),
                Effect::Reply(call, response) | Effect::ReplyStored(call, response) => {
                    answers.push((call, response));
                }
                Effect::StateChanged(changes) => self.follow(changes),
                Effect::Exit => self.programs.exit_asked = true,
                other => orders.push(other),
            }
        }
        // Whoever is answered may wish something else at once: the orders of this event come first.
        for order in orders {
            self.obey(order, before);
        }
        for (call, response) in answers {
            self.answered(call, &response);
        }
        for timer in early {
            self.apply(Event::Timer(timer));
        }
    }

    fn follow(&mut self, changes: svc::agents::AgentChanges) {
        for id in changes.removed {
            self.model.remove(&id);
        }
        for id in changes.changed {
            let agent = self.core.state.agents.get(id);
            ensure(Rule::Follower, agent.is_some(), || format!("{id} changed and is not there"));
            let agent = agent.unwrap();
            self.model.insert(id, serde_json::to_string(&agent.live_view()).unwrap());
        }
    }

    /// The disk begins what is due, or comes to an end with what it does.
    pub fn write(&mut self) {
        self.tell_settled();
        if !self.disk.is_busy() {
            self.disk.begin(&self.core.state, self.core.now);
            // Most rounds are over before anything else happens.
            if self.dice.below(4) == 0 {
                return;
            }
        }
        let refuses = if self.disk.fails { self.dice.below(3) == 0 } else { self.dice.below(60) == 0 };
        let at = refuses.then(|| self.dice.roll(self.disk.round_len() + 1));
        let Some(done) = self.disk.end(self.core.now, at) else { return };
        if let Some(error) = &done.refused {
            self.seen.count("rounds the disk refused");
            let error = error.clone();
            self.note(|| format!("* storage {error}"));
            self.apply(Event::Storage(Some(error)));
        } else if done.healed {
            self.note(|| "* storage works".to_owned());
            self.apply(Event::Storage(None));
        }
        self.tell_settled();
        for timer in done.stored {
            self.apply(Event::Timer(timer));
        }
        for waiting in done.waiting {
            match waiting {
                Waiting::Caller(call, response) if done.refused.is_none() => self.answered(call, &response),
                Waiting::Caller(call, _) => {
                    let problem =
                        svc::api::Problem::new(503, "storage_unavailable", "it is done, and not written");
                    self.answered(call, &Response::Refused(problem.with("inForce", true)));
                }
                Waiting::Core(call) => {
                    let outcome = match &done.refused {
                        Some(error) => Err(error.clone()),
                        None if done.left_out.contains(&call) => Err(LEFT_OUT.to_owned()),
                        None => Ok(()),
                    };
                    self.apply(Event::OnDisk(call, outcome));
                }
            }
        }
    }

    fn tell_settled(&mut self) {
        for (agent, n) in self.disk.settled() {
            self.settled(agent, n);
        }
    }

    /// Time passes, and deadlines come due.
    pub fn pass(&mut self, millis: u64) {
        let until = self.core.now + Duration::from_millis(millis);
        self.passed += millis;
        self.note(|| format!("+ {millis}ms"));
        while let Some((at, timer)) = self.core.state.timers.next().filter(|(at, _)| *at <= until) {
            self.core.now = self.core.now.max(at);
            let now = self.core.now;
            let taken = Arc::make_mut(&mut self.core.state.timers).take_due(now);
            if self.plant == Plant::NoLockDeadlines && timer == Timer::Locks {
                continue;
            }
            self.apply(Event::Timer(taken.unwrap()));
            if self.dice.below(3) > 0 {
                self.write();
            }
        }
        self.core.now = self.core.now.max(until);
        self.may_look(millis);
    }

    /// Somebody asks for something.
    pub fn ask(&mut self, actor: &Actor, method: &str, path: &str, body: &Value, claim: Claim) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.note(|| format!("> {method} {path} {text} ({actor})"));
        match self.core.handle(method, path, &text) {
            Err(command) => self.command(actor, command, claim),
            Ok(reply) => self.note(|| format!("< {}", reply.status)),
        }
    }

    /// The same for what does not come by HTTP.
    pub fn command(&mut self, actor: &Actor, command: Command, claim: Claim) {
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.promises.asked(&claim);
        let own = if matches!(claim, Claim::Look) { &[] } else { own_documents(&command) };
        self.calls.insert(call, Call { claim, own });
        self.apply(Event::Call(call, actor.clone(), command));
    }

    fn answered(&mut self, call: CallId, response: &Response) {
        let waiting = self.calls.remove(&call);
        ensure(Rule::OneAnswer, waiting.is_some(), || format!("{call:?} was answered twice, or never asked"));
        let waiting = waiting.unwrap();
        self.programs.queries.remove(&call);
        let reply = response.http();
        let body: Value = serde_json::from_slice(reply.body.bytes()).unwrap_or_default();
        self.chat_answered(call, response);
        self.decided(call, reply.status);
        self.limits.answered(call);
        self.room.answered(call);
        if reply.status < 300 {
            self.seen.count("changes acknowledged");
        } else if reply.status == 503 {
            self.seen.count("answers 503");
        }
        self.promises.answered(waiting.claim, reply.status, &body, &self.core.state);
    }

    /// The number that the next call will have.
    pub fn coming_call(&self) -> CallId {
        CallId(self.next_call + 1)
    }

    /// Calls that wait.
    pub fn open_calls(&self) -> Vec<CallId> {
        self.calls.keys().copied().collect()
    }

    /// Calls are lost with the daemon.
    pub fn lose_calls(&mut self) {
        self.calls.clear();
        self.promises.cut();
    }
}

/// What a wish changes in the first place.
fn own_documents(command: &Command) -> &'static [Document] {
    match command {
        Command::Agents(_) => &[Document::Agents],
        Command::Approvals(_) => &[Document::Approvals],
        Command::Teams(_) => &[Document::Teams, Document::Agents],
        Command::Coordination(_) => &[Document::Locks],
        // Answered when the platform says the bot's name, which is no decision of anybody.
        Command::Gateways(svc::gateways::Command::Connect(_)) => &[],
        Command::Gateways(_) => &[Document::Gateways, Document::Credentials],
        Command::Memory(_) => &[Document::Constraints, Document::Discoveries],
        Command::Schedules(_) => &[Document::Schedules, Document::Agents],
        Command::Integrations(_) => &[Document::Integrations, Document::Credentials],
        Command::Settings(_) => &[Document::Config],
        Command::Accounts(_) => &[Document::Accounts, Document::Credentials],
        Command::Credentials(_) => &[Document::Credentials],
        _ => &[],
    }
}

/// The documents that read differently after an event, pending changes apart.
fn changed(before: &State, after: &State) -> Vec<Document> {
    macro_rules! parts {
        ($($part:ident: $($Document:ident),+;)*) => {{
            let mut found = Vec::new();
            $(if !Arc::ptr_eq(&before.$part, &after.$part) {
                found.extend([$(Document::$Document),+]);
            })*
            found
        }};
    }
    let documents = parts! {
        accounts: Accounts;
        agents: Agents;
        credentials: Credentials;
        coordination: Locks;
        approvals: Approvals;
        gateways: Gateways;
        teams: Teams;
        schedules: Schedules;
        integrations: Integrations;
        settings: Config;
        federation: Federation;
        pm: PmReviews;
        memory: Constraints, Discoveries, HandoffChains;
        market: Skills;
    };
    let (mut old, mut new) = (before.clone(), after.clone());
    old.unwritten = Arc::default();
    new.unwritten = Arc::default();
    documents.into_iter().filter(|document| encode(*document, &old) != encode(*document, &new)).collect()
}
