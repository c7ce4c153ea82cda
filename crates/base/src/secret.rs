//! Text that must not be shown.

use std::fmt;

/// Shorter secrets are masked whole.
const MASK_WHOLE_BELOW_CHARS: usize = 12;
/// Characters shown at each end of a masked secret.
const MASK_SHOWN_CHARS: usize = 4;

/// A secret in plain text. It prints as `Secret(****)` and has no other way out than [`Secret::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a secret in.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The plain text, for the one place that needs it: a child's environment, a request's header.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `abcd...5678`, or `****` when it is short.
    pub fn masked(&self) -> String {
        let chars: Vec<char> = self.0.chars().collect();
        if chars.len() < MASK_WHOLE_BELOW_CHARS {
            return "****".into();
        }
        let (head, tail) = (&chars[..MASK_SHOWN_CHARS], &chars[chars.len() - MASK_SHOWN_CHARS..]);
        head.iter().chain(&['.'; 3]).chain(tail).collect()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(****)")
    }
}
