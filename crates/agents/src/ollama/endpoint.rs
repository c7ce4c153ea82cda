//! The endpoint: its address, its requests, its failures.

use super::stream::{Assembler, Reply, error_words};
use serde_json::{Value, json};
use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;
use svc_providers::Activity;
use svc_providers::limit::{self, Kind, Limit, Source};
use svc_providers::native::cut;
use svc_providers::ollama::{HOST_VARIABLE, KEY_VARIABLE, URL_VARIABLE};
use svc_sys::http::client;

const DEFAULT_HOST: &str = "127.0.0.1";
const DEFAULT_PORT: &str = "11434";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Until the first byte: a server may have to load a large model.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Between two pieces of an answer.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// For one answer in all.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Requests per answer, retries included.
const ATTEMPTS: u32 = 5;
/// Before the first retry; doubled for each further one.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// An endpoint may ask for a longer delay than ours. Up to this it is waited for here; one that asks for more
/// is not asked again before: the daemon is told of it.
const DELAY_LIMIT: Duration = Duration::from_secs(60);

/// How long a look whether anybody listens may take at each of the first addresses.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
const LOOK_ADDRESSES_MAX: usize = 2;
/// One line of a stream.
const LINE_LIMIT_BYTES: u64 = 16 * 1024 * 1024;
const ERROR_BODY_LIMIT_BYTES: u64 = 64 * 1024;
const ERROR_WORDS_LIMIT_BYTES: usize = 1024;

/// Where the model is.
#[derive(Debug)]
pub struct Endpoint {
    /// Without a slash at its end, for example `http://127.0.0.1:11434/v1`.
    base: String,
    key: Option<String>,
    model: String,
    effort: Option<String>,
    agent: ureq::Agent,
}

/// How one attempt failed.
struct Failure {
    /// For people.
    words: String,
    /// The status, where another attempt may help, and how long the endpoint asks to wait.
    retry: Option<(u16, Option<Duration>)>,
    /// It cannot be reached.
    is_away: bool,
}

impl Failure {
    fn last(words: String) -> Self {
        Self { words, retry: None, is_away: false }
    }
}

impl Failure {
    /// What it says of a limit.
    fn limit(&self) -> Option<Limit> {
        if self.is_away {
            return Some(Limit::new(Kind::Network, Source::Error));
        }
        let (status, asked) = self.retry?;
        let mut limit = limit::of_failure(Some(u64::from(status)), &self.words)?;
        limit.resets_in_ms = asked.and_then(|asked| u64::try_from(asked.as_millis()).ok());
        Some(limit)
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The base address that the environment names.
fn base_address() -> String {
    let base =
        variable(URL_VARIABLE).unwrap_or_else(|| base_of_host(&variable(HOST_VARIABLE).unwrap_or_default()));
    base.trim().trim_end_matches('/').to_owned()
}

/// Whether anybody listens at the endpoint that the environment names: its address, either way.
pub fn look() -> Result<String, String> {
    let shown = without_user(&base_address());
    let rest = shown.split_once("://").map_or(shown.as_str(), |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    let port = if shown.starts_with("https") { ":443" } else { ":80" };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let place = if has_port { host.to_owned() } else { format!("{host}{port}") };
    let addresses = place.to_socket_addrs().into_iter().flatten().take(LOOK_ADDRESSES_MAX);
    let listens = addresses.into_iter().any(|at| TcpStream::connect_timeout(&at, LOOK_TIMEOUT).is_ok());
    if listens { Ok(shown) } else { Err(shown) }
}

impl Endpoint {
    /// The endpoint that the environment names.
    ///
    /// Errors: its address is not one of http.
    pub fn from_environment(model: String, effort: Option<String>) -> Result<Self, String> {
        let base = base_address();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(format!("{URL_VARIABLE} must begin with http:// or https://, it is `{base}`"));
        }
        let agent = client::strict()
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(FIRST_BYTE_TIMEOUT))
            .timeout_per_read(Some(SILENCE_TIMEOUT))
            .timeout_global(Some(ANSWER_TIMEOUT))
            .build()
            .into();
        Ok(Self { base, key: variable(KEY_VARIABLE), model, effort, agent })
    }

    /// The body of a request.
    pub fn body(&self, messages: &[Value], tools: &Value) -> Vec<u8> {
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "tools": tools,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let Some(effort) = &self.effort {
            body["reasoning_effort"] = json!(effort);
        }
        body.to_string().into_bytes()
    }

    /// One answer. Whole paragraphs, and retries as trouble, go to `emit` at once.
    ///
    /// Errors: a sentence with the endpoint's own words.
    pub fn ask(&self, body: &[u8], emit: &mut dyn FnMut(Activity)) -> Result<Reply, String> {
        let mut delay = FIRST_DELAY;
        for attempt in 1.. {
            let failure = match self.attempt(body, emit) {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let is_far = |asked: &Option<Duration>| asked.is_some_and(|delay| delay > DELAY_LIMIT);
            let again = failure.retry.filter(|(_, asked)| attempt < ATTEMPTS && !is_far(asked));
            let Some((status, asked)) = again else {
                if let Some(limit) = failure.limit() {
                    emit(Activity::Limit(limit));
                }
                return Err(failure.words);
            };
            let text = format!("retry {attempt} of {} after error {status}: {}", ATTEMPTS - 1, failure.words);
            emit(Activity::Trouble { text });
            thread::sleep(asked.unwrap_or(delay));
            delay *= 2;
        }
        Err(format!("no answer in {ATTEMPTS} attempts"))
    }

    fn attempt(&self, body: &[u8], emit: &mut dyn FnMut(Activity)) -> Result<Reply, Failure> {
        let mut request = self
            .agent
            .post(format!("{}/chat/completions", self.base))
            .header("Content-Type", "application/json")
            .header("Accept", "text/event-stream");
        if let Some(key) = &self.key {
            request = request.header("Authorization", format!("Bearer {key}"));
        }
        let unreachable = |error: ureq::Error| {
            let words = format!("cannot reach {}: {error}", without_user(&self.base));
            Failure { is_away: true, ..Failure::last(words) }
        };
        let response = request.send(body).map_err(unreachable)?;
        if response.status() != 200 {
            return Err(refused(response));
        }
        let mut assembler = Assembler::default();
        let mut lines = BufReader::new(response.into_body().into_reader());
        while !assembler.is_done() {
            match next_line(&mut lines) {
                Ok(Some(line)) => assembler.line(&line, emit).map_err(Failure::last)?,
                Ok(None) => break,
                Err(error) => {
                    // What has come is shown; that it is not whole is the error.
                    let cut = assembler.end(emit).err().unwrap_or_default();
                    return Err(Failure::last(format!("{cut}: {error}")));
                }
            }
        }
        assembler.end(emit).map_err(Failure::last)
    }
}

/// The next line without its newline; `None` at the end of the stream.
fn next_line(lines: &mut impl BufRead) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    let read = lines.take(LINE_LIMIT_BYTES).read_until(b'\n', &mut line);
    match read {
        Ok(0) => Ok(None),
        Ok(_) if line.len() as u64 == LINE_LIMIT_BYTES => {
            Err(format!("a line has more than {LINE_LIMIT_BYTES} bytes"))
        }
        Ok(_) => Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned())),
        Err(error) => Err(error.to_string()),
    }
}

