//! Writing to `PostgreSQL`: its transaction.

use super::connection::{Connection, Server};
use crate::store::StoreError;
use crate::store::rows::{int, whole};
use crate::store::session::Session;
use crate::store::sql::{Columns, Sql, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A commit whose answer was lost is asked for at most this long.
const OUTCOME_WAIT: Duration = Duration::from_secs(3);
/// Between two such questions.
const OUTCOME_PAUSE: Duration = Duration::from_millis(100);

/// The writer's connection.
pub struct Connected {
    server: Arc<Server>,
    connection: Connection,
    /// The open transaction's id, as the server counts them.
    transaction: Option<i64>,
    rows: u64,
}

impl Connected {
    /// Not connected yet.
    pub fn new(server: Arc<Server>) -> Self {
        Self { server, connection: Connection::default(), transaction: None, rows: 0 }
    }

    /// Whether a transaction was committed whose commit was not answered. The server knows; `None` where it
    /// cannot be asked.
    fn was_committed(&mut self, transaction: i64) -> Option<bool> {
        let asked = Instant::now();
        while asked.elapsed() < OUTCOME_WAIT {
            let status = self.connection.client(&self.server).map(drop).and_then(|()| {
                let sql = "SELECT pg_xact_status($1::text::xid8)";
                self.connection.first(sql, &[&transaction.to_string()])
            });
            let status = status.ok().flatten().and_then(|row| row.get::<Option<String>>(0).ok());
            match status.flatten().as_deref() {
                Some("committed") => return Some(true),
                Some("aborted") => return Some(false),
                // The server is away, or still at it.
                _ => std::thread::park_timeout(OUTCOME_PAUSE),
            }
        }
        None
    }

    fn begin_once(&mut self) -> Result<u64, StoreError> {
        self.connection.client(&self.server)?.batch("BEGIN ISOLATION LEVEL READ COMMITTED")?;
        // The one row that every writer of every instance holds until its commit: what is read after it is
        // the newest there is, and stays so.
        let sql = "SELECT number, pg_current_xact_id()::text AS transaction FROM meta \
             WHERE key = 'generation' FOR UPDATE";
        let row = self.connection.first(sql, &[])?;
        let row = row.ok_or_else(|| StoreError::Unavailable("the database has no generation".into()))?;
        self.transaction = row.get::<String>("transaction")?.parse().ok();
        Ok(whole(row.get("number")?))
    }
}

impl Sql for Connected {
    fn select<T>(
        &mut self,
        sql: &str,
        values: &[&dyn Value],
        read: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.connection.select(sql, values, read)
    }

    fn write(&mut self, sql: &str, values: &[&dyn Value]) -> Result<u64, StoreError> {
        let rows = self.connection.write(sql, values)?;
        self.rows += rows;
        Ok(rows)
    }
}

impl Session for Connected {
    fn begin(&mut self) -> Result<u64, StoreError> {
        let was_open = !self.connection.is_lost();
        let begun = self.begin_once();
        if was_open && begun.is_err() && self.connection.is_lost() {
            // It may have been ended while it was idle; nothing has been written on it yet.
            return self.begin_once();
        }
        begun
    }

    fn mark(&mut self) -> Result<(), StoreError> {
        self.connection.batch("SAVEPOINT one")
    }

    fn take_back(&mut self) -> Result<(), StoreError> {
        self.connection.batch("ROLLBACK TO one; RELEASE one")
    }

    fn keep(&mut self) -> Result<(), StoreError> {
        self.connection.batch("RELEASE one")
    }

    fn commit(&mut self, generation: Option<u64>) -> Result<(), StoreError> {
        if let Some(generation) = generation {
            let sql = "UPDATE meta SET number = $1 WHERE key = 'generation'";
            self.connection.execute(sql, &[&int(generation)])?;
        }
        let transaction = self.transaction.take();
        let done = self.connection.batch("COMMIT");
        match (done, transaction, generation) {
            (Err(error), Some(transaction), Some(_)) if self.connection.is_lost() => {
                match self.was_committed(transaction) {
                    Some(true) => Ok(()),
                    Some(false) => Err(error),
                    None => Err(StoreError::OutcomeUnknown(error.to_string())),
                }
            }
            (done, _, _) => done,
        }
    }

    fn abandon(&mut self) {
        self.transaction = None;
        if self.connection.batch("ROLLBACK").is_err() {
            self.connection.close();
        }
    }

    fn stands(&mut self) -> bool {
        !self.connection.is_lost()
    }

    fn rows_written(&self) -> u64 {
        self.rows
    }
}
