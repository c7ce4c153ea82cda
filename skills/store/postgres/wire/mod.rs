//! A synchronous client of `PostgreSQL`: one thread, one socket, one question at a time. Framing, SCRAM and
//! MD5 come from the crate `postgres-protocol`, TLS from `rustls`; everything that waits or is bounded is
//! here.
//!
//! **Invariant:** a client that has met anything but a plain refusal by the server is broken and stays so:
//! where an answer may be missing or half read, no later question is asked. The password is in no message.

mod auth;
mod client;
mod socket;
mod tls;
mod url;
mod values;

pub use client::Client;
pub use socket::Patience;
pub use url::Target;
pub use values::{Row, ToText};

use std::fmt;
use std::io;

/// What went wrong on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireError {
    /// The server's own word: its SQLSTATE and its message.
    Told {
        /// Five characters, see the appendix on error codes in the server's manual.
        code: String,
        /// For people; without detail and hint, which may quote rows.
        message: String,
    },
    /// No TLS as it is asked for: the server has none, or it is not the server that it must be.
    Insecure(String),
    /// The server asks for a proof that cannot be given, or must not be given in this way.
    Unproven(String),
    /// The connection is gone or makes no sense; what was asked last may or may not have been done.
    Lost(String),
}

impl WireError {
    /// The SQLSTATE, where the server has told one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Told { code, .. } => Some(code),
            _ => None,
        }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Told { code, message } => write!(f, "{message} (SQLSTATE {code})"),
            Self::Insecure(text) | Self::Unproven(text) | Self::Lost(text) => f.write_str(text),
        }
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        // What rustls found stands inside of the error of the stream.
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Self::Insecure(tls::explained(tls));
        }
        Self::Lost(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                "the server does not answer in time".to_owned()
            }
            io::ErrorKind::UnexpectedEof => "the server has closed the connection".to_owned(),
            _ => error.to_string(),
        })
    }
}
