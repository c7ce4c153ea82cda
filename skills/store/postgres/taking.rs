//! Taking over a whole market from elsewhere: into empty tables, in one transaction.

use super::backup::{TABLES, numbering};
use super::connection::{Connection, Server};
use super::{StoreError, flaws, migrate, rows};

/// An open take-over: every other writer waits, and nothing shows until [`Taking::finish`].
pub struct Taking {
    connection: Connection,
}

impl Taking {
    /// Connects, makes the tables where they are missing, and holds off other writers.
    ///
    /// Errors: a database that holds something already.
    pub fn begin(url: &str) -> Result<Self, StoreError> {
        let server = Server::new(url)?;
        let mut connection = Connection::default();
        connection.client(&server)?;
        migrate(&mut connection)?;
        connection.begin_long("ISOLATION LEVEL READ COMMITTED")?;
        connection.query("SELECT number FROM meta WHERE key = 'generation' FOR UPDATE", &[])?;
        for (table, _) in Self::tables() {
            let sql = format!("SELECT EXISTS (SELECT 1 FROM {table})");
            if connection.first(&sql, &[])?.map_or(Ok(true), |row| row.get(0))? {
                return Err(StoreError::Unavailable(format!(
                    "it is not empty, there are {table} in it already: name a new database (CREATE DATABASE ..)"
                )));
            }
        }
        Ok(Self { connection })
    }

    /// All tables but the one of single values, referred ones first; and whether the server numbers their
    /// rows.
    pub fn tables() -> impl Iterator<Item = (&'static str, bool)> {
        TABLES.into_iter().filter(|(table, _)| *table != "meta")
    }

    /// Copies rows in `COPY`'s text form, as `source` fills them into a buffer until it fills in nothing; how
    /// many there were.
    pub fn copy(
        &mut self,
        table: &str,
        columns: &[String],
        source: impl FnMut(&mut Vec<u8>) -> Result<(), StoreError>,
    ) -> Result<u64, StoreError> {
        self.connection.copy_in(&format!("COPY {table}({}) FROM STDIN", columns.join(", ")), source)
    }

    /// Sets the single values, and where the server goes on to number.
    pub fn set(&mut self, generation: u64, client_key: &[u8; 32]) -> Result<(), StoreError> {
        let sql = "UPDATE meta SET number = $1 WHERE key = 'generation'";
        self.connection.execute(sql, &[&rows::int(generation)])?;
        let sql = "UPDATE meta SET bytes = $1 WHERE key = 'client_key'";
        self.connection.execute(sql, &[&&client_key[..]])?;
        for (table, _) in Self::tables().filter(|(_, numbered)| *numbered) {
            self.connection.query(&numbering(table), &[])?;
        }
        Ok(())
    }

    /// Rows that a table has now.
    pub fn count(&mut self, table: &str) -> Result<u64, StoreError> {
        let row = self.connection.first(&format!("SELECT count(*) FROM {table}"), &[])?;
        row.map_or(Ok(0), |row| row.get(0)).map(rows::whole)
    }

    /// What is not as it must be, a sentence each.
    pub fn flaws(&mut self) -> Result<Vec<String>, StoreError> {
        let mut found = flaws(&mut self.connection)?;
        let sql = "SELECT digest FROM blobs \
             WHERE encode(sha256(convert_to(content, 'UTF8')), 'hex') <> digest LIMIT 20";
        for row in self.connection.query(sql, &[])? {
            found.push(format!("the content {} is not what its digest says", row.get::<String>(0)?));
        }
        let unbalanced = rows::unbalanced(&mut self.connection)?;
        if !unbalanced.is_empty() {
            found.push(format!("the ledger does not balance in transactions {}", unbalanced.join(", ")));
        }
        Ok(found)
    }

    /// Makes all of it durable and shown at once.
    ///
    /// Errors: [`StoreError::OutcomeUnknown`] where the connection is lost over it.
    pub fn finish(mut self) -> Result<(), StoreError> {
        let done = self.connection.batch("COMMIT");
        match done {
            Err(error) if self.connection.is_lost() => Err(StoreError::OutcomeUnknown(error.to_string())),
            done => done,
        }
    }
}
