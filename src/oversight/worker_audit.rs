//! Reads the audit log from disk, on the connection's thread.

use super::audit::Query;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::Journal;
use crate::endpoint::{Answer, Ask};
use serde_json::json;
use std::io::ErrorKind;
use std::path::Path;
use svc_sys::journal::older_of;
use svc_sys::regular;

/// `GET /api/audit`.
pub fn list(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let query = Query::parse(ask.request)?;
    let path = host.project.join(".svc").join(Journal::Audit.path());
    let (newer, older) = (read(&path)?, read(&older_of(&path))?);
    let (entries, more) = query.pick(newer.lines().rev().chain(older.lines().rev()));
    Ok(Answer::Reply(Reply::ok(&json!({"entries": entries, "more": more}))))
}

/// At most a little over [`Journal::max_bytes`].
fn read(path: &Path) -> Result<String, Problem> {
    match regular::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => {
            let text = format!("the audit log {} cannot be read: {error}", path.display());
            Err(Problem::new(503, "storage_unavailable", text))
        }
    }
}
