//! The life of a run: what its threads report, and how it ends.

use super::LAST_CHECKPOINT;
use super::elsewhere;
use super::reason::{Reason, Remark};
use super::record::{Agent, Attached, ExitInfo, FileTouch, LastTurn, Phase, Status, Stop};
use super::report::{Batch, Keeper, RunReport};
use super::{
    LogEntry, Outcome, RunOrder, attach, limit, moving, put_away, rotation, say, silence, touch, wait,
};
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{CallId, Context, Durability, Effect, Moment, Notice, State as All, Timer};
use crate::providers::{self, Activity, Tokens, TurnEnd, Usage, login, windows};
use crate::settings::Config;
use crate::usage;
use serde_json::Value;
use std::sync::Arc;

/// Files remembered per lineage; further ones are not counted.
pub const MAX_FILES: usize = 1_000;
/// Characters of an answer or error kept in a record.
const KEPT_CHARS: usize = 300;

/// Handles a report of a run's threads. Reports of unknown runs are those of removed records.
pub fn run_report(all: &mut All, cx: &mut Context, id: AgentId, report: RunReport) {
    if all.agents.get(id).is_none() {
        if matches!(report, RunReport::Exited { .. } | RunReport::StartFailed { .. }) {
            cx.push(Effect::Settled(id, LAST_CHECKPOINT));
        }
        return;
    }
    match report {
        RunReport::Started { pid, start_ticks } => started(all, cx, id, pid, start_ticks),
        RunReport::StartFailed { error } => {
            start_failed(all, cx, id, &error);
            cx.push(Effect::Settled(id, LAST_CHECKPOINT));
        }
        RunReport::Output(batch) => output(all, cx, id, batch),
        RunReport::Said { message_id, delivered } => say::said(all, cx, id, message_id, delivered),
        RunReport::Exited { code, signal, signalled, stderr_tail, leaked, keeper } => {
            if leaked > 0 {
                Arc::make_mut(&mut all.health).leaked += u64::from(leaked);
                cx.push(Effect::Warn(format!("agent {id}: {leaked} of its processes could not be ended")));
            }
            exited(all, cx, id, &Exit { code, signal, signalled, complaints: &stderr_tail, keeper });
            cx.push(Effect::Settled(id, LAST_CHECKPOINT));
        }
        RunReport::Checkpoint { n, deed } => {
            // A message that was taken has a number, too, and no batch that tells it.
            if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
                agent.heard = agent.heard.max(deed);
            }
            touch(all, cx, Durability::Soon);
            cx.push(Effect::Settled(id, n));
        }
        RunReport::LeftThere => elsewhere::left_there(all, cx, id),
        RunReport::Copied { program } => elsewhere::copied(all, cx, id, &program),
        RunReport::Line { cut } => elsewhere::line(all, cx, id, cut.as_deref()),
        RunReport::CaughtUp => caught_up(all, cx, id),
        RunReport::Left => {
            if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
                agent.phase = Phase::Left;
            }
            touch(all, cx, Durability::Soon);
        }
    }
}

fn started(all: &mut All, cx: &mut Context, id: AgentId, pid: u32, start_ticks: u64) {
    let now = cx.now;
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
        agent.held = None;
        agent.has_prompt();
        agent.queued = None;
        agent.pid = Some(pid);
        agent.start_ticks = start_ticks;
        agent.opening = None;
        match agent.phase {
            // Its rotation was asked for before it ran, and says itself what becomes of it.
            _ if agent.status == Status::Rotating => {}
            Phase::Working => agent.set_status(now, Status::Running, Reason::ProcessRuns),
            Phase::Attached => agent.set_status(now, Status::Running, Reason::Attached),
            _ => {}
        }
    }
    silence::watch(all, id, now);
    cx.moment(Moment::Started(id));
    rotation::successor_started(all, cx, id);
    touch(all, cx, Durability::Soon);
}

