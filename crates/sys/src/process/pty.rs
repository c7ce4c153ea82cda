//! A program on a terminal of its own: the end that programs have, and the end that shows it.
#![allow(unsafe_code, reason = "openpty, ioctl, and what happens between fork and exec")]

use super::spawn::{Tie, start_child, tied_command};
use super::{Exit, Identity, Processes, Spec};
use crossbeam_channel::Receiver;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

/// Columns and lines of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub columns: u16,
    pub lines: u16,
}

/// A program that has been started on a terminal.
#[derive(Debug)]
pub struct OnTerminal {
    /// Its id, which also is its group's and its session's, and its start time.
    pub identity: Identity,
    /// What it shows is read here, and what is typed is written. Its end is an error.
    pub screen: File,
    /// How it ended, once.
    pub exit: Receiver<Exit>,
}

impl Processes {
    /// As [`Processes::spawn_tied`], with a new terminal of this size as its input, its outputs, and the one
    /// that signals come from.
    ///
    /// Errors: a sentence that names the program.
    pub fn spawn_on_terminal(&self, spec: &Spec, size: Size) -> io::Result<OnTerminal> {
        let (screen, inner) = open(size)?;
        let mut command = tied_command(spec, Tie::ToParent(None))?;
        command.stdin(Stdio::from(inner.try_clone()?)).stdout(Stdio::from(inner.try_clone()?));
        command.stderr(Stdio::from(inner));
        // SAFETY: one system call on numbers, behind the one that began the session.
        unsafe {
            command.pre_exec(|| {
                if libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY as _, 0) == 0 {
                    return Ok(());
                }
                Err(io::Error::last_os_error())
            });
        }
        let (identity, _, exit) = start_child(spec, &mut command)?;
        Ok(OnTerminal { identity, screen, exit })
    }
}

/// Both ends: the outer one, and the one that programs have.
fn open(size: Size) -> io::Result<(File, OwnedFd)> {
    let (mut outer, mut inner) = (-1, -1);
    let mut size = winsize(size);
    // SAFETY: both numbers and the structure outlive the call; no name and no settings are asked for.
    let result = unsafe {
        let (name, settings) = (std::ptr::null_mut(), std::ptr::null_mut());
        libc::openpty(&raw mut outer, &raw mut inner, name, settings, &raw mut size)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made both descriptors, and nothing else owns them.
    let ends = unsafe { (OwnedFd::from_raw_fd(outer), OwnedFd::from_raw_fd(inner)) };
    for end in [&ends.0, &ends.1] {
        // SAFETY: fcntl on an open descriptor with number arguments.
        if unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok((File::from(ends.0), ends.1))
}

/// Tells a terminal, and by a signal the programs on it, how large it is now.
///
/// Errors: it is none.
pub fn resize(screen: &File, size: Size) -> io::Result<()> {
    let size = winsize(size);
    // SAFETY: the structure outlives the call, which only reads it.
    match unsafe { libc::ioctl(screen.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn winsize(size: Size) -> libc::winsize {
    libc::winsize { ws_row: size.lines, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}
