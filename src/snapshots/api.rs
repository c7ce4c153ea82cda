//! `/api/agents/:id/snapshots`, `/undo`, `/redo` and `/diff`.

use super::worker_undo::wish;
use super::{worker_diff, worker_undo};
use crate::api::{Method, Route, schema_of};
use crate::endpoint::{Access, Handler};

/// The routes of snapshots.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/agents/:id/snapshots",
            "The turns of an agent that can be undone",
            Handler::Work(Access::Anyone, worker_undo::list),
        )
        .replies(&[(200, "turns with files, changed, undone and missed; redo: the turn that comes back")]),
        Route::new(
            Method::Post,
            "/api/agents/:id/undo",
            "Take back what an agent has changed since a turn",
            Handler::Work(Access::OperatorOnly, worker_undo::undo),
        )
        .body(|| schema_of(wish))
        .replies(&[
            (200, "turn, to, files, left, snapshot"),
            (404, "no snapshot of that turn is kept"),
            (409, "agent_busy, changed_since with paths, no_snapshot, no_worktree, nothing_to_undo"),
            (503, "what is there now cannot be kept, so that nothing was changed"),
        ]),
        Route::new(
            Method::Post,
            "/api/agents/:id/redo",
            "Take back the last undo",
            Handler::Work(Access::OperatorOnly, worker_undo::redo),
        )
        .replies(&[
            (200, "turn, files, left, snapshot"),
            (409, "agent_busy, changed_since with paths, no_snapshot, no_worktree, nothing_to_undo"),
            (503, "what is there now cannot be kept, so that nothing was changed"),
        ]),
        Route::new(
            Method::Get,
            "/api/agents/:id/diff",
            "What an agent changed: its worktree against its base, else its own changes by its snapshots",
            Handler::Work(Access::Anyone, worker_diff::diff),
        )
        .query(&[
            ("path", "only this file or folder"),
            ("context", "unchanged lines around each change, 3 by default"),
            ("turn", "only this turn, by its snapshots"),
            ("whole", "true: the whole folder against HEAD, whoever changed it"),
        ])
        .replies(&[
            (200, "source, base, branch, commits, uncommitted, files with status and lines, diff, truncated"),
            (409, "not a git repository, its worktree is gone, or the turn has no snapshot"),
        ]),
    ]
}
