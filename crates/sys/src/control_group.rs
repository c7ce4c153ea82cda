//! Control groups of Linux, version 2: one for each agent, where this program may make them.
//!
//! ```text
//! what was delegated (systemd: Delegate=yes)
//! ├── svc-daemon               the daemon and its keepers
//! └── svc-agent-ID-PID         the program of one agent, and all that it starts
//! ```
//! A group that hands controllers on has no processes of its own: so the daemon moves one down, which it does
//! only when nobody else is in its group.

use crate::pressure::{CGROUP_ROOT, small};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use svc_base::ids::AgentId;

/// The group of the daemon and its keepers.
const OWN: &str = "svc-daemon";
/// How the names of the groups of agents begin.
const AGENTS: &str = "svc-agent-";

/// Makes groups for agents possible. For the daemon, before it starts anything.
///
/// Errors: a sentence, why there are none; agents do without.
pub fn prepare() -> Result<(), String> {
    prepare_in(&own().ok_or("this system shows no control groups of version 2")?)
}

fn prepare_in(own: &Path) -> Result<(), String> {
    let shown = own.display();
    if !has(own, "cgroup.controllers", "memory") && !own.ends_with(OWN) {
        return Err(format!("{shown} has no say over memory; systemd gives it with Delegate=yes"));
    }
    let refused = |error: io::Error| format!("{shown} is not to be changed by this user: {error}");
    let hand_on = |group: &Path| put(group, "cgroup.subtree_control", "+memory");
    if let Some(parent) = own.parent().filter(|_| own.ends_with(OWN)) {
        // It was put there, by systemd (DelegateSubgroup) or by whoever has restarted it.
        hand_on(parent).map_err(refused)?;
        sweep(parent);
        return Ok(());
    }
    if is_root(own) {
        hand_on(own).map_err(refused)?;
        sweep(own);
        return Ok(());
    }
    if own.extension().is_some_and(|kind| kind == "service") {
        // The next start of the service would be refused for what this one has left there.
        return Err(format!("{shown} is a service without DelegateSubgroup={OWN} (systemd 254)"));
    }
    let pid = std::process::id().to_string();
    if small(own.join("cgroup.procs")).trim() != pid {
        return Err(format!(
            "other processes than the daemon are in {shown}; systemd-run --user --scope -p Delegate=yes svc start \
             gives it one of its own"
        ));
    }
    let leaf = own.join(OWN);
    fs::create_dir(&leaf).map_err(refused)?;
    let moved = put(&leaf, "cgroup.procs", &pid).and_then(|()| hand_on(own));
    moved.map_err(|error| {
        // As it was.
        let _ = put(own, "cgroup.procs", &pid);
        let _ = fs::remove_dir(&leaf);
        refused(error)
    })
}

/// Removes the groups of agents whose keepers were killed. One with processes stays, for the kernel refuses.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(AGENTS)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The group of this process.
fn own() -> Option<PathBuf> {
    own_below(Path::new(CGROUP_ROOT), &small("/proc/self/cgroup"))
}

fn own_below(root: &Path, own: &str) -> Option<PathBuf> {
    let path = Path::new(own.lines().find_map(|line| line.strip_prefix("0::/"))?);
    // One outside of what this process is shown begins with `..`.
    let is_inside = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let folder = root.join(path);
    (is_inside && folder.join("cgroup.controllers").exists()).then_some(folder)
}

/// The root of all groups may have processes and groups, too.
fn is_root(group: &Path) -> bool {
    !group.join("cgroup.type").exists()
}

/// Where agents' groups are, if this process is where the daemon and its keepers are.
fn parent_of_agents(own: &Path) -> Option<&Path> {
    let parent = if own.ends_with(OWN) { own.parent()? } else { Some(own).filter(|own| is_root(own))? };
    has(parent, "cgroup.subtree_control", "memory").then_some(parent)
}

fn has(group: &Path, file: &str, word: &str) -> bool {
    small(group.join(file)).split_ascii_whitespace().any(|one| one == word)
}

/// Writes to a file of the kernel's in one piece.
fn put(group: &Path, file: &str, text: &str) -> io::Result<()> {
    io::Write::write_all(&mut File::options().write(true).open(group.join(file))?, text.as_bytes())
}

/// The group of one agent. It is removed when this is dropped, if all its processes are gone.
#[derive(Debug)]
pub struct Group {
    folder: PathBuf,
    procs: File,
}

impl Group {
    /// Makes one for what this process, a keeper, is to start; `None` where none can be had.
    pub fn make(agent: AgentId) -> Option<Self> {
        Self::make_in(parent_of_agents(&own()?)?, agent)
    }

