//! Simulation of planned teams and schedules: seeded random clients, agents, naps and power cuts on a virtual
//! clock. After every event the promises are checked; a broken one prints its seed. Each checker is shown to
//! fail on a bug that is planted for it.

mod bugs;
mod promises;
use crate::support::dice::Dice;
use crate::support::world::{World, activity, output};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use svc::agents::report::{Keeper, RunReport};
use svc::agents::{self, JobReport, RunOrder, Status};
use svc::assembly::documents::encode;
use svc::core::ids::{AgentId, LineageId, PlanId, ScheduleId};
use svc::core::time::Time;
use svc::core::{CallId, Document, Durability, Effect, Event, State, Timer};
use svc::programs::registry::Detection;
use svc::providers::Activity;
use svc::schedules::{self, MAX_HISTORY};
use svc::teams::phases::{MAX_PLANS, MAX_RESTARTS, Member, Outcome, Phase, Plan};
use svc::{teams, usage};

/// Seeds of a usual run; `SVC_SEEDS=2000` searches longer.
const SEEDS: u64 = 60;
/// Seeds within which a planted bug must be found.
const PLANTED_SEEDS: u64 = 60;
const EVENTS: usize = 400;
const MINUTE_MS: u64 = 60_000;
/// Times that came due and are looked for in the history.
const LOOKED_FOR: usize = 10;

/// A bug, planted to show that its checker can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    Nothing,
    /// A member's lineage is forgotten.
    ForgetMember,
    /// The count of a member's restarts begins anew.
    ForgetRestarts,
    /// A member counts as completed while it works.
    CompleteEarly,
    /// What agents write is not recorded.
    LoseChanges,
    /// A plan goes.
    LosePlan,
    /// Ends of processes are not reported.
    LoseExits,
    /// The used minute is forgotten with the daemon.
    ForgetMark,
    /// Whom a schedule has started is forgotten.
    ForgetStarted,
    /// A schedule's timer goes.
    LoseTimer,
    /// The last entry of a history goes.
    LoseHistory,
}

#[test]
fn issue_6_plans_and_schedules_keep_their_promises() {
    let seeds = std::env::var("SVC_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let mut seen = Seen::default();
    for seed in 0..seeds {
        let mut simulation = Simulation::new(seed, Plant::Nothing);
        simulation.run();
        seen.runs += simulation.times.len();
        seen.restarts += simulation.restarts.len();
        seen.later += simulation.later;
        seen.done += simulation.done;
    }
    // What never happens is not tested.
    let least = [seen.runs, seen.restarts, seen.later, seen.done].into_iter().min().unwrap();
    assert!(least > 20, "the simulation has become poor: {seen:?}");
}

/// How often the interesting things happened.
#[derive(Debug, Default)]
struct Seen {
    /// Timed runs of schedules.
    runs: usize,
    /// Members that were started again after a crash.
    restarts: usize,
    /// Members of later phases that were started.
    later: usize,
    /// Plans that were done at the end.
    done: usize,
}

/// The planted bug must be found, in these words.
fn finds(plant: Plant, words: &str) {
    for seed in 0..PLANTED_SEEDS {
        let found = std::panic::catch_unwind(|| Simulation::new(seed, plant).run());
        let Err(found) = found else { continue };
        let text = found.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(text.contains(words), "{plant:?} was found otherwise: {text}");
        return;
    }
    panic!("{PLANTED_SEEDS} seeds have not found {plant:?}");
}

#[test]
fn the_checker_of_members_started_once_can_fail() {
    finds(Plant::ForgetMember, "was started twice");
}

#[test]
fn the_checker_of_restarts_can_fail() {
    finds(Plant::ForgetRestarts, "was restarted too often");
}

#[test]
fn the_checker_of_phases_in_order_can_fail() {
    finds(Plant::CompleteEarly, "has not completed");
}

#[test]
fn the_checker_of_changed_files_can_fail() {
    finds(Plant::LoseChanges, "is not told of");
}

#[test]
fn the_checker_of_plans_that_survive_can_fail() {
    finds(Plant::LosePlan, "is lost");
}

#[test]
fn the_checker_of_plans_that_go_on_can_fail() {
    finds(Plant::LoseExits, "stands still");
}

#[test]
fn the_checker_of_one_run_a_minute_can_fail() {
    finds(Plant::ForgetMark, " twice");
}

#[test]
fn the_checker_of_agents_at_once_can_fail() {
    finds(Plant::ForgetStarted, "more than maxConcurrent");
}

#[test]
fn the_checker_of_next_times_can_fail() {
    finds(Plant::LoseTimer, "waits for nothing");
}

#[test]
fn the_checker_of_histories_can_fail() {
    finds(Plant::LoseHistory, "nobody knows what became of");
}

/// What a simulated process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Ordered,
    Runs,
    /// It was asked to end by itself.
    Finishing,
    /// It is being killed.
    Stopping,
}

