//! The way from the marketplace to a real `PostgreSQL` over a network: TLS, logins, and a line that is cut
//! while a change is being kept.

use crate::support::folder::Folder;
use crate::support::market::{KEY, Market};
use crate::support::postgres::Cluster;
use crate::support::proxy::make_certificates;
use crate::support::wait::wait_for;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SKILLS: &str = "/api/v1/skills";
const PASSWORD: &str = "w0rd/of:@ 100%";
const ENCODED: &str = "w0rd%2Fof%3A%40%20100%25";

/// Who may come how: with TLS and SCRAM, with TLS and MD5, with the password as it is, and not with TLS.
const LIST: &str = "local all all trust\n\
    hostssl all market 127.0.0.1/32 scram-sha-256\n\
    hostssl all old 127.0.0.1/32 md5\n\
    host all plain 127.0.0.1/32 password\n\
    hostnossl all clear 127.0.0.1/32 scram-sha-256\n";

fn role(cluster: &Cluster, name: &str, encryption: &str) {
    let sql = format!(
        "SET password_encryption = '{encryption}'; CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{PASSWORD}'"
    );
    cluster.psql("postgres", &["--command", &sql]);
}

/// A server with TLS, a database in it, and a folder with its authority and one that nobody asked.
fn secured() -> Option<(Cluster, String, Folder)> {
    let folder = Folder::new("authorities");
    let stranger = folder.path().join("stranger");
    std::fs::create_dir(&stranger).unwrap();
    let cluster = Cluster::listening(|at: &Path| {
        assert!(
            make_certificates(folder.path()) && make_certificates(&stranger),
            "openssl makes certificates"
        );
        for name in ["server.pem", "server.key"] {
            std::fs::copy(folder.path().join(name), at.join(name)).unwrap();
        }
        std::fs::write(at.join("pg_hba.conf"), LIST).unwrap();
    })?;
    for (name, encryption) in
        [("market", "scram-sha-256"), ("plain", "scram-sha-256"), ("clear", "scram-sha-256"), ("old", "md5")]
    {
        role(&cluster, name, encryption);
    }
    let (name, _) = cluster.database();
    Some((cluster, name, folder))
}

/// A command on a database that is reached by this URL.
fn on(url: &str, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-skills"));
    command.env("DATABASE_URL", url).env("SVC_LOG", "trace").args(words).output().unwrap()
}

/// What went wrong; empty where nothing did. The password is in none of it.
fn trouble(url: &str) -> String {
    let output = on(url, &["seed"]);
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains("w0rd"), "{said}");
    if output.status.success() { String::new() } else { said }
}

