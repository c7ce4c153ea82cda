//! Discord's gateway and REST.

use super::lock;
use super::web::{Answer, Asked, Platform, Web, tear_frame};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

pub const TOKEN: &str = "MTIz.discord.token-of-a-bot";
pub const BOT: &str = "900";
pub const APPLICATION: &str = "901";

/// What a connection is told to do.
pub enum Order {
    Frame(Value),
    Close(u16),
}

#[derive(Default)]
pub struct State {
    sequence: u64,
    /// Events of the session, for a resume.
    history: Vec<(u64, Value)>,
    session: Option<String>,
    sessions: u32,
    orders: VecDeque<Order>,
    /// Whether a connection is identified or resumed.
    pub ready: bool,
    /// Payloads of clients by opcode, in order: identify 2, resume 6, heartbeat 1.
    pub heard: Vec<Value>,
    pub acknowledge: bool,
    /// What Hello says.
    pub interval_ms: u64,
    /// REST calls: method, path, body.
    pub calls: Vec<(String, String, Value)>,
    pub refusals: VecDeque<(u16, Value)>,
    /// Answers to the next callbacks, in place of taking them.
    pub callback_refusals: VecDeque<(u16, Value)>,
    /// Tokens of interactions, and the type of the callback that has come.
    interactions: BTreeMap<String, Option<u64>>,
    /// Nonces that are to be taken once, and the messages they led to.
    nonces: BTreeMap<String, String>,
    /// Messages: id, channel, content, components.
    pub messages: Vec<(String, String, String, Value)>,
    /// Of the next event only the first half arrives.
    pub tear_next: bool,
    /// The close code and words with which the client closed last.
    pub closed: Option<u16>,
}

pub struct Discord {
    state: Mutex<State>,
    wake: Condvar,
    port: u16,
}

impl Discord {
    pub fn start() -> (Web, Arc<Self>) {
        Web::start(|port| {
            let state = State { acknowledge: true, interval_ms: 41_250, ..State::default() };
            Arc::new(Self { state: Mutex::new(state), wake: Condvar::new(), port })
        })
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let result = look(&mut lock(&self.state));
        self.wake.notify_all();
        result
    }

    /// An event of the session; kept for a resume whether or not somebody listens.
    pub fn dispatch(&self, kind: &str, data: &Value) {
        self.with(|state| {
            state.sequence += 1;
            let frame = json!({"op": 0, "t": kind, "s": state.sequence, "d": data});
            state.history.push((state.sequence, frame.clone()));
            if state.ready {
                state.orders.push_back(Order::Frame(frame));
            }
        });
    }

    pub fn order(&self, order: Order) {
        self.with(|state| state.orders.push_back(order));
    }

    pub fn says(&self, id: &str, user: &str, text: &str) {
        self.says_in("55", id, user, text);
    }

    /// The same in another channel; a thread is one.
    pub fn says_in(&self, channel: &str, id: &str, user: &str, text: &str) {
        let author = json!({"id": user, "username": "ann", "bot": false});
        let data = json!({"id": id, "channel_id": channel, "author": author, "content": text, "mentions": [], "guild_id": "1"});
        self.dispatch("MESSAGE_CREATE", &data);
    }

    pub fn interacts(&self, id: &str, user: &str, kind: u64, data: &Value) {
        let member = json!({"user": {"id": user, "username": "ann"}});
        let author = json!({"id": BOT, "username": "svc_bot", "discriminator": "0", "bot": true});
        // The message with this button.
        let clicked = self.with(|state| {
            let has_it = |one: &&(String, String, String, Value)| {
                one.3.to_string().contains(&data["custom_id"].to_string())
            };
            state.messages.iter().find(has_it).map_or("m0".to_owned(), |one| one.0.clone())
        });
        let message = json!({
            "id": clicked, "channel_id": "55", "author": author, "content": "", "timestamp": "2026-01-01T00:00:00Z",
            "edited_timestamp": null, "tts": false, "mention_everyone": false, "mentions": [], "type": 0,
            "mention_roles": [], "attachments": [], "embeds": [], "pinned": false, "components": [],
        });
        let mut body = json!({
            "id": id, "application_id": APPLICATION, "type": kind, "data": data, "token": format!("tok{id}"),
            "channel_id": "55", "guild_id": "1", "member": member, "version": 1, "locale": "en-GB",
            "entitlements": [], "authorizing_integration_owners": {}, "context": 0, "app_permissions": "0",
        });
        if kind == 3 {
            body["message"] = message;
        }
        self.with(|state| state.interactions.insert(format!("tok{id}"), None));
        self.dispatch("INTERACTION_CREATE", &body);
    }

