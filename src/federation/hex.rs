//! Lower-case hexadecimal text.

use std::fmt::Write as _;

/// The text of bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of a text; `None` when it is none, or has capital digits: each value has one text.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let pair =
        |pair: &[u8]| if let [high, low] = pair { Some(digit(*high)? * 16 + digit(*low)?) } else { None };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// Exactly 32 bytes.
pub fn bytes_32(text: &str) -> Option<[u8; 32]> {
    from_hex(text).and_then(|bytes| bytes.try_into().ok())
}
