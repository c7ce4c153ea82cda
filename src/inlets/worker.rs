//! Signatures of what comes from outside, looked at on the thread of its connection; and the endpoints that
//! make and seal secrets.

use super::api::new;
use super::{Command, Inlet, MAX_ID_CHARS, NOT_NOW, Posted, Report, WINDOW, WRONG, secret_name};
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::ids::WebhookId;
use crate::core::time::Time;
use crate::core::{self, Event};
use crate::endpoint::{Answer, Ask};
use crate::webhooks::sign;
use crate::webhooks::worker_api::{given_or_made, random, secret, showing};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong signatures of one source within [`BRAKED_FOR`]; further ones are answered 429.
pub const MAX_WRONG: u32 = 10;
/// Begins with a source's first wrong one.
const BRAKED_FOR: Duration = Duration::from_secs(60);
/// Sources that are remembered; of more, the one with the fewest is forgotten.
const MAX_SOURCES: usize = 256;
/// Wrong signatures within [`BRAKED_FOR`], of all sources, that the core is told of; further ones are refused
/// without a count.
const MAX_TOLD: u32 = 200;

/// Wrong signatures, by where they came from: an address, of IPv6 its network.
#[derive(Default)]
pub struct Brake {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    wrong: HashMap<IpAddr, (u32, Instant)>,
    /// How many the core was told of, and until when they count.
    told: Option<(u32, Instant)>,
}

impl Brake {
    /// Counts one; how many there were, and whether the core is to be told.
    fn count(&self, from: IpAddr, now: Instant) -> (u32, bool) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = &mut counts.wrong;
        wrong.retain(|_, (_, until)| now < *until);
        if wrong.len() >= MAX_SOURCES && !wrong.contains_key(&from) {
            let least = wrong.iter().min_by_key(|(_, one)| **one).map(|(source, _)| *source);
            if let Some(least) = least {
                wrong.remove(&least);
            }
        }
        let (attempts, _) = wrong.entry(from).or_insert((0, now + BRAKED_FOR));
        *attempts = attempts.saturating_add(1);
        let attempts = *attempts;
        let (told, until) = counts.told.filter(|(_, until)| now < *until).unwrap_or((0, now + BRAKED_FOR));
        let is_told = attempts <= MAX_WRONG && told < MAX_TOLD;
        counts.told = Some((told + u32::from(is_told), until));
        (attempts, is_told)
    }
}

/// An address as it is counted.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        ip @ IpAddr::V4(_) => ip,
    }
}

/// `POST /api/inlets/:id/post`.
pub fn post(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let known = ask.params.get("id").parse().ok().and_then(|id| ask.state.inlets.get(id));
    match known.ok_or(WRONG).and_then(|inlet| checked(host, ask, inlet)) {
        Ok(posted) => Ok(Answer::Command(core::Command::Inlets(Command::Post(Box::new(posted))))),
        Err(why) => Err(refused(host, ask, known.map(|inlet| inlet.id), why)),
    }
}

/// What is signed rightly and in time. Nobody is told what of it is wrong beyond these words.
fn checked(host: &Host, ask: &Ask, inlet: &Arc<Inlet>) -> Result<Posted, &'static str> {
    let head = |name: &str| ask.request.header(name).unwrap_or_default();
    let (message, timestamp) = (head(sign::ID), head(sign::TIMESTAMP));
    let at: u64 = timestamp.parse().map_err(|_| "webhook-timestamp is missing or no time")?;
    if message.is_empty() || message.len() > MAX_ID_CHARS || message.contains(|c: char| !c.is_ascii_graphic())
    {
        return Err("webhook-id is missing or no id");
    }
    let name = secret_name(inlet.id);
    let sealed = &ask.state.credentials.get(&name).ok_or(WRONG)?.sealed;
    let secret = host.vault.open(&name, sealed).map_err(|why| {
        log::warn!("no message of inlet {} can be taken: {why}", inlet.name);
        WRONG
    })?;
    let key = sign::key_of(secret.expose()).ok_or(WRONG)?;
    if !sign::is_signed(&key, message, at, &ask.request.body, head(sign::SIGNATURE)) {
        return Err(WRONG);
    }
    let at = Time(at.saturating_mul(1000));
    if ask.now.since(at) > WINDOW || at.since(ask.now) > WINDOW {
        return Err(NOT_NOW);
    }
    let text = String::from_utf8(ask.request.body.clone()).map_err(|_| "its body is not UTF-8 text")?;
    let from = ask.request.peer.ip().to_string();
    Ok(Posted { inlet: inlet.id, message: message.into(), at, secret: inlet.secret, text, from })
}

