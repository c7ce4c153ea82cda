//! Where the daemon is, and how to talk to it: plain HTTP on this machine.

use super::progress::during;
use super::session::Failure;
use serde_json::Value;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use svc_base::words::with_commands;

/// Calls that the daemon answers from memory.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Calls that start or end processes, or ask a model; the daemon's own limit for these is 60 s.
pub const LONG_CALL_TIMEOUT: Duration = Duration::from_secs(90);
/// Largest answer that is read: 64 MiB.
const ANSWER_LIMIT_BYTES: u64 = 64 << 20;

/// What decides where the daemon is.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `--project`.
    pub project: Option<PathBuf>,
    /// `--url`.
    pub url: Option<String>,
    /// The current folder.
    pub folder: PathBuf,
    /// `SVC_DAEMON_URL`, which the daemon sets for its agents.
    pub env_url: Option<String>,
    /// `SVC_AGENT_ID`, likewise.
    pub agent_id: Option<String>,
}

/// Where a daemon should be, and how that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Without a slash at the end.
    pub url: String,
    /// The project, if it was found by its folder.
    pub project: Option<PathBuf>,
    /// For messages: what named the address.
    pub source: String,
}

impl Surroundings {
    /// The project: `--project`, else the nearest folder from here upwards with a `.svc` in it.
    pub fn project_dir(&self) -> Option<PathBuf> {
        if let Some(given) = &self.project {
            return Some(self.folder.join(given));
        }
        self.folder.ancestors().find(|dir| dir.join(".svc").is_dir()).map(Path::to_path_buf)
    }

    /// The project for commands that make one where there is none: `--project`, the nearest one, or here.
    pub fn project_dir_or_here(&self) -> PathBuf {
        self.project_dir().unwrap_or_else(|| self.folder.clone())
    }

    /// The daemon's address: an explicit `--url`, else the port file of the project, else `SVC_DAEMON_URL`.
    ///
    /// Errors: no daemon runs here; says how to start one.
    pub fn find(&self) -> Result<Address, Failure> {
        if let Some(url) = &self.url {
            let url = checked_url(url, "--url")?;
            return Ok(Address { url, project: self.project.clone(), source: "--url".into() });
        }
        let project = self.project_dir();
        if let (Some(dir), true) = (&project, self.project.is_some())
            && !dir.is_dir()
        {
            let dir = dir.display();
            return Err(Failure::failed(format!(
                "there is no folder {dir}; --project names the project's folder"
            )));
        }
        if let Some(project) = &project {
            let file = project.join(".svc").join("daemon.port");
            match std::fs::read_to_string(&file) {
                Ok(text) => {
                    let url = port_file_url(&text).ok_or_else(|| {
                        let file = file.display();
                        Failure::failed(format!("{file} holds no port; remove it and run 'svc start'"))
                    })?;
                    let source = file.display().to_string();
                    return Ok(Address { url, project: Some(project.clone()), source });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Failure::failed(format!("{} cannot be read: {error}", file.display())));
                }
            }
        }
        if let (Some(url), None) = (&self.env_url, &self.project) {
            let url = checked_url(url, "SVC_DAEMON_URL")?;
            return Ok(Address { url, project, source: "SVC_DAEMON_URL".into() });
        }
        Err(Failure::failed(match project {
            Some(dir) => {
                let dir = dir.display();
                format!("no daemon runs for {dir}; start one with 'svc start --background'")
            }
            None => format!(
                "{} is in no project: there is no .svc folder here or above; start a daemon in your \
                     project's \
                 folder with 'svc start --background', or name it with --project DIR",
                self.folder.display()
            ),
        }))
    }
}

