//! System calls that std does not offer, each in words of its own.
#![allow(unsafe_code, reason = "namespaces, mounts and what happens around fork")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

/// Source: `linux/mount.h`.
const OPEN_TREE_CLONE: libc::c_uint = 1;
const OPEN_TREE_CLOEXEC: libc::c_uint = libc::O_CLOEXEC as libc::c_uint;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: libc::c_uint = 0x40;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// Mount attributes that a room knows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes {
    /// Nothing can be written.
    pub read_only: bool,
    /// Nothing can be executed, and there are no devices.
    pub plain: bool,
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(checked(result)?).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Leaves the machine's user, process, mount and message namespaces for new ones. Processes started from now
/// on are in the new process namespace; this one is not.
pub(crate) fn leave_namespaces() -> io::Result<()> {
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
    // SAFETY: takes flags only; this process has one thread.
    checked(unsafe { libc::unshare(flags) }.into()).map(drop)
}

/// The user and group this process runs as.
pub(crate) fn identity() -> (u32, u32) {
    // SAFETY: both only answer a number.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Finds a place on the machine, or below one that is found, whatever it is. No part of the path may be a
/// link: plans name places without them, and one that is there now was put there since.
pub(crate) fn find(below: Option<&OwnedFd>, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { c".".into() } else { text(path)? };
    // SAFETY: all-zero bytes are a valid `open_how`.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((libc::O_PATH | libc::O_CLOEXEC).cast_unsigned());
    how.resolve = libc::RESOLVE_NO_SYMLINKS | below.map_or(0, |_| libc::RESOLVE_BENEATH);
    let at = below.map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
    // SAFETY: path and structure, of the size that is told, outlive the call.
    descriptor(unsafe {
        libc::syscall(libc::SYS_openat2, at, path.as_ptr(), &raw const how, size_of::<libc::open_how>())
    })
}

/// Takes hold of a file or folder, with all that is mounted below it, as it is now.
pub(crate) fn take_hold(path: &Path) -> io::Result<OwnedFd> {
    let place = find(None, path)?;
    let whole = (libc::AT_RECURSIVE | libc::AT_EMPTY_PATH).cast_unsigned();
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | whole;
    // SAFETY: the descriptor is open, and the empty path outlives the call.
    descriptor(unsafe { libc::syscall(libc::SYS_open_tree, place.as_raw_fd(), c"".as_ptr(), flags) })
}

/// Puts what [`take_hold`] or [`new_mount`] gave in the place of what [`find`] gave.
pub(crate) fn put(mount: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are open, and the empty paths outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            place.as_raw_fd(),
            c"".as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH,
        )
    };
    checked(result).map(drop)
}

/// Source: `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Makes everything that is mounted anywhere read-only, and cuts it off from mounts that others make.
pub(crate) fn seal_machine() -> io::Result<()> {
    let set = Attributes { read_only: true, plain: false };
    attributes(libc::AT_FDCWD, c"/", libc::AT_RECURSIVE, set, true)
}

/// Changes the attributes of what is held, and of nothing that is mounted below.
pub(crate) fn set_attributes_alone(mount: &OwnedFd, set: Attributes) -> io::Result<()> {
    attributes(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH, set, false)
}

/// Changes the attributes of what is held, and of everything mounted below.
pub(crate) fn set_attributes_of(mount: &OwnedFd, set: Attributes) -> io::Result<()> {
    attributes(mount.as_raw_fd(), c"", libc::AT_RECURSIVE | libc::AT_EMPTY_PATH, set, false)
}

fn attributes(
    at: libc::c_int,
    path: &std::ffi::CStr,
    flags: libc::c_int,
    set: Attributes,
    alone: bool,
) -> io::Result<()> {
    let mut bits = 0;
    if set.read_only {
        bits |= libc::MOUNT_ATTR_RDONLY;
    }
    if set.plain {
        bits |= libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    }
    let propagation = if alone { libc::MS_PRIVATE } else { 0 };
    let attr = MountAttr { attr_set: bits, attr_clr: 0, propagation, userns_fd: 0 };
    // SAFETY: the path and the structure of the size that is told outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at,
            path.as_ptr(),
            flags.cast_unsigned(),
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    checked(result).map(drop)
}

