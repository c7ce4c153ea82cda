//! Who is calling: the kernel knows which process holds the other end of a connection, and that process may
//! be an agent's.
//!
//! A caller counts as a person only when a process that comes from **no** agent is seen to hold the
//! connection. Whoever cannot be seen (it hides, has hung up, or the look failed) is nobody. The kernel is
//! asked for every peer, for a program chooses the address from which it calls. Who has called before is
//! looked at first, then the newest processes, because whoever has just connected has mostly just been
//! started, then those that were there before us, and our agents last: it is a question of cost alone, for a
//! process that is found holds the connection in any case.
//!
//! What this cannot see: a process that an agent has some service outside of our tree start for it (a job
//! scheduler, a terminal multiplexer's server, another machine), or that takes a socket off its hands.
//!
//! Source: proc(5): `/proc/PID/fd`, `/proc/PID/task/TID/fd`, `/proc/PID/stat`.

use crate::core::State;
use crate::core::actor::Holder;
use crate::core::ids::UNKNOWN_AGENT;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use svc_base::sorted;
use svc_sys::descriptors::{holds, may_hold, threads_hold};
use svc_sys::process::{Origin, origin};
use svc_sys::socket_table::{self, Found, socket};

/// Looks at the process table before a caller that is not found counts as hidden: the socket may be on its
/// way from one process to another.
const LOOKS: usize = 3;
/// A look at the threads of all processes gives up after this: somebody makes it long.
const THREADS_LOOK: Duration = Duration::from_millis(500);
/// A room that is being made may not be looked at, and passes for one only when its first process is there:
/// so often, with this between two, it is looked again before a caller counts as an agent's.
const ROOM_LOOKS: usize = 10;
const ROOM_MADE: Duration = Duration::from_millis(50);
/// Processes that have called before and are remembered.
const MAX_RECENT: usize = 16;
/// The newest processes, which are looked at before those that are older than this one.
const NEWEST: usize = 8;
/// Descriptors kept back for a look when all others are taken.
const RESERVED: usize = 8;

/// Who has called lately, newest call first. Whether a process holds a connection is asked of the kernel each
/// time; this only says whom to ask first.
static RECENT: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Open files that a look closes when it finds no descriptor left.
static RESERVE: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Why a look has found nobody.
#[derive(Debug, PartialEq, Eq)]
enum Missed {
    /// Everything was looked at.
    NotThere,
    /// A part could not be looked at for want of descriptors.
    NoDescriptor,
}

/// Opens what a look needs when no descriptor is left.
pub fn prepare() {
    socket_table::prepare();
    refill(&mut RESERVE.lock().unwrap_or_else(PoisonError::into_inner));
}

fn refill(reserve: &mut Vec<File>) {
    while reserve.len() < RESERVED {
        let Ok(file) = File::open("/dev/null") else { return };
        reserve.push(file);
    }
}

/// Who holds the other end of a connection.
pub fn holder(state: &State, peer: SocketAddr, local: SocketAddr) -> Holder {
    look(state, peer, local).unwrap_or_else(|missed| {
        if missed == Missed::NotThere {
            return Holder::Unseen;
        }
        let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
        reserve.clear();
        let found = look(state, peer, local).unwrap_or(Holder::Unseen);
        refill(&mut reserve);
        found
    })
}

fn look(state: &State, peer: SocketAddr, local: SocketAddr) -> Result<Holder, Missed> {
    let mut missed = Missed::NotThere;
    for _ in 0..LOOKS {
        let inode = match socket(peer, local) {
            Found::Socket(inode) => inode,
            Found::Gone if is_elsewhere(peer, local) => return Ok(Holder::Elsewhere),
            Found::Gone => return Ok(Holder::Unseen),
            Found::NotTold if has_no_descriptor() => return Err(Missed::NoDescriptor),
            Found::NotTold => return Ok(Holder::Untold),
        };
        let wanted = format!("socket:[{inode}]");
        match holder_of(wanted.as_bytes(), |pid, until| seen(state, pid, wanted.as_bytes(), until)) {
            Ok(found) if is_known_agent(found) || is_usual(peer, local) => return Ok(found),
            Ok(_) => return Ok(Holder::Unseen),
            Err(why) => missed = why,
        }
    }
    Err(missed)
}

/// Whether a process of an agent, of whatever daemon of this user, may hold a connection that nobody was seen
/// to hold. One that has read the token of a project which is not its own could then pass for a person.
pub fn may_be_an_agents(state: &State, peer: SocketAddr, local: SocketAddr) -> bool {
    let Found::Socket(inode) = socket(peer, local) else { return true };
    let wanted = format!("socket:[{inode}]");
    let is_hidden = |look: usize| {
        if look > 0 {
            std::thread::sleep(ROOM_MADE);
        }
        some_agents_may_hold(state, wanted.as_bytes())
    };
    (0..ROOM_LOOKS).all(is_hidden)
}

/// Whether some process of an agent cannot be seen not to hold this.
fn some_agents_may_hold(state: &State, wanted: &[u8]) -> bool {
    let uid = |path: &str| fs::metadata(path).map(|about| about.uid());
    let Ok(own) = uid("/proc/self/task") else { return true };
    let Ok(entries) = fs::read_dir("/proc") else { return true };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // Its folder is of its user, whatever else is not to be looked at.
    pids.filter(|pid| uid(&format!("/proc/{pid}")).is_ok_and(|uid| uid == own)).any(|pid| {
        let is_agents = matches!(origin(pid, &state.project.dir), Origin::Agent(_) | Origin::Inside);
        is_agents && !holds_room(pid) && may_hold(pid, wanted)
    })
}