struct Simulation {
    world: World,
    dice: Dice,
    seed: u64,
    plant: Plant,
    processes: BTreeMap<AgentId, Process>,
    said: Vec<(AgentId, u64)>,
    briefs: Vec<AgentId>,
    replies: BTreeMap<CallId, (u16, Value)>,
    /// Of what state each document was written, which is encoded when it is read.
    disk: BTreeMap<Document, Arc<State>>,
    /// Documents that are on their way to the disk.
    dirty: BTreeSet<Document>,
    /// The lineage whose process has just crashed.
    crashed: Option<LineageId>,
    /// What is true of lineages, whatever the plans believe.
    completed: BTreeSet<LineageId>,
    deleted: BTreeSet<LineageId>,
    begun: BTreeSet<LineageId>,
    restarts: BTreeMap<LineageId, u32>,
    written: BTreeMap<LineageId, BTreeSet<String>>,
    /// Lineages by the mark in their task.
    marks: BTreeMap<String, BTreeSet<LineageId>>,
    /// What was acknowledged.
    plans: BTreeSet<PlanId>,
    schedules: BTreeSet<ScheduleId>,
    /// When a schedule's time was noticed last.
    noticed: BTreeMap<ScheduleId, Time>,
    /// Times for which, and minutes in which they were noticed, a schedule has really started an agent.
    times: BTreeSet<(ScheduleId, Time)>,
    minutes: BTreeSet<(ScheduleId, u64)>,
    /// Times that have come.
    came: BTreeMap<ScheduleId, Vec<Time>>,
    /// As in [`Seen`].
    later: usize,
    done: usize,
    serial: u64,
}

impl Simulation {
    fn new(seed: u64, plant: Plant) -> Self {
        Self {
            world: World::new(),
            dice: Dice::seeded(seed),
            seed,
            plant,
            processes: BTreeMap::new(),
            said: Vec::new(),
            briefs: Vec::new(),
            replies: BTreeMap::new(),
            disk: BTreeMap::new(),
            dirty: BTreeSet::new(),
            crashed: None,
            completed: BTreeSet::new(),
            deleted: BTreeSet::new(),
            begun: BTreeSet::new(),
            restarts: BTreeMap::new(),
            written: BTreeMap::new(),
            marks: BTreeMap::new(),
            plans: BTreeSet::new(),
            schedules: BTreeSet::new(),
            noticed: BTreeMap::new(),
            times: BTreeSet::new(),
            minutes: BTreeSet::new(),
            came: BTreeMap::new(),
            later: 0,
            done: 0,
            serial: 0,
        }
    }

    fn run(&mut self) {
        self.boot();
        for _ in 0..EVENTS {
            match self.dice.below(100) {
                0..=19 => self.client(),
                20..=79 => self.process(),
                80..=93 => {
                    let millis = self.dice.below(70_000);
                    self.pass(millis);
                }
                94..=95 => self.brief(),
                // The machine sleeps: what was due is noticed late.
                96..=97 => {
                    let nap = Duration::from_millis(self.dice.below(900_000));
                    self.world.now = self.world.now + nap;
                    self.pass(0);
                }
                98 if self.dice.below(2) == 0 => self.power_cut(),
                _ => {}
            }
        }
        self.settle();
    }

