//! WebSocket connections to a platform, over TLS by rustls, and the stop that ends them.

use super::worker_http::Http;
use crate::core::untrusted_line;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use svc_base::base64;
use svc_sys::threads::lock;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Message, WebSocket};
use ureq::{Proxy, ProxyProtocol};

/// Until a connection stands, each address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// TLS and WebSocket handshake, each step.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// One write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of a proxy's answer.
const PROXY_ANSWER_BYTES: usize = 8 << 10;
/// Bytes of one message taken; Discord's largest are guild lists.
const MESSAGE_LIMIT_BYTES: usize = 16 << 20;
/// Bytes that may wait to be written.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// Ends the waiting of a gateway's threads.
pub struct Stopper {
    stopped: Mutex<bool>,
    wake: Condvar,
    sockets: Mutex<Vec<TcpStream>>,
    http: Http,
}

impl Stopper {
    /// For threads that use this client.
    pub fn new(http: Http) -> Self {
        Self { stopped: Mutex::default(), wake: Condvar::new(), sockets: Mutex::default(), http }
    }

    /// Ends every request, socket and pause.
    pub fn stop(&self) {
        *lock(&self.stopped) = true;
        self.wake.notify_all();
        self.http.shutdown();
        for socket in lock(&self.sockets).drain(..) {
            // One that is closed already is what we want.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Whether it is over.
    pub fn is_stopped(&self) -> bool {
        *lock(&self.stopped)
    }

    /// Waits; whether it is over.
    pub fn pause(&self, length: Duration) -> bool {
        let guard = lock(&self.stopped);
        let waited = self.wake.wait_timeout_while(guard, length, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// A stop shuts this socket too.
    fn watch(&self, socket: &TcpStream) -> io::Result<()> {
        let mut sockets = lock(&self.sockets);
        // Two at most are open: the present one and, while it is replaced, its successor.
        if sockets.len() > 3 {
            sockets.remove(0);
        }
        sockets.push(socket.try_clone()?);
        drop(sockets);
        if self.is_stopped() { Err(io::Error::new(ErrorKind::Interrupted, "it is over")) } else { Ok(()) }
    }
}

/// A stream with or without TLS.
pub enum Stream {
    /// On this machine only.
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(buffer),
            Self::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// What a read came to.
#[derive(Debug)]
pub enum Event {
    /// A message, as JSON.
    Json(Value),
    /// Something that shows that the other end lives.
    Alive,
    /// Nothing came in time.
    Quiet,
    /// It is closed: the code and the words, where there are any.
    Closed(Option<u16>, String),
}

/// A connection that speaks JSON.
pub struct Socket(WebSocket<Stream>);

impl Socket {
    /// Connects to a `ws://` or `wss://` address. `plain`: the former is allowed, for the server is on this
    /// machine; elsewhere the proxy of the environment is taken, as for the Web API.
    ///
    /// Errors: a sentence without the address's query, which may hold a ticket.
    pub fn connect(url: &str, plain: bool, stopper: &Stopper) -> Result<Self, String> {
        let proxy = if plain { None } else { Proxy::try_from_env() };
        Self::connect_by(proxy.as_ref(), url, plain, stopper)
    }

    fn connect_by(proxy: Option<&Proxy>, url: &str, plain: bool, stopper: &Stopper) -> Result<Self, String> {
        let shown = url.split('?').next().unwrap_or_default().to_owned();
        let failed = |what: &str| format!("cannot connect to {shown}: {what}");
        let (tls, rest) = match (url.strip_prefix("wss://"), url.strip_prefix("ws://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) if plain => (false, rest),
            _ => return Err(failed("it is not a wss:// address")),
        };
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (host, port) = host_and_port(authority, if tls { 443 } else { 80 })
            .ok_or_else(|| failed("its host or port cannot be read"))?;
        let stream = match proxy.filter(|proxy| !is_excepted(proxy, &host)) {
            Some(proxy) => dial_by(proxy, &host, port).map_err(|error| failed(&error))?,
            None => dial(&host, port).map_err(|error| failed(&error.to_string()))?,
        };
        stopper.watch(&stream).map_err(|error| failed(&error.to_string()))?;
        let stream = if tls {
            Stream::Tls(Box::new(secure(&host, stream).map_err(|error| failed(&error))?))
        } else {
            Stream::Plain(stream)
        };
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_LIMIT_BYTES))
            .max_frame_size(Some(MESSAGE_LIMIT_BYTES))
            .max_write_buffer_size(WRITE_BUFFER_BYTES);
        match tungstenite::client::client_with_config(url, stream, Some(config)) {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(error) => Err(failed(&error.to_string())),
        }
    }

    /// The next message, or [`Event::Quiet`] at `until`.
    pub fn next(&mut self, until: Instant) -> Event {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        if let Err(error) = self.0.get_ref().tcp().set_read_timeout(Some(left)) {
            return Event::Closed(None, error.to_string());
        }
        match self.0.read() {
            Ok(Message::Text(text)) => match serde_json::from_slice(text.as_bytes()) {
                Ok(value) => Event::Json(value),
                Err(_) => Event::Alive,
            },
            Ok(Message::Close(frame)) => {
                // The answer to the close.
                let _ = self.0.flush();
                closed(frame)
            }
            Ok(_) => {
                // tungstenite has queued the pong; it goes now.
                let _ = self.0.flush();
                Event::Alive
            }
            Err(tungstenite::Error::Io(error)) if is_quiet(&error) => Event::Quiet,
            Err(error) => Event::Closed(None, error.to_string()),
        }
    }

    /// Sends a message; whether it left.
    pub fn send(&mut self, value: &Value) -> bool {
        self.0.send(Message::text(value.to_string())).is_ok()
    }

    /// Sends a ping; whether it left.
    pub fn ping(&mut self) -> bool {
        self.0.send(Message::Ping(tungstenite::Bytes::new())).is_ok()
    }

    /// Closes with this code. The platform may answer or not; the socket goes either way.
    pub fn close(mut self, code: u16) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: "".into() };
        let _ = self.0.close(Some(frame));
        let _ = self.0.flush();
    }
}

impl Drop for Socket {
    /// The [`Stopper`] holds a handle of its own: without this the platform would not see the end.
    fn drop(&mut self) {
        let _ = self.0.get_ref().tcp().shutdown(Shutdown::Both);
    }
}

fn is_quiet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn closed(frame: Option<CloseFrame>) -> Event {
    match frame {
        Some(frame) => Event::Closed(Some(frame.code.into()), frame.reason.to_string()),
        None => Event::Closed(None, "the platform closed the connection".into()),
    }
}

fn host_and_port(authority: &str, usual: u16) -> Option<(String, u16)> {
    // No platform names a user in its address.
    if authority.is_empty() || authority.contains('@') {
        return None;
    }
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None => usual,
        };
        return Some((host.to_owned(), port));
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => Some((host.to_owned(), port.parse().ok()?)),
        None => Some((authority.to_owned(), usual)),
    }
}

fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
                stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether `NO_PROXY` names this host.
fn is_excepted(proxy: &Proxy, host: &str) -> bool {
    let bare = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("https://{bare}/").parse().is_ok_and(|uri| proxy.is_no_proxy(&uri))
}

/// A connection to a host through a proxy.
///
/// Source: RFC 9110, section 9.3.6 (CONNECT).
fn dial_by(proxy: &Proxy, host: &str, port: u16) -> Result<TcpStream, String> {
    if proxy.protocol() != ProxyProtocol::Http {
        let text = "the proxy that the environment names speaks a protocol other than HTTP; set HTTPS_PROXY to an \
                    http:// address, or name the host in NO_PROXY";
        return Err(text.into());
    }
    let failed = |error: io::Error| format!("the proxy {}: {error}", proxy.host());
    let mut stream = dial(proxy.host(), proxy.port()).map_err(failed)?;
    let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(user) = proxy.username() {
        let word = base64::encode(format!("{user}:{}", proxy.password().unwrap_or_default()).as_bytes());
        request = format!("{request}Proxy-Authorization: Basic {word}\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let until = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut answer = Vec::new();
    // Byte by byte: what follows the head belongs to the host.
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if answer.len() >= PROXY_ANSWER_BYTES || Instant::now() >= until {
            return Err(format!("the proxy {} gave no valid answer in time", proxy.host()));
        }
        stream.read_exact(&mut byte).map_err(failed)?;
        answer.extend(byte);
    }
    let status = answer.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    match String::from_utf8_lossy(status.get(..3).unwrap_or_default()).as_ref() {
        "200" => Ok(stream),
        "407" => Err(format!("the proxy {} wants another user and password (407)", proxy.host())),
        status => Err(format!("the proxy {} refused with {}", proxy.host(), untrusted_line(status))),
    }
}

fn secure(host: &str, stream: TcpStream) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(|error| error.to_string())?;
    Ok(StreamOwned::new(session, stream))
}

