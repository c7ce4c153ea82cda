//! The governor: whether one more agent fits on this machine, by what it has left and by what agents of its
//! kind have really used.
//!
//! A thread looks while agents have processes; the rules here take in what it has seen. An agent whose start
//! does not fit waits in the registry (`agents/queue.rs`), which asks again with each [`Moment::Measured`].
//!
//! **Invariant:** nothing is refused or made to wait before the machine was looked at, nor while no agent has
//! a process: one always may run.
//! **Invariant:** what was let in counts with all that its kind may still come to use, from the moment in
//! which it was let in: several that ask at once are not given the same room.

pub mod api;
mod shortage;
mod shown;
mod store;
#[cfg(test)]
mod tests;
pub mod worker;
mod worker_api;

pub use shortage::{LASTING, SETTLING, lacking, pressing};
pub use store::{STORED_VERSION, Stored};
pub use worker::{Fellows, Order, Watch};

use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Context, Document, Durability, Effect, Moment, State as All};
use crate::providers::{self, Program};
use crate::settings::Admit;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use svc_base::bounded;
use svc_base::machine::Machine;

const MIB: u64 = 1 << 20;
/// Kinds of agents (provider and role) whose use is remembered; the one measured longest ago goes first.
pub const MAX_KINDS: usize = 200;
/// Runs of one kind that are remembered, the latest.
pub const MAX_RUNS: usize = 20;
/// Of so many remembered runs one may have used more than what the next is expected to.
const UNUSUAL_ONE_IN: usize = 10;
/// What an agent program needs before any was measured: programs that run models elsewhere.
pub const GUESS: u64 = 300 * MIB;
/// The same of the agents that are part of this program.
pub const GUESS_BUILT_IN: u64 = 48 * MIB;
/// The same of one that only plays a scenario.
pub const GUESS_SCRIPTED: u64 = 24 * MIB;
/// What is left free for the person and the daemon: this part of the memory, within these bounds.
const RESERVE_PART: u64 = 16;
const RESERVE_LEAST: u64 = 32 * MIB;
const RESERVE_MOST: u64 = 1_024 * MIB;
/// Where less than so many times the guess is left, kinds that nobody has measured are tried one at a time.
pub const ROOMY: u64 = 7;
/// After this long a run has shown what its kind uses, for a first measure.
pub const SHOWN_AFTER: Duration = Duration::from_secs(15);
/// Nothing is let in while tasks wait for memory so much of the time: all of them, or some. In hundredths of
/// a percent, as the next ones.
const MEMORY_FULL_MOST: u32 = 10_00;
const MEMORY_SOME_MOST: u32 = 40_00;
/// The same for the disk, and for the processors with [`CROWD`].
const IO_FULL_MOST: u32 = 80_00;
const CPU_SOME_MOST: u32 = 95_00;
/// Busy processors and disks only make things slow, so they count from this many agents inside of a turn for
/// each processor.
const CROWD: u32 = 8;

/// A kind of agent: its provider and its role.
type Kind = (Arc<str>, Arc<str>);

/// What is known of the machine and of what agents use.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    machine: Option<Arc<Machine>>,
    looked_at: Time,
    /// When it was looked at while no other project let anybody in.
    alone_at: Option<Time>,
    /// Since when memory is short, see [`lacking`].
    short_since: Option<Time>,
    /// Of agents with a process.
    running: Arc<BTreeMap<AgentId, Use>>,
    kinds: Arc<BTreeMap<Kind, Runs>>,
}

/// What one agent's processes hold, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Use {
    /// At the last look.
    pub now: u64,
    /// At most, in this life.
    pub peak: u64,
}

/// The most that each of the last runs of a kind has used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Runs {
    /// Bytes, the latest last.
    peaks: VecDeque<u64>,
    /// When the latest ended.
    at: Time,
}

/// A fact from the thread that looks.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Report {
    /// The machine, and what agents hold now; `None` leaves that as it was.
    Looked(Arc<Machine>, Option<Vec<(AgentId, u64)>>),
    /// The same, and no other project of this user lets anybody in until this was taken in.
    LookedAlone(Arc<Machine>, Option<Vec<(AgentId, u64)>>),
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Of runs that have ended.
    Measured,
    /// Of runs that go on.
    Running,
    /// Nobody has measured.
    Guessed,
}

