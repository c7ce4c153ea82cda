//! The daemon behind the HTTP edge: finds the route, and lets the snapshot, the core or a worker answer.

use super::agent_tokens::AgentTokens;
use super::caller;
use super::door::Desk;
use super::fleet;
use super::host::Host;
use super::shared_replies::SharedReplies;
use super::state_thread::Core;
use super::tokens::{Source, Tokens, VARIABLE};
use crate::api::{BODY_LIMIT_BYTES, Found, Method, Problem, Reply, Request, Route, Table};
use crate::core::actor::{Caller, Holder, Shown, Unproven};
use crate::core::ids::{AgentId, UNKNOWN_AGENT};
use crate::core::{Event, State};
use crate::endpoint::{Access, Answer, Ask, Handler};
use crate::federation::api::ENVELOPE_PATH;
use crate::inlets;
use crate::phones::not_paired;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;
use svc_sys::clock;
use svc_sys::http::{self, Ends, Head, Way};
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
    /// Knows the agents' tokens.
    pub agent_tokens: Arc<AgentTokens>,
    /// What is answered to many from one snapshot.
    pub shared: SharedReplies,
    /// The door to all projects, for a daemon that has a place among them.
    pub desk: Option<Arc<Desk>>,
}

impl http::Service for Service {
    fn body_limit(&self, method: &Method, segments: &[String]) -> usize {
        match self.table.find(method, segments) {
            Found::Route(route, _) => route.body_limit_bytes,
            _ => BODY_LIMIT_BYTES,
        }
    }

    fn way(&self, head: &mut Head, ends: &Ends) -> Result<Way, Problem> {
        self.desk.as_ref().map_or(Ok(Way::Here), |desk| desk.way(head, ends))
    }

    fn pass(&self, to: &str, stream: &TcpStream, bytes: &[u8]) -> Result<(), Problem> {
        let nobody = || Problem::not_found(format!("there is no project {to}"));
        self.desk.as_ref().ok_or_else(nobody)?.pass(to, stream, bytes)
    }

