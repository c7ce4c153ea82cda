//! A small HTTP/1.1 server with WebSocket upgrades, a thread per connection.

use super::lock;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tungstenite::WebSocket;
use tungstenite::protocol::Role;

/// A request.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Asked {
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// The path without its query, split.
    pub fn parts(&self) -> Vec<&str> {
        self.path.split('?').next().unwrap_or_default().trim_matches('/').split('/').collect()
    }
}

/// Status, further headers, body.
pub type Answer = (u16, Vec<(&'static str, String)>, Value);

/// What a platform does with requests and sockets.
pub trait Platform: Send + Sync + 'static {
    fn answer(&self, asked: &Asked) -> Answer;
    /// Whether a socket may be opened at this path, and its conversation.
    fn socket(self: Arc<Self>, asked: &Asked, socket: WebSocket<TcpStream>);
}

/// A running server; ends with its connections on drop.
pub struct Web {
    pub port: u16,
    over: Arc<AtomicBool>,
    down: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    tear: Tear,
    thread: Option<JoinHandle<()>>,
}

/// What an answer's path and body hold that is to be torn.
type Tear = Arc<Mutex<Option<(&'static str, &'static str)>>>;

impl Web {
    pub fn start<P: Platform>(make: impl FnOnce(u16) -> Arc<P>) -> (Self, Arc<P>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let platform = make(port);
        let over = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (down, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (is_down, counted) = (Arc::clone(&down), Arc::clone(&refused));
        let (ours, is_over, open) = (Arc::clone(&platform), Arc::clone(&over), Arc::clone(&connections));
        let tear = Tear::default();
        let torn = Arc::clone(&tear);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                if is_down.load(Ordering::SeqCst) {
                    counted.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let _ = stream.set_nodelay(true);
                lock(&open).push(stream.try_clone().unwrap());
                let (platform, torn) = (Arc::clone(&ours), Arc::clone(&torn));
                std::thread::spawn(move || {
                    let end = stream.try_clone().unwrap();
                    serve(&platform, stream, &torn);
                    // The list above holds it too: only this tells the client that it is over.
                    let _ = end.shutdown(Shutdown::Both);
                });
            }
        });
        (Self { port, over, down, refused, connections, tear, thread: Some(thread) }, platform)
    }

    /// Of the next answer at such a path and with such a body only the first half arrives.
    pub fn tear(&self, path: &'static str, body: &'static str) {
        *lock(&self.tear) = Some((path, body));
    }

    /// Whether that has happened.
    pub fn has_torn(&self) -> bool {
        lock(&self.tear).is_none()
    }

    /// From now on nobody is served, or everybody again: an outage.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
        if down {
            self.cut();
        }
    }

    /// Connections refused in all outages.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    /// Cuts every connection, as a network would.
    pub fn cut(&self) {
        for stream in lock(&self.connections).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.cut();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends the first half of a frame, and cuts the connection.
pub fn tear_frame(socket: &mut WebSocket<TcpStream>, text: &str) {
    let length = u16::try_from(text.len()).unwrap();
    let mut bytes = vec![0x81, 126];
    bytes.extend(length.to_be_bytes());
    bytes.extend(&text.as_bytes()[..text.len() / 2]);
    let _ = socket.get_mut().write_all(&bytes);
    let _ = socket.get_ref().shutdown(Shutdown::Both);
}

fn serve<P: Platform>(platform: &Arc<P>, stream: TcpStream, tear: &Tear) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(asked) = read(&mut reader) {
        if asked.header("upgrade").eq_ignore_ascii_case("websocket") {
            let key = tungstenite::handshake::derive_accept_key(asked.header("sec-websocket-key").as_bytes());
            let head = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {key}\r\n\r\n"
            );
            if (&stream).write_all(head.as_bytes()).is_err() {
                return;
            }
            let socket = WebSocket::from_raw_socket(stream, Role::Server, None);
            return Arc::clone(platform).socket(&asked, socket);
        }
        let (status, headers, body) = platform.answer(&asked);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
        if status == 204 {
            head = "HTTP/1.1 204 X\r\n".into();
        } else {
            head.push_str("Content-Type: application/json\r\n");
        }
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let whole = if status == 204 { format!("{head}\r\n") } else { format!("{head}\r\n{body}") };
        let is_torn =
            lock(tear).take_if(|(path, part)| asked.path.contains(*path) && body.contains(*part)).is_some();
        if is_torn {
            let _ = (&stream).write_all(&whole.as_bytes()[..whole.len() - body.len() / 2]);
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        if (&stream).write_all(whole.as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let asked = Asked { method, path, headers, body: Value::Null };
    let bytes = if asked.header("transfer-encoding").eq_ignore_ascii_case("chunked") {
        chunks(reader)?
    } else {
        let mut bytes = vec![0; asked.header("content-length").parse().unwrap_or(0)];
        reader.read_exact(&mut bytes).ok()?;
        bytes
    };
    let body = body_of(asked.header("content-type"), &bytes);
    Some(Asked { body, ..asked })
}

fn chunks(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let length = usize::from_str_radix(line.trim(), 16).ok()?;
        let mut chunk = vec![0; length + 2];
        reader.read_exact(&mut chunk).ok()?;
        if length == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(&chunk[..length]);
    }
}

/// JSON, or a form whose values are JSON where they read so.
fn body_of(kind: &str, bytes: &[u8]) -> Value {
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return serde_json::from_slice(bytes).unwrap_or(Value::Null);
    }
    let pairs = svc::api::parse_query(&String::from_utf8_lossy(bytes)).unwrap_or_default();
    let value = |text: String| match text.chars().next() {
        Some('[' | '{') => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        _ => Value::String(text),
    };
    pairs.into_iter().map(|(name, text)| (name, value(text))).collect::<serde_json::Map<_, _>>().into()
}