    fn take(&self, message: &Value, socket: &mut WebSocket<TcpStream>) -> bool {
        let mut frames = Vec::new();
        let mut close = None;
        {
            let mut state = lock(&self.state);
            state.heard.push(message.clone());
            let data = &message["d"];
            match message["op"].as_u64() {
                Some(1) => {
                    if state.acknowledge {
                        frames.push(json!({"op": 11, "d": null}));
                    }
                }
                Some(2 | 6) if data["token"] != TOKEN => close = Some(4004),
                Some(2) if !data["intents"].is_u64() || !data["properties"].is_object() => close = Some(4002),
                Some(2) => {
                    state.sessions += 1;
                    state.sequence += 1;
                    let session = format!("session-{}", state.sessions);
                    state.session = Some(session.clone());
                    state.history.clear();
                    state.ready = true;
                    let user = json!({"id": BOT, "username": "svc_bot", "discriminator": "0", "bot": true});
                    frames.push(json!({"op": 0, "t": "READY", "s": state.sequence, "d": {
                        "v": 10, "user": user, "guilds": [], "session_id": session,
                        "resume_gateway_url": format!("ws://127.0.0.1:{}", self.port),
                        "application": {"id": APPLICATION, "flags": 0},
                    }}));
                }
                Some(6) if state.session.is_some() && data["session_id"] == json!(state.session) => {
                    let seen = data["seq"].as_u64().unwrap_or_default();
                    frames.extend(state.history.iter().filter(|(s, _)| *s > seen).map(|(_, f)| f.clone()));
                    state.sequence += 1;
                    frames.push(json!({"op": 0, "t": "RESUMED", "s": state.sequence, "d": {}}));
                    state.ready = true;
                }
                Some(6) => frames.push(json!({"op": 9, "d": false})),
                _ => close = Some(4001),
            }
        }
        self.wake.notify_all();
        for frame in frames {
            if socket.send(Message::text(frame.to_string())).is_err() {
                return false;
            }
        }
        if let Some(code) = close {
            end(socket, code);
            return false;
        }
        true
    }

    fn refused(asked: &Asked) -> Option<Answer> {
        let parts = asked.parts();
        let open = parts.contains(&"interactions") || parts.contains(&"webhooks");
        if !open && asked.header("authorization") != format!("Bot {TOKEN}") {
            return Some((401, Vec::new(), json!({"message": "401: Unauthorized", "code": 0})));
        }
        if !asked.header("user-agent").starts_with("DiscordBot (") {
            return Some((403, Vec::new(), json!({"message": "Forbidden: a bot names itself"})));
        }
        None
    }

    /// The first answer to an interaction: taken once, within its life.
    fn callback(&self, asked: &Asked, token: &str) -> Answer {
        self.with(|state| {
            if let Some((status, body)) = state.callback_refusals.pop_front() {
                return (status, Vec::new(), body);
            }
            let kind = asked.body["type"].as_u64();
            match state.interactions.get_mut(token) {
                None => (404, Vec::new(), json!({"message": "Unknown interaction", "code": 10062})),
                Some(Some(_)) => (
                    400,
                    Vec::new(),
                    json!({"message": "Interaction has already been acknowledged.", "code": 40060}),
                ),
                Some(_) if !matches!(kind, Some(4..=7)) => {
                    (400, Vec::new(), json!({"message": "Invalid Form Body", "code": 50035}))
                }
                Some(known) => {
                    *known = kind;
                    (204, Vec::new(), Value::Null)
                }
            }
        })
    }

    fn message(&self, asked: &Asked, parts: &[&str]) -> Answer {
        let mut state = lock(&self.state);
        // An interaction that was not acknowledged has no webhook yet.
        if let ["webhooks", _, token, ..] = parts
            && state.interactions.get(*token).copied().flatten().is_none()
        {
            return (404, Vec::new(), json!({"message": "Unknown Webhook", "code": 10015}));
        }
        if let Some((status, body)) = state.refusals.pop_front() {
            return (status, Vec::new(), body);
        }
        let body = &asked.body;
        let content = body["content"].as_str().unwrap_or_default();
        let rows = body["components"].as_array().cloned().unwrap_or_default();
        let buttons: Vec<&Value> =
            rows.iter().flat_map(|row| row["components"].as_array().unwrap()).collect();
        let nonce = body["nonce"].as_str().unwrap_or_default();
        let bad = content.is_empty()
            || nonce.len() > 25
            || content.chars().count() > 2000
            || body["allowed_mentions"]["parse"] != json!([])
            || rows.iter().any(|row| row["type"] != 1 || row["components"].as_array().unwrap().len() > 5)
            || buttons.iter().any(|button| {
                !(1..=100).contains(&button["custom_id"].as_str().unwrap_or_default().len())
                    || button["label"].as_str().unwrap_or_default().chars().count() > 80
            });
        if bad {
            return (400, Vec::new(), json!({"message": "Invalid Form Body", "code": 50035}));
        }
        let (channel, known) = match parts {
            ["channels", channel, "messages"] => (*channel, None),
            ["channels", channel, "messages", id] => (*channel, Some(*id)),
            _ => ("interaction", None),
        };
        let nonce = (body["enforce_nonce"] == true && !nonce.is_empty()).then(|| nonce.to_owned());
        let same = nonce.as_ref().and_then(|nonce| state.nonces.get(nonce)).cloned();
        let id = if let Some(id) = same {
            id
        } else if let Some(id) = known {
            let Some(message) = state.messages.iter_mut().find(|one| one.0 == id) else {
                return (404, Vec::new(), json!({"message": "Unknown Message", "code": 10008}));
            };
            (message.2, message.3) = (content.to_owned(), json!(rows));
            id.to_owned()
        } else {
            let id = format!("m{}", state.messages.len());
            state.nonces.extend(nonce.map(|nonce| (nonce, id.clone())));
            state.messages.push((id.clone(), channel.to_owned(), content.to_owned(), json!(rows)));
            id
        };
        drop(state);
        self.wake.notify_all();
        let headers = vec![("X-RateLimit-Remaining", "4".into()), ("X-RateLimit-Reset-After", "1.0".into())];
        (200, headers, json!({"id": id, "channel_id": channel, "content": content}))
    }
}

