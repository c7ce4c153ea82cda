//! What a day may cost: `safety.dailyBudgetUsd`.

use crate::api::Problem;
use crate::core::State as All;
use crate::core::time::Time;
use serde::{Deserialize, Serialize};

/// Milliseconds of a day; days begin at midnight UTC.
const DAY_MS: u64 = 86_400_000;

/// Dollars of one day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Today {
    day: u64,
    usd: f64,
}

impl Today {
    /// Adds dollars; a correction may be negative.
    pub fn add(&mut self, now: Time, usd: f64) {
        let day = now.0 / DAY_MS;
        if day != self.day {
            *self = Self { day, usd: 0.0 };
        }
        self.usd = (self.usd + usd).max(0.0);
    }

    /// The clock says `now`: what was counted for a later day counts for this one.
    pub fn not_after(&mut self, now: Time) {
        self.day = self.day.min(now.0 / DAY_MS);
    }

    /// Dollars of the day of `now`.
    pub fn on(&self, now: Time) -> f64 {
        if now.0 / DAY_MS == self.day { self.usd } else { 0.0 }
    }
}

/// Whether something new may be started.
///
/// Errors: 409 `budget` once today's cost has reached `safety.dailyBudgetUsd`.
pub fn check(all: &All, now: Time) -> Result<(), Problem> {
    let Some(budget) = all.settings.config().safety.daily_budget_usd else { return Ok(()) };
    let used = all.usage.today_usd(now);
    if used < budget {
        return Ok(());
    }
    let text = format!(
        "today's cost is ${used:.2} and safety.dailyBudgetUsd is ${budget:.2}: nothing new starts before \
         midnight UTC; raise safety.dailyBudgetUsd to go on"
    );
    Err(Problem::new(409, "budget", text))
}
