//! The tables, and how an older database becomes a newer one.

use super::StoreError;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

/// Each entry makes version `n` out of version `n - 1`. Never edit one that was released.
const MIGRATIONS: &[&str] = &[include_str!("schema_1.sql")];

/// Brings the database to this program's version.
///
/// Errors: a database that a newer program has written.
pub fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    // Under the write lock, so that two processes that start together do not both migrate.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let done = usize::try_from(found).unwrap_or(usize::MAX);
    if found > known {
        return Err(StoreError::Unavailable(format!(
            "the database has version {found}, this program knows {known}: use a newer svc-skills"
        )));
    }
    refuse_foreign(&transaction, found)?;
    for migration in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(migration)?;
    }
    if found < known {
        transaction.pragma_update(None, "user_version", known)?;
        let key: Vec<u8> = (0..4).flat_map(|_| svc_sys::clock::random().to_le_bytes()).collect();
        transaction.execute("INSERT OR IGNORE INTO meta(key, value) VALUES('client_key', ?1)", [&key])?;
    }
    transaction.commit()?;
    Ok(())
}

/// Refuses the database of another program, before anything is written to it.
fn refuse_foreign(connection: &Connection, version: i64) -> Result<(), StoreError> {
    let ours =
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('meta', 'skills', 'blobs')";
    let others = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name LIMIT 1";
    let count: i64 = connection.query_row(ours, [], |row| row.get(0))?;
    let first: Option<String> = connection.query_row(others, [], |row| row.get(0)).optional()?;
    let is_ours = if version == 0 { first.is_none() } else { count == 3 };
    if is_ours {
        return Ok(());
    }
    let table = first.map_or_else(|| "no table".to_owned(), |name| format!("the table {name}"));
    Err(StoreError::Unavailable(format!(
        "it is the SQLite database of another program, with {table}: give svc-skills a file of its own"
    )))
}
