//! What always holds, each with its sentence. A rule that is broken ends the run with its name.

use super::machine::Machine;
use super::programs::Process;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use svc::agents::{self, Agent, MAX_QUERIES, Phase, Status};
use svc::approvals::Action;
use svc::core::ids::AgentId;
use svc::core::time::Time;
use svc::core::{State, Timer, ids::LineageId};
use svc::schedules::MAX_HISTORY;
use svc::teams::phases::MAX_PLANS;
use svc::{approvals, coordination, usage};

/// Commands of one chat that wait or run, at most.
const MAX_CHAT_COMMANDS: usize = 50;
/// Keys of messages that a gateway remembers, at most.
const MAX_KEYS: usize = 500;
/// Messages for one agent at most: those that people queue, and as many notes.
const MAX_MESSAGES: usize = 200;

macro_rules! rules {
    ($($(#[doc = $sentence:literal])+ $Name:ident,)*) => {
        /// A promise of the daemon.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rule {
            $($(#[doc = $sentence])+ $Name,)*
        }

        impl Rule {
            /// What it promises.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$Name => concat!($($sentence),+).trim_ascii(),)*
                }
            }
        }
    };
}

rules! {
    /// A call gets exactly one answer.
    OneAnswer,
    /// What an answer acknowledges is on disk before the answer leaves.
    DiskFirst,
    /// What was acknowledged is there, now and after every restart.
    Kept,
    /// A wish that is answered 503, and not said to be in force, has changed nothing.
    RefusedIsNothing,
    /// What the next daemon reads is what the last one wrote, but for what has ended meanwhile.
    RestoredWhole,
    /// An agent is shown as alive exactly while it has a process, an order to start one, or is held at its
    /// limit.
    NoGhost,
    /// Nobody is alive after a power cut, and after the daemon was killed those alone whose keepers answer.
    NobodySurvives,
    /// What a program has done is taken in once, whoever of daemon and program goes on without the other.
    NoLineLost,
    /// No program is told the same message twice.
    OrderOnce,
    /// No agent has two processes.
    OneProcess,
    /// Names are unique, a lineage has one record, and every status has its reason.
    OneRecord,
    /// Of the agents at work one always goes on, however short memory is; who stands still is shown so.
    OneGoesOn,
    /// There are never more live agents than there may be.
    Capacity,
    /// Of those that wait for room the first of the highest priority goes on first, and nobody passes them,
    /// unless a person says so.
    QueueInTurn,
    /// Nobody is let in while the governor sees no room, unless a person says so, and nobody waits while it
    /// sees some.
    RoomFirst,
    /// Who waits for room does so at its place over all restarts, and is started once, from the disk.
    QueuedOnce,
    /// A start of which the disk knows is carried out once, with the same words, whatever becomes of the
    /// daemon.
    StartsOnce,
    /// Whoever has nothing to do is let go, and nobody to whom something is still to be said.
    NobodyIdles,
    /// An acknowledged message stays with the record until a program has taken it.
    MessagesStay,
    /// The tokens of agents, accounts, teams and in total are the same.
    Ledger,
    /// Nothing new starts when the day's budget is used up.
    Budget,
    /// Who comes to its provider's limit is held and has not crashed, and somebody sees to when it goes on.
    HeldAtLimit,
    /// Who is held goes on once, with what it was working on and from the disk, when the limit opens or a
    /// person says so.
    OnceAtReset,
    /// Nobody works with another account than the one that was named for it, or that its maker has, or gets
    /// the key of another.
    OwnAccount,
    /// `auto` takes an account with the most room, and of those one with the fewest agents.
    RoomiestAccount,
    /// A limit holds agents of its own account, and moves nobody of another.
    LimitOfAccount,
    /// A resource is held by one owner.
    OneHolder,
    /// An ended agent holds no lock.
    DeadHoldNothing,
    /// No lock outlives its deadline.
    LocksEnd,
    /// A gated call runs only after a person said yes to this very call.
    PersonSaidYes,
    /// One yes lets one call through, over all restarts.
    YesIsUsedOnce,
    /// One wish is one pending approval, none waits longer than a day, and there are no more than may be.
    ApprovalsEnd,
    /// A program that asks waits for a person, and hears what was decided.
    AnswersArrive,
    /// An agent is shown as waiting exactly while work of it waits for a person.
    WaitingIsShown,
    /// No agent's decision counts.
    AgentsDecideNothing,
    /// A schedule starts one agent for one time, and one in one minute of the wall clock.
    OneRunAMinute,
    /// The minute in which a schedule starts an agent is marked on the disk before.
    MarkedFirst,
    /// A schedule starts nobody while maxConcurrent of its agents are alive.
    MaxConcurrent,
    /// An enabled schedule waits for its next time, and its history is bounded and names no time twice.
    SchedulesWait,
    /// A member of a plan is started as one lineage, and never ahead of its phase.
    MembersOnce,
    /// A command of a chat is begun at most once, over all restarts.
    ChatOnce,
    /// A stranger in a chat is never obeyed.
    StrangersNever,
    /// Each list has its limit.
    Bounded,
    /// Whoever follows the state messages knows what GET tells.
    Follower,
    /// Everything comes to rest: no call stays open, no process stays behind.
    ComesToRest,
    /// The same event at the same time with the same random bits makes the same state.
    Deterministic,
    /// No event makes the core panic, and no state file is put aside.
    NoPanic,
}

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub rule: Rule,
    /// By whom and how.
    pub how: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}): {}", self.rule, self.rule.sentence(), self.how)
    }
}

