//! Slack: Socket Mode for what people say, the Web API for what we say.
//!
//! An envelope is acknowledged when what it brings is on disk, which takes milliseconds of the 3 seconds
//! there are. One that is not acknowledged comes again; its event's id tells.
//!
//! Source: docs.slack.dev: Socket Mode, apps.connections.open, chat.postMessage, Rate limits;
//! `slackapi/node-slack-sdk`.

use super::commands::{ALL, normalise};
use super::message::{Button, Look, Text, in_thread, split_thread};
use super::worker::{End, Line, Piece, Refusal, Shared, Taken};
use super::worker_http::{Answer, CALL_TIMEOUT};
use super::worker_socket::{Event, Socket};
use super::{Heard, Kind, Place, render};
use crate::core::time::Time;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Until Slack says hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);
/// We ping this often.
const PING_EVERY: Duration = Duration::from_secs(15);
/// Without a sign of life for this long the connection is dead.
const SILENCE: Duration = Duration::from_secs(45);
/// An old connection is heard to its end for this long, once its successor stands.
const DRAIN: Duration = Duration::from_secs(2);
/// Nothing for this long: an old connection has nothing more.
const DRAIN_QUIET: Duration = Duration::from_millis(300);
/// Messages of a chat among which one is looked for that may stand there already.
const LOOK_BACK: usize = 100;
/// What the metadata of our own messages are called.
const METADATA: &str = "svc_message";
/// Answers that one response address takes.
const MAX_RESPONSES: usize = 5;
/// Words with which Slack says that trying again does not help.
const FATAL: [&str; 11] = [
    "invalid_auth",
    "not_authed",
    "account_inactive",
    "token_revoked",
    "token_expired",
    "no_permission",
    "missing_scope",
    "not_allowed_token_type",
    "ekm_access_denied",
    "access_denied",
    "org_login_required",
];

/// Of these, the words that refuse one call and not the token.
const ABOUT_ONE_CALL: [&str; 4] = ["no_permission", "missing_scope", "ekm_access_denied", "access_denied"];

fn call(line: &Line, token: &str, method: &str, body: &Value) -> Result<Answer, String> {
    let url = format!("{}/{method}", line.api);
    line.http.call("POST", &url, Some(&format!("Bearer {token}")), Some(body), CALL_TIMEOUT)
}

fn error_word(answer: &Answer) -> &str {
    answer.body["error"].as_str().unwrap_or("no error word")
}

fn words(answer: &Answer) -> String {
    match answer.status {
        200 => format!("Slack says {}", error_word(answer)),
        status => format!("Slack says {status} {}", error_word(answer)),
    }
}

fn end_of(answer: &Answer) -> End {
    if FATAL.contains(&error_word(answer)) { End::Fatal(words(answer)) } else { End::Again(words(answer)) }
}

struct Client<'a> {
    shared: &'a Shared,
    /// Our own user id, so that mentions are known.
    user: String,
    name: String,
}

/// Takes envelopes until the gateway ends or Slack rejects the bot.
pub(super) fn take(shared: &Shared) {
    let mut client = Client { shared, user: String::new(), name: String::new() };
    let mut next = None;
    shared.keep_connected(|failures| match next.take().map_or_else(|| client.open(), Ok) {
        Ok(socket) => {
            *failures = 0;
            client.listen(socket, &mut next)
        }
        Err(end) => end,
    });
}

