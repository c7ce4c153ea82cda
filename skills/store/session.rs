//! What a database must offer to be written to: one connection, its transaction, and rows in and out. The
//! rules stand in [`super::writes`], once for all stores.

use super::rows::{self, AUTHOR_COLUMNS, SKILL_COLUMNS, int, text};
use super::sql::{Sql, Value};
use super::{ClientHash, StoreError};
use crate::installs::{DAY_MS, WINDOW_MS};
use crate::model::{Author, Skill};
use serde_json::Value as Json;
use svc_base::time::Time;

/// The rows that the rules ask for, inside the transaction that is open.
pub trait Tables: Sql + Sized {
    /// One skill.
    fn skill(&mut self, id: &str) -> Result<Option<Skill>, StoreError> {
        let sql = format!("SELECT {SKILL_COLUMNS} FROM skills WHERE id = $1");
        self.find(&sql, &[&id], rows::skill_of)
    }

    /// Those of the ids that skills have.
    fn taken(&mut self, ids: &[String]) -> Result<Vec<String>, StoreError> {
        let sql = format!("SELECT id FROM skills WHERE id IN ({})", rows::places(ids.len()));
        let ids: Vec<&dyn Value> = ids.iter().map(|id| id as &dyn Value).collect();
        self.select(&sql, &ids, |row| row.text("id"))
    }

    /// All skills of an author.
    fn skills_of_author(&mut self, author: &str) -> Result<Vec<Skill>, StoreError> {
        let sql = format!("SELECT {SKILL_COLUMNS} FROM skills WHERE author_id = $1");
        self.select(&sql, &[&author], rows::skill_of)
    }

    /// Writes a whole skill, new or known; of a known one neither counters nor `source` nor `created_at`.
    fn put_skill(&mut self, skill: &Skill, generation: u64) -> Result<(), StoreError> {
        let values: [&dyn Value; 28] = [
            &skill.id,
            &skill.name,
            &skill.description,
            &skill.author,
            &skill.author_id,
            &text(&skill.profile),
            &skill.category.word(),
            &text(&skill.tags),
            &text(&skill.roles),
            &skill.source.word(),
            &skill.icon,
            &skill.digest,
            &int(skill.content_bytes),
            &skill.has_front_matter,
            &int(skill.downloads),
            &int(skill.seed_rating),
            &int(skill.seed_rating_count),
            &int(skill.rating_sum),
            &int(skill.rating_count),
            &int(skill.price_cents),
            &skill.featured,
            &skill.verification.word(),
            &skill.status.word(),
            &skill.version,
            &skill.first_published_at.map(|at| int(at.0)),
            &int(skill.created_at.0),
            &int(skill.updated_at.0),
            &int(generation),
        ];
        self.write(&rows::put_skill_sql(), &values).map(drop)
    }

    /// One author.
    fn author(&mut self, id: &str) -> Result<Option<Author>, StoreError> {
        let sql = format!("SELECT {AUTHOR_COLUMNS} FROM authors WHERE id = $1");
        self.find(&sql, &[&id], rows::author_of)
    }

    /// Writes a whole author, new or known.
    fn put_author(&mut self, author: &Author, generation: u64) -> Result<(), StoreError> {
        let values: [&dyn Value; 8] = [
            &author.id,
            &author.github_id,
            &author.username,
            &author.display_name,
            &text(&author.profile),
            &author.portfolio,
            &int(author.created_at.0),
            &int(generation),
        ];
        self.write(&rows::put_author_sql(), &values).map(drop)
    }

    /// Keeps a content under its digest.
    fn put_content(&mut self, digest: &str, content: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO blobs(digest, content) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        self.write(sql, &[&digest, &content]).map(drop)
    }

    /// Adds the skill's content to its history.
    fn add_version(&mut self, skill: &Skill, now: Time) -> Result<(), StoreError> {
        let sql = "INSERT INTO skill_versions(skill_id, seq, digest, version, created_at) VALUES ($1, \
             (SELECT coalesce(max(seq), 0) + 1 FROM skill_versions WHERE skill_id = $1), $2, $3, $4)";
        self.write(sql, &[&skill.id, &skill.digest, &skill.version, &int(now.0)]).map(drop)
    }

    /// Adds a line to the append-only events.
    fn add_event(&mut self, kind: &str, subject: &str, data: &Json, now: Time) -> Result<(), StoreError> {
        let sql = "INSERT INTO events(at, kind, subject, data) VALUES ($1, $2, $3, $4)";
        self.write(sql, &[&int(now.0), &kind, &subject, &data.to_string()]).map(drop)
    }

    /// Keeps a decision on the skill's present content.
    fn add_review(&mut self, skill: &Skill, decision: &str, note: &str, now: Time) -> Result<(), StoreError> {
        let sql =
            "INSERT INTO reviews(skill_id, decision, note, digest, created_at) VALUES ($1, $2, $3, $4, $5)";
        self.write(sql, &[&skill.id, &decision, &note, &skill.digest, &int(now.0)]).map(drop)
    }

