//! An agent goes on on another machine, or here again: `svc move`.
//!
//! ```text
//! working ──wished──▶ let go at its turn's end, or stopped ──gone──▶ Carrying ──▶ its next life, there
//! ended ────────────────────────────────────────────────────────────▶   │
//! where it was, ended, and to be resumed there ◀──a step has failed──────────────┘
//! ```
//! Who is carried is alive in all but its process: it keeps its name, its scope and its place among
//! `maxAgents`, and what is said to it waits.
//!
//! **Invariant:** nobody is carried whose program was not seen to be gone: a session has one writer.
//! **Invariant:** where it works changes when all of it has arrived, and at no other moment.

use super::reason::Reason;
use super::record::{Agent, Attached, Deliver, Instruction, Phase, Status, Stop};
use super::worker::Far;
use super::{Job, LogEntry, Outcome, elsewhere, life, rotation, say, spawn, touch};
use crate::api::Problem;
use crate::core::ids::{AgentId, LineageId};
use crate::core::{CallId, Context, Durability, Effect, Moment, State as All};
use crate::providers::environment::Extra;
use crate::runners::Runner;
use crate::usage;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use svc_base::untrusted::untrusted_prose;

#[cfg(test)]
#[path = "moving_tests.rs"]
mod tests;

/// Characters of why it has failed.
const WHY_CHARS: usize = 400;
/// This machine, where a runner may be named.
pub const HERE: &str = "here";

/// What a person wishes.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Wish {
    /// The runner, or [`HERE`].
    pub runner: String,
    /// Not at the end of its turn, but at once.
    pub now: bool,
    /// What it is to do there.
    pub message: Option<String>,
}

/// A move that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Moving {
    /// The runner; `None` is this machine.
    pub to: Option<String>,
    pub step: Step,
    /// How it had ended, if it had when somebody wished this.
    pub was: Option<Status>,
    /// Whether it goes on there by itself.
    pub goes_on: bool,
    /// What became of its session, once that is known.
    #[serde(default)]
    pub session: Option<Session>,
}

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// It waits for the end of a turn, or of a program.
    Wanted,
    /// Its branch and its session are on their way.
    Carrying,
    /// All has arrived but its session; what it is to know instead is put together.
    Briefing,
}

/// What whoever carries it needs to know.
#[derive(Debug)]
pub struct Order {
    pub agent: Arc<Agent>,
    /// Where it is; `None` is here.
    pub from: Option<Arc<Runner>>,
    pub to: Option<Far>,
    /// The folder in which it works when it is here.
    pub folder: PathBuf,
    /// What a person has said about its variables here.
    pub extra: Extra,
}

/// What was carried.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Trip {
    pub session: Session,
    /// Whether there was work here that no commit held, which is one now.
    pub committed: bool,
}

/// What became of its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Session {
    /// It has none.
    None,
    Goes,
    /// It cannot go, and why.
    Stays(String),
}

impl Agent {
    /// Whether it is on its way to another machine.
    pub fn is_carried(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| moving.step != Step::Wanted)
    }

    fn is_wanted_elsewhere(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| moving.step == Step::Wanted)
    }
}

/// Where it is to be, for a sentence.
pub(super) fn whither(agent: &Agent) -> String {
    place_of(agent.moving.as_ref().and_then(|moving| moving.to.as_deref()))
}

/// `POST /api/agents/:id/move`; answered when it is there, or at once where its turn is waited for.
pub fn wish(all: &mut All, cx: &mut Context, call: CallId, target: &str, wish: Wish) {
    match begin(all, cx, target, wish) {
        // It is answered with what becomes of it.
        Ok((agent, false)) => {
            let calls = &mut Arc::make_mut(&mut all.agents).moves;
            calls.entry(agent.lineage_id).or_default().push(call);
        }
        Ok((agent, true)) => {
            let to = agent.moving.as_ref().and_then(|moving| moving.to.clone());
            cx.reply(call, Outcome::Moves { agent, to, session: None });
        }
        Err(problem) => cx.reply(call, problem),
    }
}

