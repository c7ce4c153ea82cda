//! Waiting for many descriptors at once, and who is at the other end of a local socket.
#![allow(unsafe_code, reason = "poll, fcntl and getsockopt")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Makes reads and writes on this end return instead of waiting. The other end is not affected.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: fcntl on an open descriptor with number arguments.
    let result = unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Descriptors to be waited for. Filled anew for each wait.
#[derive(Default)]
pub struct Poll {
    fds: Vec<libc::pollfd>,
}

impl Poll {
    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.fds.clear();
    }

    /// Waits for `fd`, too, to be readable or writable; its error or end counts as both. Returns its place
    /// for [`Poll::is_ready`].
    pub fn add(&mut self, fd: BorrowedFd<'_>, read: bool, write: bool) -> usize {
        let events = if read { libc::POLLIN } else { 0 } | if write { libc::POLLOUT } else { 0 };
        self.fds.push(libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
        self.fds.len() - 1
    }

    /// Waits until one of them is ready, or for `limit`; `None` waits for good.
    ///
    /// Errors: the system's; a signal that interrupts is none.
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let count = libc::nfds_t::try_from(self.fds.len()).unwrap_or(0);
        // Up to the next millisecond, so that a wait for the rest of one does not spin.
        let millis =
            limit.map_or(-1, |limit| i32::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        // SAFETY: the structures outlive the call; a descriptor that was closed meanwhile is told, no more.
        if unsafe { libc::poll(self.fds.as_mut_ptr(), count, millis) } >= 0 {
            return Ok(());
        }
        self.fds.iter_mut().for_each(|fd| fd.revents = 0);
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
    }

    /// Whether the last wait ended for the descriptor at this place.
    pub fn is_ready(&self, place: usize) -> bool {
        self.fds.get(place).is_some_and(|fd| fd.revents != 0)
    }
}

/// The process and the user at the other end of a local socket, when it was connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// 0 where the system does not tell.
    pub pid: u32,
    pub uid: u32,
}

/// Who is at the other end.
///
/// Errors: the system does not say.
#[cfg(target_os = "linux")]
pub fn peer(socket: &UnixStream) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: the structure is of the size that is told, and outlives the call.
    let result = unsafe {
        let option = (&raw mut found).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, option, &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: u32::try_from(found.pid).unwrap_or(0), uid: found.uid })
}

/// Who is at the other end.
///
/// Errors: the system does not say.
#[cfg(not(target_os = "linux"))]
pub fn peer(socket: &UnixStream) -> io::Result<Peer> {
    let (mut uid, mut gid) = (libc::uid_t::MAX, libc::gid_t::MAX);
    // SAFETY: both numbers outlive the call.
    if unsafe { libc::getpeereid(socket.as_raw_fd(), &raw mut uid, &raw mut gid) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: 0, uid })
}

/// The user this process acts as.
pub fn own_uid() -> u32 {
    // SAFETY: it only answers a number.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn a_wait_tells_who_is_ready() {
        let (left, mut right) = UnixStream::pair().unwrap();
        let mut poll = Poll::default();
        let (reads, writes) = (poll.add(left.as_fd(), true, false), poll.add(left.as_fd(), false, true));
        poll.wait(Some(Duration::ZERO)).unwrap();
        assert!(!poll.is_ready(reads) && poll.is_ready(writes));
        right.write_all(b"x").unwrap();
        poll.clear();
        let reads = poll.add(left.as_fd(), true, false);
        poll.wait(Some(Duration::from_secs(10))).unwrap();
        assert!(poll.is_ready(reads) && !poll.is_ready(1));
    }

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (left, _right) = UnixStream::pair().unwrap();
        let found = peer(&left).unwrap();
        assert_eq!(found.uid, own_uid());
        assert!(!cfg!(target_os = "linux") || found.pid == std::process::id());
    }
}
