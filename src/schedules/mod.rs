//! Schedules: agents that the clock starts.
//!
//! **Invariant:** a schedule starts at most one agent for one minute, over restarts of the daemon too: the
//! minute is marked as used, on disk, before the order to start is given, and a mark is never taken back.
//! **Invariant:** an enabled schedule has a next time, and a timer for it.

pub mod api;
pub mod cron;
mod running;
mod store;
#[cfg(test)]
mod tests;

pub use running::{clock_set, due, soon, start, started};
use running::{plan_next, run_now};
pub use store::{STORED_VERSION, Stored};

use crate::agents::rights::Rights;
use crate::agents::{self, Maker, SpawnRequest};
use crate::api::{Problem, Reply};
use crate::core::ids::{AgentId, LineageId, ScheduleId};
use crate::core::time::{Time, rfc3339};
use crate::core::{CallId, Context, Document, Durability, Effect, Moment, State as All, Timer};
use cron::{Cron, MINUTE_MS};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use svc_base::names;
use svc_base::recorded::{Reader, Recorded};

/// Schedules at most.
pub const MAX_SCHEDULES: usize = 200;
/// Entries of a schedule's history.
pub const MAX_HISTORY: usize = 50;
/// Agents of one schedule alive at once, at most.
pub const MAX_CONCURRENT: u64 = 100;
/// A time that is noticed later than this was missed: the daemon or the machine slept.
pub const LATE: Duration = Duration::from_secs(60);

/// A clock that was set back by more than this had been wrong: what it said is not held against the minutes
/// to come.
const SET_BACK_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What happens to times at which the daemon did not run.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    #[default]
    Skip,
    /// One run makes up for all of them.
    Once,
}

/// When a schedule runs: the expression and the time zone, as given and as parsed.
#[derive(Debug, Clone)]
pub struct Timing {
    /// As given.
    pub cron: String,
    /// IANA name.
    pub timezone: String,
    parsed: Cron,
    zone: TimeZone,
}

impl PartialEq for Timing {
    fn eq(&self, other: &Self) -> bool {
        self.cron == other.cron && self.timezone == other.timezone
    }
}

impl Recorded for Timing {
    const SHAPE: u64 = <(String, String)>::SHAPE;

    fn write(&self, to: &mut Vec<u8>) {
        self.cron.write(to);
        self.timezone.write(to);
    }

    /// Both are parsed again. A zone that is not known here is taken for UTC: the replay then says where it
    /// parts.
    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    extern "C" fn read(from: &mut Reader) -> Self {
        let (cron, timezone) = (String::read(from), String::read(from));
        let parsed = Cron::parse(&cron).unwrap_or_default();
        let zone = cron::zone(&timezone).unwrap_or(TimeZone::UTC);
        Self { cron, timezone, parsed, zone }
    }
}

impl Timing {
    /// Parses both.
    ///
    /// Errors: the field (`cron` or `timezone`) and a sentence.
    pub fn parse(cron: &str, timezone: &str) -> Result<Self, (&'static str, String)> {
        let parsed = Cron::parse(cron).map_err(|error| ("cron", error.0))?;
        let zone = cron::zone(timezone).map_err(|error| ("timezone", error.0))?;
        Ok(Self { cron: cron.to_owned(), timezone: timezone.to_owned(), parsed, zone })
    }

    /// The first time after `after`.
    pub fn next(&self, after: Time) -> Option<Time> {
        self.parsed.next(after, &self.zone)
    }
}

/// What became of one time, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// An agent was started.
    Started,
    /// Its earlier agents are alive still.
    Skipped,
    /// The daemon did not run, or was not to start it.
    Missed,
    /// No agent could be started.
    Failed,
}

/// What became of one time.
#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// When it was done.
    #[serde(with = "rfc3339")]
    pub at: Time,
    /// The time it stands for; absent for a run by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<String>,
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// Why not, if nobody was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Run {
    /// The time that it stands for, by the clock of then.
    fn due(&self) -> Option<Time> {
        self.scheduled_for.as_ref().and_then(|text| Time::parse(text))
    }

    /// The last of the minutes that it may have used: where the clock was set back while it waited for the
    /// disk, its time lies after the minute in which it was made.
    fn until(&self) -> Time {
        self.due().map_or(self.at, |due| due.max(self.at))
    }
}

