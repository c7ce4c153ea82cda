//! What phones reach of the daemon: a list, and nothing beside it.
//!
//! Phones call at a listener of their own, by TLS. Whoever comes there is judged here, before anything else
//! of the daemon hears of it.
//!
//! **Invariant:** a route that is not on the lists below is refused to whoever comes in here, paired or not.
//! **Invariant:** an agent's process, or one of this machine that is not seen, is refused whatever it shows.

use super::caller;
use super::service::{Service, holder};
use super::tokens::Source;
use crate::api::{Found, Method, Params, Problem, Reply, Request};
use crate::core::State;
use crate::core::actor::{Caller, Holder};
use crate::phones::api::CODE_BODY_BYTES;
use crate::phones::worker_door::Shows;
use crate::phones::{Phone, Right, may_not, not_paired};
use std::sync::Arc;
use std::time::Duration;
use svc_sys::clock;
use svc_sys::http::{self, Ends, Head, Limits, Way};
use svc_sys::ws::{Listener, Subscription, wants_upgrade};

/// The page for phones, and how a browser becomes one.
pub const OF_ALL: [(Method, &str); 3] =
    [(Method::Get, "/phone"), (Method::Get, "/phone/:file"), (Method::Post, "/api/phone/session")];
/// What a phone may with the right to look: that and where it is told itself.
pub const LOOKS: [(Method, &str); 8] = [
    (Method::Get, "/api/phone/self"),
    (Method::Get, "/api/phone/push"),
    (Method::Post, "/api/phone/push"),
    (Method::Delete, "/api/phone/push"),
    (Method::Get, "/api/agents"),
    (Method::Get, "/api/approvals"),
    (Method::Get, "/api/approvals/:id"),
    (Method::Get, "/api/approvals/:id/card"),
];
/// What a phone may with the right that the approval asks for.
pub const DECIDES: [(Method, &str); 2] =
    [(Method::Post, "/api/approvals/:id/approve"), (Method::Post, "/api/approvals/:id/reject")];
/// Where a phone hears what happens, and of what.
const SOCKET: &str = "/api/ws";
const HEARS: &str = "approval:request,approval:resolved";
/// Bytes of what a phone may send.
const BODY_BYTES: usize = 16 << 10;

/// Limits of the listener for phones: each connection has two threads, and few phones have few connections.
pub fn limits() -> Limits {
    Limits {
        connections: 64,
        reserve: 0,
        head_bytes: 16 << 10,
        target_bytes: 2 << 10,
        idle_time: Duration::from_secs(30),
        ..Limits::default()
    }
}

/// The daemon as phones see it.
pub struct PhoneService {
    /// The daemon.
    pub service: Arc<Service>,
}

/// Nothing that a phone says on its WebSocket is heard.
struct Deaf;

impl Listener for Deaf {
    fn heard(&self, _client: u64, _message: &serde_json::Value) -> Option<serde_json::Value> {
        None
    }

    fn gone(&self, _client: u64) {}
}

/// What a request is about.
enum About {
    OfAll,
    Socket,
    /// This route, for whoever may.
    Route(&'static str),
    /// Nothing that there is for phones.
    Other,
}

impl http::Service for PhoneService {
    fn body_limit(&self, _method: &Method, segments: &[String]) -> usize {
        let is_code = segments.iter().map(String::as_str).eq(["api", "phone", "session"]);
        if is_code { CODE_BODY_BYTES } else { BODY_BYTES }
    }

    fn way(&self, head: &mut Head, _ends: &Ends) -> Result<Way, Problem> {
        // Whoever types the address alone means the page.
        let is_front = head.path == "/" && head.method == Method::Get && !wants_upgrade(head);
        let page = || Reply { status: 303, ..Reply::no_content() }.with_header("Location", "/phone");
        Ok(if is_front { Way::Answer(page()) } else { Way::Here })
    }

    fn admit(&self, head: &Head, ends: &Ends) -> Result<(), Problem> {
        let state = self.service.core.snapshot();
        check_holder(&state, ends)?;
        let about = self.about(&head.method, &head.segments, wants_upgrade(head));
        if matches!(about, About::OfAll) {
            return Ok(());
        }
        let phone = self.phone(&state, &Shows::of_head(head, matches!(about, About::Socket)), ends)?;
        match about {
            About::OfAll => Ok(()),
            About::Socket | About::Route(_) if phone.may(Right::Look) => Ok(()),
            About::Socket | About::Route(_) | About::Other => Err(may_not(&phone.name)),
        }
    }

