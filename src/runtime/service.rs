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
                allow(access, ask)?;
                Ok(self.core.call(ask.actor(), parse(ask)?))
            }
            Handler::Work(access, work) => {
                allow(access, ask)?;
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
}

/// 403 when an agent's process asks for what only the operator may.
fn allow(access: Access, ask: &Ask) -> Result<(), Problem> {
    if access == Access::Anyone {
        return Ok(());
    }
    match ask.caller() {
        None => Ok(()),
        Some(agent) => {
            let who =
                if agent == UNKNOWN_AGENT { "an agent's process".into() } else { format!("agent {agent}") };
            let text = format!("{who} may not do this; a person has to, outside of an agent");
            Err(Problem::new(403, "agent_may_not", text))
        }
    }
}
