//! Names into ids.

use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Longest id, a collision's suffix included.
pub const SLUG_CHARS: usize = 64;

/// Lower-case Latin letters whose mark is part of the letter, so that no decomposition takes it off, with
/// what people write instead.
const LATIN: [(char, &str); 10] = [
    ('ß', "ss"),
    ('æ', "ae"),
    ('œ', "oe"),
    ('ø', "o"),
    ('đ', "d"),
    ('ð', "d"),
    ('ħ', "h"),
    ('ı', "i"),
    ('ł', "l"),
    ('þ', "th"),
];

/// Lower-case ASCII words joined by hyphens; empty when the name has none.
pub fn words(name: &str) -> String {
    let mut out = String::new();
    for c in name.nfkd().flat_map(char::to_lowercase).filter(|c| !is_combining_mark(*c)) {
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            out.push(c);
        } else if let Some((_, plain)) = LATIN.iter().find(|(letter, _)| *letter == c) {
            out.push_str(plain);
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
    }
    cut(out.trim_end_matches('-'), SLUG_CHARS).to_owned()
}

/// The id of a new skill before collisions are looked at.
pub fn of_name(name: &str) -> String {
    let slug = words(name);
    if slug.is_empty() { format!("skill-{}", short_hash(name)) } else { slug }
}

/// The `n`-th candidate: the slug itself, then `-2`, `-3` and so on, never longer than the limit.
pub fn candidate(slug: &str, n: u64) -> String {
    if n < 2 {
        return slug.to_owned();
    }
    let suffix = format!("-{n}");
    format!("{}{suffix}", cut(slug, SLUG_CHARS - suffix.len()))
}

/// Eight hexadecimal digits that depend on the text alone.
pub fn short_hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    crate::hex::encode(&digest[..4])
}

/// At most `limit` bytes, cut at a hyphen where there is one.
fn cut(slug: &str, limit: usize) -> &str {
    if slug.len() <= limit {
        return slug;
    }
    // A hyphen right behind the limit ends a whole word, too.
    let end = slug[..=limit].rfind('-').filter(|at| *at > 0).unwrap_or(limit);
    slug[..end].trim_end_matches('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_2_slug() {
        for (name, slug) in [
            ("Frontend Design", "frontend-design"),
            ("  C++ & Rust!  ", "c-rust"),
            ("Crème Brûlée", "creme-brulee"),
            ("Große Straßen", "grosse-strassen"),
            ("STRAẞE", "strasse"),
            ("Smørrebrød fra Łódź", "smorrebrod-fra-lodz"),
            ("ﬁne ①", "fine-1"),
            ("İstanbul", "istanbul"),
            ("registry.json", "registry-json"),
            ("--a--", "a"),
        ] {
            assert_eq!(of_name(name), slug);
        }
        let hashed = of_name("日本語");
        assert!(hashed.starts_with("skill-") && hashed.len() == 14, "{hashed}");
        assert_eq!(of_name("日本語"), hashed);
    }

    #[test]
    fn decisions_2_a_slug_is_cut_at_64_on_a_hyphen() {
        let long = format!("{} {} tail", "a".repeat(40), "b".repeat(30));
        assert_eq!(of_name(&long), "a".repeat(40));
        assert_eq!(of_name(&"x".repeat(90)), "x".repeat(64));
        assert_eq!(of_name(&format!("{} y", "x".repeat(64))), "x".repeat(64));
        assert_eq!(candidate("a", 1), "a");
        assert_eq!(candidate("a", 3), "a-3");
        assert_eq!(candidate(&"x".repeat(64), 12).len(), 64);
    }
}
