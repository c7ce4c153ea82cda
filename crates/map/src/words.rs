//! Identifiers of source text and the words they are made of, as numbers.

use svc_base::relevance;

/// A longer run of letters is data, not a name.
const NAME_BYTES: usize = 64;
/// Words of one letter tell nothing.
const WORD_BYTES: usize = 2;

/// FNV-1a, 32 bits.
pub fn key(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Gives every identifier of a text, in order. Numbers are none.
pub fn each_name<'a>(text: &'a [u8], mut take: impl FnMut(&'a [u8])) {
    let mut at = 0;
    while at < text.len() {
        if !is_of_name(text[at]) {
            at += 1;
            continue;
        }
        let begin = at;
        while at < text.len() && is_of_name(text[at]) {
            at += 1;
        }
        let name = &text[begin..at];
        if !name[0].is_ascii_digit() && name.len() <= NAME_BYTES {
            take(name);
        }
    }
}

/// Whether a byte can stand in an identifier; those of letters beyond ASCII can.
pub fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Gives the key of each word of an identifier: `parseHTTPRequest` and `parse_http_request` have three.
pub fn each_word(name: &[u8], mut take: impl FnMut(u32)) {
    let mut begin = 0;
    for at in 0..=name.len() {
        if at < name.len() && !ends_word(name, at) {
            continue;
        }
        let word = &name[begin..at];
        if let Some(key) = key_of(word) {
            take(key);
        }
        begin = at + usize::from(name.get(at).is_some_and(|byte| !is_letter(*byte)));
    }
}

/// Whether a word ends before this place.
fn ends_word(name: &[u8], at: usize) -> bool {
    let this = name[at];
    if !is_letter(this) {
        return true;
    }
    let before = at.checked_sub(1).map(|before| name[before]);
    let next = name.get(at + 1);
    this.is_ascii_uppercase()
        && before.is_some_and(|before| {
            before.is_ascii_lowercase()
                // The last capital of several begins the next word.
                || before.is_ascii_uppercase() && next.is_some_and(u8::is_ascii_lowercase)
        })
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte >= 0x80
}

/// The key of a word, in lower case and without its ending.
fn key_of(word: &[u8]) -> Option<u32> {
    let mut lower = [0_u8; NAME_BYTES];
    let lower = lower.get_mut(..word.len()).filter(|_| word.len() >= WORD_BYTES)?;
    lower.copy_from_slice(word);
    lower.make_ascii_lowercase();
    let lower = std::str::from_utf8(lower).ok()?;
    Some(key(relevance::stem(lower).as_bytes()))
}

/// Keys of the telling words of a task, each once.
pub fn of_task(task: &str, most: usize) -> Vec<u32> {
    let mut keys = Vec::new();
    for word in relevance::words(task) {
        let key = key(word.as_bytes());
        if keys.len() < most && !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(name: &str) -> Vec<u32> {
        let mut found = Vec::new();
        each_word(name.as_bytes(), |key| found.push(key));
        found
    }

    fn keys(words: &[&str]) -> Vec<u32> {
        words.iter().map(|word| key(word.as_bytes())).collect()
    }

    #[test]
    fn names_are_split_into_their_words_whatever_their_style() {
        let expected = keys(&["pars", "http", "request"]);
        for name in ["parseHTTPRequest", "parse_http_request", "ParseHttpRequests", "PARSE_HTTP_REQUEST"] {
            assert_eq!(words(name), expected, "{name}");
        }
        assert_eq!(words("x2y_zz"), keys(&["zz"]));
        assert_eq!(words("größe"), keys(&["größ"]));
        assert!(words("").is_empty());
    }

    #[test]
    fn names_are_found_and_numbers_and_data_are_not() {
        let mut found = Vec::new();
        let text = format!("let a1 = 0x1f + {}; // größe", "z".repeat(65));
        each_name(text.as_bytes(), |name| found.push(String::from_utf8_lossy(name).into_owned()));
        assert_eq!(found, ["let", "a1", "größe"]);
    }

    #[test]
    fn words_of_a_task_are_those_of_names() {
        assert_eq!(
            of_task("Fix the HttpRequest parsing", 9),
            keys(&["httprequest", "http", "request", "pars"])
        );
    }
}
