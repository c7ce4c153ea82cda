//! Discord: the gateway WebSocket for what people say. What we say is [`super::worker_discord_rest`]'s.
//!
//! ```text
//! connect ──Hello──▶ identify or resume ──READY / RESUMED──▶ ready
//! ready ──op 7, no ack, lost──▶ connect, resume
//! ready ──op 9 false, 4003, 4007, 4009──▶ connect, identify
//! ready ──4004, 4010 to 4014──▶ over
//! ```
//!
//! No privileged intent is asked for: people use the application's own slash commands, a mention, or a direct
//! message, whose words Discord gives without one.
//!
//! Source: discord.com/developers/docs: Gateway, Gateway Events, Receiving and Responding to Interactions.

use super::Heard;
use super::Receipt;
use super::commands::{ALL, normalise};
use super::message::cut;
use super::worker::{Refusal, Shared, Taken};
use super::worker_discord_rest::{EPHEMERAL, call, refusal, words};
use super::worker_socket::{Event, Socket};
use crate::core::time::Time;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use svc_sys::clock;

/// Servers, their messages, direct messages.
const INTENTS: u64 = 1 | 1 << 9 | 1 << 12;
/// An interaction must be acknowledged within 3 seconds; what is on its way to Discord takes its part of
/// them.
const ACK_TIMEOUT: Duration = Duration::from_millis(2_700);
/// Between two tries of an acknowledgement that Discord did not take.
const ACK_PAUSE: Duration = Duration::from_millis(150);
/// After so many failures in a row a session is taken up where `GET /gateway/bot` says: its own address
/// may be gone.
const OWN_ADDRESS_TRIES: u32 = 2;
/// Until the server's Hello, and from identify to READY.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Close codes after which there is no coming back: a person has to change something.
const FATAL_CODES: [u16; 6] = [4004, 4010, 4011, 4012, 4013, 4014];
/// Close codes after which the session is lost.
const LOST_SESSION_CODES: [u16; 3] = [4003, 4007, 4009];
/// We close with this: neither 1000 nor 1001, which would end the session.
const CLOSE_CODE: u16 = 4_000;
/// Longest and shortest heartbeat interval believed, in milliseconds.
const HEARTBEAT_MS: (u64, u64) = (100, 600_000);
/// After this many events that were nothing for us, the cursor is written.
const CURSOR_EVERY: u64 = 200;
/// Discord's code: the interaction has been acknowledged.
const ACKNOWLEDGED_BEFORE: u64 = 40060;

/// What a resume needs. Also kept over restarts of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Session {
    id: String,
    url: String,
    sequence: u64,
}

impl Session {
    fn parse(cursor: &str) -> Option<Self> {
        let value: Value = serde_json::from_slice(cursor.as_bytes()).ok()?;
        let text = |name: &str| value[name].as_str().map(ToOwned::to_owned);
        Some(Self { id: text("session")?, url: text("url")?, sequence: value["sequence"].as_u64()? })
    }

    fn cursor(&self) -> String {
        json!({"session": self.id, "url": self.url, "sequence": self.sequence}).to_string()
    }
}

/// How a connection ended.
enum End {
    Over,
    /// Connect again and resume.
    Resume(String),
    /// Connect again and identify.
    Anew(String),
    /// Discord rejects the bot: trying again would not help.
    Fatal(String),
}

/// Who we are, once READY has said it.
#[derive(Debug, Clone, Default)]
pub(super) struct Identity {
    user: String,
    name: String,
    application: String,
}

impl Identity {
    /// Of a bot with this id.
    pub(super) fn of(user: &str) -> Self {
        Self { user: user.to_owned(), ..Self::default() }
    }

    fn read(bot: &Value, application: &Value) -> Self {
        Self {
            user: text_of(&bot["id"]),
            name: text_of(&bot["username"]),
            application: text_of(&application["id"]),
        }
    }

