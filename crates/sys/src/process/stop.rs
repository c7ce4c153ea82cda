//! Ending a program and everything it started.
//!
//! ```text
//! note the tree -> TERM to the group and to strays -> up to `grace` for all to go
//!               -> KILL to the group and to strays, look again, until none is left or KILL_LIMIT is over
//! ```
//!
//! A process belongs to the tree when it was noted, carries the marker, descends from one that belongs, or
//! is in a session led by one. So neither a session of its own, nor a lost parent, nor a cleaned
//! environment alone hides it.

use super::mark::LimitMark;
use super::scan::Scan;
use super::{Identity, Marker, Processes, os, reaper};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Between TERM and KILL when a person stops an agent.
pub const STOP_GRACE: Duration = Duration::from_secs(5);
/// Between TERM and KILL for what a program left behind when it ended by itself.
pub(super) const SWEEP_GRACE: Duration = Duration::from_secs(1);
/// Between TERM and KILL for what an earlier daemon left behind.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// How long KILL is repeated before what is left counts as leaked.
pub(super) const KILL_LIMIT: Duration = Duration::from_secs(3);
/// While a stop is in progress: how long to wait for a child's end before looking again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Processes remembered per stop. More are still found by marker, parent and session.
const NOTED_MAX: usize = 16_384;

/// What ending a tree took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Processes that are still there. Anything but 0 is a bug, or a process stuck in the kernel.
    pub leaked: u32,
    /// Processes that did not heed TERM.
    pub killed: u32,
}

/// What an earlier daemon had left behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leftovers {
    pub found: u32,
    /// Processes that could not be ended.
    pub remaining: u32,
}

/// The processes to end.
struct Tree<'a> {
    leader: Option<Identity>,
    belongs: &'a dyn Fn(&Scan, u32) -> bool,
    /// Pid and start time of every process that was seen to belong.
    noted: HashMap<u32, u64>,
}

impl Processes {
    /// Ends a program started by [`Processes::spawn`] and everything it started. Blocks for `grace` plus a
    /// few seconds at worst; may be called when the program has ended already.
    pub fn stop_tree(&self, leader: Identity, marker: Option<&Marker>, grace: Duration) -> StopReport {
        let belongs = |scan: &Scan, pid: u32| marker.is_some_and(|marker| scan.carries(pid, marker));
        self.end(Tree::new(Some(leader), &belongs), grace)
    }

    /// Ends what a program left behind when it ended by itself. Cheap when that is nothing.
    pub fn sweep(&self, leader: Identity, marker: Option<&Marker>) -> StopReport {
        self.stop_tree(leader, marker, SWEEP_GRACE)
    }

    /// Ends what an earlier daemon of this project left behind: every process with the markers of one of its
    /// agents, except of those below the processes `keepers`, and except this daemon's own ancestors.
    pub fn sweep_leftovers(&self, project_dir: &Path, keepers: &[u32]) -> Leftovers {
        let belongs =
            |scan: &Scan, pid: u32| scan.agent_of(pid, project_dir).is_some() && !scan.is_below(pid, keepers);
        let mut tree = Tree::new(None, &belongs);
        let found = count(tree.members(&self.scan(Instant::now()), true).len());
        let remaining = if found == 0 { 0 } else { self.end(tree, LEFTOVER_GRACE).leaked };
        Leftovers { found, remaining }
    }

    /// Ends adopted strays that nobody can be named for: children of this process that it did not start and
    /// that carry no marker. Only for the end of the daemon, when no run is left.
    pub fn sweep_strays(&self) -> StopReport {
        let own = std::process::id();
        let belongs = |scan: &Scan, pid: u32| {
            let is_place = || LimitMark::of(pid).is_some_and(LimitMark::is_place);
            let stray = |stat: &os::Stat| {
                stat.parent == own && !reaper::is_registered(stat.identity()) && !is_place()
            };
            scan.by_pid.get(&pid).is_some_and(stray)
        };
        self.end(Tree::new(None, &belongs), SWEEP_GRACE)
    }

