//! What the rehearsed agent prints.

use std::io::{self, BufWriter, Write};
use svc_providers::Activity;

/// Enough to print a flood in few system calls.
const BUFFER_BYTES: usize = 64 * 1024;

/// Standard output: activities as lines, and the bad lines a rehearsal asks for.
pub struct Output {
    out: BufWriter<io::Stdout>,
    /// The last line has no newline yet.
    open_line: bool,
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    /// There should be only one.
    pub fn new() -> Self {
        Self { out: BufWriter::with_capacity(BUFFER_BYTES, io::stdout()), open_line: false }
    }

    /// Whether half a line stands there.
    pub fn has_open_line(&self) -> bool {
        self.open_line
    }

    /// One activity, seen at once by the reader.
    pub fn emit(&mut self, activity: &Activity) -> io::Result<()> {
        self.line(activity)?;
        self.out.flush()
    }

    /// One `text` activity.
    pub fn text(&mut self, text: String) -> io::Result<()> {
        self.emit(&Activity::Text { text })
    }

    /// `lines` activities of `bytes` bytes of text each, as fast as the reader takes them.
    pub fn flood(&mut self, lines: u64, bytes: usize) -> io::Result<()> {
        for number in 1..=lines {
            let mut text = format!("line {number} of {lines} ");
            text.extend(std::iter::repeat_n('.', bytes.saturating_sub(text.len())));
            self.line(&Activity::Text { text })?;
        }
        self.out.flush()
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        if let Some(last) = bytes.last() {
            self.open_line = *last != b'\n';
        }
        self.out.flush()
    }

    fn line(&mut self, activity: &Activity) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, activity)?;
        self.open_line = false;
        self.out.write_all(b"\n")
    }
}
