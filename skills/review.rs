//! The operator's decision on a skill that waits for it.

use crate::authoring::moves::Move;
use crate::authoring::text;
use serde_json::{Map, Value, json};
use svc_base::api::{Fields, Problem};

/// Longest note.
pub const NOTE_CHARS: usize = 1000;
/// What can be decided.
pub const DECISIONS: [&str; 2] = ["approve", "reject"];

/// Reads `{"decision": "approve"|"reject", "note"}`.
///
/// Errors: 400 with every violation.
pub fn parse(body: &Map<String, Value>) -> Result<Move, Problem> {
    let mut fields = Fields::new(body);
    let decision = fields.choice("decision", &DECISIONS);
    if fields.value("decision").is_none() {
        fields.validator.fail("decision", "decision is required and must be approve or reject");
    }
    let note = fields.string("note").unwrap_or_default();
    let note = text::line(&mut fields.validator, "note", note, 0, NOTE_CHARS);
    fields.validator.finish()?;
    Ok(Move::Review { approve: decision == Some("approve"), note })
}

/// JSON schema of the body.
pub fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["decision"],
        "properties": {
            "decision": {"type": "string", "enum": DECISIONS},
            "note": text::line_schema(0, NOTE_CHARS, true),
        },
    })
}
