//! Where a process comes from: out of one of our agents, out of us otherwise, out of somebody's agents, or
//! from elsewhere.
//!
//! The environment proves nothing here but against itself: a process chooses it. Its ancestors, and the
//! session it never left, it cannot choose; as we are a subreaper, a descendant stays one whatever its
//! parents do. And when the daemon above it is gone, it keeps the mark of a limit that it cannot raise: see
//! [`os::take_mark`].

use super::reaper::Purpose;
use super::{Identity, KEEPER_SUB_COMMAND, os, reaper, scan};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use svc_base::ids::{AgentId, UNKNOWN_AGENT};

/// Ancestors looked at, so that a damaged process table cannot keep us here.
const MAX_ANCESTORS: usize = 128;

/// The limit that is without the mark: this program's when it was started, or the first process's if that is
/// more, for an agent may lower the limit of every program of its user, but of none of the system's.
static UNMARKED: OnceLock<Option<u64>> = OnceLock::new();

/// Keepers whose agent is known: this daemon's, and those of an earlier one that it has found.
static KEEPERS: Mutex<Option<HashMap<u32, (u64, AgentId)>>> = Mutex::new(None);

/// Where a process comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A descendant of this agent's process, or one that says so of itself.
    Agent(AgentId),
    /// Some agent's, or ours: a descendant of ours of which it cannot be told of which agent, one of another
    /// daemon's, one whose daemon is gone, or a process that is gone.
    Inside,
    /// A daemon itself, this one or another, or a keeper.
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
        if let Some(agent) = agent_of_keeper(stat.identity()) {
            return if at == pid { Origin::Daemon } else { Origin::Agent(agent) };
        }
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
                None if is_daemon(pid) || is_keeper(pid) => Origin::Daemon,
                None => Origin::Outside,
            };
        }
        at = stat.parent;
    }
    Origin::Inside
}

/// The agent that a process outside of our tree says it belongs to, as one that an earlier daemon has left
/// may; an unknown one for the agent of another project and, if it is an ancestor, for another daemon or for
/// a keeper that nobody has made known.
fn mark_of(pid: u32, is_ancestor: bool, project_dir: &Path) -> Option<AgentId> {
    let environ = os::environ(pid);
    let is_foreign = || scan::is_marked(&environ) || (is_ancestor && (is_daemon(pid) || is_keeper(pid)));
    let foreign = || is_foreign().then_some(UNKNOWN_AGENT);
    scan::marked_agent(&environ, project_dir).or_else(foreign)
}

/// Makes known whose agent's keeper a process is: what is found below it comes from that agent, whatever it
/// says of itself.
pub fn know_keeper(keeper: Identity, agent: AgentId) {
    let mut known = KEEPERS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    // Bounded by what lives.
    known.retain(|pid, (start_ticks, _)| os::stat(*pid).is_some_and(|stat| stat.start_ticks == *start_ticks));
    known.insert(keeper.pid, (keeper.start_ticks, agent));
}

fn agent_of_keeper(process: Identity) -> Option<AgentId> {
    let known = KEEPERS.lock().unwrap_or_else(PoisonError::into_inner);
    let (start_ticks, agent) = *known.as_ref()?.get(&process.pid)?;
    (start_ticks == process.start_ticks).then_some(agent)
}

/// Whether a process is a daemon of this kind, as far as its name and its arguments tell.
fn is_daemon(pid: u32) -> bool {
    let line = os::command_line(pid);
    starts_a_daemon(&line) && is_ours(pid, &line)
}

/// Whether a process is a keeper, of whatever daemon, as far as its name and its arguments tell.
fn is_keeper(pid: u32) -> bool {
    let line = os::command_line(pid);
    keeps(&line) && is_ours(pid, &line)
}

fn is_ours(pid: u32, line: &[u8]) -> bool {
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let program = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    program.starts_with(b"svc") || os::name(pid).starts_with(b"svc")
}

/// Whether a command line has the keeper's sub-command as its only word.
fn keeps(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    line.split(|byte| *byte == 0).skip(1).eq([KEEPER_SUB_COMMAND.as_bytes()])
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
    fn a_keeper_is_told_by_its_only_word() {
        assert!(keeps(b"/usr/bin/svc\0__keep\0") && keeps(b"svc\0__keep"));
        for other in [&b"svc\0__keep\0x\0"[..], b"svc\0", b"svc\0start\0", b"svc\0x\0__keep\0", b""] {
            assert!(!keeps(other));
        }
    }

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