    /// At the door of a daemon that listens beyond this machine. What comes to some paths is signed instead.
    fn admit(&self, head: &Head, ends: &Ends) -> Result<(), Problem> {
        if !self.tokens.guards_door() || head.path == ENVELOPE_PATH || inlets::api::is_door(&head.path) {
            return Ok(());
        }
        let authorization = head.header("authorization");
        let bearer = authorization.and_then(|value| value.strip_prefix("Bearer "));
        if bearer.is_some_and(|token| self.agent_of(&self.core.snapshot(), token).is_some()) {
            return Ok(());
        }
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
            let now = clock::now();
            let ask = Ask { request, params, state: &state, now, find_caller: &find_caller, phone: None };
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
    /// Answers a phone, of which it was seen that it may ask this; or, without one, who wants to become one.
    pub fn answer_phone(&self, request: &Request, caller: Caller) -> Reply {
        http::dispatch(&self.table, request, |route, params| {
            let state = self.core.snapshot();
            let Caller::Phone(id) = caller else { return not_paired().into() };
            let phone = id.and_then(|id| state.phones.get(id));
            if phone.is_none() && id.is_some() {
                return not_paired().into();
            }
            let (find_caller, now) = (|| caller.agent(), clock::now());
            let phone = phone.map(|phone| phone.name.as_str());
            let ask = Ask { request, params, state: &state, now, find_caller: &find_caller, phone };
            self.perform(route, &ask, &state).unwrap_or_else(Into::into)
        })
    }

    fn answer(&self, route: &Route<Handler>, ask: &Ask, state: &Arc<State>) -> Result<Reply, Problem> {
        if let Handler::Write(access, _) | Handler::Work(access, _) = route.handler {
            self.allow(access, ask)?;
        }
        self.perform(route, ask, state)
    }

    /// What a route does for a caller who may.
    fn perform(&self, route: &Route<Handler>, ask: &Ask, state: &Arc<State>) -> Result<Reply, Problem> {
        let is_wish = matches!(route.handler, Handler::Write(..) | Handler::Work(..))
            && !matches!(ask.request.method, Method::Get | Method::Head);
        if is_wish {
            fleet::hear_before(&self.host, ask);
        }
        match route.handler {
            Handler::Read(read) => read(ask),
            Handler::Shared(read) => self.shared.get(route.path, state, ask.request, || read(ask)),
            Handler::Write(_, parse) => Ok(self.core.call(ask.actor(), parse(ask)?).into()),
            Handler::Work(_, work) => match work(&self.host, ask)? {
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
            },
        }
    }

    /// 403 when somebody asks for what only a person may who is none, or may be none.
    fn allow(&self, access: Access, ask: &Ask) -> Result<(), Problem> {
        let shown = self.shown(ask.state, ask.request);
        let reads = matches!(ask.request.method, Method::Get | Method::Head);
        let is_plain = reads || !matches!(shown, Shown::Token | Shown::Secret | Shown::Wrong);
        if access == Access::Anyone && is_plain {
            return Ok(());
        }
        let caller = self.caller(ask.state, ask.request);
        match caller {
            Caller::Agent(_) if access == Access::Anyone => return Ok(()),
            Caller::Agent(agent) => return Err(may_not(agent)),
            // Those come by another way, and are never asked about here.
            Caller::Phone(_) => return Err(not_paired()),
            Caller::Nobody(_) | Caller::Person => {}
        }
        let is_guess = shown == Shown::Wrong;
        let is_right = ask.request.header("authorization").is_some() && !is_guess;
        if is_guess || (is_right && !self.tokens.is_believed(Instant::now())) {
            let ends = ends(ask.request);
            self.listen_to(Source::of(holder(ask.state, &ends), ends.peer.ip()), is_guess)?;
        }
        match caller {
            // A daemon proves itself otherwise, and a person confirms what it begins.
            Caller::Nobody(why) if access == Access::OperatorOnly => Err(self.prove_yourself(why)),
            Caller::Nobody(why @ Unproven::Page) if access == Access::NoAgent => {
                Err(self.prove_yourself(why))
            }
            // Whoever means to act as a person is not taken for somebody less.
            Caller::Nobody(why @ Unproven::Exposed) => Err(self.prove_yourself(why)),
            Caller::Nobody(_) | Caller::Person | Caller::Agent(_) | Caller::Phone(_) => Ok(()),
        }
    }

    /// What a request shows of itself. Two tokens are none.
    fn shown(&self, state: &State, request: &Request) -> Shown {
        let mut tokens = request.headers.iter().filter(|(name, _)| name == "authorization");
        match (tokens.next(), tokens.next()) {
            (None, _) if self.host.console.knows(request) => Shown::Secret,
            (None, _) => Shown::Nothing,
            (Some(_), Some(_)) => Shown::Wrong,
            (Some((_, value)), None) => {
                let bearer = value.strip_prefix("Bearer ");
                let agent = bearer.and_then(|token| self.agent_of(state, token));
                agent.map_or_else(|| self.tokens.shown(value), Shown::Agent)
            }
        }
    }

    /// The living agent whose token this is.
    fn agent_of(&self, state: &State, token: &str) -> Option<AgentId> {
        let agent = self.agent_tokens.agent_of(token.trim())?;
        state.agents.get(agent).filter(|agent| agent.status.is_live()).map(|_| agent)
    }

    fn caller(&self, state: &State, request: &Request) -> Caller {
        let shown = self.shown(state, request);
        // A browser adds a password by itself, but a page must know a token to show it.
        let bearer = request.header("authorization").is_some_and(|value| value.starts_with("Bearer "));
        let knows = bearer && shown != Shown::Wrong;
        let ends = ends(request);
        let holder = holder(state, &ends);
        if shown == Shown::Token && matches!(holder, Holder::Agent(_)) {
            self.tokens.expose();
        }
        let is_asked = matches!(shown, Shown::Token | Shown::Agent(_))
            && matches!(holder, Holder::Unseen | Holder::Untold);
        let hiders = is_asked && caller::may_be_an_agents(state, ends.peer, ends.local);
        let demands = self.tokens.demands(state, hiders);
        Caller::of(holder, shown, knows || http::is_own_page(request), demands)
    }

    /// Errors: 429 for a source of too many wrong tokens; this one may be the next.
    pub fn listen_to(&self, source: Source, is_wrong: bool) -> Result<(), Problem> {
        let now = Instant::now();
        self.tokens.listen_to(source, now)?;
        if is_wrong && let Some(wrong) = self.tokens.count_wrong(source, now) {
            log::warn!("a wrong token from {}, {} lately", wrong.from, wrong.attempts);
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
            Caller::Person | Caller::Agent(_) | Caller::Phone(_) => reply,
        }
    }

    /// 403 with what to do about it. `tokenHelps` says whether showing the person's token would, `seenHelps`
    /// whether it would to call so that this daemon may see who holds the connection.
    fn prove_yourself(&self, why: Unproven) -> Problem {
        let is_private = self.tokens.is_private(&self.core.snapshot()) && why != Unproven::Exposed;
        let helps = why != Unproven::Page && (self.tokens.has_operator() || is_private);
        let remedy = self.remedy(is_private);
        let text = match why {
            Unproven::Unseen => {
                format!(
                    "only a person may do this, and no process that may be looked at was seen to call: {remedy}"
                )
            }
            Unproven::Untold => {
                format!("only a person may do this, and this system does not tell who calls: {remedy}")
            }
            Unproven::Exposed => {
                format!("a token was shown by somebody who is not seen: {remedy}")
            }
            Unproven::Wrong => {
                format!("only a person may do this, and the token shown is not this daemon's: {remedy}")
            }
            Unproven::Token => format!("only a person may do this: {remedy}"),
            Unproven::Page => {
                "only a person may do this, and a page of another origin asks for it: use the daemon's \
                               own console, or svc"
                    .to_owned()
            }
        };
        Problem::new(403, "prove_yourself", text)
            .with("tokenHelps", helps)
            .with("seenHelps", why == Unproven::Exposed)
    }

    fn remedy(&self, is_private: bool) -> String {
        if self.tokens.has_operator() {
            format!(
                "send Authorization: Bearer with the {VARIABLE} that the daemon was started with (svc does so by \
                     itself where that variable is set), or open the console by 'svc open'"
            )
        } else if is_private {
            "svc proves it by itself, in a browser the link of 'svc open' does, and other programs send \
                     Authorization: Bearer $(cat .svc/token)"
                .to_owned()
        } else if self.tokens.has_file() {
            format!(
                "an agent that has no room, or hides, may have read it, so it does for nobody who is not seen; \
                      use svc, a program of your own that may be looked at, or the link of 'svc open'; \
                     or start the daemon and svc with the same {VARIABLE} set"
            )
        } else {
            format!(
                "there is no .svc/token, for it could not be written; call by a program of your own that may be \
                     looked at, or start the daemon and svc with the same {VARIABLE} set"
            )
        }
    }
}

fn may_not(agent: AgentId) -> Problem {
    let who = if agent == UNKNOWN_AGENT { "an agent's process".into() } else { format!("agent {agent}") };
    Problem::new(403, AGENT_MAY_NOT, format!("{who} may not do this; a person has to, outside of an agent"))
}

/// Whether a connection of this holder's gets one of the last places: those that agents cannot take.
fn has_kept_place(holder: Holder) -> bool {
    matches!(holder, Holder::Outside | Holder::Elsewhere)
}

/// Who holds the other end; asked once per connection.
pub fn holder(state: &State, ends: &Ends) -> Holder {
    *ends.holder.get_or_init(|| caller::holder(state, ends.peer, ends.local))
}

fn ends(request: &Request) -> Ends {
    Ends { peer: request.peer, local: request.local, holder: Arc::clone(&request.caller) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
