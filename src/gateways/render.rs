//! How a text looks on each platform: its markup, its escaping, its length.
//!
//! **Invariant:** whatever stands in a text is shown literally: it forms no markup, mentions nobody, links
//! nowhere.
//! **Invariant:** no piece is longer than the platform takes, and each is whole markup by itself.
//!
//! Source: Telegram Bot API "HTML style" and sendMessage; Discord "Create Message" and its client's
//! Markdown; Slack "Rich text block" and "Formatting text".

use super::message::{Span, Style, Text};
use super::record::Kind;
use serde_json::{Value, json};

/// Telegram takes 4096 characters after its markup is read; we count UTF-16 units, of which there are never
/// fewer.
pub const TELEGRAM_UNITS: usize = 4_096;
/// Discord takes 2000 characters as sent.
pub const DISCORD_UNITS: usize = 2_000;
/// Slack shows a message of 4000 characters whole; 3000 leave room for the buttons.
pub const SLACK_UNITS: usize = 3_000;
/// Pieces of one message at most; what is longer is cut, and says so.
pub const MAX_PIECES: usize = 10;
/// What a cut text ends with.
const CUT: &str = "\n… (cut)";

/// The pieces of a text, each as much as the platform takes; none when there is nothing to say.
pub fn split(kind: Kind, text: &Text) -> Vec<Text> {
    let chars: Vec<(char, Style)> =
        text.0.iter().flat_map(|span| span.text.chars().map(|c| (c, span.style))).collect();
    let chars = trimmed(&chars);
    let mut pieces = Vec::new();
    let mut rest = chars;
    while !rest.is_empty() {
        let end = fit(kind, rest, limit(kind));
        if pieces.len() + 1 == MAX_PIECES && end < rest.len() {
            let end = fit(kind, rest, limit(kind) - CUT.len());
            pieces.push(joined(&rest[..end]).plain(CUT));
            break;
        }
        let piece = joined(trimmed(&rest[..end]));
        if !piece.0.is_empty() {
            pieces.push(piece);
        }
        rest = without_leading_space(&rest[end..]);
    }
    pieces
}

/// Characters of one style after the other become one span each.
fn joined(chars: Chars) -> Text {
    let run = |run: Chars| Span { style: run[0].1, text: run.iter().map(|(c, _)| *c).collect() };
    Text(chars.chunk_by(|a, b| a.1 == b.1).map(run).collect())
}

fn limit(kind: Kind) -> usize {
    match kind {
        Kind::Telegram => TELEGRAM_UNITS,
        Kind::Discord => DISCORD_UNITS,
        Kind::Slack => SLACK_UNITS,
    }
}

type Chars<'a> = &'a [(char, Style)];

fn trimmed(chars: Chars) -> Chars {
    let start = chars.iter().position(|(c, _)| !c.is_whitespace()).unwrap_or(chars.len());
    let end = chars.iter().rposition(|(c, _)| !c.is_whitespace()).map_or(start, |at| at + 1);
    &chars[start..end]
}

/// After a cut at a space or a line's end, the next piece does not begin with it.
fn without_leading_space(chars: Chars) -> Chars {
    let start = chars.iter().position(|(c, _)| !matches!(c, ' ' | '\n')).unwrap_or(chars.len());
    &chars[start..]
}

/// How many characters make the next piece: up to a line's end if one is near, a space, or anywhere.
fn fit(kind: Kind, chars: Chars, room: usize) -> usize {
    let mut used = 0;
    let mut end = 0;
    for (at, (c, style)) in chars.iter().enumerate() {
        let begins = at == 0 || chars[at - 1].1 != *style;
        used += char_cost(kind, *c, *style) + if begins { run_cost(kind, *style) } else { 0 };
        if used > room {
            break;
        }
        end = at + 1;
    }
    if end == chars.len() {
        return end;
    }
    // At least one, so that there always is progress.
    let end = end.max(1);
    let near = |wanted: fn(char) -> bool, least: usize| {
        chars[..end].iter().rposition(|(c, _)| wanted(*c)).filter(|at| *at >= least)
    };
    near(|c| c == '\n', end / 2)
        .or_else(|| near(|c| c == ' ', end / 2))
        .unwrap_or_else(|| before_joined(chars, end))
}

