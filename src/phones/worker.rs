//! The endpoints of phones that know the daemon: codes, pairing, the list, revocation.

use super::api::{address, given_code, invitation};
use super::worker_codes::{LIFE, Tried};
use super::worker_door::{Door, Halves, Shown, own_address};
use super::{Command, Grant, Phone, Report, not_paired, worker_push};
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::ids::PhoneId;
use crate::core::{self, Event};
use crate::endpoint::{Answer, Ask};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Opens the listener again after a start, where there are phones.
pub fn resume(door: &Door, state: &core::State) {
    if state.phones.is_empty() {
        return;
    }
    let Some(address) = state.phones.listen() else { return };
    if let Err(problem) = door.listen(address, svc_sys::clock::now()) {
        log::warn!("phones cannot call: {}; 'svc pair' opens another listener", problem.error);
    }
}

/// `POST /api/phones/codes`.
pub fn invite(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let (address, grant) = ask.request.read(invitation)?;
    let wanted = match address.or_else(|| ask.state.phones.listen()) {
        Some(wanted) => wanted,
        None => SocketAddr::new(own_address().ok_or_else(no_address)?, 0),
    };
    let shown = host.phones.listen(wanted, ask.now)?;
    let core = host.core.clone();
    host.phones.watch(move |door| door.rest(&core.snapshot().phones));
    let command = Command::Invite(shown.address.to_string(), grant.clone());
    let door = Arc::clone(&host.phones);
    let tell = move |_: Reply| match door.codes.make(grant.clone(), Instant::now()) {
        Ok(code) => Reply::json(201, &told(&code, &shown, &grant)),
        Err(error) => no_randomness(&error).into(),
    };
    Ok(Answer::Followed(core::Command::Phones(command), Box::new(tell)))
}

fn no_address() -> Problem {
    let text = "no address of a network of your own was found; name one of this machine's by which the phone reaches it";
    Problem::new(409, "address_needed", text)
}

fn told(code: &str, shown: &Shown, grant: &Grant) -> Value {
    json!({
        "code": code, "url": format!("{}/phone", shown.url), "fingerprint": shown.fingerprint,
        "near": super::worker_door::is_near(shown.address.ip()), "rights": grant.rights,
        "expiresInSeconds": LIFE.as_secs(),
    })
}

/// `POST /api/phone/session`.
pub fn begin(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let code = ask.request.read(given_code)?;
    let grant = match host.phones.codes.redeem(&code, Instant::now()) {
        Tried::Good(grant) => grant,
        Tried::Wrong { tries, is_void } => {
            let from = ask.request.peer.ip().to_canonical().to_string();
            log::warn!("a wrong code for a phone from {from}, {tries} so far");
            host.core.control(Event::Phones(Report::WrongCode { from, tries, is_void }));
            return Err(not_good());
        }
        Tried::NoCode => return Err(not_good()),
        Tried::TooSoon => {
            let text = "a wrong code was shown just now; wait a moment, then try again";
            return Err(Problem::new(429, "too_soon", text).with_header("Retry-After", "1"));
        }
    };
    let halves = Halves::make().map_err(|error| no_randomness(&error))?;
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| no_randomness(&error.into()))?;
    let id = PhoneId(u32::from_be_bytes(bytes));
    let Halves { cookie, key, proof } = halves;
    let tell = move |reply: Reply| {
        let mut body: Value = serde_json::from_slice(reply.body.bytes()).unwrap_or_default();
        body["key"] = key.into();
        Reply { body: Reply::ok(&body).body, ..reply }.with_header("Set-Cookie", cookie)
    };
    Ok(Answer::Followed(core::Command::Phones(Command::Pair(id, grant, proof)), Box::new(tell)))
}

fn not_good() -> Problem {
    let text = "the code is wrong, used up or too old; 'svc pair' at the machine makes a new one";
    Problem::new(403, "code_not_good", text)
}

fn no_randomness(error: &std::io::Error) -> Problem {
    Problem::new(503, "no_randomness", error.to_string())
}

/// `GET /api/phones`.
pub fn list(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let with_seen = |phone: &Arc<Phone>| {
        let mut shown = phone.shown();
        shown["lastSeen"] = json!(host.phones.seen(phone.id).map(|at| at.to_string()));
        shown
    };
    let phones: Vec<Value> = ask.state.phones.iter().map(with_seen).collect();
    let listener = host.phones.shown().map(|shown| {
        let (certificate, fingerprint) = shown.to_trust;
        json!({
            "url": format!("{}/phone", shown.url), "fingerprint": shown.fingerprint,
            "validUntil": shown.until.to_string(),
            "toTrust": {"certificate": certificate, "fingerprint": fingerprint},
        })
    });
    let code = host.phones.codes.has_any(Instant::now());
    Ok(Answer::Reply(Reply::ok(&json!({"phones": phones, "listener": listener, "codeOpen": code}))))
}

/// The phone that asks.
fn own_phone<'a>(ask: &Ask<'a>) -> Result<&'a Arc<Phone>, Problem> {
    ask.phone.and_then(|name| ask.state.phones.iter().find(|phone| phone.name == name)).ok_or_else(not_paired)
}

/// `GET /api/phone/self`.
pub fn own(_host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let mut shown = own_phone(ask)?.shown();
    shown["project"] = ask.state.project.name.as_str().into();
    Ok(Answer::Reply(Reply::ok(&shown)))
}

/// `GET /api/phone/push`.
pub fn push_key(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    own_phone(ask)?;
    let vapid = host.phones.vapid().map_err(|error| Problem::new(503, "no_push_key", error.to_string()))?;
    Ok(Answer::Reply(Reply::ok(&json!({"key": vapid.public()}))))
}

/// `POST /api/phone/push`.
pub fn subscribe(_host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let id = own_phone(ask)?.id;
    let address = ask.request.read(address)?;
    worker_push::check(&ask.state.settings.config().push, &address.endpoint)
        .map_err(|why| Problem::invalid("endpoint", format!("endpoint: {why}")))?;
    Ok(Answer::Command(core::Command::Phones(Command::Subscribe(id, Box::new(address)))))
}

/// `DELETE /api/phone/push`.
pub fn unsubscribe(_host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let id = own_phone(ask)?.id;
    Ok(Answer::Command(core::Command::Phones(Command::Unsubscribe(id))))
}

/// `DELETE /api/phones/:id`.
pub fn revoke(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let phone = ask.state.phones.find(ask.params.get("id"))?;
    let (door, core, id) = (Arc::clone(&host.phones), host.core.clone(), phone.id);
    let command = Command::Revoke(id.to_string());
    // It is revoked on disk, and in what every further request is judged by.
    let end = move |reply| {
        door.forget(id);
        door.hang_up();
        door.rest(&core.snapshot().phones);
        reply
    };
    Ok(Answer::Followed(core::Command::Phones(command), Box::new(end)))
}
