//! The agents: their registry, the life of a run, what is said to them.
//!
//! **Invariant:** a record that shows a live status has a process, or an order to start one is under way, or
//! it is held at its provider's limit, waits for room on this machine, or was put away while memory is short.
//! **Invariant:** one lineage has one record; ids of earlier lives lead to it. Names are unique among them.

pub mod adopt;
#[cfg(test)]
mod answers_tests;
pub mod api;
mod attach;
mod ceiling;
mod choice;
pub mod elsewhere;
mod frozen;
pub mod history;
mod last_word;
#[cfg(test)]
mod last_word_tests;
mod life;
pub mod limit;
#[cfg(test)]
mod limit_nights;
#[cfg(test)]
mod limit_tests;
mod limit_words;
pub mod moving;
mod new_life;
mod open_tools;
mod outcome;
mod patch;
mod paths;
mod placement;
mod put_away;
pub mod queue;
mod reason;
mod record;
pub mod report;
pub mod rights;
#[cfg(test)]
mod rights_tests;
pub mod rotation;
mod say;
#[cfg(test)]
mod say_tests;
pub mod scope;
mod sessions;
mod silence;
mod spawn;
mod store;
#[cfg(test)]
mod tests;
mod touched;
mod wait;
pub mod wire;
pub mod worker;
pub mod worker_api;
pub mod worker_jobs;
pub mod worker_log;

pub use attach::Wish;
pub use choice::variables;
pub use elsewhere::{branch_of, check_sender};
pub use life::{died_by_foreign_signal, run_report};
pub use moving::HERE;
pub use outcome::Outcome;
pub use patch::{Patch, change_team, give_up_name, join_team, leave_worktree};
pub use reason::{Awaited, Reason, StatusReason};
pub use record::{Agent, Deliver, ExitInfo, FileTouch, Instruction, Isolation, Phase, Status, Stop};
pub use report::{Job, JobReport, LogEntry};
pub use rights::Maker;
pub use rotation::{under_way as is_rotating, why_rotated};
pub use say::{MAX_QUERIES, QUERY_TIMEOUT, query_timeout, resume, say_to};
pub use scope::overlapping;
pub use sessions::Copied;
pub use silence::silence;
pub use spawn::{
    SpawnRequest, StartOrder, check_pattern, check_share, room, spawn, spawn_agent, start_again,
    working_folder,
};
pub use store::{Stored, StoredPrompt, VERSION as STORED_VERSION};
pub use touched::{OpenFiles, Touched, touched};
pub use wait::{decided, note, set_waiting, show, tell};

use crate::api::Problem;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::{Jump, Time};
use crate::core::{CallId, Context, Document, Durability, Effect, Moment, State as All, Timer};
use crate::providers::{Ruling, Tokens};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::{sync::Arc, time::Duration};
use svc_base::chunked::ChunkedMap;

/// Ended records kept; the oldest goes first. Its log stays until the daily cleanup.
pub const MAX_ENDED: usize = 500;
/// Earlier ids that still lead to their successor; the oldest goes first.
pub const MAX_ALIASES: usize = 10_000;
/// The checkpoint that is the end of a run, see [`report::RunReport::Checkpoint`].
pub const LAST_CHECKPOINT: u64 = u64::MAX;
/// At most one `state` message in this time.
pub const STATE_INTERVAL: Duration = Duration::from_millis(100);

