//! One look at all processes.

use super::mark::LimitMark;
use super::{AGENT_ID_VARIABLE, Marker, PROJECT_DIR_VARIABLE, os};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;
use svc_base::ids::AgentId;

/// All processes at one time.
pub(super) struct Scan {
    /// Anything older than this may have been missed.
    pub begun: Instant,
    pub by_pid: HashMap<u32, os::Stat>,
    /// This process and its ancestors, which are never ended by us.
    protected: HashSet<u32>,
    marks: OnceLock<HashMap<u32, Marks>>,
}

/// What tells whom a process works for.
struct Marks {
    environ: Option<Mark>,
    /// Its limit, which stays when the environment is emptied.
    limit: Option<LimitMark>,
}

/// The marker variables found in a process's environment.
struct Mark {
    agent: AgentId,
    project_dir: Option<Vec<u8>>,
}

impl Scan {
    /// Reads the whole table. This process and those above it are protected: no sweep ends them.
    pub fn take() -> Self {
        let begun = Instant::now();
        let by_pid: HashMap<u32, os::Stat> = os::all().into_iter().map(|stat| (stat.pid, stat)).collect();
        // The daemon itself may have been started by an agent, and carry its marks.
        let mut protected = HashSet::from([0, 1]);
        let mut pid = std::process::id();
        while protected.insert(pid) {
            pid = by_pid.get(&pid).map_or(0, |stat| stat.parent);
        }
        Self { begun, by_pid, protected, marks: OnceLock::new() }
    }

    /// Those that run and may be ended.
    pub fn others(&self) -> impl Iterator<Item = &os::Stat> {
        self.by_pid.values().filter(|stat| !stat.is_gone() && !self.protected.contains(&stat.pid))
    }

    /// Whether a process carries this marker. A process that has dropped the project's variable but kept
    /// the agent's is still the agent's.
    pub fn carries(&self, pid: u32, marker: &Marker) -> bool {
        self.marks().get(&pid).is_some_and(|marks| marks.are(marker))
    }

    /// The agent of a process that carries the marker of some agent of this project.
    pub fn agent_of(&self, pid: u32, project_dir: &Path) -> Option<AgentId> {
        self.marks().get(&pid)?.agent(project_dir)
    }

    /// Environments and limits are read only when asked for, once per scan.
    fn marks(&self) -> &HashMap<u32, Marks> {
        self.marks
            .get_or_init(|| self.others().filter_map(|stat| Some((stat.pid, Marks::of(stat.pid)?))).collect())
    }
}

/// Whether an environment names an agent, of whatever project and however written.
pub fn is_marked(environ: &[u8]) -> bool {
    environ.split(|byte| *byte == 0).any(|entry| {
        entry.strip_prefix(AGENT_ID_VARIABLE.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    })
}

/// The agent that an environment names, if it names this project too.
pub fn marked_agent(environ: &[u8], project_dir: &Path) -> Option<AgentId> {
    let mark = Mark::parse(environ)?;
    (mark.project_dir.as_deref() == Some(project_dir.as_os_str().as_bytes())).then_some(mark.agent)
}

/// The agent that a process works for, by its environment or its limit, if it is one of this project.
pub fn agent_of_process(pid: u32, project_dir: &Path) -> Option<AgentId> {
    Marks::of(pid)?.agent(project_dir)
}

/// Whether a process beside this one that was started at `ticks` or later carries this marker.
pub fn carried_since(marker: &Marker, ticks: u64) -> bool {
    let own = std::process::id();
    let is_later = |stat: &os::Stat| stat.start_ticks >= ticks && stat.pid != own && !stat.is_gone();
    os::all()
        .iter()
        .filter(|stat| is_later(stat))
        .any(|stat| Marks::of(stat.pid).is_some_and(|marks| marks.are(marker)))
}

impl Marks {
    fn of(pid: u32) -> Option<Self> {
        let marks = Self { environ: Mark::parse(&os::environ(pid)), limit: LimitMark::of(pid) };
        (marks.environ.is_some() || marks.limit.is_some()).then_some(marks)
    }

    fn are(&self, marker: &Marker) -> bool {
        let dir = marker.project_dir.as_os_str().as_bytes();
        let by_environ = self.environ.as_ref().is_some_and(|mark| {
            mark.agent == marker.agent && mark.project_dir.as_ref().is_none_or(|found| found == dir)
        });
        by_environ || self.limit.is_some_and(|mark| mark == LimitMark::new(Some(marker)))
    }

    /// The limit first: the environment is chosen by whoever starts a program.
    fn agent(&self, project_dir: &Path) -> Option<AgentId> {
        let dir = Some(project_dir.as_os_str().as_bytes());
        let by_environ = || self.environ.as_ref().filter(|mark| mark.project_dir.as_deref() == dir);
        self.limit.and_then(|mark| mark.agent(project_dir)).or_else(|| by_environ().map(|mark| mark.agent))
    }
}

impl Mark {
    fn parse(environ: &[u8]) -> Option<Self> {
        let value = |name: &str| {
            environ
                .split(|byte| *byte == 0)
                .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        };
        let agent = std::str::from_utf8(value(AGENT_ID_VARIABLE)?).ok()?.parse().ok()?;
        Some(Self { agent, project_dir: value(PROJECT_DIR_VARIABLE).map(<[u8]>::to_vec) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_a_whole_variable() {
        let agent = |environ: &[u8]| Mark::parse(environ).map(|mark| mark.agent);
        assert_eq!(agent(b"A=1\0SVC_AGENT_ID=000000ab\0B=2"), Some(AgentId(0xab)));
        assert_eq!(agent(b"XSVC_AGENT_ID=000000ab"), None);
        assert_eq!(agent(b"SVC_AGENT_ID_2=000000ab"), None);
        assert_eq!(agent(b"SVC_AGENT_ID=000000abc"), None);
        assert_eq!(agent(b""), None);
    }

    #[test]
    fn this_process_and_its_ancestors_are_protected() {
        let scan = Scan::take();
        let own = std::process::id();
        assert!(scan.others().all(|stat| stat.pid != own && stat.pid != 1));
        let parent = scan.by_pid.get(&own).map(|stat| stat.parent);
        assert!(scan.others().all(|stat| Some(stat.pid) != parent));
    }
}
