//! The commands about what agents may do, and who said so.

use super::{Command, Group, Words, short, switch, value};
use crate::{approvals, trust};

/// Approvals, locks, keys, the audit log.
pub static COMMANDS: [Command; 6] = [
    Command {
        name: "approvals",
        group: Group::Trust,
        summary: "list what waits for your yes or no",
        usage: "approvals [ID | --all]",
        words: (0, 1),
        details: "With an ID: all that it takes to decide it: the change as a diff, the command with its folder, what the\n\
                  agent said last, who owns the file, what was decided of the like. The beginning of an id is enough.",
        options: &[short('a', switch("all", "also the last 50 that were resolved"))],
        run: approvals::list,
        ..Command::PLAIN
    },
    Command {
        name: "approve",
        group: Group::Trust,
        summary: "let an agent do what it asked for, once",
        usage: "approve ID [--reason TEXT]",
        words: (1, 1),
        options: &[value("reason", "TEXT", "told to the agent")],
        details: "The beginning of an id is enough. The agent then continues on its own. Agents cannot approve.",
        run: approvals::approve,
        ..Command::PLAIN
    },
    Command {
        name: "reject",
        group: Group::Trust,
        summary: "refuse what an agent asked for",
        usage: "reject ID [--reason TEXT]",
        words: (1, 1),
        options: &[value("reason", "TEXT", "told to the agent")],
        details: "The beginning of an id is enough.",
        run: approvals::reject,
        ..Command::PLAIN
    },
    Command {
        name: "locks",
        group: Group::Trust,
        summary: "list who holds which shared resources",
        usage: "locks",
        details: "Agents take them with the tool coordination_declare of 'svc mcp'.",
        run: trust::locks,
        ..Command::PLAIN
    },
    Command {
        name: "credentials",
        group: Group::Trust,
        summary: "list, store or forget API keys",
        usage: "credentials [list | set PROVIDER | remove PROVIDER]",
        words: (0, 2),
        complete: Words::OneOf(&["list", "set", "remove"]),
        details: "The key is asked for, or read from standard input; never give it as an argument,\n\
                  where others can see it. Keys are stored encrypted; only the\n\
                  provider's own agents get them.",
        run: trust::credentials,
        ..Command::PLAIN
    },
    Command {
        name: "audit",
        group: Group::Trust,
        summary: "show who changed what",
        usage: "audit [--limit N] [--before T] [--event NAME]",
        options: &[
            short('n', value("limit", "N", "entries at most (100)")),
            value("before", "T", "only older ones, for example than 2026-01-31T12:00:00Z"),
            value("event", "NAME", "only this event or area, for example agent.spawn or approval"),
        ],
        details: "Newest first.",
        run: trust::audit,
        ..Command::PLAIN
    },
];