#[test]
fn tls_is_as_safe_as_sslmode_says() {
    let Some((cluster, database, folder)) = secured() else { return };
    let url = |user: &str, host: &str, more: &str| {
        format!("postgresql://{user}:{ENCODED}@{host}:{}/{database}?{more}", cluster.port())
    };
    let at = |name: &str| -> String { folder.path().join(name).display().to_string() };
    let (right, wrong) = (at("authority.pem"), at("stranger/authority.pem"));
    for good in [
        url("market", "localhost", &format!("sslmode=verify-full&sslrootcert={right}")),
        url("market", "127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={right}")),
        url("market", "127.0.0.1", "sslmode=require"),
        url("market", "127.0.0.1", "sslmode=prefer"),
        url("market", "127.0.0.1", ""),
        url("market", "127.0.0.1", "channel_binding=require"),
        url("market", "127.0.0.1", "channel_binding=disable"),
        url("old", "127.0.0.1", ""),
        url("plain", "127.0.0.1", "sslmode=require"),
        url("clear", "127.0.0.1", "sslmode=disable"),
        url("clear", "127.0.0.1", "sslmode=prefer"),
    ] {
        assert_eq!(trouble(&good), "", "{good}");
    }
    for (bad, word) in [
        (
            url("market", "localhost", &format!("sslmode=verify-full&sslrootcert={wrong}")),
            "invalid peer certificate",
        ),
        (
            url("market", "127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={wrong}")),
            "invalid peer certificate",
        ),
        (
            url("market", "127.0.0.1", &format!("sslmode=require&sslrootcert={wrong}")),
            "invalid peer certificate",
        ),
        (url("market", "localhost", "sslmode=verify-full"), "sslrootcert=FILE"),
        (url("market", "127.0.0.1", &format!("sslmode=verify-full&sslrootcert={right}")), "subjectAltName"),
        (url("market", "127.0.0.1", "sslmode=disable"), "28000"),
        (url("market", "127.0.0.1", &format!("sslrootcert={}", at("nothing"))), "sslrootcert"),
        (url("market", "127.0.0.1", &format!("sslrootcert={}", at("names"))), "no certificate"),
        (url("old", "127.0.0.1", "channel_binding=require"), "channel_binding"),
        (url("plain", "127.0.0.1", "sslmode=disable"), "password in the clear"),
        (url("clear", "127.0.0.1", "sslmode=require"), "28000"),
        (url("clear", "127.0.0.1", "channel_binding=require"), "28000"),
    ] {
        let said = trouble(&bad);
        assert!(said.contains(word), "{bad}: {said}");
    }
    let without = format!("postgresql://market@127.0.0.1:{}/{database}", cluster.port());
    assert!(trouble(&without).contains("URL has none"));
    let other = without.replace("market@", "market:w0rdless@");
    assert!(trouble(&other).contains("28P01"), "the wrong password is told as such");
}

#[test]
fn a_server_without_tls_is_spoken_to_in_the_clear_only_where_that_is_told() {
    let Some(cluster) = Cluster::listening(|_| {}) else { return };
    let (name, _) = cluster.database();
    let url = |more: &str| format!("postgresql://postgres@127.0.0.1:{}/{name}?{more}", cluster.port());
    for good in ["", "sslmode=prefer", "sslmode=disable"] {
        assert_eq!(trouble(&url(good)), "", "{good:?}");
    }
    for bad in ["sslmode=require", "sslmode=verify-full", "sslmode=verify-ca"] {
        let said = trouble(&url(bad));
        assert!(said.contains("takes no TLS") && said.contains("sslmode=disable"), "{said}");
    }
    assert!(trouble(&url("channel_binding=require")).contains("takes no TLS"));
}

/// Somebody between us and the server who has a certificate of their own, and hears and says everything.
struct Eavesdropper {
    port: u16,
}

impl Eavesdropper {
    fn start(folder: &Path, server_port: u16) -> Self {
        let at = |name: &str| folder.join(name);
        let provider = || Arc::new(rustls::crypto::ring::default_provider());
        let chain =
            CertificateDer::pem_file_iter(at("stranger/server.pem")).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(at("stranger/server.key")).unwrap();
        let server = rustls::ServerConfig::builder_with_provider(provider());
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let server = Arc::new(server.with_single_cert(chain, key).unwrap());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(at("authority.pem")).unwrap()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider());
        let client = client.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let client = Arc::new(client.with_no_client_auth());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // The threads end with the test's process; who leaves in the middle ends a connection only.
        thread::spawn(move || {
            for ours in listener.incoming().flatten() {
                let (server, client) = (Arc::clone(&server), Arc::clone(&client));
                thread::spawn(move || drop(listen_in(ours, server_port, server, client)));
            }
        });
        Self { port }
    }
}

fn listen_in(
    mut ours: TcpStream,
    server_port: u16,
    server: Arc<rustls::ServerConfig>,
    client: Arc<rustls::ClientConfig>,
) -> io::Result<()> {
    let mut theirs = TcpStream::connect(("127.0.0.1", server_port))?;
    let (mut asks, mut answer) = ([0; 8], [0]);
    ours.read_exact(&mut asks)?;
    theirs.write_all(&asks)?;
    theirs.read_exact(&mut answer)?;
    ours.write_all(&answer)?;
    let name = ServerName::try_from("localhost").unwrap();
    let (mut ours_tls, mut theirs_tls) =
        (ServerConnection::new(server).unwrap(), ClientConnection::new(client, name).unwrap());
    while ours_tls.is_handshaking() {
        ours_tls.complete_io(&mut ours)?;
    }
    while theirs_tls.is_handshaking() {
        theirs_tls.complete_io(&mut theirs)?;
    }
    // Nobody says anything out of turn, so that one thread can look at both in short turns.
    for socket in [&ours, &theirs] {
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    }
    let (mut ours, mut theirs) = (StreamOwned::new(ours_tls, ours), StreamOwned::new(theirs_tls, theirs));
    loop {
        carry(&mut ours, &mut theirs)?;
        carry(&mut theirs, &mut ours)?;
    }
}