fn checked_url(url: &str, source: &str) -> Result<String, Failure> {
    let rest = url.strip_prefix("http://").unwrap_or_default();
    if rest.is_empty() || rest.contains(char::is_whitespace) {
        return Err(Failure::usage(format!("{source} must look like http://127.0.0.1:31415, it is '{url}'")));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// The URL of a port file: a port, or `address:port` for a daemon that is bound to another interface.
pub fn port_file_url(text: &str) -> Option<String> {
    let text = text.trim();
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let port: u16 = port.parse().ok()?;
    (port > 0 && !host.is_empty()).then(|| format!("http://{host}:{port}"))
}

/// Why a call got no good answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    NothingListens,
    /// The daemon refused: status, stable code, sentence.
    Refused {
        status: u16,
        /// The API's `code`.
        code: String,
        /// The API's `error`.
        error: String,
    },
    /// Everything else: no answer in time, an answer that is not JSON.
    Other(String),
}

/// A client of one daemon.
pub struct Client {
    address: Address,
    token: Option<String>,
    /// Whether this program hides its memory, and with it that it holds the connection, because it was given
    /// `SVC_OPERATOR_TOKEN`.
    is_hidden: bool,
    agent: ureq::Agent,
    /// What the terminal shows while a call takes long; nothing when it is empty.
    doing: &'static str,
}

impl Client {
    /// A client of the daemon at this address, with the project's token if there is one.
    pub fn new(address: Address) -> Result<Self, Failure> {
        let given = std::env::var("SVC_OPERATOR_TOKEN").ok().map(|token| token.trim().to_owned());
        let given = given.filter(|token| !token.is_empty());
        let is_hidden = given.is_some();
        let token = match address.project.as_ref().map(|dir| dir.join(".svc").join("token")) {
            _ if given.is_some() => given,
            None => None,
            Some(file) => match std::fs::read_to_string(&file) {
                Ok(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => {
                    return Err(Failure::failed(format!("{} cannot be read: {error}", file.display())));
                }
            },
        };
        // A proxy from the environment must never see, or break, calls to this machine.
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(CALL_TIMEOUT))
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .build();
        Ok(Self { address, token, is_hidden, agent: config.new_agent(), doing: "" })
    }

    /// This client, telling on the terminal what a call is about that takes longer than a moment.
    #[must_use]
    pub fn doing(mut self, words: &'static str) -> Self {
        self.doing = words;
        self
    }

    /// Where it talks to.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// `GET`.
    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call("GET", path, None)
    }

    /// `POST` with a body.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.call("POST", path, Some(body))
    }

    /// Any call, with its error in words.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        self.try_call(method, path, body).map_err(|error| self.explain(error))
    }

    /// Any call. Those that change something get the long time-out.
    pub fn try_call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, CallError> {
        during(!self.doing.is_empty(), self.doing, || self.send(method, path, body))
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, CallError> {
        // Listing tools may start a server.
        let is_quick = method == "GET" && !path.ends_with("/tools");
        let timeout = if is_quick { CALL_TIMEOUT } else { LONG_CALL_TIMEOUT };
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.address.url))
            .header("accept", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let wrong =
            |error: ureq::http::Error| CallError::Other(format!("the request cannot be made: {error}"));
        let sent = match body {
            None => {
                let request = request.body(()).map_err(wrong)?;
                self.agent.run(self.agent.configure_request(request).timeout_global(Some(timeout)).build())
            }
            Some(body) => {
                let request = request.header("content-type", "application/json");
                let request = request.body(body.to_string()).map_err(wrong)?;
                self.agent.run(self.agent.configure_request(request).timeout_global(Some(timeout)).build())
            }
        };
        let mut response = sent.map_err(|error| network(&error, timeout))?;
        let status = response.status().as_u16();
        let text = response
            .body_mut()
            .with_config()
            .limit(ANSWER_LIMIT_BYTES)
            .read_to_string()
            .map_err(|error| network(&error, timeout))?;
        read_answer(status, &text)
    }

    /// The words for a call that failed.
    pub fn explain(&self, error: CallError) -> Failure {
        let Address { url, project, source } = &self.address;
        Failure::failed(match error {
            CallError::Refused { code, error, .. } if code == "prove_yourself" && self.is_hidden => format!(
                "{}; the SVC_OPERATOR_TOKEN of this svc is not the daemon's: unset it, or start the daemon \
                 with the same",
                with_commands(&error)
            ),
            CallError::Refused { error, .. } => with_commands(&error),
            CallError::Other(error) => format!("{error} (asked {url})"),
            CallError::NothingListens if source.ends_with("daemon.port") => {
                let dir = project.as_ref().map(|dir| dir.display().to_string()).unwrap_or_default();
                format!(
                    "nothing answers at {url}: the port file {source} is stale, its daemon has ended without \
                     removing it; start a new one with 'svc start --background --project {dir}'"
                )
            }
            CallError::NothingListens => format!(
                "nothing answers at {url}, which {source} names; check it, or start a daemon with 'svc start'"
            ),
        })
    }
}

