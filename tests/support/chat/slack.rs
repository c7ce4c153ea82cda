//! Slack's Socket Mode and Web API.

use super::lock;
use super::web::{Answer, Asked, Platform, Web, tear_frame};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tungstenite::{Message, WebSocket};

pub const BOT_TOKEN: &str = "xoxb-1-the-token-of-the-bot";
pub const APP_TOKEN: &str = "xapp-1-the-token-of-the-app";

#[derive(Default)]
pub struct State {
    tickets: Vec<String>,
    /// Envelopes not yet acknowledged: the envelope, when it was sent, how often.
    open: Vec<(Value, Option<Instant>, u32)>,
    orders: VecDeque<Value>,
    /// Acknowledged envelopes, and how long it took.
    pub acknowledged: Vec<(String, Duration)>,
    /// Connections that stand, and that ever stood.
    pub connections: u32,
    pub opened: u32,
    /// The most that stood at once.
    pub at_once: u32,
    /// Web API calls: method and body.
    pub calls: Vec<(String, Value)>,
    pub refusals: VecDeque<Answer>,
    /// The bot's token is worth nothing any more.
    pub revoked: bool,
    /// The bot may read what stands in channels.
    pub reads: bool,
    /// Metadata of messages, by their ts.
    metadata: Vec<(String, Value)>,
    /// Messages: ts, channel, text, blocks.
    pub messages: Vec<(String, String, String, Value)>,
    /// Unacknowledged envelopes are sent again after this.
    pub redeliver_ms: u64,
    /// This many acknowledgements are lost on their way.
    pub lose_acks: u32,
    /// Of the next envelope only the first half arrives.
    pub tear_next: bool,
    /// Answers at response addresses.
    pub responses: Vec<Value>,
}

pub struct Slack {
    state: Mutex<State>,
    wake: Condvar,
    port: u16,
}

impl Slack {
    pub fn start() -> (Web, Arc<Self>) {
        Web::start(|port| {
            let state = State { redeliver_ms: 3_000, ..State::default() };
            Arc::new(Self { state: Mutex::new(state), wake: Condvar::new(), port })
        })
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let result = look(&mut lock(&self.state));
        self.wake.notify_all();
        result
    }

    fn envelope(&self, kind: &str, payload: &Value) {
        self.with(|state| {
            let id = format!("env-{}", state.open.len() + state.acknowledged.len());
            let accepts = kind != "events_api";
            let envelope = json!({
                "envelope_id": id, "type": kind, "payload": payload, "accepts_response_payload": accepts,
            });
            state.open.push((envelope, None, 0));
        });
    }

    /// Somebody writes to the bot alone.
    pub fn says(&self, event: &str, user: &str, text: &str) {
        let body = json!({"type": "message", "channel_type": "im", "user": user, "text": text, "channel": "D55", "ts": "1.0"});
        self.envelope("events_api", &json!({"event_id": event, "type": "event_callback", "event": body}));
    }

    /// Somebody mentions the bot in a thread of a channel.
    pub fn says_in_thread(&self, event: &str, user: &str, text: &str, thread: &str) {
        let text = format!("<@U900> {text}");
        let body = json!({"type": "app_mention", "user": user, "text": text, "channel": "C55", "ts": "2.0",
                          "thread_ts": thread});
        self.envelope("events_api", &json!({"event_id": event, "type": "event_callback", "event": body}));
    }

    pub fn commands(&self, trigger: &str, user: &str, command: &str, text: &str) {
        self.envelope("slash_commands", &json!({
            "command": command, "text": text, "user_id": user, "user_name": "ann", "channel_id": "C55",
            "trigger_id": trigger, "response_url": format!("http://127.0.0.1:{}/response/{trigger}", self.port),
        }));
    }

    pub fn clicks(&self, trigger: &str, user: &str, value: &str) {
        self.clicks_at(trigger, user, value, SystemTime::now());
    }

    /// A click that is handed over later than it was made.
    pub fn clicks_at(&self, trigger: &str, user: &str, value: &str, at: SystemTime) {
        let at = at.duration_since(UNIX_EPOCH).unwrap();
        let at = format!("{}.{:06}", at.as_secs(), at.subsec_micros());
        // The message with this button.
        let ts = self.with(|state| {
            let has_it = |one: &&(String, String, String, Value)| one.3.to_string().contains(value);
            state.messages.iter().find(has_it).map(|one| one.0.clone())
        });
        self.envelope("interactive", &json!({
            "type": "block_actions", "user": {"id": user, "username": "ann"}, "channel": {"id": "C55"},
            "container": {"type": "message", "message_ts": ts, "channel_id": "C55"},
            "trigger_id": trigger, "actions": [{"type": "button", "action_id": "choice-0", "value": value, "action_ts": at}],
            "response_url": format!("http://127.0.0.1:{}/response/{trigger}", self.port),
        }));
    }

