//! The bytes to and from the server: over a network or a socket of this machine, in the clear or through TLS,
//! never waiting without an end.

use super::url::Place;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// An answer that does not go on for this long is given up: more than the server may work at a statement, see
/// the greeting of a connection.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// The same where the server may work as long as it takes: a backup, a migration.
const PATIENT_READ_TIMEOUT: Duration = Duration::from_secs(600);
/// The same where somebody waits who can do without the answer.
const HURRIED_READ_TIMEOUT: Duration = Duration::from_secs(1);
/// A server that takes nothing for this long is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// How long an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// As long as the server may work at a statement.
    Usual,
    /// As long as a backup or a migration works.
    Long,
    /// As long as a reader who can do without it may wait.
    Short,
}

/// A stream in the clear.
pub struct Plain {
    stream: Stream,
    /// While somebody logs in, everything together ends then.
    until: Option<Instant>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Plain {
    /// Connects until a deadline, which then holds for what is read, too.
    pub fn connect(place: &Place, until: Instant) -> io::Result<Self> {
        let stream = match place {
            Place::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Place::Tcp(host, port) => Stream::Tcp(connect_tcp(host, *port, until)?),
        };
        match &stream {
            Stream::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
            }
            Stream::Unix(stream) => stream.set_write_timeout(Some(WRITE_TIMEOUT))?,
        }
        Ok(Self { stream, until: Some(until) })
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }
}

/// The addresses of a name, one after the other.
fn connect_tcp(host: &str, port: u16, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Read for Plain {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = self.until {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.set_read_timeout(Some(left))?;
        }
        match &mut self.stream {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Plain {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.flush(),
            Stream::Unix(stream) => stream.flush(),
        }
    }
}

/// What a client speaks through.
pub enum Socket {
    /// In the clear.
    Plain(Plain),
    /// Through TLS.
    Tls(Box<StreamOwned<ClientConnection, Plain>>),
}

impl Socket {
    fn plain(&mut self) -> &mut Plain {
        match self {
            Self::Plain(plain) => plain,
            Self::Tls(stream) => &mut stream.sock,
        }
    }

    /// Ends the deadline of the login; from now on each answer has its own time.
    pub fn logged_in(&mut self) -> io::Result<()> {
        let plain = self.plain();
        plain.until = None;
        plain.set_read_timeout(Some(READ_TIMEOUT))
    }

    /// How long answers may take from now on.
    pub fn set_patience(&mut self, patience: Patience) -> io::Result<()> {
        self.plain().set_read_timeout(Some(match patience {
            Patience::Usual => READ_TIMEOUT,
            Patience::Long => PATIENT_READ_TIMEOUT,
            Patience::Short => HURRIED_READ_TIMEOUT,
        }))
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(plain) => plain.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
