//! Simulation of what agents may do: approvals, gated calls and locks, with seeded random agents, people,
//! servers, a slow disk and power cuts. After every event the invariants are checked.

use crate::support::dice::Dice;
use crate::support::world::World;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use svc::agents::report::{Keeper, RunReport};
use svc::agents::{self, RunOrder, Status};
use svc::approvals;
use svc::assembly::documents::encode;
use svc::coordination;
use svc::core::ids::{AgentId, LineageId};
use svc::core::{Actor, CallId, Command, Document, Effect, Event, State, Timer};
use svc::integrations::{self, Order, Report, RunId, protocol::Ask};

/// Seeds of a usual run; `SVC_SEEDS=2000` searches longer.
const SEEDS: u64 = 60;
const EVENTS: usize = 500;
/// Seeds in which a planted bug must show.
const BUG_SEEDS: u64 = 40;
const AGENTS: usize = 4;

/// What is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// The disk says that the use of an approval is written, and it is not.
    UseIsLost,
    /// The disk says that a decision is written, and it is not.
    DecisionIsLost,
    /// An agent's decision is taken for a person's.
    AgentDecides,
    /// A restart finds every pending approval twice.
    PendingTwice,
    /// A restart finds every lock with a second owner.
    LockedTwice,
    /// The end of a process is never told.
    ExitIsLost,
    /// Deadlines of locks never come.
    NoDeadlines,
}

#[test]
fn approvals_run_once_and_only_after_a_person_said_yes_and_locks_are_held_by_one() {
    let seeds = std::env::var("SVC_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let mut seen = Seen::default();
    for seed in 0..seeds {
        let mut simulation = Simulation::new(seed, Bug::None);
        simulation.run();
        seen.add(&simulation.seen);
    }
    // What never happens is not tested.
    assert!(seen.is_rich(), "the simulation has become poor: {seen:?}");
}

/// Runs seeds with a planted bug until the checkers find it; their words.
fn found(bug: Bug) -> String {
    for seed in 0..BUG_SEEDS {
        let run = catch_unwind(AssertUnwindSafe(|| Simulation::new(seed, bug).run()));
        if let Err(panic) = run {
            let text = panic.downcast_ref::<String>().cloned();
            return text
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
                .unwrap_or_default();
        }
    }
    panic!("no checker has found {bug:?} in {BUG_SEEDS} seeds")
}

#[test]
fn planted_bugs_of_approvals_are_found() {
    for (bug, words) in [
        (Bug::UseIsLost, "ran twice"),
        (Bug::DecisionIsLost, "was acknowledged as"),
        (Bug::AgentDecides, "no person has approved"),
        (Bug::PendingTwice, "are the same wish"),
    ] {
        let told = found(bug);
        assert!(told.contains(words), "{bug:?} was found as something else: {told}");
    }
}

#[test]
fn planted_bugs_of_locks_are_found() {
    for (bug, words) in [
        (Bug::LockedTwice, "is held twice"),
        (Bug::ExitIsLost, "has no process and holds a lock"),
        (Bug::NoDeadlines, "has outlived its deadline"),
    ] {
        let told = found(bug);
        assert!(told.contains(words), "{bug:?} was found as something else: {told}");
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    asked: u32,
    approved: u32,
    ran: u32,
    refused: u32,
    cuts: u32,
    locks: u32,
    conflicts: u32,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.approved += other.approved;
        self.ran += other.ran;
        self.refused += other.refused;
        self.cuts += other.cuts;
        self.locks += other.locks;
        self.conflicts += other.conflicts;
    }

    fn is_rich(&self) -> bool {
        [self.asked, self.approved, self.ran, self.refused, self.cuts, self.locks, self.conflicts]
            .iter()
            .all(|count| *count > 20)
    }
}

/// A gated call: who wants what, with which approval.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    lineage: LineageId,
    number: u64,
}

/// What a reply has promised, once the disk has it.
#[derive(Debug, Clone)]
struct Decided {
    id: String,
    status: String,
}

