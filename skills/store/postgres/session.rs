//! Writing to `PostgreSQL`: its transaction, and the rows that the rules ask for.

use super::connection::{Connection, Server};
use super::rows::{self, Bound, int};
use super::wire::ToText;
use crate::installs::{DAY_MS, WINDOW_MS};
use crate::model::{Author, Skill};
use crate::store::session::{Session, Tables};
use crate::store::{ClientHash, StoreError};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_base::time::Time;

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

    fn execute(&mut self, sql: &str, values: &[&dyn ToText]) -> Result<u64, StoreError> {
        let rows = self.connection.execute(sql, values)?;
        self.rows += rows;
        Ok(rows)
    }

    fn put(&mut self, sql: &str, values: &[Bound]) -> Result<(), StoreError> {
        let values: Vec<&dyn ToText> = values.iter().map(AsRef::as_ref).collect();
        self.execute(sql, &values).map(drop)
    }

    fn number(&mut self, sql: &str, values: &[&dyn ToText]) -> Result<Option<i64>, StoreError> {
        self.connection.first(sql, values)?.map(|row| row.get(0)).transpose()
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
        Ok(u64::try_from(row.get::<i64>("number")?).unwrap_or_default())
    }
}

impl Tables for Connected {
    fn skill(&mut self, id: &str) -> Result<Option<Skill>, StoreError> {
        if !storable(id) {
            return Ok(None);
        }
        let sql = format!("SELECT {} FROM skills WHERE id = $1", rows::SKILL_COLUMNS);
        self.connection.first(&sql, &[&id])?.as_ref().map(rows::skill_of).transpose()
    }

    fn taken(&mut self, ids: &[String]) -> Result<Vec<String>, StoreError> {
        let found = self.connection.query("SELECT id FROM skills WHERE id = ANY($1)", &[&ids])?;
        found.iter().map(|row| row.get(0)).collect()
    }

    fn skills_of_author(&mut self, author: &str) -> Result<Vec<Skill>, StoreError> {
        let sql = format!("SELECT {} FROM skills WHERE author_id = $1", rows::SKILL_COLUMNS);
        self.connection.query(&sql, &[&author])?.iter().map(rows::skill_of).collect()
    }

    fn put_skill(&mut self, skill: &Skill, generation: u64) -> Result<(), StoreError> {
        self.put(&rows::put_skill_sql(), &rows::skill_values(skill, generation))
    }

    fn author(&mut self, id: &str) -> Result<Option<Author>, StoreError> {
        if !storable(id) {
            return Ok(None);
        }
        let sql = format!("SELECT {} FROM authors WHERE id = $1", rows::AUTHOR_COLUMNS);
        self.connection.first(&sql, &[&id])?.as_ref().map(rows::author_of).transpose()
    }

    fn put_author(&mut self, author: &Author, generation: u64) -> Result<(), StoreError> {
        self.put(&rows::put_author_sql(), &rows::author_values(author, generation))
    }

    fn put_content(&mut self, digest: &str, content: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO blobs(digest, content) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        self.execute(sql, &[&digest, &content]).map(drop)
    }

    fn add_version(&mut self, skill: &Skill, now: Time) -> Result<(), StoreError> {
        let sql = "INSERT INTO skill_versions(skill_id, seq, digest, version, created_at) VALUES ($1, \
             (SELECT coalesce(max(seq), 0) + 1 FROM skill_versions WHERE skill_id = $1), $2, $3, $4)";
        self.execute(sql, &[&skill.id, &skill.digest, &skill.version, &int(now.0)]).map(drop)
    }

    fn add_event(&mut self, kind: &str, subject: &str, data: &Value, now: Time) -> Result<(), StoreError> {
        let sql = "INSERT INTO events(at, kind, subject, data) VALUES ($1, $2, $3, $4)";
        self.execute(sql, &[&int(now.0), &kind, &subject, &data.to_string()]).map(drop)
    }

    fn add_review(&mut self, skill: &Skill, decision: &str, note: &str, now: Time) -> Result<(), StoreError> {
        let sql =
            "INSERT INTO reviews(skill_id, decision, note, digest, created_at) VALUES ($1, $2, $3, $4, $5)";
        self.execute(sql, &[&skill.id, &decision, &note, &skill.digest, &int(now.0)]).map(drop)
    }

    fn was_rejected(&mut self, id: &str) -> Result<bool, StoreError> {
        let sql = "SELECT CASE decision WHEN 'reject' THEN 1 ELSE 0 END::bigint FROM reviews \
             WHERE skill_id = $1 ORDER BY seq DESC LIMIT 1";
        Ok(self.number(sql, &[&id])? == Some(1))
    }

    fn rating(&mut self, id: &str, client: ClientHash) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT rating FROM ratings WHERE skill_id = $1 AND client = $2";
        self.number(sql, &[&id, &&client.0[..]])
    }

    fn put_rating(&mut self, id: &str, client: ClientHash, rating: i64, now: Time) -> Result<(), StoreError> {
        let sql = "INSERT INTO ratings(skill_id, client, rating, created_at, updated_at) \
             VALUES ($1, $2, $3, $4, $4) ON CONFLICT(skill_id, client) DO UPDATE \
             SET rating = excluded.rating, updated_at = excluded.updated_at";
        self.execute(sql, &[&id, &&client.0[..], &rating, &int(now.0)]).map(drop)
    }

    fn add_to_ratings(&mut self, id: &str, sum: i64, count: i64, generation: u64) -> Result<(), StoreError> {
        let sql = "UPDATE skills SET rating_sum = rating_sum + $2, rating_count = rating_count + $3, \
             generation = $4 WHERE id = $1";
        self.execute(sql, &[&id, &sum, &count, &int(generation)]).map(drop)
    }

    fn last_install(&mut self, id: &str, client: ClientHash) -> Result<Option<Time>, StoreError> {
        let sql = "SELECT counted_at FROM installs WHERE skill_id = $1 AND client = $2";
        let found = self.number(sql, &[&id, &&client.0[..]])?;
        Ok(found.map(|ms| Time(u64::try_from(ms).unwrap_or_default())))
    }

    fn count_install(
        &mut self,
        id: &str,
        client: ClientHash,
        now: Time,
        generation: u64,
    ) -> Result<(), StoreError> {
        let sql = "INSERT INTO installs(skill_id, client, counted_at) VALUES ($1, $2, $3) \
             ON CONFLICT(skill_id, client) DO UPDATE SET counted_at = excluded.counted_at";
        self.execute(sql, &[&id, &&client.0[..], &int(now.0)])?;
        let sql = "INSERT INTO install_daily AS daily(skill_id, day, count) VALUES ($1, $2, 1) \
             ON CONFLICT(skill_id, day) DO UPDATE SET count = daily.count + 1";
        self.execute(sql, &[&id, &int(now.0 / DAY_MS)])?;
        let sql = "UPDATE skills SET downloads = downloads + 1, generation = $2 WHERE id = $1";
        self.execute(sql, &[&id, &int(generation)]).map(drop)
    }

    fn forget_installs(&mut self, passed: Time) -> Result<u64, StoreError> {
        // Those far ahead come from a clock that was wrong; `installs::counts` does not believe them, either.
        let sql = "DELETE FROM installs WHERE counted_at < $1 OR counted_at > $2";
        self.execute(sql, &[&int(passed.0), &int(passed.0.saturating_add(2 * WINDOW_MS))])
    }
}

/// Whether a text can be the value of a column at all; this database knows no NUL.
fn storable(text: &str) -> bool {
    !text.contains('\0')
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
