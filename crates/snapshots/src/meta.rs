//! What a git tree cannot say of a snapshot: permissions that are not the usual ones, and what was left out.
//!
//! ```text
//! svc-snapshot 22 NUL    the permission bits that files usually do not have
//! m600 path NUL          a file's permissions
//! lwhy TAB path NUL      what was left out
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

const HEAD: &str = "svc-snapshot ";

/// See above.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub mask: u32,
    pub modes: BTreeMap<String, u32>,
    pub left: BTreeMap<String, String>,
}

/// Its text.
pub(crate) fn text(mask: u32, modes: &str, left: &[(String, &'static str)]) -> String {
    let mut text = format!("{HEAD}{mask:o}\0{modes}");
    for (path, why) in left {
        // Writing to a string cannot fail.
        let _ = write!(text, "l{why}\t{path}\0");
    }
    text
}

impl Meta {
    /// Of its text.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.split_terminator('\0');
        let mask = u32::from_str_radix(parts.next()?.strip_prefix(HEAD)?, 8).ok()?;
        let mut meta = Self { mask, ..Self::default() };
        for part in parts {
            if let Some((mode, path)) = part.strip_prefix('m').and_then(|part| part.split_once(' ')) {
                meta.modes.insert(path.to_owned(), u32::from_str_radix(mode, 8).ok()?);
            } else if let Some((why, path)) = part.strip_prefix('l').and_then(|part| part.split_once('\t')) {
                meta.left.insert(path.to_owned(), why.to_owned());
            }
        }
        Some(meta)
    }

    /// The permissions of a file.
    pub fn mode(&self, path: &str, is_program: bool) -> u32 {
        let usual = || if is_program { 0o777 } else { 0o666 } & !self.mask;
        self.modes.get(path).copied().unwrap_or_else(usual)
    }
}
