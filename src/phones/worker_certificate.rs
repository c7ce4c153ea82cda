//! The certificate by which phones know this daemon: for one address, made here, and kept in
//! `.svc/state/phone-identity.json` with its key.
//!
//! A phone takes only one into its store of certificates that may sign others. So there are two: one that
//! signs, and the server's own. The key that signs is forgotten as soon as it has signed: whatever a phone is
//! made to trust, nobody can make a second certificate for it.
//!
//! Source: X.509 in DER, RFC 5280; ECDSA with SHA-256, RFC 5758; the key, RFC 5915 in RFC 5958.

use crate::core::time::Time;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use svc_base::{base64, hex};
use svc_sys::tls::Front;
use svc_sys::{files, regular};

/// The file, below `.svc/`.
const FILE: &str = "state/phone-identity.json";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Phones take none that is good for longer than 825 days.
const GOOD_DAYS: u32 = 800;
/// One that ends within this is not used any more.
const LAST_DAYS: u32 = 30;

/// Keys, certificates and what is told of them.
pub struct Identity {
    address: IpAddr,
    /// The point in time at which the certificates end.
    until: Time,
    /// DER in base64, as all here.
    certificate: String,
    /// What has signed it.
    issuer: String,
    /// PKCS #8.
    key: String,
}

impl Identity {
    /// That of this address: the one of `folder` (`.svc`), or a new one in its place.
    ///
    /// Errors: none can be made or kept.
    pub fn open(folder: &Path, address: IpAddr, now: Time) -> io::Result<Self> {
        let path = folder.join(FILE);
        let kept = regular::read(&path).ok().and_then(|bytes| Self::read(&bytes));
        let lasts = |one: &Self| one.address == address && now + DAY * LAST_DAYS < one.until;
        if let Some(kept) = kept.filter(lasts) {
            return Ok(kept);
        }
        let made = Self::make(address, now)?;
        files::replace(&path, made.written().to_string().as_bytes())?;
        Ok(made)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| value[name].as_str();
        Some(Self {
            address: text("address")?.parse().ok()?,
            until: Time::parse(text("until")?)?,
            certificate: text("certificate")?.to_owned(),
            issuer: text("issuer")?.to_owned(),
            key: text("key")?.to_owned(),
        })
    }

    fn written(&self) -> Value {
        json!({
            "address": self.address.to_string(), "until": self.until.to_string(),
            "certificate": self.certificate, "issuer": self.issuer, "key": self.key,
        })
    }

    fn make(address: IpAddr, now: Time) -> io::Result<Self> {
        let until = now + DAY * GOOD_DAYS;
        let (signing, own) = (new_key()?, new_key()?);
        let (signer, server) = (pair_of(&signing)?, pair_of(&own)?);
        let name = |role: &str| der::name(&format!("svc {role} {address}"));
        let validity = der::validity(time_of(before(now, DAY))?, time_of(until)?);
        let sign = |subject: &[u8], key: &EcdsaKeyPair, extensions: &[u8]| {
            let serial = serial()?;
            let issuer = name("of");
            let parts =
                [&serial, &issuer, &validity, subject, &der::key(key.public_key().as_ref()), extensions];
            let told = der::to_be_signed(parts);
            let signature = signer.sign(&SystemRandom::new(), &told).map_err(no_randomness)?;
            Ok::<_, io::Error>(der::signed(&told, signature.as_ref()))
        };
        let issuer = sign(&name("of"), &signer, &der::extensions_of_issuer())?;
        let certificate = sign(&name("at"), &server, &der::extensions_of_server(address))?;
        Ok(Self {
            address,
            until,
            certificate: base64::encode(&certificate),
            issuer: base64::encode(&issuer),
            key: base64::encode(&own),
        })
    }

    /// The server's certificate, DER.
    fn certificate(&self) -> Vec<u8> {
        base64::decode(&self.certificate).unwrap_or_default()
    }

    /// The SHA-256 of the server's certificate, as browsers show it: `AB:CD:..`.
    pub fn fingerprint(&self) -> String {
        shown(&Sha256::digest(self.certificate()))
    }

