//! Raw sockets against the built daemon: what decisions §1 says of each kind of bad request, and that the
//! daemon lives on after it.

use crate::support::daemon::Daemon;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// No answer takes longer than the head's 10 s and some.
const LIMIT: Duration = Duration::from_secs(20);

struct Edge {
    daemon: Daemon,
    address: SocketAddr,
}

impl Edge {
    fn start() -> Self {
        let daemon = Daemon::start();
        let address = daemon.url.trim_start_matches("http://").parse().unwrap();
        Self { daemon, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Sends bytes and reads until the connection ends or a whole answer of known length is there.
    fn answer(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A refusal may come, and the connection end, while the rest is still being sent.
        let _ = stream.write_all(bytes);
        read_answer(&mut stream)
    }

    fn status(&self, request: &str) -> u16 {
        self.answer(request.as_bytes()).status
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (given, value) = line.split_once(':')?;
            given.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// One answer off a stream; what follows it stays unread.
fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let mut answer = Answer { status, head, body: String::new() };
    let length = answer.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    if stream.read_exact(&mut body).is_ok() {
        answer.body = String::from_utf8(body).unwrap();
    }
    answer
}

fn get(headers: &str) -> String {
    format!("GET /api/health HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n")
}

fn post(headers: &str, body: &str) -> String {
    format!("POST /api/agents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n{body}")
}

/// The rows: what is sent, and the status that decisions §1 gives it.
fn table() -> Vec<(&'static str, String, u16)> {
    let json = "Content-Type: application/json\r\n";
    let mut many = String::new();
    for n in 0..10_000 {
        let _ = write!(many, "X-{n}: 1\r\n");
    }
    let huge = format!("X: {}\r\n", "a".repeat(1 << 20));
    let length = |length: &str| post(&format!("{json}Content-Length: {length}\r\n"), "{}");
    let chunked = |body: &str| post(&format!("{json}Transfer-Encoding: chunked\r\n"), body);
    let browser = |headers: &str| post(&format!("{headers}Content-Length: 2\r\n"), "{}");
    vec![
        ("plain", get(""), 200),
        ("1 MB head", get(&huge), 431),
        ("10 000 headers", get(&many), 431),
        ("long target", format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(9000)), 414),
        ("Content-Length: 1e12", length("1000000000000"), 413),
        ("Content-Length beyond any number", length("99999999999999999999999"), 400),
        ("Content-Length: -1", length("-1"), 400),
        ("Content-Length: +2", length("+2"), 400),
        ("two lengths", length("2\r\nContent-Length: 2"), 400),
        ("length and chunked", length("2\r\nTransfer-Encoding: chunked"), 400),
        ("unknown coding", length("2\r\nTransfer-Encoding: gzip"), 400),
        ("bad chunk size", chunked("zz\r\n{}\r\n0\r\n\r\n"), 400),
        ("chunk without its end", chunked("2\r\n{}XX0\r\n\r\n"), 400),
        ("good chunks", chunked("1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"), 400),
        ("HTTP/2.0 line", "GET / HTTP/2.0\r\nHost: localhost\r\n\r\n".into(), 505),
        ("HTTP/1.0 without Host", "GET /api/health HTTP/1.0\r\n\r\n".into(), 200),
        ("no Host", "GET /api/health HTTP/1.1\r\n\r\n".into(), 400),
        ("two Hosts", get("Host: localhost\r\n"), 400),
        ("foreign Host", "GET /api/health HTTP/1.1\r\nHost: evil.example\r\n\r\n".into(), 403),
        ("foreign Host on the page", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".into(), 403),
        (
            "a target of another host",
            "GET http://evil.example/api/health HTTP/1.1\r\nHost: localhost\r\n\r\n".into(),
            403,
        ),
        (
            "a target of this machine",
            "GET http://localhost/api/health HTTP/1.1\r\nHost: evil.example\r\n\r\n".into(),
            200,
        ),
        ("a target of another host, without Host", "GET http://evil.example/ HTTP/1.0\r\n\r\n".into(), 403),
        ("a target with a user", get("").replace(" /api", " http://localhost@evil.example/api"), 403),
        ("foreign Origin", get("Origin: http://evil.example\r\n"), 403),
        ("Origin null", get("Origin: null\r\n"), 403),
        ("two Origins", get("Origin: http://localhost\r\nOrigin: http://localhost\r\n"), 403),
        ("local Origin", get("Origin: http://localhost:5173\r\n"), 200),
        ("cross-site", get("Sec-Fetch-Site: cross-site\r\n"), 403),
        ("form from a browser", browser("Origin: http://localhost\r\nContent-Type: text/plain\r\n"), 403),
        ("JSON from a browser", browser(&format!("Origin: http://localhost\r\n{json}")), 400),
        ("not JSON", browser("Content-Type: text/plain\r\n"), 415),
        ("bare LF", "GET /api/health HTTP/1.1\nHost: localhost\n\n".into(), 400),
        ("broken escape", "GET /api/agents/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("NUL in the path", "GET /api/agents/%00 HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("CONNECT", "CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("unknown Expect", post(&format!("{json}Expect: magic\r\nContent-Length: 2\r\n"), "{}"), 417),
        ("unknown path", "GET /api/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 404),
        ("wrong method", "PUT /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 405),
        ("garbage", "\x01\x02\x03\r\n\r\n".into(), 400),
    ]
}

#[test]
fn decisions_1_each_bad_request_gets_its_answer_and_the_daemon_lives() {
    let edge = Edge::start();
    for (name, request, status) in table() {
        let answer = edge.answer(request.as_bytes());
        assert_eq!(answer.status, status, "{name}: {answer:?}");
        if status >= 400 {
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{name}");
            let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(body["status"], status, "{name}");
            assert!(body["error"].is_string() && body["code"].is_string(), "{name}: {body}");
        }
        assert_eq!(edge.status(&get("")), 200, "after {name}");
    }
    assert_eq!(edge.daemon.get("/api/health")["panics"], 0);
}

#[test]
fn decisions_1_a_slow_head_gets_408_after_10_seconds_and_a_trickle_does_not_help() {
    let edge = Edge::start();
    let mut stream = edge.connect();
    let began = Instant::now();
    stream.write_all(b"GET /api/health HTTP/1.1\r\n").unwrap();
    let mut trickle = stream.try_clone().unwrap();
    let feeder = std::thread::spawn(move || {
        while began.elapsed() < LIMIT && trickle.write_all(b"X").is_ok() {
            std::thread::park_timeout(Duration::from_millis(500));
        }
    });
    let answer = read_answer(&mut stream);
    let took = began.elapsed();
    assert_eq!(answer.status, 408, "{answer:?}");
    // Not before its time; the upper bound is for a loaded machine.
    assert!((9..20).contains(&took.as_secs()), "{took:?}");
    drop(stream);
    feeder.join().unwrap();
    assert_eq!(edge.status(&get("")), 200);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let edge = Edge::start();
    let mut stream = edge.connect();
    let mut requests = String::new();
    for n in 0..50 {
        let _ = write!(requests, "GET /api/agents/nobody-{n} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    stream.write_all(requests.as_bytes()).unwrap();
    for n in 0..50 {
        let answer = read_answer(&mut stream);
        assert_eq!(answer.status, 404);
        assert!(answer.body.contains(&format!("nobody-{n}\\")), "{n}: {}", answer.body);
    }
}

#[test]
fn decisions_1_head_options_and_continue() {
    let edge = Edge::start();
    let whole = edge.answer(get("").as_bytes());
    let mut stream = edge.connect();
    let head = get("").replacen("GET", "HEAD", 1).replace("Connection: close\r\n", "");
    stream.write_all(format!("{head}{}", get("")).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (first, rest) = text.split_once("\r\n\r\n").unwrap();
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    assert!(
        first.contains("Content-Length: ") && rest.starts_with("HTTP/1.1 200"),
        "HEAD has no body: {rest}"
    );
    assert!(whole.body.contains("uptime"));

    let options =
        edge.answer(b"OPTIONS /api/agents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((options.status, options.header("allow")), (204, Some("GET, HEAD, OPTIONS, POST")));
    let other = edge.answer(b"DELETE /api/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((other.status, other.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    let allowed = edge.answer(get("Origin: http://localhost:5173\r\n").as_bytes());
    assert_eq!(allowed.header("access-control-allow-origin"), Some("http://localhost:5173"));
    assert_eq!(allowed.header("vary"), Some("Origin"));

    let mut stream = edge.connect();
    let expects = post("Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n", "");
    stream.write_all(expects.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream).status, 100);
    stream.write_all(b"{}").unwrap();
    assert_eq!(read_answer(&mut stream).status, 400, "a role is required");
}

#[test]
fn decisions_1_512_connections_and_slow_heads_cannot_shut_the_api() {
    let edge = Edge::start();
    let idle: Vec<TcpStream> = (0..600)
        .map(|_| {
            let mut stream = edge.connect();
            stream.write_all(b"GET /api/health HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    assert_eq!(edge.status(&get("")), 200, "the connection that waited longest for a head made room");
    drop(idle);
    assert_eq!(edge.status(&get("")), 200);
}

#[test]
fn a_websocket_upgrade_is_checked() {
    let edge = Edge::start();
    let upgrade = |extra: &str, version: &str, key: &str| {
        format!(
            "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{extra}\
             Sec-WebSocket-Version: {version}\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        )
    };
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    let good = edge.answer(upgrade("", "13", key).as_bytes());
    assert_eq!(good.status, 101);
    // The example of RFC 6455, 1.3.
    assert_eq!(good.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(edge.status(&upgrade("Origin: http://localhost:3000\r\n", "13", key)), 101);
    assert_eq!(edge.status(&upgrade("Origin: http://evil.example\r\n", "13", key)), 403);
    assert_eq!(edge.status(&upgrade("Origin: null\r\n", "13", key)), 403);
    let old = edge.answer(upgrade("", "8", key).as_bytes());
    assert_eq!((old.status, old.header("sec-websocket-version")), (426, Some("13")));
    assert_eq!(edge.status(&upgrade("", "13", "short")), 400);
}

/// A gate stands before a route, and a route has one path: what is written otherwise leads nowhere.
#[test]
fn no_other_spelling_of_a_path_leads_past_a_gate() {
    let edge = Edge::start();
    let request = |method: &str, target: &str| {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        edge.status(&format!("{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"))
    };
    for (method, path) in
        [("GET", "/api/health"), ("PATCH", "/api/config"), ("POST", "/api/federation/envelope")]
    {
        assert_ne!(request(method, path), 404, "{path} is a route");
        let (folder, name) = path.rsplit_once('/').unwrap();
        for other in [
            format!("/{path}"),
            format!("//{path}"),
            format!("http://localhost/{path}"),
            format!("{folder}//{name}"),
            format!("{path}/"),
            format!("{folder}/./{name}"),
            format!("/x/..{path}"),
            format!("/%2f{}", &path[1..]),
            format!("{folder}%2f{name}"),
            path.to_uppercase(),
        ] {
            assert_eq!(request(method, &other), 404, "{method} {other}");
        }
    }
}
