//! What the command line says of itself.

use crate::config::{ADDRESS, DATABASE};
use std::fmt::Write as _;

/// A command: how it is called, what it does in a line, and what is to know beyond that.
struct Command {
    usage: &'static str,
    does: &'static str,
    more: &'static str,
}

const COMMANDS: [Command; 11] = [
    Command {
        usage: "serve [--addr IP:PORT] [--no-seed]",
        does: "serve the API (the default)",
        more: "It listens on --addr and keeps everything in --db, which it makes where it is not there.\n\
               --no-seed leaves out the skills that come with the program.\n\
               SKILLS_API_KEY is the key of every write; without it every write is refused.\n\
               SKILLS_BASE_URL is where the service is found from outside; without it addresses in answers\n\
               follow the request. SIGTERM ends it cleanly.\n",
    },
    Command {
        usage: "review [ID approve|reject [NOTE]]",
        does: "list what waits for a decision, or decide",
        more: "Only a skill in review can be decided on. What is rejected is listed only after an approval.\n",
    },
    Command {
        usage: "verify ID service|creator|none",
        does: "vouch for a skill, or take it back",
        more: "service vouches for the text, creator for the author. Either mark goes with the next edit of\n\
               name, description, content or author, for the shared key does not tell who edited.\n",
    },
    Command {
        usage: "feature ID on|off",
        does: "highlight a skill, or take it back",
        more: "The mark goes with the next edit of name, description, content or author.\n",
    },
    Command {
        usage: "export DIR",
        does: "write a static mirror: skills/registry.json, skills/content/<id>.md",
        more: "Published skills only, without history, ratings by client and installs; backup keeps all that.\n",
    },
    Command {
        usage: "import DIR [--trust]",
        does: "take such a mirror in; known skills keep their counters",
        more: "Of another market's mirror only texts are taken: no downloads, ratings, marks, and nothing under\n\
               an id or the name of the vendor. --trust believes those figures and marks, too: for an export of\n\
               your own. It works in small batches, so that a service on the same database goes on writing;\n\
               one that was broken off is simply run again.\n",
    },
    Command {
        usage: "backup FILE",
        does: "write a whole copy of the database, also while it is served and written to",
        more: "FILE appears when it is whole. To restore: end the service, remove the database with its -wal and\n\
               -shm files, copy FILE to its place, svc-skills check, start the service.\n",
    },
    Command {
        usage: "migrate --from FILE [--to URL]",
        does: "move everything from SQLite to an empty PostgreSQL database",
        more: "Drafts, history, ratings, installs, authors, events and the ledger, with all ids and times; counts\n\
               and contents are compared before any of it shows. End the service on FILE first: it cannot write\n\
               meanwhile, and what it writes later stays behind. FILE is not changed. Without --to it is\n\
               DATABASE_URL, which other users of this machine cannot read off the list of processes.\n",
    },
    Command {
        usage: "seed",
        does: "take in the embedded skills again",
        more: "Their texts are brought up to date; counters, status and marks stay.\n",
    },
    Command {
        usage: "check",
        does: "check whether database and ledger are sound",
        more: "The database's own check, contents against digests, history, authors, counters against what they\n\
               count, and the ledger. It names every flaw; the exit status is then 1.\n",
    },
    Command { usage: "help [COMMAND]", does: "this list, or more about a command", more: "" },
];

/// The general help.
pub fn general() -> String {
    let mut text = String::from(
        "svc-skills: the skills marketplace service\n\nusage: svc-skills [COMMAND] [--db FILE]\n\n",
    );
    for command in &COMMANDS {
        // Writing into a string does not fail.
        let _ = writeln!(text, "  {:36} {}", command.usage, command.does);
    }
    let _ = write!(
        text,
        "\nCommands may run while the service does; it sees their changes at once. Only serve, seed and import\n\
         make a database that is not there. serve listens on {ADDRESS} and keeps {DATABASE} in the current\n\
         folder unless told otherwise.\n\
         Environment: SKILLS_API_KEY, SKILLS_API_KEY_PREVIOUS, SKILLS_ADMIN_KEY, SKILLS_BASE_URL,\n\
         SKILLS_PUBLIC_RPM, SKILLS_TRUSTED_PROXIES, SKILLS_SITE_ORIGINS, DATABASE_URL, SVC_LOG\n"
    );
    text
}

/// The help of one command; `None` where there is none of this name.
pub fn of(name: &str) -> Option<String> {
    let is_it = |command: &&Command| command.usage.split(' ').next() == Some(name);
    let command = COMMANDS.iter().find(is_it)?;
    let database = if matches!(name, "help" | "migrate") { "" } else { " [--db FILE]" };
    Some(format!(
        "usage: svc-skills {}{database}\n\n{}\n{}{}",
        command.usage,
        command.does,
        if command.more.is_empty() { "" } else { "\n" },
        command.more
    ))
}
