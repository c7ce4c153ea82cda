//! The daemon behind the HTTP edge: finds the route, and lets the snapshot, the core or a worker answer.

use super::caller;
use super::clock;
use super::host::Host;
use super::http;
use super::state_thread::Core;
use super::ws::{HubHandle, Listener, Subscription};
use crate::api::{BODY_LIMIT_BYTES, Found, Method, Problem, Reply, Request, Route, Table};
use crate::core::ids::UNKNOWN_AGENT;
use crate::routes::{Access, Answer, Ask, Handler};
use std::sync::Arc;

/// What answers requests.
pub struct Service {
    /// The door to the core.
    pub core: Core,
    /// For handlers with I/O.
    pub host: Arc<Host>,
    /// All routes.
    pub table: Table<Handler>,
    /// For WebSocket clients.
    pub hub: HubHandle,
    /// Takes what WebSocket clients say.
    pub listener: Arc<dyn Listener>,
    /// `SVC_OPERATOR_TOKEN`, which no agent gets: what only a person may do needs it where the kernel does
    /// not tell who calls.
    pub operator_token: Option<String>,
}

impl http::Service for Service {
    fn body_limit(&self, method: &Method, segments: &[String]) -> usize {
        match self.table.find(method, segments) {
            Found::Route(route, _) => route.body_limit_bytes,
            _ => BODY_LIMIT_BYTES,
        }
    }

    fn handle(&self, request: &Request) -> Reply {
        http::dispatch(&self.table, request, |route, params| {
            let state = self.core.snapshot();
            let find_caller = || caller::calling_agent(&state, request.peer, request.local);
            let ask = Ask { request, params, state: &state, now: clock::now(), find_caller: &find_caller };
            self.answer(route, &ask).unwrap_or_else(Into::into)
        })
    }

    fn websocket(&self, request: &Request) -> Option<Result<Subscription, Problem>> {
        let path = request.path.as_str();
        (path == "/" || path == "/ws" || path == "/api/ws")
            .then(|| Subscription::from_query(self.hub.clone(), Arc::clone(&self.listener), &request.query))
    }
}

impl Service {
    fn answer(&self, route: &Route<Handler>, ask: &Ask) -> Result<Reply, Problem> {
        match route.handler {
            Handler::Read(read) => read(ask),
            Handler::Write(access, parse) => {
                self.allow(access, ask)?;
                Ok(self.core.call(ask.actor(), parse(ask)?))
            }
            Handler::Work(access, work) => {
                self.allow(access, ask)?;
                match work(&self.host, ask)? {
                    Answer::Reply(reply) => Ok(reply),
                    Answer::Command(command) => Ok(self.core.call(ask.actor(), command)),
                    Answer::Undoable(command, undo) => {
                        let reply = self.core.call(ask.actor(), command);
                        if reply.status >= 400 {
                            undo();
                        }
                        Ok(reply)
                    }
                    Answer::Followed(command, follow) => {
                        let reply = self.core.call(ask.actor(), command);
                        Ok(if reply.status < 400 { follow(reply) } else { reply })
                    }
                }
            }
        }
    }

    /// 403 when an agent's process asks for what only the operator may, or when nobody can tell who asks and
    /// the operator's token is not there.
    fn allow(&self, access: Access, ask: &Ask) -> Result<(), Problem> {
        if access == Access::Anyone {
            return Ok(());
        }
        if let Some(agent) = ask.caller() {
            let who =
                if agent == UNKNOWN_AGENT { "an agent's process".into() } else { format!("agent {agent}") };
            let text = format!("{who} may not do this; a person has to, outside of an agent");
            return Err(Problem::new(403, "agent_may_not", text));
        }
        let Some(token) = &self.operator_token else { return Ok(()) };
        let told = caller::is_told(ask.request.peer, ask.request.local);
        speaks_for_operator(told, ask.request.header("authorization"), token)
    }
}

/// Errors: 403 `operator_token_required`.
fn speaks_for_operator(told: bool, authorization: Option<&str>, token: &str) -> Result<(), Problem> {
    let given = authorization.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    if told || given.is_some_and(|given| http::same_bytes(given.as_bytes(), token.as_bytes())) {
        return Ok(());
    }
    let text = "this system does not tell who calls: send Authorization: Bearer with the SVC_OPERATOR_TOKEN that the \
                daemon was started with";
    Err(Problem::new(403, "operator_token_required", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_4_where_the_kernel_cannot_tell_the_operator_token_does() {
        let asks = |told, given| speaks_for_operator(told, given, "secret").map_err(|problem| problem.code);
        assert_eq!(asks(true, None), Ok(()), "the kernel has told: nobody's agent");
        assert_eq!(asks(false, Some("Bearer secret")), Ok(()));
        for wrong in [None, Some("Bearer secre"), Some("secret"), Some("Basic secret"), Some("Bearer ")] {
            assert_eq!(asks(false, wrong), Err("operator_token_required"), "{wrong:?}");
        }
    }
}
