//! Turns in which nothing is heard: announced, and ended by nobody.

use super::reason::Reason;
use super::record::{Attached, Status};
use super::touch;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Context, Durability, Notice, State as All, Timer};
use std::sync::Arc;
use std::time::Duration;

/// An open turn without any output for this long is announced.
pub const SILENCE: Duration = Duration::from_secs(120);
/// That is done at moments so far apart, in milliseconds: fifty agents that fell silent within one minute
/// wake the daemon six times, not fifty.
const STEP: u64 = 10_000;

/// Its turn may have begun, gone on or ended: when it has been silent for too long.
pub(super) fn watch(all: &mut All, id: AgentId, now: Time) {
    let Some(agent) = all.agents.get(id) else { return };
    let timers = Arc::make_mut(&mut all.timers);
    if agent.turn_open && agent.status.is_live() && agent.attached != Attached::Here {
        timers.set(Timer::Silence(id), Time((now + SILENCE).0.next_multiple_of(STEP)));
    } else {
        timers.clear(Timer::Silence(id));
    }
}

/// An open turn has been silent for too long: say so, end nothing.
pub fn silence(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    // One that waits for a person, was frozen or cannot be heard is not silent by itself.
    let is_cut = matches!(agent.status_reason.why(), Reason::Unreachable { .. });
    let waits = agent.status == Status::Waiting || agent.is_frozen() || is_cut;
    if !agent.turn_open || !agent.status.is_live() || agent.stalled || waits {
        return;
    }
    agent.stalled = true;
    // A clock that was set back may say that it was heard in the future.
    let seconds = cx.now.since(agent.last_activity).max(SILENCE).as_secs();
    agent.set_status(cx.now, agent.status, Reason::silent(seconds, &agent.status_reason));
    let (agent_name, reason) = (agent.name.clone(), agent.status_reason.to_string());
    cx.notice(Notice::AgentStalled { agent_id: id, agent_name, reason });
    touch(all, cx, Durability::Soon);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    #[test]
    fn those_that_fall_silent_one_after_another_are_told_of_at_one_moment() {
        let mut bench = Bench::new();
        let ids: Vec<AgentId> = (0..8).map(|n| bench.agent(&format!("a{n}"))).collect();
        let mut moments = std::collections::BTreeSet::new();
        for id in ids {
            bench.now = bench.now + Duration::from_millis(500);
            bench.does(id, vec![crate::providers::Activity::TurnStarted]);
            let at = bench.state.timers.get(Timer::Silence(id)).unwrap();
            assert!(at >= bench.now + SILENCE && at.0 - (bench.now + SILENCE).0 < STEP);
            moments.insert(at);
        }
        assert_eq!(moments.len(), 1, "eight in four seconds");
    }
}
