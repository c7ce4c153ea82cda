//! `/api/agents/:id/merge` and `/api/agents/:id/discard`.

use super::{worker_discard, worker_fetch, worker_merge};
use crate::api::{Fields, Method, Route, schema_of};
use crate::endpoint::{Access, Handler};
use serde_json::json;

/// Characters of a merge's message.
const MAX_MESSAGE_CHARS: usize = 5_000;

/// The routes of the agents' worktrees.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Post,
            "/api/agents/:id/merge",
            "Merge the branch of an agent's worktree into the project's current branch",
            Handler::Work(Access::OperatorOnly, worker_merge::merge),
        )
        .body(|| schema_of(wish))
        .replies(&[
            (200, "merged, commit, branch, into, files, worktreeRemoved"),
            (409, "no_worktree, agent_running, project_dirty, merge_conflict, no_branch, git_busy"),
        ]),
        Route::new(
            Method::Post,
            "/api/agents/:id/discard",
            "Remove the worktree of an agent that has ended; its work stays on its branch",
            Handler::Work(Access::OperatorOnly, worker_discard::discard),
        )
        .replies(&[
            (200, "branch, commit: where its work stays; worktreeRemoved"),
            (409, "no_worktree, agent_running, no_branch, git_busy"),
        ]),
        Route::new(
            Method::Post,
            "/api/agents/:id/fetch",
            "Bring what an agent has committed on another machine into its branch here",
            Handler::Work(Access::OperatorOnly, worker_fetch::fetch),
        )
        .replies(&[
            (200, "branch, from, to, commits, uncommitted: whether more is there that no commit holds"),
            (409, "not_on_runner, no_worktree, diverged"),
            (502, "runner_failed: its machine cannot be reached, or git there has failed"),
        ]),
    ]
}

/// What a merge is asked for with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// Although the agent runs: what it has committed so far.
    pub force: bool,
    /// Only say what would happen.
    pub dry_run: bool,
    /// Remove the worktree afterwards.
    pub remove: bool,
    /// The merge commit's message.
    pub message: Option<String>,
}

/// Reads the body.
pub fn wish(fields: &mut Fields) -> Wish {
    let wish = Wish {
        force: fields.boolean("force").unwrap_or_default(),
        dry_run: fields.boolean("dryRun").unwrap_or_default(),
        remove: fields.boolean("remove").unwrap_or_default(),
        message: fields.string("message").map(str::trim).filter(|text| !text.is_empty()).map(Into::into),
    };
    let chars = wish.message.as_ref().map_or(0, |text| text.chars().count());
    fields.tell("message", || json!({"maxLength": MAX_MESSAGE_CHARS}));
    fields.validator.check(chars <= MAX_MESSAGE_CHARS, "message", || {
        format!("message must have at most {MAX_MESSAGE_CHARS} characters, it has {chars}")
    });
    wish
}