impl Client<'_> {
    /// Learns who we are, and opens a connection up to Slack's hello.
    fn open(&mut self) -> Result<Socket, End> {
        let line = &self.shared.line;
        // Each time: the app's token may open a connection long after the bot's was revoked.
        let answer = call(line, line.bot_token.expose(), "auth.test", &json!({})).map_err(End::Again)?;
        if answer.body["ok"] != true {
            return Err(self.waited(&answer));
        }
        answer.body["user_id"].as_str().unwrap_or_default().clone_into(&mut self.user);
        answer.body["user"].as_str().unwrap_or_default().clone_into(&mut self.name);
        let Some(token) = &self.shared.app_token else {
            return Err(End::Fatal("it has no app_token".into()));
        };
        let answer = call(line, token.expose(), "apps.connections.open", &json!({})).map_err(End::Again)?;
        let Some(url) = answer.body["url"].as_str().filter(|_| answer.body["ok"] == true) else {
            return Err(self.waited(&answer));
        };
        let mut socket = Socket::connect(url, line.is_plain(), &self.shared.stopper).map_err(End::Again)?;
        let until = Instant::now() + HELLO_TIMEOUT;
        loop {
            match socket.next(until) {
                Event::Json(message) if message["type"] == "hello" => return Ok(socket),
                Event::Json(message) if message["type"] == "disconnect" => {
                    return Err(End::Again(disconnected(&message)));
                }
                Event::Closed(_, words) => return Err(End::Again(format!("Slack closed: {words}"))),
                Event::Quiet => return Err(End::Again("Slack did not say hello".into())),
                _ => {}
            }
        }
    }

    /// What a refusal means; a wait that Slack asks for is kept.
    fn waited(&self, answer: &Answer) -> End {
        if let Some(wait) = answer.wait.filter(|_| answer.status == 429) {
            self.shared.trouble(words(answer), false);
            self.shared.stopper.pause(wait);
        }
        end_of(answer)
    }

    /// Hears until the connection ends. On a warning the successor is opened first and left in `next`.
    fn listen(&mut self, mut socket: Socket, next: &mut Option<Socket>) -> End {
        self.shared.connected(&self.name);
        let mut ping_at = Instant::now() + PING_EVERY;
        let mut alive_at = Instant::now();
        loop {
            if self.shared.stopper.is_stopped() {
                socket.close(1000);
                return End::Over;
            }
            match socket.next(ping_at) {
                Event::Json(message) => {
                    alive_at = Instant::now();
                    if message["type"] == "disconnect" {
                        return self.replace(socket, &message, next);
                    }
                    match self.envelope(&mut socket, &message) {
                        Ok(()) => {}
                        Err(end) => return end,
                    }
                }
                Event::Alive => alive_at = Instant::now(),
                Event::Quiet => {
                    if alive_at.elapsed() >= SILENCE {
                        socket.close(1000);
                        return End::Again("Slack has gone silent".into());
                    }
                }
                Event::Closed(code, words) => {
                    let code = code.map_or_else(String::new, |code| format!("{code} "));
                    return End::Again(format!("Slack closed the connection: {code}{words}"));
                }
            }
            if Instant::now() >= ping_at {
                if !socket.ping() {
                    return End::Again("the connection to Slack was lost".into());
                }
                ping_at = Instant::now() + PING_EVERY;
            }
        }
    }

    /// Slack will close this connection: another is opened first, and this one heard to its end.
    fn replace(&mut self, mut socket: Socket, message: &Value, next: &mut Option<Socket>) -> End {
        match message["reason"].as_str() {
            Some("link_disabled") => return End::Fatal("Socket Mode is switched off for this app".into()),
            Some("too_many_websockets") => return End::Again(disconnected(message)),
            _ => {}
        }
        match self.open() {
            Ok(successor) => *next = Some(successor),
            Err(end) => return end,
        }
        let until = Instant::now() + DRAIN;
        while Instant::now() < until {
            match socket.next(Instant::now() + DRAIN_QUIET) {
                Event::Json(message) => {
                    if let Err(end) = self.envelope(&mut socket, &message) {
                        return end;
                    }
                }
                Event::Alive => {}
                Event::Quiet | Event::Closed(..) => break,
            }
        }
        socket.close(1000);
        End::Refresh
    }

    /// Takes what an envelope brings, and acknowledges it.
    fn envelope(&self, socket: &mut Socket, message: &Value) -> Result<(), End> {
        let Some(id) = message["envelope_id"].as_str() else { return Ok(()) };
        if let Some(heard) = heard(&self.user, message, id)
            && self.shared.take(&heard) == Taken::NotYet
        {
            return Err(End::Over);
        }
        if !socket.send(&json!({"envelope_id": id})) {
            return Err(End::Again("the connection to Slack was lost".into()));
        }
        match revoked(message) {
            Some(words) => Err(End::Fatal(words.into())),
            None => Ok(()),
        }
    }
}

/// What an envelope with this id says to the bot `me`, if it is for us.
pub(super) fn heard(me: &str, message: &Value, envelope: &str) -> Option<Heard> {
    let payload = &message["payload"];
    match message["type"].as_str()? {
        "events_api" => event(me, payload),
        "slash_commands" => slash(payload, envelope),
        "interactive" => click(payload, envelope),
        _ => None,
    }
}

fn event(me: &str, payload: &Value) -> Option<Heard> {
    let event = &payload["event"];
    let is_program = event.get("bot_id").is_some_and(|id| !id.is_null()) || event.get("subtype").is_some();
    let is_ours = match event["type"].as_str()? {
        "app_mention" => true,
        "message" => event["channel_type"] == "im",
        _ => false,
    };
    if !is_ours || is_program || event["user"] == me {
        return None;
    }
    let text = event["text"].as_str()?.trim();
    let text = text.strip_prefix(&format!("<@{me}>")).unwrap_or(text);
    let user = event["user"].as_str()?.to_owned();
    Some(Heard {
        key: payload["event_id"].as_str()?.to_owned(),
        user_name: user.clone(),
        user,
        chat: in_thread(event["channel"].as_str()?, event["thread_ts"].as_str()),
        text: normalise(&unescaped(text), "", true)?,
        ..Heard::default()
    })
}

