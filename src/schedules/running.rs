//! The course of a schedule's times: planned, due, marked, begun, noted.

use super::Outcome;
use super::cron::MINUTE_MS;
use super::{CatchUp, LATE, MAX_HISTORY, Run, Schedule, may_run, put};
use crate::accounts::{AUTO, Order};
use crate::agents;
use crate::api::{Problem, Reply};
use crate::core::Notice;
use crate::core::ids::{AgentId, ScheduleId};
use crate::core::time::{Jump, Time};
use crate::core::{Context, Effect, State as All, Timer};
use crate::governor;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use svc_base::names;

const USED_BEFORE: &str = "and the minute to make up for it was used before";

/// So long before its time it is asked who is logged in: a program has half a minute to tell.
pub(super) const ASKED_BEFORE: Duration = Duration::from_secs(40);

/// Sets the next time of an enabled schedule, after `from` and after the last minute that was used up.
pub(super) fn plan_next(all: &mut All, from: Time, id: ScheduleId) {
    let Some(schedule) = Arc::make_mut(&mut all.schedules).edit(id) else { return };
    schedule.next_run = if schedule.enabled { schedule.next_unused(from) } else { None };
    let timers = Arc::make_mut(&mut all.timers);
    timers.put(Timer::ScheduleDue(id), schedule.next_run);
    let is_asked = schedule.agent.account.as_deref() == Some(AUTO);
    timers
        .put(Timer::ScheduleSoon(id), schedule.next_run.filter(|_| is_asked).map(|next| next - ASKED_BEFORE));
}

/// A schedule's next time comes soon, and its agent takes the account with the most room: the programs are
/// asked who is logged in, which takes its time.
pub fn soon(all: &mut All, cx: &mut Context, id: ScheduleId) {
    let Some(schedule) = all.schedules.iter().find(|schedule| schedule.id == id) else { return };
    let provider = schedule.agent.provider.as_ref();
    let provider = provider.unwrap_or(&all.settings.config().default_provider).clone();
    cx.push(Effect::Accounts(Order::Ask(provider)));
}

/// The wall clock has jumped. Set forward, the times that are due come by themselves; set back, all is
/// planned anew.
pub fn clock_set(all: &mut All, cx: &mut Context, jump: Jump) {
    let ids: Vec<ScheduleId> = all.schedules.schedules.keys().copied().collect();
    if !jump.is_back || ids.is_empty() {
        return;
    }
    for id in ids {
        plan_next(all, cx.now, id);
    }
    put(cx);
}

/// The daemon has started: every enabled schedule waits for its stored time, which may have passed meanwhile.
pub fn started(all: &mut All, cx: &mut Context) {
    let waiting: Vec<Arc<Schedule>> = all.schedules.iter().cloned().collect();
    for schedule in waiting {
        let (id, next) = (schedule.id, schedule.next_run.filter(|_| schedule.enabled));
        if let Some(due) = schedule.due {
            // The mark was kept and the order may have been given: a second one would be one too many. A late
            // run has used the minute that it was made in as well.
            let minute = |at: Time| at.0 / MINUTE_MS;
            let is_noted = |at: Time| {
                let at = Some(at.to_string());
                schedule.history.iter().any(|run| run.scheduled_for == at)
            };
            let made_in =
                schedule.marked.filter(|marked| minute(*marked) != minute(due) && !is_noted(*marked));
            for at in [Some(due), made_in].into_iter().flatten() {
                let reason = "the daemon ended while it was being started".to_owned();
                note(all, cx, id, Some(at), Outcome::Missed, Err(reason));
            }
        }
        match next {
            Some(next) if next <= cx.now => {
                Arc::make_mut(&mut all.timers).set(Timer::ScheduleDue(id), next);
            }
            // One that is still to come is planned anew: the clock may have been set back since.
            _ => plan_next(all, cx.now, id),
        }
    }
}

/// A schedule's time has come, or had come while the daemon or the machine slept.
pub fn due(all: &mut All, cx: &mut Context, id: ScheduleId) {
    let Some(schedule) = Arc::make_mut(&mut all.schedules).edit(id) else { return };
    let Some(at) = schedule.next_run.filter(|_| schedule.enabled) else { return };
    let (late, this_minute) = (is_late(at, cx.now), minute_of(cx.now));
    let is_skipped = schedule.catch_up == CatchUp::Skip;
    // Only a clock that was set back lets a run come late into a minute that has had one.
    if late && (is_skipped || schedule.has_used(this_minute)) {
        schedule.marked = Some(at);
        miss(all, cx, id, at, if is_skipped { "catchUp is skip" } else { USED_BEFORE });
        // A time that came just now is not a missed one.
        return plan_next(all, cx.now - LATE, id);
    }
    // One run makes up for all that were missed: the minute it is made in is used up with them.
    schedule.marked = Some(if late { at.max(this_minute) } else { at });
    schedule.due = Some(at);
    store_mark(all, cx, id);
}

fn miss(all: &mut All, cx: &mut Context, id: ScheduleId, at: Time, why: &str) {
    let reason = format!("the daemon did not run at that time ({why})");
    note(all, cx, id, Some(at), Outcome::Missed, Err(reason));
}

/// Plans the next time, and waits for the mark to be on the disk.
fn store_mark(all: &mut All, cx: &mut Context, id: ScheduleId) {
    plan_next(all, cx.now, id);
    if let Some(schedule) = Arc::make_mut(&mut all.schedules).edit(id) {
        schedule.on_the_way += 1;
    }
    put(cx);
    cx.push(Effect::WhenStored(Timer::ScheduleStart(id)));
}

