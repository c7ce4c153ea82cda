//! A change that somebody wishes, until the disk has it: see [`crate::assembly::unwritten`].

use super::ids::{AgentId, LineageId};
use super::time::Time;
use super::{Actor, CallId, Command, Document, Journal};
use crate::agents::LogEntry;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A line of a log.
pub type Logged = (LineageId, AgentId, LogEntry);

/// A change on its way to the disk.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Unwritten {
    /// Who waits for it.
    pub call: CallId,
    /// Who wishes it.
    pub actor: Actor,
    /// What is wished.
    pub command: Command,
    /// When it was tried and with which randomness: what is written is the same each time.
    pub at: Time,
    /// See `at`.
    pub seed: u64,
    /// What must be on disk before it is in force.
    pub documents: BTreeSet<Document>,
    /// Its audit lines.
    pub lines: Vec<(Journal, Arc<[u8]>)>,
    /// What went into the logs of known agents ahead of the documents.
    pub logged: Vec<Logged>,
}