/// Whether an envelope says that our tokens are worth nothing any more.
///
/// Source: docs.slack.dev: events `tokens_revoked` and `app_uninstalled`.
fn revoked(message: &Value) -> Option<&'static str> {
    let event = &message["payload"]["event"];
    match event["type"].as_str()? {
        "app_uninstalled" => Some("Slack says app_uninstalled"),
        "tokens_revoked" if event["tokens"]["bot"].as_array().is_some_and(|bots| !bots.is_empty()) => {
            Some("Slack says tokens_revoked")
        }
        _ => None,
    }
}

fn disconnected(message: &Value) -> String {
    format!("Slack ends the connection: {}", message["reason"].as_str().unwrap_or("no reason given"))
}

/// Slack escapes these three, and nothing else.
fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn slash(payload: &Value, envelope: &str) -> Option<Heard> {
    let text = |name: &str| payload[name].as_str().unwrap_or_default();
    let name = text("command").trim_start_matches('/').to_ascii_lowercase();
    let arguments = unescaped(text("text"));
    // An app has one command of its own, or ours one by one.
    let line = if ALL.iter().any(|command| command.name == name) {
        format!("/{name} {arguments}").trim_end().to_owned()
    } else {
        normalise(&arguments, "", true).unwrap_or_else(|| "/help".into())
    };
    Some(Heard {
        key: payload["trigger_id"].as_str().unwrap_or(envelope).to_owned(),
        user: payload["user_id"].as_str()?.to_owned(),
        user_name: text("user_name").to_owned(),
        chat: payload["channel_id"].as_str()?.to_owned(),
        text: line,
        reply_to: reply_to("slash", text("response_url")),
        ..Heard::default()
    })
}

fn click(payload: &Value, envelope: &str) -> Option<Heard> {
    if payload["type"] != "block_actions" {
        return None;
    }
    let user = &payload["user"];
    let chat = payload["channel"]["id"].as_str().or_else(|| payload["container"]["channel_id"].as_str())?;
    let container = &payload["container"];
    let thread = container["thread_ts"].as_str().or_else(|| payload["message"]["thread_ts"].as_str());
    let clicked = container["message_ts"].as_str().or_else(|| payload["message"]["ts"].as_str());
    Some(Heard {
        key: payload["trigger_id"].as_str().unwrap_or(envelope).to_owned(),
        user: user["id"].as_str()?.to_owned(),
        user_name: user["username"].as_str().or_else(|| user["name"].as_str()).unwrap_or_default().to_owned(),
        chat: in_thread(chat, thread),
        clicked: clicked.unwrap_or_default().to_owned(),
        text: payload["actions"][0]["value"].as_str()?.to_owned(),
        said_at: payload["actions"][0]["action_ts"].as_str().and_then(time_of),
        reply_to: reply_to("click", payload["response_url"].as_str().unwrap_or_default()),
        button: true,
        ..Heard::default()
    })
}

/// A point in time as Slack writes it: `1548426417.840180`, in seconds.
fn time_of(text: &str) -> Option<Time> {
    text.split('.').next()?.parse::<u64>().ok()?.checked_mul(1000).map(Time)
}

fn reply_to(kind: &str, url: &str) -> String {
    if url.is_empty() { String::new() } else { format!("{kind}:{url}") }
}

/// What a refusal of a message means. Slack refuses with status 200 and a word.
fn refusal(answer: &Answer) -> Refusal {
    match (answer.status, error_word(answer)) {
        (429, _) | (_, "ratelimited" | "rate_limited") => {
            Refusal::Wait(answer.wait.unwrap_or(Duration::from_secs(1)))
        }
        (500..=599, _)
        | (_, "internal_error" | "fatal_error" | "service_unavailable" | "request_timeout") => {
            Refusal::Later(words(answer))
        }
        (_, word) if FATAL.contains(&word) && !ABOUT_ONE_CALL.contains(&word) => Refusal::Over(words(answer)),
        _ => Refusal::Never(words(answer)),
    }
}