    fn boot(&mut self) {
        self.apply(Event::Detected(vec![Detection::installed("script", "1")]));
    }

    /// Applies an event, obeys its orders, and looks whether all is well. Now and then the machine loses
    /// power before anything of it is on disk.
    fn apply(&mut self, event: Event) {
        let (came, starts) = match &event {
            Event::Timer(Timer::ScheduleDue(id)) => (self.schedule(*id).and_then(|s| s.next_run), None),
            Event::Timer(Timer::ScheduleStart(id)) => (None, self.schedule(*id).and_then(|s| s.due)),
            _ => (None, None),
        };
        let id = match &event {
            Event::Timer(Timer::ScheduleDue(id) | Timer::ScheduleStart(id)) => Some(*id),
            _ => None,
        };
        let effects = self.world.apply(event);
        if let (Some(id), Some(at)) = (id, starts) {
            self.check_run(id, at, &effects);
        }
        if self.dice.below(500) == 0 {
            return self.power_cut();
        }
        if let (Some(id), Some(at)) = (id, came) {
            self.came.entry(id).or_default().push(at);
            self.noticed.insert(id, self.world.now);
        }
        let done = self.world.state.agents.iter().filter(|agent| agent.status == Status::Completed);
        self.completed.extend(done.map(|agent| agent.lineage_id));
        self.take(effects);
        self.crashed = None;
        self.bug();
        self.check();
    }

    fn schedule(&self, id: ScheduleId) -> Option<&schedules::Schedule> {
        self.world.state.schedules.iter().find(|schedule| schedule.id == id).map(Arc::as_ref)
    }

    fn pass(&mut self, millis: u64) {
        let until = self.world.now + Duration::from_millis(millis);
        while self.world.state.timers.next().is_some_and(|(at, _)| at <= until) {
            let (at, _) = self.world.state.timers.next().unwrap();
            self.world.now = self.world.now.max(at);
            let now = self.world.now;
            let timer = Arc::make_mut(&mut self.world.state.timers).take_due(now).unwrap();
            self.apply(Event::Timer(timer));
        }
        self.world.now = self.world.now.max(until);
    }

    /// Sends a request; status and body, where they came at once.
    fn call(&mut self, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let command = self.world.handle(method, path, &body).err()?;
        let (call, event) = self.world.call(command);
        self.apply(event);
        self.replies.remove(&call)
    }

    fn client(&mut self) {
        let agents: Vec<(AgentId, LineageId)> =
            self.world.state.agents.iter().map(|agent| (agent.id, agent.lineage_id)).collect();
        let schedules: Vec<ScheduleId> = self.schedules.iter().copied().collect();
        let what = self.dice.below(14);
        if (3..=6).contains(&what) {
            let Some((id, lineage)) = self.dice.pick(&agents) else { return };
            match what {
                3 => {
                    self.deleted.insert(lineage);
                    self.call("DELETE", &format!("/api/agents/{id}"), &Value::Null);
                }
                4 => drop(self.call("POST", &format!("/api/agents/{id}/rotate"), &Value::Null)),
                _ => drop(self.call("POST", &format!("/api/agents/{id}/resume"), &Value::Null)),
            }
            return;
        }
        if what < 3 {
            return self.launch();
        }
        let Some(id) = self.dice.pick(&schedules).filter(|_| what > 8) else { return self.create_schedule() };
        match what {
            9 => {
                let wish = self.wish();
                self.call("PATCH", &format!("/api/schedules/{id}"), &wish);
            }
            10 => drop(self.call("POST", &format!("/api/schedules/{id}/run"), &Value::Null)),
            11 => drop(self.call("POST", &format!("/api/schedules/{id}/disable"), &Value::Null)),
            12 => drop(self.call("POST", &format!("/api/schedules/{id}/enable"), &Value::Null)),
            _ if self.dice.below(3) == 0 => {
                // Whether or not its answer comes: it is not looked for any more.
                self.schedules.remove(&id);
                self.came.remove(&id);
                self.call("DELETE", &format!("/api/schedules/{id}"), &Value::Null);
            }
            _ => {}
        }
    }

