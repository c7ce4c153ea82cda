//! Starting a program.
#![allow(unsafe_code, reason = "what happens between fork and exec")]

use super::mark::LimitMark;
use super::{AGENT_ID_VARIABLE, Exit, Identity, Marker, PROJECT_DIR_VARIABLE, Processes, os, reaper, victim};
use crate::control_group::Group;
use crossbeam_channel::Receiver;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The highest signal that is not a real-time one.
const LAST_PLAIN_SIGNAL: i32 = 31;

/// What the program's standard input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    Piped,
    /// `/dev/null`.
    Null,
}

/// Whether a program outlives the process that started it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tie<'a> {
    None,
    /// It is in this control group, if there is one.
    ToParent(Option<&'a Group>),
}

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Spec {
    /// A name to be found on the `PATH` of `env`, or a path.
    pub program: OsString,
    /// Its arguments, without the program itself.
    pub args: Vec<OsString>,
    /// Its whole environment: nothing is inherited. A later value replaces an earlier one of the same name.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub stdin: Stdin,
    /// Added to the environment, last.
    pub marker: Option<Marker>,
}

/// In the environment of a program: what it leaves behind is to outlive us, as a container is.
pub const PLACE_VARIABLE: &str = "SVC_PLACE";
/// Variables that tools such as `git` get.
const TOOL_VARIABLES: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TMPDIR", "XDG_CONFIG_HOME"];

impl Spec {
    /// A short-lived tool of the daemon's own, for [`Processes::capture`]: plain environment, no marker.
    pub fn tool(program: impl Into<OsString>, args: &[&str], cwd: &Path) -> Self {
        let variable = |name: &&str| Some((OsString::from(name), std::env::var_os(name)?));
        Self {
            program: program.into(),
            args: args.iter().map(OsString::from).collect(),
            env: TOOL_VARIABLES.iter().filter_map(variable).collect(),
            cwd: cwd.to_path_buf(),
            stdin: Stdin::Piped,
            marker: None,
        }
    }
}

/// A program that has been started.
#[derive(Debug)]
pub struct Running {
    /// Its id, which also is its group's and its session's, and its start time.
    pub identity: Identity,
    /// To write to it; `None` with [`Stdin::Null`].
    pub stdin: Option<File>,
    pub stdout: File,
    /// What it complains about.
    pub stderr: File,
    /// How it ended, once.
    pub exit: Receiver<Exit>,
}

impl Processes {
    /// Starts a program in a session of its own, with default signal handling and no inherited files.
    ///
    /// Errors: a sentence that names the program, for example `cannot start codex: not found on PATH`.
    pub fn spawn(&self, spec: &Spec) -> io::Result<Running> {
        spawn_with(spec, Tie::None)
    }
}

/// As [`Processes::spawn`], for a program that is tied to this process or is not.
pub(super) fn spawn_with(spec: &Spec, tie: Tie<'_>) -> io::Result<Running> {
    let (identity, mut child, exit) = start_child(spec, &mut tied_command(spec, tie)?)?;
    let file = |fd: Option<OwnedFd>| fd.map(File::from);
    let outputs =
        (file(child.stdout.take().map(OwnedFd::from)), file(child.stderr.take().map(OwnedFd::from)));
    let (Some(stdout), Some(stderr)) = outputs else { unreachable!("both outputs were asked for as pipes") };
    Ok(Running { identity, stdin: file(child.stdin.take().map(OwnedFd::from)), stdout, stderr, exit })
}

/// What starts the program, with pipes for its outputs.
///
/// Errors: a sentence that names the program.
pub(super) fn tied_command(spec: &Spec, tie: Tie<'_>) -> io::Result<Command> {
    command(spec, tie).map_err(|error| name(spec, &error))
}

/// Starts it.
///
/// Errors: a sentence that names the program.
pub(super) fn start_child(
    spec: &Spec,
    command: &mut Command,
) -> io::Result<(Identity, Child, Receiver<Exit>)> {
    reaper::register(spec.marker.as_ref().map(|marker| marker.agent), || {
        let child = victim::as_program(|| command.spawn())?;
        let pid = child.id();
        let start_ticks = os::stat(pid).map_or(0, |stat| stat.start_ticks);
        Ok((Identity { pid, start_ticks }, child))
    })
    .map_err(|error| name(spec, &explain(error)))
}

