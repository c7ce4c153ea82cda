//! What the threads of a run tell the core, and what stands in an agent's log.

use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::providers::Activity;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::sync::Arc;
pub use svc_base::packed::Packed;

/// A permit for one batch in flight. It goes back to its source when the last clone is dropped, which
/// is after the WebSocket hub has taken the batch: a flood delays itself and nobody else.
#[derive(Clone)]
pub struct Credit(#[allow(dead_code, reason = "held for its drop")] Arc<dyn Any + Send + Sync>);

impl Credit {
    /// Wraps whatever gives the permit back when dropped.
    pub fn new(permit: impl Any + Send + Sync) -> Self {
        Self(Arc::new(permit))
    }

    /// A permit that nobody waits for.
    pub fn free() -> Self {
        Self::new(())
    }
}

impl std::fmt::Debug for Credit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credit")
    }
}

/// At most this many activities travel in one batch.
pub const BATCH_MAX: usize = 256;

/// Output of one run: already logged, already encoded for the WebSocket clients.
#[derive(Debug, Clone)]
pub struct Batch {
    /// What happened, in order; at most [`BATCH_MAX`].
    pub activities: Vec<Activity>,
    /// `agent:output` messages, in order: JSON objects **without their closing brace**, to which the hub
    /// appends `,"seq":N,"ts":"..."}`.
    pub frames: Packed,
    /// The number of its last deed within the run, from 1: what comes after it has a larger one, also from
    /// the threads of a later daemon.
    pub upto: u64,
    /// Given back when the hub has taken the frames.
    pub credit: Credit,
}

/// How the end of a run came to be known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keeper {
    /// Its keeper has told it.
    #[default]
    Told,
    /// Its keeper has ended it, for no daemon came for too long.
    Orphaned,
    /// Its keeper is gone, and what it kept was ended.
    Gone,
}

/// A fact from the threads of a run.
#[derive(Debug, Clone)]
pub enum RunReport {
    Started {
        /// Its process id, which also is its process group and session.
        pid: u32,
        /// Its start time in clock ticks since boot, so that a reused pid is never mistaken for it.
        start_ticks: u64,
    },
    /// The process could not be started.
    StartFailed {
        /// Names the program and the reason.
        error: String,
    },
    Output(Batch),
    /// The process and every descendant are gone, and all output has been reported before this.
    Exited {
        /// Exit code, if it exited.
        code: Option<i32>,
        /// Signal number, if a signal ended it.
        signal: Option<i32>,
        /// Whether signals were sent from here before it ended: because it was to stop, or because it did not
        /// end when it was told to.
        signalled: bool,
        /// Its last lines of standard error (at most 4 KiB).
        stderr_tail: String,
        /// Descendants that could not be ended. Anything but 0 is a bug and shown in `/api/health`.
        leaked: u32,
        /// How that came to be known.
        keeper: Keeper,
    },
    /// The next daemon could go on from here. Answered by an order once the state of this moment is on disk.
    Checkpoint(u64),
    /// All that happened while no daemon was there has been reported.
    CaughtUp,
    /// The run is left to its keeper and the next daemon: nothing follows.
    Left,
    /// Whether a message reached the program's standard input.
    Said {
        /// As in the order.
        message_id: u64,
        /// `false`: the program takes none, or its input is closed.
        delivered: bool,
    },
}

/// One line of an agent's log, as stored and as `GET /api/agents/:id/log` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogRecord {
    /// Its number within the lineage, from 1, without gaps.
    pub n: u64,
    /// When it was written.
    #[serde(with = "crate::core::time::rfc3339")]
    pub ts: Time,
    /// Which life of the lineage it belongs to.
    pub agent_id: AgentId,
    #[serde(flatten)]
    pub entry: LogEntry,
}

/// What a log line says. In JSON `type` is the activity's own type, or `user`, or `life`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LogEntry {
    /// Something the agent did.
    Activity(Activity),
    Other(Other),
}

impl LogEntry {
    /// A message to the agent.
    pub fn user(text: impl Into<String>) -> Self {
        Self::Other(Other::User { text: text.into() })
    }

    /// The daemon did something with the agent.
    pub fn life(text: impl Into<String>) -> Self {
        Self::Other(Other::Life { text: text.into() })
    }
}

/// Log lines that are not of the agent's own doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Other {
    /// A message to the agent.
    User { text: String },
    /// The daemon started, ended or rotated it.
    Life {
        /// For people.
        text: String,
    },
}
