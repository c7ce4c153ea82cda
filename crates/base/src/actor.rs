//! Who calls, and who wishes something.

use super::ids::{AgentId, UNKNOWN_AGENT};
use std::fmt;
use std::sync::Arc;

/// Who holds the other end of a connection, as far as the system tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A process of this agent; [`UNKNOWN_AGENT`] where it is known to be some agent's.
    Agent(AgentId),
    /// A process that was seen, and that comes from no agent.
    Outside,
    Elsewhere,
    /// No process that may be looked at was seen to hold it.
    Unseen,
    /// The system tells nothing of the kind.
    Untold,
}

/// What a request shows of the operator's token (`SVC_OPERATOR_TOKEN`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// No such token is in force.
    NotAsked,
    /// It is in force, and the request shows it.
    Right,
    /// It is in force, and the request shows none or another.
    Not,
}

/// Why a caller counts as nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unproven {
    /// No process that may be looked at holds the connection.
    Unseen,
    /// The system does not tell who calls.
    Untold,
    /// The operator's token is in force and was not shown.
    Token,
    /// A page of another origin asks.
    Page,
}

/// Who calls.
///
/// **Invariant:** whatever cannot be told makes a caller less, never more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A person, or a program outside of every agent.
    Person,
    /// A process of this agent, or of one that nobody knows.
    Agent(AgentId),
    /// Somebody who has not proven to be a person: may do what any agent may.
    Nobody(Unproven),
}

impl Caller {
    /// What the holder of a connection is, with what its request shows. An agent's process stays one whatever
    /// it shows: it can read whatever its user can.
    pub fn of(holder: Holder, shown: Shown, own_page: bool) -> Self {
        match (holder, shown) {
            (Holder::Agent(agent), _) => Self::Agent(agent),
            (_, Shown::Not) => Self::Nobody(Unproven::Token),
            (Holder::Unseen, Shown::NotAsked) => Self::Nobody(Unproven::Unseen),
            (Holder::Untold, Shown::NotAsked) => Self::Nobody(Unproven::Untold),
            (Holder::Outside | Holder::Elsewhere, _) | (_, Shown::Right) if own_page => Self::Person,
            _ => Self::Nobody(Unproven::Page),
        }
    }

    /// As which agent it acts: `None` for a person, [`UNKNOWN_AGENT`] for nobody.
    pub fn agent(self) -> Option<AgentId> {
        match self {
            Self::Person => None,
            Self::Agent(agent) => Some(agent),
            Self::Nobody(_) => Some(UNKNOWN_AGENT),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_4_only_who_is_seen_outside_or_shows_the_token_is_a_person() {
        use Holder::{Elsewhere, Outside, Unseen, Untold};
        use Shown::{Not, NotAsked, Right};
        for holder in [Outside, Elsewhere, Unseen, Untold] {
            assert_eq!(Caller::of(holder, Right, true), Caller::Person, "{holder:?}");
            assert_eq!(Caller::of(holder, Not, true), Caller::Nobody(Unproven::Token), "{holder:?}");
            for shown in [Right, Not, NotAsked] {
                assert_ne!(Caller::of(holder, shown, false), Caller::Person, "{holder:?} by a foreign page");
            }
        }
        assert_eq!(Caller::of(Outside, NotAsked, true), Caller::Person);
        assert_eq!(Caller::of(Unseen, NotAsked, true), Caller::Nobody(Unproven::Unseen));
        assert_eq!(Caller::of(Untold, NotAsked, true), Caller::Nobody(Unproven::Untold));
        assert_eq!(Caller::Nobody(Unproven::Unseen).agent(), Some(UNKNOWN_AGENT));
    }

    #[test]
    fn decisions_4_an_agents_process_stays_one_whatever_it_shows() {
        let agent = AgentId(7);
        for shown in [Shown::NotAsked, Shown::Right, Shown::Not] {
            assert_eq!(Caller::of(Holder::Agent(agent), shown, true), Caller::Agent(agent));
        }
    }
}