/// The registry.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    records: ChunkedMap<AgentId, Arc<Agent>>,
    /// Earlier lives: id to lineage, in the order they ended.
    aliases: ChunkedMap<AgentId, LineageId>,
    alias_order: Arc<VecDeque<AgentId>>,
    rotations: Arc<history::History>,
    pending_rotations: BTreeMap<AgentId, rotation::Rotation>,
    /// Handoff briefs that no life has made use of yet: of lineages whose successor has not ended a turn
    /// well, and of ended agents that are not to go on in their session. A document each.
    handoffs: BTreeMap<LineageId, Arc<str>>,
    queries: BTreeMap<CallId, AgentId>,
    /// Who waits for what becomes of a move. Not stored.
    moves: BTreeMap<LineageId, Vec<CallId>>,
    /// Tokens of questions, kept apart from the agents' own.
    qa_tokens: Tokens,
    /// Those that ended with the last daemon. Not stored: it is asked once whether they go on.
    lost: Vec<AgentId>,
    /// Of those the ones whose program was never started.
    unbegun: Vec<AgentId>,
    /// Those that are held at a limit, or about to go on.
    limited: BTreeSet<AgentId>,
    changes: AgentChanges,
    /// When one that stood still went on last.
    thawed_at: Option<Time>,
    last_notice_at: Time,
    next_message: u64,
}

/// What changed in the registry since the last `state` message.
#[derive(Debug, Clone, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct AgentChanges {
    /// Records that are new or different.
    pub changed: BTreeSet<AgentId>,
    /// Records that are gone.
    pub removed: BTreeSet<AgentId>,
}

impl AgentChanges {
    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// A wish about agents. Targets are ids, earlier ids or exact names.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Start a new agent.
    Spawn(Box<SpawnRequest>),
    Patch(String, Box<Patch>),
    /// End a live agent, or remove the record of an ended one.
    Delete(String),
    /// Say something to it.
    Instruct {
        target: String,
        message: String,
        deliver: Deliver,
    },
    /// Ask a question without disturbing it.
    Query {
        target: String,
        question: String,
    },
    /// Replace it by a fresh one with a handoff brief.
    Rotate(String),
    /// Let a person be at its own screen.
    Attach(String, Wish),
    /// Let the person leave it.
    GiveBack(String),
    /// Let it go on on another machine.
    Move(String, moving::Wish),
    /// Continue an ended agent: with what it is to do now, and where it is to be from now on.
    Resume {
        target: String,
        message: Option<String>,
        runner: Option<String>,
    },
}

/// An order to the threads of a run.
#[derive(Debug)]
pub enum RunOrder {
    Start(Box<StartOrder>),
    /// Give it a message.
    Say {
        /// Comes back in the report.
        message_id: u64,
        text: String,
    },
    /// Answer its provider's question whether a tool may be used.
    Decide {
        /// As asked.
        question: String,
        /// What the person said.
        ruling: Ruling,
    },
    /// Ask its program to leave the turn, where it can be asked.
    Interrupt,
    /// Its work is done: let it end.
    Finish,
    /// What the settings say of its keeper has changed.
    Settings,
    /// End it with everything it started.
    Stop,
}

impl RunOrder {
    /// What it says, in a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Say { .. } => "say",
            Self::Decide { .. } => "decide",
            Self::Interrupt => "interrupt",
            Self::Finish => "finish",
            Self::Settings => "settings",
            Self::Stop => "stop",
        }
    }
}

