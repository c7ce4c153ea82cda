//! `svc`: the daemon and its command line.

use std::ffi::OsString;
use std::process::ExitCode;
use svc::assembly::daemon::{self, DaemonOptions};
use svc::assembly::replay::{self, Part};
use svc_cli::session::{Failure, Outcome};
use svc_cli::{Recordings, StartDaemon};

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
        Some(svc_keeper::terminal::SUB_COMMAND) => svc_keeper::terminal::main(&args[1..]),
        Some(svc::runners::SUB_COMMAND) => svc::runners::main(&args[1..]),
        Some(svc::runners::worker_line::SUB_COMMAND) => svc::runners::worker_line::main(&args[1..]),
        Some(svc_room::SUB_COMMAND) => svc_room::main(&args[1..]),
        _ => {
            svc_sys::secrets::hide();
            if is_tool_server_of_an_agent(&args) {
                svc_sys::secrets::show_memory();
            }
            ExitCode::from(svc_cli::run(args, start, RECORDINGS))
        }
    }
}

/// What plays recordings.
const RECORDINGS: Recordings = Recordings {
    export: svc::record::worker_tape::export,
    wordless: replay::wordless,
    play: |file, from, until, line| replay::play(file, Part::new(from, until)?, line),
};

/// Whether this is `svc mcp` inside an agent. It lives as long as the agent and has nothing that the agent
/// has not; and while an agent's process hides, the person's token is worth less.
fn is_tool_server_of_an_agent(args: &[OsString]) -> bool {
    args.first().is_some_and(|word| word == "mcp") && std::env::var_os("SVC_AGENT_ID").is_some()
}

/// The daemon, as `svc start` runs it.
fn start(wanted: StartDaemon) -> Outcome {
    let StartDaemon { project_dir, host, port, stderr_is_log, on_ready } = wanted;
    let on_ready = Box::new(move |listening: &daemon::Listening| {
        // What is printed goes to the log then, which is no place for it.
        let code = listening.code.as_deref().filter(|_| !stderr_is_log);
        on_ready(&listening.url, code);
    });
    daemon::run(DaemonOptions { project_dir, host, port, stderr_is_log, on_ready })
        .map_err(|error| Failure::Say { code: error.exit_code, message: error.message })
}