fn start_failed(all: &mut All, cx: &mut Context, id: AgentId, error: &str) {
    let mut calls = Vec::new();
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
        let phase = std::mem::replace(&mut agent.phase, Phase::Ended);
        agent.opening = None;
        let (status, reason) = match &phase {
            // It was to end anyway: that it never started is no crash then.
            Phase::Stopping(..) => verdict(agent, &phase, &Exit::NONE),
            _ => (Status::Crashed, Reason::StartFailed { error: error.to_owned() }),
        };
        agent.set_status(cx.now, status, reason);
        agent.error = (status == Status::Crashed).then(|| error.to_owned());
        agent.turn_open = false;
        (agent.held, agent.queued) = (None, None);
        agent.nothing_on_its_way();
        if let Phase::Stopping(_, waiting) = phase {
            calls = waiting;
        }
    }
    moving::given_up(all, cx, id);
    announce_exit(all, cx, id);
    answer_stops(all, cx, id, calls);
    if rotation::under_way(all, id) {
        rotation::successor_failed(all, cx, id, error);
    } else {
        cx.moment(Moment::Ended(id));
    }
    touch(all, cx, Durability::BeforeReply);
}

fn output(all: &mut All, cx: &mut Context, id: AgentId, batch: Batch) {
    let now = cx.now;
    let mut turn_over = false;
    let used = batch.activities.iter().any(|activity| matches!(activity, Activity::Usage(_)));
    let tool_over = batch.activities.iter().any(|activity| matches!(activity, Activity::ToolEnded { .. }));
    // Taken before `agents` is borrowed for writing; both are only looked at.
    let (usage, settings) = (Arc::clone(&all.usage), Arc::clone(&all.settings));
    let agents = Arc::make_mut(&mut all.agents);
    let Some(agent) = agents.edit(id) else { return };
    agent.last_activity = now;
    agent.heard = batch.upto;
    agent.stalled = false;
    // One that waits, rotates or stops has a better reason to show than that it prints.
    if agent.phase == Phase::Working && agent.status == Status::Running {
        agent.set_status(now, Status::Running, Reason::Working);
    }
    for activity in &batch.activities {
        turn_over |= note(agent, activity, now);
    }
    if used && let Some(account) = usage.account(agent.lineage_id) {
        // Where the provider tells no cost, the price table does.
        agent.cost_usd = account.cost_usd();
        agent.unpriced_tokens = account.unpriced();
    }
    if used {
        know_window(&usage, settings.config(), agent);
    }
    let is_limit = |activity: &&Activity| matches!(activity, Activity::Limit(_));
    let told: Vec<Activity> = batch.activities.iter().filter(is_limit).cloned().collect();
    cx.push(Effect::Output(batch));
    silence::watch(all, id, now);
    limit_told(all, cx, id, &told);
    if turn_over {
        turn_ended(all, cx, id);
    } else if used || tool_over {
        // A turn can be longer than the context lasts, so the end of a turn is not waited for.
        rotation::begin_if_due(all, cx, id);
    }
    touch(all, cx, Durability::Soon);
}

/// What a provider told of its windows concerns those that wait for one.
fn limit_told(all: &mut All, cx: &mut Context, id: AgentId, told: &[Activity]) {
    for activity in told {
        let (Activity::Limit(told), Some(agent)) = (activity, all.agents.get(id).cloned()) else { continue };
        limit::window_told(all, cx, &agent.provider, agent.account_name(), told);
    }
}

/// A person's own word on the window of its model comes first, then the program's, then the table's.
fn know_window(usage: &usage::State, config: &Config, agent: &mut Agent) {
    let model = usage::model_of_record(usage, agent);
    if let Some(own) = config.model(&model).and_then(|own| own.context_window) {
        agent.context_window = own;
    } else if agent.context_window == 0 && agent.context_tokens > 0 {
        agent.context_window = windows::window_of(&agent.provider, &model).unwrap_or_default();
    }
}

