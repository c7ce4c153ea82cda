//! The table of commands: names, options and words. Help, completions, the reading of arguments and the
//! dispatch all derive from it, so that they cannot disagree.

mod tools;
mod trust;

use super::files;
use super::index;
use super::isolation;
use super::ownership;
use super::session::{Outcome, Session};
use super::tokens;
use super::{
    agents, attach, completions, control, doctor, help, logs, rehearse, settings, talk, teams, wait,
};

/// A headline of the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Daemon,
    /// Agents, one by one.
    Agents,
    /// What people decide and plan with several agents.
    Together,
    /// What agents may do, and who said so.
    Trust,
    /// What people look up.
    Look,
    /// The command line itself.
    Help,
}

impl Group {
    /// All, in the order of the help.
    pub const ALL: [Self; 6] =
        [Self::Daemon, Self::Agents, Self::Together, Self::Trust, Self::Look, Self::Help];

    /// The headline.
    pub fn title(self) -> &'static str {
        match self {
            Self::Daemon => "Daemon",
            Self::Agents => "Agents",
            Self::Together => "Together",
            Self::Trust => "Trust",
            Self::Look => "Setup",
            Self::Help => "Help",
        }
    }
}

/// What a shell offers for the words of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    Free,
    Agents,
    Commands,
    OneOf(&'static [&'static str]),
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct Opt {
    /// Without dashes.
    pub long: &'static str,
    /// One letter, if it has one.
    pub short: Option<char>,
    /// The name of its value; empty for a switch.
    pub value: &'static str,
    /// The values it takes; empty when any.
    pub choices: &'static [&'static str],
    /// One line; empty hides the option.
    pub help: &'static str,
}

pub(super) const fn switch(long: &'static str, help: &'static str) -> Opt {
    Opt { long, short: None, value: "", choices: &[], help }
}

pub(super) const fn value(long: &'static str, value: &'static str, help: &'static str) -> Opt {
    Opt { long, short: None, value, choices: &[], help }
}

pub(super) const fn choice(
    long: &'static str,
    value: &'static str,
    choices: &'static [&'static str],
    help: &'static str,
) -> Opt {
    Opt { long, short: None, value, choices, help }
}

pub(super) const fn short(letter: char, option: Opt) -> Opt {
    Opt { short: Some(letter), ..option }
}

/// One command.
pub struct Command {
    /// What people type.
    pub name: &'static str,
    /// Another name; empty when there is none.
    pub alias: &'static str,
    /// Where it stands in the help.
    pub group: Group,
    pub summary: &'static str,
    /// Its command line, without `svc`.
    pub usage: &'static str,
    /// Least and greatest number of words.
    pub words: (usize, usize),
    /// What the words are.
    pub complete: Words,
    /// Its options, beyond [`GLOBAL_OPTIONS`].
    pub options: &'static [Opt],
    /// Further paragraphs of its help.
    pub details: &'static str,
    pub run: fn(&Session) -> Outcome,
}

impl Command {
    /// What most commands have in common, for the rest of a literal: no words, no options. A row names what
    /// it runs itself; a test holds that.
    pub(super) const PLAIN: Self = Self {
        name: "",
        alias: "",
        group: Group::Help,
        summary: "",
        usage: "",
        words: (0, 0),
        complete: Words::Free,
        options: &[],
        details: "",
        run: runs_nothing,
    };
}

fn runs_nothing(_: &Session) -> Outcome {
    Ok(())
}

/// No limit on the words of a command.
pub const ANY: usize = usize::MAX;

/// Options that every command takes, at any place.
pub const GLOBAL_OPTIONS: &[Opt] = &[
    value("project", "DIR", "the project; else the nearest folder upwards with .svc"),
    value("url", "URL", "the daemon, for example http://127.0.0.1:31415"),
    switch("json", "print the API's JSON"),
    short('q', switch("quiet", "print only the essentials: ids")),
    short('h', switch("help", "explain the command")),
    short('V', switch("version", "print the version")),
];

const PORT: Opt = value("port", "N", "this port or none (31415, or another that is free); 0 takes any");