/// Does not cut between a character and what is joined to it (accents, skin tones, flags of joined emoji).
fn before_joined(chars: Chars, end: usize) -> usize {
    let joins = |c: char| {
        let is_accent = ('\u{300}'..='\u{36f}').contains(&c);
        let is_variant = ('\u{fe00}'..='\u{fe0f}').contains(&c) || ('\u{1f3fb}'..='\u{1f3ff}').contains(&c);
        is_accent || is_variant || c == '\u{200d}'
    };
    let mut at = end;
    while at > 1 && (joins(chars[at].0) || chars[at - 1].0 == '\u{200d}') && end - at < 32 {
        at -= 1;
    }
    at
}

/// UTF-16 units that a character takes of the platform's limit.
fn char_cost(kind: Kind, c: char, style: Style) -> usize {
    match kind {
        Kind::Discord if style != Style::Code && is_discord_markup(c) => 2,
        // Telegram counts what is left when its markup is read; Slack's words stand beside their styles.
        _ => c.len_utf16(),
    }
}

/// Units of the marks around a run of one style.
fn run_cost(kind: Kind, style: Style) -> usize {
    match (kind, style) {
        (Kind::Telegram | Kind::Slack, _) | (_, Style::Plain) => 0,
        (Kind::Discord, Style::Bold) => 4,
        (Kind::Discord, Style::Code) => 2,
    }
}

/// A piece in the platform's markup. Slack has its own structure for that ([`rich_text`]); here stand
/// its bare words, for notifications.
pub fn markup(kind: Kind, piece: &Text) -> String {
    let mut out = String::with_capacity(piece.bytes() + 16);
    for Span { style, text } in &piece.0 {
        // Marks around nothing but space would be shown as they are.
        let style = if text.trim().is_empty() { Style::Plain } else { *style };
        let (open, close) = marks(kind, style);
        out.push_str(open);
        match style {
            Style::Code => out.push_str(&escaped_code(kind, text)),
            _ => out.push_str(&escaped(kind, text)),
        }
        out.push_str(close);
    }
    out
}

/// A piece as Slack's `rich_text` block: styles are fields beside the words, so that no word can be markup.
///
/// Source: docs.slack.dev/reference/block-kit/blocks/rich-text-block.
pub fn rich_text(piece: &Text) -> Value {
    let element = |span: &Span| match span.style {
        Style::Plain => json!({"type": "text", "text": span.text}),
        Style::Bold => json!({"type": "text", "text": span.text, "style": {"bold": true}}),
        Style::Code => json!({"type": "text", "text": span.text, "style": {"code": true}}),
    };
    let elements: Vec<Value> = piece.0.iter().map(element).collect();
    json!({"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": elements}]})
}

fn marks(kind: Kind, style: Style) -> (&'static str, &'static str) {
    match (kind, style) {
        (_, Style::Plain) | (Kind::Slack, _) => ("", ""),
        (Kind::Telegram, Style::Bold) => ("<b>", "</b>"),
        (Kind::Telegram, Style::Code) => ("<code>", "</code>"),
        (Kind::Discord, Style::Bold) => ("**", "**"),
        (Kind::Discord, Style::Code) => ("`", "`"),
    }
}

/// The text without any meaning to the platform.
pub fn escaped(kind: Kind, text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match (kind, c) {
            (Kind::Telegram | Kind::Slack, '&') => out.push_str("&amp;"),
            (Kind::Telegram | Kind::Slack, '<') => out.push_str("&lt;"),
            (Kind::Telegram | Kind::Slack, '>') => out.push_str("&gt;"),
            (Kind::Discord, c) if is_discord_markup(c) => out.extend(['\\', c]),
            (_, c) => out.push(c),
        }
    }
    out
}

/// What Discord's Markdown gives a meaning, mentions and links included.
fn is_discord_markup(c: char) -> bool {
    matches!(
        c,
        '\\' | '*' | '_' | '~' | '`' | '|' | '>' | '<' | '#' | '-' | '[' | ']' | '(' | ')' | '@' | ':'
    )
}

/// Inside a fixed-width run nothing has a meaning but its end; a backtick is shown by its look-alike.
fn escaped_code(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Telegram | Kind::Slack => escaped(kind, text),
        Kind::Discord => text.replace('`', "ˋ"),
    }
}
