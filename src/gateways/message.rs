//! What is said to people in a chat: text with a little emphasis, and buttons. Each platform renders it in
//! its own way.

use crate::core::{untrusted_line, untrusted_text};
use serde::{Deserialize, Serialize};

/// How a part of a text is shown.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    #[default]
    Plain,
    /// Stressed.
    Bold,
    /// An id, a name or a command, in a fixed-width face.
    Code,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
pub struct Span {
    /// How it is shown.
    pub style: Style,
    /// What it says; never markup.
    pub text: String,
}

/// A text with emphasis. Whatever stands in it is shown literally.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
pub struct Text(pub Vec<Span>);

impl Text {
    /// An empty text.
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, style: Style, text: String) -> Self {
        if !text.is_empty() {
            self.0.push(Span { style, text });
        }
        self
    }

    /// Adds words as they are; they may have several lines. What strangers wrote and what belongs on one
    /// line goes through [`Text::said`].
    #[must_use]
    pub fn plain(self, text: impl Into<String>) -> Self {
        self.with(Style::Plain, untrusted_text(&text.into()))
    }

    /// Adds what an agent or a stranger wrote, on this line.
    #[must_use]
    pub fn said(self, text: &str) -> Self {
        self.with(Style::Plain, untrusted_line(text))
    }

    /// Adds stressed words, on this line.
    #[must_use]
    pub fn bold(self, text: impl Into<String>) -> Self {
        self.with(Style::Bold, untrusted_line(&text.into()))
    }

    /// Adds a name, an id or a command, on this line.
    #[must_use]
    pub fn code(self, text: impl Into<String>) -> Self {
        self.with(Style::Code, untrusted_line(&text.into()))
    }

    /// Adds another text.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Adds another text on a line of its own.
    #[must_use]
    pub fn line(self, other: Self) -> Self {
        let text = if self.0.is_empty() { self } else { self.plain("\n") };
        text.then(other)
    }

    /// The words alone.
    pub fn words(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }

    /// Bytes of the words.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|span| span.text.len()).sum()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new().plain(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new().plain(text)
    }
}

/// What a button looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Look {
    Good,
    /// Ends or refuses something.
    Bad,
    Neutral,
}

/// A button below a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    /// What it says, at most [`MAX_LABEL_CHARS`].
    pub label: String,
    /// The command that a click gives, as if it had been typed; at most [`MAX_BUTTON_BYTES`].
    pub command: String,
    /// What it looks like.
    pub look: Look,
}

/// Characters of a button's label; Slack shows 75, Discord 80.
pub const MAX_LABEL_CHARS: usize = 60;
/// Bytes of a button's command: Telegram's limit, the smallest of the three.
pub const MAX_BUTTON_BYTES: usize = 64;
/// Buttons of one message: Discord's limit for one row.
pub const MAX_BUTTONS: usize = 5;

impl Button {
    /// A button. A longer label is cut; commands are short by construction.
    pub fn new(label: &str, command: impl Into<String>, look: Look) -> Self {
        Self { label: cut(&untrusted_line(label), MAX_LABEL_CHARS), command: command.into(), look }
    }
}

/// A message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub text: Text,
    /// At most [`MAX_BUTTONS`].
    pub buttons: Vec<Button>,
}

impl From<Text> for Message {
    fn from(text: Text) -> Self {
        Self { text, buttons: Vec::new() }
    }
}

/// Where a message stands on its platform, so that it can be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
pub struct Place {
    /// The chat or channel.
    pub chat: String,
    /// The platform's id of the message.
    pub message: String,
}

/// Between a chat and a thread of it. No platform has it in its ids.
const THREAD: char = ':';

/// A chat, or a thread of it, as one word: an answer goes where the question was asked.
pub fn in_thread(chat: &str, thread: Option<&str>) -> String {
    thread.map_or_else(|| chat.to_owned(), |thread| format!("{chat}{THREAD}{thread}"))
}

/// A chat, and the thread of it.
pub fn split_thread(chat: &str) -> (&str, Option<&str>) {
    chat.split_once(THREAD).map_or((chat, None), |(chat, thread)| (chat, Some(thread)))
}

/// At most so many characters of a text, with `…` where more was.
pub fn cut(text: &str, max_chars: usize) -> String {
    if text.char_indices().nth(max_chars).is_none() {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// A text with at most so many characters: of a longer one its begin and its end, and how much is missing.
pub fn cut_middle(text: &str, max_chars: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    let Some(missing) = chars.len().checked_sub(max_chars).filter(|missing| *missing > 0) else {
        return text.to_owned();
    };
    let part = |chars: &[char]| chars.iter().collect::<String>();
    let end = max_chars / 3;
    let (first, last) = (part(&chars[..max_chars - end]), part(&chars[chars.len() - end..]));
    format!("{first} … {missing} characters are not shown here … {last}")
}

/// The first line of a text, at most so many characters of it.
pub fn first_line(text: &str, max_chars: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    if line.len() < text.trim().len() { cut(&format!("{line} …"), max_chars) } else { cut(line, max_chars) }
}
