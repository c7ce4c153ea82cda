//! What is written to disk, and where. How it reads is said by the feature whose it is.

use super::ids::LineageId;
use std::fmt;

/// One file of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Document {
    /// The ledger. It is written first: an account is closed on disk before its record is gone from there.
    Usage,
    /// What was learned about how full a context may get.
    Adaptive,
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
    /// When old things were removed last.
    Cleanup,
    /// Teams, recommendation, plans.
    Teams,
    /// Schedules and their histories.
    Schedules,
    /// Which integrations are installed.
    Integrations,
    /// The project's settings.
    Config,
    /// Other daemons that are known.
    Federation,
    /// The journalist's notes.
    Journalist,
    /// The project manager's reviews.
    PmReviews,
    /// The rules for all agents.
    Constraints,
    /// What worked.
    Discoveries,
    /// The last handoffs of each role.
    HandoffChains,
    /// What agents and roles have shown.
    Specializations,
    /// The installed skills.
    Skills,
    /// The task of a lineage.
    Prompt(LineageId),
    /// What the counters said and what happened.
    Timeline,
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
            Self::Adaptive => "state/adaptive.json".into(),
            Self::Agents => "state/agents.json".into(),
            Self::Credentials => "credentials.json".into(),
            Self::Locks => "state/locks.json".into(),
            Self::Approvals => "state/approvals.json".into(),
            Self::Gateways => "state/gateways.json".into(),
            Self::Cleanup => "state/cleanup.json".into(),
            Self::Teams => "state/teams.json".into(),
            Self::Schedules => "state/schedules.json".into(),
            Self::Integrations => "state/integrations.json".into(),
            Self::Config => "config.json".into(),
            Self::Federation => "state/federation.json".into(),
            Self::Journalist => "state/journalist.json".into(),
            Self::PmReviews => "state/pm-reviews.json".into(),
            Self::Constraints => "memory/constraints.json".into(),
            Self::Discoveries => "memory/discoveries.json".into(),
            Self::HandoffChains => "memory/handoff-chains.json".into(),
            Self::Specializations => "memory/specializations.json".into(),
            Self::Skills => "state/skills.json".into(),
            Self::Prompt(lineage) => format!("state/prompts/{lineage}.json"),
            Self::Timeline => "state/timeline.json".into(),
            Self::Usage => "state/usage.json".into(),
        }
    }

    /// Whether it holds no more than counters and grows with the history: it is written when it is due, and
    /// never along with what somebody waits for.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Usage | Self::Timeline | Self::Specializations | Self::Adaptive)
    }
}