impl State {
    /// All records, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.records.values()
    }

    /// Whether a record, of a living or an ended agent, has exactly this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.iter().any(|agent| agent.name == name)
    }

    /// The record of this lineage: its present life, or its last.
    pub fn by_lineage(&self, lineage: LineageId) -> Option<&Arc<Agent>> {
        self.iter().find(|agent| agent.lineage_id == lineage)
    }

    /// The record with exactly this id.
    pub fn get(&self, id: AgentId) -> Option<&Arc<Agent>> {
        self.records.get(&id)
    }

    /// Finds a record by id, by the id of an earlier life, or by exact name.
    ///
    /// Errors: 404.
    pub fn find(&self, target: &str) -> Result<&Arc<Agent>, Problem> {
        if let Ok(id) = target.parse::<AgentId>() {
            if let Some(agent) = self.records.get(&id) {
                return Ok(agent);
            }
            let lineage = self.aliases.get(&id);
            if let Some(agent) = self.iter().find(|agent| Some(&agent.lineage_id) == lineage) {
                return Ok(agent);
            }
        }
        self.iter().find(|agent| agent.name == target).ok_or_else(|| {
            Problem::not_found(format!("no agent has the id or name {target:?}; GET /api/agents lists them"))
        })
    }

    /// Agents that are alive.
    pub fn live(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.iter().filter(|agent| agent.status.is_live())
    }

    /// Whether some ended with the last daemon, and were not asked about.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Those that ended with the last daemon, told once.
    pub fn take_lost(&mut self) -> Vec<AgentId> {
        std::mem::take(&mut self.lost)
    }

    /// Past rotations.
    pub fn rotations(&self) -> &history::History {
        &self.rotations
    }

    /// What questions have cost so far.
    pub fn qa_tokens(&self) -> Tokens {
        self.qa_tokens
    }

    /// The record of `id`, to be changed; the change is noted for the next `state` message.
    fn edit(&mut self, id: AgentId) -> Option<&mut Agent> {
        let record = self.records.get_mut(&id)?;
        self.changes.changed.insert(id);
        Some(Arc::make_mut(record))
    }

    /// The number of one more message.
    fn number_message(&mut self) -> u64 {
        self.next_message += 1;
        self.next_message
    }

    fn insert(&mut self, agent: Agent) {
        self.changes.changed.insert(agent.id);
        self.records.insert(agent.id, Arc::new(agent));
    }

    /// Forgets an agent, its earlier lives with it.
    fn remove(&mut self, id: AgentId) -> Option<Arc<Agent>> {
        let removed = self.take(id)?;
        self.handoffs.remove(&removed.lineage_id);
        self.forget_lives(removed.lineage_id);
        Some(removed)
    }

    /// A life is over, and its lineage goes on under another id: this one leads there.
    fn retire(&mut self, id: AgentId) {
        if let Some(life) = self.take(id) {
            self.alias(id, life.lineage_id);
        }
    }

    fn take(&mut self, id: AgentId) -> Option<Arc<Agent>> {
        let taken = self.records.remove(&id)?;
        self.changes.changed.remove(&id);
        self.changes.removed.insert(id);
        Some(taken)
    }

    /// The ids of a lineage's earlier lives lead nowhere once its record is gone.
    fn forget_lives(&mut self, lineage: LineageId) {
        let lives = self.aliases.iter().filter(|(_, led_to)| **led_to == lineage).map(|(id, _)| *id);
        let lives: BTreeSet<AgentId> = svc_base::sorted::Gather::gather(lives);
        if lives.is_empty() {
            return;
        }
        Arc::make_mut(&mut self.alias_order).retain(|id| !lives.contains(id));
        for id in &lives {
            self.aliases.remove(id);
        }
    }

    /// Lets an earlier id lead to its lineage.
    fn alias(&mut self, id: AgentId, lineage: LineageId) {
        let order = Arc::make_mut(&mut self.alias_order);
        if self.aliases.insert(id, lineage).is_none() {
            order.push_back(id);
        }
        while order.len() > MAX_ALIASES {
            if let Some(oldest) = order.pop_front() {
                self.aliases.remove(&oldest);
            }
        }
    }

    fn knows_id(&self, id: u32) -> bool {
        self.records.contains_key(&AgentId(id))
            || self.aliases.contains_key(&AgentId(id))
            || self.iter().any(|agent| agent.lineage_id.0 == id)
    }
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    // Ending an agent must work on a full disk too.
    let ends = matches!(command, Command::Delete(_));
    if let Err(problem) = if ends { all.health.running() } else { all.health.writable() } {
        return cx.reply(call, problem);
    }
    if let Err(problem) = rights::may(all, cx, &command) {
        return cx.reply(call, problem);
    }
    match command {
        Command::Spawn(request) => {
            let result = spawn(all, cx, *request);
            cx.answer(call, result);
        }
        Command::Patch(target, patch) => {
            let on_limit = patch.on_limit;
            let result = patch::apply(all, cx, &target, *patch);
            if let (Ok(agent), Some(on_limit), true) = (all.agents.find(&target), on_limit, result.is_ok()) {
                let told = json!({"agentId": agent.id, "name": agent.name, "onLimit": on_limit});
                cx.audit("limit.consent", &told);
                limit::policy_changed(all, cx);
            }
            cx.answer(call, result);
        }
        Command::Delete(target) => {
            audit(all, cx, "agent.delete", &target);
            delete(all, cx, call, &target);
        }
        Command::Instruct { target, message, deliver } => {
            let result = say::instruct(all, cx, &target, message, deliver);
            if result.is_ok() {
                audit(all, cx, "agent.instruct", &target);
            }
            cx.answer(call, result);
        }
        Command::Query { target, question } => say::query(all, cx, call, &target, question),
        Command::Rotate(target) => {
            rotation::rotate(all, cx, call, &target);
        }
        Command::Attach(target, wish) => attach::attach(all, cx, call, &target, wish),
        Command::GiveBack(target) => attach::give_back(all, cx, call, &target),
        Command::Move(target, wish) => moving::wish(all, cx, call, &target, wish),
        Command::Resume { target, message, runner } => {
            let result = elsewhere::resume(all, cx, &target, message, runner.as_deref());
            if result.is_ok() {
                audit(all, cx, "agent.resume", &target);
            }
            cx.answer(call, result);
        }
    }
}