/// What one more agent of a kind is expected to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    pub bytes: u64,
    pub basis: Basis,
    /// Runs that it is known from.
    pub runs: usize,
}

/// How the memory is divided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// For the person and the daemon.
    pub reserve: u64,
    /// What those that run may still come to use.
    pub promised: u64,
    /// The same of those of other projects.
    pub elsewhere: u64,
    /// What is left for others.
    pub left: u64,
    /// Agents with a process, or with one on its way.
    pub running: usize,
    /// The same in other projects.
    pub running_elsewhere: usize,
    /// Inside of a turn, wherever.
    pub in_turn: usize,
}

/// What was heard of other projects is old after this: they are asked before something is begun by a timer.
const HEARD_FOR: Duration = Duration::from_secs(5);
/// They have told by then, or are asked once more.
pub const ASKED: Duration = Duration::from_millis(200);

impl Runs {
    fn add(&mut self, peak: u64, now: Time) {
        bounded::push(&mut self.peaks, peak, MAX_RUNS);
        self.at = now;
    }

    /// What all but the unusual ones stayed below.
    fn usual(&self) -> u64 {
        let mut peaks: Vec<u64> = self.peaks.iter().copied().collect();
        peaks.sort_unstable();
        let unusual = peaks.len() / UNUSUAL_ONE_IN;
        peaks.iter().rev().nth(unusual).copied().unwrap_or(0)
    }
}

impl State {
    /// What an agent's processes hold.
    pub fn use_of(&self, agent: AgentId) -> Option<Use> {
        self.running.get(&agent).copied()
    }

    /// Whether memory is short.
    pub fn is_short(&self) -> bool {
        self.short_since.is_some()
    }

    /// When the machine was looked at last; 0 for never.
    pub fn looked_at(&self) -> Time {
        self.looked_at
    }

    fn kind(&self, provider: &str, role: &str) -> Option<&Runs> {
        self.kinds.get(&(Arc::from(provider), Arc::from(role)))
    }
}

/// What nobody has measured yet.
fn guess(provider: &str) -> u64 {
    let info = providers::info_of(provider);
    match info.program {
        _ if info.scripted => GUESS_SCRIPTED,
        Program::Itself => GUESS_BUILT_IN,
        Program::OnPath(..) => GUESS,
    }
}

/// What one more agent of this kind is expected to use: as its kind has, else as others of its provider have.
pub fn expected(all: &All, now: Time, provider: &str, role: &str) -> Expected {
    let governor = &all.governor;
    let of_provider = || {
        let others = governor.kinds.iter().filter(|((of, _), _)| &**of == provider);
        let (count, most) = others
            .fold((0, 0), |(count, most), (_, runs)| (count + runs.peaks.len(), most.max(runs.usual())));
        (count > 0).then_some((count, most))
    };
    let ended =
        governor.kind(provider, role).map(|runs| (runs.peaks.len(), runs.usual())).or_else(of_provider);
    let (mut shown, mut most) = (0, 0);
    for agent in all.agents.live().filter(|agent| agent.provider == provider && agent.role == role) {
        let Some(own) = governor.running.get(&agent.id) else { continue };
        most = most.max(own.peak);
        shown += usize::from(now.since(agent.spawned_at) >= SHOWN_AFTER);
    }
    let mut expected = match ended {
        Some((runs, bytes)) => Expected { bytes: bytes.max(most), basis: Basis::Measured, runs },
        None if shown > 0 => Expected { bytes: most, basis: Basis::Running, runs: shown },
        None => Expected { bytes: guess(provider).max(most), basis: Basis::Guessed, runs: 0 },
    };
    // Above its ceiling it ends.
    let ceiling = all.settings.config().governor.ceiling();
    if ceiling > 0 {
        expected.bytes = expected.bytes.min(ceiling);
    }
    expected
}

