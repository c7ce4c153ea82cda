//! `GET /api/capacity`.

use super::worker_api;
use crate::api::{Method, Route};
use crate::endpoint::{Access, Handler};

/// The routes of the governor.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/capacity",
            "How many more agents fit on this machine, and the numbers behind it",
            Handler::Work(Access::Anyone, worker_api::capacity),
        )
        .query(&[
            ("provider", "of which provider they are; the default one when absent"),
            ("role", "of which role they are"),
        ])
        .replies(&[
            (
                200,
                "more, eachMegabytes and where that is known from; memory, pressure, kinds, agents, queued, putAway, frozen",
            ),
            (400, "there is no such provider"),
        ]),
    ]
}
