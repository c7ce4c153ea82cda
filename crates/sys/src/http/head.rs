//! Request heads: bytes in, a checked head out. Strict, because whatever stands between a client and us
//! may read an unclear message otherwise.

use super::Limits;
use svc_base::api::{Method, Problem, decode_percent, parse_query};

/// How the body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    None,
    /// This many bytes.
    Length(usize),
    Chunked,
}

/// A checked head.
#[derive(Debug, Clone)]
pub struct Head {
    pub method: Method,
    /// The path as sent, without the query, and without [`Head::base`].
    pub path: String,
    /// What a door has cut off the path, for example `/p/shop`; empty where there was nothing.
    pub base: String,
    /// The path split at `/`, decoded.
    pub segments: Vec<String>,
    /// The query, decoded.
    pub query: Vec<(String, String)>,
    /// Header pairs, names in lower case.
    pub headers: Vec<(String, String)>,
    /// HTTP/1.0 rather than 1.1.
    pub old: bool,
    /// How the body comes.
    pub framing: Framing,
    /// Whether the connection goes on after the reply.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue`.
    pub expects_continue: bool,
}

impl Head {
    /// The first header of this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Cuts off the first `segments` of the path, which a door has understood.
    pub fn enter(&mut self, segments: usize) {
        let slashes = self.path.match_indices('/').map(|(at, _)| at);
        let Some(at) = slashes.chain([self.path.len()]).nth(segments) else { return };
        self.base = self.path[..at].to_owned();
        self.path.drain(..at);
        self.segments.drain(..segments.min(self.segments.len()));
    }

    /// How often a header stands in the head.
    pub fn count(&self, name: &str) -> usize {
        self.headers.iter().filter(|(n, _)| n == name).count()
    }

    /// Whether a comma-separated header holds this token, whatever its case.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        let values = self.headers.iter().filter(|(n, _)| n == name);
        values.flat_map(|(_, value)| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
    }
}

/// Parses a head out of `bytes`: the head and its length, `None` while it is incomplete.
///
/// Errors: 400, 414, 417, 431, 501, 505 as the limits and RFC 9112 have it.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Option<(Head, usize)>, Problem> {
    // One byte more than allowed is enough to know, and keeps the work of a parse bounded.
    let bytes = &bytes[..bytes.len().min(limits.head_bytes + 1)];
    check_line_ends(bytes)?;
    check_request_line(bytes, limits)?;
    let mut space = vec![httparse::EMPTY_HEADER; limits.headers];
    let mut request = httparse::Request::new(&mut space);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= limits.head_bytes => length,
        Ok(httparse::Status::Partial) if bytes.len() <= limits.head_bytes => return Ok(None),
        Ok(_) => return Err(too_large(format!("the request head is above {} bytes", limits.head_bytes))),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(too_large(format!("the request has more than {} headers", limits.headers)));
        }
        Err(error) => return Err(malformed(format!("the request head is malformed: {error}"))),
    };
    build(&request).map(|head| Some((head, length)))
}

fn malformed(text: impl Into<String>) -> Problem {
    Problem::bad_request("malformed_request", text)
}

fn too_large(text: String) -> Problem {
    Problem::new(431, "head_too_large", text)
}

/// A bare LF ends a line for some and not for others, so it is refused at once.
fn check_line_ends(bytes: &[u8]) -> Result<(), Problem> {
    let mut before = 0;
    let mut lines_since_text = 0;
    for byte in bytes {
        if *byte == b'\n' {
            if before != b'\r' {
                return Err(malformed(
                    "a line of the request head ends with LF alone, it must end with CR LF",
                ));
            }
            // The empty line ends the head; behind it stands the body, which may hold any byte.
            lines_since_text += 1;
            if lines_since_text == 2 {
                return Ok(());
            }
        } else if *byte != b'\r' {
            lines_since_text = 0;
        }
        before = *byte;
    }
    Ok(())
}

