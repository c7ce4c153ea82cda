//! `/api/phones`, for the person at the machine; `/api/phone` and `/phone`, for phones.

use super::worker_encrypt::{AUTH_BYTES, is_key};
use super::{Grant, MAX_NAME_CHARS, Right, page, push, worker};
use crate::api::{Fields, Method, Problem, Route, schema_of};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use svc_base::choice::of_word;
use svc_base::{base64, outgoing};

/// Characters of an address and a port.
const MAX_ADDRESS_CHARS: usize = 60;
/// Characters of what is shown as a code.
const MAX_CODE_CHARS: usize = 20;
/// Bytes of what a phone that is not paired may send.
pub const CODE_BODY_BYTES: usize = 1 << 10;

const AGENT: (u16, &str) = (403, "the caller is no person");
const NO_PHONE: (u16, &str) = (401, "the caller is no phone");
/// Characters of an endpoint.
const MAX_ENDPOINT_CHARS: usize = 1_000;
/// Characters of a key.
const MAX_KEY_CHARS: usize = 100;

/// The routes of phones.
pub fn routes() -> Vec<Route<Handler>> {
    let mut routes = of_people();
    routes.extend(of_phones());
    routes.extend(of_push());
    routes
}

fn of_people() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::Work;
    vec![
        Route::new(
            Method::Get,
            "/api/phones",
            "Paired phones, and where they call",
            Work(OperatorOnly, worker::list),
        )
        .replies(&[
            (200, "phones, listener: its address and certificates while it is open, codeOpen"),
            AGENT,
        ]),
        Route::new(
            Method::Post,
            "/api/phones/codes",
            "A code that pairs one phone, once, within five minutes",
            Work(OperatorOnly, worker::invite),
        )
        .body(|| schema_of(invitation))
        .replies(&[
            (201, "code, url, fingerprint of the certificate, near, rights, expiresInSeconds"),
            AGENT,
            (409, "address_needed, address_not_ours or port_taken"),
        ]),
        Route::new(
            Method::Delete,
            "/api/phones/:id",
            "Revoke a phone, at once",
            Work(OperatorOnly, worker::revoke),
        )
        .replies(&[
            (200, "it proves nothing any more, and its connections have ended"),
            AGENT,
            (404, "no such phone"),
        ]),
    ]
}

fn of_phones() -> Vec<Route<Handler>> {
    use Handler::{Read, Work};
    vec![
        Route::new(
            Method::Post,
            "/api/phone/session",
            "Pair a phone with a code; asked at the listener for phones",
            Work(Access::OperatorOnly, worker::begin),
        )
        .body(|| schema_of(given_code))
        .body_limit(CODE_BODY_BYTES)
        .replies(&[
            (201, "the phone, key, and a cookie; both together prove it"),
            (403, "code_not_good"),
            (409, "too many phones"),
            (429, "too_soon: a wrong code was shown just now"),
        ]),
        Route::new(Method::Get, "/api/phone/self", "The phone that asks", Work(Access::Anyone, worker::own))
            .replies(&[(200, "id, name, rights, pairedAt, push, project"), NO_PHONE]),
        Route::new(Method::Get, "/phone", "The page for phones", Read(|ask: &Ask| Ok(page::front(ask)))),
        Route::new(Method::Get, "/phone/:file", "What the page for phones loads", Read(page::file))
            .replies(&[(200, "the file"), (304, "it is as it was"), (404, "no such file")]),
    ]
}

fn of_push() -> Vec<Route<Handler>> {
    use Access::{Anyone, OperatorOnly};
    use Handler::Work;
    vec![
        Route::new(
            Method::Get,
            "/api/phone/push",
            "The key by which push services know this daemon; asked by a phone",
            Work(Anyone, worker::push_key),
        )
        .replies(&[(200, "key, as a browser takes it"), NO_PHONE]),
        Route::new(
            Method::Post,
            "/api/phone/push",
            "Tell the phone that asks, by its push service, when something waits",
            Work(OperatorOnly, worker::subscribe),
        )
        .body(|| schema_of(address))
        .replies(&[
            (200, "the phone"),
            NO_PHONE,
            (409, "push_address_taken: another phone has the endpoint"),
        ]),
        Route::new(
            Method::Delete,
            "/api/phone/push",
            "Tell the phone that asks no more",
            Work(OperatorOnly, worker::unsubscribe),
        )
        .replies(&[(200, "the phone"), NO_PHONE]),
    ]
}