fn is_late(at: Time, now: Time) -> bool {
    now.since(at) > LATE
}

fn minute_of(now: Time) -> Time {
    Time(now.0 - now.0 % MINUTE_MS)
}

/// Starts the agent of a marked time. The mark is on disk: whatever ends the daemon from now on, the next
/// one does not start this time again.
pub fn start(all: &mut All, cx: &mut Context, id: ScheduleId) {
    let Some(schedule) = Arc::make_mut(&mut all.schedules).edit(id) else { return };
    schedule.on_the_way = schedule.on_the_way.saturating_sub(1);
    let Some(at) = schedule.due.filter(|_| schedule.on_the_way == 0) else { return };
    if governor::asks_others(all, cx) {
        return ask_again(all, cx, id);
    }
    let Some(schedule) = Arc::make_mut(&mut all.schedules).edit(id) else { return };
    let this_minute = minute_of(cx.now);
    if is_late(at, cx.now) && schedule.marked.is_none_or(|marked| marked < this_minute) {
        if schedule.has_used(this_minute) {
            return miss(all, cx, id, at, USED_BEFORE);
        }
        // The clock has gone forward meanwhile: the minute that this uses up is another.
        schedule.marked = Some(this_minute);
        return store_mark(all, cx, id);
    }
    schedule.due = None;
    match begin(all, cx, id) {
        Ok(agent) => note(all, cx, id, Some(at), Outcome::Started, Ok(agent)),
        Err(problem) => {
            let outcome = if problem.code == "max_concurrent" { Outcome::Skipped } else { Outcome::Failed };
            note(all, cx, id, Some(at), outcome, Err(problem.error));
        }
    }
}

/// What other projects have spent is asked before the agent of a marked time is started.
fn ask_again(all: &mut All, cx: &mut Context, id: ScheduleId) {
    if let Some(schedule) = Arc::make_mut(&mut all.schedules).edit(id) {
        schedule.on_the_way += 1;
    }
    Arc::make_mut(&mut all.timers).set(Timer::ScheduleStart(id), cx.now + governor::ASKED);
}

pub(super) fn run_now(all: &mut All, cx: &mut Context, target: &str) -> Result<Reply, Problem> {
    let schedule = Arc::clone(all.schedules.find(target)?);
    may_run(all, cx, &schedule)?;
    let id = schedule.id;
    let agent = begin(all, cx, id)?;
    cx.audit("schedule.run", &json!({"scheduleId": id, "agentId": agent}));
    note(all, cx, id, None, Outcome::Started, Ok(agent));
    let record = all.agents.get(agent).map(|agent| json!(agent.rest()));
    Ok(Reply::ok(&json!({"ok": true, "scheduleId": id, "agentId": agent, "agent": record})))
}

/// Starts an agent of a schedule.
///
/// Errors: 409 `max_concurrent`, and what a spawn refuses.
fn begin(all: &mut All, cx: &mut Context, id: ScheduleId) -> Result<AgentId, Problem> {
    all.health.writable()?;
    let Some(schedule) = all.schedules.schedules.get(&id).cloned() else {
        return Err(Problem::not_found("the schedule is gone"));
    };
    let (known, alive) = agents::still_there(all, &schedule.started);
    if alive >= schedule.max_concurrent {
        let text = format!(
            "{alive} of its agents are alive (those that were resumed or rotated count) and maxConcurrent is {}; \
             wait for one to end or raise it",
            schedule.max_concurrent
        );
        return Err(Problem::new(409, "max_concurrent", text));
    }
    let mut request = schedule.agent.clone();
    request.name = request.name.map(|name| agent_name(all, &name));
    let agent = agents::spawn_agent(all, cx, &schedule.maker, request)?;
    let lineage = all.agents.get(agent).map(|agent| agent.lineage_id);
    if let Some(schedule) = Arc::make_mut(&mut all.schedules).edit(id) {
        schedule.started = known;
        schedule.started.extend(lineage);
        schedule.last_run = Some(cx.now);
    }
    let name = schedule.name.clone();
    cx.notice(Notice::ScheduleExecute { schedule_id: id, agent_id: agent, name });
    Ok(agent)
}

/// A free name for the next agent: names are unique, and those that ran before keep theirs.
fn agent_name(all: &All, wanted: &str) -> String {
    names::unused(wanted, '-', |name| all.agents.has_name(name))
}

fn note(
    all: &mut All,
    cx: &mut Context,
    id: ScheduleId,
    scheduled: Option<Time>,
    outcome: Outcome,
    result: Result<AgentId, String>,
) {
    let Some(schedule) = Arc::make_mut(&mut all.schedules).edit(id) else { return };
    // A run by hand, or a missed time, leaves a mark that waits for its own start.
    if schedule.due == scheduled {
        schedule.due = None;
    }
    let (agent_id, reason) = match result {
        Ok(agent) => (Some(agent), None),
        Err(reason) => (None, Some(reason)),
    };
    schedule.history.push_back(Run {
        at: cx.now,
        scheduled_for: scheduled.map(|at| at.to_string()),
        outcome,
        agent_id,
        reason,
    });
    if schedule.history.len() > MAX_HISTORY {
        // The first by the clock goes, not the first that was noted: a clock that is set back, once and
        // again, comes to the others.
        let first = schedule.history.iter().enumerate().min_by_key(|(_, run)| run.until());
        let oldest = first.map(|(place, _)| place).unwrap_or_default();
        schedule.history.remove(oldest);
    }
    put(cx);
}
