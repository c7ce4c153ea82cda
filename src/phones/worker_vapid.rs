//! The key by which push services know this daemon, and how it says who sends: VAPID.
//!
//! A browser binds its subscription to the public half: whoever has the subscription alone cannot send. The
//! key is made once and kept in `.svc/state/phone-push.json`, for its owner alone to read.
//!
//! Source: RFC 8292 (the header `vapid`), RFC 7515 and 7518 section 3.4 (ES256).

use crate::core::time::Time;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;
use svc_base::base64;
use svc_sys::{files, regular};

/// The file, below `.svc/`.
const FILE: &str = "state/phone-push.json";
/// What is said holds for so long. A push service takes nothing that holds for more than 24 hours, and the
/// clocks of both may differ.
pub const GOOD_FOR: Duration = Duration::from_secs(12 * 60 * 60);
/// Said of a person who has set no address (`push.contact`): some services refuse who names none.
const NO_CONTACT: &str = "mailto:nobody@example.org";

/// The key pair.
pub struct Vapid {
    pair: EcdsaKeyPair,
    public: String,
}

impl Vapid {
    /// The one of `folder` (`.svc`), or a new one where there is none or it was damaged.
    ///
    /// Errors: it cannot be read, made or kept.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        match regular::read(&path) {
            Ok(bytes) => {
                if let Some(kept) = Self::read(&bytes) {
                    return Ok(kept);
                }
                log::warn!(
                    "{FILE} is not what svc has written: a new key is made, and phones subscribe anew"
                );
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("{FILE} cannot be read: {error}")));
            }
        }
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|_| io::Error::other("the system gives no randomness"))?;
        let made = Self::of(key.as_ref()).ok_or_else(|| io::Error::other("the key that was made is none"))?;
        files::replace(&path, json!({"key": base64::encode(key.as_ref())}).to_string().as_bytes())?;
        Ok(made)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        Self::of(&base64::decode(value["key"].as_str()?)?)
    }

    /// Of PKCS #8.
    fn of(key: &[u8]) -> Option<Self> {
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &SystemRandom::new()).ok()?;
        let public = base64::encode_for_url(pair.public_key().as_ref());
        Some(Self { pair, public })
    }

    /// The public half, as browsers take it: a point without compression, in base64 for URLs.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// The value of `Authorization` for a message to the push service at `origin` that is sent now.
    ///
    /// Errors: the system gives no randomness.
    pub fn authorization(&self, origin: &str, contact: Option<&str>, now: Time) -> io::Result<String> {
        let until = (now + GOOD_FOR).0 / 1_000;
        let part = |value: &Value| base64::encode_for_url(value.to_string().as_bytes());
        let head = part(&json!({"typ": "JWT", "alg": "ES256"}));
        let claims = part(&json!({"aud": origin, "exp": until, "sub": contact.unwrap_or(NO_CONTACT)}));
        let said = format!("{head}.{claims}");
        let signature = self.pair.sign(&SystemRandom::new(), said.as_bytes());
        let signature = signature.map_err(|_| io::Error::other("the system gives no randomness"))?;
        let signature = base64::encode_for_url(signature.as_ref());
        Ok(format!("vapid t={said}.{signature},k={}", self.public))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_key_is_made_once_and_for_its_owner_alone() {
        let folder = std::env::temp_dir().join(format!("svc-phone-push-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("state")).unwrap();
        let first = Vapid::open(&folder).unwrap();
        let mode = folder.join(FILE).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Vapid::open(&folder).unwrap().public(), first.public());
        std::fs::write(folder.join(FILE), "{\"key\": \"AAAA\"}").unwrap();
        assert_ne!(Vapid::open(&folder).unwrap().public(), first.public(), "a damaged one is no use");
        std::fs::remove_file(folder.join(FILE)).unwrap();
        std::fs::create_dir(folder.join(FILE)).unwrap();
        assert!(Vapid::open(&folder).is_err(), "one that cannot be read is not replaced");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_said_is_signed_for_one_service_and_half_a_day() {
        let folder = std::env::temp_dir().join(format!("svc-phone-vapid-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("state")).unwrap();
        let vapid = Vapid::open(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let now = Time(1_790_000_000_999);
        let said = vapid.authorization("https://push.example.org", None, now).unwrap();
        let (token, key) = said.strip_prefix("vapid t=").unwrap().split_once(",k=").unwrap();
        assert_eq!(key, vapid.public());
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let key = base64::decode_for_url(key).unwrap();
        assert!(key.len() == 65 && key[0] == 4);
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key)
            .verify(signed.as_bytes(), &base64::decode_for_url(signature).unwrap())
            .expect("its own signature");
        let claims = base64::decode_for_url(signed.split_once('.').unwrap().1).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(
            claims,
            json!({"aud": "https://push.example.org", "exp": 1_790_043_200_u64, "sub": "mailto:nobody@example.org"})
        );
    }
}
