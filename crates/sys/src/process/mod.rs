//! Owning processes: every program the daemon starts, and whatever those programs leave behind.
//!
//! Each program runs in a session of its own, with two marker variables in its environment and a mark among
//! its resource limits (`mark.rs`). The daemon is a child subreaper: a process that loses its parent becomes
//! the daemon's own child instead of init's. One thread does all waiting, so that neither a child nor an
//! adopted stray stays a zombie.
//!
//! **Invariant:** a signal goes only to a process whose start time was checked after the kernel had been
//! asked for a handle on it; a recycled process id is never signalled.
//!
//! **Invariant:** nothing else in this program waits for children (`std`'s `Child::wait` is never called):
//! it would race with the reaper.
//!
//! What only Linux has (`/proc`, the subreaper, pidfds) stands in `os_linux.rs`. Elsewhere a stop reaches the
//! process group and no further.

mod capture;
mod keep;
mod mark;
mod nice;
mod origin;
#[cfg_attr(target_os = "linux", path = "os_linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "os_other.rs")]
mod os;
mod pipe;
mod pty;
mod reaper;
mod scan;
mod spawn;
mod stop;
mod tree;
mod victim;

pub use capture::Captured;
pub use keep::{
    KEEPER_LOG, KEEPER_SUB_COMMAND, ask_to_end, begin_keeping, freeze_below, identity_of, kill, wait_gone,
};
pub use nice::{let_answers_go_first, stand_back};
pub use origin::{Origin, know_keeper, origin};
pub use pipe::{Progress, Sink, Source, Wake};
pub use pty::{OnTerminal, Size, resize};
pub use spawn::{PLACE_VARIABLE, Running, Spec, Stdin, find_program, start_as_place};
pub use stop::{Leftovers, STOP_GRACE, StopReport};
pub use tree::Tree;
pub use victim::go_before_daemon;

use scan::Scan;
use std::any::Any;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use svc_base::ids::AgentId;

/// Makes something ready before a program starts, on the thread that starts it; what it returns is dropped
/// when the program's run is over.
pub type Prepare = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

/// The variable that marks an agent's processes with its id.
pub const AGENT_ID_VARIABLE: &str = "SVC_AGENT_ID";
/// The variable that marks an agent's processes with the project's root.
pub const PROJECT_DIR_VARIABLE: &str = "SVC_PROJECT_DIR";

/// A process, told apart from a later one with the same id by its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    pub pid: u32,
    /// Clock ticks from boot to its start (field 22 of `/proc/<pid>/stat`); 0 where the system tells none.
    pub start_ticks: u64,
}

/// What marks the processes of one agent; they inherit it as environment variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    pub agent: AgentId,
    /// The project's root, absolute.
    pub project_dir: PathBuf,
}

/// How a process ended. Exactly one of the two is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// The owner of all child processes. Its reaper thread ends with it.
pub struct Processes {
    /// Shared between concurrent stops, so that fifty of them do not read `/proc` fifty times.
    last_scan: Mutex<Option<Arc<Scan>>>,
    _reaper: reaper::Reaper,
}

impl Processes {
    /// Makes this process a child subreaper and starts the reaper thread.
    ///
    /// Errors: the system refuses either.
    pub fn start() -> io::Result<Arc<Self>> {
        os::become_subreaper()?;
        origin::note_limit();
        Ok(Arc::new(Self { last_scan: Mutex::new(None), _reaper: reaper::Reaper::start()? }))
    }

    /// Whether this very process still runs. A zombie does not.
    pub fn is_alive(&self, identity: Identity) -> bool {
        os::stat(identity.pid).is_some_and(|stat| stat.identity() == identity && !stat.is_gone())
    }

    /// How many adopted strays belong to no agent that `lives`: children of this process that it did not
    /// start, and that no run will end. Reads a few small files for each child.
    pub fn strays(&self, project_dir: &std::path::Path, lives: impl Fn(AgentId) -> bool) -> usize {
        let own = std::process::id();
        let adopted = os::own_adopted().unwrap_or_else(|| os::all().iter().map(|stat| stat.pid).collect());
        let is_stray = |pid: &u32| {
            // One that is ending has lost its mark already.
            let is_there = |stat: &os::Stat| stat.parent == own && !stat.is_gone() && !stat.is_ending();
            let Some(stat) = os::stat(*pid).filter(is_there) else { return false };
            !reaper::is_registered(stat.identity())
                && !mark::LimitMark::of(*pid).is_some_and(|mark| mark.is_tool() || mark.is_place())
                && !scan::agent_of_process(*pid, project_dir).is_some_and(&lives)
                // One that has ended and was collected between these looks is in no table any more.
                && os::stat(*pid).filter(is_there).is_some_and(|again| again.identity() == stat.identity())
        };
        adopted.iter().filter(|pid| is_stray(pid)).count()
    }

    /// All processes, as seen by a look that began at `not_before` or later.
    fn scan(&self, not_before: Instant) -> Arc<Scan> {
        let mut last = self.last_scan.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scan) = last.as_ref().filter(|scan| scan.begun >= not_before) {
            return Arc::clone(scan);
        }
        let scan = Arc::new(Scan::take());
        *last = Some(Arc::clone(&scan));
        scan
    }
}
