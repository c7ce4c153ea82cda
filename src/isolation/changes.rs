//! What git prints about changed files, as values.

use serde::Serialize;

/// One changed file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Relative to the top of the tree.
    pub path: String,
    /// `added`, `modified`, `deleted`, `renamed`, `copied` or `retyped`.
    pub status: &'static str,
    /// Its name before, when it was renamed or copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Lines added; 0 for a binary file.
    pub added: u64,
    /// Lines removed; 0 for a binary file.
    pub removed: u64,
    /// Whether git takes it for binary.
    pub binary: bool,
}

/// Reads `git diff --name-status -z` and, for the same files, `git diff --numstat -z`.
pub fn parse_changes(name_status: &str, numstat: &str) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut fields = name_status.split('\0').filter(|field| !field.is_empty());
    while let Some(letters) = fields.next() {
        let status = match letters.as_bytes().first() {
            Some(b'A') => "added",
            Some(b'D') => "deleted",
            Some(b'R') => "renamed",
            Some(b'C') => "copied",
            Some(b'T') => "retyped",
            _ => "modified",
        };
        let Some(first) = fields.next() else { break };
        let (from, path) = match status {
            "renamed" | "copied" => (Some(first.to_owned()), fields.next().unwrap_or(first)),
            _ => (None, first),
        };
        changes.push(Change { path: path.to_owned(), status, from, ..Change::default() });
    }
    for (path, added, removed) in numbers(numstat) {
        if let Some(change) = changes.iter_mut().find(|change| change.path == path) {
            change.binary = added.is_none();
            (change.added, change.removed) = (added.unwrap_or(0), removed.unwrap_or(0));
        }
    }
    changes
}

/// `path`, lines added, lines removed; both `None` for a binary file.
fn numbers(numstat: &str) -> Vec<(&str, Option<u64>, Option<u64>)> {
    let mut found = Vec::new();
    let mut records = numstat.split('\0');
    while let Some(record) = records.next() {
        let mut parts = record.splitn(3, '\t');
        let (Some(added), Some(removed), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        // A renamed file has an empty path here, and its old and its new name behind it.
        let path =
            if path.is_empty() { records.next().and(records.next()).unwrap_or_default() } else { path };
        found.push((path, added.parse().ok(), removed.parse().ok()));
    }
    found
}

/// Reads `git status --porcelain -z`: each changed file, and whether something of it is staged.
pub fn parse_status(text: &str) -> Vec<(String, bool)> {
    let mut files = Vec::new();
    let mut records = text.split('\0');
    while let Some(record) = records.next() {
        let (Some(letters), Some(path)) = (record.get(..2), record.get(3..)) else { continue };
        let staged = !matches!(letters.as_bytes().first(), Some(b' ' | b'?' | b'!'));
        files.push((path.to_owned(), staged));
        if letters.contains(['R', 'C'])
            && let Some(from) = records.next()
        {
            files.push((from.to_owned(), staged));
        }
    }
    files
}
