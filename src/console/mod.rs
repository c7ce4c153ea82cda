//! The web console: pages, styles and scripts that are compiled into the binary. The daemon serves them; all
//! they show comes from the public API and the WebSocket.
//!
//! **Invariant:** the pages keep the strictest policy: nothing inline, nothing from elsewhere, and no text of
//! an agent ever becomes markup (browsers enforce it by trusted types).
//!
//! **Invariant:** all assets together stay below [`WEIGHT_LIMIT_BYTES`], uncompressed.

pub mod api;
mod assets;
#[cfg(test)]
mod lean;
#[cfg(test)]
mod tests;
pub mod worker;
pub mod worker_projects;
pub mod worker_sessions;

use crate::agents::Agent;
use crate::core::State;
use std::fmt::Write as _;
use svc_base::sorted;
use svc_base::untrusted::escape_html as escape;

/// Bytes of everything a browser may load, in all.
pub const WEIGHT_LIMIT_BYTES: usize = 300 << 10;
/// Agents in the table for browsers without scripts.
const MAX_ROWS: usize = 200;

/// The page: the shell that the scripts fill, with a table of the agents for browsers without scripts.
fn page(state: &State) -> String {
    let mut preload = String::new();
    for asset in assets::ALL.iter().filter(|asset| asset.first) {
        let _ = writeln!(preload, "<link rel=\"modulepreload\" href=\"console/{}\">", asset.name);
    }
    assets::SHELL.replacen("<!--preload-->\n", &preload, 1).replacen("<!--agents-->", &agents(state), 1)
}

fn agents(state: &State) -> String {
    let mut agents: Vec<&Agent> = state.agents.iter().map(AsRef::as_ref).collect();
    sorted::by_key(&mut agents, |agent| (!agent.status.is_live(), agent.spawned_at, agent.id));
    if agents.is_empty() {
        return "<p>No agents yet. Start one: <code>svc spawn backend 'Add a login page'</code></p>".into();
    }
    let mut html = String::from(
        "<table><thead><tr><th>Agent</th><th>Status</th><th>Provider</th><th>Tokens</th><th>Context</th>\
         <th>Doing</th></tr></thead><tbody>",
    );
    for agent in agents.iter().take(MAX_ROWS) {
        row(&mut html, agent);
    }
    html.push_str("</tbody></table>");
    if agents.len() > MAX_ROWS {
        let _ = write!(html, "<p>{MAX_ROWS} of {} agents are shown.</p>", agents.len());
    }
    html
}

fn row(html: &mut String, agent: &Agent) {
    let status = format!("{:?}", agent.status).to_lowercase();
    let doing = agent.current_activity.clone().unwrap_or_else(|| agent.status_reason.to_string());
    let _ = write!(
        html,
        "<tr><td><a href=\"api/agents/{}/log\">{}</a></td><td>{status}</td><td>{}</td>\
         <td>{}</td><td>{:.0} %</td><td>{}</td></tr>",
        agent.id,
        escape(&agent.name),
        escape(&agent.provider),
        agent.tokens.total(),
        agent.context_usage() * 100.0,
        escape(&doing)
    );
}
