//! `/api/health` and `/metrics`: what the core counts, and what the process table, the edge and the hub tell.

use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use std::fmt::Write as _;

/// `GET /api/health`. `leaked` is every process of an agent that could not be ended since the start, and
/// every stray there is now that belongs to no living agent.
pub fn health(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let lives = |id| ask.state.agents.get(id).is_some_and(|agent| agent.status.is_live());
    Ok(Answer::Reply(super::api::health(ask, host.strays(lives) as u64)))
}

/// `GET /metrics`: counters as Prometheus text (exposition format 0.0.4).
pub fn metrics(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let state = ask.state;
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, kind: &str, value: u64| {
        let _ = writeln!(text, "# HELP svc_{name} {help}\n# TYPE svc_{name} {kind}\nsvc_{name} {value}");
    };
    let live = u64::try_from(state.agents.live().count()).unwrap_or(u64::MAX);
    let all = u64::try_from(state.agents.iter().count()).unwrap_or(u64::MAX);
    let tokens = state.usage.total().tokens.total();
    gauge("agents_live", "Agents that are alive", "gauge", live);
    gauge("agents", "Agent records", "gauge", all);
    gauge("tokens_total", "Tokens used by all agents, removed ones included", "counter", tokens);
    gauge("rotations_total", "Rotations completed", "counter", state.agents.rotations().total);
    gauge("leaked_processes_total", "Descendants that could not be ended", "counter", state.health.leaked);
    gauge("panics_total", "Events whose handling panicked", "counter", state.health.panics);
    for (name, help, kind, value) in host.counters() {
        gauge(name, help, kind, value);
    }
    Ok(Answer::Reply(Reply::bytes(200, "text/plain; version=0.0.4", text)))
}