/// Notes what is wished of an existing agent; what comes of it stands in its own log.
fn audit(all: &All, cx: &mut Context, event: &str, target: &str) {
    if let Ok(agent) = all.agents.find(target) {
        cx.audit(event, &json!({"agentId": agent.id, "name": agent.name}));
    }
}

fn delete(all: &mut All, cx: &mut Context, call: CallId, target: &str) {
    let agent = match all.agents.find(target) {
        Ok(agent) => Arc::clone(agent),
        Err(problem) => return cx.reply(call, problem),
    };
    if agent.status.is_live() {
        return life::stop(all, cx, agent.id, Stop::Kill, Some(call));
    }
    rotation::removed(all, cx, agent.id);
    rotation::forget_handoff(all, cx, agent.lineage_id);
    let agents = Arc::make_mut(&mut all.agents);
    agents.remove(agent.id);
    cx.push(Effect::Remove(Document::Prompt(agent.lineage_id)));
    cx.moment(Moment::Removed(agent.id, agent.lineage_id));
    touch(all, cx, Durability::BeforeReply);
    let name = agent.name.clone();
    cx.reply(call, Outcome::Removed { id: agent.id, name, status: agent.status });
}

/// The daemon has started: rotations and moves that an earlier one had begun are gone on with.
pub fn go_on(all: &mut All, cx: &mut Context) {
    rotation::go_on(all, cx);
    moving::go_on(all, cx);
}

/// Orders every live agent to end, for a shutdown of the daemon.
pub fn stop_all(all: &mut All, cx: &mut Context) {
    let live: Vec<AgentId> = all.agents.live().map(|agent| agent.id).collect();
    for id in live {
        life::stop(all, cx, id, Stop::Shutdown, None);
    }
    rotation::stop_all(all, cx);
    end_queries(all, cx);
}

fn end_queries(all: &mut All, cx: &mut Context) {
    let queries: Vec<CallId> = all.agents.queries.keys().copied().collect();
    for call in queries {
        say::end_query(all, cx, call, Err(Problem::new(503, "stopping", "the daemon is stopping")));
        cx.push(Effect::Job(Job::CancelQuery(call)));
    }
}

/// Leaves all agents to their keepers and the next daemon.
pub fn leave_all(all: &mut All, cx: &mut Context) {
    end_queries(all, cx);
    cx.push(Effect::LeaveRuns);
}

/// Of lineages that were started for one purpose those that still have a record (as many as the registry
/// keeps), and how many of them are alive. A person may have an ended one go on: that is never refused for
/// this purpose's sake, and counts from then on.
pub fn still_there(all: &All, started: &[LineageId]) -> (Vec<LineageId>, usize) {
    let of_it = || all.agents.iter().filter(|agent| started.contains(&agent.lineage_id));
    // One that has ended while its successor is prepared is alive.
    let is_alive = |agent: &&Arc<Agent>| agent.status.is_live() || rotation::under_way(all, agent.id);
    (of_it().map(|agent| agent.lineage_id).collect(), of_it().filter(is_alive).count())
}

