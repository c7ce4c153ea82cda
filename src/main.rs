//! `svc`: the daemon and its command line.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Hidden sub-commands, with which the daemon runs its built-in agents, come before the command line of
    // people.
    let lossy = |arg: &OsString| arg.to_string_lossy().into_owned();
    match args.first().and_then(|first| first.to_str()) {
        Some(svc::providers::script::SUB_COMMAND) => svc::rehearsal::main(args[1..].iter().map(lossy)),
        Some(svc::providers::ollama::SUB_COMMAND) => svc::ollama::main(args[1..].iter().map(lossy)),
        Some(svc::runtime::confine::SUB_COMMAND) => svc::runtime::confine::main(&args[1..]),
        _ => {
            svc::runtime::secrets::hide();
            ExitCode::from(svc::cli::run(args))
        }
    }
}
