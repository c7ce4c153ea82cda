//! The route table of the daemon: every endpoint of every feature, in one list.

use super::{description, rules};
use crate::api::{Method, Route, Table};
use crate::endpoint::Handler;

/// All routes.
pub fn table() -> Table<Handler> {
    let mut routes: Vec<Route<Handler>> = Vec::new();
    routes.push(Route::new(
        Method::Get,
        "/api/openapi.json",
        "This API as OpenAPI 3.1",
        Handler::Read(description::openapi),
    ));
    routes.push(Route::new(
        Method::Get,
        "/api/asyncapi.json",
        "What WebSocket clients hear and may say, as AsyncAPI 3.0",
        Handler::Read(description::asyncapi),
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
