//! The processes of a room: the one that waits outside, the first inside, and the program.

use super::kernel::{self, Ended, Fork};
use super::plan::Plan;
use super::tried::{Cause, Refusal, Tried};
use super::{SUB_COMMAND, TRY, mounts};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use svc_sys::confine;

/// Exit code when the program was not started, as shells have it.
const NOT_STARTED: u8 = 126;

/// Runs the sub-command with its arguments, `PLAN -- PROGRAM ARG..`, and ends as the program ended.
pub fn main(args: &[OsString]) -> ExitCode {
    let outcome = match args {
        [only] if only == TRY => room(&Plan { cwd: "/".into(), ..Plan::default() }, &[]),
        [plan, dashes, line @ ..] if dashes == "--" && !line.is_empty() => match read(plan) {
            Ok(plan) => room(&plan, line),
            Err(error) => Err(error.into()),
        },
        _ => {
            eprintln!("svc: {SUB_COMMAND} needs a plan, --, and a program");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(Ended::Code(code)) => ExitCode::from(code),
        Ok(Ended::Signal(signal)) => kernel::end_by_signal(signal),
        Err(refusal) => {
            tell(Some(refusal), args.len() == 1);
            ExitCode::from(NOT_STARTED)
        }
    }
}

/// Where `AppArmor` says whether it lets ordinary users' programs use namespaces of users unasked.
///
/// Source: Ubuntu 23.10 and newer; `1` when it does not.
const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Tells what became of the room: of a try on standard output, of one that has a program why it does not
/// start.
fn tell(refusal: Option<Refusal>, is_try: bool) {
    let is_restricted =
        || kernel::identity().0 != 0 && fs::read_to_string(APPARMOR).is_ok_and(|text| text.trim() == "1");
    // It makes a namespace and refuses what one needs in it, so that each step may be the first to fail.
    let refusal = refusal.map(|refusal| match refusal.cause {
        Cause::UserNamespaces | Cause::Other if is_restricted() => {
            let reason = format!("AppArmor allows it to no program without a profile ({})", refusal.reason);
            Refusal { cause: Cause::AppArmor, reason }
        }
        _ => refusal,
    });
    if is_try {
        println!("{}", Tried { refusal }.line());
    } else if let Some(Refusal { reason, .. }) = refusal {
        eprintln!("svc: no room can be made: {reason}");
    }
}

fn read(plan: &OsString) -> Result<Plan, String> {
    let text = plan.to_str().ok_or("the plan is no text")?;
    serde_json::from_slice(text.as_bytes()).map_err(|error| format!("the plan cannot be read: {error}"))
}

/// Makes the room, runs `line` in it, and tells how that ended. With nothing to run it ends at once.
fn room(plan: &Plan, line: &[OsString]) -> Result<Ended, Refusal> {
    let (user, group) = kernel::identity();
    let superuser = user == 0;
    let maps = Maps::of(user, group)?;
    maps.enter(superuser)?;
    mounts::put_together(plan)?;
    let pipe = || io::pipe().map_err(|error| format!("no pipe: {error}"));
    let ((told, tells), (here, alive)) = (pipe()?, pipe()?);
    match kernel::fork().map_err(|error| format!("no process: {error}"))? {
        Fork::Child => {
            drop((told, alive));
            first_process(plan, line, superuser, &here, tells)
        }
        Fork::Parent(first) => {
            drop((tells, here));
            kernel::leave_signals_to(first);
            kernel::leave_streams();
            let ended = wait_for(first).map_err(|error| format!("waiting failed: {error}"))?;
            drop(alive);
            Ok(reported(told).unwrap_or(ended))
        }
    }
}

/// The first process of the room. Everything inside ends with it.
fn first_process(plan: &Plan, line: &[OsString], superuser: bool, here: &PipeReader, tells: PipeWriter) -> ! {
    let ended = match make_ready(superuser, here) {
        Ok(()) if line.is_empty() => {
            tell(None, true);
            Ended::Code(0)
        }
        Ok(()) => start(plan, line).unwrap_or_else(|error| {
            eprintln!("svc: {error}");
            Ended::Code(NOT_STARTED)
        }),
        Err(refusal) => {
            tell(Some(refusal), line.is_empty());
            Ended::Code(NOT_STARTED)
        }
    };
    report(tells, ended);
    std::process::exit(0)
}

/// What only a process inside can do for the room.
fn make_ready(superuser: bool, here: &PipeReader) -> Result<(), Refusal> {
    let said = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| Refusal::from(format!("{what}: {error}"))
    };
    kernel::end_with_parent().map_err(said("it cannot end with its parent"))?;
    // It may have ended before that was said; then nobody holds the other end any more.
    if kernel::has_hung_up(here) {
        return Err("nobody waits for it".to_owned().into());
    }
    mounts::show_processes(superuser)?;
    kernel::leave_key_ring().map_err(said("the key ring cannot be left"))?;
    kernel::give_up_capabilities(superuser).map_err(said("capabilities cannot be given up"))?;
    kernel::hide().map_err(said("its memory cannot be closed"))
}

