//! The writes, each inside the transaction that the writer thread has opened.

use super::rows::{self, int};
use crate::authoring::content::Content;
use crate::authoring::moves::{self, Move};
use crate::authoring::{Draft, slug};
use crate::authors::{self, AuthorPatch};
use crate::installs;
use crate::model::{Author, Skill};
use crate::store::{ClientHash, Incoming, Installed, StoreError, no_such_author, no_such_skill};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use svc::core::time::Time;

/// A day has as many milliseconds.
const DAY_MS: u64 = 86_400_000;
/// Ids tried for one name; more than anybody makes skills of one name.
const SLUG_TRIES: u64 = 1_000_000;

/// One write's view of the transaction.
pub struct Write<'a> {
    /// Inside an open transaction.
    pub connection: &'a Connection,
    /// What rows that change are marked with.
    pub generation: u64,
    /// When.
    pub now: Time,
}

impl Write<'_> {
    fn need(&self, id: &str) -> Result<Skill, StoreError> {
        rows::skill(self.connection, id)?.ok_or_else(|| no_such_skill(id).into())
    }

    fn event(&self, kind: &str, subject: &str, data: &Value) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("INSERT INTO events(at, kind, subject, data) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![int(self.now.0), kind, subject, data.to_string()])?;
        Ok(())
    }

    fn keep_content(&self, digest: &str, content: &str) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("INSERT OR IGNORE INTO blobs(digest, content) VALUES (?1, ?2)")?
            .execute(params![digest, content])?;
        Ok(())
    }

    fn keep_version(&self, skill: &Skill) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "INSERT INTO skill_versions(skill_id, seq, digest, version, created_at) VALUES (?1, \
                 (SELECT coalesce(max(seq), 0) + 1 FROM skill_versions WHERE skill_id = ?1), ?2, ?3, ?4)",
            )?
            .execute(params![skill.id, skill.digest, skill.version, int(self.now.0)])?;
        Ok(())
    }

    /// The skill's author record is there afterwards; what it lacked is filled.
    fn keep_author(&self, skill: &Skill) -> Result<(), StoreError> {
        let mut author = match rows::author(self.connection, &skill.author_id)? {
            None => authors::of_skill(skill, self.now),
            Some(mut author) => {
                if !author.profile.fill_from(&skill.profile) {
                    return Ok(());
                }
                author
            }
        };
        if author.display_name.is_empty() {
            author.display_name.clone_from(&skill.author);
        }
        rows::put_author(self.connection, &author, self.generation)
    }

    fn free_id(&self, slug: &str) -> Result<String, StoreError> {
        let mut taken = self.connection.prepare_cached("SELECT 1 FROM skills WHERE id = ?1")?;
        for n in 1..SLUG_TRIES {
            let id = slug::candidate(slug, n);
            if !taken.exists([&id])? {
                return Ok(id);
            }
        }
        Err(StoreError::Unavailable(format!("all ids of {slug} are taken")))
    }

    /// See [`crate::store::Store::create`].
    pub fn create(&self, draft: Draft) -> Result<Skill, StoreError> {
        let content = draft.content.clone().unwrap_or_else(|| Content::new(String::new()));
        let mut skill = moves::create(draft, self.now);
        skill.id = self.free_id(&skill.id)?;
        self.keep_content(&content.digest, &content.text)?;
        self.keep_author(&skill)?;
        rows::put_skill(self.connection, &skill, self.generation)?;
        self.keep_version(&skill)?;
        self.event("create", &skill.id, &json!({"name": skill.name, "authorId": skill.author_id}))?;
        Ok(skill)
    }

    /// See [`crate::store::Store::update`].
    pub fn update(&self, id: &str, draft: &Draft) -> Result<Skill, StoreError> {
        let before = self.need(id)?;
        let mut skill = before.clone();
        moves::edit(&mut skill, draft, self.now)?;
        if skill == before {
            return Ok(skill);
        }
        if let Some(content) = &draft.content
            && skill.digest != before.digest
        {
            self.keep_content(&content.digest, &content.text)?;
            self.keep_version(&skill)?;
        }
        self.keep_author(&skill)?;
        rows::put_skill(self.connection, &skill, self.generation)?;
        let data =
            json!({"digest": skill.digest, "priceCents": skill.price_cents, "status": skill.status.word()});
        self.event("update", id, &data)?;
        Ok(skill)
    }

    /// See [`crate::store::Store::transition`].
    pub fn transition(&self, id: &str, step: &Move) -> Result<Skill, StoreError> {
        let before = self.need(id)?;
        let mut skill = before.clone();
        moves::make(&mut skill, step, self.now)?;
        if let Move::Review { note, .. } = step {
            self.connection
                .prepare_cached(
                    "INSERT INTO reviews(skill_id, decision, note, digest, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![id, step.name(), note, skill.digest, int(self.now.0)])?;
        }
        if skill == before {
            return Ok(skill);
        }
        rows::put_skill(self.connection, &skill, self.generation)?;
        let data = json!({"from": before.status.word(), "to": skill.status.word(),
            "verification": skill.verification.word(), "featured": skill.featured});
        self.event(step.name(), id, &data)?;
        Ok(skill)
    }

    /// See [`crate::store::Store::rate`].
    pub fn rate(&self, id: &str, client: ClientHash, rating: u64) -> Result<Skill, StoreError> {
        let skill = self.need(id)?;
        moves::require_listed(&skill)?;
        let before: Option<i64> = self
            .connection
            .prepare_cached("SELECT rating FROM ratings WHERE skill_id = ?1 AND client = ?2")?
            .query_row(params![id, client.0], |row| row.get(0))
            .optional()?;
        self.connection
            .prepare_cached(
                "INSERT INTO ratings(skill_id, client, rating, created_at, updated_at) \
                 VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT(skill_id, client) DO UPDATE \
                 SET rating = excluded.rating, updated_at = excluded.updated_at",
            )?
            .execute(params![id, client.0, int(rating), int(self.now.0)])?;
        let (sum, count) = (int(rating) - before.unwrap_or(0), i64::from(before.is_none()));
        self.connection
            .prepare_cached(
                "UPDATE skills SET rating_sum = rating_sum + ?2, rating_count = rating_count + ?3, \
                 generation = ?4 WHERE id = ?1",
            )?
            .execute(params![id, sum, count, int(self.generation)])?;
        self.need(id)
    }

    /// See [`crate::store::Store::install`].
    pub fn install(&self, id: &str, client: ClientHash) -> Result<Installed, StoreError> {
        let skill = self.need(id)?;
        moves::require_listed(&skill)?;
        let last: Option<i64> = self
            .connection
            .prepare_cached("SELECT counted_at FROM installs WHERE skill_id = ?1 AND client = ?2")?
            .query_row(params![id, client.0], |row| row.get(0))
            .optional()?;
        let last = last.map(|ms| Time(u64::try_from(ms).unwrap_or_default()));
        if !installs::counts(last, self.now) {
            return Ok(Installed { downloads: skill.downloads, counted: false });
        }
        self.connection
            .prepare_cached(
                "INSERT INTO installs(skill_id, client, counted_at) VALUES (?1, ?2, ?3) \
                 ON CONFLICT(skill_id, client) DO UPDATE SET counted_at = excluded.counted_at",
            )?
            .execute(params![id, client.0, int(self.now.0)])?;
        self.connection
            .prepare_cached(
                "INSERT INTO install_daily(skill_id, day, count) VALUES (?1, ?2, 1) \
                 ON CONFLICT(skill_id, day) DO UPDATE SET count = count + 1",
            )?
            .execute(params![id, int(self.now.0 / DAY_MS)])?;
        self.connection
            .prepare_cached("UPDATE skills SET downloads = downloads + 1, generation = ?2 WHERE id = ?1")?
            .execute(params![id, int(self.generation)])?;
        Ok(Installed { downloads: skill.downloads + 1, counted: true })
    }

    /// See [`crate::store::Store::edit_author`].
    pub fn edit_author(&self, id: &str, patch: &AuthorPatch) -> Result<Author, StoreError> {
        let before = rows::author(self.connection, id)?.ok_or_else(|| no_such_author(id))?;
        authors::refuse_vendor(&before)?;
        let mut author = before.clone();
        patch.apply(&mut author);
        for before in rows::skills_of_author(self.connection, id)? {
            let mut skill = before.clone();
            patch.apply_to_copy(&mut skill);
            if skill != before {
                rows::put_skill(self.connection, &skill, self.generation)?;
            }
        }
        if author != before {
            rows::put_author(self.connection, &author, self.generation)?;
            self.event("author", id, &json!({"displayName": author.display_name}))?;
        }
        Ok(author)
    }

    /// See [`crate::store::Store::take_in`].
    pub fn take_in(&self, incoming: &[Incoming]) -> Result<u64, StoreError> {
        let mut changed = 0;
        for Incoming { skill, content } in incoming {
            let known = rows::skill(self.connection, &skill.id)?;
            let skill = match &known {
                None => skill.clone(),
                Some(known) => merged(known, skill, self.now),
            };
            if known.as_ref() == Some(&skill) {
                continue;
            }
            changed += 1;
            self.keep_content(&skill.digest, content)?;
            self.keep_author(&skill)?;
            rows::put_skill(self.connection, &skill, self.generation)?;
            if known.is_none_or(|known| known.digest != skill.digest) {
                self.keep_version(&skill)?;
            }
            self.event("import", &skill.id, &json!({"digest": skill.digest}))?;
        }
        Ok(changed)
    }

    /// Forgets install windows that began before `passed`.
    pub fn prune(&self, passed: Time) -> Result<u64, StoreError> {
        let sql = "DELETE FROM installs WHERE counted_at < ?1";
        Ok(self.connection.execute(sql, [int(passed.0)])? as u64)
    }
}

/// A known skill with the text of an incoming one: counters, status and dates stay.
fn merged(known: &Skill, incoming: &Skill, now: Time) -> Skill {
    let new_content = known.digest != incoming.digest;
    Skill {
        downloads: known.downloads,
        seed_rating: known.seed_rating,
        seed_rating_count: known.seed_rating_count,
        rating_sum: known.rating_sum,
        rating_count: known.rating_count,
        source: known.source,
        status: known.status,
        verification: known.verification,
        featured: known.featured,
        first_published_at: known.first_published_at,
        created_at: known.created_at,
        updated_at: if new_content { now } else { known.updated_at },
        ..incoming.clone()
    }
}
