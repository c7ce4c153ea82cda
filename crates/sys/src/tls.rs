//! TLS before a server that knows none: each connection has a thread that speaks TLS 1.3 with the other
//! machine, and plain bytes with the server, through a pair of sockets.
//!
//! ```text
//! another machine ══TLS══ pump ──plain── the server's connection
//! ```
//! **Invariant:** nothing reaches the server before the handshake is done, and no byte of the server goes out
//! but encrypted. A pump ends with either side, and holds no more than one read of each.

use crate::sockets::Poll;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A handshake that is not done by then is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// When the server is done with a connection, what it has said must be taken within this.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// After that, what the other machine still sends is dropped for so long.
const LINGER: Duration = Duration::from_millis(500);
/// Bytes dropped in that time at most.
const LINGER_BYTES: usize = 2 << 20;
/// Threads of one server at once; who comes beyond that is hung up on.
pub const MAX_PUMPS: usize = 128;
const READ_BYTES: usize = 16 << 10;
const STACK_BYTES: usize = 256 << 10;

/// What a server shows of itself.
#[derive(Clone)]
pub struct Front {
    config: Arc<ServerConfig>,
    /// How many pumps there are.
    pumps: Arc<AtomicUsize>,
}

impl Front {
    /// With a chain of certificates (DER), the server's own first, and its key (PKCS #8, DER).
    ///
    /// Errors: they do not belong together, or are not of a kind that is known.
    pub fn new(chain: Vec<Vec<u8>>, key: Vec<u8>) -> io::Result<Self> {
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(io::Error::other)?;
        // Nothing of a connection outlives it.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), pumps: Arc::default() })
    }

    /// The server's end of a connection.
    ///
    /// Errors: `ResourceBusy` where there are [`MAX_PUMPS`] already; no thread, no descriptor.
    pub(crate) fn before(&self, outer: TcpStream) -> io::Result<TcpStream> {
        let place = Place::take(&self.pumps)?;
        let tls = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        let (inner, servers) = UnixStream::pair()?;
        inner.set_nonblocking(true)?;
        outer.set_nonblocking(true)?;
        let until = Some(Instant::now() + HANDSHAKE);
        let ends = Ends { outer_over: false, told: false, inner_over: false, inner_gone: false };
        let mut pump = Pump { outer, inner, tls, inward: Vec::new(), until, ends };
        thread::Builder::new().name("tls".into()).stack_size(STACK_BYTES).spawn(move || {
            pump.run();
            drop(place);
        })?;
        Ok(TcpStream::from(OwnedFd::from(servers)))
    }
}