/// How the memory of this machine is divided.
pub fn memory(all: &All, now: Time, machine: &Machine) -> Memory {
    let own = all.settings.config().governor.reserve_megabytes.map(|count| count.saturating_mul(MIB));
    let reserve =
        own.unwrap_or_else(|| (machine.memory_total / RESERVE_PART).clamp(RESERVE_LEAST, RESERVE_MOST));
    let others = all.fleet.needs();
    let (running, in_turn, promised) = promised(all, now);
    let left = machine.memory_free.saturating_sub(reserve).saturating_sub(promised);
    Memory {
        reserve,
        promised,
        elsewhere: others.promised,
        left: left.saturating_sub(others.promised),
        running,
        running_elsewhere: others.running,
        in_turn: in_turn.saturating_add(others.in_turn),
    }
}

/// Agents with a process, those of them inside of a turn, and the bytes that they may still come to use.
pub fn promised(all: &All, now: Time) -> (usize, usize, u64) {
    let (mut running, mut in_turn, mut promised) = (0, 0, 0_u64);
    let mut known: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for agent in all.agents.live().filter(|agent| agent.has_process()) {
        running += 1;
        in_turn += usize::from(agent.turn_open);
        let kind = (agent.provider.as_str(), agent.role.as_str());
        let most = *known.entry(kind).or_insert_with(|| expected(all, now, kind.0, kind.1).bytes);
        let held = all.governor.running.get(&agent.id).map_or(0, |own| own.now);
        promised = promised.saturating_add(most.saturating_sub(held));
    }
    (running, in_turn, promised)
}

/// Whether what other projects have told is too old to begin something by it: then they are asked.
pub fn asks_others(all: &All, cx: &mut Context) -> bool {
    let is_old = all.fleet.is_older_than(HEARD_FOR, cx.now);
    if is_old {
        cx.push(Effect::Governor(Order::Look));
    }
    is_old
}

/// Whether one more agent fits now; if not, why, for people. While little is left and other projects run,
/// only what was looked at alone says that it does: a caller who does not wait is told by what is known.
pub fn room(all: &All, now: Time, provider: &str, role: &str) -> Result<(), String> {
    let Some(machine) = all.governor.machine.as_deref() else { return Ok(()) };
    if all.settings.config().governor.admit == Admit::Off || machine.memory_total == 0 {
        return Ok(());
    }
    let memory = memory(all, now, machine);
    let expected = expected(all, now, provider, role);
    let is_alone = all.governor.alone_at == Some(now) || !all.fleet.has_others();
    let is_tight = memory.left < ROOMY.saturating_mul(expected.bytes);
    if is_tight && !is_alone && all.settings.config().governor.admit == Admit::Queue {
        return Err(format!(
            "{} MB of memory are left, and other projects are asked first",
            memory.left / MIB
        ));
    }
    if memory.running + memory.running_elsewhere == 0 {
        return Ok(());
    }
    if let Some(pressure) = pressed(machine, memory.in_turn) {
        return Err(pressure);
    }
    if expected.bytes > memory.left {
        return Err(format!(
            "it may need {} MB of memory ({}) and {} MB are left: {} MB are free, {} MB of them are kept for the \
             {} that run and {} MB for you",
            megabytes(expected.bytes),
            basis_words(expected),
            memory.left / MIB,
            machine.memory_free / MIB,
            megabytes(memory.promised + memory.elsewhere),
            memory.running + memory.running_elsewhere,
            megabytes(memory.reserve),
        ));
    }
    let mut of_kind = all.agents.live().filter(|agent| agent.provider == provider && agent.role == role);
    let is_tried = of_kind.any(|agent| agent.has_process() && now.since(agent.spawned_at) < SHOWN_AFTER);
    if expected.basis == Basis::Guessed && memory.left < ROOMY * expected.bytes && is_tried {
        return Err(format!(
            "nobody knows yet what an agent of {provider} as {role} uses, and only {} MB are left: the first one \
             shows it",
            memory.left / MIB
        ));
    }
    Ok(())
}

