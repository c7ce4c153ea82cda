//! Asking others over HTTP: the client, a thread that posts messages, and what an answer says that is no yes.

use crate::threads::Line;
use std::io::{self, Read};
use std::time::Duration;
use ureq::config::ConfigBuilder;
use ureq::http::Response;
use ureq::typestate::AgentScope;
use ureq::{Agent, Body};

/// One try of a thread that posts, answer included.
pub const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// Until a connection of such a thread stands.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Stack of a thread: TLS needs more than a line of text.
const STACK_BYTES: usize = 1 << 20;
/// Messages that wait for one thread; whoever gives them gives one at a time.
const WAITING: usize = 2;
/// Bytes of an answer that are read, to say why a try failed.
const ANSWER_BYTES: u64 = 400;

/// What every client is made of. It goes where it is sent and nowhere else: a redirect, which could carry a
/// secret to another place, is an answer like any other status, and no error.
#[allow(clippy::disallowed_methods, reason = "this is where it is made strict")]
pub fn strict() -> ConfigBuilder<AgentScope> {
    Agent::config_builder().http_status_as_error(false).max_redirects(0).max_redirects_will_error(false)
}

/// [`strict`], for a thread that posts.
pub fn poster(user_agent: &'static str) -> ConfigBuilder<AgentScope> {
    let client = strict().timeout_connect(Some(CONNECT_TIMEOUT)).timeout_global(Some(TRY_TIMEOUT));
    client.user_agent(user_agent)
}

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
