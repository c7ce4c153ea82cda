//! The HTTP edge: one port, one thread per connection, every limit named.
//!
//! The socket side is ours because `tiny_http`'s own server has no limits and no time-outs; its types and its
//! response writer are used. Features see only [`Request`] and [`Reply`].
//!
//! **Invariant:** no request reaches a handler before its head was checked against the limits, its framing is
//! unambiguous, and its Host and Origin are allowed.

mod bind;
mod body;
mod connection;
mod deadline;
mod head;
mod policy;
mod server;
mod stats;
mod write;

pub use bind::{BindError, Bound, CONFLICT_WAIT, bind};
pub use head::Head;
pub use policy::{HostRule, OriginRule, Policy, same_bytes};
pub use server::Server;
pub use stats::Stats;

use super::ws::Subscription;
use crate::api::{Found, Method, Params, Problem, Reply, Request, Route, Table};
use std::net::SocketAddr;
use std::time::Duration;

/// What answers requests. Called from many threads at once.
pub trait Service: Send + Sync + 'static {
    /// The largest body of a request for this path, in bytes.
    fn body_limit(&self, method: &Method, segments: &[String]) -> usize;

    /// Refuses a request before its body is read, for example for want of a key.
    fn admit(&self, head: &Head, peer: SocketAddr) -> Result<(), Problem> {
        let _ = (head, peer);
        Ok(())
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
    /// Connections at once; above it the one that has waited longest for a head goes, or the new one gets
    /// 503.
    pub connections: usize,
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
    /// A reply must be taken by the client within this.
    pub write_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            head_bytes: 32 << 10,
            target_bytes: 8 << 10,
            headers: 100,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            body_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
        }
    }
}

/// How an edge behaves.
#[derive(Debug, Clone)]
pub struct Config {
    /// Numbers.
    pub limits: Limits,
    /// Who may call.
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