    fn handle(&self, request: &Request) -> Reply {
        let state = self.service.core.snapshot();
        let ends = Ends { peer: request.peer, local: request.local, holder: Arc::clone(&request.caller) };
        self.judged(&state, request, &ends)
            .map_or_else(Into::into, |caller| self.service.answer_phone(request, caller))
    }

    fn websocket(&self, request: &Request) -> Option<Result<Subscription, Problem>> {
        if request.path != SOCKET {
            return None;
        }
        // Its phone was asked for before; what it hears of is not its to choose.
        let since = request.query.iter().filter(|(name, _)| name == "since").cloned();
        let query: Vec<_> = since.chain([("types".to_owned(), HEARS.to_owned())]).collect();
        Some(Subscription::from_query(self.service.hub.clone(), Arc::new(Deaf), &query))
    }
}

impl PhoneService {
    fn about(&self, method: &Method, segments: &[String], is_socket: bool) -> About {
        if is_socket {
            let is_ours = segments.iter().map(String::as_str).eq(["api", "ws"]);
            return if is_ours { About::Socket } else { About::Other };
        }
        let Found::Route(route, _) = self.service.table.find(method, segments) else { return About::Other };
        let is_on = |list: &[(Method, &str)]| list.contains(&(route.method.clone(), route.path));
        if is_on(&OF_ALL) {
            About::OfAll
        } else if is_on(&LOOKS) || is_on(&DECIDES) {
            About::Route(route.path)
        } else {
            About::Other
        }
    }

    /// The phone that shows both halves of its proof.
    ///
    /// Errors: 401 `phone_not_paired`, 429 for a source of too many wrong ones.
    fn phone(&self, state: &State, shows: &Shows, ends: &Ends) -> Result<Arc<Phone>, Problem> {
        let door = &self.service.host.phones;
        if let Some(phone) = door.phone_of(&state.phones, shows, clock::now()) {
            return Ok(phone);
        }
        if shows.is_something() {
            self.service.listen_to(Source::of(holder(state, ends), ends.peer.ip()), true)?;
        }
        Err(not_paired())
    }

    /// As whom a whole request is answered; everything is asked once more, for the body took its time.
    fn judged(&self, state: &State, request: &Request, ends: &Ends) -> Result<Caller, Problem> {
        check_holder(state, ends)?;
        let about = self.about(&request.method, &request.segments, false);
        if matches!(about, About::OfAll) {
            return Ok(Caller::Phone(None));
        }
        let phone = self.phone(state, &Shows::of(request), ends)?;
        let About::Route(path) = about else { return Err(may_not(&phone.name)) };
        let is_decision = DECIDES.iter().any(|(_, known)| *known == path);
        let right = if is_decision { right_of(state, &self.params(request)) } else { Right::Look };
        if phone.may(right) { Ok(Caller::Phone(Some(phone.id))) } else { Err(may_not(&phone.name)) }
    }

    fn params(&self, request: &Request) -> Params {
        match self.service.table.find(&request.method, &request.segments) {
            Found::Route(_, params) => params,
            _ => Params::default(),
        }
    }
}

/// The right that a decision takes. One about nothing that is known is refused by its own rule.
fn right_of(state: &State, params: &Params) -> Right {
    let approval = state.approvals.find(params.get("id"));
    approval.map_or(Right::Approve, |approval| Right::to_decide(&approval.action))
}

/// Errors: 403 for an agent's process, and for one of this machine that is not seen.
fn check_holder(state: &State, ends: &Ends) -> Result<(), Problem> {
    match holder(state, ends) {
        Holder::Elsewhere | Holder::Outside => Ok(()),
        // Such a system does not tell of processes, but of addresses.
        Holder::Untold if caller::is_elsewhere(ends.peer, ends.local) => Ok(()),
        Holder::Agent(_) | Holder::Unseen | Holder::Untold => {
            let text = "this is for phones, and who calls is a process of this machine that is not seen to be a person's";
            Err(Problem::new(403, "phone_may_not", text))
        }
    }
}
