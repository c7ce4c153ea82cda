//! `svc`: the daemon and its command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|arg| arg == svc::providers::script::SUB_COMMAND) {
        let lossy = |arg: std::ffi::OsString| arg.to_string_lossy().into_owned();
        return svc::rehearsal::main(std::env::args_os().skip(2).map(lossy));
    }
    ExitCode::SUCCESS
}
