//! What schedules have really started, kept outside of the daemon: no restart makes it forget.

use super::disk::Disk;
use super::invariants::{Rule, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use svc::agents::{self, RunOrder};
use svc::core::ids::ScheduleId;
use svc::core::time::Time;
use svc::core::{Document, Effect, Event, State, Timer};
use svc::schedules::{LATE, Schedule};

const MINUTE_MS: u64 = 60_000;

/// The memory of a person with a watch.
#[derive(Default)]
pub struct Watch {
    /// When a schedule's time was noticed last.
    noticed: BTreeMap<ScheduleId, Time>,
    /// The time for which an agent is about to be started.
    due: Option<Time>,
    /// The minute that was written down for it.
    marked: Option<Time>,
    times: BTreeSet<(ScheduleId, Time)>,
    minutes: BTreeSet<(ScheduleId, u64)>,
    /// Agents that schedules have started by the clock.
    pub runs: u64,
    /// Those that came late.
    pub late: u64,
}

fn find(state: &State, id: ScheduleId) -> Option<&Schedule> {
    state.schedules.iter().find(|schedule| schedule.id == id).map(AsRef::as_ref)
}

impl Watch {
    /// An event is about to be applied.
    pub fn before(&mut self, event: &Event, state: &State, now: Time) {
        match event {
            Event::Timer(Timer::ScheduleDue(id)) => drop(self.noticed.insert(*id, now)),
            Event::Timer(Timer::ScheduleStart(id)) => {
                let schedule = find(state, *id);
                self.due = schedule.and_then(|schedule| schedule.due);
                self.marked = schedule.and_then(|schedule| schedule.marked);
            }
            _ => {}
        }
    }

    /// A marked time has led to a start, or not.
    pub fn check_run(&mut self, state: &State, disk: &Disk, id: ScheduleId, effects: &[Effect]) {
        let Some((schedule, at)) = find(state, id).zip(self.due.take()) else { return };
        let lineage = schedule.started.last().copied();
        let is_its = |effect: &Effect| match effect {
            Effect::Run(_, RunOrder::Start(start)) => Some(start.lineage) == lineage,
            _ => false,
        };
        if !effects.iter().any(is_its) {
            return;
        }
        let noticed = self.noticed.get(&id).copied().unwrap_or(at);
        // A late one that the disk held up was marked again, for the minute that it is made in.
        let minute = self.marked.map_or(noticed, |marked| marked.max(noticed)).0 / MINUTE_MS;
        self.runs += 1;
        ensure(Rule::OneRunAMinute, self.times.insert((id, at)), || format!("{id} ran twice for {at}"));
        let said = || format!("{id} ran twice in the minute of {noticed}");
        ensure(Rule::OneRunAMinute, self.minutes.insert((id, minute)), said);
        let is_alive = |agent: &&std::sync::Arc<agents::Agent>| {
            let counts = agent.status.is_live() || agents::rotation::under_way(state, agent.id);
            counts && schedule.started.contains(&agent.lineage_id)
        };
        let (alive, most) = (state.agents.iter().filter(is_alive).count(), schedule.max_concurrent);
        ensure(Rule::MaxConcurrent, alive <= most, || {
            format!("{alive} agents of {id} are alive, {most} may be")
        });
        if noticed.since(at) > LATE {
            self.late += 1;
            ensure(Rule::MarkedFirst, is_marked(disk, id, minute), || {
                format!("{id} runs in the minute of {noticed}, unmarked")
            });
        }
    }

    /// A schedule is gone for good, or another one has its id.
    pub fn forget(&mut self, id: ScheduleId) {
        self.times.retain(|(of, _)| *of != id);
        self.minutes.retain(|(of, _)| *of != id);
    }
}

/// Whether the disk knows that this minute was used. A schedule whose deletion waits is gone from there
/// already, and is not started again from it.
fn is_marked(disk: &Disk, id: ScheduleId, minute: u64) -> bool {
    let Some(text) = disk.files.get(&Document::Schedules) else { return true };
    let Ok(stored) = serde_json::from_slice::<Value>(text) else { return false };
    let Some(schedules) = stored["schedules"].as_array() else { return false };
    let Some(schedule) = schedules.iter().find(|one| one["id"] == serde_json::json!(id)) else { return true };
    schedule["marked"].as_u64().is_some_and(|marked| marked / MINUTE_MS >= minute)
}
