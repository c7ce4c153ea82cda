//! From bytes to lines.

use std::borrow::Cow;

/// Bytes of an unfinished line that are kept aside.
const REST_BYTES_MAX: usize = 16 * 1024;

/// What a line that was cut ends with, where the limit is that of standard output.
pub(super) const CUT_MARK: &str = "… [cut at 4 MiB]";

/// Collects bytes into lines. Invalid UTF-8 is replaced only once a line is whole, so a character that
/// arrives in two reads stays one.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    is_cut: bool,
    /// Bytes of one line; the rest of a longer one is dropped.
    limit: usize,
}

impl Lines {
    pub fn new(limit: usize) -> Self {
        Self { line: Vec::new(), is_cut: false, limit }
    }

    /// The line that has begun; `None` while it is longer than [`REST_BYTES_MAX`].
    pub fn rest(&self) -> Option<Vec<u8>> {
        (self.line.len() <= REST_BYTES_MAX).then(|| self.line.clone())
    }

    /// Goes on in the middle of this line.
    pub fn go_on(&mut self, line: Vec<u8>) {
        self.line = line;
    }

    /// Takes bytes and gives every line that is whole, without its newline.
    pub fn feed(&mut self, bytes: &[u8], mut give: impl FnMut(&str)) {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let text = &rest[..end];
            rest = &rest[end + 1..];
            if self.line.is_empty() && !self.is_cut && end <= self.limit {
                // All of it is here: it needs no copy.
                give(&words(text));
            } else {
                self.take(text);
                self.give(&mut give);
            }
        }
        self.take(rest);
    }

    fn take(&mut self, text: &[u8]) {
        let room = self.limit - self.line.len();
        self.line.extend_from_slice(&text[..text.len().min(room)]);
        self.is_cut |= text.len() > room;
    }

    /// The bytes have ended: gives a last line without newline.
    pub fn end(&mut self, mut give: impl FnMut(&str)) {
        if !self.line.is_empty() {
            self.give(&mut give);
        }
    }

    fn give(&mut self, give: &mut impl FnMut(&str)) {
        let mut bytes = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_cut) {
            bytes.truncate(whole_characters(&bytes));
            bytes.extend_from_slice(CUT_MARK.as_bytes());
        }
        give(&words(&bytes));
        // A short line's buffer serves the next one; a long one's memory is given back.
        if bytes.capacity() <= 64 * 1024 {
            bytes.clear();
            self.line = bytes;
        }
    }
}

/// Invalid UTF-8 replaced. Nearly every line is valid, which is seen much quicker than replaced.
fn words(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The length without a character that was cut in the middle.
fn whole_characters(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    let begins = |byte: u8| byte >= 0xC0;
    let Some(at) = bytes[tail..].iter().rposition(|byte| begins(*byte)) else { return bytes.len() };
    let at = tail + at;
    let is_incomplete = std::str::from_utf8(&bytes[at..]).is_err_and(|error| error.error_len().is_none());
    if is_incomplete { at } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(limit: usize, pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut found) = (Lines::new(limit), Vec::new());
        for piece in pieces {
            lines.feed(piece, |line| found.push(line.to_owned()));
        }
        lines.end(|line| found.push(line.to_owned()));
        found
    }

    #[test]
    fn decisions_2_half_lines_split_characters_and_a_last_line_are_kept() {
        assert_eq!(lines(100, &[b"a", b"b\n\nc\nd"]), ["ab", "", "c", "d"]);
        let smile = "\u{1F600}".as_bytes();
        assert_eq!(lines(100, &[&smile[..1], &smile[1..3], &smile[3..], b"\n"]), ["\u{1F600}"]);
        assert_eq!(lines(100, &[b"a\xffb\xf0\x9f\nc"]), ["a\u{fffd}b\u{fffd}", "c"]);
        assert!(lines(100, &[b""]).is_empty());
        assert_eq!(
            lines(100, &[b"one\ntwo\n\r\nthr", b"ee\nfour\nfi"]),
            ["one", "two", "\r", "three", "four", "fi"]
        );
    }

    #[test]
    fn decisions_2_a_line_over_the_limit_is_cut_with_a_mark() {
        assert_eq!(
            lines(4, &[b"abcd\n", b"abcde\nx"]),
            ["abcd".to_owned(), format!("abcd{CUT_MARK}"), "x".into()]
        );
        assert_eq!(lines(4, &[b"ab", b"cdefgh", b"ijk"]), [format!("abcd{CUT_MARK}")]);
        assert_eq!(lines(4, &["abc\u{e9}z\n".as_bytes()]), [format!("abc{CUT_MARK}")]);
        assert_eq!(lines(5, &["abc\u{e9}z\n".as_bytes()]), [format!("abc\u{e9}{CUT_MARK}")]);
    }
}