fn refused(host: &Host, ask: &Ask, inlet: Option<WebhookId>, why: &str) -> Problem {
    let source = network(ask.request.peer.ip());
    let (attempts, is_counted) = host.inlets.count(source, Instant::now());
    if is_counted {
        // The first one, and the one that makes the brake bite.
        let is_told = attempts == 1 || attempts == MAX_WRONG;
        let from = source.to_string();
        host.core.control(Event::Inlets(Report::Wrong { inlet, from, attempts, is_told }));
    }
    if attempts <= MAX_WRONG {
        return super::not_taken(why);
    }
    let text =
        format!("{MAX_WRONG} messages from here were not signed rightly lately; try again in a minute");
    Problem::new(429, "too_many_wrong_signatures", text).with_header("Retry-After", "60")
}

/// `GET /api/inlets`.
pub fn list(_host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let all: Vec<Value> = ask.state.inlets.iter().map(|inlet| inlet.shown()).collect();
    Ok(Answer::Reply(Reply::ok(&json!({"inlets": all}))))
}

/// `POST /api/inlets`.
pub fn create(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let (wish, given) = ask.request.read(|fields| (new(fields), secret(fields)))?;
    let secret = given_or_made(given)?;
    let id = WebhookId(u32::from_be_bytes(random()?));
    let sealed = host.vault.seal(&secret_name(id), &secret)?;
    Ok(showing(core::Command::Inlets(Command::Create(id, Box::new(wish), sealed)), secret))
}

/// `POST /api/inlets/:id/secret`.
pub fn new_secret(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let given = if ask.request.body.is_empty() { None } else { ask.request.read(secret)? };
    let id = ask.state.inlets.find(&ask.target())?.id;
    let secret = given_or_made(given)?;
    let sealed = host.vault.seal(&secret_name(id), &secret)?;
    Ok(showing(core::Command::Inlets(Command::NewSecret(id, sealed)), secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_signatures_are_counted_by_their_source_for_a_while() {
        let brake = Brake::default();
        let (now, one): (_, IpAddr) = (Instant::now(), "192.0.2.1".parse().unwrap());
        let all: Vec<_> = (1..=12).map(|_| brake.count(one, now)).collect();
        assert_eq!((all[0], all[9], all[11]), ((1, true), (MAX_WRONG, true), (12, false)));
        assert_eq!(brake.count("192.0.2.2".parse().unwrap(), now), (1, true));
        assert_eq!(brake.count(one, now + BRAKED_FOR), (1, true), "the window is over");
        let told = (0..2 * u32::try_from(MAX_SOURCES).unwrap())
            .filter(|n| brake.count(IpAddr::V4((*n).into()), now + BRAKED_FOR).1)
            .count();
        assert_eq!(told, usize::try_from(MAX_TOLD).unwrap() - 1, "the core is told of no flood");
        assert!(brake.counts.lock().unwrap().wrong.len() <= MAX_SOURCES);
        let v6 = |text: &str| network(text.parse().unwrap());
        assert_eq!(v6("2001:db8:1:2:3::4"), v6("2001:db8:1:2:ffff::1"));
        assert_eq!(v6("::ffff:192.0.2.1"), one);
    }
}
