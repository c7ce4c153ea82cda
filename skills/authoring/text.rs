//! What text may hold: one rule per kind of field.

use serde_json::{Value, json};
use std::net::Ipv6Addr;
use svc_base::api::Validator;
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

/// Longest URL.
pub const URL_CHARS: usize = 2048;
/// Scalars of one icon; flags and families need several.
pub const ICON_SCALARS: usize = 16;
/// Longest version label.
pub const VERSION_CHARS: usize = 32;
/// Longest handle.
pub const HANDLE_CHARS: usize = 39;
/// Longest price, in cents.
pub const PRICE_MAX_CENTS: u64 = 9_999;

/// Trimmed and composed, and checked: length in scalars, no control, bidi, zero-width or tag characters.
pub fn line(v: &mut Validator, field: &str, text: &str, min: usize, max: usize) -> String {
    let text: String = text.trim().nfc().collect();
    let length = text.chars().count();
    v.check((min..=max).contains(&length), field, || {
        format!("{field} must have {min} to {max} characters, it has {length}")
    });
    if let Some(bad) = text.chars().find(|c| is_hidden(*c)) {
        v.fail(field, format!("{field} must not hold the invisible character U+{:04X}", u32::from(bad)));
    }
    text
}

/// Characters that do not show or that change how others show.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{061c}'
            | '\u{feff}' | '\u{180e}' | '\u{2028}' | '\u{2029}' | '\u{e0000}'..='\u{e007f}')
}

/// The characters of [`is_hidden`] inside the brackets of a regular expression.
const HIDDEN: &str = "\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\u{e0000}-\u{e007f}";

/// JSON schema of what [`line()`] takes; `null` counts as absent where it may.
pub fn line_schema(min: usize, max: usize, nullable: bool) -> Value {
    let pattern = if min == 0 {
        format!("^([^{HIDDEN}\\s]([^{HIDDEN}]*[^{HIDDEN}\\s])?)?$")
    } else {
        format!("^[^{HIDDEN}\\s]([^{HIDDEN}]*[^{HIDDEN}\\s])?$")
    };
    let kind = if nullable { json!(["string", "null"]) } else { json!("string") };
    json!({"type": kind, "minLength": min, "maxLength": max, "pattern": pattern})
}

/// JSON schema of an icon. What people see as one character may have several scalars; that is not told here.
pub fn icon_schema() -> Value {
    json!({
        "type": ["string", "null"], "minLength": 1, "maxLength": 1, "pattern": format!("^[^{HIDDEN}\\s]$"),
        "description": "exactly one character; an emoji of several scalars counts as one",
    })
}

/// JSON schema of a version label.
pub fn version_schema() -> Value {
    let pattern = "^[0-9]+(\\.[0-9]+){0,3}(-[0-9A-Za-z-]+(\\.[0-9A-Za-z-]+)*)?$";
    json!({"type": ["string", "null"], "minLength": 1, "maxLength": VERSION_CHARS, "pattern": pattern})
}

/// JSON schema of a URL.
pub fn url_schema() -> Value {
    let host = format!("([A-Za-z0-9.-]+|\\[{}\\])(:[0-9]{{1,5}})?", ipv6_pattern());
    let pattern = format!("^(https?://{host}([/?#][^{HIDDEN}\\s\"<>`{{}}|^\\\\]*)?)?$");
    json!({"type": ["string", "null"], "maxLength": URL_CHARS, "pattern": pattern})
}

/// What [`Ipv6Addr`] reads, but no IPv4 at its end: `::` stands for one group or more, at most once.
fn ipv6_pattern() -> String {
    let group = "[0-9A-Fa-f]{1,4}";
    let mut forms = vec![format!("({group}:){{7}}{group}"), format!("({group}:){{1,7}}:")];
    forms.extend((1..=6).map(|before| format!("({group}:){{1,{before}}}(:{group}){{1,{}}}", 7 - before)));
    forms.push(format!(":((:{group}){{1,7}}|:)"));
    format!("({})", forms.join("|"))
}

/// JSON schema of a handle.
pub fn handle_schema() -> Value {
    json!({"type": ["string", "null"], "maxLength": HANDLE_CHARS, "pattern": "^[A-Za-z0-9_-]*$"})
}

