//! `/api/journalist`.

use super::Command;
use crate::api::{Method, Problem, Reply, Route};
use crate::endpoint::{Access, Ask, Handler};

/// The routes of the journalist.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(Method::Get, "/api/journalist", "How the journalist is", Handler::Read(status)),
        Route::new(
            Method::Post,
            "/api/journalist/cycle",
            "Write down what agents did, now",
            Handler::Write(Access::Anyone, |_| Ok(Command::Cycle.into())),
        )
        .replies(&[(200, "ok, cycle, changed"), (500, "the documents cannot be written")]),
    ]
}

fn status(ask: &Ask) -> Result<Reply, Problem> {
    let config = ask.state.settings.config();
    let stopping = ask.state.health.stopping;
    Ok(Reply::ok(&ask.state.journalist.shown(config.journalist_interval, config.journalist.mode, stopping)))
}
