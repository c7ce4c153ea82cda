//! Reads the audit log from disk, on the connection's thread.

use super::audit::Query;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::Journal;
use crate::endpoint::{Answer, Ask};
use serde_json::{Value, json};
use std::path::Path;
use svc_sys::files::if_there;
use svc_sys::journal::older_of;
use svc_sys::regular;

/// What is read of the journal's end before all of it is: some hundred entries.
const END_BYTES: u64 = 128 << 10;

/// `GET /api/audit`.
pub fn list(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let query = Query::parse(ask.request)?;
    let path = host.project.join(".svc").join(Journal::Audit.path());
    let (entries, more) = if let Some(entries) = last(&query, &path)? {
        (entries, true)
    } else {
        let (newer, older) = (read(&path)?, read(&older_of(&path))?);
        query.pick(newer.lines().rev().chain(older.lines().rev()))
    };
    Ok(Answer::Reply(Reply::ok(&json!({"entries": entries, "more": more}))))
}

/// The entries, if the end of the journal has all that are asked for and one more.
fn last(query: &Query, path: &Path) -> Result<Option<Vec<Value>>, Problem> {
    let end = if_there(regular::read_end(path, END_BYTES)).map_err(|error| unreadable(path, &error))?;
    let Some(end) = end else { return Ok(None) };
    let end = String::from_utf8_lossy(&end);
    // The first line may have lost its beginning.
    let whole = end.split_once('\n').map_or("", |(_, rest)| rest);
    let (entries, more) = query.pick(whole.lines().rev());
    Ok(more.then_some(entries))
}

/// At most a little over [`Journal::max_bytes`].
fn read(path: &Path) -> Result<String, Problem> {
    let bytes = if_there(regular::read(path)).map_err(|error| unreadable(path, &error))?;
    Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    let text = format!("the audit log {} cannot be read: {error}", path.display());
    Problem::new(503, "storage_unavailable", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The answer must not be slower the longer the log is.
    #[test]
    fn the_last_entries_are_read_from_the_end_alone_and_only_when_it_has_enough() {
        let folder = std::env::temp_dir().join(format!("svc-audit-end-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("audit.jsonl");
        let line = |n: usize| format!("{{\"ts\":\"2026-01-01T00:00:00.000Z\",\"event\":\"e\",\"n\":{n}}}\n");
        let text: String = (0..20_000).map(line).collect();
        // What stands at the front is never looked at.
        fs::write(&path, [&vec![0xff; 5 << 20], text.as_bytes()].concat()).unwrap();
        let query = |limit| Query { limit, before: None, event: None };
        let entries = last(&query(100), &path).unwrap().unwrap();
        assert_eq!(
            (entries.len(), &entries[0]["n"], &entries[99]["n"]),
            (100, &json!(19_999), &json!(19_900))
        );
        let other = Query { event: Some("none".into()), ..query(1) };
        assert_eq!(last(&other, &path).unwrap(), None, "all must be read");
        fs::write(&path, (0..5).map(line).collect::<String>()).unwrap();
        assert_eq!(last(&query(5), &path).unwrap(), None, "whether there are more is not known");
        assert_eq!(last(&query(5), &folder.join("none")).unwrap(), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
