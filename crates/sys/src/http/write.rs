//! Writing replies through `tiny_http`'s response writer: head and body in one buffer, or, for a large body,
//! the head alone, so that nothing large is held in memory twice.

use super::head::Head;
use super::{Config, Policy};
use svc_base::api::{Problem, Reply};
use tiny_http::{HTTPVersion, Header, Response, StatusCode};

/// The methods told to a browser that asks before it calls.
const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// What a page of an allowed origin may read beyond the plain headers.
const EXPOSED_HEADERS: &str =
    "ETag, Link, Location, RateLimit, RateLimit-Policy, Retry-After, X-Content-Warnings, X-Ignored-Fields";

/// Bodies above this are not copied behind their head; below it, one write is worth the copy.
const COPIED_BYTES: usize = 64 << 10;

/// What goes out for a reply, one part after the other: the head with a small body behind it, then a large
/// body where it is. `head` is absent when the request could not be read.
pub fn encode<'a>(
    reply: &'a Reply,
    head: Option<&Head>,
    keep_alive: bool,
    config: &Config,
) -> (Vec<u8>, &'a [u8]) {
    let body = if matches!(reply.status, 204 | 304) { &[][..] } else { reply.body.bytes() };
    let is_head = head.is_some_and(|head| head.method == tiny_http::Method::Head);
    let is_apart = body.len() > COPIED_BYTES;
    if let Some(bytes) = try_encode(reply, body, head, !is_apart && !is_head, keep_alive, config) {
        return (bytes, if is_apart && !is_head { body } else { &[] });
    }
    let problem = Problem::new(500, "internal", "a reply header holds characters that headers cannot have");
    let reply = Reply::from(problem);
    (try_encode(&reply, reply.body.bytes(), head, !is_head, false, config).unwrap_or_default(), &[])
}

fn try_encode(
    reply: &Reply,
    body: &[u8],
    head: Option<&Head>,
    with_body: bool,
    keep_alive: bool,
    config: &Config,
) -> Option<Vec<u8>> {
    let mut headers = Vec::with_capacity(reply.headers.len() + 8);
    headers.push(header("Server", config.server)?);
    if !reply.content_type.is_empty() {
        headers.push(header("Content-Type", reply.content_type)?);
    }
    for (name, value) in &reply.headers {
        let base = head.map_or("", |head| head.base.as_str());
        let is_moved = *name == "Location" && value.starts_with('/') && !base.is_empty();
        headers.push(if is_moved { header(name, &format!("{base}{value}"))? } else { header(name, value)? });
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
    let response = Response::new(StatusCode(reply.status), headers, body, Some(body.len()), None)
        .with_chunked_threshold(usize::MAX);
    let copied = if with_body { body.len() } else { 0 };
    let mut out = Vec::with_capacity(copied + 512);
    let version = if old { HTTPVersion(1, 0) } else { HTTPVersion(1, 1) };
    // No request headers: a client's `TE` must not change the framing.
    response.raw_print(&mut out, version, &[], !with_body, None).ok()?;
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
    use crate::http::Limits;

    fn config() -> Config {
        let policy = Policy::local([127, 0, 0, 1].into());
        Config { limits: Limits::default(), policy, server: "svc" }
    }

    fn text(reply: &Reply, keep_alive: bool) -> String {
        let config = config();
        let (first, rest) = encode(reply, None, keep_alive, &config);
        String::from_utf8([first.as_slice(), rest].concat()).unwrap()
    }

    #[test]
    fn a_large_body_is_not_copied_and_comes_whole() {
        for length in [COPIED_BYTES, COPIED_BYTES + 1] {
            let reply = Reply::bytes(200, "text/plain", vec![b'x'; length]);
            let config = config();
            let (first, rest) = encode(&reply, None, true, &config);
            let is_apart = length > COPIED_BYTES;
            assert_eq!(rest.len(), if is_apart { length } else { 0 });
            assert!(first.len() < 1_024 || !is_apart);
            let text = text(&reply, true);
            assert!(text.contains(&format!("Content-Length: {length}\r\n")), "{length}");
            assert_eq!(text.split_once("\r\n\r\n").unwrap().1.len(), length);
        }
    }

    #[test]
    fn a_header_value_cannot_split_the_reply() {
        let reply = Reply::no_content().with_header("Location", "/a\r\nX-Evil: 1");
        let text = text(&reply, true);
        assert!(text.starts_with("HTTP/1.1 500"), "{text}");
        assert!(!text.contains("X-Evil"));
    }

    #[test]
    fn decisions_1_every_reply_has_the_security_headers() {
        let text = text(&Reply::ok(&1), false);
        for wanted in
            ["nosniff", "no-referrer", "Cache-Control: no-store", "Connection: close", "Content-Length: 1"]
        {
            assert!(text.contains(wanted), "{wanted} is missing in {text}");
        }
    }
}
