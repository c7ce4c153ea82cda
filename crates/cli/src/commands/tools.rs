//! The commands about tools of external services.

use super::{ANY, Command, Group, Words, switch, value};
use crate::{integrations, mcp};

/// Integrations, and the daemon as a tool server.
pub static COMMANDS: [Command; 2] = [
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
];
