//! What keepers need: a process that outlives the daemon, owns one program and everything that starts, and
//! ends it.
//!
//! A keeper has no other child than its program and, as a subreaper, adopts whatever of that loses its
//! parent. So once it has no child, nothing of the run is left below it: the kernel says so in one call.
#![allow(unsafe_code, reason = "what happens between fork and exec, umask and signals")]

use super::spawn::{Running, Spec, Tie, spawn_with};
use super::stop::{KILL_LIMIT, LOOK_AGAIN, SWEEP_GRACE, StopReport, count};
use super::{Identity, Marker, Processes, origin, os, reaper, scan};
use crate::control_group::Group;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use svc_base::ids::AgentId;

/// So often what runs below is looked for anew while it is told to stand still.
const FREEZE_LOOKS: usize = 16;

/// The hidden sub-command that is a keeper; its only word.
pub const KEEPER_SUB_COMMAND: &str = "__keep";
/// Where a keeper complains, in the folder of its run.
pub const KEEPER_LOG: &str = "keeper.log";
/// Signals that mean nothing to a keeper; TERM does.
const IGNORED: [i32; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGXFSZ,
];

/// What this process's mask for new files was before [`begin_keeping`]; no mask at all before that.
static UMASK: AtomicU64 = AtomicU64::new(u64::MAX);

impl Processes {
    /// Starts a keeper for this agent, in a session of its own, with nothing but `socket` as its standard
    /// input, no environment and none of an agent's marks. Its folder is `run_dir`.
    ///
    /// Errors: a sentence that names the program.
    pub fn spawn_keeper(
        &self,
        program: OsString,
        run_dir: &Path,
        socket: OwnedFd,
        agent: AgentId,
    ) -> io::Result<Identity> {
        let name = Path::new(&program).display().to_string();
        let fail = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot start the keeper {name}: {error}"))
        };
        let mut options = File::options();
        options.create(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let log = options.open(run_dir.join(KEEPER_LOG)).map_err(fail)?;
        let mut command = Command::new(program);
        command
            .arg(KEEPER_SUB_COMMAND)
            .env_clear()
            .current_dir(run_dir)
            .stdin(Stdio::from(socket))
            .stdout(Stdio::null())
            .stderr(log);
        // SAFETY: `plain` only makes system calls that are allowed between fork and exec.
        unsafe { command.pre_exec(super::spawn::plain) };
        let start = || {
            let pid = command.spawn()?.id();
            let start_ticks = os::stat(pid).map_or(0, |stat| stat.start_ticks);
            let identity = Identity { pid, start_ticks };
            // Before anybody else can see it as a child of ours.
            origin::know_keeper(identity, agent);
            Ok((identity, ()))
        };
        reaper::register(None, start).map(|(identity, ..)| identity).map_err(fail)
    }

    /// As [`Processes::spawn`], and the kernel kills the program when the calling thread is gone, by whatever
    /// death of this process: that thread has to stay until the program has ended.
    pub fn spawn_tied(&self, spec: &Spec) -> io::Result<Running> {
        spawn_with(spec, Tie::ToParent(None))
    }

    /// As [`Processes::spawn_tied`], in a control group.
    pub fn spawn_tied_in(&self, spec: &Spec, group: Option<&Group>) -> io::Result<Running> {
        spawn_with(spec, Tie::ToParent(group))
    }

    /// Ends a program started by [`Processes::spawn_tied`] and everything below this process, which must
    /// have no other children. TERM at once, unless the deadline is over, KILL at `deadline`, which may
    /// be moved meanwhile; then whatever carries the marker elsewhere.
    pub fn end_below(&self, leader: Identity, marker: &Marker, deadline: &dyn Fn() -> Instant) -> StopReport {
        if below().is_none() {
            // A kernel that does not list children: by the process table.
            let grace = deadline().saturating_duration_since(Instant::now());
            return self.stop_tree(leader, Some(marker), grace);
        }
        let mut report = end_children(leader, deadline);
        // Something may have got out from below, as what a service manager starts for it.
        if scan::carried_since(marker, leader.start_ticks) {
            let rest = self.stop_tree(leader, Some(marker), SWEEP_GRACE);
            report.leaked = report.leaked.max(rest.leaked);
            report.killed += rest.killed;
        }
        report
    }
}

