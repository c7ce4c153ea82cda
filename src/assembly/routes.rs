//! The route table of the daemon: every endpoint of every feature, in one list.

use super::rules;
use crate::api::{Method, Problem, Reply, Route, Table, openapi};
use crate::endpoint::{Ask, Handler};

/// All routes.
pub fn table() -> Table<Handler> {
    let mut routes: Vec<Route<Handler>> = Vec::new();
    routes.push(Route::new(
        Method::Get,
        "/api/openapi.json",
        "This API as OpenAPI 3.1",
        Handler::Read(document),
    ));
    routes.extend(crate::oversight::dashboard::routes());
    routes.extend(crate::oversight::timeline::routes());
    routes.extend(crate::oversight::pm::routes());
    routes.extend(crate::context::triggers_api::routes());
    routes.extend(crate::agents::api::routes(super::spawn::spawn));
    routes.push(super::fork::route());
    routes.extend(crate::record::api::routes(|host, ask| {
        crate::record::worker_api::replay(host, ask, super::replay::answer)
    }));
    rules::routes(&mut routes);
    Table::new(routes)
}

fn document(_ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&openapi::document(&table(), "svc daemon", crate::VERSION)))
}
