//! Writing replies: head and body in one buffer, through `tiny_http`'s response writer.

use super::head::Head;
use super::{Config, Policy};
use crate::api::{Problem, Reply};
use tiny_http::{HTTPVersion, Header, Response, StatusCode};

/// The methods told to a browser that asks before it calls.
const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// What a page of an allowed origin may read beyond the plain headers.
const EXPOSED_HEADERS: &str =
    "ETag, Link, Location, RateLimit, RateLimit-Policy, Retry-After, X-Ignored-Fields";

/// The reply as bytes. `head` is absent when the request could not be read.
pub fn encode(reply: &Reply, head: Option<&Head>, keep_alive: bool, config: &Config) -> Vec<u8> {
    if let Some(bytes) = try_encode(reply, head, keep_alive, config) {
        return bytes;
    }
    let problem = Problem::new(500, "internal", "a reply header holds characters that headers cannot have");
    try_encode(&problem.into(), head, false, config).unwrap_or_default()
}

fn try_encode(reply: &Reply, head: Option<&Head>, keep_alive: bool, config: &Config) -> Option<Vec<u8>> {
    let bodiless = matches!(reply.status, 204 | 304);
    let body = if bodiless { &[][..] } else { reply.body.bytes() };
    let mut headers = Vec::with_capacity(reply.headers.len() + 8);
    headers.push(header("Server", config.server)?);
    if !reply.content_type.is_empty() {
        headers.push(header("Content-Type", reply.content_type)?);
    }
    for (name, value) in &reply.headers {
        headers.push(header(name, value)?);
    }
    let has = |name: &str| reply.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    headers.push(header("X-Content-Type-Options", "nosniff")?);
    headers.push(header("Referrer-Policy", "no-referrer")?);
    if !has("Cache-Control") {
        headers.push(header("Cache-Control", config.policy.cache_control)?);
    }
    if reply.content_type.starts_with("text/html") && !has("Content-Security-Policy") {
        headers.push(header("Content-Security-Policy", PAGE_POLICY)?);
    }
    if let Some(head) = head {
        headers.extend(cors(head, &config.policy)?);
    }
    let old = head.is_some_and(|head| head.old);
    let is_head = head.is_some_and(|head| head.method == tiny_http::Method::Head);
    let response = Response::new(StatusCode(reply.status), headers, body, Some(body.len()), None)
        .with_chunked_threshold(usize::MAX);
    let mut out = Vec::with_capacity(body.len() + 512);
    let version = if old { HTTPVersion(1, 0) } else { HTTPVersion(1, 1) };
    // No request headers: a client's `TE` must not change the framing.
    response.raw_print(&mut out, version, &[], is_head, None).ok()?;
    match (keep_alive, old) {
        (false, _) => add_connection(&mut out, "close"),
        (true, true) => add_connection(&mut out, "keep-alive"),
        (true, false) => {}
    }
    Some(out)
}

/// `tiny_http` leaves `Connection` to its own server, so it is added to the finished head.
fn add_connection(out: &mut Vec<u8>, word: &str) {
    let line_end = out.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 2);
    if let Some(at) = line_end {
        out.splice(at..at, format!("Connection: {word}\r\n").into_bytes());
    }
}

/// What a page may load and who may frame it.
const PAGE_POLICY: &str = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

fn cors(head: &Head, policy: &Policy) -> Option<Vec<Header>> {
    let Some(origin) = policy.echoed_origin(head) else {
        let vary = policy.varies_by_origin().then(|| header("Vary", "Origin"));
        return vary.map_or(Some(Vec::new()), |vary| Some(vec![vary?]));
    };
    let mut headers = vec![header("Access-Control-Allow-Origin", origin)?, header("Vary", "Origin")?];
    if policy.varies_by_origin() {
        headers.push(header("Access-Control-Expose-Headers", EXPOSED_HEADERS)?);
    }
    if head.method == tiny_http::Method::Options {
        headers.push(header("Access-Control-Allow-Methods", ALLOWED_METHODS)?);
        headers.push(header("Access-Control-Allow-Headers", "Content-Type, Authorization, If-None-Match")?);
        headers.push(header("Access-Control-Max-Age", "600")?);
    }
    Some(headers)
}

/// `None` when name or value holds CR, LF or NUL, which `tiny_http` itself would let through.
fn header(name: &str, value: &str) -> Option<Header> {
    if value.contains(['\r', '\n', '\0']) {
        return None;
    }
    Header::from_bytes(name, value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::http::Limits;

    fn config() -> Config {
        let policy = Policy::local([127, 0, 0, 1].into(), None);
        Config { limits: Limits::default(), policy, server: "svc" }
    }

    #[test]
    fn a_header_value_cannot_split_the_reply() {
        let reply = Reply::no_content().with_header("Location", "/a\r\nX-Evil: 1");
        let text = String::from_utf8(encode(&reply, None, true, &config())).unwrap();
        assert!(text.starts_with("HTTP/1.1 500"), "{text}");
        assert!(!text.contains("X-Evil"));
    }

    #[test]
    fn decisions_1_every_reply_has_the_security_headers() {
        let text = String::from_utf8(encode(&Reply::ok(&1), None, false, &config())).unwrap();
        for wanted in
            ["nosniff", "no-referrer", "Cache-Control: no-store", "Connection: close", "Content-Length: 1"]
        {
            assert!(text.contains(wanted), "{wanted} is missing in {text}");
        }
    }
}