/// Takes one activity into the record; whether it ended a turn.
fn note(agent: &mut Agent, activity: &Activity, now: Time) -> bool {
    agent.open_tools.take(activity);
    if let Activity::Text { .. } | Activity::Thinking { .. } | Activity::ToolStarted { .. } = activity {
        // Its model answers again.
        agent.told = None;
    }
    if let Some(touched) = agent.open_files.take(activity) {
        touch_file(agent, &touched.path, touched.writes);
    }
    match activity {
        Activity::Session { id, model } => {
            agent.change_session(Some(id.clone()));
            agent.session_confirmed = true;
            if model.is_some() && agent.actual_model != *model {
                if agent.actual_model.is_some() {
                    // Told again, or looked up, with the next figures.
                    agent.context_window = 0;
                }
                agent.actual_model.clone_from(model);
            }
        }
        Activity::TurnStarted => (agent.turn_open, agent.turn_presumed) = (true, false),
        Activity::Text { text } => agent.current_activity = Some(first_words(text)),
        Activity::Thinking { .. } => agent.current_activity = Some("thinking".into()),
        Activity::ToolStarted { name, path, input, .. } => {
            (agent.turn_open, agent.turn_presumed) = (true, false);
            let what = path.as_deref().or_else(|| said_most(input));
            agent.current_activity =
                Some(what.map_or_else(|| name.clone(), |what| first_words(&format!("{name} {what}"))));
        }
        Activity::ToolEnded { .. } | Activity::PermissionAsked { .. } | Activity::Noise { .. } => {}
        Activity::Usage(usage) => note_usage(agent, usage),
        Activity::Trouble { text } => {
            agent.set_status(now, agent.status, Reason::Trouble { text: text.clone() });
        }
        Activity::Limit(limit) => agent.told_limit(limit, now),
        Activity::Compacted => agent.current_activity = Some("the provider compacted its context".into()),
        Activity::TurnEnded(end) => {
            note_turn_end(agent, end, now);
            return true;
        }
    }
    false
}

fn note_usage(agent: &mut Agent, usage: &Usage) {
    agent.tokens += usage.delta;
    agent.instance_tokens += usage.delta;
    if let Some(total) = usage.session_total {
        agent.session_counted = total;
    }
    // A sub-agent reports none, for it fills a context of its own.
    agent.context_tokens = usage.context_tokens.unwrap_or(agent.context_tokens);
    agent.context_window = usage.context_window.unwrap_or(agent.context_window);
}

fn note_turn_end(agent: &mut Agent, end: &TurnEnd, now: Time) {
    (agent.turn_open, agent.turn_presumed) = (false, false);
    agent.turns += 1;
    agent.current_activity = None;
    let text = if end.is_error { &end.error } else { &end.text };
    let reason = match (end.is_error, &end.denied[..]) {
        (true, _) => Reason::TurnFailed { error: first_words(text) },
        (false, []) => Reason::TurnEnded,
        (false, denied) => Reason::TurnEndedWithRefusals { denied: denied.to_vec() },
    };
    if !end.is_error {
        agent.turn_was_good();
    }
    // Of one with a person that says more.
    if agent.attached != Attached::Here {
        agent.set_status(now, agent.status, reason);
    }
    agent.last_turn =
        Some(LastTurn { is_error: end.is_error, text: first_words(text), denied: end.denied.len() });
}

fn touch_file(agent: &mut Agent, path: &str, writes: bool) {
    let files = Arc::make_mut(&mut agent.files);
    if files.len() >= MAX_FILES && !files.contains_key(path) {
        return;
    }
    let FileTouch { reads, writes: written } = files.entry(path.to_owned()).or_default();
    let count = if writes { written } else { reads };
    *count = count.saturating_add(1);
}

/// The argument of a tool without a file that says most about what it does, by the names that tools use.
fn said_most(input: &Value) -> Option<&str> {
    const NAMES: [&str; 5] = ["command", "pattern", "query", "url", "description"];
    NAMES.iter().find_map(|name| input[*name].as_str()).filter(|text| !text.trim().is_empty())
}