/// Lets everything below this process stand still, or go on; whether all of it was found.
///
/// What is started meanwhile is found by another look, up to [`FREEZE_LOOKS`] times.
pub fn freeze_below(is_on: bool) -> bool {
    let mut told = HashSet::new();
    for _ in 0..FREEZE_LOOKS {
        let Some(members) = below() else { return false };
        let new: Vec<Identity> =
            members.iter().map(os::Stat::identity).filter(|one| told.insert(*one)).collect();
        if new.is_empty() {
            return true;
        }
        for member in new {
            os::signal(member, if is_on { libc::SIGSTOP } else { libc::SIGCONT });
        }
    }
    false
}

fn end_children(leader: Identity, deadline: &dyn Fn() -> Instant) -> StopReport {
    let mut seen = reaper::collected();
    if Instant::now() < deadline() {
        signal(leader, &below().unwrap_or_default(), libc::SIGTERM);
    }
    while os::has_children() && Instant::now() < deadline() {
        reaper::wait_collected(seen, LOOK_AGAIN.min(deadline().saturating_duration_since(Instant::now())));
        seen = reaper::collected();
    }
    let limit = Instant::now() + KILL_LIMIT;
    let mut killed = HashSet::new();
    loop {
        let seen = reaper::collected();
        let over = Instant::now() >= limit;
        if !os::has_children() || over {
            let left = if over { below().unwrap_or_default().len() } else { 0 };
            return StopReport { leaked: count(left), killed: count(killed.len()) };
        }
        // A room ends with its leader, however many there are in it to be found.
        reaper::signal_group(leader, libc::SIGKILL);
        let members = below().unwrap_or_default();
        signal(leader, &members, libc::SIGKILL);
        killed.extend(members.iter().map(os::Stat::identity));
        reaper::wait_collected(seen, LOOK_AGAIN);
    }
}

/// The leader's group at once where that is safe, everyone else one by one.
fn signal(leader: Identity, members: &[os::Stat], signal: i32) {
    let group = reaper::signal_group(leader, signal).then_some(leader.pid);
    for member in members.iter().filter(|member| Some(member.group) != group) {
        os::signal(member.identity(), signal);
    }
}

/// What lives below this process. One that changes its parent meanwhile may be missing; `None` when the
/// kernel lists no children.
fn below() -> Option<Vec<os::Stat>> {
    let mut open = os::children(std::process::id())?;
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    while let Some(pid) = open.pop() {
        if !seen.insert(pid) {
            continue;
        }
        open.extend(os::children(pid).unwrap_or_default());
        found.extend(os::stat(pid).filter(|stat| !stat.is_gone()));
    }
    Some(found)
}

/// What a keeper does first: its files are its user's alone, and signals but TERM mean nothing. Each TERM
/// writes a byte that can be read here.
///
/// Errors: no descriptors left.
pub fn begin_keeping() -> io::Result<UnixStream> {
    // SAFETY: both calls take numbers; no other thread runs yet.
    unsafe {
        UMASK.store(u64::from(libc::umask(0o077)), Ordering::Relaxed);
        for signal in IGNORED {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    let (news, sender) = UnixStream::pair()?;
    news.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(libc::SIGTERM, sender)?;
    Ok(news)
}

/// Gives a program the mask that its keeper was started with. Called between fork and exec.
pub(super) fn give_back_umask() {
    let mask = UMASK.load(Ordering::Relaxed);
    if let Some(mask) = libc::mode_t::try_from(mask).ok().filter(|mask| *mask <= 0o777) {
        // SAFETY: it takes a number, and is safe after fork.
        unsafe { libc::umask(mask) };
    }
}

/// What tells a process from a later one with its number; `None` when there is none.
pub fn identity_of(pid: u32) -> Option<Identity> {
    os::stat(pid).filter(|stat| !stat.is_gone()).map(|stat| stat.identity())
}

/// Waits for the end of a process, of whomever it is a child; whether it is gone.
pub fn wait_gone(identity: Identity, limit: Duration) -> bool {
    os::wait_gone(identity, limit) || identity_of(identity.pid) != Some(identity)
}

/// Sends a process the signal TERM; `false` when it is gone already, or may not be signalled.
pub fn ask_to_end(identity: Identity) -> bool {
    os::signal(identity, libc::SIGTERM)
}

/// Ends a process at once; `false` when it is gone already, or may not be signalled.
pub fn kill(identity: Identity) -> bool {
    os::signal(identity, libc::SIGKILL)
}
