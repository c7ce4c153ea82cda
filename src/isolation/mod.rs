//! Isolation: an agent may work in a git worktree of its own, on a branch of its own. Here its work is looked
//! at (`svc diff`), brought into the project's current branch (`svc merge`), and its worktree taken away
//! (`svc discard`).
//!
//! Git does the work, on the connection's thread; the core hears of a merge when it is done.
//!
//! **Invariant:** a merge happens wholly or not at all: before a file of the project changes it is known that
//! nothing conflicts, and a merge that git cannot finish is taken back.
//! **Invariant:** a worktree with work that no commit holds is never removed.

pub mod api;
mod changes;
#[cfg(test)]
mod tests;
pub mod worker_diff;
pub mod worker_discard;
pub mod worker_fetch;
pub mod worker_git;
pub mod worker_merge;
pub mod worker_move;
mod worker_shadow;
pub mod worker_worktree;

pub use changes::{Change, parse_changes, parse_status};

use crate::agents;
use crate::api::{Problem, Reply};
use crate::core::Notice;
use crate::core::ids::AgentId;
use crate::core::{CallId, Context, State as All};
use crate::ownership;
use serde_json::{Value, json};

/// Files named in an event, in the audit log and in a sentence.
pub const MAX_NAMED_FILES: usize = 20;

/// What became of the work of an agent.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// It was merged, or there was nothing to merge; or its worktree may go.
    Merged(Box<Merged>),
    /// It came from another machine.
    Fetched(Box<Fetched>),
}

/// Commits that came from another machine, or that there are none.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Fetched {
    pub agent: AgentId,
    pub branch: String,
    /// What the branch stood at here, and stands at now.
    pub from: String,
    pub to: String,
    pub commits: u64,
    /// Whether there is something on that machine that no commit holds.
    pub uncommitted: bool,
}

/// A merge that was done.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Merged {
    pub agent: AgentId,
    /// The commit it made; `None` when there was nothing to merge.
    pub commit: Option<String>,
    pub branch: String,
    /// The branch it was merged into.
    pub into: String,
    /// The files it changed.
    pub files: Vec<Change>,
    /// Whether the worktree is to be removed.
    pub removes: bool,
    /// The reply to whoever asked for it.
    pub reply: Value,
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = match command {
        Command::Merged(merged) => record(all, cx, *merged),
        Command::Fetched(fetched) => note_fetched(all, cx, &fetched),
    };
    cx.answer(call, result);
}

/// Errors: 404.
fn note_fetched(all: &mut All, cx: &mut Context, fetched: &Fetched) -> Result<Reply, Problem> {
    let Fetched { agent, branch, from, to, commits, uncommitted } = fetched;
    let agent = all.agents.find(&agent.to_string())?;
    let told = json!({
        "ok": true, "agentId": agent.id, "agentName": agent.name, "runner": agent.runner, "branch": branch,
        "from": from, "to": to, "commits": commits, "uncommitted": uncommitted,
    });
    if *commits > 0 {
        cx.audit("agent.fetch", &told);
    }
    Ok(Reply::ok(&told))
}

/// Errors: 404, 409 `agent_running` when the worktree is to go and its agent runs again.
fn record(all: &mut All, cx: &mut Context, merged: Merged) -> Result<Reply, Problem> {
    let agent = all.agents.find(&merged.agent.to_string())?.clone();
    let mut reply = merged.reply;
    let named = |change: &Change| change.path.clone();
    let files: Vec<String> = merged.files.iter().take(MAX_NAMED_FILES).map(named).collect();
    for change in &merged.files {
        ownership::commands::explained(all, cx.now, &change.path);
    }
    if let Some(commit) = &merged.commit {
        let told = Notice::AgentMerged {
            agent_id: agent.id,
            agent_name: agent.name.clone(),
            branch: merged.branch.clone(),
            into: merged.into.clone(),
            commit: commit.clone(),
            files,
            file_count: merged.files.len(),
        };
        cx.audit("agent.merge", &told.body());
        cx.notice(told);
    }
    if merged.removes && agent.status.is_live() {
        reply["worktreeRemoved"] = json!(false);
        reply["note"] = json!(format!("{} runs again, so its worktree stays", agent.name));
    } else if merged.removes {
        cx.audit(
            "agent.worktree_removed",
            &json!({"agentId": agent.id, "agentName": agent.name, "worktree": agent.worktree}),
        );
        agents::leave_worktree(all, cx, agent.id);
        reply["worktreeRemoved"] = json!(true);
    }
    Ok(Reply::ok(&reply))
}
