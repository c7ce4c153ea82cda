//! What is written to disk, and how it reads. Encoding is pure; the store thread writes.

use super::State;
use super::ids::LineageId;
use crate::agents::StoredPrompt;
use serde_json::json;
use std::fmt;

/// One file of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Document {
    /// Agents and everything that must agree with them.
    Agents,
    /// Sealed keys and tokens.
    Credentials,
    /// Who holds which shared resources.
    Locks,
    /// What waits for a person, and what was decided last.
    Approvals,
    /// The chat gateways, and what is between them and us.
    Gateways,
    /// The project's settings.
    Config,
    /// The task of a lineage.
    Prompt(LineageId),
}

/// A file of lines that only grows, until it is rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Journal {
    /// Who changed what: JSON lines `{ts,event,actor,...}`.
    Audit,
}

impl Journal {
    /// Its path below `.svc/`.
    pub fn path(self) -> &'static str {
        match self {
            Self::Audit => "audit.jsonl",
        }
    }

    /// Above this many bytes it is renamed to `<path>.1`, in place of an earlier one, and begun anew.
    pub fn max_bytes(self) -> u64 {
        match self {
            Self::Audit => 5 << 20,
        }
    }
}

/// A document that cannot be encoded or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError(pub String);

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DocumentError {}

impl Document {
    /// Its path below `.svc/`.
    pub fn path(self) -> String {
        match self {
            Self::Agents => "state/agents.json".into(),
            Self::Credentials => "credentials.json".into(),
            Self::Locks => "state/locks.json".into(),
            Self::Approvals => "state/approvals.json".into(),
            Self::Gateways => "state/gateways.json".into(),
            Self::Config => "config.json".into(),
            Self::Prompt(lineage) => format!("state/prompts/{lineage}.json"),
        }
    }

    /// Its content for `state`; `None` when the thing it describes is gone.
    pub fn encode(self, state: &State) -> Option<Result<Vec<u8>, DocumentError>> {
        let encoded = match self {
            Self::Agents => serde_json::to_vec(&state.agents.stored()),
            Self::Credentials => serde_json::to_vec_pretty(&state.credentials.stored()),
            Self::Locks => serde_json::to_vec(&state.coordination.stored()),
            Self::Approvals => serde_json::to_vec(&state.approvals.stored()),
            Self::Gateways => serde_json::to_vec(&state.gateways.stored()),
            Self::Config => serde_json::to_vec_pretty(&json!(state.settings.project())),
            Self::Prompt(lineage) => {
                let stored: StoredPrompt = state.agents.stored_prompt(lineage)?;
                serde_json::to_vec(&stored)
            }
        };
        Some(encoded.map_err(|error| DocumentError(format!("{} cannot be encoded: {error}", self.path()))))
    }
}
