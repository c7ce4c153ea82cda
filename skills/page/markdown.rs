//! Markdown from strangers into HTML that cannot do anything.
//!
//! **Invariant:** raw HTML comes out as text; links lead to http, https or relative addresses; nothing is
//! loaded from elsewhere.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};

/// Renders markdown without its front matter.
pub fn render(text: &str) -> String {
    let parser = Parser::new_ext(
        crate::authoring::content::body(text),
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS,
    );
    // Whether each open link was let through, so that its end is treated alike.
    let mut links = Vec::new();
    let events = parser.filter_map(move |event| match event {
        Event::Html(raw) | Event::InlineHtml(raw) => Some(Event::Text(raw)),
        // An image would be loaded from elsewhere; its text stays.
        Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => None,
        Event::Start(Tag::Link { ref dest_url, .. }) => {
            let safe = is_safe_link(dest_url);
            links.push(safe);
            safe.then_some(event)
        }
        Event::End(TagEnd::Link) => links.pop().unwrap_or(false).then_some(event),
        other => Some(other),
    });
    let mut out = String::with_capacity(text.len() * 3 / 2);
    html::push_html(&mut out, events);
    out
}

/// Whether an address is http, https or relative.
pub fn is_safe_link(address: &str) -> bool {
    // Browsers leave out white space and controls, which would make another scheme of it.
    if address.starts_with("//") || address.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\')
    {
        return false;
    }
    match address.find(['/', '?', '#', ':']) {
        Some(at) if address[at..].starts_with(':') => {
            let scheme = &address[..at];
            scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_4_markdown_is_sanitised() {
        let html = render(
            "---\nname: a\n---\n# Hi <script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n\
             [bad](javascript:alert(1)) [worse](JaVaScRiPt:x) [data](data:text/html,x) [good](https://a.example/)\n\
             [near](./x.md) ![pic](https://evil.example/track.png)\n\n<https://b.example>\n\n\
             [ref]\n\n[ref]: vbscript:x \"title\\\" onmouseover=\\\"x\"\n",
        );
        for bad in
            ["<script", "<img", "javascript:", "JaVaScRiPt", "data:text", "track.png", "vbscript:", "name: a"]
        {
            assert!(!html.contains(bad), "{bad} in {html}");
        }
        for good in
            ["&lt;script&gt;", "href=\"https://a.example/\"", "href=\"./x.md\"", "bad", "pic", "b.example"]
        {
            assert!(html.contains(good), "{good} not in {html}");
        }
    }

    /// Whatever text comes, reading its front matter and rendering it neither panics nor lets markup through.
    #[test]
    fn mutated_markdown_never_panics_nor_becomes_markup_of_its_own() {
        let seeds = [
            "---\nname: a\ndescription: b\n---\n# T\n\n| a | b |\n|---|---|\n| <i> | [x](y) |\n",
            "---\r\n---\r\n<script>x</script>\n\n- [ ] *a* `b` ![c](d)\n\n```\n</pre>\n```\n",
            "[a]: javascript:x\n[a] <javascript:x> [b](<java\nscript:x>) &#106;avascript:\n\n---\n",
        ];
        let pieces =
            ["---\n", "<script>", "](javascript:x)", "[", "\r", "\0", "é", "`", "<!--", "&lt;", "\n\n", "!["];
        let mut random = 0x1234_5678_9abc_def1_u64;
        let mut next = move |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % (n as u64)).unwrap()
        };
        for round in 0..3000 {
            let mut text = seeds[round % seeds.len()].to_owned();
            for _ in 0..=next(5) {
                let mut at = next(text.len() + 1);
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                if next(3) == 0 {
                    text.truncate(at);
                } else {
                    text.insert_str(at, pieces[next(pieces.len())]);
                }
            }
            let html = render(&text);
            for bad in ["<script", "<!--", "<img", "<i>", "href=\"javascript:"] {
                assert!(!html.contains(bad), "{bad} in {html:?} of {text:?}");
            }
            let _noted = crate::authoring::content::lint(&text);
        }
    }

    #[test]
    fn only_http_and_relative_links_are_safe() {
        for good in ["https://a", "HTTP://a", "/a:b", "a/b", "#x", "?a:b", ""] {
            assert!(is_safe_link(good), "{good}");
        }
        for bad in ["javascript:x", "java\tscript:x", "//a", "mailto:a@b", " https://a", "\\\\a", "x:y/z"] {
            assert!(!is_safe_link(bad), "{bad}");
        }
    }
}
