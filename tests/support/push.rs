//! A push service that speaks the true protocol over real TLS: writes down what comes, and answers as it is
//! told. The browser behind it has the keys of the example of RFC 8291, which everybody knows.

use super::folder::Folder;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use svc::phones::worker_certificate::Identity;
use svc_base::base64;

/// The public key of the browser.
pub const KEY: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
/// Its private key.
pub const PRIVATE: &str = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94";
/// What it shares with its senders.
pub const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

/// How it answers.
#[derive(Debug, Clone)]
pub enum Answers {
    /// With this status, and these lines of a head.
    With(u16, String),
    /// With this status, and a body that never ends.
    Endless(u16),
    /// It takes the message, and says nothing.
    Never,
}

/// A message that came.
#[derive(Debug, Clone)]
pub struct Got {
    pub path: String,
    /// Names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub at: Instant,
}

impl Got {
    /// The value of a head line; empty where it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

struct Shared {
    config: Arc<ServerConfig>,
    got: Mutex<Vec<Got>>,
    answers: Mutex<Answers>,
    /// Connections that are not answered.
    held: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

/// A running push service; ended on drop.
pub struct PushService {
    folder: Folder,
    pub port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl PushService {
    /// Listens on a port of its own, with a certificate of its own.
    pub fn start() -> Self {
        let folder = Folder::new("push-service");
        folder.write("state/none", "");
        let identity =
            Identity::open(folder.path(), "127.0.0.1".parse().unwrap(), svc_sys::clock::now()).unwrap();
        folder.write("push.pem", &identity.to_trust());
        let kept = std::fs::read_to_string(folder.path().join("state/phone-identity.json")).unwrap();
        let kept: Value = serde_json::from_str(&kept).unwrap();
        let part = |name: &str| base64::decode(kept[name].as_str().unwrap()).unwrap();
        let chain = ["certificate", "issuer"].map(|name| CertificateDer::from(part(name))).to_vec();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(part("key")));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            config: Arc::new(config),
            got: Mutex::default(),
            answers: Mutex::new(Answers::With(201, String::new())),
            held: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if own.is_over.load(Ordering::Acquire) {
                    return;
                }
                let own = Arc::clone(&own);
                // Ends with its connection.
                std::thread::spawn(move || stream.map(|stream| serve(&own, stream)));
            }
        });
        Self { folder, port, shared, thread: Some(thread) }
    }

    /// What a person has set who runs it.
    pub fn settings(&self) -> Value {
        let certificate = self.folder.path().join("push.pem");
        json!({"push": {"own": ["127.0.0.1"], "certificate": certificate, "contact": "mailto:me@example.org"}})
    }

    /// What a browser says of itself, with an endpoint of this path.
    pub fn subscription(&self, path: &str) -> Value {
        json!({"endpoint": format!("{}{path}", self.origin()), "p256dh": KEY, "auth": AUTH})
    }

    /// Its address.
    pub fn origin(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Answers otherwise from now on; who was not answered is cut off.
    pub fn answer(&self, answers: Answers) {
        *lock(&self.shared.answers) = answers;
        for stream in lock(&self.shared.held).drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// All that came, in order.
    pub fn all(&self) -> Vec<Got> {
        lock(&self.shared.got).clone()
    }

    /// What came to this path.
    pub fn of(&self, path: &str) -> Vec<Got> {
        self.all().into_iter().filter(|got| got.path == path).collect()
    }
}

impl Drop for PushService {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.answer(Answers::Never);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection, for as many messages as come on it.
fn serve(shared: &Shared, stream: TcpStream) {
    let held = stream.try_clone().unwrap();
    let tls = ServerConnection::new(Arc::clone(&shared.config)).unwrap();
    let mut reader = BufReader::new(StreamOwned::new(tls, stream));
    while let Some(got) = read(&mut reader) {
        lock(&shared.got).push(got);
        let answers = lock(&shared.answers).clone();
        let out = reader.get_mut();
        let is_said = match answers {
            Answers::With(status, more) => {
                write!(out, "HTTP/1.1 {status} x\r\n{more}Content-Length: 0\r\n\r\n")
                    .and_then(|()| out.flush())
            }
            Answers::Endless(status) => {
                let mut said = write!(out, "HTTP/1.1 {status} x\r\nTransfer-Encoding: chunked\r\n\r\n");
                while said.is_ok() && !shared.is_over.load(Ordering::Acquire) {
                    said = write!(out, "1000\r\n{}\r\n", "x".repeat(0x1000)).and_then(|()| out.flush());
                }
                return;
            }
            Answers::Never => {
                lock(&shared.held).extend(held.try_clone());
                continue;
            }
        };
        if is_said.is_err() {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<Got> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Got { path, headers, body, at: Instant::now() })
}
