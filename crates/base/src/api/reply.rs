//! What a handler answers.

use serde::Serialize;
use std::sync::Arc;

/// The bytes of a reply; shared when many clients get the same ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Bytes of this reply alone.
    Owned(Vec<u8>),
    /// Bytes shared with other replies, for example an embedded page.
    Shared(Arc<[u8]>),
    /// Bytes compiled into the binary.
    Static(&'static [u8]),
}

impl Body {
    /// The bytes themselves.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Static(bytes) => bytes,
        }
    }
}

/// One HTTP answer, without the headers that the edge adds to all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// 200 to 599.
    pub status: u16,
    /// Empty when there is no body.
    pub content_type: &'static str,
    /// Further headers; a value with CR, LF or NUL makes the edge answer 500 instead.
    pub headers: Vec<(&'static str, String)>,
    /// The body; ignored for 204 and 304.
    pub body: Body,
}

impl Reply {
    /// A JSON reply. A value that cannot be serialised is a bug and answers 500.
    pub fn json(status: u16, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => Self {
                status,
                content_type: "application/json",
                headers: Vec::new(),
                body: Body::Owned(bytes),
            },
            Err(error) => {
                super::Problem::new(500, "internal", format!("reply not serialisable: {error}")).into()
            }
        }
    }

    /// 200 with JSON.
    pub fn ok(value: &impl Serialize) -> Self {
        Self::json(200, value)
    }

    /// 204.
    pub fn no_content() -> Self {
        Self { status: 204, content_type: "", headers: Vec::new(), body: Body::Static(b"") }
    }

    /// A reply with text or other bytes.
    pub fn bytes(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type, headers: Vec::new(), body: Body::Owned(body.into()) }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}
