//! What happens to agents, told to every feature that cares. The agents feature knows none of its listeners:
//! they stand here, in one list.

use super::ids::{AgentId, LineageId};
use super::{Context, State};
use crate::approvals::ApprovalId;
use crate::providers::Activity;

/// Something has happened to an agent. Told after the event that caused it was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A new lineage has begun: its first process is being started.
    Spawned(AgentId),
    /// Its process runs (first life, resume or successor).
    Started(AgentId),
    /// Its process is gone; the record says how. Not told of a life that a successor replaces.
    Ended(AgentId),
    /// A successor runs in its place, same lineage.
    Rotated {
        /// The life before.
        old: AgentId,
        /// The life now.
        new: AgentId,
    },
    /// An ended agent goes on under a new id, same lineage.
    Resumed {
        /// The life before.
        old: AgentId,
        /// The life now.
        new: AgentId,
    },
    /// A turn is over, whatever came of it.
    TurnEnded(AgentId),
    /// An approval was decided, or has expired without one.
    Decided {
        /// Which.
        approval: ApprovalId,
        /// What came of it.
        approved: bool,
    },
    /// The record is gone.
    Removed(AgentId, LineageId),
}

/// Tells every listener of a moment.
pub fn tell(state: &mut State, cx: &mut Context, moment: Moment) {
    crate::agents::moment(state, cx, moment);
    crate::approvals::moment(state, cx, moment);
    crate::teams::moment(state, cx, moment);
    crate::context::triggers::moment(state, cx, moment);
    crate::usage::moment(state, cx, moment);
    crate::oversight::timeline::moment(state, cx, moment);
    crate::ownership::moment(state, cx, moment);
    crate::coordination::moment(state, cx, moment);
    crate::gateways::moment(state, cx, moment);
    crate::memory::told(state, cx, moment);
    crate::journalist::told(state, cx, moment);
}

/// Tells every listener what an agent did, in order, before its record takes it in.
pub fn heard(state: &mut State, cx: &mut Context, agent: AgentId, activities: &[Activity]) {
    crate::teams::plan::heard(state, cx, agent, activities);
    crate::context::triggers::heard(state, cx, agent, activities);
    crate::usage::heard(state, cx, agent, activities);
    crate::oversight::timeline::changed(state, cx.now);
    crate::ownership::heard(state, cx, agent, activities);
    crate::memory::heard(state, cx, agent, activities);
    crate::journalist::heard(state, cx, agent, activities);
}

/// Tells every listener that the daemon has started and knows its providers.
pub fn started(state: &mut State, cx: &mut Context) {
    crate::teams::phases::settle(state, cx);
    crate::schedules::started(state, cx);
}
