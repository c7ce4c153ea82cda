//! Who calls, and who wishes something.

use super::ids::{AgentId, PhoneId, UNKNOWN_AGENT};
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

/// What a request shows of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Nothing,
    /// The person's token of `.svc/token`.
    Token,
    /// What no file holds: the operator's token (`SVC_OPERATOR_TOKEN`), or a session of the console.
    Secret,
    /// The token of this agent, which lives.
    Agent(AgentId),
    /// A token that is none.
    Wrong,
}

/// What is asked for a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demands {
    /// Whether the operator's token is in force: being seen is not enough then.
    pub secret: bool,
    /// Whether no agent of this daemon can have read the person's token.
    pub private_token: bool,
    /// Whether an agent's process may be among those who are not seen: it may have read, in the files of a
    /// project that is not its own, what proves somebody else.
    pub hiders: bool,
}

/// Why a caller counts as nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unproven {
    /// No process that may be looked at holds the connection.
    Unseen,
    /// The system does not tell who calls.
    Untold,
    /// No proof was shown where one is needed.
    Token,
    /// A token was shown that is none.
    Wrong,
    /// A token was shown by somebody who is not seen, and an agent may have read it.
    Exposed,
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
    /// Whoever comes by the listener for phones: this one, or nobody yet. May what is on a list of its own,
    /// and counts as an agent that nobody knows wherever that list is not asked.
    Phone(Option<PhoneId>),
    /// Somebody who has not proven to be a person: may do what any agent may.
    Nobody(Unproven),
}

impl Caller {
    /// What the holder of a connection is, with what its request shows. An agent's process stays one whatever
    /// it shows: it may have read what is its user's. Whoever shows an agent's token is that agent, no more.
    pub fn of(holder: Holder, shown: Shown, own_page: bool, demands: Demands) -> Self {
        match (holder, shown) {
            (Holder::Unseen | Holder::Untold, Shown::Agent(_)) if demands.hiders => {
                Self::Nobody(Unproven::Exposed)
            }
            // Who is seen goes before what is shown.
            (Holder::Agent(agent), _) | (_, Shown::Agent(agent)) => Self::Agent(agent),
            _ if !own_page => Self::Nobody(Unproven::Page),
            (_, Shown::Wrong) => Self::Nobody(Unproven::Wrong),
            (_, Shown::Secret) | (Holder::Outside | Holder::Elsewhere, Shown::Token) => Self::Person,
            (Holder::Unseen | Holder::Untold, Shown::Token) if demands.private_token && !demands.hiders => {
                Self::Person
            }
            (Holder::Unseen | Holder::Untold, Shown::Token) => Self::Nobody(Unproven::Exposed),
            (Holder::Outside, Shown::Nothing) if !demands.secret => Self::Person,
            (Holder::Outside | Holder::Elsewhere, Shown::Nothing) => Self::Nobody(Unproven::Token),
            (Holder::Unseen, Shown::Nothing) => Self::Nobody(Unproven::Unseen),
            (Holder::Untold, Shown::Nothing) => Self::Nobody(Unproven::Untold),
        }
    }

    /// As which agent it acts: `None` for a person, [`UNKNOWN_AGENT`] for nobody and for phones.
    pub fn agent(self) -> Option<AgentId> {
        match self {
            Self::Person => None,
            Self::Agent(agent) => Some(agent),
            Self::Phone(_) | Self::Nobody(_) => Some(UNKNOWN_AGENT),
        }
    }
}

