//! Messages as lines, and what is wrong with those that are none.

use serde_json::{Value, json};
use std::io::{self, BufRead, Read, Write};
use std::sync::Mutex;

/// Bytes of one message; a longer one is refused and passed over.
pub const LINE_LIMIT_BYTES: u64 = 8 << 20;

/// What is wrong with a request: an error of JSON-RPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub code: i64,
    /// What is wrong and what to do.
    pub message: String,
}

impl Fault {
    /// The daemon, or the agent, could not do it.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { code: -32_603, message: message.into() }
    }

    /// A parameter is wrong; names it.
    pub fn parameter(message: impl Into<String>) -> Self {
        Self { code: -32_602, message: message.into() }
    }

    /// It cannot be asked for now.
    pub fn request(message: impl Into<String>) -> Self {
        Self { code: -32_600, message: message.into() }
    }

    /// There is no such session: the protocol's own code.
    pub fn missing(message: impl Into<String>) -> Self {
        Self { code: -32_002, message: message.into() }
    }

    /// -32601: names what svc does not have.
    pub fn no_method(method: &str) -> Self {
        let message =
            format!("Method not found: {method}; svc has no modes, no logins and no list of sessions");
        Self { code: -32_601, message }
    }

    /// -32700, with what the parser says.
    pub fn no_json(error: &serde_json::Error) -> Self {
        Self {
            code: -32_700,
            message: format!("Parse error: the line is no JSON ({error}); send one object a line"),
        }
    }

    /// -32600: JSON, and neither request, notification nor answer.
    pub fn no_message() -> Self {
        Self::request(
            "Invalid request: a message is one JSON object with jsonrpc and method; batches are not taken",
        )
    }

    /// -32700: the line was passed over, and whose request it was is not known.
    pub fn too_long() -> Self {
        let message =
            format!("Parse error: the line has more than {LINE_LIMIT_BYTES} bytes; send less at once");
        Self { code: -32_700, message }
    }
}

/// What was read.
pub enum Line {
    Whole(Vec<u8>),
    /// It was passed over.
    TooLong,
    End,
}

/// The next line that is not empty.
pub fn next_line(input: &mut impl BufRead) -> Line {
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(LINE_LIMIT_BYTES + 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Line::End,
            Ok(_) if line.len() as u64 > LINE_LIMIT_BYTES && !line.ends_with(b"\n") => {
                return if input.skip_until(b'\n').is_ok() { Line::TooLong } else { Line::End };
            }
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => return Line::Whole(line),
        }
    }
}

/// Standard output. Whoever writes waits for the editor to read: nothing is queued.
#[derive(Default)]
pub struct Wire {
    one_at_a_time: Mutex<()>,
}

impl Wire {
    fn write(&self, message: &Value) {
        let _turn = self.one_at_a_time.lock();
        let mut output = io::stdout().lock();
        // Nobody reads any more: standard input ends as well then.
        let _ = writeln!(output, "{message}").and_then(|()| output.flush());
    }

    /// The answer to a request.
    pub fn answer(&self, id: &Value, result: Result<Value, Fault>) {
        match result {
            Ok(result) => self.write(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
            Err(fault) => self.refuse(id, &fault),
        }
    }

    /// An error; `id` is null where it is not known which request it is about.
    pub fn refuse(&self, id: &Value, fault: &Fault) {
        let error = json!({"code": fault.code, "message": fault.message});
        self.write(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    /// Something new in a session.
    pub fn update(&self, session: &str, update: &Value) {
        let params = json!({"sessionId": session, "update": update});
        self.write(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    /// A message that is not answered.
    pub fn notify(&self, method: &str, params: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// A request to the editor.
    pub fn ask(&self, id: u64, method: &str, params: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_passed_over_and_the_next_one_is_read() {
        let long = "x".repeat(usize::try_from(LINE_LIMIT_BYTES).unwrap() + 10);
        let text = format!("\n  \n{long}\n{{}}\nrest");
        let mut input = text.as_bytes();
        assert!(matches!(next_line(&mut input), Line::TooLong));
        let mut next = || match next_line(&mut input) {
            Line::Whole(line) => String::from_utf8(line).unwrap(),
            Line::TooLong => "too long".into(),
            Line::End => "end".into(),
        };
        assert_eq!([next(), next(), next()], ["{}\n", "rest", "end"]);
    }
}