    /// What somebody has written, if it is for us.
    pub(super) fn message(&self, data: &Value) -> Option<Heard> {
        let author = &data["author"];
        let is_program = author["bot"] == true || data.get("webhook_id").is_some_and(|id| !id.is_null());
        if is_program || author["id"] == self.user.as_str() {
            return None;
        }
        let is_direct = data.get("guild_id").is_none_or(Value::is_null);
        let mut text = data["content"].as_str()?.trim();
        let mut addressed = is_direct;
        for mention in [format!("<@{}>", self.user), format!("<@!{}>", self.user)] {
            if let Some(rest) = text.strip_prefix(&mention) {
                text = rest;
                addressed = true;
            }
        }
        Some(Heard {
            key: data["id"].as_str()?.to_owned(),
            said_at: data["id"].as_str().and_then(time_of),
            user: author["id"].as_str()?.to_owned(),
            user_name: text_of(&author["username"]),
            chat: data["channel_id"].as_str()?.to_owned(),
            text: normalise(text, "", addressed)?,
            ..Heard::default()
        })
    }

    /// A slash command or a click, and the kind of its acknowledgement.
    pub(super) fn interaction(&self, data: &Value) -> Option<(Heard, u64)> {
        let user = if data["member"]["user"].is_object() { &data["member"]["user"] } else { &data["user"] };
        let place = data["channel_id"].as_str().or_else(|| data["channel"]["id"].as_str())?;
        let token = data["token"].as_str()?;
        let application = data["application_id"].as_str().unwrap_or(&self.application);
        let inner = &data["data"];
        let (text, kind, button, acknowledge) = match data["type"].as_u64()? {
            2 => {
                let arguments = inner["options"][0]["value"].as_str().unwrap_or_default();
                let line = format!("/{} {arguments}", inner["name"].as_str()?);
                // "Is thinking…" until the answer takes its place.
                (line.trim_end().to_owned(), "slash", false, 5)
            }
            // The message stays as it is for now.
            3 => (inner["custom_id"].as_str()?.to_owned(), "click", true, 6),
            _ => return None,
        };
        let heard = Heard {
            key: data["id"].as_str()?.to_owned(),
            said_at: data["id"].as_str().and_then(time_of),
            user: user["id"].as_str()?.to_owned(),
            user_name: text_of(&user["username"]),
            chat: place.to_owned(),
            text,
            reply_to: format!("{kind}:{application}:{token}"),
            button,
            clicked: text_of(&data["message"]["id"]),
            ..Heard::default()
        };
        Some((heard, acknowledge))
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

struct Client<'a> {
    shared: &'a Shared,
    session: Option<Session>,
    identity: Identity,
    commands_registered: bool,
    failures: u32,
    idle_events: u64,
}

/// Takes events until the gateway ends or Discord rejects the bot.
pub(super) fn take(shared: &Shared, cursor: &str) {
    let mut client = Client {
        shared,
        session: Session::parse(cursor),
        identity: Identity::default(),
        commands_registered: false,
        failures: 0,
        idle_events: 0,
    };
    while !shared.stopper.is_stopped() {
        let end = client.connection();
        client.keep_cursor();
        match end {
            End::Over => return,
            End::Fatal(error) => return shared.trouble(error, true),
            End::Resume(error) => shared.trouble(error, false),
            End::Anew(error) => {
                client.session = None;
                shared.moved(String::new());
                shared.trouble(error, false);
            }
        }
        client.failures += 1;
        if shared.pause_after(client.failures) {
            return;
        }
    }
}

impl Client<'_> {
    /// One connection, from its address to its end.
    fn connection(&mut self) -> End {
        let url = match self.know_ourselves().and_then(|()| self.address()) {
            Ok(url) => url,
            Err(end) => return end,
        };
        let line = &self.shared.line;
        let url = format!("{}/?v=10&encoding=json", url.trim_end_matches('/'));
        let mut socket = match Socket::connect(&url, line.is_plain(), &self.shared.stopper) {
            Ok(socket) => socket,
            Err(error) => return End::Resume(error),
        };
        let hello = match socket.next(Instant::now() + HANDSHAKE_TIMEOUT) {
            Event::Json(message) if message["op"] == 10 => message,
            Event::Closed(code, words) => return closed(code, &words),
            _ => return End::Resume("Discord did not say hello".into()),
        };
        let (least, most) = HEARTBEAT_MS;
        let interval = hello["d"]["heartbeat_interval"].as_u64().unwrap_or(41_250).clamp(least, most);
        if !socket.send(&self.opening()) {
            return End::Resume("the connection to Discord was lost".into());
        }
        let end = self.listen(&mut socket, Duration::from_millis(interval));
        socket.close(CLOSE_CODE);
        end
    }

