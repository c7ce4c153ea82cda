//! The daemon behind the HTTP edge: finds the route, and lets the snapshot, the core or a worker answer.

use super::caller;
use super::host::Host;
use super::shared_replies::SharedReplies;
use super::state_thread::Core;
use super::tokens::{Source, Tokens, VARIABLE};
use crate::api::{BODY_LIMIT_BYTES, Found, Method, Problem, Reply, Request, Route, Table};
use crate::core::actor::{Caller, Holder, Shown, Unproven};
use crate::core::ids::UNKNOWN_AGENT;
use crate::core::{Event, State};
use crate::endpoint::{Access, Answer, Ask, Handler};
use crate::federation::api::ENVELOPE_PATH;
use std::sync::Arc;
use std::time::Instant;
use svc_sys::clock;
use svc_sys::http::{self, Ends, Head};
use svc_sys::ws::{HubHandle, Listener, Subscription};

/// The code of what is refused to agents.
const AGENT_MAY_NOT: &str = "agent_may_not";

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
    /// Which tokens are in force.
    pub tokens: Tokens,
    /// What is answered to many from one snapshot.
    pub shared: SharedReplies,
}

impl http::Service for Service {
    fn body_limit(&self, method: &Method, segments: &[String]) -> usize {
        match self.table.find(method, segments) {
            Found::Route(route, _) => route.body_limit_bytes,
            _ => BODY_LIMIT_BYTES,
        }
    }

    /// At the door of a daemon that listens beyond this machine. What comes to one path is signed instead.
    fn admit(&self, head: &Head, ends: &Ends) -> Result<(), Problem> {
        if !self.tokens.guards_door() || head.path == ENVELOPE_PATH {
            return Ok(());
        }
        let authorization = head.header("authorization");
        let is_page = head.header("accept").is_some_and(|kinds| kinds.contains("text/html"));
        let verdict = self.tokens.at_door(authorization, is_page);
        if authorization.is_none() || (verdict.is_ok() && self.tokens.is_believed(Instant::now())) {
            return verdict;
        }
        let source = Source::of(holder(&self.core.snapshot(), ends), ends.peer.ip());
        self.listen_to(source, verdict.is_err())?;
        verdict
    }

    fn may_use_reserve(&self, ends: &Ends) -> bool {
        has_kept_place(holder(&self.core.snapshot(), ends))
    }

    fn handle(&self, request: &Request) -> Reply {
        http::dispatch(&self.table, request, |route, params| {
            let state = self.core.snapshot();
            let find_caller = || self.caller(&state, request).agent();
            let ask = Ask { request, params, state: &state, now: clock::now(), find_caller: &find_caller };
            let reply = self.answer(route, &ask, &state).unwrap_or_else(Into::into);
            self.with_remedy(&ask, reply)
        })
    }

    fn websocket(&self, request: &Request) -> Option<Result<Subscription, Problem>> {
        let path = request.path.as_str();
        (path == "/" || path == "/ws" || path == "/api/ws")
            .then(|| Subscription::from_query(self.hub.clone(), Arc::clone(&self.listener), &request.query))
    }
}

impl Service {
    fn answer(&self, route: &Route<Handler>, ask: &Ask, state: &Arc<State>) -> Result<Reply, Problem> {
        match route.handler {
            Handler::Read(read) => read(ask),
            Handler::Shared(read) => self.shared.get(route.path, state, ask.request, || read(ask)),
            Handler::Write(access, parse) => {
                self.allow(access, ask)?;
                Ok(self.core.call(ask.actor(), parse(ask)?).into())
            }
            Handler::Work(access, work) => {
                self.allow(access, ask)?;
                match work(&self.host, ask)? {
                    Answer::Reply(reply) => Ok(reply),
                    Answer::Command(command) => Ok(self.core.call(ask.actor(), command).into()),
                    Answer::Undoable(command, undo) => {
                        let response = self.core.call(ask.actor(), command);
                        if !response.is_granted() {
                            undo();
                        }
                        Ok(response.into())
                    }
                    Answer::Followed(command, follow) => {
                        let response = self.core.call(ask.actor(), command);
                        let is_granted = response.is_granted();
                        Ok(if is_granted { follow(response.into()) } else { response.into() })
                    }
                }
            }
        }
    }

