//! The default store: one `SQLite` file, one writer thread with group commit, a few readers.
//!
//! **Invariant:** a write is answered after the transaction that holds it is on disk (`synchronous=FULL`).

mod backup;
mod file;
mod schema;
mod session;
mod sql;

use super::writer::Writer;
use super::{Changes, Database, Reads, StoreError, flaws, rows};
pub use file::Opening;
use file::Served;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use session::Connected;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
#[cfg(test)]
use svc_base::time::Time;

/// Another process holds the write lock at most this long before a write gives up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle readers kept open.
const IDLE_READERS: usize = 4;
/// Prepared statements kept per connection.
const STATEMENTS: usize = 64;

/// The store on one file.
pub struct Sqlite {
    served: Served,
    writer: Writer<Connected>,
    readers: Mutex<Vec<Connection>>,
    client_key: [u8; 32],
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => Self::Full(error.to_string()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Overloaded,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Unavailable(format!(
                "{error}: the file is damaged or no database; restore a backup, or save what can be read with \
                 sqlite3 FILE .recover"
            )),
            _ => match error {
                // Without the statement, which can be a whole migration.
                rusqlite::Error::SqlInputError { msg, .. } => Self::Unavailable(msg),
                error => Self::Unavailable(error.to_string()),
            },
        }
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

impl Sqlite {
    /// Opens the database, or makes it where that is wanted.
    ///
    /// Errors: a file that is no database, or another program's, or one that a newer program has written.
    pub fn open(file: &Path, opening: Opening) -> Result<Self, StoreError> {
        let served = Served::open(file, opening)?;
        let mut connection = connect(file)?;
        schema::migrate(&mut connection)?;
        let key: Vec<u8> =
            connection.query_row("SELECT value FROM meta WHERE key = 'client_key'", [], |row| row.get(0))?;
        let client_key = key
            .try_into()
            .map_err(|_| StoreError::Unavailable("the key of client hashes is damaged".into()))?;
        let writer = Writer::start(Connected(connection, served.clone()))?;
        Ok(Self { served, writer, readers: Mutex::default(), client_key })
    }

    /// A connection of its own, for who reads the tables as they are.
    pub fn connection(&self) -> Result<Connection, StoreError> {
        connect(self.served.path())
    }

    /// Limits the file to this many pages; for tests of a full disk.
    #[cfg(test)]
    pub fn limit_pages(&self, pages: i64) {
        let limited = self.writer.write(Time(0), move |write| {
            Ok(write.tables.0.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?)
        });
        limited.unwrap();
    }

    /// Runs one read on a reader of the pool.
    fn read<T>(&self, read: impl FnOnce(&mut Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => connect(self.served.path())?,
        };
        let found = read(&mut connection)?;
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < IDLE_READERS {
            readers.push(connection);
        }
        Ok(found)
    }
}

fn connect(file: &Path) -> Result<Connection, StoreError> {
    // Never made here: a path that leads to nothing any more must not become an empty database.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn generation(connection: &Connection) -> Result<u64, StoreError> {
    let sql = "SELECT value FROM meta WHERE key = 'generation'";
    let found: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(rows::whole(found))
}

impl Database for Sqlite {
    type Session = Connected;

    fn writer(&self) -> &Writer<Connected> {
        &self.writer
    }
}

impl Reads for Sqlite {
    fn content(&self, digest: &str) -> Result<Option<String>, StoreError> {
        self.read(|connection| rows::content(&mut &*connection, digest))
    }

    fn generation(&self) -> Result<u64, StoreError> {
        self.read(|connection| generation(connection))
    }

    fn changes_since(&self, after: u64) -> Result<Changes, StoreError> {
        self.read(|connection| {
            // One transaction, so that skills, authors and generation are of one moment.
            let transaction = connection.transaction()?;
            rows::changes(&mut &*transaction, generation(&transaction)?, after)
        })
    }

    fn backup(&self, file: &Path) -> Result<(), StoreError> {
        self.read(|connection| backup::write(connection, &self.served, file))
    }

    fn health(&self) -> Result<Option<String>, StoreError> {
        if let Err(error) = self.served.is_in_place() {
            return Ok(Some(error.to_string()));
        }
        self.generation()?;
        Ok(self.writer.trouble())
    }

    fn client_key(&self) -> [u8; 32] {
        self.client_key
    }

    fn unbalanced_transactions(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| rows::unbalanced(&mut &*connection))
    }

    fn flaws(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| {
            let mut found: Vec<String> = texts(connection, "PRAGMA integrity_check(20)")?;
            found.retain(|line| line != "ok");
            let broken = "SELECT \"table\" || ' row ' || coalesce(rowid, '?') || ' names a row of ' || parent || \
                          ' that is missing' FROM pragma_foreign_key_check LIMIT 20";
            found.extend(texts(connection, broken)?);
            for question in &flaws::QUESTIONS {
                found.extend(flaws::sentence(question, texts(connection, question.sql)?));
            }
            Ok(found)
        })
    }
}

/// The first column of all rows.
fn texts(connection: &Connection, sql: &str) -> Result<Vec<String>, StoreError> {
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

#[cfg(test)]
mod tests;