/// Starts the program and reaps until it has ended.
fn start(plan: &Plan, line: &[OsString]) -> Result<Ended, String> {
    match kernel::fork().map_err(|error| format!("no process: {error}"))? {
        Fork::Child => {
            eprintln!("svc: {}", become_program(plan, line));
            std::process::exit(NOT_STARTED.into())
        }
        Fork::Parent(program) => {
            kernel::pass_signals_on_to(program);
            kernel::leave_streams();
            wait_for(program).map_err(|error| format!("waiting failed: {error}"))
        }
    }
}

/// Returns only when it could not.
fn become_program(plan: &Plan, line: &[OsString]) -> String {
    if let Err(error) = std::env::set_current_dir(&plan.cwd) {
        return format!("the folder {} is not in the room: {error}", plan.cwd.display());
    }
    if let Some(places) = &plan.fence
        && let Err(error) = confine::fence_in(places)
    {
        return error;
    }
    kernel::forget_signals();
    let (program, args) = (&line[0], &line[1..]);
    format!("cannot start {}: {}", Path::new(program).display(), Command::new(program).args(args).exec())
}

/// Reaps until this child has ended.
fn wait_for(child: libc::pid_t) -> io::Result<Ended> {
    loop {
        match kernel::wait()? {
            Some((pid, ended)) if pid == child => return Ok(ended),
            Some(_) => {}
            None => return Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// How the program ended, from the first process; `None` when that was ended itself.
fn reported(mut told: PipeReader) -> Option<Ended> {
    let mut word = [0; 5];
    told.read_exact(&mut word).ok()?;
    let number = i32::from_le_bytes([word[1], word[2], word[3], word[4]]);
    match word[0] {
        b'c' => u8::try_from(number).ok().map(Ended::Code),
        _ => Some(Ended::Signal(number)),
    }
}

fn report(mut tells: PipeWriter, ended: Ended) {
    let (kind, number) = match ended {
        Ended::Code(code) => (b'c', i32::from(code)),
        Ended::Signal(signal) => (b's', signal),
    };
    let mut word = vec![kind];
    word.extend(number.to_le_bytes());
    // When nobody reads it, nobody is there any more.
    let _ = tells.write_all(&word);
}

/// Which users and groups there are in the room: the same, under the same numbers.
struct Maps {
    users: String,
    groups: String,
}

impl Maps {
    fn of(user: u32, group: u32) -> Result<Self, String> {
        if user != 0 {
            return Ok(Self { users: format!("{user} {user} 1"), groups: format!("{group} {group} 1") });
        }
        // All that there are here. This system may itself be a room of a larger one.
        let all = |name: &str| -> Result<String, String> {
            let path = format!("/proc/self/{name}");
            let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
            let lines = text.lines().filter_map(|line| {
                let mut numbers = line.split_ascii_whitespace();
                let (first, count) = (numbers.next()?, numbers.nth(1)?);
                Some(format!("{first} {first} {count}"))
            });
            Ok(lines.collect::<Vec<_>>().join("\n"))
        };
        Ok(Self { users: all("uid_map")?, groups: all("gid_map")? })
    }

    /// Leaves the namespaces and writes the maps. More than one's own number only somebody outside may give.
    fn enter(&self, superuser: bool) -> Result<(), Refusal> {
        let refused = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM | libc::ENOSPC | libc::EUSERS | libc::EACCES) => {
                let reason = format!("this system gives no user namespaces to this user ({error})");
                Refusal { cause: Cause::UserNamespaces, reason }
            }
            _ => format!("namespaces cannot be made: {error}").into(),
        };
        if !superuser {
            kernel::leave_namespaces().map_err(refused)?;
            return self.write("/proc/self", true).map_err(refused);
        }
        let pipe = || io::pipe().map_err(|error| format!("no pipe: {error}"));
        let ((mut ready, is_ready), (mut done, is_done)) = (pipe()?, pipe()?);
        let own = format!("/proc/{}", std::process::id());
        match kernel::fork().map_err(|error| format!("no process: {error}"))? {
            Fork::Child => {
                drop((is_ready, done));
                let mut word = [0];
                let written = ready.read_exact(&mut word).and_then(|()| self.write(&own, false));
                let _ = (&is_done).write_all(&[u8::from(written.is_err())]);
                std::process::exit(0)
            }
            Fork::Parent(helper) => {
                drop((ready, is_done));
                kernel::leave_namespaces().map_err(refused)?;
                let mut word = [1];
                let written = (&is_ready).write_all(&[0]).and_then(|()| done.read_exact(&mut word)).is_ok()
                    && word == [0];
                let _ = wait_for(helper);
                if written { Ok(()) } else { Err("users and groups cannot be mapped".to_owned().into()) }
            }
        }
    }

    fn write(&self, process: &str, alone: bool) -> io::Result<()> {
        if alone {
            // Without it nobody may give groups a map; an old kernel that lacks it needs it not.
            let _ = fs::write(format!("{process}/setgroups"), "deny");
        }
        // In one write each, as the kernel wants it.
        let put = |name: &str, text: &str| {
            File::options().write(true).open(format!("{process}/{name}"))?.write_all(text.as_bytes())
        };
        put("uid_map", &self.users)?;
        put("gid_map", &self.groups)
    }
}