/// Exactly one visible grapheme cluster.
pub fn icon(v: &mut Validator, text: &str) -> String {
    let text: String = text.trim().nfc().collect();
    let clusters = text.graphemes(true).count();
    let scalars = text.chars().count();
    v.check(clusters == 1 && scalars <= ICON_SCALARS, "icon", || {
        format!("icon must be exactly one character, it has {clusters}")
    });
    let visible = text.chars().any(|c| !is_hidden(c) && !c.is_whitespace());
    let clean = !text.chars().any(|c| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}'));
    v.check(clusters != 1 || (visible && clean), "icon", || "icon must be a visible character".into());
    text
}

/// The icon of a skill that names none: the name's first letter or digit, in upper case.
pub fn icon_of(name: &str) -> String {
    let first = name.chars().find(|c| c.is_alphanumeric());
    first.map_or_else(|| "?".into(), |c| c.to_uppercase().take(1).collect())
}

/// 1-4 dotted numbers, perhaps `-` and a pre-release.
pub fn version(v: &mut Validator, text: &str) -> String {
    let text = text.trim();
    let (numbers, pre) = text.split_once('-').map_or((text, None), |(numbers, pre)| (numbers, Some(pre)));
    let parts: Vec<&str> = numbers.split('.').collect();
    let dotted =
        parts.len() <= 4 && parts.iter().all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
    let labelled = pre.is_none_or(|pre| {
        pre.split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
    });
    v.check(dotted && labelled && text.len() <= VERSION_CHARS, "version", || {
        format!(
            "version must be 1 to 4 dotted numbers with an optional pre-release, at most {VERSION_CHARS} characters, \
             for example 1.2.0 or 2.0-beta.1"
        )
    });
    text.to_owned()
}

/// An http or https address, or nothing.
pub fn url(v: &mut Validator, field: &str, text: &str) -> String {
    let text = text.trim();
    if text.is_empty() {
        return String::new();
    }
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host_ok = rest.is_some_and(|rest| is_host(rest.split(['/', '?', '#']).next().unwrap_or_default()));
    let clean = !text.chars().any(|c| {
        c.is_whitespace() || is_hidden(c) || matches!(c, '"' | '<' | '>' | '`' | '{' | '}' | '|' | '^' | '\\')
    });
    v.check(host_ok && clean && text.chars().count() <= URL_CHARS, field, || {
        format!("{field} must be an http or https URL of at most {URL_CHARS} characters")
    });
    text.to_owned()
}

/// A name or address with an optional port; no user part, which could mislead.
fn is_host(host: &str) -> bool {
    let end = if host.starts_with('[') {
        host.find(']').map_or(0, |at| at + 1)
    } else {
        host.find(':').unwrap_or(host.len())
    };
    let (name, port) = host.split_at(end);
    let port_ok = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| {
            (1..=5).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
        });
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let name_ok = match inner {
        Some(inner) => !inner.contains('.') && inner.parse::<Ipv6Addr>().is_ok(),
        None => {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
        }
    };
    port_ok && name_ok
}

/// A handle without `@`, or nothing.
pub fn handle(v: &mut Validator, field: &str, text: &str) -> String {
    let text = text.trim();
    let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    v.check(text.len() <= HANDLE_CHARS && text.bytes().all(known), field, || {
        format!("{field} must be a handle of 1 to {HANDLE_CHARS} letters, digits, _ or -")
    });
    text.to_owned()
}