    /// Where to connect: a session's own address, or what `GET /gateway/bot` says. An outage says
    /// nothing of the session: only Discord does ([`closed`], [`Client::invalid`]).
    fn address(&self) -> Result<String, End> {
        if let Some(session) = self.session.as_ref().filter(|_| self.failures <= OWN_ADDRESS_TRIES) {
            return Ok(session.url.clone());
        }
        let answer = call(&self.shared.line, "GET", "/gateway/bot", None).map_err(End::Resume)?;
        match answer.status {
            200 => {}
            401 | 403 => return Err(End::Fatal(words(&answer))),
            _ => {
                if let Some(wait) = answer.wait {
                    self.shared.stopper.pause(wait);
                }
                return Err(End::Resume(words(&answer)));
            }
        }
        let limit = &answer.body["session_start_limit"];
        if self.session.is_none() && limit["remaining"].as_u64() == Some(0) {
            let wait = Duration::from_millis(limit["reset_after"].as_u64().unwrap_or(60_000));
            let text = format!("Discord allows no more sessions for {} s", wait.as_secs());
            self.shared.trouble(text.clone(), false);
            self.shared.stopper.pause(wait);
            return Err(End::Resume(text));
        }
        let url = answer.body["url"].as_str().map(ToOwned::to_owned);
        url.ok_or_else(|| End::Resume("Discord named no gateway".into()))
    }

    /// Identify, or resume where there is a session.
    fn opening(&self) -> Value {
        let token = self.shared.line.bot_token.expose();
        match &self.session {
            Some(session) => json!({"op": 6, "d": {
                "token": token, "session_id": session.id, "seq": session.sequence,
            }}),
            None => json!({"op": 2, "d": {
                "token": token, "intents": INTENTS,
                "properties": {"os": std::env::consts::OS, "browser": "svc", "device": "svc"},
            }}),
        }
    }

    /// Hears until the connection ends; keeps the heartbeat.
    fn listen(&mut self, socket: &mut Socket, interval: Duration) -> End {
        let jitter = interval.mul_f64(fraction());
        let mut beat_at = Instant::now() + jitter;
        let mut acknowledged = true;
        let ready_by = Instant::now() + HANDSHAKE_TIMEOUT;
        let mut ready = false;
        loop {
            if self.shared.stopper.is_stopped() {
                return End::Over;
            }
            let now = Instant::now();
            if now >= beat_at {
                if !acknowledged {
                    return End::Resume("Discord did not answer the heartbeat".into());
                }
                if !self.beat(socket) {
                    return End::Resume("the connection to Discord was lost".into());
                }
                acknowledged = false;
                beat_at = now + interval;
            }
            if !ready && now >= ready_by {
                return End::Resume("Discord did not resume the session".into());
            }
            let until = if ready { beat_at } else { beat_at.min(ready_by) };
            match socket.next(until) {
                Event::Json(message) => match message["op"].as_u64() {
                    Some(0) => {
                        ready |= matches!(message["t"].as_str(), Some("READY" | "RESUMED"));
                        if !self.dispatch(&message) {
                            return End::Over;
                        }
                    }
                    Some(1) if !self.beat(socket) => {
                        return End::Resume("the connection to Discord was lost".into());
                    }
                    Some(7) => return End::Resume("Discord asked to connect again".into()),
                    Some(9) => return self.invalid(&message),
                    Some(11) => acknowledged = true,
                    _ => {}
                },
                Event::Closed(code, words) => return closed(code, &words),
                Event::Alive | Event::Quiet => {}
            }
        }
    }

    /// The session is not good; perhaps it can be taken up once more.
    fn invalid(&self, message: &Value) -> End {
        // As documented: a random time of 1 to 5 seconds before the next try.
        self.shared.stopper.pause(Duration::from_millis(1_000 + clock::random() % 4_000));
        if message["d"] == true && self.session.is_some() {
            End::Resume("Discord has not resumed the session yet".into())
        } else {
            End::Anew("Discord has forgotten the session".into())
        }
    }

