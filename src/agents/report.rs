//! What the threads of a run tell the core, one-off jobs, and what stands in an agent's log.

use crate::core::CallId;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::credentials::SecretVariable;
use crate::providers::{Activity, LaunchRequest, Tokens};
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

impl Default for Credit {
    fn default() -> Self {
        Self::free()
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
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Batch {
    /// What happened, in order; at most [`BATCH_MAX`].
    pub activities: Vec<Activity>,
    /// `agent:output` messages, in order: JSON objects **without their closing brace**, to which the hub
    /// appends `,"seq":N,"ts":"..."}`.
    #[recorded(skip)]
    pub frames: Packed,
    /// The number of its last deed within the run, from 1: what comes after it has a larger one, also from
    /// the threads of a later daemon.
    pub upto: u64,
    /// Given back when the hub has taken the frames.
    #[recorded(skip)]
    pub credit: Credit,
}

/// How the end of a run came to be known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
pub enum Keeper {
    /// Its keeper has told it.
    #[default]
    Told,
    /// Its keeper has ended it, for no daemon came for too long.
    Orphaned,
    /// Its keeper is gone, and what it kept was ended.
    Gone,
    /// Its keeper, or the kernel in its place, has ended it at its ceiling of memory: bytes.
    Ceiling { held: u64, ceiling: u64 },
}

/// A fact from the threads of a run.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
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
    Checkpoint {
        /// Its number.
        n: u64,
        /// The last deed before it: all up to it have been reported, also messages that the program has
        /// taken.
        deed: u64,
    },
    /// What runs on another machine was not seen to end there.
    LeftThere,
    /// This program, whose SHA-256 in hex this is, was put where it is to work.
    Copied {
        program: String,
    },
    /// The line to the machine that it works on is cut, and why; or it stands again.
    Line {
        cut: Option<String>,
    },
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
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

/// A one-off job.
#[derive(Debug)]
pub enum Job {
    /// Build the handoff brief of an agent from its log.
    Brief {
        agent: AgentId,
        /// Where its log is.
        lineage: LineageId,
        /// What the record knows.
        facts: Box<crate::context::brief::Facts>,
    },
    /// Read the log of an agent whose life is over for what others may learn from it.
    Learn {
        agent: AgentId,
        /// Where its log is.
        lineage: LineageId,
        /// What it takes to read it.
        facts: Box<crate::context::brief::Facts>,
    },
    /// Ask a question in a process of its own.
    Query {
        call: CallId,
        agent: AgentId,
        provider: &'static str,
        request: Box<LaunchRequest>,
        env: Vec<(String, String)>,
        /// Variables whose values are still sealed.
        secrets: Vec<SecretVariable>,
    },
    /// Bring an agent's branch and session to where it is to go on.
    Move(Box<super::moving::Order>),
    /// Nobody waits for this question any more: end its process.
    CancelQuery(CallId),
}

/// What came of a [`Job`].
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum JobReport {
    /// The brief, or why there is none.
    Brief(AgentId, Result<String, String>),
    /// What the log teaches; nothing where it cannot be read.
    Learned(AgentId, Vec<crate::memory::Learned>),
    /// An agent has arrived where it is to go on, or why not.
    Moved(AgentId, Result<super::moving::Trip, String>),
    /// The answer and what it cost, or why there is none.
    Query(CallId, Result<(String, Tokens), String>),
}
