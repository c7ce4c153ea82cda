//! How a message is encrypted for one browser: the push service that carries it reads nothing of it, not even
//! how long it is.
//!
//! Source: RFC 8291 (the keys), RFC 8188 (`aes128gcm`, one record).

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of a browser's public key, a point of P-256 without compression.
pub const KEY_BYTES: usize = 65;
/// Bytes of what a browser and its senders share beside.
pub const AUTH_BYTES: usize = 16;
/// Bytes of every message before it is encrypted, its end mark and padding among them.
pub const PADDED_BYTES: usize = 512;
/// What a record may hold, as the head says it; every push service takes messages of that size.
const RECORD_BYTES: u32 = 4_096;
const SALT_BYTES: usize = 16;
/// Behind the text of the last record.
const END: u8 = 2;

/// Whether a browser's key is a point on the curve.
pub fn is_key(key: &[u8]) -> bool {
    let Ok(own) = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()) else { return false };
    key.len() == KEY_BYTES && agree_ephemeral(own, &UnparsedPublicKey::new(&ECDH_P256, key), |_| ()).is_ok()
}

/// A message for the browser of this key and secret, padded to [`PADDED_BYTES`].
///
/// Errors: the key is none; the system gives no randomness.
pub fn encrypt(key: &[u8], auth: &[u8], text: &[u8]) -> Result<Vec<u8>, String> {
    let none = |_| "the system gives no randomness".to_owned();
    let random = SystemRandom::new();
    let own = EphemeralPrivateKey::generate(&ECDH_P256, &random).map_err(none)?;
    let public = own.compute_public_key().map_err(none)?;
    let mut salt = [0; SALT_BYTES];
    random.fill(&mut salt).map_err(none)?;
    let mut padded = text.to_vec();
    padded.push(END);
    padded.resize(padded.len().max(PADDED_BYTES), 0);
    let between = [key, public.as_ref()];
    agree_ephemeral(own, &UnparsedPublicKey::new(&ECDH_P256, key), |secret| {
        record(secret, auth, between, salt, padded)
    })
    .ok()
    .flatten()
    .ok_or_else(|| "the phone's key is no point of the curve".to_owned())
}

struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive<const N: usize>(from: &Prk, info: &[&[u8]]) -> Option<[u8; N]> {
    let mut out = [0; N];
    from.expand(info, Bytes(N)).and_then(|key| key.fill(&mut out)).ok()?;
    Some(out)
}

/// One record with its head, of what both sides share and the public keys of receiver and sender.
fn record(
    secret: &[u8],
    auth: &[u8],
    [receiver, sender]: [&[u8]; 2],
    salt: [u8; SALT_BYTES],
    mut text: Vec<u8>,
) -> Option<Vec<u8>> {
    let shared = Salt::new(HKDF_SHA256, auth).extract(secret);
    let input: [u8; 32] = derive(&shared, &[b"WebPush: info\0", receiver, sender])?;
    let of_record = Salt::new(HKDF_SHA256, &salt).extract(&input);
    let key: [u8; 16] = derive(&of_record, &[b"Content-Encoding: aes128gcm\0"])?;
    let nonce: [u8; NONCE_LEN] = derive(&of_record, &[b"Content-Encoding: nonce\0"])?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?);
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text).ok()?;
    let mut out = salt.to_vec();
    out.extend(RECORD_BYTES.to_be_bytes());
    out.push(u8::try_from(sender.len()).ok()?);
    out.extend([sender, &text].concat());
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_base::base64;

    fn bytes(text: &str) -> Vec<u8> {
        base64::decode_for_url(text).unwrap()
    }

    /// Section 5 and appendix A of RFC 8291. The private key is not given to the library, which makes its own
    /// only, but what both sides share of it.
    #[test]
    fn the_example_of_rfc_8291_is_met_to_the_byte() {
        let receiver =
            bytes("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4");
        let sender =
            bytes("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
        assert!(is_key(&receiver) && is_key(&sender));
        let secret = bytes("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs");
        let salt = bytes("DGv6ra1nlYgDCS1FRnbzlw").try_into().unwrap();
        let text = b"When I grow up, I want to be a watermelon\x02".to_vec();
        let auth = bytes("BTBZMqHH6r4Tts7J_aSIgg");
        let sealed = record(&secret, &auth, [&receiver, &sender], salt, text).unwrap();
        assert_eq!(
            base64::encode_for_url(&sealed),
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6P\
             Bru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
        );
    }

    #[test]
    fn messages_are_of_one_length_and_each_is_another() {
        let browser = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
        let key = browser.compute_public_key().unwrap();
        let seal = |text: &[u8]| encrypt(key.as_ref(), &[7; AUTH_BYTES], text).unwrap();
        let (short, long) = (seal(b""), seal(&[b'x'; PADDED_BYTES - 1]));
        let head = SALT_BYTES + 4 + 1 + KEY_BYTES;
        assert_eq!((short.len(), long.len()), (head + PADDED_BYTES + 16, head + PADDED_BYTES + 16));
        assert_ne!(seal(b"a"), seal(b"a"));
    }

    #[test]
    fn what_is_no_point_of_the_curve_is_no_key() {
        let own = EphemeralPrivateKey::generate(&ECDH_P256, &SystemRandom::new()).unwrap();
        let good = own.compute_public_key().unwrap().as_ref().to_vec();
        assert!(is_key(&good));
        let mut off = good.clone();
        off[64] ^= 1;
        let mut infinite = vec![0; KEY_BYTES];
        infinite[0] = 4;
        let compressed = [&[2], &good[1..33]].concat();
        for wrong in [off, infinite, compressed, good[..64].to_vec(), vec![0], Vec::new()] {
            assert!(!is_key(&wrong), "{wrong:?}");
            assert!(encrypt(&wrong, &[7; AUTH_BYTES], b"x").is_err(), "{wrong:?}");
        }
    }
}
