//! The project as files: reading and changing them, the index of the codebase, watching, and importing
//! repositories.
//!
//! **Invariant:** no endpoint opens anything outside of the project's root, whatever links lead there and
//! whenever they are swapped: every path is opened by `svc_sys::beneath`.
//!
//! **Invariant:** every change of a file that succeeds stands in the audit journal.

pub mod api;
pub mod import;
pub mod index;
pub mod path;
#[cfg(test)]
mod tests;
pub mod worker_files;
pub mod worker_git;
pub mod worker_import;
pub mod worker_index;
pub mod worker_map;
pub mod worker_watch;
pub mod worker_write;

pub use import::Order;

use crate::api::Reply;
use crate::core::{CallId, Context, State as All};
use index::{Index, Workspace};
use serde_json::{Value, json};
use std::sync::Arc;

/// What is known of the project's files.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    index: Option<Arc<Index>>,
    imports: Arc<import::Imports>,
}

impl State {
    /// What a new agent is told of the project that has this task and scope and works in this folder; empty
    /// before the first scan.
    pub fn summary(&self, task: &str, scope: &[String], dir: &str) -> String {
        let focus = index::Focus { task, scope, dir };
        self.index().map(|index| index::summary(index, &focus)).unwrap_or_default()
    }

    /// The last index; `None` before the first scan.
    pub fn index(&self) -> Option<&Index> {
        self.index.as_deref()
    }

    /// The imports of repositories.
    pub fn imports(&self) -> &import::Imports {
        &self.imports
    }

    /// The packages of the project; empty before the first scan.
    pub fn workspaces(&self) -> &[Workspace] {
        self.index.as_ref().map_or(&[], |index| &index.workspaces)
    }

    /// As `GET /api/indexer` has it.
    pub fn index_status(&self) -> Value {
        let index = self.index();
        json!({
            "indexed": index.is_some(),
            "lastIndexTime": index.map_or(0, |index| index.last_index_time),
            "workspaceCount": self.workspaces().len(),
            "stats": index.map(|index| index.stats).unwrap_or_default(),
            "durationMs": index.map_or(0, |index| index.duration_ms),
            "truncated": index.is_some_and(|index| index.truncated),
        })
    }
}

/// A wish.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// A file was changed by a worker: write it down, then answer.
    Changed {
        /// The event for the audit journal, for example `file.write`.
        event: &'static str,
        details: Value,
        /// The status of the answer.
        status: u16,
        /// The body of the answer.
        body: Value,
    },
    /// The project was scanned because somebody asked: take the index over and answer its status.
    Indexed(Arc<Index>),
    Import(import::Request),
}

/// A fact from a thread.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Report {
    /// The project was scanned.
    Indexed(Arc<Index>),
    /// An import goes on, or has ended.
    Import(import::ImportId, import::Progress),
}

/// Handles a wish.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    match command {
        Command::Changed { event, details, status, body } => {
            cx.audit(event, &details);
            cx.reply(call, Reply::json(status, &body));
        }
        Command::Indexed(index) => {
            indexed(all, index);
            cx.audit("indexer.rescan", &json!({}));
            cx.reply(call, Reply::ok(&all.workspace.index_status()));
        }
        Command::Import(request) => import::begin(all, cx, call, request),
    }
}

/// Takes in what a thread reports.
pub fn report(all: &mut All, cx: &mut Context, report: Report) {
    match report {
        Report::Indexed(index) => indexed(all, index),
        Report::Import(id, progress) => import::progress(all, cx, id, progress),
    }
}

/// The newest index counts, in whatever order scans report.
fn indexed(all: &mut All, index: Arc<Index>) {
    let known = all.workspace.index().map_or(0, |known| known.last_index_time);
    if known <= index.last_index_time {
        Arc::make_mut(&mut all.workspace).index = Some(index);
    }
}