    fn end(&self, mut tree: Tree<'_>, grace: Duration) -> StopReport {
        let mut seen = reaper::collected();
        // Marks are read before TERM: afterwards a parent may be gone, and with it the line to its children.
        let mut members = tree.members(&self.scan(Instant::now()), true);
        tree.signal(&members, libc::SIGTERM);
        let deadline = Instant::now() + grace;
        while tree.remain(&members) > 0 && Instant::now() < deadline {
            reaper::wait_collected(seen, LOOK_AGAIN.min(deadline.saturating_duration_since(Instant::now())));
            seen = reaper::collected();
            // Several stops at a time may share one look; half a tick of age changes nothing.
            let recent = Instant::now().checked_sub(LOOK_AGAIN / 2).unwrap_or_else(Instant::now);
            members = tree.members(&self.scan(recent), false);
        }
        self.kill(&mut tree)
    }

    /// KILL until a look at all environments finds nothing more.
    fn kill(&self, tree: &mut Tree<'_>) -> StopReport {
        let limit = Instant::now() + KILL_LIMIT;
        let mut killed = HashSet::new();
        loop {
            let seen = reaper::collected();
            // A fork between the last look and the signal has escaped it: each round looks at everything.
            let members = tree.members(&self.scan(Instant::now()), true);
            let remain = tree.remain(&members);
            if remain == 0 || Instant::now() >= limit {
                return StopReport { leaked: count(remain), killed: count(killed.len()) };
            }
            tree.signal(&members, libc::SIGKILL);
            killed.extend(members.iter().map(os::Stat::identity));
            reaper::wait_collected(seen, LOOK_AGAIN);
        }
    }
}

impl<'a> Tree<'a> {
    fn new(leader: Option<Identity>, belongs: &'a dyn Fn(&Scan, u32) -> bool) -> Self {
        let noted = leader.iter().map(|leader| (leader.pid, leader.start_ticks)).collect();
        Self { leader, belongs, noted }
    }

    /// The living processes of the tree; they are noted for the next look. `markers` also looks for the mark
    /// (all environments are read), which the quick looks in between leave out.
    fn members(&mut self, scan: &Scan, markers: bool) -> Vec<os::Stat> {
        let mut found: HashMap<u32, os::Stat> = HashMap::new();
        loop {
            // Until nothing is added: a child may be listed before the parent that makes it a member.
            let before = found.len();
            for stat in scan.others() {
                if !found.contains_key(&stat.pid) && self.is_member(stat, scan, markers, &found) {
                    found.insert(stat.pid, *stat);
                    if self.noted.len() < NOTED_MAX {
                        self.noted.insert(stat.pid, stat.start_ticks);
                    }
                }
            }
            if found.len() == before {
                return found.into_values().collect();
            }
        }
    }

    /// How many are left. The leader counts until it was collected, even where `/proc` tells nothing.
    fn remain(&self, members: &[os::Stat]) -> usize {
        members.len().max(usize::from(self.leader.is_some_and(reaper::is_registered)))
    }

    fn is_member(&self, stat: &os::Stat, scan: &Scan, markers: bool, found: &HashMap<u32, os::Stat>) -> bool {
        // The number may have been given to a stranger meanwhile; with its start time it is one process.
        let is_noted = self.noted.get(&stat.pid) == Some(&stat.start_ticks);
        is_noted
            || found.contains_key(&stat.parent)
            || self.leads_session(stat.session, scan)
            || (markers && (self.belongs)(scan, stat.pid))
    }

    /// Whether a session was made by a process of the tree. A session's number is not given away while the
    /// session has a member; if its leader lives, its start time tells.
    fn leads_session(&self, session: u32, scan: &Scan) -> bool {
        let Some(start_ticks) = self.noted.get(&session) else { return false };
        scan.by_pid.get(&session).is_none_or(|leader| leader.start_ticks == *start_ticks)
    }

    /// The group at once where that is safe (so that no fork slips through), everyone else one by one.
    fn signal(&self, members: &[os::Stat], signal: i32) {
        let group =
            self.leader.filter(|leader| reaper::signal_group(*leader, signal)).map(|leader| leader.pid);
        for member in members.iter().filter(|member| Some(member.group) != group) {
            os::signal(member.identity(), signal);
        }
    }
}

pub(super) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
