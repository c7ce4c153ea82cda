//! Endpoints of the gateways that do I/O: sealing a token, and sending a test message.

use super::message::Text;
use super::worker::{Line, Piece, Refusal};
use super::{Command, api, check_credentials, render};
use crate::api::{Problem, Reply};
use crate::core::Command as CoreCommand;
use crate::routes::{Answer, Ask};
use crate::runtime::host::Host;
use serde_json::json;

/// `POST /api/gateways/:id/credentials`.
pub fn set_credential(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let gateway = ask.state.gateways.find(&api::target(ask))?;
    let (key, secret) = api::parse_credential(&ask.request.object()?, gateway.id.kind)?;
    let sealed = host.vault.seal(&gateway.credential(key), &secret)?;
    let command = Command::SetCredential { target: gateway.id.to_string(), key: key.to_owned(), sealed };
    Ok(Answer::Command(CoreCommand::Gateways(command)))
}

/// `POST /api/gateways/:id/test`.
///
/// Errors: 404, 409 `missing_credentials` or `no_chat`, 502 `platform_refused` with the platform's words.
pub fn test(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let gateway = ask.state.gateways.find(&api::target(ask))?;
    check_credentials(ask.state, gateway)?;
    if gateway.chat_id.is_empty() {
        let text = format!("gateway {} has no chatId to send to; PATCH it with one", gateway.id);
        return Err(Problem::new(409, "no_chat", text));
    }
    let name = gateway.credential("bot_token");
    let missing = || Problem::not_found("the gateway has no bot_token");
    let entry = ask.state.credentials.get(&name).ok_or_else(missing)?;
    let token = host
        .vault
        .open(&name, &entry.sealed)
        .map_err(|error| Problem::new(409, "credential_unreadable", error))?;
    let line = Line::new(gateway.id.kind, gateway.api(), token, None);
    let text = Text::new().bold("Test").plain(format!(" from svc, gateway {}", gateway.id));
    let pieces = render::render(gateway.id.kind, &text);
    let text = pieces.first().map(String::as_str).unwrap_or_default();
    let piece = Piece { chat: &gateway.chat_id, text, buttons: &[], reply_to: "", number: 0 };
    match line.send(&piece) {
        Ok(_) => Ok(Answer::Reply(Reply::ok(&json!({"ok": true})))),
        Err(refusal) => Err(refused(refusal)),
    }
}

fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Never(words) | Refusal::Later(words) => Problem::new(502, "platform_refused", words),
        Refusal::Wait(wait) => {
            let seconds = wait.as_secs().max(1);
            let text = format!("the platform takes no more messages for {seconds} s");
            Problem::new(502, "platform_refused", text).with_header("Retry-After", seconds.to_string())
        }
    }
}
