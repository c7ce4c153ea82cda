//! Connections: one that connects again after a loss, and the bounded pool of readers.

use super::wire::{Client, Patience, Row, Target, ToText, WireError};
use crate::store::StoreError;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
     SET client_min_messages = warning; SET bytea_output = hex";

/// What the server says when it has no room: disk full, out of memory.
const NO_ROOM: [&str; 2] = ["53100", "53200"];
/// What it says when others were quicker: a lock that was not given, a statement that took too long, a
/// conflict.
const TRY_AGAIN: [&str; 4] = ["55P03", "57014", "40001", "40P01"];

impl From<WireError> for StoreError {
    fn from(error: WireError) -> Self {
        match error.code() {
            Some(code) if NO_ROOM.contains(&code) => Self::Full(error.to_string()),
            Some(code) if TRY_AGAIN.contains(&code) => Self::Overloaded,
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

/// Where the database is, and when and why it was last found to be away.
pub struct Server {
    target: Target,
    away_since: Mutex<Option<(Instant, StoreError)>>,
}

impl Server {
    /// Reads a `DATABASE_URL`.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let target = Target::parse(url)
            .map_err(|error| StoreError::Unavailable(format!("DATABASE_URL cannot be used: {error}")))?;
        Ok(Self { target, away_since: Mutex::default() })
    }

    fn connect(&self) -> Result<Client, StoreError> {
        let mut away = self.away_since.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, error)) = &*away
            && since.elapsed() < RETRY_AFTER
        {
            return Err(error.clone());
        }
        let greeted = Client::connect(&self.target).and_then(|mut client| {
            client.batch(GREETING)?;
            Ok(client)
        });
        let greeted = greeted.map_err(StoreError::from);
        *away = greeted.as_ref().err().map(|error| (Instant::now(), error.clone()));
        greeted
    }
}

/// One connection, made when it is first needed and again after a loss.
#[derive(Default)]
pub struct Connection(Option<Client>);

impl Connection {
    /// The open client.
    pub fn client(&mut self, server: &Server) -> Result<&mut Client, StoreError> {
        if self.is_lost() {
            self.0 = Some(server.connect()?);
        }
        self.opened()
    }

    /// The client, if it is open.
    pub fn opened(&mut self) -> Result<&mut Client, StoreError> {
        let open = self.0.as_mut().filter(|client| !client.is_broken());
        open.ok_or_else(|| StoreError::Unavailable("the connection to the database is lost".into()))
    }

    /// Whether there is none that can be used.
    pub fn is_lost(&self) -> bool {
        self.0.as_ref().is_none_or(Client::is_broken)
    }

    /// Drops the connection; the server ends what it was doing.
    pub fn close(&mut self) {
        self.0 = None;
    }

    /// Rows of a statement.
    pub fn query(&mut self, sql: &str, values: &[&dyn ToText]) -> Result<Vec<Row>, StoreError> {
        Ok(self.opened()?.query(sql, values)?)
    }

    /// The first row of a statement.
    pub fn first(&mut self, sql: &str, values: &[&dyn ToText]) -> Result<Option<Row>, StoreError> {
        Ok(self.query(sql, values)?.into_iter().next())
    }

    /// Runs a statement; how many rows it has touched.
    pub fn execute(&mut self, sql: &str, values: &[&dyn ToText]) -> Result<u64, StoreError> {
        Ok(self.opened()?.execute(sql, values)?)
    }

    /// Runs statements without values.
    pub fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        Ok(self.opened()?.batch(sql)?)
    }

    /// Runs a `COPY .. TO STDOUT` into `sink`.
    pub fn copy_out(&mut self, sql: &str, sink: &mut dyn Write) -> Result<(), StoreError> {
        Ok(self.opened()?.copy_out(sql, sink)?)
    }

    /// Runs a `COPY .. FROM STDIN` with what `source` gives, see [`Client::copy_in`]; rows taken.
    pub fn copy_in(
        &mut self,
        sql: &str,
        source: impl FnMut(&mut Vec<u8>) -> Result<(), StoreError>,
    ) -> Result<u64, StoreError> {
        self.opened()?.copy_in(sql, source)?
    }

    /// Runs a read for which nobody is to wait long; a connection that is too slow for it is given up.
    pub fn hurried<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.opened()?.set_patience(Patience::Short)?;
        let found = read(self);
        if !self.is_lost() {
            self.opened()?.set_patience(Patience::Usual)?;
        }
        found
    }

    /// Begins a transaction that may take as long as it takes: neither side gives up on the other.
    pub fn begin_long(&mut self, how: &str) -> Result<(), StoreError> {
        self.opened()?.set_patience(Patience::Long)?;
        self.batch(&format!(
            "BEGIN {how}; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
        ))
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
        let was_open = !connection.is_lost();
        let mut found = connection.client(server).map(drop).and_then(|()| read(&mut connection));
        if found.is_err() {
            // Whatever state a failed read has left: the next one begins afresh.
            let lost = connection.is_lost();
            connection.close();
            if was_open && lost {
                found = connection.client(server).map(drop).and_then(|()| read(&mut connection));
            }
        }
        // It came from there.
        let _ = self.back.try_send(connection);
        found
    }
}
