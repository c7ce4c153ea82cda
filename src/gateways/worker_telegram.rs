//! Telegram: the Bot API over HTTPS, long polling.
//!
//! The offset that confirms an update is given to Telegram only after the update is on our disk, and is
//! itself on our disk: an update is taken once, whoever dies in between.
//!
//! Source: core.telegram.org/bots/api; `tdlib/telegram-bot-api`, Client.cpp.

use super::commands::{ALL, normalise};
use super::message::{in_thread, split_thread};
use super::worker::{End, Line, Piece, Refusal, Shared, Taken};
use super::worker_http::{Answer, CALL_TIMEOUT};
use super::{Heard, Place};
use crate::core::time::Time;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds that Telegram holds a poll open; it does not take more than 50.
const POLL_SECONDS: u64 = 50;
/// A poll in all: what Telegram holds, and the way there and back.
const POLL_TIMEOUT: Duration = Duration::from_secs(POLL_SECONDS + 15);
/// Updates of one poll; Telegram's own limit.
const POLL_UPDATES: u64 = 100;
/// Characters of the words shown for a click.
const MAX_CLICK_CHARS: usize = 200;
/// At the first connection older messages are not for us: they were written before anybody set the bot up.
const BACKLOG_SECONDS: u64 = 10 * 60;
/// A longer wait than this is not believed.
const MAX_WAIT_SECONDS: u64 = 24 * 60 * 60;
/// Buttons in one row; more would be cut on a phone.
const BUTTONS_PER_ROW: usize = 2;

/// Telegram's own address of a method.
fn url(line: &Line, method: &str) -> String {
    format!("{}/bot{}/{method}", line.api, line.bot_token.expose())
}

fn call(line: &Line, method: &str, body: &Value, timeout: Duration) -> Result<Answer, String> {
    line.http.call("POST", &url(line, method), None, Some(body), timeout)
}

fn words(answer: &Answer) -> String {
    let words = answer.body["description"].as_str().unwrap_or("no description");
    format!("Telegram says {}: {words}", answer.status)
}

/// Takes updates until the gateway ends or Telegram rejects the bot.
pub(super) fn take(shared: &Shared, cursor: &str) {
    let mut offset: i64 = cursor.parse().unwrap_or_default();
    shared.keep_connected(|failures| session(shared, &mut offset, failures));
}

/// Names itself, and polls until something goes wrong.
fn session(shared: &Shared, offset: &mut i64, failures: &mut u32) -> End {
    let me = match call(&shared.line, "getMe", &json!({}), CALL_TIMEOUT) {
        Ok(answer) if answer.body["ok"] == true => answer.body["result"].clone(),
        Ok(answer) => return refused(shared, &answer),
        Err(error) => return End::Again(error),
    };
    let bot = me["username"].as_str().unwrap_or_default().to_owned();
    show_commands(shared);
    // What was written before anybody has set us up is not for us.
    let not_before = if *offset == 0 { unix_seconds().saturating_sub(BACKLOG_SECONDS) } else { 0 };
    let mut polls = 0u64;
    loop {
        // The first poll answers at once: it shows that no webhook and no other poller is in the way.
        let timeout = if polls == 0 { 0 } else { POLL_SECONDS };
        let body = json!({
            "offset": *offset, "limit": POLL_UPDATES, "timeout": timeout,
            "allowed_updates": ["message", "callback_query"],
        });
        let answer = match call(&shared.line, "getUpdates", &body, POLL_TIMEOUT) {
            Ok(answer) => answer,
            Err(_) if shared.stopper.is_stopped() => return End::Over,
            Err(error) => return End::Again(error),
        };
        let Some(updates) = answer.body["result"].as_array().filter(|_| answer.body["ok"] == true) else {
            return refused(shared, &answer);
        };
        if polls == 0 {
            shared.connected(&bot);
            *failures = 0;
        }
        polls += 1;
        for update in updates {
            let is_ours = update["message"]["date"].as_u64().is_none_or(|date| date >= not_before);
            let heard = if is_ours { heard(&bot, update) } else { None };
            if !one(shared, update, heard, offset) {
                return End::Over;
            }
        }
    }
}

fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Gives Telegram's clients the menu of commands; no harm if it fails.
fn show_commands(shared: &Shared) {
    let menu: Vec<Value> =
        ALL.iter().map(|known| json!({"command": known.name, "description": known.summary})).collect();
    let body = json!({"commands": menu});
    match call(&shared.line, "setMyCommands", &body, CALL_TIMEOUT) {
        Ok(answer) if answer.body["ok"] == true => {}
        Ok(answer) => log::warn!("the menu of commands was not set: {}", words(&answer)),
        Err(error) => log::warn!("the menu of commands was not set: {error}"),
    }
}

fn refused(shared: &Shared, answer: &Answer) -> End {
    match answer.status {
        401 | 403 | 404 => End::Fatal(words(answer)),
        429 => {
            let wait = wait_of(answer);
            let error = words(answer);
            shared.trouble(error.clone(), false);
            if shared.stopper.pause(wait) { End::Over } else { End::Again(error) }
        }
        // 409: a webhook is set, or another program polls with this token. It may go away.
        _ => End::Again(words(answer)),
    }
}

fn wait_of(answer: &Answer) -> Duration {
    let seconds = answer.body["parameters"]["retry_after"].as_u64();
    seconds
        .map(|seconds| Duration::from_secs(seconds.min(MAX_WAIT_SECONDS)))
        .or(answer.wait)
        .unwrap_or(Duration::from_secs(1))
}

/// Takes one update; `false` when the gateway ends before it was taken.
fn one(shared: &Shared, update: &Value, heard: Option<Heard>, offset: &mut i64) -> bool {
    let Some((id, next)) = numbers(update) else { return true };
    if id < *offset {
        return true;
    }
    match heard {
        Some(heard) => {
            let heard = Heard { key: format!("update:{id}"), cursor: Some(next.to_string()), ..heard };
            if shared.take(&heard) == Taken::NotYet {
                return false;
            }
        }
        // A click must be answered, or it shows as under way.
        None => shared.moved(next.to_string()),
    }
    *offset = next;
    true
}

/// The number of an update, and that of the one behind it; `None` where there is none of either.
pub(super) fn numbers(update: &Value) -> Option<(i64, i64)> {
    let id = update["update_id"].as_i64()?;
    Some((id, id.checked_add(1)?))
}

/// What an update says to `bot`, if it is for us.
pub(super) fn heard(bot: &str, update: &Value) -> Option<Heard> {
    if let Some(click) = update.get("callback_query") {
        let from = &click["from"];
        return Some(Heard {
            user: from["id"].as_i64()?.to_string(),
            user_name: name_of(from),
            chat: chat_of(&click["message"])?,
            text: click["data"].as_str()?.to_owned(),
            reply_to: format!("click:{}", click["id"].as_str()?),
            button: true,
            clicked: click["message"]["message_id"].as_i64().map_or_else(String::new, |id| id.to_string()),
            ..Heard::default()
        });
    }
    let message = update.get("message")?;
    let from = &message["from"];
    if from["is_bot"] == true {
        return None;
    }
    let addressed = message["chat"]["type"] == "private";
    Some(Heard {
        user: from["id"].as_i64()?.to_string(),
        user_name: name_of(from),
        chat: chat_of(message)?,
        text: normalise(message["text"].as_str()?, bot, addressed)?,
        said_at: message["date"].as_u64().and_then(|seconds| seconds.checked_mul(1000)).map(Time),
        ..Heard::default()
    })
}

/// Where a message stands: its chat, and in a forum its topic. Elsewhere a thread is but a row of replies.
fn chat_of(message: &Value) -> Option<String> {
    let topic = message["message_thread_id"].as_i64().filter(|_| message["is_topic_message"] == true);
    let topic = topic.map(|topic| topic.to_string());
    Some(in_thread(&message["chat"]["id"].as_i64()?.to_string(), topic.as_deref()))
}

