//! The writes and their rules, each inside the transaction that the writer thread has opened.

use super::session::Tables;
use super::{ClientHash, Incoming, Installed, StoreError, no_such_author, no_such_skill};
use crate::authoring::content::Content;
use crate::authoring::moves::{self, Move};
use crate::authoring::{Draft, slug};
use crate::authors::{self, AuthorPatch};
use crate::installs;
use crate::model::{Author, Skill};
use serde_json::{Value, json};
use svc_base::time::Time;

/// Ids tried for one name; more than anybody makes skills of one name.
const SLUG_TRIES: u64 = 1_000_000;
/// Ids asked for at once, at most.
const SLUG_LOOKS: u64 = 64;

/// One write's view of the transaction.
pub struct Write<'a, T> {
    /// Inside an open transaction.
    pub tables: &'a mut T,
    /// What rows that change are marked with.
    pub generation: u64,
    pub now: Time,
}

impl<T: Tables> Write<'_, T> {
    fn need(&mut self, id: &str) -> Result<Skill, StoreError> {
        self.tables.skill(id)?.ok_or_else(|| no_such_skill(id).into())
    }

    fn event(&mut self, kind: &str, subject: &str, data: &Value) -> Result<(), StoreError> {
        self.tables.add_event(kind, subject, data, self.now)
    }

    /// The skill's author record is there afterwards; what it lacked is filled.
    fn keep_author(&mut self, skill: &Skill) -> Result<(), StoreError> {
        let mut author = match self.tables.author(&skill.author_id)? {
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
        self.tables.put_author(&author, self.generation)
    }

    fn free_id(&mut self, slug: &str) -> Result<String, StoreError> {
        // Most names are new; for one that many share, each look asks for more ids at a time.
        let (mut from, mut looks) = (1, 1);
        while from < SLUG_TRIES {
            let ids: Vec<String> = (from..from + looks).map(|n| slug::candidate(slug, n)).collect();
            let taken = self.tables.taken(&ids)?;
            if let Some(free) = ids.into_iter().find(|id| !taken.contains(id)) {
                return Ok(free);
            }
            from += looks;
            looks = (looks * 4).min(SLUG_LOOKS);
        }
        Err(StoreError::Unavailable(format!("all ids of {slug} are taken")))
    }

    /// See [`crate::store::Store::create`].
    pub fn create(&mut self, draft: Draft) -> Result<Skill, StoreError> {
        let content = draft.content.clone().unwrap_or_else(|| Content::new(String::new()));
        let mut skill = moves::create(draft, self.now);
        skill.id = self.free_id(&skill.id)?;
        self.tables.put_content(&content.digest, &content.text)?;
        self.keep_author(&skill)?;
        self.tables.put_skill(&skill, self.generation)?;
        self.tables.add_version(&skill, self.now)?;
        self.event("create", &skill.id, &json!({"name": skill.name, "authorId": skill.author_id}))?;
        Ok(skill)
    }

    /// See [`crate::store::Store::update`].
    pub fn update(&mut self, id: &str, draft: &Draft) -> Result<Skill, StoreError> {
        let before = self.need(id)?;
        let mut skill = before.clone();
        moves::edit(&mut skill, draft, self.now)?;
        // No new generation and no event: a repeated request leaves no trace.
        if skill == before {
            return Ok(skill);
        }
        if let Some(content) = &draft.content
            && skill.digest != before.digest
        {
            self.tables.put_content(&content.digest, &content.text)?;
            self.tables.add_version(&skill, self.now)?;
        }
        self.keep_author(&skill)?;
        self.tables.put_skill(&skill, self.generation)?;
        let data =
            json!({"digest": skill.digest, "priceCents": skill.price_cents, "status": skill.status.word()});
        self.event("update", id, &data)?;
        Ok(skill)
    }

    /// See [`crate::store::Store::transition`].
    pub fn transition(&mut self, id: &str, step: &Move) -> Result<Skill, StoreError> {
        let before = self.need(id)?;
        let mut skill = before.clone();
        let was_rejected = *step == Move::Publish && self.tables.was_rejected(id)?;
        moves::make(&mut skill, step, was_rejected, self.now)?;
        if let Move::Review { note, .. } = step {
            self.tables.add_review(&skill, step.name(), note, self.now)?;
        }
        if skill == before {
            return Ok(skill);
        }
        self.tables.put_skill(&skill, self.generation)?;
        let data = json!({"from": before.status.word(), "to": skill.status.word(),
            "verification": skill.verification.word(), "featured": skill.featured});
        self.event(step.name(), id, &data)?;
        Ok(skill)
    }

    /// See [`crate::store::Store::rate`].
    pub fn rate(&mut self, id: &str, client: ClientHash, rating: u64) -> Result<Skill, StoreError> {
        let skill = self.need(id)?;
        moves::require_listed(&skill)?;
        let rating = i64::try_from(rating).unwrap_or(i64::MAX);
        let before = self.tables.rating(id, client)?;
        self.tables.put_rating(id, client, rating, self.now)?;
        // The difference, not the sum anew: a skill may have thousands of ratings.
        let (sum, count) = (rating - before.unwrap_or(0), i64::from(before.is_none()));
        self.tables.add_to_ratings(id, sum, count, self.generation)?;
        self.need(id)
    }

    /// See [`crate::store::Store::install`].
    pub fn install(&mut self, id: &str, client: ClientHash) -> Result<Installed, StoreError> {
        let skill = self.need(id)?;
        moves::require_listed(&skill)?;
        let last = self.tables.last_install(id, client)?;
        if !installs::counts(last, self.now) {
            return Ok(Installed { downloads: skill.downloads, counted: false });
        }
        self.tables.count_install(id, client, self.now, self.generation)?;
        Ok(Installed { downloads: skill.downloads + 1, counted: true })
    }

    /// See [`crate::store::Store::edit_author`].
    pub fn edit_author(&mut self, id: &str, patch: &AuthorPatch) -> Result<Author, StoreError> {
        let before = self.tables.author(id)?.ok_or_else(|| no_such_author(id))?;
        authors::refuse_vendor(&before)?;
        let mut author = before.clone();
        patch.apply(&mut author);
        // Skills carry a copy of these fields, so that a list needs no second look-up.
        for before in self.tables.skills_of_author(id)? {
            let mut skill = before.clone();
            patch.apply_to_copy(&mut skill);
            moves::keep_marks(&mut skill, &before);
            if skill != before {
                self.tables.put_skill(&skill, self.generation)?;
            }
        }
        if author != before {
            self.tables.put_author(&author, self.generation)?;
            self.event("author", id, &json!({"displayName": author.display_name}))?;
        }
        Ok(author)
    }

    /// See [`crate::store::Store::take_in`].
    pub fn take_in(&mut self, incoming: &[Incoming]) -> Result<u64, StoreError> {
        let mut changed = 0;
        for Incoming { skill, content } in incoming {
            let known = self.tables.skill(&skill.id)?;
            let skill = match &known {
                None => skill.clone(),
                Some(known) if known.source != skill.source => {
                    log::warn!("{} was not taken in: a skill of another source has this id", skill.id);
                    continue;
                }
                Some(known) => merged(known, skill, self.now),
            };
            if known.as_ref() == Some(&skill) {
                continue;
            }
            changed += 1;
            self.tables.put_content(&skill.digest, content)?;
            self.keep_author(&skill)?;
            self.tables.put_skill(&skill, self.generation)?;
            if known.is_none_or(|known| known.digest != skill.digest) {
                self.tables.add_version(&skill, self.now)?;
            }
            self.event("import", &skill.id, &json!({"digest": skill.digest}))?;
        }
        Ok(changed)
    }

    /// Forgets install windows that began before `passed`.
    pub fn prune(&mut self, passed: Time) -> Result<u64, StoreError> {
        self.tables.forget_installs(passed)
    }
}

/// A known skill with the text of an incoming one: counters, status and dates stay, and the operator's marks
/// where it says the same.
fn merged(known: &Skill, incoming: &Skill, now: Time) -> Skill {
    let new_content = known.digest != incoming.digest;
    let mut skill = Skill {
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
    };
    moves::keep_marks(&mut skill, known);
    skill
}
