//! Discord's REST: what we say there.
//!
//! Source: discord.com/developers/docs: Message, Receiving and Responding to Interactions, Rate Limits.

use super::Place;
use super::message::{Button, Look};
use super::worker::{Line, Piece, Refusal};
use super::worker_http::{Answer, CALL_TIMEOUT};
use serde_json::{Value, json};
use std::time::Duration;

/// Embeds of links are suppressed.
const SUPPRESS_EMBEDS: u64 = 1 << 2;
/// Only the one who clicked sees it.
pub(super) const EPHEMERAL: u64 = 1 << 6;

fn authorization(line: &Line) -> String {
    format!("Bot {}", line.bot_token.expose())
}

/// Asks Discord.
pub(super) fn call(line: &Line, method: &str, path: &str, body: Option<&Value>) -> Result<Answer, String> {
    let url = format!("{}{path}", line.api);
    line.http.call(method, &url, Some(&authorization(line)), body, CALL_TIMEOUT)
}

/// A refusal, for people.
pub(super) fn words(answer: &Answer) -> String {
    let words = answer.body["message"].as_str().unwrap_or("no message");
    format!("Discord says {}: {words}", answer.status)
}

/// What a refusal means.
pub(super) fn refusal(answer: &Answer) -> Refusal {
    match answer.status {
        429 => {
            let seconds =
                answer.body["retry_after"].as_f64().filter(|seconds| (0.0..86_400.0).contains(seconds));
            let wait = seconds.map(Duration::from_secs_f64).or(answer.wait);
            Refusal::Wait(wait.unwrap_or(Duration::from_secs(1)))
        }
        status => Refusal::of(status, words(answer)),
    }
}

fn content(text: &str, buttons: &[Button], flags: u64) -> Value {
    let button = |button: &Button| {
        let style = match button.look {
            Look::Good => 3,
            Look::Bad => 4,
            Look::Neutral => 2,
        };
        json!({"type": 2, "style": style, "label": button.label, "custom_id": button.command})
    };
    let rows = match buttons {
        [] => json!([]),
        buttons => json!([{"type": 1, "components": buttons.iter().map(button).collect::<Vec<_>>()}]),
    };
    // Nobody is mentioned, whatever the text says.
    json!({"content": text, "allowed_mentions": {"parse": []}, "flags": flags, "components": rows})
}

/// Sends one piece.
pub(super) fn send(line: &Line, piece: &Piece) -> Result<Option<Place>, Refusal> {
    let mut parts = piece.reply_to.splitn(3, ':');
    let (kind, application, token) = (parts.next(), parts.next(), parts.next());
    if let (Some(kind), Some(application), Some(token)) = (kind, application, token) {
        let hook = format!("/webhooks/{application}/{token}");
        let flags = if kind == "click" { SUPPRESS_EMBEDS | EPHEMERAL } else { SUPPRESS_EMBEDS };
        let body = content(piece.text, piece.buttons, flags);
        let sent = if kind == "slash" && piece.number == 0 {
            call(line, "PATCH", &format!("{hook}/messages/@original"), Some(&body))
        } else {
            call(line, "POST", &hook, Some(&body))
        };
        let answer = sent.map_err(Refusal::Later)?;
        match answer.status {
            0..300 => return Ok(None),
            // The token of an interaction lasts 15 minutes; after that the answer is a message of its own.
            401 | 404 => {}
            _ => return Err(refusal(&answer)),
        }
    }
    let mut body = content(piece.text, piece.buttons, SUPPRESS_EMBEDS);
    if !piece.key.is_empty() {
        // One that was taken within the last minutes comes back in place of a second one.
        body["nonce"] = json!(format!("{}-{}", piece.key, piece.number));
        body["enforce_nonce"] = json!(true);
    }
    let path = format!("/channels/{}/messages", piece.chat);
    let answer = call(line, "POST", &path, Some(&body)).map_err(Refusal::Later)?;
    if answer.status >= 300 {
        return Err(refusal(&answer));
    }
    let message = answer.body["id"].as_str().map(ToOwned::to_owned);
    // The bucket is empty: the next request waits here rather than being refused.
    if let Some(wait) = answer.wait {
        line.rest(wait);
    }
    Ok(message.map(|message| Place { chat: piece.chat.to_owned(), message }))
}

/// Changes a message; its buttons go.
pub(super) fn edit(line: &Line, place: &Place, text: &str) -> Result<(), Refusal> {
    let body = json!({"content": text, "allowed_mentions": {"parse": []}, "components": []});
    let path = format!("/channels/{}/messages/{}", place.chat, place.message);
    let answer = call(line, "PATCH", &path, Some(&body)).map_err(Refusal::Later)?;
    if answer.status < 300 { Ok(()) } else { Err(refusal(&answer)) }
}
