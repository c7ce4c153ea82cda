//! Endpoints of the gateways that do I/O: sealing a token, and sending a test message.

use super::message::Text;
use super::worker::{Line, Piece, Refusal};
use super::{Command, Gateway, GatewayId, api, check_credentials, render};
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::Command as CoreCommand;
use crate::credentials::Secret;
use crate::endpoint::{Answer, Ask};
use serde_json::json;
use std::sync::Arc;

/// `POST /api/gateways/:id/credentials`.
pub fn set_credential(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let gateway = ask.state.gateways.find(&ask.target())?;
    let (key, secret) = api::parse_credential(&ask.request.object()?, gateway.id.kind)?;
    if let Some(other) = served_by(host, ask, gateway, key, &secret) {
        let text = format!(
            "gateway {other} uses this very {key}; one token serves one gateway, delete {other} first"
        );
        return Err(Problem::new(409, "token_in_use", text));
    }
    let sealed = host.vault.seal(&gateway.credential(key), &secret)?;
    let command = Command::SetCredential { target: gateway.id.to_string(), key: key.to_owned(), sealed };
    Ok(Answer::Command(CoreCommand::Gateways(command)))
}

/// Another gateway of this kind that has the very same token: the platform would give each event to
/// both, or to either at random.
fn served_by(host: &Host, ask: &Ask, own: &Gateway, key: &str, secret: &Secret) -> Option<GatewayId> {
    let has_it = |other: &&Arc<Gateway>| {
        let name = other.credential(key);
        let sealed = ask.state.credentials.get(&name).map(|entry| &entry.sealed);
        let theirs = sealed.and_then(|sealed| host.vault.open(&name, sealed).ok());
        theirs.is_some_and(|theirs| theirs.expose() == secret.expose())
    };
    let mut others = ask.state.gateways.iter().filter(|one| one.id != own.id && one.id.kind == own.id.kind);
    others.find(has_it).map(|other| other.id)
}

/// `POST /api/gateways/:id/test`.
///
/// Errors: 404, 409 `missing_credentials` or `no_chat`, 502 `platform_refused` with the platform's words.
pub fn test(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let gateway = ask.state.gateways.find(&ask.target())?;
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
    let markup = &render::markup(gateway.id.kind, &text);
    let piece = Piece {
        chat: &gateway.chat_id,
        text: markup,
        words: &text,
        buttons: &[],
        reply_to: "",
        number: 0,
        key: "",
        again: false,
    };
    match line.send(&piece) {
        Ok(_) => Ok(Answer::Reply(Reply::ok(&json!({"ok": true})))),
        Err(refusal) => Err(refused(refusal)),
    }
}

fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Never(words) | Refusal::Later(words) | Refusal::Over(words) => {
            Problem::new(502, "platform_refused", words)
        }
        Refusal::Wait(wait) => {
            let seconds = wait.as_secs().max(1);
            let text = format!("the platform takes no more messages for {seconds} s");
            Problem::new(502, "platform_refused", text).with_header("Retry-After", seconds.to_string())
        }
    }
}
