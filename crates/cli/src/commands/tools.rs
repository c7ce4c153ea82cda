//! The commands about tools of external services.

use super::{ANY, Command, Group, Words, switch, value};
use crate::{acp, integrations, mcp};

/// Integrations, and the daemon as a tool server.
pub static COMMANDS: [Command; 3] = [
    Command {
        name: "integrations",
        alias: "",
        group: Group::Look,
        summary: "list, install and call tools of external services (MCP)",
        usage: "integrations [install ID | add ID COMMAND.. | remove ID | credentials ID [KEY] | connect ID | tools ID | \
                exec ID TOOL [JSON]]",
        words: (0, ANY),
        complete: Words::OneOf(&[
            "list",
            "install",
            "add",
            "remove",
            "credentials",
            "connect",
            "tools",
            "exec",
        ]),
        options: &[
            value("env", "NAME", "add: a variable it needs; may be repeated"),
            value("gate", "TOOL", "add: a tool that needs your approval; may be repeated"),
            value("approval", "ID", "exec: the approval of a gated tool"),
            switch("remove", "credentials: forget the key"),
        ],
        details: "Put -- before a COMMAND with options of its own. The value of a credential is asked for, or read from\n\
                  standard input. connect prints the address where you consent, for integrations with OAuth.",
        run: integrations::integrations,
    },
    Command {
        name: "mcp",
        group: Group::Look,
        summary: "serve tools, locks and memory to an MCP client",
        usage: "mcp",
        details: "Agents of Claude Code with integrations get it by .mcp.json. For any other client:\n\
                  {\"mcpServers\":{\"svc\":{\"command\":\"svc\",\"args\":[\"mcp\"]}}}",
        run: mcp::mcp,
        ..Command::PLAIN
    },
    Command {
        name: "acp",
        group: Group::Look,
        summary: "put agents behind an editor's panel (ACP)",
        usage: "acp [--agent AGENT | --provider ID --model ID --role ROLE]",
        options: &[
            value("agent", "AGENT", "this agent, by name or id; else each session has one of its own"),
            value("provider", "ID", "which coding agent runs those of the sessions"),
            value("model", "ID", "their model"),
            value("role", "ROLE", "their role (editor)"),
        ],
        details: "An editor that speaks the Agent Client Protocol starts it, with the project open for which a daemon\n\
                  runs: {\"agent_servers\":{\"svc\":{\"command\":\"svc\",\"args\":[\"acp\"]}}}. What waits for you is asked\n\
                  in the editor. Agents are the daemon's and stay when the editor is closed.",
        run: acp::acp,
        ..Command::PLAIN
    },
];
