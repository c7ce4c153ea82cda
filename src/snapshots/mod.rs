//! Snapshots: what stands in the folder of an agent is kept before each of its turns and behind it, so that
//! a person can see what a turn has changed, and have it undone.
//!
//! ```text
//! run's thread ──begin, end──▶ worker ──▶ .svc/snapshots/store (objects, refs)
//!                                └──────▶ .svc/snapshots/turns/<lineage>.jsonl (a line each)
//! POST /undo ──▶ worker_undo: a snapshot of now, what was the agent's, a plan on disk, files replaced
//! ```
//! The core hears of what was undone, and of nothing else: reads come from the disk.
//!
//! **Invariant:** no turn waits longer than [`PATIENCE`] for its snapshot. Without one it goes on, its line
//! says so, and it cannot be undone.
//! **Invariant:** what an undo replaces is in a snapshot that was taken just before, and the plan is on disk
//! before the first file changes: the next daemon ends what one that was killed has begun.

pub mod api;
mod lines;
#[cfg(test)]
mod tests;
pub mod worker;
pub mod worker_diff;
mod worker_fork;
mod worker_tidy;
pub mod worker_undo;

pub use lines::{Kind, Line, Snap, Turn, is_alone, turns};
pub use worker_fork::Beginning;
pub use worker_tidy::Tidier;

use crate::api::{Problem, Reply};
use crate::core::ids::AgentId;
use crate::core::{CallId, Context, State as All};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a turn waits for the snapshot before it.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Paths named in the audit log, in a refusal and in a reply.
pub const MAX_NAMED: usize = 20;

/// What became of files.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Turns of an agent were undone, or what was undone is there again.
    Restored(Box<Restored>),
}

/// See [`Command::Restored`].
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Restored {
    pub agent: AgentId,
    /// Whether an undo was taken back.
    pub is_redo: bool,
    /// The first of the turns.
    pub turn: u64,
    /// The files that were put back.
    pub files: Vec<String>,
    /// The reply to whoever asked for it.
    pub reply: Value,
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let Command::Restored(restored) = command;
    let result = record(all, cx, &restored);
    cx.answer(call, result);
}

/// Errors: 404.
fn record(all: &mut All, cx: &mut Context, restored: &Restored) -> Result<Reply, Problem> {
    let agent = all.agents.find(&restored.agent.to_string())?;
    let named: Vec<&String> = restored.files.iter().take(MAX_NAMED).collect();
    let told = json!({
        "agentId": agent.id, "agentName": agent.name, "turn": restored.turn,
        "files": named, "fileCount": restored.files.len(),
    });
    cx.audit(if restored.is_redo { "agent.redo" } else { "agent.undo" }, &told);
    Ok(Reply::ok(&restored.reply))
}
