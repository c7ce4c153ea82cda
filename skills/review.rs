//! The operator's decision on a skill that waits for it.

use crate::authoring::moves::Move;
use serde_json::{Map, Value, json};
use svc::api::{Fields, Problem};

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
    let note = fields.string("note").unwrap_or_default().trim().to_owned();
    let length = note.chars().count();
    fields.validator.check(length <= NOTE_CHARS, "note", || {
        format!("note must have at most {NOTE_CHARS} characters, it has {length}")
    });
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
            "note": {"type": "string", "maxLength": NOTE_CHARS},
        },
    })
}
