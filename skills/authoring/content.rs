//! The markdown of a skill: what is refused, and what is only noted.

use svc_base::api::Validator;

/// Largest content.
pub const CONTENT_BYTES: usize = 51_200;

/// What [`check`] takes, as a regular expression.
pub const PATTERN: &str = "^[^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f]*$";

/// Content that was checked, with what is stored beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The text itself, byte for byte as it came.
    pub text: String,
    /// Its SHA-256.
    pub digest: String,
    /// Whether it has `name` and `description` in front, as the Agent Skills format wants.
    pub has_front_matter: bool,
}

impl Content {
    /// Takes text that passed [`check`].
    pub fn new(text: String) -> Self {
        let digest = crate::hex::sha256(text.as_bytes());
        let has_front_matter = lint(&text).is_empty() && front_matter(&text).is_some();
        Self { text, digest, has_front_matter }
    }
}

/// Refuses what cannot be stored or shown.
pub fn check(v: &mut Validator, text: &str) {
    v.check(text.len() <= CONTENT_BYTES, "content", || {
        format!("content must have at most {CONTENT_BYTES} bytes, it has {}", text.len())
    });
    let control = text.chars().find(|c| *c < ' ' && !matches!(c, '\t' | '\n' | '\r'));
    if let Some(bad) = control {
        v.fail("content", format!("content must not hold the control character U+{:04X}", u32::from(bad)));
    }
    // Every text is a CommonMark document; the parser is run so that what it cannot take is met here.
    if v.is_clean() {
        let _blocks = pulldown_cmark::Parser::new(body(text)).count();
    }
}

/// The lines between the two `---` at the top.
pub fn front_matter(text: &str) -> Option<&str> {
    divided(text).map(|(front, _)| front)
}

/// What comes after the front matter.
pub fn body(text: &str) -> &str {
    divided(text).map_or(text, |(_, body)| body)
}

/// Front matter and the rest; `None` where there is none.
fn divided(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n"))?;
    let mut start = 0;
    for line in rest.split_inclusive('\n') {
        let end = start + line.len();
        if line.trim_end_matches(['\r', '\n']) == "---" {
            return Some((&rest[..start], rest[end..].trim_start_matches(['\r', '\n'])));
        }
        start = end;
    }
    None
}

/// One plain value of the front matter: `key: value` on one line, quotes taken off.
pub fn front_value(front: &str, key: &str) -> Option<String> {
    let line = front
        .lines()
        .find(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':')))?;
    let value = line.split_once(':')?.1.trim();
    let quoted = |q: char| value.strip_prefix(q).and_then(|rest| rest.strip_suffix(q));
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value).to_owned())
}

/// What the Agent Skills format would want otherwise; never a reason to refuse.
pub fn lint(text: &str) -> Vec<String> {
    let Some(front) = front_matter(text) else { return Vec::new() };
    let mut found = Vec::new();
    match front_value(front, "name") {
        None => found.push("the front matter has no name".to_owned()),
        Some(name) => {
            let lower = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            let ends = name.starts_with('-') || name.ends_with('-') || name.contains("--");
            if name.is_empty() || name.len() > 64 || !lower || ends {
                found.push("the front matter's name should be 1 to 64 of a-z, 0-9 and single hyphens".into());
            }
        }
    }
    match front_value(front, "description").map(|text| text.chars().count()) {
        None | Some(0) => found.push("the front matter has no description".to_owned()),
        Some(1025..) => found.push("the front matter's description is above 1024 characters".into()),
        Some(_) => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(text: &str) -> bool {
        let mut v = Validator::default();
        check(&mut v, text);
        !v.is_clean()
    }

    #[test]
    fn decisions_2_content_is_at_most_51200_bytes_without_controls() {
        assert!(!fails(&"x".repeat(CONTENT_BYTES)));
        assert!(fails(&"x".repeat(CONTENT_BYTES + 1)));
        assert!(fails(&"é".repeat(CONTENT_BYTES / 2 + 1)));
        assert!(!fails("a\tb\r\nc"));
        for bad in ["a\0", "a\u{1b}[0m", "\u{8}"] {
            assert!(fails(bad), "{bad:?}");
        }
    }

    #[test]
    fn decisions_2_front_matter_is_linted_never_refused() {
        let good = "---\nname: code-review\ndescription: \"Reviews a change.\"\n---\n\n# Text\n";
        assert_eq!(lint(good), Vec::<String>::new());
        assert_eq!(body(good), "# Text\n");
        assert!(Content::new(good.into()).has_front_matter);
        let bad = "---\nname: Code Review\n---\n# Text";
        assert_eq!(lint(bad).len(), 2);
        assert!(!fails(bad) && !Content::new(bad.into()).has_front_matter);
        for plain in ["# Text", "---\nno end", "", "---"] {
            assert_eq!((front_matter(plain), body(plain)), (None, plain));
        }
        assert_eq!(body("---\n---\nx"), "x");
    }
}