/// Whether so much waits for memory, disk or processors that nothing more is begun: in words.
fn pressed(machine: &Machine, in_turn: usize) -> Option<String> {
    let above = |share: Option<u32>, most: u32| share.filter(|share| *share >= most).map(|share| share / 100);
    if let Some(share) = above(machine.memory_full, MEMORY_FULL_MOST) {
        return Some(format!("everything waits for memory {share} % of the time"));
    }
    if let Some(share) = above(machine.memory_some, MEMORY_SOME_MOST) {
        return Some(format!("something waits for memory {share} % of the time"));
    }
    let crowd = machine.cpus.saturating_mul(CROWD);
    if u32::try_from(in_turn).unwrap_or(u32::MAX) < crowd {
        return None;
    }
    if let Some(share) = above(machine.io_full, IO_FULL_MOST) {
        return Some(format!("everything waits for the disk {share} % of the time"));
    }
    if let Some(share) = above(machine.cpu_some, CPU_SOME_MOST) {
        return Some(format!("something waits for a processor {share} % of the time"));
    }
    let is_overloaded = machine.cpu_some.is_none() && machine.load / 100 >= crowd;
    is_overloaded.then(|| format!("{} tasks want one of {} processors", machine.load / 100, machine.cpus))
}

/// Rounded up.
fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(MIB)
}

fn basis_words(expected: Expected) -> String {
    match expected.basis {
        Basis::Measured => format!("the most that {} earlier runs have used", expected.runs),
        Basis::Running => format!("the most that {} running ones have used", expected.runs),
        Basis::Guessed => "a guess, none was measured yet".to_owned(),
    }
}

/// The thread that looks reports.
pub fn report(all: &mut All, cx: &mut Context, report: Report) {
    let (machine, agents, is_alone) = match report {
        Report::Looked(machine, agents) => (machine, agents, false),
        Report::LookedAlone(machine, agents) => (machine, agents, true),
    };
    let governor = Arc::make_mut(&mut all.governor);
    governor.alone_at = is_alone.then_some(cx.now);
    governor.machine = Some(machine);
    governor.looked_at = cx.now;
    if let Some(agents) = agents {
        let running = Arc::make_mut(&mut governor.running);
        for (id, held) in agents {
            let lives = all.agents.get(id).is_some_and(|agent| agent.status.is_live());
            if lives {
                let own = running.entry(id).or_default();
                *own = Use { now: held, peak: own.peak.max(held) };
            }
        }
    }
    if shortage::judge(all, cx.now) {
        // From now on more often.
        cx.push(Effect::Governor(Order::Look));
    }
    cx.moment(Moment::Measured);
    if is_alone {
        cx.push(Effect::Governor(Order::TakenIn));
    }
}

/// Something has happened to an agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::Spawned(_) | Moment::Started(_) | Moment::CaughtUp(_) | Moment::SettingsChanged => {
            cx.push(Effect::Governor(Order::Look));
        }
        Moment::Ended(id)
        | Moment::PutAway(id)
        | Moment::Rotated { old: id, .. }
        | Moment::Resumed { old: id, .. } => ended(all, cx, id),
        Moment::Removed(id, _) if all.governor.running.contains_key(&id) => {
            forget(all, id);
        }
        _ => {}
    }
}

fn forget(all: &mut All, id: AgentId) -> Option<Use> {
    let governor = Arc::make_mut(&mut all.governor);
    Arc::make_mut(&mut governor.running).remove(&id)
}

/// An agent of this kind has held so many bytes.
fn note(all: &mut All, cx: &mut Context, kind: Kind, peak: u64) {
    let kinds = Arc::make_mut(&mut Arc::make_mut(&mut all.governor).kinds);
    bounded::make_room(kinds, &kind, MAX_KINDS, |runs| runs.at);
    kinds.entry(kind).or_default().add(peak, cx.now);
    cx.push(Effect::Put(Document::Governor, Durability::Soon));
}

/// A life is over: what it has used is what the next of its kind is expected to use.
fn ended(all: &mut All, cx: &mut Context, id: AgentId) {
    let looked_at = all.governor.running.contains_key(&id).then(|| forget(all, id)).flatten();
    // Of a life that goes on under another id the record has that one.
    if let Some(agent) = all.agents.find(&id.to_string()).ok().cloned() {
        // It may have held this between two looks, or before the first.
        let peak = looked_at.map_or(0, |own| own.peak).max(agent.ended_above().unwrap_or(0));
        if peak > 0 {
            note(all, cx, (agent.provider.as_str().into(), agent.role.as_str().into()), peak);
        }
    }
    // There may be room now, here or in another project.
    cx.push(Effect::Governor(Order::Look));
}
