//! Who wishes something.

use super::ids::{AgentId, UNKNOWN_AGENT};
use std::fmt;
use std::sync::Arc;

/// Who stands behind an event; the audit log names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Actor {
    /// A person or program outside of every agent.
    Operator,
    /// A process of this agent, as the kernel tells.
    Agent(AgentId),
    /// Somebody on a chat platform, for example `telegram:4711`.
    Chat(Arc<str>),
    /// The daemon by itself: a timer, a schedule, a phase.
    #[default]
    Daemon,
}

impl Actor {
    /// The agent, if it is one.
    pub fn agent(&self) -> Option<AgentId> {
        if let Self::Agent(id) = self { Some(*id) } else { None }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("operator"),
            Self::Agent(UNKNOWN_AGENT) => f.write_str("agent:unknown"),
            Self::Agent(id) => write!(f, "agent:{id}"),
            Self::Chat(user) => f.write_str(user),
            Self::Daemon => f.write_str("daemon"),
        }
    }
}
