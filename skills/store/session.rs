//! What a database must offer to be written to: one connection, its transaction, and rows in and out. The
//! rules stand in [`super::writes`], once for all stores.

use super::{ClientHash, StoreError};
use crate::model::{Author, Skill};
use serde_json::Value;
use svc_base::time::Time;

/// Rows of one database, inside the transaction that is open.
pub trait Tables {
    /// One skill.
    fn skill(&mut self, id: &str) -> Result<Option<Skill>, StoreError>;

    /// Those of the ids that skills have.
    fn taken(&mut self, ids: &[String]) -> Result<Vec<String>, StoreError>;

    /// All skills of an author.
    fn skills_of_author(&mut self, author: &str) -> Result<Vec<Skill>, StoreError>;

    /// Writes a whole skill, new or known; of a known one neither counters nor `source` nor `created_at`.
    fn put_skill(&mut self, skill: &Skill, generation: u64) -> Result<(), StoreError>;

    /// One author.
    fn author(&mut self, id: &str) -> Result<Option<Author>, StoreError>;

    /// Writes a whole author, new or known.
    fn put_author(&mut self, author: &Author, generation: u64) -> Result<(), StoreError>;

    /// Keeps a content under its digest.
    fn put_content(&mut self, digest: &str, content: &str) -> Result<(), StoreError>;

    /// Adds the skill's content to its history.
    fn add_version(&mut self, skill: &Skill, now: Time) -> Result<(), StoreError>;

    /// Adds a line to the append-only events.
    fn add_event(&mut self, kind: &str, subject: &str, data: &Value, now: Time) -> Result<(), StoreError>;

    /// Keeps a decision on the skill's present content.
    fn add_review(&mut self, skill: &Skill, decision: &str, note: &str, now: Time) -> Result<(), StoreError>;

    /// Whether the last decision on a skill was to reject it.
    fn was_rejected(&mut self, id: &str) -> Result<bool, StoreError>;

    /// A client's rating of a skill.
    fn rating(&mut self, id: &str, client: ClientHash) -> Result<Option<i64>, StoreError>;

    /// Puts a client's rating in place of its earlier one.
    fn put_rating(&mut self, id: &str, client: ClientHash, rating: i64, now: Time) -> Result<(), StoreError>;

    /// Moves a skill's sum and count of ratings.
    fn add_to_ratings(&mut self, id: &str, sum: i64, count: i64, generation: u64) -> Result<(), StoreError>;

    /// When a client's install was last counted.
    fn last_install(&mut self, id: &str, client: ClientHash) -> Result<Option<Time>, StoreError>;

    /// Counts an install: the client's window, the day's figure, the skill's counter.
    fn count_install(
        &mut self,
        id: &str,
        client: ClientHash,
        now: Time,
        generation: u64,
    ) -> Result<(), StoreError>;

    /// Forgets install windows that began before `passed`; how many.
    fn forget_installs(&mut self, passed: Time) -> Result<u64, StoreError>;
}

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
