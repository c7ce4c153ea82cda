//! What operators and tools ask: health, metrics, the description of the API.

use super::description;
use super::routes::Ask;
use serde_json::json;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use svc_base::api::{Problem, Reply};

/// `GET /healthz`.
pub fn health(ask: &Ask) -> Result<Reply, Problem> {
    let market = ask.market;
    let snapshot = market.catalogue.snapshot();
    let reply = match market.catalogue.store().health() {
        Ok(trouble) => Reply::ok(&json!({
            "status": if trouble.is_none() { "ok" } else { "degraded" },
            "writable": trouble.is_none(),
            "skills": snapshot.entries().len(),
            "generation": snapshot.generation,
            "version": env!("CARGO_PKG_VERSION"),
            "uptime": market.started.elapsed().as_secs(),
        })),
        Err(error) => {
            log::error!("the store cannot be read: {error}");
            Problem::from(error).into()
        }
    };
    Ok(reply.with_header("Cache-Control", "no-store"))
}

/// `GET /metrics`.
pub fn metrics(ask: &Ask) -> Result<Reply, Problem> {
    let market = ask.market;
    let snapshot = market.catalogue.snapshot();
    let mut counters = market.stats.get().map(|stats| stats.counters()).unwrap_or_default();
    let limited = market.limited.load(Ordering::Relaxed);
    counters.extend([
        ("skills", "Skills in the catalogue", "gauge", snapshot.entries().len() as u64),
        ("skills_published", "Skills that are listed", "gauge", snapshot.listed_count() as u64),
        ("catalogue_generation", "Writes seen by the catalogue", "gauge", snapshot.generation),
        (
            "index_looks_total",
            "Times the catalogue was gone through for the index, at most one for each change",
            "counter",
            market.discovery.looks(),
        ),
        ("rate_limited_total", "Requests refused by the public limit", "counter", limited),
        ("rate_limit_clients", "Clients in the window", "gauge", market.limiter.clients() as u64),
    ]);
    let mut text = String::new();
    for (name, help, kind, value) in counters {
        // Writing into a string does not fail.
        let _ = write!(
            text,
            "# HELP svc_skills_{name} {help}\n# TYPE svc_skills_{name} {kind}\nsvc_skills_{name} {value}\n"
        );
    }
    Ok(Reply::bytes(200, "text/plain; version=0.0.4; charset=utf-8", text)
        .with_header("Cache-Control", "no-store"))
}

/// `GET /api/v1/openapi.json`.
pub fn openapi(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&description::of(&ask.market.table)))
}
