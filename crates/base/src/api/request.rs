//! A request as handlers see it: decoded, bounded, and already past the Host and Origin checks.

use super::{Fields, Method, Problem};
use crate::actor::Holder;
use serde_json::{Map, Value};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// One HTTP request. Header names are lower-case; path segments and query are percent-decoded.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method; `HEAD` arrives as `HEAD`, the edge drops the body of the answer.
    pub method: Method,
    /// The target's path as sent, without the query, for logs and messages.
    pub path: String,
    /// What stands before the path in the addresses by which the caller sees this daemon, for example
    /// `/p/shop`; mostly nothing.
    pub base: String,
    /// The path split at `/` and then decoded, so that `%2F` inside an id does not split it.
    pub segments: Vec<String>,
    /// Query pairs in order.
    pub query: Vec<(String, String)>,
    /// Header pairs in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body, already under the route's limit.
    pub body: Vec<u8>,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// Our end of the connection.
    pub local: SocketAddr,
    /// Who holds the other end of the connection, once somebody has asked; shared by all its requests.
    pub caller: Arc<OnceLock<Holder>>,
}

impl Request {
    /// The first header of this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The first query value of this name.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The body as a JSON object. A missing body is `{}`.
    ///
    /// Errors: 415 for a body that says it is not JSON, 400 for malformed JSON or another JSON type.
    pub fn object(&self) -> Result<Map<String, Value>, Problem> {
        if self.body.is_empty() {
            return Ok(Map::new());
        }
        self.expect_json()?;
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(_) => Err(Problem::bad_request("not_an_object", "the body must be a JSON object: {...}")),
            Err(error) => {
                Err(Problem::bad_request("malformed_json", format!("the body is not valid JSON: {error}")))
            }
        }
    }

    /// What `read` makes of the body's fields, if it finds no fault in them.
    ///
    /// Errors: those of [`Self::object`], 400 with every fault.
    pub fn read<T>(&self, read: impl FnOnce(&mut Fields) -> T) -> Result<T, Problem> {
        let object = self.object()?;
        let mut fields = Fields::new(&object);
        let wish = read(&mut fields);
        fields.validator.finish()?;
        Ok(wish)
    }

    fn expect_json(&self) -> Result<(), Problem> {
        let Some(kind) = self.header("content-type") else { return Ok(()) };
        let essence = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        if essence == "application/json"
            || (essence.starts_with("application/") && essence.ends_with("+json"))
        {
            return Ok(());
        }
        Err(Problem::new(
            415,
            "unsupported_media_type",
            format!("the body has Content-Type {essence:?}, send application/json"),
        ))
    }
}

/// Splits and decodes a query string (`a=1&b=%20`); `+` is a space. `None` on broken percent-encoding.
pub fn parse_query(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for part in text.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let decode = |text: &str| decode_percent(&text.replace('+', " "));
        pairs.push((decode(name)?, decode(value)?));
    }
    Some(pairs)
}

/// Percent-decodes UTF-8 text. `None` when an escape is broken, or the result is not UTF-8 or holds NUL.
pub fn decode_percent(text: &str) -> Option<String> {
    if !text.contains('%') {
        return (!text.contains('\0')).then(|| text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let high = char::from(bytes.next()?).to_digit(16)?;
        let low = char::from(bytes.next()?).to_digit(16)?;
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    let decoded = String::from_utf8(out).ok()?;
    (!decoded.contains('\0')).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_1_bad_percent_encoding_is_found() {
        assert_eq!(decode_percent("a%20b%2F"), Some("a b/".into()));
        for bad in ["%", "%2", "%zz", "%ff", "a%00b"] {
            assert_eq!(decode_percent(bad), None, "{bad}");
        }
        assert_eq!(parse_query("a=1&b=x+y&c&&d=%41").unwrap().len(), 4);
        assert_eq!(parse_query("a=%"), None);
    }
}
