//! What stands between a program and its model in many offices: a proxy that alone knows the way, and a
//! server whose certificate is signed by nobody the world knows.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Until a side that says nothing is given up.
const SILENCE: Duration = Duration::from_secs(120);

/// A forward proxy: whatever is asked for, it asks the one endpoint.
pub struct Proxy {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts one in front of `endpoint`, an `http://` address.
    pub fn start(endpoint: &str) -> Self {
        let endpoint = endpoint.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&asked);
        // The threads end with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (endpoint, asked) = (endpoint.clone(), Arc::clone(&shared));
                thread::spawn(move || drop(relay(&client, &endpoint, &asked)));
            }
        });
        Self { url, asked }
    }

    /// The first words of each request so far, for example `CONNECT api.example:443`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// One connection: a tunnel, or requests with a whole address in their first line.
fn relay(client: &TcpStream, endpoint: &str, asked: &Mutex<Vec<String>>) -> io::Result<()> {
    client.set_read_timeout(Some(SILENCE))?;
    let mut reader = BufReader::new(client.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    asked.lock().unwrap().push(format!("{method} {target}"));
    let mut server = TcpStream::connect(endpoint)?;
    server.set_read_timeout(Some(SILENCE))?;
    if method == "CONNECT" {
        let mut line = String::new();
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        (&*client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    } else {
        let path = target.splitn(4, '/').nth(3).unwrap_or_default();
        write!(server, "{method} /{path} HTTP/1.1\r\n")?;
        let mut line = String::new();
        while reader.read_line(&mut line)? > 2 {
            // One request a connection, so that the next one's first line is read here, too.
            if !line.to_ascii_lowercase().starts_with("connection:") {
                server.write_all(line.as_bytes())?;
            }
            line.clear();
        }
        server.write_all(b"connection: close\r\n\r\n")?;
    }
    let (mut to_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let up = thread::spawn(move || {
        let _ = io::copy(&mut reader, &mut to_server);
        to_server.shutdown(Shutdown::Write)
    });
    let _ = io::copy(&mut server, &mut to_client);
    let _ = client.shutdown(Shutdown::Both);
    drop(up.join());
    Ok(())
}

/// A server with a certificate of its own authority, in front of an `http://` endpoint.
pub struct Tls {
    /// `https://localhost:PORT`.
    pub url: String,
    /// The authority's certificate.
    pub authority: PathBuf,
}

impl Tls {
    /// Makes the certificates below `folder` and starts it. `None` where there is no `openssl`.
    pub fn start(folder: &Path, endpoint: &str) -> Option<Self> {
        let endpoint = endpoint.trim_start_matches("http://").to_owned();
        if !make_certificates(folder) {
            return None;
        }
        let chain = CertificateDer::pem_file_iter(folder.join("server.pem")).unwrap();
        let chain: Vec<_> = chain.collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (endpoint, config) = (endpoint.clone(), Arc::clone(&config));
                thread::spawn(move || drop(terminate(client, &endpoint, config)));
            }
        });
        Some(Self { url, authority: folder.join("authority.pem") })
    }
}

/// One connection. A request is read whole by its length, so that one thread serves both directions.
fn terminate(client: TcpStream, endpoint: &str, config: Arc<ServerConfig>) -> io::Result<()> {
    client.set_read_timeout(Some(SILENCE))?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, client));
    let mut server = TcpStream::connect(endpoint)?;
    server.set_read_timeout(Some(SILENCE))?;
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if !lower.starts_with("connection:") {
            server.write_all(line.as_bytes())?;
        }
        line.clear();
    }
    server.write_all(b"connection: close\r\n\r\n")?;
    io::copy(&mut reader.by_ref().take(length), &mut server)?;
    let client = reader.get_mut();
    io::copy(&mut server, client)?;
    client.conn.send_close_notify();
    client.flush()
}

/// Makes `authority.pem` and, signed by it for `localhost`, `server.pem` with `server.key`; whether that
/// worked.
pub fn make_certificates(folder: &Path) -> bool {
    let run = |args: &str| {
        let mut command = Command::new("openssl");
        command.args(args.split(' ')).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
        .unwrap();
    run(&format!("req -x509 {key} -days 2 -subj /CN=office -keyout authority.key -out authority.pem"))
        && run(&format!("req {key} -subj /CN=localhost -keyout server.key -out server.csr"))
        && run(
            "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -extfile names -out server.pem",
        )
}
