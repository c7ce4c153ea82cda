//! Hearing from the kernel that the wall clock was set, or that the machine slept: nobody has to look.
#![allow(unsafe_code, reason = "system calls that std does not offer")]

use super::threads::Thread;
use std::io;
use std::os::unix::net::UnixStream;

/// Stack of the thread that waits for it.
#[cfg(target_os = "linux")]
const STACK_BYTES: usize = 64 << 10;

/// The thread that waits for it; it ends when this is dropped.
pub struct ClockSet {
    _stop: UnixStream,
    _thread: Thread,
}

impl ClockSet {
    /// Calls `on_set` each time.
    ///
    /// Errors: the system does not tell of it (as where this is not Linux), or gives no thread.
    #[cfg(target_os = "linux")]
    pub fn start(on_set: impl Fn() + Send + 'static) -> io::Result<Self> {
        use super::sockets::Poll;
        use std::os::fd::AsFd;

        let timer = linux::timer()?;
        linux::arm(&timer)?;
        let (stop, stopped) = UnixStream::pair()?;
        let thread = Thread::with_stack("clock", STACK_BYTES, move || {
            let mut poll = Poll::default();
            loop {
                poll.clear();
                let (told, ended) =
                    (poll.add(timer.as_fd(), true, false), poll.add(stopped.as_fd(), true, false));
                let waited = poll.wait(None);
                if waited.is_err() || poll.is_ready(ended) {
                    return;
                }
                if poll.is_ready(told) {
                    if let Err(error) = linux::taken(&timer).and_then(|()| linux::arm(&timer)) {
                        log::error!("the kernel no longer tells when the clock is set: {error}");
                        return;
                    }
                    on_set();
                }
            }
        })?;
        Ok(Self { _stop: stop, _thread: thread })
    }

    /// As on Linux, where the kernel tells of it.
    #[cfg(not(target_os = "linux"))]
    pub fn start(_on_set: impl Fn() + Send + 'static) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    /// Seconds since 1970 that no clock here reaches: the timer itself never comes due.
    const NEVER: libc::time_t = 1 << 40;

    pub(super) fn timer() -> io::Result<OwnedFd> {
        // SAFETY: a system call on numbers; the descriptor is new and nobody else's.
        unsafe {
            let fd = libc::timerfd_create(libc::CLOCK_REALTIME, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
        }
    }

    /// Has the timer be ready once the clock is set.
    pub(super) fn arm(timer: &OwnedFd) -> io::Result<()> {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let when = libc::itimerspec { it_interval: none, it_value: libc::timespec { tv_sec: NEVER, ..none } };
        let flags = libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET;
        // SAFETY: the structure outlives the call; the old setting is not asked for.
        let result =
            unsafe { libc::timerfd_settime(timer.as_raw_fd(), flags, &raw const when, std::ptr::null_mut()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes what it tells, so that it can tell the next.
    pub(super) fn taken(timer: &OwnedFd) -> io::Result<()> {
        let mut count = 0_u64;
        // SAFETY: the number outlives the call and has the length that is told.
        let result = unsafe { libc::read(timer.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        if result >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ECANCELED | libc::EAGAIN | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_it_is_dropped_and_says_nothing_while_the_clock_goes_on() {
        let (told, tells) = crossbeam_channel::bounded(1);
        let watch = ClockSet::start(move || told.try_send(()).unwrap()).unwrap();
        drop(watch);
        // Its thread has ended, and so has what it would have told with.
        assert_eq!(tells.recv(), Err(crossbeam_channel::RecvError));
    }
}
