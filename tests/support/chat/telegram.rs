//! Telegram's Bot API.

use super::lock;
use super::web::{Answer, Asked, Platform, Web};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tungstenite::WebSocket;

pub const TOKEN: &str = "4242:abcdefghijklmnop";

#[derive(Default)]
pub struct State {
    updates: VecDeque<(i64, Value)>,
    next_update: i64,
    /// The highest offset that was asked for: what is below is confirmed.
    pub confirmed: i64,
    polls: u64,
    /// Calls of methods but getUpdates: name and body, refused ones too.
    pub calls: Vec<(String, Value)>,
    /// Messages as they stand in the chats: id, chat, text, buttons.
    pub messages: Vec<(i64, String, String, Value)>,
    /// Answers to be given to the next calls that send, in place of the truth.
    pub refusals: VecDeque<(u16, Value)>,
    pub webhook: bool,
    /// Another program polls: the next so many polls are refused.
    pub conflicts: u32,
}

pub struct Telegram {
    state: Mutex<State>,
    wake: Condvar,
}

/// Unix seconds.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl Telegram {
    pub fn start() -> (Web, Arc<Self>) {
        Web::start(|_| {
            let state = State { next_update: 100, ..State::default() };
            Arc::new(Self { state: Mutex::new(state), wake: Condvar::new() })
        })
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let result = look(&mut lock(&self.state));
        self.wake.notify_all();
        result
    }

    fn update(&self, kind: &str, body: &Value) -> i64 {
        self.with(|state| {
            let id = state.next_update;
            state.next_update += 1;
            let mut update = json!({"update_id": id});
            update[kind] = body.clone();
            state.updates.push_back((id, update));
            id
        })
    }

    /// Somebody writes; the id of the update.
    pub fn says(&self, user: i64, chat: i64, text: &str) -> i64 {
        self.said(now(), user, chat, text)
    }

    /// The same at a time, in Unix seconds.
    pub fn said(&self, date: u64, user: i64, chat: i64, text: &str) -> i64 {
        let kind = if chat > 0 { "private" } else { "supergroup" };
        let from = json!({"id": user, "is_bot": false, "first_name": "Ann", "username": "ann"});
        let chat = json!({"id": chat, "type": kind});
        let mut message = json!({"message_id": 1, "date": date, "from": from, "chat": chat, "text": text});
        if text.starts_with('/') {
            let length = text.split_whitespace().next().unwrap_or_default().encode_utf16().count();
            message["entities"] = json!([{"type": "bot_command", "offset": 0, "length": length}]);
        }
        self.update("message", &message)
    }

    /// Somebody writes in a topic of a forum.
    pub fn says_in_topic(&self, user: i64, chat: i64, topic: i64, text: &str) -> i64 {
        let from = json!({"id": user, "is_bot": false, "first_name": "Ann"});
        self.update("message", &json!({
            "message_id": 1, "date": now(), "from": from, "chat": {"id": chat, "type": "supergroup", "is_forum": true},
            "message_thread_id": topic, "is_topic_message": true, "text": text,
        }))
    }

    /// Somebody clicks a button of a message.
    pub fn clicks(&self, user: i64, message: i64, data: &str) -> i64 {
        let chat = self.with(|state| {
            state.messages.iter().find(|one| one.0 == message).map(|one| one.1.clone()).unwrap()
        });
        let from = json!({"id": user, "is_bot": false, "first_name": "Ann"});
        let chat = json!({"id": chat.parse::<i64>().unwrap(), "type": "private"});
        let message = json!({"message_id": message, "date": 1, "chat": chat});
        let body = json!({"id": format!("q{user}"), "from": from, "message": message, "data": data, "chat_instance": "1"});
        self.update("callback_query", &body)
    }

    fn polled(&self, asked: &Asked) -> Answer {
        let mut state = lock(&self.state);
        if state.webhook {
            let text = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to \
                        delete the webhook first";
            return refuse(409, text);
        }
        if state.conflicts > 0 {
            state.conflicts -= 1;
            let text = "Conflict: terminated by other getUpdates request; make sure that only one bot instance \
                        is running";
            return refuse(409, text);
        }
        let number = |name: &str| match &asked.body[name] {
            Value::String(text) => text.parse().unwrap_or(0),
            other => other.as_i64().unwrap_or(0),
        };
        let offset = number("offset");
        state.confirmed = state.confirmed.max(offset);
        state.updates.retain(|(id, _)| *id >= offset);
        state.polls += 1;
        let own = state.polls;
        let until =
            Instant::now() + Duration::from_secs(u64::try_from(number("timeout").clamp(0, 50)).unwrap());
        self.wake.notify_all();
        loop {
            if state.polls != own {
                return refuse(409, "Conflict: terminated by other getUpdates request");
            }
            let left = until.saturating_duration_since(Instant::now());
            if !state.updates.is_empty() || left.is_zero() {
                let limit = usize::try_from(number("limit").clamp(1, 100)).unwrap_or(100);
                let list: Vec<Value> = state.updates.iter().take(limit).map(|(_, one)| one.clone()).collect();
                return (200, Vec::new(), json!({"ok": true, "result": list}));
            }
            state = self.wake.wait_timeout(state, left).unwrap().0;
        }
    }

    fn sent(&self, method: &str, body: &Value) -> Answer {
        let mut state = lock(&self.state);
        state.calls.push((method.to_owned(), body.clone()));
        if let Some((status, body)) = state.refusals.pop_front() {
            return (status, Vec::new(), body);
        }
        let text = match readable(body) {
            Ok(text) => text,
            Err(fault) => return refuse(400, &format!("Bad Request: {fault}")),
        };
        let length = text.encode_utf16().count();
        if length == 0 || length > 4096 {
            return refuse(
                400,
                if length == 0 {
                    "Bad Request: message text is empty"
                } else {
                    "Bad Request: message is too long"
                },
            );
        }
        let chat = plain(&body["chat_id"]);
        if chat == "404" {
            return refuse(400, "Bad Request: chat not found");
        }
        if body["message_thread_id"] == 404 {
            return refuse(400, "Bad Request: message thread not found");
        }
        let rows = body["reply_markup"]["inline_keyboard"].as_array().cloned().unwrap_or_default();
        for button in rows.iter().flat_map(|row| row.as_array().unwrap()) {
            if !(1..=64).contains(&button["callback_data"].as_str().unwrap_or_default().len()) {
                return refuse(400, "Bad Request: BUTTON_DATA_INVALID");
            }
        }
        let id = if method == "editMessageText" {
            let wanted = body["message_id"].as_i64().unwrap_or_default();
            let Some(known) = state.messages.iter_mut().find(|one| one.0 == wanted && one.1 == chat) else {
                return refuse(400, "Bad Request: message to edit not found");
            };
            (known.2, known.3) = (text, json!(rows));
            wanted
        } else {
            let id = 1_000 + i64::try_from(state.messages.len()).unwrap();
            state.messages.push((id, chat.clone(), text, json!(rows)));
            id
        };
        drop(state);
        self.wake.notify_all();
        let chat = json!({"id": chat.parse::<i64>().unwrap_or_default(), "type": "private"});
        (
            200,
            Vec::new(),
            json!({"ok": true, "result": {"message_id": id, "date": 1, "chat": chat, "text": "…"}}),
        )
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// The text after its markup is read, by the rules of parse mode HTML.
fn readable(body: &Value) -> Result<String, String> {
    let text = body["text"].as_str().ok_or("message text is empty")?;
    if body["parse_mode"] != "HTML" {
        return Ok(text.to_owned());
    }
    let mut out = String::new();
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['<', '&', '>']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(tag) = rest.strip_prefix('<') {
            let (tag, after) = tag.split_once('>').ok_or("can't parse entities: unclosed start tag")?;
            match tag.strip_prefix('/') {
                Some(name) if open.last() == Some(&name) => {
                    open.pop();
                }
                None if ["b", "i", "u", "s", "code", "pre"].contains(&tag) => open.push(tag),
                _ => return Err(format!("can't parse entities: unsupported start tag \"{tag}\"")),
            }
            rest = after;
        } else if rest.starts_with('&') {
            let known = [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&'), ("&quot;", '"')];
            let (name, c) = known.iter().find(|(name, _)| rest.starts_with(name)).ok_or("unknown entity")?;
            out.push(*c);
            rest = &rest[name.len()..];
        } else {
            out.push('>');
            rest = &rest[1..];
        }
    }
    if !open.is_empty() {
        return Err("can't parse entities: can't find end tag".into());
    }
    out.push_str(rest);
    Ok(out)
}

fn refuse(status: u16, text: &str) -> Answer {
    (status, Vec::new(), json!({"ok": false, "error_code": status, "description": text}))
}

impl Platform for Telegram {
    fn answer(&self, asked: &Asked) -> Answer {
        let parts = asked.parts();
        let [bot, method] = parts.as_slice() else { return refuse(404, "Not Found") };
        if *bot != format!("bot{TOKEN}") {
            return refuse(401, "Unauthorized");
        }
        let ok = |result: Value| (200, Vec::new(), json!({"ok": true, "result": result}));
        match *method {
            "getMe" => ok(json!({
                "id": 4242, "is_bot": true, "first_name": "svc", "username": "svc_bot", "can_join_groups": true,
                "can_read_all_group_messages": false, "supports_inline_queries": false,
            })),
            "getUpdates" => self.polled(asked),
            "sendMessage" | "editMessageText" => self.sent(method, &asked.body),
            "answerCallbackQuery" | "setMyCommands" => {
                self.with(|state| state.calls.push(((*method).to_owned(), asked.body.clone())));
                ok(json!(true))
            }
            "deleteWebhook" => {
                self.with(|state| state.webhook = false);
                ok(json!(true))
            }
            _ => refuse(404, "Not Found: method not found"),
        }
    }

    fn socket(self: Arc<Self>, _: &Asked, _: WebSocket<TcpStream>) {}
}
