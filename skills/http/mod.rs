//! The service behind the HTTP edge: limits, keys, routing, and what all replies have in common.

mod address;
mod description;
mod discovery;
mod legacy;
mod reads;
pub mod routes;
mod system;
mod writes;

use crate::catalogue::Catalogue;
use crate::keys::{Access, Keys};
use crate::limits::client::{Client, Proxies};
use crate::limits::{Limiter, Verdict, WINDOW};
use crate::page;
pub use address::Moved;
pub use discovery::Discovery;
use routes::{Ask, Handler};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use svc_base::api::{Found, Method, Params, Problem, Reply, Request, Table};
use svc_sys::http::{Ends, Head, Service, Stats};

/// Largest request body.
pub const BODY_LIMIT_BYTES: usize = 512 << 10;
/// Clients of one statement when instances tell each other what has passed.
const SHARED_CLIENTS: usize = 1000;
/// What caches may do with public reads.
const CACHE_PUBLIC: &str = "public, max-age=0, must-revalidate";
/// What they may do with what a key has opened.
const CACHE_KEYED: &str = "private, no-store";

/// Everything that handlers need.
pub struct Market {
    pub catalogue: Catalogue,
    pub keys: Keys,
    /// How often the public may ask.
    pub limiter: Limiter,
    /// Whose forwarding is believed.
    pub proxies: Proxies,
    /// Whether it was configured where the service is found from outside.
    pub has_base: bool,
    /// The index of the market.
    pub discovery: Discovery,
    /// Answers under other addresses.
    pub moved: Moved,
    /// All routes.
    pub table: Table<Handler>,
    /// The edge's counters, set once it runs.
    pub stats: OnceLock<std::sync::Arc<Stats>>,
    /// Requests refused by the limit.
    pub limited: AtomicU64,
    /// Whether the other instances could not be told at the last try: then no request waits for another one,
    /// and each instance counts for itself until [`Market::share_all`] reaches them.
    pub apart: AtomicBool,
    /// When the service started; the limiter counts from here.
    pub started: Instant,
}

impl Market {
    /// Where the service is found from outside, without a slash at the end: as configured, else as this
    /// request has found it.
    pub fn base(&self, request: &Request) -> String {
        let found = if self.has_base { None } else { address::of(request, &self.proxies) };
        found.unwrap_or_else(|| self.catalogue.base_url().to_owned())
    }

    /// Another address than that in the catalogue, for answers that hold addresses.
    fn other_base(&self, request: &Request, reply: &Reply) -> Option<String> {
        let holds_some =
            reply.content_type == "application/json" && !request.path.starts_with("/.well-known/");
        let base = holds_some.then(|| self.base(request));
        base.filter(|base| base != self.catalogue.base_url())
    }

    /// The client behind a connection.
    fn client(&self, peer: SocketAddr, headers: &[(String, String)]) -> Client {
        let forwarded = headers.iter().filter(|(n, _)| n == "x-forwarded-for").map(|(_, v)| v.as_str());
        Client::of(self.proxies.client(peer.ip(), forwarded))
    }

    /// Counts a public request.
    ///
    /// Errors: 429.
    fn count(&self, client: Client) -> Result<Option<Verdict>, Problem> {
        let verdict = self.verdict(client);
        let Some(Verdict { passes: false, reset_ms, .. }) = verdict else { return Ok(verdict) };
        self.limited.fetch_add(1, Ordering::Relaxed);
        let limit = self.limiter.limit().unwrap_or_default();
        let text = format!("more than {limit} requests in {} s, try again later", WINDOW.as_secs());
        let mut problem = Problem::new(429, "rate_limited", text)
            .with_header("Retry-After", reset_ms.div_ceil(1000).max(1).to_string());
        if let Some(verdict) = verdict {
            problem.headers.extend(limit_headers(limit, verdict));
        }
        Err(problem)
    }

    /// What this instance says, and where instances share a client's limit, what it knows of the others.
    fn verdict(&self, client: Client) -> Option<Verdict> {
        let now = self.started.elapsed();
        let asked = self.limiter.ask(client, now)?;
        if !asked.share {
            return Some(asked.verdict);
        }
        if self.apart.load(Ordering::Relaxed) {
            self.limiter.stand_alone(client);
        } else {
            self.share(&[(client, self.limiter.take_untold(client))]);
        }
        if asked.verdict.passes {
            return Some(asked.verdict);
        }
        // What was known of the others may have left the window.
        self.limiter.ask(client, now).map(|asked| asked.verdict)
    }

    /// Tells the other instances what has passed here, and learns what has passed there; whether that worked.
    /// A database that is away takes no reads down: then each instance counts for itself.
    fn share(&self, told: &[(Client, u32)]) -> bool {
        let store = self.catalogue.store();
        let key = store.client_key();
        let hashed: Vec<_> = told.iter().map(|(client, count)| (client.hash(&key), *count)).collect();
        let now = self.started.elapsed();
        let shared = store.share_requests(&hashed);
        self.apart.store(shared.is_err(), Ordering::Relaxed);
        let Ok(elsewhere) = shared else {
            for (client, _) in told {
                self.limiter.stand_alone(*client);
            }
            return false;
        };
        for ((client, _), elsewhere) in told.iter().zip(elsewhere) {
            self.limiter.told(*client, now, elsewhere);
        }
        true
    }

    /// Tells the other instances of all clients what they do not know yet. To be called about once a second.
    pub fn share_all(&self) {
        let untold = self.limiter.take_all_untold();
        // After one that failed the others would wait for nothing.
        let _ = untold.chunks(SHARED_CLIENTS).all(|told| self.share(told));
    }

