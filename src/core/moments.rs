//! What happens, told to every feature that cares. Where it happens nobody knows the listeners.

use super::ids::{AgentId, LineageId, TeamId};
use crate::approvals::ApprovalId;
use crate::oversight::questions::Asker;

/// Something has happened, to an agent most often. Told after the event that caused it was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// A new lineage has begun: its first process is being started.
    Spawned(AgentId),
    /// Its process runs (first life, resume or successor).
    Started(AgentId),
    /// It has gone on while no daemon was there, and all that it did is known now.
    CaughtUp(AgentId),
    /// Its process is gone; the record says how. Not told of a life that a successor replaces.
    Ended(AgentId),
    /// Its process is gone for want of memory; it waits on, and comes back on the next word.
    PutAway(AgentId),
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
    /// A model has answered a question of the daemon's own, or not.
    ModelAnswered(Asker, Result<String, String>),
    /// A team is gone; what was its is another's now.
    TeamDeleted {
        /// The team that is gone.
        from: TeamId,
        /// The team that has what was its.
        to: TeamId,
    },
    /// An account is gone; one that gets its name is another.
    AccountRemoved { provider: String, name: String },
    /// It is known anew what the machine has left.
    Measured,
    /// It is known anew what the other projects have told.
    OthersTold,
    /// A setting of the project is another one.
    SettingsChanged,
}
