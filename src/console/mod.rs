//! The pages that the daemon serves. For now one: who is there and what they do.

pub mod api;

use crate::agents::Agent;
use crate::core::State;
use std::fmt::Write as _;

/// The style of the page.
const STYLE: &str = include_str!("console.css");

/// The page, rendered from a snapshot. No script: the browser asks again every few seconds.
fn page(state: &State) -> String {
    let mut agents: Vec<&Agent> = state.agents.iter().map(AsRef::as_ref).collect();
    agents.sort_by_key(|agent| (!agent.status.is_live(), agent.spawned_at, agent.id));
    let live = state.agents.live().count();
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>svc: {live} agents at work</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"3\"><link rel=\"stylesheet\" href=\"/console.css\"></head><body>\
         <header><h1>svc</h1><p>{} · {live} at work, {} in all</p></header><main>",
        escape(&state.project.dir.to_string_lossy()),
        agents.len()
    );
    if agents.is_empty() {
        html.push_str("<p class=\"empty\">No agents yet. Start one: <code>svc spawn backend 'Add a login page'</code></p>");
    } else {
        html.push_str(
            "<table><thead><tr><th>Agent</th><th>Status</th><th>Provider</th><th>Tokens</th><th>Context</th>\
             <th>Doing</th></tr></thead><tbody>",
        );
        for agent in agents {
            row(&mut html, agent);
        }
        html.push_str("</tbody></table>");
    }
    html.push_str("</main></body></html>");
    html
}

fn row(html: &mut String, agent: &Agent) {
    let status = format!("{:?}", agent.status).to_lowercase();
    let doing = agent.current_activity.as_deref().unwrap_or(&agent.status_reason);
    let _ = write!(
        html,
        "<tr class=\"{status}\"><td><a href=\"/api/agents/{}/log\">{}</a></td><td>{status}</td><td>{}</td>\
         <td>{}</td><td>{:.0} %</td><td>{}</td></tr>",
        agent.id,
        escape(&agent.name),
        escape(&agent.provider),
        agent.tokens.total(),
        agent.context_usage() * 100.0,
        escape(doing)
    );
}

/// Text as it may stand in HTML, also inside a quoted attribute.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agents_say_cannot_become_markup() {
        assert_eq!(escape("<b a=\"x\" b='y'>&"), "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;");
        let empty = page(&State::default());
        assert!(empty.contains("No agents yet"));
        assert!(!empty.contains("<script") && !empty.contains("style="), "the page keeps its own policy");
    }
}
