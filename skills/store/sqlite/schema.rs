//! The tables, and how an older database becomes a newer one.

use super::StoreError;
use rusqlite::{Connection, TransactionBehavior};

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
    for migration in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(migration)?;
    }
    if found < known {
        transaction.pragma_update(None, "user_version", known)?;
        let key: Vec<u8> = (0..4).flat_map(|_| svc::runtime::clock::random().to_le_bytes()).collect();
        transaction.execute("INSERT OR IGNORE INTO meta(key, value) VALUES('client_key', ?1)", [&key])?;
    }
    transaction.commit()?;
    Ok(())
}
