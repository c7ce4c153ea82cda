//! A receiver of posts: writes down what comes, and answers as it is told.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// How it answers.
#[derive(Debug, Clone)]
pub enum Answers {
    /// With this status.
    Always(u16),
    /// It takes the request, and says nothing.
    Never,
    /// It points to another address.
    Redirect(String),
}

/// A request that came.
#[derive(Debug, Clone)]
pub struct Got {
    /// With its query.
    pub path: String,
    /// Names in small letters.
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Got {
    /// The value of a head line; empty where it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Its body.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

#[derive(Debug)]
struct Shared {
    got: Mutex<Vec<Got>>,
    answers: Mutex<Answers>,
    /// Connections that are not answered.
    held: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

/// A running receiver; ended on drop.
#[derive(Debug)]
pub struct Receiver {
    port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Listens on a port of its own.
    pub fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            got: Mutex::default(),
            answers: Mutex::new(answers),
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
                std::thread::spawn(move || stream.map(|stream| serve(&own, &stream)));
            }
        });
        Self { port, shared, thread: Some(thread) }
    }

    /// Its address with this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Answers otherwise from now on; who was not answered is cut off.
    pub fn answer(&self, answers: Answers) {
        *lock(&self.shared.answers) = answers;
        lock(&self.shared.held).clear();
    }

    /// All that came, in order.
    pub fn all(&self) -> Vec<Got> {
        lock(&self.shared.got).clone()
    }

    /// The first that tells of an event of this type.
    pub fn find(&self, kind: &str) -> Option<Got> {
        self.all().into_iter().find(|got| got.json()["type"] == kind)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        lock(&self.shared.held).clear();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection, for as many requests as come on it.
fn serve(shared: &Shared, stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    while let Some(got) = read(&mut reader) {
        lock(&shared.got).push(got);
        let answers = lock(&shared.answers).clone();
        let (status, more) = match answers {
            Answers::Always(status) => (status, String::new()),
            Answers::Redirect(to) => (302, format!("Location: {to}\r\n")),
            Answers::Never => {
                lock(&shared.held).extend(stream.try_clone());
                continue;
            }
        };
        let length = if status == 204 { "" } else { "Content-Length: 0\r\n" };
        let answer = format!("HTTP/1.1 {status} x\r\n{more}{length}\r\n");
        if (&*stream).write_all(answer.as_bytes()).is_err() {
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
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut got = Got { path, headers, body: Vec::new() };
    got.body = vec![0; got.header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut got.body).ok()?;
    Some(got)
}