/// Whether a process is the first one of a room, or its parent: programs of ours, which may not be looked at
/// since they have made the room. What an agent makes in its room lies deeper. Source: `NSpid` of proc(5).
fn holds_room(pid: u32) -> bool {
    let is_first = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        ids.split_ascii_whitespace().skip(1).eq(["1"])
    };
    let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    is_first(pid) || children().split_ascii_whitespace().filter_map(|child| child.parse().ok()).any(is_first)
}

/// Whether a program that was not told otherwise calls from this address. Another one was chosen for a
/// reason, which is nothing that a person has.
fn is_usual(peer: SocketAddr, local: SocketAddr) -> bool {
    let (theirs, ours) = (peer.ip().to_canonical(), local.ip().to_canonical());
    theirs == ours || theirs == Ipv4Addr::LOCALHOST || theirs == Ipv6Addr::LOCALHOST
}

/// Whether an address belongs to no interface of this machine.
pub fn is_elsewhere(peer: SocketAddr, local: SocketAddr) -> bool {
    let (theirs, ours) = (peer.ip().to_canonical(), local.ip().to_canonical());
    if theirs.is_loopback() || ours.is_loopback() || theirs == ours {
        return false;
    }
    let mut own = if theirs.is_ipv4() { SocketAddr::new(theirs, 0) } else { peer };
    own.set_port(0);
    matches!(UdpSocket::bind(own), Err(error) if error.kind() == ErrorKind::AddrNotAvailable)
}

fn has_no_descriptor() -> bool {
    File::open("/dev/null").is_err_and(|error| is_want_of_descriptors(&error))
}

fn is_want_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn judge(state: &State, pid: u32) -> Holder {
    match origin(pid, &state.project.dir) {
        Origin::Agent(agent) => Holder::Agent(agent),
        Origin::Inside => Holder::Agent(UNKNOWN_AGENT),
        // It is no person, nor one of its agents.
        Origin::Daemon => Holder::Unseen,
        Origin::Outside => Holder::Outside,
    }
}

/// Who a process that was seen to hold the connection is; `None` where it does not hold it any more: then it
/// need not be who was judged, for its number may have been given to another process.
fn seen(state: &State, pid: u32, wanted: &[u8], until: Instant) -> Option<Holder> {
    let found = judge(state, pid);
    (is_known_agent(found) || still_holds(pid, wanted, until)).then_some(found)
}

fn is_known_agent(found: Holder) -> bool {
    matches!(found, Holder::Agent(agent) if agent != UNKNOWN_AGENT)
}

fn still_holds(pid: u32, wanted: &[u8], until: Instant) -> bool {
    holds(pid, wanted).is_ok_and(|found| found) || threads_hold(pid, wanted, until).is_ok_and(|found| found)
}

/// What `judged` says of the first process that holds the socket, in a table that any of its threads uses,
/// and of which it says something. What a caller starts holds all that is the caller's until it is the
/// program that it is to be, or has ended; the caller itself comes later in the same look, however many it
/// starts. All that are judged share the time for their threads.
fn holder_of<T>(wanted: &[u8], judged: impl Fn(u32, Instant) -> Option<T>) -> Result<T, Missed> {
    let entries = fs::read_dir("/proc").map_err(|error| missed(&error))?;
    let mut pids: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    order(&mut pids, &recent, std::process::id());
    let until = || Instant::now() + THREADS_LOOK;
    let judged = |pid, until| judged(pid, until).inspect(|_| remember(pid));
    let shared = until();
    match first(&pids, |pid| holds(pid, wanted), |pid| judged(pid, shared)) {
        Err(Missed::NotThere) => {
            let shared = until();
            first(&pids, |pid| threads_hold(pid, wanted, shared), |pid| judged(pid, shared))
        }
        found => found,
    }
}

/// What `judged` says of the first process of which `holds` is true and it says something.
fn first<T>(
    pids: &[u32],
    holds: impl Fn(u32) -> io::Result<bool>,
    judged: impl Fn(u32) -> Option<T>,
) -> Result<T, Missed> {
    for pid in pids {
        match holds(*pid) {
            Ok(true) => {
                if let Some(found) = judged(*pid) {
                    return Ok(found);
                }
            }
            Err(error) if is_want_of_descriptors(&error) => return Err(Missed::NoDescriptor),
            Err(error) if error.kind() == ErrorKind::TimedOut => return Err(Missed::NotThere),
            // It is gone, or may not be looked at.
            Ok(false) | Err(_) => {}
        }
    }
    Err(Missed::NotThere)
}

fn missed(error: &io::Error) -> Missed {
    if is_want_of_descriptors(error) { Missed::NoDescriptor } else { Missed::NotThere }
}

/// The likely ones first.
fn order(pids: &mut [u32], recent: &[u32], own: u32) {
    pids.sort_unstable();
    pids.reverse();
    let newest = pids.get(NEWEST.saturating_sub(1)).copied().unwrap_or_default();
    sorted::by_key(pids, |pid| match recent.iter().position(|known| known == pid) {
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
#[path = "caller_tests.rs"]
mod tests;
