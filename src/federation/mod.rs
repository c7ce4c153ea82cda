//! Peers: other daemons, of other projects or machines, whose agents may be looked at.
//!
//! Each daemon has an Ed25519 key. Two are paired once a person on each side has compared a six-digit code
//! ([`pairing`]); from then on they exchange signed envelopes ([`envelope`]), and each may read a view of
//! the other's agents. Nothing can be changed from outside, and neither keeps a secret of the other's: the
//! operator token that a daemon beyond this machine wants is used while pairing, and forgotten.
//!
//! **Invariant:** a peer is somebody whose key a person has confirmed; nobody else is answered.
//! **Invariant:** each side decides for itself; removing a peer ends what it may read here.

pub mod api;
pub mod envelope;
pub mod pairing;
#[cfg(test)]
mod tests;
pub mod worker;

use crate::api::{Problem, Reply};
use crate::core::Notice;
use crate::core::ids::PairingId;
use crate::core::time::{Jump, Time, rfc3339};
use crate::core::{CallId, Context, Document, Durability, Effect, State as All};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use svc_base::hex::{self, bytes_32};
use svc_base::sorted::Gather;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;
/// Peers at most.
pub const MAX_PEERS: usize = 50;
/// Pairings begun elsewhere that may wait; and as many begun here.
pub const MAX_PAIRINGS: usize = 4;
/// A pairing that nobody confirms is forgotten after this time.
pub const PAIRING_TTL: Duration = Duration::from_secs(10 * 60);
/// Characters of a peer's name.
pub const MAX_NAME_CHARS: usize = 100;

/// How a daemon is called: 16 hexadecimal digits that follow from its key.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(transparent)]
pub struct PeerId(Arc<str>);

impl PeerId {
    fn from_digest(digest: &str) -> Self {
        Self(digest.chars().take(16).collect::<String>().into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A public key, in JSON as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct PublicKey(pub [u8; pairing::KEY_BYTES]);

impl Serialize for PublicKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        bytes_32(&text).map(Self).ok_or_else(|| serde::de::Error::custom("a key has 64 hexadecimal digits"))
    }
}

/// A daemon that a person here has confirmed.
#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// How it is called.
    pub id: PeerId,
    /// As it calls itself.
    pub name: String,
    pub url: String,
    /// By which it is known.
    pub public_key: PublicKey,
    /// When it was confirmed.
    #[serde(with = "rfc3339")]
    pub paired_at: Time,
}

/// What was learned of the other side.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Other {
    pub key: [u8; pairing::KEY_BYTES],
    /// As it calls itself.
    pub name: String,
    pub url: String,
}

/// A pairing that is not yet confirmed here.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
struct Pairing {
    other: Other,
    stage: Stage,
    is_outgoing: bool,
    expires_at: Time,
}

#[derive(Debug, Clone, svc_base::recorded::Recorded)]
enum Stage {
    /// The other side has committed itself to a nonce.
    Committed { commitment: [u8; 32], own_key: [u8; pairing::KEY_BYTES], own_nonce: [u8; 32] },
    /// Both have said everything; people compare this code.
    Shown(String),
}

/// Peers and pairings.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    peers: BTreeMap<PeerId, Arc<Peer>>,
    pairings: BTreeMap<PairingId, Arc<Pairing>>,
}

/// `.svc/state/federation.json`. Pairings are not kept over a restart.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    pub peers: Vec<Peer>,
}

/// What another daemon has offered, and what it is to be answered.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Offer {
    /// Who it says it is.
    pub other: Other,
    pub commitment: [u8; 32],
    pub own_key: [u8; pairing::KEY_BYTES],
    /// Our nonce for this pairing.
    pub own_nonce: [u8; 32],
    pub own_name: String,
}

/// A wish about peers.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Another daemon wants to be paired.
    Offered(Box<Offer>),
    /// It tells its nonce.
    Revealed(PairingId, [u8; 32]),
    /// We have been through all that with another daemon.
    Opened {
        /// As the other side calls the pairing.
        id: PairingId,
        /// Who it says it is.
        other: Box<Other>,
        /// What people compare.
        code: String,
    },
    /// A person has compared the codes.
    Confirm {
        id: PairingId,
        /// The code as the person read it elsewhere, if it was typed.
        code: Option<String>,
        /// Another address than the other side gave.
        url: Option<String>,
    },
    /// A person does not want it.
    Reject(PairingId),
    /// No peer any more.
    Remove(String),
}

