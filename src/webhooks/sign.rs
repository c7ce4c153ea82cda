//! How a message is signed, and how a signature is held against one. Pure: keys and times come in.
//!
//! Source: the Standard Webhooks specification: HMAC-SHA256 over `id.timestamp.body`, in base64 behind
//! `v1,`; the key is what stands in base64 behind `whsec_`.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use svc_base::base64;

/// The head line with the message's id; the same for each try.
pub const ID: &str = "webhook-id";
/// The head line with the time of the signature, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The head line with the signatures, with blanks between them.
pub const SIGNATURE: &str = "webhook-signature";
/// What a secret begins with.
pub const PREFIX: &str = "whsec_";
/// Bytes of a key.
pub const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Signatures of one message that are looked at.
const MAX_SIGNATURES: usize = 8;

/// The rule for a secret, in words.
pub const RULE: &str = "whsec_ and the base64 text of 24 to 64 random bytes";

/// The key in a secret.
pub fn key_of(secret: &str) -> Option<Vec<u8>> {
    let key = base64::decode(secret.strip_prefix(PREFIX)?)?;
    KEY_BYTES.contains(&key.len()).then_some(key)
}

/// The secret with this key.
pub fn secret_of(key: &[u8]) -> String {
    format!("{PREFIX}{}", base64::encode(key))
}

/// What begins a signature of this kind.
const KIND: &str = "v1,";

fn mac(key: &[u8], id: &str, timestamp: u64, body: &[u8]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    Some(mac)
}

/// The signature of a message, `v1,..`.
pub fn signature(key: &[u8], id: &str, timestamp: u64, body: &[u8]) -> String {
    // A key of any length is one.
    let bytes = mac(key, id, timestamp, body).map(|mac| mac.finalize().into_bytes().to_vec());
    format!("{KIND}{}", base64::encode(&bytes.unwrap_or_default()))
}

/// Whether one of the signatures is this key's. Compared in the same time wherever they differ.
pub fn is_signed(key: &[u8], id: &str, timestamp: u64, body: &[u8], signatures: &str) -> bool {
    let Some(mac) = mac(key, id, timestamp, body) else { return false };
    let shown = signatures.split(' ').take(MAX_SIGNATURES);
    let bytes = |one: &str| one.strip_prefix(KIND).and_then(base64::decode);
    shown.filter_map(bytes).any(|bytes| mac.clone().verify_slice(&bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: u64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const RIGHT: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_example_of_the_specification_is_met() {
        let key = key_of(SECRET).unwrap();
        assert_eq!(signature(&key, ID, AT, BODY), RIGHT);
        assert_eq!(secret_of(&key), SECRET);
    }

    #[test]
    fn a_signature_is_of_one_key_id_time_and_body() {
        let key = key_of(SECRET).unwrap();
        assert!(is_signed(&key, ID, AT, BODY, RIGHT));
        assert!(is_signed(&key, ID, AT, BODY, &format!("v1,AAAA v1a,xx {RIGHT}")), "one of them is enough");
        assert!(!is_signed(&key[1..], ID, AT, BODY, RIGHT));
        assert!(!is_signed(&key, "msg_2", AT, BODY, RIGHT));
        assert!(!is_signed(&key, ID, AT + 1, BODY, RIGHT));
        assert!(!is_signed(&key, ID, AT, b"{}", RIGHT));
        for wrong in ["", "v1,", " ", &RIGHT[3..], &RIGHT.to_lowercase(), &format!("{RIGHT}=")] {
            assert!(!is_signed(&key, ID, AT, BODY, wrong), "{wrong:?}");
        }
        let many = "v1,x ".repeat(MAX_SIGNATURES) + RIGHT;
        assert!(!is_signed(&key, ID, AT, BODY, &many), "no more are looked at");
    }

    #[test]
    fn a_secret_has_enough_randomness_and_its_form() {
        assert!(key_of(&secret_of(&[7; 24])).is_some() && key_of(&secret_of(&[7; 64])).is_some());
        for wrong in [
            secret_of(&[7; 23]),
            secret_of(&[7; 65]),
            SECRET[6..].to_owned(),
            format!("{SECRET} "),
            "whsec_".into(),
        ] {
            assert_eq!(key_of(&wrong), None, "{wrong}");
        }
    }
}
