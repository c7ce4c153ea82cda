//! Digests of content, as hexadecimal text.

use sha2::{Digest, Sha256};
pub use svc_base::hex::encode;

/// SHA-256 as 64 digits.
pub fn sha256(bytes: &[u8]) -> String {
    encode(&Sha256::digest(bytes))
}