impl State {
    /// All peers.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values().map(AsRef::as_ref)
    }

    /// The peer of this id.
    pub fn get(&self, id: &PeerId) -> Option<&Peer> {
        self.peers.get(id).map(AsRef::as_ref)
    }

    /// The peer of this id or exact name.
    ///
    /// Errors: 404, 409 when two have that name.
    pub fn find(&self, word: &str) -> Result<&Peer, Problem> {
        if let Some(peer) = self.iter().find(|peer| peer.id.as_str() == word) {
            return Ok(peer);
        }
        let mut named = self.iter().filter(|peer| peer.name == word);
        match (named.next(), named.next()) {
            (Some(peer), None) => Ok(peer),
            (None, _) => Err(Problem::not_found(format!(
                "there is no peer {word:?}; GET /api/federation/peers lists them"
            ))),
            (Some(_), Some(_)) => {
                let text = format!("two peers are called {word:?}; name one by its id");
                Err(Problem::new(409, "ambiguous", text))
            }
        }
    }

    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        Stored { version: STORED_VERSION, peers: self.iter().cloned().collect() }
    }

    /// What an earlier daemon has left.
    pub fn restore(stored: Stored) -> Self {
        let peers = stored.peers.into_iter().map(|peer| (peer.id.clone(), Arc::new(peer))).gather();
        Self { peers, pairings: BTreeMap::new() }
    }

    /// The pairings that wait for a person.
    pub fn pairings_shown(&self, now: Time) -> Vec<Value> {
        let waiting = self.pairings.iter().filter(|(_, pairing)| pairing.expires_at > now);
        waiting.map(|(id, pairing)| shown(*id, pairing)).collect()
    }
}

fn shown(id: PairingId, pairing: &Pairing) -> Value {
    let code = match &pairing.stage {
        Stage::Shown(code) => Some(code),
        Stage::Committed { .. } => None,
    };
    json!({
        "id": id,
        "peerId": pairing::peer_id(&pairing.other.key),
        "name": pairing.other.name,
        "url": pairing.other.url,
        "code": code,
        "direction": if pairing.is_outgoing { "outgoing" } else { "incoming" },
        "expiresAt": pairing.expires_at.to_string(),
    })
}

/// The wall clock has jumped: a pairing waits as long as it says.
pub fn clock_set(all: &mut All, jump: Jump) {
    for pairing in Arc::make_mut(&mut all.federation).pairings.values_mut() {
        let pairing = Arc::make_mut(pairing);
        pairing.expires_at = pairing.expires_at.moved(jump);
    }
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let now = cx.now;
    Arc::make_mut(&mut all.federation).pairings.retain(|_, pairing| pairing.expires_at > now);
    let result = all.health.writable().and_then(|()| match command {
        Command::Offered(offer) => offered(all, cx, *offer),
        Command::Revealed(id, nonce) => revealed(all, cx, id, &nonce),
        Command::Opened { id, other, code } => {
            let pairing = Pairing::new(*other, Stage::Shown(code), true, now);
            let body = shown(id, &pairing);
            open(all, cx, id, pairing)?;
            cx.audit(
                "federation.pair",
                &json!({"pairingId": id, "peerId": body["peerId"], "url": body["url"]}),
            );
            Ok(Reply::json(201, &body))
        }
        Command::Confirm { id, code, url } => confirm(all, cx, id, code.as_deref(), url),
        Command::Reject(id) => {
            let gone = Arc::make_mut(&mut all.federation).pairings.remove(&id).ok_or_else(|| unknown(id))?;
            cx.audit(
                "federation.reject",
                &json!({"pairingId": id, "peerId": pairing::peer_id(&gone.other.key)}),
            );
            Ok(Reply::ok(&json!({"ok": true, "id": id})))
        }
        Command::Remove(word) => remove(all, cx, &word),
    });
    cx.answer(call, result);
}

impl Pairing {
    fn new(other: Other, stage: Stage, is_outgoing: bool, now: Time) -> Self {
        Self { other, stage, is_outgoing, expires_at: now + PAIRING_TTL }
    }
}

fn unknown(id: PairingId) -> Problem {
    Problem::not_found(format!(
        "there is no pairing {id}, or it has expired; GET /api/federation/peers lists them"
    ))
}

fn offered(all: &mut All, cx: &mut Context, offer: Offer) -> Result<Reply, Problem> {
    let Offer { other, commitment, own_key, own_nonce, own_name } = offer;
    let stage = Stage::Committed { commitment, own_key, own_nonce };
    let id = PairingId(cx.fresh_id(|id| all.federation.pairings.contains_key(&PairingId(id))));
    open(all, cx, id, Pairing::new(other, stage, false, cx.now))?;
    let body = json!({
        "id": id, "publicKey": hex::encode(&own_key), "nonce": hex::encode(&own_nonce), "name": own_name,
    });
    Ok(Reply::json(201, &body))
}

