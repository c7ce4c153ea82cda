//! Simulation: seeded random clients, agents and disk with faults and power cuts, on a virtual clock. After
//! every event the invariants are checked; a broken one prints its seed.

use crate::support::dice::Dice;
use crate::support::world::{World, activity, output};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use svc::agents::report::{Keeper, RunReport};
use svc::agents::{self, JobReport, RunOrder, Status};
use svc::assembly::documents::encode;
use svc::assembly::unwritten::{LEFT_OUT, to_be_stored};
use svc::coordination;
use svc::core::ids::{AgentId, LineageId};
use svc::core::{CallId, Command, Document, Durability, Effect, Event, State};
use svc::providers::Tokens;
use svc::usage;

/// Seeds of a usual run; `SVC_SEEDS=2000` searches longer.
const SEEDS: u64 = 60;
const EVENTS: usize = 400;

#[test]
fn nothing_acknowledged_is_lost_and_no_ghost_lives() {
    let seeds = std::env::var("SVC_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    for seed in 0..seeds {
        Simulation::new(seed).run();
    }
}

/// A planted bug: a report the core never sees makes a ghost, and the checker must find it.
#[test]
fn the_ghost_checker_can_fail() {
    let found = std::panic::catch_unwind(|| {
        let mut simulation = Simulation::new(1);
        simulation.lose_exits = true;
        simulation.run();
    });
    assert!(found.is_err(), "a lost exit report must be found");
}

/// What a simulated process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Ordered,
    Runs,
    /// It was told to end.
    Ending,
}

