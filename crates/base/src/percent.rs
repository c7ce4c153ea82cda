//! Percent-encoding, for parts of addresses and of forms.

use std::fmt::Write as _;

/// A text of which nothing has a meaning in an address: all but unreserved characters are encoded.
///
/// Source: RFC 3986, section 2.3.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
