//! `/` and what it loads.

use super::{STYLE, page};
use crate::api::{Method, Problem, Reply, Route};
use crate::routes::{Ask, Handler};

/// The routes of the pages.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(Method::Get, "/", "The agents as a page", Handler::Read(front)),
        Route::new(Method::Get, "/console.css", "The page's style", Handler::Read(style)),
    ]
}

fn front(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::bytes(200, "text/html; charset=utf-8", page(ask.state)))
}

fn style(_ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::bytes(200, "text/css; charset=utf-8", STYLE).with_header("Cache-Control", "max-age=3600"))
}
