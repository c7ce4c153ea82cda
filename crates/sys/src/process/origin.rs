//! Where a process comes from: out of one of our agents, out of us otherwise, out of somebody's agents, or
//! from elsewhere.
//!
//! The environment proves nothing here but against itself: a process chooses it. Its ancestors, and the
//! session it never left, it cannot choose; as we are a subreaper, a descendant stays one whatever its
//! parents do. And when the daemon above it is gone, it keeps the mark of a limit that it cannot raise: see
//! [`os::take_mark`].

use super::reaper::Purpose;
use super::{os, reaper, scan};
use std::path::Path;
use std::sync::OnceLock;
use svc_base::ids::{AgentId, UNKNOWN_AGENT};

/// Ancestors looked at, so that a damaged process table cannot keep us here.
const MAX_ANCESTORS: usize = 128;

/// The limit that is without the mark: this program's when it was started, or the first process's if that is
/// more, for an agent may lower the limit of every program of its user, but of none of the system's.
static UNMARKED: OnceLock<Option<u64>> = OnceLock::new();

/// Where a process comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A descendant of this agent's process, or one that says so of itself.
    Agent(AgentId),
    /// Some agent's, or ours: a descendant of ours of which it cannot be told of which agent, one of another
    /// daemon's, one whose daemon is gone, or a process that is gone.
    Inside,
    /// A daemon itself, this one or another.
    Daemon,
    /// None of these.
    Outside,
}

/// Notes the limit without the mark.
pub(super) fn note_limit() {
    UNMARKED.get_or_init(|| {
        let own = os::marked_limit(std::process::id())?;
        Some(os::marked_limit(1).map_or(own, |first| first.max(own)))
    });
}

/// The origin of a process, where agents of this project may have left a marker. Reads a few small files per
/// generation.
pub fn origin(pid: u32, project_dir: &Path) -> Origin {
    let own = std::process::id();
    if pid == own {
        // It asks nothing of itself: somebody has made it ask.
        return Origin::Daemon;
    }
    let (mut sessions, mut marked) = (Vec::new(), None);
    let mut at = pid;
    for _ in 0..MAX_ANCESTORS {
        let Some(stat) = os::stat(at) else { return Origin::Inside };
        sessions.push(stat.session);
        if stat.parent == own {
            return inside(at, &sessions);
        }
        marked = marked.or_else(|| mark_of(at, at != pid, project_dir));
        if stat.parent <= 1 {
            return match marked {
                Some(UNKNOWN_AGENT) => Origin::Inside,
                Some(agent) => Origin::Agent(agent),
                None if is_marked(pid) => Origin::Inside,
                None if is_daemon(pid) => Origin::Daemon,
                None => Origin::Outside,
            };
        }
        at = stat.parent;
    }
    Origin::Inside
}

/// The agent that a process outside of our tree says it belongs to, as one that an earlier daemon has left
/// may; an unknown one for the agent of another project and, if it is an ancestor, for another daemon.
fn mark_of(pid: u32, is_ancestor: bool, project_dir: &Path) -> Option<AgentId> {
    let environ = os::environ(pid);
    let is_foreign = || scan::is_marked(&environ) || (is_ancestor && is_daemon(pid));
    let foreign = || is_foreign().then_some(UNKNOWN_AGENT);
    scan::marked_agent(&environ, project_dir).or_else(foreign)
}

/// Whether a process is a daemon of this kind, as far as its name and its arguments tell.
fn is_daemon(pid: u32) -> bool {
    let line = os::command_line(pid);
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let program = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    (program.starts_with(b"svc") || os::name(pid).starts_with(b"svc")) && starts_a_daemon(&line)
}

/// Whether a command line asks for a daemon: `start` is its only word beside options and their values.
fn starts_a_daemon(line: &[u8]) -> bool {
    const WITH_VALUE: [&[u8]; 4] = [b"--project", b"--url", b"--port", b"--host"];
    let mut words = line.strip_suffix(b"\0").unwrap_or(line).split(|byte| *byte == 0).skip(1);
    let mut starts = false;
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with(b"-") {
            if starts || word != b"start" {
                return false;
            }
            starts = true;
        }
    }
    starts
}

/// Whether a process has less of the limit than one without the mark.
fn is_marked(pid: u32) -> bool {
    let Some(unmarked) = UNMARKED.get().copied().flatten() else { return false };
    os::marked_limit(pid).is_none_or(|limit| limit < unmarked)
}

/// The agent behind our own child `top`, whose descendants, from the process in question up to it, live in
/// these sessions.
fn inside(top: u32, sessions: &[u32]) -> Origin {
    let agent_of = |pid: u32| match reaper::purpose_of(pid) {
        Some(Purpose::Agent(agent)) => Some(agent),
        _ => None,
    };
    // One of no known purpose is adopted: some descendant that is gone has started it.
    let adopted =
        || sessions.iter().copied().filter(|_| reaper::purpose_of(top).is_none()).find_map(agent_of);
    agent_of(top).or_else(adopted).map_or(Origin::Inside, Origin::Agent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_told_by_its_command_line() {
        let line = |text: &str| text.replace(' ', "\0").into_bytes();
        for daemon in
            ["svc start\0", "svc --project /x start --port 0\0", "svc start --stderr-is-log --host ::1"]
        {
            assert!(starts_a_daemon(&line(daemon)), "{daemon}");
        }
        for other in
            ["svc", "start", "svc instruct a start", "svc reject 1 --reason start", "svc --project start"]
        {
            assert!(!starts_a_daemon(&line(other)), "{other}");
        }
    }
}