fn refused(response: ureq::http::Response<ureq::Body>) -> Failure {
    let status = response.status().as_u16();
    let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let asked = header.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
    let mut bytes = Vec::new();
    let body = response.into_body().into_reader().take(ERROR_BODY_LIMIT_BYTES).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let told = serde_json::from_slice(text.as_bytes()).ok().and_then(|body: Value| error_words(&body));
    let words = told.unwrap_or_else(|| match body {
        Ok(_) => text.trim().to_owned(),
        Err(error) => error.to_string(),
    });
    let colon = if words.is_empty() { "" } else { ": " };
    let words = format!("the endpoint answered {status}{colon}{}", cut(&words, ERROR_WORDS_LIMIT_BYTES));
    let may_pass = matches!(status, 408 | 429 | 500 | 502 | 503 | 504 | 529);
    Failure { words, retry: may_pass.then_some((status, asked)), is_away: false }
}

/// The base address for what `OLLAMA_HOST` may hold: `host`, `host:port`, `:port`, each with or without a
/// scheme. A server listens on 0.0.0.0, but nobody can be reached there.
fn base_of_host(host: &str) -> String {
    let (scheme, rest) = host.trim().split_once("://").unwrap_or(("http", host.trim()));
    let rest = rest.trim_end_matches('/');
    let default_port = if scheme == "https" { "443" } else { DEFAULT_PORT };
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => (name, port),
        _ => (rest, default_port),
    };
    let name = if matches!(name, "" | "0.0.0.0" | "[::]") { DEFAULT_HOST } else { name };
    format!("{scheme}://{name}:{port}/v1")
}

/// An address as it may be shown: a password in it stays hidden.
fn without_user(base: &str) -> String {
    match (base.split_once("://"), base.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => base.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_host_has_many_forms() {
        let cases = [
            ("", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0", "http://127.0.0.1:11434/v1"),
            ("0.0.0.0:9", "http://127.0.0.1:9/v1"),
            (":9", "http://127.0.0.1:9/v1"),
            ("box", "http://box:11434/v1"),
            ("http://box:9/", "http://box:9/v1"),
            ("https://box", "https://box:443/v1"),
            ("[::1]", "http://[::1]:11434/v1"),
            ("[::1]:9", "http://[::1]:9/v1"),
        ];
        for (host, base) in cases {
            assert_eq!(base_of_host(host), base, "{host}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        assert_eq!(without_user("https://me:secret@box/v1"), "https://box/v1");
        assert_eq!(without_user("http://box/v1"), "http://box/v1");
    }
}