/// Who stands behind an event; the audit log names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
pub enum Actor {
    /// A person or program outside of every agent.
    Operator,
    /// A process of this agent, as the kernel tells.
    Agent(AgentId),
    /// Somebody on a chat platform, for example `telegram:4711`.
    Chat(Arc<str>),
    /// A paired phone, by its name. It wishes nothing but decisions.
    Phone(Arc<str>),
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
            Self::Phone(name) => write!(f, "phone:{name}"),
            Self::Daemon => f.write_str("daemon"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: Demands = Demands { secret: false, private_token: true, hiders: false };
    const HIDERS: Demands = Demands { hiders: true, ..PRIVATE };
    const OPEN: Demands = Demands { private_token: false, ..PRIVATE };
    const SECRET: Demands = Demands { secret: true, ..OPEN };

    #[test]
    fn decisions_4_only_who_is_seen_outside_or_shows_a_proof_is_a_person() {
        use Holder::{Elsewhere, Outside, Unseen, Untold};
        use Shown::{Nothing, Secret, Token, Wrong};
        for holder in [Outside, Elsewhere, Unseen, Untold] {
            for demands in [PRIVATE, HIDERS, OPEN, SECRET] {
                assert_eq!(Caller::of(holder, Secret, true, demands), Caller::Person, "{holder:?}");
                let wrong = Caller::of(holder, Wrong, true, demands);
                assert_eq!(wrong, Caller::Nobody(Unproven::Wrong), "{holder:?}");
                for shown in [Secret, Token, Wrong, Nothing] {
                    let page = Caller::of(holder, shown, false, demands);
                    assert_eq!(page, Caller::Nobody(Unproven::Page), "{holder:?} by a foreign page");
                }
            }
            assert_eq!(Caller::of(holder, Token, true, PRIVATE), Caller::Person, "{holder:?}");
        }
        for holder in [Unseen, Untold] {
            for demands in [OPEN, HIDERS] {
                let exposed = Caller::of(holder, Token, true, demands);
                assert_eq!(exposed, Caller::Nobody(Unproven::Exposed), "an agent may have read it");
            }
        }
        assert_eq!(Caller::of(Outside, Nothing, true, OPEN), Caller::Person);
        assert_eq!(Caller::of(Outside, Nothing, true, SECRET), Caller::Nobody(Unproven::Token));
        assert_eq!(Caller::of(Elsewhere, Nothing, true, PRIVATE), Caller::Nobody(Unproven::Token));
        assert_eq!(Caller::of(Unseen, Nothing, true, PRIVATE), Caller::Nobody(Unproven::Unseen));
        assert_eq!(Caller::of(Untold, Nothing, true, PRIVATE), Caller::Nobody(Unproven::Untold));
        assert_eq!(Caller::Nobody(Unproven::Unseen).agent(), Some(UNKNOWN_AGENT));
    }

    #[test]
    fn decisions_4_an_agents_process_stays_one_whatever_it_shows() {
        let (agent, other) = (AgentId(7), AgentId(8));
        for demands in [PRIVATE, HIDERS, OPEN, SECRET] {
            for shown in [Shown::Nothing, Shown::Token, Shown::Secret, Shown::Wrong, Shown::Agent(other)] {
                assert_eq!(Caller::of(Holder::Agent(agent), shown, true, demands), Caller::Agent(agent));
            }
            let of_some = Caller::of(Holder::Agent(UNKNOWN_AGENT), Shown::Agent(agent), true, demands);
            assert_eq!(of_some, Caller::Agent(UNKNOWN_AGENT), "another daemon's may have read its key");
        }
    }

    #[test]
    fn whoever_shows_an_agents_token_is_that_agent_and_no_more() {
        let agent = AgentId(7);
        for holder in [Holder::Outside, Holder::Elsewhere, Holder::Unseen, Holder::Untold] {
            for demands in [PRIVATE, OPEN, SECRET] {
                let shows = Caller::of(holder, Shown::Agent(agent), true, demands);
                assert_eq!(shows, Caller::Agent(agent), "{holder:?}");
            }
        }
        let hidden = Caller::of(Holder::Unseen, Shown::Agent(agent), true, HIDERS);
        assert_eq!(hidden, Caller::Nobody(Unproven::Exposed), "it may be another one");
    }
}
