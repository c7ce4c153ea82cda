//! Where a process comes from: out of one of our agents, out of us otherwise, or from elsewhere.
//!
//! The environment proves nothing here: a process chooses it for itself. Its ancestors, and the session it
//! never left, it cannot choose; and as we are a subreaper, a descendant stays one whatever its parents do.

use super::reaper::Purpose;
use super::{os, reaper};
use crate::core::ids::AgentId;

/// Ancestors looked at, so that a damaged process table cannot keep us here.
const MAX_ANCESTORS: usize = 128;

/// Where a process comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A descendant of this agent's process.
    Agent(AgentId),
    /// A descendant of ours, but of which agent, if of any, cannot be told: it has left its parents and its
    /// session, or it is a tool of our own, or it is gone.
    Inside,
    /// No descendant of ours.
    Outside,
}

/// The origin of a process. Reads a few small files, one per generation.
pub fn origin(pid: u32) -> Origin {
    let own = std::process::id();
    if pid == own {
        return Origin::Outside;
    }
    let mut sessions = Vec::new();
    let mut at = pid;
    for _ in 0..MAX_ANCESTORS {
        let Some(stat) = os::stat(at) else { return Origin::Inside };
        sessions.push(stat.session);
        if stat.parent == own {
            return inside(at, &sessions);
        }
        if stat.parent <= 1 {
            return Origin::Outside;
        }
        at = stat.parent;
    }
    Origin::Inside
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
