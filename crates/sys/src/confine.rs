//! A hidden sub-command that fences itself in and then becomes another program: `svc __confine DIR.. --
//! PROGRAM ARG..`. With `enforcement: "kernel"` the daemon starts agents through it, so that they and
//! everything they start can write only below these folders. Reading stays free.
//!
//! The fence is Linux's Landlock: it needs no privilege and cannot be taken down from inside. A program
//! that is to be fenced in and cannot be does not start. An older kernel fences in less than a newer one;
//! what it leaves open is said on standard error.

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
        Ok(open) => {
            if !open.is_empty() {
                eprintln!(
                    "svc: enforcement \"kernel\": this kernel does not fence in {}",
                    open.join(" and ")
                );
            }
            Command::new(program).args(rest).exec().to_string()
        }
        Err(error) => {
            format!("enforcement \"kernel\": {error}; set enforcement to \"advisory\" to go without")
        }
    };
    eprintln!("svc: cannot start {}: {error}", program.display());
    ExitCode::from(NOT_STARTED)
}

/// Whether this system can fence a process in so that nothing outside is written, truncation included. Asks
/// for a set of rules and puts nothing into force.
#[cfg(target_os = "linux")]
pub fn is_possible() -> bool {
    use landlock::{ABI, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessFs::from_write(ABI::V3)).and_then(Ruleset::create).is_ok()
}

/// Whether this system can fence a process in.
#[cfg(not(target_os = "linux"))]
pub fn is_possible() -> bool {
    false
}

/// Takes the right to write from this process, except below these folders (or to these files); what this
/// kernel leaves open nevertheless.
#[cfg(target_os = "linux")]
fn fence(folders: &[OsString]) -> Result<Vec<&'static str>, String> {
    use landlock::{
        ABI, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd, Ruleset,
        RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    };
    // What the first version knows is the fence. The second adds links and moves between folders (without it
    // they are refused altogether), the third truncation, the fifth the calls of devices.
    let (least, writes) = (AccessFs::from_write(ABI::V1), AccessFs::from_write(ABI::V5));
    let failed = |error: landlock::RulesetError| error.to_string();
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(least)
        .map_err(failed)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(writes)
        .map_err(failed)?
        .create()
        .map_err(failed)?;
    for folder in folders {
        // What is not there cannot be written to either.
        let Ok(place) = PathFd::new(folder) else { continue };
        let is_folder = std::path::Path::new(folder).is_dir();
        let rights: BitFlags<AccessFs> =
            if is_folder { writes } else { writes & AccessFs::from_file(ABI::V5) };
        ruleset = ruleset.add_rule(PathBeneath::new(place, rights)).map_err(failed)?;
    }
    let status = ruleset.restrict_self().map_err(failed)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => {}
        status @ RulesetStatus::NotEnforced => return Err(format!("the kernel enforces it {status:?}")),
    }
    let version = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi,
        _ => ABI::V1,
    };
    Ok([(ABI::V3, "truncation of files"), (ABI::V5, "the calls of devices")]
        .into_iter()
        .filter_map(|(since, what)| (version < since).then_some(what))
        .collect())
}

#[cfg(not(target_os = "linux"))]
fn fence(_folders: &[OsString]) -> Result<Vec<&'static str>, String> {
    Err("only Linux can do that".into())
}
