//! What happens, told to every feature that cares. Where it happens nobody knows the listeners: they stand
//! here, in one list.

use super::ids::{AgentId, LineageId, TeamId};
use super::{Context, State};
use crate::agents::JobReport;
use crate::approvals::ApprovalId;
use crate::oversight::questions::{self, Asker};
use crate::providers::Activity;

/// Something has happened, to an agent most often. Told after the event that caused it was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// A model has answered a question of the daemon's own, or not.
    ModelAnswered(Asker, Result<String, String>),
    /// A team is gone; what was its is another's now.
    TeamDeleted {
        /// The team that is gone.
        from: TeamId,
        /// The team that has what was its.
        to: TeamId,
    },
}

/// Tells every listener of a moment.
pub fn tell(state: &mut State, cx: &mut Context, moment: &Moment) {
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
    crate::schedules::moment(state, cx, moment);
    crate::oversight::pm::moment(state, cx, moment);
}

/// Gives the report of a one-off job to whom it is for.
pub fn job(state: &mut State, cx: &mut Context, report: JobReport) {
    match &report {
        JobReport::Brief(agent, Ok(text)) => crate::memory::brief_written(state, *agent, text),
        JobReport::Query(call, result) if questions::is_own(*call) => {
            return questions::answered(state, cx, *call, result);
        }
        _ => {}
    }
    crate::agents::job_report(state, cx, report);
}

/// What a person changes in the project's files is nobody's trespass.
pub fn asked_of_files(state: &mut State, cx: &Context, command: &crate::workspace::Command) {
    let crate::workspace::Command::Changed { details, .. } = command else { return };
    if cx.actor.agent().is_none() {
        for path in ["path", "from", "to"].iter().filter_map(|name| details[*name].as_str()) {
            crate::ownership::commands::explained(state, cx.now, path);
        }
    }
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