    /// Something that happens to the app.
    pub fn happens(&self, event: &str, body: &Value) {
        self.envelope("events_api", &json!({"event_id": event, "type": "event_callback", "event": body}));
    }

    /// A frame for the connection, such as `disconnect`.
    pub fn order(&self, frame: Value) {
        self.with(|state| state.orders.push_back(frame));
    }

    fn post(&self, method: &str, body: &Value) -> Answer {
        let mut state = lock(&self.state);
        state.calls.push((method.to_owned(), body.clone()));
        if let Some(refusal) = state.refusals.pop_front() {
            return refusal;
        }
        let blocks = body["blocks"].as_array().cloned().unwrap_or_default();
        if !blocks.iter().all(is_rich_text_or_other) {
            return (200, Vec::new(), json!({"ok": false, "error": "invalid_blocks"}));
        }
        for block in blocks.iter().filter(|block| block["type"] != "rich_text") {
            let text = block["text"]["text"].as_str().unwrap_or_default();
            let elements = block["elements"].as_array().cloned().unwrap_or_default();
            let fits = elements.len() <= 25
                && elements.iter().all(|button| {
                    button["text"]["text"].as_str().unwrap_or_default().chars().count() <= 75
                        && button["value"].as_str().unwrap_or_default().len() <= 2_000
                });
            if text.chars().count() > 3_000 || !fits {
                return (200, Vec::new(), json!({"ok": false, "error": "invalid_blocks"}));
            }
        }
        let text = body["text"].as_str().unwrap_or_default().to_owned();
        if text.is_empty() && blocks.is_empty() {
            return (200, Vec::new(), json!({"ok": false, "error": "no_text"}));
        }
        let channel = body["channel"].as_str().unwrap_or_default().to_owned();
        if channel == "C404" {
            return (200, Vec::new(), json!({"ok": false, "error": "channel_not_found"}));
        }
        let ts = if method == "chat.update" {
            let wanted = body["ts"].as_str().unwrap_or_default();
            let Some(message) = state.messages.iter_mut().find(|one| one.0 == wanted) else {
                return (200, Vec::new(), json!({"ok": false, "error": "message_not_found"}));
            };
            (message.2, message.3) = (text, json!(blocks));
            wanted.to_owned()
        } else {
            let ts = format!("17.{:06}", state.messages.len());
            state.messages.push((ts.clone(), channel.clone(), text, json!(blocks)));
            state.metadata.push((ts.clone(), body["metadata"].clone()));
            ts
        };
        drop(state);
        self.wake.notify_all();
        (200, Vec::new(), json!({"ok": true, "channel": channel, "ts": ts}))
    }

    /// The last messages of a channel, with their metadata.
    fn history(&self, asked: &Asked) -> Answer {
        let query = asked.path.split_once('?').map_or("", |(_, query)| query);
        let wanted = |part: &str| query.split('&').any(|one| one == part);
        self.with(|state| {
            state.calls.push(("conversations.history".to_owned(), json!(query)));
            if !state.reads {
                return (200, Vec::new(), json!({"ok": false, "error": "missing_scope", "needed": "channels:history"}));
            }
            let of_it = state.messages.iter().filter(|one| wanted(&format!("channel={}", one.1)));
            let list: Vec<Value> = of_it
                .map(|one| {
                    let metadata = state.metadata.iter().find(|(ts, _)| *ts == one.0);
                    let metadata = metadata.filter(|_| wanted("include_all_metadata=true"));
                    json!({"type": "message", "ts": one.0, "text": one.2, "metadata": metadata.map(|(_, one)| one)})
                })
                .collect();
            (200, Vec::new(), json!({"ok": true, "messages": list, "has_more": false}))
        })
    }

    /// What to send now: an ordered frame, or an envelope that is new or was not acknowledged in time.
    fn due(&self) -> Option<Value> {
        let mut state = lock(&self.state);
        if let Some(frame) = state.orders.pop_front() {
            return Some(frame);
        }
        let again = Duration::from_millis(state.redeliver_ms);
        let is_due = |at: &Option<Instant>| at.is_none_or(|at| at.elapsed() >= again);
        let (envelope, at, tries) = state.open.iter_mut().find(|(_, at, _)| is_due(at))?;
        *at = Some(Instant::now());
        *tries += 1;
        if *tries > 1 {
            envelope["retry_attempt"] = json!(*tries - 1);
            envelope["retry_reason"] = json!("timeout");
        }
        Some(envelope.clone())
    }