    fn beat(&self, socket: &mut Socket) -> bool {
        let sequence = self.session.as_ref().map(|session| session.sequence);
        socket.send(&json!({"op": 1, "d": sequence}))
    }

    /// Handles an event; `false` when the gateway ends before it was taken.
    fn dispatch(&mut self, message: &Value) -> bool {
        if let (Some(session), Some(sequence)) = (&mut self.session, message["s"].as_u64()) {
            session.sequence = sequence;
        }
        let data = &message["d"];
        match message["t"].as_str().unwrap_or_default() {
            "READY" => self.ready(message),
            "RESUMED" => {
                self.failures = 0;
                self.shared.connected(&self.identity.name);
            }
            "MESSAGE_CREATE" => {
                if let Some(heard) = self.identity.message(data) {
                    return self.take(heard);
                }
            }
            "INTERACTION_CREATE" => return self.interaction(data),
            _ => {}
        }
        self.idle_events += 1;
        if self.idle_events.is_multiple_of(CURSOR_EVERY) {
            self.keep_cursor();
        }
        true
    }

    fn keep_cursor(&self) {
        if let Some(session) = &self.session {
            self.shared.moved(session.cursor());
        }
    }

    fn take(&self, heard: Heard) -> bool {
        let cursor = self.session.as_ref().map(Session::cursor);
        self.shared.take(&Heard { cursor, ..heard }) == Taken::Ours
    }

    fn ready(&mut self, message: &Value) {
        let data = &message["d"];
        self.session = Some(Session {
            id: text_of(&data["session_id"]),
            url: text_of(&data["resume_gateway_url"]),
            sequence: message["s"].as_u64().unwrap_or_default(),
        });
        self.identity = Identity::read(&data["user"], &data["application"]);
        self.failures = 0;
        self.keep_cursor();
        self.register_commands();
        self.shared.connected(&self.identity.name);
    }

    /// A session that another daemon began does not say who we are, and gives what was missed at once; REST
    /// does.
    fn know_ourselves(&mut self) -> Result<(), End> {
        if self.session.is_none() || !self.identity.application.is_empty() {
            return Ok(());
        }
        let answer = call(&self.shared.line, "GET", "/oauth2/applications/@me", None).map_err(End::Resume)?;
        match answer.status {
            200 => {}
            401 | 403 => return Err(End::Fatal(words(&answer))),
            _ => return Err(End::Resume(words(&answer))),
        }
        self.identity = Identity::read(&answer.body["bot"], &answer.body);
        Ok(())
    }

    /// Makes our commands known to Discord's clients; once per thread set, and no harm if it fails.
    fn register_commands(&mut self) {
        if self.commands_registered || self.identity.application.is_empty() {
            return;
        }
        let command = |command: &super::commands::Described| {
            let options = if command.arguments.is_empty() {
                json!([])
            } else {
                let about = cut(command.arguments, 100);
                json!([{"type": 3, "name": "arguments", "description": about, "required": false}])
            };
            json!({"name": command.name, "type": 1, "description": command.summary, "options": options})
        };
        let list: Vec<Value> = ALL.iter().map(command).collect();
        let path = format!("/applications/{}/commands", self.identity.application);
        match call(&self.shared.line, "PUT", &path, Some(&json!(list))) {
            Ok(answer) if answer.status < 300 => self.commands_registered = true,
            Ok(answer) => log::warn!("the slash commands were not registered: {}", words(&answer)),
            Err(error) => log::warn!("the slash commands were not registered: {error}"),
        }
    }

