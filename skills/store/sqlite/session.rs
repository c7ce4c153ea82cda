//! Writing to `SQLite`: its transaction.

use super::file::Served;
use super::{StoreError, generation};
use crate::store::rows::int;
use crate::store::session::Session;
use crate::store::sql::{Columns, Sql, Value};
use rusqlite::Connection;

/// The writer's connection, and the file that it writes to.
pub struct Connected(pub Connection, pub Served);

impl Sql for Connected {
    fn select<T>(
        &mut self,
        sql: &str,
        values: &[&dyn Value],
        read: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        (&self.0).select(sql, values, read)
    }

    fn write(&mut self, sql: &str, values: &[&dyn Value]) -> Result<u64, StoreError> {
        (&self.0).write(sql, values)
    }
}

impl Session for Connected {
    fn begin(&mut self) -> Result<u64, StoreError> {
        // Nothing is acknowledged that only an unlinked file holds.
        self.1.is_in_place()?;
        self.0.execute_batch("BEGIN IMMEDIATE")?;
        generation(&self.0)
    }

    fn mark(&mut self) -> Result<(), StoreError> {
        Ok(self.0.execute_batch("SAVEPOINT one")?)
    }

    fn take_back(&mut self) -> Result<(), StoreError> {
        Ok(self.0.execute_batch("ROLLBACK TO one; RELEASE one")?)
    }

    fn keep(&mut self) -> Result<(), StoreError> {
        Ok(self.0.execute_batch("RELEASE one")?)
    }

    fn commit(&mut self, generation: Option<u64>) -> Result<(), StoreError> {
        if let Some(generation) = generation {
            self.write("UPDATE meta SET value = $1 WHERE key = 'generation'", &[&int(generation)])?;
        }
        Ok(self.0.execute_batch("COMMIT")?)
    }

    fn abandon(&mut self) {
        // After a failed commit the transaction may still be open, after a full disk it is not.
        if self.stands() {
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }

    fn stands(&mut self) -> bool {
        !self.0.is_autocommit()
    }

    fn rows_written(&self) -> u64 {
        self.0.total_changes()
    }
}
