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
/// The place of each process's own among the processes: the one link among the places of a fence, which leads
/// each to itself.
pub const OWN_PROCESS: &str = "/proc/self";
/// Exit code when the program was not started, as shells have it.
const NOT_STARTED: u8 = 126;

/// Takes the right to write from this process and all that it starts, except below these folders (or to
/// these files), which are named without links. What this kernel leaves open nevertheless is said on
/// standard error.
///
/// Errors: a sentence with the remedy.
pub fn fence_in(places: &[impl AsRef<std::ffi::OsStr>]) -> Result<(), String> {
    let open = fence(places).map_err(|error| {
        format!("enforcement \"kernel\": {error}; set enforcement to \"advisory\" to go without")
    })?;
    if !open.is_empty() {
        eprintln!("svc: enforcement \"kernel\": this kernel does not fence in {}", open.join(" and "));
    }
    Ok(())
}

/// Runs the sub-command with its arguments; returns only when the program could not be started.
pub fn main(args: &[OsString]) -> ExitCode {
    let split = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let (folders, rest) = args.split_at(split);
    let Some((program, rest)) = rest.get(1..).and_then(<[OsString]>::split_first) else {
        eprintln!("svc: {SUB_COMMAND} needs folders, --, and a program");
        return ExitCode::from(2);
    };
    let error = match fence_in(folders) {
        Ok(()) => Command::new(program).args(rest).exec().to_string(),
        Err(error) => error,
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

/// The version of Landlock that this kernel has; 0 for none.
///
/// Source: `landlock_create_ruleset(2)`, `LANDLOCK_CREATE_RULESET_VERSION`.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "std and the landlock crate do not tell the version alone")]
pub fn version() -> u32 {
    const TELL_THE_VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes no attributes and only answers a number.
    let told = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, TELL_THE_VERSION)
    };
    u32::try_from(told).unwrap_or(0)
}

/// The version of Landlock that this kernel has; 0 for none.
#[cfg(not(target_os = "linux"))]
pub fn version() -> u32 {
    0
}

/// What a fence of this version of Landlock holds back, and what it leaves open.
pub fn holds_back(version: u32) -> (String, String) {
    let since = [(3, "truncation"), (5, "calls of devices")];
    let (held, open): (Vec<_>, Vec<_>) = since.into_iter().partition(|(since, _)| version >= *since);
    let words = |always: &str, more: Vec<(u32, &str)>, rest: &str| {
        let more: Vec<&str> = more.into_iter().map(|(_, what)| what).collect();
        [always]
            .into_iter()
            .chain(more)
            .chain([rest])
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(", ")
    };
    (
        words("writing, making, removing and moving of files", held, ""),
        words("", open, "chmod, chown, utime, extended attributes, reading and the network"),
    )
}

/// Takes the right to write from this process, except below these folders (or to these files); what this
/// kernel leaves open nevertheless.
#[cfg(target_os = "linux")]
fn fence(folders: &[impl AsRef<std::ffi::OsStr>]) -> Result<Vec<&'static str>, String> {
    use landlock::{
        ABI, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, Ruleset, RulesetAttr,
        RulesetCreatedAttr, RulesetStatus,
    };
    if version() == 0 {
        return Err("this kernel has no Landlock, or was started without it (lsm=)".into());
    }
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
        let Ok(place) = hold(folder.as_ref()) else { continue };
        let is_folder = place.metadata().is_ok_and(|meta| meta.is_dir());
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

/// Opens a place of a fence without reading it. Whoever named it knew where it really is: a link that is
/// there now was put there since.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "std cannot refuse links on the way")]
fn hold(path: &std::ffi::OsStr) -> std::io::Result<std::fs::File> {
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(path.as_bytes())?;
    // SAFETY: all-zero bytes are a valid `open_how`.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((libc::O_PATH | libc::O_CLOEXEC).cast_unsigned());
    how.resolve = if path == OWN_PROCESS { 0 } else { libc::RESOLVE_NO_SYMLINKS };
    // SAFETY: name and structure, of the size that is told, outlive the call.
    let opened = unsafe {
        libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, name.as_ptr(), &raw const how, size_of_val(&how))
    };
    match i32::try_from(opened) {
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
fn fence(_folders: &[impl AsRef<std::ffi::OsStr>]) -> Result<Vec<&'static str>, String> {
    Err("only Linux can do that".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_leaves_open_is_named_by_its_version() {
        let (held, open) = holds_back(5);
        assert_eq!(held, "writing, making, removing and moving of files, truncation, calls of devices");
        assert_eq!(open, "chmod, chown, utime, extended attributes, reading and the network");
        let (held, open) = holds_back(3);
        assert!(
            held.ends_with("truncation") && open.starts_with("calls of devices, chmod"),
            "{held}; {open}"
        );
        assert!(holds_back(1).1.starts_with("truncation, calls of devices, chmod"));
        assert_eq!(is_possible(), version() >= 3, "both ask the same kernel");
    }
}