    /// 403 when somebody asks for what only a person may who is none, or may be none.
    fn allow(&self, access: Access, ask: &Ask) -> Result<(), Problem> {
        if access == Access::Anyone {
            return Ok(());
        }
        let authorization = ask.request.header("authorization");
        let shown = self.tokens.shown(authorization);
        let caller = self.caller(ask.state, ask.request);
        if let Caller::Agent(agent) = caller {
            let who =
                if agent == UNKNOWN_AGENT { "an agent's process".into() } else { format!("agent {agent}") };
            let text = format!("{who} may not do this; a person has to, outside of an agent");
            return Err(Problem::new(403, AGENT_MAY_NOT, text));
        }
        let is_guess = shown == Shown::Not && authorization.is_some();
        if is_guess || (shown == Shown::Right && !self.tokens.is_believed(Instant::now())) {
            let ends = ends(ask.request);
            self.listen_to(Source::of(holder(ask.state, &ends), ends.peer.ip()), is_guess)?;
        }
        match caller {
            // A daemon proves itself otherwise, and a person confirms what it begins.
            Caller::Nobody(why) if access == Access::OperatorOnly || why == Unproven::Page => {
                Err(self.prove_yourself(why))
            }
            Caller::Nobody(_) | Caller::Person | Caller::Agent(_) => Ok(()),
        }
    }

    fn caller(&self, state: &State, request: &Request) -> Caller {
        let authorization = request.header("authorization");
        let shown = self.tokens.shown(authorization);
        // A browser adds a password by itself, but a page must know a token to show it.
        let knows = shown == Shown::Right && authorization.is_some_and(|value| value.starts_with("Bearer "));
        Caller::of(holder(state, &ends(request)), shown, knows || http::is_own_page(request))
    }

    /// Errors: 429 for a source of too many wrong tokens; this one may be the next.
    fn listen_to(&self, source: Source, is_wrong: bool) -> Result<(), Problem> {
        let now = Instant::now();
        self.tokens.listen_to(source, now)?;
        if is_wrong && let Some(wrong) = self.tokens.count_wrong(source, now) {
            log::warn!("a wrong operator's token from {}, {} lately", wrong.from, wrong.attempts);
            self.core.control(Event::WrongToken { from: wrong.from, attempts: wrong.attempts });
        }
        Ok(())
    }

    /// A refusal that the core means for agents, in words for a person who is not known to be one.
    fn with_remedy(&self, ask: &Ask, reply: Reply) -> Reply {
        let is_meant = |reply: &Reply| {
            let body: Option<serde_json::Value> = serde_json::from_slice(reply.body.bytes()).ok();
            body.is_some_and(|body| body["code"] == AGENT_MAY_NOT)
        };
        if reply.status != 403 || !is_meant(&reply) {
            return reply;
        }
        match self.caller(ask.state, ask.request) {
            Caller::Nobody(why) => self.prove_yourself(why).into(),
            Caller::Person | Caller::Agent(_) => reply,
        }
    }

    /// 403 with what to do about it; `tokenHelps` says whether showing the operator's token would.
    fn prove_yourself(&self, why: Unproven) -> Problem {
        let helps = self.tokens.can_prove();
        let remedy = if helps {
            format!(
                "send Authorization: Bearer with the {VARIABLE} that the daemon was started with (svc does so by \
                     itself where that variable is set)"
            )
        } else {
            format!(
                "call as the user who started the daemon, by a program of your own; or start the daemon and svc \
                     with the same {VARIABLE} set, which proves a person"
            )
        };
        let text = match why {
            Unproven::Unseen => {
                format!(
                    "only a person may do this, and no process that may be looked at was seen to call: {remedy}"
                )
            }
            Unproven::Untold => {
                format!("only a person may do this, and this system does not tell who calls: {remedy}")
            }
            Unproven::Token => format!("only a person may do this: {remedy}"),
            Unproven::Page => {
                "only a person may do this, and a page of another origin asks for it: use the daemon's \
                               own console, or svc"
                    .to_owned()
            }
        };
        let helps = helps && why != Unproven::Page;
        Problem::new(403, "prove_yourself", text).with("tokenHelps", helps)
    }
}

/// Whether a connection of this holder's gets one of the last places: those that agents cannot take.
fn has_kept_place(holder: Holder) -> bool {
    matches!(holder, Holder::Outside | Holder::Elsewhere)
}

/// Who holds the other end; asked once per connection.
fn holder(state: &State, ends: &Ends) -> Holder {
    *ends.holder.get_or_init(|| caller::holder(state, ends.peer, ends.local))
}

fn ends(request: &Request) -> Ends {
    Ends { peer: request.peer, local: request.local, holder: Arc::clone(&request.caller) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::{AgentId, UNKNOWN_AGENT};

    #[test]
    fn the_last_connections_are_for_whoever_is_seen_to_be_no_agent() {
        for holder in [Holder::Outside, Holder::Elsewhere] {
            assert!(has_kept_place(holder), "{holder:?}");
        }
        let agents = [Holder::Agent(AgentId(1)), Holder::Agent(UNKNOWN_AGENT)];
        for holder in agents.into_iter().chain([Holder::Unseen, Holder::Untold]) {
            assert!(!has_kept_place(holder), "{holder:?}");
        }
    }
}
