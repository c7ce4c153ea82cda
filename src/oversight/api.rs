//! `/api/health`, `/api/status`, `/metrics`, `/api/shutdown`.

use super::{audit, worker_api, worker_audit};
use crate::api::{Method, Problem, Reply, Route};
use crate::core::{Command, State, Timer};
use crate::endpoint::{Access, Ask, Handler};
use crate::settings::Cage;
use serde_json::{Value, json};

/// The routes of the daemon's own state.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/health",
            "Whether the daemon is well",
            Handler::Work(Access::Anyone, worker_api::health),
        ),
        Route::new(Method::Get, "/api/status", "Where the daemon runs and for what", Handler::Read(status)),
        Route::new(
            Method::Get,
            "/metrics",
            "Counters as Prometheus text",
            Handler::Work(Access::Anyone, worker_api::metrics),
        ),
        Route::new(
            Method::Post,
            "/api/shutdown",
            "End the daemon and all agents",
            Handler::Write(Access::OperatorOnly, |ask| {
                Ok(Command::Shutdown { keep: ask.request.query("keep") == Some("true") })
            }),
        )
        .query(&[("keep", "`true` leaves agents to their keepers: the next daemon goes on with them")])
        .replies(&[
            (202, "it ends"),
            (403, "the caller is an agent"),
            (409, "agents are to be kept, and keeper.orphanMinutes is 0"),
        ]),
        Route::new(
            Method::Get,
            "/api/audit",
            "Who changed what, newest first",
            Handler::Work(Access::Anyone, worker_audit::list),
        )
        .query(audit::QUERY)
        .replies(&[(200, "entries, and whether there are more"), (400, "a parameter is wrong")]),
    ]
}

/// What `GET /api/health` answers when there are so many strays.
pub fn health(ask: &Ask, strays: u64) -> Reply {
    let health = &ask.state.health;
    let status = if health.stopping {
        "stopping"
    } else if health.storage_error.is_some() || !health.set_aside.is_empty() {
        "degraded"
    } else {
        "ok"
    };
    Reply::ok(&json!({
        "status": status,
        "uptime": uptime_seconds(ask),
        "agents": ask.state.agents.live().count(),
        "version": crate::VERSION,
        "leaked": health.leaked + strays,
        "panics": health.panics,
        "storageError": health.storage_error,
        "setAside": health.set_aside,
        "rooms": rooms(ask.state),
    }))
}

/// Whether agents have rooms of their own: `{inForce, reason}`, the reason what stands in the way.
fn rooms(state: &State) -> Value {
    let (project, cage) = (&state.project, state.settings.config().isolation.cage);
    let reason = match cage {
        Cage::Off => Some("isolation.cage is off"),
        _ if !project.can_cage => Some(project.no_cage.as_str()),
        _ => None,
    };
    json!({"inForce": reason.is_none(), "reason": reason})
}

/// Seconds since the daemon started.
#[allow(clippy::cast_precision_loss, reason = "an uptime in seconds with three decimals")]
pub fn uptime_seconds(ask: &Ask) -> f64 {
    ask.now.since(ask.state.project.started_at).as_millis() as f64 / 1000.0
}

fn status(ask: &Ask) -> Result<Reply, Problem> {
    let project = &ask.state.project;
    Ok(Reply::ok(&json!({
        "pid": project.pid,
        "host": project.host,
        "port": project.port,
        "version": crate::VERSION,
        "projectDir": project.dir,
        "name": project.name,
        "uptime": uptime_seconds(ask),
        "startedAt": project.started_at.to_string(),
        "agents": ask.state.agents.iter().count(),
        "running": ask.state.agents.live().count(),
        "waiting": ask.state.approvals.pending().count(),
        "cleanup": ask.state.cleanup.shown(ask.state.timers.get(Timer::Cleanup)),
    })))
}