    /// Whether the last decision on a skill was to reject it.
    fn was_rejected(&mut self, id: &str) -> Result<bool, StoreError> {
        let sql = "SELECT decision FROM reviews WHERE skill_id = $1 ORDER BY seq DESC LIMIT 1";
        let last = self.find(sql, &[&id], |row| row.text("decision"))?;
        Ok(last.as_deref() == Some("reject"))
    }

    /// A client's rating of a skill.
    fn rating(&mut self, id: &str, client: ClientHash) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT rating FROM ratings WHERE skill_id = $1 AND client = $2";
        self.find(sql, &[&id, &&client.0[..]], |row| row.number("rating"))
    }

    /// Puts a client's rating in place of its earlier one.
    fn put_rating(&mut self, id: &str, client: ClientHash, rating: i64, now: Time) -> Result<(), StoreError> {
        let sql = "INSERT INTO ratings(skill_id, client, rating, created_at, updated_at) \
             VALUES ($1, $2, $3, $4, $4) ON CONFLICT(skill_id, client) DO UPDATE \
             SET rating = excluded.rating, updated_at = excluded.updated_at";
        self.write(sql, &[&id, &&client.0[..], &rating, &int(now.0)]).map(drop)
    }

    /// Moves a skill's sum and count of ratings.
    fn add_to_ratings(&mut self, id: &str, sum: i64, count: i64, generation: u64) -> Result<(), StoreError> {
        let sql = "UPDATE skills SET rating_sum = rating_sum + $2, rating_count = rating_count + $3, \
             generation = $4 WHERE id = $1";
        self.write(sql, &[&id, &sum, &count, &int(generation)]).map(drop)
    }

    /// When a client's install was last counted.
    fn last_install(&mut self, id: &str, client: ClientHash) -> Result<Option<Time>, StoreError> {
        let sql = "SELECT counted_at FROM installs WHERE skill_id = $1 AND client = $2";
        self.find(sql, &[&id, &&client.0[..]], |row| rows::time(row, "counted_at"))
    }

    /// Counts an install: the client's window, the day's figure, the skill's counter.
    fn count_install(
        &mut self,
        id: &str,
        client: ClientHash,
        now: Time,
        generation: u64,
    ) -> Result<(), StoreError> {
        let sql = "INSERT INTO installs(skill_id, client, counted_at) VALUES ($1, $2, $3) \
             ON CONFLICT(skill_id, client) DO UPDATE SET counted_at = excluded.counted_at";
        self.write(sql, &[&id, &&client.0[..], &int(now.0)])?;
        let sql = "INSERT INTO install_daily AS daily(skill_id, day, count) VALUES ($1, $2, 1) \
             ON CONFLICT(skill_id, day) DO UPDATE SET count = daily.count + 1";
        self.write(sql, &[&id, &int(now.0 / DAY_MS)])?;
        let sql = "UPDATE skills SET downloads = downloads + 1, generation = $2 WHERE id = $1";
        self.write(sql, &[&id, &int(generation)]).map(drop)
    }

    /// Forgets install windows that began before `passed`; how many.
    fn forget_installs(&mut self, passed: Time) -> Result<u64, StoreError> {
        // Those far ahead come from a clock that was wrong; `installs::counts` does not believe them, either.
        let sql = "DELETE FROM installs WHERE counted_at < $1 OR counted_at > $2";
        self.write(sql, &[&int(passed.0), &int(passed.0.saturating_add(2 * WINDOW_MS))])
    }
}

impl<S: Sql> Tables for S {}

/// A connection that writes.
///
/// **Invariant:** between [`Session::begin`] and the end of the transaction no other writer of the database,
/// in this process or in another one, is between the two. So the writes have one order, generations have no
/// gaps that fill later, and what a write has read holds until its commit.
pub trait Session: Tables + Send + 'static {
    /// Opens a transaction and waits for the right to write; the generation of the last write.
    fn begin(&mut self) -> Result<u64, StoreError>;

    /// Marks a point inside the transaction.
    fn mark(&mut self) -> Result<(), StoreError>;

    /// Takes back what was written since the mark, and removes the mark.
    fn take_back(&mut self) -> Result<(), StoreError>;

    /// Removes the mark.
    fn keep(&mut self) -> Result<(), StoreError>;

    /// Makes all durable; with a generation, sets it before.
    fn commit(&mut self, generation: Option<u64>) -> Result<(), StoreError>;

    /// Ends a transaction that may be open, without its writes.
    fn abandon(&mut self);

    /// Whether the transaction that was opened still stands.
    fn stands(&mut self) -> bool;

    /// Rows written so far; only differences matter.
    fn rows_written(&self) -> u64;
}
