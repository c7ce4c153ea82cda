//! The command line: thin clients of the REST API, one file for each group of commands.
//!
//! **Invariant:** [`commands`] is the only list of commands and options; help, completions and dispatch
//! derive from it. Nothing here holds state that the daemon does not have.

pub mod accounts;
mod acp;
pub mod adoption;
mod agents;
pub mod approvals;
pub mod args;
mod attach;
pub mod capacity;
mod card;
pub mod client;
pub mod commands;
mod comments;
pub mod completions;
pub mod control;
mod demo;
pub mod doctor;
mod examples;
pub mod files;
mod gateways;
pub mod help;
pub mod index;
mod inlets;
pub mod integrations;
mod isolation;
pub mod logs;
mod man;
mod map;
pub mod mcp;
pub mod memory;
mod ownership;
mod peers;
mod phones;
pub mod plan;
mod prices;
mod progress;
mod projects;
pub mod recall;
mod record;
pub mod rehearse;
pub mod render;
mod routing;
mod rules;
mod runners;
pub mod schedules;
pub mod session;
pub mod settings;
mod skills;
mod snapshots;
pub mod talk;
pub mod target;
pub mod teams;
mod telemetry;
mod tokens;
mod top;
pub mod toys;
pub mod trust;
pub mod wait;
mod webhooks;
#[cfg(test)]
mod words;

use args::Args;
use client::Surroundings;
use commands::Command;
use serde_json::Value;
use session::{Failure, Out, Outcome, Session, complain};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Is told the address, and the code of a link to the console.
pub type OnReady = dyn FnOnce(&str, Option<&str>) + Send;

/// What `svc start` asks of the daemon.
pub struct StartDaemon {
    pub project_dir: PathBuf,
    /// `--host`: the address to bind instead of the configured one.
    pub host: Option<String>,
    /// `--port`: the port to bind, this one or none, instead of the configured one; 0 takes any.
    pub port: Option<u16>,
    /// Whether standard error is the daemon's log already.
    pub stderr_is_log: bool,
    /// Called once when the daemon accepts connections.
    pub on_ready: Box<OnReady>,
}

/// The daemon's own code, which is above this crate: runs it until it ends.
pub type Daemon = fn(StartDaemon) -> Outcome;

/// What the daemon's code does with recordings of its flight recorder.
#[derive(Clone, Copy)]
pub struct Recordings {
    /// All segments below a project's state folder as one file.
    pub export: fn(&Path) -> std::io::Result<Vec<u8>>,
    /// A file without the words of people and agents.
    pub wordless: fn(&[u8]) -> Result<Vec<u8>, String>,
    /// Plays a file from an event on, until a number or a time; tells each event, and in the end the sum.
    pub play: Play,
}

/// See [`Recordings::play`].
pub type Play = fn(&[u8], u64, &str, &mut dyn FnMut(&Value) -> bool) -> Result<Value, String>;

/// Runs one command line (without the program's name) and answers the exit code: 0 success, 1 the
/// operation failed, 2 wrong usage. A reader that closes standard output early counts as success.
pub fn run(raw: Vec<OsString>, start: Daemon, recordings: Recordings) -> u8 {
    match args::parse(raw).and_then(|(command, args)| dispatch(command, args, start, recordings)) {
        Ok(()) | Err(Failure::ClosedPipe) => 0,
        Err(Failure::Told(code)) => code,
        Err(Failure::Say { code, message }) => {
            complain(&message);
            code
        }
    }
}

fn dispatch(command: Option<&'static Command>, args: Args, start: Daemon, recordings: Recordings) -> Outcome {
    let out = Out::new(&args);
    if args.flag("version") {
        return help::print_version(&out);
    }
    let Some(command) = command else { return help::overview(&out) };
    if args.flag("help") {
        return help::of(&out, command);
    }
    let surroundings = surroundings(&args)?;
    (command.run)(&Session { args, out, surroundings, start, recordings })
}

fn surroundings(args: &Args) -> Result<Surroundings, Failure> {
    let folder = std::env::current_dir().map_err(|error| {
        Failure::failed(format!("the current folder cannot be read: {error}; change into another"))
    })?;
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Ok(Surroundings {
        project: args.value("project").map(PathBuf::from),
        url: args.value("url").map(ToOwned::to_owned),
        folder,
        env_url: set("SVC_DAEMON_URL"),
        agent_id: set("SVC_AGENT_ID"),
    })
}
