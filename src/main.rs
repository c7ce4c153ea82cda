//! `svc`: the daemon and its command line.

use std::ffi::OsString;
use std::process::ExitCode;
use svc::assembly::daemon::{self, DaemonOptions};
use svc_cli::StartDaemon;
use svc_cli::session::{Failure, Outcome};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Hidden sub-commands, with which the daemon runs its built-in agents, come before the command line of
    // people.
    let lossy = |arg: &OsString| arg.to_string_lossy().into_owned();
    match args.first().and_then(|first| first.to_str()) {
        Some(svc::providers::script::SUB_COMMAND) => svc::rehearsal::main(args[1..].iter().map(lossy)),
        Some(svc::providers::ollama::SUB_COMMAND) => svc::ollama::main(args[1..].iter().map(lossy)),
        Some(svc_sys::confine::SUB_COMMAND) => svc_sys::confine::main(&args[1..]),
        Some(svc_keeper::SUB_COMMAND) => svc_keeper::main(),
        Some(svc_room::SUB_COMMAND) => svc_room::main(&args[1..]),
        _ => {
            svc_sys::secrets::hide();
            ExitCode::from(svc_cli::run(args, start))
        }
    }
}

/// The daemon, as `svc start` runs it.
fn start(wanted: StartDaemon) -> Outcome {
    let StartDaemon { project_dir, host, port, stderr_is_log, on_ready } = wanted;
    let on_ready = Box::new(move |listening: &daemon::Listening| on_ready(&listening.url));
    daemon::run(DaemonOptions { project_dir, host, port, stderr_is_log, on_ready })
        .map_err(|error| Failure::Say { code: error.exit_code, message: error.message })
}
