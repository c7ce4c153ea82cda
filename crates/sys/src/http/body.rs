//! Reading a request body, by length or in chunks, under its limit, a total deadline
//! and a least rate.

use super::Limits;
use super::deadline::read_until;
use super::head::Framing;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use svc_base::api::Problem;

/// A chunk's size line, extensions included.
const CHUNK_LINE_BYTES: usize = 4 << 10;
/// Trailer lines, which are read and dropped.
const TRAILERS: usize = 64;
const READ_BYTES: usize = 16 << 10;

/// Bytes of a connection: what was read ahead, then the socket.
pub struct Input<'a> {
    pub stream: &'a TcpStream,
    /// Read but not yet used.
    pub ahead: &'a mut Vec<u8>,
    /// The body must be there by then.
    until: Instant,
    begun: Instant,
    /// What has come of it since.
    came: usize,
    limits: &'a Limits,
}

/// Why there is no body.
pub enum BodyError {
    /// Answer this, then close.
    Refused(Problem),
    /// The client is gone.
    Gone,
}

impl From<Problem> for BodyError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl<'a> Input<'a> {
    /// A body that begins now.
    pub fn new(stream: &'a TcpStream, ahead: &'a mut Vec<u8>, limits: &'a Limits) -> Self {
        let (begun, came) = (Instant::now(), ahead.len());
        Self { stream, ahead, until: begun + limits.body_time, begun, came, limits }
    }

    /// Reads the body. One that announces more than `limit` bytes is refused before it is read.
    pub fn body(&mut self, framing: Framing, limit: usize) -> Result<Vec<u8>, BodyError> {
        match framing {
            Framing::None => Ok(Vec::new()),
            Framing::Length(length) if length > limit => Err(too_large(limit)),
            Framing::Length(length) => self.take(length),
            Framing::Chunked => self.chunks(limit),
        }
    }

    fn chunks(&mut self, limit: usize) -> Result<Vec<u8>, BodyError> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = chunk_size(&line)?;
            if size == 0 {
                break;
            }
            // Never below zero: `body` has only grown by sizes that were let through here.
            if size > limit - body.len() {
                return Err(too_large(limit));
            }
            body.extend(self.take(size)?);
            if self.take(2)? != b"\r\n" {
                return Err(malformed("a chunk does not end with CR LF").into());
            }
        }
        // Read, so that the next request begins where it should, and dropped: no handler asks for trailers.
        for _ in 0..=TRAILERS {
            if self.line()?.is_empty() {
                return Ok(body);
            }
        }
        Err(malformed("the body has too many trailer lines").into())
    }

    /// Exactly `length` bytes.
    fn take(&mut self, length: usize) -> Result<Vec<u8>, BodyError> {
        while self.ahead.len() < length {
            self.more()?;
        }
        Ok(self.ahead.drain(..length).collect())
    }

    /// The bytes up to the next CR LF, without it.
    fn line(&mut self) -> Result<Vec<u8>, BodyError> {
        loop {
            if let Some(end) = self.ahead.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.ahead.drain(..=end).collect();
                line.pop();
                return match line.pop() {
                    Some(b'\r') => Ok(line),
                    _ => Err(malformed("a line of the chunked body ends with LF alone").into()),
                };
            }
            if self.ahead.len() > CHUNK_LINE_BYTES {
                return Err(malformed("a line of the chunked body is too long").into());
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> Result<(), BodyError> {
        let mut buffer = [0; READ_BYTES];
        // Two deadlines: one for a body that stops, one for a body that trickles.
        match read_until(self.stream, &mut buffer, self.until.min(self.due())) {
            Ok(0) => Err(BodyError::Gone),
            Ok(n) => {
                self.came += n;
                self.ahead.extend_from_slice(&buffer[..n]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let text = "the request body did not arrive in time";
                Err(Problem::new(408, "request_timeout", text).into())
            }
            Err(_) => Err(BodyError::Gone),
        }
    }

    /// When the next byte must have come for the body to keep to its rate.
    fn due(&self) -> Instant {
        let earned = self.came / self.limits.body_rate.max(1);
        self.begun + self.limits.body_grace + Duration::from_secs(earned as u64)
    }
}

fn chunk_size(line: &[u8]) -> Result<usize, Problem> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let text = std::str::from_utf8(digits).unwrap_or_default().trim_end_matches([' ', '\t']);
    let hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let size = if hex { usize::from_str_radix(text, 16).ok() } else { None };
    size.ok_or_else(|| malformed("a chunk size is not a hexadecimal number"))
}

fn malformed(text: &str) -> Problem {
    Problem::bad_request("malformed_request", text)
}

fn too_large(limit: usize) -> BodyError {
    let text = format!("the request body is above {limit} bytes");
    Problem::new(413, "body_too_large", text).into()
}
