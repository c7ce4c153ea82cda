//! `/api/rotation`, `/api/adaptive`.

use super::triggers;
use crate::api::{Method, Reply, Route};
use crate::endpoint::Handler;

/// The routes of rotation.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/rotation",
            "Past rotations, and how fast tokens went before and after",
            Handler::Read(|ask| Ok(Reply::ok(&triggers::shown_rotations(ask.state)))),
        ),
        Route::new(
            Method::Get,
            "/api/adaptive",
            "At which fullness agents are rotated, by provider and role",
            Handler::Read(|ask| Ok(Reply::ok(&triggers::shown_adaptive(ask.state)))),
        ),
    ]
}