/// Refuses what is wrong with the first line before the rest of the head is there.
fn check_request_line(bytes: &[u8], limits: &Limits) -> Result<(), Problem> {
    let end = bytes.iter().position(|byte| *byte == b'\r');
    let line = &bytes[..end.unwrap_or(bytes.len())];
    let mut words = line.split(|byte| *byte == b' ');
    let target = words.nth(1).unwrap_or_default();
    if target.len() > limits.target_bytes {
        let text = format!("the request target is above {} bytes", limits.target_bytes);
        return Err(Problem::new(414, "target_too_long", text));
    }
    // The parser would call another version malformed, which tells the client less.
    let version = words.next().unwrap_or_default();
    if end.is_some() && version.starts_with(b"HTTP/") && !matches!(version, b"HTTP/1.1" | b"HTTP/1.0") {
        let text = "this server speaks HTTP/1.1 and HTTP/1.0 only";
        return Err(Problem::new(505, "http_version_not_supported", text));
    }
    Ok(())
}

fn build(request: &httparse::Request) -> Result<Head, Problem> {
    let method: Method =
        request.method.unwrap_or_default().parse().map_err(|()| malformed("the method is malformed"))?;
    let target = request.path.unwrap_or_default();
    let (authority, path, query) = split_target(target)?;
    let bad = || malformed("the request target has broken percent-encoding");
    // One slash leads a path: what has more, at its begin or within, is another path, and no route has one.
    let segments: Option<Vec<String>> =
        path.strip_prefix('/').unwrap_or(path).split('/').map(decode_percent).collect();
    let mut headers = Vec::with_capacity(request.headers.len());
    for header in request.headers.iter() {
        let value = std::str::from_utf8(header.value)
            .map_err(|_| malformed(format!("header {} is not UTF-8", header.name)))?;
        headers.push((header.name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let old = request.version == Some(0);
    if let Some(authority) = authority {
        ask_for(&mut headers, authority, old);
    }
    let mut head = Head {
        method,
        path: path.to_owned(),
        base: String::new(),
        segments: segments.ok_or_else(bad)?,
        query: parse_query(query).ok_or_else(bad)?,
        headers,
        old,
        framing: Framing::None,
        keep_alive: false,
        expects_continue: false,
    };
    head.framing = framing(&head)?;
    head.keep_alive =
        if old { head.has_token("connection", "keep-alive") } else { !head.has_token("connection", "close") };
    head.expects_continue = expectation(&head)?;
    Ok(head)
}

/// The authority if there is one, the path and the query of an origin-form or absolute-form target.
fn split_target(target: &str) -> Result<(Option<&str>, &str, &str), Problem> {
    let (authority, origin) = if target.starts_with('/') {
        (None, target)
    } else if target == "*" {
        (None, "/")
    } else if let Some(rest) = target.strip_prefix("http://") {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        (Some(authority), if path.is_empty() { "/" } else { path })
    } else {
        return Err(malformed("the request target must be a path such as /api/health"));
    };
    if origin.contains('#') {
        return Err(malformed("the request target must not have a fragment"));
    }
    let (path, query) = origin.split_once('?').unwrap_or((origin, ""));
    Ok((authority, path, query))
}

/// The target's authority decides who is asked, whatever the Host header says (RFC 9112, 3.2.2). A missing or
/// doubled header stays the fault it is.
fn ask_for(headers: &mut Vec<(String, String)>, authority: &str, old: bool) {
    let mut hosts = headers.iter_mut().filter(|(name, _)| name == "host");
    match (hosts.next(), hosts.next()) {
        (Some((_, value)), None) => authority.clone_into(value),
        (None, _) if old => headers.push(("host".into(), authority.to_owned())),
        _ => {}
    }
}

fn framing(head: &Head) -> Result<Framing, Problem> {
    let lengths: Vec<&str> = head
        .headers
        .iter()
        .filter(|(name, _)| name == "content-length")
        .map(|(_, value)| value.as_str())
        .collect();
    let codings = head.count("transfer-encoding");
    match (lengths.as_slice(), codings) {
        ([], 0) => Ok(Framing::None),
        ([one], 0) => {
            let digits = !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_digit());
            let length = if digits { one.parse().ok() } else { None };
            length.map(Framing::Length).ok_or_else(|| malformed("Content-Length must be a number of bytes"))
        }
        // Even where they agree: a proxy before us may have gone by the other one.
        ([_, ..], 0) => Err(malformed("the request has more than one Content-Length")),
        ([], 1) if !head.old && head.has_token("transfer-encoding", "chunked") => {
            let sole =
                head.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
            if sole { Ok(Framing::Chunked) } else { Err(unknown_coding()) }
        }
        ([], _) => Err(unknown_coding()),
        // The RFC lets the coding win; whoever goes by the length would see another request in the body.
        _ => Err(malformed("the request has both Content-Length and Transfer-Encoding")),
    }
}

fn unknown_coding() -> Problem {
    malformed("Transfer-Encoding must be chunked, once, on HTTP/1.1")
}

fn expectation(head: &Head) -> Result<bool, Problem> {
    match head.header("expect") {
        None => Ok(false),
        Some(value) if value.eq_ignore_ascii_case("100-continue") => Ok(!head.old),
        Some(value) => Err(Problem::new(417, "expectation_failed", format!("Expect: {value} is not known"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(bytes: &[u8]) -> Result<Option<Head>, u16> {
        parse(bytes, &Limits::default())
            .map(|found| found.map(|(head, _)| head))
            .map_err(|problem| problem.status)
    }

    #[test]
    fn decisions_1_strict_framing() {
        let get = |headers: &str| status(format!("POST /a HTTP/1.1\r\nHost: x\r\n{headers}\r\n").as_bytes());
        assert_eq!(get("").unwrap().unwrap().framing, Framing::None);
        assert_eq!(get("Content-Length: 5\r\n").unwrap().unwrap().framing, Framing::Length(5));
        assert_eq!(get("Transfer-Encoding: chunked\r\n").unwrap().unwrap().framing, Framing::Chunked);
        for bad in [
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: 99999999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "X: 1\nY: 2\r\n",
        ] {
            assert_eq!(get(bad).map(|_| ()), Err(400), "{bad:?}");
        }
        assert_eq!(get("Expect: magic\r\n").map(|_| ()), Err(417));
    }

    #[test]
    fn decisions_1_head_limits() {
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(9000));
        assert_eq!(status(long.as_bytes()).map(|_| ()), Err(414));
        let wide = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(40_000));
        assert_eq!(status(wide.as_bytes()).map(|_| ()), Err(431));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
        assert_eq!(status(many.as_bytes()).map(|_| ()), Err(431));
        assert_eq!(status(b"GET / HTTP/2.0\r\n").map(|_| ()), Err(505));
        assert_eq!(status(b"GET /%zz HTTP/1.1\r\n\r\n").map(|_| ()), Err(400));
        assert!(status(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap().is_none());
    }

    /// Whatever bytes come, parsing neither panics nor lets more through than the limits.
    #[test]
    fn mutated_heads_never_panic_nor_pass_the_limits() {
        let seeds: [&[u8]; 4] = [
            b"GET /api/agents?x=1 HTTP/1.1\r\nHost: localhost:1\r\nAccept: */*\r\n\r\n",
            b"POST /api/agents HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\nExpect: \
                 100-continue\r\n\r\n",
            b"PUT /%41 HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: [::1]:31415\r\nOrigin: http://localhost\r\n\r\n",
        ];
        let limits = Limits::default();
        let mut random = 0x1234_5678_9abc_def1_u64;
        let mut next = move |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % (n as u64)).unwrap()
        };
        for round in 0..20_000 {
            let mut bytes = seeds[round % seeds.len()].to_vec();
            for _ in 0..=next(4) {
                let at = next(bytes.len());
                match next(4) {
                    0 => bytes[at] = u8::try_from(next(256)).unwrap(),
                    1 => bytes.truncate(at + 1),
                    2 => bytes.insert(at, [b'\r', b'\n', b' ', b':', 0, 0xff][next(6)]),
                    _ => {
                        let copy = bytes[at..].to_vec();
                        bytes.extend(copy);
                    }
                }
            }
            if let Ok(Some((head, length))) = parse(&bytes, &limits) {
                assert!(length <= limits.head_bytes && length <= bytes.len());
                assert!(head.headers.len() <= limits.headers);
                assert!(head.headers.iter().all(|(_, value)| !value.contains(['\r', '\n', '\0'])));
                assert!(head.count("content-length") <= 1);
            }
        }
    }
}