/// Begins it; whether the end of a turn is waited for.
fn begin(all: &mut All, cx: &mut Context, target: &str, wish: Wish) -> Result<(Arc<Agent>, bool), Problem> {
    let agent = Arc::clone(all.agents.find(target)?);
    let to = Some(wish.runner).filter(|name| name != HERE);
    check(all, &agent, to.as_deref())?;
    let is_live = agent.status.is_live();
    let goes_on = is_live || wish.message.is_some();
    if goes_on {
        usage::check_budget(all, cx.now)?;
    }
    if !is_live {
        spawn::check_capacity(all)?;
    }
    let mut record = (*agent).clone();
    if let Some(message) = wish.message {
        say::enqueue(all, &mut record, message)?;
    }
    let was = (!is_live).then_some(agent.status);
    record.moving =
        Some(Box::new(Moving { to: to.clone(), step: Step::Wanted, was, goes_on, session: None }));
    let id = agent.id;
    Arc::make_mut(&mut all.agents).insert(record);
    let told = json!({"agentId": id, "name": agent.name, "from": agent.runner, "to": to, "now": wish.now});
    cx.audit("agent.move", &told);
    if !is_live {
        set_off(all, cx, id);
    } else if wish.now {
        life::stop(all, cx, id, Stop::Move, None);
    } else if !agent.turn_open {
        life::let_go_if_idle(all, cx, id);
    }
    // A wish is kept over a crash of the daemon.
    touch(all, cx, Durability::BeforeReply);
    let waits = is_live && !wish.now && agent.turn_open;
    let agent = all.agents.get(id).cloned().ok_or_else(|| Problem::not_found("the agent is gone"))?;
    Ok((agent, waits))
}

/// Errors: 409, 400 for what the runner is or has not.
fn check(all: &All, agent: &Agent, to: Option<&str>) -> Result<(), Problem> {
    let name = &agent.name;
    let refuse = |code: &'static str, text: String| Err(Problem::new(409, code, text));
    if agent.moving.is_some() && agent.status.is_live() {
        return refuse("move_under_way", format!("a move of {name} is under way already"));
    }
    if agent.runner.as_deref() == to {
        return refuse("already_there", format!("{name} works {} already", place_of(to)));
    }
    if agent.worktree.is_none() {
        let text = format!(
            "{name} has no branch of its own, so its work cannot go anywhere; svc spawn --isolation worktree \
             gives an agent one"
        );
        return refuse("no_worktree", text);
    }
    if rotation::under_way(all, agent.id) {
        return refuse(
            "rotation_under_way",
            format!("a rotation of {name} is under way; try again after it"),
        );
    }
    if agent.attached != Attached::No {
        return refuse(
            "attached",
            format!("a person is at the screen of {name}, or is to be; svc move comes after"),
        );
    }
    if agent.has_no_run() {
        let text =
            format!("{name} waits without a process ({}); svc resume {name} first", agent.status_reason);
        return refuse("agent_waits", text);
    }
    if matches!(agent.phase, Phase::Stopping(..)) {
        return refuse("agent_ended", format!("{name} is being ended ({}); try again", agent.status_reason));
    }
    if matches!(agent.status_reason.why(), Reason::Unreachable { .. }) {
        let text = format!(
            "{name} cannot be reached where it is; svc kill {name}, and svc resume {name} --runner NAME begins anew \
             elsewhere"
        );
        return refuse("unreachable", text);
    }
    spawn::provider_of(agent)?;
    if let Some(from) = &agent.runner {
        all.runners.find(from)?;
    }
    to.map_or(Ok(()), |to| elsewhere::check_agent(all, agent, to))
}

fn place_of(to: Option<&str>) -> String {
    to.map_or_else(|| "here".to_owned(), |to| format!("on {to}"))
}

/// A turn is over: whether it is to go elsewhere now, and so ends.
pub(super) fn at_turn_end(all: &mut All, cx: &mut Context, id: AgentId) -> bool {
    let is_wanted = all.agents.get(id).is_some_and(|agent| agent.is_wanted_elsewhere());
    if is_wanted {
        life::let_go_if_idle(all, cx, id);
    }
    is_wanted
}

/// A run has ended, with `status` if nothing else is to be said of it: whether it is carried elsewhere now.
pub(super) fn holds(agent: &mut Agent, stop: Option<Stop>, status: Status) -> bool {
    let is_so = agent.is_wanted_elsewhere()
        && (stop == Some(Stop::Move) || (stop.is_none() && status == Status::Completed));
    if is_so {
        agent.error = None;
    }
    is_so
}

/// Its program is gone: it is carried.
pub(super) fn set_off(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    let Some(moving) = &mut agent.moving else { return };
    moving.step = Step::Carrying;
    let to = place_of(moving.to.as_deref());
    (agent.phase, agent.pid, agent.turn_open) = (Phase::Ended, None, false);
    agent.set_status(cx.now, Status::Starting, Reason::Moving { to: to.clone() });
    let (lineage, words) = (agent.lineage_id, format!("moving: it is to go on {to}"));
    cx.push(Effect::Log(lineage, id, LogEntry::life(words)));
    go_further(all, cx, id);
    touch(all, cx, Durability::BeforeReply);
}

