//! Who is calling: the kernel knows which process holds the other end of a loopback connection, and that
//! process may be an agent's.
//!
//! A caller counts as the operator only when a process that is **not** our descendant is seen to hold the
//! connection. Whoever cannot be seen (it hides, or hung up at once) counts as an agent that nobody knows.
//! Who has called before is looked at first, then the newest processes, because whoever has just connected
//! has mostly just been started, then those that were there before us, and our agents last: it is a question
//! of cost alone, for a process that is found holds the connection in any case.
//!
//! What this cannot see: a process that an agent has some service outside of our tree start for it (a job
//! scheduler, a terminal multiplexer's server, another machine).
//!
//! Source: proc(5): `/proc/PID/fd`, `/proc/PID/stat`.

use super::descriptors::holds;
use super::process::{Origin, agent_of, origin, parent_of};
use super::socket_table::{Found, socket};
use crate::core::State;
use crate::core::ids::{AgentId, UNKNOWN_AGENT};
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

/// Looks at the process table before a caller that is not found counts as hidden: the socket may be on its
/// way from one process to another.
const LOOKS: usize = 3;
/// Ancestors of an outside caller looked at for an agent's marker.
const MAX_ANCESTORS: usize = 64;
/// Processes that have called before and are remembered.
const MAX_RECENT: usize = 16;
/// The newest processes, which are looked at before those that are older than this one.
const NEWEST: usize = 8;

/// Who has called lately, newest call first. Whether a process holds a connection is asked of the kernel each
/// time; this only says whom to ask first.
static RECENT: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The agent whose process calls: `None` for everybody else, also where the kernel cannot tell, and
/// [`UNKNOWN_AGENT`] for a process of an agent nobody knows which.
pub fn calling_agent(state: &State, peer: SocketAddr, local: SocketAddr) -> Option<AgentId> {
    if !peer.ip().is_loopback() && peer.ip().to_canonical() != local.ip().to_canonical() {
        // Another machine: the operator's token speaks for it.
        return None;
    }
    let mut hidden = Vec::new();
    for _ in 0..LOOKS {
        let (inode, user) = match socket(peer, local) {
            Found::Socket { inode, user } => (inode, user),
            Found::Gone => return Some(UNKNOWN_AGENT),
            Found::NotTold => return None,
        };
        match holder_of(inode) {
            Ok(pid) => return judge(state, pid),
            Err(unreadable) => hidden = unreadable,
        }
        hidden.retain(|pid| runs_as(*pid, user));
        if hidden.iter().any(|pid| origin(*pid) != Origin::Outside) {
            // One of our own hides what it holds: it may well be this.
            return Some(UNKNOWN_AGENT);
        }
    }
    // Somebody outside of our tree who may not be looked at, for example another user; or nobody at all.
    if hidden.is_empty() { Some(UNKNOWN_AGENT) } else { None }
}

/// Whether the kernel says at all who holds the other end.
pub fn is_told(peer: SocketAddr, local: SocketAddr) -> bool {
    socket(peer, local) != Found::NotTold
}

/// Whether a process runs as this user, as anybody may read of any process.
fn runs_as(pid: u32, user: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    ids.split_ascii_whitespace().any(|id| id.parse() == Ok(user))
}

fn judge(state: &State, pid: u32) -> Option<AgentId> {
    match origin(pid) {
        Origin::Agent(agent) => Some(agent),
        Origin::Inside => Some(UNKNOWN_AGENT),
        Origin::Outside => marked(state, pid),
    }
}

/// A process outside of our tree that says it is an agent's, for example one that an earlier daemon has left.
fn marked(state: &State, mut pid: u32) -> Option<AgentId> {
    for _ in 0..MAX_ANCESTORS {
        if pid <= 1 || pid == state.project.pid {
            return None;
        }
        if let Some(agent) = agent_of(pid, &state.project.dir) {
            return Some(agent);
        }
        pid = parent_of(pid)?;
    }
    None
}

/// A process that holds the socket; else those that may not be looked at.
fn holder_of(inode: u64) -> Result<u32, Vec<u32>> {
    let wanted = format!("socket:[{inode}]");
    let Ok(entries) = fs::read_dir("/proc") else { return Err(Vec::new()) };
    let mut pids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    order(&mut pids, &recent, std::process::id());
    let mut unreadable = Vec::new();
    for pid in pids {
        match holds(pid, wanted.as_bytes()) {
            Ok(true) => {
                remember(pid);
                return Ok(pid);
            }
            Err(ErrorKind::PermissionDenied) => unreadable.push(pid),
            Ok(false) | Err(_) => {}
        }
    }
    Err(unreadable)
}

/// The likely ones first.
fn order(pids: &mut [u32], recent: &[u32], own: u32) {
    pids.sort_unstable_by(|a, b| b.cmp(a));
    let newest = pids.get(NEWEST.saturating_sub(1)).copied().unwrap_or_default();
    pids.sort_by_key(|pid| match recent.iter().position(|known| known == pid) {
        Some(place) => place,
        None if *pid >= newest => MAX_RECENT,
        None if *pid < own => MAX_RECENT + 1,
        None => MAX_RECENT + 2,
    });
}

fn remember(pid: u32) {
    let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    recent.retain(|known| *known != pid);
    recent.insert(0, pid);
    recent.truncate(MAX_RECENT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        (listener, client, server)
    }

    #[test]
    fn decisions_4_the_kernel_tells_which_process_holds_the_other_end() {
        let (_listener, client, server) = pair();
        let (peer, local) = (server.peer_addr().unwrap(), server.local_addr().unwrap());
        let Found::Socket { inode, user } = socket(peer, local) else {
            panic!("the connection is not listed")
        };
        assert_eq!(holder_of(inode), Ok(std::process::id()));
        assert!(runs_as(std::process::id(), user) && !runs_as(std::process::id(), user + 1));
        assert_eq!(calling_agent(&State::default(), peer, local), None, "this process is nobody's agent");
        drop(client);
    }

    #[test]
    fn decisions_4_who_hangs_up_before_anybody_looks_is_no_operator() {
        let (_listener, client, server) = pair();
        let (peer, local) = (server.peer_addr().unwrap(), server.local_addr().unwrap());
        drop(client);
        assert_eq!(calling_agent(&State::default(), peer, local), Some(UNKNOWN_AGENT));
    }

    #[test]
    fn the_likely_callers_are_looked_at_first() {
        let mut pids: Vec<u32> = (1..=30).collect();
        order(&mut pids, &[20, 3, 99], 10);
        let wanted: Vec<u32> = [20, 3]
            .into_iter()
            .chain((23..=30).rev())
            .chain([9, 8, 7, 6, 5, 4, 2, 1])
            .chain((21..=22).rev())
            .collect();
        assert_eq!(pids[..wanted.len()], wanted, "recent, newest, older than us, then the rest");
        assert_eq!(pids.len(), 30, "nobody is left out");
        let mut few = vec![5, 7];
        order(&mut few, &[], 6);
        assert_eq!(few, [7, 5]);
    }

    #[test]
    fn another_machine_is_not_looked_for() {
        let peer = "192.0.2.1:5".parse().unwrap();
        let local = "192.0.2.2:31415".parse().unwrap();
        assert_eq!(calling_agent(&State::default(), peer, local), None);
    }
}