    /// The certificate that a phone may be made to trust, as text (PEM).
    pub fn to_trust(&self) -> String {
        let lines: Vec<&str> =
            self.issuer.as_bytes().chunks(64).filter_map(|line| str::from_utf8(line).ok()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    /// The SHA-256 of that one.
    pub fn fingerprint_to_trust(&self) -> String {
        shown(&Sha256::digest(base64::decode(&self.issuer).unwrap_or_default()))
    }

    /// When both end.
    pub fn until(&self) -> Time {
        self.until
    }

    /// For a server.
    ///
    /// Errors: it was changed by somebody.
    pub fn front(&self) -> io::Result<Front> {
        let all = [&self.certificate, &self.issuer, &self.key].map(|text| base64::decode(text));
        let [Some(certificate), Some(issuer), Some(key)] = all else {
            return Err(io::Error::other(format!("{FILE} is not what svc has written; remove it")));
        };
        Front::new(vec![certificate, issuer], key)
    }
}

fn shown(digest: &[u8]) -> String {
    let pairs: Vec<String> = digest.iter().map(|byte| hex::encode(&[*byte]).to_ascii_uppercase()).collect();
    pairs.join(":")
}

fn no_randomness(_: ring::error::Unspecified) -> io::Error {
    io::Error::other("the system gives no randomness")
}

fn new_key() -> io::Result<Vec<u8>> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    made.map(|document| document.as_ref().to_vec()).map_err(no_randomness)
}

fn pair_of(key: &[u8]) -> io::Result<EcdsaKeyPair> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key, &SystemRandom::new())
        .map_err(|error| io::Error::other(error.to_string()))
}

/// A number that nobody else gives, positive.
fn serial() -> io::Result<Vec<u8>> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(der::integer(&bytes))
}

fn before(time: Time, length: Duration) -> Time {
    Time(time.0.saturating_sub(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)))
}

/// As certificates write it.
fn time_of(time: Time) -> io::Result<String> {
    let millis = i64::try_from(time.0).map_err(io::Error::other)?;
    let at = jiff::Timestamp::from_millisecond(millis).map_err(io::Error::other)?;
    Ok(at.strftime("%Y%m%d%H%M%SZ").to_string())
}

/// The few forms that are needed.
mod der {
    use std::net::IpAddr;

    const INTEGER: u8 = 0x02;
    const BITS: u8 = 0x03;
    const BYTES: u8 = 0x04;
    const OID: u8 = 0x06;
    const TEXT: u8 = 0x0c;
    const UTC_TIME: u8 = 0x17;
    const TIME: u8 = 0x18;
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
    const EC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
    const OTHER_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
    const CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
    const EXTENDED_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
    const SERVER: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
    const TRUE: &[u8] = &[0x01, 0x01, 0xff];

    fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let mut out = vec![tag];
        let length = content.len();
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short), _) if short < 0x80 => out.push(short),
            (Ok(byte), _) => out.extend([0x81, byte]),
            // Nothing here comes near the next size.
            (_, length) => {
                out.push(0x82);
                out.extend(length.unwrap_or(u16::MAX).to_be_bytes());
            }
        }
        out.extend(content);
        out
    }

    fn bits(bytes: &[u8]) -> Vec<u8> {
        tlv(BITS, &[&[0], bytes])
    }

    /// A positive number, its highest byte first.
    pub fn integer(bytes: &[u8]) -> Vec<u8> {
        tlv(INTEGER, &[bytes])
    }

    /// A name that is a common name alone.
    pub fn name(text: &str) -> Vec<u8> {
        let pair = tlv(SEQUENCE, &[&tlv(OID, &[COMMON_NAME]), &tlv(TEXT, &[text.as_bytes()])]);
        tlv(SEQUENCE, &[&tlv(SET, &[&pair])])
    }

    /// Times of the form `20260131120000Z`; before 2050 without the century.
    pub fn validity(from: String, until: String) -> Vec<u8> {
        let time = |text: String| match text.strip_prefix("20").filter(|rest| *rest < "50") {
            Some(rest) => tlv(UTC_TIME, &[rest.as_bytes()]),
            None => tlv(TIME, &[text.as_bytes()]),
        };
        tlv(SEQUENCE, &[&time(from), &time(until)])
    }

    /// A point on P-256.
    pub fn key(point: &[u8]) -> Vec<u8> {
        let kind = tlv(SEQUENCE, &[&tlv(OID, &[EC_KEY]), &tlv(OID, &[P256])]);
        tlv(SEQUENCE, &[&kind, &bits(point)])
    }

    fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
        let critical = if critical { TRUE } else { &[] };
        tlv(SEQUENCE, &[&tlv(OID, &[oid]), critical, &tlv(BYTES, &[value])])
    }

    fn extensions(all: &[&[u8]]) -> Vec<u8> {
        tlv(0xa3, &[&tlv(SEQUENCE, all)])
    }

    /// It signs others, which sign none.
    pub fn extensions_of_issuer() -> Vec<u8> {
        let constraints = tlv(SEQUENCE, &[TRUE, &integer(&[0])]);
        // The sixth bit: signing certificates.
        let usage = tlv(BITS, &[&[2, 0x04]]);
        extensions(&[&extension(CONSTRAINTS, true, &constraints), &extension(KEY_USAGE, true, &usage)])
    }

    /// A server at this address.
    pub fn extensions_of_server(address: IpAddr) -> Vec<u8> {
        let octets = match address {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let names = tlv(SEQUENCE, &[&tlv(0x87, &[&octets])]);
        // The first bit: signing what is said.
        let usage = tlv(BITS, &[&[7, 0x80]]);
        let purpose = tlv(SEQUENCE, &[&tlv(OID, &[SERVER])]);
        extensions(&[
            &extension(CONSTRAINTS, true, &tlv(SEQUENCE, &[])),
            &extension(KEY_USAGE, true, &usage),
            &extension(EXTENDED_USAGE, false, &purpose),
            &extension(OTHER_NAMES, false, &names),
        ])
    }

    fn algorithm() -> Vec<u8> {
        tlv(SEQUENCE, &[&tlv(OID, &[ECDSA_WITH_SHA256])])
    }

    /// Serial number, issuer, validity, subject, key and extensions.
    pub fn to_be_signed([serial, issuer, validity, subject, key, extensions]: [&[u8]; 6]) -> Vec<u8> {
        let version = tlv(0xa0, &[&integer(&[2])]);
        tlv(SEQUENCE, &[&version, serial, &algorithm(), issuer, validity, subject, key, extensions])
    }

    /// A certificate, of what was signed and the signature (DER).
    pub fn signed(told: &[u8], signature: &[u8]) -> Vec<u8> {
        tlv(SEQUENCE, &[told, &algorithm(), &bits(signature)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_790_000_000_000);

    #[test]
    fn it_is_kept_for_its_address_until_it_is_about_to_end() {
        let folder = std::env::temp_dir().join(format!("svc-phone-identity-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("state")).unwrap();
        let address: IpAddr = "192.168.1.5".parse().unwrap();
        let first = Identity::open(&folder, address, NOW).unwrap();
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&folder.join(FILE).metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let again = Identity::open(&folder, address, NOW + DAY).unwrap();
        assert_eq!(first.fingerprint(), again.fingerprint());
        let late = Identity::open(&folder, address, before(first.until(), DAY * LAST_DAYS)).unwrap();
        assert_ne!(first.fingerprint(), late.fingerprint());
        let moved = Identity::open(&folder, "fd00::1".parse().unwrap(), NOW).unwrap();
        assert_ne!(moved.fingerprint(), late.fingerprint());
        moved.front().expect("rustls takes the certificate with its key");
        std::fs::write(folder.join(FILE), "{").unwrap();
        Identity::open(&folder, address, NOW).expect("another one");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_fingerprint_is_32_bytes_as_browsers_show_them() {
        let made = Identity::make("10.0.0.1".parse().unwrap(), NOW).unwrap();
        for text in [made.fingerprint(), made.fingerprint_to_trust()] {
            assert_eq!(text.split(':').count(), 32);
            assert!(
                text.split(':').all(|byte| byte.len() == 2 && u8::from_str_radix(byte, 16).is_ok()),
                "{text}"
            );
        }
        assert!(made.to_trust().lines().all(|line| line.len() <= 64), "{}", made.to_trust());
    }

    #[test]
    fn times_from_2050_on_have_their_century() {
        let both = der::validity("20491231235959Z".into(), "20500101000000Z".into());
        assert_eq!(both[2..4], [0x17, 13]);
        assert_eq!(both[17..19], [0x18, 15]);
    }
}
