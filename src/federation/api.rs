//! `/api/federation`.

use super::{Command, Other, Peer, worker};
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::core::ids::PairingId;
use crate::credentials::{Secret, api::secret};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::json;

/// Where envelopes come in. Their signature says who sends: no operator token is asked for.
pub const ENVELOPE_PATH: &str = "/api/federation/envelope";
/// Bytes of what another daemon may send.
const BODY_BYTES: usize = 64 << 10;
/// Characters of an address.
pub(super) const MAX_URL_CHARS: usize = 200;

/// The routes of the federation. What people decide is not for agents; an envelope says itself who sent it.
pub fn routes() -> Vec<Route<Handler>> {
    let mut routes = of_people();
    routes.extend(of_daemons());
    routes
}

const AGENT: (u16, &str) = (403, "the caller is an agent");
const UNKNOWN: (u16, &str) = (404, "no such pairing, or it has expired");

fn of_people() -> Vec<Route<Handler>> {
    use Access::{Anyone, OperatorOnly};
    use Handler::{Read, Work, Write};
    vec![
        Route::new(
            Method::Get,
            "/api/federation/identity",
            "This daemon's key and name",
            Work(Anyone, worker::identity),
        )
        .replies(&[(200, "id, publicKey, name, url")]),
        Route::new(Method::Get, "/api/federation/peers", "Peers, and pairings that wait", Read(peers))
            .replies(&[(200, "peers, pairings; a pairing has the code to compare")]),
        Route::new(
            Method::Post,
            "/api/federation/peers",
            "Begin a pairing with another daemon",
            Work(OperatorOnly, worker::add),
        )
        .body(|| schema_of(address))
        .replies(&[
            (201, "the pairing with its code"),
            (400, "url is wrong, or is this daemon's"),
            AGENT,
            (409, "too many pairings wait"),
            (502, "it does not answer, or refuses"),
        ]),
        Route::new(
            Method::Delete,
            "/api/federation/peers/:id",
            "Remove a peer",
            Write(OperatorOnly, |ask| Ok(Command::Remove(ask.params.get("id").to_owned()).into())),
        )
        .replies(&[(200, "it is gone"), AGENT, (404, "no such peer")]),
        Route::new(
            Method::Get,
            "/api/federation/peers/:id/agents",
            "The agents of a peer",
            Work(OperatorOnly, worker::agents),
        )
        .replies(&[
            (200, "peer, agents, at"),
            (404, "no such peer"),
            (502, "it does not answer, or refuses"),
        ]),
        Route::new(
            Method::Post,
            "/api/federation/pair/:id/confirm",
            "Confirm that both sides show the same code",
            Work(OperatorOnly, worker::confirm),
        )
        .body(|| schema_of(confirmation))
        .replies(&[(200, "the peer"), AGENT, UNKNOWN, (409, "no code yet, or another one")]),
        Route::new(
            Method::Delete,
            "/api/federation/pair/:id",
            "Reject a pairing",
            Write(OperatorOnly, |ask| Ok(Command::Reject(pairing_id(ask)?).into())),
        )
        .replies(&[(200, "it is gone"), AGENT, UNKNOWN]),
    ]
}

fn of_daemons() -> Vec<Route<Handler>> {
    use Access::{Anyone, NoAgent};
    use Handler::{Work, Write};
    vec![
        Route::new(
            Method::Post,
            "/api/federation/pair",
            "For daemons: begin a pairing here",
            Work(NoAgent, worker::offered),
        )
        .body(|| schema_of(offer))
        .body_limit(BODY_BYTES)
        .replies(&[(201, "id, publicKey, nonce, name"), AGENT, (409, "too many pairings wait")]),
        Route::new(
            Method::Post,
            "/api/federation/pair/:id/reveal",
            "For daemons: tell the nonce that was committed to",
            Write(NoAgent, reveal),
        )
        .body(|| schema_of(nonce_field))
        .body_limit(BODY_BYTES)
        .replies(&[(200, "ok"), (400, "it is another nonce"), AGENT, UNKNOWN]),
        Route::new(
            Method::Post,
            ENVELOPE_PATH,
            "For daemons: a signed question",
            Work(Anyone, worker::envelope),
        )
        .body_limit(BODY_BYTES)
        .replies(&[
            (200, "a signed answer"),
            (401, "signature, addressee or time is wrong"),
            (403, "not a peer"),
            (409, "it was taken before"),
            (429, "too many in five minutes"),
        ]),
    ]
}

