//! Posting messages over HTTP: a thread that does it, and what is told of an answer that is no yes.

use crate::threads::Line;
use std::io::{self, Read};
use ureq::http::Response;
use ureq::{Agent, Body};

/// Stack of a thread: TLS needs more than a line of text.
const STACK_BYTES: usize = 1 << 20;
/// Messages that wait for one thread; whoever gives them gives one at a time.
const WAITING: usize = 2;
/// Bytes of an answer that are read, to say why a try failed.
const ANSWER_BYTES: u64 = 400;

/// Starts a thread that does `post` for one message after the other. The request under way is cut with it.
///
/// Errors: no thread.
pub fn line<T: Send + 'static>(
    name: &str,
    agent: Agent,
    mut post: impl FnMut(&Agent, T) + Send + 'static,
) -> io::Result<Line<T>> {
    let cut = agent.clone();
    let cut = move || cut.clone().shutdown();
    Line::start(name, STACK_BYTES, WAITING, cut, move |message| post(&agent, message))
}

/// Why a message was not taken: the status, and the first line of what the answer says beside.
pub fn refusal(response: &mut Response<Body>) -> String {
    let mut said = Vec::new();
    // What cannot be read is not told.
    let _ = response.body_mut().as_reader().take(ANSWER_BYTES).read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    let status = response.status().as_u16();
    let why = format!("status {status}: {}", said.trim().lines().next().unwrap_or_default());
    why.trim_end_matches([' ', ':']).to_owned()
}
