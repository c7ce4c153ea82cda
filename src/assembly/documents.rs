//! How what lasts reads on disk, and how it is taken over after a start, by the table of all documents.
//! Encoding is pure; the store's thread writes.

use super::folder::Reader;
use super::unwritten;
use crate::core::time::Time;
use crate::core::{Document, DocumentError, State};
use crate::memory::store as memory;
use serde::de::DeserializeOwned;
use serde_json::{json, to_vec as compact, to_vec_pretty as pretty};
use std::sync::Arc;

/// Puts what was read into the state: by the feature's own function, or by `State::restore`.
macro_rules! restore {
    ($part:ident $state:ident $stored:ident $now:ident) => {
        $state.$part = Arc::new(crate::$part::State::restore($stored))
    };
    ($part:ident $state:ident $stored:ident $now:ident $restore:ident) => {
        crate::$part::$restore($state, $stored, $now)
    };
}

macro_rules! kept {
    ($(
        $(#[$doc:meta])*
        $Name:ident = $path:literal $(: $how:ident $part:ident $(by $restore:ident)?)?;
    )*) => {
        /// The content of a document for `state`, with every change that waits for the disk; `None` when the
        /// thing it describes is gone.
        pub fn encode(document: Document, state: &State) -> Option<Result<Vec<u8>, DocumentError>> {
            if !state.unwritten.is_empty() {
                return encode(document, &unwritten::to_be_stored(state).0);
            }
            let encoded = match document {
                $($(Document::$Name => $how(&state.$part.stored()),)?)*
                Document::Agents => compact(&state.agents.stored()),
                Document::Prompt(lineage) => compact(&state.agents.stored_prompt(lineage)?),
                Document::Handoff(lineage) => compact(&state.agents.stored_handoff(lineage)?),
                Document::Config => pretty(&json!(state.settings.stored())),
                Document::Constraints => pretty(&state.memory.stored_constraints()),
                Document::Discoveries => pretty(&state.memory.stored_discoveries()),
                Document::HandoffChains => pretty(&state.memory.stored_chains()),
                Document::Specializations => pretty(&state.memory.stored_specializations()),
            };
            let named = |error| DocumentError(format!("{} cannot be encoded: {error}", document.path()));
            Some(encoded.map_err(named))
        }

        /// Takes over every document of an earlier daemon but for its agents and settings, which are there.
        ///
        /// Errors: one that cannot be read, or was written by a newer version.
        pub fn restore(reader: &Reader, state: &mut State, now: Time) -> Result<(), String> {
            $($({
                let stored: crate::$part::Stored = reader.read(Document::$Name)?.unwrap_or_default();
                known_version(Document::$Name, stored.version, crate::$part::STORED_VERSION)?;
                restore!($part state stored now $($restore)?);
            })?)*
            let memory = crate::memory::State::restore(
                of_memory(reader, Document::Constraints)?,
                of_memory(reader, Document::Discoveries)?,
                of_memory(reader, Document::HandoffChains)?,
                of_memory(reader, Document::Specializations)?,
            );
            state.memory = Arc::new(memory.forget_gone(&state.agents));
            Ok(())
        }
    };
}
crate::features::documents!(kept);

/// A document of memory, or its default. Written by a newer version it is refused.
fn of_memory<T: DeserializeOwned + Default>(reader: &Reader, document: Document) -> Result<T, String> {
    let Some(stored) = reader.read::<memory::Stored<T>>(document)? else { return Ok(T::default()) };
    known_version(document, stored.version, memory::VERSION)?;
    Ok(stored.content)
}

/// Refuses a document that a newer daemon has written.
pub fn known_version(document: Document, found: u32, known: u32) -> Result<(), String> {
    if found <= known {
        return Ok(());
    }
    Err(format!(
        "{} was written by a newer svc (format {found}, this one knows {known}); use that one",
        document.path()
    ))
}