fn read_answer(status: u16, text: &str) -> Result<Value, CallError> {
    let value = if text.is_empty() { Ok(Value::Null) } else { serde_json::from_str::<Value>(text) };
    if (200..300).contains(&status) {
        return value.map_err(|_| CallError::Other("the answer is not JSON: is this an svc daemon?".into()));
    }
    let value = value.unwrap_or_default();
    let word = |name: &str| value[name].as_str().map(ToOwned::to_owned);
    Err(CallError::Refused {
        status,
        code: word("code").unwrap_or_default(),
        error: word("error")
            .unwrap_or_else(|| format!("the answer is status {status}: is this an svc daemon?")),
    })
}

fn network(error: &ureq::Error, timeout: Duration) -> CallError {
    match error {
        ureq::Error::ConnectionFailed => CallError::NothingListens,
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            CallError::NothingListens
        }
        ureq::Error::Timeout(_) => {
            CallError::Other(format!("the daemon gave no answer within {} s", timeout.as_secs()))
        }
        error => CallError::Other(format!("the connection to the daemon failed: {error}")),
    }
}

/// A text as one segment of a path, or as a value of a query.
pub fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_files_hold_a_port_or_an_address_with_a_port() {
        assert_eq!(port_file_url("31415\n").as_deref(), Some("http://127.0.0.1:31415"));
        assert_eq!(port_file_url("10.0.0.5:31416").as_deref(), Some("http://10.0.0.5:31416"));
        for bad in ["", "0", "x", "70000", ":1", "31415 x"] {
            assert_eq!(port_file_url(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn texts_survive_in_a_path() {
        assert_eq!(encode("a b/ü?2026-01-01T00:00:00Z"), "a%20b%2F%C3%BC%3F2026-01-01T00%3A00%3A00Z");
    }

    #[test]
    fn an_explicit_url_wins_and_must_be_http() {
        let at = |url: &str| Surroundings { url: Some(url.into()), ..Surroundings::default() }.find();
        assert_eq!(at("http://127.0.0.1:7/").unwrap().url, "http://127.0.0.1:7");
        for bad in ["", "127.0.0.1:7", "https://x", "http://", "http://a b"] {
            assert!(matches!(at(bad), Err(Failure::Say { code: 2, .. })), "{bad:?}");
        }
    }

    #[test]
    fn decisions_1_problems_are_read_and_other_answers_are_told_as_such() {
        let problem = r#"{"error":"no agent x","code":"not_found","status":404}"#;
        let refused = |code: &str, error: &str| CallError::Refused {
            status: 404,
            code: code.into(),
            error: error.into(),
        };
        assert_eq!(read_answer(404, problem), Err(refused("not_found", "no agent x")));
        assert_eq!(
            read_answer(404, "<html>"),
            Err(refused("", "the answer is status 404: is this an svc daemon?"))
        );
        assert_eq!(read_answer(204, ""), Ok(Value::Null));
        assert!(matches!(read_answer(200, "<html>"), Err(CallError::Other(_))));
    }
}
