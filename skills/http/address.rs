//! Where the service is found from outside, where nobody has configured it: where this request has found it.
//!
//! The catalogue is rendered once with the listening address; what goes out under another one is told apart
//! by its tag and rewritten on the way out.

use crate::hex;
use crate::limits::client::Proxies;
use memchr::memmem;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use svc_base::api::{Body, Reply, Request};
use svc_sys::threads::lock;

/// Longest host with port that is taken up into an answer.
const HOST_CHARS: usize = 255;
/// Bytes of smaller rewritten bodies that are kept; when they are reached, all are dropped.
const SMALL_BODIES_BYTES: usize = 8 << 20;
/// Bodies above this are rewritten once for all who ask under the same address.
const LARGE_BYTES: usize = 1 << 20;
/// Rewritten large bodies in memory at once, so that whoever asks under many addresses costs no more.
const LARGE_BODIES: usize = 4;

/// The address under which a request has come: scheme, host and port. A trusted proxy says how it was called
/// itself.
pub fn of(request: &Request, proxies: &Proxies) -> Option<String> {
    let trusted = proxies.trusts(request.peer.ip());
    // What the nearest proxy has added stands last.
    let forwarded = |name: &str| {
        let last = request.headers.iter().rfind(|(given, _)| given == name)?;
        last.1.rsplit(',').next().map(str::trim).filter(|_| trusted)
    };
    let host = forwarded("x-forwarded-host").filter(|host| is_host(host)).or_else(|| request.header("host"));
    let scheme = match forwarded("x-forwarded-proto") {
        Some(word) if word.eq_ignore_ascii_case("https") => "https",
        _ => "http",
    };
    host.filter(|host| is_host(host)).map(|host| format!("{scheme}://{}", host.to_ascii_lowercase()))
}

/// A name, an IPv4 address or an IPv6 address in brackets, with or without a port; nothing that could end the
/// address or the text around it.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rfind(']') {
        Some(end) => text.split_at(end + 1),
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_name = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !name.is_empty()
                && name.split('.').all(|label| {
                    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
                    !label.is_empty() && label.bytes().all(plain)
                })
        }
    };
    text.len() <= HOST_CHARS && is_port && is_name
}

/// What stands in a tag for an address.
fn mark(base: &str) -> String {
    hex::sha256(base.as_bytes())[..8].to_owned()
}

/// Gives a reply the tag that it has under another address.
pub fn tag(reply: &mut Reply, base: &str) {
    let mark = mark(base);
    if let Some((_, tag)) = reply.headers.iter_mut().find(|(name, _)| *name == "ETag") {
        *tag = format!("{}-{mark}\"", tag.trim_end_matches('"'));
    } else {
        let body = &hex::sha256(reply.body.bytes())[..20];
        reply.headers.push(("ETag", format!("\"{body}-{mark}\"")));
    }
}

/// Bodies by tag.
type Bodies = HashMap<String, Arc<[u8]>>;

/// Bodies under other addresses: small ones are kept for the next who asks, large ones as long as somebody is
/// being answered with them.
#[derive(Default)]
pub struct Moved {
    small: Mutex<(Bodies, usize)>,
    large: Mutex<Vec<(String, Weak<[u8]>)>>,
}

impl Moved {
    /// Rewrites the addresses of a tagged reply from one base to another. Where too many large bodies are on
    /// their way under other addresses, the reply goes out as the catalogue has it, under its own tag.
    pub fn rewrite(&self, mut reply: Reply, from: &str, to: &str) -> Reply {
        let Some(at) = reply.headers.iter().position(|(name, _)| *name == "ETag") else { return reply };
        if reply.body.bytes().is_empty() {
            return reply;
        }
        let tag = reply.headers[at].1.clone();
        // Inside of a string of JSON the quotes would be escaped, so that this is the field alone.
        let (from, field) = (format!("\"contentUrl\":\"{from}/"), format!("\"contentUrl\":\"{to}/"));
        let text = reply.body.bytes();
        let make = || -> Arc<[u8]> {
            replaced(text, from.as_bytes(), field.as_bytes()).unwrap_or_else(|| text.to_vec()).into()
        };
        let body =
            if text.len() > LARGE_BYTES { self.large(&tag, make) } else { Some(self.small(&tag, make)) };
        match body {
            Some(body) => reply.body = Body::Shared(body),
            None => reply.headers[at].1 = tag.replace(&format!("-{}\"", mark(to)), "\""),
        }
        reply
    }

