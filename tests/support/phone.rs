//! A phone: a client by TLS that trusts what `svc phones certificate` prints and nothing else, and says on
//! the wire whatever a test wants.

use super::conformance::hold_reply;
use super::daemon::Daemon;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A connection that speaks TLS.
pub type Line = StreamOwned<ClientConnection, TcpStream>;

/// A reply gets this long.
const LIMIT: Duration = Duration::from_secs(60);

/// The listener of a daemon, and what proves a phone there.
#[derive(Clone)]
pub struct Phone {
    pub address: SocketAddr,
    config: Arc<ClientConfig>,
    /// Without its name.
    pub cookie: String,
    pub key: String,
    pub id: String,
}

/// What came back.
pub struct Got {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Got {
    pub fn code(&self) -> (u16, &str) {
        (self.status, self.body["code"].as_str().unwrap_or_default())
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// An address of this machine for the phones of this test's process alone: a port that a daemon keeps for its
/// next life is taken by nobody else meanwhile.
fn own_address() -> IpAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high.wrapping_add(100), middle, low).into()
}

/// A code, as a person at the machine gets it.
pub fn invite(daemon: &Daemon, rights: &[&str]) -> String {
    let address = format!("{}:0", own_address());
    let told = daemon.post("/api/phones/codes", &json!({"address": address, "rights": rights}));
    told["code"].as_str().unwrap().to_owned()
}

impl Phone {
    /// One that is not paired.
    pub fn of(daemon: &Daemon) -> Self {
        let listener = daemon.get("/api/phones")["listener"].clone();
        let url = listener["url"].as_str().expect("an open listener");
        let address = url.strip_prefix("https://").and_then(|rest| rest.strip_suffix("/phone")).unwrap();
        let pem = listener["toTrust"]["certificate"].as_str().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let nothing = String::new;
        let (address, config) = (address.parse().unwrap(), Arc::new(config));
        Self { address, config, cookie: nothing(), key: nothing(), id: nothing() }
    }

    /// One that has paired with these rights.
    pub fn paired(daemon: &Daemon, rights: &[&str]) -> Self {
        let code = invite(daemon, rights);
        let mut phone = Self::of(daemon);
        let got = phone.pair(&code);
        assert_eq!(got.status, 201, "{}", got.body);
        phone
    }

    /// Shows a code, and keeps what comes of it.
    pub fn pair(&mut self, code: &str) -> Got {
        let got = self.ask("POST", "/api/phone/session", &[], &json!({"code": code}).to_string());
        if got.status == 201 {
            let cookie = got.header("set-cookie").split(';').next().unwrap();
            let text = |name: &str| got.body[name].as_str().unwrap();
            cookie.strip_prefix("__Host-svc-phone=").unwrap().clone_into(&mut self.cookie);
            text("key").clone_into(&mut self.key);
            text("id").clone_into(&mut self.id);
        }
        got
    }

    /// A new connection.
    ///
    /// Errors: nobody listens, or the handshake fails.
    pub fn connect(&self) -> io::Result<Line> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let tls = ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        let mut line = StreamOwned::new(tls, stream);
        line.conn.complete_io(&mut line.sock)?;
        Ok(line)
    }

    /// What proves it.
    pub fn proof(&self) -> Vec<String> {
        vec![format!("Cookie: __Host-svc-phone={}", self.cookie), format!("Svc-Phone: {}", self.key)]
    }

    /// A request with its proof.
    pub fn send(&self, method: &str, path: &str, body: &Value) -> Got {
        let proof = self.proof();
        let proof: Vec<&str> = proof.iter().map(String::as_str).collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask(method, path, &proof, &body)
    }

    /// A request with these headers, and the usual `Host` where none is among them.
    pub fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Got {
        self.try_ask(method, path, headers, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// As [`Phone::ask`].
    ///
    /// Errors: nobody listens, or the connection ends.
    pub fn try_ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> io::Result<Got> {
        let mut line = self.connect()?;
        let mut lines: Vec<String> = headers.iter().map(|line| (*line).to_owned()).collect();
        if !lines.iter().any(|line| line.starts_with("Host:")) {
            lines.push(format!("Host: {}", self.address));
        }
        let head = format!(
            "{method} {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n{}\r\n\r\n",
            body.len(),
            lines.join("\r\n")
        );
        // One that is refused for its head may be refused before all of it is sent.
        let _ = line.write_all(head.as_bytes()).and_then(|()| line.write_all(body.as_bytes()));
        let mut bytes = Vec::new();
        line.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let got = Got {
            status,
            headers,
            body: serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.into())),
        };
        if status < 300 {
            hold_reply(method, path, status, got.header("content-type"), &got.body);
        }
        Ok(got)
    }

    /// A WebSocket with this query behind its key, and these headers.
    ///
    /// Errors: what it was answered.
    pub fn socket(&self, key: &str, more: &str) -> Result<tungstenite::WebSocket<Line>, String> {
        let request = tungstenite::http::Request::builder()
            .uri(format!("wss://{}/api/ws?key={key}{more}", self.address))
            .header("Host", self.address.to_string())
            .header("Origin", format!("https://{}", self.address))
            .header("Cookie", format!("__Host-svc-phone={}", self.cookie))
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", tungstenite::handshake::client::generate_key())
            .body(())
            .unwrap();
        let line = self.connect().map_err(|error| error.to_string())?;
        tungstenite::client(request, line).map(|(socket, _)| socket).map_err(|error| error.to_string())
    }
}
