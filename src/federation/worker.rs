//! The side of the federation that does I/O: the key, randomness, and calls to other daemons.
//!
//! **Invariant:** the private key is on disk only as the vault seals it.

use super::api::{ENVELOPE_PATH, address, confirmation, offer, pairing_id};
use super::envelope::{Envelope, NONCE_BYTES, Replays};
use super::pairing::{code, commitment, peer_id};
use super::{Command, MAX_NAME_CHARS, Offer, Other, PeerId, PublicKey};
use crate::agents::Agent;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::State;
use crate::core::ids::PairingId;
use crate::core::time::Time;
use crate::credentials::{Sealed, Secret, Vault};
use crate::endpoint::{Answer, Ask};
use crate::prices;
use ed25519_dalek::{SigningKey, VerifyingKey};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use svc_base::hex::{self, bytes_32};
use svc_sys::files::replace;
use svc_sys::http::client;
use svc_sys::regular;
use svc_sys::threads::lock;

/// The file of the sealed key below `.svc/`.
pub const KEY_FILE: &str = "federation.key";
/// Under which name the vault seals it.
pub const KEY_NAME: &str = "federation/identity";
/// Until a connection stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// For one call in all.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const ANSWER_LIMIT_BYTES: u64 = 4 << 20;
/// Agents that one answer tells of.
const MAX_AGENTS_SHOWN: usize = 2_000;
/// The one question there is.
const LIST_AGENTS: &str = "agents.list";
const ANSWER: &str = "answer";

/// The key of this daemon, and the envelopes it has taken.
pub struct Keeper {
    file: PathBuf,
    /// Known once it was needed: most daemons have no peers.
    key: Mutex<Option<SigningKey>>,
    replays: Mutex<Replays>,
}

impl Keeper {
    /// The keeper of the key in `folder` (`.svc`). `now` is when this daemon starts.
    pub fn new(folder: &Path, now: Time) -> Self {
        let file = folder.join(KEY_FILE);
        Self { file, key: Mutex::default(), replays: Mutex::new(Replays::new(now)) }
    }