/// Whether no agent is alive any more, but for those that were left to their keepers.
pub fn all_quiet(agents: &State) -> bool {
    agents.live().all(|agent| agent.phase == Phase::Left || agent.has_no_run())
}

/// Something has happened to an agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::Ended(id) => {
            say::tell_undelivered(all, cx, id);
            frozen::one_less(all, cx);
        }
        Moment::TurnEnded(_) => frozen::one_less(all, cx),
        Moment::SettingsChanged => {
            limit::policy_changed(all, cx);
            ceiling::settings_changed(all, cx);
        }
        Moment::Measured => {
            ceiling::measured(all, cx);
            put_away::measured(all, cx);
            frozen::measured(all, cx);
            queue::measured(all, cx);
        }
        _ => {}
    }
}

/// A one-off job reports.
pub fn job_report(all: &mut All, cx: &mut Context, report: JobReport) {
    match report {
        JobReport::Brief(agent, brief) => rotation::brief_ready(all, cx, agent, brief),
        // Told to the feature that asked.
        JobReport::Learned(..) => {}
        JobReport::Moved(agent, result) => moving::carried(all, cx, agent, result),
        JobReport::Query(call, result) => {
            if last_word::is_one(call) {
                return last_word::answered(all, cx, call, result);
            }
            say::query_done(all, cx, call, result);
        }
    }
}

/// To be called after every change of the registry: arranges the `state` message and the write.
fn touch(all: &mut All, cx: &mut Context, durability: Durability) {
    cx.push(Effect::Put(Document::Agents, durability));
    prune(all, cx);
    if all.agents.changes.is_empty() {
        return;
    }
    if all.timers.is_set(Timer::StateNotice) {
        return;
    }
    let due = (all.agents.last_notice_at + STATE_INTERVAL).max(cx.now);
    Arc::make_mut(&mut all.timers).set(Timer::StateNotice, due);
}

/// The wall clock has jumped.
pub fn clock_set(all: &mut All, cx: &Context, jump: Jump) {
    let agents = Arc::make_mut(&mut all.agents);
    agents.last_notice_at = agents.last_notice_at.moved(jump);
    limit::clock_set(all, jump);
    frozen::clock_set(all, jump);
    let agents = Arc::make_mut(&mut all.agents);
    if jump.is_back {
        Arc::make_mut(&mut agents.rotations).move_future(cx.now, |at| at.moved(jump));
    }
}

/// Nothing in the registry happened after `now`: a cooldown begins at the latest with it.
pub fn not_after(all: &mut All, now: Time) {
    let history = Arc::make_mut(&mut Arc::make_mut(&mut all.agents).rotations);
    history.move_future(now, |_| now);
    history.watch(Arc::make_mut(&mut all.timers));
}

/// Pushes the coalesced `state` message.
pub fn send_state(all: &mut All, cx: &mut Context) {
    let agents = Arc::make_mut(&mut all.agents);
    let changes = std::mem::take(&mut agents.changes);
    agents.last_notice_at = cx.now;
    if !changes.is_empty() {
        cx.push(Effect::StateChanged(changes));
    }
}

/// Removes the oldest ended records above [`MAX_ENDED`].
fn prune(all: &mut All, cx: &mut Context) {
    let ended = all.agents.records.len().saturating_sub(all.agents.live().count());
    if ended <= MAX_ENDED {
        return;
    }
    for (_, id, lineage) in store::first_ended(all.agents.iter(), ended - MAX_ENDED) {
        rotation::forget_handoff(all, cx, lineage);
        Arc::make_mut(&mut all.agents).remove(id);
        cx.push(Effect::Remove(Document::Prompt(lineage)));
        cx.moment(Moment::Removed(id, lineage));
    }
}