fn first_words(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(KEPT_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

/// It went on while no daemon was there, and all that happened is known now: what this daemon would have done
/// then is done.
fn caught_up(all: &mut All, cx: &mut Context, id: AgentId) {
    silence::watch(all, id, cx.now);
    cx.moment(Moment::CaughtUp(id));
    let Some(agent) = all.agents.get(id) else { return };
    if agent.phase != Phase::Working || agent.turn_open {
        return;
    }
    between_turns(all, cx, id);
}

/// A turn is over.
fn turn_ended(all: &mut All, cx: &mut Context, id: AgentId) {
    cx.moment(Moment::TurnEnded(id));
    rotation::turn_ended(all, cx, id);
    if all.agents.get(id).is_some_and(|agent| agent.is_at_limit()) {
        // Whatever it is told now is refused: it ends, and is held.
        return let_go_if_idle(all, cx, id);
    }
    between_turns(all, cx, id);
}

/// No turn is open: a person takes its screen, a successor goes on, what waits is said, or it may end.
pub(super) fn between_turns(all: &mut All, cx: &mut Context, id: AgentId) {
    if attach::at_turn_end(all, cx, id) || moving::at_turn_end(all, cx, id) {
        return;
    }
    let is_kept = limit::reserve::is_kept(all, cx.now, id);
    if is_kept || (!rotation::begin_if_due(all, cx, id) && !say::deliver_idle(all, cx, id)) {
        let_go_if_idle(all, cx, id);
    }
}

/// Lets a program end when no turn is open and every message it was given is confirmed. A message that it
/// took in the last moment may still begin a turn: closing its input does not cut that short.
pub fn let_go_if_idle(all: &mut All, cx: &mut Context, id: AgentId) {
    if rotation::under_way(all, id) {
        // Its successor goes on with whatever waits.
        return;
    }
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    let awaited = agent.queue.iter().any(|message| message.sent);
    // It is about to be told what a person decided, and can take that without another life.
    let waits =
        agent.status == Status::Waiting && wait::takes_input(&agent.provider) && agent.put_away.is_none();
    if agent.phase == Phase::Working && !agent.turn_open && !awaited && !waits {
        agent.phase = Phase::Finishing;
        cx.push(Effect::Run(id, RunOrder::Finish));
    }
}

/// Orders an agent to end. `call` is answered when every descendant is gone.
pub fn stop(all: &mut All, cx: &mut Context, id: AgentId, why: Stop, call: Option<CallId>) {
    if all.agents.get(id).is_some_and(|agent| agent.has_no_run()) {
        return limit::ended(all, cx, id, why, call);
    }
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    let reason = match why {
        Stop::Kill => Reason::Stopping,
        Stop::Rotate => Reason::BeingReplaced,
        Stop::Attach => Reason::HandingOver,
        Stop::Move => Reason::Moving { to: moving::whither(agent) },
        Stop::Limit => Reason::StoppingAtLimit,
        Stop::Shutdown => Reason::DaemonStopping,
    };
    match &mut agent.phase {
        Phase::Stopping(earlier, calls) => {
            // A wish to end outranks one to go on otherwise.
            if matches!(earlier, Stop::Rotate | Stop::Attach | Stop::Move) {
                *earlier = why;
            }
            calls.extend(call);
        }
        phase => {
            *phase = Phase::Stopping(why, call.into_iter().collect());
            cx.push(Effect::Run(id, RunOrder::Stop));
        }
    }
    // It stays live until its last process is gone; only the reason says what comes.
    agent.set_status(cx.now, agent.status, reason);
    touch(all, cx, Durability::Soon);
}

/// How a program ended, see [`RunReport::Exited`].
struct Exit<'a> {
    code: Option<i32>,
    signal: Option<i32>,
    signalled: bool,
    /// The end of its standard error.
    complaints: &'a str,
    keeper: Keeper,
}

impl Exit<'_> {
    /// There was no program.
    const NONE: Self =
        Self { code: None, signal: None, signalled: false, complaints: "", keeper: Keeper::Told };
}

