//! The side of the vault that does I/O: its key, randomness, and the endpoints that see plain text.
//!
//! AES-256-GCM with a random nonce of 12 bytes per sealing; the entry's name is authenticated along with
//! it, so that an entry moved to another name does not open. The key is 32 random bytes in
//! `.svc/credentials.key`, made on first use, or comes from `SVC_MASTER_KEY`.
//!
//! Source: NIST SP 800-38D.

use super::{Command, Sealed, Secret, SecretVariable, api};
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes256Gcm, KeyInit, Nonce};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use svc_base::hex;
use svc_sys::files::replace;
use svc_sys::regular;
use svc_sys::threads::lock;

/// The key's file below `.svc/`.
pub const KEY_FILE: &str = "credentials.key";
/// The variable that replaces the key's file.
pub const KEY_VARIABLE: &str = "SVC_MASTER_KEY";
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
/// Characters of a passphrase in `SVC_MASTER_KEY`; fewer are too easy to guess.
const MIN_PASSPHRASE_CHARS: usize = 32;

/// Seals and opens secrets. Cheap to share; opening takes microseconds.
pub struct Vault {
    file: PathBuf,
    /// Known once it was needed.
    cipher: Mutex<Option<Aes256Gcm>>,
}

impl Vault {
    /// A vault whose key is in `folder` (`.svc`), or given as the text of `SVC_MASTER_KEY`: 64 hexadecimal
    /// digits (32 bytes), or a passphrase.
    ///
    /// Errors: a sentence when the text is too short, or the key's file is damaged or cannot be read.
    pub fn open_in(folder: &Path, master_key: Option<&str>) -> Result<Self, String> {
        let vault = Self { file: folder.join(KEY_FILE), cipher: Mutex::default() };
        let key = match master_key {
            Some(text) => Some(key_from_text(text)?),
            None => vault.read_key()?,
        };
        *lock(&vault.cipher) = key.map(|key| Aes256Gcm::new(&key.into()));
        Ok(vault)
    }

    /// As [`Vault::open_in`], with the key of this process's environment.
    pub fn start(folder: &Path) -> Result<Self, String> {
        let text = match std::env::var(KEY_VARIABLE) {
            Ok(text) => Some(text),
            Err(std::env::VarError::NotPresent) => None,
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(format!("{KEY_VARIABLE} is not UTF-8 text"));
            }
        };
        Self::open_in(folder, text.as_deref())
    }

    /// Seals a secret for the entry `name`. Makes the key on first use, durably.
    ///
    /// Errors: 503 when the key cannot be made or written.
    pub fn seal(&self, name: &str, secret: &Secret) -> Result<Sealed, Problem> {
        let failed = |what: String| {
            let text = format!("the key of the vault cannot be used: {what}; look at .svc and retry");
            Problem::new(503, "storage_unavailable", text)
        };
        let mut guard = lock(&self.cipher);
        if guard.is_none() {
            *guard = Some(Aes256Gcm::new(&self.make_key().map_err(failed)?.into()));
        }
        let Some(cipher) = guard.as_ref() else { return Err(failed("it is gone".into())) };
        let nonce: [u8; NONCE_BYTES] = random().map_err(failed)?;
        let payload = Payload { msg: secret.expose().as_bytes(), aad: name.as_bytes() };
        let ciphertext =
            cipher.encrypt(&Nonce::from(nonce), payload).map_err(|_| failed("it does not encrypt".into()))?;
        Ok(Sealed([nonce.as_slice(), &ciphertext].concat()))
    }

    /// Opens what was sealed for the entry `name`.
    ///
    /// Errors: a sentence; the key is another one, or the entry was changed.
    pub fn open(&self, name: &str, sealed: &Sealed) -> Result<Secret, String> {
        let unreadable = || {
            format!(
                "credential {name:?} cannot be read with this key; restore {KEY_FILE} or {KEY_VARIABLE}, \
                 or set it again"
            )
        };
        let guard = lock(&self.cipher);
        let cipher = guard.as_ref().ok_or_else(unreadable)?;
        let (nonce, ciphertext) = sealed.0.split_at_checked(NONCE_BYTES).ok_or_else(unreadable)?;
        let nonce = <[u8; NONCE_BYTES]>::try_from(nonce).map_err(|_| unreadable())?;
        let payload = Payload { msg: ciphertext, aad: name.as_bytes() };
        let plain = cipher.decrypt(&Nonce::from(nonce), payload).map_err(|_| unreadable())?;
        String::from_utf8(plain).map(Secret::new).map_err(|_| unreadable())
    }

    /// Whether there is a key already.
    pub fn has_key(&self) -> bool {
        lock(&self.cipher).is_some()
    }

    /// Opens variables for a child's environment.
    pub fn variables(&self, sealed: &[SecretVariable]) -> Result<Vec<(String, String)>, String> {
        let mut set = Vec::new();
        for one in sealed {
            set.extend(one.set(self.open(&one.name, &one.sealed)?.expose()));
        }
        Ok(set)
    }

    /// The key in the file, if there is one; its permissions are set right.
    fn read_key(&self) -> Result<Option<[u8; KEY_BYTES]>, String> {
        let named = |fault: String| format!("{}: {fault}", self.file.display());
        let text = match regular::read_text(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(named(error.to_string())),
        };
        fs::set_permissions(&self.file, Permissions::from_mode(0o600))
            .map_err(|error| named(error.to_string()))?;
        let key = hex::decode(text.trim()).and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        key.map(Some).ok_or_else(|| {
            named(
                "is not the key of a vault (64 hexadecimal digits); restore it, or remove it to start anew"
                    .into(),
            )
        })
    }

    fn make_key(&self) -> Result<[u8; KEY_BYTES], String> {
        let key: [u8; KEY_BYTES] = random()?;
        let written = replace(&self.file, format!("{}\n", hex::encode(&key)).as_bytes()).and_then(|()| {
            // The folder too: an entry must never outlive the key that opens it.
            self.file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        });
        written.map_err(|error| error.to_string())?;
        Ok(key)
    }
}

fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("no randomness: {error}"))?;
    Ok(bytes)
}

fn key_from_text(text: &str) -> Result<[u8; KEY_BYTES], String> {
    if let Some(key) = hex::decode(text.trim()).and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok()) {
        return Ok(key);
    }
    let chars = text.trim().chars().count();
    if chars < MIN_PASSPHRASE_CHARS {
        return Err(format!(
            "{KEY_VARIABLE} must be 64 hexadecimal digits (openssl rand -hex 32) or at least \
             {MIN_PASSPHRASE_CHARS} characters, it has {chars}"
        ));
    }
    Ok(Sha256::digest(text.trim().as_bytes()).into())
}

/// `GET /api/credentials`.
pub fn list(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let shown = |(name, entry): (&str, &super::Entry)| match host.vault.open(name, &entry.sealed) {
        Ok(secret) => {
            json!({"provider": name, "setAt": entry.set_at.to_string(), "masked": secret.masked()})
        }
        Err(error) => {
            json!({"provider": name, "setAt": entry.set_at.to_string(), "masked": "****", "error": error})
        }
    };
    let list: Vec<Value> = ask.state.credentials.iter().map(shown).collect();
    Ok(Answer::Reply(Reply::ok(&list)))
}

/// `POST /api/credentials`.
pub fn set(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let (name, secret) = ask.request.read(api::key_wish)?;
    let sealed = host.vault.seal(&name, &secret)?;
    let masked = secret.masked();
    Ok(Answer::Command(crate::core::Command::Credentials(Command::Put { name, sealed, masked })))
}