fn end(socket: &mut WebSocket<TcpStream>, code: u16) {
    let frame = CloseFrame { code: CloseCode::from(code), reason: "as ordered".into() };
    let _ = socket.close(Some(frame));
    // Until the client has answered: a socket that goes too early takes the close along.
    let _ = socket.get_ref().set_read_timeout(Some(Duration::from_secs(1)));
    while socket.read().is_ok() {}
}

impl Platform for Discord {
    fn answer(&self, asked: &Asked) -> Answer {
        let parts: Vec<&str> =
            asked.parts().into_iter().skip_while(|part| ["api", "v10"].contains(part)).collect();
        self.with(|state| {
            state.calls.push((asked.method.clone(), parts.join("/"), asked.body.clone()));
        });
        if let Some(refused) = Self::refused(asked) {
            return refused;
        }
        match (asked.method.as_str(), parts.as_slice()) {
            ("GET", ["gateway", "bot"]) => {
                let limit = json!({"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1});
                let url = format!("ws://127.0.0.1:{}", self.port);
                (200, Vec::new(), json!({"url": url, "shards": 1, "session_start_limit": limit}))
            }
            ("GET", ["oauth2", "applications", "@me"]) => {
                (200, Vec::new(), json!({"id": APPLICATION, "bot": {"id": BOT, "username": "svc_bot"}}))
            }
            ("PUT", ["applications", _, "commands"]) => (200, Vec::new(), asked.body.clone()),
            ("POST", ["interactions", _, token, "callback"]) => self.callback(asked, token),
            ("POST" | "PATCH", ["channels", _, "messages", ..] | ["webhooks", ..]) => {
                self.message(asked, &parts)
            }
            _ => (404, Vec::new(), json!({"message": "404: Not Found", "code": 0})),
        }
    }

    fn socket(self: Arc<Self>, _: &Asked, mut socket: WebSocket<TcpStream>) {
        let hello = self.with(|state| {
            state.orders.clear();
            state.ready = false;
            json!({"op": 10, "d": {"heartbeat_interval": state.interval_ms, "_trace": []}})
        });
        if socket.send(Message::text(hello.to_string())).is_err() {
            return;
        }
        let _ = socket.get_ref().set_read_timeout(Some(Duration::from_millis(10)));
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(300) {
            match socket.read() {
                Ok(Message::Text(text)) => {
                    let Ok(message) = serde_json::from_str(&text) else { return end(&mut socket, 4002) };
                    if !self.take(&message, &mut socket) {
                        break;
                    }
                }
                Ok(Message::Close(frame)) => {
                    self.with(|state| state.closed = frame.map(|frame| frame.code.into()));
                    let _ = socket.flush();
                    break;
                }
                Ok(_) => {}
                Err(tungstenite::Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            let (order, tears) = self.with(|state| {
                let order = state.orders.pop_front();
                let tears =
                    state.tear_next && matches!(&order, Some(Order::Frame(frame)) if frame["op"] == 0);
                state.tear_next &= !tears;
                (order, tears)
            });
            match order {
                Some(Order::Frame(frame)) if tears => {
                    tear_frame(&mut socket, &frame.to_string());
                    break;
                }
                Some(Order::Frame(frame)) if socket.send(Message::text(frame.to_string())).is_err() => break,
                Some(Order::Frame(_)) | None => {}
                Some(Order::Close(code)) => {
                    end(&mut socket, code);
                    break;
                }
            }
        }
        self.with(|state| state.ready = false);
    }
}
