//! The project as files: reading and changing them, the index of the codebase, watching, and importing repositories.
//!
//! **Invariant:** no endpoint opens anything outside of the project's root, whatever links lead there and whenever
//! they are swapped: every path is opened by `runtime::beneath`.
//!
//! **Invariant:** every change of a file that succeeds stands in the audit journal.

pub mod api;
pub mod path;
#[cfg(test)]
mod tests;
pub mod worker_files;
pub mod worker_git;
pub mod worker_write;

use crate::api::Reply;
use crate::core::{CallId, Context, State as All};
use serde_json::Value;

/// What is known of the project's files.
#[derive(Debug, Clone, Default)]
pub struct State {}

/// A wish.
#[derive(Debug, Clone)]
pub enum Command {
    /// A file was changed by a worker: write it down, then answer.
    Changed {
        /// The event for the audit journal, for example `file.write`.
        event: &'static str,
        /// Its fields.
        details: Value,
        /// The status of the answer.
        status: u16,
        /// The body of the answer.
        body: Value,
    },
}

/// Handles a wish.
pub fn command(_all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    match command {
        Command::Changed { event, details, status, body } => {
            cx.audit(event, &details);
            cx.reply(call, Reply::json(status, &body));
        }
    }
}
