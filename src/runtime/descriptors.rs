//! Which process holds a socket: the links below `/proc/PID/fd`, read without naming the whole path of
//! each. With fifty agents there are a thousand of them, and a connection's first guarded request waits for
//! all.
//!
//! Source: proc(5), `readlinkat(2)`.
#![allow(unsafe_code, reason = "readlinkat and readdir, of which std has only slower forms")]

use std::io::ErrorKind;

/// Bytes of a link that are looked at; `socket:[` and a number of 64 bits have room.
#[cfg(target_os = "linux")]
const LINK_BYTES: usize = 40;

/// Whether the process has an open descriptor whose link reads `wanted`, for example `socket:[4711]`.
///
/// Errors: the process is gone, or may not be looked at.
#[cfg(target_os = "linux")]
pub fn holds(pid: u32, wanted: &[u8]) -> Result<bool, ErrorKind> {
    use std::fs::File;
    use std::os::fd::{AsRawFd, IntoRawFd};

    let folder = File::open(format!("/proc/{pid}/fd")).map_err(|error| error.kind())?;
    let fd = folder.as_raw_fd();
    // SAFETY: the descriptor is open and a folder's; from here on the stream owns it, see below.
    let stream = unsafe { libc::fdopendir(fd) };
    if stream.is_null() {
        return Err(std::io::Error::last_os_error().kind());
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
            let kind = std::io::Error::last_os_error().kind();
            // The entries for the folder itself are no links.
            if kind == ErrorKind::PermissionDenied {
                return Err(kind);
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
pub fn holds(_pid: u32, _wanted: &[u8]) -> Result<bool, ErrorKind> {
    Ok(false)
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