static DAEMON_COMMANDS: [Command; 5] = [
    Command {
        name: "start",
        group: Group::Daemon,
        summary: "run the daemon for this project",
        usage: "start [--background] [--port N] [--host ADDR]",
        options: &[
            short('b', switch("background", "detach; log to .svc/daemon.log; return once it answers")),
            PORT,
            value("host", "ADDR", "address to bind (127.0.0.1); others require the token in .svc/token"),
            switch("stderr-is-log", ""),
        ],
        details: "Without --project the nearest project upwards is taken, else this folder becomes one, unless it is\n\
                  /, your home folder or /tmp. It prints 'listening on URL' once it accepts connections, and runs\n\
                  until ctrl-c or 'svc stop'. A named port is used or refused; without one it is 31415 or\n\
                  another that is free. If a daemon is running already, it says so.",
        run: control::start,
        ..Command::PLAIN
    },
    Command {
        name: "stop",
        group: Group::Daemon,
        summary: "end the daemon and all its agents",
        usage: "stop [--keep]",
        options: &[switch("keep", "leave the agents at work: the next daemon goes on with them")],
        details: "Returns when the process is gone and the project is free for a new daemon. Agents may not use it.\n\
                  Agents that are kept work on without a daemon for keeper.orphanMinutes at most.",
        run: control::stop,
        ..Command::PLAIN
    },
    Command {
        name: "restart",
        group: Group::Daemon,
        summary: "replace the daemon by this program; agents work on",
        usage: "restart",
        details: "The new daemon takes the same address and goes on with every agent where the old one was: no turn\n\
                  is interrupted and nothing is lost. Use it after an update of svc. Agents may not use it.",
        run: control::restart,
        ..Command::PLAIN
    },
    Command {
        name: "status",
        group: Group::Daemon,
        summary: "show where the daemon runs and what it does",
        usage: "status",
        run: control::status,
        ..Command::PLAIN
    },
    Command {
        name: "open",
        group: Group::Daemon,
        summary: "open the web console",
        usage: "open [--forget]",
        options: &[switch("forget", "end all sessions of the console instead, and the links for more")],
        details: "Prints the link either way. It makes one browser count as you, once, within 10 minutes.",
        run: control::open,
        ..Command::PLAIN
    },
];