/// Ends the run unless `holds`.
pub fn ensure(rule: Rule, holds: bool, how: impl FnOnce() -> String) {
    if !holds {
        std::panic::panic_any(Broken { rule, how: how() });
    }
}

/// Holds after every event; what has not changed since before it is not looked at again.
pub fn check(machine: &Machine, before: &State) {
    check_agents(machine, before);
    check_locks(machine);
    check_approvals(machine, before);
    check_schedules(machine);
    check_bounds(machine, before);
}

/// Holds after every event, and takes longer.
pub fn check_all(machine: &Machine) {
    check(machine, &State::default());
    check_ledger(machine);
    machine.promises.check(&machine.core.state, machine.core.now);
}

fn check_agents(machine: &Machine, before: &State) {
    let state = &machine.core.state;
    if Arc::ptr_eq(&before.agents, &state.agents) && Arc::ptr_eq(&before.usage, &state.usage) {
        let runs = || state.agents.live().filter(|agent| !agent.has_no_run());
        let live = runs().filter(|agent| machine.programs.processes.contains_key(&agent.id)).count();
        let (shown, there) = (runs().count(), machine.programs.processes.len());
        let said = || format!("{shown} are shown as alive, {live} of them have one of {there} processes");
        return ensure(Rule::NoGhost, live == shown && live == there, said);
    }
    let mut names = HashSet::new();
    let mut lineages = HashSet::new();
    for agent in state.agents.iter() {
        let name = &*agent.name;
        ensure(Rule::OneRecord, names.insert(name), || format!("two agents are named {name}"));
        ensure(Rule::OneRecord, lineages.insert(agent.lineage_id), || format!("{name} has two records"));
        check_agent(machine, agent, before.agents.get(agent.id).is_some_and(|was| Arc::ptr_eq(was, agent)));
    }
    machine.promises.check_messages(state);
}

fn check_agent(machine: &Machine, agent: &Agent, is_same: bool) {
    let (state, name) = (&machine.core.state, &agent.name);
    let process = machine.programs.processes.contains_key(&agent.id);
    let said = || format!("{name} is {:?}, its process: {process}", agent.status);
    ensure(Rule::NoGhost, (agent.status.is_live() && !agent.has_no_run()) == process, said);
    let fed = machine.programs.fed.get(&agent.lineage_id).copied().unwrap_or_default();
    let (told, booked) = (agent.tokens.total(), state.usage.tokens_of(agent.lineage_id));
    let said = || format!("{name} has used {fed}, its record says {told}, its account {booked}");
    ensure(Rule::Ledger, told == fed && booked == fed, said);
    let idle = agent.phase == Phase::Working && !agent.turn_open && agent.status != Status::Waiting;
    let awaited = agent.queue.iter().any(|message| message.sent);
    let rotating = agents::rotation::under_way(state, agent.id);
    let kept = machine.programs.keepers.get(&agent.id);
    let is_known = kept.is_none_or(super::keepers::Kept::has_caught_up);
    let is_well = !idle || awaited || rotating || !is_known;
    ensure(Rule::NobodyIdles, is_well, || format!("{name} waits for nothing"));
    if is_same {
        return;
    }
    let has_reason = !agent.status_reason.to_string().is_empty();
    ensure(Rule::OneRecord, has_reason, || format!("{name} has no reason"));
    let has_exit = agent.status != Status::Completed || agent.exit.is_some();
    ensure(Rule::OneRecord, has_exit, || format!("{name} completed without an exit"));
}

