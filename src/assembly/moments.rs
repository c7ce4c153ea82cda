//! Who hears of what happens seldom: where it happens nobody knows the listeners. Who hears of agents' lives
//! and deeds stands in the table of all features.

use crate::agents::JobReport;
use crate::core::{Command, Context, Moment, State};
use crate::oversight::questions;
use crate::workspace;

/// Gives the report of a one-off job to whom it is for.
pub fn job(state: &mut State, cx: &mut Context, report: JobReport) {
    match &report {
        JobReport::Brief(agent, Ok(text)) => crate::memory::brief_written(state, *agent, text),
        JobReport::Learned(agent, learned) => {
            return crate::context::learned::read(state, cx, *agent, learned);
        }
        JobReport::Query(call, result) if questions::is_own(*call) => {
            return questions::answered(state, cx, *call, result);
        }
        _ => {}
    }
    crate::agents::job_report(state, cx, report);
}

/// What a person changes in the project's files is nobody's trespass.
pub fn asked_of_files(state: &mut State, cx: &Context, command: &Command) {
    let Command::Workspace(workspace::Command::Changed { details, .. }) = command else { return };
    if cx.actor.agent().is_none() {
        for path in ["path", "from", "to"].iter().filter_map(|name| details[*name].as_str()) {
            crate::ownership::commands::explained(state, cx.now, path);
        }
    }
}

/// Tells every listener that the daemon has started and knows its providers.
pub fn started(state: &mut State, cx: &mut Context) {
    crate::agents::limit::started(state);
    crate::oversight::back::started(state, cx);
    crate::teams::phases::settle(state, cx);
    crate::schedules::started(state, cx);
    crate::runners::go_on(state, cx);
    // What was read at the start is heard once more when it has changed, and not before.
    cx.moment(Moment::OthersTold);
}