static AGENT_COMMANDS: [Command; 11] = [
    Command {
        name: "agents",
        alias: "ls",
        group: Group::Agents,
        summary: "list the agents",
        usage: "agents [--live]",
        options: &[switch("live", "only those that have not ended"), switch("names", "print only the names")],
        run: agents::list,
        ..Command::PLAIN
    },
    Command {
        name: "spawn",
        group: Group::Agents,
        summary: "start an agent",
        usage: "spawn ROLE [PROMPT.. | -] [OPTIONS]",
        words: (1, ANY),
        options: &[
            value("provider", "ID", "which coding agent runs it; see 'svc providers'"),
            value("model", "ID", "its model; auto: the cheapest that fits its task"),
            value("name", "NAME", "its name (ROLE-1, ROLE-2, ..)"),
            value("scope", "GLOB", "files it owns; may be repeated"),
            value("dir", "DIR", "its working directory, inside the project"),
            choice("permission", "MODE", &["auto", "full"], "what it may do unasked: auto or full"),
            choice("effort", "LEVEL", &["low", "medium", "high", "max"], "how hard it thinks"),
            value("team", "TEAM", "the team it joins, by name or id"),
            choice(
                "isolation",
                "KIND",
                &["shared", "worktree"],
                "shared folder or a git worktree of its own",
            ),
            choice(
                "priority",
                "LEVEL",
                &["low", "normal", "high"],
                "who goes on first when there is no room",
            ),
            choice(
                "on-limit",
                "WORD",
                &["ask", "wait", "handover", "stop"],
                "what it does at its provider's usage limit",
            ),
            value("account", "NAME", "one of 'svc account', or auto: the one with the most room"),
            value("runner", "NAME", "work on another machine of yours: one of 'svc runners', or label:L"),
            value("schedule", "CRON", "also start one like it at these times"),
            value("skill", "ID", "an installed skill to attach; may be repeated"),
            value("integration", "ID", "an installed integration to attach; may be repeated"),
            value("command", "CMD", "for --provider acp: the program that speaks the protocol"),
            value("env", "NAME=VALUE", "a variable for it; may be repeated; no secrets"),
            value("pass-env", "NAME", "a variable of the daemon's for it, or NAME*; may be repeated"),
            switch("wait", "return when it has ended, as 'svc wait' does"),
            short('f', switch("follow", "print its output until it has ended, then as --wait")),
        ],
        details: "The prompt is the rest of the words, or standard input with -. Put -- before text that begins\n\
                  with a dash.",
        run: agents::spawn,
        ..Command::PLAIN
    },
    Command {
        name: "kill",
        alias: "",
        group: Group::Agents,
        summary: "end agents, with everything they started",
        usage: "kill TARGET.. | --all",
        words: (0, ANY),
        complete: Words::Agents,
        options: &[switch("all", "all that have not ended")],
        details: "An agent that has ended already is removed from the list. --all removes none.",
        run: agents::kill,
    },
    Command {
        name: "logs",
        alias: "",
        group: Group::Agents,
        summary: "print what an agent did",
        usage: "logs TARGET [-f] [--tail N] [--since T]",
        words: (1, 1),
        complete: Words::Agents,
        options: &[
            short('f', switch("follow", "go on until the agent has ended")),
            value("tail", "N", "the last N entries (100)"),
            value("since", "T", "entries since 10m, 2h, 2026-01-31T12:00:00Z, or after a record's number"),
            short('t', switch("timestamps", "begin each line with its time (UTC)")),
        ],
        details: "With --json: one document, and with -f one line for each entry.",
        run: logs::logs,
    },
    Command {
        name: "attach",
        group: Group::Agents,
        summary: "go on with an agent's session at its program's own screen",
        usage: "attach TARGET [--now]",
        words: (1, 1),
        complete: Words::Agents,
        options: &[switch("now", "do not wait for the end of its turn")],
        details: "The agent's program ends, and its interactive form goes on with the same session in this terminal, in the\n\
                  same room and folder. ctrl-\\ pressed twice gives the agent back, and so does the end of the program or 60 s\n\
                  without you. What was said and used at the screen stands in its log and its record; what others say to it\n\
                  meanwhile waits.",
        run: attach::attach,
        ..Command::PLAIN
    },
    Command {
        name: "instruct",
        alias: "",
        group: Group::Agents,
        summary: "say something to an agent",
        usage: "instruct TARGET MESSAGE.. | - [--now | --idle | --rotation]",
        words: (2, ANY),
        complete: Words::Agents,
        options: &[
            switch("now", "at once: live, or by an immediate rotation"),
            switch("idle", "when its current turn ends"),
            switch("rotation", "with its next rotation, at the latest when its turn ends"),
        ],
        details: "Without a switch the agent hears it at once where its program takes live input, else with its next\n\
                  rotation, at the latest when its turn ends. An agent that has ended is resumed with it.",
        run: talk::instruct,
    },
    Command {
        name: "query",
        alias: "ask",
        group: Group::Agents,
        summary: "ask about an agent's work without disturbing it",
        usage: "query TARGET QUESTION.. | -",
        words: (2, ANY),
        complete: Words::Agents,
        run: talk::query,
        ..Command::PLAIN
    },
    Command {
        name: "rotate",
        group: Group::Agents,
        summary: "replace an agent by a fresh one that knows its work",
        usage: "rotate TARGET [--dry-run]",
        words: (1, 1),
        complete: Words::Agents,
        options: &[switch("dry-run", "only show the brief, and what would be left out")],
        run: talk::rotate,
        ..Command::PLAIN
    },
    Command {
        name: "resume",
        group: Group::Agents,
        summary: "continue an agent that has ended",
        usage: "resume TARGET [MESSAGE.. | -] [--runner NAME]",
        words: (1, ANY),
        complete: Words::Agents,
        options: &[value("runner", "NAME", "on this machine from now on: one of 'svc runners', or here")],
        run: talk::resume,
        ..Command::PLAIN
    },
    Command {
        name: "move",
        group: Group::Agents,
        summary: "let an agent go on on another machine, in its session and with its work",
        usage: "move TARGET RUNNER|here [MESSAGE.. | -] [--now]",
        words: (2, ANY),
        complete: Words::Agents,
        options: &[switch("now", "not at the end of its turn, but at once")],
        details: "A live agent comes to the end of its turn, or is interrupted with --now, and goes on there. One that has\n\
                  ended waits there for the next word, or goes on with MESSAGE. What it has not committed becomes one commit\n\
                  of its branch; the branch and the record of its session go along, and name, log and counters stay. Of a\n\
                  program whose sessions cannot be brought elsewhere it begins a new one there, with a brief; that is said.\n\
                  Where a step fails it stays where it was, ended, and 'svc resume' goes on there.",
        run: talk::moves,
        ..Command::PLAIN
    },
    Command {
        name: "wait",
        alias: "",
        group: Group::Agents,
        summary: "wait until agents have ended",
        usage: "wait [TARGET..] [--asked] [--timeout T]",
        words: (0, ANY),
        complete: Words::Agents,
        options: &[
            switch(
                "asked",
                "return as well when one of them asks for your decision: it is listed, exit code 0",
            ),
            value("timeout", "T", "give up after 30s, 10m, 2h: exit code 1"),
        ],
        details: "Without a target: until no agent is left running. Exit code 0 when all completed, 1 when one\n\
                  crashed or was killed, or when none is alive and one in the list has crashed. A rotated agent is\n\
                  followed to its successor. An agent that waits for your decision has not ended: without --asked\n\
                  this goes on until you have made it.",
        run: wait::wait,
    },
];

