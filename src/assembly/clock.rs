//! What becomes of deadlines when the wall clock jumps: it was set, or the machine slept.
//!
//! Between two jumps an event's time goes on at the pace of a clock that nobody can set, and then it is the
//! wall clock's again. Whatever waits for a time to pass is moved along with the jump, so that a time-out
//! lasts as long as it says. What stands on the wall is different:
//!
//! - schedules follow the wall clock, and no minute is used twice;
//! - an approval and a rule expire when the wall clock says so, but never live longer than their lifetime;
//! - past times stay as they were told, except those that would lie in the future.

use crate::core::time::{Jump, Time};
use crate::core::{Context, Effect, State, Timer};
use crate::{agents, approvals, coordination, federation, integrations, phones, schedules, usage, webhooks};
use std::sync::Arc;

/// The wall clock has jumped; `cx.now` is its time now.
pub fn set(state: &mut State, cx: &mut Context, jump: Jump) {
    let (seconds, way) = (jump.by.as_secs(), if jump.is_back { "back" } else { "forward" });
    cx.push(Effect::Warn(format!("the clock went {seconds} s {way} at once: time-outs are moved along")));
    Arc::make_mut(&mut state.timers).move_by(jump, |timer| match timer {
        Timer::ScheduleDue(_) | Timer::ScheduleSoon(_) | Timer::LimitOpens(_) => false,
        Timer::Approval(_) | Timer::Rule(_) | Timer::Cleanup => jump.is_back,
        _ => true,
    });
    if jump.is_back {
        let project = Arc::make_mut(&mut state.project);
        project.started_at = project.started_at.moved(jump);
    }
    agents::clock_set(state, cx, jump);
    approvals::clock_set(state, cx, jump);
    coordination::clock_set(state, cx, jump);
    federation::clock_set(state, jump);
    integrations::clock_set(state, cx, jump);
    webhooks::clock_set(state, jump);
    phones::clock_set(state, jump);
    usage::clock_set(state, cx.now);
    schedules::clock_set(state, cx, jump);
}

/// The state was read from the disk. If the clock was set back since it was written, what it says to have
/// happened later than `now` counts as happening now, so that nothing waits longer than it may.
pub fn restored(state: &mut State, now: Time) {
    agents::not_after(state, now);
    approvals::not_after(state, now);
    coordination::not_after(state, now);
    usage::clock_set(state, now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Event;
    use crate::testing::Bench;
    use serde_json::json;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3600);

    fn jump(bench: &mut Bench, is_back: bool, by: Duration) {
        let jump = Jump { is_back, by };
        bench.now = bench.now.moved(jump);
        bench.apply(Event::ClockSet(jump));
    }

    fn declare(bench: &mut Bench, ttl_ms: u64) {
        let body = json!({"agentId": "x", "operation": "build", "resources": ["db"], "ttlMs": ttl_ms});
        assert_eq!(bench.ask("POST", "/api/coordination/declare", &body).0, 200);
    }

    fn is_locked(bench: &mut Bench) -> bool {
        bench.ask("GET", "/api/coordination", &json!(null)).1["operations"]["x"].is_object()
    }

    #[test]
    fn a_lock_lasts_as_long_as_it_says_when_the_clock_is_set_back_or_forward() {
        for is_back in [true, false] {
            let mut bench = Bench::new();
            declare(&mut bench, 10_000);
            bench.pass(Duration::from_secs(4));
            jump(&mut bench, is_back, HOUR);
            bench.pass(Duration::from_millis(5_900));
            assert!(is_locked(&mut bench), "not before its time");
            bench.pass(Duration::from_millis(200));
            assert!(!is_locked(&mut bench), "and not after it");
        }
    }

    #[test]
    fn state_is_pushed_and_snapshots_are_taken_when_the_clock_was_set_back() {
        let mut bench = Bench::new();
        let id = bench.agent("dev");
        bench.pass(Duration::from_secs(600));
        jump(&mut bench, true, HOUR);
        let pushed = |bench: &Bench| {
            bench.effects.iter().filter(|effect| matches!(effect, Effect::StateChanged(_))).count()
        };
        let snapshots = |bench: &mut Bench| {
            bench.ask("GET", "/api/timeline", &json!(null)).1["snapshots"].as_array().unwrap().len()
        };
        let (before, taken) = (pushed(&bench), snapshots(&mut bench));
        bench.exits(id, 0);
        bench.pass(Duration::from_secs(1));
        assert!(pushed(&bench) > before, "within a second");
        bench.pass(Duration::from_secs(120));
        assert!(snapshots(&mut bench) > taken);
    }

    #[test]
    fn decisions_4_an_approval_never_lives_longer_than_a_day_whatever_the_clock_does() {
        let mut bench = Bench::new();
        let action = approvals::Action::question("may I?");
        let new = approvals::NewApproval { agent: None, action };
        let (id, _) = bench.with(|all, cx| approvals::request(all, cx, new)).unwrap();
        bench.pass(HOUR);
        jump(&mut bench, true, 30 * 24 * HOUR);
        let expires = |bench: &Bench| bench.state.approvals.find(&id.to_string()).unwrap().expires_at;
        assert_eq!(expires(&bench).since(bench.now), 23 * HOUR);
        bench.pass(23 * HOUR);
        assert!(bench.state.approvals.pending().next().is_none(), "a day has passed");
    }

    #[test]
    fn a_schedule_follows_the_clock_that_was_set_back_and_uses_no_minute_twice() {
        let mut bench = Bench::new();
        let body = json!({"name": "each", "cron": "* * * * *", "maxConcurrent": 100,
            "agent": {"role": "dev", "provider": "script"}});
        assert_eq!(bench.ask("PATCH", "/api/config", &json!({"maxAgents": 100})).0, 200);
        assert_eq!(bench.ask("POST", "/api/schedules", &body).0, 201);
        bench.pass(Duration::from_secs(5 * 60 + 30));
        let fired = |bench: &Bench| {
            let schedule = bench.state.schedules.iter().next().unwrap();
            let minutes =
                schedule.history.iter().filter(|run| run.outcome == crate::schedules::Outcome::Started);
            minutes.filter_map(|run| run.scheduled_for.clone()).collect::<Vec<_>>()
        };
        assert_eq!(fired(&bench).len(), 5);
        jump(&mut bench, true, Duration::from_secs(20 * 60));
        bench.pass(Duration::from_secs(20 * 60));
        let minutes = fired(&bench);
        let unique: std::collections::BTreeSet<_> = minutes.iter().collect();
        // Twenty minutes of the wall, five of which had been used.
        assert_eq!((minutes.len(), unique.len()), (5 + 15, 5 + 15), "{minutes:?}");
    }

    #[test]
    fn a_question_times_out_in_its_own_time_when_the_machine_slept() {
        let mut bench = Bench::new();
        Arc::make_mut(&mut bench.state.timers).set(Timer::Journalist, bench.now + Duration::from_secs(60));
        jump(&mut bench, false, 8 * HOUR);
        let left = bench.state.timers.get(Timer::Journalist).unwrap().since(bench.now);
        assert_eq!(left, Duration::from_secs(60));
    }
}
