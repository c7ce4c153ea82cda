//! The store for several instances: one `PostgreSQL` database, per instance one writer with group commit
//! and a bounded pool of readers.
//!
//! **Invariant:** all writes of all instances have one order, that of the generation, whose row every
//! writer holds until its commit. A lost connection makes an operation fail, never half happen; the next
//! one connects again.

mod backup;
mod connection;
mod session;
mod sql;
mod taking;
mod wire;

use super::writer::Writer;
use super::{Changes, ClientHash, Database, Elsewhere, Reads, StoreError, flaws, rows};
use crate::limits::WINDOW;
use connection::{Connection, Pool, Server};
use session::Connected;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
pub use taking::Taking;
pub use wire::ToText;

/// Each entry makes version `n` out of version `n - 1`. Never edit one that was released.
const MIGRATIONS: &[&str] = &[include_str!("schema_1.sql"), include_str!("schema_2.sql")];
/// Held while the tables are made, so that instances that start together do not both make them.
const MIGRATION_LOCK: i64 = 0x7376_632d_736b;

/// The store on one database.
pub struct Postgres {
    server: Arc<Server>,
    writer: Writer<Connected>,
    readers: Pool,
    client_key: [u8; 32],
    /// By which what passed here is told from what passed elsewhere; another one after each start.
    instance: i64,
}

impl Postgres {
    /// Connects and makes the tables where they are missing.
    ///
    /// Errors: a server that cannot be reached, or a database that a newer program has written.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let server = Arc::new(Server::new(url)?);
        let readers = Pool::new();
        let key: Vec<u8> = readers.read(&server, |connection| {
            let migrated = migrate(connection);
            if migrated.is_err() {
                connection.close();
            }
            migrated
        })?;
        let client_key = key
            .try_into()
            .map_err(|_| StoreError::Unavailable("the key of client hashes is damaged".into()))?;
        let writer = Writer::start(Connected::new(Arc::clone(&server)))?;
        let instance = i64::from_ne_bytes(svc_sys::clock::random().to_ne_bytes());
        Ok(Self { server, writer, readers, client_key, instance })
    }

    fn read<T>(&self, read: impl Fn(&mut Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.readers.read(&self.server, read)
    }
}

/// Brings the database to this program's version; the key of client hashes.
fn migrate(connection: &mut Connection) -> Result<Vec<u8>, StoreError> {
    connection.batch("BEGIN")?;
    connection.query("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK])?;
    let made = connection.first("SELECT to_regclass('meta') IS NOT NULL", &[])?;
    let made = made.map_or(Ok(false), |row| row.get(0))?;
    let found: i64 = if made {
        let row = connection.first("SELECT number FROM meta WHERE key = 'version'", &[])?;
        row.map_or(Ok(0), |row| row.get(0))?
    } else {
        0
    };
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(StoreError::Unavailable(format!(
            "the database has version {found}, this program knows {known}: use a newer svc-skills"
        )));
    }
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or_default()) {
        connection.batch(migration)?;
    }
    let sql = "INSERT INTO meta(key, number) VALUES ('version', $1) \
         ON CONFLICT (key) DO UPDATE SET number = excluded.number WHERE meta.number <> excluded.number";
    connection.execute(sql, &[&known])?;
    let key: Vec<u8> = (0..4).flat_map(|_| svc_sys::clock::random().to_le_bytes()).collect();
    let sql = "INSERT INTO meta(key, bytes) VALUES ('client_key', $1) ON CONFLICT DO NOTHING";
    connection.execute(sql, &[&key])?;
    let kept = connection.first("SELECT bytes FROM meta WHERE key = 'client_key'", &[])?;
    connection.batch("COMMIT")?;
    kept.map_or(Ok(Vec::new()), |row| row.get(0))
}

fn generation(connection: &mut Connection) -> Result<u64, StoreError> {
    let row = connection.first("SELECT number FROM meta WHERE key = 'generation'", &[])?;
    row.map_or(Ok(0), |row| row.get(0)).map(rows::whole)
}

fn flaws(connection: &mut Connection) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for question in &flaws::QUESTIONS {
        let rows = connection.query(question.sql, &[])?;
        let ids = rows.iter().map(|row| row.get(0)).collect::<Result<_, StoreError>>()?;
        found.extend(flaws::sentence(question, ids));
    }
    Ok(found)
}

