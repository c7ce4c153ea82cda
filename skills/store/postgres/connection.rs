//! Connections: one that connects again after a loss, its prepared statements, and the bounded pool of
//! readers.

use crate::store::StoreError;
use crossbeam_channel::{Receiver, Sender, bounded};
use postgres::error::SqlState;
use postgres::types::ToSql;
use postgres::{Client, NoTls, Row, Statement};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A server that does not answer is given up after this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A peer that has silently gone is noticed after this.
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// After a connection that failed no other is tried for this long, so that nobody waits for a server that
/// is away.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Connections that read, per instance.
const READERS: usize = 4;
/// Waiting for one of them ends after this.
const READER_WAIT: Duration = Duration::from_secs(2);
/// Said on every new connection. A lock that another instance holds, and an instance that stops in the
/// middle of a transaction, hold nobody up for ever; a commit that was answered is on disk.
const GREETING: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '10s'; SET synchronous_commit = on; \
     SET client_min_messages = warning";

impl From<postgres::Error> for StoreError {
    fn from(error: postgres::Error) -> Self {
        let text = error.as_db_error().map_or_else(|| error.to_string(), |told| told.message().to_owned());
        match error.code() {
            Some(&(SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY)) => Self::Full(text),
            Some(&(SqlState::LOCK_NOT_AVAILABLE | SqlState::QUERY_CANCELED)) => Self::Overloaded,
            _ => Self::Unavailable(text),
        }
    }
}

/// Where the database is, and when it was last found to be away.
pub struct Server {
    config: postgres::Config,
    away_since: Mutex<Option<Instant>>,
}

impl Server {
    /// Reads a `DATABASE_URL`.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let mut config: postgres::Config = url
            .parse()
            .map_err(|error| StoreError::Unavailable(format!("DATABASE_URL cannot be read: {error}")))?;
        config.application_name("svc-skills").connect_timeout(CONNECT_TIMEOUT);
        config.tcp_user_timeout(DEAD_PEER_TIMEOUT).keepalives_idle(DEAD_PEER_TIMEOUT);
        Ok(Self { config, away_since: Mutex::default() })
    }

    fn connect(&self) -> Result<Client, StoreError> {
        let mut away = self.away_since.lock().unwrap_or_else(PoisonError::into_inner);
        if away.is_some_and(|since| since.elapsed() < RETRY_AFTER) {
            return Err(StoreError::Unavailable("the database is away".into()));
        }
        let greeted = self.config.connect(NoTls).and_then(|mut client| {
            client.batch_execute(GREETING)?;
            Ok(client)
        });
        *away = greeted.is_err().then(Instant::now);
        Ok(greeted?)
    }
}

/// One connection, made when it is first needed and again after a loss, with the statements it has prepared.
#[derive(Default)]
pub struct Connection {
    open: Option<Client>,
    // As many as there are texts in this program.
    statements: HashMap<String, Statement>,
}

impl Connection {
    /// The open client.
    pub fn client(&mut self, server: &Server) -> Result<&mut Client, StoreError> {
        if self.open.as_ref().is_none_or(Client::is_closed) {
            self.statements.clear();
            self.open = Some(server.connect()?);
        }
        self.opened()
    }

    /// The client, if it is open.
    pub fn opened(&mut self) -> Result<&mut Client, StoreError> {
        let open = self.open.as_mut().filter(|client| !client.is_closed());
        open.ok_or_else(|| StoreError::Unavailable("the connection to the database is lost".into()))
    }

    /// Drops the connection; the server ends what it was doing.
    pub fn close(&mut self) {
        self.open = None;
        self.statements.clear();
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, StoreError> {
        if let Some(known) = self.statements.get(sql) {
            return Ok(known.clone());
        }
        let statement = self.opened()?.prepare(sql)?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Rows of a statement.
    pub fn query(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        let statement = self.prepared(sql)?;
        Ok(self.opened()?.query(&statement, values)?)
    }

    /// The first row of a statement.
    pub fn first(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>, StoreError> {
        Ok(self.query(sql, values)?.into_iter().next())
    }

    /// Runs a statement; how many rows it has touched.
    pub fn execute(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<u64, StoreError> {
        let statement = self.prepared(sql)?;
        Ok(self.opened()?.execute(&statement, values)?)
    }

    /// Runs statements without values.
    pub fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        Ok(self.opened()?.batch_execute(sql)?)
    }
}

/// The readers.
pub struct Pool {
    idle: Receiver<Connection>,
    back: Sender<Connection>,
}

impl Pool {
    /// None of them is connected yet.
    pub fn new() -> Self {
        let (back, idle) = bounded(READERS);
        for _ in 0..READERS {
            // There is room for all.
            let _ = back.try_send(Connection::default());
        }
        Self { idle, back }
    }

    /// Runs one read. One that finds its connection lost is tried once more on a new one.
    pub fn read<T>(
        &self,
        server: &Server,
        read: impl Fn(&mut Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut connection = self.idle.recv_timeout(READER_WAIT).map_err(|_| StoreError::Overloaded)?;
        let mut found = connection.client(server).map(drop).and_then(|()| read(&mut connection));
        if found.is_err() {
            // Whatever state a failed read has left: the next one begins afresh.
            let lost = connection.opened().is_err();
            connection.close();
            if lost {
                found = connection.client(server).map(drop).and_then(|()| read(&mut connection));
            }
        }
        // It came from there.
        let _ = self.back.try_send(connection);
        found
    }
}
