//! `/api/record`: what the flight recorder does, and its last minutes played again.

use crate::api::{Method, Problem, Reply, Route};
use crate::endpoint::{Access, Handler};

/// Plays a file: from this event, until that number or time, so many events at most.
pub type Play = fn(&[u8], u64, &str, usize) -> Result<Reply, Problem>;

/// The routes; the worker behind the second one plays.
pub fn routes(replay: crate::endpoint::Worker) -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/record",
            "What the flight recorder has on disk",
            Handler::Work(Access::Anyone, super::worker_api::status),
        ),
        Route::new(
            Method::Get,
            "/api/record/replay",
            "What the recorder has, played again",
            Handler::Work(Access::OperatorOnly, replay),
        )
        .query(&[
            ("from", "the number of the first event; by default the last 200 are told"),
            ("until", "the number or the time of the last event"),
            ("limit", "events at most, 1 to 1000; 200 by default"),
        ])
        .replies(&[
            (200, "timeline, the state after its last event, and how many hashes were equal"),
            (400, "a parameter is wrong"),
            (403, "the caller is an agent"),
            (404, "there is no recording"),
            (429, "others are being played"),
        ]),
    ]
}
