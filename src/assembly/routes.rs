//! The route table of the daemon: every endpoint of every feature, in one list.

use crate::api::{Method, Problem, Reply, Route, Table, openapi};
use crate::endpoint::{Ask, Handler};

/// All routes.
pub fn table() -> Table<Handler> {
    let mut routes: Vec<Route<Handler>> = Vec::new();
    routes.extend(crate::console::api::routes());
    routes.extend(crate::oversight::api::routes());
    routes.push(Route::new(
        Method::Get,
        "/api/openapi.json",
        "This API as OpenAPI 3.1",
        Handler::Read(document),
    ));
    routes.extend(crate::oversight::dashboard::routes());
    routes.extend(crate::oversight::timeline::routes());
    routes.extend(crate::agents::api::routes(super::spawn::spawn));
    routes.extend(crate::approvals::api::routes());
    routes.extend(crate::teams::api::routes());
    routes.extend(crate::toys::api::routes());
    routes.extend(crate::schedules::api::routes());
    routes.extend(crate::integrations::api::routes());
    routes.extend(crate::ownership::api::routes());
    routes.extend(crate::isolation::api::routes());
    routes.extend(crate::coordination::api::routes());
    routes.extend(crate::credentials::api::routes());
    routes.extend(crate::gateways::api::routes());
    routes.extend(crate::programs::api::routes());
    routes.extend(crate::settings::api::routes());
    routes.extend(crate::workspace::api::routes());
    routes.extend(crate::context::triggers_api::routes());
    routes.extend(crate::usage::api::routes());
    routes.extend(crate::memory::api::routes());
    routes.extend(crate::journalist::api::routes());
    routes.extend(crate::oversight::pm::routes());
    routes.extend(crate::context::api::routes());
    routes.extend(crate::market::api::routes());
    routes.extend(crate::federation::api::routes());
    Table::new(routes)
}

fn document(_ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&openapi::document(&table(), "svc daemon", crate::VERSION)))
}
