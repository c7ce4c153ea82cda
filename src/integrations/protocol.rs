//! The client's side of the Model Context Protocol: messages in, steps out. No pipe, no clock, no thread.
//!
//! A message with a `method` is a request or notification of the server, whatever its id: servers number
//! their own requests from 0, so their ids collide with ours.
//!
//! Source: Model Context Protocol 2025-06-18, basic/lifecycle, server/tools, client/roots.
//!
//! **Invariant:** each call gets at most one [`Step::Answer`]; after [`Client::cancel`] it gets none.

use crate::core::CallId;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
pub use svc_base::mcp::{ACCEPTED, PROTOCOL};

/// Pages of one tool list.
pub const MAX_PAGES: usize = 50;
/// Tools of one server.
pub const MAX_TOOLS: usize = 2000;
/// Characters of a server's own words that are passed on.
const WORDS_CHARS: usize = 500;

/// What a caller wants of a server.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Ask {
    Tools,
    /// A call of one.
    Tool {
        name: String,
        /// Its arguments, an object.
        params: Arc<Value>,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Write this line, which has its newline.
    Write(String),
    /// The handshake is over: the protocol spoken, and the server's name.
    Ready(String, String),
    /// The handshake failed: end the server.
    Refused(String),
    /// A call is answered: a result object (for [`Ask::Tools`] an array), or the server's words.
    Answer(CallId, Result<Value, String>),
    Note(String),
}

/// What a request of ours is for.
#[derive(Debug)]
enum Purpose {
    Initialize,
    Tool(CallId),
    Page,
}

/// A tool list that is being fetched.
#[derive(Debug, Default)]
struct Listing {
    tools: Vec<Value>,
    pages: usize,
    waiting: Vec<CallId>,
    /// The list has changed meanwhile: what comes is answered, but not kept.
    is_stale: bool,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Client {
    /// The project's root as a URI; `None` is not told.
    root: Option<String>,
    next_id: u64,
    pending: BTreeMap<u64, Purpose>,
    listing: Option<Listing>,
    tools: Option<Value>,
}

impl Client {
    /// A connection to be opened. `root` is the project's `file://` URI, `None` for a server that was told
    /// its folders by its arguments: some let the client's roots take their place.
    pub fn new(root: Option<String>) -> Self {
        Self { root, next_id: 1, pending: BTreeMap::new(), listing: None, tools: None }
    }

    /// The handshake's first message.
    pub fn open(&mut self, steps: &mut Vec<Step>) {
        let params = json!({
            "protocolVersion": PROTOCOL,
            "capabilities": if self.root.is_some() { json!({"roots": {}}) } else { json!({}) },
            "clientInfo": {"name": "svc", "version": crate::VERSION},
        });
        self.request("initialize", &params, Purpose::Initialize, steps);
    }

    /// Asks the server. The handshake is over.
    pub fn ask(&mut self, call: CallId, ask: &Ask, steps: &mut Vec<Step>) {
        match ask {
            Ask::Tool { name, params } => {
                let params = json!({"name": name, "arguments": **params});
                self.request("tools/call", &params, Purpose::Tool(call), steps);
            }
            Ask::Tools => {
                if let Some(tools) = &self.tools {
                    steps.push(Step::Answer(call, Ok(tools.clone())));
                } else if let Some(listing) = &mut self.listing {
                    listing.waiting.push(call);
                } else {
                    self.listing = Some(Listing { waiting: vec![call], ..Listing::default() });
                    self.request("tools/list", &json!({}), Purpose::Page, steps);
                }
            }
        }
    }

