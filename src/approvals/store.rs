//! The approvals and rules as they stand on disk, after a start, and when the clock jumps.

use super::record::VERSION;
use super::rule::Rule;
use super::{Action, Approval, LIFETIME, State, Status, awaited_by, rules, save};
use crate::agents;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::{Jump, Time};
use crate::core::{Context, State as All, Timer, Timers};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `.svc/state/approvals.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    /// In the order of their requests.
    pub approvals: Vec<Arc<Approval>>,
    /// In the order in which they were made. They stand beside the approvals, for a use and what it allows
    /// are one change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Arc<Rule>>,
}

impl State {
    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        Stored { version: VERSION, approvals: self.list.clone(), rules: self.rules.clone() }
    }

    /// What an earlier daemon has left; deadlines that passed meanwhile come due at once.
    pub fn restore(mut stored: Stored, agents: &agents::State, timers: &mut Timers) -> Self {
        for approval in &mut stored.approvals {
            let is_question = matches!(approval.action, Action::ToolPermission { .. });
            let asks = approval.agent_id.and_then(|agent| agents.get(agent));
            let waits = asks.is_some_and(|agent| agent.status.is_live());
            // Of what may go on, this daemon asks itself.
            let is_old = matches!(approval.action, Action::ResumeAgents { .. });
            if approval.is_open() && (is_old || is_question && !waits) {
                // The run that asked ended with the earlier daemon.
                let approval = Arc::make_mut(approval);
                approval.status = Status::Expired;
                approval.resolved_at = Some(approval.requested_at);
                approval.reason = Some("the daemon was restarted before the decision".into());
            }
        }
        for approval in stored.approvals.iter().filter(|approval| approval.is_open()) {
            timers.set(Timer::Approval(approval.id), approval.expires_at);
            if approval.rule.is_some() && approval.status == Status::Pending {
                // Its use is on disk, and the daemon that counted it did not come to grant it.
                timers.set(Timer::ApprovalByRule(approval.id), approval.requested_at);
            }
        }
        rules::arm(&stored.rules, timers);
        let mut state = Self { list: stored.approvals, rules: stored.rules, ..Self::default() };
        for agent in agents.live() {
            // What its shell was told meanwhile, or before, is not known here.
            state.shells.lose(agent.id);
        }
        state
    }
}

/// Takes over the approvals of an earlier daemon.
pub fn restore(all: &mut All, stored: Stored, now: Time) {
    all.approvals = Arc::new(State::restore(stored, &all.agents, Arc::make_mut(&mut all.timers)));
    // Agents that have lived on: their records are of another moment than the approvals.
    let live: Vec<(AgentId, LineageId)> =
        all.agents.live().map(|agent| (agent.id, agent.lineage_id)).collect();
    for (agent, lineage) in live {
        let awaited = awaited_by(all, lineage);
        agents::show(all, now, agent, awaited);
    }
}

/// The wall clock has jumped: set back, it must not make an approval live longer.
pub fn clock_set(all: &mut All, cx: &mut Context, jump: Jump) {
    rules::clock_set(all, cx, jump);
    if !jump.is_back || !all.approvals.list.iter().any(|approval| approval.is_open()) {
        return;
    }
    for approval in Arc::make_mut(&mut all.approvals).list.iter_mut().filter(|one| one.is_open()) {
        let approval = Arc::make_mut(approval);
        approval.expires_at = approval.expires_at.moved(jump);
    }
    save(cx);
}

/// Nothing expires later than its lifetime after `now`.
pub fn not_after(all: &mut All, now: Time) {
    rules::not_after(all, now);
    let timers = Arc::make_mut(&mut all.timers);
    let latest = now + LIFETIME;
    for approval in &mut Arc::make_mut(&mut all.approvals).list {
        if approval.is_open() && approval.expires_at > latest {
            Arc::make_mut(approval).expires_at = latest;
            timers.set(Timer::Approval(approval.id), latest);
        }
    }
}