    fn launch(&mut self) {
        self.serial += 1;
        let (count, phases) = (1 + self.dice.below(4), 1 + self.dice.below(3));
        let mut agents = Vec::new();
        for member in 0..count {
            let phase = 1 + self.dice.below(phases);
            let prompt = format!("[L{}-{member}] build", self.serial);
            agents.push(json!({"role": "dev", "provider": "script", "phase": phase, "prompt": prompt}));
        }
        let answer = self.call("POST", "/api/recommended-team/launch", &json!({"agents": agents}));
        if let Some((200, body)) = answer {
            self.plans.insert(body["planId"].as_str().unwrap().parse().unwrap());
        }
    }

    fn wish(&mut self) -> Value {
        let cron = self.dice.pick(&["* * * * *", "*/2 * * * *", "*/5 * * * *", "1-59/7 * * * *"]).unwrap();
        let catch_up = self.dice.pick(&["skip", "once"]).unwrap();
        json!({"cron": cron, "catchUp": catch_up, "maxConcurrent": 1 + self.dice.below(2)})
    }

    fn create_schedule(&mut self) {
        if self.schedules.len() >= 4 {
            return;
        }
        self.serial += 1;
        let mut wish = self.wish();
        let prompt = format!("[S{}] tick", self.serial);
        wish["agent"] = json!({"role": "dev", "provider": "script", "prompt": prompt});
        if let Some((201, body)) = self.call("POST", "/api/schedules", &wish) {
            self.schedules.insert(body["id"].as_str().unwrap().parse().unwrap());
        }
    }

    /// Some process does something.
    fn process(&mut self) {
        if let Some((id, message_id)) = self.said.pop() {
            let delivered = self.processes.get(&id) == Some(&Process::Runs);
            return self.report(id, RunReport::Said { message_id, delivered });
        }
        let ids: Vec<AgentId> = self.processes.keys().copied().collect();
        let Some(id) = self.dice.pick(&ids) else { return };
        match (self.processes[&id], self.dice.below(12)) {
            (Process::Ordered, 0) => {
                self.processes.remove(&id);
                self.report(id, RunReport::StartFailed { error: "no such program".into() });
            }
            (Process::Runs, 0..=3) => {
                self.serial += 1;
                let path = format!("src/f{}.rs", self.serial);
                self.writes(id, &path);
            }
            (Process::Runs, 4 | 5) => self.exit(id, Some(1), None),
            (Process::Runs, 6) => self.report(id, output(vec![activity("says", "hm")])),
            _ => self.goes_on(id),
        }
    }

    /// The next step of a process that does well.
    fn goes_on(&mut self, id: AgentId) {
        match self.processes[&id] {
            Process::Ordered => {
                self.processes.insert(id, Process::Runs);
                self.report(id, RunReport::Started { pid: id.0 | 1, start_ticks: 7 });
            }
            Process::Runs => self.report(id, output(vec![activity("ends-turn", "ok")])),
            Process::Finishing => self.exit(id, Some(0), None),
            Process::Stopping => self.exit(id, None, Some(15)),
        }
    }

    fn writes(&mut self, id: AgentId, path: &str) {
        let Some(agent) = self.world.state.agents.get(id) else { return };
        self.written.entry(agent.lineage_id).or_default().insert(path.to_owned());
        let what = if self.plant == Plant::LoseChanges { "says" } else { "writes" };
        // A write counts when its tool's own result says that it was one.
        let done = Activity::ToolEnded { id: "t1".into(), error: false, output: String::new() };
        let told =
            if what == "writes" { vec![activity(what, path), done] } else { vec![activity(what, path)] };
        self.report(id, output(told));
    }

