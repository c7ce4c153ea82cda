//! One connection: requests in, replies out, one after the other.

use super::body::{BodyError, Input};
use super::deadline::{read_until, write_until};
use super::head::{self, Framing, Head};
use super::server::{Shared, Waits};
use super::write::encode;
use super::{Ends, Way};
use crate::ws;
use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_base::api::{Method, Problem, Reply, Request};

const READ_BYTES: usize = 16 << 10;
/// After a refusal, what the client still sends is read and dropped this long, so that it sees the reply
/// instead of a reset.
const LINGER: Duration = Duration::from_millis(500);
/// Bytes dropped in that time at most.
const LINGER_BYTES: usize = 2 << 20;

/// A connection's thread.
pub struct Connection<'a> {
    pub stream: TcpStream,
    pub ends: Ends,
    pub shared: &'a Shared,
    /// By which the server finds this connection.
    pub id: u64,
}

/// What comes after a reply.
#[derive(PartialEq, Eq)]
enum Next {
    KeepAlive,
    /// The end; unread input is dropped first.
    Close,
    /// The end, at once.
    Gone,
}

impl Connection<'_> {
    /// Serves requests until the connection ends, or is given away. `ahead` was read of it already.
    pub fn serve(&self, mut ahead: Vec<u8>) {
        loop {
            match self.one(&mut ahead) {
                Next::KeepAlive if !self.shared.is_stopping() => {}
                Next::KeepAlive | Next::Gone => return,
                Next::Close => return self.linger(),
            }
        }
    }

    fn one(&self, ahead: &mut Vec<u8>) -> Next {
        self.shared.waits(self.id, Waits::ForHead);
        let head = self.read_head(ahead);
        self.shared.waits(self.id, Waits::No);
        let (mut head, length) = match head {
            Ok(Some(head)) => head,
            Ok(None) => return Next::Gone,
            Err(problem) => return self.refuse(None, problem),
        };
        if let Err(problem) = self.shared.config.policy.check(&head) {
            return self.refuse(Some(&head), problem);
        }
        match self.shared.service.way(&mut head, &self.ends) {
            Ok(Way::Here) => drop(ahead.drain(..length)),
            Ok(Way::Answer(reply)) => {
                ahead.drain(..length);
                // Its body, if it has one, is not asked for.
                let keep_alive = head.keep_alive && head.framing == Framing::None;
                return self.sent(&reply, &head, keep_alive);
            }
            Ok(Way::Pass(to)) => {
                return match self.shared.service.pass(&to, &self.stream, ahead) {
                    Ok(()) => Next::Gone,
                    Err(problem) => self.refuse(Some(&head), problem),
                };
            }
            Err(problem) => return self.refuse(Some(&head), problem),
        }
        if let Err(problem) = self.shared.service.admit(&head, &self.ends) {
            return self.refuse(Some(&head), problem);
        }
        let limit = self.shared.service.body_limit(&head.method, &head.segments);
        let body = match self.read_body(&head, limit, ahead) {
            Ok(body) => body,
            Err(BodyError::Refused(problem)) => return self.refuse(Some(&head), problem),
            Err(BodyError::Gone) => return Next::Gone,
        };
        let request = self.request(&head, body);
        if ws::wants_upgrade(&head)
            && let Some(subscription) = self.shared.service.websocket(&request)
        {
            let left = std::mem::take(ahead);
            return match subscription.and_then(|subscription| self.upgrade(&head, subscription, left)) {
                Ok(()) => Next::Gone,
                Err(problem) => self.refuse(Some(&head), problem),
            };
        }
        self.sent(&self.answer(&request), &head, head.keep_alive)
    }

    fn sent(&self, reply: &Reply, head: &Head, keep_alive: bool) -> Next {
        let keep_alive = keep_alive && !self.shared.is_stopping();
        let sent = self.send(reply, Some(head), keep_alive);
        match (sent, keep_alive) {
            (true, true) => Next::KeepAlive,
            (true, false) => Next::Close,
            (false, _) => Next::Gone,
        }
    }

    /// The next head and its length, which are left in `ahead`; `None` when the client has gone or is idle.
    fn read_head(&self, ahead: &mut Vec<u8>) -> Result<Option<(Head, usize)>, Problem> {
        let limits = &self.shared.config.limits;
        let mut until = Instant::now() + if ahead.is_empty() { limits.idle_time } else { limits.head_time };
        let mut buffer = [0; READ_BYTES];
        loop {
            skip_blank_line(ahead);
            if !ahead.is_empty()
                && let Some(found) = head::parse(ahead, limits)?
            {
                return Ok(Some(found));
            }
            match read_until(&self.stream, &mut buffer, until) {
                Ok(0) => return Ok(None),
                Ok(n) => {
                    if ahead.is_empty() {
                        until = Instant::now() + limits.head_time;
                    }
                    ahead.extend_from_slice(&buffer[..n]);
                }
                Err(error) if error.kind() == ErrorKind::TimedOut && !ahead.is_empty() => {
                    let seconds = limits.head_time.as_secs();
                    let text = format!("the request head did not arrive within {seconds} s");
                    return Err(Problem::new(408, "request_timeout", text));
                }
                Err(_) => return Ok(None),
            }
        }
    }

    fn read_body(&self, head: &Head, limit: usize, ahead: &mut Vec<u8>) -> Result<Vec<u8>, BodyError> {
        let limits = &self.shared.config.limits;
        if head.expects_continue && ahead.is_empty() {
            let too_large = matches!(head.framing, head::Framing::Length(length) if length > limit);
            let until = Instant::now() + limits.write_time;
            if !too_large && write_until(&self.stream, b"HTTP/1.1 100 Continue\r\n\r\n", until).is_err() {
                return Err(BodyError::Gone);
            }
        }
        self.shared.waits(self.id, Waits::ForBody);
        let body = Input::new(&self.stream, ahead, limits).body(head.framing, limit);
        self.shared.waits(self.id, Waits::No);
        body
    }

    fn request(&self, head: &Head, body: Vec<u8>) -> Request {
        Request {
            method: head.method.clone(),
            path: head.path.clone(),
            base: head.base.clone(),
            segments: head.segments.clone(),
            query: head.query.clone(),
            headers: head.headers.clone(),
            body,
            peer: self.ends.peer,
            caller: Arc::clone(&self.ends.holder),
            local: self.ends.local,
        }
    }

    /// Lets the service answer; a panic there is a 500 and the connection goes on.
    fn answer(&self, request: &Request) -> Reply {
        let service = &self.shared.service;
        if request.method == Method::Options && request.path == "/" {
            return Reply::no_content().with_header("Allow", "GET, HEAD, OPTIONS");
        }
        catch_unwind(AssertUnwindSafe(|| service.handle(request))).unwrap_or_else(|_| {
            log::error!("handling {} {} panicked", request.method, request.path);
            Problem::new(500, "internal", "this request met a bug in the server; it goes on").into()
        })
    }

    fn upgrade(&self, head: &Head, subscription: ws::Subscription, left: Vec<u8>) -> Result<(), Problem> {
        let accept = ws::check_upgrade(head)?;
        let stream = self.stream.try_clone().map_err(|error| {
            Problem::new(503, "no_descriptor", format!("the server is out of files: {error}"))
        })?;
        let session = subscription.open(stream)?;
        let reply = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        let until = Instant::now() + self.shared.config.limits.write_time;
        if write_until(&self.stream, reply.as_bytes(), until).is_ok() {
            self.shared.stats.answered(101);
            session.run(left);
        }
        Ok(())
    }

    fn refuse(&self, head: Option<&Head>, problem: Problem) -> Next {
        if self.send(&problem.into(), head, false) { Next::Close } else { Next::Gone }
    }

    fn send(&self, reply: &Reply, head: Option<&Head>, keep_alive: bool) -> bool {
        let (first, rest) = encode(reply, head, keep_alive, &self.shared.config);
        self.shared.stats.answered(reply.status);
        let until = Instant::now() + self.shared.config.limits.write_time;
        self.shared.waits(self.id, Waits::ToBeRead);
        write_until(&self.stream, &first, until).is_ok() && write_until(&self.stream, rest, until).is_ok()
    }

    /// Closes our side and drops what still comes, for a moment.
    fn linger(&self) {
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let until = Instant::now() + LINGER;
        let mut buffer = [0; READ_BYTES];
        let mut dropped = 0;
        while dropped < LINGER_BYTES {
            match read_until(&self.stream, &mut buffer, until) {
                Ok(n) if n > 0 => dropped += n,
                _ => return,
            }
        }
    }
}

/// A client may send a blank line after a body (RFC 9112, 2.2).
fn skip_blank_line(ahead: &mut Vec<u8>) {
    if ahead.starts_with(b"\r\n") {
        ahead.drain(..2);
    }
}
