//! Who hears of what: where something happens nobody knows the listeners. They stand here, in one list.

use crate::agents::JobReport;
use crate::core::ids::AgentId;
use crate::core::{Context, Moment, State};
use crate::oversight::questions;
use crate::providers::Activity;

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
