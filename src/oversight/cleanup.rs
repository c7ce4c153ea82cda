//! The daily cleanup: logs older than seven days, the audit log beyond its last entries, plans older than a
//! day, worktrees of removed agents.
//!
//! **Invariant:** one cleanup at a time; the next one is due a day after the last has begun, also over
//! restarts.
//! **Invariant:** a worktree goes only when its agent's record is gone and git calls it clean.

use super::audit;
use crate::core::time::{Time, rfc3339};
use crate::core::{Context, Document, Durability, Effect, State as All, Timer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;
/// Between two cleanups.
pub const INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// Logs that were last written longer ago go.
pub const LOGS_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Plan artifacts that were last written longer ago go.
pub const PLANS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// A younger worktree may belong to an agent that is only just being spawned.
pub const WORKTREES_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// What the thread is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Logs last written before this.
    pub logs_before: Time,
    /// Plan artifacts last written before this.
    pub plans_before: Time,
    /// Worktrees made before this.
    pub worktrees_before: Time,
    /// Worktrees that belong to agents, relative to the project.
    pub worktrees_in_use: Vec<String>,
}

/// What a cleanup has removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    pub logs_removed: u64,
    pub plans_removed: u64,
    pub worktrees_removed: u64,
    /// Worktrees of removed agents that hold changes, and stay.
    pub worktrees_kept: u64,
    /// What did not work, in words.
    pub errors: Vec<String>,
}

/// A fact from the thread.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Report(pub Outcome);

/// When it ran, and what came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Format version.
    pub version: u32,
    last: Option<Run>,
    #[serde(skip)]
    is_running: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
struct Run {
    #[serde(with = "rfc3339")]
    at: Time,
    outcome: Outcome,
}

/// What is written to `.svc/state/cleanup.json`.
pub type Stored = State;

impl State {
    /// What is written to disk.
    #[must_use]
    pub fn stored(&self) -> Stored {
        Self { version: STORED_VERSION, ..self.clone() }
    }

    /// As `GET /api/status` shows it.
    pub fn shown(&self, next: Option<Time>) -> Value {
        json!({
            "lastRun": self.last.as_ref().map(|run| run.at.to_string()),
            "nextRun": next.map(|at| at.to_string()),
            "outcome": self.last.as_ref().map(|run| &run.outcome),
        })
    }
}

/// Takes over what an earlier daemon has left; overdue, the first cleanup comes at once.
pub fn restore(all: &mut All, stored: Stored, now: Time) {
    let due = stored.last.as_ref().map_or(now, |run| run.at + INTERVAL);
    // A clock that was set back must not put it off for longer than a day.
    let due = due.min(now + INTERVAL);
    all.cleanup = Arc::new(State { is_running: false, ..stored });
    Arc::make_mut(&mut all.timers).set(Timer::Cleanup, due);
}

/// The deadline has come.
pub fn due(all: &mut All, cx: &mut Context) {
    Arc::make_mut(&mut all.timers).set(Timer::Cleanup, cx.now + INTERVAL);
    if all.cleanup.is_running || all.health.stopping {
        return;
    }
    let cleanup = Arc::make_mut(&mut all.cleanup);
    cleanup.is_running = true;
    cleanup.last = Some(Run { at: cx.now, outcome: Outcome::default() });
    let order = Order {
        logs_before: cx.now - LOGS_KEPT,
        plans_before: cx.now - PLANS_KEPT,
        worktrees_before: cx.now - WORKTREES_KEPT,
        worktrees_in_use: all.agents.iter().filter_map(|agent| agent.worktree.clone()).collect(),
    };
    cx.push(Effect::Cleanup(order));
}

/// The thread is done.
pub fn report(all: &mut All, cx: &mut Context, Report(outcome): Report) {
    for error in &outcome.errors {
        cx.push(Effect::Warn(format!("the daily cleanup: {error}")));
    }
    // A day on which nothing went is no news.
    if outcome.logs_removed + outcome.plans_removed + outcome.worktrees_removed > 0 {
        cx.audit("cleanup.daily", &json!(outcome));
    }
    audit::trim(cx);
    let cleanup = Arc::make_mut(&mut all.cleanup);
    cleanup.is_running = false;
    if let Some(run) = &mut cleanup.last {
        run.outcome = outcome;
    }
    cx.push(Effect::Put(Document::Cleanup, Durability::Soon));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Event, Journal};
    use crate::testing::Bench;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    fn orders(bench: &Bench) -> Vec<Order> {
        let order = |effect: &Effect| match effect {
            Effect::Cleanup(order) => Some(order.clone()),
            _ => None,
        };
        bench.effects.iter().filter_map(order).collect()
    }

    fn begin(bench: &mut Bench, stored: Stored) {
        let now = bench.now;
        restore(&mut bench.state, stored, now);
    }

    #[test]
    fn limits_daily_cleanup_once_a_day_and_at_start_when_overdue() {
        let mut bench = Bench::new();
        begin(&mut bench, Stored::default());
        bench.pass(Duration::ZERO);
        assert_eq!(orders(&bench).len(), 1, "never run: overdue");
        bench.pass(30 * HOUR);
        assert_eq!(orders(&bench).len(), 1, "one at a time");
        bench.apply(Event::Cleanup(Report(Outcome::default())));
        bench.pass(HOUR);
        assert_eq!(orders(&bench).len(), 1);
        bench.pass(24 * HOUR);
        assert_eq!(orders(&bench).len(), 2);
        let outcome = Outcome { logs_removed: 3, ..Outcome::default() };
        bench.apply(Event::Cleanup(Report(outcome)));

        let text = serde_json::to_string(&bench.state.cleanup.stored()).unwrap();
        let mut next = Bench::new();
        next.now = bench.now + HOUR;
        begin(&mut next, serde_json::from_str(&text).unwrap());
        next.pass(HOUR);
        assert_eq!(orders(&next).len(), 0, "a restart is no new day");
        let mut late = Bench::new();
        late.now = bench.now + 25 * HOUR;
        begin(&mut late, serde_json::from_str(&text).unwrap());
        late.pass(Duration::ZERO);
        assert_eq!(orders(&late).len(), 1, "overdue");
        let mut back = Bench::new();
        back.now = Time(bench.now.0 - 1_000 * 60 * 60 * 1_000);
        begin(&mut back, serde_json::from_str(&text).unwrap());
        back.pass(24 * HOUR);
        assert_eq!(orders(&back).len(), 1, "a clock that was set back does not put it off");
    }

    #[test]
    fn limits_daily_cleanup_has_seven_days_of_logs_a_day_of_plans_and_the_last_1000_entries() {
        let mut bench = Bench::new();
        begin(&mut bench, Stored::default());
        bench.pass(Duration::ZERO);
        let order = &orders(&bench)[0];
        assert_eq!(bench.now.since(order.logs_before), 7 * 24 * HOUR);
        assert_eq!(bench.now.since(order.plans_before), 24 * HOUR);
        let outcome = Outcome { plans_removed: 1, ..Outcome::default() };
        bench.apply(Event::Cleanup(Report(outcome)));
        assert_eq!(bench.audited("cleanup.daily")[0]["plansRemoved"], 1);
        let trims = |effect: &Effect| matches!(effect, Effect::Trim(Journal::Audit, 1_000));
        assert_eq!(bench.effects.iter().filter(|effect| trims(effect)).count(), 1);
        let (_, status) = bench.ask("GET", "/api/status", &Value::Null);
        assert_eq!(status["cleanup"]["outcome"]["plansRemoved"], 1);
        assert!(status["cleanup"]["nextRun"].is_string());
    }
}
