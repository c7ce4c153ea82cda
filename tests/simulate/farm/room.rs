//! Room on the machine: how much there is, what the daemon was told of it, and who waits for it, kept outside
//! of the daemon. Nobody goes on out of turn, without room, twice, or before the disk knows.

use super::accounts;
use super::disk::Disk;
use super::invariants::{Rule, ensure};
use super::machine::{Machine, Plant};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use svc::agents::{self, Agent, Status, queue::Priority};
use svc::core::ids::{AgentId, LineageId};
use svc::core::{CallId, Document, Event, State};
use svc::governor::{self, GUESS_BUILT_IN, GUESS_SCRIPTED, Report};
use svc::settings::Admit;
use svc::usage;
use svc_base::machine;

const MIB: u64 = 1 << 20;
/// The memory of the machine, and what is kept of it for its person.
const TOTAL: u64 = 4_096 * MIB;
const RESERVE: u64 = TOTAL / 16;
/// Each program holds what one of its kind is thought to hold before any was measured, so that the figures of
/// this file and those of the governor are the same.
const EACH: u64 = GUESS_SCRIPTED;
/// What one of this provider holds.
fn each(provider: &str) -> u64 {
    if provider == accounts::PROVIDER { GUESS_BUILT_IN } else { EACH }
}

/// The thread that looks does so this often while somebody waits for room.
const LOOKS_EACH_MS: u64 = 1_000;
/// All tasks wait for memory all of the time.
const PRESSED: u32 = 10_000;

/// Where somebody stands in the line. The least goes on first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    priority: Reverse<Priority>,
    arrival: u64,
    /// It was held at a limit, and goes on behind that.
    from_limit: bool,
}

/// The memory of the machine, and the line.
pub struct Room {
    free: u64,
    is_pressed: bool,
    /// It does not change any more.
    is_settled: bool,
    /// What the daemon was told since its start.
    told: Option<(u64, bool)>,
    /// Agents of which it was told what they hold: nothing is kept for these.
    counted: BTreeSet<AgentId>,
    line: BTreeMap<AgentId, Place>,
    /// Those that were let in, and whose process was not ordered yet.
    due: BTreeMap<AgentId, Place>,
    /// All that have come, and how many had before this event.
    arrivals: u64,
    earlier: u64,
    /// People who let somebody go on, and have no answer yet.
    asked: BTreeMap<CallId, AgentId>,
    /// Whose processes stand still.
    frozen: BTreeSet<AgentId>,
    /// The thread was told to look.
    pub is_to_look: bool,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            free: TOTAL,
            is_pressed: false,
            is_settled: false,
            told: None,
            counted: BTreeSet::new(),
            line: BTreeMap::new(),
            due: BTreeMap::new(),
            arrivals: 0,
            earlier: 0,
            asked: BTreeMap::new(),
            frozen: BTreeSet::new(),
            is_to_look: false,
        }
    }
}

impl Room {
    /// A call is answered.
    pub fn answered(&mut self, call: CallId) {
        self.asked.remove(&call);
    }

    /// A person lets somebody go on who waits for room.
    pub fn person_lets(&mut self, call: CallId, id: AgentId) {
        self.asked.insert(call, id);
    }

    /// Nobody else needs memory any more.
    pub fn opens(&mut self) {
        (self.free, self.is_pressed, self.is_settled) = (TOTAL, false, true);
    }

    /// The last of the line, where there are more than one.
    pub fn last_of_several(&self) -> Option<AgentId> {
        let last = self.line.iter().max_by_key(|(_, place)| **place);
        last.filter(|_| self.line.len() > 1).map(|(id, _)| *id)
    }

    /// A keeper is told whether its run is to stand still.
    pub fn freeze(&mut self, id: AgentId, is_on: bool) {
        if is_on {
            self.frozen.insert(id);
        } else {
            self.frozen.remove(&id);
        }
    }

    /// Whether its processes do.
    pub fn stands_still(&self, id: AgentId) -> bool {
        self.frozen.contains(&id)
    }

    /// The daemon has come back with this state: who waited waits, at the same place. Keepers without a
    /// daemon let everything go on.
    pub fn restarted(&mut self, state: &State, before: &State) {
        self.frozen.clear();
        (self.told, self.is_to_look) = (None, true);
        self.counted.clear();
        self.asked.clear();
        let mut known = std::mem::take(&mut self.line);
        // That these were let in may not have come to the disk.
        known.append(&mut self.due);
        let mut queued: Vec<&Arc<Agent>> = state.agents.live().filter(|agent| agent.is_queued()).collect();
        queued.sort_unstable_by_key(|agent| agent.place_in_queue().map(|(_, n)| n));
        for agent in queued {
            let mut place = known.remove(&agent.id).filter(|place| place.priority == Reverse(agent.priority));
            // The power went when the disk had it, and nobody was told yet: it comes now.
            if place.is_none() && before.agents.get(agent.id).is_none() {
                self.arrivals += 1;
                let priority = Reverse(agent.priority);
                place = Some(Place { priority, arrival: self.arrivals, from_limit: false });
            }
            let said = || format!("{} waits for room since a start, at another place or first", agent.name);
            ensure(Rule::QueuedOnce, place.is_some(), said);
            self.line.extend(place.map(|place| (agent.id, place)));
        }
    }
}