static OTHER_COMMANDS: [Command; 7] = [
    Command {
        name: "providers",
        group: Group::Look,
        summary: "list the coding agents that svc can run",
        usage: "providers",
        run: settings::providers,
        ..Command::PLAIN
    },
    Command {
        name: "config",
        group: Group::Look,
        summary: "read or change the configuration",
        usage: "config [get [KEY] | set KEY VALUE | describe [KEY]]",
        words: (0, 3),
        complete: Words::OneOf(&["get", "set", "describe"]),
        details: "Keys are dotted, for example safety.dailyBudgetUsd. A value is read as JSON, else as text.\n\
                  describe tells what a setting does, which values it takes and its default, also without a daemon.",
        run: settings::config,
        ..Command::PLAIN
    },
    Command {
        name: "doctor",
        group: Group::Look,
        summary: "check this machine and this project",
        usage: "doctor",
        details: "Exit code 1 when a check fails. Each line that is not ok names its remedy.",
        run: doctor::doctor,
        ..Command::PLAIN
    },
    Command {
        name: "rehearse",
        group: Group::Look,
        summary: "watch a scripted team at work, without a model",
        usage: "rehearse [--keep] [--port N]",
        options: &[switch("keep", "leave the daemon running afterwards"), PORT],
        details: "Uses --project, else a folder 'demo' here. Starts a daemon if none runs there, and ends it again.",
        run: rehearse::rehearse,
        ..Command::PLAIN
    },
    Command {
        name: "completions",
        group: Group::Help,
        summary: "print completions for a shell",
        usage: "completions bash|zsh|fish",
        words: (1, 1),
        complete: Words::OneOf(&["bash", "zsh", "fish"]),
        details: "bash: source <(svc completions bash)\n\
                  zsh:  source <(svc completions zsh)\n\
                  fish: svc completions fish | source",
        run: completions::completions,
        ..Command::PLAIN
    },
    Command {
        name: "version",
        group: Group::Help,
        summary: "print the version",
        usage: "version",
        run: help::version,
        ..Command::PLAIN
    },
    Command {
        name: "help",
        group: Group::Help,
        summary: "explain a command",
        usage: "help [COMMAND | --all]",
        words: (0, 1),
        complete: Words::Commands,
        options: &[switch("all", "list all commands, one line each")],
        run: help::help,
        ..Command::PLAIN
    },
];

/// The tables of all features, each beside its commands. One line each, so that additions do not meet in
/// one line.
#[rustfmt::skip]
static TABLES: &[&[Command]] = &[
    &DAEMON_COMMANDS,
    &AGENT_COMMANDS,
    &teams::COMMANDS,
    &trust::COMMANDS,
    ownership::COMMANDS,
    isolation::COMMANDS,
    super::snapshots::COMMANDS,
    super::comments::COMMANDS,
    super::approvals::COMMANDS,
    super::rules::COMMANDS,
    &super::memory::COMMANDS,
    super::recall::COMMANDS,
    super::capacity::COMMANDS,
    super::map::COMMANDS,
    tokens::COMMANDS,
    super::accounts::COMMANDS,
    super::runners::COMMANDS,
    super::adoption::COMMANDS,
    super::prices::COMMANDS,
    super::routing::COMMANDS,
    super::skills::COMMANDS,
    super::peers::COMMANDS,
    super::projects::COMMANDS,
    super::telemetry::COMMANDS,
    super::top::COMMANDS,
    super::demo::COMMANDS,
    super::man::COMMANDS,
    super::gateways::COMMANDS,
    super::webhooks::COMMANDS,
    super::phones::COMMANDS,
    index::COMMANDS,
    files::COMMANDS,
    &tools::COMMANDS,
    super::record::COMMANDS,
    &OTHER_COMMANDS,
];

/// All commands, in the order of the help.
pub fn all() -> impl Iterator<Item = &'static Command> + Clone {
    TABLES.iter().copied().flatten()
}

/// The command of this name or alias.
pub fn find(word: &str) -> Option<&'static Command> {
    all().find(|command| command.name == word || (!word.is_empty() && command.alias == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_aliases_and_options_are_unique_and_told() {
        let mut names: Vec<_> = all().flat_map(|command| [command.name, command.alias]).collect();
        names.retain(|name| !name.is_empty());
        let before = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), before);
        for command in all() {
            assert!(!command.name.is_empty() && command.usage.starts_with(command.name), "{}", command.name);
            assert!(!std::ptr::fn_addr_eq(command.run, Command::PLAIN.run), "{} runs nothing", command.name);
            assert!(!command.summary.is_empty() && !command.summary.ends_with('.'), "{}", command.name);
            let mut options: Vec<_> = GLOBAL_OPTIONS.iter().chain(command.options).collect();
            assert!(options.iter().all(|option| option.short != Some('-')));
            options.sort_by_key(|option| option.long);
            assert!(options.windows(2).all(|pair| pair[0].long != pair[1].long), "{}", command.name);
            options.retain(|option| option.short.is_some());
            options.sort_by_key(|option| option.short);
            assert!(options.windows(2).all(|pair| pair[0].short != pair[1].short), "{}", command.name);
        }
    }
}
