//! What an endpoint is: who may use it, what its handler looks at, and what that comes to. The features'
//! `api.rs` give lists of them; [`crate::assembly::routes`] has all in one table.

use crate::api::{Params, Problem, Reply, Request};
use crate::assembly::host::Host;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Actor, Command, State};

/// What a handler may look at.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub request: &'a Request,
    /// Values of the path's parameters.
    pub params: &'a Params,
    pub state: &'a State,
    /// When the request came.
    pub now: Time,
    /// Finds out; see [`Ask::caller`].
    pub find_caller: &'a dyn Fn() -> Option<AgentId>,
    /// The name of the phone that calls. Whoever asks for the caller alone is told of an unknown agent.
    pub phone: Option<&'a str>,
}

impl Ask<'_> {
    /// The `:id` of the path: what the caller names, as a command takes it.
    pub fn target(&self) -> String {
        self.params.get("id").to_owned()
    }

    /// The agent whose process calls, an unknown one for a caller who has not proven to be a person; `None`
    /// for a person. The kernel is asked once per connection.
    pub fn caller(&self) -> Option<AgentId> {
        (self.find_caller)()
    }

    /// Who calls.
    pub fn actor(&self) -> Actor {
        match self.phone {
            Some(name) => Actor::Phone(name.into()),
            None => self.caller().map_or(Actor::Operator, Actor::Agent),
        }
    }
}

/// Who may use an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everyone who reaches it, agents included.
    Anyone,
    /// Persons, and other daemons; not the processes of agents: 403 `agent_may_not`; no page of another
    /// origin.
    NoAgent,
    /// Persons. Not the processes of agents: 403 `agent_may_not`; not who may be one: 403 `prove_yourself`.
    OperatorOnly,
}

/// What a route does.
#[derive(Debug, Clone, Copy)]
pub enum Handler {
    /// Answers from the snapshot.
    Read(fn(&Ask) -> Result<Reply, Problem>),
    /// As `Read`, and without a query it looks at nothing but the snapshot: its bytes serve all who ask
    /// before the next change. On paths without parameters.
    Shared(fn(&Ask) -> Result<Reply, Problem>),
    /// Becomes a command; the core answers.
    Write(Access, fn(&Ask) -> Result<Command, Problem>),
    /// Does I/O on the connection's thread, and then answers or becomes a command.
    Work(Access, Worker),
}

/// A handler that does I/O.
pub type Worker = fn(&Host, &Ask) -> Result<Answer, Problem>;

/// What a [`Handler::Work`] comes to.
pub enum Answer {
    Reply(Reply),
    /// A wish; the core answers.
    Command(Command),
    /// A wish, and what to undo when the core refuses it.
    Undoable(Command, Box<dyn FnOnce() + Send>),
    /// A wish, and what is left to do when the core has granted it; it may finish the reply.
    Followed(Command, Box<dyn FnOnce(Reply) -> Reply + Send>),
}
