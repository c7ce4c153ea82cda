//! Which process holds a socket: the links below `/proc/PID/fd`, read without naming the whole path of
//! each. With fifty agents there are a thousand of them, and a connection's first guarded request waits for
//! all.
//!
//! Source: proc(5), `readlinkat(2)`, `kcmp(2)`.
#![allow(unsafe_code, reason = "readlinkat, readdir and kcmp, of which std has only slower forms or none")]

use std::io;
use std::time::Instant;

/// Bytes of a link that are looked at; `socket:[` and a number of 64 bits have room.
#[cfg(target_os = "linux")]
const LINK_BYTES: usize = 40;
/// `KCMP_FILES`: whether two threads have the same table of descriptors.
#[cfg(target_os = "linux")]
const KCMP_FILES: libc::c_int = 2;

/// Whether the process has an open descriptor whose link reads `wanted`, for example `socket:[4711]`.
///
/// Errors: the process is gone, or may not be looked at.
#[cfg(target_os = "linux")]
pub fn holds(pid: u32, wanted: &[u8]) -> io::Result<bool> {
    folder_holds(&format!("/proc/{pid}/fd"), wanted)
}

/// Whether a thread beside the first has it, which may have a table of its own; the first may have ended.
///
/// Errors: the process is gone, may not be looked at, or has too many threads to be through by `until`.
#[cfg(target_os = "linux")]
pub fn threads_hold(pid: u32, wanted: &[u8], until: Instant) -> io::Result<bool> {
    let folder = format!("/proc/{pid}/task");
    for thread in std::fs::read_dir(&folder)? {
        let Some(thread) = thread?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if thread == pid || has_table_of(pid, thread) {
            continue;
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match folder_holds(&format!("{folder}/{thread}/fd"), wanted) {
            Ok(false) => {}
            // It has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    Ok(false)
}

/// Whether a process holds a socket, or may hold it where no table shows it: it may not be looked at, has
/// descriptors on their way in the queue of a socket, or has given some to a ring of system calls.
#[cfg(target_os = "linux")]
pub fn may_hold(pid: u32, wanted: &[u8]) -> bool {
    // In this order: whoever hides only now and then is seen with it, or seen to hide.
    match holds(pid, wanted) {
        Ok(true) => true,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            !has_ended(&format!("/proc/{pid}")) || may_hide(pid)
        }
        Ok(false) | Err(_) => may_hide(pid),
    }
}

#[cfg(target_os = "linux")]
fn may_hide(pid: u32) -> bool {
    let folder = format!("/proc/{pid}/task");
    let Ok(threads) = std::fs::read_dir(&folder) else { return false };
    let ids = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|thread| *thread == pid || !has_table_of(pid, *thread)).any(|thread| {
        let thread = format!("{folder}/{thread}");
        match std::fs::read_dir(format!("{thread}/fd")) {
            Ok(mut entries) => entries.any(|entry| entry.is_ok_and(|entry| hides_more(&thread, &entry))),
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied && !has_ended(&thread),
        }
    })
}

/// Whether a thread has ended and is only to be collected: it holds nothing, and may not be looked at.
#[cfg(target_os = "linux")]
fn has_ended(thread: &str) -> bool {
    let stat = std::fs::read_to_string(format!("{thread}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_none_or(|state| matches!(state, 'Z' | 'X'))
}

/// Whether descriptors that no table shows are behind this one. Source: `unix_show_fdinfo` and
/// `io_uring_show_fdinfo` of Linux 5.6 and newer.
#[cfg(target_os = "linux")]
fn hides_more(thread: &str, entry: &std::fs::DirEntry) -> bool {
    let Ok(link) = std::fs::read_link(entry.path()) else { return false };
    let link = link.to_string_lossy();
    let label = if link.starts_with("socket:") {
        "scm_fds:"
    } else if link.contains("[io_uring]") {
        "UserFiles:"
    } else {
        return false;
    };
    let path = format!("{thread}/fdinfo/{}", entry.file_name().to_string_lossy());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix(label)?.trim().parse::<u64>().ok());
    count.is_some_and(|count| count > 0)
}

/// Whether the kernel says that a thread uses its process's table, which has been read.
#[cfg(target_os = "linux")]
fn has_table_of(pid: u32, thread: u32) -> bool {
    // SAFETY: the call takes numbers and changes nothing.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, thread, KCMP_FILES, 0, 0) == 0 }
}

#[cfg(target_os = "linux")]
fn folder_holds(folder: &str, wanted: &[u8]) -> io::Result<bool> {
    use std::fs::File;
    use std::os::fd::{AsRawFd, IntoRawFd};

    let folder = File::open(folder)?;
    let fd = folder.as_raw_fd();
    // SAFETY: the descriptor is open and a folder's; from here on the stream owns it, see below.
    let stream = unsafe { libc::fdopendir(fd) };
    if stream.is_null() {
        return Err(io::Error::last_os_error());
    }
    // The stream closes it.
    let _ = folder.into_raw_fd();
    let stream = Stream(stream);
    let mut link = [0_u8; LINK_BYTES];
    loop {
        // SAFETY: the stream is open, and nobody else reads from it.
        let entry = unsafe { libc::readdir(stream.0) };
        if entry.is_null() {
            return Ok(false);
        }
        // SAFETY: the name ends with a NUL and is valid until the next read; the buffer is a live array that
        // the kernel fills up to its length.
        let length =
            unsafe { libc::readlinkat(fd, (*entry).d_name.as_ptr(), link.as_mut_ptr().cast(), LINK_BYTES) };
        let Ok(length) = usize::try_from(length) else {
            let error = io::Error::last_os_error();
            // The entries for the folder itself are no links.
            if error.kind() == io::ErrorKind::PermissionDenied {
                return Err(error);
            }
            continue;
        };
        if link.get(..length) == Some(wanted) {
            return Ok(true);
        }
    }
}

/// Where there is no such folder, nobody is seen to hold anything.
#[cfg(not(target_os = "linux"))]
pub fn holds(_pid: u32, _wanted: &[u8]) -> io::Result<bool> {
    Ok(false)
}

/// Where there is no such folder, nobody is seen to hold anything.
#[cfg(not(target_os = "linux"))]
pub fn threads_hold(_pid: u32, _wanted: &[u8], _until: Instant) -> io::Result<bool> {
    Ok(false)
}

/// Where there is no such folder, everybody may.
#[cfg(not(target_os = "linux"))]
pub fn may_hold(_pid: u32, _wanted: &[u8]) -> bool {
    true
}

/// An open folder; closed on drop, with its descriptor.
#[cfg(target_os = "linux")]
struct Stream(*mut libc::DIR);

#[cfg(target_os = "linux")]
impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it is open and closed nowhere else.
        unsafe { libc::closedir(self.0) };
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    /// Sends a descriptor over a socket.
    fn send(over: &UnixStream, fd: libc::c_int) {
        let mut byte = [0_u8];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = [0_usize; 8];
        // SAFETY: all of it is plain data, for which zeros are valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the buffer is aligned for a header and has room for it and one descriptor.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(fd);
            assert_eq!(libc::sendmsg(over.as_raw_fd(), &raw const message, 0), 1);
        }
    }

    #[test]
    fn a_descriptor_on_its_way_is_noticed() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!may_hold(child.id(), b"socket:[0]"), "a plain program");
        child.kill().unwrap();
        assert!(!may_hold(child.id(), b"socket:[0]"), "one that has ended");
        child.wait().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&ours, theirs.as_raw_fd());
        assert!(may_hold(std::process::id(), b"socket:[0]"));
    }
}