    fn small(&self, tag: &str, make: impl Fn() -> Arc<[u8]>) -> Arc<[u8]> {
        let known = lock(&self.small).0.get(tag).cloned();
        if let Some(body) = known {
            return body;
        }
        let body = make();
        let mut bodies = lock(&self.small);
        if bodies.1 + body.len() > SMALL_BODIES_BYTES {
            *bodies = (HashMap::new(), 0);
        }
        if bodies.0.insert(tag.to_owned(), Arc::clone(&body)).is_none() {
            bodies.1 += body.len();
        }
        body
    }

    /// Made behind the lock, so that many who ask at once wait for one body.
    fn large(&self, tag: &str, make: impl Fn() -> Arc<[u8]>) -> Option<Arc<[u8]>> {
        let mut bodies = lock(&self.large);
        bodies.retain(|(_, body)| body.strong_count() > 0);
        let known = bodies.iter().find(|(known, _)| known == tag).and_then(|(_, body)| body.upgrade());
        if known.is_some() || bodies.len() >= LARGE_BODIES {
            return known;
        }
        let body = make();
        bodies.push((tag.to_owned(), Arc::downgrade(&body)));
        Some(body)
    }
}

/// The text with every `from` as `to`; `None` where there is none.
fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let mut places = memmem::find_iter(text, from).peekable();
    places.peek()?;
    let mut out = Vec::with_capacity(text.len() + text.len() / 16);
    let mut done = 0;
    for place in places {
        out.extend_from_slice(&text[done..place]);
        out.extend_from_slice(to);
        done = place + from.len();
    }
    out.extend_from_slice(&text[done..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_a_host_goes_into_an_address() {
        for good in
            ["market.example", "localhost:31416", "10.0.0.7", "[::1]:80", "[2001:db8::1]", "a_b-c.d:1"]
        {
            assert!(is_host(good), "{good}");
        }
        for bad in [
            "", ":80", "a b", "a/b", "a\"b", "a<b", "a..b", "a@b", "a:b", "a:", "a:65536", "a:1:2", "[::1",
            "::1", "[x]", "a.", "ä",
        ] {
            assert!(!is_host(bad), "{bad}");
        }
        assert!(!is_host(&"a".repeat(HOST_CHARS + 1)));
    }

    #[test]
    fn an_address_is_replaced_in_its_field_alone() {
        let json = |base: &str, text: &str| {
            serde_json::json!([{"contentUrl": format!("{base}/x.md"), "name": text}]).to_string()
        };
        let text = "\"contentUrl\":\"http://old/ in a name";
        let (from, to) = ("\"contentUrl\":\"http://old/", "\"contentUrl\":\"https://new.example/");
        let done = replaced(json("http://old", text).as_bytes(), from.as_bytes(), to.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(done).unwrap(), json("https://new.example", text));
        assert_eq!(replaced(b"{}", from.as_bytes(), to.as_bytes()), None);
    }

    #[test]
    fn bodies_under_many_addresses_are_bounded_and_shared() {
        let moved = Moved::default();
        let large = "[".to_owned() + &"{\"contentUrl\":\"http://old/x.md\"},".repeat(40_000) + "0]";
        assert!(large.len() > LARGE_BYTES);
        let ask = |to: &str| {
            let mut reply = Reply::bytes(200, "application/json", large.clone()).with_header("ETag", "\"1\"");
            tag(&mut reply, to);
            moved.rewrite(reply, "http://old", to)
        };
        let new = |n: usize| format!("http://new{n}");
        let sent: Vec<Reply> = (0..LARGE_BODIES).map(|n| ask(&new(n))).collect();
        assert!(sent[0].body.bytes().starts_with(b"[{\"contentUrl\":\"http://new0/x.md\"}"));
        let one_more = ask("http://other");
        assert!(one_more.body.bytes().starts_with(b"[{\"contentUrl\":\"http://old/x.md\"}"), "as it is");
        assert_eq!(one_more.headers[0].1, "\"1\"", "under the tag that says so");
        let again = ask(&new(1));
        assert_eq!(again.body.bytes().as_ptr(), sent[1].body.bytes().as_ptr(), "shared");
        drop(sent);
        let later = ask("http://other");
        for n in 0..200 {
            let text = "x".repeat(LARGE_BYTES / 2);
            let mut reply = Reply::bytes(200, "application/json", text).with_header("ETag", "\"2\"");
            tag(&mut reply, &new(n));
            moved.rewrite(reply, "http://old", &new(n));
        }
        let small = lock(&moved.small);
        let kept: usize = small.0.values().map(|body| body.len()).sum();
        assert!(kept == small.1 && kept <= SMALL_BODIES_BYTES, "{kept} bytes are kept");
        assert!(later.body.bytes().starts_with(b"[{\"contentUrl\":\"http://other/x.md\"}"));
    }
}