fn name_of(from: &Value) -> String {
    let name = from["username"].as_str().or_else(|| from["first_name"].as_str());
    name.unwrap_or_default().to_owned()
}

/// What a refusal of a message means.
fn refusal(answer: &Answer) -> Refusal {
    match answer.status {
        429 => Refusal::Wait(wait_of(answer)),
        status => Refusal::of(status, words(answer)),
    }
}

/// Sends one piece.
pub(super) fn send(line: &Line, piece: &Piece) -> Result<Option<Place>, Refusal> {
    if let Some(click) = piece.reply_to.strip_prefix("click:")
        && piece.number == 0
    {
        let short = piece.text.chars().count() <= MAX_CLICK_CHARS
            && piece.buttons.is_empty()
            && !piece.text.contains('\n');
        let words = if short { plain(piece.text) } else { String::new() };
        let body = json!({"callback_query_id": click, "text": words});
        let answer = call(line, "answerCallbackQuery", &body, CALL_TIMEOUT).map_err(Refusal::Later)?;
        // A click that is too old to be answered is answered by a message.
        if short && answer.body["ok"] == true {
            return Ok(None);
        }
    }
    let (chat, topic) = split_thread(piece.chat);
    let mut body = json!({
        "chat_id": chat, "text": piece.text, "parse_mode": "HTML",
        "link_preview_options": {"is_disabled": true},
    });
    if let Some(topic) = topic.and_then(|topic| topic.parse::<i64>().ok()) {
        body["message_thread_id"] = json!(topic);
    }
    if !piece.buttons.is_empty() {
        let button =
            |button: &super::message::Button| json!({"text": button.label, "callback_data": button.command});
        let rows: Vec<Vec<Value>> =
            piece.buttons.chunks(BUTTONS_PER_ROW).map(|row| row.iter().map(button).collect()).collect();
        body["reply_markup"] = json!({"inline_keyboard": rows});
    }
    let mut answer = call(line, "sendMessage", &body, CALL_TIMEOUT).map_err(Refusal::Later)?;
    if let Some(chat) = answer.body["parameters"]["migrate_to_chat_id"].as_i64() {
        // The group has become a supergroup and has another id now.
        body["chat_id"] = json!(chat);
        answer = call(line, "sendMessage", &body, CALL_TIMEOUT).map_err(Refusal::Later)?;
    }
    let is_gone = |words: &str| words.contains("message thread not found") || words.contains("TOPIC_CLOSED");
    if answer.body["description"].as_str().is_some_and(is_gone) {
        // The topic was removed or closed meanwhile: better in the chat than nowhere.
        drop(body.as_object_mut().map(|body| body.remove("message_thread_id")));
        answer = call(line, "sendMessage", &body, CALL_TIMEOUT).map_err(Refusal::Later)?;
    }
    if answer.body["ok"] != true {
        return Err(refusal(&answer));
    }
    let result = &answer.body["result"];
    let chat = result["chat"]["id"].as_i64().map_or_else(|| chat.to_owned(), |id| id.to_string());
    Ok(result["message_id"].as_i64().map(|id| Place { chat, message: id.to_string() }))
}

/// The words of a rendered text, for places that take no markup.
fn plain(html: &str) -> String {
    let marks = ["<b>", "</b>", "<code>", "</code>"];
    let text = marks.iter().fold(html.to_owned(), |text, mark| text.replace(mark, ""));
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// Changes a message; its buttons go.
pub(super) fn edit(line: &Line, place: &Place, text: &str) -> Result<(), Refusal> {
    let body = json!({
        "chat_id": place.chat, "message_id": place.message.parse::<i64>().unwrap_or_default(),
        "text": text, "parse_mode": "HTML", "link_preview_options": {"is_disabled": true},
    });
    let answer = call(line, "editMessageText", &body, CALL_TIMEOUT).map_err(Refusal::Later)?;
    let unchanged =
        answer.body["description"].as_str().is_some_and(|words| words.contains("message is not modified"));
    if answer.body["ok"] == true || unchanged { Ok(()) } else { Err(refusal(&answer)) }
}