struct Simulation {
    world: World,
    bug: Bug,
    seed: u64,
    dice: Dice,
    calls: u64,
    processes: BTreeSet<AgentId>,
    servers: BTreeMap<RunId, Vec<CallId>>,
    /// Gated calls under way: the approval they carry, and what they are for.
    gated: BTreeMap<CallId, (String, Wish)>,
    /// Locks that nobody was answered yet.
    locking: BTreeSet<CallId>,
    /// Decisions that nobody was answered yet.
    deciding: BTreeMap<CallId, Decided>,
    /// What people have approved.
    approved: BTreeMap<String, Wish>,
    /// Approvals whose call was given to a server.
    ran: BTreeSet<String>,
    /// Of what state each document was written, which is encoded when it is read.
    disk: BTreeMap<Document, Arc<State>>,
    on_its_way: BTreeMap<Document, Arc<State>>,
    awaiting: Vec<CallId>,
    promised: Vec<Decided>,
    seen: Seen,
}

impl Simulation {
    fn new(seed: u64, bug: Bug) -> Self {
        let mut simulation = Self {
            world: World::new(),
            bug,
            seed,
            dice: Dice::seeded(seed + 1),
            calls: 1 << 20,
            processes: BTreeSet::new(),
            servers: BTreeMap::new(),
            gated: BTreeMap::new(),
            approved: BTreeMap::new(),
            locking: BTreeSet::new(),
            deciding: BTreeMap::new(),
            ran: BTreeSet::new(),
            disk: BTreeMap::new(),
            on_its_way: BTreeMap::new(),
            awaiting: Vec::new(),
            promised: Vec::new(),
            seen: Seen::default(),
        };
        let hub = r#"{"id":"hub","command":"hub-server","env":[],"gatedTools":["send"]}"#;
        simulation.wish(&Actor::Operator, "POST", "/api/integrations", hub);
        simulation.flush();
        for _ in 0..AGENTS {
            let body = r#"{"role":"dev","provider":"script","scope":["src/**"],"integrations":["hub"]}"#;
            simulation.wish(&Actor::Operator, "POST", "/api/agents", body);
        }
        simulation.flush();
        simulation
    }

    fn run(&mut self) {
        for _ in 0..EVENTS {
            match self.dice.below(20) {
                0..=5 => self.call(),
                6..=8 => self.decide(),
                9..=11 => self.lock(),
                12 | 13 => self.server(),
                14 => self.process(),
                15 => {
                    let millis = self.dice.below(9_000);
                    self.pass(millis);
                }
                16..=18 => self.flush(),
                _ if self.dice.below(6) == 0 => self.power_cut(),
                _ => {}
            }
            self.check();
        }
    }

    fn agents(&self) -> Vec<(AgentId, LineageId)> {
        self.world.state.agents.live().map(|agent| (agent.id, agent.lineage_id)).collect()
    }

    /// Somebody's request, through its route; status and body of the reply, if there is one at once.
    fn wish(
        &mut self,
        actor: &Actor,
        method: &str,
        path: &str,
        body: &str,
    ) -> (CallId, Option<(u16, Value)>) {
        self.calls += 1;
        let call = CallId(self.calls);
        let command = match self.world.handle(method, path, body) {
            Ok(reply) => {
                return (call, Some((reply.status, serde_json::from_slice(reply.body.bytes()).unwrap())));
            }
            Err(command) => command,
        };
        (call, self.command(call, actor, command))
    }

    fn command(&mut self, call: CallId, actor: &Actor, command: Command) -> Option<(u16, Value)> {
        let effects = self.world.apply(Event::Call(call, actor.clone(), command));
        let reply = effects.iter().find_map(|effect| match effect {
            Effect::Reply(to, reply) if *to == call => Some(reply.http()),
            _ => None,
        });
        self.take(effects);
        reply.map(|reply| (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap_or_default()))
    }

    /// An agent calls the gated tool, with an approval or without.
    fn call(&mut self) {
        let agents = self.agents();
        let Some((agent, lineage)) = self.dice.pick(&agents) else { return };
        let wish = Wish { lineage, number: self.dice.below(3) };
        let known: Vec<String> =
            self.world.state.approvals.iter().map(|approval| approval.id.to_string()).collect();
        let approval = if self.dice.below(3) == 0 { None } else { self.dice.pick(&known) };
        let mut body = json!({"tool": "send", "params": {"n": wish.number}});
        if let Some(id) = &approval {
            body["approvalId"] = json!(id);
            self.gated.insert(CallId(self.calls + 1), (id.clone(), wish.clone()));
        }
        let actor = Actor::Agent(agent);
        let (_, reply) = self.wish(&actor, "POST", "/api/integrations/hub/exec", &body.to_string());
        self.seen.refused += u32::from(reply.is_some_and(|(status, _)| status == 403));
    }

