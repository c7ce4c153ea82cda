//! Where the daemon is, and how to talk to it: plain HTTP on this machine.

use super::control::lock_is_held;
use super::progress::during;
use super::session::Failure;
use serde_json::Value;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
pub use svc_base::percent::encode;
use svc_base::words::with_commands;
use svc_sys::http::client;
use svc_sys::{regular, secrets};

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
        /// Whether it would help that the daemon sees who calls.
        seen_helps: bool,
    },
    /// Everything else: no answer in time, an answer that is not JSON.
    Other(String),
}

/// What a client shows of itself.
enum Proof {
    /// The daemon sees who calls, or nobody proves anything.
    Nothing,
    /// The token of an agent, whose program this is.
    Agent(String),
    /// `SVC_OPERATOR_TOKEN`.
    Operator(String),
    /// Where the person's token is. It is read for each call, for each start of the daemon makes another.
    File(PathBuf),
}

impl Proof {
    /// What is shown to the daemon at this address, and to nobody else: an agent's token to the daemon that
    /// gave it, a person's to that of their own project.
    fn of(address: &Address, variable: impl Fn(&str) -> Option<String>) -> Self {
        let own = |name: &str| {
            let value = variable(name).map(|value| value.trim().to_owned());
            value.filter(|value| !value.is_empty())
        };
        if own("SVC_AGENT_ID").is_some() {
            let is_its_daemon = own("SVC_DAEMON_URL").is_some_and(|url| is_same(&url, &address.url));
            return match own(secrets::AGENT_TOKEN).filter(|_| is_its_daemon) {
                Some(token) => Self::Agent(token),
                None => Self::Nothing,
            };
        }
        if let Some(token) = own(secrets::OPERATOR_TOKEN) {
            let is_trusted = address.source == "--url" || is_own_daemon(address);
            return if is_trusted { Self::Operator(token) } else { Self::Nothing };
        }
        let Some(folder) = address.project.as_ref().map(|dir| dir.join(".svc")) else {
            return Self::Nothing;
        };
        let port_file = std::fs::read_to_string(folder.join("daemon.port")).unwrap_or_default();
        let is_own = port_file_url(&port_file).is_some_and(|url| is_same(&url, &address.url));
        // Somebody else may listen where a daemon that has ended did.
        let is_alive = address.project.as_deref().is_some_and(lock_is_held);
        if is_own && is_alive && is_of_this_machine(&address.url) {
            Self::File(folder.join("token"))
        } else {
            Self::Nothing
        }
    }

    /// The token, if there is one.
    fn token(&self) -> Result<Option<String>, CallError> {
        match self {
            Self::Nothing => Ok(None),
            Self::Agent(token) | Self::Operator(token) => Ok(Some(token.clone())),
            // A link may lead to the token of another project.
            Self::File(file) if file.is_symlink() => Ok(None),
            Self::File(file) => match regular::read_text(file) {
                Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
                {
                    Ok(None)
                }
                Err(error) => Err(CallError::Other(format!("{} cannot be read: {error}", file.display()))),
            },
        }
    }
}

/// Whether the daemon that a port file names is one that holds the lock of its project, on this machine. In
/// a folder below another project an agent of that one may have made both files, and listen there.
fn is_own_daemon(address: &Address) -> bool {
    let Some(project) = &address.project else { return false };
    let project = project.canonicalize().unwrap_or_else(|_| project.clone());
    let is_below = project.ancestors().skip(1).any(|dir| dir.join(".svc/daemon.lock").exists());
    !is_below && is_of_this_machine(&address.url) && lock_is_held(&project)
}

/// Whether two URLs lead to one place; `localhost` is the loopback address.
fn is_same(a: &str, b: &str) -> bool {
    let plain = |url: &str| url.trim_end_matches('/').replacen("//localhost:", "//127.0.0.1:", 1);
    plain(a) == plain(b)
}

/// Whether a URL names this machine by one of its addresses.
fn is_of_this_machine(url: &str) -> bool {
    let host =
        url.strip_prefix("http://").and_then(|rest| rest.rsplit_once(':')).map_or("", |(host, _)| host);
    let ip = match host {
        "localhost" => return true,
        host => host.trim_matches(['[', ']']).parse::<IpAddr>(),
    };
    ip.is_ok_and(|ip| ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok())
}