    /// Takes a slash command or a click, and acknowledges it.
    fn interaction(&mut self, data: &Value) -> bool {
        let until = Instant::now() + ACK_TIMEOUT;
        let Some((heard, acknowledge)) = self.identity.interaction(data) else { return true };
        let cursor = self.session.as_ref().map(Session::cursor);
        let heard = Heard { cursor, held: true, ..heard };
        let Some(receipt) = self.shared.hand_over(&heard) else { return false };
        let body = match &receipt {
            Receipt::Stranger(words) | Receipt::Refused(words) => {
                let data = json!({"content": words, "flags": EPHEMERAL, "allowed_mentions": {"parse": []}});
                json!({"type": 4, "data": data})
            }
            _ => json!({"type": acknowledge}),
        };
        if let Err(words) = self.acknowledge(data, &body, until) {
            log::warn!("an interaction was not acknowledged: {words}");
        }
        // Only now: Discord knows no answer to what it takes for unheard.
        if let Receipt::Entry(number) = receipt {
            self.shared.release(&heard.user, number);
        }
        true
    }

    /// Sends the callback of an interaction, again while there is time and it may help.
    fn acknowledge(&self, data: &Value, body: &Value, until: Instant) -> Result<(), String> {
        let text = |name: &str| data[name].as_str().unwrap_or_default();
        let url = format!("{}/interactions/{}/{}/callback", self.shared.line.api, text("id"), text("token"));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("Discord did not take it within 3 s".into());
            }
            let (wait, words) = match self.shared.line.http.call("POST", &url, None, Some(body), left) {
                Ok(answer) if answer.status < 300 => return Ok(()),
                // An earlier try has arrived, though its answer has not.
                Ok(answer) if answer.body["code"] == ACKNOWLEDGED_BEFORE => return Ok(()),
                Ok(answer) => match refusal(&answer) {
                    Refusal::Wait(wait) => (wait, words(&answer)),
                    Refusal::Later(words) => (ACK_PAUSE, words),
                    Refusal::Never(words) | Refusal::Over(words) => return Err(words),
                },
                Err(error) => (ACK_PAUSE, error),
            };
            if Instant::now() + wait >= until || self.shared.stopper.pause(wait) {
                return Err(words);
            }
        }
    }
}

/// When a thing of Discord's was made, which its id says: milliseconds since 2015 above 22 bits.
///
/// Source: discord.com/developers/docs/reference, "Snowflakes".
fn time_of(id: &str) -> Option<Time> {
    const EPOCH_MILLIS: u64 = 1_420_070_400_000;
    let millis = id.parse::<u64>().ok()? >> 22;
    (millis > 0).then(|| Time(millis + EPOCH_MILLIS))
}

/// What a close of the connection means.
fn closed(code: Option<u16>, words: &str) -> End {
    let code = code.unwrap_or_default();
    let text = match code {
        0 => format!("the connection to Discord was lost: {words}"),
        code => format!("Discord closed the connection: {code} {words}"),
    };
    if FATAL_CODES.contains(&code) {
        End::Fatal(text)
    } else if LOST_SESSION_CODES.contains(&code) {
        End::Anew(text)
    } else {
        End::Resume(text)
    }
}

/// A random number from 0 to 1.
#[allow(clippy::cast_precision_loss, reason = "a jitter")]
fn fraction() -> f64 {
    (clock::random() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: Discord's documentation, "Snowflake ID Broken Down in Binary".
    #[test]
    fn an_id_says_when_it_was_made() {
        assert_eq!(time_of("175928847299117063"), Some(Time(1_462_015_105_796)));
        for id in ["", "i-1", "-1", "4194303", "99999999999999999999999"] {
            assert_eq!(time_of(id), None, "{id}");
        }
    }

    /// Source: Discord's documentation, "Gateway Close Event Codes".
    #[test]
    fn issue_6_fatal_close_codes_end_it_and_all_others_come_back() {
        let word = |code| match closed(code, "words") {
            End::Fatal(_) => "fatal",
            End::Anew(_) => "anew",
            End::Resume(_) => "resume",
            End::Over => "over",
        };
        for code in [4004, 4010, 4011, 4012, 4013, 4014] {
            assert_eq!(word(Some(code)), "fatal", "{code}");
        }
        for code in [4003, 4007, 4009] {
            assert_eq!(word(Some(code)), "anew", "{code}");
        }
        for code in [
            None,
            Some(1000),
            Some(1001),
            Some(1006),
            Some(4000),
            Some(4001),
            Some(4002),
            Some(4005),
            Some(4008),
        ] {
            assert_eq!(word(code), "resume", "{code:?}");
        }
    }
}
