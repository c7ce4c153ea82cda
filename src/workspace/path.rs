//! Paths as clients send them, and which of them are nobody's business.

use crate::api::Problem;
use std::fmt;

/// Bytes of a path; the system's own limit.
const MAX_PATH_BYTES: usize = 4_095;
/// Bytes of one name; the limit of the usual file systems.
const MAX_NAME_BYTES: usize = 255;

/// What stands in `.svc` that may be read: everything else there is the daemon's own, keys and tokens
/// included.
const READABLE_STATE: [&str; 6] =
    ["worktrees", "memory", "skills", "rehearsals", "codebase-index.json", "recommended-team.json"];
/// Folders whose inside is written by their own programs only.
const KEPT: [&str; 2] = [".svc", ".git"];

/// A path relative to the project's root, without `.`, `..`, empty parts or a slash at either end. The root
/// itself is the empty text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, svc_base::recorded::Recorded)]
pub struct ProjectPath(String);

impl ProjectPath {
    /// Reads what a client sent.
    ///
    /// Errors: 400 for an absolute path, `..`, NUL or over-long parts.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let bad = |code, rule: &str| {
            let shown: String = text.chars().take(80).collect();
            Err(Problem::bad_request(code, format!("path {shown:?} {rule}")))
        };
        if text.starts_with('/') {
            return bad("absolute_path", "must be relative to the project's root");
        }
        if text.contains('\0') {
            return bad("bad_path", "must not hold NUL");
        }
        if text.len() > MAX_PATH_BYTES {
            return bad("path_too_long", &format!("has {} bytes, the limit is {MAX_PATH_BYTES}", text.len()));
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => return bad("path_traversal", "must not hold '..'"),
                part if part.len() > MAX_NAME_BYTES => {
                    let rule = format!("has a name of {} bytes, the limit is {MAX_NAME_BYTES}", part.len());
                    return bad("path_too_long", &rule);
                }
                part => parts.push(part),
            }
        }
        Ok(Self(parts.join("/")))
    }

    /// A place the system told, below the root.
    pub fn found(relative: &str) -> Self {
        Self(relative.trim_matches('/').to_owned())
    }

    /// The text; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the project's root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The folder it is in, and its name there.
    pub fn split(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }

    /// A place in it.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}/{name}", self.0)) }
    }

    /// Refuses the daemon's own state. Names are compared without case, for file systems that do so.
    ///
    /// Errors: 403 `protected_path`.
    pub fn check_readable(&self) -> Result<(), Problem> {
        let mut parts = self.0.split('/');
        let in_state = parts.next().is_some_and(|first| first.eq_ignore_ascii_case(".svc"));
        if !in_state || parts.next().is_some_and(|inner| READABLE_STATE.contains(&inner)) {
            return Ok(());
        }
        Err(self.not_for_reading())
    }

    /// 403 `protected_path` for the daemon's own state.
    pub fn not_for_reading(&self) -> Problem {
        protected(self, "is the daemon's own state; use the endpoints for it")
    }

    /// Refuses what only `svc` and `git` write, and names that no editor should make.
    ///
    /// Errors: 400 `bad_name`, 403 `protected_path`.
    pub fn check_writable(&self) -> Result<(), Problem> {
        if self.0.chars().any(|c| c == '\\' || c.is_control()) {
            let text = format!("path {:?} must not hold backslashes or control characters", self.0);
            return Err(Problem::bad_request("bad_name", text));
        }
        let kept = |part: &str| KEPT.iter().any(|kept| part.eq_ignore_ascii_case(kept));
        if self.0.split('/').any(kept) {
            return Err(protected(self, "is written by svc and git only"));
        }
        Ok(())
    }
}

fn protected(path: &ProjectPath, why: &str) -> Problem {
    Problem::new(403, "protected_path", format!("path {:?} {why}", path.as_str()))
}

impl fmt::Display for ProjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "." } else { &self.0 })
    }
}
