//! What handlers and threads of features may use of the assembly: nothing else of it is named below.

use super::detect::Programs;
use super::door::Desk;
use super::fleet::Fleet;
pub use super::state_thread::Core;
use crate::agents::worker_log::LogStore;
use crate::console::worker_sessions::Sessions;
use crate::core::ids::AgentId;
use crate::credentials::Vault;
use crate::federation::worker::Keeper;
use crate::market::worker_client::Marketplace;
use crate::phones::worker_door;
use crate::record::worker_tape::Recorder;
use crate::snapshots::worker::Snapshots;
use crate::workspace::worker_index::Indexer;
use crate::workspace::worker_map::Mapper;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use svc_sys::process::Processes;

/// A count of strays is good for this long: whoever asks often need not read the process table often.
const COUNTED_FOR: Duration = Duration::from_millis(200);

/// A metric: name, help, kind, value.
pub type Counter = (&'static str, &'static str, &'static str, u64);

/// The means of handlers that do I/O on their connection's thread.
pub struct Host {
    /// The door to all projects, for a daemon that has a place among them.
    pub desk: Option<Arc<Desk>>,
    /// Reads what the other projects of this user have told.
    pub fleet: Fleet,
    /// The core, for what is to be known there before a wish.
    pub core: Core,
    /// The project's root, absolute and without links.
    pub project: PathBuf,
    /// The agents' logs.
    pub logs: Arc<LogStore>,
    /// The browsers that have proven to be a person's.
    pub console: Arc<Sessions>,
    /// Where phones call.
    pub phones: Arc<worker_door::Door>,
    /// Seals and opens credentials.
    pub vault: Arc<Vault>,
    /// For short commands such as `git diff`.
    pub processes: Arc<Processes>,
    /// Scans the codebase.
    pub indexer: Arc<Indexer>,
    /// Knows which files a task is about.
    pub map: Arc<Mapper>,
    /// Asks the skills marketplace.
    pub market: Marketplace,
    /// The key by which other daemons know this one.
    pub federation: Keeper,
    /// Wrong signatures of messages from outside.
    pub inlets: crate::inlets::worker::Brake,
    /// The programs of the providers.
    pub programs: Arc<Programs>,
    /// What stood in the folders of agents.
    pub snapshots: Arc<Snapshots>,
    /// What the flight recorder does; `None` where it is switched off.
    pub recorder: Option<Arc<Recorder>>,
    /// Counters of the HTTP server and the hub, known once they run.
    pub counters: OnceLock<Box<dyn Fn() -> Vec<Counter> + Send + Sync>>,
    /// The strays that were counted last, and when.
    pub strays: Mutex<Option<(Instant, usize)>>,
}

impl Host {
    /// How many adopted processes belong to no living agent. Counted at most once in [`COUNTED_FOR`].
    pub fn strays(&self, lives: impl Fn(AgentId) -> bool) -> usize {
        let mut last = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = last.filter(|(at, _)| at.elapsed() < COUNTED_FOR) {
            return count;
        }
        let count = self.processes.strays(&self.project, lives);
        *last = Some((Instant::now(), count));
        count
    }

    /// The folder of this program's own settings of the user.
    pub fn user_folder(&self) -> Option<PathBuf> {
        crate::agents::worker::user_folder()
    }

    /// Counters of the edge and the hub, for `/metrics`.
    pub fn counters(&self) -> Vec<Counter> {
        self.counters.get().map(|counters| counters()).unwrap_or_default()
    }
}