/// How long to wait before try number `failures` (from 1): doubled each time up to a minute, half of it by
/// chance, so that many daemons do not come back in the same moment.
pub fn back_off(failures: u32, random: u64) -> Duration {
    let whole = 500u64.saturating_mul(1 << failures.min(8)).min(60_000);
    Duration::from_millis(whole / 2 + random % (whole / 2 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_6_reconnects_back_off_up_to_a_minute_and_not_in_step() {
        let shortest: Vec<u128> = (1..=9).map(|n| back_off(n, 0).as_millis()).collect();
        assert_eq!(shortest, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
        for failures in [1, 2, 5, 9, 1_000_000] {
            let (least, most) = (back_off(failures, 0), 2 * back_off(failures, 0));
            for random in [1, 777, u64::MAX] {
                let wait = back_off(failures, random);
                assert!((least..=most).contains(&wait), "{failures}: {wait:?}");
            }
            assert!(most <= Duration::from_secs(60));
            assert_ne!(back_off(failures, 1), back_off(failures, 2), "chance plays a part");
        }
    }

    #[test]
    fn issue_6_away_from_this_machine_a_connection_has_tls() {
        let stopper = Stopper::new(Http::new(Vec::new(), true));
        let refused = Socket::connect("ws://chat.example/?ticket=hush", false, &stopper).err();
        let words = refused.expect("it is refused before anything is asked");
        assert!(words.contains("not a wss:// address") && !words.contains("hush"), "{words}");
    }

    #[test]
    fn addresses_are_read() {
        let read = |text| host_and_port(text, 443);
        assert_eq!(read("gateway.discord.gg"), Some(("gateway.discord.gg".into(), 443)));
        assert_eq!(read("127.0.0.1:80"), Some(("127.0.0.1".into(), 80)));
        assert_eq!(read("[::1]:81"), Some(("::1".into(), 81)));
        for bad in ["", "user@host", "host:port", "host:99999", "[::1"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    /// A proxy that answers so, and what it was asked; then it echoes as a host would.
    fn proxy(answer: &'static str) -> (u16, std::thread::JoinHandle<String>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a head");
                head.extend(byte);
            }
            stream.write_all(answer.as_bytes()).expect("it is taken");
            let mut rest = [0; 4];
            if stream.read_exact(&mut rest).is_ok() {
                stream.write_all(&rest).expect("it is taken");
            }
            String::from_utf8_lossy(&head).into_owned()
        });
        (port, asked)
    }

    #[test]
    fn a_proxy_is_asked_for_the_host_and_gives_way() {
        let (port, asked) = proxy("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n");
        let proxy = Proxy::new(&format!("http://ann:h%40sh@127.0.0.1:{port}")).expect("a proxy");
        let mut stream = dial_by(&proxy, "gateway.discord.gg", 443).expect("a way through");
        stream.write_all(b"ping").expect("written");
        let mut back = [0; 4];
        stream.read_exact(&mut back).expect("read");
        assert_eq!(&back, b"ping", "nothing of the host's was swallowed");
        let head = asked.join().expect("it ends");
        assert!(
            head.starts_with("CONNECT gateway.discord.gg:443 HTTP/1.1\r\nHost: gateway.discord.gg:443\r\n"),
            "{head}"
        );
        assert!(head.contains("Proxy-Authorization: Basic YW5uOmhAc2g=\r\n"), "{head}");
    }

    #[test]
    fn a_proxy_that_refuses_is_named_and_its_password_is_not() {
        let stopper = Stopper::new(Http::new(Vec::new(), true));
        for (answer, part) in [
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "(407)"),
            ("HTTP/1.1 503 No\r\n\r\n", "refused with 503"),
        ] {
            let (port, asked) = proxy(answer);
            let proxy = Proxy::new(&format!("http://ann:hush@127.0.0.1:{port}")).expect("a proxy");
            let refused =
                Socket::connect_by(Some(&proxy), "wss://chat.example/?ticket=hush", false, &stopper);
            let words = refused.err().expect("no way through");
            assert!(
                words.contains(part) && words.contains("127.0.0.1") && !words.contains("hush"),
                "{words}"
            );
            asked.join().expect("it ends");
        }
        let other = Proxy::new("socks5://127.0.0.1:9").map(|proxy| dial_by(&proxy, "x", 1).expect_err("no"));
        assert!(other.is_err() || other.is_ok_and(|words| words.contains("HTTPS_PROXY")));
    }

    #[test]
    fn hosts_that_no_proxy_names_are_called_directly() {
        let proxy = ureq::Proxy::builder(ProxyProtocol::Http).host("127.0.0.1").port(9);
        let proxy = proxy.no_proxy("chat.example").no_proxy("127.0.0.1").build().expect("a proxy");
        assert!(is_excepted(&proxy, "chat.example") && is_excepted(&proxy, "127.0.0.1"));
        assert!(!is_excepted(&proxy, "gateway.discord.gg") && !is_excepted(&proxy, "::1"));
    }
}
