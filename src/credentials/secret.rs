//! Secrets that do not print, and their sealed form.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::fmt::Write as _;

/// A secret as only the vault can read it: nonce, ciphertext and tag. In JSON as hexadecimal text.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(pub(super) Vec<u8>);

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

impl Serialize for Sealed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Sealed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        from_hex(&text).map(Self).ok_or_else(|| serde::de::Error::custom("not hexadecimal text"))
    }
}

/// A variable of a child's environment whose value is still sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretVariable {
    /// For example `ANTHROPIC_API_KEY`.
    pub variable: String,
    /// The entry it comes from.
    pub name: String,
    /// Its value.
    pub sealed: Sealed,
}

/// Lower-case hexadecimal text.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The bytes of hexadecimal text; `None` when it is none.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| if let [high, low] = pair { Some(digit(*high)? * 16 + digit(*low)?) } else { None })
        .collect()
}