/// The `:id` of the path.
pub(super) fn pairing_id(ask: &Ask) -> Result<PairingId, Problem> {
    let text = ask.params.get("id");
    text.parse().map_err(|_| {
        Problem::not_found(format!("there is no pairing {text:?}: an id has 8 hexadecimal digits"))
    })
}

fn peers(ask: &Ask) -> Result<Reply, Problem> {
    let federation = &ask.state.federation;
    let peers: Vec<&Peer> = federation.iter().collect();
    Ok(Reply::ok(&json!({"peers": peers, "pairings": federation.pairings_shown(ask.now)})))
}

fn reveal(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let nonce = ask.request.read(nonce_field)?;
    Ok(Command::Revealed(pairing_id(ask)?, nonce).into())
}

fn nonce_field(fields: &mut Fields) -> [u8; 32] {
    hex_field(fields, "nonce")
}

/// Reads `POST /api/federation/peers`: where the other daemon is, and the token that it wants.
pub(super) fn address(fields: &mut Fields) -> (String, Option<Secret>) {
    let url = required_url(fields);
    fields.tell("token", || json!({"type": "string", "writeOnly": true}));
    let token = fields.value("token").is_some().then(|| secret(fields, "token"));
    (url, token)
}

/// Reads `POST /api/federation/pair`: who begins, and what it commits itself to.
pub(super) fn offer(fields: &mut Fields) -> (Other, [u8; 32]) {
    let key = hex_field(fields, "publicKey");
    let commitment = hex_field(fields, "commitment");
    fields.tell("name", || json!({"maxLength": super::MAX_NAME_CHARS}));
    let name = worker::clipped(fields.required_string("name").unwrap_or_default());
    (Other { key, name, url: required_url(fields) }, commitment)
}

/// Reads `POST /api/federation/pair/:id/confirm`: the code that was compared, and another address.
pub(super) fn confirmation(fields: &mut Fields) -> (Option<String>, Option<String>) {
    fields.tell("code", || json!({"pattern": "^[0-9]{6}$"}));
    let code = fields.string("code").map(|code| code.replace([' ', '-'], ""));
    fields.tell("url", || json!({"maxLength": MAX_URL_CHARS}));
    let url = fields.string("url").map(|url| url_field(fields, "url", url)).filter(|url| !url.is_empty());
    (code, url)
}

fn required_url(fields: &mut Fields) -> String {
    fields.tell("url", || json!({"maxLength": MAX_URL_CHARS}));
    let url = fields.required_string("url").unwrap_or_default();
    url_field(fields, "url", url)
}

/// A required text of 64 hexadecimal digits.
pub(super) fn hex_field(fields: &mut Fields, name: &str) -> [u8; 32] {
    fields.tell(name, || json!({"pattern": "^[0-9a-f]{64}$"}));
    let text = fields.required_string(name).unwrap_or_default();
    let bytes = svc_base::hex::bytes_32(text);
    fields
        .validator
        .check(bytes.is_some() || text.is_empty(), name, || format!("{name} must be 64 hexadecimal digits"));
    bytes.unwrap_or_default()
}

/// Checks a daemon's address: `http://host:port` or `https://host`, nothing behind it. Without a slash at
/// the end.
pub(super) fn url_field(fields: &mut Fields, name: &str, text: &str) -> String {
    let text = text.trim_end_matches('/');
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap_or_default();
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    let fits = !host.is_empty() && host.chars().all(is_host) && text.len() <= MAX_URL_CHARS;
    fields.validator.check(fits || text.is_empty(), name, || {
        format!("{name} must look like http://127.0.0.1:31415, it is {text:?}")
    });
    text.to_owned()
}
