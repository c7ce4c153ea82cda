//! The thread that looks at the machine and at what agents hold, while there are agents; else it sleeps.

use super::{MIB, Report};
use crate::assembly::host::Core;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Event, State as All};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_base::machine::Machine;
use svc_sys::pressure;
use svc_sys::process::{Identity, Tree};
use svc_sys::threads::Thread;

/// Between two looks while somebody waits for room, or memory is short.
const URGENT: Duration = Duration::from_secs(1);
/// While an agent is inside of a turn.
const WORKING: Duration = Duration::from_secs(3);
/// While all agents are idle.
const IDLE: Duration = Duration::from_secs(10);
/// Whoever asks more often than this waits so long: fifty that start at once are one look.
const LEAST: Duration = Duration::from_millis(50);
/// What was seen of the machine is good for so long when somebody is to be started.
pub const FRESH: Duration = Duration::from_secs(2);
/// Memory is short when less than this part of it is free.
const SHORT_PART: u64 = 8;
/// The core is told of changes of an agent above this, or above a tenth.
const CHANGE: u64 = 8 * MIB;
/// The same of the machine's free memory, as a part of all of it.
const CHANGE_PART: u64 = 20;
/// The same of pressure, in hundredths of a percent.
const CHANGE_PRESSURE: u32 = 5_00;

/// The core has taken in by then what was seen; others are not held up for longer.
const TAKES_IN: Duration = Duration::from_secs(1);

/// An order to the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Something is another than it was: look now, and tell.
    Look,
    /// The core has taken in what was seen alone, and published what came of it.
    TakenIn,
}

/// The other daemons of this user, as whoever lets agents in needs them.
pub trait Fellows: Send {
    /// Has the core know what they have told; where that `is_asked`, also that it is what it knows.
    fn hear(&mut self, core: &Core, is_asked: bool);
    /// Tells them what this daemon needs.
    fn tell(&mut self, core: &Core);
    /// Waits until none of them lets anybody in, and none does before what is given is dropped; `None` where
    /// one takes too long.
    fn alone(&mut self) -> Option<Box<dyn Any>>;
}

/// The running thread; it ends when this is dropped.
pub struct Watch {
    orders: Sender<Order>,
    taken_in: Sender<()>,
    _thread: Thread,
}

impl Watch {
    /// Starts the thread; it looks at once.
    ///
    /// Errors: no thread.
    pub fn start(core: Core, fellows: Box<dyn Fellows>) -> io::Result<Self> {
        let (orders, incoming) = bounded(1);
        let (taken_in, was_taken_in) = bounded(1);
        let thread = Thread::spawn("governor", move || {
            let mut memory = Memory::new(fellows, was_taken_in);
            watch(&core, &incoming, &mut memory);
        })?;
        Ok(Self { orders, taken_in, _thread: thread })
    }

    /// Gives an order; one that waits already stands for this one, too.
    pub fn order(&self, order: Order) {
        let _ = match order {
            Order::Look => self.orders.try_send(order).is_ok(),
            Order::TakenIn => self.taken_in.try_send(()).is_ok(),
        };
    }
}

/// Has the core know what the machine has left, if that is to be decided by and is not known freshly: before
/// somebody's wish for an agent.
pub fn look_before(core: &Core, state: &All, now: Time) {
    if now.since(state.governor.looked_at()) > FRESH {
        core.control(Event::Governor(Report::Looked(Arc::new(pressure::look()), None)));
    }
}

/// What was seen last of an agent.
struct Seen {
    leader: Identity,
    /// See [`Tree::held_at_most`].
    at_most: u64,
    /// See [`Tree::held`], of when `at_most` was about the same.
    held: u64,
    /// What the core was told.
    told: Option<u64>,
}

/// What was seen, and what the core knows of it.
struct Memory {
    agents: HashMap<AgentId, Seen>,
    told: Option<Arc<Machine>>,
    fellows: Box<dyn Fellows>,
    was_taken_in: Receiver<()>,
}