/// Carries over what one has said; an error where it has left.
fn carry(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = [0; 8192];
    match from.read(&mut bytes) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => to.write_all(&bytes[..count]).and_then(|()| to.flush()),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(()),
        Err(error) => Err(error),
    }
}

#[test]
fn who_stands_between_is_found_out_by_the_login_that_is_bound_to_tls() {
    let Some((cluster, database, folder)) = secured() else { return };
    let between = Eavesdropper::start(folder.path(), cluster.port());
    let url = |more: &str| {
        format!(
            "postgresql://market:{ENCODED}@localhost:{}/{database}?connect_timeout=20&{more}",
            between.port
        )
    };
    assert_eq!(trouble(&url("sslmode=require&channel_binding=disable")), "", "unbound nobody notices");
    let said = trouble(&url("sslmode=require&channel_binding=require"));
    assert!(said.contains("channel binding"), "{said}");
    let said = trouble(&url("sslmode=require"));
    assert!(said.contains("channel binding"), "where the server offers it, it is used: {said}");
    let right = folder.path().join("authority.pem").display().to_string();
    let said = trouble(&url(&format!("sslmode=verify-full&sslrootcert={right}&channel_binding=disable")));
    assert!(said.contains("invalid peer certificate"), "{said}");
}

/// How a line behaves when somebody sends the order to commit a write.
#[derive(Clone, Copy, PartialEq)]
#[repr(u8)]
enum Line {
    Whole,
    /// The order arrives, its answer does not.
    CutBehind,
    /// The order does not arrive.
    CutAhead,
    /// As [`Line::CutBehind`], and nobody can connect afterwards.
    Gone,
    /// At once: nothing arrives any more, and nobody is told.
    Silent,
}

/// Between the service and the server; at the next commit of a write it behaves as it is told.
struct Between {
    port: u16,
    line: Arc<AtomicU8>,
    gone: Arc<AtomicU8>,
}

impl Between {
    fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (line, gone) = (Arc::new(AtomicU8::new(0)), Arc::new(AtomicU8::new(0)));
        let theirs = (Arc::clone(&line), Arc::clone(&gone));
        // The threads end with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if theirs.1.load(Ordering::SeqCst) == 0 {
                    let (socket, theirs) = (socket.clone(), theirs.clone());
                    thread::spawn(move || relay(client, &socket, &theirs.0, &theirs.1));
                }
            }
        });
        Self { port, line, gone }
    }

    fn next(&self, line: Line) {
        self.line.store(line as u8, Ordering::SeqCst);
    }

    fn back(&self) {
        self.gone.store(0, Ordering::SeqCst);
    }
}

fn holds(bytes: &[u8], words: &[u8]) -> bool {
    bytes.windows(words.len()).any(|part| part == words)
}

