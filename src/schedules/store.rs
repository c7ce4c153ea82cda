//! Schedules as they stand on disk.

use super::{CatchUp, Run, Schedule, State, Timing};
use crate::agents::{Maker, SpawnRequest};
use crate::core::ids::{LineageId, ScheduleId};
use crate::core::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// `.svc/state/schedules.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    pub schedules: Vec<StoredSchedule>,
}

/// A schedule, its timing as it was given. Times are milliseconds since 1970.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredSchedule {
    id: ScheduleId,
    name: String,
    cron: String,
    timezone: String,
    agent: SpawnRequest,
    enabled: bool,
    max_concurrent: usize,
    catch_up: CatchUp,
    last_run: Option<Time>,
    next_run: Option<Time>,
    marked: Option<Time>,
    due: Option<Time>,
    history: VecDeque<Run>,
    started: Vec<LineageId>,
    created_at: Time,
    #[serde(default)]
    maker: Maker,
}

impl State {
    /// What is to be written.
    pub fn stored(&self) -> Stored {
        let stored = |schedule: &Arc<Schedule>| {
            let schedule = (**schedule).clone();
            StoredSchedule {
                id: schedule.id,
                name: schedule.name,
                cron: schedule.timing.cron,
                timezone: schedule.timing.timezone,
                agent: schedule.agent,
                enabled: schedule.enabled,
                max_concurrent: schedule.max_concurrent,
                catch_up: schedule.catch_up,
                last_run: schedule.last_run,
                next_run: schedule.next_run,
                marked: schedule.marked,
                due: schedule.due,
                history: schedule.history,
                started: schedule.started,
                created_at: schedule.created_at,
                maker: schedule.maker,
            }
        };
        Stored { version: STORED_VERSION, schedules: self.iter().map(stored).collect() }
    }

    /// The schedules after a start. One whose expression this version refuses is left out with a warning.
    pub fn restore(stored: Stored) -> Self {
        let mut state = Self::default();
        for found in stored.schedules {
            let timing = match Timing::parse(&found.cron, &found.timezone) {
                Ok(timing) => timing,
                Err((field, fault)) => {
                    log::warn!("schedule {} is left out: its {field} {fault}", found.id);
                    continue;
                }
            };
            let schedule = Schedule {
                id: found.id,
                name: found.name,
                timing,
                agent: found.agent,
                enabled: found.enabled,
                max_concurrent: found.max_concurrent,
                catch_up: found.catch_up,
                last_run: found.last_run,
                next_run: found.next_run,
                marked: found.marked,
                due: found.due,
                on_the_way: 0,
                history: found.history,
                started: found.started,
                created_at: found.created_at,
                maker: found.maker,
            };
            state.schedules.insert(schedule.id, Arc::new(schedule));
        }
        state
    }
}
