//! The mark that cannot be emptied: a resource limit that the kernel no longer enforces.
//!
//! A process can leave its parents, its session and its environment, but not its resource limits: they are
//! inherited over fork and exec, and a program without privileges can lower them, never raise them. Linux
//! has had no use for `RLIMIT_LOCKS` since 2.4.25 and still keeps and shows it, so whom a process works for
//! is written there. It outlives the daemon: the next one finds what this one has left.
//!
//! Source: getrlimit(2), proc(5) `/proc/PID/limits`.

use super::{Marker, os};
use sha2::{Digest, Sha256};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use svc_base::ids::AgentId;

/// The topmost byte of each mark. A limit that somebody has set for a reason is unlikely to be that high, and
/// no limit at all is all ones.
const SIGN: u64 = 0x5c;

/// Whether this process has started anything that makes a place.
static HAS_PLACES: AtomicBool = AtomicBool::new(false);

/// Whom a process works for, as its limit tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitMark(u64);

impl LimitMark {
    /// The mark of an agent's processes; without `marker`, that of tools of our own.
    pub fn new(marker: Option<&Marker>) -> Self {
        let who =
            marker.map_or(0, |marker| (project_bits(&marker.project_dir) << 32) | u64::from(marker.agent.0));
        Self((SIGN << 56) | who)
    }

    /// The mark of what outlives us and is no agent's of ours, as a container: lower than any agent's, so
    /// that a process of one can take it.
    pub fn of_place() -> Self {
        Self((SIGN << 56) | (1 << 32))
    }

    /// [`LimitMark::of_place`], for one that this process is about to have.
    pub fn for_place() -> Self {
        HAS_PLACES.store(true, Ordering::Relaxed);
        Self::of_place()
    }

    /// Whether it is that of a place, and this process has any: whoever has none leaves no way out to a
    /// program that gives itself this mark.
    pub fn is_place(self) -> bool {
        self == Self::of_place() && HAS_PLACES.load(Ordering::Relaxed)
    }

    /// The mark of a process; `None` when it has none, is gone, or the system tells none.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&os::limits(pid))
    }

    /// What is to be set as the limit.
    pub fn limit(self) -> u64 {
        self.0
    }

    /// The agent, if it is one of this project. Projects are told apart by 24 bits of a digest.
    pub fn agent(self, project_dir: &Path) -> Option<AgentId> {
        let agent = u32::try_from(self.0 & u64::from(u32::MAX)).ok().filter(|agent| *agent != 0)?;
        ((self.0 >> 32) & 0x00ff_ffff == project_bits(project_dir)).then_some(AgentId(agent))
    }

    /// Whether it is the mark of a tool of our own.
    pub fn is_tool(self) -> bool {
        self.0 == Self::new(None).0
    }

    /// The hard limit in the line `Max file locks <soft> <hard> locks`.
    fn parse(limits: &str) -> Option<Self> {
        let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks "))?;
        let limit: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
        (limit >> 56 == SIGN).then_some(Self(limit))
    }
}

fn project_bits(project_dir: &Path) -> u64 {
    let digest = Sha256::digest(project_dir.as_os_str().as_bytes());
    digest.iter().take(3).fold(0, |bits, byte| (bits << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_the_agent_of_one_project_alone() {
        let marker = Marker { agent: AgentId(0x00ab_cdef), project_dir: "/srv/one".into() };
        let mark = LimitMark::new(Some(&marker));
        let line =
            format!("Max open files 64 64 files\nMax file locks            {0} {0} locks\n", mark.limit());
        assert_eq!(LimitMark::parse(&line), Some(mark));
        assert_eq!(mark.agent(Path::new("/srv/one")), Some(AgentId(0x00ab_cdef)));
        assert_eq!(mark.agent(Path::new("/srv/two")), None);
        assert!(!mark.is_tool() && !mark.is_place());
        assert!(!LimitMark::of_place().is_place(), "nobody has one yet");
        let place = LimitMark::for_place();
        assert!(place.is_place() && !place.is_tool() && place.agent(Path::new("/srv/one")).is_none());
        assert!(place.limit() < mark.limit());
    }

    #[test]
    fn a_limit_of_somebody_else_is_no_mark() {
        for limit in ["unlimited", "0", "1024", "9223372036854775807"] {
            assert_eq!(LimitMark::parse(&format!("Max file locks   {limit} {limit} locks")), None, "{limit}");
        }
        assert_eq!(LimitMark::parse(""), None);
        let tool = LimitMark::new(None);
        assert!(tool.is_tool() && tool.agent(Path::new("/")).is_none());
    }
}