/// A file system of its own, not in place yet. An option without a value is a flag. It has no devices, unless
/// they are what it is for.
pub(crate) fn new_mount(kind: &str, options: &[(&str, Option<&std::ffi::OsStr>)]) -> io::Result<OwnedFd> {
    let named = |text: &[u8]| CString::new(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let is_of_devices = kind == "devpts";
    let kind = named(kind.as_bytes())?;
    // SAFETY: the name outlives the call.
    let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    for (key, value) in options {
        let key = named(key.as_bytes())?;
        let value = value.map(|value| named(value.as_bytes())).transpose()?;
        let command = if value.is_some() { FSCONFIG_SET_STRING } else { FSCONFIG_SET_FLAG };
        let value = value.as_ref().map_or(std::ptr::null(), |value| value.as_ptr());
        // SAFETY: key and value outlive the call; a flag has no value.
        let result = unsafe {
            libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key.as_ptr(), value, 0)
        };
        checked(result)?;
    }
    let nothing = std::ptr::null::<libc::c_char>();
    // SAFETY: the command takes neither key nor value.
    let result = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, nothing, nothing, 0)
    };
    checked(result)?;
    let devices = if is_of_devices { 0 } else { libc::MOUNT_ATTR_NODEV };
    let attributes = libc::MOUNT_ATTR_NOSUID | devices;
    // SAFETY: numbers only.
    descriptor(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes) })
}

/// What a fork returns where.
pub(crate) enum Fork {
    /// In the new process.
    Child,
    /// In the old one: the new one's id.
    Parent(libc::pid_t),
}

/// Makes another process of this one, which has one thread: everything is allowed in both.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: with one thread no lock can be held by another.
    match checked(unsafe { libc::fork() }.into())? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(libc::pid_t::try_from(pid).unwrap_or(libc::pid_t::MAX))),
    }
}

/// Has the kernel end this process when the thread that made it ends.
pub(crate) fn end_with_parent() -> io::Result<()> {
    // SAFETY: takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }.into()).map(drop)
}

/// Source: `linux/keyctl.h`.
const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;

/// Leaves the person's key ring of this session for an empty one. A kernel without key rings has none to
/// leave.
pub(crate) fn leave_key_ring() -> io::Result<()> {
    let nameless = std::ptr::null::<libc::c_char>();
    // SAFETY: a new key ring without a name; nothing is read or written.
    match checked(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nameless) }) {
        Err(error) if error.raw_os_error() != Some(libc::ENOSYS) => Err(error),
        _ => Ok(()),
    }
}

/// Lets nobody of the same user look into this process or trace it.
pub(crate) fn hide() -> io::Result<()> {
    // SAFETY: takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }.into()).map(drop)
}

/// The signals that people send to programs; they are for the program in the room.
const FOR_THE_PROGRAM: [libc::c_int; 6] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// By this one the process outside tells the first inside which signal somebody has sent; others may send it,
/// but not with a number.
const PASS_ON: libc::c_int = libc::SIGURG;

/// The process that gets what is sent to this one.
static HEIR: AtomicI32 = AtomicI32::new(0);

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Outside: a signal that somebody sends to what is shown as the agent's process is for its program. The
/// daemon sends its own to every process of the room.
extern "C" fn tell_first(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let number = libc::sigval { sival_ptr: signal.cast_unsigned() as usize as *mut libc::c_void };
    // SAFETY: the kernel gives a live structure; all calls may be made in a handler.
    unsafe {
        if (*info).si_pid() != libc::getppid() {
            libc::sigqueue(HEIR.load(Ordering::Relaxed), PASS_ON, number);
        }
    }
}

/// Inside: passes on what the process outside was sent.
extern "C" fn tell_program(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a live structure; all calls may be made in a handler.
    unsafe {
        if (*info).si_code != libc::SI_QUEUE {
            return;
        }
        let number = (*info).si_value().sival_ptr as usize;
        if let Some(signal) =
            FOR_THE_PROGRAM.into_iter().find(|signal| signal.cast_unsigned() as usize == number)
        {
            libc::kill(HEIR.load(Ordering::Relaxed), signal);
        }
    }
}

