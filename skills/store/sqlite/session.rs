//! Writing to `SQLite`: its transaction, and the rows that the rules ask for.

use super::file::Served;
use super::rows::{self, int};
use super::{StoreError, Time, generation};
use crate::installs::{DAY_MS, WINDOW_MS};
use crate::model::{Author, Skill};
use crate::store::ClientHash;
use crate::store::session::{Session, Tables};
use rusqlite::{Connection, OptionalExtension, Params, params};
use serde_json::Value;

/// The writer's connection, and the file that it writes to.
pub struct Connected(pub Connection, pub Served);

impl Connected {
    fn execute(&self, sql: &str, values: impl Params) -> Result<u64, StoreError> {
        Ok(self.0.prepare_cached(sql)?.execute(values)? as u64)
    }

    fn number(&self, sql: &str, values: impl Params) -> Result<Option<i64>, StoreError> {
        Ok(self.0.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?)
    }
}

impl Tables for Connected {
    fn skill(&mut self, id: &str) -> Result<Option<Skill>, StoreError> {
        rows::skill(&self.0, id)
    }

    fn taken(&mut self, ids: &[String]) -> Result<Vec<String>, StoreError> {
        let mut statement = self.0.prepare_cached("SELECT 1 FROM skills WHERE id = ?1")?;
        let mut taken = Vec::new();
        for id in ids {
            if statement.exists([id])? {
                taken.push(id.clone());
            }
        }
        Ok(taken)
    }

    fn skills_of_author(&mut self, author: &str) -> Result<Vec<Skill>, StoreError> {
        rows::skills_of_author(&self.0, author)
    }

    fn put_skill(&mut self, skill: &Skill, generation: u64) -> Result<(), StoreError> {
        rows::put_skill(&self.0, skill, generation)
    }

    fn author(&mut self, id: &str) -> Result<Option<Author>, StoreError> {
        rows::author(&self.0, id)
    }

    fn put_author(&mut self, author: &Author, generation: u64) -> Result<(), StoreError> {
        rows::put_author(&self.0, author, generation)
    }

    fn put_content(&mut self, digest: &str, content: &str) -> Result<(), StoreError> {
        let sql = "INSERT OR IGNORE INTO blobs(digest, content) VALUES (?1, ?2)";
        self.execute(sql, params![digest, content]).map(drop)
    }

    fn add_version(&mut self, skill: &Skill, now: Time) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO skill_versions(skill_id, seq, digest, version, created_at) VALUES (?1, \
             (SELECT coalesce(max(seq), 0) + 1 FROM skill_versions WHERE skill_id = ?1), ?2, ?3, ?4)",
            params![skill.id, skill.digest, skill.version, int(now.0)],
        )
        .map(drop)
    }

    fn add_event(&mut self, kind: &str, subject: &str, data: &Value, now: Time) -> Result<(), StoreError> {
        let sql = "INSERT INTO events(at, kind, subject, data) VALUES (?1, ?2, ?3, ?4)";
        self.execute(sql, params![int(now.0), kind, subject, data.to_string()]).map(drop)
    }

    fn add_review(&mut self, skill: &Skill, decision: &str, note: &str, now: Time) -> Result<(), StoreError> {
        let sql =
            "INSERT INTO reviews(skill_id, decision, note, digest, created_at) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.execute(sql, params![skill.id, decision, note, skill.digest, int(now.0)]).map(drop)
    }

    fn was_rejected(&mut self, id: &str) -> Result<bool, StoreError> {
        let sql = "SELECT decision = 'reject' FROM reviews WHERE skill_id = ?1 ORDER BY seq DESC LIMIT 1";
        Ok(self.number(sql, [id])? == Some(1))
    }

    fn rating(&mut self, id: &str, client: ClientHash) -> Result<Option<i64>, StoreError> {
        self.number("SELECT rating FROM ratings WHERE skill_id = ?1 AND client = ?2", params![id, client.0])
    }

    fn put_rating(&mut self, id: &str, client: ClientHash, rating: i64, now: Time) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO ratings(skill_id, client, rating, created_at, updated_at) \
             VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT(skill_id, client) DO UPDATE \
             SET rating = excluded.rating, updated_at = excluded.updated_at",
            params![id, client.0, rating, int(now.0)],
        )
        .map(drop)
    }

    fn add_to_ratings(&mut self, id: &str, sum: i64, count: i64, generation: u64) -> Result<(), StoreError> {
        self.execute(
            "UPDATE skills SET rating_sum = rating_sum + ?2, rating_count = rating_count + ?3, \
             generation = ?4 WHERE id = ?1",
            params![id, sum, count, int(generation)],
        )
        .map(drop)
    }

    fn last_install(&mut self, id: &str, client: ClientHash) -> Result<Option<Time>, StoreError> {
        let sql = "SELECT counted_at FROM installs WHERE skill_id = ?1 AND client = ?2";
        let found = self.number(sql, params![id, client.0])?;
        Ok(found.map(|ms| Time(u64::try_from(ms).unwrap_or_default())))
    }

    fn count_install(
        &mut self,
        id: &str,
        client: ClientHash,
        now: Time,
        generation: u64,
    ) -> Result<(), StoreError> {
        self.execute(
            "INSERT INTO installs(skill_id, client, counted_at) VALUES (?1, ?2, ?3) \
             ON CONFLICT(skill_id, client) DO UPDATE SET counted_at = excluded.counted_at",
            params![id, client.0, int(now.0)],
        )?;
        self.execute(
            "INSERT INTO install_daily(skill_id, day, count) VALUES (?1, ?2, 1) \
             ON CONFLICT(skill_id, day) DO UPDATE SET count = count + 1",
            params![id, int(now.0 / DAY_MS)],
        )?;
        let sql = "UPDATE skills SET downloads = downloads + 1, generation = ?2 WHERE id = ?1";
        self.execute(sql, params![id, int(generation)]).map(drop)
    }

    fn forget_installs(&mut self, passed: Time) -> Result<u64, StoreError> {
        // Those far ahead come from a clock that was wrong; `installs::counts` does not believe them, either.
        let sql = "DELETE FROM installs WHERE counted_at < ?1 OR counted_at > ?2";
        self.execute(sql, [int(passed.0), int(passed.0.saturating_add(2 * WINDOW_MS))])
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
            self.execute("UPDATE meta SET value = ?1 WHERE key = 'generation'", [int(generation)])?;
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
