//! What an agent is told about its integrations.

use super::{gates, secrets};
use crate::core::State as All;
use crate::core::ids::AgentId;
use std::fmt::Write as _;

/// Tools named for one integration; the endpoint lists the rest.
const MAX_TOOLS_NAMED: usize = 60;

/// Whether the provider gets a `.mcp.json` instead of instructions.
pub fn is_native(provider: &str) -> bool {
    provider == "claude-code"
}

/// What an agent is told of its integrations, the most important first; nothing when none is attached.
pub fn lines(all: &All, provider: &str, agent: Option<AgentId>, attached: &[String]) -> Vec<String> {
    if attached.is_empty() {
        return Vec::new();
    }
    let mut lines: Vec<String> = Vec::new();
    let url = all.project.url();
    let id = agent.map_or_else(|| "YOUR-ID".to_owned(), |id| id.to_string());
    if is_native(provider) {
        lines.push(format!(
            "The MCP server \"{}\" gives you the tools of the integrations below: integration_tools lists them, \
             integration_exec calls one.",
            super::mcp_file::SERVER
        ));
    } else {
        lines.push(format!(
            "Call tools of the integrations below over HTTP, with any client: `curl -s -X POST \
             {url}/api/integrations/INTEGRATION/exec -H 'Content-Type: application/json' -d \
             '{{\"tool\":\"NAME\",\"params\":{{}},\"agent\":\"{id}\"}}'`. Their tools with inputSchema: `curl -s \
             {url}/api/integrations/INTEGRATION/tools`."
        ));
    }
    lines.extend(attached.iter().filter_map(|id| integration(all, id)));
    lines.push(
        "A call of a gated tool answers 202 with approvalId: a person decides. Go on with other work or end your turn; \
         you are told the decision, then repeat the very same call with \"approvalId\". Never try to approve by yourself."
            .to_owned(),
    );
    lines.push(
        "200 has `result` (`result.isError` true: the tool itself failed), 400 an `error` to read, 403 means that a \
         person said no, 429 that the 30 calls a minute of this integration are used up: wait."
            .to_owned(),
    );
    lines
}

fn integration(all: &All, id: &str) -> Option<String> {
    let definition = all.integrations.definition(id)?;
    let mut text = format!("- INTEGRATION `{id}` ({})", definition.name);
    if let Some(tools) = all.integrations.tool_names.get(id) {
        let named: Vec<&str> = tools.iter().take(MAX_TOOLS_NAMED).map(String::as_str).collect();
        let more = if tools.len() > named.len() { " and more" } else { "" };
        let _ = write!(text, ", tools: {}{more}", named.join(", "));
    }
    let gated = gates::gated_tools(definition);
    if !gated.is_empty() {
        let _ = write!(text, "; gated: {}", gated.join(", "));
    }
    if !secrets::is_configured(all, definition) {
        text.push_str("; its credentials are not set yet, so that calls may fail");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::Bench;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn decisions_11_instructions_have_the_real_daemon_url_and_the_agents_own_id() {
        let mut bench = Bench::new();
        let mut project = (*bench.state.project).clone();
        (project.host, project.port) = ("127.0.0.1".into(), 31999);
        bench.state.project = Arc::new(project);
        let body = json!({"id": "hub", "command": "x", "env": ["TOKEN"], "gatedTools": ["send"]});
        assert_eq!(bench.ask("POST", "/api/integrations", &body).0, 201);
        let own = vec!["hub".to_owned()];
        let told =
            |provider: &str, id: u32| lines(&bench.state, provider, Some(AgentId(id)), &own).join("\n");
        assert!(lines(&bench.state, "codex", None, &[]).is_empty(), "nothing is attached");
        let text = told("codex", 0xab);
        let endpoint = "http://127.0.0.1:31999/api/integrations/INTEGRATION/exec";
        for part in [endpoint, "\"agent\":\"000000ab\"", "`hub`", "gated: send", "not set yet", "approvalId"]
        {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let native = told("claude-code", 1);
        assert!(native.contains("`hub`") && !native.contains("curl"), "{native}");
    }
}
