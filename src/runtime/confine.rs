//! A hidden sub-command that fences itself in and then becomes another program: `svc __confine DIR.. --
//! PROGRAM ARG..`. With `enforcement: "kernel"` the daemon starts agents through it, so that they and
//! everything they start can write only below these folders. Reading stays free.
//!
//! The fence is Linux's Landlock: it needs no privilege and cannot be taken down from inside. A program
//! that is to be fenced in and cannot be does not start.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The hidden sub-command.
pub const SUB_COMMAND: &str = "__confine";
/// Exit code when the program was not started, as shells have it.
const NOT_STARTED: u8 = 126;

/// Runs the sub-command with its arguments; returns only when the program could not be started.
pub fn main(args: &[OsString]) -> ExitCode {
    let split = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let (folders, rest) = args.split_at(split);
    let Some((program, rest)) = rest.get(1..).and_then(<[OsString]>::split_first) else {
        eprintln!("svc: {SUB_COMMAND} needs folders, --, and a program");
        return ExitCode::from(2);
    };
    let error = match fence(folders) {
        Ok(()) => Command::new(program).args(rest).exec().to_string(),
        Err(error) => {
            format!("enforcement \"kernel\": {error}; set enforcement to \"advisory\" to go without")
        }
    };
    eprintln!("svc: cannot start {}: {error}", program.display());
    ExitCode::from(NOT_STARTED)
}

/// Takes the right to write from this process, except below these folders (or to these files).
#[cfg(target_os = "linux")]
fn fence(folders: &[OsString]) -> Result<(), String> {
    use landlock::{
        ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
        RulesetCreatedAttr, RulesetStatus,
    };
    // Truncation and moves between folders are fenced in from this version of the interface on.
    let writes = AccessFs::from_write(ABI::V3);
    let failed = |error: landlock::RulesetError| error.to_string();
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(writes)
        .map_err(failed)?
        .create()
        .map_err(failed)?;
    for folder in folders {
        // What is not there cannot be written to either.
        let Ok(place) = PathFd::new(folder) else { continue };
        let is_folder = std::path::Path::new(folder).is_dir();
        let rights = if is_folder { writes } else { writes & AccessFs::from_file(ABI::V3) };
        ruleset = ruleset.add_rule(PathBeneath::new(place, rights)).map_err(failed)?;
    }
    match ruleset.restrict_self().map_err(failed)?.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        status => Err(format!("the kernel enforces it {status:?}")),
    }
}

#[cfg(not(target_os = "linux"))]
fn fence(_folders: &[OsString]) -> Result<(), String> {
    Err("only Linux can do that".into())
}