fn handle(signal: libc::c_int, handler: Handler) {
    // SAFETY: a zeroed structure is a valid one without flags and mask, and the handler is of the kind it
    // names.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// Outside: leaves the signals that ask for an end to the program, through the room's first process.
pub(crate) fn leave_signals_to(first: libc::pid_t) {
    HEIR.store(first, Ordering::Relaxed);
    for signal in FOR_THE_PROGRAM {
        handle(signal, tell_first);
    }
}

/// Inside: the same, to the program.
pub(crate) fn pass_signals_on_to(program: libc::pid_t) {
    HEIR.store(program, Ordering::Relaxed);
    handle(PASS_ON, tell_program);
}

/// What the program is to find: no signal handled or ignored.
pub(crate) fn forget_signals() {
    for signal in FOR_THE_PROGRAM.into_iter().chain([PASS_ON]) {
        // SAFETY: sets a disposition that needs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Lets go of standard input, output and error: at the other ends the program alone counts.
pub(crate) fn leave_streams() {
    // SAFETY: opens a device and puts it over descriptors that nobody here uses any more. Where that fails
    // they stay as they are.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if null >= 0 {
            for stream in 0..=2 {
                libc::dup2(null, stream);
            }
            libc::close(null);
        }
    }
}

/// Whether everybody has closed the other end of this pipe.
pub(crate) fn has_hung_up(pipe: &io::PipeReader) -> bool {
    let mut watched = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live structure, which is told.
    unsafe { libc::poll(&raw mut watched, 1, 0) > 0 && watched.revents & libc::POLLHUP != 0 }
}

/// How a child ended, as `waitpid` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It exited with this code.
    Code(u8),
    /// This signal ended it.
    Signal(libc::c_int),
}

/// Waits for a child; `Ok(None)` when there is none left.
pub(crate) fn wait() -> io::Result<Option<(libc::pid_t, Ended)>> {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if pid > 0 {
            let ended = if libc::WIFSIGNALED(status) {
                Ended::Signal(libc::WTERMSIG(status))
            } else {
                Ended::Code(u8::try_from(libc::WEXITSTATUS(status) & 0xff).unwrap_or(u8::MAX))
            };
            return Ok(Some((pid, ended)));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EINTR) => {}
            error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            error => return Err(error),
        }
    }
}

/// Ends this process as that signal would have.
pub(crate) fn end_by_signal(signal: libc::c_int) -> ! {
    // SAFETY: no core file of ours beside the program's; then the default action of the signal, on ourselves.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
        libc::raise(signal);
        // A signal whose default is not to end a program, or one that is refused.
        libc::_exit(128 + signal)
    }
}

/// The capability to change mounts and namespaces.
const CAP_SYS_ADMIN: libc::c_ulong = 21;
const CAP_SYS_PTRACE: libc::c_ulong = 19;
const CAP_SYS_BOOT: libc::c_ulong = 22;
const LAST_CAPABILITY: libc::c_ulong = 63;

/// Source: `linux/capability.h`, version 3.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up for good what would take the room down from inside: all capabilities of an ordinary user; of the
/// superuser those over mounts and namespaces, because its programs need to give away and open files.
pub(crate) fn give_up_capabilities(is_superuser: bool) -> io::Result<()> {
    // SAFETY: prctl with numbers; capset with live structures of the version that is named.
    unsafe {
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        for capability in 0..=LAST_CAPABILITY {
            let goes = [CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_SYS_BOOT].contains(&capability);
            if goes || !is_superuser {
                // Beyond the last one that this kernel knows it refuses, which is fine.
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        let header = CapHeader { version: 0x2008_0522, pid: 0 };
        let keep: u64 =
            if is_superuser { !(1 << CAP_SYS_ADMIN | 1 << CAP_SYS_PTRACE | 1 << CAP_SYS_BOOT) } else { 0 };
        let mut data = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
        checked(libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()))?;
        for (word, set) in data.iter_mut().enumerate() {
            let kept = u32::try_from(keep >> (32 * word) & u64::from(u32::MAX)).unwrap_or(0);
            set.permitted &= kept;
            set.effective = set.permitted;
            set.inheritable = 0;
        }
        checked(libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr())).map(drop)
    }
}