fn open(all: &mut All, cx: &mut Context, id: PairingId, pairing: Pairing) -> Result<(), Problem> {
    let federation = Arc::make_mut(&mut all.federation);
    let same = federation.pairings.values().filter(|other| other.is_outgoing == pairing.is_outgoing).count();
    if same >= MAX_PAIRINGS {
        let text =
            format!("{MAX_PAIRINGS} pairings wait already; confirm or reject one, or wait ten minutes");
        return Err(Problem::new(409, "too_many_pairings", text));
    }
    if federation.pairings.contains_key(&id) {
        return Err(Problem::new(
            409,
            "pairing_exists",
            format!("there is a pairing {id} already; begin again"),
        ));
    }
    if matches!(pairing.stage, Stage::Shown(_)) {
        cx.notice(Notice::FederationPairing { data: shown(id, &pairing) });
    }
    federation.pairings.insert(id, Arc::new(pairing));
    Ok(())
}

/// One try: a commitment that does not hold ends the pairing.
fn revealed(all: &mut All, cx: &mut Context, id: PairingId, nonce: &[u8; 32]) -> Result<Reply, Problem> {
    let federation = Arc::make_mut(&mut all.federation);
    let pairing = federation.pairings.get_mut(&id).ok_or_else(|| unknown(id))?;
    let Stage::Committed { commitment, own_key, own_nonce } = &pairing.stage else {
        return Err(Problem::new(409, "already_revealed", format!("pairing {id} has its code already")));
    };
    if pairing::commitment(&pairing.other.key, nonce) != *commitment {
        federation.pairings.remove(&id);
        let text = "the nonce is not the one that was committed to; begin again";
        return Err(Problem::bad_request("commitment_broken", text));
    }
    let code = pairing::code(&pairing.other.key, own_key, nonce, own_nonce);
    let pairing = Arc::make_mut(pairing);
    pairing.stage = Stage::Shown(code);
    let body = shown(id, pairing);
    cx.audit("federation.offer", &json!({"pairingId": id, "peerId": body["peerId"], "url": body["url"]}));
    cx.notice(Notice::FederationPairing { data: body });
    Ok(Reply::ok(&json!({"ok": true, "id": id})))
}

fn confirm(
    all: &mut All,
    cx: &mut Context,
    id: PairingId,
    typed: Option<&str>,
    url: Option<String>,
) -> Result<Reply, Problem> {
    let pairing = Arc::clone(all.federation.pairings.get(&id).ok_or_else(|| unknown(id))?);
    let Stage::Shown(code) = &pairing.stage else {
        return Err(Problem::new(
            409,
            "not_ready",
            format!("pairing {id} has no code yet; the other side is silent"),
        ));
    };
    if let Some(typed) = typed
        && typed != code
    {
        Arc::make_mut(&mut all.federation).pairings.remove(&id);
        let text = "the codes differ: somebody may stand between the two daemons; the pairing is dropped";
        return Err(Problem::new(409, "code_mismatch", text));
    }
    let peer = Peer {
        id: pairing::peer_id(&pairing.other.key),
        name: pairing.other.name.clone(),
        url: url.unwrap_or_else(|| pairing.other.url.clone()),
        public_key: PublicKey(pairing.other.key),
        paired_at: cx.now,
    };
    if all.federation.peers.len() >= MAX_PEERS && all.federation.get(&peer.id).is_none() {
        let text = format!("{MAX_PEERS} peers are known and that is the limit; remove one first");
        return Err(Problem::new(409, "too_many_peers", text));
    }
    cx.audit("federation.confirm", &json!({"pairingId": id, "peerId": peer.id, "url": peer.url}));
    cx.notice(Notice::FederationPaired { peer_id: peer.id.clone(), name: peer.name.clone() });
    let body = json!(peer);
    let federation = Arc::make_mut(&mut all.federation);
    federation.pairings.remove(&id);
    federation.peers.insert(peer.id.clone(), Arc::new(peer));
    cx.push(Effect::Put(Document::Federation, Durability::BeforeReply));
    Ok(Reply::ok(&body))
}

fn remove(all: &mut All, cx: &mut Context, word: &str) -> Result<Reply, Problem> {
    let id = all.federation.find(word)?.id.clone();
    Arc::make_mut(&mut all.federation).peers.remove(&id);
    cx.audit("federation.remove", &json!({"peerId": id}));
    cx.push(Effect::Put(Document::Federation, Durability::BeforeReply));
    Ok(Reply::ok(&json!({"ok": true, "id": id})))
}
