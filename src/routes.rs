//! The route table of the daemon: every endpoint of every feature, in one list.

use crate::api::{Params, Problem, Reply, Request, Route, Table};
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Actor, Command, State};
use crate::runtime::host::Host;

/// What a handler may look at.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// The request.
    pub request: &'a Request,
    /// Values of the path's parameters.
    pub params: &'a Params,
    /// The published snapshot.
    pub state: &'a State,
    /// When the request came.
    pub now: Time,
    /// Finds out; see [`Ask::caller`].
    pub find_caller: &'a dyn Fn() -> Option<AgentId>,
}

impl Ask<'_> {
    /// The agent whose process calls, an unknown one for a caller who has not proven to be a person; `None`
    /// for a person. The kernel is asked once per connection.
    pub fn caller(&self) -> Option<AgentId> {
        (self.find_caller)()
    }

    /// Who calls.
    pub fn actor(&self) -> Actor {
        self.caller().map_or(Actor::Operator, Actor::Agent)
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
    Work(Access, fn(&Host, &Ask) -> Result<Answer, Problem>),
}

/// What a [`Handler::Work`] comes to.
pub enum Answer {
    /// The answer.
    Reply(Reply),
    /// A wish; the core answers.
    Command(Command),
    /// A wish, and what to undo when the core refuses it.
    Undoable(Command, Box<dyn FnOnce() + Send>),
    /// A wish, and what is left to do when the core has granted it; it may finish the reply.
    Followed(Command, Box<dyn FnOnce(Reply) -> Reply + Send>),
}

/// All routes.
pub fn table() -> Table<Handler> {
    let mut routes: Vec<Route<Handler>> = Vec::new();
    routes.extend(crate::console::api::routes());
    routes.extend(crate::oversight::api::routes());
    routes.extend(crate::oversight::dashboard::routes());
    routes.extend(crate::oversight::timeline::routes());
    routes.extend(crate::agents::api::routes());
    routes.extend(crate::approvals::api::routes());
    routes.extend(crate::teams::api::routes());
    routes.extend(crate::toys::api::routes());
    routes.extend(crate::schedules::api::routes());
    routes.extend(crate::integrations::api::routes());
    routes.extend(crate::ownership::api::routes());
    routes.extend(crate::isolation::api::routes());
    routes.extend(crate::coordination::api::routes());
    routes.extend(crate::credentials::api::routes());
    routes.extend(crate::gateways::api::routes());
    routes.extend(crate::providers::api::routes());
    routes.extend(crate::settings::api::routes());
    routes.extend(crate::workspace::api::routes());
    routes.extend(crate::context::triggers_api::routes());
    routes.extend(crate::usage::api::routes());
    routes.extend(crate::memory::api::routes());
    routes.extend(crate::journalist::api::routes());
    routes.extend(crate::oversight::pm::routes());
    routes.extend(crate::context::api::routes());
    routes.extend(crate::market::api::routes());
    routes.extend(crate::federation::api::routes());
    Table::new(routes)
}