/// An agent is told that its work is done: nothing waits to be said to it, unless the budget is spent.
pub fn check_finish(machine: &Machine, id: AgentId) {
    let Some(agent) = machine.core.state.agents.get(id) else { return };
    // What has not reached it is said to its next life.
    let is_refused = machine.programs.keepers.get(&id).is_none_or(|kept| kept.is_refused);
    // At a limit, of which its provider or the failure has told, whatever it is told is refused.
    let at_limit = |text: &str| agent.told.is_some() || text.contains("usage limit");
    let has_failed = agent.last_turn.as_ref().is_some_and(|turn| turn.is_error && at_limit(&turn.text));
    let is_refused = is_refused || has_failed;
    let is_spent = usage::check_budget(&machine.core.state, machine.core.now).is_err();
    let waits =
        !is_refused && !is_spent && agent.queue.iter().any(|message| !message.sent && !message.is_note);
    ensure(Rule::NobodyIdles, !waits, || format!("{} is let go, and a message waits for it", agent.name));
}

/// A resource is never held twice; an ended agent holds nothing, unless the daemon ended under it.
fn check_locks(machine: &Machine) {
    let state = &machine.core.state;
    let mut held = BTreeSet::new();
    for (owner, operation) in state.coordination.iter() {
        for resource in &operation.resources {
            ensure(Rule::OneHolder, held.insert(resource.clone()), || format!("{resource} is held twice"));
        }
        let name = &operation.name;
        let is_due = machine.is_up && operation.expires_at <= machine.core.now;
        ensure(Rule::LocksEnd, !is_due, || format!("the lock for {name} has outlived its deadline"));
        let waits = state.timers.get(Timer::Locks).is_some_and(|at| at <= operation.expires_at);
        ensure(Rule::LocksEnd, waits, || format!("nobody waits for the end of the lock for {name}"));
        let coordination::Owner::Agent(lineage) = owner else { continue };
        let agent = state.agents.iter().find(|agent| agent.lineage_id == *lineage);
        let may = agent.is_some_and(|agent| {
            let rotating = agents::rotation::under_way(state, agent.id);
            agent.status.is_live() || agent.status == Status::Interrupted || rotating
        });
        ensure(Rule::DeadHoldNothing, may, || format!("{lineage} has ended and holds the lock for {name}"));
    }
}

fn check_approvals(machine: &Machine, before: &State) {
    let state = &machine.core.state;
    check_questions(machine);
    if Arc::ptr_eq(&before.approvals, &state.approvals) && Arc::ptr_eq(&before.agents, &state.agents) {
        return;
    }
    let mut wishes = BTreeSet::new();
    for approval in state.approvals.iter() {
        let id = approval.id;
        let decided = (approval.status == approvals::Status::Pending) == approval.resolved_at.is_none();
        ensure(Rule::ApprovalsEnd, decided, || format!("{id} is {:?} and says when", approval.status));
        if !approval.is_open() {
            continue;
        }
        let latest = machine.core.now + approvals::LIFETIME;
        let ends = approval.expires_at <= latest && state.timers.is_set(Timer::Approval(id));
        ensure(Rule::ApprovalsEnd, ends, || {
            format!("{id} ends at {}, or nobody sees to it", approval.expires_at)
        });
        if approval.status == approvals::Status::Pending {
            let wish = (approval.lineage_id, serde_json::to_string(&approval.action).unwrap());
            let is_question =
                matches!(approval.action, Action::Question { .. } | Action::ToolPermission { .. });
            let is_new = wishes.insert(wish.clone());
            ensure(Rule::ApprovalsEnd, is_new || is_question, || {
                format!("{id}: {wish:?} is asked for twice")
            });
        }
    }
    let open = state.approvals.iter().filter(|approval| approval.is_open()).count();
    ensure(Rule::ApprovalsEnd, open <= approvals::MAX_OPEN, || format!("{open} approvals are open"));
    for agent in state.agents.live() {
        let waits = approvals::awaited(state, agent.lineage_id).is_some();
        let shown = agent.status == Status::Waiting;
        // One that is started, replaced or stopped has a better reason to show.
        let may_show = matches!(agent.status, Status::Running | Status::Waiting) && !agent.is_put_away();
        let said = || format!("{} is {:?}, work of it waits: {waits}", agent.name, agent.status);
        ensure(Rule::WaitingIsShown, !may_show || waits == shown, said);
    }
}

fn check_questions(machine: &Machine) {
    let pending = |id: AgentId, asked: &String| {
        let is_it =
            |action: &Action| matches!(action, Action::ToolPermission { question, .. } if question == asked);
        machine
            .core
            .state
            .approvals
            .pending()
            .filter(|one| one.agent_id == Some(id) && is_it(&one.action))
            .count()
    };
    for (id, kept) in &machine.programs.keepers {
        let runs = machine.programs.processes.get(id) == Some(&Process::Runs);
        if !runs || !kept.is_at_rest() {
            continue;
        }
        let agent = machine.core.state.agents.get(*id);
        let is_open = agent.is_some_and(|agent| agent.turn_open && agent.phase == Phase::Working);
        let said = || format!("{id} is awaited to end a turn that it has not begun");
        ensure(Rule::NobodyIdles, kept.is_busy || !is_open, said);
        for question in &kept.asked {
            let count = pending(*id, question);
            let said =
                || format!("{id} waits for the answer to {question}, for which {count} people are asked");
            ensure(Rule::AnswersArrive, count == 1, said);
        }
    }
}

