//! The command line: thin clients of the REST API, one file for each group of commands.
//!
//! **Invariant:** [`commands`] is the only list of commands and options; help, completions and dispatch
//! derive from it. Nothing here holds state that the daemon does not have.

pub mod agents;
pub mod approvals;
pub mod args;
pub mod client;
pub mod commands;
pub mod completions;
pub mod control;
mod demo;
pub mod doctor;
mod examples;
pub mod files;
mod gateways;
pub mod help;
pub mod index;
pub mod integrations;
mod isolation;
pub mod logs;
mod man;
pub mod mcp;
pub mod memory;
mod ownership;
mod peers;
pub mod plan;
mod progress;
pub mod rehearse;
pub mod render;
pub mod schedules;
pub mod session;
pub mod settings;
mod skills;
pub mod talk;
pub mod target;
pub mod teams;
mod tokens;
mod top;
pub mod toys;
pub mod trust;
pub mod wait;
#[cfg(test)]
mod words;

use args::Args;
use client::Surroundings;
use commands::Command;
use session::{Failure, Out, Outcome, Session, complain};
use std::ffi::OsString;
use std::path::PathBuf;

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

/// Runs one command line (without the program's name) and answers the exit code: 0 success, 1 the
/// operation failed, 2 wrong usage. A reader that closes standard output early counts as success.
pub fn run(raw: Vec<OsString>, start: Daemon) -> u8 {
    match args::parse(raw).and_then(|(command, args)| dispatch(command, args, start)) {
        Ok(()) | Err(Failure::ClosedPipe) => 0,
        Err(Failure::Told(code)) => code,
        Err(Failure::Say { code, message }) => {
            complain(&message);
            code
        }
    }
}

fn dispatch(command: Option<&'static Command>, args: Args, start: Daemon) -> Outcome {
    let out = Out::new(&args);
    if args.flag("version") {
        return help::print_version(&out);
    }
    let Some(command) = command else { return help::overview(&out) };
    if args.flag("help") {
        return help::of(&out, command);
    }
    let surroundings = surroundings(&args)?;
    (command.run)(&Session { args, out, surroundings, start })
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
