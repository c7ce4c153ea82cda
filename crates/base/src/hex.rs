//! Bytes as hexadecimal text, two digits each.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Lower-case digits.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The bytes of a text that a person may have written: digits of both cases. `None` when it is none.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair =
        |pair: &[u8]| if let [high, low] = pair { Some(digit(*high)? * 16 + digit(*low)?) } else { None };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// As [`decode`], for what is signed or compared: each value has one text, so that capital digits are none.
pub fn decode_exact(text: &str) -> Option<Vec<u8>> {
    if text.bytes().any(|c| c.is_ascii_uppercase()) { None } else { decode(text) }
}

/// Exactly 32 bytes by [`decode_exact`], such as a key or a digest.
pub fn bytes_32(text: &str) -> Option<[u8; 32]> {
    decode_exact(text).and_then(|bytes| bytes.try_into().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_from_its_text() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encode(&all);
        assert_eq!((&text[..8], &text[504..]), ("00010203", "fcfdfeff"));
        assert_eq!(decode(&text).as_ref(), Some(&all));
        assert_eq!(decode_exact(&text), Some(all));
        assert_eq!((encode(&[]), decode("")), (String::new(), Some(Vec::new())));
    }

    #[test]
    fn capitals_are_read_only_where_a_value_may_have_two_texts() {
        assert_eq!(decode("aAfF"), Some(vec![0xaa, 0xff]));
        for text in ["AA", "aF", "0B"] {
            assert_eq!(decode_exact(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_text_of_bytes_is_refused() {
        for text in ["a", "abc", "0g", "0x", "+1", " 1", "1 ", "-1", "\u{e9}", "\u{ff11}\u{ff11}"] {
            assert_eq!((decode(text), decode_exact(text)), (None, None), "{text:?}");
        }
    }

    #[test]
    fn a_key_has_32_bytes() {
        assert_eq!(bytes_32(&"07".repeat(32)), Some([7; 32]));
        for digits in [0, 31, 33] {
            assert_eq!(bytes_32(&"07".repeat(digits)), None, "{digits} bytes");
        }
        assert_eq!(bytes_32(&"AB".repeat(32)), None);
    }
}