fn check_schedules(machine: &Machine) {
    let state = &machine.core.state;
    if !machine.is_up {
        return;
    }
    for schedule in state.schedules.iter() {
        let id = schedule.id;
        let waits = state.timers.is_set(Timer::ScheduleDue(id));
        let said = || format!("{id} is enabled: {}, it waits: {waits}", schedule.enabled);
        ensure(Rule::SchedulesWait, schedule.enabled == waits, said);
        ensure(Rule::SchedulesWait, schedule.next_run.is_some() == waits, || {
            format!("{id} does not say when")
        });
        let times: Vec<_> = schedule.history.iter().filter_map(|run| run.scheduled_for.as_ref()).collect();
        let distinct: BTreeSet<_> = times.iter().collect();
        let is_well = distinct.len() == times.len() && schedule.history.len() <= MAX_HISTORY;
        let count = times.len();
        let said = || format!("the history of {id} has {count} entries, or names a time twice: {times:?}");
        ensure(Rule::SchedulesWait, is_well, said);
    }
}

fn check_bounds(machine: &Machine, before: &State) {
    let state = &machine.core.state;
    let bounded = |what: &str, count: usize, limit: usize| {
        ensure(Rule::Bounded, count <= limit, || format!("{count} {what}, the limit is {limit}"));
    };
    bounded("plans", state.teams.plans().len(), MAX_PLANS);
    bounded("questions under way", machine.programs.queries.len(), MAX_QUERIES + 1);
    for gateway in state.gateways.iter() {
        let waiting = state.gateways.inbox().iter().filter(|entry| entry.gateway == gateway.id).count();
        bounded("commands of a chat", waiting, MAX_CHAT_COMMANDS);
        bounded("remembered keys", gateway.recent.len(), MAX_KEYS);
    }
    if Arc::ptr_eq(&before.agents, &state.agents) {
        return;
    }
    for agent in state.agents.iter() {
        bounded("messages for one agent", agent.queue.len(), MAX_MESSAGES);
    }
    bounded("records", state.agents.iter().count(), agents::MAX_ENDED + 100);
}

/// The agents' tokens, the teams' and the total are the same.
fn check_ledger(machine: &Machine) {
    let sum = |rows: &serde_json::Value, field: &str| -> u64 {
        rows.as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap()).sum()
    };
    let state = &machine.core.state;
    let summary = serde_json::json!(usage::report::summary(state));
    let teams = usage::report::by_team(state);
    let total = summary["totalUsed"].as_u64().unwrap();
    let (agents, teams) = (sum(&summary["perAgent"], "used"), sum(&teams["teams"], "totalTokens"));
    let said = || format!("the agents have used {agents}, the teams {teams}, in total it is {total}");
    ensure(Rule::Ledger, agents == total && teams == total, said);
}

/// An agent is to be started.
pub fn check_start(machine: &Machine, before: &State, id: AgentId, lineage: LineageId, now: Time) {
    let twice = machine.programs.processes.contains_key(&id);
    ensure(Rule::OneProcess, !twice, || format!("{id} has two processes"));
    let of_lineage = |(id, process): (&AgentId, &Process)| {
        let same = before.agents.get(*id).is_some_and(|agent| agent.lineage_id == lineage);
        same && *process != Process::Stopping && *process != Process::Finishing
    };
    let alive = machine.programs.processes.iter().any(of_lineage);
    ensure(Rule::OneProcess, !alive, || format!("{lineage} has two processes"));
    let config = machine.core.state.settings.config();
    let live = machine.core.state.agents.live().count();
    let was = before.agents.live().count();
    // What an earlier daemon has ordered was let in by that.
    let is_again = machine.starts.is_again(id);
    let fits = is_again || live <= config.max_agents.max(was);
    ensure(Rule::Capacity, fits, || format!("{live} are alive, {} may be", config.max_agents));
    let known = before.agents.by_lineage(lineage);
    let goes_on =
        known.is_some_and(|agent| agent.status.is_live() || agents::rotation::under_way(before, agent.id));
    let used = before.usage.today_usd(now);
    if let Some(budget) = config.safety.daily_budget_usd.filter(|_| !goes_on && !is_again) {
        ensure(Rule::Budget, used < budget, || format!("{id} starts, with {used} of {budget} used"));
    }
}
