//! What an agent is told about its integrations.

use super::{State, gates, secrets};
use crate::core::State as All;
use crate::core::ids::AgentId;
use crate::providers;
use std::fmt::Write as _;

/// Tools named for one integration; the endpoint lists the rest.
const MAX_TOOLS_NAMED: usize = 60;

/// Whether the provider gets a `.mcp.json` instead of instructions.
pub fn is_native(provider: &str) -> bool {
    providers::info_of(provider).mcp_file
}

impl State {
    /// The lines of the briefing's section, for an agent with attached integrations. An agent that does not
    /// live yet has no id.
    pub fn instructions(
        &self,
        all: &All,
        provider: &str,
        integrations: &[String],
        agent: Option<AgentId>,
    ) -> Vec<String> {
        if integrations.is_empty() {
            return Vec::new();
        }
        if is_native(provider) {
            return vec![format!(
                "The MCP server \"{}\" gives you the tools of these integrations: {}. They are named \
             INTEGRATION__TOOL; find the others with integration_tools and call them with integration_exec. \
             A call that needs a person's approval says so; carry on with other work, or end your turn: you will be told \
             the decision.",
                super::mcp_file::SERVER,
                integrations.join(", ")
            )];
        }
        let url = all.project.url();
        let id = agent.map_or_else(|| "YOUR_ID".to_owned(), |id| id.to_string());
        let mut text = format!(
            "You can call tools of external services over HTTP, with any HTTP client.\n\n\
         - List the tools: `curl -s {url}/api/integrations/INTEGRATION/tools`\n\
         - Call one: `curl -s -X POST {url}/api/integrations/INTEGRATION/exec -H 'Content-Type: application/json' \
         -d '{{\"tool\":\"NAME\",\"params\":{{}},\"agent\":\"{id}\"}}'`\n\n\
         Rules: read a tool's inputSchema before you call it. Status 200 has `result`; `result.isError` true means that \
         the tool itself failed. Status 202 means that a person has to approve: note `approvalId`, go on with other \
         work or end your turn; you are told the decision, then repeat the very same call with \"approvalId\". Never \
         try to approve by yourself. Status 403: a person said no, do not try again. Status 429: 30 calls a minute are \
         the limit of each integration, wait. Status 400: read `error`.\n\nYour integrations:\n"
        );
        for name in integrations {
            integration(all, name, &mut text);
        }
        text.lines().map(str::to_owned).collect()
    }
}

fn integration(all: &All, id: &str, text: &mut String) {
    let Some(definition) = all.integrations.definition(id) else { return };
    let _ = write!(text, "- INTEGRATION `{id}` ({})", definition.name);
    if let Some(tools) = all.integrations.tool_names.get(id) {
        let named: Vec<&str> = tools.iter().take(MAX_TOOLS_NAMED).map(String::as_str).collect();
        let more = if tools.len() > named.len() { " and more" } else { "" };
        let _ = write!(text, ", tools: {}{more}", named.join(", "));
    }
    let gated = gates::gated_tools(definition);
    if !gated.is_empty() {
        let _ = write!(text, "; these need a person's approval: {}", gated.join(", "));
    }
    if !secrets::is_configured(all, definition) {
        text.push_str("; its credentials are not set yet, so that calls may fail");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use crate::core::ids::AgentId;
    use crate::testing::Bench;
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
        let told = |provider: &str, integrations: &[&str], id: u32| {
            let names: Vec<String> = integrations.iter().map(ToString::to_string).collect();
            bench
                .state
                .integrations
                .instructions(&bench.state, provider, &names, Some(AgentId(id)))
                .join("\n")
        };
        assert_eq!(told("codex", &[], 1), "", "nothing is attached");
        let text = told("codex", &["hub"], 0xcd);
        let endpoint = "http://127.0.0.1:31999/api/integrations/INTEGRATION/exec";
        let id = "\"agent\":\"000000cd\"";
        for part in [endpoint, id, "`hub`", "approval: send", "not set yet", "approvalId"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(told("codex", &["hub"], 0xab).contains("000000ab"), "a successor gets its own id");
        let native = told("claude-code", &["hub"], 1);
        assert!(native.contains("hub") && !native.contains("curl"), "{native}");
    }
}