fn name(spec: &Spec, error: &io::Error) -> io::Error {
    let name = Path::new(&spec.program).display();
    io::Error::new(error.kind(), format!("cannot start {name}: {error}"))
}

fn command(spec: &Spec, tie: Tie<'_>) -> io::Result<Command> {
    if !spec.cwd.is_dir() {
        let message = format!("the folder {} does not exist", spec.cwd.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let mut command = Command::new(resolve(spec)?);
    command
        .arg0(&spec.program)
        .args(&spec.args)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&spec.cwd)
        .stdin(if spec.stdin == Stdin::Piped { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(marker) = &spec.marker {
        command.env(AGENT_ID_VARIABLE, marker.agent.to_string());
        command.env(PROJECT_DIR_VARIABLE, &marker.project_dir);
    }
    // An agent's variables are whoever's has named them.
    let is_place = spec.marker.is_none() && spec.env.iter().any(|(name, _)| name == PLACE_VARIABLE);
    let mark = if is_place { LimitMark::for_place() } else { LimitMark::new(spec.marker.as_ref()) }.limit();
    let own = std::process::id();
    let tied = match tie {
        Tie::None => None,
        Tie::ToParent(group) => Some(group.map(|group| group.door().as_raw_fd())),
    };
    // SAFETY: `prepare` and what stands before it only make system calls that are allowed between fork and
    // exec; the door is open until the program is started, for the group outlives the command.
    unsafe {
        command.pre_exec(move || {
            if let Some(door) = tied {
                os::die_with(own)?;
                super::keep::give_back_umask();
                door.into_iter().for_each(os::enter);
            }
            prepare(mark)
        });
    }
    Ok(command)
}

/// What this starts, and what that leaves behind, is nobody's below us: whoever ends an agent or this daemon
/// leaves it alone.
pub fn start_as_place(command: &mut Command) {
    let mark = LimitMark::of_place().limit();
    // SAFETY: it only makes a system call that is allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            os::set_mark(mark);
            Ok(())
        });
    }
}

/// Runs in the child, between fork and exec: no allocation, no locks.
fn prepare(mark: u64) -> io::Result<()> {
    plain()?;
    os::set_mark(mark);
    os::take_mark();
    Ok(())
}

/// What every process that is started here has, and a keeper alone: a session of its own, default signals and
/// no inherited files. Runs in the child, between fork and exec.
pub(super) fn plain() -> io::Result<()> {
    // SAFETY: system calls on numbers and on a local signal set, all async-signal-safe.
    unsafe {
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        super::nice::let_session_stand_back();
        // What the daemon ignores or blocks (or inherited so, from nohup or a shell) is not for its
        // children. SIGKILL and SIGSTOP refuse, which is fine.
        for signal in 1..=LAST_PLAIN_SIGNAL {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
    os::close_descriptors_on_exec();
    Ok(())
}

/// The file to run: found here rather than by `exec`, so that the error can say what is missing.
fn resolve(spec: &Spec) -> io::Result<PathBuf> {
    let path =
        spec.env.iter().rev().find(|(name, _)| name == "PATH").map_or(OsStr::new(""), |(_, path)| path);
    find_program(&spec.program, path, &spec.cwd)
}

/// The file of a program that is started in `cwd`: a path as it is, a name as the first of that name in
/// `path`.
///
/// Errors: no folder of `path` has it.
pub fn find_program(program: &OsStr, path: &OsStr, cwd: &Path) -> io::Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Ok(cwd.join(program));
    }
    std::env::split_paths(path)
        .map(|folder| cwd.join(folder).join(program))
        .find(|file| is_executable(file))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "not found on PATH"))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Says what a person can do about the errors of `exec` whose own words mislead.
fn explain(error: io::Error) -> io::Error {
    let words = match error.raw_os_error() {
        Some(libc::ENOENT) => "the file, or the interpreter its first line names, does not exist",
        Some(libc::E2BIG) => "its arguments and environment are too long for the system",
        _ => return error,
    };
    io::Error::new(error.kind(), words)
}
