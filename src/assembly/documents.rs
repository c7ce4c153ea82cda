//! How what lasts reads on disk. Encoding is pure; the store's thread writes.

use super::unwritten;
use crate::core::{Document, DocumentError, State};
use serde_json::json;

/// The content of a document for `state`, with every change that waits for the disk; `None` when the thing it
/// describes is gone.
pub fn encode(document: Document, state: &State) -> Option<Result<Vec<u8>, DocumentError>> {
    if !state.unwritten.is_empty() {
        return encode(document, &unwritten::to_be_stored(state).0);
    }
    let encoded = match document {
        Document::Adaptive => serde_json::to_vec(&state.triggers.stored()),
        Document::Agents => serde_json::to_vec(&state.agents.stored()),
        Document::Credentials => serde_json::to_vec_pretty(&state.credentials.stored()),
        Document::Locks => serde_json::to_vec(&state.coordination.stored()),
        Document::Approvals => serde_json::to_vec(&state.approvals.stored()),
        Document::Gateways => serde_json::to_vec(&state.gateways.stored()),
        Document::Teams => serde_json::to_vec(&state.teams.stored()),
        Document::Schedules => serde_json::to_vec(&state.schedules.stored()),
        Document::Integrations => serde_json::to_vec(&state.integrations.stored()),
        Document::Timeline => serde_json::to_vec(&state.timeline.stored()),
        Document::Usage => serde_json::to_vec(&state.usage.stored()),
        Document::Cleanup => serde_json::to_vec(&state.cleanup.stored()),
        Document::Config => serde_json::to_vec_pretty(&json!(state.settings.stored())),
        Document::Federation => serde_json::to_vec_pretty(&state.federation.stored()),
        Document::Journalist => serde_json::to_vec(&state.journalist.stored()),
        Document::PmReviews => serde_json::to_vec(&state.pm.stored()),
        Document::Constraints => serde_json::to_vec_pretty(&state.memory.stored_constraints()),
        Document::Discoveries => serde_json::to_vec_pretty(&state.memory.stored_discoveries()),
        Document::HandoffChains => serde_json::to_vec_pretty(&state.memory.stored_chains()),
        Document::Specializations => serde_json::to_vec_pretty(&state.memory.stored_specializations()),
        Document::Skills => serde_json::to_vec_pretty(&state.market.stored()),
        Document::Prompt(lineage) => serde_json::to_vec(&state.agents.stored_prompt(lineage)?),
    };
    Some(encoded.map_err(|error| DocumentError(format!("{} cannot be encoded: {error}", document.path()))))
}