    fn make_in(parent: &Path, agent: AgentId) -> Option<Self> {
        let folder = parent.join(format!("{AGENTS}{agent}-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let procs = File::options().write(true).open(folder.join("cgroup.procs"));
        // It would be in nobody's way, but nobody's either.
        let procs = procs.inspect_err(|_| drop(fs::remove_dir(&folder))).ok()?;
        Some(Self { folder, procs })
    }

    /// The file to which a process writes `0` to be in it.
    pub(crate) fn door(&self) -> &File {
        &self.procs
    }

    /// Has the kernel end all its processes at once when they need more than this and nothing can be had back
    /// from them; 0 for no ceiling. A kernel that refuses leaves it to others.
    pub fn end_above(&self, bytes: u64) {
        let most = if bytes == 0 { "max".to_owned() } else { bytes.to_string() };
        let _ = put(&self.folder, "memory.oom.group", "1");
        let _ = put(&self.folder, "memory.max", &most);
    }

    /// Bytes that its processes hold, what is swapped out too, without what was only read of files; `None`
    /// when it is gone or empty.
    pub fn held(&self) -> Option<u64> {
        let number = |file: &str| small(self.folder.join(file)).trim().parse::<u64>().ok();
        let used = number("memory.current").filter(|used| *used > 0)?;
        let stat = small(self.folder.join("memory.stat"));
        let spare = ["active_file ", "inactive_file ", "slab_reclaimable "].map(|name| told(&stat, name));
        let swapped = number("memory.swap.current").unwrap_or(0);
        Some(used.saturating_sub(spare.iter().sum()).saturating_add(swapped))
    }

    /// Lets its processes stand still, or go on; whether this kernel can.
    pub fn freeze(&self, is_on: bool) -> bool {
        put(&self.folder, "cgroup.freeze", if is_on { "1" } else { "0" }).is_ok()
    }

    /// If the kernel has ended them at their ceiling: what they held.
    pub fn was_ended(&self) -> Option<u64> {
        let events = small(self.folder.join("memory.events"));
        // One that was chosen because the whole machine had none left has not been at its own ceiling.
        let is_so = told(&events, "oom ") > 0 && told(&events, "oom_kill ") > 0;
        let most = ["memory.peak", "memory.max"].map(|file| small(self.folder.join(file)).trim().parse());
        is_so.then(|| most.into_iter().find_map(Result::ok).unwrap_or(0))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // With processes it stays; the next daemon looks again.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The number behind a name at the beginning of a line.
fn told(text: &str, name: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("svc-groups-{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("a/svc-daemon")).unwrap();
        for group in ["", "a", "a/svc-daemon"] {
            fs::write(root.join(group).join("cgroup.controllers"), "cpu memory\n").unwrap();
        }
        fs::write(root.join("a/cgroup.type"), "domain\n").unwrap();
        fs::write(root.join("a/svc-daemon/cgroup.type"), "domain\n").unwrap();
        root
    }

    #[test]
    fn agents_have_groups_only_beside_the_one_of_the_daemon_and_only_with_a_say_over_memory() {
        let root = root("place");
        let own = |text: &str| own_below(&root, text);
        assert_eq!(own("3:memory:/a\n0::/a/svc-daemon\n"), Some(root.join("a/svc-daemon")));
        assert_eq!((own("0::/../a"), own("0::/b"), own("3:memory:/a\n")), (None, None, None));
        let leaf = root.join("a/svc-daemon");
        assert_eq!(parent_of_agents(&leaf), None, "memory is not handed on");
        fs::write(root.join("a/cgroup.subtree_control"), "memory\n").unwrap();
        assert_eq!(parent_of_agents(&leaf), Some(root.join("a").as_path()));
        assert_eq!(parent_of_agents(&root.join("a")), None, "a group that may have other processes");
        fs::write(root.join("cgroup.subtree_control"), "memory\n").unwrap();
        assert_eq!(parent_of_agents(&root), Some(root.as_path()));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_group_is_left_alone_that_others_are_in_or_that_has_to_be_as_it_was() {
        let root = root("alone");
        let group = root.join("a");
        let why = |group: &Path| prepare_in(group).unwrap_err();
        fs::write(group.join("cgroup.procs"), format!("1\n{}\n", std::process::id())).unwrap();
        assert!(why(&group).contains("other processes"), "{}", why(&group));
        fs::write(group.join("cgroup.controllers"), "cpu\n").unwrap();
        assert!(why(&group).contains("Delegate=yes"), "{}", why(&group));
        let service = root.join("svc@x.service");
        fs::create_dir(&service).unwrap();
        fs::write(service.join("cgroup.controllers"), "memory\n").unwrap();
        fs::write(service.join("cgroup.type"), "domain\n").unwrap();
        assert!(why(&service).contains("DelegateSubgroup=svc-daemon"), "{}", why(&service));
        assert!(!service.join(OWN).exists() && !group.join("cgroup.subtree_control").exists());
        // Where it was put it hands memory on, and takes away what keepers that were killed have left.
        fs::write(group.join("cgroup.subtree_control"), "").unwrap();
        fs::create_dir(group.join("svc-agent-1-2")).unwrap();
        prepare_in(&group.join(OWN)).unwrap();
        assert_eq!(fs::read_to_string(group.join("cgroup.subtree_control")).unwrap(), "+memory");
        assert!(!group.join("svc-agent-1-2").exists());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_group_tells_what_cannot_be_had_back_and_why_it_ended() {
        let root = root("held");
        assert!(Group::make_in(&root.join("a"), AgentId(7)).is_none(), "a folder that is no group");
        let folder = root.join("a/svc-agent-x");
        fs::create_dir(&folder).unwrap();
        let write = |file: &str, text: &str| fs::write(folder.join(file), text).unwrap();
        write("cgroup.procs", "");
        let procs = File::open(folder.join("cgroup.procs")).unwrap();
        let group = Group { folder: folder.clone(), procs };
        assert_eq!((group.held(), group.was_ended()), (None, None));
        write("memory.current", "1000\n");
        write("memory.swap.current", "50\n");
        write("memory.stat", "anon 700\ninactive_file 100\nactive_file 40\nslab_reclaimable 10\n");
        assert_eq!(group.held(), Some(900));
        write("memory.max", "1000\n");
        write("memory.events", "low 0\nmax 9\noom 0\noom_kill 1\n");
        assert_eq!(group.was_ended(), None, "for want of memory of the machine");
        write("memory.events", "low 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 1\n");
        assert_eq!(group.was_ended(), Some(1000));
        write("memory.peak", "1004\n");
        assert_eq!(group.was_ended(), Some(1004));
        write("memory.max", "");
        group.end_above(77);
        assert_eq!(fs::read_to_string(folder.join("memory.max")).unwrap(), "77");
        fs::remove_dir_all(&root).unwrap();
    }
}