/// A client of one daemon.
///
/// This program hides its memory. Where it shows nothing of a person's, or the daemon takes nobody for a
/// person who is not seen, it lets itself be seen for as long as a call takes.
pub struct Client {
    address: Address,
    proof: Proof,
    agent: ureq::Agent,
    /// What the terminal shows while a call takes long; nothing when it is empty.
    doing: &'static str,
    /// Calls may take this long; by their kind where it is not said.
    limit: Option<Duration>,
}

/// Nothing is kept open from call to call of another kind: who holds a connection is asked once for each.
fn connections() -> ureq::Agent {
    // A proxy from the environment must never see, or break, calls to this machine.
    client::strict().timeout_global(Some(CALL_TIMEOUT)).proxy(None).build().new_agent()
}

/// Calls under way for which this program lets itself be seen.
static SEEN: Mutex<u32> = Mutex::new(0);

/// Lets the daemon see this program, until the last of these is dropped.
struct Seen;

impl Seen {
    fn begin() -> Self {
        let mut calls = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        *calls += 1;
        secrets::show_memory();
        Self
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        let mut calls = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        *calls -= 1;
        if *calls == 0 {
            secrets::keep_memory();
        }
    }
}

impl Client {
    /// A client of the daemon at this address, which shows what there is to show.
    pub fn new(address: Address) -> Result<Self, Failure> {
        let proof = Proof::of(&address, |name| std::env::var(name).ok());
        Ok(Self { address, proof, agent: connections(), doing: "", limit: None })
    }

    /// This client, telling on the terminal what a call is about that takes longer than a moment.
    #[must_use]
    pub fn doing(mut self, words: &'static str) -> Self {
        self.doing = words;
        self
    }

