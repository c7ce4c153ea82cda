//! What handlers that do I/O may use.

use super::process::Processes;
use crate::agents::worker_log::LogStore;
use crate::credentials::Vault;
use crate::federation::worker::Keeper;
use crate::market::worker_client::Marketplace;
use crate::workspace::worker_index::Indexer;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// A metric: name, help, kind, value.
pub type Counter = (&'static str, &'static str, &'static str, u64);

/// The means of handlers that do I/O on their connection's thread.
pub struct Host {
    /// The project's root, absolute and without links.
    pub project: PathBuf,
    /// The agents' logs.
    pub logs: Arc<LogStore>,
    /// Seals and opens credentials.
    pub vault: Arc<Vault>,
    /// For short commands such as `git diff`.
    pub processes: Arc<Processes>,
    /// Scans the codebase.
    pub indexer: Arc<Indexer>,
    /// Asks the skills marketplace.
    pub market: Marketplace,
    /// The key by which other daemons know this one.
    pub federation: Keeper,
    /// Counters of the HTTP server and the hub, known once they run.
    pub counters: OnceLock<Box<dyn Fn() -> Vec<Counter> + Send + Sync>>,
}

impl Host {
    /// Counters of the edge and the hub, for `/metrics`.
    pub fn counters(&self) -> Vec<Counter> {
        self.counters.get().map(|counters| counters()).unwrap_or_default()
    }
}
