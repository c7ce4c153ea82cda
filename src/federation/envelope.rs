//! Signed messages between two daemons that have been paired. Pure: keys, time and nonces come in.
//!
//! What is signed are the canonical bytes: a line that names the format, then the envelope without its
//! signature as compact JSON with its members in the order of their names. All members are strings or whole
//! numbers, and `body` is JSON inside of a string, so that both sides have the same bytes whatever their
//! JSON library does to numbers.
//!
//! **Invariant:** nothing of an envelope is used before its signature was found good.

use super::PeerId;
use crate::api::Problem;
use crate::core::time::Time;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use svc_base::hex;
use svc_base::sorted::Gather;

/// How far the clocks of both sides and the way between them may be apart.
pub const WINDOW: Duration = Duration::from_secs(5 * 60);
/// Nonces remembered of one peer; beyond that it has to wait.
pub const MAX_NONCES: usize = 2_000;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 16;
/// What is signed begins with this line, so that no other signature of the same key is one of an envelope.
const FORMAT: &str = "svc-federation-envelope-1\n";

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    pub from: PeerId,
    pub to: PeerId,
    /// What it is: `agents.list`, or `answer`.
    pub kind: String,
    /// 32 hexadecimal digits, never used twice.
    pub nonce: String,
    /// The nonce of the request that this answers; empty for a request.
    pub re: String,
    /// When it was signed, in epoch milliseconds.
    pub ts: u64,
    /// JSON text.
    pub body: String,
    /// 128 hexadecimal digits.
    #[serde(default)]
    pub signature: String,
}

impl Envelope {
    /// The bytes that are signed.
    pub fn canonical(&self) -> Vec<u8> {
        // A map with sorted keys, whatever features the JSON library is built with.
        let members: BTreeMap<_, _> = [
            ("body", json!(self.body)),
            ("from", json!(self.from)),
            ("kind", json!(self.kind)),
            ("nonce", json!(self.nonce)),
            ("re", json!(self.re)),
            ("to", json!(self.to)),
            ("ts", json!(self.ts)),
        ]
        .into_iter()
        .gather();
        // Strings and numbers always serialise.
        [FORMAT.as_bytes(), &serde_json::to_vec(&members).unwrap_or_default()].concat()
    }

    /// The same, signed.
    #[must_use]
    pub fn signed(mut self, key: &SigningKey) -> Self {
        self.signature = hex::encode(&key.sign(&self.canonical()).to_bytes());
        self
    }

    /// Checks addressee, sender, signature and time, in this order.
    ///
    /// Errors: 401 `wrong_recipient`, `bad_signature`, `outside_window`.
    pub fn check(&self, to: &PeerId, from: &PeerId, key: &VerifyingKey, now: Time) -> Result<(), Problem> {
        if self.to != *to || self.from != *from {
            return Err(refused("wrong_recipient", "the envelope is not from that peer to this daemon"));
        }
        let bytes = hex::decode_exact(&self.signature).and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        let is_good = bytes.is_some_and(|bytes| {
            key.verify_strict(&self.canonical(), &Signature::from_bytes(&bytes)).is_ok()
        });
        if !is_good {
            return Err(refused(
                "bad_signature",
                "the envelope's signature is wrong: it was changed, or is another's",
            ));
        }
        let at = Time(self.ts);
        if now.since(at) > WINDOW || at.since(now) > WINDOW {
            let text = format!(
                "the envelope was signed at {at}, more than {} minutes from {now}; set the clocks right",
                WINDOW.as_secs() / 60
            );
            return Err(refused("outside_window", &text));
        }
        Ok(())
    }
}

fn refused(code: &'static str, text: &str) -> Problem {
    Problem::new(401, code, text)
}

/// The nonces of requests that were taken, for as long as their envelopes would pass the window.
#[derive(Debug, Clone)]
pub struct Replays {
    /// Envelopes from before are refused: what was taken then is forgotten.
    since: Time,
    seen: BTreeMap<PeerId, BTreeMap<String, Time>>,
}

impl Replays {
    /// Nothing seen; `since` is when this daemon started.
    pub fn new(since: Time) -> Self {
        Self { since, seen: BTreeMap::new() }
    }

    /// Takes a checked envelope once.
    ///
    /// Errors: 409 `replayed`, 401 `outside_window` for one from before the start, 429 `too_many_envelopes`.
    pub fn take(&mut self, envelope: &Envelope, now: Time) -> Result<(), Problem> {
        if Time(envelope.ts) < self.since {
            let text = "the envelope was signed before this daemon started; send a new one";
            return Err(refused("outside_window", text));
        }
        if hex::decode_exact(&envelope.nonce).is_none_or(|bytes| bytes.len() != NONCE_BYTES) {
            return Err(Problem::bad_request("bad_nonce", "nonce must be 32 hexadecimal digits"));
        }
        let nonces = self.seen.entry(envelope.from.clone()).or_default();
        nonces.retain(|_, until| *until >= now);
        if nonces.contains_key(&envelope.nonce) {
            return Err(Problem::new(409, "replayed", "an envelope with this nonce was taken before"));
        }
        if nonces.len() >= MAX_NONCES {
            let text = format!("{MAX_NONCES} envelopes in {} minutes are the limit", WINDOW.as_secs() / 60);
            return Err(Problem::new(429, "too_many_envelopes", text).with_header("Retry-After", "60"));
        }
        nonces.insert(envelope.nonce.clone(), Time(envelope.ts) + WINDOW);
        Ok(())
    }

    /// Forgets a peer that was removed.
    pub fn forget_others(&mut self, is_peer: impl Fn(&PeerId) -> bool) {
        self.seen.retain(|peer, _| is_peer(peer));
    }
}