fn exited(all: &mut All, cx: &mut Context, id: AgentId, exit: &Exit) {
    Arc::make_mut(&mut all.timers).clear(Timer::Silence(id));
    let mut calls = Vec::new();
    let (mut why, mut was_open) = (None, false);
    let (mut is_held, mut is_put_away, mut is_carried) = (false, false, false);
    // Taken before `agents` is borrowed for writing; both are only looked at.
    let snapshot = all.clone();
    if let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) {
        let phase = std::mem::replace(&mut agent.phase, Phase::Ended);
        if let Phase::Stopping(stop, waiting) = &phase {
            why = Some(*stop);
            calls.clone_from(waiting);
        }
        agent.opening = None;
        agent.exit = Some(ExitInfo { code: exit.code, signal: exit.signal, at: cx.now });
        let (mut status, mut reason) = verdict(agent, &phase, exit);
        (agent.held, agent.queued) = (None, None);
        // What a person does at the screen is not done again by itself.
        let may_hold = agent.attached != Attached::Here;
        if status == Status::Crashed && exit.keeper == Keeper::Told && may_hold {
            let held = limit::of_end(&snapshot, cx.now, agent, exit.complaints);
            is_held = limit::holds(agent, cx.now, held);
            if let Some(stopped) = limit::stops(&snapshot, agent, exit.complaints).filter(|_| !is_held) {
                (status, reason) = (Status::Killed, stopped);
            }
        }
        let is_well = exit.keeper == Keeper::Told && !snapshot.agents.pending_rotations.contains_key(&id);
        is_carried = !is_held && is_well && moving::holds(agent, why, status);
        is_put_away = !is_held && !is_carried && put_away::holds(agent, cx.now, status, is_well);
        if !is_held && !is_put_away && !is_carried {
            set_end(agent, cx.now, exit, status, reason);
        }
        was_open = std::mem::take(&mut agent.turn_open);
        agent.current_activity = None;
        leave_words(agent, exit);
    }
    if is_held {
        return held(all, cx, id);
    }
    if is_put_away {
        return put_away::gone(all, cx, id);
    }
    if is_carried {
        return moving::set_off(all, cx, id);
    }
    if why != Some(Stop::Rotate) {
        moving::given_up(all, cx, id);
    }
    announce_exit(all, cx, id);
    answer_stops(all, cx, id, calls);
    let mut awaits_brief = false;
    // A kill that came after the rotation had begun has taken its place in the phase: then this is an ending.
    if why == Some(Stop::Rotate) {
        rotation::predecessor_ended(all, cx, id);
    } else if rotation::under_way(all, id) {
        rotation::given_up(all, cx, id);
    } else {
        cx.moment(Moment::Ended(id));
        awaits_brief = rotation::prepare_handoff(all, cx, id);
    }
    if attach::go_on(all, cx, id, why, (was_open, exit.keeper == Keeper::Told)) {
        return touch(all, cx, Durability::BeforeReply);
    }
    // With a brief on its way it goes on when that is there, instead of in its full session.
    if why.is_none() && !awaits_brief {
        say::resume_if_spoken_to(all, cx, id);
    }
    touch(all, cx, Durability::BeforeReply);
}

/// It is over, with this status.
fn set_end(agent: &mut Agent, now: Time, exit: &Exit, status: Status, reason: Reason) {
    if status == Status::Crashed && !exit.complaints.trim().is_empty() {
        agent.error = Some(exit.complaints.to_owned());
    } else if status == Status::Crashed {
        agent.error = agent.last_turn.as_ref().map(|turn| turn.text.clone());
    }
    agent.set_status(now, status, reason);
    let is_lost = agent.session_id.is_some() && !agent.session_confirmed;
    if status == Status::Crashed && is_lost && agent.attached != Attached::Here {
        // The provider does not know the session any more: the next resume must not fail in the same way.
        agent.change_session(None);
        agent.session_counted = Tokens::default();
        agent.status_reason.remark(Remark::SessionGone);
    }
}

/// What it was started with has reached it if it ran, whether or not that was told; nothing else will.
fn leave_words(agent: &mut Agent, exit: &Exit) {
    if exit.code.or(exit.signal).is_some() {
        agent.has_prompt();
    }
    agent.nothing_on_its_way();
}

/// Its process is gone because its provider answers nothing: it is not over.
fn held(all: &mut All, cx: &mut Context, id: AgentId) {
    limit::arrange(all, cx, id);
    if rotation::under_way(all, id) {
        rotation::given_up(all, cx, id);
    }
    touch(all, cx, Durability::BeforeReply);
}