/// Orders what its step needs.
fn go_further(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    match agent.moving.as_ref().map(|moving| moving.step) {
        Some(Step::Carrying) => match order(all, &agent) {
            Ok(order) => cx.push(Effect::Job(Job::Move(Box::new(order)))),
            Err(why) => failed(all, cx, id, &why),
        },
        Some(Step::Briefing) => rotation::order_brief(all, cx, &agent, "moved", None),
        Some(Step::Wanted) | None => {}
    }
}

fn order(all: &All, agent: &Arc<Agent>) -> Result<Order, String> {
    let to = agent.moving.as_ref().and_then(|moving| moving.to.as_deref());
    let from = agent.runner.as_deref().map(|name| all.runners.find(name).map(Arc::clone)).transpose();
    Ok(Order {
        agent: Arc::clone(agent),
        from: from.map_err(|problem| problem.error)?,
        to: to.map(|to| elsewhere::far(all, agent, to)).transpose()?,
        folder: spawn::working_folder(all, agent),
        extra: all.settings.config().env.of(&agent.provider).then(&agent.env),
    })
}

/// The daemon has started: what an earlier one had begun is done again.
pub(super) fn go_on(all: &mut All, cx: &mut Context) {
    let carried: Vec<AgentId> =
        all.agents.live().filter(|agent| agent.is_carried()).map(|agent| agent.id).collect();
    for id in carried {
        go_further(all, cx, id);
    }
}

/// It has arrived, or not.
pub(super) fn carried(all: &mut All, cx: &mut Context, id: AgentId, result: Result<Trip, String>) {
    let Some(agent) = all.agents.get(id).filter(|agent| agent.is_carried()).cloned() else { return };
    let trip = match result {
        Ok(trip) => trip,
        Err(why) => return failed(all, cx, id, &why),
    };
    let Some(moving) = agent.moving.clone() else { return };
    let (from, to) = (agent.runner.clone(), moving.to.clone());
    let stays = match &trip.session {
        Session::Stays(why) => Some(why.clone()),
        Session::None | Session::Goes => None,
    };
    let told = json!({
        "agentId": id, "name": agent.name, "from": from, "to": to, "session": trip.session.word(),
        "why": stays,
    });
    cx.audit("agent.moved", &told);
    let commit = if trip.committed { "; what no commit held is one commit of its branch now" } else { "" };
    let words = match &stays {
        None => format!("moved: it is {} now{commit}", place_of(to.as_deref())),
        Some(why) => format!(
            "moved: it is {} now, and begins a new session there with a brief{commit}: {why}",
            place_of(to.as_deref())
        ),
    };
    cx.push(Effect::Log(agent.lineage_id, id, LogEntry::life(words)));
    let agents = Arc::make_mut(&mut all.agents);
    let number = agents.number_message();
    let Some(record) = agents.edit(id) else { return };
    record.runner.clone_from(&to);
    note(record, number, to.as_deref());
    let step = if stays.is_some() { Step::Briefing } else { Step::Carrying };
    record.moving = Some(Box::new(Moving { session: Some(trip.session), step, ..*moving }));
    if stays.is_none() {
        return arrived(all, cx, id);
    }
    record.leave_session();
    go_further(all, cx, id);
    touch(all, cx, Durability::BeforeReply);
}

/// What it cannot see itself goes before whatever is said to it next.
fn note(agent: &mut Agent, number: u64, to: Option<&str>) {
    let machine = to.map_or_else(|| "your first machine".to_owned(), |to| format!("another machine ({to})"));
    let text = format!(
        "You go on on {machine} now: your folder has another path, what you had not committed is a commit of your \
         branch, and files that git ignores, like what was built, did not come along. Continue where you left off."
    );
    let note = Instruction::new(number, text.into(), Deliver::Rotation);
    agent.queue.insert(0, Instruction { is_note: true, ..note });
}