    fn exit(&mut self, id: AgentId, code: Option<i32>, signal: Option<i32>) {
        self.processes.remove(&id);
        self.said.retain(|(agent, _)| *agent != id);
        if self.plant == Plant::LoseExits {
            return;
        }
        if code == Some(1) {
            self.crashed = self.world.state.agents.get(id).map(|agent| agent.lineage_id);
        }
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

    fn report(&mut self, id: AgentId, report: RunReport) {
        self.apply(Event::Run(id, report));
    }

    fn brief(&mut self) {
        if let Some(id) = self.briefs.pop() {
            self.apply(Event::Job(JobReport::Brief(id, Ok("# brief".to_owned()))));
        }
    }

    /// Obeys the orders, and writes: at once what must be on disk before an answer, the rest a little later.
    fn take(&mut self, effects: Vec<Effect>) {
        let mut durable = false;
        let (mut awaited, mut calls) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::WhenStored(timer) => awaited.push(timer),
                Effect::AwaitDisk(call) => calls.push(call),
                Effect::Put(document, durability) => {
                    durable |= durability == Durability::BeforeReply;
                    self.dirty.insert(document);
                }
                Effect::Reply(call, reply) | Effect::ReplyStored(call, reply) => {
                    let reply = reply.http();
                    let body = serde_json::from_slice(reply.body.bytes()).unwrap_or_default();
                    self.replies.insert(call, (reply.status, body));
                }
                Effect::Run(id, order) => self.order(id, order),
                Effect::Job(agents::Job::Brief { agent, .. }) => self.briefs.push(agent),
                _ => {}
            }
        }
        if durable || !awaited.is_empty() || self.dice.below(3) == 0 {
            for document in std::mem::take(&mut self.dirty) {
                self.disk.extend(self.world.written(document).map(|state| (document, state)));
            }
        }
        for timer in awaited {
            self.apply(Event::Timer(timer));
        }
        for call in calls {
            self.apply(Event::OnDisk(call, Ok(())));
        }
    }

    fn order(&mut self, id: AgentId, order: RunOrder) {
        match order {
            RunOrder::Start(start) => {
                let before = self.processes.insert(id, Process::Ordered);
                assert!(before.is_none(), "seed {}: {id} has two processes", self.seed);
                self.check_start(id, start.lineage, &start.request.prompt);
            }
            RunOrder::Say { message_id, .. } => self.said.push((id, message_id)),
            RunOrder::Decide { .. } | RunOrder::Interrupt | RunOrder::Settings => {}
            RunOrder::Finish => {
                self.processes.insert(id, Process::Finishing);
            }
            RunOrder::Stop => {
                self.processes.insert(id, Process::Stopping);
            }
        }
    }

    /// The machine loses power, and is switched on again after a while.
    fn power_cut(&mut self) {
        self.processes.clear();
        self.said.clear();
        self.briefs.clear();
        self.replies.clear();
        self.dirty.clear();
        self.crashed = None;
        // What was written since the last save may be forgotten.
        self.written.clear();
        self.world.now = self.world.now + Duration::from_millis(self.dice.below(200_000));
        let now = self.world.now;
        let stored: agents::Stored = self.read(Document::Agents);
        let prompt = |lineage| {
            let stored: Option<agents::StoredPrompt> = self.written(Document::Prompt(lineage));
            stored.expect("a record's prompt was written before it").prompt
        };
        let agents = Arc::new(agents::State::restore(stored, prompt, &std::collections::HashSet::new(), now));
        let teams = Arc::new(teams::State::restore(self.read(Document::Teams), now));
        let schedules = Arc::new(schedules::State::restore(self.read(Document::Schedules)));
        let project = Arc::clone(&self.world.state.project);
        self.world.state = State { agents, teams, schedules, project, ..State::default() };
        usage::restore(&mut self.world.state, usage::Stored::default(), now);
        if self.plant == Plant::ForgetMark {
            self.forget_marks();
        }
        self.boot();
    }

    fn written<T: serde::de::DeserializeOwned>(&self, document: Document) -> Option<T> {
        let bytes = encode(document, self.disk.get(&document)?).unwrap().unwrap();
        Some(serde_json::from_slice(&bytes).unwrap())
    }

    fn read<T: serde::de::DeserializeOwned + Default>(&self, document: Document) -> T {
        self.written(document).unwrap_or_default()
    }
}
