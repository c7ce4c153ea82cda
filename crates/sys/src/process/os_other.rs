//! The plain fallback where there is no `/proc`: a process is known by its id alone, and strays are unknown.
#![allow(unsafe_code, reason = "system calls that std does not offer")]

use super::Identity;
use std::io;

/// One process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stat {
    pub pid: u32,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    pub start_ticks: u64,
}

impl Stat {
    /// Tells this process from a later one that gets its number.
    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid, start_ticks: self.start_ticks }
    }

    /// Never: only the living are listed here.
    pub fn is_gone(&self) -> bool {
        false
    }

    /// Never, for the same reason.
    pub fn is_ending(&self) -> bool {
        false
    }
}

pub(super) fn set_session_nice(_nice: u32) {}

/// There is no such file.
pub(super) const OWN_SCORE: &str = "/nonexistent";

pub(super) fn enter(_door: std::os::fd::RawFd) {}

pub(super) fn become_subreaper() -> io::Result<()> {
    Ok(())
}

pub(super) fn stat(pid: u32) -> Option<Stat> {
    let id = libc::pid_t::try_from(pid).ok().filter(|id| *id > 0)?;
    // SAFETY: getpgid and getsid take and return numbers.
    let (group, session) = unsafe { (libc::getpgid(id), libc::getsid(id)) };
    let (group, session) = (u32::try_from(group).ok()?, u32::try_from(session).ok()?);
    Some(Stat { pid, parent: 0, group, session, start_ticks: 0 })
}

pub(super) fn all() -> Vec<Stat> {
    Vec::new()
}

pub(super) fn environ(_pid: u32) -> Vec<u8> {
    Vec::new()
}

pub(super) fn limits(_pid: u32) -> String {
    String::new()
}

pub(super) fn set_mark(_limit: u64) {}

pub(super) fn own_adopted() -> Option<Vec<u32>> {
    Some(Vec::new())
}

pub(super) fn children(_pid: u32) -> Option<Vec<u32>> {
    None
}

pub(super) fn has_children() -> bool {
    false
}

pub(super) fn die_with(_parent: u32) -> io::Result<()> {
    Ok(())
}

pub(super) fn signal(identity: Identity, signal: i32) -> bool {
    let Some(pid) = libc::pid_t::try_from(identity.pid).ok().filter(|pid| *pid > 0) else { return false };
    // SAFETY: kill takes numbers.
    unsafe { libc::kill(pid, signal) == 0 }
}

pub(super) fn wait_gone(_identity: Identity, _limit: std::time::Duration) -> bool {
    false
}

pub(super) fn close_descriptors_on_exec() {}

pub(super) fn take_mark() {}

pub(super) fn marked_limit(_pid: u32) -> Option<u64> {
    None
}

pub(super) fn command_line(_pid: u32) -> Vec<u8> {
    Vec::new()
}

pub(super) fn name(_pid: u32) -> Vec<u8> {
    Vec::new()
}
