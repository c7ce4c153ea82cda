//! `GET /api/telemetry`.

use crate::api::{Method, Reply, Route};
use crate::endpoint::{Access, Answer, Handler};

/// The routes of telemetry.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/telemetry",
            "What became of the spans for OpenTelemetry, since the start",
            Handler::Work(Access::OperatorOnly, |_, ask| {
                Ok(Answer::Reply(Reply::ok(&super::shown(ask.state))))
            }),
        )
        .replies(&[
            (
                200,
                "endpoint (null: off), content, headers (names), exported, dropped, rejected, openTurns, lastExport, lastError",
            ),
            (403, "the caller is an agent"),
        ]),
    ]
}