impl Machine {
    /// The thread that looks at the machine tells of it, and of what agents hold where `of_agents`.
    pub fn looks(&mut self, of_agents: bool) {
        if self.dice.below(5) == 0 && !self.room.is_settled {
            let is_tight = self.dice.below(3) == 0;
            let some = RESERVE + self.dice.below(6) * EACH + self.dice.below(EACH);
            self.room.free = if is_tight { some } else { TOTAL };
            self.room.is_pressed = self.dice.below(12) == 0;
        }
        let (free, is_pressed) = (self.room.free, self.room.is_pressed);
        let is_there = |id: &AgentId| self.core.state.agents.get(*id).is_some_and(|one| one.pid.is_some());
        let ids = self.programs.processes.keys().copied().filter(is_there);
        let held: Vec<(AgentId, u64)> = ids.map(|id| (id, self.each_of(id))).collect();
        if of_agents {
            self.room.is_to_look = false;
            self.room.counted.extend(held.iter().map(|(id, _)| *id));
        }
        self.room.told = Some((free, is_pressed));
        self.note(|| format!("* governor {} MB free, pressed: {is_pressed}", free / MIB));
        let invents = self.plant == Plant::InventsRoom;
        let machine = machine::Machine {
            memory_total: TOTAL,
            memory_free: if invents { TOTAL } else { free },
            memory_full: (is_pressed && !invents).then_some(PRESSED),
            cpus: 2,
            ..machine::Machine::default()
        };
        self.apply(Event::Governor(Report::Looked(Arc::new(machine), of_agents.then_some(held))));
        self.check_nobody_waits();
        self.check_one_goes_on();
    }

    /// Who stands still is shown so, and never all of those at work.
    fn check_one_goes_on(&self) {
        let state = &self.core.state;
        let is_at_work = |agent: &&Arc<Agent>| agent.turn_open && agent.status == Status::Running;
        let (mut still, mut moving) = (0, 0);
        for agent in state.agents.live().filter(is_at_work).filter(|agent| agent.has_process()) {
            let is_still = self.room.stands_still(agent.id);
            let said = || format!("{} stands still: {is_still}, and is shown otherwise", agent.name);
            ensure(Rule::OneGoesOn, is_still == agent.stands_still(), said);
            *(if is_still { &mut still } else { &mut moving }) += 1;
        }
        ensure(Rule::OneGoesOn, still == 0 || moving > 0, || format!("all {still} at work stand still"));
    }

    /// So much time has passed for the thread that looks.
    pub fn may_look(&mut self, millis: u64) {
        if let Some(id) = self.room.last_of_several().filter(|_| self.plant == Plant::JumpsQueue) {
            let path = format!("/api/agents/{id}/resume");
            self.asks_for("POST", &path, &Value::Null, super::promises::Claim::Change);
        }
        let is_awaited = self.room.is_to_look || !self.room.line.is_empty();
        if is_awaited && (millis >= LOOKS_EACH_MS || self.dice.below(2) == 0) {
            self.looks(true);
        }
    }

    fn each_of(&self, id: AgentId) -> u64 {
        each(self.core.state.agents.get(id).map_or("", |agent| &agent.provider))
    }

    /// Whether one more program of this provider fits, by what the daemon was told and has ordered since.
    fn fits(&self, provider: &str) -> bool {
        let Some((free, is_pressed)) = self.room.told else { return true };
        let goes_on =
            |agent: &&Arc<Agent>| agent.has_no_run() && agent.held.as_ref().is_some_and(|held| held.is_due);
        let held = self.core.state.agents.live().filter(goes_on).map(|agent| agent.id);
        let processes = &self.programs.processes;
        let new = processes.keys().copied().filter(|id| !self.room.counted.contains(id));
        let coming: Vec<AgentId> = new.chain(self.room.due.keys().copied()).chain(held).collect();
        let needed = coming.iter().map(|id| self.each_of(*id)).sum::<u64>() + RESERVE + each(provider);
        (processes.is_empty() && coming.is_empty()) || (!is_pressed && free >= needed)
    }

