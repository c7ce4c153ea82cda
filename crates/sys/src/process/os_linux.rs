//! What only Linux offers: `/proc`, the child subreaper, pidfds.
#![allow(unsafe_code, reason = "system calls that std does not offer")]

use super::Identity;
use crate::sockets::Poll;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The largest environment that is read for markers. The kernel's own limit for arguments and
/// environment together is 6 MiB.
const ENVIRON_LIMIT_BYTES: u64 = 6 * 1024 * 1024;

/// What is looked at of a command line.
const COMMAND_LINE_LIMIT_BYTES: u64 = 4096;

/// One process, from `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stat {
    pub pid: u32,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    pub start_ticks: u64,
    state: u8,
    flags: u64,
    threads: u64,
}

/// Source: `PF_EXITING` of `linux/sched.h`.
const EXITING: u64 = 4;

impl Stat {
    /// Tells this process from a later one that gets its number.
    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid, start_ticks: self.start_ticks }
    }

    /// A zombie or dead. A process whose first thread has ended while others run looks like a zombie, and
    /// is none.
    pub fn is_gone(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    /// On its way to that: it runs nothing any more, and what it carried is not to be read any more.
    pub fn is_ending(&self) -> bool {
        self.flags & EXITING > 0 && self.threads <= 1
    }

    /// The name in parentheses may itself contain spaces and parentheses, so fields are counted from the
    /// last one.
    fn parse(text: &str) -> Option<Self> {
        let (pid, _) = text.split_once(" (")?;
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let small = |at: usize| number(at).and_then(|value| u32::try_from(value).ok());
        Some(Self {
            pid: pid.parse().ok()?,
            state: *fields.first()?.as_bytes().first()?,
            parent: small(1)?,
            group: small(2)?,
            session: small(3)?,
            flags: number(6)?,
            threads: number(17)?,
            start_ticks: number(19)?,
        })
    }
}

/// The limit that carries the mark of everything started here: POSIX message queues in bytes, which hardly
/// any program uses. A hard limit is inherited, by an orphan too, and without privilege it can be lowered but
/// never raised; so whoever has less than this program was started with descends from an agent. One byte less
/// hurts nobody.
const MARKED_LIMIT: &str = "Max msgqueue size";
/// Bytes for a program that was started without any such limit.
const MARKED_BYTES: libc::rlim_t = 1 << 40;

/// Puts the mark on this process. Called between fork and exec.
pub(super) fn take_mark() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls take a live structure of ours and are safe after fork. Where the system refuses, the
    // process goes on without the mark.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_MSGQUEUE, &raw mut limit) != 0 {
            return;
        }
        limit.rlim_max = match limit.rlim_max {
            libc::RLIM_INFINITY => MARKED_BYTES,
            bytes => bytes.saturating_sub(1),
        };
        limit.rlim_cur = limit.rlim_cur.min(limit.rlim_max);
        libc::setrlimit(libc::RLIMIT_MSGQUEUE, &raw const limit);
    }
}

/// The limit with the mark that a process has; the largest number for none. `None` when it is gone, or the
/// system tells no such limit.
pub(super) fn marked_limit(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(MARKED_LIMIT))?;
    let hard = line.split_ascii_whitespace().nth(1)?;
    if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
}

/// The first bytes of the command line of a process; empty when it is gone.
pub(super) fn command_line(pid: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(format!("/proc/{pid}/cmdline")) {
        // One that ends while it is read has none any more.
        let _ = file.take(COMMAND_LINE_LIMIT_BYTES).read_to_end(&mut bytes);
    }
    bytes
}

/// The name of a process's first thread, at most 15 bytes.
pub(super) fn name(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// Adopts every descendant that loses its parent.
pub(super) fn become_subreaper() -> io::Result<()> {
    // SAFETY: this prctl takes one flag and touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One process; `None` when there is none of this id.
pub(super) fn stat(pid: u32) -> Option<Stat> {
    // Not UTF-8 when the program's name is not: only numbers after the name matter.
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    Stat::parse(&String::from_utf8_lossy(&bytes))
}

/// All processes that can be seen.
pub(super) fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(stat).collect()
}

/// The environment a process was started with; empty when it may not be read.
pub(super) fn environ(pid: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(format!("/proc/{pid}/environ")) {
        // A process that ends while it is read has no environment any more.
        let _ = file.take(ENVIRON_LIMIT_BYTES).read_to_end(&mut bytes);
    }
    bytes
}

/// The resource limits of a process, as `/proc/<pid>/limits` lists them; empty when it is gone.
pub(super) fn limits(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default()
}

/// Sets the limit that serves as a mark, for this process and all that descend from it. Called between fork
/// and exec. A process that was marked lower already keeps that: then environment, parents and session tell.
pub(super) fn set_mark(limit: u64) {
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the structure outlives the call, which is a plain system call and safe after fork.
    unsafe { libc::setrlimit(libc::RLIMIT_LOCKS, &raw const limit) };
}

/// Says how far the session of this process stands back, at most 19. Called between fork and exec; a kernel
/// that does not share by sessions has no such file.
pub(super) fn set_session_nice(nice: u32) {
    let digits = [
        b'0' + u8::try_from(nice / 10).unwrap_or_default(),
        b'0' + u8::try_from(nice % 10).unwrap_or_default(),
    ];
    // SAFETY: system calls on a path that ends with NUL and on bytes that outlive them, all
    // async-signal-safe.
    unsafe {
        let file = libc::open(c"/proc/self/autogroup".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, digits.as_ptr().cast(), digits.len());
            libc::close(file);
        }
    }
}