    /// A person decides, or an agent tries to.
    fn decide(&mut self) {
        let pending: Vec<_> = self.world.state.approvals.pending().cloned().collect();
        let Some(approval) = self.dice.pick(&pending) else { return };
        let (decision, status) =
            if self.dice.below(4) == 0 { ("reject", "rejected") } else { ("approve", "approved") };
        let agents = self.agents();
        let agent =
            self.dice.pick(&agents).map(|(agent, _)| Actor::Agent(agent)).filter(|_| self.dice.below(4) == 0);
        let is_agent = agent.is_some();
        let actor = agent.filter(|_| self.bug != Bug::AgentDecides).unwrap_or(Actor::Operator);
        let (number, id) = (approval_number(&approval.action), approval.id.to_string());
        let body = json!({"id": id, "decision": decision}).to_string();
        let (call, reply) = self.wish(&actor, "POST", "/api/approvals", &body);
        match reply.map(|(code, _)| code) {
            // It is answered when it is on disk.
            None => {
                if decision == "approve" && !is_agent {
                    self.approved.insert(id.clone(), Wish { lineage: approval.lineage_id.unwrap(), number });
                    self.seen.approved += 1;
                }
                self.deciding.insert(call, Decided { id, status: status.into() });
            }
            code => assert_eq!(code, Some(403), "seed {}: an agent's decision", self.seed),
        }
    }

