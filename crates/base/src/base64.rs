//! Bytes as base64 text (RFC 4648): six bits a letter.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const FOR_URLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// With padding (section 4), as headers of HTTP have it.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = letters(bytes, STANDARD);
    let whole = text.len().next_multiple_of(4);
    text.extend(std::iter::repeat_n('=', whole - text.len()));
    text
}

/// For URLs and names of files, without padding (section 5).
pub fn encode_for_url(bytes: &[u8]) -> String {
    letters(bytes, FOR_URLS)
}

fn letters(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let shifted = chunk.iter().zip([16, 8, 0]).map(|(byte, shift)| usize::from(*byte) << shift);
        let bits: usize = shifted.sum();
        let letters = [18, 12, 6, 0].into_iter().take(chunk.len() + 1);
        text.extend(letters.map(|shift| char::from(alphabet[(bits >> shift) & 63])));
    }
    text
}

/// What text for URLs says; `None` for anything that [`encode_for_url`] would not have written.
pub fn decode_for_url(text: &str) -> Option<Vec<u8>> {
    let standard: String = text.chars().map(|letter| if letter == '-' { '+' } else { letter }).collect();
    let mut standard = standard.replace('_', "/");
    let whole = standard.len().next_multiple_of(4);
    standard.extend(std::iter::repeat_n('=', whole - standard.len()));
    decode(&standard).filter(|bytes| encode_for_url(bytes) == text)
}

/// What such text says; `None` for anything that [`encode`] would not have written.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let bare = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(bare.len() / 4 * 3 + 2);
    for chunk in bare.as_bytes().chunks(4) {
        let mut bits = 0;
        for (letter, shift) in chunk.iter().zip([18, 12, 6, 0]) {
            bits |= STANDARD.iter().position(|known| known == letter)? << shift;
        }
        let whole = bits.to_be_bytes();
        bytes.extend(whole.iter().skip(size_of::<usize>() - 3).take(chunk.len() - 1));
    }
    (encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_4648_section_10_is_met() {
        for (plain, padded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), padded);
            assert_eq!(encode_for_url(plain.as_bytes()), padded.trim_end_matches('='));
            assert_eq!(decode(padded).as_deref(), Some(plain.as_bytes()));
        }
    }

    #[test]
    fn what_nobody_encodes_so_is_not_decoded() {
        for wrong in ["Z", "Zg", "Zg=", "Zh==", "Zg==\n", "Zg==Zg==", "-_-_", "=", "Zm9v=", "ä"] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
    }

    #[test]
    fn the_last_two_letters_differ_in_urls() {
        let bytes = [0xfb, 0xff, 0xbf, 0x00];
        assert_eq!((encode(&bytes), encode_for_url(&bytes)), ("+/+/AA==".into(), "-_-_AA".into()));
        assert_eq!(decode_for_url("-_-_AA").as_deref(), Some(&bytes[..]));
        for wrong in ["+/+/AA", "-_-_AA==", "-_-_AB", "-", "-_-_ä"] {
            assert_eq!(decode_for_url(wrong), None, "{wrong}");
        }
    }
}
