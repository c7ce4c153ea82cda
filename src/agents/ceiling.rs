//! Agents that come near to the memory that one of them may hold. Their keepers end those that pass it,
//! daemon or none; here they are shown and told before.
//!
//! **Invariant:** an agent is told once for each time that it comes near.

use super::reason::Reason;
use super::record::{Agent, Status};
use super::{LogEntry, RunOrder, touch, wait};
use crate::core::ids::AgentId;
use crate::core::{Context, Durability, Effect, State as All};
use serde::Serialize;
use std::sync::Arc;

#[cfg(test)]
#[path = "ceiling_tests.rs"]
mod tests;

const MIB: u64 = 1 << 20;
/// It is near above this many percent of what it may hold.
const NEAR_PERCENT: u64 = 80;
/// It is no more below this many.
const FAR_PERCENT: u64 = 65;

/// What is shown of one that is near, in megabytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Near {
    pub megabytes: u64,
    pub ceiling_megabytes: u64,
}

/// What becomes of one that was ended there.
pub(super) fn verdict(agent: &Agent, held: u64, ceiling: u64) -> (Status, Reason) {
    let name = agent.name.clone();
    (Status::Killed, Reason::MemoryCeiling { used: held.div_ceil(MIB), ceiling: ceiling / MIB, name })
}

impl Agent {
    /// Bytes that it held, if it was ended because that was more than it may.
    pub fn ended_above(&self) -> Option<u64> {
        match self.status_reason.why() {
            Reason::MemoryCeiling { used, .. } => Some(used.saturating_mul(MIB)),
            _ => None,
        }
    }
}

/// It is known anew what agents hold.
pub(super) fn measured(all: &mut All, cx: &mut Context) {
    let ceiling = all.settings.config().governor.ceiling();
    let mut changed: Vec<(AgentId, Option<Near>)> = Vec::new();
    for agent in all.agents.live().filter(|agent| agent.has_process() || agent.near_ceiling.is_some()) {
        let held = all.governor.use_of(agent.id).map_or(0, |own| own.now);
        let percent = if agent.near_ceiling.is_some() { FAR_PERCENT } else { NEAR_PERCENT };
        let is_near = ceiling > 0 && held >= ceiling / 100 * percent;
        let near = is_near.then(|| Near { megabytes: held.div_ceil(MIB), ceiling_megabytes: ceiling / MIB });
        if near != agent.near_ceiling {
            changed.push((agent.id, near));
        }
    }
    for (id, near) in changed {
        let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { continue };
        let was_near = std::mem::replace(&mut agent.near_ceiling, near).is_some();
        if was_near != near.is_some() {
            touch(all, cx, Durability::Soon);
        }
        if let Some(near) = near.filter(|_| !was_near) {
            tell(all, cx, id, near);
        }
    }
}

fn tell(all: &mut All, cx: &mut Context, id: AgentId, near: Near) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let Near { megabytes, ceiling_megabytes } = near;
    let known = format!("holds {megabytes} MB of the {ceiling_megabytes} MB of memory that an agent may");
    cx.push(Effect::Log(agent.lineage_id, id, LogEntry::life(format!("near its ceiling: {known}"))));
    let text = format!(
        "From svc, not from the person: what you have started {known} on this machine. Above that all of it is \
         ended, and you with it. End what you need no more; run less at a time."
    );
    // A word of its own is worth no turn, nor another life.
    if agent.turn_open && wait::takes_input(&agent.provider) {
        wait::tell(all, cx, id, text, false);
    } else {
        wait::note(all, cx, id, text);
    }
}

/// A person has changed what holds: the keepers of those that run are told.
pub(super) fn settings_changed(all: &All, cx: &mut Context) {
    for agent in all.agents.live().filter(|agent| agent.pid.is_some() && !agent.has_no_run()) {
        cx.push(Effect::Run(agent.id, RunOrder::Settings));
    }
}
