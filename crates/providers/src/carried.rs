//! How the record of a session goes to another machine, for its program to resume it there. Pure: workers of
//! the daemon open the files.

use std::path::PathBuf;

/// What of a session has to go along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// Nothing: its program keeps no record of it.
    Nothing,
    /// One file.
    File(Place),
    /// It cannot go, and why.
    Stays(&'static str),
}

/// Where the record of a session is, or belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The folder of the program's own.
    pub root: PathBuf,
    pub file: File,
}

/// A file below that folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum File {
    /// Always here.
    Fixed(String),
    /// `FOLDER/YEAR/MONTH/DAY/rollout-YEAR-MONTH-DAYThh-mm-ss-SESSION.jsonl`.
    OfDay { folder: &'static str, session: String },
}

/// Folders above the file in one of a day.
pub const DAY_DEPTH: usize = 3;

impl Place {
    /// Where a file of this name belongs, below the root; `None` where it is not one of this session.
    pub fn below(&self, name: &str) -> Option<String> {
        match &self.file {
            File::Fixed(path) => (path.rsplit('/').next() == Some(name)).then(|| path.clone()),
            File::OfDay { folder, session } => {
                let time = name
                    .strip_prefix("rollout-")?
                    .strip_suffix(".jsonl")?
                    .strip_suffix(session.as_str())?
                    .strip_suffix('-')?;
                let (day, hours) = time.split_once('T')?;
                let parts: Vec<&str> = day.split('-').chain(hours.split('-')).collect();
                let lengths = [4, 2, 2, 2, 2, 2];
                let is_time = parts.len() == lengths.len()
                    && parts.iter().zip(lengths).all(|(part, length)| {
                        part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit())
                    });
                is_time.then(|| format!("{folder}/{}/{}/{}/{name}", parts[0], parts[1], parts[2]))
            }
        }
    }
}

/// Whether a session's name can be a part of a file's.
pub fn is_name(session: &str) -> bool {
    !session.is_empty()
        && session.len() <= 200
        && session.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        && !session.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn place(provider: &str, session: &str, folder: &str) -> Option<Place> {
        let env = |name: &str| (name == "HOME").then(|| PathBuf::from("/there/me"));
        let provider = crate::by_id(provider).expect("a provider");
        match provider.carried(session, Path::new("/p"), Path::new(folder), &env) {
            Carried::File(place) => Some(place),
            _ => None,
        }
    }

    #[test]
    fn claude_keeps_a_session_in_a_folder_named_after_where_it_works() {
        let place = place("claude-code", "5c0d-1", "/there/me/.local/x_y/tree").expect("a file");
        assert_eq!(place.root, Path::new("/there/me/.claude"));
        let path = "projects/-there-me--local-x-y-tree/5c0d-1.jsonl";
        assert_eq!(place.below("5c0d-1.jsonl").as_deref(), Some(path));
        for other in ["5c0d-2.jsonl", "../5c0d-1.jsonl", "", "x/5c0d-1.jsonl"] {
            assert_eq!(place.below(other), None, "{other}");
        }
    }

    #[test]
    fn codex_keeps_a_session_by_the_day_that_its_name_tells() {
        let place = place("codex", "0199-aa", "/p").expect("a file");
        assert_eq!(place.root, Path::new("/there/me/.codex"));
        let name = "rollout-2026-01-02T03-04-05-0199-aa.jsonl";
        assert_eq!(place.below(name), Some(format!("sessions/2026/01/02/{name}")));
        for other in [
            "rollout-2026-01-02T03-04-05-0199-ab.jsonl",
            "rollout-../..-02T03-04-05-0199-aa.jsonl",
            "rollout-2026-01-02-0199-aa.jsonl",
            "rollout-2026-01-02T03-04-05-06-0199-aa.jsonl",
            "rollout-20260-1-02T03-04-05-0199-aa.jsonl",
            "0199-aa.jsonl",
        ] {
            assert_eq!(place.below(other), None, "{other}");
        }
    }

    #[test]
    fn a_session_whose_name_leads_elsewhere_stays() {
        for session in ["", "../x", "a/b", "a b", "-x", "a\n", "..", &"a".repeat(201)] {
            assert_eq!(place("claude-code", session, "/p"), None, "{session:?}");
            assert_eq!(place("codex", session, "/p"), None, "{session:?}");
            assert_eq!(place("ollama", session, "/p"), None, "{session:?}");
        }
    }
}