/// Status and reason of an ended run, read from three things together: whether a stop was ordered, the
/// last turn's outcome, the exit status.
fn verdict(agent: &Agent, phase: &Phase, exit: &Exit) -> (Status, Reason) {
    match phase {
        Phase::Stopping(Stop::Kill, _) => return (Status::Killed, Reason::Stopped),
        Phase::Stopping(Stop::Rotate, _) => return (Status::Killed, Reason::Replaced),
        Phase::Stopping(Stop::Attach, _) => return (Status::Killed, Reason::HandingOver),
        Phase::Stopping(Stop::Move, _) => return (Status::Interrupted, Reason::Stopped),
        Phase::Stopping(Stop::Limit, _) => {
            let limit = agent.limit.as_deref().unwrap_or("it has used what it may").to_owned();
            return (Status::Killed, Reason::LimitReached { limit, name: agent.name.clone() });
        }
        Phase::Stopping(Stop::Shutdown, _) => return (Status::Interrupted, Reason::DaemonStopped),
        _ => {}
    }
    match exit.keeper {
        Keeper::Told => {}
        // An earlier daemon was replacing it, and so does this one.
        Keeper::Orphaned if agent.status == Status::Rotating => return (Status::Killed, Reason::Replaced),
        Keeper::Orphaned => return (Status::Interrupted, Reason::Orphaned),
        Keeper::Gone => return (Status::Crashed, Reason::KeeperGone),
        Keeper::Ceiling { held, ceiling } => return super::ceiling::verdict(agent, held, ceiling),
    }
    if let Some(reason) = attach::left(agent, exit.code) {
        return (Status::Completed, reason);
    }
    if let (None, Some(signal), false) = (exit.code, exit.signal, exit.signalled) {
        // Whatever its turn came to: some programs end a turn well, others badly, because of the signal.
        return (Status::Killed, Reason::ForeignSignal { signal });
    }
    let turn = agent.last_turn.as_ref();
    if let Some(turn) = turn.filter(|turn| turn.is_error) {
        let error = turn.text.clone();
        let reason = match login_remedy(agent, &error) {
            Some(remedy) => Reason::LoginNeeded { error, remedy },
            None => Reason::LastTurnFailed { error },
        };
        return (Status::Crashed, reason);
    }
    let finishing = *phase == Phase::Finishing;
    match (exit.code, exit.signal) {
        (Some(0), _) => (Status::Completed, completed_reason(agent)),
        // It was told to end after a good turn: how its launcher dies then says nothing of the work.
        _ if finishing && !agent.turn_open => (Status::Completed, completed_reason(agent)),
        (Some(code), _) => (Status::Crashed, Reason::ExitCode { exit: code, cause: cause(exit.complaints) }),
        (None, Some(signal)) => (Status::Killed, Reason::EndedByDaemon { signal }),
        (None, None) => (Status::Crashed, Reason::Vanished),
    }
}

/// The line of standard error that tells most: the first that calls itself an error, else the last. A line
/// of a log is taken only where there is nothing else.
fn cause(complaints: &str) -> Option<String> {
    let plain = |line: &str| line.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned();
    let mut lines: Vec<String> = complaints.lines().map(plain).filter(|line| !line.is_empty()).collect();
    let is_log = |line: &String| line.starts_with("timestamp=") && line.contains(" level=");
    if !lines.iter().all(is_log) {
        lines.retain(|line| !is_log(line));
    }
    let is_error = |line: &&String| {
        let line = line.to_lowercase();
        line.starts_with("error") || line.contains("error: ")
    };
    lines.iter().find(is_error).or(lines.last()).map(|line| first_words(line))
}

/// What to do about a turn that failed because nobody is logged in to the provider's program.
fn login_remedy(agent: &Agent, error: &str) -> Option<String> {
    let usual = || login::remedy(providers::info_of(&agent.provider));
    let own = |name: &String| format!("log in to its account {name}: svc account list says how");
    let remedy = agent.account.as_ref().map_or_else(usual, own);
    (!remedy.is_empty() && login::is_missing(error)).then_some(remedy)
}

/// Whether a signal ended it that no person wished, for example for want of memory.
pub fn died_by_foreign_signal(agent: &Agent) -> bool {
    matches!(agent.status_reason.why(), Reason::ForeignSignal { .. } | Reason::MemoryCeiling { .. })
}

fn completed_reason(agent: &Agent) -> Reason {
    match &agent.last_turn {
        Some(turn) if turn.denied > 0 => Reason::FinishedWithRefusals { denied: turn.denied },
        Some(_) if agent.turn_open => Reason::CutShort,
        Some(_) => Reason::Finished,
        None => Reason::NoResult,
    }
}

pub(super) fn announce_exit(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id) else { return };
    let exit = agent.exit;
    let text = format!("{:?}: {}", agent.status, agent.status_reason).to_lowercase();
    cx.push(Effect::Log(agent.lineage_id, id, LogEntry::life(text)));
    cx.notice(Notice::AgentExit {
        agent_id: id,
        agent_name: agent.name.clone(),
        code: exit.and_then(|exit| exit.code),
        signal: exit.and_then(|exit| exit.signal),
        status: agent.status,
        reason: agent.status_reason.clone(),
        error: agent.error.clone(),
    });
}

pub(super) fn answer_stops(all: &All, cx: &mut Context, id: AgentId, calls: Vec<CallId>) {
    let Some(agent) = all.agents.get(id) else { return };
    let (status, leaked) = (agent.status, all.health.leaked);
    for call in calls {
        cx.reply(call, Outcome::Ended { id, name: agent.name.clone(), status, leaked });
    }
}