fn blocks(words: &Text, buttons: &[Button]) -> Value {
    let mut blocks = vec![render::rich_text(words)];
    let button = |(at, button): (usize, &Button)| {
        let mut shown = json!({
            "type": "button", "action_id": format!("choice-{at}"), "value": button.command,
            "text": {"type": "plain_text", "text": button.label, "emoji": false},
        });
        match button.look {
            Look::Good => shown["style"] = json!("primary"),
            Look::Bad => shown["style"] = json!("danger"),
            Look::Neutral => {}
        }
        shown
    };
    if !buttons.is_empty() {
        let elements: Vec<Value> = buttons.iter().enumerate().map(button).collect();
        blocks.push(json!({"type": "actions", "elements": elements}));
    }
    json!(blocks)
}

/// One of our own messages among the last of a chat or thread. `None` also where the bot may not read there
/// (it needs a `history` scope): Slack takes the same message twice and knows no better way.
fn find(line: &Line, chat: &str, thread: Option<&str>, key: &str) -> Option<Place> {
    // Ids of Slack need no escaping; a name is none.
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    if !is_plain(chat) || !thread.is_none_or(is_plain) {
        return None;
    }
    let (method, of_thread) = match thread {
        Some(thread) => ("conversations.replies", format!("&ts={thread}")),
        None => ("conversations.history", String::new()),
    };
    let query = format!("channel={chat}{of_thread}&limit={LOOK_BACK}&include_all_metadata=true");
    let url = format!("{}/{method}?{query}", line.api);
    let authorization = format!("Bearer {}", line.bot_token.expose());
    let answer = line.http.call("GET", &url, Some(&authorization), None, CALL_TIMEOUT).ok()?;
    let mut messages = answer.body["messages"].as_array()?.iter();
    let found = messages.find(|message| {
        let metadata = &message["metadata"];
        metadata["event_type"] == METADATA && metadata["event_payload"]["key"] == key
    })?;
    Some(Place { chat: chat.to_owned(), message: found["ts"].as_str()?.to_owned() })
}

/// Sends one piece.
pub(super) fn send(line: &Line, piece: &Piece) -> Result<Option<Place>, Refusal> {
    let (chat, thread) = split_thread(piece.chat);
    if let Some((kind, url)) = piece.reply_to.split_once(':')
        && piece.number < MAX_RESPONSES
        && (url.starts_with("https://") || line.is_plain())
    {
        // Only the one who clicked sees the answer to a click.
        let kind = if kind == "click" { "ephemeral" } else { "in_channel" };
        let mut body = json!({
            "text": piece.text, "mrkdwn": false, "blocks": blocks(piece.words, piece.buttons),
            "response_type": kind, "replace_original": false,
        });
        if let Some(thread) = thread {
            body["thread_ts"] = json!(thread);
        }
        // The address itself is the permission: no token goes along.
        let answer = line.http.call("POST", url, None, Some(&body), CALL_TIMEOUT).map_err(Refusal::Later)?;
        match answer.status {
            200 => return Ok(None),
            429 | 500..=599 => return Err(refusal(&answer)),
            // It is too old or used up: the answer is a message of its own.
            _ => {}
        }
    }
    let key = format!("{}-{}", piece.key, piece.number);
    if piece.again
        && !piece.key.is_empty()
        && piece.reply_to.is_empty()
        && let Some(place) = find(line, chat, thread, &key)
    {
        return Ok(Some(place));
    }
    let mut body = json!({
        "channel": chat, "text": piece.text, "mrkdwn": false,
        "blocks": blocks(piece.words, piece.buttons),
        "unfurl_links": false, "unfurl_media": false,
    });
    if let Some(thread) = thread {
        body["thread_ts"] = json!(thread);
    }
    if !piece.key.is_empty() {
        body["metadata"] = json!({"event_type": METADATA, "event_payload": {"key": key}});
    }
    let answer = call(line, line.bot_token.expose(), "chat.postMessage", &body).map_err(Refusal::Later)?;
    if answer.body["ok"] != true {
        return Err(refusal(&answer));
    }
    let chat = answer.body["channel"].as_str().unwrap_or(chat).to_owned();
    Ok(answer.body["ts"].as_str().map(|ts| Place { chat, message: ts.to_owned() }))
}

/// Changes a message; its buttons go.
pub(super) fn edit(line: &Line, place: &Place, words: &Text) -> Result<(), Refusal> {
    let body = json!({
        "channel": place.chat, "ts": place.message, "text": render::markup(Kind::Slack, words),
        "blocks": blocks(words, &[]),
    });
    let answer = call(line, line.bot_token.expose(), "chat.update", &body).map_err(Refusal::Later)?;
    if answer.body["ok"] == true { Ok(()) } else { Err(refusal(&answer)) }
}