    /// Who has come to the line in this event, and who was let in.
    pub fn check_line(&mut self, before: &State) {
        self.room.earlier = self.room.arrivals;
        if Arc::ptr_eq(&before.agents, &self.core.state.agents) {
            return;
        }
        let state = self.core.state.clone();
        let lives = |id: &AgentId| state.agents.get(*id).is_some_and(|agent| agent.status.is_live());
        self.room.due.retain(|id, _| lives(id));
        let waits = |id: &AgentId| state.agents.get(*id).is_some_and(|agent| agent.is_queued());
        let mut gone: Vec<(AgentId, Place)> =
            self.room.line.iter().filter(|(id, _)| !waits(id)).map(|(id, place)| (*id, *place)).collect();
        gone.sort_unstable_by_key(|(_, place)| *place);
        for (id, place) in gone {
            self.room.line.remove(&id);
            // Others have ended.
            if let Some(agent) = state.agents.get(id).filter(|agent| agent.status.is_live()) {
                self.let_in(&state, agent, place);
            }
        }
        let queued = state.agents.live().filter(|agent| agent.is_queued());
        let mut new: Vec<&Arc<Agent>> =
            queued.filter(|agent| !self.room.line.contains_key(&agent.id)).collect();
        new.sort_unstable_by_key(|agent| agent.place_in_queue().map(|(_, n)| n));
        for agent in new {
            self.room.arrivals += 1;
            let was = before.agents.get(agent.id).and_then(|agent| agent.held.as_ref());
            let from_limit = was.is_some_and(|held| held.is_due);
            let (priority, arrival) = (Reverse(agent.priority), self.room.arrivals);
            self.room.line.insert(agent.id, Place { priority, arrival, from_limit });
            self.seen.count("agents that waited for room");
        }
    }

    fn let_in(&mut self, state: &State, agent: &Agent, place: Place) {
        let by_person = self.room.asked.values().any(|id| *id == agent.id);
        let name = &agent.name;
        if !by_person {
            let is_first = self.room.line.values().all(|other| *other > place);
            ensure(Rule::QueueInTurn, is_first, || format!("{name} goes on, and others wait before it"));
            ensure(Rule::RoomFirst, self.fits(&agent.provider) || admits_all(state), || self.full(name));
        }
        let (now, budget) = (self.core.now, state.settings.config().safety.daily_budget_usd);
        let used = state.usage.today_usd(now);
        let said = || format!("{name} goes on from the line, with {used} of {budget:?} used");
        ensure(Rule::Budget, budget.is_none_or(|budget| used < budget), said);
        self.room.due.insert(agent.id, place);
        self.seen.count("agents let in from the line");
    }

    fn full(&self, name: &str) -> String {
        let (running, told) = (self.programs.processes.len(), self.room.told);
        let free = told.map(|(free, is_pressed)| (free / MIB, is_pressed));
        format!("{name} is let in beside {running} others, with {free:?} free and pressed")
    }

    /// A process is ordered: after its turn, or with room where nobody waits. Whether its agent was held at a
    /// limit and has waited behind that; `None` where it has not waited.
    pub fn check_room(&mut self, before: &State, id: AgentId, lineage: LineageId) -> Option<bool> {
        if let Some(place) = self.room.due.remove(&id) {
            let said = || format!("{id} goes on from the line, of which the disk knows nothing");
            ensure(Rule::QueuedOnce, is_due_on(&self.disk, id), said);
            return Some(place.from_limit);
        }
        let is_waiting = self.room.line.contains_key(&id);
        ensure(Rule::QueuedOnce, !is_waiting, || format!("{id} is started while it waits, or again"));
        let known = before.agents.by_lineage(lineage);
        let rotates = known.is_some_and(|agent| agents::rotation::under_way(before, agent.id));
        let agent = self.core.state.agents.get(id)?;
        if rotates || self.starts.is_again(id) || admits_all(&self.core.state) {
            return None;
        }
        let (name, own) = (&agent.name, Reverse(agent.priority));
        let mut line = self.room.line.values().filter(|place| place.arrival <= self.room.earlier);
        let is_ahead = line.any(|place| place.priority <= own);
        ensure(Rule::QueueInTurn, !is_ahead, || format!("{name} passes those that wait for room"));
        ensure(Rule::RoomFirst, self.fits(&agent.provider), || self.full(name));
        None
    }

    /// The daemon knows what the machine has left: whoever it has room for does not wait.
    fn check_nobody_waits(&self) {
        let (state, now) = (&self.core.state, self.core.now);
        let is_held_up = state.health.writable().is_err() || usage::check_budget(state, now).is_err();
        let Some((id, _)) = self.room.line.iter().min_by_key(|(_, place)| **place) else { return };
        let Some(agent) = state.agents.get(*id).filter(|_| !is_held_up) else { return };
        let room = governor::room(state, now, &agent.provider, &agent.role);
        ensure(Rule::RoomFirst, room.is_err(), || format!("{} waits, and there is room", agent.name));
    }
}

fn admits_all(state: &State) -> bool {
    state.settings.config().governor.admit == Admit::Off
}

fn is_due_on(disk: &Disk, id: AgentId) -> bool {
    let stored =
        disk.files.get(&Document::Agents).and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let records = stored.as_ref().and_then(|stored| stored["agents"].as_array());
    let record = records.and_then(|records| records.iter().find(|record| record["id"] == json!(id)));
    // Somebody's word that ends it may have come to the disk behind that it goes on: it is started, and
    // ended.
    record.is_some_and(|record| record["queued"]["isDue"] == true || record["status"] == "killed")
}