    /// The key; made on first use, durably, and sealed by the vault.
    ///
    /// Errors: 503 when it cannot be read, opened or written.
    fn key(&self, vault: &Vault) -> Result<SigningKey, Problem> {
        let mut known = lock(&self.key);
        if let Some(key) = known.as_ref() {
            return Ok(key.clone());
        }
        let seed = match regular::read_text(&self.file) {
            Ok(text) => opened(vault, text.trim()).map_err(|fault| {
                let text = format!(
                    ".svc/{KEY_FILE} cannot be read: {fault}; restore it and the vault's key, or remove it and \
                     pair again"
                );
                Problem::new(503, "federation_key_unreadable", text)
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => self.make(vault)?,
            Err(error) => return Err(self.failed(&error)),
        };
        Ok(known.insert(SigningKey::from_bytes(&seed)).clone())
    }

    fn make(&self, vault: &Vault) -> Result<[u8; 32], Problem> {
        let seed: [u8; 32] = random()?;
        let sealed = vault.seal(KEY_NAME, &Secret::new(hex::encode(&seed)))?;
        let text = json!(sealed);
        let line = format!("{}\n", text.as_str().unwrap_or_default());
        let folder = self.file.parent().unwrap_or(&self.file);
        let written = replace(&self.file, line.as_bytes()).and_then(|()| File::open(folder)?.sync_all());
        written.map(|()| seed).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> Problem {
        let text = format!("{}: {error}; look at it and retry", self.file.display());
        Problem::new(503, "storage_unavailable", text)
    }
}

/// The seed that the vault sealed as this text.
fn opened(vault: &Vault, text: &str) -> Result<[u8; 32], String> {
    let sealed: Sealed = serde_json::from_value(json!(text)).map_err(|error| error.to_string())?;
    let secret = vault.open(KEY_NAME, &sealed)?;
    bytes_32(secret.expose()).ok_or_else(|| "it is not a key".to_owned())
}

fn own_key(host: &Host) -> Result<[u8; 32], Problem> {
    Ok(host.federation.key(&host.vault)?.verifying_key().to_bytes())
}

fn own_id(host: &Host) -> Result<PeerId, Problem> {
    own_key(host).map(|key| peer_id(&key))
}

/// A signed message from this daemon.
fn seal(
    host: &Host,
    to: &PeerId,
    kind: &str,
    re: &str,
    body: &Value,
    now: Time,
) -> Result<Envelope, Problem> {
    let nonce: [u8; NONCE_BYTES] = random()?;
    let envelope = Envelope {
        from: own_id(host)?,
        to: to.clone(),
        kind: kind.to_owned(),
        nonce: hex::encode(&nonce),
        re: re.to_owned(),
        ts: now.0,
        body: body.to_string(),
        signature: String::new(),
    };
    Ok(envelope.signed(&host.federation.key(&host.vault)?))
}

fn random<const N: usize>() -> Result<[u8; N], Problem> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::new(503, "no_randomness", format!("no randomness: {error}")))?;
    Ok(bytes)
}

/// As this daemon calls itself: the name of its project's folder.
fn own_name(state: &State) -> String {
    let name = state.project.dir.file_name().map(|name| name.to_string_lossy().into_owned());
    clipped(name.as_deref().unwrap_or("svc"))
}

/// One line of at most [`MAX_NAME_CHARS`], without control characters.
pub(super) fn clipped(text: &str) -> String {
    let line: String = text.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect();
    line.trim().to_owned()
}

/// A key that can be one: a point of the curve.
fn checked_key(bytes: [u8; 32]) -> Result<VerifyingKey, Problem> {
    let key = VerifyingKey::from_bytes(&bytes).ok().filter(|key| !key.is_weak());
    key.ok_or_else(|| Problem::bad_request("bad_key", "publicKey is not an Ed25519 key"))
}

fn not_ourselves(host: &Host, key: [u8; 32]) -> Result<(), Problem> {
    if key == own_key(host)? {
        let text = "that is this daemon itself; name another one";
        return Err(Problem::bad_request("own_key", text));
    }
    checked_key(key).map(|_| ())
}

/// `GET /api/federation/identity`.
pub fn identity(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let key = own_key(host)?;
    Ok(Answer::Reply(Reply::ok(&json!({
        "id": peer_id(&key),
        "publicKey": hex::encode(&key),
        "name": own_name(ask.state),
        "url": ask.state.project.url(),
    }))))
}

/// `POST /api/federation/peers`: goes through the steps with the other daemon, up to the code.
pub fn add(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let (url, token) = ask.request.read(address)?;
    ask.state.health.writable()?;

    let (own_key, own_nonce) = (own_key(host)?, random()?);
    let offer = json!({
        "publicKey": hex::encode(&own_key),
        "commitment": hex::encode(&commitment(&own_key, &own_nonce)),
        "name": own_name(ask.state),
        "url": ask.state.project.url(),
    });
    let answer = call(&url, "/api/federation/pair", &offer, token.as_ref())?;
    let bytes = |name: &str| answer[name].as_str().and_then(bytes_32);
    let id = answer["id"].as_str().and_then(|id| id.parse::<PairingId>().ok());
    let (Some(key), Some(nonce), Some(id)) = (bytes("publicKey"), bytes("nonce"), id) else {
        return Err(not_a_daemon(&url));
    };
    not_ourselves(host, key)?;
    let revealed = json!({"nonce": hex::encode(&own_nonce)});
    call(&url, &format!("/api/federation/pair/{id}/reveal"), &revealed, token.as_ref())?;
    let other = Other { key, name: clipped(answer["name"].as_str().unwrap_or_default()), url };
    let code = code(&own_key, &key, &own_nonce, &nonce);
    let opened = Command::Opened { id, other: Box::new(other), code };
    Ok(Answer::Command(crate::core::Command::Federation(opened)))
}

/// `POST /api/federation/pair`: another daemon begins.
pub fn offered(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let (other, commitment) = ask.request.read(offer)?;
    not_ourselves(host, other.key)?;
    let offer = Offer {
        other,
        commitment,
        own_key: own_key(host)?,
        own_nonce: random()?,
        own_name: own_name(ask.state),
    };
    let command = Command::Offered(Box::new(offer));
    Ok(Answer::Command(crate::core::Command::Federation(command)))
}

/// `POST /api/federation/pair/:id/confirm`.
pub fn confirm(_host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let id = pairing_id(ask)?;
    let (code, url) = ask.request.read(confirmation)?;
    let command = Command::Confirm { id, code, url };
    Ok(Answer::Command(crate::core::Command::Federation(command)))
}

/// `POST /api/federation/envelope`: a peer asks.
pub fn envelope(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let body = ask.request.object()?;
    let envelope: Envelope = serde_json::from_value(Value::Object(body)).map_err(|error| {
        Problem::bad_request("not_an_envelope", format!("the body is not an envelope: {error}"))
    })?;
    let peer = ask.state.federation.get(&envelope.from).ok_or_else(|| {
        Problem::new(403, "not_a_peer", "this daemon does not know that peer; pair the two, on both sides")
    })?;
    let PublicKey(key) = peer.public_key;
    envelope.check(&own_id(host)?, &peer.id, &checked_key(key)?, ask.now)?;
    {
        let mut replays = lock(&host.federation.replays);
        replays.forget_others(|id| ask.state.federation.get(id).is_some());
        replays.take(&envelope, ask.now)?;
    }
    if envelope.kind != LIST_AGENTS {
        let text = format!("peers may ask {LIST_AGENTS}, not {:?}", clipped(&envelope.kind));
        return Err(Problem::bad_request("unknown_kind", text));
    }
    let shown = ask.state.agents.iter().take(MAX_AGENTS_SHOWN);
    let agents: Vec<Value> = shown.map(|agent| seen_from_outside(agent)).collect();
    let answer = json!({"name": own_name(ask.state), "agents": agents});
    let sealed = seal(host, &peer.id, ANSWER, &envelope.nonce, &answer, ask.now)?;
    Ok(Answer::Reply(Reply::ok(&sealed)))
}

/// What a peer may know of an agent: not its task, not its words, not its paths.
fn seen_from_outside(agent: &Agent) -> Value {
    json!({
        "id": agent.id,
        "name": agent.name,
        "role": agent.role,
        "status": agent.status,
        "statusSince": agent.status_since.to_string(),
        "provider": agent.provider,
        "model": agent.model,
        "teamId": agent.team_id,
        "tokensUsed": agent.tokens.total(),
        "contextUsage": agent.context_usage(),
        "costUsd": prices::known(agent.cost_usd, agent.unpriced_tokens),
        "unpricedTokens": agent.unpriced_tokens,
        "turns": agent.turns,
        "spawnedAt": agent.spawned_at.to_string(),
        "lastActivity": agent.last_activity.to_string(),
    })
}

/// `GET /api/federation/peers/:id/agents`.
pub fn agents(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let peer = ask.state.federation.find(ask.params.get("id"))?;
    let question = seal(host, &peer.id, LIST_AGENTS, "", &json!({}), ask.now)?;
    let answer = call(&peer.url, ENVELOPE_PATH, &json!(question), None)?;
    let answer: Envelope = serde_json::from_value(answer).map_err(|_| not_a_daemon(&peer.url))?;
    let PublicKey(key) = peer.public_key;
    // The clock again: the answer may have taken seconds.
    let now = svc_sys::clock::now();
    let checked = answer.check(&own_id(host)?, &peer.id, &checked_key(key)?, now);
    checked.map_err(|problem| refused(&peer.url, &problem.error))?;
    if answer.kind != ANSWER || answer.re != question.nonce {
        return Err(refused(&peer.url, "it answered another question"));
    }
    let body: Value = serde_json::from_slice(answer.body.as_bytes()).map_err(|_| not_a_daemon(&peer.url))?;
    let agents = body["agents"].as_array().ok_or_else(|| not_a_daemon(&peer.url))?;
    if agents.len() > MAX_AGENTS_SHOWN {
        return Err(refused(&peer.url, &format!("it tells of more than {MAX_AGENTS_SHOWN} agents")));
    }
    Ok(Answer::Reply(Reply::ok(&json!({
        "peer": {"id": peer.id, "name": peer.name, "url": peer.url},
        "agents": agents,
        "at": Time(answer.ts).to_string(),
    }))))
}

fn not_a_daemon(url: &str) -> Problem {
    refused(url, "its answer is not that of an svc daemon")
}

fn refused(url: &str, why: &str) -> Problem {
    Problem::new(502, "peer_refused", format!("the daemon at {url}: {why}"))
}

/// One call to another daemon, which is on this machine or on a private network: never through a proxy.
fn call(url: &str, path: &str, body: &Value, token: Option<&Secret>) -> Result<Value, Problem> {
    let unreachable = |why: String| {
        let text = format!("the daemon at {url} does not answer ({why}); look whether it runs, then retry");
        Problem::new(502, "peer_unreachable", text)
    };
    let config = client::strict().timeout_global(Some(CALL_TIMEOUT)).timeout_connect(Some(CONNECT_TIMEOUT));
    let agent: ureq::Agent = config.proxy(None).build().into();
    let mut request = agent.post(format!("{url}{path}")).content_type("application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {}", token.expose()));
    }
    let mut response = request.send(body.to_string()).map_err(|error| unreachable(error.to_string()))?;
    let status = response.status().as_u16();
    let mut text = Vec::new();
    let mut reader = response.body_mut().as_reader().take(ANSWER_LIMIT_BYTES + 1);
    reader.read_to_end(&mut text).map_err(|error| unreachable(error.to_string()))?;
    if text.len() as u64 > ANSWER_LIMIT_BYTES {
        return Err(refused(url, "its answer is too large"));
    }
    let value: Option<Value> = serde_json::from_slice(&text).ok();
    match (status, value) {
        (200..=299, Some(value)) => Ok(value),
        (_, value) => {
            let told = value.as_ref().and_then(|value| value["error"].as_str());
            let why: String =
                told.unwrap_or("it gives no reason").chars().filter(|c| !c.is_control()).take(300).collect();
            Err(refused(url, &format!("status {status}: {why}")))
        }
    }
}
