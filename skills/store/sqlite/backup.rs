//! A copy of the whole database in one read, so that it ends however much is written meanwhile.

use super::file::Served;
use super::{Connection, StoreError};
use crate::store::partial::{Partial, beside};
use rusqlite::backup::{Backup, StepResult};
use std::fs;
use std::path::{Path, PathBuf};

/// What `SQLite` puts behind a database's name for its own files.
const COMPANIONS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// Copies the database of `source` to a file, which appears only when it is whole and on disk.
///
/// Errors: a target that is the database itself or another one in use; whatever reading and writing meet.
pub fn write(source: &mut Connection, served: &Served, file: &Path) -> Result<(), StoreError> {
    refuse_databases(served, file)?;
    let partial = Partial::create(file)?;
    let leftovers = Leftovers(partial.path().to_path_buf());
    leftovers.remove();
    // A read that stands sees one moment: commits of others neither change the copy nor begin it anew.
    let reading = source.transaction()?;
    reading.query_row("SELECT count(*) FROM meta", [], |_| Ok(()))?;
    let mut copy = Connection::open(partial.path())?;
    // Half a copy is thrown away, so that nothing has to be taken back; the whole one is synced at the end.
    copy.pragma_update(None, "journal_mode", "OFF")?;
    copy.pragma_update(None, "synchronous", "OFF")?;
    let step = Backup::new(&reading, &mut copy)?.step(-1)?;
    drop(reading);
    if step != StepResult::Done {
        return Err(StoreError::Overloaded);
    }
    copy.close().map_err(|(_, error)| error)?;
    drop(leftovers);
    Ok(partial.keep(file)?)
}

fn refuse_databases(served: &Served, file: &Path) -> Result<(), StoreError> {
    if served.is(file) || COMPANIONS.iter().any(|end| served.is(&without(file, end))) {
        let text = format!("{} is the database itself: give the copy another name", file.display());
        return Err(StoreError::Unavailable(text));
    }
    if beside(file, "-wal").exists() {
        let text = format!(
            "{} is a database that is in use, for its -wal file stands beside it: give the copy another name",
            file.display()
        );
        return Err(StoreError::Unavailable(text));
    }
    Ok(())
}

/// The database that a companion file belongs to; the file itself where it is none.
fn without(file: &Path, end: &str) -> PathBuf {
    let text = file.to_str().unwrap_or_default();
    text.strip_suffix(end).map_or_else(|| file.to_path_buf(), PathBuf::from)
}

/// `SQLite`'s own files beside a copy in the making; they go with it.
struct Leftovers(PathBuf);

impl Leftovers {
    fn remove(&self) {
        for end in COMPANIONS {
            // Mostly there is none.
            let _ = fs::remove_file(beside(&self.0, end));
        }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        self.remove();
    }
}
