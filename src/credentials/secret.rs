//! Secrets that do not print, and their sealed form.

use crate::providers::EnvToken;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use svc_base::hex;
use svc_base::recorded::{Reader, Recorded};

/// A recording that tells of a longer one is broken.
const MAX_SEALED_BYTES: usize = 1 << 20;

/// A secret as only the vault can read it: nonce, ciphertext and tag. In JSON as hexadecimal text.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(pub(super) Vec<u8>);

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

/// Its length alone: a recording is given to others.
impl Recorded for Sealed {
    const SHAPE: u64 = usize::SHAPE;

    fn write(&self, to: &mut Vec<u8>) {
        self.0.len().write(to);
    }

    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    extern "C" fn read(from: &mut Reader) -> Self {
        Self(vec![0; usize::read(from).min(MAX_SEALED_BYTES)])
    }
}

impl Serialize for Sealed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Sealed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        hex::decode(&text).map(Self).ok_or_else(|| serde::de::Error::custom("not hexadecimal text"))
    }
}

/// A variable of a child's environment whose value is still sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretVariable {
    /// For example `ANTHROPIC_API_KEY`.
    pub variable: String,
    /// What its secret may be instead of a key, which goes into another variable.
    pub token: Option<EnvToken>,
    /// The entry it comes from.
    pub name: String,
    pub sealed: Sealed,
}

impl SecretVariable {
    /// The variables that it may set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let token = self.token.map(|token| token.variable);
        std::iter::once(self.variable.as_str()).chain(token)
    }

    /// What it sets, once it is open. A token comes with an empty key: a program that is given both takes the
    /// key, which may stand in the daemon's environment.
    pub fn set(&self, secret: &str) -> Vec<(String, String)> {
        match self.token {
            Some(token) if secret.starts_with(token.beginning) => {
                vec![(token.variable.to_owned(), secret.to_owned()), (self.variable.clone(), String::new())]
            }
            _ => vec![(self.variable.clone(), secret.to_owned())],
        }
    }
}