/// A schedule.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Schedule {
    /// Never changes.
    pub id: ScheduleId,
    /// Unique.
    pub name: String,
    pub timing: Timing,
    pub agent: SpawnRequest,
    /// Whether it runs at all.
    pub enabled: bool,
    /// Agents of it that may be alive at once.
    pub max_concurrent: usize,
    /// What happens to missed times.
    pub catch_up: CatchUp,
    /// When it last started an agent.
    pub last_run: Option<Time>,
    /// The next time, while enabled.
    pub next_run: Option<Time>,
    /// The last minute that was used up.
    pub marked: Option<Time>,
    /// A mark whose agent is still to be started.
    pub due: Option<Time>,
    /// Marks on their way to the disk: what waits for one waits for all of them, of which the last counts.
    pub on_the_way: u32,
    /// The last [`MAX_HISTORY`] runs, oldest first.
    pub history: VecDeque<Run>,
    /// Whom it has started, as long as they have a record: an ended one may go on.
    pub started: Vec<LineageId>,
    /// When it was made.
    pub created_at: Time,
    /// Who made it or chose its agent last, with the rights of then: its agents get no more.
    pub maker: Maker,
}

impl Schedule {
    /// The next time after `from` that stands for no minute that was used up. The clock may have been set
    /// back behind minutes that were: they are in the history, and what is older than a full history counts
    /// as used. What lies more than [`SET_BACK_MAX`] ahead was told by a clock that was plainly wrong.
    fn next_unused(&self, from: Time) -> Option<Time> {
        let mut next = self.timing.next(self.forgotten_until(from).unwrap_or(from))?;
        // Each minute in the history, which has two of a run that came late, and the mark are passed over
        // once at most.
        for _ in 0..=2 * (self.history.len() + 1) {
            if !self.has_used(next) {
                break;
            }
            next = self.timing.next(next)?;
        }
        Some(next)
    }

    /// A history that is full has lost what came before all of it, by the clock: until when, if that is
    /// ahead.
    fn forgotten_until(&self, from: Time) -> Option<Time> {
        let first = self.history.iter().map(Run::until).min()?;
        let is_ahead = first > from && first.since(from) <= SET_BACK_MAX;
        (is_ahead && self.history.len() >= MAX_HISTORY).then_some(first)
    }

    fn has_used(&self, minute: Time) -> bool {
        let is_it = |at: Time| at.0 / MINUTE_MS == minute.0 / MINUTE_MS;
        let used = |run: &Run| {
            // A run that makes up for others uses the minute it is made in; a note of a missed one does not.
            run.due().is_some_and(|due| is_it(due) || (is_it(run.at) && run.outcome != Outcome::Missed))
        };
        // What was missed and waits for the disk has its time besides the minute it is made in.
        let waits = self.due.is_some_and(is_it);
        let is_known = waits || self.marked.is_some_and(is_it) || self.history.iter().any(used);
        is_known || self.forgotten_until(minute).is_some_and(|until| !is_it(until))
    }
}

/// All schedules.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    schedules: BTreeMap<ScheduleId, Arc<Schedule>>,
}

impl State {
    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Schedule>> {
        self.schedules.values()
    }

    /// Finds a schedule by id or exact name.
    ///
    /// Errors: 404.
    pub fn find(&self, target: &str) -> Result<&Arc<Schedule>, Problem> {
        let by_id = target.parse::<ScheduleId>().ok().and_then(|id| self.schedules.get(&id));
        by_id.or_else(|| self.iter().find(|schedule| schedule.name == target)).ok_or_else(|| {
            let text = format!("no schedule has the id or name {target:?}; GET /api/schedules lists them");
            Problem::not_found(text)
        })
    }

    fn edit(&mut self, id: ScheduleId) -> Option<&mut Schedule> {
        self.schedules.get_mut(&id).map(Arc::make_mut)
    }
}

/// What a schedule is to be; absent fields stay as they are, or as a new one has them.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Wish {
    pub name: Option<String>,
    pub cron: Option<String>,
    pub timezone: Option<String>,
    pub agent: Option<SpawnRequest>,
    pub enabled: Option<bool>,
    /// Agents of it at once.
    pub max_concurrent: Option<usize>,
    /// What happens to missed times.
    pub catch_up: Option<CatchUp>,
}

/// A wish about schedules. Targets are ids or exact names.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Start an agent, and more like it when this says.
    Spawn(Timing, Box<SpawnRequest>),
    Create(Box<Wish>),
    Change(String, Box<Wish>),
    Delete(String),
    /// Start its agent now.
    Run(String),
    /// Let it run, or not.
    Enable(String, bool),
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| match command {
        Command::Spawn(timing, request) => spawn(all, cx, timing, *request).map(|outcome| outcome.http()),
        Command::Create(wish) => {
            let id = create(all, cx, *wish)?;
            Ok(Reply::json(201, &shown(all, id)).with_header("Location", format!("/api/schedules/{id}")))
        }
        Command::Change(target, wish) => {
            may_change(all, cx, &target)?;
            change(all, cx, &target, *wish)
        }
        Command::Delete(target) => {
            may_change(all, cx, &target)?;
            delete(all, cx, &target)
        }
        Command::Run(target) => run_now(all, cx, &target),
        Command::Enable(target, enabled) => {
            may_change(all, cx, &target)?;
            change(all, cx, &target, Wish { enabled: Some(enabled), ..Wish::default() })
        }
    });
    cx.answer(call, result);
}

