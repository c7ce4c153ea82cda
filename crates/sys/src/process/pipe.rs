//! Pipes to and from a child that never hold a thread for good: each can be ended from outside.
#![allow(unsafe_code, reason = "poll")]

use crate::sockets::set_nonblocking;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// What is still read after the end was ordered; no pipe holds more.
const DRAIN_LIMIT_BYTES: usize = 1024 * 1024;

/// Ends the [`Source`] or [`Sink`] it belongs to when dropped.
#[derive(Debug)]
pub struct Wake(#[allow(dead_code, reason = "held for its drop")] PipeWriter);

/// The reading end of a pipe. It ends when all writers are gone, or when its [`Wake`] is dropped and what was
/// in the pipe has been read.
#[derive(Debug)]
pub struct Source {
    file: File,
    wake: PipeReader,
    /// Bytes that may still be read, once the end was ordered.
    left: Option<usize>,
}

impl Source {
    /// Errors: no more file descriptors.
    pub fn new(file: File) -> io::Result<(Self, Wake)> {
        let (wake, waker) = io::pipe()?;
        Ok((Self { file, wake, left: None }, Wake(waker)))
    }

    /// Whether a read would return at once, now or within `wait`.
    pub fn is_ready(&self, wait: Duration) -> bool {
        let ready = poll([(self.file.as_fd(), libc::POLLIN), (self.wake.as_fd(), libc::POLLIN)], Some(wait));
        ready.is_ok_and(|ready| ready != [false, false])
    }

    /// Lets what is written meanwhile gather in the pipe, for `wait`; not once the end was ordered.
    pub fn rest(&self, wait: Duration) {
        // A wait that fails is one that is over.
        let _ = poll([(self.wake.as_fd(), libc::POLLIN)], Some(wait));
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let watched = [(self.file.as_fd(), libc::POLLIN), (self.wake.as_fd(), libc::POLLIN)];
        let [readable, ended] = poll(watched, None)?;
        if ended && self.left.is_none() {
            self.left = Some(DRAIN_LIMIT_BYTES);
        }
        if !readable {
            return Ok(0);
        }
        let most = self.left.map_or(buffer.len(), |left| left.min(buffer.len()));
        let count = self.file.read(&mut buffer[..most])?;
        if let Some(left) = &mut self.left {
            *left -= count;
        }
        Ok(count)
    }
}

/// How far a write came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// So many bytes, at least one, are in the pipe.
    Wrote(usize),
    /// The pipe stayed full for the whole wait.
    Full,
    /// The [`Wake`] was dropped.
    Ended,
}

/// The writing end of a pipe.
#[derive(Debug)]
pub struct Sink {
    file: File,
    wake: PipeReader,
}

impl Sink {
    /// Errors: no more file descriptors.
    pub fn new(file: File) -> io::Result<(Self, Wake)> {
        set_nonblocking(file.as_fd())?;
        let (wake, waker) = io::pipe()?;
        Ok((Self { file, wake }, Wake(waker)))
    }

    /// Writes as much of `bytes` as the pipe takes, and waits up to `wait` for it to take any.
    ///
    /// Errors: the reader has closed its end.
    pub fn write_some(&mut self, bytes: &[u8], wait: Duration) -> io::Result<Progress> {
        let watched = [(self.file.as_fd(), libc::POLLOUT), (self.wake.as_fd(), libc::POLLIN)];
        let [writable, ended] = poll(watched, Some(wait))?;
        if ended {
            return Ok(Progress::Ended);
        }
        if !writable {
            return Ok(Progress::Full);
        }
        match self.file.write(bytes) {
            Ok(count) => Ok(Progress::Wrote(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Progress::Full),
            Err(error) => Err(error),
        }
    }
}

/// Waits until one of the files is ready for its events (or has an error or hung up), or for `wait`;
/// `None` waits for good.
pub(super) fn poll<const N: usize>(
    files: [(BorrowedFd<'_>, libc::c_short); N],
    wait: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut fds = files.map(|(fd, events)| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
    let millis = wait.map_or(-1, |wait| i32::try_from(wait.as_millis()).unwrap_or(i32::MAX));
    let count = libc::nfds_t::try_from(N).unwrap_or(0);
    loop {
        // SAFETY: `fds` holds N entries and outlives the call; the descriptors are borrowed for it.
        if unsafe { libc::poll(fds.as_mut_ptr(), count, millis) } >= 0 {
            return Ok(fds.map(|fd| fd.revents != 0));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    fn pipe() -> (File, File) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (File::from(OwnedFd::from(reader)), File::from(OwnedFd::from(writer)))
    }

    #[test]
    fn a_source_ends_when_told_and_keeps_what_was_written() {
        let (reader, mut writer) = pipe();
        let (mut source, wake) = Source::new(reader).expect("a source");
        assert!(!source.is_ready(Duration::ZERO));
        writer.write_all(b"last words").expect("written");
        assert!(source.is_ready(Duration::ZERO));
        drop(wake);
        let mut text = String::new();
        source.read_to_string(&mut text).expect("ends although the writer lives");
        assert_eq!(text, "last words");
    }

    #[test]
    fn a_source_rests_while_more_is_written_and_not_when_it_is_to_end() {
        let (reader, mut writer) = pipe();
        let (source, wake) = Source::new(reader).expect("a source");
        writer.write_all(b"a line").expect("written");
        let began = std::time::Instant::now();
        source.rest(Duration::from_millis(20));
        assert!(began.elapsed() >= Duration::from_millis(20), "what is there already does not end it");
        drop(wake);
        source.rest(Duration::from_mins(1));
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_sink_tells_a_full_pipe_and_an_ended_one() {
        let (reader, writer) = pipe();
        let (mut sink, wake) = Sink::new(writer).expect("a sink");
        let block = vec![0; 64 * 1024];
        while let Progress::Wrote(_) = sink.write_some(&block, Duration::ZERO).expect("no error") {}
        assert_eq!(sink.write_some(&block, Duration::ZERO).expect("no error"), Progress::Full);
        drop(wake);
        assert_eq!(sink.write_some(&block, Duration::from_mins(1)).expect("no error"), Progress::Ended);
        drop(reader);
    }
}
