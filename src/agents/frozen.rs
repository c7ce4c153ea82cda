//! Agents inside of a turn while memory stays short: the newest stand still, and go on in their order.
//!
//! ```text
//!        memory is short, and nobody idle has any      there is enough, or nobody else works
//! works ─────────────────────────────────────▶ frozen ─────────────────────────────────────▶ works
//! ```
//! Who stands still keeps what it holds, and asks for no more; those that go on end sooner for it. Its keeper
//! stops every process of it, and lets them go on when its daemon is gone: who is frozen is written down
//! nowhere.
//!
//! **Invariant:** one agent inside of a turn always goes on.
//! **Invariant:** who is no more at work is not frozen: what it said last may be read when it stands still
//! already, and its next turn is not to begin so.
//! **Invariant:** the newest are frozen first and go on last, one at a time with [`SETTLING`] between two.

use super::record::{Agent, Attached, Phase, Status};
use super::{LogEntry, RunOrder, silence, touch};
use crate::core::ids::AgentId;
use crate::core::time::{Jump, Time};
use crate::core::{Context, Durability, Effect, State as All};
use crate::governor::{self, SETTLING};
use serde_json::json;
use std::sync::Arc;

#[cfg(test)]
#[path = "frozen_tests.rs"]
mod tests;

impl Agent {
    /// Whether all its processes stand still.
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Whether it is at work and does not move.
    pub fn stands_still(&self) -> bool {
        self.is_frozen() && self.is_at_work()
    }

    /// Whether it is at work, and nobody has ended that.
    fn is_at_work(&self) -> bool {
        self.turn_open && self.has_process() && self.phase == Phase::Working && self.attached == Attached::No
    }
}

/// One is no more at work.
pub(super) fn one_less(all: &mut All, cx: &mut Context) {
    if all.agents.live().any(|agent| agent.is_frozen()) {
        measured(all, cx);
    }
}

/// The wall clock has jumped.
pub(super) fn clock_set(all: &mut All, jump: Jump) {
    let frozen: Vec<AgentId> =
        all.agents.live().filter(|agent| agent.is_frozen()).map(|agent| agent.id).collect();
    let agents = Arc::make_mut(&mut all.agents);
    agents.thawed_at = agents.thawed_at.map(|at| at.moved(jump));
    for agent in frozen {
        if let Some(agent) = agents.edit(agent) {
            agent.frozen = agent.frozen.map(|at| at.moved(jump));
        }
    }
}

/// It is known anew what the machine has left.
pub(super) fn measured(all: &mut All, cx: &mut Context) {
    let of = |all: &All, is: fn(&Agent) -> bool| {
        let mut found: Vec<(Time, AgentId)> =
            all.agents.live().filter(|agent| is(agent)).map(|agent| (agent.spawned_at, agent.id)).collect();
        found.sort_unstable();
        found
    };
    for (_, id) in of(all, |agent| agent.is_frozen() && !agent.is_at_work()) {
        thaw(all, cx, id);
    }
    let frozen = of(all, Agent::is_frozen);
    let working = of(all, |agent| {
        agent.is_at_work() && agent.status == Status::Running && !agent.is_frozen() && agent.runner.is_none()
    });
    let is_wanted = all.settings.config().governor.freeze && !all.health.stopping;
    let last = all.agents.live().filter_map(|agent| agent.frozen).max();
    let has_settled = all.agents.thawed_at.max(last).is_none_or(|at| cx.now.since(at) >= SETTLING);
    if !is_wanted {
        for (_, id) in frozen {
            thaw(all, cx, id);
        }
    } else if governor::pressing(all, cx.now, !frozen.is_empty()) {
        let oldest = frozen.first().filter(|_| working.is_empty());
        if let Some((_, id)) = oldest {
            thaw(all, cx, *id);
        } else if let ([_, .., (_, newest)], true) = (&working[..], has_settled && !gives_back(all)) {
            freeze(all, cx, *newest);
        }
    } else if let Some((_, id)) = frozen.first().filter(|_| has_settled || working.is_empty()) {
        thaw(all, cx, *id);
    }
}

/// Whether an idle agent is to give back what it holds, or is about to.
fn gives_back(all: &All) -> bool {
    let may = all.settings.config().governor.put_away;
    let mut live = all.agents.live();
    live.any(|agent| (may && agent.may_be_put_away()) || (agent.put_away.is_some() && !agent.is_put_away()))
}

fn freeze(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = Arc::make_mut(&mut all.agents).edit(id) else { return };
    agent.frozen = Some(cx.now);
    tell(all, cx, id, "agent.frozen", "frozen: memory is short, and nobody idle has any to give");
}

/// It goes on, also where its work was ended meanwhile.
pub(super) fn thaw(all: &mut All, cx: &mut Context, id: AgentId) {
    let agents = Arc::make_mut(&mut all.agents);
    agents.thawed_at = Some(cx.now);
    let Some(agent) = agents.edit(id) else { return };
    agent.frozen = None;
    silence::watch(all, id, cx.now);
    tell(all, cx, id, "agent.thawed", "frozen no more: it goes on");
}

fn tell(all: &mut All, cx: &mut Context, id: AgentId, audit: &str, log: &str) {
    if let Some(agent) = all.agents.get(id) {
        cx.audit(audit, &json!({"agentId": id, "name": agent.name}));
        cx.push(Effect::Log(agent.lineage_id, id, LogEntry::life(log.to_owned())));
    }
    cx.push(Effect::Run(id, RunOrder::Settings));
    touch(all, cx, Durability::Soon);
}