    fn take(&self, message: &Value) {
        self.with(|state| {
            let id = message["envelope_id"].as_str().unwrap_or_default();
            if state.lose_acks > 0 {
                state.lose_acks -= 1;
                return;
            }
            let Some(at) = state.open.iter().position(|(one, ..)| one["envelope_id"] == id) else { return };
            let (_, sent, _) = state.open.remove(at);
            state.acknowledged.push((id.to_owned(), sent.map_or(Duration::ZERO, |at| at.elapsed())));
        });
    }
}

/// A `rich_text` block holds sections of text elements, none of them empty.
fn is_rich_text_or_other(block: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_text = |element: &Value| {
        element["type"] == "text" && element["text"].as_str().is_some_and(|text| !text.is_empty())
    };
    block["type"] != "rich_text"
        || list(&block["elements"]).iter().all(|section| {
            let elements = list(&section["elements"]);
            section["type"] == "rich_text_section" && !elements.is_empty() && elements.iter().all(is_text)
        })
}

impl Platform for Slack {
    fn answer(&self, asked: &Asked) -> Answer {
        let parts = asked.parts();
        if let ["response", _] = parts.as_slice() {
            self.with(|state| state.responses.push(asked.body.clone()));
            return (200, Vec::new(), json!("ok"));
        }
        let method = *parts.last().unwrap_or(&"");
        let token = asked.header("authorization");
        let wanted = if method == "apps.connections.open" { APP_TOKEN } else { BOT_TOKEN };
        if token != format!("Bearer {wanted}") {
            return (200, Vec::new(), json!({"ok": false, "error": "invalid_auth"}));
        }
        if wanted == BOT_TOKEN && self.with(|state| state.revoked) {
            return (200, Vec::new(), json!({"ok": false, "error": "token_revoked"}));
        }
        match method {
            "auth.test" => (
                200,
                Vec::new(),
                json!({"ok": true, "user": "svc_bot", "user_id": "U900", "bot_id": "B900", "team_id": "T1"}),
            ),
            "apps.connections.open" => {
                let ticket = self.with(|state| {
                    let ticket =
                        format!("ticket-{}", state.opened + u32::try_from(state.tickets.len()).unwrap());
                    state.tickets.push(ticket.clone());
                    ticket
                });
                let url = format!("ws://127.0.0.1:{}/link/?ticket={ticket}&app_id=A1", self.port);
                (200, Vec::new(), json!({"ok": true, "url": url}))
            }
            "conversations.history" => self.history(asked),
            "chat.postMessage" | "chat.update" => self.post(method, &asked.body),
            _ => (200, Vec::new(), json!({"ok": false, "error": "unknown_method"})),
        }
    }

    fn socket(self: Arc<Self>, asked: &Asked, mut socket: WebSocket<TcpStream>) {
        let ticket = asked.path.split("ticket=").nth(1).unwrap_or_default();
        let ticket = ticket.split('&').next().unwrap_or_default().to_owned();
        // A ticket opens one connection.
        let known = self.with(|state| {
            let at = state.tickets.iter().position(|one| *one == ticket)?;
            state.tickets.remove(at);
            state.opened += 1;
            state.connections += 1;
            state.at_once = state.at_once.max(state.connections);
            Some(state.connections)
        });
        let Some(number) = known else { return };
        let hello = json!({
            "type": "hello", "num_connections": number, "connection_info": {"app_id": "A1"},
            "debug_info": {"host": "applink", "approximate_connection_time": 18060},
        });
        let mut open = socket.send(Message::text(hello.to_string())).is_ok();
        let _ = socket.get_ref().set_read_timeout(Some(Duration::from_millis(10)));
        while open {
            match socket.read() {
                Ok(Message::Text(text)) => self.take(&serde_json::from_str(&text).unwrap_or_default()),
                Ok(Message::Close(_)) => {
                    let _ = socket.flush();
                    break;
                }
                Ok(_) => {
                    let _ = socket.flush();
                }
                Err(tungstenite::Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            if let Some(frame) = self.due() {
                let tears = self
                    .with(|state| frame["envelope_id"].is_string() && std::mem::take(&mut state.tear_next));
                if tears {
                    tear_frame(&mut socket, &frame.to_string());
                    break;
                }
                open = socket.send(Message::text(frame.to_string())).is_ok();
            }
        }
        self.with(|state| state.connections -= 1);
    }
}