    fn lock(&mut self) {
        let agents = self.agents();
        let Some((agent, _)) = self.dice.pick(&agents) else { return };
        let actor = Actor::Agent(agent);
        if self.dice.below(4) == 0 {
            let body = format!(r#"{{"agentId":"{agent}"}}"#);
            self.wish(&actor, "POST", "/api/coordination/complete", &body);
            return;
        }
        let body = json!({
            "agentId": agent.to_string(), "operation": format!("o{}", self.dice.below(3)),
            "resources": [format!("r{}", self.dice.below(4)), format!("r{}", self.dice.below(4))],
            "ttlMs": 1_000 + self.dice.below(20_000),
        });
        let (call, reply) = self.wish(&actor, "POST", "/api/coordination/declare", &body.to_string());
        match reply.map(|(status, _)| status) {
            // It is answered when it is on disk.
            None => drop(self.locking.insert(call)),
            Some(423) => self.seen.conflicts += 1,
            other => panic!("seed {}: declare answered {other:?}", self.seed),
        }
    }

    /// A server becomes ready, answers, or crashes.
    fn server(&mut self) {
        let runs: Vec<RunId> = self.servers.keys().copied().collect();
        let Some(run) = self.dice.pick(&runs) else { return };
        let report = match (self.dice.below(8), self.servers.get_mut(&run).and_then(Vec::pop)) {
            (0, _) => {
                self.servers.remove(&run);
                Report::Exited(run, "it crashed".into())
            }
            (_, Some(call)) => Report::Answered(run, call, Ok(json!({"content": []}))),
            (_, None) => Report::Ready(run, "2025-06-18".into(), "hub 1".into()),
        };
        self.event(Event::Integrations(report));
    }

    /// A process ends by itself, or an ended agent goes on.
    fn process(&mut self) {
        let live: Vec<AgentId> = self.processes.iter().copied().collect();
        if self.dice.below(2) == 0
            && let Some(agent) = self.dice.pick(&live)
        {
            return self.exit(agent);
        }
        let ended: Vec<AgentId> =
            self.world.state.agents.iter().filter(|a| !a.status.is_live()).map(|agent| agent.id).collect();
        if let Some(agent) = self.dice.pick(&ended) {
            self.wish(&Actor::Operator, "POST", &format!("/api/agents/{agent}/resume"), "{}");
        }
    }

    fn exit(&mut self, agent: AgentId) {
        self.processes.remove(&agent);
        if self.bug != Bug::ExitIsLost {
            let (code, signal, signalled, stderr_tail, leaked) = (Some(0), None, false, String::new(), 0);
            let keeper = Keeper::Told;
            let report = RunReport::Exited { code, signal, signalled, stderr_tail, leaked, keeper };
            self.event(Event::Run(agent, report));
        }
    }

    fn event(&mut self, event: Event) {
        let effects = self.world.apply(event);
        self.take(effects);
    }

    fn pass(&mut self, millis: u64) {
        let until = self.world.now + Duration::from_millis(millis);
        if self.bug == Bug::NoDeadlines {
            Arc::make_mut(&mut self.world.state.timers).clear(Timer::Locks);
        }
        while let Some(effects) = self.world.next_due(until) {
            self.take(effects);
        }
    }

    /// Obeys the orders; what is to be written is on its way.
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Put(document, _) => self.put(document),
                Effect::AwaitDisk(call) => self.awaiting.push(call),
                Effect::ReplyStored(call, reply) => {
                    let (reply, decided) = (reply.http(), self.deciding.remove(&call));
                    self.promised.extend(decided.filter(|_| reply.status == 200));
                    self.seen.asked += u32::from(reply.status == 202);
                    self.seen.locks += u32::from(self.locking.remove(&call) && reply.status == 200);
                }
                Effect::Integrations(order) => self.order(order),
                Effect::Run(agent, RunOrder::Start(_)) => {
                    self.processes.insert(agent);
                    self.event(Event::Run(agent, RunReport::Started { pid: agent.0 | 1, start_ticks: 1 }));
                }
                Effect::Run(agent, RunOrder::Finish | RunOrder::Stop) if self.processes.contains(&agent) => {
                    self.exit(agent);
                }
                Effect::Run(agent, RunOrder::Say { message_id, .. }) => {
                    let delivered = self.processes.contains(&agent);
                    self.event(Event::Run(agent, RunReport::Said { message_id, delivered }));
                }
                _ => {}
            }
        }
    }

    fn put(&mut self, document: Document) {
        let Some(state) = self.world.written(document) else { return };
        let is_at_once = matches!(document, Document::Prompt(_));
        let place = if is_at_once { &mut self.disk } else { &mut self.on_its_way };
        place.insert(document, state);
    }

    /// What is on the disk of it.
    fn read(&self, document: Document) -> Option<Value> {
        let bytes = encode(document, self.disk.get(&document)?).unwrap().unwrap();
        let stored = serde_json::from_slice(&bytes).unwrap();
        Some(match (self.bug, document) {
            (Bug::UseIsLost, Document::Approvals) => without(stored, &["usedAt"]),
            (Bug::DecisionIsLost, Document::Approvals) => {
                without(stored, &["usedAt", "resolvedAt", "status"])
            }
            _ => stored,
        })
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Start(run, _) => drop(self.servers.insert(run, Vec::new())),
            Order::Stop(run) => {
                self.servers.remove(&run);
                self.event(Event::Integrations(Report::Exited(run, "it was stopped".into())));
            }
            Order::Ask(run, call, Ask::Tool { name, .. }) if name == "send" => {
                self.servers.entry(run).or_default().push(call);
                self.given_to_a_server(call);
            }
            _ => {}
        }
    }

    /// The gated call reaches its server: from here on it counts as done.
    fn given_to_a_server(&mut self, call: CallId) {
        let seed = self.seed;
        let (id, wish) = self.gated.get(&call).cloned().expect("a gated call without an approval ran");
        let allowed = self.approved.get(&id);
        assert!(allowed.is_some(), "seed {seed}: {id} let a call through that no person has approved");
        assert_eq!(allowed, Some(&wish), "seed {seed}: {id} let another call through");
        assert!(self.ran.insert(id.clone()), "seed {seed}: a call approved once by {id} ran twice");
        self.seen.ran += 1;
    }

    /// The disk has written everything.
    fn flush(&mut self) {
        self.disk.append(&mut self.on_its_way);
        for call in std::mem::take(&mut self.awaiting) {
            self.event(Event::OnDisk(call, Ok(())));
        }
    }

    /// The machine loses power: of what was on its way, each document is there or not.
    fn power_cut(&mut self) {
        self.seen.cuts += 1;
        for (document, state) in std::mem::take(&mut self.on_its_way) {
            if self.dice.below(2) == 0 {
                self.disk.insert(document, state);
            }
        }
        self.awaiting.clear();
        self.deciding.clear();
        self.locking.clear();
        self.processes.clear();
        self.servers.clear();
        self.gated.clear();
        let now = self.world.now;
        let project = Arc::clone(&self.world.state.project);
        let prompt = |lineage| {
            let stored = self.read(Document::Prompt(lineage)).expect("a prompt is written before its record");
            serde_json::from_value::<agents::StoredPrompt>(stored).unwrap().prompt
        };
        let stored = self.read(Document::Agents).map(|value| serde_json::from_value(value).unwrap());
        let registry = agents::State::restore(
            stored.unwrap_or_default(),
            prompt,
            &std::collections::HashSet::new(),
            now,
        );
        let mut state = State { agents: Arc::new(registry), project, ..State::default() };
        let agents = Arc::clone(&state.agents);
        let timers = Arc::make_mut(&mut state.timers);
        if let Some(mut stored) = self.read(Document::Approvals) {
            if self.bug == Bug::PendingTwice {
                let id = format!("apr-{:08x}", self.seen.cuts);
                twice(&mut stored["approvals"], |one| one["id"] = json!(id));
            }
            let stored = serde_json::from_value(stored).unwrap();
            state.approvals = Arc::new(approvals::State::restore(stored, &agents, timers));
        }
        if let Some(mut stored) = self.read(Document::Locks) {
            if self.bug == Bug::LockedTwice {
                twice(&mut stored["held"], |one| one[0] = json!({"named": "somebody"}));
            }
            let stored = serde_json::from_value(stored).unwrap();
            state.coordination = Arc::new(coordination::State::restore(stored, &state.agents, timers));
        }
        if let Some(stored) = self.read(Document::Integrations) {
            let stored = serde_json::from_value(stored).unwrap();
            state.integrations = Arc::new(integrations::State::restore(stored));
        }
        self.world.state = state;
        self.check_promises();
        // What came due meanwhile is the first thing that the next daemon sees to.
        self.pass(0);
    }

    fn check_promises(&self) {
        for decided in &self.promised {
            let Ok(approval) = self.world.state.approvals.find(&decided.id) else { continue };
            let (id, status, seed) = (&decided.id, approval.status.word(), self.seed);
            let was = &decided.status;
            assert!(
                status == was || status == "expired",
                "seed {seed}: {id} was acknowledged as {was}, it is {status}"
            );
        }
    }

    /// Holds after every event.
    fn check(&self) {
        self.check_approvals();
        self.check_locks();
        self.check_promises();
    }

    fn check_approvals(&self) {
        let seed = self.seed;
        let mut wishes = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for approval in self.world.state.approvals.iter() {
            assert!(ids.insert(approval.id), "seed {seed}: two approvals have the id {}", approval.id);
            if approval.status == approvals::Status::Pending {
                let wish = (approval.lineage_id, approval_number(&approval.action));
                assert!(wishes.insert(wish), "seed {seed}: two pending approvals are the same wish {wish:?}");
            }
            assert_eq!(approval.status == approvals::Status::Pending, approval.resolved_at.is_none());
        }
        for agent in self.world.state.agents.live() {
            let waits = approvals::awaited(&self.world.state, agent.lineage_id).is_some();
            let says = agent.status == Status::Waiting;
            assert_eq!(waits, says, "seed {seed}: {} is {:?}", agent.name, agent.status);
        }
        assert!(wishes.len() <= approvals::MAX_OPEN);
    }

    fn check_locks(&self) {
        let seed = self.seed;
        let mut held = BTreeSet::new();
        for (owner, operation) in self.world.state.coordination.iter() {
            for resource in &operation.resources {
                assert!(held.insert(resource.clone()), "seed {seed}: {resource} is held twice");
            }
            let name = &operation.name;
            let is_due = operation.expires_at <= self.world.now;
            assert!(!is_due, "seed {seed}: the lock for {name} has outlived its deadline");
            let coordination::Owner::Agent(lineage) = owner else { continue };
            let agent = self.world.state.agents.iter().find(|agent| agent.lineage_id == *lineage);
            let agent = agent.unwrap_or_else(|| panic!("seed {seed}: a removed agent holds a lock"));
            let may_hold = self.processes.contains(&agent.id) || agent.status == Status::Interrupted;
            assert!(may_hold, "seed {seed}: {} has no process and holds a lock", agent.name);
        }
    }
}

/// The number in the parameters that an approval shows.
fn approval_number(action: &approvals::Action) -> u64 {
    let approvals::Action::IntegrationExec { params, .. } = action else {
        panic!("no other kind is asked for")
    };
    params["n"].as_u64().unwrap()
}

/// The approvals' document with these facts as they were before anybody decided.
fn without(mut stored: Value, fields: &[&str]) -> Value {
    for approval in stored["approvals"].as_array_mut().unwrap() {
        for field in fields {
            approval[*field] = if *field == "status" { json!("pending") } else { Value::Null };
        }
    }
    stored
}

/// Adds a changed copy of the last element of a list, that of the latest wish.
fn twice(list: &mut Value, change: impl FnOnce(&mut Value)) {
    let Some(list) = list.as_array_mut() else { return };
    let Some(mut copy) = list.last().cloned() else { return };
    change(&mut copy);
    list.push(copy);
}
