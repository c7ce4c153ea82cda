//! What the rehearsed agent is told.

use std::io::{self, BufRead, Read};
use svc_providers::native::Input;

/// A line to the agent is refused above this; briefings of some 200 000 characters are usual.
const LINE_LIMIT_BYTES: u64 = 64 * 1024 * 1024;

/// The next line of standard input; `None` at its end.
///
/// Errors: a sentence, when the line is none of the protocol.
pub fn next() -> Result<Option<Input>, String> {
    let mut line = Vec::new();
    let mut input = io::stdin().lock().take(LINE_LIMIT_BYTES);
    input.read_until(b'\n', &mut line).map_err(|error| format!("standard input: {error}"))?;
    if line.is_empty() {
        return Ok(None);
    }
    if input.limit() == 0 {
        return Err(format!("standard input: a line has more than {LINE_LIMIT_BYTES} bytes"));
    }
    serde_json::from_slice(&line).map(Some).map_err(|error| format!("standard input: {error}"))
}
