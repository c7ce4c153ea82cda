//! Conversations that outlive the daemon: their whole state as JSON, and back.
//!
//! **Invariant:** what a conversation makes of its inputs depends on nothing but these and their order: no
//! clock, no randomness, no order of a hash map. One that was saved and restored goes on exactly as the one
//! that was not. Two things stand outside of that: the first line to an agent of the Agent Client Protocol
//! names this version of `svc`, and whether a turn's fullness is estimated depends on whether the program's
//! record was read before the turn's end, so lines of a record have to come again where they came.

use super::Conversation;
use super::native::cut;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of a saved conversation. What one holds back, remembers or lets wait has limits of its own, which
/// together stay below: at most 8 MiB of arguments that somebody has to decide on, 4 MiB of messages, some
/// texts of 256 KiB, each byte of which may take six in JSON, and as many as 5120 ids and names of 1 KiB. A
/// conversation that runs is some hundred bytes long, as a rule.
pub const SAVED_LIMIT_BYTES: usize = 32 * 1024 * 1024;
/// What is told of a text that is no saved conversation.
const FAULT_LIMIT_BYTES: usize = 200;

/// What can be written down whole.
pub trait Save {
    /// Its whole state as JSON, of a conversation at most [`SAVED_LIMIT_BYTES`], from which
    /// [`Provider::restore`] of the same provider makes one that goes on just as this one would. The same
    /// state gives the same text.
    ///
    /// No key or token of a person is in it: a conversation is never told one. What people and models have
    /// said may be: a prompt or a message not yet written, the last words of a turn, the arguments of a tool
    /// that waits for a decision. So the text goes to its owner's eyes alone (mode 0600).
    ///
    /// [`Provider::restore`]: super::Provider::restore
    fn save(&self) -> String;
}

impl<C: Serialize> Save for C {
    fn save(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and lists always have a JSON form")
    }
}

/// The conversation with this provider that [`Save::save`] has written down.
///
/// Errors: it is too long, or no state of such a conversation.
pub fn restore<C>(provider: &str, saved: &str) -> Result<Box<dyn Conversation>, String>
where
    C: Conversation + DeserializeOwned + 'static,
{
    if saved.len() > SAVED_LIMIT_BYTES {
        let length = saved.len();
        return Err(format!("a saved conversation has at most {SAVED_LIMIT_BYTES} bytes, not {length}"));
    }
    match serde_json::from_slice::<C>(saved.as_bytes()) {
        Ok(conversation) => Ok(Box::new(conversation)),
        Err(error) => {
            let fault = error.to_string();
            let fault = cut(&fault, FAULT_LIMIT_BYTES);
            Err(format!("this is no saved conversation with {provider} as this version has them: {fault}"))
        }
    }
}

/// A path, which need not be text: as text where it is, else as the list of its bytes.
pub mod path {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(PathBuf),
        Bytes(Vec<u8>),
    }

    /// For `#[serde(with)]`.
    ///
    /// Errors: those of the serializer.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => path.as_os_str().as_bytes().serialize(serializer),
        }
    }

    /// For `#[serde(with)]`.
    ///
    /// Errors: it is neither a text nor a list of bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(match Form::deserialize(deserializer)? {
            Form::Text(path) => path,
            Form::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        })
    }
}
