//! What the processes of one agent hold in memory.

use super::{Identity, os};
use crate::pressure::{kilobytes, small};
use std::collections::HashSet;

const KIB: u64 = 1024;
/// Processes of one tree that are looked at; what is beyond them is not counted.
const MAX_MEMBERS: usize = 4_096;

/// The processes below one that adopts whatever there loses its parent.
#[derive(Debug, Clone)]
pub struct Tree {
    members: Vec<Identity>,
}

impl Tree {
    /// The tree in which a program runs that a keeper has started: all that lives below the keeper. `None`
    /// when the program is gone, or its keeper is this process or none.
    pub fn around(leader: Identity) -> Option<Self> {
        let keeper = os::stat(leader.pid).filter(|stat| stat.identity() == leader)?.parent;
        (keeper > 1 && keeper != std::process::id()).then(|| Self::below(keeper))
    }

    /// All that lives below a process, without that itself.
    pub fn below(top: u32) -> Self {
        let members = listed(top).unwrap_or_else(|| searched(top));
        Self { members }
    }

    /// Bytes that its processes hold, at most: what several share is counted for each. Cheap.
    pub fn held_at_most(&self) -> u64 {
        self.sum(|pid| {
            let status = small(format!("/proc/{pid}/status"));
            Some(kilobytes(&status, "VmRSS:")? + kilobytes(&status, "VmSwap:").unwrap_or(0))
        })
    }

    /// Bytes that its processes hold: of what several share each has its part. Walks the pages of all; where
    /// the kernel does not tell, as [`Tree::held_at_most`].
    pub fn held(&self) -> u64 {
        let mut is_told = true;
        let sum = self.sum(|pid| {
            let rollup = small(format!("/proc/{pid}/smaps_rollup"));
            let held = kilobytes(&rollup, "Pss:");
            // One that has just ended tells nothing, and holds nothing.
            is_told &= held.is_some() || os::stat(pid).is_none_or(|stat| stat.is_gone());
            Some(held? + kilobytes(&rollup, "SwapPss:").unwrap_or(0))
        });
        if is_told { sum } else { self.held_at_most() }
    }

    fn sum(&self, mut kilobytes_of: impl FnMut(u32) -> Option<u64>) -> u64 {
        self.members.iter().filter_map(|member| kilobytes_of(member.pid)).sum::<u64>() * KIB
    }
}

/// By the kernel's lists of children; `None` where it keeps none.
fn listed(top: u32) -> Option<Vec<Identity>> {
    let mut open = os::children(top)?;
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    while let Some(pid) = open.pop() {
        if seen.len() >= MAX_MEMBERS || !seen.insert(pid) {
            continue;
        }
        open.extend(os::children(pid).unwrap_or_default());
        found.extend(os::stat(pid).filter(|stat| !stat.is_gone()).map(|stat| stat.identity()));
    }
    Some(found)
}

/// By the table of all processes.
fn searched(top: u32) -> Vec<Identity> {
    let all = os::all();
    let mut inside = HashSet::from([top]);
    let mut found = Vec::new();
    // A child may stand before its parent: until nothing is added.
    loop {
        let before = found.len();
        for stat in &all {
            let is_new =
                inside.contains(&stat.parent) && found.len() < MAX_MEMBERS && inside.insert(stat.pid);
            found.extend((is_new && !stat.is_gone()).then(|| stat.identity()));
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    /// A shell that has a shell of its own, which holds so many megabytes and says when it does.
    fn holder(megabytes: usize) -> std::process::Child {
        let hold = format!("x=$(head -c {} /dev/zero | tr '\\0' x); echo held; read y", megabytes << 20);
        let mut child = Command::new("sh")
            .args(["-c", "sh -c \"$1\"; :", "sh", &hold])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut word = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
        assert_eq!(&word, b"held\n");
        child
    }

    #[test]
    fn memory_of_children_counts_by_both_ways_and_both_ways_find_the_same() {
        let mut child = holder(40);
        let top = child.id();
        let (tree, other) = (Tree::below(top), Tree { members: searched(top) });
        let pids = |tree: &Tree| tree.members.iter().map(|member| member.pid).collect::<HashSet<_>>();
        assert_eq!(pids(&tree), pids(&other));
        assert!(!tree.members.is_empty() && !pids(&tree).contains(&top));
        let (least, most) = (tree.held(), tree.held_at_most());
        assert!(least > 40 << 20 && least < 200 << 20 && most >= least, "{least} of {most}");
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn who_is_gone_or_not_kept_has_no_tree() {
        assert!(Tree::around(Identity { pid: u32::MAX - 7, start_ticks: 1 }).is_none());
        let mut child = holder(1);
        let ticks = os::stat(child.id()).unwrap().start_ticks;
        assert!(
            Tree::around(Identity { pid: child.id(), start_ticks: ticks }).is_none(),
            "it is our own child"
        );
        assert!(Tree::around(Identity { pid: child.id(), start_ticks: ticks + 1 }).is_none(), "another one");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
