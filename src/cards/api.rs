//! `/api/approvals/:id/card`.

use super::worker;
use crate::api::{Method, Route};
use crate::endpoint::{Access, Handler};

/// The route of cards.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/approvals/:id/card",
            "What it takes to decide an approval",
            Handler::Work(Access::NoAgent, worker::card),
        )
        .replies(&[
            (
                200,
                "kind, parameters in words, command with its folder, change: the file with a diff, folder, owner \
                 and scope, task, words: the agent's last, before: decisions of the like, mayRule",
            ),
            (403, "the caller is an agent"),
            (404, "no such approval"),
        ]),
    ]
}