/// How soon the kernel ends this process for want of memory.
pub(super) const OWN_SCORE: &str = "/proc/self/oom_score_adj";

/// Has this process be in the control group with this door, if it is still there. Called between fork and
/// exec.
pub(super) fn enter(door: RawFd) {
    // SAFETY: a system call on an open descriptor and a static byte, async-signal-safe.
    unsafe { libc::write(door, b"0".as_ptr().cast(), 1) };
}

/// The children of this process, adopted ones included; `None` when the kernel does not list them. A process
/// that has lost its parent becomes a child of the first thread.
pub(super) fn own_adopted() -> Option<Vec<u32>> {
    let own = std::process::id();
    let text = fs::read_to_string(format!("/proc/self/task/{own}/children")).ok()?;
    Some(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// The children of all threads of a process, adopted ones included; `None` when it is gone, or the kernel
/// lists none.
pub(super) fn children(pid: u32) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(text) => found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok())),
            Err(error) if error.kind() == io::ErrorKind::NotFound && thread.path().exists() => return None,
            // The thread has ended meanwhile, and has left its children to another.
            Err(_) => {}
        }
    }
    Some(found)
}

/// Whether this process has a child, be it one that has ended and is not collected yet.
pub(super) fn has_children() -> bool {
    // SAFETY: all-zero bytes are a valid siginfo_t, which outlives the call; WNOWAIT leaves all as it is.
    let result = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        libc::waitid(libc::P_ALL, 0, &raw mut info, flags)
    };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ECHILD)
}

/// Has the kernel kill this process when the thread that started it is gone. Called between fork and exec.
pub(super) fn die_with(parent: u32) -> io::Result<()> {
    // SAFETY: both calls take or give numbers, and are safe after fork.
    let orphaned = unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        u32::try_from(libc::getppid()) != Ok(parent)
    };
    // It may have gone before that was said; then nobody hears of this error either.
    if orphaned { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
}

/// Signals exactly this process. `false` when it is gone, or may not be signalled.
pub(super) fn signal(identity: Identity, signal: i32) -> bool {
    let Some(handle) = open_pidfd(identity.pid) else { return false };
    // The check comes after the handle: if this process still has the id now, the handle is on it.
    if stat(identity.pid).is_none_or(|stat| stat.identity() != identity) {
        return false;
    }
    // SAFETY: the descriptor is open, and a null siginfo means "as kill does".
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            handle.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    result == 0
}

/// Waits for the end of exactly this process; `false` when the time is over, or it cannot be waited for.
pub(super) fn wait_gone(identity: Identity, limit: Duration) -> bool {
    let Some(handle) = open_pidfd(identity.pid) else { return false };
    if stat(identity.pid).is_none_or(|stat| stat.identity() != identity) {
        return true;
    }
    let mut poll = Poll::default();
    let place = poll.add(handle.as_fd(), true, false);
    // Nothing else is in there: it is over, or the time is.
    poll.wait(Some(limit)).is_ok() && poll.is_ready(place)
}

fn open_pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    // SAFETY: pidfd_open takes a number and flags and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Marks every descriptor above standard error close-on-exec. Called between fork and exec.
pub(super) fn close_descriptors_on_exec() {
    // SAFETY: a system call on numbers only, safe after fork. An old kernel refuses it; then what std
    // opened is close-on-exec all the same.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_parsed() {
        let line = "42 (a) R (b c) S 7 8 9 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 12345 1 2";
        let stat = Stat::parse(line).expect("parses");
        assert_eq!((stat.pid, stat.parent, stat.group, stat.session), (42, 7, 8, 9));
        assert_eq!((stat.state, stat.threads, stat.start_ticks), (b'S', 3, 12345));
        assert!(!stat.is_gone());
        assert!(Stat::parse("42 (cut").is_none());
    }

    #[test]
    fn a_zombie_with_running_threads_is_not_gone() {
        let zombie =
            |threads| Stat::parse(&format!("1 (x) Z 7 8 9 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 5"));
        assert!(zombie(1).is_some_and(|stat| stat.is_gone()));
        assert!(zombie(2).is_some_and(|stat| !stat.is_gone()));
    }

    #[test]
    fn who_is_on_its_way_to_its_end_is_known_by_the_kernels_flag() {
        let stat = |flags: u64| {
            Stat::parse(&format!("1 (x) R 7 8 9 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 5")).expect("parses")
        };
        // Source: /proc/PID/stat of a program at work (PF_RANDOMIZE, PF_FORKNOEXEC), then with PF_EXITING.
        assert!(!stat(0x0040_0040).is_ending() && !stat(0x0040_0040).is_gone());
        assert!(stat(0x0040_0044).is_ending() && !stat(0x0040_0044).is_gone());
    }

    #[test]
    fn a_recycled_pid_is_not_signalled() {
        let own = stat(std::process::id()).expect("this process").identity();
        assert!(signal(own, 0));
        assert!(!signal(Identity { start_ticks: own.start_ticks + 1, ..own }, 0));
    }
}
