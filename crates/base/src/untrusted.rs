//! Text that agents or strangers wrote, on its way to a person: what could forge a line, a direction or an
//! end, or cannot be seen at all, is shown as a visible escape such as `\n` or `\u{202e}`. Terminal, console
//! and chats use this; the console's twin is `visible` in `dom.js`.
//!
//! Escaping twice changes nothing: a backslash stands for itself.

use std::fmt::Write as _;

/// Above this character a joiner (U+200C, U+200D) belongs to the word or the emoji before it: up to it stand
/// ASCII, Latin and the marks on them, where a joiner only hides.
const LAST_WITHOUT_JOINERS: char = '\u{36f}';

/// Text that stands on one line whatever it holds: a path, a name, a reason.
pub fn untrusted_line(text: &str) -> String {
    shown(text, |_| false)
}

/// Text that may have lines, such as a message or a diff. Every kind of line end becomes `\n`; tabs stay.
pub fn untrusted_text(text: &str) -> String {
    shown(&text.replace("\r\n", "\n"), |c| matches!(c, '\n' | '\t'))
}

/// Text folded to one line: runs of white space become one space, the rest as [`untrusted_line`]. For prose
/// whose lines mean nothing.
pub fn untrusted_prose(text: &str) -> String {
    untrusted_line(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Text that means nothing to a browser wherever it stands in a page, attributes in quotes included.
pub fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn shown(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut last = ' ';
    for c in text.chars() {
        let joins = matches!(c, '\u{200c}' | '\u{200d}') && last > LAST_WITHOUT_JOINERS && !misleads(last);
        if stays(c) || joins || !misleads(c) {
            out.push(c);
        } else {
            escape(c, &mut out);
        }
        last = c;
    }
    out
}

fn escape(c: char, out: &mut String) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        // Writing to a string cannot fail.
        c => drop(write!(out, "\\u{{{:x}}}", u32::from(c))),
    }
}

/// Whether a character steers what shows it, or shows nothing: controls, marks of direction, ends of lines,
/// blanks without width, letters without ink, tags.
fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_forges_a_line_or_a_direction() {
        assert_eq!(
            untrusted_line("api/x\n\nApproved by telegram:5\r\u{2028}\u{2029}\u{85}\u{b}"),
            "api/x\\n\\nApproved by telegram:5\\r\\u{2028}\\u{2029}\\u{85}\\u{b}"
        );
        assert_eq!(untrusted_line("api/\u{202e}gpj.exe"), "api/\\u{202e}gpj.exe");
        let steering =
            "\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{2066}\u{2067}\u{2068}\u{2069}\u{61c}";
        let unseen = "\u{200b}\u{200c}\u{200d}\u{feff}\u{2060}\u{ad}\u{3164}\u{e0041}\u{e007f}";
        for c in steering.chars().chain(unseen.chars()).chain("\u{1b}\u{9b}\u{7f}\0\u{8}".chars()) {
            for text in [untrusted_line(&format!("a{c}b")), untrusted_text(&format!("a{c}b"))] {
                assert_eq!(text, format!("a\\u{{{:x}}}b", u32::from(c)));
            }
        }
    }

    #[test]
    fn html_is_text_in_and_out_of_attributes() {
        assert_eq!(escape_html("<b a=\"x\" b='y'>&"), "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;");
    }

    #[test]
    fn text_keeps_its_lines_and_prose_folds_them() {
        assert_eq!(untrusted_text("a\r\n\tb\rc\n"), "a\n\tb\\rc\n");
        assert_eq!(untrusted_prose(" a \n\n b\u{7}\u{2028} c"), "a b\\u{7} c");
    }

    #[test]
    fn honest_text_of_all_languages_stays_and_escaping_twice_is_escaping_once() {
        for text in ["naïve e\u{301} — C:\\new\\table", "می\u{200c}خواهم", "👩\u{200d}👧 ❤\u{fe0f}", "日本"]
        {
            assert_eq!(untrusted_line(text), text);
        }
        for text in ["a\u{202e}\n\u{200d}b", "\\n\\u{202e}"] {
            assert_eq!(untrusted_line(&untrusted_line(text)), untrusted_line(text));
        }
    }
}