/// The brief of one that is on its way: whether it was one.
pub(super) fn briefed(all: &mut All, cx: &mut Context, id: AgentId, brief: &Result<String, String>) -> bool {
    let is_one =
        |agent: &&Arc<Agent>| agent.moving.as_ref().is_some_and(|moving| moving.step == Step::Briefing);
    let Some(agent) = all.agents.get(id).filter(is_one).cloned() else { return false };
    match brief {
        Ok(brief) => rotation::keep_handoff(all, cx, agent.lineage_id, brief),
        // Its task is what it begins with then.
        Err(error) => cx.push(Effect::Warn(format!("agent {id}: no brief for its new session: {error}"))),
    }
    arrived(all, cx, id);
    true
}

/// All that goes along is there: it goes on, or waits for the next word.
fn arrived(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(record) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    let Some(moving) = record.moving.take() else { return };
    let lineage = record.lineage_id;
    let agent = record.clone();
    let gone_on = if moving.goes_on { say::go_on(all, cx, &agent) } else { Ok(()) };
    let refused = gone_on.err().map(|problem| problem.error);
    if !moving.goes_on || refused.is_some() {
        if let Some(record) = Arc::make_mut(&mut all.agents).edit(id) {
            let status = moving.was.unwrap_or(Status::Interrupted);
            let to = place_of(moving.to.as_deref());
            let name = record.name.clone();
            record.set_status(cx.now, status, Reason::Moved { to, name, refused });
        }
        ended(all, cx, id, moving.was.is_none());
    }
    let agents = Arc::make_mut(&mut all.agents);
    let calls = agents.moves.remove(&lineage).unwrap_or_default();
    let now = agents.by_lineage(lineage).cloned();
    if let Some(now) = now {
        for call in calls {
            let outcome = Outcome::Moves {
                agent: Arc::clone(&now),
                to: moving.to.clone(),
                session: moving.session.clone(),
            };
            cx.reply(call, outcome);
        }
    }
    touch(all, cx, Durability::BeforeReply);
}

/// A step has failed: it stays where it was.
fn failed(all: &mut All, cx: &mut Context, id: AgentId, why: &str) {
    let why: String = untrusted_prose(why).chars().take(WHY_CHARS).collect();
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    let Some(moving) = agent.moving.take() else { return };
    let status = moving.was.unwrap_or(Status::Interrupted);
    let to = place_of(moving.to.as_deref());
    let reason = Reason::MoveFailed { to, error: why.clone(), name: agent.name.clone() };
    agent.set_status(cx.now, status, reason);
    let (lineage, name, from) = (agent.lineage_id, agent.name.clone(), agent.runner.clone());
    let told = json!({"agentId": id, "name": name, "from": from, "to": moving.to, "why": why});
    cx.audit("agent.moveFailed", &told);
    cx.push(Effect::Log(lineage, id, LogEntry::life(format!("its move has failed: {why}"))));
    ended(all, cx, id, moving.was.is_none());
    let text = format!(
        "{name} stays {}, ended, and svc resume {name} goes on there: {why}",
        place_of(from.as_deref())
    );
    answer(all, cx, lineage, &Problem::new(502, "move_failed", text));
    touch(all, cx, Durability::BeforeReply);
}

/// Of one that was alive it is told that it is over.
fn ended(all: &mut All, cx: &mut Context, id: AgentId, was_live: bool) {
    if was_live {
        life::announce_exit(all, cx, id);
        cx.moment(Moment::Ended(id));
    }
}

/// It has ended otherwise, or was ended: nothing comes of its move.
pub(super) fn given_up(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    if agent.moving.take().is_none() {
        return;
    }
    let (lineage, name) = (agent.lineage_id, agent.name.clone());
    let words = format!("its move was given up: {}", agent.status_reason);
    cx.push(Effect::Log(lineage, id, LogEntry::life(words)));
    let text = format!("{name} has ended otherwise, and was not moved: {}", agent.status_reason);
    answer(all, cx, lineage, &Problem::new(409, "agent_ended", text));
}

fn answer(all: &mut All, cx: &mut Context, lineage: LineageId, problem: &Problem) {
    for call in Arc::make_mut(&mut all.agents).moves.remove(&lineage).unwrap_or_default() {
        cx.reply(call, problem.clone());
    }
}

/// After a start of the daemon: whether a record is one of an agent on its way, which goes on being that. The
/// wish of one whose program is gone is given up.
pub(super) fn restored(agent: &mut Agent) -> bool {
    if agent.is_carried() && agent.status.is_live() {
        agent.nothing_on_its_way();
        return true;
    }
    agent.moving = None;
    false
}

impl Session {
    /// The word on the wire.
    pub fn word(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Goes => "goes",
            Self::Stays(_) => "new",
        }
    }
}