    /// Nobody waits for this call any more.
    pub fn cancel(&mut self, call: CallId, reason: &str, steps: &mut Vec<Step>) {
        let of_call = |(id, purpose): (&u64, &Purpose)| match purpose {
            Purpose::Tool(other) if *other == call => Some(*id),
            _ => None,
        };
        let mut id = self.pending.iter().find_map(of_call);
        if let Some(listing) = &mut self.listing {
            listing.waiting.retain(|other| *other != call);
            if listing.waiting.is_empty() {
                let page = |(id, purpose): (&u64, &Purpose)| matches!(purpose, Purpose::Page).then_some(*id);
                id = self.pending.iter().find_map(page);
                self.listing = None;
            }
        }
        let Some(id) = id else { return };
        self.pending.remove(&id);
        let params = json!({"requestId": id, "reason": reason});
        steps.push(line(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params,
        })));
    }

    /// An answer was lost, and nobody can tell whose: every call fails.
    pub fn fail_all(&mut self, why: &str, steps: &mut Vec<Step>) {
        for purpose in std::mem::take(&mut self.pending).into_values() {
            match purpose {
                Purpose::Initialize => steps.push(Step::Refused(why.to_owned())),
                Purpose::Tool(call) => steps.push(Step::Answer(call, Err(why.to_owned()))),
                Purpose::Page => {
                    let waiting = self.listing.take().map(|listing| listing.waiting).unwrap_or_default();
                    answer_all(&waiting, &Err(why.to_owned()), steps);
                }
            }
        }
    }

    /// Takes a message of the server, parsed already; an array is a batch.
    pub fn message(&mut self, message: Value, steps: &mut Vec<Step>) {
        match message {
            Value::Array(batch) => batch.into_iter().for_each(|message| self.message(message, steps)),
            Value::Object(_) if message["method"].is_string() => self.asked(&message, steps),
            Value::Object(_) => self.answered(message, steps),
            other => steps.push(Step::Note(format!("not a message: {}", words(&other.to_string())))),
        }
    }

    fn request(&mut self, method: &str, params: &Value, purpose: Purpose, steps: &mut Vec<Step>) {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.insert(id, purpose);
        steps.push(line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})));
    }

    /// The server asks or tells something.
    fn asked(&mut self, message: &Value, steps: &mut Vec<Step>) {
        let method = message["method"].as_str().unwrap_or_default();
        let id = &message["id"];
        if id.is_null() {
            if method == "notifications/tools/list_changed" {
                self.tools = None;
                if let Some(listing) = &mut self.listing {
                    listing.is_stale = true;
                }
            }
            return;
        }
        let refuse = |code: i32, words: &str| json!({"error": {"code": code, "message": words}});
        let mut answer = match method {
            "ping" => json!({"result": {}}),
            "roots/list" if self.root.is_some() => {
                json!({"result": {"roots": [{"uri": self.root, "name": "project"}]}})
            }
            "elicitation/create" => json!({"result": {"action": "decline"}}),
            "sampling/createMessage" => {
                refuse(-1, "svc does not lend its models to tool servers; do without this sample")
            }
            other => refuse(-32601, &format!("svc does not know the method {}", words(other))),
        };
        answer["jsonrpc"] = "2.0".into();
        answer["id"] = id.clone();
        steps.push(line(&answer));
    }

    /// The server answers one of our requests.
    fn answered(&mut self, mut message: Value, steps: &mut Vec<Step>) {
        let purpose = message["id"].as_u64().and_then(|id| self.pending.remove(&id));
        let Some(purpose) = purpose else {
            let id = words(&message["id"].to_string());
            return steps.push(Step::Note(format!("an answer that nobody waits for, id {id}")));
        };
        let result = read_result(&mut message);
        match purpose {
            Purpose::Initialize => Self::initialized(result, steps),
            Purpose::Tool(call) => steps.push(Step::Answer(call, result)),
            Purpose::Page => self.page(result, steps),
        }
    }

    fn initialized(result: Result<Value, String>, steps: &mut Vec<Step>) {
        let result = match result {
            Ok(result) => result,
            Err(error) => return steps.push(Step::Refused(format!("it refused to initialize: {error}"))),
        };
        let protocol = result["protocolVersion"].as_str().unwrap_or("none");
        if !ACCEPTED.contains(&protocol) {
            let known = ACCEPTED.join(", ");
            return steps.push(Step::Refused(format!(
                "it speaks protocol version {}; svc knows {known}",
                words(protocol)
            )));
        }
        steps.push(line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})));
        let info = &result["serverInfo"];
        let name = info["name"].as_str().unwrap_or_default();
        let version = info["version"].as_str().unwrap_or_default();
        steps.push(Step::Ready(protocol.to_owned(), words(format!("{name} {version}").trim())));
    }

    fn page(&mut self, result: Result<Value, String>, steps: &mut Vec<Step>) {
        let Some(mut listing) = self.listing.take() else { return };
        let mut result = match result {
            Ok(result) => result,
            Err(error) => return answer_all(&listing.waiting, &Err(error), steps),
        };
        listing.pages += 1;
        if let Value::Array(tools) = result["tools"].take() {
            listing.tools.extend(tools.into_iter().filter_map(tool_record));
        }
        if listing.tools.len() > MAX_TOOLS {
            let error = format!("it lists more than {MAX_TOOLS} tools");
            return answer_all(&listing.waiting, &Err(error), steps);
        }
        match result["nextCursor"].as_str() {
            Some(_) if listing.pages >= MAX_PAGES => {
                let error = format!("its tool list has more than {MAX_PAGES} pages");
                answer_all(&listing.waiting, &Err(error), steps);
            }
            Some(cursor) => {
                let params = json!({"cursor": cursor});
                self.listing = Some(listing);
                self.request("tools/list", &params, Purpose::Page, steps);
            }
            None => {
                let tools = Value::Array(listing.tools);
                if !listing.is_stale {
                    self.tools = Some(tools.clone());
                }
                answer_all(&listing.waiting, &Ok(tools), steps);
            }
        }
    }
}

fn answer_all(calls: &[CallId], answer: &Result<Value, String>, steps: &mut Vec<Step>) {
    steps.extend(calls.iter().map(|call| Step::Answer(*call, answer.clone())));
}

/// The result object, or the words of the error.
fn read_result(message: &mut Value) -> Result<Value, String> {
    let error = &message["error"];
    if !error.is_null() {
        let said = error["message"].as_str().map_or_else(|| error.to_string(), ToOwned::to_owned);
        let code = error["code"].as_i64().map(|code| format!(" ({code})")).unwrap_or_default();
        return Err(format!("{}{code}", words(&said)));
    }
    let result = message["result"].take();
    if result.is_object() { Ok(result) } else { Err("its answer has no result object".to_owned()) }
}

/// A tool as the daemon lists it; `None` without a name.
fn tool_record(mut tool: Value) -> Option<Value> {
    tool["name"].as_str()?;
    if !tool["description"].is_string() {
        tool["description"] = "".into();
    }
    if !tool["inputSchema"].is_object() {
        tool["inputSchema"] = json!({"type": "object"});
    }
    Some(tool)
}

/// A message as a line.
fn line(message: &Value) -> Step {
    Step::Write(format!("{message}\n"))
}

/// A server's words, cut and without line ends.
fn words(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_CHARS).collect()
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