/// An agent decides about the schedules that it made, or that those made whom it started.
///
/// Errors: 403 `agent_may_not`.
fn may_change(all: &All, cx: &Context, target: &str) -> Result<(), Problem> {
    let schedule = all.schedules.find(target)?;
    match cx.actor.agent() {
        Some(caller) if !schedule.maker.is_or_serves(all, &cx.actor) => {
            let what = format!("change schedule {}, which it has not made", schedule.name);
            Err(agents::rights::refusal(caller, &what))
        }
        _ => Ok(()),
    }
}

/// An agent also runs a schedule whose agents may do no more than itself.
///
/// Errors: 403 `agent_may_not`.
fn may_run(all: &All, cx: &Context, schedule: &Schedule) -> Result<(), Problem> {
    let Some(caller) = cx.actor.agent() else { return Ok(()) };
    let own = Maker::of(all, &cx.actor)?.rights;
    // Where work goes is a person's word, and so is when.
    if schedule.agent.runner.is_some() {
        let what = format!("run schedule {}: its agent works on another machine", schedule.name);
        return Err(agents::rights::refusal(caller, &what));
    }
    let has = schedule.maker.is_or_serves(all, &cx.actor);
    let gives = || Rights::default().child(&schedule.agent).is_ok_and(|given| own.cover(&given));
    if has || gives() {
        return Ok(());
    }
    let what = format!("run schedule {}: it has not made it, and its agent may do more", schedule.name);
    Err(agents::rights::refusal(caller, &what))
}

/// Whether there is room for one more schedule.
///
/// Errors: 409 `too_many_schedules`.
fn check_room(all: &All) -> Result<(), Problem> {
    if all.schedules.schedules.len() < MAX_SCHEDULES {
        return Ok(());
    }
    let text = format!("there are {MAX_SCHEDULES} schedules already; delete one first");
    Err(Problem::new(409, "too_many_schedules", text))
}

fn create(all: &mut All, cx: &mut Context, wish: Wish) -> Result<ScheduleId, Problem> {
    check_room(all)?;
    let agent = wish.agent.clone().unwrap_or_default();
    let timing = timing(wish.cron.as_deref().unwrap_or_default(), wish.timezone.as_deref().unwrap_or("UTC"))?;
    let id = ScheduleId(cx.fresh_id(|id| all.schedules.schedules.contains_key(&ScheduleId(id))));
    let schedule = Schedule {
        id,
        name: fresh_name(all, agent.name.as_deref().unwrap_or(&agent.role)),
        timing,
        agent,
        enabled: true,
        max_concurrent: 1,
        catch_up: CatchUp::default(),
        last_run: None,
        next_run: None,
        marked: None,
        due: None,
        on_the_way: 0,
        history: VecDeque::new(),
        started: Vec::new(),
        created_at: cx.now,
        maker: Maker::person(),
    };
    let schedule = wished(all, cx, schedule, wish)?;
    cx.audit(
        "schedule.create",
        &json!({"scheduleId": id, "name": schedule.name, "cron": schedule.timing.cron}),
    );
    Arc::make_mut(&mut all.schedules).schedules.insert(id, Arc::new(schedule));
    plan_next(all, cx.now, id);
    put(cx);
    Ok(id)
}

/// Starts an agent and makes the schedule that starts more like it.
///
/// Errors: as [`agents::spawn_agent`] and [`create`].
fn spawn(
    all: &mut All,
    cx: &mut Context,
    timing: Timing,
    request: SpawnRequest,
) -> Result<agents::Outcome, Problem> {
    check_room(all)?;
    let mut outcome = agents::spawn(all, cx, request.clone())?;
    // The worktree is that of the first.
    let request = SpawnRequest { worktree: None, ..request };
    let wish = Wish {
        cron: Some(timing.cron),
        timezone: Some(timing.timezone),
        agent: Some(request),
        ..Wish::default()
    };
    let id = create(all, cx, wish)?;
    if let agents::Outcome::Spawned { agent, schedule, .. } = &mut outcome {
        *schedule = Some(id);
        if let Some(record) = Arc::make_mut(&mut all.schedules).edit(id) {
            record.started.push(agent.lineage_id);
        }
    }
    Ok(outcome)
}