fn changes(connection: &mut Connection, after: u64) -> Result<Changes, StoreError> {
    // One snapshot, so that skills, authors and generation are of one moment.
    connection.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let generation = generation(connection)?;
    let changes = rows::changes(connection, generation, after)?;
    connection.batch("COMMIT")?;
    Ok(changes)
}

impl Database for Postgres {
    type Session = Connected;

    fn writer(&self) -> &Writer<Connected> {
        &self.writer
    }
}

impl Reads for Postgres {
    fn content(&self, digest: &str) -> Result<Option<String>, StoreError> {
        self.read(|connection| rows::content(connection, digest))
    }

    fn generation(&self) -> Result<u64, StoreError> {
        self.read(generation)
    }

    fn changes_since(&self, after: u64) -> Result<Changes, StoreError> {
        self.read(|connection| changes(connection, after))
    }

    fn forget_requests(&self) -> Result<(), StoreError> {
        self.read(|connection| {
            // By the database's clock, as they were written.
            let sql = "DELETE FROM request_counts WHERE second < \
                 floor(extract(epoch FROM statement_timestamp()))::bigint - $1::bigint";
            connection.execute(sql, &[&window_seconds()])?;
            Ok(())
        })
    }

    fn backup(&self, file: &Path) -> Result<(), StoreError> {
        self.read(|connection| backup::write(connection, file))
    }

    fn health(&self) -> Result<Option<String>, StoreError> {
        self.generation()?;
        Ok(self.writer.trouble())
    }

    fn client_key(&self) -> [u8; 32] {
        self.client_key
    }

    fn unbalanced_transactions(&self) -> Result<Vec<String>, StoreError> {
        self.read(rows::unbalanced)
    }

    fn flaws(&self) -> Result<Vec<String>, StoreError> {
        self.read(flaws)
    }

    fn shares_requests(&self) -> bool {
        true
    }

    fn share_requests(&self, told: &[(ClientHash, u32)]) -> Result<Vec<Elsewhere>, StoreError> {
        // By the database's clock, for those of the instances may differ. A second leaves the window as a
        // whole, after its last request has.
        let sql = "WITH told AS ( \
               INSERT INTO request_counts AS kept(client, second, instance, count) \
               SELECT given.client, floor(extract(epoch FROM statement_timestamp()))::bigint, $3::bigint, \
                 given.count \
               FROM unnest($1::bytea[], $2::bigint[]) AS given(client, count) WHERE given.count > 0 \
               ON CONFLICT (client, second, instance) DO UPDATE SET count = kept.count + excluded.count) \
             SELECT coalesce(sum(kept.count), 0)::bigint, coalesce((min(kept.second) + $4::bigint + 1) * 1000 \
                 - floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint, 0)::bigint \
             FROM unnest($1::bytea[]) WITH ORDINALITY AS given(client, place) \
             LEFT JOIN request_counts kept ON kept.client = given.client AND kept.instance <> $3::bigint \
               AND kept.second >= floor(extract(epoch FROM statement_timestamp()))::bigint - $4::bigint \
             GROUP BY given.place ORDER BY given.place";
        let clients: Vec<&[u8]> = told.iter().map(|(client, _)| &client.0[..]).collect();
        let counts: Vec<i64> = told.iter().map(|(_, count)| i64::from(*count)).collect();
        let (nothing, sent) = (vec![0; counts.len()], Cell::new(false));
        self.read(|connection| {
            // A connection that was lost over it may have told it: the second try only asks.
            let counts = if sent.replace(true) { &nothing } else { &counts };
            let (clients, counts) = (clients.as_slice(), counts.as_slice());
            let rows = connection.hurried(|connection| {
                connection.query(sql, &[&clients, &counts, &self.instance, &window_seconds()])
            })?;
            let elsewhere = rows.iter().map(|row| {
                let clamped = |value: i64| u32::try_from(value.max(0)).unwrap_or(u32::MAX);
                Ok(Elsewhere { count: clamped(row.get(0)?), reset_ms: clamped(row.get(1)?) })
            });
            elsewhere.collect()
        })
    }
}

fn window_seconds() -> i64 {
    i64::try_from(WINDOW.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