fn watch(core: &Core, orders: &Receiver<Order>, memory: &mut Memory) {
    let mut is_asked = true;
    loop {
        let began = Instant::now();
        let next = memory.look(core, is_asked);
        let order = match next {
            Some(interval) => orders.recv_timeout(interval),
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        is_asked = match order {
            Ok(_) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let rest = LEAST.saturating_sub(began.elapsed());
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
}

impl Memory {
    fn new(fellows: Box<dyn Fellows>, was_taken_in: Receiver<()>) -> Self {
        Self { agents: HashMap::new(), told: None, fellows, was_taken_in }
    }

    /// Looks once; when to look again, `None` when there is nothing to look at.
    fn look(&mut self, core: &Core, is_asked: bool) -> Option<Duration> {
        let state = core.snapshot();
        let is_awaited = state.agents.live().any(|agent| agent.is_queued());
        let mut in_turn = false;
        let mut alive: Vec<(AgentId, Identity)> = Vec::new();
        for agent in state.agents.live().filter(|agent| agent.has_process()) {
            in_turn |= agent.turn_open;
            let start_ticks = agent.start_ticks;
            alive.extend(agent.pid.map(|pid| (agent.id, Identity { pid, start_ticks })));
        }
        self.agents.retain(|id, seen| alive.contains(&(*id, seen.leader)));
        if alive.is_empty() && !is_awaited && !is_asked {
            return None;
        }
        // Others let nobody in while this one may.
        let alone = if is_awaited { self.fellows.alone() } else { None };
        self.fellows.hear(core, is_asked);
        let machine = Arc::new(pressure::look());
        for (id, leader) in &alive {
            self.look_at(*id, *leader);
        }
        // How long it has been short counts, and not only that it is.
        let mut live = state.agents.live();
        let gives_back = if state.governor.is_short() {
            in_turn || live.any(|agent| agent.may_be_put_away())
        } else {
            live.any(|agent| agent.is_frozen())
        };
        if is_asked || is_awaited || gives_back || self.has_news(&machine) {
            self.tell(core, &machine, alone.is_some());
        }
        self.fellows.tell(core);
        drop(alone);
        let some = machine.memory_some.unwrap_or(0);
        let is_short = machine.memory_free < machine.memory_total / SHORT_PART || some >= CHANGE_PRESSURE;
        match () {
            () if alive.is_empty() && !is_awaited => None,
            () if is_awaited || is_short || gives_back => Some(URGENT),
            () if in_turn => Some(WORKING),
            () => Some(IDLE),
        }
    }

    fn look_at(&mut self, id: AgentId, leader: Identity) {
        // One that has just ended holds nothing; its end is told by others.
        let Some(tree) = Tree::around(leader) else { return };
        let at_most = tree.held_at_most();
        let seen = self.agents.entry(id).or_insert(Seen { leader, at_most: 0, held: 0, told: None });
        if differs(at_most, seen.at_most, CHANGE / 2) {
            // Walking all pages is for what has changed.
            seen.held = tree.held();
            seen.at_most = at_most;
        }
    }

    fn has_news(&self, machine: &Machine) -> bool {
        let Some(told) = &self.told else { return true };
        let pressure =
            |was: Option<u32>, is: Option<u32>| was.unwrap_or(0).abs_diff(is.unwrap_or(0)) >= CHANGE_PRESSURE;
        machine.memory_free.abs_diff(told.memory_free) > machine.memory_total / CHANGE_PART
            || pressure(told.memory_full, machine.memory_full)
            || pressure(told.memory_some, machine.memory_some)
            || self.agents.values().any(|seen| seen.told.is_none_or(|told| differs(seen.held, told, CHANGE)))
    }

    fn tell(&mut self, core: &Core, machine: &Arc<Machine>, is_alone: bool) {
        let mut agents: Vec<(AgentId, u64)> = Vec::with_capacity(self.agents.len());
        for (id, seen) in &mut self.agents {
            seen.told = Some(seen.held);
            agents.push((*id, seen.held));
        }
        self.told = Some(Arc::clone(machine));
        let machine = Arc::clone(machine);
        if !is_alone {
            return core.report(Event::Governor(Report::Looked(machine, Some(agents))));
        }
        let _ = self.was_taken_in.try_recv();
        core.report(Event::Governor(Report::LookedAlone(machine, Some(agents))));
        // Whom it has let in is told before any other looks.
        let _ = self.was_taken_in.recv_timeout(TAKES_IN);
    }
}

/// Whether two figures are further apart than this, or than a tenth.
fn differs(one: u64, other: u64, least: u64) -> bool {
    one.abs_diff(other) > least.max(one.max(other) / 10)
}