/// A name that no schedule has.
fn fresh_name(all: &All, base: &str) -> String {
    names::unused(base, '-', |name| all.schedules.iter().any(|schedule| schedule.name == name))
}

fn timing(cron: &str, timezone: &str) -> Result<Timing, Problem> {
    Timing::parse(cron, timezone).map_err(|(field, fault)| api::timing_problem(field, &fault))
}

/// The schedule as it is wished, every rule checked.
fn wished(all: &All, cx: &Context, mut schedule: Schedule, wish: Wish) -> Result<Schedule, Problem> {
    if let Some(name) = wish.name {
        let lower = name.to_lowercase();
        let taken =
            all.schedules.iter().any(|other| other.id != schedule.id && other.name.to_lowercase() == lower);
        if taken {
            return Err(api::name_taken(&name));
        }
        schedule.name = name;
    }
    if wish.cron.is_some() || wish.timezone.is_some() {
        let old = &schedule.timing;
        let cron = wish.cron.unwrap_or_else(|| old.cron.clone());
        let zone = wish.timezone.unwrap_or_else(|| old.timezone.clone());
        schedule.timing = timing(&cron, &zone)?;
    }
    if let Some(mut agent) = wish.agent {
        agents::check_sender(cx, &agent)?;
        let maker = Maker::of(all, &cx.actor)?;
        agents::check_pattern(all, &maker, &mut agent).map_err(api::of_agent)?;
        schedule.agent = agent;
        schedule.maker = maker;
    }
    schedule.enabled = wish.enabled.unwrap_or(schedule.enabled);
    schedule.max_concurrent = wish.max_concurrent.unwrap_or(schedule.max_concurrent);
    schedule.catch_up = wish.catch_up.unwrap_or(schedule.catch_up);
    Ok(schedule)
}

fn change(all: &mut All, cx: &mut Context, target: &str, wish: Wish) -> Result<Reply, Problem> {
    let old = (**all.schedules.find(target)?).clone();
    let id = old.id;
    let schedule = wished(all, cx, old, wish)?;
    cx.audit(
        "schedule.change",
        &json!({"scheduleId": id, "name": schedule.name, "enabled": schedule.enabled}),
    );
    Arc::make_mut(&mut all.schedules).schedules.insert(id, Arc::new(schedule));
    plan_next(all, cx.now, id);
    put(cx);
    Ok(Reply::ok(&shown(all, id)))
}

fn delete(all: &mut All, cx: &mut Context, target: &str) -> Result<Reply, Problem> {
    let (id, name) = all.schedules.find(target).map(|schedule| (schedule.id, schedule.name.clone()))?;
    Arc::make_mut(&mut all.schedules).schedules.remove(&id);
    let timers = Arc::make_mut(&mut all.timers);
    timers.clear(Timer::ScheduleDue(id));
    timers.clear(Timer::ScheduleSoon(id));
    cx.audit("schedule.delete", &json!({"scheduleId": id, "name": name}));
    put(cx);
    Ok(Reply::ok(&json!({"ok": true, "id": id})))
}

/// Moves the schedules of a deleted team.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    if let Moment::TeamDeleted { from, to } = moment {
        change_team(all, cx, &from.to_string(), &to.to_string());
    }
}

fn change_team(all: &mut All, cx: &mut Context, from: &str, to: &str) {
    let of_team = |schedule: &&Arc<Schedule>| schedule.agent.team_id.as_deref() == Some(from);
    let ids: Vec<ScheduleId> = all.schedules.iter().filter(of_team).map(|schedule| schedule.id).collect();
    for id in &ids {
        if let Some(schedule) = Arc::make_mut(&mut all.schedules).edit(*id) {
            schedule.agent.team_id = Some(to.to_owned());
        }
    }
    if !ids.is_empty() {
        put(cx);
    }
}

/// The record as REST shows it.
pub fn shown(all: &All, id: ScheduleId) -> Value {
    let Some(schedule) = all.schedules.schedules.get(&id) else { return Value::Null };
    let time = |time: Option<Time>| time.map(|time| time.to_string());
    json!({
        "id": id, "name": schedule.name, "cron": schedule.timing.cron, "timezone": schedule.timing.timezone,
        "agent": schedule.agent, "enabled": schedule.enabled, "maxConcurrent": schedule.max_concurrent,
        "catchUp": schedule.catch_up, "lastRun": time(schedule.last_run), "nextRun": time(schedule.next_run),
        "history": schedule.history, "createdAt": schedule.created_at.to_string(),
    })
}

fn put(cx: &mut Context) {
    cx.push(Effect::Put(Document::Schedules, Durability::BeforeReply));
}