/// A pump's place among all of its server.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(pumps: &Arc<AtomicUsize>) -> io::Result<Self> {
        let place = Self(Arc::clone(pumps));
        // Whoever comes too late gives back what was counted here.
        let before = pumps.fetch_add(1, Ordering::SeqCst);
        if before >= MAX_PUMPS { Err(ErrorKind::ResourceBusy.into()) } else { Ok(place) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Which of the directions have ended.
struct Ends {
    /// The other machine says no more.
    outer_over: bool,
    /// The server was told so.
    told: bool,
    /// The server says no more, and all of it was read.
    inner_over: bool,
    /// The server's end is closed; something may be left to be read.
    inner_gone: bool,
}

struct Pump {
    outer: TcpStream,
    inner: UnixStream,
    tls: ServerConnection,
    /// For the server.
    inward: Vec<u8>,
    /// It must be done by then with what it is at: the handshake, or the last words.
    until: Option<Instant>,
    ends: Ends,
}

impl Pump {
    fn run(&mut self) {
        let mut poll = Poll::default();
        // What went wrong is told to the other machine as far as the protocol tells it, and to nobody else.
        while let Ok(true) = self.turn(&mut poll) {}
        // Whoever has not come as far as to hear something needs no time for it.
        if !self.tls.is_handshaking() {
            self.linger();
        }
    }

    /// Closes our side, and drops what still comes, for a moment: so the other machine sees what it was told
    /// instead of a reset.
    fn linger(&mut self) {
        let is_set = self.outer.shutdown(Shutdown::Write).and_then(|()| self.outer.set_nonblocking(false));
        let until = Instant::now() + LINGER;
        let (mut buffer, mut dropped) = ([0; READ_BYTES], 0);
        while is_set.is_ok() && dropped < LINGER_BYTES {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.outer.set_read_timeout(Some(left)).is_err() {
                return;
            }
            match self.outer.read(&mut buffer) {
                Ok(n) if n > 0 => dropped += n,
                _ => return,
            }
        }
    }

    /// Waits once and does what can be done then; `false` when there is nothing left to do.
    fn turn(&mut self, poll: &mut Poll) -> io::Result<bool> {
        let shakes = self.tls.is_handshaking();
        if self.ends.inner_over || (self.ends.inner_gone && shakes) {
            if shakes || !self.tls.wants_write() {
                return Ok(false);
            }
        } else if !shakes && !self.ends.inner_gone {
            self.until = None;
        }
        let writes = self.tls.wants_write();
        let reads = !self.ends.outer_over && self.inward.is_empty() && self.tls.wants_read();
        let takes = !self.ends.inner_over && !shakes && !writes;
        poll.clear();
        let outer = (reads || writes).then(|| poll.add(self.outer.as_fd(), reads, writes));
        let inner =
            (!self.ends.inner_gone).then(|| poll.add(self.inner.as_fd(), takes, !self.inward.is_empty()));
        let has_rest = self.ends.inner_gone && takes;
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
        poll.wait(if has_rest { Some(Duration::ZERO) } else { left })?;
        if outer.is_some_and(|place| poll.is_ready(place)) {
            self.outer(reads)?;
        }
        let is_ready = inner.is_some_and(|place| poll.is_ready(place));
        if is_ready || has_rest {
            self.inner(takes)?;
        }
        Ok(true)
    }

    fn outer(&mut self, reads: bool) -> io::Result<()> {
        self.flush()?;
        if reads {
            match self.tls.read_tls(&mut &self.outer) {
                Ok(0) => self.ends.outer_over = true,
                Ok(_) => self.decrypt()?,
                Err(error) if is_later(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.flush()?;
        self.tell_end();
        Ok(())
    }

    fn decrypt(&mut self) -> io::Result<()> {
        if let Err(error) = self.tls.process_new_packets() {
            // The alert that says why.
            let _ = self.flush();
            return Err(io::Error::other(error));
        }
        let mut buffer = [0; READ_BYTES];
        loop {
            match self.tls.reader().read(&mut buffer) {
                Ok(0) => self.ends.outer_over = true,
                Ok(n) => {
                    self.inward.extend_from_slice(&buffer[..n]);
                    continue;
                }
                Err(error) if is_later(&error) => {}
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    /// Sends what is encrypted, as far as it is taken.
    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut &self.outer) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn inner(&mut self, takes: bool) -> io::Result<()> {
        if !self.inward.is_empty() {
            match self.inner.write(&self.inward) {
                Ok(n) => drop(self.inward.drain(..n)),
                Err(error) if is_later(&error) => {}
                // The server does not listen any more, and may have said something before.
                Err(_) => self.inward.clear(),
            }
        } else if !takes {
            // Nothing was wanted of it: it is closed.
            self.gone();
        }
        if takes {
            let mut buffer = [0; READ_BYTES];
            match self.inner.read(&mut buffer) {
                Ok(0) => {
                    self.gone();
                    self.ends.inner_over = true;
                    self.tls.send_close_notify();
                }
                Ok(n) => self.tls.writer().write_all(&buffer[..n])?,
                Err(error) if is_later(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.flush()?;
        self.tell_end();
        Ok(())
    }

    fn gone(&mut self) {
        if !self.ends.inner_gone {
            self.ends.inner_gone = true;
            self.until = Some(Instant::now() + LAST_WORDS);
        }
    }

    /// Lets the server see that the other machine says no more.
    fn tell_end(&mut self) {
        if self.ends.outer_over && self.inward.is_empty() && !self.ends.told {
            self.ends.told = true;
            // A server that is gone needs not be told.
            let _ = self.inner.shutdown(Shutdown::Write);
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