    /// This client, whose calls take no longer than this.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
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
        let token = self.proof.token()?;
        // An agent has its token in its environment anyway.
        let _seen = (token.is_none() || matches!(self.proof, Proof::Agent(_))).then(Seen::begin);
        let answer = self.send_by(&self.agent, method, path, body, token.as_deref());
        let is_in_a_file = matches!(self.proof, Proof::File(_));
        match answer {
            // Whoever could read this memory meanwhile can read that file.
            Err(CallError::Refused { seen_helps: true, .. }) if is_in_a_file => {
                let _seen = Seen::begin();
                self.send_by(&connections(), method, path, body, token.as_deref())
            }
            answer => answer,
        }
    }

    fn send_by(
        &self,
        agent: &ureq::Agent,
        method: &str,
        path: &str,
        body: Option<&Value>,
        token: Option<&str>,
    ) -> Result<Value, CallError> {
        // Listing tools may start a server.
        let is_quick = method == "GET" && !path.ends_with("/tools");
        let usual = if is_quick { CALL_TIMEOUT } else { LONG_CALL_TIMEOUT };
        let (timeout, url) = (self.limit.unwrap_or(usual), &self.address.url);
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{url}{path}"))
            .header("accept", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let wrong =
            |error: ureq::http::Error| CallError::Other(format!("the request cannot be made: {error}"));
        let sent = match body {
            None => {
                let request = request.body(()).map_err(wrong)?;
                agent.run(agent.configure_request(request).timeout_global(Some(timeout)).build())
            }
            Some(body) => {
                let request = request.header("content-type", "application/json");
                let request = request.body(body.to_string()).map_err(wrong)?;
                agent.run(agent.configure_request(request).timeout_global(Some(timeout)).build())
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
            CallError::Refused { code, error, .. }
                if code == "prove_yourself" && matches!(self.proof, Proof::Operator(_)) =>
            {
                format!(
                    "{}; the SVC_OPERATOR_TOKEN of this svc is not the daemon's: unset it, or start the daemon \
                 with the same",
                    with_commands(&error)
                )
            }
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
    let value =
        if text.is_empty() { Ok(Value::Null) } else { serde_json::from_slice::<Value>(text.as_bytes()) };
    if (200..300).contains(&status) {
        return value.map_err(|_| CallError::Other("the answer is not JSON: is this an svc daemon?".into()));
    }
    let value = value.unwrap_or_default();
    let word = |name: &str| value[name].as_str().map(ToOwned::to_owned);
    Err(CallError::Refused {
        status,
        seen_helps: value["seenHelps"] == true || value["code"] == "too_many_connections",
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
    fn a_token_is_shown_to_the_daemon_that_it_is_of_and_to_nobody_else() {
        let project = std::env::temp_dir().join(format!("svc-proof-{}", std::process::id()));
        std::fs::create_dir_all(project.join(".svc")).unwrap();
        std::fs::write(project.join(".svc/daemon.port"), "31415\n").unwrap();
        std::fs::write(project.join(".svc/token"), "the-file\n").unwrap();
        let shown = |url: &str, source: &str, variables: &[(&str, &str)]| {
            let project = Some(project.clone());
            let address = Address { url: url.into(), project, source: source.into() };
            let of = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            Proof::of(&address, of).token().unwrap().unwrap_or_default()
        };
        let own = "http://127.0.0.1:31415";
        let operator = [("SVC_OPERATOR_TOKEN", " secret\n")];
        for nothing in [&[][..], &operator] {
            assert_eq!(shown(own, "daemon.port", nothing), "", "nothing holds the project's lock");
        }
        let lock = std::fs::File::create(project.join(".svc/daemon.lock")).unwrap();
        lock.lock().unwrap();
        for (url, source, token) in [
            (own, "daemon.port", "the-file"),
            ("http://localhost:31415", "--url", "the-file"),
            ("http://127.0.0.1:31416", "--url", ""),
            ("http://192.0.2.1:31415", "--url", ""),
            ("http://example.org:31415", "--url", ""),
        ] {
            assert_eq!(shown(url, source, &[]), token, "{url}");
        }
        assert_eq!(shown(own, "daemon.port", &operator), "secret");
        assert_eq!(shown("http://192.0.2.1:1", "--url", &operator), "secret", "a person has named it");
        for planted in ["http://192.0.2.1:1", "http://example.org:1"] {
            assert_eq!(shown(planted, "x/.svc/daemon.port", &operator), "", "a file in a repository has");
            std::fs::write(project.join(".svc/daemon.port"), &planted[7..]).unwrap();
            assert_eq!(shown(planted, "x/.svc/daemon.port", &[]), "");
        }
        std::fs::write(project.join(".svc/daemon.port"), "31415\n").unwrap();
        let mut agent =
            vec![("SVC_AGENT_ID", "a"), ("SVC_AGENT_TOKEN", "of-the-agent"), ("SVC_DAEMON_URL", own)];
        assert_eq!(shown(own, "SVC_DAEMON_URL", &agent), "of-the-agent");
        assert_eq!(shown("http://127.0.0.1:31416", "--url", &agent), "", "another daemon");
        agent.push(("SVC_OPERATOR_TOKEN", "secret"));
        assert_eq!(shown(own, "SVC_DAEMON_URL", &agent), "of-the-agent", "an agent shows no person's token");
        std::fs::rename(project.join(".svc/token"), project.join(".svc/of-another")).unwrap();
        assert_eq!(shown(own, "daemon.port", &[]), "");
        std::os::unix::fs::symlink(project.join(".svc/of-another"), project.join(".svc/token")).unwrap();
        assert_eq!(shown(own, "daemon.port", &[]), "", "what a link leads to is of another project");
        std::fs::remove_dir_all(&project).unwrap();
    }

    #[test]
    fn a_daemon_that_an_agent_has_made_up_below_its_project_is_shown_nothing() {
        let project = std::env::temp_dir().join(format!("svc-nested-{}", std::process::id()));
        let below = project.join("sub");
        std::fs::create_dir_all(project.join(".svc")).unwrap();
        std::fs::create_dir_all(below.join(".svc")).unwrap();
        std::fs::write(project.join(".svc/daemon.lock"), "").unwrap();
        std::fs::write(below.join(".svc/daemon.port"), "31416\n").unwrap();
        let lock = std::fs::File::create(below.join(".svc/daemon.lock")).unwrap();
        lock.lock().unwrap();
        let found = Surroundings { folder: below, ..Surroundings::default() }.find().unwrap();
        assert_eq!(found.url, "http://127.0.0.1:31416");
        let proof = Proof::of(&found, |name| (name == "SVC_OPERATOR_TOKEN").then(|| "secret".into()));
        assert_eq!(proof.token().unwrap(), None);
        std::fs::remove_dir_all(&project).unwrap();
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
            seen_helps: false,
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