    /// Whether a request is for a file of an index that the client has fetched.
    fn is_open_file(&self, found: &Found<Handler>, client: Client) -> bool {
        let Found::Route(route, _) = found else { return false };
        routes::is_indexed_file(route) && self.limiter.takes_file(client, self.started.elapsed())
    }

    /// Finds the route. The registry is a file, for no method a skill of that name.
    fn find(&self, method: &Method, segments: &[String]) -> Found<'_, Handler> {
        let reads = matches!(method, Method::Get | Method::Head);
        if !reads && segments == ["api", "v1", "skills", "registry.json"] {
            return Found::OtherMethods("GET, HEAD, OPTIONS".to_owned());
        }
        self.table.find(method, segments)
    }

    fn answer(&self, request: &Request, found: Found<Handler>, client: Client) -> Reply {
        match found {
            Found::Route(route, params) => self.call(route.handler, request, &params, client),
            Found::OtherMethods(allow) if request.method == Method::Options => {
                Reply::no_content().with_header("Allow", allow)
            }
            Found::OtherMethods(allow) => {
                let text = format!("{} does not take {}; it takes {allow}", request.path, request.method);
                Problem::new(405, "method_not_allowed", text).with_header("Allow", allow).into()
            }
            Found::Nothing => Problem::not_found(format!(
                "there is no {}; GET /api/v1/openapi.json lists the paths",
                shortened(&request.path)
            ))
            .into(),
        }
    }

    fn call(&self, handler: Handler, request: &Request, params: &Params, client: Client) -> Reply {
        let keyed = self.keys.knows(request.header("authorization"));
        let ask = Ask { market: self, request, params, client, keyed };
        let (Handler::Get(call) | Handler::Write(_, call)) = handler;
        let mut reply = call(&ask).unwrap_or_else(Reply::from);
        let other = self.other_base(request, &reply);
        if let Some(base) = &other {
            address::tag(&mut reply, base);
        }
        if matches!(handler, Handler::Get(_)) {
            reply = conditional(reply, request);
        }
        if let Some(base) = &other {
            let from = self.catalogue.base_url();
            reply = self.moved.rewrite(reply, from, base);
        }
        if matches!(handler, Handler::Get(_)) && !has(&reply, "Cache-Control") {
            let cache = match (keyed, reply.status) {
                (true, _) => CACHE_KEYED,
                (false, 200 | 304) => CACHE_PUBLIC,
                _ => "no-store",
            };
            reply.headers.push(("Cache-Control", cache.into()));
        }
        reply
    }
}

impl Service for Market {
    fn body_limit(&self, _: &Method, _: &[String]) -> usize {
        BODY_LIMIT_BYTES
    }

    fn admit(&self, head: &Head, ends: &Ends) -> Result<(), Problem> {
        if matches!(head.method, Method::Get | Method::Head | Method::Options) {
            return Ok(());
        }
        let access = access(&self.find(&head.method, &head.segments));
        let Err(problem) = self.keys.check(access, head.header("authorization")) else { return Ok(()) };
        // Guessing keys is public and counts as such.
        self.count(self.client(ends.peer, &head.headers))?;
        Err(problem)
    }

    fn handle(&self, request: &Request) -> Reply {
        let client = self.client(request.peer, &request.headers);
        let found = self.find(&request.method, &request.segments);
        let free = request.method == Method::Options
            || request.path == "/healthz"
            || access(&found) != Access::Public;
        if free || self.is_open_file(&found, client) {
            return self.answer(request, found, client);
        }
        let verdict = match self.count(client) {
            Ok(verdict) => verdict,
            Err(problem) if page::wants_html(request) => {
                let after = problem.headers.clone();
                let mut reply = page::refusal(&problem);
                reply.headers.extend(after);
                return reply;
            }
            Err(problem) => return problem.into(),
        };
        let mut reply = self.answer(request, found, client);
        if let (Some(verdict), Some(limit)) = (verdict, self.limiter.limit()) {
            reply.headers.extend(limit_headers(limit, verdict));
        }
        reply
    }
}

/// The key that a route needs.
fn access(found: &Found<Handler>) -> Access {
    match found {
        Found::Route(route, _) => route.handler.access(),
        _ => Access::Public,
    }
}

fn limit_headers(limit: u32, verdict: Verdict) -> [(&'static str, String); 2] {
    let window = WINDOW.as_secs();
    let seconds = verdict.reset_ms.div_ceil(1000);
    [
        ("RateLimit-Policy", format!("\"public\";q={limit};w={window}")),
        ("RateLimit", format!("\"public\";r={};t={seconds}", verdict.remaining)),
    ]
}

fn has(reply: &Reply, name: &str) -> bool {
    reply.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name))
}

/// Turns a 200 into a 304 when the client has this very version; a reply without tag gets one.
fn conditional(mut reply: Reply, request: &Request) -> Reply {
    if reply.status != 200 {
        return reply;
    }
    if !has(&reply, "ETag") {
        let tag = format!("\"{}\"", &crate::hex::sha256(reply.body.bytes())[..20]);
        reply.headers.push(("ETag", tag));
    }
    let tag = reply.headers.iter().find(|(name, _)| *name == "ETag").map(|(_, value)| value.as_str());
    let known = request.headers.iter().filter(|(name, _)| name == "if-none-match");
    let matches = known.flat_map(|(_, value)| value.split(',')).any(|given| {
        let given = given.trim();
        given == "*" || Some(given.strip_prefix("W/").unwrap_or(given)) == tag
    });
    if matches {
        reply.status = 304;
        reply.content_type = "";
        reply.body = svc_base::api::Body::Static(b"");
    }
    reply
}

/// A path as it may stand in a message.
fn shortened(path: &str) -> String {
    path.chars().take(100).collect()
}
