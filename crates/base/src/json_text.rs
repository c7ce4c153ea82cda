//! A JSON string, written fast: of a program's output every line goes through here, most of its bytes twice.

/// Appends `text` as a JSON string with its quotes, byte for byte as `serde_json` writes it.
pub fn push_json_text(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.push(b'"');
    // Lines of JSON have a quote every few bytes, and never a control character: for them the loop below
    // needs no branch, which would be foretold wrongly at each of these quotes.
    if bytes.iter().fold(u8::MAX, |least, byte| least.min(*byte)) < 0x20 {
        push_with_controls(out, bytes);
    } else {
        let start = out.len();
        out.resize(start + 2 * bytes.len(), 0);
        let mut at = start;
        for byte in bytes {
            // Overwritten at once where the byte needs no mark before it.
            out[at] = b'\\';
            at += usize::from(u8::from(*byte == b'"') | u8::from(*byte == b'\\'));
            out[at] = *byte;
            at += 1;
        }
        out.truncate(at);
    }
    out.push(b'"');
}

fn push_with_controls(out: &mut Vec<u8>, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\')) {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at];
        let short = match byte {
            b'"' | b'\\' => Some(byte),
            b'\n' => Some(b'n'),
            b'\t' => Some(b't'),
            b'\r' => Some(b'r'),
            0x08 => Some(b'b'),
            0x0c => Some(b'f'),
            _ => None,
        };
        if let Some(short) = short {
            out.extend_from_slice(&[b'\\', short]);
        } else {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_writes_what_serde_json_writes() {
        let all: String = (0..0x180).filter_map(char::from_u32).collect();
        let plain: String = (0x20..0x180).filter_map(char::from_u32).collect();
        let line = r#"{"type":"assistant","text":"say \"hi\" \\ \u{1F600}"}"#;
        for text in ["", "a", "\"", "\\", "\n", "\u{1F600}\"", "end\\\"", line, &plain, &all] {
            let mut out = b"before".to_vec();
            push_json_text(&mut out, text);
            let wanted = format!("before{}", serde_json::to_string(text).unwrap());
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }
}