struct Simulation {
    world: World,
    dice: Dice,
    seed: u64,
    processes: BTreeMap<AgentId, Process>,
    said: Vec<(AgentId, u64)>,
    briefs: Vec<AgentId>,
    queries: BTreeSet<CallId>,
    waiting: BTreeSet<CallId>,
    /// The registry as the disk has it, and what is on its way there.
    disk: Option<Vec<u8>>,
    /// The locks as the disk has them.
    locks: Option<Vec<u8>>,
    prompts: BTreeMap<LineageId, Vec<u8>>,
    /// The ledger as the disk has it, written at moments of its own.
    ledger: Option<Vec<u8>>,
    /// What a client that follows `state` messages believes.
    model: BTreeMap<AgentId, String>,
    /// Tokens fed, by lineage.
    fed: BTreeMap<LineageId, u64>,
    /// Acknowledged messages that nobody has taken yet, by lineage.
    promised: Vec<(LineageId, String)>,
    /// Messages that were not answered yet.
    instructed: BTreeMap<CallId, (LineageId, String)>,
    /// Messages that were answered 503.
    refused: Vec<String>,
    /// Calls whose changes are on their way to the disk.
    awaiting: Vec<CallId>,
    lose_exits: bool,
    messages: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Self {
            world: World::new(),
            dice: Dice::seeded(seed),
            seed,
            processes: BTreeMap::new(),
            said: Vec::new(),
            briefs: Vec::new(),
            queries: BTreeSet::new(),
            waiting: BTreeSet::new(),
            disk: None,
            locks: None,
            prompts: BTreeMap::new(),
            ledger: None,
            model: BTreeMap::new(),
            fed: BTreeMap::new(),
            promised: Vec::new(),
            instructed: BTreeMap::new(),
            refused: Vec::new(),
            awaiting: Vec::new(),
            lose_exits: false,
            messages: 0,
        }
    }

    fn run(&mut self) {
        for _ in 0..EVENTS {
            match self.dice.below(100) {
                0..=29 => self.client(),
                30..=84 => self.process(),
                85..=94 => {
                    let millis = self.dice.below(90_000);
                    self.pass(millis);
                }
                95..=97 => self.job(),
                _ if self.dice.below(4) == 0 => self.power_cut(),
                _ => {}
            }
            if self.dice.below(3) > 0 {
                self.flush();
            }
            self.check();
        }
        self.settle();
    }

    fn pass(&mut self, millis: u64) {
        let until = self.world.now + Duration::from_millis(millis);
        while let Some(effects) = self.world.next_due(until) {
            self.take(effects);
        }
    }

    fn client(&mut self) {
        let names: Vec<AgentId> = self.world.state.agents.iter().map(|agent| agent.id).collect();
        let target = self.dice.pick(&names).map_or_else(|| "nobody".to_owned(), |id| id.to_string());
        self.messages += 1;
        let text = format!("message-{};", self.messages);
        let (method, path, body) = match self.dice.below(13) {
            0..=3 => ("POST", "/api/agents".to_owned(), r#"{"role":"dev","provider":"script"}"#.to_owned()),
            4 => ("DELETE", format!("/api/agents/{target}"), String::new()),
            5 => ("POST", format!("/api/agents/{target}/rotate"), String::new()),
            6 => ("POST", format!("/api/agents/{target}/resume"), String::new()),
            7 => ("POST", format!("/api/agents/{target}/query"), r#"{"question":"?"}"#.to_owned()),
            8 => ("PATCH", format!("/api/agents/{target}"), r#"{"effort":"high"}"#.to_owned()),
            9..=11 => {
                let what = if self.dice.below(4) == 0 { "complete" } else { "declare" };
                let (name, ttl) = (self.dice.below(5), 1000 + self.dice.below(100_000));
                let body = format!(
                    r#"{{"agentId":"{target}","operation":"o","resources":["r{name}"],"ttlMs":{ttl}}}"#
                );
                let body = if what == "declare" { body } else { format!(r#"{{"agentId":"{target}"}}"#) };
                ("POST", format!("/api/coordination/{what}"), body)
            }
            _ => {
                let deliver = self.dice.pick(&["now", "idle", "rotation"]).unwrap();
                let body = format!(r#"{{"message":"{text}","deliver":"{deliver}"}}"#);
                ("POST", format!("/api/agents/{target}/instruct"), body)
            }
        };
        let Err(command) = self.world.handle(method, &path, &body) else { return };
        self.command(command);
    }

    fn command(&mut self, command: Command) {
        let message = match &command {
            Command::Agents(agents::Command::Instruct { target, message, .. }) => {
                self.world.state.agents.find(target).ok().map(|agent| (agent.lineage_id, message.clone()))
            }
            _ => None,
        };
        let is_query = matches!(command, Command::Agents(agents::Command::Query { .. }));
        let (call, event) = self.world.call(command);
        self.waiting.insert(call);
        if is_query {
            self.queries.insert(call);
        }
        self.instructed.extend(message.map(|message| (call, message)));
        let effects = self.world.apply(event);
        self.take(effects);
    }

    /// The disk has taken what was on its way to it, or refuses.
    fn flush(&mut self) {
        let (_, left_out) = to_be_stored(&self.world.state);
        if !self.awaiting.is_empty() {
            self.write();
            self.locks = encode(Document::Locks, &self.world.state).map(Result::unwrap);
        }
        for call in std::mem::take(&mut self.awaiting) {
            let outcome = match self.dice.below(10) {
                0 => Err("it is full".to_owned()),
                _ if left_out.contains(&call) => Err(LEFT_OUT.to_owned()),
                _ => Ok(()),
            };
            let effects = self.world.apply(Event::OnDisk(call, outcome));
            self.take(effects);
        }
    }

    fn answered(&mut self, call: CallId, status: u16) {
        assert!(self.waiting.remove(&call), "seed {}: {call:?} was answered twice", self.seed);
        self.queries.remove(&call);
        let Some((lineage, text)) = self.instructed.remove(&call) else { return };
        match status {
            200 => self.promised.push((lineage, text)),
            503 => self.refused.push(text),
            _ => {}
        }
    }

    /// Some process does something.
    fn process(&mut self) {
        if !self.said.is_empty() && self.dice.below(3) == 0 {
            let (id, message_id) = self.said.remove(0);
            let delivered = self.processes.get(&id) == Some(&Process::Runs) && self.dice.below(4) > 0;
            if delivered {
                self.taken(id, message_id);
            }
            return self.report(id, RunReport::Said { message_id, delivered });
        }
        let ids: Vec<AgentId> = self.processes.keys().copied().collect();
        let Some(id) = self.dice.pick(&ids) else { return };
        match (self.processes[&id], self.dice.below(10)) {
            (Process::Ordered, 0) => {
                self.processes.remove(&id);
                self.report(id, RunReport::StartFailed { error: "no such program".into() });
            }
            (Process::Ordered, _) => {
                self.processes.insert(id, Process::Runs);
                self.report(id, RunReport::Started { pid: id.0 | 1, start_ticks: 7 });
            }
            (Process::Runs, 0..=3) => {
                // Now and then most of the context window of 1000 tokens: a rotation is due.
                let used = if self.dice.below(10) == 0 {
                    800 + self.dice.below(200)
                } else {
                    self.dice.below(100) + 1
                };
                if let Some(agent) = self.world.state.agents.get(id) {
                    *self.fed.entry(agent.lineage_id).or_default() += used;
                }
                let session = activity("session", &format!("s{}", id.0));
                let uses = activity("uses", &format!("{used}/0"));
                self.report(id, output(vec![session, uses, activity("says", "hm")]));
            }
            (Process::Runs, 4..=6) => self.report(id, output(vec![activity("ends-turn", "ok")])),
            (Process::Runs, 7) => self.report(id, output(vec![activity("fails-turn", "no")])),
            (Process::Runs, 8) => {
                let code = i32::try_from(self.dice.below(3)).unwrap();
                self.exit(id, Some(code));
            }
            (Process::Ending, _) => self.exit(id, None),
            _ => {}
        }
    }

    fn exit(&mut self, id: AgentId, code: Option<i32>) {
        self.processes.remove(&id);
        self.said.retain(|(agent, _)| *agent != id);
        if self.lose_exits {
            return;
        }
        let signal = if code.is_none() { Some(15) } else { None };
        self.report(
            id,
            RunReport::Exited {
                code,
                signal,
                stderr_tail: String::new(),
                leaked: 0,
                keeper: Keeper::Told,
                signalled: signal.is_some(),
            },
        );
    }

    fn job(&mut self) {
        if let Some(id) = self.briefs.pop() {
            let brief =
                if self.dice.below(4) == 0 { Err("no log".to_owned()) } else { Ok("# brief".to_owned()) };
            let effects = self.world.apply(Event::Job(JobReport::Brief(id, brief)));
            return self.take(effects);
        }
        if let Some(call) = self.queries.pop_first() {
            let answer = Ok(("yes".to_owned(), Tokens::default()));
            let effects = self.world.apply(Event::Job(JobReport::Query(call, answer)));
            self.take(effects);
        }
    }

    fn report(&mut self, id: AgentId, report: RunReport) {
        let effects = self.world.apply(Event::Run(id, report));
        self.take(effects);
    }

    /// Obeys the orders, remembers the promises.
    fn take(&mut self, effects: Vec<Effect>) {
        let durable = effects.iter().any(|e| matches!(e, Effect::Put(_, Durability::BeforeReply)));
        for effect in &effects {
            if let Effect::Reply(call, reply) | Effect::ReplyStored(call, reply) = effect {
                self.answered(*call, reply.http().status);
            }
        }
        for effect in effects {
            match effect {
                Effect::AwaitDisk(call) => self.awaiting.push(call),
                Effect::Put(document @ Document::Prompt(lineage), _) => {
                    // One that its change was left out of what is written is not there.
                    if let Some(bytes) = encode(document, &self.world.state) {
                        self.prompts.insert(lineage, bytes.unwrap());
                    }
                }
                Effect::Put(Document::Locks, _) => {
                    self.locks = encode(Document::Locks, &self.world.state).map(Result::unwrap);
                }
                Effect::Put(Document::Agents, Durability::Soon) if !durable && self.dice.below(3) == 0 => {
                    self.write();
                }
                Effect::Put(document @ Document::Usage, _) if self.dice.below(3) == 0 => {
                    self.ledger = Some(encode(document, &self.world.state).unwrap().unwrap());
                }
                Effect::Run(id, order) => self.order(id, order),
                Effect::Job(agents::Job::Brief { agent, .. }) => self.briefs.push(agent),
                Effect::StateChanged(changes) => {
                    for id in changes.removed {
                        self.model.remove(&id);
                    }
                    for id in changes.changed {
                        let agent = self.world.state.agents.get(id).expect("a changed record exists");
                        self.model.insert(id, serde_json::to_string(&agent.live_view()).unwrap());
                    }
                }
                _ => {}
            }
        }
        if durable {
            self.write();
        }
    }

    fn write(&mut self) {
        self.disk = Some(encode(Document::Agents, &self.world.state).unwrap().unwrap());
    }

    fn order(&mut self, id: AgentId, order: RunOrder) {
        match order {
            RunOrder::Start(start) => {
                assert!(!self.processes.contains_key(&id), "seed {}: {id} started twice", self.seed);
                self.processes.insert(id, Process::Ordered);
                let lineage = start.lineage;
                self.promised
                    .retain(|(l, text)| *l != lineage || !start.request.prompt.contains(text.as_str()));
            }
            RunOrder::Say { message_id, .. } => self.said.push((id, message_id)),
            RunOrder::Decide { .. } | RunOrder::Interrupt => {}
            RunOrder::Finish | RunOrder::Stop => {
                if let Some(process) = self.processes.get_mut(&id) {
                    *process = Process::Ending;
                }
            }
        }
    }

    fn taken(&mut self, id: AgentId, message_id: u64) {
        let Some(agent) = self.world.state.agents.get(id) else { return };
        let Some(message) = agent.queue.iter().find(|message| message.id == message_id) else { return };
        let (lineage, text) = (agent.lineage_id, message.text.to_string());
        self.promised.retain(|promise| *promise != (lineage, text.clone()));
    }

    /// The machine loses power: only what was written is there afterwards.
    fn power_cut(&mut self) {
        let Some(disk) = self.disk.clone() else { return };
        self.processes.clear();
        self.said.clear();
        self.briefs.clear();
        self.queries.clear();
        self.waiting.clear();
        self.awaiting.clear();
        self.instructed.clear();
        let stored: agents::Stored = serde_json::from_slice(&disk).unwrap();
        let now = self.world.now;
        let prompts = &self.prompts;
        let restored = agents::State::restore(
            stored,
            |lineage| {
                let bytes = prompts.get(&lineage).expect("a record's prompt was written before it");
                serde_json::from_slice::<agents::StoredPrompt>(bytes).unwrap().prompt
            },
            &std::collections::HashSet::new(),
            now,
        );
        let project = Arc::clone(&self.world.state.project);
        self.world.state = State { agents: Arc::new(restored), project, ..State::default() };
        if let Some(locks) = &self.locks {
            let stored = serde_json::from_slice(locks).unwrap();
            let state = &mut self.world.state;
            let timers = Arc::make_mut(&mut state.timers);
            state.coordination = Arc::new(coordination::State::restore(stored, &state.agents, timers));
        }
        let ledger = self.ledger.as_ref().map(|bytes| serde_json::from_slice(bytes).unwrap());
        usage::restore(&mut self.world.state, ledger.unwrap_or_default(), now);
        self.model = self
            .world
            .state
            .agents
            .iter()
            .map(|agent| (agent.id, serde_json::to_string(&agent.live_view()).unwrap()))
            .collect();
        for agent in self.world.state.agents.iter() {
            assert!(!agent.status.is_live(), "seed {}: {} lives after a power cut", self.seed, agent.name);
            self.fed.insert(agent.lineage_id, agent.tokens.total());
        }
    }

    /// A resource is never held twice; an ended agent holds nothing, unless the daemon ended under it.
    fn check_locks(&self) {
        let seed = self.seed;
        let mut held = BTreeSet::new();
        for (owner, operation) in self.world.state.coordination.iter() {
            for resource in &operation.resources {
                assert!(held.insert(resource.clone()), "seed {seed}: {resource} is held twice");
            }
            let coordination::Owner::Agent(lineage) = owner else { continue };
            let agent = self.world.state.agents.iter().find(|agent| agent.lineage_id == *lineage);
            let agent = agent.unwrap_or_else(|| panic!("seed {seed}: a removed agent holds a lock"));
            // One that ended by itself while its successor is prepared holds its locks for that one.
            let rotating = agents::rotation::under_way(&self.world.state, agent.id);
            let may_hold = agent.status.is_live() || agent.status == Status::Interrupted || rotating;
            assert!(may_hold, "seed {seed}: {} has ended and holds a lock", agent.name);
        }
    }

    /// Holds after every event.
    fn check(&self) {
        self.check_locks();
        let seed = self.seed;
        let agents = &self.world.state.agents;
        let mut names = BTreeSet::new();
        let mut lineages = BTreeSet::new();
        for agent in agents.iter() {
            let name = &agent.name;
            assert!(names.insert(name.clone()), "seed {seed}: two agents are named {name}");
            assert!(lineages.insert(agent.lineage_id), "seed {seed}: {name}'s lineage has two records");
            assert!(!agent.status_reason.to_string().is_empty(), "seed {seed}: {name} has no reason");
            let process = self.processes.contains_key(&agent.id);
            assert_eq!(agent.status.is_live(), process, "seed {seed}: {name} is {:?}", agent.status);
            let fed = self.fed.get(&agent.lineage_id).copied().unwrap_or_default();
            assert_eq!(agent.tokens.total(), fed, "seed {seed}: {name}'s tokens");
            let booked = self.world.state.usage.tokens_of(agent.lineage_id);
            assert_eq!(booked, fed, "seed {seed}: {name}'s account");
            // Whoever has nothing to do is let go: it either works, or is told to end, or was just spoken to.
            let idle = agent.phase == agents::Phase::Working && !agent.turn_open;
            let awaited = agent.queue.iter().any(|message| message.sent);
            // Or its successor is being prepared, and goes on with what there is.
            let rotating = agents::rotation::under_way(&self.world.state, agent.id);
            assert!(!idle || awaited || rotating, "seed {seed}: {name} waits for nothing");
            if agent.status == Status::Completed {
                assert!(agent.exit.is_some(), "seed {seed}: {name} completed without an exit");
            }
        }
        if self.dice.last().is_multiple_of(8) {
            self.check_ledger();
        }
        assert!(agents.live().count() <= 10, "seed {seed}: more than maxAgents live");
        for text in &self.refused {
            let is_kept = agents.iter().any(|agent| agent.queue.iter().any(|one| *one.text == **text));
            assert!(!is_kept, "seed {seed}: {text:?} was answered 503 and is in force");
        }
        for (lineage, text) in &self.promised {
            let Some(agent) = agents.iter().find(|agent| agent.lineage_id == *lineage) else { continue };
            let kept = agent.queue.iter().any(|message| *message.text == **text);
            assert!(kept, "seed {seed}: {} lost the acknowledged {text:?}", agent.name);
        }
    }

    /// The agents' tokens, the teams' and the total are the same.
    fn check_ledger(&self) {
        let sum = |rows: &serde_json::Value, field: &str| -> u64 {
            rows.as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).sum()
        };
        let summary = serde_json::json!(usage::report::summary(&self.world.state));
        let teams = usage::report::by_team(&self.world.state);
        let total = summary["totalUsed"].as_u64().unwrap();
        assert_eq!(sum(&summary["perAgent"], "used"), total, "seed {}: the agents' tokens", self.seed);
        assert_eq!(sum(&teams["teams"], "totalTokens"), total, "seed {}: the teams' tokens", self.seed);
    }

    /// Everything comes to rest: every call is answered and a follower knows what GET knows.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.pass(70_000);
            self.flush();
            if let Some((id, message_id)) = self.said.pop() {
                self.report(id, RunReport::Said { message_id, delivered: false });
            } else if !self.briefs.is_empty() || !self.queries.is_empty() {
                self.job();
            } else if let Some(id) = self.processes.keys().next().copied() {
                if self.processes[&id] == Process::Ordered {
                    self.processes.insert(id, Process::Runs);
                    self.report(id, RunReport::Started { pid: 9, start_ticks: 9 });
                }
                self.exit(id, Some(1));
            } else {
                break;
            }
            self.check();
        }
        self.settle_notices();
        assert!(self.waiting.is_empty(), "seed {}: unanswered {:?}", self.seed, self.waiting);
        let known: BTreeMap<AgentId, String> = self
            .world
            .state
            .agents
            .iter()
            .map(|agent| (agent.id, serde_json::to_string(&agent.live_view()).unwrap()))
            .collect();
        assert_eq!(
            self.model, known,
            "seed {}: a follower of state messages knows something else",
            self.seed
        );
    }

    fn settle_notices(&mut self) {
        let effects = self.world.apply(Event::Timer(svc::core::Timer::StateNotice));
        self.take(effects);
    }
}
