//! An endpoint that speaks streamed chat completions: one scripted answer per request, in order.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What to answer to one request.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    header: String,
    /// Pieces of the body, each a chunk of its own.
    pieces: Vec<String>,
    usage: Option<Value>,
    cut: bool,
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": "tiny", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

impl Answer {
    fn streamed(mut pieces: Vec<String>, finish: &str) -> Self {
        pieces.push(chunk(&json!({}), Some(finish)));
        let header = "Content-Type: text/event-stream".to_owned();
        Self { status: 200, header, pieces, usage: None, cut: false }
    }

    /// Words, a few characters at a time.
    pub fn text(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let pieces = characters.chunks(3).map(|part| {
            let part: String = part.iter().collect();
            chunk(&json!({"content": part}), None)
        });
        Self::streamed(pieces.collect(), "stop")
    }

    /// A tool call, its arguments in two pieces.
    pub fn call(name: &str, arguments: &Value) -> Self {
        Self::raw_call(name, &arguments.to_string())
    }

    /// A tool call with arguments that may be broken.
    pub fn raw_call(name: &str, arguments: &str) -> Self {
        let (head, tail) = arguments.split_at(1);
        let begin = json!({"index": 0, "id": "call_1", "type": "function",
            "function": {"name": name, "arguments": head}});
        let rest = json!({"index": 0, "function": {"arguments": tail}});
        let pieces = [begin, rest].map(|call| chunk(&json!({"tool_calls": [call]}), None));
        Self::streamed(pieces.to_vec(), "tool_calls")
    }

    /// No stream, but a status and a body.
    pub fn status(status: u16, body: &str) -> Self {
        let header = "Content-Type: application/json".to_owned();
        Self { status, header, pieces: vec![body.to_owned()], usage: None, cut: false }
    }

    /// Tells what it cost at its end.
    pub fn usage(mut self, prompt: u64, cached: u64, completion: u64) -> Self {
        self.usage = Some(json!({"prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt + completion, "prompt_tokens_details": {"cached_tokens": cached}}));
        self
    }

    /// With one more header.
    pub fn header(mut self, header: &str) -> Self {
        self.header.push_str("\r\n");
        self.header.push_str(header);
        self
    }

    /// The connection closes before the end.
    pub fn cut(mut self) -> Self {
        self.pieces.pop();
        self.cut = true;
        self
    }

    fn send(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let (status, header) = (self.status, &self.header);
        let head = "Transfer-Encoding: chunked\r\nConnection: close";
        write!(stream, "HTTP/1.1 {status} Said\r\n{header}\r\n{head}\r\n\r\n")?;
        let mut pieces = self.pieces.clone();
        if let Some(usage) = &self.usage {
            pieces.push(format!("data: {}\n\n", json!({"choices": [], "usage": usage})));
        }
        if self.status == 200 && !self.cut {
            pieces.push("data: [DONE]\n\n".to_owned());
        }
        for piece in pieces {
            write!(stream, "{:x}\r\n{piece}\r\n", piece.len())?;
        }
        if self.cut { Ok(()) } else { write!(stream, "0\r\n\r\n") }
    }
}

/// What was asked.
#[derive(Debug, Clone)]
pub struct Request {
    pub head: String,
    pub body: Value,
}

/// A listening endpoint.
pub struct Endpoint {
    /// Its base address.
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Endpoint {
    /// Answers as many requests as there are answers, then closes its port.
    pub fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for answer in answers {
                let Ok((stream, _)) = listener.accept() else { return };
                let request = read(&stream).unwrap();
                seen.lock().unwrap().push(request);
                // An agent that has ended early is the test's business.
                let _ = answer.send(&stream);
            }
        });
        Self { url, requests }
    }

    /// A port where nobody listens.
    pub fn nowhere() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        Self { url, requests: Arc::default() }
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> std::io::Result<Request> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            break;
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Request { head, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}
