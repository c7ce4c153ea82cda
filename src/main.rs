//! `svc`: the daemon and its command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    // Hidden sub-commands, with which the daemon runs its built-in agents, are decided here, before the
    // command line of people: `agent-script`, `agent-ollama`.
    ExitCode::from(svc::cli::run(args))
}