/// Where a browser is told, in the words of its own (`PushSubscription`).
pub(super) fn address(fields: &mut Fields) -> push::Address {
    let rule = "an https:// address of a push service, without user and fragment";
    fields.tell("endpoint", || json!({"format": "uri", "pattern": "^https://"}));
    let endpoint = fields.required_text("endpoint", MAX_ENDPOINT_CHARS);
    let is_address = outgoing::https_host(&endpoint).is_some();
    fields.validator.check(is_address, "endpoint", || format!("endpoint must be {rule}"));
    let about = "a point of P-256 without compression, 65 bytes in base64 for URLs";
    fields.tell("p256dh", || json!({"description": about}));
    let p256dh = fields.required_text("p256dh", MAX_KEY_CHARS);
    let is_point = base64::decode_for_url(&p256dh).is_some_and(|key| is_key(&key));
    fields.validator.check(is_point, "p256dh", || format!("p256dh must be {about}"));
    let about = "16 bytes in base64 for URLs";
    fields.tell("auth", || json!({"description": about}));
    let auth = fields.required_text("auth", MAX_KEY_CHARS);
    let is_auth = base64::decode_for_url(&auth).is_some_and(|bytes| bytes.len() == AUTH_BYTES);
    fields.validator.check(is_auth, "auth", || format!("auth must be {about}"));
    push::Address { endpoint, p256dh, auth }
}

/// The code.
pub(super) fn given_code(fields: &mut Fields) -> String {
    fields.required_text("code", MAX_CODE_CHARS)
}

/// Where phones call, with port 0 for the usual one, and what the code gives.
pub(super) fn invitation(fields: &mut Fields) -> (Option<SocketAddr>, Grant) {
    let about =
        "of this machine, with or without a port; the one of before, or the one by which it reaches others";
    fields.tell("address", || json!({"description": about}));
    let text = fields.text("address", MAX_ADDRESS_CHARS).filter(|text| !text.is_empty());
    let address = text.map(listener);
    if let Some(Err(rule)) = &address {
        fields.validator.fail("address", rule.clone());
    }
    fields.tell("name", || json!({"maxLength": MAX_NAME_CHARS}));
    let name = fields.has("name").then(|| fields.title("name"));
    let long = name.as_ref().is_some_and(|name| name.chars().count() > MAX_NAME_CHARS);
    fields.validator.check(!long, "name", || format!("name must have at most {MAX_NAME_CHARS} characters"));
    let about = "all three, unless said otherwise; look is always one";
    fields.tell("rights", || json!({"items": {"enum": Right::WORDS}, "description": about}));
    let words = fields.strings("rights");
    let rights = rights(fields, words.as_deref());
    (address.and_then(Result::ok), Grant { name, rights })
}

fn rights(fields: &mut Fields, words: Option<&[&str]>) -> Vec<Right> {
    let Some(words) = words else { return Right::ALL.to_vec() };
    for word in words {
        fields.validator.check(of_word::<Right>(word).is_some(), "rights", || {
            format!("rights knows no {word:?}; it is a list of {}", Right::WORDS.join(", "))
        });
    }
    let has = |right: &Right| *right == Right::Look || words.iter().any(|word| of_word(word) == Some(*right));
    Right::ALL.into_iter().filter(has).collect()
}

/// An address with or without a port.
fn listener(text: &str) -> Result<SocketAddr, String> {
    let ip = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let whole = ip.map(|ip| SocketAddr::new(ip, 0)).or_else(|_| text.parse::<SocketAddr>());
    let whole = whole
        .map_err(|_| format!("address must be one like 192.168.1.5 or 192.168.1.5:31450, it is {text:?}"))?;
    let ip = whole.ip();
    if ip.is_unspecified() {
        return Err(format!(
            "address must not be {ip}, which is every network this machine is in; name the one by which the phone reaches it"
        ));
    }
    if ip.is_multicast() {
        return Err(format!("address must be one of this machine's, {ip} is a group's"));
    }
    Ok(whole)
}

/// What the page is not, is told so.
pub(super) fn no_file(name: &str) -> Problem {
    Problem::not_found(format!("the page for phones has no file {name:?}"))
}
