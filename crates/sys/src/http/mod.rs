//! The HTTP edge: one port, one thread per connection, every limit named. And [`client`], for other servers.
//!
//! The socket side is ours because `tiny_http`'s own server has no limits and no time-outs; its types and its
//! response writer are used. Features see only [`Request`] and [`Reply`].
//!
//! **Invariant:** no request reaches a handler before its head was checked against the limits, its framing is
//! unambiguous, and its Host and Origin are allowed.

mod bind;
mod body;
pub mod client;
mod connection;
mod deadline;
mod head;
mod policy;
mod server;
mod stats;
mod write;

pub use bind::{BindError, Bound, CONFLICT_WAIT, Port, bind};
pub use body::{BodyError, Input};
pub use head::{Framing, Head, parse as parse_head};
pub use policy::{HostRule, OriginRule, Policy, is_own_page, same_bytes};
pub use server::{Handle, Listening, Server};
pub use stats::Stats;

use super::ws::Subscription;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use svc_base::actor::Holder;
use svc_base::api::{Found, Method, Params, Problem, Reply, Request, Route, Table};

/// Both ends of a connection, and what is learned of it once.
#[derive(Debug, Clone)]
pub struct Ends {
    pub peer: SocketAddr,
    pub local: SocketAddr,
    /// Who holds the other end.
    pub holder: Arc<OnceLock<Holder>>,
}

/// Whose a request is.
#[derive(Debug)]
pub enum Way {
    /// This service's.
    Here,
    /// Nobody's: this answers it.
    Answer(Reply),
    /// That of the service with this name, which gets the connection.
    Pass(String),
}

/// What answers requests. Called from many threads at once.
pub trait Service: Send + Sync + 'static {
    /// The largest body of a request for this path, in bytes.
    fn body_limit(&self, method: &Method, segments: &[String]) -> usize;

    /// Says whose a request is, before anything else of it is looked at but what the policy checks.
    ///
    /// Errors: nobody's.
    fn way(&self, head: &mut Head, ends: &Ends) -> Result<Way, Problem> {
        let _ = (head, ends);
        Ok(Way::Here)
    }

    /// Gives a connection away, with what was read of it and not answered.
    ///
    /// Errors: it could not be given, and is still ours.
    fn pass(&self, to: &str, stream: &TcpStream, bytes: &[u8]) -> Result<(), Problem> {
        let _ = (stream, bytes);
        Err(Problem::not_found(format!("there is no {to}")))
    }

    /// Refuses a request before its body is read, for example for want of a key.
    fn admit(&self, head: &Head, ends: &Ends) -> Result<(), Problem> {
        let _ = (head, ends);
        Ok(())
    }

    /// Whether a connection may have one of the slots that are kept back when all others are taken.
    fn may_use_reserve(&self, ends: &Ends) -> bool {
        let _ = ends;
        false
    }

    /// Answers a request.
    fn handle(&self, request: &Request) -> Reply;

    /// What a WebSocket upgrade of this request subscribes to; `None` where the path takes none.
    fn websocket(&self, request: &Request) -> Option<Result<Subscription, Problem>> {
        let _ = request;
        None
    }
}

/// Numbers of the edge. Sizes in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once. When the last [`Limits::reserve`] of them are reached, the one that has kept us
    /// waiting longest goes, or the new one gets 503.
    pub connections: usize,
    /// Of these, kept back for callers that the service knows.
    pub reserve: usize,
    /// Request line and headers together: 431 above.
    pub head_bytes: usize,
    /// Request target: 414 above.
    pub target_bytes: usize,
    /// Header lines: 431 above.
    pub headers: usize,
    /// A head must be there this long after its first byte: 408.
    pub head_time: Duration,
    /// A connection without a request is closed after this.
    pub idle_time: Duration,
    /// A body must be there this long after its head: 408.
    pub body_time: Duration,
    /// After this the body must have come at [`Limits::body_rate`] so far: 408.
    pub body_grace: Duration,
    /// Bytes of a body per second at least.
    pub body_rate: usize,
    /// A reply must be taken by the client within this.
    pub write_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            reserve: 16,
            head_bytes: 32 << 10,
            target_bytes: 8 << 10,
            headers: 100,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            body_time: Duration::from_secs(30),
            body_grace: Duration::from_secs(5),
            body_rate: 1 << 10,
            write_time: Duration::from_secs(30),
        }
    }
}

/// How an edge behaves.
#[derive(Debug, Clone)]
pub struct Config {
    pub limits: Limits,
    pub policy: Policy,
    /// The `Server` header.
    pub server: &'static str,
}

/// Finds the route and calls `answer`; 404, 405 with `Allow`, and OPTIONS are answered here, alike for all.
pub fn dispatch<H>(
    table: &Table<H>,
    request: &Request,
    answer: impl FnOnce(&Route<H>, &Params) -> Reply,
) -> Reply {
    match table.find(&request.method, &request.segments) {
        Found::Route(route, params) => answer(route, &params),
        Found::OtherMethods(allow) if request.method == Method::Options => {
            Reply::no_content().with_header("Allow", allow)
        }
        Found::OtherMethods(allow) => {
            let text = format!("{} does not take {}; it takes {allow}", request.path, request.method);
            Problem::new(405, "method_not_allowed", text).with_header("Allow", allow).into()
        }
        Found::Nothing => {
            Problem::not_found(format!("there is no {}; GET /api/openapi.json lists the paths", request.path))
                .into()
        }
    }
}