fn relay(mut client: TcpStream, socket: &Path, line: &AtomicU8, gone: &AtomicU8) {
    let mut server = UnixStream::connect(socket).unwrap();
    let (mut answers, mut sink) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    // While it is locked no answer gets through.
    let answering = Arc::new(Mutex::new(()));
    let theirs = Arc::clone(&answering);
    thread::spawn(move || {
        let mut bytes = [0; 8192];
        while let Ok(count @ 1..) = answers.read(&mut bytes) {
            let _open = theirs.lock();
            if sink.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = sink.shutdown(Shutdown::Both);
    });
    let (mut bytes, mut writes) = ([0; 8192], false);
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        if line.load(Ordering::SeqCst) == Line::Silent as u8 {
            continue;
        }
        let sent = &bytes[..count];
        writes |= holds(sent, b"SAVEPOINT one\0");
        let told = line.load(Ordering::SeqCst);
        if told == Line::Whole as u8 || !(writes && holds(sent, b"COMMIT\0")) {
            if server.write_all(sent).is_err() {
                break;
            }
            continue;
        }
        line.store(Line::Whole as u8, Ordering::SeqCst);
        gone.store(u8::from(told == Line::Gone as u8), Ordering::SeqCst);
        let shut = answering.lock();
        if told != Line::CutAhead as u8 {
            server.write_all(sent).unwrap();
        }
        client.shutdown(Shutdown::Both).unwrap();
        drop(shut);
        break;
    }
    let _ = server.shutdown(Shutdown::Write);
}

fn through(between: &Between, database: &str, rpm: &str) -> Market {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-skills"));
    let url = format!("postgresql://postgres@127.0.0.1:{}/{database}?sslmode=disable", between.port);
    command.env("DATABASE_URL", url).env("SKILLS_API_KEY", KEY).env("SKILLS_PUBLIC_RPM", rpm);
    command.args(["serve", "--addr", "127.0.0.1:0"]);
    Market::from_command(command, Arc::new(Folder::new("instance")))
}

#[test]
fn reads_go_on_when_the_database_falls_silent() {
    let Some(cluster) = Cluster::start() else { return };
    let (name, _) = cluster.database();
    let between = Between::start(cluster.socket());
    let market = through(&between, &name, "50");
    assert_eq!(market.get(SKILLS).status, 200);
    between.next(Line::Silent);
    let asked = Instant::now();
    for n in 0..49 {
        assert_eq!(market.get(SKILLS).status, 200, "{n}");
    }
    // Once a second for the answer that does not come, and three for a new connection.
    assert!(asked.elapsed() < Duration::from_secs(9), "{:?}", asked.elapsed());
    assert_eq!(market.get(SKILLS).status, 429, "it counts for itself");
    between.next(Line::Whole);
    wait_for("the database to be found again", || (market.get("/healthz").status == 200).then_some(()));
}

#[test]
fn a_line_that_is_cut_over_a_commit_tells_what_is_known_and_no_more() {
    let Some(cluster) = Cluster::start() else { return };
    let (name, _) = cluster.database();
    let between = Between::start(cluster.socket());
    let market = through(&between, &name, "0");
    let create = |name: &str| {
        let body = json!({"name": name, "description": "Made for a test.", "category": "quality"});
        market.write("POST", SKILLS, &body)
    };
    let stored = |id: &str| -> bool {
        let sql = format!("SELECT count(*) FROM skills WHERE id = '{id}'");
        cluster.psql(&name, &["--command", &sql]) == "1"
    };
    assert_eq!(create("Whole").status, 201);

    between.next(Line::CutBehind);
    let told = create("Behind");
    assert_eq!(told.status, 201, "the server is asked and says that it was kept: {}", told.text);
    assert!(stored("behind"));

    between.next(Line::CutAhead);
    let told = create("Ahead");
    assert_eq!(
        (told.status, told.json()["code"].as_str()),
        (503, Some("storage_unavailable")),
        "{}",
        told.text
    );
    assert!(told.text.contains("nothing was changed") && !stored("ahead"));

    between.next(Line::Gone);
    let told = create("Unknown");
    assert_eq!((told.status, told.json()["code"].as_str()), (503, Some("outcome_unknown")), "{}", told.text);
    assert!(!told.text.contains("nothing was changed") && told.text.contains("not known"), "{}", told.text);
    assert_eq!(told.header("retry-after"), None, "who repeats it at once may do it twice");
    wait_for("the order to arrive", || stored("unknown").then_some(()));
    between.back();
    wait_for("the service to find the database again", || (create("After").status == 201).then_some(()));
    assert_eq!(market.get(&format!("{SKILLS}/unknown")).status, 200);
}
