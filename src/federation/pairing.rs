//! Becoming acquainted: two daemons exchange their keys, and a person on each side compares a short code.
//!
//! ```text
//! A                                                B
//! │ commitment = H(key A, nonce A)                 │
//! ├── key A, commitment ──────────────────────────▶│
//! │◀───────────────────────── id, key B, nonce B ──┤
//! ├── nonce A ────────────────────────────────────▶│ checks the commitment
//! │ code = H(keys, nonces) mod 10^6                │ the same
//! │ a person compares and confirms                 │ a person compares and confirms
//! ```
//!
//! Whoever stands between the two has to give B a commitment before it sees nonce B, and A a nonce before
//! it sees nonce A: it cannot try keys or nonces until the codes agree, and guesses right once in a
//! million.
//!
//! Source: the short authentication string of ZRTP (RFC 6189, section 4.4.1.1).

use super::PeerId;
use sha2::{Digest, Sha256};
use svc_base::hex;

/// Bytes of a public key.
pub const KEY_BYTES: usize = 32;

fn hash(label: &str, parts: &[&[u8; 32]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(label.as_bytes());
    // All parts have the same length, so that they cannot be mistaken for each other.
    for part in parts {
        hasher.update(part.as_slice());
    }
    hasher.finalize().into()
}

/// What A gives before it knows anything of B.
pub fn commitment(key: &[u8; KEY_BYTES], nonce: &[u8; 32]) -> [u8; 32] {
    hash("svc-federation-commitment-1\n", &[key, nonce])
}

/// Six digits for people: of A's key, B's key, A's nonce, B's nonce.
pub fn code(a: &[u8; KEY_BYTES], b: &[u8; KEY_BYTES], nonce_a: &[u8; 32], nonce_b: &[u8; 32]) -> String {
    let hash = hash("svc-federation-code-1\n", &[a, b, nonce_a, nonce_b]);
    let [first, second, third, fourth, fifth, sixth, seventh, eighth, ..] = hash;
    let number = u64::from_be_bytes([first, second, third, fourth, fifth, sixth, seventh, eighth]);
    format!("{:06}", number % 1_000_000)
}

/// How a daemon is called: the first 16 hexadecimal digits of its key's digest. A name, no proof.
pub fn peer_id(key: &[u8; KEY_BYTES]) -> PeerId {
    PeerId::from_digest(&hex::encode(&hash("svc-federation-peer-1\n", &[key])))
}
