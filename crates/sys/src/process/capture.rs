//! Running a program to its end and keeping what it prints: `git`, version questions.

use super::pipe::poll;
use super::{Exit, Processes, Running, Spec};
use crate::sockets::set_nonblocking;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// While a capture runs: how long to wait for its pipes before its exit is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long pipes may stay open after the program and its descendants are gone.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// Between TERM and KILL when a capture takes too long.
const TIMEOUT_GRACE: Duration = Duration::from_secs(1);
/// Bytes read or written at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// What a program printed, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    pub exit: Exit,
    /// The first bytes of its standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// The first bytes of its standard error, up to the limit.
    pub stderr: Vec<u8>,
    /// Whether either was longer than the limit.
    pub truncated: bool,
}

impl Captured {
    /// Exit code 0.
    pub fn is_success(&self) -> bool {
        self.exit.code == Some(0)
    }
}

struct Pipes<'a> {
    stdin: Option<File>,
    input: &'a [u8],
    stdout: Option<File>,
    stderr: Option<File>,
    output: Captured,
    limit: usize,
}

impl Processes {
    /// Runs a program to its end: `input` goes to its standard input, at most `output_limit` bytes of each
    /// output are kept (the rest is read and dropped). After `timeout` the whole tree is ended.
    ///
    /// Errors: a sentence that names the program: it cannot be started, or it took too long.
    pub fn capture(
        &self,
        spec: &Spec,
        input: &[u8],
        timeout: Duration,
        output_limit: usize,
    ) -> Result<Captured, String> {
        self.capture_unless(spec, input, timeout, output_limit, &AtomicBool::new(false))
    }

    /// As [`Processes::capture`]; the tree is ended, too, once nobody wants to know any more.
    ///
    /// Errors: as there, or that it was given up.
    pub fn capture_unless(
        &self,
        spec: &Spec,
        input: &[u8],
        timeout: Duration,
        output_limit: usize,
        is_over: &AtomicBool,
    ) -> Result<Captured, String> {
        let running = self.spawn(spec).map_err(|error| error.to_string())?;
        let (identity, exit_channel) = (running.identity, running.exit.clone());
        let mut pipes = Pipes::new(running, input, output_limit).map_err(|error| error.to_string())?;
        let deadline = Instant::now() + timeout;
        let exit = loop {
            // With all pipes closed there is only the exit to wait for.
            let pause = LOOK_AGAIN.min(deadline.saturating_duration_since(Instant::now()));
            let exit = if pipes.are_closed() {
                exit_channel.recv_timeout(pause).ok()
            } else {
                pipes.step(pause);
                exit_channel.try_recv().ok()
            };
            if exit.is_some() || Instant::now() >= deadline || is_over.load(Ordering::Acquire) {
                break exit;
            }
        };
        let Some(exit) = exit else {
            self.stop_tree(identity, spec.marker.as_ref(), TIMEOUT_GRACE);
            let name = Path::new(&spec.program).display();
            return Err(format!("{name} did not end within {} s", timeout.as_secs_f32()));
        };
        self.sweep(identity, spec.marker.as_ref());
        let drained = Instant::now() + DRAIN_LIMIT;
        pipes.stdin = None;
        while !pipes.are_closed() && Instant::now() < drained {
            pipes.step(LOOK_AGAIN);
        }
        pipes.output.exit = exit;
        Ok(pipes.output)
    }
}

impl<'a> Pipes<'a> {
    fn new(running: Running, input: &'a [u8], limit: usize) -> io::Result<Self> {
        set_nonblocking(running.stdout.as_fd())?;
        set_nonblocking(running.stderr.as_fd())?;
        if let Some(stdin) = &running.stdin {
            set_nonblocking(stdin.as_fd())?;
        }
        let output =
            Captured { exit: Exit::default(), stdout: Vec::new(), stderr: Vec::new(), truncated: false };
        let (stdout, stderr) = (Some(running.stdout), Some(running.stderr));
        Ok(Self { stdin: running.stdin, input, stdout, stderr, output, limit })
    }

    fn are_closed(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none() && self.stdin.is_none()
    }

    /// Moves what can be moved, after waiting up to `pause` for something.
    fn step(&mut self, pause: Duration) {
        if self.input.is_empty() {
            self.stdin = None;
        }
        self.wait(pause);
        if let Some(stdin) = &mut self.stdin {
            match stdin.write(&self.input[..self.input.len().min(CHUNK_BYTES)]) {
                Ok(count) => self.input = &self.input[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It reads no more: its business.
                Err(_) => self.stdin = None,
            }
        }
        let (output, limit) = (&mut self.output, self.limit);
        output.truncated |= read_some(&mut self.stdout, &mut output.stdout, limit);
        output.truncated |= read_some(&mut self.stderr, &mut output.stderr, limit);
    }

    fn wait(&self, pause: Duration) {
        let places = [
            (self.stdout.as_ref(), libc::POLLIN),
            (self.stderr.as_ref(), libc::POLLIN),
            (self.stdin.as_ref(), libc::POLLOUT),
        ]
        .map(|(file, events)| file.map(|file| (file.as_fd(), events)));
        // Closed places repeat an open one, so that one array serves all cases.
        let Some(open) = places.into_iter().flatten().next() else { return };
        let _ = poll(places.map(|place| place.unwrap_or(open)), Some(pause));
    }
}

/// Reads one chunk; `true` when some of it was over the limit. The file is dropped at its end.
fn read_some(file: &mut Option<File>, kept: &mut Vec<u8>, limit: usize) -> bool {
    let Some(open) = file else { return false };
    let mut chunk = vec![0; CHUNK_BYTES];
    match open.read(&mut chunk) {
        Ok(count) if count > 0 => {
            let room = limit.saturating_sub(kept.len()).min(count);
            kept.extend_from_slice(&chunk[..room]);
            room < count
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => false,
        _ => {
            *file = None;
            false
        }
    }
}