/// A price in cents; at most two decimals.
pub fn price(v: &mut Validator, value: &serde_json::Value) -> u64 {
    let cents = value.as_f64().and_then(|price| {
        let cents = (price * 100.0).round();
        // Dividing a whole number by 100 gives the very double that two decimals are read as.
        #[allow(clippy::float_cmp, reason = "equality is meant")]
        let exact = cents / 100.0 == price;
        #[allow(clippy::cast_precision_loss, reason = "the limit is far below 2^53")]
        let in_range = price >= 0.0 && cents <= PRICE_MAX_CENTS as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        (exact && in_range).then_some(cents as u64)
    });
    v.check(cents.is_some(), "price", || {
        "price must be a number from 0 to 99.99 with at most 2 decimals".into()
    });
    cents.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(check: impl FnOnce(&mut Validator)) -> bool {
        let mut v = Validator::default();
        check(&mut v);
        !v.is_clean()
    }

    #[test]
    fn decisions_2_lengths_count_scalars_after_trimming_and_nfc() {
        let mut v = Validator::default();
        assert_eq!(line(&mut v, "name", "  e\u{301}e\u{301}e\u{301} ", 3, 3), "ééé");
        assert!(v.is_clean());
        assert!(fails(|v| drop(line(v, "name", "ab ", 3, 100))));
        assert!(fails(|v| drop(line(v, "name", &"x".repeat(101), 3, 100))));
        assert!(!fails(|v| drop(line(v, "name", &"日".repeat(100), 3, 100))));
    }

    #[test]
    fn decisions_2_hidden_characters_are_refused() {
        for c in ['\n', '\0', '\u{7f}', '\u{85}', '\u{200b}', '\u{200d}', '\u{202e}', '\u{2066}', '\u{feff}']
        {
            assert!(fails(|v| drop(line(v, "name", &format!("abc{c}def"), 3, 100))), "{c:?}");
        }
        assert!(fails(|v| drop(line(v, "name", "abc\u{e0041}", 3, 100))));
    }

    #[test]
    fn decisions_2_icon_is_one_grapheme_cluster() {
        for good in ["P", "é", "e\u{301}", "👩‍👩‍👧", "🇩🇪", "日"] {
            assert!(!fails(|v| drop(icon(v, good))), "{good}");
        }
        for bad in ["", " ", "AB", "\u{200b}", "\n", "🇩🇪🇫🇷"] {
            assert!(fails(|v| drop(icon(v, bad))), "{bad:?}");
        }
        assert_eq!(icon_of("¡hola!"), "H");
        assert_eq!(icon_of("!!!"), "?");
    }

    #[test]
    fn decisions_2_price_has_two_decimals_and_is_stored_in_cents() {
        let cents = |value: Value| {
            let mut v = Validator::default();
            let cents = price(&mut v, &value);
            v.is_clean().then_some(cents)
        };
        assert_eq!(cents(json!(0)), Some(0));
        assert_eq!(cents(json!(4.99)), Some(499));
        assert_eq!(cents(json!(99.99)), Some(9999));
        assert_eq!(cents(json!(0.1)), Some(10));
        for bad in [
            json!(-0.01),
            json!(100),
            json!(1.999),
            json!("1"),
            json!(1e300),
            json!(5e-21),
            json!(null),
            json!(true),
        ] {
            assert_eq!(cents(bad.clone()), None, "{bad}");
        }
    }

    #[test]
    fn decisions_2_versions_urls_and_handles() {
        for good in ["1", "1.0.0", "1.2.3.4", "2.0-beta.1", "0.0.1-a-b"] {
            assert!(!fails(|v| drop(version(v, good))), "{good}");
        }
        for bad in ["", "v1", "1.", "1.2.3.4.5", "1-", "1.0+x", "1..2", &"1".repeat(33)] {
            assert!(fails(|v| drop(version(v, bad))), "{bad}");
        }
        for good in [
            "",
            "https://a.example/x?y#z",
            "http://localhost:3000",
            "https://[::1]/",
            "http://[1:2:3:4:5:6:7::]:80",
        ] {
            assert!(!fails(|v| drop(url(v, "website", good))), "{good}");
        }
        for bad in [
            "ftp://a",
            "https://",
            "javascript:alert(1)",
            "https://a b",
            "https://a/\"x",
            "//a",
            "http://a*",
            "http://u@a",
            "http://a:x",
            "http://[a",
            "http://[303]",
            "http://[1:2:3:4:5:6:7:8:9]",
            "http://[1::2::3]",
            "http://[::1.2.3.4]",
        ] {
            assert!(fails(|v| drop(url(v, "website", bad))), "{bad}");
        }
        assert!(fails(|v| drop(url(v, "website", &format!("https://{}", "a".repeat(2048))))));
        for bad in ["@a", "a b", "ä", &"a".repeat(40)] {
            assert!(fails(|v| drop(handle(v, "github", bad))), "{bad}");
        }
    }
}
